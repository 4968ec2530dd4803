/* Lookups against a real ledger: who is asked for, when, by whom, and what becomes of it. */
#include "lookup_rig.h"

START_TEST(two_never_ask_for_one_record_together)
{
	struct lookup *one = NULL, *other = NULL;
	char target[16];

	for (int i = 1; i <= 20; i++)
		unknown(i, "orders");
	one = lookup_new(loop, metrics, &settings);
	other = lookup_new(loop, metrics, &settings);
	for (int i = 0;
	     i < 100 && scratch_number("SELECT count(*) FROM onceward.attention") > 0; i++) {
		turn_for(one, other, 100);
		ck_assert_uint_le(open_askings(), 8);
		for (size_t at = 0; at < n_askings; at++)
			if (askings[at].call)
				answer(&askings[at], 200, "{}");
	}
	for (int i = 1; i <= 20; i++) {
		snprintf(target, sizeof(target), "/o/%d", i);
		ck_assert_uint_eq(asked(target), 1);
	}
	ck_assert_int_eq(scratch_number("SELECT count(*) FROM onceward.event_late WHERE slot = "
					"2 AND kind = 2 AND source = 1 AND status = 201 AND "
					"body = '' AND headers = '' AND generation = 1"),
			 20);
	ck_assert_uint_eq(looked("found"), 20);
	lookup_free(one);
	lookup_free(other);
}
END_TEST

START_TEST(few_are_asked_at_a_time_and_of_one_operation_fewer)
{
	struct lookup *lookup = NULL;

	settings.n_routes = 3;
	for (int i = 1; i <= 10; i++)
		unknown(i, "orders");
	lookup = lookup_new(loop, metrics, &settings);
	turn_for(lookup, NULL, 3 * ROUND_MS);
	ck_assert_uint_eq(open_askings(), 4);
	for (int i = 11; i <= 20; i++)
		unknown(i, i % 2 ? "payments" : "refunds");
	turn_for(lookup, NULL, 3 * ROUND_MS);
	ck_assert_uint_eq(open_askings(), 8);
	answer(&askings[0], 200, "{}");
	turn_for(lookup, NULL, 300); /* at once, not with the next round */
	ck_assert_uint_eq(open_askings(), 8);
	lookup_free(lookup);
	ck_assert_int_eq(scratch_number("SELECT count(*) FROM onceward.attention"), 19);
}
END_TEST

static int64_t now_ms(void)
{
	return scratch_number("SELECT (extract(epoch FROM now()) * 1000)::int8");
}

START_TEST(a_lease_is_given_back_with_a_growing_gap)
{
	struct lookup *lookup = NULL;
	int64_t at = 0, gap = 0, asked_at = 0;
	char due[128];

	unknown(1, "orders");
	lookup = lookup_new(loop, metrics, &settings);
	for (int i = 0; i < 3; i++) {
		asked_at = now_ms();
		answer(wait_for(lookup, "/o/1", 6000), 503, "");
		gap = loop_clock_us() / 1000 - at;
		ck_assert(i == 0 || gap >= 1000 << (i - 1));
		at = loop_clock_us() / 1000;
		row_becomes(lookup, 1, "owner IS NULL AND lease_until IS NULL", 1000);
	}
	snprintf(due, sizeof(due),
		 "looks = 3 AND due_at > to_timestamp(%lld / 1000.0) + interval '3 s' AND "
		 "due_at < now() + interval '4.1 s'",
		 (long long)asked_at);
	ck_assert(row_says(1, due));
	ck_assert_uint_eq(looked("failed"), 3);
	lookup_free(lookup);
}
END_TEST

START_TEST(under_a_lease_nobody_else_asks_and_behind_it_somebody_does)
{
	struct lookup *one = NULL, *other = NULL;
	int64_t began = 0;

	unknown(1, "orders");
	upstream.timeout = 600;
	one = lookup_new(loop, metrics, &settings);
	wait_for(one, "/o/1", 3000);
	began = loop_clock_us() / 1000;
	lookup_free(one); /* it dies with the lease */
	other = lookup_new(loop, metrics, &settings);
	turn_for(other, NULL, 2000);
	if (loop_clock_us() / 1000 < began + LEASE_MS - 1000) /* a busy machine may be late */
		ck_assert_uint_eq(asked("/o/1"), 1);
	answer(wait_for(other, "/o/1", LEASE_MS + 1000), 200, "{}");
	ck_assert_int_ge(loop_clock_us() / 1000 - began, LEASE_MS - 100);
	left_are(other, 0);
	lookup_free(other);
}
END_TEST

START_TEST(a_ledger_that_goes_while_it_is_asked_is_told_later)
{
	struct lookup *lookup = NULL;

	unknown(1, "orders");
	upstream.timeout = 600;
	lookup = lookup_new(loop, metrics, &settings);
	wait_for(lookup, "/o/1", 3000);
	scratch_do("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE "
		   "application_name = 'onceward' AND pid <> pg_backend_pid()");
	turn_for(lookup, NULL, 20);
	answer(&askings[0], 200, "{}");
	turn_for(lookup, NULL, 300);
	ck_assert_int_eq(scratch_number("SELECT count(*) FROM onceward.attention"), 1);
	answer(wait_for(lookup, "/o/1", LEASE_MS + 2000), 200, "{}");
	left_are(lookup, 0);
	lookup_free(lookup);
}
END_TEST

START_TEST(who_waits_for_a_record_has_it_asked_for_soon_and_not_too_often)
{
	struct lookup *lookup = NULL;
	int64_t asked_at = 0;
	char due[128];

	unknown(1, "orders");
	scratch_do(
		"UPDATE onceward.attention SET due_at = now() + interval '1 hour', looks = 9");
	lookup = lookup_new(loop, metrics, &settings);
	turn_for(lookup, NULL, 2 * ROUND_MS);
	ck_assert_uint_eq(n_askings, 0);
	scratch_do("SELECT onceward.lookup_poke('{1,2}')");
	asked_at = now_ms();
	answer(wait_for(lookup, "/o/1", ROUND_MS), 503, "");
	row_becomes(lookup, 1, "owner IS NULL", SOON);
	scratch_do("SELECT onceward.lookup_poke('{1}')");
	snprintf(due, sizeof(due),
		 "due_at > to_timestamp(%lld / 1000.0) + interval '900 ms' AND due_at < now() "
		 "+ interval '1 s'",
		 (long long)asked_at);
	ck_assert(row_says(1, due));
	lookup_free(lookup);
}
END_TEST

START_TEST(what_others_settle_meanwhile_stays_as_it_is)
{
	struct lookup *lookup = NULL;

	record(1, "orders", -1000);
	listed(1); /* stale: its attempt has no end */
	lookup = lookup_new(loop, metrics, &settings);
	wait_for(lookup, "/o/1", 3000);
	event(1, 2, 200, "'h'"); /* and now it has */
	answer(&askings[0], 200, "{}");
	left_are(lookup, 0);
	ck_assert_int_eq(scratch_number("SELECT count(*) FROM onceward.event_late WHERE slot > "
					"0"),
			 0);
	lookup_free(lookup);
}
END_TEST

START_TEST(where_no_route_looks_up_nobody_is_connected_to)
{
	struct lookup *lookup = NULL;

	unknown(1, "orders");
	operations[0].recovery.contract = RECOVERY_HOLD;
	lookup = lookup_new(loop, metrics, &settings);
	turn_for(lookup, NULL, ROUND_MS);
	ck_assert_int_eq(scratch_number("SELECT count(*) FROM pg_stat_activity WHERE "
					"application_name = 'onceward' AND pid <> "
					"pg_backend_pid()"),
			 0);
	operations[0].recovery.contract = RECOVERY_LOOKUP;
	lookup_follow(lookup, &settings);
	answer(wait_for(lookup, "/o/1", 3000), 200, "{}");
	left_are(lookup, 0);
	lookup_free(lookup);
}
END_TEST

START_TEST(an_operation_that_is_looked_up_no_more_ends_what_it_asks)
{
	struct lookup *lookup = NULL;

	unknown(1, "orders");
	unknown(2, "orders");
	lookup = lookup_new(loop, metrics, &settings);
	wait_for(lookup, "/o/2", 3000);
	operations[0].recovery.contract = RECOVERY_HOLD;
	lookup_follow(lookup, &settings);
	unknown(3, "orders");
	answer(asking_of("/o/1"), 200, "{}");
	answer(asking_of("/o/2"), 404, "");
	turn_for(lookup, NULL, 2 * ROUND_MS);
	ck_assert_uint_eq(n_askings, 2);
	ck_assert_int_eq(scratch_number("SELECT count(*) FROM onceward.attention"), 2);
	lookup_free(lookup);
}
END_TEST

/* --- what "not found" needs --- */

static void control_answered(struct lookup *lookup, const char *target, unsigned status)
{
	answer(wait_for(lookup, target, 4000), status, "{}");
}

START_TEST(not_found_twice_behind_the_lease_beside_a_control_releases)
{
	struct lookup *lookup = NULL;

	completed(1, "orders");
	unknown(2, "orders");
	lookup = lookup_new(loop, metrics, &settings);
	answer(wait_for(lookup, "/o/2", 3000), 404, ""); /* counts for nothing yet */
	row_becomes(lookup, 2, "owner IS NULL AND not_found_at IS NULL", 1000);
	control_answered(lookup, "/o/1", 200);
	answer(wait_for(lookup, "/o/2", 3000), 404, "");
	row_becomes(lookup, 2, "owner IS NULL AND not_found_at IS NOT NULL", 1000);
	answer(wait_for(lookup, "/o/2", 3000), 404, "");
	left_are(lookup, 0);
	turn_for(lookup, NULL, 50); /* and that is heard */
	ck_assert_int_eq(
		scratch_number("SELECT count(*) FROM onceward.event_late WHERE op_id = "
			       "2 AND slot = 2 AND kind = 4 AND source = 1"),
		1);
	ck_assert_int_eq(scratch_number("SELECT count(*) FROM onceward.key WHERE op_id = 2"),
			 0);
	ck_assert_uint_eq(looked("released"), 1);
	ck_assert_uint_eq(asked("/o/1"), 1);
	lookup_free(lookup);
}
END_TEST

START_TEST(under_the_lease_of_the_attempt_not_found_counts_for_nothing)
{
	struct lookup *lookup = NULL;

	completed(1, "orders");
	record(2, "orders", 60000);
	event(2, 3, 0, "NULL"); /* cut off, and it may go on at the upstream */
	listed(2);
	lookup = lookup_new(loop, metrics, &settings);
	answer(wait_for(lookup, "/o/2", 3000), 404, "");
	answer(wait_for(lookup, "/o/2", 3000), 404, "");
	turn_for(lookup, NULL, 200);
	ck_assert(row_says(2, "not_found_at IS NULL AND due_at < now() + interval '2 s'"));
	ck_assert_uint_eq(asked("/o/1"), 0);
	lookup_free(lookup);
}
END_TEST

/* An operation that was resent before it was looked up: the attempt that may be running is the last. */
START_TEST(a_resend_makes_not_found_begin_anew_behind_its_own_lease)
{
	unknown(2, "orders");
	scratch_do("UPDATE onceward.attention SET not_found_at = now() - interval '50 s', "
		   "owner = 5, lease_until = now()");
	ck_assert_int_eq(scratch_number("SELECT onceward.claim(op_id, expires_on, 2::int2, "
					"30000, 9, key_hash, account, operation, key) FROM "
					"onceward.attention"),
			 1);
	ck_assert_int_eq(
		scratch_number("SELECT onceward.conclude(op_id, expires_on, key_hash, "
			       "account, operation, key, 2::int2, 0::int2, 3::int2, "
			       "NULL, NULL, NULL, NULL, 'cut off', 1000, 1000, 9) FROM "
			       "onceward.attention"),
		1);
	scratch_do("SELECT onceward.lookup_return(5, 2, 0, 1::smallint)"); /* began before */
	ck_assert(row_says(2, "state = 3 AND not_found_at IS NULL"));
	ck_assert_int_eq(
		scratch_number("SELECT count(*) FROM onceward.lookup_take(1, 8, "
			       "ARRAY['orders'::bytea], ARRAY[1000::int8], ARRAY[4]) WHERE "
			       "lease_left BETWEEN 25000 AND 30000 AND not_found_ms IS NULL"),
		1);
}
END_TEST

START_TEST(a_not_found_that_is_contradicted_begins_anew)
{
	struct lookup *lookup = NULL;

	operations[0].recovery.found_of[200] = 1;
	operations[0].recovery.not_found_after = 60000;
	completed(1, "orders");
	unknown(2, "orders");
	scratch_do("UPDATE onceward.attention SET not_found_at = now() - interval '50 s'");
	lookup = lookup_new(loop, metrics, &settings);
	answer(wait_for(lookup, "/o/2", 3000), 503, ""); /* says nothing */
	row_becomes(lookup, 2, "owner IS NULL", SOON);
	lookup_free(lookup);
	ck_assert(row_says(2, "not_found_at < now() - interval '49 s'"));
	scratch_do("UPDATE onceward.attention SET owner = 5");
	scratch_do("SELECT onceward.lookup_return(5, 2, 0, 1::smallint)");
	ck_assert(row_says(2, "not_found_at < now() - interval '49 s' AND owner IS NULL"));
	scratch_do("SELECT onceward.lookup_return(5, 2, 0, -1::smallint)");
	ck_assert(row_says(2, "not_found_at IS NOT NULL")); /* it is not 5's any more */
	scratch_do("UPDATE onceward.attention SET owner = 5");
	scratch_do("SELECT onceward.lookup_return(5, 2, 0, -1::smallint)");
	ck_assert(row_says(2, "not_found_at IS NULL"));
}
END_TEST

START_TEST(a_control_that_fails_holds_the_operation_and_no_other)
{
	struct lookup *lookup = NULL;

	settings.n_routes = 2;
	completed(1, "orders");
	unknown(2, "orders");
	lookup = lookup_new(loop, metrics, &settings);
	answer(wait_for(lookup, "/o/2", 3000), 404, "");
	control_answered(lookup, "/o/1", 404);
	turn_for(lookup, NULL, 100);
	ck_assert_uint_eq(looked("control_failed"), 1);
	unknown(3, "orders");
	unknown(4, "payments");
	answer(wait_for(lookup, "/p/4", 3000), 200, "{}");
	control_answered(lookup, "/o/1", 401);
	turn_for(lookup, NULL, 100);
	ck_assert_uint_eq(asked("/o/3") + asked("/o/2"), 1);
	ck_assert_uint_eq(looked("control_failed"), 2);
	control_answered(lookup, "/o/1", 200);
	wait_for(lookup, "/o/3", 2000);
	lookup_free(lookup);
}
END_TEST

START_TEST(a_control_that_gets_no_answer_says_nothing)
{
	struct lookup *lookup = NULL;

	completed(1, "orders");
	unknown(2, "orders");
	lookup = lookup_new(loop, metrics, &settings);
	answer(wait_for(lookup, "/o/2", 3000), 404, "");
	control_answered(lookup, "/o/1", 503);
	answer(wait_for(lookup, "/o/2", 3000), 404, "");
	turn_for(lookup, NULL, 100);
	ck_assert(row_says(2, "not_found_at IS NULL"));
	ck_assert_uint_eq(looked("control_failed"), 0);
	lookup_free(lookup);
}
END_TEST

static long control(const char *operation)
{
	char sql[256];

	snprintf(sql, sizeof(sql),
		 "SELECT op_id FROM onceward.lookup_control('%s', 86400000, 5000, '')",
		 operation);
	return scratch_number(sql);
}

START_TEST(a_control_is_a_record_that_must_be_there)
{
	ck_assert_int_eq(control("orders"), -1);
	completed(1, "orders");
	ck_assert_int_eq(control("orders"), 1);
	ck_assert_int_eq(control("payments"), -1);
	record(2, "orders", -1000);
	event(2, 2, 402, "'h'"); /* an answer, and nothing was made */
	record(3, "orders", -1000);
	event(3, 4, 0, "NULL"); /* released */
	record(4, "orders", -1000);
	event(4, 3, 0, "NULL"); /* unknown */
	record(5, "orders", -1000);
	event(5, 2, 201, "NULL");  /* erased */
	record(6, "orders", 1000); /* in flight */
	record(7, "orders", 1000);
	scratch_do("INSERT INTO onceward.event (op_id, writer, expires_on, slot, kind, status, "
		   "hash) SELECT op_id, 1, expires_on, 1, 2, 201, 'h' FROM onceward.op WHERE "
		   "op_id = 7"); /* of this moment */
	ck_assert_int_eq(control("orders"), 1);
	completed(8, "orders");
	ck_assert_int_eq(control("orders"), 8);
}
END_TEST

START_TEST(a_control_is_found_among_many_of_others_without_reading_all)
{
	completed(1, "orders");
	scratch_do(
		"INSERT INTO onceward.op SELECT g, (now() AT TIME ZONE 'UTC')::date + 1, "
		"gen_random_uuid(), now() - interval '1 minute', now(), 'a', 'payments', 'k', "
		"'g', 's' FROM generate_series(100, 20000) AS g");
	ck_assert_int_eq(control("orders"), 1);
	completed(20001, "payments");
	ck_assert_int_eq(control("payments"), 20001);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("lookup");
	TCase *t = tcase_create("lookup");

	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, two_never_ask_for_one_record_together);
	tcase_add_test(t, few_are_asked_at_a_time_and_of_one_operation_fewer);
	tcase_add_test(t, a_lease_is_given_back_with_a_growing_gap);
	tcase_add_test(t, under_a_lease_nobody_else_asks_and_behind_it_somebody_does);
	tcase_add_test(t, a_ledger_that_goes_while_it_is_asked_is_told_later);
	tcase_add_test(t, who_waits_for_a_record_has_it_asked_for_soon_and_not_too_often);
	tcase_add_test(t, what_others_settle_meanwhile_stays_as_it_is);
	tcase_add_test(t, where_no_route_looks_up_nobody_is_connected_to);
	tcase_add_test(t, an_operation_that_is_looked_up_no_more_ends_what_it_asks);
	tcase_add_test(t, not_found_twice_behind_the_lease_beside_a_control_releases);
	tcase_add_test(t, under_the_lease_of_the_attempt_not_found_counts_for_nothing);
	tcase_add_test(t, a_resend_makes_not_found_begin_anew_behind_its_own_lease);
	tcase_add_test(t, a_not_found_that_is_contradicted_begins_anew);
	tcase_add_test(t, a_control_that_fails_holds_the_operation_and_no_other);
	tcase_add_test(t, a_control_that_gets_no_answer_says_nothing);
	tcase_add_test(t, a_control_is_a_record_that_must_be_there);
	tcase_add_test(t, a_control_is_found_among_many_of_others_without_reading_all);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return run_on_scratch(suite(), "");
}
