/*
 * Connections that are lost under way: before the server has a batch, while it works on it, and
 * when it has committed and nobody heard. A reservation is won once, an end is written once, and
 * nothing that was asked is forgotten.
 */
#include "ledger_proxy.h"
#include "pg_internal.h"

static struct ledger *ledger, *direct; /* the one behind the proxy, and another gateway */

static void set_up_both(void)
{
	scratch_do("DROP TRIGGER IF EXISTS full_disk ON onceward.key;"
		   "DROP TRIGGER IF EXISTS hold ON onceward.key;"
		   "DROP FUNCTION IF EXISTS full_disk, hold; DROP TABLE IF EXISTS held");
	set_up();
	proxy_open();
	direct = ledger_open();
	settings.ledger.conninfo = proxy.conninfo;
	ledger = ledger_open();
	ledger->renew_at_ms = direct->renew_at_ms = INT64_MAX; /* not in between */
	ledger->history.look_at_ms = INT64_MAX;
}

static void tear_down_both(void)
{
	tear_down_ledgers();
	proxy_close();
	arena_free(arena);
	loop_free(loop);
}

static void was_cut(unsigned times)
{
	TURN_UNTIL(proxy.cuts == times);
	TURN_UNTIL(ledger_state(ledger).up);
	ledger->renew_at_ms = ledger->history.look_at_ms = INT64_MAX;
}

/* A test has no time for the back-off. */
static void reconnect_soon(void)
{
	ledger->links[0].pg->failures = 0;
}

/* Won, once, whatever was resent; and nobody else does. */
static void won_once(struct attempt *a, const char *key)
{
	char condition[64];

	answered(a);
	found_is(a, LEDGER_WON);
	ck_assert_int_le(a->entry.lease_until_ms, loop_clock_us() / 1000 + 60000 - 1);
	snprintf(condition, sizeof(condition), "key = '%s'", key);
	rows_are("op", condition, 1);
	ck_assert_str_eq(found(direct, key, "content", LEDGER_IN_FLIGHT)->entry.request_id,
			 a->entry.request_id);
}

/* --- reservations --- */

START_TEST(a_reservation_that_committed_unheard_is_won_once_and_confirmed)
{
	struct attempt *a = attempt_new(ledger, "k1", "content");

	proxy_plan(PROXY_LOSE_REPLY, 0, 1);
	reserve(a);
	was_cut(1);
	won_once(a, "k1");
	rows_are("key", "true", 1);
	ck_assert_msg(strstr(proxy.bound, "reserve ") <
			      strstr(proxy.bound, "confirm read_keys"),
		      "%s", proxy.bound);
	settled(a, LEDGER_RELEASE);
	won(direct, "k1", "other");
}
END_TEST

START_TEST(a_reservation_that_never_arrived_is_won_once)
{
	struct attempt *a = attempt_new(ledger, "k1", "content");

	proxy_plan(PROXY_LOSE_REQUEST, 0, 1);
	reserve(a);
	was_cut(1);
	won_once(a, "k1");
	rows_are("key", "true", 1);
}
END_TEST

START_TEST(a_reservation_that_is_lost_again_and_again_is_won_once)
{
	struct attempt *a = attempt_new(ledger, "k1", "content");

	proxy_plan(PROXY_LOSE_REPLY, 0, 1);
	reserve(a);
	TURN_UNTIL(proxy.cuts == 1);
	/* Each time a little later: the greeting, the preparing, the session, the batch, the read. */
	for (unsigned i = 0; i < 5; i++) {
		proxy_plan(PROXY_LOSE_REPLY, i, 1);
		reconnect_soon();
		TURN_UNTIL(proxy.cuts == i + 2);
	}
	a->entry.deadline_ms += SOON;
	was_cut(6);
	won_once(a, "k1");
	rows_are("key", "true", 1);
}
END_TEST

START_TEST(a_reservation_whose_backend_is_ended_is_won_once)
{
	struct attempt *a = attempt_new(ledger, "k1", "content");
	struct pg_session *session = lock("key");

	reserve(a);
	locked(1);
	terminate_ours();
	locked(2); /* both gateways are back; who prepares statements waits for the table, too */
	ck_assert(!is_answered(a));
	unlock(session);
	won_once(a, "k1");
	rows_are("key", "true", 1);
}
END_TEST

START_TEST(a_reservation_that_is_lost_may_be_lost_to_another)
{
	struct attempt *a = attempt_new(ledger, "k1", "content"), *b = NULL;

	proxy.closed = true;
	proxy_plan(PROXY_LOSE_REQUEST, 0, 1);
	reserve(a);
	TURN_UNTIL(proxy.cuts == 1);
	b = won(direct, "k1", "content");
	proxy.closed = false;
	answered(a);
	found_is(a, LEDGER_IN_FLIGHT);
	ck_assert_str_eq(a->entry.request_id, b->entry.request_id);
	rows_are("op", "true", 1);
}
END_TEST

START_TEST(a_reservation_that_committed_unheard_and_too_late_is_given_back)
{
	struct attempt *a = attempt_new(ledger, "k1", "content");

	a->leaves = true;
	proxy_plan(PROXY_LOSE_REPLY, 0, 1);
	reserve(a);
	TURN_UNTIL(proxy.cuts == 1);
	proxy.closed = true;
	a->entry.deadline_ms = loop_now(loop) + 200;
	answered(a);
	found_is(a, LEDGER_UNAVAILABLE);
	rows_are("key", "true", 1);
	found(direct, "k1", "content", LEDGER_IN_FLIGHT);
	ck_assert_uint_eq(a->gone, 0);
	proxy.closed = false;
	TURN_UNTIL(a->gone);
	rows_are("key", "true", 0);
	rows_are("event", "kind = 4", 1);
	won(direct, "k1", "content");
}
END_TEST

/* What is in doubt is not forgotten because the second try is refused: what stands is read. */
START_TEST(a_reservation_in_doubt_goes_on_where_others_are_refused)
{
	struct attempt *a = attempt_new(ledger, "k1", "content");

	proxy_plan(PROXY_LOSE_REPLY, 0, 1);
	reserve(a);
	TURN_UNTIL(proxy.cuts == 1);
	scratch_do("CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
		   "RAISE EXCEPTION 'full' USING ERRCODE = '53100'; END $$;"
		   "CREATE TRIGGER full_disk BEFORE INSERT ON onceward.key FOR EACH ROW "
		   "EXECUTE FUNCTION full_disk()");
	was_cut(1);
	answered(a);
	found_is(a, LEDGER_WON);
	log_says("53100");
	rows_are("op", "true", 1);
	settled(a, LEDGER_RELEASE);
	rows_are("key", "true", 0);
	found(ledger, "k2", "content", LEDGER_UNAVAILABLE);
}
END_TEST

START_TEST(a_reservation_in_doubt_is_found_though_its_operation_is_stopped_since)
{
	struct attempt *a = attempt_new(ledger, "k1", "content");

	proxy_plan(PROXY_LOSE_REPLY, 0, 1);
	reserve(a);
	TURN_UNTIL(proxy.cuts == 1);
	scratch_do("UPDATE onceward.identity SET identity = sha256('another')");
	was_cut(1);
	answered(a);
	found_is(a, LEDGER_WON);
	settled(a, LEDGER_RELEASE);
	rows_are("key", "true", 0);
	found(ledger, "k1", "content", LEDGER_STOPPED);
}
END_TEST

START_TEST(a_read_that_is_lost_is_read_again)
{
	struct attempt *a = NULL;

	completed(direct, "k1", "content", "the body");
	for (unsigned i = 1; i <= 2; i++) { /* the key's, the record's */
		a = attempt_new(ledger, "k1", "content");
		proxy_plan(PROXY_LOSE_REPLY, i, 1);
		reserve(a);
		was_cut(i);
		answered(a);
		replayed(a, SPAN("the body"));
	}
	rows_are("op", "true", 1);
}
END_TEST

/* --- ends --- */

static const char *const kinds[] = { "kind = 2", "kind = 3", "kind = 4" };

static void ended_once(struct attempt *a, int outcome)
{
	settled_is(a, LEDGER_SETTLED);
	rows_are("event", kinds[outcome], 1);
	rows_are("event", "true", 1);
	rows_are("attention", "true", outcome == LEDGER_MARK_UNKNOWN);
	rows_are("key", "true", outcome != LEDGER_RELEASE);
	if (outcome == LEDGER_COMPLETE)
		replayed(reserved(direct, "k1", "content"), SPAN("the body"));
	else
		found(direct, "k1", "content",
		      outcome == LEDGER_RELEASE ? LEDGER_WON : LEDGER_UNKNOWN);
}

START_TEST(an_end_that_committed_unheard_is_written_once)
{
	struct attempt *a = won(ledger, "k1", "content");

	result_set(a, SPAN("the body"));
	proxy_plan(PROXY_LOSE_REPLY, 0, 1);
	settle(a, (enum ledger_outcome)_i);
	was_cut(1);
	ended_once(a, _i);
	ck_assert_msg(strstr(proxy.bound, "confirm read_records") != NULL, "%s", proxy.bound);
}
END_TEST

START_TEST(an_end_that_never_arrived_is_written_once)
{
	struct attempt *a = won(ledger, "k1", "content");

	result_set(a, SPAN("the body"));
	proxy_plan(PROXY_LOSE_REQUEST, 0, 1);
	settle(a, (enum ledger_outcome)_i);
	was_cut(1);
	ended_once(a, _i);
}
END_TEST

START_TEST(an_end_whose_backend_is_ended_is_written_once)
{
	struct attempt *a = won(ledger, "k1", "content");
	struct pg_session *session = lock("event");

	result_set(a, SPAN("the body"));
	settle(a, (enum ledger_outcome)_i);
	locked(1);
	terminate_ours();
	locked(2);
	unlock(session);
	ended_once(a, _i);
}
END_TEST

/* The backend of a lost connection works on, beside the one that it is sent to again. */
START_TEST(an_end_that_two_backends_write_is_written_once)
{
	struct attempt *a = won(ledger, "k1", "content");
	struct pg_session *session = lock("event");

	result_set(a, SPAN("the body"));
	settle(a, (enum ledger_outcome)_i);
	locked(1);
	proxy_leave_server_alone();
	locked(2);
	unlock(session);
	ended_once(a, _i);
}
END_TEST

START_TEST(an_end_that_committed_unheard_and_too_late_is_known_in_the_end)
{
	struct attempt *a = won(ledger, "k1", "content");

	result_set(a, SPAN("the body"));
	proxy_plan(PROXY_LOSE_REPLY, 0, 1);
	settle_within(a, LEDGER_COMPLETE, 200);
	TURN_UNTIL(proxy.cuts == 1);
	proxy.closed = true;
	settled_is(a, LEDGER_LATE);
	attempt_leave(a);
	turn_for(200);
	ck_assert_uint_eq(a->gone, 0);
	ck_assert_int_eq(gauges[METRIC_unsettled_in_memory], 1);
	proxy.closed = false;
	TURN_UNTIL(a->gone);
	ck_assert_int_eq(gauges[METRIC_unsettled_in_memory], 0);
	rows_are("event", "kind = 2", 1);
}
END_TEST

/* --- both, and many --- */

#define MANY 30

START_TEST(a_mixed_batch_that_committed_unheard_is_sorted_out)
{
	struct attempt *ends[MANY], *fresh[MANY], *again[MANY];
	char key[32];

	for (int i = 0; i < MANY; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		ends[i] = won(ledger, key, "content");
		result_set(ends[i], SPAN("the body"));
	}
	proxy_plan(_i ? PROXY_LOSE_REQUEST : PROXY_LOSE_REPLY, 0, 1);
	for (int i = 0; i < MANY; i++) {
		settle(ends[i], (enum ledger_outcome)(i % 3));
		snprintf(key, sizeof(key), "f%d", i);
		fresh[i] = attempt_new(ledger, key, "content");
		again[i] = attempt_new(ledger, key, "content");
		reserve(fresh[i]);
		reserve(again[i]);
	}
	was_cut(1);
	for (int i = 0; i < MANY; i++) {
		settled_is(ends[i], LEDGER_SETTLED);
		answered(fresh[i]);
		answered(again[i]);
		ck_assert_int_ne(fresh[i]->entry.found == LEDGER_WON,
				 again[i]->entry.found == LEDGER_WON);
	}
	rows_are("event", "true", MANY);
	rows_are("op", "true", 2L * MANY);
	rows_are("key", "true", 2L * MANY - MANY / 3);
	ck_assert_ptr_null(strstr(logged, "error"));
}
END_TEST

#define ROUNDS 24
#define KEYS   5

/* Two gateways over few keys, while one of them loses its connection at every moment in turn. */
START_TEST(whatever_is_lost_a_key_has_one_winner)
{
	struct attempt *all[4 * KEYS];
	char key[32];

	for (int round = 0; round < ROUNDS; round++) {
		int winners = 0;

		reconnect_soon();
		proxy_plan(round % 4 == 3 ? PROXY_LOSE_REQUEST : PROXY_LOSE_REPLY,
			   (unsigned)round % 4, 1);
		for (int i = 0; i < 4 * KEYS; i++) {
			snprintf(key, sizeof(key), "r%d-%d", round, i % KEYS);
			all[i] = attempt_new(i % 2 ? direct : ledger, key, "content");
			all[i]->leaves = true;
			reserve(all[i]);
		}
		for (int i = 0; i < 4 * KEYS; i++) {
			answered(all[i]);
			winners += all[i]->entry.found == LEDGER_WON;
			ck_assert_int_ne(all[i]->entry.found, LEDGER_STOPPED);
		}
		ck_assert_int_eq(winners, KEYS);
		TURN_UNTIL(ledger_state(ledger).up);
	}
	rows_are("key", "true", (long)KEYS * ROUNDS);
	rows_are("op", "true", (long)KEYS * ROUNDS);
	ck_assert_uint_ge(proxy.cuts, ROUNDS / 2);
}
END_TEST

/* --- the backend of a lost connection --- */

static const char hold[] =
	"CREATE TABLE held AS SELECT pid FROM pg_stat_activity WHERE " OURS ";"
	"CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
	"IF pg_backend_pid() IN (SELECT pid FROM held) THEN PERFORM pg_advisory_xact_lock(42); "
	"END IF; RETURN NULL; END $$;"
	"CREATE TRIGGER hold BEFORE INSERT ON onceward.key FOR EACH STATEMENT EXECUTE FUNCTION "
	"hold()";

/* Nobody told it that its client is gone. It inserts what was won, ended and given back since. */
START_TEST(a_backend_that_reserves_after_the_release_does_not_take_the_key)
{
	struct attempt *a = attempt_new(ledger, "k1", "content");
	struct pg_session *session = stranger();

	scratch_do(hold);
	scratch_run(session, "SELECT pg_advisory_lock(42)");
	reserve(a);
	locked(1);
	proxy_leave_server_alone();
	answered(a);
	found_is(a, LEDGER_WON);
	settled(a, LEDGER_RELEASE);
	rows_are("key", "true", 0);
	pg_session_close(session);
	TURN_UNTIL(scratch_number("SELECT count(*) FROM pg_stat_activity JOIN held USING (pid) "
				  "WHERE state = 'active'") == 0);
	scratch_do("DROP TRIGGER hold ON onceward.key");
	won(direct, "k1", "content");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ledger_lost");
	TCase *t = tcase_create("lost");

	tcase_add_checked_fixture(t, set_up_both, tear_down_both);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, a_reservation_that_committed_unheard_is_won_once_and_confirmed);
	tcase_add_test(t, a_reservation_that_never_arrived_is_won_once);
	tcase_add_test(t, a_reservation_that_is_lost_again_and_again_is_won_once);
	tcase_add_test(t, a_reservation_whose_backend_is_ended_is_won_once);
	tcase_add_test(t, a_reservation_that_is_lost_may_be_lost_to_another);
	tcase_add_test(t, a_reservation_that_committed_unheard_and_too_late_is_given_back);
	tcase_add_test(t, a_reservation_in_doubt_goes_on_where_others_are_refused);
	tcase_add_test(t,
		       a_reservation_in_doubt_is_found_though_its_operation_is_stopped_since);
	tcase_add_test(t, a_read_that_is_lost_is_read_again);
	tcase_add_loop_test(t, an_end_that_committed_unheard_is_written_once, 0, 3);
	tcase_add_loop_test(t, an_end_that_never_arrived_is_written_once, 0, 3);
	tcase_add_loop_test(t, an_end_whose_backend_is_ended_is_written_once, 0, 3);
	tcase_add_loop_test(t, an_end_that_two_backends_write_is_written_once, 0, 3);
	tcase_add_test(t, an_end_that_committed_unheard_and_too_late_is_known_in_the_end);
	tcase_add_loop_test(t, a_mixed_batch_that_committed_unheard_is_sorted_out, 0, 2);
	tcase_add_test(t, whatever_is_lost_a_key_has_one_winner);
	tcase_add_test(t, a_backend_that_reserves_after_the_release_does_not_take_the_key);
	suite_add_tcase(s, t);
	return run_on_scratch(s, "");
}
