/* Servers that cannot be reached, times that run out, connections that are too many. */
#include "upstream_rig.h"

static struct server_rig server, other;
static struct client_rig client;
static struct call_rig rig;

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

static void follow(void)
{
	upstreams_follow(client.upstreams, &client.settings, 1);
}

/* A port that nobody listens on. */
static uint16_t dead_port(void)
{
	uint16_t port = 0;

	close(listen_on(&port, 1));
	return port;
}

START_TEST(a_refused_connection_sent_nothing)
{
	begin(answer_ok);
	client_server_at(&client, "127.0.0.1", dead_port(), false);
	call(&client, &rig, "POST", SPAN("x"));
	assert_end(rig, UPSTREAM_NOT_SENT);
	ck_assert_ptr_nonnull(rig.call.cause);
	finish();
}
END_TEST

START_TEST(a_name_that_does_not_resolve_sent_nothing)
{
	begin(answer_ok);
	client_server_at(&client, "name.invalid", server.port, false);
	call(&client, &rig, "POST", SPAN("x"));
	assert_end(rig, UPSTREAM_NOT_SENT);
	ck_assert_uint_eq(server.connections, 0);
	finish();
}
END_TEST

START_TEST(a_name_is_resolved_without_stopping_the_loop)
{
	begin(answer_ok);
	client_server_at(&client, "localhost", server.port, false);
	call_begin(&client, &rig, "POST", SPAN("x"));
	call_send(&client, &rig);
	call_wait(&client, &rig);
	assert_end(rig, UPSTREAM_ANSWERED);
	finish();
}
END_TEST

START_TEST(connecting_that_hangs_sent_nothing)
{
	begin(answer_ok);
	client.upstream.connect_timeout = 150;
	client_server_at(&client, "127.0.0.1", deaf_port(), false);
	call(&client, &rig, "POST", SPAN("x"));
	assert_end(rig, UPSTREAM_NOT_SENT);
	ck_assert_int_ge(rig.call.total_us, 140000);
	ck_assert_int_lt(rig.turned_us, 900000);
	finish();
}
END_TEST

START_TEST(the_next_server_is_tried_and_a_failed_one_passed_over)
{
	begin(answer_ok);
	client.upstream.connections = CONNECTIONS_FRESH;
	client.upstream.connect_timeout = 1000;
	client_server_at(&client, "127.0.0.1", deaf_port(), false);
	client_to(&client, &server);
	call(&client, &rig, "POST", SPAN("x"));
	assert_end(rig, UPSTREAM_ANSWERED);
	ck_assert_int_ge(rig.call.wait_us, 990000);
	for (int i = 0; i < 4; i++) {
		call(&client, &rig, "POST", SPAN("x"));
		assert_end(rig, UPSTREAM_ANSWERED);
		ck_assert_int_lt(rig.call.wait_us, 990000);
	}
	ck_assert_uint_eq(server.arrivals, 5);
	finish();
}
END_TEST

START_TEST(each_server_is_tried_once)
{
	begin(answer_ok);
	for (int i = 0; i < 3; i++)
		client_server_at(&client, "127.0.0.1", dead_port(), false);
	for (int i = 0; i < 3; i++) {
		call(&client, &rig, "POST", SPAN("x"));
		assert_end(rig, UPSTREAM_NOT_SENT);
	}
	finish();
}
END_TEST

START_TEST(servers_take_turns)
{
	begin(answer_ok);
	other.script = answer_ok;
	server_start(&other);
	client_to(&client, &server);
	client_to(&client, &other);
	for (int i = 0; i < 6; i++)
		call(&client, &rig, "POST", SPAN("x"));
	ck_assert_uint_eq(server.arrivals, 3);
	ck_assert_uint_eq(other.arrivals, 3);
	ck_assert_uint_eq(server.connections + other.connections, 2);
	finish();
	server_stop(&other);
}
END_TEST

/* Once a server has the request, another one never gets it. */
static bool hang_up(struct peer *peer)
{
	(void)peer;
	return false;
}

START_TEST(a_server_that_took_the_request_is_the_only_one)
{
	begin(hang_up);
	other.script = hang_up;
	server_start(&other);
	client_to(&client, &server);
	client_to(&client, &other);
	call(&client, &rig, "POST", SPAN("x"));
	assert_end(rig, UPSTREAM_CUT);
	turn_for(&client, 20);
	ck_assert_uint_eq(server.arrivals + other.arrivals, 1);
	finish();
	server_stop(&other);
}
END_TEST

/* For longer than anybody waits: until the test is over. */
static bool fall_silent(const struct peer *peer)
{
	while (!peer->server->over)
		nap(10);
	return false;
}

static bool silence(struct peer *peer)
{
	return fall_silent(peer);
}

START_TEST(an_answer_that_does_not_begin_is_timed_out)
{
	begin(silence);
	client.upstream.first_byte_timeout = 150;
	client_to(&client, &server);
	call(&client, &rig, "POST", SPAN("x"));
	assert_end(rig, UPSTREAM_TIMED_OUT);
	ck_assert_int_ge(rig.call.total_us, 150000);
	ck_assert_int_lt(rig.turned_us, 550000);
	ck_assert_uint_eq(server.arrivals, 1);
	finish();
}
END_TEST

static bool pause_midway(struct peer *peer)
{
	say_text(peer, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no");
	return fall_silent(peer);
}

START_TEST(an_answer_that_pauses_is_timed_out)
{
	begin(pause_midway);
	client.upstream.idle_timeout = 150;
	client_to(&client, &server);
	call(&client, &rig, "POST", SPAN("x"));
	assert_end(rig, UPSTREAM_TIMED_OUT);
	ck_assert_int_ge(rig.call.total_us, 150000);
	ck_assert_int_lt(rig.turned_us, 550000);
	finish();
}
END_TEST

static bool dribble(struct peer *peer)
{
	say_text(peer, "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n");
	for (int i = 0; i < 20; i++) {
		say_text(peer, ".");
		nap(30);
	}
	return true;
}

START_TEST(an_answer_that_dribbles_is_timed_out_as_a_whole_or_is_whole)
{
	begin(dribble);
	client.upstream.timeout = _i ? 10000 : 300;
	client_to(&client, &server);
	call(&client, &rig, "POST", SPAN("x"));
	assert_end(rig, _i ? UPSTREAM_ANSWERED : UPSTREAM_TIMED_OUT);
	ck_assert_int_ge(rig.call.total_us, 300000);
	ck_assert_int_lt(rig.turned_us, _i ? 2900000 : 550000);
	finish();
}
END_TEST

START_TEST(a_server_that_does_not_read_is_timed_out)
{
	struct span body = { NULL, (size_t)64 << 20 };

	begin(NULL);
	client.upstream.idle_timeout = 200;
	client_to(&client, &server);
	body.at = arena_zero(client.arena, body.len);
	call(&client, &rig, "POST", body);
	assert_end(rig, UPSTREAM_TIMED_OUT);
	ck_assert_int_lt(rig.turned_us, 1500000);
	server.over = true;
	finish();
}
END_TEST

static struct call_rig many[300];

static unsigned send_many(unsigned n)
{
	unsigned answered = 0;

	for (unsigned i = 0; i < n; i++) {
		call_begin(&client, &many[i], "POST", SPAN("x"));
		call_send(&client, &many[i]);
	}
	ck_assert_uint_eq(upstreams_calls(client.upstreams), n);
	for (unsigned i = 0; i < n; i++) {
		call_wait(&client, &many[i]);
		answered += many[i].call.end == UPSTREAM_ANSWERED;
	}
	ck_assert_uint_eq(upstreams_calls(client.upstreams), 0);
	return answered;
}

START_TEST(calls_wait_for_a_connection_in_their_order)
{
	begin(slow);
	client.upstream.max_connections = 1;
	client_to(&client, &server);
	ck_assert_uint_eq(send_many(4), 4);
	ck_assert_uint_eq(server.connections, 1);
	for (int i = 1; i < 4; i++)
		ck_assert_int_gt(many[i].call.total_us, many[i - 1].call.total_us);
	finish();
}
END_TEST

static atomic_bool go;

static bool answer_on_go(struct peer *peer)
{
	while (!go)
		nap(10);
	return say_text(peer, OK_ANSWER);
}

START_TEST(the_queue_is_left_in_time)
{
	begin(answer_on_go);
	client.upstream.max_connections = 1;
	client.upstream.queue_timeout = 100;
	client_to(&client, &server);
	for (int i = 0; i < 8; i++) {
		call_begin(&client, &many[i], "POST", SPAN("x"));
		call_send(&client, &many[i]);
	}
	for (int i = 7; i > 0; i--) {
		call_wait(&client, &many[i]);
		assert_end(many[i], UPSTREAM_NOT_SENT);
		ck_assert_int_ge(many[i].call.total_us, 95000);
		ck_assert_int_lt(many[i].turned_us, 500000);
	}
	ck_assert(!many[0].done);
	go = true;
	call_wait(&client, &many[0]);
	assert_end(many[0], UPSTREAM_ANSWERED);
	ck_assert_uint_eq(server.arrivals, 1);
	finish();
}
END_TEST

START_TEST(the_limit_is_for_all_servers_of_an_upstream)
{
	begin(answer_ok);
	client.upstream.max_connections = 1;
	other.script = answer_ok;
	server_start(&other);
	client_to(&client, &server);
	client_to(&client, &other);
	ck_assert_uint_eq(send_many(6), 6); /* idle ones make room */
	ck_assert_uint_eq(server.arrivals, 3);
	ck_assert_uint_eq(other.arrivals, 3);
	finish();
	server_stop(&other);
}
END_TEST

START_TEST(many_calls_share_few_connections)
{
	begin(answer_ok);
	client.upstream.max_connections = 12;
	client_server_at(&client, "127.0.0.1", server.port, false);
	upstreams_follow(client.upstreams, &client.settings, 4);
	ck_assert_uint_eq(send_many(60), 60);
	ck_assert_uint_eq(server.connections, 3); /* a thread's share of 12 */
	ck_assert_uint_eq(server.arrivals, 60);
	finish();
}
END_TEST

/* More sockets are ready than one wait reports, and all timers are due. */
START_TEST(an_answer_that_lay_there_in_time_counts)
{
	begin(answer_on_go);
	client.upstream.max_connections = 300;
	client.upstream.first_byte_timeout = 4000;
	client_to(&client, &server);
	for (size_t i = 0; i < ARRAY_LEN(many); i++) {
		call_begin(&client, &many[i], "POST", SPAN("x"));
		call_send(&client, &many[i]);
	}
	while (server.arrivals < ARRAY_LEN(many))
		turn_for(&client, 5);
	go = true;
	nap(4100);
	for (size_t i = 0; i < ARRAY_LEN(many); i++) {
		call_wait(&client, &many[i]);
		assert_end(many[i], UPSTREAM_ANSWERED);
	}
	finish();
}
END_TEST

START_TEST(an_old_connection_is_not_used_again)
{
	begin(answer_ok);
	client.upstream.keepalive = 1000;
	client_to(&client, &server);
	call(&client, &rig, "POST", SPAN("x"));
	call(&client, &rig, "POST", SPAN("x"));
	ck_assert_uint_eq(server.connections, 1);
	turn_for(&client, 1020);
	call(&client, &rig, "POST", SPAN("x"));
	ck_assert_uint_eq(server.connections, 2);
	turn_for(&client, 1000);
	peers_gone(&client, &server); /* swept */
	finish();
}
END_TEST

START_TEST(a_reload_keeps_what_it_does_not_change)
{
	struct upstream_settings same = { 0 };
	struct settings next = { .upstreams = &same, .n_upstreams = 1 };

	begin(answer_ok);
	client_to(&client, &server);
	call(&client, &rig, "POST", SPAN("x"));
	same = client.upstream;
	same.timeout = 4000;
	upstreams_follow(client.upstreams, &next, 1);
	call(&client, &rig, "POST", SPAN("x")); /* by the old settings */
	client.upstream = same;
	call(&client, &rig, "POST", SPAN("x"));
	ck_assert_uint_eq(server.connections, 1);
	same.name = "renamed";
	upstreams_follow(client.upstreams, &next, 1);
	peers_gone(&client, &server);
	finish();
}
END_TEST

START_TEST(a_reload_ends_no_call)
{
	struct settings none = { 0 };

	begin(slow);
	client.upstream.max_connections = 1;
	client_to(&client, &server);
	call_begin(&client, &many[0], "POST", SPAN("x"));
	call_send(&client, &many[0]);
	call_begin(&client, &many[1], "POST", SPAN("x"));
	call_send(&client, &many[1]);
	turn_for(&client, 20);
	upstreams_follow(client.upstreams, &none, 1);
	call_wait(&client, &many[1]);
	assert_end(many[0], UPSTREAM_ANSWERED);
	assert_end(many[1], UPSTREAM_ANSWERED);
	peers_gone(&client, &server); /* it is not kept */
	turn_for(&client, 1200);
	follow();
	call(&client, &rig, "POST", SPAN("x"));
	assert_end(rig, UPSTREAM_ANSWERED);
	finish();
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("limits");

	tcase_add_test(tcase, a_refused_connection_sent_nothing);
	tcase_add_test(tcase, a_name_that_does_not_resolve_sent_nothing);
	tcase_add_test(tcase, a_name_is_resolved_without_stopping_the_loop);
	tcase_add_test(tcase, connecting_that_hangs_sent_nothing);
	tcase_add_test(tcase, the_next_server_is_tried_and_a_failed_one_passed_over);
	tcase_add_test(tcase, each_server_is_tried_once);
	tcase_add_test(tcase, servers_take_turns);
	tcase_add_test(tcase, a_server_that_took_the_request_is_the_only_one);
	tcase_add_test(tcase, an_answer_that_does_not_begin_is_timed_out);
	tcase_add_test(tcase, an_answer_that_pauses_is_timed_out);
	tcase_add_loop_test(tcase, an_answer_that_dribbles_is_timed_out_as_a_whole_or_is_whole,
			    0, 2);
	tcase_add_test(tcase, a_server_that_does_not_read_is_timed_out);
	tcase_add_test(tcase, calls_wait_for_a_connection_in_their_order);
	tcase_add_test(tcase, the_queue_is_left_in_time);
	tcase_add_test(tcase, the_limit_is_for_all_servers_of_an_upstream);
	tcase_add_test(tcase, many_calls_share_few_connections);
	tcase_add_test(tcase, an_answer_that_lay_there_in_time_counts);
	tcase_add_test(tcase, an_old_connection_is_not_used_again);
	tcase_add_test(tcase, a_reload_keeps_what_it_does_not_change);
	tcase_add_test(tcase, a_reload_ends_no_call);
	return run_suite("upstream_limits", tcase);
}
