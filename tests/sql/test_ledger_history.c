/*
 * A ledger that has forgotten what it had confirmed: everything is stopped before anything is
 * reserved. And what looks like that and is none of it.
 */
#include "ledger_rig.h"

static struct ledger *ledger;

#define STOP "operation IS NULL AND account IS NULL AND reason = 'history_lost'"

static void set_up_one(void)
{
	set_up();
	scratch_do("TRUNCATE onceward.stop");
	ledger = ledger_open();
}

static void stops_are(long n)
{
	rows_are("stop", STOP " AND ended_at IS NULL", n);
}

/* Another server session, and its session is ready again. */
static void reconnected(void)
{
	terminate_ours();
	TURN_UNTIL(!ledger_state(ledger).up);
	TURN_UNTIL(ledger_state(ledger).up);
}

/* All of that is what it says once its stop is raised. */
static void lost(const char *detail)
{
	char condition[256];

	stops_are(1);
	snprintf(condition, sizeof(condition), "detail LIKE '%%%s%%'", detail);
	rows_are("stop", condition, 1);
	log_says("history was lost");
	found(ledger, "fresh", "content", LEDGER_STOPPED);
	rows_are("op", "key = 'fresh'", 0);
}

START_TEST(what_is_still_there_is_no_loss)
{
	char key[32];

	for (int i = 0; i < 100; i++) { /* more than are remembered */
		snprintf(key, sizeof(key), "k%d", i);
		if (i % 3 == 0)
			completed(ledger, key, "content", "the body");
		else if (i % 3 == 1)
			won(ledger, key, "content");
		else
			settled(won(ledger, key, "content"), LEDGER_RELEASE);
	}
	reconnected();
	stops_are(0);
	nothing_went_wrong();
}
END_TEST

START_TEST(a_confirmed_reservation_that_is_missing_stops_everything)
{
	won(ledger, "k1", "content");
	won(ledger, "k2", "content");
	scratch_do("DELETE FROM onceward.key WHERE op_id = (SELECT op_id FROM onceward.op "
		   "WHERE key = 'k2');"
		   "DELETE FROM onceward.op WHERE key = 'k2'");
	reconnected();
	lost("1 of the last 2 confirmed records are missing, the first is req_%(its "
	     "reservation");
	reconnected();
	stops_are(1); /* it is said once */
}
END_TEST

START_TEST(a_confirmed_end_that_is_missing_stops_everything)
{
	completed(ledger, "k1", "content", "the body");
	completed(ledger, "k2", "content", "the body");
	scratch_do("DELETE FROM onceward.event WHERE op_id = (SELECT max(op_id) FROM "
		   "onceward.op)");
	reconnected();
	lost("1 of the last 2 confirmed records are missing, the first is req_%(its end");
}
END_TEST

START_TEST(a_day_that_is_over_may_be_dropped)
{
	completed(ledger, "k1", "content", "the body");
	ledger->history.last[0].day -= 3;
	scratch_do("DELETE FROM onceward.event; DELETE FROM onceward.op");
	reconnected();
	stops_are(0);
	nothing_went_wrong();
}
END_TEST

START_TEST(another_cluster_stops_everything)
{
	ck_assert(ledger->history.known);
	ledger->history.system ^= 1;
	reconnected();
	lost("another cluster");
	reconnected();
	stops_are(1);
}
END_TEST

START_TEST(another_timeline_with_all_records_is_a_failover_without_loss)
{
	completed(ledger, "k1", "content", "the body");
	ck_assert_int_eq(ledger->history.timeline, 1);
	ledger->history.timeline = 9;
	reconnected();
	stops_are(0);
	log_says("timeline 1 now, and was on 9");
	nothing_went_wrong();
}
END_TEST

START_TEST(another_timeline_without_a_record_stops_everything)
{
	won(ledger, "k1", "content");
	ledger->history.timeline = 9;
	scratch_do("DELETE FROM onceward.key; DELETE FROM onceward.op");
	reconnected();
	lost("missing");
}
END_TEST

/* They can be read meanwhile. */
static struct pg_session *no_stop_written(void)
{
	struct pg_session *session = stranger();

	scratch_run(session, "BEGIN; LOCK TABLE onceward.stop IN SHARE MODE");
	return session;
}

START_TEST(nothing_is_reserved_before_the_stop_is_written)
{
	struct attempt *a = attempt_new(ledger, "k9", "content");
	struct pg_session *session = NULL;

	won(ledger, "k1", "content");
	scratch_do("DELETE FROM onceward.key; DELETE FROM onceward.op");
	session = no_stop_written();
	terminate_ours();
	TURN_UNTIL(!ledger_state(ledger).up);
	TURN_UNTIL(strstr(logged, "history was lost") != NULL);
	locked(1);
	reserve_within(a, 1000);
	answered(a);
	found_is(a, LEDGER_UNAVAILABLE);
	rows_are("op", "true", 0);
	unlock(session);
	TURN_UNTIL(ledger_state(ledger).up);
	stops_are(1);
}
END_TEST

/* Whichever connection finds it, none reserves from then on. */
START_TEST(a_loss_that_one_connection_finds_stops_the_others)
{
	struct attempt *a = NULL;
	struct pg_session *session = NULL;

	ledger_end(ledger);
	settings.ledger.connections = 2;
	ledger = ledger_open();
	TURN_UNTIL(ledger->links[0].checked && ledger->links[1].checked);
	won(ledger, "k1", "content");
	scratch_do("DELETE FROM onceward.key; DELETE FROM onceward.op");
	session = no_stop_written();
	pg_drop(ledger->links[0].pg, "a test's");
	TURN_UNTIL(strstr(logged, "history was lost") != NULL);
	ck_assert(ledger->links[1].checked);
	ck_assert(!ledger_state(ledger).up);
	a = attempt_new(ledger, "k9", "content");
	reserve_within(a, 1000);
	answered(a);
	found_is(a, LEDGER_UNAVAILABLE);
	unlock(session);
	TURN_UNTIL(ledger_state(ledger).up);
	lost("missing");
}
END_TEST

START_TEST(what_was_stopped_goes_on_when_somebody_has_looked)
{
	won(ledger, "k1", "content");
	scratch_do("DELETE FROM onceward.key; DELETE FROM onceward.op");
	reconnected();
	lost("missing");
	scratch_do("SELECT onceward.end_stops(NULL, NULL, 'a person', 'looked')");
	turn_for(1200);
	won(ledger, "fresh", "content");
	reconnected();
	stops_are(0);
	won(ledger, "more", "content");
}
END_TEST

START_TEST(a_stop_that_cannot_be_written_is_tried_again)
{
	won(ledger, "k1", "content");
	scratch_do("DELETE FROM onceward.key; DELETE FROM onceward.op;"
		   "ALTER FUNCTION onceward.raise_stop RENAME TO raise_stop_away");
	terminate_ours();
	TURN_UNTIL(strstr(logged, "history was lost") != NULL ||
		   strstr(logged, "cannot be prepared") != NULL);
	turn_for(300);
	ck_assert(!ledger_state(ledger).up);
	scratch_do("ALTER FUNCTION onceward.raise_stop_away RENAME TO raise_stop");
	TURN_UNTIL(ledger_state(ledger).up);
	stops_are(1);
}
END_TEST

START_TEST(behind_a_pooler_a_loss_is_noticed_by_looking_now_and_then)
{
	completed(ledger, "k1", "content", "the body");
	ledger->history.look_at_ms = 0;
	TURN_UNTIL(ledger->history.look_at_ms > loop_now(loop)); /* it is looked at */
	turn_for(1000);                                          /* and answered */
	ck_assert(ledger_state(ledger).up);
	stops_are(0);
	scratch_do("DELETE FROM onceward.event");
	ledger->history.look_at_ms = 0;
	TURN_UNTIL(strstr(logged, "history was lost") != NULL);
	TURN_UNTIL(ledger_state(ledger).up);
	lost("missing");
}
END_TEST

START_TEST(a_role_that_may_not_ask_for_the_cluster_says_so_once)
{
	static char conninfo[192];

	scratch_do("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC;"
		   "CREATE ROLE plain LOGIN;"
		   "GRANT ALL ON SCHEMA onceward TO plain;"
		   "GRANT ALL ON ALL TABLES IN SCHEMA onceward TO plain");
	ledger_end(ledger);
	snprintf(conninfo, sizeof(conninfo), "host=%s port=%d user=plain dbname=onceward",
		 scratch_dir, scratch_port);
	settings.ledger.conninfo = conninfo;
	ledger = ledger_open();
	won(ledger, "k1", "content");
	log_says("does not tell which cluster");
	logged[0] = 0;
	reconnected();
	ck_assert_ptr_null(strstr(logged, "which cluster"));
	stops_are(0);
	scratch_do("DELETE FROM onceward.key; DELETE FROM onceward.op");
	reconnected();
	lost("missing");
	scratch_do("GRANT EXECUTE ON FUNCTION pg_control_system() TO PUBLIC");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ledger_history");
	TCase *t = tcase_create("history");

	tcase_add_checked_fixture(t, set_up_one, tear_down);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, what_is_still_there_is_no_loss);
	tcase_add_test(t, a_confirmed_reservation_that_is_missing_stops_everything);
	tcase_add_test(t, a_confirmed_end_that_is_missing_stops_everything);
	tcase_add_test(t, a_day_that_is_over_may_be_dropped);
	tcase_add_test(t, another_cluster_stops_everything);
	tcase_add_test(t, another_timeline_with_all_records_is_a_failover_without_loss);
	tcase_add_test(t, another_timeline_without_a_record_stops_everything);
	tcase_add_test(t, nothing_is_reserved_before_the_stop_is_written);
	tcase_add_test(t, a_loss_that_one_connection_finds_stops_the_others);
	tcase_add_test(t, what_was_stopped_goes_on_when_somebody_has_looked);
	tcase_add_test(t, a_stop_that_cannot_be_written_is_tried_again);
	tcase_add_test(t, behind_a_pooler_a_loss_is_noticed_by_looking_now_and_then);
	tcase_add_test(t, a_role_that_may_not_ask_for_the_cluster_says_so_once);
	suite_add_tcase(s, t);
	return run_on_scratch(s, "");
}
