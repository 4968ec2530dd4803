/*
 * What is written beyond the first slot: claims of resends, late answers, evidence, and stops. Races
 * decide who is first; never two.
 */
#include "ledger_rig.h"

static struct ledger *ledger;

static void set_up_one(void)
{
	set_up();
	ledger = ledger_open();
}

static struct attempt *unknown(const char *key)
{
	struct attempt *a = won(ledger, key, "content");

	settled(a, LEDGER_MARK_UNKNOWN);
	return found(ledger, key, "content", LEDGER_UNKNOWN);
}

static void claim(struct attempt *a)
{
	asks(a);
	ledger_claim(a->ledger, &a->entry);
	ck_assert(!is_answered(a));
}

static void claimed(struct attempt *a, enum ledger_found found)
{
	claim(a);
	answered(a);
	found_is(a, found);
}

/* As time would have it: what is under a lease has outlived it. */
static void leases_run_out(void)
{
	scratch_do("UPDATE onceward.op SET lease_until = now() - interval '1 s'");
	scratch_do("UPDATE onceward.event_late SET lease_until = now() - interval '1 s' "
		   "WHERE lease_until IS NOT NULL");
	scratch_do("UPDATE onceward.attention SET claim_until = now() - interval '1 s' "
		   "WHERE claim_until IS NOT NULL");
}

START_TEST(a_claim_is_the_next_generation_and_its_end_the_record)
{
	struct attempt *a = unknown("k1");

	ck_assert_uint_eq(a->entry.generation, 1);
	ck_assert_int_eq(a->entry.tried_ms, -1);
	ck_assert(a->entry.same_raw && !a->entry.stale);
	claimed(a, LEDGER_WON);
	ck_assert_uint_eq(a->entry.generation, 2);
	ck_assert_int_le(a->entry.lease_until_ms, loop_now(loop) + orders.lease);
	rows_are("attention", "state = 2 AND slot = 2 AND generation = 2", 1);
	found(ledger, "k1", "content", LEDGER_IN_FLIGHT);
	result_set(a, SPAN("the body"));
	settled(a, LEDGER_COMPLETE);
	rows_are("attention", "true", 0);
	rows_are("event_late", "kind = 2 AND slot = 3 AND generation = 2 AND source = 0", 1);
	replayed(reserved(ledger, "k1", "content"), SPAN("the body"));
	rows_are("op", "true", 1);
	nothing_went_wrong();
}
END_TEST

START_TEST(an_end_that_is_unknown_again_may_be_claimed_again)
{
	struct attempt *a = unknown("k1");

	for (unsigned generation = 2; generation < 5; generation++) {
		claimed(a, LEDGER_WON);
		ck_assert_uint_eq(a->entry.generation, generation);
		settled(a, LEDGER_MARK_UNKNOWN);
		a = found(ledger, "k1", "content", LEDGER_UNKNOWN);
		ck_assert_uint_eq(a->entry.generation, generation);
		ck_assert_int_ge(a->entry.tried_ms, 0);
		rows_are("attention", "state = 3", 1);
	}
	rows_are("key", "true", 1);
	nothing_went_wrong();
}
END_TEST

START_TEST(a_record_whose_lease_ran_out_is_claimed_without_an_end)
{
	struct attempt *first = won(ledger, "k1", "content");
	struct attempt *a = NULL;

	leases_run_out();
	a = found(ledger, "k1", "content", LEDGER_UNKNOWN);
	ck_assert(a->entry.stale);
	claimed(a, LEDGER_WON);
	rows_are("event", "slot = 1 AND kind = 3", 1);
	/* The first attempt comes too late: its answer is kept, and the client hears the record. */
	result_set(first, SPAN("late"));
	settle(first, LEDGER_COMPLETE);
	settled_is(first, LEDGER_FENCED);
	found_is(first, LEDGER_IN_FLIGHT);
	rows_are("event_late", "slot = -1 AND kind = 2 AND generation = 1", 1);
	result_set(a, SPAN("resent"));
	settled(a, LEDGER_COMPLETE);
	replayed(reserved(ledger, "k1", "content"), SPAN("resent"));
	nothing_went_wrong();
}
END_TEST

START_TEST(a_resend_whose_lease_ran_out_is_unknown_and_may_still_settle)
{
	struct attempt *a = unknown("k1");

	claimed(a, LEDGER_WON);
	leases_run_out();
	found(ledger, "k1", "content", LEDGER_UNKNOWN);
	scratch_do("SELECT onceward.sweep_claims(1)");
	rows_are("attention", "state = 3 AND slot = 3", 1);
	rows_are("event_late", "slot = 3 AND kind = 3", 1);
	result_set(a, SPAN("late"));
	settled(a, LEDGER_COMPLETE);
	replayed(reserved(ledger, "k1", "content"), SPAN("late"));
	rows_are("attention", "true", 0);
	nothing_went_wrong();
}
END_TEST

START_TEST(a_late_answer_settles_what_nobody_knows)
{
	struct attempt *a = won(ledger, "k1", "content");

	leases_run_out();
	scratch_do("SELECT onceward.conclude(op_id, expires_on, key_hash, account, operation, "
		   "key, 0::int2, "
		   "2::int2, 2::int2, 202::int2, '', 'by an operator', NULL, 'seen', 1000000, "
		   "2000000, 7) FROM "
		   "onceward.op");
	result_set(a, SPAN("late"));
	settle(a, LEDGER_COMPLETE);
	settled_is(a, LEDGER_FENCED);
	found_is(a, LEDGER_COMPLETED);
	ck_assert_int_eq(a->entry.source, RECORD_BY_OPERATOR);
	ck_assert(a->entry.retained &&
		  span_equal(a->entry.stored.body, SPAN("by an operator")));
	ck_assert_uint_eq(a->entry.stored.status, 202);
	rows_are("event_late", "slot = -1", 1);
	rows_are("stop", "true", 0);
	nothing_went_wrong();
}
END_TEST

START_TEST(an_effect_of_what_was_released_stops_the_account)
{
	struct attempt *a = won(ledger, "k1", "content");
	const char *release =
		"SELECT onceward.resolve(op_id, expires_on, NULL, 4::int2, NULL, NULL, NULL, "
		"NULL, "
		"'not there', 'me', 2::int2, 1000000, 2000000, 7) FROM onceward.op";

	ck_assert_int_eq(scratch_number(release), CONCLUDED_IN_FLIGHT);
	rows_are("attention", "true", 0);
	leases_run_out();
	ck_assert_int_eq(scratch_number(release), CONCLUDED);
	rows_are("key", "true", 0);
	result_set(a, SPAN("late"));
	settle(a, LEDGER_COMPLETE);
	settled_is(a, LEDGER_FENCED);
	found_is(a, LEDGER_RELEASED);
	rows_are("stop",
		 "reason = 'late_effect' AND operation = 'orders.create' AND account = 'alice'",
		 1);
	TURN_UNTIL(stops_stop(ledger, &a->entry));
	a = found(ledger, "k1", "content", LEDGER_STOPPED);
	ck_assert(!a->entry.no_record); /* its key is free, and it was done */
	scratch_do("SELECT onceward.end_stops('orders.create', 'alice', 'me', 'seen')");
	TURN_UNTIL(!stops_stop(ledger, &a->entry));
	won(ledger, "k2", "content");
	rows_are("audit", "action = 'resume'", 1);
}
END_TEST

START_TEST(where_twice_is_accepted_a_stale_record_is_begun_again)
{
	struct attempt *first = NULL, *a = NULL;

	orders.recovery.contract = RECOVERY_AT_LEAST_ONCE;
	first = won(ledger, "k1", "content");
	leases_run_out();
	a = found(ledger, "k1", "content", LEDGER_UNKNOWN);
	ck_assert(a->entry.stale);
	asks(a);
	ledger_begin_again(ledger, &a->entry);
	answered(a);
	found_is(a, LEDGER_WON);
	ck_assert_uint_eq(a->entry.generation, 1);
	ck_assert_str_ne(a->entry.request_id, first->entry.request_id);
	result_set(first, SPAN("first"));
	settle(first, LEDGER_COMPLETE);
	settled_is(first, LEDGER_FENCED);
	result_set(a, SPAN("second"));
	settled(a, LEDGER_COMPLETE);
	replayed(reserved(ledger, "k1", "content"), SPAN("second"));
	rows_are("stop", "true", 0);
	nothing_went_wrong();
}
END_TEST

START_TEST(of_many_claims_one_is_won)
{
	struct ledger *other = ledger_open();
	struct attempt *all[20];

	for (int round = 0; round < 20; round++) {
		char key[32];
		unsigned won_by = 0;

		snprintf(key, sizeof(key), "k%d", round);
		unknown(key);
		for (size_t i = 0; i < ARRAY_LEN(all); i++)
			all[i] = found(i % 2 ? other : ledger, key, "content", LEDGER_UNKNOWN);
		for (size_t i = 0; i < ARRAY_LEN(all); i++)
			claim(all[i]);
		for (size_t i = 0; i < ARRAY_LEN(all); i++) {
			answered(all[i]);
			if (all[i]->entry.found == LEDGER_WON)
				won_by++;
			else
				found_is(all[i], LEDGER_IN_FLIGHT);
		}
		ck_assert_uint_eq(won_by, 1);
	}
	rows_are("event_late", "kind = 1", 20);
	nothing_went_wrong();
}
END_TEST

/* The late end of the first attempt and a claim want the same place: one has it. */
START_TEST(an_answer_and_a_claim_never_both_win)
{
	struct ledger *other = ledger_open();
	long settled_first = 0;

	for (int round = 0; round < 100; round++) {
		char key[32];
		struct attempt *first = NULL, *a = NULL;

		snprintf(key, sizeof(key), "k%d", round);
		first = won(ledger, key, "content");
		leases_run_out();
		a = found(other, key, "content", LEDGER_UNKNOWN);
		result_set(first, SPAN("late"));
		if (round % 2) {
			settle(first, LEDGER_COMPLETE);
			claim(a);
		} else {
			claim(a);
			settle(first, LEDGER_COMPLETE);
		}
		answered(first);
		answered(a);
		if (first->entry.settled == LEDGER_SETTLED)
			found_is(a, LEDGER_COMPLETED);
		else
			found_is(a, LEDGER_WON);
		settled_first += first->entry.settled == LEDGER_SETTLED;
	}
	rows_are("event", "kind = 2", settled_first);
	rows_are("event_late", "kind = 1", 100 - settled_first);
	rows_are("event_late", "slot < 0", 100 - settled_first);
	nothing_went_wrong();
}
END_TEST

START_TEST(a_claim_that_came_too_late_ends_as_unknown)
{
	struct attempt *a = NULL;
	struct pg_session *held = NULL;

	a = unknown("k1");
	held = lock("attention");
	settings.ledger.timeout = 300;
	claim(a);
	settings.ledger.timeout = PATIENCE;
	answered(a);
	found_is(a, LEDGER_UNAVAILABLE);
	unlock(held);
	TURN_UNTIL(rows("event_late", "slot = 3 AND kind = 3") == 1);
	a = found(ledger, "k1", "content", LEDGER_UNKNOWN);
	ck_assert_uint_eq(a->entry.generation, 2);
	rows_are("key", "true", 1);
}
END_TEST

START_TEST(a_lost_reply_to_a_claim_is_asked_again)
{
	for (int round = 0; round < 10; round++) {
		char key[32];
		struct attempt *a = NULL;

		snprintf(key, sizeof(key), "k%d", round);
		a = unknown(key);
		claim(a);
		ledger_flush(ledger);
		if (round % 2)
			loop_wait(loop, 0);
		terminate_ours();
		answered(a);
		found_is(a, LEDGER_WON);
		ck_assert_uint_eq(a->entry.generation, 2);
		result_set(a, SPAN("body"));
		settle(a, LEDGER_COMPLETE);
		ledger_flush(ledger);
		terminate_ours();
		settled_is(a, LEDGER_SETTLED);
	}
	rows_are("event_late", "kind = 1", 10);
	rows_are("event_late", "kind = 2 AND slot = 3", 10);
	rows_are("event_late", "slot < 0", 0);
}
END_TEST

START_TEST(the_hash_that_postgresql_makes_is_ours)
{
	struct attempt *a = unknown("k1");
	struct span bodies[] = { SPAN(""), SPAN("x"), { NULL, 0 } };

	for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
		char key[32];

		snprintf(key, sizeof(key), "k-%zu", i);
		a = unknown(key);
		claimed(a, LEDGER_WON);
		result_set(a, bodies[i]);
		settled(a, LEDGER_COMPLETE);
		a = found(ledger, key, "content", LEDGER_COMPLETED);
		ck_assert(a->entry.retained == (bodies[i].at != NULL));
		if (a->entry.retained)
			replayed(a, bodies[i]);
	}
	nothing_went_wrong(); /* a hash that does not fit would be said */
}
END_TEST

START_TEST(a_second_receipt_of_one_record_stops_the_account)
{
	struct attempt *first = won(ledger, "k1", "content");
	struct attempt *a = NULL;

	leases_run_out();
	a = found(ledger, "k1", "content", LEDGER_UNKNOWN);
	claimed(a, LEDGER_WON);
	result_set(a, SPAN("resent"));
	a->entry.receipt = SPAN("/orders/2");
	settled(a, LEDGER_COMPLETE);
	result_set(first, SPAN("late"));
	first->entry.receipt = SPAN("/orders/2");
	settle(first, LEDGER_COMPLETE);
	settled_is(first, LEDGER_FENCED);
	found_is(first, LEDGER_COMPLETED);
	rows_are("stop", "true", 0); /* the same receipt is no sign of anything */

	first = won(ledger, "k3", "content");
	leases_run_out();
	a = found(ledger, "k3", "content", LEDGER_UNKNOWN);
	claimed(a, LEDGER_WON);
	result_set(a, SPAN("resent"));
	a->entry.receipt = SPAN("/orders/5");
	settled(a, LEDGER_COMPLETE);
	result_set(first, SPAN("late"));
	settle(first, LEDGER_COMPLETE);
	settled_is(first, LEDGER_FENCED);
	rows_are("stop", "true", 0); /* nor is one that is not there */

	first = won(ledger, "k2", "content");
	leases_run_out();
	a = found(ledger, "k2", "content", LEDGER_UNKNOWN);
	claimed(a, LEDGER_WON);
	result_set(a, SPAN("resent"));
	a->entry.receipt = SPAN("/orders/3");
	settled(a, LEDGER_COMPLETE);
	result_set(first, SPAN("late"));
	first->entry.receipt = SPAN("/orders/4");
	settle(first, LEDGER_COMPLETE);
	settled_is(first, LEDGER_FENCED);
	rows_are("stop", "reason = 'duplicate_effect'", 1);
}
END_TEST

START_TEST(a_third_account_stops_the_operation)
{
	static const char *const accounts[] = { "alice", "bob", "carol" };
	char sql[256];

	for (size_t i = 0; i < ARRAY_LEN(accounts); i++) {
		snprintf(sql, sizeof(sql),
			 "SELECT onceward.raise_stop('orders.create', '%s', 'late_effect', "
			 "'a test', 'me')",
			 accounts[i]);
		scratch_do(sql);
		scratch_do(sql); /* said twice it is one stop */
		rows_are("stop", "account IS NULL", i == 2);
	}
	rows_are("stop", "true", 4);
}
END_TEST

START_TEST(a_thread_that_has_slept_reads_what_is_stopped_before_it_forwards)
{
	scratch_do("SELECT onceward.raise_stop(NULL, NULL, 'history_lost', 'a test', 'me')");
	usleep(2100000); /* no turn: it knows nothing of it */
	loop_wait(loop, 0);
	found(ledger, "k1", "content", LEDGER_STOPPED);
	rows_are("key", "true", 0);
}
END_TEST

START_TEST(what_is_stopped_is_told_all_the_same)
{
	struct attempt *a = unknown("k2");

	completed(ledger, "k1", "content", "the body");
	scratch_do("SELECT onceward.raise_stop('orders.create', NULL, 'operator', 'a test', "
		   "'me')");
	TURN_UNTIL(stops_stop(ledger, &a->entry));
	replayed(reserved(ledger, "k1", "content"), SPAN("the body"));
	ck_assert_int_eq(found(ledger, "k1", "another", LEDGER_COMPLETED)->entry.same,
			 LEDGER_DIFFERENT);
	found(ledger, "k2", "content", LEDGER_UNKNOWN);
	claimed(a, LEDGER_STOPPED);
	ck_assert(!a->entry.no_record);
	a = found(ledger, "k3", "content", LEDGER_STOPPED);
	ck_assert(a->entry.no_record);
	rows_are("key", "true", 2);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ledger_late");
	TCase *t = tcase_create("later slots");

	tcase_add_checked_fixture(t, set_up_one, tear_down);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, a_claim_is_the_next_generation_and_its_end_the_record);
	tcase_add_test(t, an_end_that_is_unknown_again_may_be_claimed_again);
	tcase_add_test(t, a_record_whose_lease_ran_out_is_claimed_without_an_end);
	tcase_add_test(t, a_resend_whose_lease_ran_out_is_unknown_and_may_still_settle);
	tcase_add_test(t, a_late_answer_settles_what_nobody_knows);
	tcase_add_test(t, an_effect_of_what_was_released_stops_the_account);
	tcase_add_test(t, where_twice_is_accepted_a_stale_record_is_begun_again);
	tcase_add_test(t, of_many_claims_one_is_won);
	tcase_add_test(t, an_answer_and_a_claim_never_both_win);
	tcase_add_test(t, a_claim_that_came_too_late_ends_as_unknown);
	tcase_add_test(t, a_lost_reply_to_a_claim_is_asked_again);
	tcase_add_test(t, the_hash_that_postgresql_makes_is_ours);
	tcase_add_test(t, a_second_receipt_of_one_record_stops_the_account);
	tcase_add_test(t, a_third_account_stops_the_operation);
	tcase_add_test(t, a_thread_that_has_slept_reads_what_is_stopped_before_it_forwards);
	tcase_add_test(t, what_is_stopped_is_told_all_the_same);
	suite_add_tcase(s, t);
	return run_on_scratch(s, "");
}
