/* A request's life: bodies, answers, connections that are kept, clients that leave. */
#include "listener_rig.h"

START_TEST(an_answer_has_its_own_fields_and_the_listeners)
{
	int fd = dial();
	const char *text = ask(fd, LINE HOST "Content-Length: 2\r\n\r\nhi", "hi");

	ck_assert_ptr_nonnull(strstr(text, "HTTP/1.1 200 OK\r\n"));
	ck_assert_ptr_nonnull(strstr(text, "Content-Type: text/plain\r\n"));
	ck_assert_ptr_nonnull(strstr(text, "Content-Length: 2\r\n"));
	ck_assert_ptr_nonnull(strstr(text, "X-Empty: "));
	ck_assert_ptr_nonnull(strstr(text, "Date: "));
	ck_assert_ptr_null(strstr(text, "X-Lie"));
	ck_assert_ptr_null(strstr(text, "Connection"));
	close(fd);
}
END_TEST

START_TEST(a_head_request_gets_a_length_and_no_body)
{
	int fd = dial();
	const char *text = ask(fd, "HEAD /body HTTP/1.1\r\n" HOST "\r\n", "\r\n\r\n");

	ck_assert_ptr_nonnull(strstr(text, "Content-Length: 7\r\n"));
	ck_assert_ptr_null(strstr(text, "nothing"));
	text = ask(fd, LINE HOST "Content-Length: 2\r\n\r\nhi", "hi");
	ck_assert_uint_eq(status_in(text), 200);
	close(fd);
}
END_TEST

START_TEST(a_connection_is_kept_and_pipelined_requests_come_one_by_one)
{
	int fd = dial();
	const char *text = NULL;

	say(fd,
	    "POST /later HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\none"
	    "POST /later HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\ntwo" LINE HOST "\r\n");
	turn_for(30);
	ck_assert_uint_eq(heads, 1);
	ck_assert_uint_eq(listener_requests(listener), 1);
	finish_later(0);
	text = hear_until(fd, "one", 1000);
	ck_assert_uint_eq(answers_in(text), 1);
	turn_for(20);
	ck_assert_uint_eq(heads, 2);
	ck_assert_uint_eq(ends, 1);
	finish_later(1);
	text = hear_until(fd, "nothing", 1000);
	ck_assert_uint_eq(answers_in(text), 2);
	ck_assert_ptr_nonnull(strstr(text, "two"));
	ck_assert_uint_eq(heads, 3);
	close(fd);
}
END_TEST

START_TEST(http_1_0_closes_unless_asked_to_keep)
{
	int fd = dial();
	const char *text = ask(fd, "POST /body HTTP/1.0\r\nContent-Length: 2\r\n\r\nhi", NULL);

	ck_assert_uint_eq(status_in(text), 200);
	ck_assert_ptr_nonnull(strstr(text, "Connection: close"));
	ck_assert_ptr_nonnull(strstr(text, "hi<end>"));
	ck_assert_str_eq(last_host, "");
	close(fd);
	fd = dial();
	for (int i = 0; i < 2; i++) {
		text = ask(fd, "GET /body HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
			   "nothing");
		ck_assert_uint_eq(status_in(text), 200);
		ck_assert_ptr_nonnull(strstr(text, "Connection: Keep-Alive"));
	}
	close(fd);
}
END_TEST

START_TEST(connection_close_is_honoured)
{
	int fd = dial();
	const char *text = ask(fd, LINE HOST "Connection: close\r\n\r\n", NULL);

	ck_assert_ptr_nonnull(strstr(text, "nothing<end>"));
	close(fd);
}
END_TEST

/* The first of several connections is treated differently by the library: open some. */
START_TEST(a_client_that_closed_its_half_gets_its_answer)
{
	int others[3], fd = -1;
	const char *text = NULL;

	for (int i = 0; i < 3; i++) {
		others[i] = dial();
		ask(others[i], LINE HOST "\r\n", "nothing");
	}
	fd = dial();
	say(fd, "POST /later HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\none");
	shutdown(fd, SHUT_WR);
	turn_for(30);
	ck_assert_uint_eq(n_later, 1);
	finish_later(0);
	text = hear_end(fd);
	ck_assert_ptr_nonnull(strstr(text, "one<end>"));
	ck_assert_uint_eq(gone, 0);
	for (int i = 0; i < 3; i++)
		close(others[i]);
	close(fd);
}
END_TEST

/* The end comes together with the last bytes: no second event tells of it. */
START_TEST(an_end_that_comes_with_the_request_is_seen)
{
	int fd = dial(), cut = dial();
	const char *text = NULL;

	send(fd, LINE HOST "\r\n", strlen(LINE HOST "\r\n"), MSG_NOSIGNAL);
	shutdown(fd, SHUT_WR);
	send(cut, LINE HOST "X-", strlen(LINE HOST "X-"), MSG_NOSIGNAL);
	shutdown(cut, SHUT_WR);
	text = hear_until(fd, NULL, 2500);
	ck_assert_uint_eq(status_in(text), 200);
	ck_assert_ptr_nonnull(strstr(text, "nothing<end>"));
	ck_assert_str_eq(hear_until(cut, NULL, 2500), "<end>");
	turn_for(10);
	ck_assert_uint_eq(listener_connections(listener), 0);
	close(fd), close(cut);
}
END_TEST

static void reset(int fd)
{
	struct linger now = { .l_onoff = 1 };

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(fd);
}

START_TEST(a_client_that_leaves_while_waiting_changes_nothing)
{
	int fd = dial();

	say(fd, "POST /later HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\none");
	turn_for(20);
	reset(fd);
	turn_for(50);
	ck_assert_uint_eq(bodies, 1);
	ck_assert_uint_eq(ends, 0);
	ck_assert_uint_eq(listener_requests(listener), 1);
	finish_later(0);
	turn_for(20);
	ck_assert_uint_eq(ends, 1);
	ck_assert_uint_eq(gone, 1);
	ck_assert_uint_eq(listener_connections(listener), 0);
}
END_TEST

START_TEST(a_client_that_leaves_before_its_request_is_complete_ends_it)
{
	static const char *const pieces[] = { "",
					      "POST /bo",
					      LINE,
					      LINE HOST "X-A: ",
					      LINE HOST "Content-Length: 3\r\n\r\non",
					      LINE HOST
					      "Transfer-Encoding: chunked\r\n\r\n2\r\nx" };

	for (size_t i = 0; i < ARRAY_LEN(pieces); i++)
		for (int how = 0; how < 3; how++) {
			int fd = dial();

			say(fd, pieces[i]);
			turn_for(3);
			if (how == 0)
				reset(fd);
			else if (how == 1)
				close(fd);
			else
				shutdown(fd, SHUT_WR);
			turn_for(5);
			if (how == 2)
				close(fd);
			turn_for(2);
			ck_assert_uint_eq(listener_connections(listener), 0);
		}
	ck_assert_uint_eq(bodies, 0);
	ck_assert_uint_eq(heads, 6);
	ck_assert_uint_eq(ends, 6);
	ck_assert_uint_eq(gone, 6);
}
END_TEST

START_TEST(a_client_that_leaves_while_it_is_answered_ends_the_request)
{
	static char large[BIG_MAX];
	int fd = dial();

	memset(large, 'x', sizeof(large));
	say(fd, "POST /big HTTP/1.1\r\n" HOST "Content-Length: 4194304\r\n\r\n");
	ck_assert(say_bytes(fd, large, sizeof(large)));
	turn_for(50);
	ck_assert_uint_eq(bodies, 1);
	ck_assert_uint_eq(last_body_len, sizeof(large));
	ck_assert_uint_eq(ends, 0); /* the client has not read */
	reset(fd);
	turn_for(20);
	ck_assert_uint_eq(ends, 1);
	ck_assert_uint_eq(gone, 1);
}
END_TEST

START_TEST(a_large_answer_arrives_whole)
{
	static char large[BIG_MAX];
	static char got[65536];
	int fd = dial();
	size_t sum = 0;
	int64_t until = loop_clock_us() + 5000000;

	memset(large, 'x', sizeof(large));
	say(fd, "POST /big HTTP/1.1\r\n" HOST "Content-Length: 4194304\r\n\r\n");
	ck_assert(say_bytes(fd, large, sizeof(large)));
	while (sum < sizeof(large) && loop_clock_us() < until) {
		ssize_t n = recv(fd, got, sizeof(got), MSG_DONTWAIT);

		if (n > 0)
			sum += (size_t)n;
		else
			turn(1);
	}
	ck_assert_uint_gt(sum, sizeof(large));
	turn_for(10);
	ck_assert_uint_eq(ends, 1);
	ck_assert_uint_eq(gone, 0);
	close(fd);
}
END_TEST

START_TEST(a_held_request_ends_when_it_is_released)
{
	int fd = dial();

	say(fd, "POST /held HTTP/1.1\r\n" HOST "\r\n");
	turn_for(10);
	finish_later(0);
	ck_assert_uint_eq(status_in(hear_until(fd, "nothing", 1000)), 201);
	turn_for(10);
	ck_assert_uint_eq(ends, 0);
	ck_assert_uint_eq(status_in(ask(fd, LINE HOST "\r\n", "nothing")), 200);
	ck_assert_uint_eq(listener_requests(listener), 1);
	listener_release(&later[0]->request);
	ck_assert_uint_eq(ends, 2);
	ck_assert_uint_eq(listener_requests(listener), 0);
	close(fd);
}
END_TEST

/* ---- bodies that are too large, or not wanted */

START_TEST(a_body_over_the_maximum_is_swallowed_and_reported)
{
	static char text[512];
	int fd = dial();

	snprintf(text, sizeof(text), LINE HOST "Content-Length: 65\r\n\r\n%065d", 0);
	ck_assert_ptr_nonnull(strstr(ask(fd, text, NULL), "too large<end>"));
	ck_assert(too_large);
	ck_assert_uint_eq(announced, 65);
	ck_assert_uint_eq(last_body_len, 0);
	close(fd);
	fd = dial();
	snprintf(text, sizeof(text),
		 LINE HOST
		 "Transfer-Encoding: chunked\r\n\r\n40\r\n%064d\r\n1\r\nx\r\n0\r\n\r\n",
		 0);
	ck_assert_ptr_nonnull(strstr(ask(fd, text, NULL), "too large<end>"));
	ck_assert_uint_eq(announced, SIZE_MAX);
	close(fd);
	fd = dial();
	snprintf(text, sizeof(text),
		 LINE HOST "Transfer-Encoding: chunked\r\n\r\n40\r\n%064d\r\n0\r\n\r\n", 0);
	ck_assert_uint_eq(status_in(ask(fd, text, "0000")), 200);
	ck_assert(!too_large);
	ck_assert_uint_eq(last_body_len, 64);
	close(fd);
}
END_TEST

START_TEST(a_body_that_is_announced_as_huge_is_refused_at_once)
{
	int fd = dial();
	const char *text = ask(fd, LINE HOST "Content-Length: 99999999\r\n\r\nx", NULL);

	ck_assert_uint_eq(status_in(text), 413);
	ck_assert_ptr_nonnull(strstr(text, "Connection: close"));
	ck_assert_uint_eq(ends, 1);
	close(fd);
	fd = dial();
	text = ask(fd, "POST /now HTTP/1.1\r\n" HOST "Content-Length: 99999999\r\n\r\nx", NULL);
	ck_assert_uint_eq(status_in(text), 403);
	close(fd);
}
END_TEST

START_TEST(an_endless_body_is_cut_off_and_answered)
{
	static char chunk[65536 + 16];
	int fd = dial();
	const char *text = NULL;
	size_t len = (size_t)snprintf(chunk, sizeof(chunk), "10000\r\n");

	memset(chunk + len, 'x', 65536);
	snprintf(chunk + len + 65536, 3, "\r\n");
	len += 65538;
	say(fd, LINE HOST "Transfer-Encoding: chunked\r\n\r\n");
	for (int i = 0; i < 40 && say_bytes(fd, chunk, len); i++)
		;
	text = hear_end(fd);
	ck_assert_uint_eq(status_in(text), 413);
	ck_assert_ptr_nonnull(strstr(text, "too large"));
	ck_assert_uint_eq(bodies, 1);
	close(fd);
	turn_for(10);
	ck_assert_uint_eq(ends, 1);

	fd = dial();
	say(fd, "POST /now HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n");
	for (int i = 0; i < 40 && say_bytes(fd, chunk, len); i++)
		;
	ck_assert_uint_eq(status_in(hear_end(fd)), 403);
	close(fd);
	turn_for(10);
	ck_assert_uint_eq(ends, 2);
	ck_assert_uint_eq(bodies, 1);

	fd = dial();
	say(fd, "POST /later HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n");
	for (int i = 0; i < 20; i++)
		say_bytes(fd, chunk, len);
	ck_assert_uint_eq(n_later, 1);
	finish_later(0);
	ck_assert_uint_eq(status_in(hear_until(fd, "too large", 1000)), 201);
	close(fd);
	turn_for(10);
	ck_assert_uint_eq(ends, 3);
}
END_TEST

START_TEST(an_answer_from_the_head_waits_for_the_body_and_closes)
{
	int fd = dial();
	const char *text = NULL;

	say(fd, "POST /now HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\no");
	ck_assert_str_eq(hear(fd), "");
	text = ask(fd, "ne", NULL);
	ck_assert_uint_eq(status_in(text), 403);
	ck_assert_ptr_nonnull(strstr(text, "nothing<end>"));
	ck_assert_uint_eq(bodies, 0);
	close(fd);
	fd = dial();
	for (int i = 0; i < 2; i++) /* without a body the connection is kept */
		ck_assert_uint_eq(
			status_in(ask(fd, "POST /now HTTP/1.1\r\n" HOST "\r\n", "nothing")),
			403);
	close(fd);
}
END_TEST

START_TEST(the_body_is_asked_for_only_where_it_is_wanted)
{
	int fd = dial();
	const char *text = ask(
		fd, LINE HOST "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n", "\r\n\r\n");

	ck_assert_uint_eq(status_in(text), 100);
	text = ask(fd, "hi", "hi");
	ck_assert_uint_eq(status_in(text), 200);
	close(fd);
	fd = dial();
	text = ask(fd,
		   "POST /now HTTP/1.1\r\n" HOST
		   "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n",
		   NULL);
	ck_assert_uint_eq(status_in(text), 403);
	ck_assert_ptr_null(strstr(text, " 100 "));
	close(fd);
	fd = dial();
	text = ask(fd, LINE HOST "Expect: 100-continue\r\nContent-Length: 65\r\n\r\n", NULL);
	ck_assert_uint_eq(status_in(text), 413);
	close(fd);
	fd = dial();
	text = ask(fd, LINE HOST "Expect: 100-continue\r\n\r\n", "nothing");
	ck_assert_ptr_nonnull(strstr(text, "HTTP/1.1 200 OK"));
	close(fd);
	ck_assert_uint_eq(gone, 0);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("life");

	tcase_add_test(tcase, an_answer_has_its_own_fields_and_the_listeners);
	tcase_add_test(tcase, a_head_request_gets_a_length_and_no_body);
	tcase_add_test(tcase, a_connection_is_kept_and_pipelined_requests_come_one_by_one);
	tcase_add_test(tcase, http_1_0_closes_unless_asked_to_keep);
	tcase_add_test(tcase, connection_close_is_honoured);
	tcase_add_test(tcase, a_client_that_closed_its_half_gets_its_answer);
	tcase_add_test(tcase, an_end_that_comes_with_the_request_is_seen);
	tcase_add_test(tcase, a_client_that_leaves_while_waiting_changes_nothing);
	tcase_add_test(tcase, a_client_that_leaves_before_its_request_is_complete_ends_it);
	tcase_add_test(tcase, a_client_that_leaves_while_it_is_answered_ends_the_request);
	tcase_add_test(tcase, a_large_answer_arrives_whole);
	tcase_add_test(tcase, a_held_request_ends_when_it_is_released);
	tcase_add_test(tcase, a_body_over_the_maximum_is_swallowed_and_reported);
	tcase_add_test(tcase, a_body_that_is_announced_as_huge_is_refused_at_once);
	tcase_add_test(tcase, an_endless_body_is_cut_off_and_answered);
	tcase_add_test(tcase, an_answer_from_the_head_waits_for_the_body_and_closes);
	tcase_add_test(tcase, the_body_is_asked_for_only_where_it_is_wanted);
	return run_case("listener", tcase);
}
