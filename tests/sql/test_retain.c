/*
 * Days that are over: what goes, what stays, and what becomes of whoever comes back; many that purge
 * at once; the clocks.
 */
#include "retain_rig.h"

START_TEST(a_day_that_is_over_goes_and_its_keys_get_410)
{
	completed(ledger, "old", "content", "body");
	completed(ledger, "new", "content", "body");
	age("old", 4);
	retained();
	rows_are("op", "key = 'old'", 0);
	ck_assert_int_eq(parts("parent <> 'audit' AND day < " TODAY " - 1"), 0);
	rows_are("audit", "action = 'purge' AND detail LIKE '1 records%'", 1);
	gone("old");
	replayed(found(ledger, "new", "content", LEDGER_COMPLETED), SPAN("body"));
	found(ledger, "old", "other", LEDGER_COMPLETED);
	ck_assert_int_ge(counted[METRIC_purged_total], 1);
	log_says("info retention: dropped op and event of");
	nothing_went_wrong();
}
END_TEST

START_TEST(by_itself_one_day_with_records_goes_a_day)
{
	completed(ledger, "four", "content", "body");
	completed(ledger, "three", "content", "body");
	age("four", 5);
	age("three", 4);
	retained();
	rows_are("op", "key = 'four'", 0);
	rows_are("op", "key = 'three'", 1);
	gone("three");
	a_day_later();
	retained();
	rows_are("op", "key = 'three'", 0);
	gone("three");
	gone("four");
}
END_TEST

START_TEST(a_day_is_left_alone_for_longer_than_any_lease)
{
	orders.lease = 3 * 86400000L;
	completed(ledger, "three", "content", "body");
	age("three", 4);
	retained();
	rows_are("op", "key = 'three'", 1);
	orders.lease = 10000;
	retained();
	rows_are("op", "key = 'three'", 0);
}
END_TEST

START_TEST(a_record_under_a_lease_holds_its_day)
{
	won(ledger, "running", "content");
	age("running", 4);
	scratch_do("UPDATE onceward.op SET lease_until = now() + interval '1 h'");
	retained();
	rows_are("op", "key = 'running'", 1);
	rows_are("attention", "true", 0);
	scratch_do("UPDATE onceward.op SET lease_until = now() - interval '1 h'");
	scratch_do("UPDATE onceward.retention SET leased_until = '-infinity'");
	retained();
	rows_are("op", "key = 'running'", 0);
	rows_are("attention", "key = 'running'", 1);
}
END_TEST

START_TEST(what_has_no_end_is_listed_before_its_day_goes)
{
	won(ledger, "stale", "content");
	age("stale", 4);
	retained();
	rows_are("op", "true", 0);
	rows_are("attention", "key = 'stale' AND state = 3 AND slot = 1 AND account = 'alice'",
		 1);
	found(ledger, "stale", "content", LEDGER_UNKNOWN);
	resolve("stale", 2, "resolved");
	rows_are("event_late", "slot = 2 AND kind = 2", 1);
	rows_are("attention", "true", 0);
}
END_TEST

START_TEST(an_unknown_record_outlives_its_day)
{
	struct attempt *a = won(ledger, "k", "content"), *b = won(ledger, "free", "content");

	settled(a, LEDGER_MARK_UNKNOWN);
	settled(b, LEDGER_MARK_UNKNOWN);
	age("k", 40); /* also its tombstone is over */
	age("free", 40);
	retained();
	rows_are("key", "true", 2);
	rows_are("attention", "slot = 1 AND state = 3", 2);
	found(ledger, "k", "content", LEDGER_UNKNOWN);
	resolve("k", 2, "resolved");
	resolve("free", 4, "");
	a_day_later();
	retained();
	rows_are("key", "true", 1);
	rows_are("event_late", "kind = 2 AND body IS NOT NULL", 1);
	won(ledger, "free", "content");
}
END_TEST

/* The settle has the slot and commits while the sweep waits for it. */
START_TEST(a_settle_that_races_the_last_sweep_wins)
{
	struct pg_session *settle = stranger();

	won(ledger, "k", "content");
	age("k", 4);
	scratch_run(settle,
		    "BEGIN; INSERT INTO onceward.event (op_id, writer, expires_on, slot, "
		    "kind, status) SELECT op_id, 1, expires_on, 1, 2, 201 FROM onceward.op");
	retain_begin_at(0);
	locked(1);
	scratch_run(settle, "COMMIT");
	pg_session_close(settle);
	TURN_UNTIL(idle(retains[0]));
	rows_are("op", "true", 0);
	rows_are("attention", "true", 0);
	gone("k");
	nothing_went_wrong();
}
END_TEST

START_TEST(an_end_that_comes_while_its_day_goes_is_not_lost)
{
	won(ledger, "late", "content");
	age("late", 4);
	retained();
	ck_assert_int_eq(
		scratch_number(
			"SELECT onceward.conclude(op_id, expires_on, key_hash, account, "
			"operation, key, 1::int2, 0::int2, 2::int2, 201::int2, '', 'late', "
			"NULL::bytea, NULL::bytea, 86400000, 2592000000, 5) "
			"FROM onceward.attention"),
		1);
	rows_are("event_late", "slot = 2 AND kind = 2 AND body = 'late'", 1);
	rows_are("attention", "true", 0);
}
END_TEST

START_TEST(a_completed_record_of_a_day_that_is_gone_cannot_be_sent_again)
{
	struct attempt *a = completed(ledger, "k", "content", "body");
	char sql[256];

	age("k", 4);
	retained();
	snprintf(sql, sizeof(sql),
		 "SELECT onceward.claim(%lld, " TODAY
		 " - 3, 2::int2, 1000, 9, key_hash, 'alice', "
		 "'orders.create', 'k') FROM onceward.key",
		 (long long)a->entry.op_id);
	ck_assert_int_eq(scratch_number(sql), 0);
	gone("k");
}
END_TEST

#define MANY 300

/* Two that purge, and requests all the while. */
START_TEST(two_that_drop_a_day_drop_it_once_while_requests_go_on)
{
	struct attempt *beside[MANY];
	char key[32];

	completed(ledger, "old", "content", "body");
	won(ledger, "stale", "content");
	age("old", 4);
	age("stale", 4);
	retain_begin_at(0);
	retain_begin_at(1);
	for (int i = 0; i < MANY; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		beside[i] = completed(ledger, key, "content", "body");
		gone("old");
		replayed(found(ledger, key, "content", LEDGER_COMPLETED), SPAN("body"));
	}
	TURN_UNTIL(idle(retains[0]) && idle(retains[1]));
	rows_are("op", "key IN ('old', 'stale')", 0);
	rows_are("audit", "action = 'purge' AND detail LIKE '2 records, of which 1%'", 1);
	rows_are("attention", "true", 1);
	found(ledger, "stale", "content", LEDGER_UNKNOWN);
	ck_assert_uint_eq(beside[0]->entry.settled, LEDGER_SETTLED);
	nothing_went_wrong();
}
END_TEST

/* A reader holds the detach up; its backend is ended in the middle. */
START_TEST(a_detach_that_was_interrupted_comes_to_its_end)
{
	struct pg_session *reader = stranger();
	struct retain *r = NULL;

	completed(ledger, "old", "content", "body");
	age("old", 5);
	scratch_run(reader, "BEGIN; SELECT count(*) FROM onceward.op; SELECT count(*) FROM "
			    "onceward.event");
	r = retain_begin_at(0);
	TURN_UNTIL(parts("leaving") == 1);
	gone("old");
	scratch_do("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE "
		   "'ALTER TABLE%CONCURRENTLY' AND pid <> pg_backend_pid()");
	turn_for(500);
	ck_assert_int_eq(parts("leaving"), 1);
	gone("old");
	won(ledger, "new", "content");
	scratch_run(reader, "ROLLBACK");
	pg_session_close(reader);
	retain_free(r);
	scratch_do("UPDATE onceward.retention SET leased_until = '-infinity'");
	retained();
	rows_are("op", "key = 'old'", 0);
	ck_assert_int_eq(parts("leaving OR parent <> 'audit' AND day < " TODAY " - 1"), 0);
	gone("old");
}
END_TEST

START_TEST(old_months_of_the_audit_table_go)
{
	rows_are("audit", "true", 0);
	ck_assert_int_eq(parts("name = 'audit_202001'"), 1);
	retained();
	ck_assert_int_eq(parts("name = 'audit_202001'"), 0);
	ck_assert_int_eq(parts("parent = 'audit' AND day = date_trunc('month', " TODAY ")"), 1);
}
END_TEST

/* --- the clock --- */

START_TEST(nothing_goes_while_the_clocks_are_apart)
{
	static const int64_t off[] = { 75000, -75000 };

	completed(ledger, "old", "content", "body");
	age("old", 5);
	for (size_t i = 0; i < ARRAY_LEN(off); i++) {
		struct retain *r = NULL;

		if (retains[0])
			retain_free(retains[0]);
		clock_off_ms = off[i];
		r = retain_begin_at(0);
		TURN_UNTIL(retain_stopped(r));
		turn_for(300);
		ck_assert_ptr_nonnull(strstr(retain_stopped(r), "differ by 7"));
		ck_assert_int_eq(gauges[METRIC_purge_stopped], 1);
		rows_are("op", "key = 'old'", 1);
	}
	clock_off_ms /= 2;
	retain_follow(retains[0], &settings); /* looks again */
	TURN_UNTIL(!retain_stopped(retains[0]) && idle(retains[0]));
	ck_assert_int_eq(gauges[METRIC_purge_stopped], 0);
	rows_are("op", "key = 'old'", 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("retain");
	TCase *t = tcase_create("retain");

	tcase_add_checked_fixture(t, set_up_one, tear_down_one);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, a_day_that_is_over_goes_and_its_keys_get_410);
	tcase_add_test(t, by_itself_one_day_with_records_goes_a_day);
	tcase_add_test(t, a_day_is_left_alone_for_longer_than_any_lease);
	tcase_add_test(t, a_record_under_a_lease_holds_its_day);
	tcase_add_test(t, what_has_no_end_is_listed_before_its_day_goes);
	tcase_add_test(t, an_unknown_record_outlives_its_day);
	tcase_add_test(t, a_settle_that_races_the_last_sweep_wins);
	tcase_add_test(t, an_end_that_comes_while_its_day_goes_is_not_lost);
	tcase_add_test(t, a_completed_record_of_a_day_that_is_gone_cannot_be_sent_again);
	tcase_add_test(t, two_that_drop_a_day_drop_it_once_while_requests_go_on);
	tcase_add_test(t, a_detach_that_was_interrupted_comes_to_its_end);
	tcase_add_test(t, old_months_of_the_audit_table_go);
	tcase_add_test(t, nothing_goes_while_the_clocks_are_apart);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return run_on_scratch(suite(), "");
}
