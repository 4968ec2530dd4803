/* Deadlines, limits, draining and addresses. */
#include "listener_rig.h"

static const struct listener_limits hasty = { .header_timeout = 300,
					      .body_timeout = 600,
					      .idle_timeout = 300,
					      .client_stall = 60000,
					      .connections = 3 };

static void setup_hasty(void)
{
	make();
	start_with("127.0.0.1:0", &hasty);
}

START_TEST(a_slow_head_or_body_is_408)
{
	int silent = dial(), line = dial(), first = dial();
	const char *text = NULL;

	say(line, LINE HOST "X-A:");
	say(first, "POST /bo");
	text = hear_end(line);
	ck_assert_uint_eq(status_in(text), 408);
	ck_assert_ptr_nonnull(strstr(text, "\"code\": \"request_timeout\""));
	ck_assert_uint_eq(status_in(hear_end(silent)), 408);
	ck_assert_uint_eq(status_in(hear_end(first)), 408);
	ck_assert_uint_eq(heads, 0);
	close(silent), close(line), close(first);
	turn_for(20);
	ck_assert_uint_eq(listener_connections(listener), 0);
	line = dial();
	say(line, LINE HOST "Content-Length: 3\r\n\r\no");
	text = hear_end(line);
	ck_assert_uint_eq(status_in(text), 408);
	ck_assert_ptr_nonnull(strstr(text, "\"may_have_executed\": false"));
	close(line);
	turn_for(20);
	ck_assert_uint_eq(ends, 1);
	ck_assert_uint_eq(gone, 1);
	ck_assert_uint_eq(bodies, 0);
}
END_TEST

START_TEST(an_idle_connection_is_closed_and_a_waiting_one_is_not)
{
	int idle = dial(), waiting = dial();
	const char *text = NULL;

	ask(idle, LINE HOST "\r\n", "nothing");
	say(waiting, "POST /later HTTP/1.1\r\n" HOST "\r\n");
	ck_assert_str_eq(hear_end(idle), "<end>");
	turn_for(1200);
	ck_assert_str_eq(hear(waiting), "");
	finish_later(0);
	text = hear_until(waiting, "nothing", 1000);
	ck_assert_uint_eq(status_in(text), 201);
	close(idle), close(waiting);
}
END_TEST

START_TEST(a_body_nobody_wants_is_not_waited_for_longer_than_five_seconds)
{
	int fd = dial();
	int64_t began = loop_clock_us();

	say(fd, "POST /now HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\no");
	ck_assert_uint_eq(status_in(hear_until(fd, "nothing", 8000)), 403);
	ck_assert_int_gt(loop_clock_us() - began, 4000000);
	ck_assert_ptr_nonnull(strstr(hear_until(fd, NULL, 100), "<end>"));
	turn_for(3200);
	ck_assert_uint_eq(listener_connections(listener), 0);
	ck_assert_uint_eq(ends, 1);
	close(fd);
}
END_TEST

START_TEST(over_the_limit_a_connection_is_told_so)
{
	int fds[4];
	const char *text = NULL;

	for (int i = 0; i < 3; i++) {
		fds[i] = dial();
		ask(fds[i], LINE HOST "\r\n", "nothing");
	}
	fds[3] = dial();
	text = hear_end(fds[3]);
	ck_assert_uint_eq(status_in(text), 503);
	ck_assert_ptr_nonnull(strstr(text, "Idempotency-Verdict: overloaded"));
	ck_assert_ptr_nonnull(strstr(text, "Retry-After: 1"));
	close(fds[3]), close(fds[0]);
	turn_for(10);
	fds[0] = dial();
	ck_assert_uint_eq(status_in(ask(fds[0], LINE HOST "\r\n", "nothing")), 200);
	for (int i = 0; i < 3; i++)
		close(fds[i]);
}
END_TEST

START_TEST(without_descriptors_accepting_rests_and_goes_on)
{
	struct rlimit before, now;
	int fd = dial(), held = -1;
	unsigned turns = 0;
	int64_t until = 0;

	ask(fd, LINE HOST "\r\n", "nothing");
	held = dial();
	getrlimit(RLIMIT_NOFILE, &before);
	now = before;
	now.rlim_cur = (rlim_t)dup(0);
	close((int)now.rlim_cur);
	setrlimit(RLIMIT_NOFILE, &now);
	until = loop_clock_us() + 500000;
	while (loop_clock_us() < until) {
		turn(100);
		turns++;
	}
	ck_assert_uint_lt(turns, 20);
	setrlimit(RLIMIT_NOFILE, &before);
	ck_assert_uint_eq(status_in(ask(held, LINE HOST "\r\n", "nothing")), 200);
	close(fd), close(held);
}
END_TEST

START_TEST(a_reload_changes_the_limits)
{
	int fd = dial();

	listener_follow(listener, &hasty);
	say(fd, "POST /bo");
	ck_assert_uint_eq(status_in(hear_end(fd)), 408);
	close(fd);
}
END_TEST

START_TEST(three_hundred_connections_are_served_together)
{
	static int fds[300];

	for (int round = 0; round < 3; round++) {
		n_later = 0;
		for (int i = 0; i < 300; i++) {
			if (round == 0)
				fds[i] = dial();
			say(fds[i],
			    "POST /later HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\nhi");
		}
		for (int i = 0; i < 100 && n_later < 300; i++)
			turn_for(20);
		ck_assert_uint_eq(n_later, 300);
		ck_assert_uint_eq(listener_requests(listener), 300);
		for (unsigned i = 300; i-- > 0;)
			finish_later(i);
		for (int i = 0; i < 300; i++)
			ck_assert_uint_eq(status_in(hear_until(fds[i], "hi", 2000)), 201);
	}
	ck_assert_uint_eq(listener_connections(listener), 300);
	for (int i = 0; i < 300; i++)
		close(fds[i]);
	turn_for(20);
	ck_assert_uint_eq(listener_connections(listener), 0);
	ck_assert_uint_eq(ends, 900);
	ck_assert_uint_eq(gone, 0);
}
END_TEST

START_TEST(draining_closes_the_idle_and_finishes_the_busy)
{
	int idle = dial(), busy = dial(), coming = dial();
	const char *text = NULL;

	ask(idle, LINE HOST "\r\n", "nothing");
	say(busy, "POST /later HTTP/1.1\r\n" HOST "\r\n");
	say(coming, LINE HOST "Content-Length: 2\r\n\r\nh");
	turn_for(10);
	listener_drain(listener);
	ck_assert_str_eq(hear_end(idle), "<end>");
	say(coming, "i");
	text = hear_end(coming);
	ck_assert_ptr_nonnull(strstr(text, "Connection: close"));
	ck_assert_ptr_nonnull(strstr(text, "hi<end>"));
	ck_assert_uint_eq(listener_requests(listener), 1);
	finish_later(0);
	text = hear_end(busy);
	ck_assert_ptr_nonnull(strstr(text, "Connection: close"));
	ck_assert_ptr_nonnull(strstr(text, "nothing<end>"));
	turn_for(10);
	ck_assert_uint_eq(listener_connections(listener), 0);
	close(idle), close(busy), close(coming);
}
END_TEST

/* ---- addresses */

START_TEST(ipv6_is_served)
{
	int fd = -1;

	make();
	start_with("[::1]:0", &usual);
	ck_assert_int_eq(strncmp(listener_address(listener, 0), "[::1]:", 6), 0);
	fd = dial();
	ck_assert_uint_eq(status_in(ask(fd, LINE HOST "\r\n", "nothing")), 200);
	ck_assert_str_eq(last_peer, "::1");
	close(fd);
	teardown();
}
END_TEST

static struct listener *one_on(struct loop *on, const char *address, bool alone, char why[256])
{
	const char *addresses[] = { address };
	struct listener_start start = { .loop = on,
					.addresses = addresses,
					.n_addresses = 1,
					.limits = &usual,
					.handler = &handler,
					.metrics = metrics,
					.alone = alone };

	return listener_new(&start, why);
}

static struct listener *second_on(struct loop *on, const char *address, char why[256])
{
	return one_on(on, address, false, why);
}

START_TEST(listeners_of_a_process_share_their_addresses)
{
	static const char *const addresses[] = { "127.0.0.1:0",
						 "unix:/tmp/test_listener.sock" };
	struct loop *their_loop = loop_new();
	char why[256] = "";

	for (size_t i = 0; i < ARRAY_LEN(addresses); i++) {
		struct listener *other = NULL;
		int fd = -1;

		make();
		start_with(addresses[i], &usual);
		other = second_on(their_loop, addresses[i], why);
		ck_assert_ptr_nonnull(other);
		ck_assert_str_eq(listener_address(listener, 0), listener_address(other, 0));
		listener_free(other);
		fd = i ? dial_unix("/tmp/test_listener.sock") : dial();
		ck_assert_uint_eq(status_in(ask(fd, LINE HOST "\r\n", "nothing")), 200);
		ck_assert_str_eq(last_peer, i ? "unix" : "127.0.0.1");
		close(fd);
		teardown();
	}
	ck_assert_int_ne(access("/tmp/test_listener.sock", F_OK), 0);
	loop_free(their_loop);
}
END_TEST

START_TEST(connections_are_spread_over_the_listeners_of_a_process)
{
	struct loop *their_loop = loop_new();
	struct listener *other = NULL;
	char why[256] = "";
	int fd[64];

	setup();
	other = second_on(their_loop, "127.0.0.1:0", why);
	ck_assert_ptr_nonnull(other);
	for (size_t i = 0; i < ARRAY_LEN(fd); i++)
		fd[i] = dial();
	for (int i = 0; i < 50; i++) {
		turn(0);
		loop_wait(their_loop, 0);
		listener_run(other);
	}
	ck_assert_uint_gt(listener_connections(listener), 0);
	ck_assert_uint_gt(listener_connections(other), 0);
	ck_assert_uint_eq(listener_connections(listener) + listener_connections(other),
			  ARRAY_LEN(fd));
	for (size_t i = 0; i < ARRAY_LEN(fd); i++)
		close(fd[i]);
	listener_free(other);
	teardown();
	loop_free(their_loop);
}
END_TEST

static void must_be_in_use(const char *address, bool alone)
{
	char why[256] = "";

	ck_assert_ptr_null(one_on(loop, address, alone, why));
	ck_assert_ptr_nonnull(strstr(why, address));
	ck_assert_ptr_nonnull(strstr(why, "in use"));
}

/* Whoever runs this test may share its ports, as another gateway of the same user may. */
START_TEST(a_port_of_somebody_who_would_share_it_is_in_use)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof(at);
	const int on = 1;
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	char address[64];

	make();
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&at, size), 0);
	ck_assert_int_eq(listen(fd, 5), 0);
	getsockname(fd, (struct sockaddr *)&at, &size);
	snprintf(address, sizeof(address), "127.0.0.1:%u", ntohs(at.sin_port));
	must_be_in_use(address, false);
	must_be_in_use(address, true);
	close(fd);
	start_with(address, &usual);
	teardown();
}
END_TEST

START_TEST(a_listener_that_is_alone_shares_with_nobody)
{
	static const char *const addresses[] = { "127.0.0.1:0",
						 "unix:/tmp/test_listener_alone.sock" };
	char why[256] = "";

	for (size_t i = 0; i < ARRAY_LEN(addresses); i++) {
		struct listener *alone = NULL;

		make();
		alone = one_on(loop, addresses[i], true, why);
		ck_assert_ptr_nonnull(alone);
		must_be_in_use(listener_address(alone, 0), false);
		must_be_in_use(listener_address(alone, 0), true);
		listener_free(alone);
		start_with(addresses[i], &usual);
		must_be_in_use(listener_address(listener, 0), true);
		teardown();
	}
}
END_TEST

START_TEST(a_free_port_that_is_alone_is_another_one)
{
	struct listener *alone = NULL;
	char why[256] = "";

	setup();
	alone = one_on(loop, "127.0.0.1:0", true, why);
	ck_assert_ptr_nonnull(alone);
	ck_assert_str_ne(listener_address(alone, 0), listener_address(listener, 0));
	listener_free(alone);
	teardown();
}
END_TEST

/* A gateway that is started again meets the connections of the one before. */
START_TEST(a_port_is_free_when_only_its_connections_are_left)
{
	struct listener *next = NULL;
	char why[256] = "", address[64];
	int fd = -1;

	setup();
	fd = dial();
	say(fd, LINE HOST "\r\n");
	turn_for(50);
	ck_assert_uint_eq(listener_connections(listener), 1);
	snprintf(address, sizeof(address), "%s", listener_address(listener, 0));
	listener_drain(listener); /* closes the idle one from our side: TIME_WAIT here */
	next = one_on(loop, address, _i == 1, why);
	ck_assert_msg(next != NULL, "%s", why);
	listener_free(next);
	close(fd);
	turn_for(20);
	teardown();
}
END_TEST

START_TEST(a_stale_unix_socket_is_replaced_and_a_live_one_is_not)
{
	static const char path[] = "/tmp/test_listener_stale.sock";
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	char why[256] = "";
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	make();
	memcpy(at.sun_path, path, sizeof(path));
	unlink(path);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	ck_assert_int_eq(listen(fd, 5), 0);
	ck_assert_ptr_null(second_on(loop, "unix:/tmp/test_listener_stale.sock", why));
	ck_assert_ptr_nonnull(strstr(why, "in use"));
	close(fd);
	start_with("unix:/tmp/test_listener_stale.sock", &usual);
	fd = dial_unix(path);
	ck_assert_uint_eq(status_in(ask(fd, LINE HOST "\r\n", "nothing")), 200);
	close(fd);
	teardown();
	ck_assert_int_ne(access(path, F_OK), 0);
}
END_TEST

START_TEST(a_file_is_not_replaced_by_a_socket)
{
	static const char path[] = "/tmp/test_listener_file";
	char why[256] = "";

	make();
	close(open(path, O_CREAT | O_WRONLY, 0600));
	ck_assert_ptr_null(second_on(loop, "unix:/tmp/test_listener_file", why));
	ck_assert_int_eq(access(path, F_OK), 0);
	unlink(path);
	teardown();
}
END_TEST

START_TEST(a_bad_address_gets_a_sentence)
{
	static const char *const bad[] = { "",
					   "8080",
					   "localhost:8080",
					   "127.0.0.1",
					   "127.0.0.1:",
					   "1.1.1.1:65536",
					   "1.1.1.1:-1",
					   "1.1.1.1:80x",
					   "[::1]",
					   "[::1:80",
					   "::1:80",
					   "unix:",
					   "unix:/no/such/folder/x",
					   "192.0.2.1:80" };

	make();
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		char why[256] = "";

		ck_assert_ptr_null(second_on(loop, bad[i], why));
		ck_assert_uint_gt(strlen(why), 10);
	}
	teardown();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("listener_limits");
	TCase *usually = tcase_create("usual"), *hastily = tcase_create("hasty");
	TCase *alone = tcase_create("addresses");

	tcase_set_timeout(usually, 60);
	tcase_set_timeout(hastily, 60);
	tcase_add_checked_fixture(usually, setup, teardown);
	tcase_add_test(usually, a_reload_changes_the_limits);
	tcase_add_test(usually, three_hundred_connections_are_served_together);
	tcase_add_test(usually, draining_closes_the_idle_and_finishes_the_busy);
	tcase_add_checked_fixture(hastily, setup_hasty, teardown);
	tcase_add_test(hastily, a_slow_head_or_body_is_408);
	tcase_add_test(hastily, an_idle_connection_is_closed_and_a_waiting_one_is_not);
	tcase_add_test(hastily, a_body_nobody_wants_is_not_waited_for_longer_than_five_seconds);
	tcase_add_test(hastily, over_the_limit_a_connection_is_told_so);
	tcase_add_test(hastily, without_descriptors_accepting_rests_and_goes_on);
	tcase_add_test(alone, ipv6_is_served);
	tcase_add_test(alone, listeners_of_a_process_share_their_addresses);
	tcase_add_test(alone, connections_are_spread_over_the_listeners_of_a_process);
	tcase_add_test(alone, a_port_of_somebody_who_would_share_it_is_in_use);
	tcase_add_test(alone, a_listener_that_is_alone_shares_with_nobody);
	tcase_add_test(alone, a_free_port_that_is_alone_is_another_one);
	tcase_add_loop_test(alone, a_port_is_free_when_only_its_connections_are_left, 0, 2);
	tcase_add_test(alone, a_stale_unix_socket_is_replaced_and_a_live_one_is_not);
	tcase_add_test(alone, a_file_is_not_replaced_by_a_socket);
	tcase_add_test(alone, a_bad_address_gets_a_sentence);
	suite_add_tcase(suite, usually);
	suite_add_tcase(suite, hastily);
	suite_add_tcase(suite, alone);
	return run_suite(suite);
}
