/* What an answer holds is counted while it grows, and it ends where all together hold too much. */
#include "upstream_rig.h"

#define KIB ((size_t)1024)

static struct server_rig server;
static struct client_rig client;
static struct call_rig rig;
static size_t held;

enum framing { SIZED, CHUNKED, UNTIL_CLOSE };

/* Each MODE is a framing, and a body of 256 KiB in pieces of 4 KiB. */
static bool large(struct peer *peer)
{
	static const char *const heads[] = {
		[SIZED] = "HTTP/1.1 200 OK\r\nContent-Length: 262144\r\n\r\n",
		[CHUNKED] = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
		[UNTIL_CLOSE] = "HTTP/1.1 200 OK\r\n\r\n",
	};
	static char piece[4096];
	bool chunked = peer->server->mode == CHUNKED;

	memset(piece, 'x', sizeof(piece));
	say_text(peer, heads[peer->server->mode]);
	for (int i = 0; i < 64; i++) {
		if (chunked)
			say_text(peer, "1000\r\n");
		say(peer, piece, sizeof(piece));
		if (chunked)
			say_text(peer, "\r\n");
	}
	if (chunked)
		say_text(peer, "0\r\n\r\n");
	return peer->server->mode != UNTIL_CLOSE;
}

static void begin(bool (*script)(struct peer *peer), int mode)
{
	server.script = script;
	server.mode = mode;
	server_start(&server);
	client_start(&client);
	client_to(&client, &server);
}

static void finish(void)
{
	client_stop(&client);
	server_stop(&server);
}

static void ask(size_t already, size_t max, size_t before)
{
	held = already;
	call_begin(&client, &rig, "POST", SPAN("x"));
	rig.call.held = &held;
	rig.call.held_max = max;
	rig.call.held_before = before;
	call_send(&client, &rig);
	call_wait(&client, &rig);
}

START_TEST(an_answer_is_counted_to_the_byte)
{
	begin(large, _i);
	ask(1000, 1000 + 256 * KIB, 0);
	assert_end(rig, UPSTREAM_ANSWERED);
	ck_assert_uint_eq(rig.call.answer.body.len, 256 * KIB);
	ck_assert_uint_eq(held, 1000 + 256 * KIB);
	ck_assert_uint_eq(rig.call.held_more, 256 * KIB);
	finish();
}
END_TEST

START_TEST(an_answer_that_passes_the_maximum_is_not_believed)
{
	begin(large, _i);
	ask(1000, 1000 + 256 * KIB - 1, 0);
	assert_end(rig, UPSTREAM_MALFORMED);
	ck_assert_str_eq(rig.call.cause, "the gateway holds too many bytes");
	ck_assert_uint_eq(held, 1000 + rig.call.held_more);
	ck_assert_uint_lt(rig.call.held_more, 256 * KIB);
	turn_for(&client, 20);
	ck_assert_uint_eq(server.arrivals, 1); /* and nothing is sent again */
	finish();
}
END_TEST

START_TEST(nothing_more_fits_where_too_much_is_held_already)
{
	begin(large, _i);
	ask(2000, 1000, 0);
	assert_end(rig, UPSTREAM_MALFORMED);
	ck_assert_uint_eq(held, 2000);
	ck_assert_uint_eq(rig.call.held_more, 0);
	finish();
}
END_TEST

START_TEST(what_is_counted_before_is_not_counted_again)
{
	begin(large, _i);
	ask(100 * KIB, 256 * KIB, 100 * KIB);
	assert_end(rig, UPSTREAM_ANSWERED);
	ck_assert_uint_eq(held, 256 * KIB);
	ck_assert_uint_eq(rig.call.held_more, 156 * KIB);
	finish();
}
END_TEST

START_TEST(an_answer_with_room_of_its_own_comes_whatever_is_held)
{
	begin(answer_ok, 0);
	ask(1000, 1000, 2);
	assert_end(rig, UPSTREAM_ANSWERED);
	ck_assert_uint_eq(held, 1000);
	ask(1000, 1000, 1);
	assert_end(rig, UPSTREAM_MALFORMED);
	finish();
}
END_TEST

START_TEST(a_call_that_is_not_counted_has_no_maximum)
{
	begin(large, _i);
	call(&client, &rig, "POST", SPAN("x"));
	assert_end(rig, UPSTREAM_ANSWERED);
	ck_assert_uint_eq(rig.call.held_more, 0);
	finish();
}
END_TEST

static bool endless_head(struct peer *peer)
{
	static char piece[32 * 1024];

	memset(piece, 'x', sizeof(piece));
	say_text(peer, "HTTP/1.1 200 OK\r\nX: ");
	for (int i = 0; i < 8; i++)
		say(peer, piece, sizeof(piece));
	return false;
}

START_TEST(a_head_that_is_too_large_is_not_the_memory_s_fault)
{
	begin(endless_head, 0);
	ask(1000, 1000, 0);
	assert_end(rig, UPSTREAM_MALFORMED);
	ck_assert_str_eq(rig.call.cause, "head");
	finish();
}
END_TEST

/* The head and the beginning of a body, and then silence. */
static bool announce(struct peer *peer)
{
	say_text(peer, "HTTP/1.1 200 OK\r\nContent-Length: 262144\r\n\r\nx");
	nap(400);
	return false;
}

START_TEST(an_announced_length_counts_at_once_and_stays_counted)
{
	begin(announce, 0);
	held = 0;
	call_begin(&client, &rig, "POST", SPAN("x"));
	rig.call.held = &held;
	rig.call.held_max = 256 * KIB;
	call_send(&client, &rig);
	turn_for(&client, 200);
	ck_assert(!rig.done);
	ck_assert_uint_eq(held, 256 * KIB);
	call_wait(&client, &rig);
	assert_end(rig, UPSTREAM_CUT);
	ck_assert_uint_eq(held, 256 * KIB); /* the arena still has it */
	ck_assert_uint_eq(rig.call.held_more, held);
	finish();
}
END_TEST

START_TEST(answers_at_the_same_time_share_the_maximum)
{
	static struct call_rig many[4];
	unsigned answered = 0;

	begin(large, CHUNKED);
	held = 0;
	for (size_t i = 0; i < ARRAY_LEN(many); i++) {
		call_begin(&client, &many[i], "POST", SPAN("x"));
		many[i].call.held = &held;
		many[i].call.held_max = 600 * KIB;
		call_send(&client, &many[i]);
	}
	for (size_t i = 0; i < ARRAY_LEN(many); i++) {
		call_wait(&client, &many[i]);
		answered += many[i].call.end == UPSTREAM_ANSWERED;
		ck_assert_uint_le(held, 600 * KIB);
	}
	ck_assert_uint_le(answered, 2);
	for (size_t i = 0; i < ARRAY_LEN(many); i++)
		held -= many[i].call.held_more;
	ck_assert_uint_eq(held, 0);
	finish();
}
END_TEST

/* --- calls whose answers are never lost for their size --- */

static void ask_to_drop(size_t already, size_t max, size_t anyway)
{
	held = already;
	call_begin(&client, &rig, "POST", SPAN("x"));
	rig.call.held = &held;
	rig.call.held_max = max;
	rig.call.held_anyway = anyway;
	rig.call.drop_over = true;
	call_send(&client, &rig);
}

static void assert_dropped(void)
{
	call_wait(&client, &rig);
	assert_end(rig, UPSTREAM_ANSWERED);
	ck_assert(rig.call.dropped &&
		  !rig.call.close_delimited == (server.mode != UNTIL_CLOSE));
	ck_assert_uint_eq(rig.call.answer.status, 200);
	ck_assert_uint_eq(rig.call.answer.body.len, 0);
	ck_assert_uint_eq(rig.call.held_more, 0);
}

START_TEST(what_is_held_anyway_is_kept_whatever_others_hold)
{
	begin(large, _i);
	ask_to_drop(2000, 1000, 256 * KIB);
	call_wait(&client, &rig);
	assert_end(rig, UPSTREAM_ANSWERED);
	ck_assert(!rig.call.dropped);
	ck_assert_uint_eq(rig.call.answer.body.len, 256 * KIB);
	ck_assert_uint_eq(held, 2000 + 256 * KIB); /* counted all the same */
	finish();
}
END_TEST

START_TEST(a_larger_answer_is_kept_while_there_is_room)
{
	begin(large, _i);
	ask_to_drop(1000, 1000 + 256 * KIB, 10);
	call_wait(&client, &rig);
	assert_end(rig, UPSTREAM_ANSWERED);
	ck_assert(!rig.call.dropped);
	ck_assert_uint_eq(rig.call.answer.body.len, 256 * KIB);
	finish();
}
END_TEST

START_TEST(where_there_is_none_it_is_heard_to_its_end_and_dropped)
{
	size_t before = 0;

	begin(large, _i);
	before = arena_bytes(client.arena);
	ask_to_drop(1000, 1000 + 256 * KIB - 1, 256 * KIB - 1);
	assert_dropped();
	ck_assert_uint_eq(held, 1000);
	ck_assert_uint_lt(arena_bytes(client.arena) - before, 128 * KIB);
	ask_to_drop(2000, 1000, 256 * KIB);
	call_wait(&client, &rig);
	assert_end(rig, UPSTREAM_ANSWERED);
	ck_assert(!rig.call.dropped);
	ck_assert_uint_eq(server.connections, _i == UNTIL_CLOSE ? 2 : 1);
	finish();
}
END_TEST

START_TEST(over_the_largest_of_all_it_is_dropped_too)
{
	begin(large, _i);
	held = 0;
	call_begin(&client, &rig, "POST", SPAN("x"));
	rig.call.answer_max = 256 * KIB - 1;
	rig.call.held = &held;
	rig.call.held_max = 1024 * KIB;
	rig.call.drop_over = true;
	call_send(&client, &rig);
	assert_dropped();
	finish();
}
END_TEST

static atomic_bool go_on;

/* As large(), in two halves. */
static bool halves(struct peer *peer)
{
	static char piece[128 * 1024];
	bool chunked = peer->server->mode == CHUNKED;

	memset(piece, 'x', sizeof(piece));
	say_text(peer, chunked ? "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
			       : "HTTP/1.1 200 OK\r\n\r\n");
	for (int i = 0; i < 2; i++) {
		say_text(peer, chunked ? "20000\r\n" : "");
		say(peer, piece, sizeof(piece));
		say_text(peer, chunked ? "\r\n" : "");
		while (!go_on)
			nap(1);
	}
	say_text(peer, chunked ? "0\r\n\r\n" : "");
	return chunked;
}

START_TEST(what_was_kept_of_it_is_given_back)
{
	go_on = false;
	begin(halves, _i);
	ask_to_drop(0, 256 * KIB, 10);
	while (held < 128 * KIB)
		turn_for(&client, 1);
	held += 100 * KIB; /* others'; the rest of the answer does not fit now */
	go_on = true;
	assert_dropped();
	ck_assert_uint_eq(held, 100 * KIB);
	finish();
}
END_TEST

START_TEST(what_is_dropped_is_an_answer_only_when_it_is_whole)
{
	begin(announce, 0);
	ask_to_drop(2000, 1000, 10);
	call_wait(&client, &rig);
	assert_end(rig, UPSTREAM_CUT);
	client.upstream.idle_timeout = 100;
	ask_to_drop(2000, 1000, 10);
	call_wait(&client, &rig);
	assert_end(rig, UPSTREAM_TIMED_OUT);
	ck_assert(!rig.call.dropped);
	ck_assert_uint_eq(held, 2000);
	finish();
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("held");

	tcase_add_loop_test(tcase, an_answer_is_counted_to_the_byte, 0, 3);
	tcase_add_loop_test(tcase, an_answer_that_passes_the_maximum_is_not_believed, 0, 3);
	tcase_add_loop_test(tcase, nothing_more_fits_where_too_much_is_held_already, 0, 3);
	tcase_add_loop_test(tcase, what_is_counted_before_is_not_counted_again, 0, 3);
	tcase_add_test(tcase, an_answer_with_room_of_its_own_comes_whatever_is_held);
	tcase_add_loop_test(tcase, a_call_that_is_not_counted_has_no_maximum, 0, 3);
	tcase_add_test(tcase, a_head_that_is_too_large_is_not_the_memory_s_fault);
	tcase_add_test(tcase, an_announced_length_counts_at_once_and_stays_counted);
	tcase_add_test(tcase, answers_at_the_same_time_share_the_maximum);
	tcase_add_loop_test(tcase, what_is_held_anyway_is_kept_whatever_others_hold, 0, 3);
	tcase_add_loop_test(tcase, a_larger_answer_is_kept_while_there_is_room, 0, 3);
	tcase_add_loop_test(tcase, where_there_is_none_it_is_heard_to_its_end_and_dropped, 0,
			    3);
	tcase_add_loop_test(tcase, over_the_largest_of_all_it_is_dropped_too, 0, 3);
	tcase_add_loop_test(tcase, what_was_kept_of_it_is_given_back, CHUNKED, 3);
	tcase_add_test(tcase, what_is_dropped_is_an_answer_only_when_it_is_whole);
	return run_suite("upstream_held", tcase);
}
