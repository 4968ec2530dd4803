/* The time by which a call must have begun: whatever holds it up, after that not one byte is sent. */
#include "upstream_rig.h"

static struct server_rig server;
static struct client_rig client;
static struct call_rig rig, ahead;

static void begin(bool (*script)(struct peer *peer))
{
	server.script = script;
	server_start(&server);
	client_start(&client);
}

static void finish(void)
{
	client_stop(&client);
	server_stop(&server);
}

static int64_t in_ms(int64_t ms)
{
	return loop_clock_us() / 1000 + ms;
}

static void send_by(int64_t by_ms)
{
	call_begin(&client, &rig, "POST", SPAN("x"));
	rig.call.start_by_ms = by_ms;
	call_send(&client, &rig);
}

/* One connection, which another call has for 60 ms. */
static void begin_crowded(void)
{
	begin(slow);
	client.upstream.max_connections = 1;
	client_to(&client, &server);
	call_begin(&client, &ahead, "POST", SPAN("x"));
	call_send(&client, &ahead);
	while (!server.arrivals)
		turn_for(&client, 1);
}

static void assert_late(unsigned arrivals)
{
	call_wait(&client, &rig);
	assert_end(rig, UPSTREAM_TOO_LATE);
	ck_assert_ptr_nonnull(rig.call.cause);
	turn_for(&client, 20);
	ck_assert_uint_eq(server.arrivals, arrivals);
}

START_TEST(a_call_whose_time_is_past_is_not_begun)
{
	begin(answer_ok);
	client_to(&client, &server);
	send_by(in_ms(0));
	assert_late(0);
	send_by(1);
	assert_late(0);
	send_by(-1);
	assert_late(0);
	ck_assert_uint_eq(server.connections, 0);
	finish();
}
END_TEST

START_TEST(an_idle_connection_makes_no_late_call_begin)
{
	begin(answer_ok);
	client_to(&client, &server);
	call(&client, &rig, "POST", SPAN("x"));
	send_by(in_ms(-1));
	assert_late(1);
	call(&client, &rig, "POST", SPAN("x"));
	assert_end(rig, UPSTREAM_ANSWERED);
	ck_assert_uint_eq(server.connections, 1);
	finish();
}
END_TEST

START_TEST(a_call_becomes_late_in_the_queue)
{
	begin_crowded();
	send_by(in_ms(20));
	assert_late(1);
	ck_assert_int_lt(rig.turned_us, 55000);
	call_wait(&client, &ahead);
	assert_end(ahead, UPSTREAM_ANSWERED);
	finish();
}
END_TEST

START_TEST(a_call_becomes_late_while_it_connects)
{
	begin(answer_ok);
	client_server_at(&client, "127.0.0.1", deaf_port(), false);
	client_server_at(&client, "127.0.0.1", server.port, false);
	send_by(in_ms(100));
	assert_late(0);
	ck_assert_int_lt(rig.turned_us, 600000);
	ck_assert_uint_eq(server.connections, 0);
	finish();
}
END_TEST

/* --- the process stands still (a nap without a turn), and time goes on --- */

START_TEST(a_pause_before_the_call_does_not_move_its_time)
{
	int64_t by = 0;

	begin(answer_ok);
	client_to(&client, &server);
	turn_for(&client, 5);
	by = in_ms(30);
	nap(60);
	send_by(by);
	assert_late(0);
	finish();
}
END_TEST

START_TEST(a_pause_in_the_queue_does_not_move_its_time)
{
	begin_crowded();
	send_by(in_ms(100));
	nap(150); /* the connection is free by now */
	assert_late(1);
	assert_end(ahead, UPSTREAM_ANSWERED);
	finish();
}
END_TEST

START_TEST(a_pause_while_it_connects_does_not_move_its_time)
{
	begin(answer_ok);
	client_to(&client, &server);
	send_by(in_ms(30));
	nap(60); /* the server has accepted by now */
	assert_late(0);
	finish();
}
END_TEST

/* It waits for 60 ms, and what it waits with then ends with its wait. */
START_TEST(a_call_without_a_time_has_only_the_other_limits)
{
	begin(slow);
	client.upstream.max_connections = 1;
	client.upstream.queue_timeout = 1500;
	client.upstream.connect_timeout = 2000;
	client.upstream.connections = CONNECTIONS_FRESH;
	client_server_at(&client, "127.0.0.1", server.port, false);
	client_server_at(&client, "127.0.0.1", deaf_port(), false);
	call_begin(&client, &ahead, "POST", SPAN("x"));
	call_send(&client, &ahead);
	send_by(0);
	call_wait(&client, &rig);
	assert_end(rig, UPSTREAM_ANSWERED);
	ck_assert_int_ge(rig.call.total_us, 2000000);
	finish();
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("late");

	tcase_add_test(tcase, a_call_whose_time_is_past_is_not_begun);
	tcase_add_test(tcase, an_idle_connection_makes_no_late_call_begin);
	tcase_add_test(tcase, a_call_becomes_late_in_the_queue);
	tcase_add_test(tcase, a_call_becomes_late_while_it_connects);
	tcase_add_test(tcase, a_pause_before_the_call_does_not_move_its_time);
	tcase_add_test(tcase, a_pause_in_the_queue_does_not_move_its_time);
	tcase_add_test(tcase, a_pause_while_it_connects_does_not_move_its_time);
	tcase_add_test(tcase, a_call_without_a_time_has_only_the_other_limits);
	return run_suite("upstream_late", tcase);
}
