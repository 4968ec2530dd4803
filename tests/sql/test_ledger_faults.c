/*
 * The ledger on a server that is slow, read-only or not durable. What is lost on the way stands in
 * test_ledger_lost.c, rows that are refused in test_ledger_rows.c.
 */
#include "ledger_rig.h"

static struct ledger *ledger;

/* Whatever a test before this one has done to the server. */
static void as_new(void)
{
	configure("synchronous_commit", NULL);
	configure("default_transaction_read_only", NULL);
	configure("synchronous_standby_names", NULL);
	scratch_do("ALTER ROLE onceward RESET ALL; ALTER DATABASE onceward RESET ALL;"
		   "UPDATE onceward.instance SET token = 0, renewed_at = '-infinity'");
	while (scratch_number("SELECT count(*) WHERE current_setting('synchronous_commit') = "
			      "'on' AND current_setting('transaction_read_only') = 'off' AND "
			      "current_setting('synchronous_standby_names') = ''") != 1)
		usleep(2000);
}

static void set_up_server(void)
{
	as_new();
	set_up();
}

static void set_up_one(void)
{
	set_up_server();
	ledger = ledger_open();
}

static void unavailable_within(struct attempt *a, int64_t from_ms, int64_t to_ms)
{
	answered(a);
	found_is(a, LEDGER_UNAVAILABLE);
	ck_assert_ptr_nonnull(a->entry.why);
	ck_assert_msg(a->took_ms >= from_ms && a->turned_ms <= to_ms, "after %ld ms\n%s",
		      (long)a->took_ms, logged);
}

static void why_is(const char *words)
{
	const char *why = ledger_state(ledger).why;

	ck_assert_msg(why && strstr(why, words) != NULL, "why: %s\n%s", why ? why : "-",
		      logged);
}

/* --- slow --- */

START_TEST(a_reservation_that_is_late_is_unavailable_and_then_given_back)
{
	struct attempt *a = attempt_new(ledger, "k1", "content");
	struct pg_session *session = lock("key");

	reserve_within(a, 300);
	locked(1);
	unavailable_within(a, 300, 1300);
	attempt_leave(a);
	turn_for(100);
	ck_assert_uint_eq(a->gone, 0); /* it may win yet */
	unlock(session);
	TURN_UNTIL(a->gone);
	rows_are("key", "true", 0);
	rows_are("op", "key = 'k1'", 1);
	rows_are("event", "kind = 4 AND slot = 1", 1);
	won(ledger, "k1", "other");
	nothing_went_wrong();
}
END_TEST

START_TEST(a_reservation_that_loses_late_is_let_go_of)
{
	struct attempt *a = attempt_new(ledger, "k1", "content");
	struct pg_session *session = NULL;

	completed(ledger, "k1", "content", "the body");
	session = lock("key");
	reserve_within(a, 300);
	locked(1);
	unavailable_within(a, 300, 1300);
	attempt_leave(a);
	unlock(session);
	TURN_UNTIL(a->gone);
	found_is(a, LEDGER_UNAVAILABLE);
	replayed(reserved(ledger, "k1", "content"), SPAN("the body"));
	rows_are("event", "true", 1);
	nothing_went_wrong();
}
END_TEST

START_TEST(what_never_left_is_taken_back_at_once)
{
	struct attempt *a = attempt_new(ledger, "k1", "content"), *b = NULL;
	struct pg_session *session = lock("key");

	reserve_within(a, 300);
	locked(1);
	b = attempt_new(ledger, "k2", "content"); /* waits for the batch before it */
	b->leaves = true;
	reserve_within(b, 300);
	unavailable_within(b, 300, 1300);
	ck_assert_uint_eq(b->gone, 1);
	unlock(session);
	attempt_leave(a);
	TURN_UNTIL(a->gone);
	rows_are("op", "key = 'k2'", 0);
	nothing_went_wrong();
}
END_TEST

START_TEST(a_settle_that_is_late_is_recorded_in_the_background)
{
	static const char *const kinds[] = { "kind = 2", "kind = 3", "kind = 4" };
	struct attempt *a = won(ledger, "k1", "content");
	struct pg_session *session = lock("event");

	result_set(a, SPAN("the body"));
	settle_within(a, (enum ledger_outcome)_i, 200);
	settled_is(a, LEDGER_LATE);
	ck_assert_int_ge(a->took_ms, 200);
	ck_assert_int_lt(a->turned_ms, 1200);
	ck_assert_int_eq(gauges[METRIC_unsettled_in_memory], 1);
	attempt_leave(a);
	turn_for(100);
	ck_assert_uint_eq(a->gone, 0);
	ck_assert_uint_eq(ledger_busy(ledger), 1);
	unlock(session);
	TURN_UNTIL(a->gone);
	ck_assert_int_eq(gauges[METRIC_unsettled_in_memory], 0);
	rows_are("event", kinds[_i], 1);
	rows_are("event", "true", 1);
	if (_i == 0)
		replayed(reserved(ledger, "k1", "content"), SPAN("the body"));
	nothing_went_wrong();
}
END_TEST

START_TEST(who_stays_after_a_late_answer_leaves_when_it_wants)
{
	struct attempt *a = won(ledger, "k1", "content");
	struct pg_session *session = lock("event");

	result_set(a, SPAN("the body"));
	settle_within(a, LEDGER_COMPLETE, 100);
	settled_is(a, LEDGER_LATE);
	unlock(session);
	TURN_UNTIL(ledger_busy(ledger) == 0);
	ck_assert_uint_eq(a->gone, 0);
	ck_assert_int_eq(a->entry.settled, LEDGER_LATE);
	attempt_leave(a);
	ck_assert_uint_eq(a->gone, 1);
}
END_TEST

/* --- timeouts of the server --- */

static const char *const timeouts[] = { "lock_timeout", "statement_timeout" };

static void with_timeout(const char *name)
{
	char sql[128];

	ledger_end(ledger);
	snprintf(sql, sizeof(sql), "ALTER ROLE onceward SET %s = '100ms'", name);
	scratch_do(sql);
	ledger = ledger_open();
}

START_TEST(a_server_that_gives_up_on_reservations_is_too_slow)
{
	struct attempt *all[4];
	struct pg_session *session = NULL;
	char key[32];

	with_timeout(timeouts[_i]);
	session = lock("key");
	for (int i = 0; i < 4; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		all[i] = attempt_new(ledger, key, "content");
		reserve_within(all[i], 1000);
	}
	for (int i = 0; i < 4; i++)
		unavailable_within(all[i], 100, 3000);
	TURN_UNTIL(strstr(logged, _i ? "57014" : "55P03"));
	unlock(session);
	for (int i = 0; i < 4; i++)
		attempt_leave(all[i]);
	TURN_UNTIL(ledger_busy(ledger) == 0);
	/* Whatever was won after all is given back. */
	rows_are("key", "true", 0);
	ck_assert_int_eq(rows("op", "true"), rows("event", "kind = 4"));
	won(ledger, "k0", "content");
	ck_assert(ledger_state(ledger).up);
}
END_TEST

START_TEST(a_server_that_gives_up_on_settles_gets_them_again)
{
	struct attempt *all[6];
	struct pg_session *session = NULL;
	char key[32];

	with_timeout(timeouts[_i]);
	for (int i = 0; i < 6; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		all[i] = won(ledger, key, "content");
	}
	session = lock("event");
	for (int i = 0; i < 6; i++) {
		result_set(all[i], SPAN("the body"));
		settle_within(all[i], LEDGER_COMPLETE, 400);
	}
	for (int i = 0; i < 6; i++)
		settled_is(all[i], LEDGER_LATE);
	TURN_UNTIL(strstr(logged, _i ? "57014" : "55P03"));
	unlock(session);
	TURN_UNTIL(ledger_busy(ledger) == 0);
	ck_assert_int_eq(gauges[METRIC_unsettled_in_memory], 0);
	rows_are("event", "kind = 2", 6);
	for (int i = 0; i < 6; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		replayed(reserved(ledger, key, "content"), SPAN("the body"));
	}
}
END_TEST

/* --- not durable, not writable --- */

START_TEST(a_server_that_becomes_read_only_is_left_and_found_again)
{
	struct attempt *a = won(ledger, "k1", "content"), *b = NULL;

	configure("default_transaction_read_only", "on");
	b = attempt_new(ledger, "k2", "content");
	reserve_within(b, 1000);
	unavailable_within(b, 0, 2500);
	TURN_UNTIL(!ledger_state(ledger).up);
	result_set(a, SPAN("the body"));
	settle_within(a, LEDGER_COMPLETE, 300);
	settled_is(a, LEDGER_LATE);
	TURN_UNTIL(strstr(ledger_state(ledger).why, "read-only") != NULL);
	configure("default_transaction_read_only", NULL);
	TURN_UNTIL(ledger_state(ledger).up);
	TURN_UNTIL(gauges[METRIC_unsettled_in_memory] == 0);
	replayed(reserved(ledger, "k1", "content"), SPAN("the body"));
	won(ledger, "k2", "content");
}
END_TEST

START_TEST(a_server_that_is_not_durable_at_first_is_refused)
{
	struct attempt *a = NULL;

	scratch_do("ALTER ROLE onceward SET synchronous_commit = off");
	ledger = ledger_begin();
	turn_for(300);
	TURN_UNTIL(strstr(ledger_state(ledger).why, "synchronous_commit"));
	ck_assert(!ledger_state(ledger).up);
	ck_assert(!ledger_state(ledger).durable);
	a = attempt_new(ledger, "k1", "content");
	reserve_within(a, 1000);
	unavailable_within(a, 0, 2000);
	rows_are("key", "true", 0);
	scratch_do("ALTER ROLE onceward RESET synchronous_commit");
	TURN_UNTIL(ledger_state(ledger).up);
	ck_assert(ledger_state(ledger).durable);
	won(ledger, "k1", "content");
}
END_TEST

START_TEST(a_server_that_is_durable_no_more_gets_no_reservation)
{
	struct attempt *a = NULL, *b = NULL, *c = NULL;

	won(ledger, "k0", "content");
	configure("synchronous_commit", "off");
	a = attempt_new(ledger, "k1", "content");
	b = attempt_new(ledger, "k2", "content");
	a->leaves = true;
	reserve(a);
	reserve(b);
	unavailable_within(a, 0, 900);
	unavailable_within(b, 0, 900);
	ck_assert(!ledger_state(ledger).durable);
	TURN_UNTIL(!ledger_state(ledger).up);
	why_is("synchronous_commit");
	attempt_leave(b);
	c = attempt_new(ledger, "k3", "content");
	reserve_within(c, 1000);
	unavailable_within(c, 0, 3000);
	configure("synchronous_commit", NULL);
	TURN_UNTIL(ledger_state(ledger).up);
	ck_assert(ledger_state(ledger).durable);
	TURN_UNTIL(a->gone && b->gone);
	rows_are("event", "kind = 4", 2);
	rows_are("key", "true", 1);
	won(ledger, "k1", "content");
	won(ledger, "k3", "content");
	won(ledger, "k2", "content");
}
END_TEST

START_TEST(local_commits_are_refused_where_standbys_are_named)
{
	scratch_do("ALTER ROLE onceward SET synchronous_commit = local");
	ledger = ledger_open(); /* no standby: local is all there is */
	ledger_end(ledger);
	configure("synchronous_standby_names", "nobody");
	ledger = ledger_begin();
	turn_for(300);
	ck_assert(!ledger_state(ledger).up && !ledger_state(ledger).durable);
	configure("synchronous_standby_names", NULL);
	TURN_UNTIL(ledger_state(ledger).up);
}
END_TEST

static bool one_waits_for_a_standby(void)
{
	return scratch_number("SELECT count(*) FROM pg_stat_activity WHERE wait_event = "
			      "'SyncRep'") == 1;
}

START_TEST(a_cancelled_wait_for_a_standby_is_no_reservation)
{
	struct attempt *a = NULL;
	char key[32];
	long before = -1;

	configure("synchronous_standby_names", "nobody");
	do { /* the server's checkpointer, by whose word commits wait, may hear of it last */
		snprintf(key, sizeof(key), "k%ld", ++before);
		a = attempt_new(ledger, key, "content");
		reserve_within(a, 1000);
		TURN_UNTIL(is_answered(a) || one_waits_for_a_standby());
	} while (is_answered(a) && a->entry.found == LEDGER_WON);
	scratch_do("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = "
		   "'SyncRep'");
	unavailable_within(a, 1000, 2000);
	attempt_leave(a);
	rows_are("key", "true", before + 1); /* it can be seen, and is not believed */
	configure("synchronous_standby_names", NULL);
	TURN_UNTIL(a->gone);
	rows_are("key", "true", before);
	rows_are("event", "kind = 4", 1);
	log_says("warning");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ledger_faults");
	TCase *t = tcase_create("faults"), *c = tcase_create("from the beginning");

	tcase_add_checked_fixture(t, set_up_one, tear_down);
	tcase_add_checked_fixture(c, set_up_server, tear_down);
	tcase_set_timeout(t, 60);
	tcase_set_timeout(c, 60);
	tcase_add_test(t, a_reservation_that_is_late_is_unavailable_and_then_given_back);
	tcase_add_test(t, a_reservation_that_loses_late_is_let_go_of);
	tcase_add_test(t, what_never_left_is_taken_back_at_once);
	tcase_add_loop_test(t, a_settle_that_is_late_is_recorded_in_the_background, 0, 3);
	tcase_add_test(t, who_stays_after_a_late_answer_leaves_when_it_wants);
	tcase_add_loop_test(t, a_server_that_gives_up_on_reservations_is_too_slow, 0, 2);
	tcase_add_loop_test(t, a_server_that_gives_up_on_settles_gets_them_again, 0, 2);
	tcase_add_test(t, a_server_that_becomes_read_only_is_left_and_found_again);
	tcase_add_test(t, a_server_that_is_durable_no_more_gets_no_reservation);
	tcase_add_test(t, a_cancelled_wait_for_a_standby_is_no_reservation);
	tcase_add_test(c, a_server_that_is_not_durable_at_first_is_refused);
	tcase_add_test(c, local_commits_are_refused_where_standbys_are_named);
	suite_add_tcase(s, t);
	suite_add_tcase(s, c);
	return run_on_scratch(s, "");
}
