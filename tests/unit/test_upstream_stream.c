/* Answers that go on in pieces: whole, in order, at the pace of whoever takes them. */
#include "upstream_rig.h"

#define KIB   ((size_t)1024)
#define LARGE ((size_t)8 * 1024 * KIB)

enum framing { SIZED, CHUNKED, UNTIL_CLOSE };

struct sink_rig {
	struct call_rig rig;
	struct buf got;
	unsigned heads;
	uint64_t length;
	size_t pause_at; /* bytes; 0: never */
	bool refuses;
};

static struct server_rig server;
static struct client_rig client;
static struct sink_rig sink;
static char body[8 * 1024 * 1024];
static size_t body_len;
static int cut_after = -1; /* pieces */

static struct sink_rig *sink_of(struct upstream_call *call)
{
	return container_of(call, struct sink_rig, rig.call);
}

static bool heads(struct upstream_call *call)
{
	struct sink_rig *s = sink_of(call);

	s->heads++;
	s->length = call->length;
	ck_assert_uint_eq(call->answer.status, 201);
	ck_assert_uint_ge(call->answer.fields.n, 1);
	ck_assert(!s->rig.done && s->got.len == 0);
	return !s->refuses;
}

static void comes(struct upstream_call *call, struct span piece)
{
	struct sink_rig *s = sink_of(call);

	ck_assert(s->heads == 1 && !s->rig.done && piece.len > 0);
	buf_span(&s->got, piece);
	if (s->pause_at && s->got.len >= s->pause_at)
		upstream_pause(call);
}

/* The body in pieces of 32 KiB. */
static bool large(struct peer *peer)
{
	int framing = peer->server->mode, n = 0;
	char line[128];

	(void)snprintf(line, sizeof(line), "Content-Length: %zu\r\n", body_len);
	say_text(peer, "HTTP/1.1 201 Created\r\nX-Mine: 1\r\n");
	say_text(peer, framing == SIZED     ? line
		       : framing == CHUNKED ? "Transfer-Encoding: chunked\r\n"
					    : "");
	say_text(peer, "\r\n");
	for (size_t at = 0; at < body_len && n != cut_after; at += 32 * KIB, n++) {
		size_t len = body_len - at < 32 * KIB ? body_len - at : 32 * KIB;

		(void)snprintf(line, sizeof(line), "%zx\r\n", len);
		if (framing == CHUNKED)
			say_text(peer, line);
		say(peer, body + at, len);
		if (framing == CHUNKED)
			say_text(peer, "\r\n");
	}
	if (cut_after >= 0)
		return false;
	if (framing == CHUNKED)
		say_text(peer, "0\r\n\r\n");
	return framing != UNTIL_CLOSE;
}

static void begin_with(bool (*script)(struct peer *peer), int mode, size_t len)
{
	for (size_t i = 0; i < sizeof(body); i++)
		body[i] = (char)(i * 31 + i / 251);
	body_len = len;
	cut_after = -1;
	server.script = script;
	server.mode = mode;
	server_start(&server);
	client_start(&client);
	client_to(&client, &server);
}

static void begin(int mode, size_t len)
{
	begin_with(large, mode, len);
}

static void finish(void)
{
	buf_fini(&sink.got);
	client_stop(&client);
	server_stop(&server);
}

static void prepare(size_t answer_max)
{
	struct call_rig rig;

	buf_fini(&sink.got);
	call_begin(&client, &rig, "POST", SPAN("x"));
	sink = (struct sink_rig){ .rig = rig };
	buf_init(&sink.got, 2 * LARGE);
	sink.rig.call.answer_max = answer_max;
	sink.rig.call.head = heads;
	sink.rig.call.data = comes;
}

static void ask(size_t answer_max)
{
	prepare(answer_max);
	call_send(&client, &sink.rig);
}

static void assert_whole(void)
{
	assert_end(sink.rig, UPSTREAM_ANSWERED);
	ck_assert(sink.rig.call.streamed && !sink.rig.call.dropped && sink.heads == 1);
	ck_assert_uint_eq(sink.rig.call.answer.body.len, 0);
	ck_assert_uint_eq(sink.got.len, body_len);
	ck_assert_int_eq(memcmp(sink.got.at, body, body_len), 0);
	ck_assert_uint_eq(server.arrivals, 1);
}

START_TEST(more_than_may_be_held_goes_on_in_pieces)
{
	size_t held = 0;

	begin(_i, 200 * KIB + 7);
	prepare(100 * KIB);
	sink.rig.call.held = &held;
	sink.rig.call.held_max = LARGE;
	call_send(&client, &sink.rig);
	call_wait(&client, &sink.rig);
	assert_whole();
	ck_assert_uint_eq(sink.length, _i == SIZED ? body_len : UINT64_MAX);
	ck_assert(sink.rig.call.close_delimited == (_i == UNTIL_CLOSE));
	ck_assert_uint_eq(held, 0);
	finish();
}
END_TEST

START_TEST(what_may_be_held_is_one_answer_as_ever)
{
	begin(_i, 100 * KIB);
	ask(100 * KIB);
	call_wait(&client, &sink.rig);
	assert_end(sink.rig, UPSTREAM_ANSWERED);
	ck_assert(!sink.rig.call.streamed && sink.heads == 0);
	ck_assert_uint_eq(sink.rig.call.answer.body.len, body_len);
	finish();
}
END_TEST

START_TEST(a_caller_may_refuse_the_pieces)
{
	begin(_i % 3, 200 * KIB);
	prepare(100 * KIB);
	sink.refuses = true;
	sink.rig.call.drop_over = _i < 3;
	call_send(&client, &sink.rig);
	call_wait(&client, &sink.rig);
	assert_end(sink.rig, _i < 3 ? UPSTREAM_ANSWERED : UPSTREAM_MALFORMED);
	ck_assert(!sink.rig.call.streamed && sink.heads == 1 && sink.got.len == 0);
	ck_assert(sink.rig.call.dropped == (_i < 3));
	finish();
}
END_TEST

/* Says a little, and the rest when the test has seen it. */
static atomic_bool seen;
static bool two_parts(struct peer *peer)
{
	say_text(peer, "HTTP/1.1 201 Created\r\nX-Mine: 1\r\n");
	say_text(peer, peer->server->mode == SIZED
			       ? "Content-Length: 6\r\n\r\none"
			       : "Transfer-Encoding: chunked\r\n\r\n3\r\none");
	while (!seen)
		nap(5);
	say_text(peer, peer->server->mode == SIZED ? "two" : "\r\n3\r\ntwo\r\n0\r\n\r\n");
	return true;
}

START_TEST(who_is_eager_has_what_there_is_of_an_unknown_length)
{
	seen = false;
	begin_with(two_parts, _i, 6);
	(void)snprintf(body, sizeof(body), "onetwo");
	prepare(100 * KIB);
	sink.rig.call.eager = true;
	call_send(&client, &sink.rig);
	turn_for(&client, 100);
	ck_assert(!sink.rig.done);
	ck_assert_uint_eq(sink.got.len, _i == SIZED ? 0 : 3);
	seen = true;
	call_wait(&client, &sink.rig);
	if (_i == CHUNKED)
		assert_whole();
	else
		ck_assert(span_equal(sink.rig.call.answer.body, SPAN("onetwo")));
	finish();
}
END_TEST

START_TEST(a_paused_call_reads_nothing_and_goes_on_where_it_stood)
{
	size_t at = 0;

	begin(_i, LARGE);
	prepare(1000);
	sink.pause_at = 1;
	call_send(&client, &sink.rig);
	for (int i = 0; i < 4; i++) {
		turn_for(&client, 60);
		ck_assert(sink.got.len > at && sink.got.len <= at + 64 * KIB + 1000);
		at = sink.got.len;
		upstream_resume(&sink.rig.call);
		ck_assert_uint_eq(sink.got.len, at); /* not inside of it */
	}
	sink.pause_at = 0;
	upstream_resume(&sink.rig.call);
	call_wait(&client, &sink.rig);
	assert_whole();
	upstream_resume(&sink.rig.call); /* harmless */
	upstream_pause(&sink.rig.call);
	finish();
}
END_TEST

START_TEST(a_pause_is_not_the_upstreams)
{
	begin(CHUNKED, LARGE);
	client.upstream.idle_timeout = 100;
	prepare(1000);
	sink.pause_at = LARGE / 2;
	call_send(&client, &sink.rig);
	turn_for(&client, 500);
	ck_assert(!sink.rig.done && sink.got.len < LARGE);
	sink.pause_at = 0;
	upstream_resume(&sink.rig.call);
	call_wait(&client, &sink.rig);
	assert_whole();
	finish();
}
END_TEST

START_TEST(the_whole_has_its_time_unless_it_is_endless)
{
	begin(SIZED, LARGE);
	client.upstream.timeout = 200;
	prepare(1000);
	sink.rig.call.endless = _i == 1;
	sink.pause_at = 1;
	call_send(&client, &sink.rig);
	turn_for(&client, 500);
	ck_assert(sink.rig.done == (_i == 0));
	if (_i == 1) {
		sink.pause_at = 0;
		upstream_resume(&sink.rig.call);
		call_wait(&client, &sink.rig);
		assert_whole();
	} else {
		assert_end(sink.rig, UPSTREAM_TIMED_OUT);
		ck_assert(sink.rig.call.streamed);
	}
	finish();
}
END_TEST

START_TEST(an_endless_answer_that_pauses_for_too_long_ends)
{
	seen = false;
	begin_with(two_parts, CHUNKED, 6);
	client.upstream.idle_timeout = 150;
	prepare(1000);
	sink.rig.call.endless = sink.rig.call.eager = true;
	call_send(&client, &sink.rig);
	call_wait(&client, &sink.rig);
	assert_end(sink.rig, UPSTREAM_TIMED_OUT);
	ck_assert_uint_eq(sink.got.len, 3);
	seen = true;
	finish();
}
END_TEST

START_TEST(a_cut_in_the_middle_is_a_cut)
{
	begin(_i, LARGE);
	cut_after = 20;
	ask(1000);
	call_wait(&client, &sink.rig);
	assert_end(sink.rig, UPSTREAM_CUT);
	ck_assert(sink.rig.call.streamed && sink.got.len == 640 * KIB);
	finish();
}
END_TEST

START_TEST(a_connection_that_was_paused_at_the_end_serves_again)
{
	begin(CHUNKED, 40 * KIB);
	for (int i = 0; i < 5; i++) {
		prepare(1000);
		sink.pause_at = 40 * KIB;
		call_send(&client, &sink.rig);
		while (sink.got.len < 40 * KIB)
			turn(&client, 5);
		turn_for(&client, 30);
		upstream_resume(&sink.rig.call);
		call_wait(&client, &sink.rig);
		assert_end(sink.rig, UPSTREAM_ANSWERED);
		ck_assert_uint_eq(sink.got.len, 40 * KIB);
	}
	ck_assert_uint_eq(server.connections, 1);
	finish();
}
END_TEST

/* While it connects; while it is read; while it is paused. */
START_TEST(a_cancelled_call_ends_and_its_connection_with_it)
{
	seen = false;
	begin_with(_i == 1 ? two_parts : large, CHUNKED, LARGE);
	prepare(1000);
	sink.rig.call.eager = true;
	sink.pause_at = _i == 2;
	call_send(&client, &sink.rig);
	while (_i > 0 && !server.arrivals)
		turn(&client, 5);
	turn_for(&client, _i == 0 ? 0 : 50);
	upstream_cancel(&sink.rig.call, "nobody waits");
	ck_assert(!sink.rig.done); /* not inside of it */
	call_wait(&client, &sink.rig);
	assert_end(sink.rig, _i == 0 ? UPSTREAM_NOT_SENT : UPSTREAM_CUT);
	ck_assert_str_eq(sink.rig.call.cause, "nobody waits");
	upstream_cancel(&sink.rig.call, "harmless"); /* it has ended */
	ck_assert_uint_eq(upstreams_calls(client.upstreams), 0);
	seen = true;
	finish();
}
END_TEST

START_TEST(a_cancelled_call_that_waits_leaves_the_queue)
{
	struct call_rig waits;

	seen = false;
	begin_with(two_parts, SIZED, 6);
	client.upstream.max_connections = 1;
	upstreams_follow(client.upstreams, &client.settings, 1);
	ask(1000);
	turn_for(&client, 30);
	call_begin(&client, &waits, "POST", SPAN("x"));
	call_send(&client, &waits);
	upstream_cancel(&waits.call, "nobody waits");
	call_wait(&client, &waits);
	assert_end(waits, UPSTREAM_NOT_SENT);
	seen = true;
	call_wait(&client, &sink.rig);
	assert_end(sink.rig, UPSTREAM_ANSWERED);
	ck_assert_uint_eq(server.arrivals, 1);
	finish();
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("stream");

	tcase_add_loop_test(tcase, more_than_may_be_held_goes_on_in_pieces, 0, 3);
	tcase_add_loop_test(tcase, what_may_be_held_is_one_answer_as_ever, 0, 3);
	tcase_add_loop_test(tcase, a_caller_may_refuse_the_pieces, 0, 6);
	tcase_add_loop_test(tcase, who_is_eager_has_what_there_is_of_an_unknown_length, 0, 2);
	tcase_add_loop_test(tcase, a_paused_call_reads_nothing_and_goes_on_where_it_stood, 0,
			    3);
	tcase_add_test(tcase, a_pause_is_not_the_upstreams);
	tcase_add_loop_test(tcase, the_whole_has_its_time_unless_it_is_endless, 0, 2);
	tcase_add_test(tcase, an_endless_answer_that_pauses_for_too_long_ends);
	tcase_add_loop_test(tcase, a_cut_in_the_middle_is_a_cut, 0, 2);
	tcase_add_test(tcase, a_connection_that_was_paused_at_the_end_serves_again);
	tcase_add_loop_test(tcase, a_cancelled_call_ends_and_its_connection_with_it, 0, 3);
	tcase_add_test(tcase, a_cancelled_call_that_waits_leaves_the_queue);
	return run_suite("upstream_stream", tcase);
}
