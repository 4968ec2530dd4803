/*
 * Ends that come when the record has gone on without them, claims that were won too late, and stops
 * that come in between: nothing that may have had its effect is given free, no answer is lost, and
 * nothing is sent that is stopped.
 */
#include "ledger_rig.h"

static struct ledger *ledger;

static void set_up_one(void)
{
	set_up();
	ledger = ledger_open();
}

static void claim(struct attempt *a)
{
	asks(a);
	ledger_claim(a->ledger, &a->entry);
	ck_assert(!is_answered(a));
}

static struct attempt *claimed(const char *key)
{
	struct attempt *a = found(ledger, key, "content", LEDGER_UNKNOWN);

	claim(a);
	answered(a);
	found_is(a, LEDGER_WON);
	return a;
}

static void leases_run_out(void)
{
	scratch_do("UPDATE onceward.op SET lease_until = now() - interval '1 s'");
	scratch_do("UPDATE onceward.event_late SET lease_until = now() - interval '1 s' "
		   "WHERE lease_until IS NOT NULL");
	scratch_do("UPDATE onceward.attention SET claim_until = now() - interval '1 s' "
		   "WHERE claim_until IS NOT NULL");
}

/* As a spool would write it that is found at start: the first attempt had provably no effect. */
static long released_late(void)
{
	return scratch_number(
		"SELECT onceward.conclude(op_id, expires_on, key_hash, account, operation, "
		"key, 1::int2, 0::int2, 4::int2, NULL, NULL, NULL, NULL, 'not sent', 1000000, "
		"2000000, 7) FROM onceward.op");
}

static void ends_as_unknown(struct attempt *a)
{
	settle(a, LEDGER_MARK_UNKNOWN);
	answered(a);
}

static void answers(struct attempt *a, const char *body, const char *receipt)
{
	result_set(a, span_of(body));
	a->entry.receipt = span_of(receipt);
	settle(a, LEDGER_COMPLETE);
	answered(a);
}

/* --- given free --- */

START_TEST(what_was_sent_again_is_not_given_free_by_the_first_attempt)
{
	struct attempt *a = NULL;

	won(ledger, "k1", "content");
	leases_run_out();
	a = claimed("k1");
	ck_assert_int_eq(released_late(), CONCLUDED_UNDER_RESEND);
	ends_as_unknown(a);
	ck_assert_int_eq(released_late(), CONCLUDED_UNDER_RESEND);
	rows_are("key", "true", 1);
	rows_are("attention", "state = 3", 1);
	rows_are("event_late", "kind = 4", 0);
	found(ledger, "k1", "content", LEDGER_UNKNOWN);
}
END_TEST

START_TEST(what_was_sent_once_and_did_nothing_is_free_though_its_lease_ran_out)
{
	won(ledger, "k1", "content");
	leases_run_out();
	ck_assert_int_eq(released_late(), CONCLUDED);
	rows_are("key", "true", 0);
	rows_are("attention", "true", 0);
	won(ledger, "k1", "content");
}
END_TEST

/* --- the list --- */

START_TEST(an_end_that_comes_late_lists_nothing_that_has_one)
{
	struct attempt *first = won(ledger, "k1", "content");
	struct attempt *other = NULL;

	leases_run_out();
	answers(claimed("k1"), "resent", "");
	rows_are("attention", "true", 0);
	ends_as_unknown(first);
	settled_is(first, LEDGER_FENCED);
	found_is(first, LEDGER_COMPLETED);
	rows_are("attention", "true", 0);

	other = won(ledger, "k2", "content");
	leases_run_out();
	ends_as_unknown(claimed("k2"));
	ends_as_unknown(other);
	rows_are("attention", "state = 3 AND slot = 3 AND generation = 2", 1);
	rows_are("attention", "true", 1);
	nothing_went_wrong();
}
END_TEST

/* What stood under the key before was about something else. */
START_TEST(an_end_that_comes_late_is_told_its_own_record_whole)
{
	struct attempt *first = won(ledger, "k1", "content");
	struct attempt *other = NULL, *again = NULL;

	scratch_do("CREATE TABLE kept AS SELECT * FROM onceward.key");
	settled(first, LEDGER_RELEASE);
	scratch_do("INSERT INTO onceward.key SELECT * FROM kept; DROP TABLE kept");
	other = won(ledger, "k1", "another content");
	leases_run_out();
	again = found(ledger, "k1", "another content", LEDGER_UNKNOWN);
	claim(again);
	answered(again);
	answers(again, "resent", "");
	ends_as_unknown(other);
	settled_is(other, LEDGER_FENCED);
	replayed(other, SPAN("resent"));
}
END_TEST

/* The answer's commit falls between the claim's look and its insert. */
START_TEST(a_claim_that_an_answer_has_overtaken_lists_nothing)
{
	struct pg_session *other = stranger();
	struct attempt *a = NULL;

	won(ledger, "k1", "content");
	leases_run_out();
	a = found(ledger, "k1", "content", LEDGER_UNKNOWN);
	scratch_run(other,
		    "BEGIN; INSERT INTO onceward.event (op_id, writer, expires_on, slot, "
		    "kind, status, headers) SELECT op_id, 7, expires_on, 1, 2, 201, '' "
		    "FROM onceward.op");
	claim(a);
	locked(1);
	scratch_run(other, "COMMIT");
	pg_session_close(other);
	answered(a);
	found_is(a, LEDGER_COMPLETED);
	rows_are("attention", "true", 0);
}
END_TEST

/* --- evidence --- */

START_TEST(an_answer_that_came_during_a_resend_counts_when_that_ends_as_unknown)
{
	struct attempt *first = won(ledger, "k1", "content");
	struct attempt *a = NULL;

	leases_run_out();
	a = claimed("k1");
	answers(first, "first", "/orders/1");
	settled_is(first, LEDGER_FENCED);
	found_is(first, LEDGER_IN_FLIGHT);
	ends_as_unknown(a);
	found_is(a, LEDGER_COMPLETED);
	ck_assert(span_equal(a->entry.stored.body, SPAN("first")));
	replayed(reserved(ledger, "k1", "content"), SPAN("first"));
	rows_are("attention", "true", 0);
	rows_are("event_late", "slot > 0 AND kind = 2 AND generation = 1 AND source = 0", 1);
	rows_are("event_late",
		 "slot > 0 AND kind = 2 AND expires_at BETWEEN now() + interval '23 hours' "
		 "AND now() + interval '25 hours' AND keep_until BETWEEN now() + interval '29 "
		 "days' AND now() + interval '31 days'",
		 1);
	rows_are("stop", "true", 0);
	nothing_went_wrong();
}
END_TEST

START_TEST(an_answer_that_came_during_a_resend_counts_when_its_lease_runs_out)
{
	struct attempt *first = won(ledger, "k1", "content");
	struct attempt *a = NULL, *again = NULL;

	leases_run_out();
	a = claimed("k1");
	answers(first, "first", "/orders/1");
	leases_run_out();
	again = found(ledger, "k1", "content", LEDGER_UNKNOWN);
	claim(again); /* a third attempt is not needed */
	answered(again);
	replayed(again, SPAN("first"));
	answers(a, "resent", "/orders/1");
	found_is(a, LEDGER_COMPLETED);
	rows_are("stop", "true", 0);

	first = won(ledger, "k2", "content");
	leases_run_out();
	claimed("k2");
	answers(first, "first", "/orders/2");
	leases_run_out();
	scratch_do("SELECT onceward.sweep_claims(1)");
	replayed(reserved(ledger, "k2", "content"), SPAN("first"));
	rows_are("attention", "true", 0);
	nothing_went_wrong();
}
END_TEST

START_TEST(what_was_not_found_is_not_given_free_where_an_answer_is_known)
{
	struct attempt *first = won(ledger, "k1", "content");

	leases_run_out();
	claimed("k1");
	answers(first, "first", "/orders/1");
	leases_run_out();
	ck_assert_int_eq(
		scratch_number("SELECT onceward.conclude(op_id, expires_on, key_hash, account, "
			       "operation, key, 2::int2, 1::int2, 4::int2, NULL, NULL, NULL, "
			       "NULL, 'not found', 1000000, 2000000, 9) FROM onceward.op"),
		CONCLUDED_COMPLETED_BEFORE);
	replayed(reserved(ledger, "k1", "content"), SPAN("first"));
	nothing_went_wrong();
}
END_TEST

START_TEST(a_receipt_that_came_during_a_resend_is_compared_with_its_own)
{
	struct attempt *first = won(ledger, "k1", "content");
	struct attempt *a = NULL;

	leases_run_out();
	a = claimed("k1");
	answers(first, "first", "/orders/1");
	answers(a, "resent", "/orders/2");
	settled_is(a, LEDGER_SETTLED);
	rows_are("stop", "reason = 'duplicate_effect' AND account = 'alice'", 1);
}
END_TEST

/* --- stops in between --- */

static void all_is_stopped_while_it_sleeps(const char *reason)
{
	char sql[128];

	ledger_flush(ledger); /* it leaves */
	snprintf(sql, sizeof(sql),
		 "SELECT onceward.raise_stop(NULL, NULL, '%s', 'a test', 'me')", reason);
	scratch_do(sql);
	usleep(2100000); /* the reply has come; nobody has read it */
}

START_TEST(what_was_won_before_a_sleep_is_not_sent_if_it_is_stopped_now)
{
	struct attempt *a = attempt_new(ledger, "k1", "content");
	bool lost = _i == 1;

	TURN_UNTIL(stops_known(ledger));
	reserve(a);
	all_is_stopped_while_it_sleeps(lost ? "history_lost" : "operator");
	answered(a);
	found_is(a, LEDGER_STOPPED);
	ck_assert(a->entry.no_record == !lost); /* then a used key may have looked free */
	attempt_leave(a);
	TURN_UNTIL(ledger_busy(ledger) == 0);
	rows_are("key", "true", 0);
	rows_are("event", "kind = 4", 1);
}
END_TEST

START_TEST(what_was_claimed_before_a_sleep_is_not_sent_if_it_is_stopped_now)
{
	struct attempt *a = won(ledger, "k1", "content");

	settled(a, LEDGER_MARK_UNKNOWN);
	a = found(ledger, "k1", "content", LEDGER_UNKNOWN);
	TURN_UNTIL(stops_known(ledger));
	claim(a);
	all_is_stopped_while_it_sleeps("history_lost");
	answered(a);
	found_is(a, LEDGER_STOPPED);
	ck_assert(!a->entry.no_record);
	attempt_leave(a);
	TURN_UNTIL(ledger_busy(ledger) == 0);
	rows_are("attention", "state = 3 AND slot = 3", 1);
	rows_are("key", "true", 1);
}
END_TEST

START_TEST(what_was_won_before_a_sleep_is_sent_if_nothing_is_stopped)
{
	struct attempt *a = attempt_new(ledger, "k1", "content");

	TURN_UNTIL(stops_known(ledger));
	reserve(a);
	ledger_flush(ledger);
	usleep(2100000);
	answered(a);
	found_is(a, LEDGER_WON);
	ck_assert_int_le(a->entry.lease_until_ms, loop_now(loop) + orders.lease - 2000);
	result_set(a, SPAN("body"));
	settled(a, LEDGER_COMPLETE);
	nothing_went_wrong();
}
END_TEST

START_TEST(a_connection_that_cannot_read_what_is_stopped_is_made_anew)
{
	TURN_UNTIL(stops_known(ledger));
	/* "cached plan must not change result type": what was prepared is of no use */
	scratch_do("ALTER TABLE onceward.stop ALTER COLUMN reason TYPE varchar");
	turn_for(2500);
	won(ledger, "k1", "content");
	scratch_do("ALTER TABLE onceward.stop ALTER COLUMN reason TYPE text");
	log_says("what is stopped can't be read");
}
END_TEST

/* --- claims that nobody waits for --- */

START_TEST(a_resend_begins_within_its_window)
{
	struct attempt *a = NULL;
	int64_t asked_ms = 0, won_ms = 0, by_ms = 0;

	orders.recovery.resend_window = 20000;
	a = won(ledger, "k1", "content");
	asked_ms = a->asked_ms;
	won_ms = loop_now(loop);
	ck_assert_int_eq(a->entry.begin_by_ms, 0);
	settled(a, LEDGER_MARK_UNKNOWN);
	turn_for(1000);
	by_ms = claimed("k1")->entry.begin_by_ms; /* it counts from the first attempt */
	ck_assert_int_le(by_ms, won_ms + 20000);
	ck_assert_int_ge(by_ms, asked_ms + 18000);
}
END_TEST

START_TEST(a_claim_that_nobody_waits_for_takes_no_generation)
{
	struct attempt *a = NULL;

	a = won(ledger, "k1", "content");
	settled(a, LEDGER_MARK_UNKNOWN);
	a = found(ledger, "k1", "content", LEDGER_UNKNOWN);
	scratch_do("ALTER FUNCTION onceward.claim RENAME TO claim_away");
	settings.ledger.timeout = 300;
	claim(a);
	settings.ledger.timeout = PATIENCE;
	answered(a); /* PostgreSQL does not know it: tried again until it is too late */
	found_is(a, LEDGER_UNAVAILABLE);
	attempt_leave(a);
	scratch_do("ALTER FUNCTION onceward.claim_away RENAME TO claim");
	TURN_UNTIL(ledger_busy(ledger) == 0);
	rows_are("event_late", "true", 0);
	rows_are("attention", "state = 3 AND generation = 1", 1);
}
END_TEST

START_TEST(an_account_with_many_unknown_results_may_still_resend)
{
	struct attempt *a = NULL;

	orders.max_unknown_per_account = 1;
	a = won(ledger, "k1", "content");
	settled(a, LEDGER_MARK_UNKNOWN);
	turn_for(1800);
	found(ledger, "k2", "content", LEDGER_OVERLOADED);
	answers(claimed("k1"), "resent", "");
	turn_for(1800);
	won(ledger, "k2", "content");
	nothing_went_wrong();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ledger_races");
	TCase *t = tcase_create("what comes too late");

	tcase_add_checked_fixture(t, set_up_one, tear_down);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, what_was_sent_again_is_not_given_free_by_the_first_attempt);
	tcase_add_test(t, what_was_sent_once_and_did_nothing_is_free_though_its_lease_ran_out);
	tcase_add_test(t, an_end_that_comes_late_lists_nothing_that_has_one);
	tcase_add_test(t, an_end_that_comes_late_is_told_its_own_record_whole);
	tcase_add_test(t, a_claim_that_an_answer_has_overtaken_lists_nothing);
	tcase_add_test(t, an_answer_that_came_during_a_resend_counts_when_that_ends_as_unknown);
	tcase_add_test(t, an_answer_that_came_during_a_resend_counts_when_its_lease_runs_out);
	tcase_add_test(t, what_was_not_found_is_not_given_free_where_an_answer_is_known);
	tcase_add_test(t, a_receipt_that_came_during_a_resend_is_compared_with_its_own);
	tcase_add_loop_test(t, what_was_won_before_a_sleep_is_not_sent_if_it_is_stopped_now, 0,
			    2);
	tcase_add_test(t, what_was_claimed_before_a_sleep_is_not_sent_if_it_is_stopped_now);
	tcase_add_test(t, what_was_won_before_a_sleep_is_sent_if_nothing_is_stopped);
	tcase_add_test(t, a_connection_that_cannot_read_what_is_stopped_is_made_anew);
	tcase_add_test(t, a_resend_begins_within_its_window);
	tcase_add_test(t, a_claim_that_nobody_waits_for_takes_no_generation);
	tcase_add_test(t, an_account_with_many_unknown_results_may_still_resend);
	suite_add_tcase(s, t);
	return run_on_scratch(s, "");
}
