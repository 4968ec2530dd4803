/* What must hold before a ledger may reserve, and how it finds that it does not, or again does. */
#include "ledger_rig.h"
#include "pg_internal.h"

#include <pthread.h>

static struct ledger *ledger;

static void as_new(void)
{
	scratch_do("UPDATE onceward.instance SET token = 0, gateway = '', high_ms = 0, "
		   "renewed_at = '-infinity'");
	set_up();
}

static void set_up_one(void)
{
	as_new();
	ledger = ledger_open();
}

static void why_is(const char *words)
{
	TURN_UNTIL(ledger_state(ledger).why && strstr(ledger_state(ledger).why, words));
	ck_assert(!ledger_state(ledger).up);
}

static struct attempt *unavailable(const char *key)
{
	struct attempt *a = found(ledger, key, "content", LEDGER_UNAVAILABLE);

	ck_assert_ptr_nonnull(a->entry.why);
	return a;
}

/* Another database on the same server. */
static const char *elsewhere(const char *name)
{
	static char conninfo[192];

	snprintf(conninfo, sizeof(conninfo), "host=%s user=onceward dbname=%s", scratch_dir,
		 name);
	settings.ledger.conninfo = conninfo;
	return conninfo;
}

START_TEST(a_server_that_comes_late_is_found)
{
	struct attempt *a = NULL;

	settings.ledger.timeout = 300;
	elsewhere("later");
	ledger = ledger_begin();
	ck_assert(!ledger_state(ledger).up);
	ck_assert_ptr_nonnull(ledger_state(ledger).why);
	a = unavailable("k1");
	ck_assert_int_ge(a->took_ms, 100);
	ck_assert_int_lt(a->turned_ms, 1300);
	/* By now it is away for so long that nobody need wait. */
	ck_assert_int_lt(unavailable("k2")->turned_ms, 250);
	settings.ledger.timeout = PATIENCE;
	scratch_do("CREATE DATABASE later TEMPLATE onceward");
	TURN_UNTIL(ledger_state(ledger).up);
	won(ledger, "k1", "content");
	won(ledger, "k2", "content");
}
END_TEST

START_TEST(who_asks_shortly_before_the_server_is_there_wins)
{
	struct attempt *a = NULL;

	settings.ledger.timeout = SOON;
	elsewhere("later_still");
	ledger = ledger_begin();
	a = attempt_new(ledger, "k1", "content");
	reserve(a);
	turn_for(100);
	ck_assert(!is_answered(a));
	scratch_do("CREATE DATABASE later_still TEMPLATE onceward");
	answered(a);
	found_is(a, LEDGER_WON);
}
END_TEST

static void migrate_it(const char *conninfo)
{
	char why[256] = "";
	struct pg_session *session = scratch_open(conninfo);
	struct buf out;

	buf_init(&out, 65536);
	scratch_need(schema_migrate(session, 3, &out, why), "migrate", why);
	buf_fini(&out);
	pg_session_close(session);
}

START_TEST(without_tables_why_names_migrate)
{
	char name[16];
	const char *conninfo = NULL;

	settings.ledger.timeout = 200;
	settings.ledger.prepared = _i == 0;
	snprintf(name, sizeof(name), "empty%d", _i);
	conninfo = elsewhere(name);
	snprintf(logged, sizeof(logged), "CREATE DATABASE empty%d", _i);
	scratch_do(logged);
	logged[0] = 0;
	ledger = ledger_begin();
	why_is("onceward migrate");
	ck_assert_ptr_nonnull(strstr(unavailable("k1")->entry.why, "onceward migrate"));
	settings.ledger.timeout = PATIENCE;
	migrate_it(conninfo);
	TURN_UNTIL(ledger_state(ledger).up);
	won(ledger, "k1", "content");
}
END_TEST

static const struct {
	const char *change, *why, *undo;
} schemas[] = {
	{ "UPDATE onceward.schema_version SET version = -version", "older than this program",
	  "UPDATE onceward.schema_version SET version = -version" },
	{ "INSERT INTO onceward.schema_version VALUES (1000, 1000)", "newer than this program",
	  "DELETE FROM onceward.schema_version WHERE version = 1000" },
	{ "DELETE FROM onceward.schema_version", "onceward migrate",
	  "INSERT INTO onceward.schema_version SELECT v, 1 FROM generate_series(1, 20) AS v" },
	{ "UPDATE onceward.secret SET name = 'x' WHERE name = 'key_salt'",
	  "secrets are missing",
	  "UPDATE onceward.secret SET name = 'key_salt' WHERE name = 'x'" },
	{ "UPDATE onceward.secret SET value = substring(value FROM 1 FOR 15)",
	  "secrets are missing", "SELECT 1" },
};

START_TEST(tables_of_another_program_are_refused)
{
	struct pg_session *session = NULL;

	scratch_do("CREATE DATABASE another TEMPLATE onceward");
	session = scratch_open(elsewhere("another"));
	ledger = ledger_begin();
	for (size_t i = 0; i < ARRAY_LEN(schemas); i++) {
		TURN_UNTIL(ledger_state(ledger).up);
		scratch_run(session, schemas[i].change);
		pg_drop(ledger->links[0].pg, "to look again");
		ledger->links[0].pg->failures = 0; /* soon */
		why_is(schemas[i].why);
		scratch_run(session, schemas[i].undo);
		ledger->links[0].pg->failures = 0;
	}
	pg_session_close(session);
}
END_TEST

/* --- operations --- */

START_TEST(an_operation_whose_identity_changed_is_stopped_alone)
{
	struct attempt *a = NULL;

	completed(ledger, "k1", "content", "the body");
	scratch_do(
		"UPDATE onceward.identity SET identity = sha256('another') WHERE operation = "
		"'orders.create'");
	ledger_end(ledger);
	ledger = ledger_open();
	log_says("orders.create is not what the ledger knows");
	a = found(ledger, "k2", "content", LEDGER_STOPPED);
	ck_assert_ptr_nonnull(strstr(a->entry.why, "identity"));
	a = attempt_new(ledger, "k2", "content");
	a->entry.idempotency = &payments;
	reserve(a);
	answered(a);
	found_is(a, LEDGER_WON);
	rows_are("op", "key = 'k2'", 1);
}
END_TEST

START_TEST(what_a_reload_brings_is_checked_before_it_is_used)
{
	struct settings next = settings;
	struct idempotency_settings refunds = an_operation("refunds.create");
	struct route more[3] = { routes[0], routes[1], { .idempotency = &refunds } };
	struct attempt *a = attempt_new(ledger, "k1", "content");
	enum ledger_found refused = LEDGER_WON;

	next.routes = more;
	next.n_routes = 3;
	a->entry.idempotency = &refunds;
	reserve(a);
	answered(a);
	found_is(a, LEDGER_UNAVAILABLE);
	ledger_follow(ledger, &next);
	ck_assert_int_eq(holders, 1);
	TURN_UNTIL(rows("identity", "operation = 'refunds.create'") == 1);
	TURN_UNTIL(!operation_refused(ledger, &refunds, &refused));
	a = attempt_new(ledger, "k1", "content");
	a->entry.idempotency = &refunds;
	reserve(a);
	answered(a);
	found_is(a, LEDGER_WON);
	/* Twice, before the first answer is there; and back. */
	ledger_follow(ledger, &settings);
	ledger_follow(ledger, &next);
	ledger_follow(ledger, &settings);
	turn_for(100);
	won(ledger, "k2", "content");
	ledger_end(ledger);
	nothing_went_wrong();
}
END_TEST

START_TEST(rules_are_kept_for_people)
{
	rows_are("rules", "text <> ''", 1);
	rows_are("identity",
		 "identity = sha256('\\x000000000000000d'::bytea || operation::bytea) "
		 "OR operation = 'payments.create'",
		 2);
}
END_TEST

/* --- instance numbers --- */

START_TEST(a_number_that_somebody_took_is_used_no_more)
{
	int32_t number = ledger->instance;
	struct attempt *a = won(ledger, "k0", "content");

	scratch_do("UPDATE onceward.instance SET token = 1, renewed_at = now() WHERE token <> "
		   "0");
	ledger->renew_at_ms = 0;
	why_is("instance number");
	ck_assert_int_eq(ledger->instance, -1);
	log_says("given to somebody else");
	result_set(a, SPAN("the body")); /* what was reserved before is ours */
	settled(a, LEDGER_COMPLETE);
	TURN_UNTIL(ledger_state(ledger).up);
	ck_assert_int_ge(ledger->instance, 0);
	ck_assert_int_ne(ledger->instance, number);
	won(ledger, "k1", "content");
	replayed(reserved(ledger, "k0", "content"), SPAN("the body"));
}
END_TEST

START_TEST(a_number_that_somebody_took_meanwhile_is_not_renewed_on_a_new_connection)
{
	int32_t number = ledger->instance;

	scratch_do("UPDATE onceward.instance SET token = 1, renewed_at = now() WHERE token <> "
		   "0");
	terminate_ours();
	TURN_UNTIL(ledger_state(ledger).up && ledger->instance != number);
	won(ledger, "k1", "content");
	ck_assert_int_ne(ledger->instance, number);
}
END_TEST

START_TEST(a_lease_that_was_not_renewed_ends)
{
	struct attempt *a = attempt_new(ledger, "k1", "content");

	ledger->renewed_ms -= LEDGER_RENEW_LIMIT_MS;
	ledger->renew_at_ms = INT64_MAX;
	reserve(a);
	turn_for(200);
	ck_assert(!is_answered(a));
	rows_are("key", "true", 0);
	ledger->renew_at_ms = 0;
	answered(a); /* after the renewal */
	found_is(a, LEDGER_WON);
}
END_TEST

/* Who is stopped while asking reads the reply late, and would take what is old for young. */
START_TEST(a_reply_that_is_read_late_does_not_set_the_clock_back)
{
	int64_t offset = ledger->clock_offset_us;
	struct attempt *a = won(ledger, "k1", "content");

	ledger->renew_at_ms = 0;
	instance_renew(ledger, loop_now(loop));
	ck_assert(ledger->renewing);
	usleep(1500000);
	TURN_UNTIL(!ledger->renewing);
	ck_assert_int_ge(ledger->clock_offset_us, offset - 10000);
	settle_within(a, LEDGER_MARK_UNKNOWN, 1000);
	ck_assert_int_ge(reserved(ledger, "k1", "content")->entry.age_ms, 1500);
}
END_TEST

START_TEST(by_a_first_reply_that_is_read_late_nothing_looks_younger_than_it_is)
{
	won(ledger, "k1", "content");
	ledger->clock_offset_us = ledger->clock_doubt_us = 0; /* as at the start */
	ledger->renew_at_ms = 0;
	instance_renew(ledger, loop_now(loop));
	usleep(1500000);
	TURN_UNTIL(!ledger->renewing);
	ck_assert_int_ge(reserved(ledger, "k1", "content")->entry.age_ms, 1500);
	for (int i = 0; i < 5 && ledger->clock_doubt_us > 1000000; i++) {
		ledger->renew_at_ms = 0;
		instance_renew(ledger, loop_now(loop));
		TURN_UNTIL(!ledger->renewing);
	}
	ck_assert_int_le(ledger->clock_doubt_us, 1000000);
}
END_TEST

START_TEST(where_all_numbers_are_taken_nothing_is_reserved)
{
	struct attempt *a = NULL;

	settings.ledger.timeout = 300;
	scratch_do("UPDATE onceward.instance SET token = 1, renewed_at = now()");
	ledger = ledger_begin();
	why_is("instance number");
	log_says("no instance number is free");
	a = unavailable("k1");
	ck_assert_int_lt(a->turned_ms, 1300);
	rows_are("key", "true", 0);
	settings.ledger.timeout = PATIENCE;
	scratch_do("UPDATE onceward.instance SET renewed_at = now() - interval '61 minutes' "
		   "WHERE number = 77");
	TURN_UNTIL(ledger_state(ledger).up);
	ck_assert_int_eq(ledger->instance, 77);
	won(ledger, "k1", "content");
}
END_TEST

/* --- connections --- */

START_TEST(several_connections_carry_batches_at_once)
{
	struct attempt *all[100];
	char key[32];

	ledger_end(ledger);
	settings.ledger.connections = 4;
	settings.ledger.batch_max = 10;
	ledger = ledger_open();
	TURN_UNTIL(scratch_number("SELECT count(*) FROM pg_stat_activity WHERE " OURS) == 4);
	turn_for(50);
	for (int round = 0; round < 5; round++) {
		for (int i = 0; i < 100; i++) {
			snprintf(key, sizeof(key), "r%d-%d", round, i);
			all[i] = attempt_new(ledger, key, "content");
			reserve(all[i]);
		}
		for (int i = 0; i < 100; i++) {
			answered(all[i]);
			found_is(all[i], LEDGER_WON);
			settle(all[i], i % 2 ? LEDGER_RELEASE : LEDGER_MARK_UNKNOWN);
		}
		for (int i = 0; i < 100; i++)
			settled_is(all[i], LEDGER_SETTLED);
	}
	rows_are("event", "true", 500);
	rows_are("instance", "token <> 0 AND renewed_at > now() - interval '1 minute'", 1);
	nothing_went_wrong();
}
END_TEST

START_TEST(one_connection_of_two_that_dies_changes_nothing)
{
	ledger_end(ledger);
	settings.ledger.connections = 2;
	ledger = ledger_open();
	for (int i = 0; i < 2; i++) {
		char key[32];

		TURN_UNTIL(ledger->links[0].checked && ledger->links[1].checked);
		scratch_do(i == 0 ? "SELECT pg_terminate_backend(min(pid)) FROM "
				    "pg_stat_activity WHERE " OURS
				  : "SELECT pg_terminate_backend(max(pid)) FROM "
				    "pg_stat_activity WHERE " OURS);
		snprintf(key, sizeof(key), "k%d", i);
		settled(won(ledger, key, "content"), LEDGER_MARK_UNKNOWN);
		ck_assert(ledger_state(ledger).up);
	}
	rows_are("event", "true", 2);
}
END_TEST

static atomic_bool enough;
static atomic_uint ups;

static void *readiness(void *arg)
{
	const struct ledger *of = arg;

	while (!atomic_load(&enough)) {
		struct ledger_state state = ledger_state(of);

		atomic_fetch_add(&ups, state.up && state.durable);
		if (!state.up && state.why)
			ck_assert_uint_gt(strlen(state.why), 0);
	}
	return NULL;
}

START_TEST(any_thread_may_ask_for_the_state)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, readiness, ledger), 0);
	for (int i = 0; i < 3; i++) {
		turn_for(30);
		terminate_ours();
		TURN_UNTIL(!ledger_state(ledger).up);
		TURN_UNTIL(ledger_state(ledger).up);
	}
	atomic_store(&enough, true);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_uint_gt(atomic_load(&ups), 0);
}
END_TEST

START_TEST(an_end_returns_the_number)
{
	rows_are("instance", "token <> 0", 1);
	ledger_end(ledger);
	rows_are("instance", "token <> 0", 0);
	ledger = ledger_begin(); /* and one that never was connected ends too */
	ledger_end(ledger);
	rows_are("instance", "token <> 0", 0);
}
END_TEST

START_TEST(an_end_with_work_under_way_lets_go)
{
	struct attempt *a = won(ledger, "k1", "content"), *b = NULL;
	struct pg_session *session = lock("event");

	settle_within(a, LEDGER_MARK_UNKNOWN, 100);
	settled_is(a, LEDGER_LATE);
	b = attempt_new(ledger, "k2", "content");
	b->entry.deadline_ms = 0;
	ck_assert_uint_eq(ledger_busy(ledger), 1);
	ledger_free(ledger); /* drain gave up */
	ledgers[0] = NULL;
	unlock(session);
	a->entry.gone(&a->entry);
	gauges[METRIC_unsettled_in_memory] = 0;
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ledger_session");
	TCase *t = tcase_create("session"), *c = tcase_create("from the beginning");

	tcase_add_checked_fixture(t, set_up_one, tear_down);
	tcase_add_checked_fixture(c, as_new, tear_down);
	tcase_set_timeout(t, 60);
	tcase_set_timeout(c, 60);
	tcase_add_test(c, a_server_that_comes_late_is_found);
	tcase_add_test(c, who_asks_shortly_before_the_server_is_there_wins);
	tcase_add_loop_test(c, without_tables_why_names_migrate, 0, 2);
	tcase_add_test(c, tables_of_another_program_are_refused);
	tcase_add_test(c, where_all_numbers_are_taken_nothing_is_reserved);
	tcase_add_test(t, an_operation_whose_identity_changed_is_stopped_alone);
	tcase_add_test(t, what_a_reload_brings_is_checked_before_it_is_used);
	tcase_add_test(t, rules_are_kept_for_people);
	tcase_add_test(t, a_number_that_somebody_took_is_used_no_more);
	tcase_add_test(
		t, a_number_that_somebody_took_meanwhile_is_not_renewed_on_a_new_connection);
	tcase_add_test(t, a_lease_that_was_not_renewed_ends);
	tcase_add_test(t, a_reply_that_is_read_late_does_not_set_the_clock_back);
	tcase_add_test(t, by_a_first_reply_that_is_read_late_nothing_looks_younger_than_it_is);
	tcase_add_test(t, several_connections_carry_batches_at_once);
	tcase_add_test(t, one_connection_of_two_that_dies_changes_nothing);
	tcase_add_test(t, any_thread_may_ask_for_the_state);
	tcase_add_test(t, an_end_returns_the_number);
	tcase_add_test(t, an_end_with_work_under_way_lets_go);
	suite_add_tcase(s, t);
	suite_add_tcase(s, c);
	return run_on_scratch(s, "");
}
