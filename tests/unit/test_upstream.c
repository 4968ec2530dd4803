/* Calls over plain connections: what is sent once, what is not sent, what an end means. */
#include "upstream_rig.h"

static struct server_rig server;
static struct client_rig client;
static struct call_rig rig;

static void begin(bool (*script)(struct peer *peer))
{
	server.script = script;
	server_start(&server);
	client_start(&client);
	client_to(&client, &server);
}

static void finish(void)
{
	client_stop(&client);
	server_stop(&server);
}

static struct span big_body(size_t len)
{
	char *at = arena_zero(client.arena, len);

	memset(at, 'x', len);
	return (struct span){ at, len };
}

static bool echo_length(struct peer *peer)
{
	char text[128];

	(void)snprintf(text, sizeof(text),
		       "HTTP/1.1 201 Created\r\nX-Body: %zu\r\nContent-Length: 4\r\n\r\nmade",
		       peer->body);
	return say_text(peer, text);
}

START_TEST(a_call_is_answered_and_its_connection_used_again)
{
	const struct http_field *field = NULL;

	begin(echo_length);
	ck_assert_int_eq(call(&client, &rig, "POST", SPAN("hello")), UPSTREAM_ANSWERED);
	ck_assert_uint_eq(rig.call.answer.status, 201);
	ck_assert(span_equal(rig.call.answer.body, SPAN("made")));
	field = http_find(&rig.call.answer.fields, SPAN("x-body"), NULL);
	ck_assert(field && span_equal(field->value, SPAN("5")));
	ck_assert(!rig.call.close_delimited && rig.call.total_us >= rig.call.wait_us);
	for (int i = 0; i < 20; i++)
		ck_assert_int_eq(call(&client, &rig, "GET", (struct span){ 0 }),
				 UPSTREAM_ANSWERED);
	ck_assert_uint_eq(server.arrivals, 21);
	ck_assert_uint_eq(server.connections, 1);
	finish();
}
END_TEST

START_TEST(fresh_connections_serve_one_call_each)
{
	begin(answer_ok);
	client.upstream.connections = CONNECTIONS_FRESH;
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(call(&client, &rig, "POST", SPAN("x")), UPSTREAM_ANSWERED);
	ck_assert_uint_eq(server.connections, 3);
	finish();
}
END_TEST

/* What a kept-alive connection does with its second request. */
static const struct death {
	const char *says;
	bool reset;
	enum upstream_end end;
} deaths[] = {
	{ "", false, UPSTREAM_CUT },
	{ "", true, UPSTREAM_CUT },
	{ "HTTP/1.1 2", false, UPSTREAM_CUT },
	{ "HTTP/1.1 2", true, UPSTREAM_CUT },
	{ "HTTP/1.1 200 OK\r\n", false, UPSTREAM_CUT },
	{ "HTTP/1.1 200 OK\r\nContent-Le", false, UPSTREAM_CUT },
	{ "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", false, UPSTREAM_CUT },
	{ "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", false,
	  UPSTREAM_CUT },
	{ "HTTP/1.1 100 Continue\r\n\r\n", false, UPSTREAM_CUT },
	{ "nonsense\r\n\r\n", false, UPSTREAM_MALFORMED },
	{ "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood", false, UPSTREAM_ANSWERED },
};

static bool die_at_second(struct peer *peer)
{
	const struct death *death = &deaths[peer->server->mode];

	if (peer->nth == 1)
		return say_text(peer, OK_ANSWER);
	say_text(peer, death->says);
	if (death->reset) {
		nap(2);
		return reset(peer);
	}
	return false;
}

START_TEST(a_kept_alive_connection_that_dies_got_the_only_request)
{
	static const struct {
		const char *method;
		size_t body;
	} requests[] = { { "POST", 300 }, { "POST", 0 }, { "PATCH", 20 }, { "POST", 3 << 20 } };

	server.mode = _i;
	begin(die_at_second);
	for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
		server.arrivals = 0;
		ck_assert_int_eq(call(&client, &rig, "GET", (struct span){ 0 }),
				 UPSTREAM_ANSWERED);
		call(&client, &rig, requests[i].method, big_body(requests[i].body));
		assert_end(rig, deaths[_i].end);
		ck_assert(!rig.call.retried);
		turn_for(&client, 20);
		ck_assert_uint_eq(server.arrivals, 2);
	}
	finish();
}
END_TEST

static bool answer_then_close(struct peer *peer)
{
	say_text(peer, OK_ANSWER);
	if (peer->server->mode == 1) {
		nap(10);
		reset(peer);
	}
	return false;
}

/* Whether or not the loop has seen its end. */
START_TEST(an_idle_connection_that_ended_costs_nothing)
{
	server.mode = _i & 1;
	begin(answer_then_close);
	for (int i = 0; i < 3; i++) {
		call(&client, &rig, "POST", SPAN("x"));
		assert_end(rig, UPSTREAM_ANSWERED);
		if (_i & 2)
			turn_for(&client, 40);
		else
			nap(40);
	}
	ck_assert_uint_eq(server.arrivals, 3);
	ck_assert_uint_eq(server.connections, 3);
	finish();
}
END_TEST

static bool answer_and_linger(struct peer *peer)
{
	say_text(peer, OK_ANSWER);
	if (peer->nth == 1)
		nap(100);
	return true;
}

START_TEST(a_send_that_took_no_byte_is_followed_by_one_on_a_fresh_connection)
{
	begin(answer_and_linger);
	call(&client, &rig, "POST", SPAN("x"));
	assert_end(rig, UPSTREAM_ANSWERED);
	shutdown(descriptor_to(&server), SHUT_WR); /* looks alive, and takes nothing */
	call(&client, &rig, "POST", SPAN("x"));
	assert_end(rig, UPSTREAM_ANSWERED);
	ck_assert(rig.call.retried);
	ck_assert_uint_eq(server.arrivals, 2);
	ck_assert_uint_eq(server.connections, 2);
	finish();
}
END_TEST

static bool redirect(struct peer *peer)
{
	static const char *const answers[] = {
		"302 Found\r\nLocation: /elsewhere",
		"401 Unauthorized\r\nWWW-Authenticate: Basic",
		"307 Temporary Redirect\r\nLocation: /x",
		"503 Busy\r\nRetry-After: 0",
	};
	char text[128];

	(void)snprintf(text, sizeof(text), "HTTP/1.1 %s\r\nContent-Length: 0\r\n\r\n",
		       answers[peer->server->mode]);
	ck_assert(!strstr(peer->head, "Expect"));
	return say_text(peer, text);
}

START_TEST(no_answer_makes_it_send_again)
{
	server.mode = _i;
	begin(redirect);
	call(&client, &rig, "POST", big_body(2 << 20));
	assert_end(rig, UPSTREAM_ANSWERED);
	turn_for(&client, 20);
	ck_assert_uint_eq(server.arrivals, 1);
	ck_assert_uint_eq(server.connections, 1);
	finish();
}
END_TEST

START_TEST(a_proxy_of_the_environment_is_not_asked)
{
	setenv("http_proxy", "http://127.0.0.1:1", 1);
	setenv("all_proxy", "http://127.0.0.1:1", 1);
	begin(answer_ok);
	call(&client, &rig, "GET", (struct span){ 0 });
	assert_end(rig, UPSTREAM_ANSWERED);
	finish();
}
END_TEST

/* Answers whose end needs a look. */
static const struct shape {
	const char *says;
	enum upstream_end end;
	enum { CLOSES, RESETS, STAYS } then;
	bool close_delimited, again;
} shapes[] = {
	{ "HTTP/1.1 200 OK\r\n\r\nall there is", UPSTREAM_ANSWERED, CLOSES, true, false },
	{ "HTTP/1.1 200 OK\r\n\r\nall there is", UPSTREAM_CUT, RESETS, false, false },
	{ "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokmore", UPSTREAM_ANSWERED, STAYS, false,
	  false },
	{ "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
	  UPSTREAM_ANSWERED, STAYS, false, false },
	{ "HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
	  UPSTREAM_ANSWERED, STAYS, false, true },
	{ "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	  UPSTREAM_MALFORMED, STAYS, false, false },
	{ "HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n", UPSTREAM_MALFORMED, STAYS,
	  false, false },
	{ "HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n", UPSTREAM_MALFORMED, STAYS, false,
	  false },
};

static bool shaped(struct peer *peer)
{
	const struct shape *shape = &shapes[peer->server->mode];

	say_text(peer, shape->says);
	if (shape->then == STAYS)
		return true;
	nap(10);
	return shape->then == RESETS ? reset(peer) : false;
}

START_TEST(an_answer_is_whole_only_by_its_framing)
{
	server.mode = _i;
	begin(shaped);
	for (unsigned i = 1; i <= 2; i++) {
		call(&client, &rig, "POST", SPAN("x"));
		assert_end(rig, shapes[_i].end);
		ck_assert_int_eq(rig.call.close_delimited, shapes[_i].close_delimited);
		ck_assert_uint_eq(server.arrivals, i);
		ck_assert_uint_eq(server.connections, shapes[_i].again ? 1 : i);
	}
	finish();
}
END_TEST

/* mode 0: stays for a while, 1: closes at once (a reset, as there is more to read) */
static bool answer_early(struct peer *peer)
{
	say_text(peer, "HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig");
	if (peer->server->mode == 0)
		nap(300);
	return false;
}

START_TEST(an_answer_before_the_whole_body_was_written_is_an_answer)
{
	server.mode = _i;
	server.head_only = true;
	begin(answer_early);
	for (unsigned i = 1; i <= 2; i++) {
		call(&client, &rig, "POST", big_body(16 << 20));
		assert_end(rig, UPSTREAM_ANSWERED);
		ck_assert_uint_eq(rig.call.answer.status, 413);
		ck_assert_uint_eq(server.connections, i);
		ck_assert_uint_eq(server.arrivals, i);
	}
	finish();
}
END_TEST

static bool begin_to_answer(struct peer *peer)
{
	say_text(peer, "HTTP/1.1 200 OK\r\n\r\nthere is more");
	nap(20);
	return false; /* a reset, as there is more to read */
}

/* Whoever learns of the reset by writing is told of a mere end by the next read. */
START_TEST(a_reset_while_writing_completes_no_answer)
{
	server.head_only = true;
	begin(begin_to_answer);
	for (unsigned i = 1; i <= 5; i++) {
		call(&client, &rig, "POST", big_body(16 << 20));
		assert_end(rig, UPSTREAM_CUT);
		ck_assert_uint_eq(server.arrivals, i);
	}
	finish();
}
END_TEST

static bool head_answer(struct peer *peer)
{
	return say_text(peer, "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n");
}

START_TEST(the_answer_to_head_has_no_body)
{
	begin(head_answer);
	for (int i = 0; i < 2; i++) {
		call(&client, &rig, "HEAD", (struct span){ 0 });
		assert_end(rig, UPSTREAM_ANSWERED);
		ck_assert_uint_eq(rig.call.answer.body.len, 0);
	}
	ck_assert_uint_eq(server.connections, 1);
	finish();
}
END_TEST

static bool big_answer(struct peer *peer)
{
	char *at = malloc(4 << 20);

	memset(at, 'y', 4 << 20);
	say_text(peer, "HTTP/1.1 200 OK\r\nContent-Length: 4194304\r\n\r\n");
	say(peer, at, 4 << 20);
	free(at);
	return true;
}

START_TEST(large_bodies_pass_both_ways)
{
	begin(big_answer);
	for (int i = 0; i < 2; i++) {
		call(&client, &rig, "POST", big_body(5 << 20));
		assert_end(rig, UPSTREAM_ANSWERED);
		ck_assert_uint_eq(rig.call.answer.body.len, 4 << 20);
	}
	ck_assert_uint_eq(server.connections, 1);
	finish();
}
END_TEST

START_TEST(what_cannot_be_written_is_not_sent)
{
	struct http_field bad = { SPAN("X-A"), SPAN("a\r\nX-B: b") };
	int64_t took_us = INT64_MAX;

	begin(answer_ok);
	call_begin(&client, &rig, "POST", SPAN("x"));
	rig.call.fields = (struct http_fields){ &bad, 1 };
	call_send(&client, &rig);
	call_wait(&client, &rig);
	assert_end(rig, UPSTREAM_NOT_SENT);
	/* and now at once, over the connection that it has opened; a busy machine has some tries */
	for (int i = 0; i < 5 && took_us > 200000; i++) {
		call_begin(&client, &rig, "POST", SPAN("x"));
		rig.call.fields = (struct http_fields){ &bad, 1 };
		call_send(&client, &rig);
		loop_wait(client.loop, -1); /* does not sleep */
		upstreams_run(client.upstreams);
		ck_assert(rig.done);
		took_us = loop_clock_us() - rig.call.began_us;
	}
	ck_assert_int_lt(took_us, 200000);
	assert_end(rig, UPSTREAM_NOT_SENT);
	ck_assert_uint_eq(server.arrivals, 0);
	ck_assert_uint_eq(upstreams_calls(client.upstreams), 0);
	finish();
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("plain");

	tcase_add_test(tcase, a_call_is_answered_and_its_connection_used_again);
	tcase_add_test(tcase, fresh_connections_serve_one_call_each);
	tcase_add_loop_test(tcase, a_kept_alive_connection_that_dies_got_the_only_request, 0,
			    ARRAY_LEN(deaths));
	tcase_add_loop_test(tcase, an_idle_connection_that_ended_costs_nothing, 0, 4);
	tcase_add_test(tcase,
		       a_send_that_took_no_byte_is_followed_by_one_on_a_fresh_connection);
	tcase_add_loop_test(tcase, no_answer_makes_it_send_again, 0, 4);
	tcase_add_test(tcase, a_proxy_of_the_environment_is_not_asked);
	tcase_add_loop_test(tcase, an_answer_is_whole_only_by_its_framing, 0,
			    ARRAY_LEN(shapes));
	tcase_add_loop_test(tcase, an_answer_before_the_whole_body_was_written_is_an_answer, 0,
			    2);
	tcase_add_test(tcase, a_reset_while_writing_completes_no_answer);
	tcase_add_test(tcase, the_answer_to_head_has_no_body);
	tcase_add_test(tcase, large_bodies_pass_both_ways);
	tcase_add_test(tcase, what_cannot_be_written_is_not_sent);
	return run_suite("upstream", tcase);
}
