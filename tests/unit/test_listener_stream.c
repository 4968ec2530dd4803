/* Answers in pieces: what a client has of one, and when it has its end. */
#include "listener_rig.h"

#define KIB  ((size_t)1024)
#define HIGH (256 * KIB)
#define LOW  (64 * KIB)

static unsigned moves;
static struct http_request *moved_request;

static void begin_later(struct http_request *request, void *arg)
{
	body(request, arg);
}

static void has_moved(struct http_request *request, void *arg)
{
	(void)arg;
	moves++;
	moved_request = request;
}

static const struct listener_handler streaming = { .size = sizeof(struct exchange),
						   .head = head,
						   .body = begin_later,
						   .end = end,
						   .moved = has_moved };

static void start_streaming(int64_t client_stall)
{
	char why[256] = "";
	const char *addresses[] = { "127.0.0.1:0" };
	struct listener_limits limits = usual;
	struct listener_start start = { .loop = loop,
					.addresses = addresses,
					.n_addresses = 1,
					.limits = &limits,
					.handler = &streaming,
					.metrics = metrics };

	limits.client_stall = client_stall;
	moves = 0;
	moved_request = NULL;
	listener = listener_new(&start, why);
	ck_assert_msg(listener != NULL, "%s", why);
}

static void setup_stream(void)
{
	make();
	start_streaming(10000);
}

#define LATER(version) "POST /later HTTP/" version "\r\n" HOST "Content-Length: 0\r\n\r\n"

/* A request whose answer in pieces has begun. */
static struct http_request *stream_for(int fd, const char *text, uint64_t length,
				       int64_t patience)
{
	struct exchange *x = NULL;
	unsigned nth = n_later;

	say(fd, text);
	for (int i = 0; i < 100 && n_later == nth; i++)
		turn(5);
	ck_assert_uint_eq(n_later, nth + 1);
	x = later[nth];
	x->answer.status = 201;
	x->answer.fields.at = x->fields;
	http_add(&x->answer.fields, SPAN("X-Mine"), SPAN("1"));
	http_add(&x->answer.fields, SPAN("Content-Length"), SPAN("77"));
	listener_stream(&x->request, &(struct listener_stream){ .answer = &x->answer,
								.length = length,
								.patience = patience });
	return &x->request;
}

static struct http_request *stream(int fd, uint64_t length)
{
	return stream_for(fd, LATER("1.1"), length, INT64_MAX);
}

static bool ends_with(const char *text, const char *end)
{
	size_t len = strlen(text), n = strlen(end);

	return len >= n && strcmp(text + len - n, end) == 0;
}

START_TEST(the_last_chunk_is_withheld_until_the_end)
{
	int fd = dial();
	struct http_request *request = stream(fd, LISTENER_LENGTH_UNKNOWN);
	const char *text = hear_until(fd, "\r\n\r\n", 2000);

	ck_assert_uint_eq(status_in(text), 201); /* before any byte of the body */
	ck_assert_ptr_nonnull(strstr(text, "X-Mine: 1\r\n"));
	ck_assert_ptr_nonnull(strstr(text, "Transfer-Encoding: chunked\r\n"));
	ck_assert_ptr_null(strstr(text, "Content-Length"));
	listener_stream_data(request, SPAN("one"));
	ck_assert_ptr_nonnull(strstr(hear_until(fd, "one", 1000), "3\r\none\r\n"));
	listener_stream_data(request, SPAN("two"));
	ck_assert_ptr_nonnull(strstr(hear_until(fd, "two", 1000), "3\r\ntwo\r\n"));
	ck_assert_str_eq(hear(fd), "");
	listener_stream_end(request);
	ck_assert_str_eq(hear_until(fd, "0\r\n\r\n", 1000), "0\r\n\r\n");
	turn_for(20);
	ck_assert_uint_eq(ends, 1);
	ck_assert_uint_eq(gone, 0);
	ck_assert_uint_eq(status_in(ask(fd, LINE HOST "Content-Length: 2\r\n\r\nhi", "hi")),
			  200);
	ck_assert_uint_eq(moves, 0);
	close(fd);
}
END_TEST

START_TEST(of_a_known_length_the_last_byte_is_withheld)
{
	int fd = dial();
	struct http_request *request = stream(fd, 6);
	const char *text = NULL;

	listener_stream_data(request, SPAN("one"));
	text = hear_until(fd, "one", 1000);
	ck_assert_ptr_nonnull(strstr(text, "Content-Length: 6\r\n"));
	ck_assert_ptr_null(strstr(text, "77"));
	ck_assert(ends_with(text, "one"));
	listener_stream_data(request, SPAN("two"));
	ck_assert_str_eq(hear(fd), "tw");
	listener_stream_end(request);
	ck_assert_str_eq(hear_until(fd, "o", 1000), "o");
	turn_for(20);
	ck_assert_uint_eq(ends, 1);
	ck_assert_uint_eq(gone, 0);
	ck_assert_uint_eq(status_in(ask(fd, LINE HOST "Content-Length: 2\r\n\r\nhi", "hi")),
			  200);
	close(fd);
}
END_TEST

START_TEST(one_byte_is_withheld_as_a_whole)
{
	int fd = dial();
	struct http_request *request = stream(fd, 1);

	listener_stream_data(request, SPAN("x"));
	ck_assert(ends_with(hear(fd), "\r\n\r\n"));
	listener_stream_end(request);
	ck_assert_str_eq(hear_until(fd, "x", 1000), "x");
	close(fd);
}
END_TEST

START_TEST(an_aborted_stream_has_no_end)
{
	int fd = dial();
	struct http_request *request = stream(fd, _i ? 6 : LISTENER_LENGTH_UNKNOWN);
	const char *text = NULL;

	listener_stream_data(request, _i ? SPAN("onetwo") : SPAN("one"));
	turn_for(20);
	listener_stream_abort(request);
	text = hear_end(fd);
	ck_assert(ends_with(text, _i ? "onetw<end>" : "3\r\none\r\n<end>"));
	turn_for(20);
	ck_assert_uint_eq(ends, 1);
	ck_assert_uint_eq(gone, 0); /* it was not the client */
	ck_assert_uint_eq(moves, 0);
	ck_assert_uint_eq(listener_connections(listener), 0);
	close(fd);
}
END_TEST

START_TEST(a_stream_may_be_aborted_before_it_has_begun)
{
	int fd = dial();
	struct http_request *request = stream(fd, LISTENER_LENGTH_UNKNOWN);

	listener_stream_abort(request);
	ck_assert_ptr_null(strstr(hear_end(fd), "0\r\n\r\n"));
	turn_for(20);
	ck_assert_uint_eq(ends, 1);
	ck_assert_uint_eq(listener_connections(listener), 0);
	close(fd);
}
END_TEST

START_TEST(http_1_0_gets_a_length_or_the_end_of_the_connection)
{
	int fd = dial();
	struct http_request *request =
		stream_for(fd, LATER("1.0"), _i ? 3 : LISTENER_LENGTH_UNKNOWN, INT64_MAX);
	const char *text = NULL;

	listener_stream_data(request, SPAN("one"));
	turn_for(20);
	listener_stream_end(request);
	text = hear_end(fd);
	ck_assert(ends_with(text, "\r\n\r\none<end>"));
	ck_assert((strstr(text, "Content-Length: 3\r\n") != NULL) == (_i == 1));
	ck_assert_ptr_null(strstr(text, "chunked"));
	close(fd);
}
END_TEST

START_TEST(http_1_0_without_a_length_is_aborted_by_a_reset)
{
	int fd = dial();
	struct http_request *request =
		stream_for(fd, LATER("1.0"), LISTENER_LENGTH_UNKNOWN, INT64_MAX);

	listener_stream_data(request, SPAN("one"));
	ck_assert(ends_with(hear_until(fd, "one", 1000), "one"));
	listener_stream_abort(request);
	ck_assert(ends_with(hear_end(fd), "<reset>"));
	turn_for(20);
	ck_assert_uint_eq(listener_connections(listener), 0);
	close(fd);
}
END_TEST

static char megabyte[1024 * 1024];

/* Fills kernel and queue until the queue is above the high mark. */
static size_t fill(struct http_request *request)
{
	size_t all = 0;

	memset(megabyte, 'x', sizeof(megabyte));
	for (int i = 0; i < 10000; i++) {
		all += 16 * KIB;
		if (listener_stream_data(request, (struct span){ megabyte, 16 * KIB }) > HIGH) {
			listener_stream_until(request, LOW);
			return all;
		}
		turn(0);
	}
	ck_abort_msg("it is never full");
	return 0;
}

static size_t drink(int fd, size_t most)
{
	static char drop[256 * 1024];
	size_t all = 0;

	while (all < most) {
		size_t room = most - all < sizeof(drop) ? most - all : sizeof(drop);
		ssize_t n = recv(fd, drop, room, MSG_DONTWAIT);

		if (n <= 0)
			break;
		all += (size_t)n;
	}
	return all;
}

START_TEST(a_slow_reader_is_waited_for_and_its_taking_is_told)
{
	int fd = dial();
	struct http_request *request = stream(fd, LISTENER_LENGTH_UNKNOWN);
	size_t sent = fill(request), got = 0;

	turn_for(50);
	ck_assert_uint_eq(moves, 0);
	ck_assert_uint_le(listener_stream_queued(request), HIGH + 16 * KIB);
	for (int i = 0; i < 2000 && !moves; i++) {
		got += drink(fd, 64 * KIB);
		turn(1);
	}
	ck_assert_uint_eq(moves, 1);
	ck_assert_ptr_eq(moved_request, request);
	ck_assert(!listener_gone(request));
	ck_assert_uint_lt(listener_stream_queued(request), LOW);
	sent += fill(request); /* and again */
	listener_stream_end(request);
	for (int i = 0; i < 2000 && ends == 0; i++) {
		got += drink(fd, SIZE_MAX);
		turn(1);
	}
	got += drink(fd, SIZE_MAX);
	ck_assert_uint_eq(ends, 1);
	ck_assert_uint_gt(got, sent);
	ck_assert_uint_lt(got, sent + sent / 100 + 1000); /* a head and chunks */
	close(fd);
}
END_TEST

static void reset_by_client(int fd)
{
	const struct linger now = { .l_onoff = 1 };

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(fd);
}

START_TEST(a_client_that_leaves_is_told_of_and_its_pieces_are_dropped)
{
	int fd = dial();
	struct http_request *request = stream(fd, LISTENER_LENGTH_UNKNOWN);

	listener_stream_data(request, SPAN("one"));
	turn_for(20);
	if (_i % 2)
		reset_by_client(fd);
	else
		close(fd);
	for (int i = 0; i < 200 && !moves; i++) {
		listener_stream_data(request, SPAN("more"));
		turn(5);
	}
	ck_assert_uint_eq(moves, 1);
	ck_assert(listener_gone(request));
	ck_assert_uint_eq(ends, 0); /* the stream holds it */
	ck_assert_uint_eq(listener_stream_data(request, SPAN("lost")), 0);
	ck_assert_uint_eq(listener_stream_queued(request), 0);
	if (_i < 2)
		listener_stream_end(request);
	else
		listener_stream_abort(request);
	ck_assert_uint_eq(ends, 1);
	ck_assert_uint_eq(gone, 1);
	ck_assert_uint_eq(moves, 1);
}
END_TEST

START_TEST(a_client_that_takes_nothing_is_dropped)
{
	int fd = 0;
	struct http_request *request = NULL;

	make();
	start_streaming(1000);
	fd = dial();
	request = stream(fd, LISTENER_LENGTH_UNKNOWN);
	turn_for(2500); /* there is nothing to take: nobody is slow */
	ck_assert_uint_eq(moves, 0);
	fill(request);
	turn_for(3500);
	ck_assert_uint_eq(moves, 1);
	ck_assert(listener_gone(request));
	listener_stream_abort(request);
	ck_assert_uint_eq(ends, 1);
	close(fd);
	teardown();
}
END_TEST

START_TEST(a_client_that_holds_up_for_longer_than_allowed_is_dropped)
{
	int fd = dial();
	struct http_request *request =
		stream_for(fd, LATER("1.1"), LISTENER_LENGTH_UNKNOWN, 1500);
	int64_t until = loop_clock_us() + 5000000;

	memset(megabyte, 'x', sizeof(megabyte));
	while (!listener_gone(request) && loop_clock_us() < until) {
		if (listener_stream_queued(request) <= HIGH)
			listener_stream_data(request, (struct span){ megabyte, 256 * KIB });
		listener_stream_until(request, LOW);
		drink(fd, 4096);
		turn_for(20);
	}
	ck_assert(listener_gone(request));
	listener_stream_end(request);
	ck_assert_uint_eq(gone, 1);
	close(fd);
}
END_TEST

START_TEST(a_reset_is_noticed_where_it_is_minded_and_a_half_close_is_none)
{
	int fd = dial();

	say(fd, LATER("1.1"));
	turn_for(20);
	ck_assert_uint_eq(n_later, 1);
	if (_i != 2)
		listener_mind(&later[0]->request);
	if (_i == 1)
		shutdown(fd, SHUT_WR);
	else
		reset_by_client(fd);
	turn_for(2500);
	ck_assert_uint_eq(moves, _i == 0);
	finish_later(0);
	turn_for(20);
	ck_assert_uint_eq(ends, 1);
	ck_assert_uint_eq(gone, _i != 1);
	ck_assert_uint_eq(moves, _i == 0);
	if (_i == 1)
		ck_assert_uint_eq(status_in(hear_end(fd)), 201);
}
END_TEST

START_TEST(a_stream_that_waits_notices_a_reset_too)
{
	int fd = dial();
	struct http_request *request = stream(fd, LISTENER_LENGTH_UNKNOWN);

	listener_mind(request);
	listener_stream_data(request, SPAN("one"));
	ck_assert_ptr_nonnull(strstr(hear_until(fd, "one", 1000), "one"));
	reset_by_client(fd);
	turn_for(2500);
	ck_assert_uint_eq(moves, 1);
	ck_assert(listener_gone(request));
	listener_stream_abort(request);
	turn_for(20);
	ck_assert_uint_eq(ends, 1);
	ck_assert_uint_eq(gone, 1);
}
END_TEST

START_TEST(a_drain_waits_for_a_stream_and_closes_behind_it)
{
	int fd = dial();
	struct http_request *request = stream(fd, LISTENER_LENGTH_UNKNOWN);

	listener_stream_data(request, SPAN("one"));
	ck_assert_ptr_nonnull(strstr(hear_until(fd, "one", 1000), "one"));
	listener_drain(listener);
	turn_for(50);
	ck_assert_uint_eq(listener_requests(listener), 1);
	listener_stream_end(request);
	ck_assert_str_eq(hear_end(fd), "0\r\n\r\n<end>");
	turn_for(20);
	ck_assert_uint_eq(listener_connections(listener), 0);
	close(fd);
}
END_TEST

START_TEST(many_streams_at_once_end_each_in_its_time)
{
	enum { MANY = 60 };
	int fd[MANY];
	struct http_request *request[MANY];

	for (int i = 0; i < MANY; i++) {
		fd[i] = dial();
		request[i] = stream(fd[i], i % 2 ? 9 : LISTENER_LENGTH_UNKNOWN);
	}
	for (int round = 0; round < 3; round++)
		for (int i = 0; i < MANY; i++) {
			listener_stream_data(request[i], SPAN("abc"));
			turn(0);
		}
	for (int i = MANY; i-- > 0;) {
		listener_stream_end(request[i]);
		ck_assert_ptr_nonnull(
			strstr(hear_until(fd[i], i % 2 ? "abcabcabc" : "\r\n0\r\n\r\n", 2000),
			       i % 2 ? "abcabcabc" : "\r\n0\r\n\r\n"));
		close(fd[i]);
	}
	turn_for(20);
	ck_assert_uint_eq(ends, MANY);
	ck_assert_uint_eq(gone, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("listener_stream");
	TCase *tcase = tcase_create("stream"), *hasty = tcase_create("hasty");

	tcase_add_checked_fixture(tcase, setup_stream, teardown);
	tcase_set_timeout(tcase, 60);
	tcase_set_timeout(hasty, 60);
	tcase_add_test(tcase, the_last_chunk_is_withheld_until_the_end);
	tcase_add_test(tcase, of_a_known_length_the_last_byte_is_withheld);
	tcase_add_test(tcase, one_byte_is_withheld_as_a_whole);
	tcase_add_loop_test(tcase, an_aborted_stream_has_no_end, 0, 2);
	tcase_add_test(tcase, a_stream_may_be_aborted_before_it_has_begun);
	tcase_add_loop_test(tcase, http_1_0_gets_a_length_or_the_end_of_the_connection, 0, 2);
	tcase_add_test(tcase, http_1_0_without_a_length_is_aborted_by_a_reset);
	tcase_add_test(tcase, a_slow_reader_is_waited_for_and_its_taking_is_told);
	tcase_add_loop_test(tcase, a_client_that_leaves_is_told_of_and_its_pieces_are_dropped,
			    0, 4);
	tcase_add_test(tcase, a_client_that_holds_up_for_longer_than_allowed_is_dropped);
	tcase_add_loop_test(
		tcase, a_reset_is_noticed_where_it_is_minded_and_a_half_close_is_none, 0, 3);
	tcase_add_test(tcase, a_stream_that_waits_notices_a_reset_too);
	tcase_add_test(tcase, a_drain_waits_for_a_stream_and_closes_behind_it);
	tcase_add_test(tcase, many_streams_at_once_end_each_in_its_time);
	tcase_add_test(hasty, a_client_that_takes_nothing_is_dropped);
	suite_add_tcase(suite, tcase);
	suite_add_tcase(suite, hasty);
	return run_suite(suite);
}
