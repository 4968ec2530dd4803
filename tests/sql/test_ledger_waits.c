/* Waiting for the first request of a key: what ends it, how soon, and what it costs. */
#include "ledger_rig.h"

#define NEVER (INT64_C(1) << 60)

static struct ledger *ledger;

static void set_up_one(void)
{
	set_up();
	ledger = ledger_open();
}

static struct attempt *waiter(struct ledger *of, int64_t wait_ms)
{
	struct attempt *a = found(of, "k1", "content", LEDGER_IN_FLIGHT);

	wait_for(a, wait_ms);
	return a;
}

/* By its own polls it would never look. */
static struct attempt *deaf_waiter(void)
{
	struct attempt *a = waiter(ledger, SOON);

	a->entry.poll_at_ms = NEVER;
	return a;
}

START_TEST(a_completion_here_wakes_in_memory)
{
	struct attempt *a = won(ledger, "k1", "content"), *b = deaf_waiter();

	result_set(a, SPAN("the body"));
	settled(a, LEDGER_COMPLETE);
	answered(b);
	replayed(b, SPAN("the body"));
	ck_assert_str_eq(a->entry.request_id, b->entry.request_id);
	nothing_went_wrong();
}
END_TEST

START_TEST(an_unknown_end_and_a_release_here_wake_in_memory)
{
	struct attempt *a = won(ledger, "k1", "content"), *b = deaf_waiter();

	settled(a, LEDGER_RELEASE);
	answered(b);
	found_is(b, LEDGER_RELEASED);
	a = won(ledger, "k1", "content");
	b = deaf_waiter();
	settled(a, LEDGER_MARK_UNKNOWN);
	answered(b);
	found_is(b, LEDGER_UNKNOWN);
	nothing_went_wrong();
}
END_TEST

START_TEST(only_those_of_the_record_are_woken)
{
	struct attempt *a = won(ledger, "k2", "content"), *b = NULL;

	won(ledger, "k1", "content");
	b = deaf_waiter();
	settled(a, LEDGER_RELEASE);
	turn_for(50);
	ck_assert(!is_answered(b));
	b->entry.deadline_ms = 0;
}
END_TEST

START_TEST(an_end_on_another_ledger_is_seen_by_polling)
{
	static const enum ledger_found ends[] = { LEDGER_COMPLETED, LEDGER_UNKNOWN,
						  LEDGER_RELEASED };
	struct ledger *other = ledger_open();
	struct attempt *a = won(ledger, "k1", "content"), *b = waiter(other, SOON);

	turn_for(_i == 0 ? 0 : 300); /* polls are rare by then */
	ck_assert(!is_answered(b));
	result_set(a, SPAN("the body"));
	settled(a, (enum ledger_outcome)_i);
	answered(b);
	found_is(b, ends[_i]);
	ck_assert_int_eq(b->entry.same, LEDGER_SAME);
	if (_i == 0)
		replayed(b, SPAN("the body"));
	nothing_went_wrong();
}
END_TEST

START_TEST(a_released_key_is_not_taken_by_its_waiters)
{
	struct attempt *a = won(ledger, "k1", "content"), *b = waiter(ledger, SOON);
	struct attempt *c = waiter(ledger_open(), SOON);

	settled(a, LEDGER_RELEASE);
	answered(b);
	answered(c);
	found_is(b, LEDGER_RELEASED);
	found_is(c, LEDGER_RELEASED);
	rows_are("key", "true", 0);
	rows_are("op", "true", 1);
}
END_TEST

START_TEST(a_wait_ends_in_time)
{
	struct attempt *b = NULL;

	won(ledger, "k1", "content");
	b = waiter(ledger, 150);
	answered(b);
	found_is(b, LEDGER_IN_FLIGHT);
	ck_assert_int_ge(b->took_ms, 150);
	ck_assert_int_lt(b->turned_ms, 1150);
	b = waiter(ledger, 0);
	answered(b);
	found_is(b, LEDGER_IN_FLIGHT);
	nothing_went_wrong();
}
END_TEST

START_TEST(a_lease_that_runs_out_ends_the_wait)
{
	struct attempt *b = NULL;

	orders.lease = 3000;
	won(ledger, "k1", "content");
	b = waiter(ledger, SOON);
	answered(b);
	found_is(b, LEDGER_UNKNOWN);
	ck_assert_int_ge(b->took_ms, 100);
	ck_assert_int_lt(b->turned_ms, 5000);
	nothing_went_wrong();
}
END_TEST

START_TEST(a_wait_goes_on_over_a_lost_connection)
{
	struct attempt *a = won(ledger, "k1", "content"), *b = waiter(ledger, SOON);
	struct ledger *other = ledger_open();
	struct attempt *c = waiter(other, SOON);

	terminate_ours();
	turn_for(100);
	ck_assert(!is_answered(b) && !is_answered(c));
	TURN_UNTIL(ledger_state(ledger).up && ledger_state(other).up);
	result_set(a, SPAN("the body"));
	settled(a, LEDGER_COMPLETE);
	answered(b);
	answered(c);
	replayed(b, SPAN("the body"));
	replayed(c, SPAN("the body"));
}
END_TEST

START_TEST(a_wait_ends_in_time_while_the_server_is_slow)
{
	struct attempt *b = NULL;
	struct pg_session *session = NULL;

	won(ledger, "k1", "content");
	b = waiter(ledger, 300);
	b->leaves = true;
	session = lock("event");
	answered(b);
	found_is(b, LEDGER_IN_FLIGHT);
	ck_assert_int_lt(b->turned_ms, 1300);
	unlock(session);
	TURN_UNTIL(b->gone);
	nothing_went_wrong();
}
END_TEST

static long reads(void)
{
	return scratch_number("SELECT coalesce(sum(calls), 0) FROM pg_stat_user_functions "
			      "WHERE funcname = 'read_records'");
}

/* A backend tells what it has counted when it ends. */
static long reads_of_all(void)
{
	long before = -1, now = reads();

	TURN_UNTIL(scratch_number("SELECT count(*) FROM pg_stat_activity WHERE " OURS) == 0);
	while (before != now) {
		before = now;
		turn_for(100);
		now = reads();
	}
	return now;
}

#define MANY 100

START_TEST(all_waiters_of_a_worker_look_in_one_statement)
{
	struct attempt *all[MANY];
	char key[32];
	long before = 0, calls = 0;

	ledger_end(ledger);
	before = reads_of_all();
	ledger = ledger_open();
	for (int i = 0; i < MANY; i++) {
		snprintf(key, sizeof(key), "k%d", i % 10);
		if (i < 10)
			won(ledger, key, "content");
		all[i] = attempt_new(ledger, key, "content");
		reserve(all[i]);
	}
	for (int i = 0; i < MANY; i++) {
		answered(all[i]);
		found_is(all[i], LEDGER_IN_FLIGHT);
		wait_for(all[i], 400);
	}
	for (int i = 0; i < MANY; i++) {
		answered(all[i]);
		attempt_leave(all[i]);
	}
	ledger_end(ledger);
	calls = reads_of_all() - before;
	/* Each would look about 6 times. */
	ck_assert_msg(calls >= 5 && calls < 60, "%ld statements", calls);
	nothing_went_wrong();
}
END_TEST

START_TEST(a_hundred_waiters_get_the_same_answer)
{
	struct attempt *all[MANY];
	struct attempt *a = won(ledger, "k1", "content");
	struct ledger *other = ledger_open();

	for (int i = 0; i < MANY; i++) {
		all[i] = attempt_new(i % 2 ? ledger : other, "k1", "content");
		reserve(all[i]);
	}
	for (int i = 0; i < MANY; i++) {
		answered(all[i]);
		found_is(all[i], LEDGER_IN_FLIGHT);
		wait_for(all[i], SOON);
	}
	turn_for(50);
	result_set(a, SPAN("the body"));
	settled(a, LEDGER_COMPLETE);
	for (int i = 0; i < MANY; i++) {
		answered(all[i]);
		replayed(all[i], SPAN("the body"));
	}
	nothing_went_wrong();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ledger_waits");
	TCase *t = tcase_create("waits");

	tcase_add_checked_fixture(t, set_up_one, tear_down);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, a_completion_here_wakes_in_memory);
	tcase_add_test(t, an_unknown_end_and_a_release_here_wake_in_memory);
	tcase_add_test(t, only_those_of_the_record_are_woken);
	tcase_add_loop_test(t, an_end_on_another_ledger_is_seen_by_polling, 0, 3);
	tcase_add_test(t, a_released_key_is_not_taken_by_its_waiters);
	tcase_add_test(t, a_wait_ends_in_time);
	tcase_add_test(t, a_lease_that_runs_out_ends_the_wait);
	tcase_add_test(t, a_wait_goes_on_over_a_lost_connection);
	tcase_add_test(t, a_wait_ends_in_time_while_the_server_is_slow);
	tcase_add_test(t, all_waiters_of_a_worker_look_in_one_statement);
	tcase_add_test(t, a_hundred_waiters_get_the_same_answer);
	suite_add_tcase(s, t);
	return run_on_scratch(s, "-c track_functions=pl");
}
