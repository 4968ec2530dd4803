/*
 * The sweep against a real server: which records it lists and when, and the days that it makes.
 * Settings and metrics are fakes: the sweep reads the one and counts in the other.
 */
#include "../turned.h"
#include "scratch.h"

#include "loop.h"
#include "mem.h"
#include "metrics.h"
#include "sweep_internal.h"

#include <check.h>

#define LATEST_MS 5000  /* a lease that ran out is listed within */
#define SHOWN_MS  8000  /* and counted: there is a look every 5 s */
#define MADE_MS   20000 /* twenty days: a busy disk takes its time */

static struct loop *loop;
static struct idempotency_settings idempotency;
static struct route route;
static struct settings settings;
static int64_t counted[METRICS_OPERATIONS], records[METRICS_OPERATIONS],
	oldest[METRICS_OPERATIONS];

void settings_hold(const struct settings *s)
{
	(void)s;
}

void settings_release(const struct settings *s)
{
	(void)s;
}

unsigned metrics_operation(const char *name)
{
	return strcmp(name, "orders") == 0 ? 1 : strcmp(name, "payments") == 0 ? 2 : 3;
}

void metrics_add(struct metrics *metrics, enum metric metric, unsigned label, uint64_t n)
{
	(void)metrics;
	ck_assert_int_eq(metric, METRIC_unknown_total);
	ck_assert_uint_eq(label % 64, CAUSE_LEASE);
	counted[label / 64] += (int64_t)n;
}

void metrics_set(struct metrics *metrics, enum metric metric, unsigned label, int64_t value)
{
	(void)metrics;
	if (metric == METRIC_unknown_records)
		records[label] = value;
	else if (metric == METRIC_oldest_unknown_seconds)
		oldest[label] = value;
}

static void set_up(void)
{
	scratch_same_day();
	loop = loop_new();
	idempotency = (struct idempotency_settings){ .operation = "orders",
						     .retention = 86400000,
						     .lease = 1000,
						     .recovery.deadline = 86400000 };
	route = (struct route){ .idempotency = &idempotency };
	settings = (struct settings){ .routes = &route, .n_routes = 1 };
	settings.ledger.conninfo = scratch_conninfo;
	settings.ledger.prepared = true;
	settings.ledger.timeout = 2000;
	scratch_do("TRUNCATE onceward.op, onceward.event, onceward.event_late, "
		   "onceward.attention");
}

static void tear_down(void)
{
	loop_free(loop);
}

/* An attempt that began some ms ago, expires `days` from today, and is under lease for some ms. */
static void attempt(int number, long ago_ms, long lease_ms, int days, const char *operation)
{
	char sql[1024];

	snprintf(sql, sizeof(sql),
		 "INSERT INTO onceward.op SELECT (((extract(epoch FROM now()) * 1000)::int8 - "
		 "1577836800000 - %ld) << 22) + %d, "
		 "(now() AT TIME ZONE 'UTC')::date + %d, gen_random_uuid(), now() - %ld * "
		 "interval '1 ms', "
		 "now() + %ld * interval '1 ms', 'a', '%s', '%d', 'g', 's'",
		 ago_ms, number, days, ago_ms, lease_ms, operation, number);
	scratch_do(sql);
}

static void end(int number, int kind)
{
	char sql[256];

	snprintf(sql, sizeof(sql),
		 "INSERT INTO onceward.event (op_id, writer, expires_on, slot, kind) "
		 "SELECT op_id, 1, expires_on, 1, %d FROM onceward.op WHERE key = '%d'",
		 kind, number);
	scratch_do(sql);
}

static bool listed(int number)
{
	char sql[128];

	snprintf(sql, sizeof(sql), "SELECT count(*) FROM onceward.attention WHERE key = '%d'",
		 number);
	return scratch_number(sql) == 1;
}

static void turn_until(int number, bool there, int64_t ms)
{
	int64_t until = turned_us + ms * 1000;

	while (listed(number) != there) {
		ck_assert_msg(turned_us < until, "record %d is%s listed", number,
			      there ? " not" : "");
		turn_loop_for(loop, 100);
	}
}

#define TURN_UNTIL(condition, ms)                                                              \
	do {                                                                                   \
		int64_t until_ = turned_us + INT64_C(1000) * (ms);                             \
                                                                                               \
		while (!(condition)) {                                                         \
			ck_assert_msg(turned_us < until_, "not in time: %s", #condition);      \
			turn_loop_for(loop, 50);                                               \
		}                                                                              \
	} while (0)

START_TEST(a_lease_that_ran_out_is_listed_and_no_other)
{
	struct sweep *sweep = sweep_new(loop, NULL, &settings);

	turn_loop_for(loop, 1000);
	attempt(1, 5000, -1000, 1, "orders"); /* stale */
	attempt(2, 5000, 60000, 1, "orders"); /* under lease */
	attempt(3, 5000, -1000, 1, "orders"); /* completed */
	end(3, 2);
	attempt(4, 5000, -1000, 1, "orders"); /* unknown, listed by who settled it */
	end(4, 3);
	attempt(5, 5000, -1000, 1, "orders"); /* released */
	end(5, 4);
	attempt(6, 5000, 3000, 1, "payments"); /* its lease ends in a moment */
	turn_until(1, true, LATEST_MS);
	turn_until(6, true, 3000 + LATEST_MS);
	turn_loop_for(loop, 3000);
	for (int i = 2; i <= 5; i++)
		ck_assert(!listed(i));
	ck_assert_int_eq(counted[1], 1);
	ck_assert_int_eq(counted[2], 1);
	ck_assert_int_eq(scratch_number("SELECT count(*) FROM onceward.attention WHERE state = "
					"1 AND slot = 0 AND "
					"cause = 'lease ran out' AND account = 'a' AND owner "
					"IS NULL AND lease_until IS NULL"),
			 2);
	sweep_free(sweep);
}
END_TEST

static int64_t op_id_of(int number)
{
	char sql[96];

	snprintf(sql, sizeof(sql), "SELECT op_id FROM onceward.op WHERE key = '%d'", number);
	return scratch_number(sql);
}

/* A round looks at what has come since the one before, though an attempt may run for an hour. */
static void rounds_begin_behind(struct sweep *sweep, int number)
{
	int64_t op_id = op_id_of(number), until = turned_us + 8000000;

	while (!sweep->busy || sweep->job != JOB_ROUND || sweep->from <= op_id) {
		ck_assert_msg(turned_us < until, "every round begins with %d", number);
		turn_loop(loop);
	}
}

START_TEST(one_that_runs_for_long_is_not_looked_at_in_every_round)
{
	struct sweep *sweep = NULL;

	attempt(1, 60000, 3600000, 1, "orders");
	attempt(2, 50000, 6000, 1, "orders");
	sweep = sweep_new(loop, NULL, &settings);
	rounds_begin_behind(sweep, 2);
	turn_until(2, true, 6000 + LATEST_MS); /* its lease has ended */
	rounds_begin_behind(sweep, 2);
	attempt(3, 2000, 3000, 1, "orders"); /* and one that has come since */
	turn_until(3, true, 3000 + LATEST_MS);
	ck_assert(!listed(1));
	scratch_do("UPDATE onceward.op SET lease_until = now() WHERE key = '1'");
	sweep_free(sweep);
	sweep = sweep_new(loop, NULL, &settings);
	turn_until(1, true, LATEST_MS);
	sweep_free(sweep);
}
END_TEST

START_TEST(two_that_sweep_count_a_record_once)
{
	struct sweep *one = sweep_new(loop, NULL, &settings),
		     *other = sweep_new(loop, NULL, &settings);

	for (int i = 0; i < 20; i++)
		attempt(i, 5000, -1000, 1, "orders");
	turn_until(19, true, LATEST_MS);
	TURN_UNTIL(counted[1] >= 20, LATEST_MS);
	turn_loop_for(loop, 2500);
	ck_assert_int_eq(counted[1], 20);
	sweep_free(one);
	sweep_free(other);
}
END_TEST

START_TEST(what_ran_out_while_nobody_swept_is_listed)
{
	struct sweep *sweep = NULL;

	attempt(1, 3L * 86400000, -1000, -1, "orders");
	attempt(2, 40L * 86400000, -1000, 1, "orders"); /* retention was longer then */
	attempt(3, 3600000, 2500, 1, "orders");         /* an old one with a long lease */
	attempt(4, 3600000, -1000, 3, "orders"); /* a day that no present retention leads to */
	sweep = sweep_new(loop, NULL, &settings);
	for (int i = 1; i <= 2; i++)
		turn_until(i, true, LATEST_MS);
	turn_until(4, true, LATEST_MS);
	turn_until(3, true, 2500 + LATEST_MS);
	sweep_free(sweep);
}
END_TEST

/* A resend of record `number` that began a while ago. */
static void resend(int number, long lease_ms)
{
	char sql[1024];

	snprintf(sql, sizeof(sql),
		 "SELECT onceward.claim(op_id, expires_on, 2::smallint, %ld, 77, key_hash, "
		 "account, operation, key) FROM onceward.op WHERE key = '%d'",
		 lease_ms, number);
	ck_assert_int_eq(scratch_number(sql), 1);
}

START_TEST(a_resend_whose_lease_ran_out_is_unknown_again)
{
	struct sweep *one = NULL, *other = NULL;

	attempt(1, 5000, -1000, 1, "orders");
	attempt(2, 5000, -1000, 1, "payments");
	end(1, 3);
	end(2, 3);
	resend(1, 300);
	resend(2, 60000);
	one = sweep_new(loop, NULL, &settings);
	other = sweep_new(loop, NULL, &settings);
	turn_loop_for(loop, LATEST_MS);
	TURN_UNTIL(counted[1] > 0, LATEST_MS);
	ck_assert_int_eq(scratch_number("SELECT count(*) FROM onceward.attention WHERE key = "
					"'1' AND state = 3 AND slot = 3 AND claim_until IS "
					"NULL"),
			 1);
	ck_assert_int_eq(
		scratch_number("SELECT count(*) FROM onceward.event_late WHERE slot = 3 "
			       "AND kind = 3 AND generation = 2"),
		1);
	ck_assert_int_eq(scratch_number("SELECT count(*) FROM onceward.attention WHERE key = "
					"'2' AND state = 2"),
			 1);
	ck_assert_int_eq(counted[1], 1);
	ck_assert_int_eq(counted[2], 0);
	sweep_free(one);
	sweep_free(other);
}
END_TEST

START_TEST(what_is_settled_beside_the_sweep_leaves_the_list)
{
	struct sweep *sweep = sweep_new(loop, NULL, &settings);

	turn_loop_for(loop, 1000);
	attempt(1, 1500, -100, 1, "orders");
	attempt(2, 1500, -100, 1, "orders");
	turn_until(1, true, LATEST_MS);
	end(1, 2);
	end(2, 3); /* unknown stays */
	turn_until(1, false, SHOWN_MS);
	ck_assert(listed(2));
	sweep_free(sweep);
}
END_TEST

START_TEST(the_list_is_shown_by_operation)
{
	struct sweep *sweep = sweep_new(loop, NULL, &settings);

	attempt(1, 100000, -1000, 1, "orders");
	attempt(2, 50000, -1000, 1, "orders");
	attempt(3, 5000, -1000, 1, "payments");
	turn_until(1, true, LATEST_MS);
	TURN_UNTIL(records[1] == 2 && records[2] == 1, SHOWN_MS);
	ck_assert_int_ge(oldest[1], 100);
	ck_assert_int_lt(oldest[1], 200);
	scratch_do("DELETE FROM onceward.attention WHERE operation = 'payments'");
	end(1, 2);
	end(2, 2);
	end(3, 2);
	TURN_UNTIL(records[2] == 0 && oldest[2] == 0, SHOWN_MS);
	sweep_free(sweep);
}
END_TEST

static long days_ahead(void)
{
	return scratch_number("SELECT max(to_date(substr(relname::text, 7), 'YYYYMMDD')) - "
			      "(now() AT TIME ZONE 'UTC')::date "
			      "FROM pg_class WHERE relname::text ~ '^event_[0-9]{8}$'");
}

START_TEST(days_are_made_ahead_also_after_a_reload)
{
	struct sweep *sweep = sweep_new(loop, NULL, &settings);

	ck_assert_int_eq(sweep_days_left(sweep), -1);
	TURN_UNTIL(sweep_days_left(sweep) == SCHEMA_DAYS_AHEAD, MADE_MS);
	ck_assert_int_eq(days_ahead(), 1 + SCHEMA_DAYS_AHEAD);
	idempotency.retention = 20L * 86400000;
	sweep_follow(sweep, &settings);
	TURN_UNTIL(days_ahead() == 20 + SCHEMA_DAYS_AHEAD, MADE_MS);
	TURN_UNTIL(sweep_days_left(sweep) == SCHEMA_DAYS_AHEAD, MADE_MS);
	turn_loop_for(loop, 500);
	ck_assert_int_eq(days_ahead(), 20 + SCHEMA_DAYS_AHEAD);
	attempt(1, 5000, -1000, 20, "orders");
	turn_until(1, true, LATEST_MS);
	sweep_free(sweep);
}
END_TEST

START_TEST(a_role_that_may_not_make_days_still_sweeps)
{
	struct sweep *sweep = NULL;
	char conninfo[128];

	scratch_do("CREATE ROLE server LOGIN; GRANT USAGE ON SCHEMA onceward TO server;"
		   "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA onceward TO "
		   "server");
	snprintf(conninfo, sizeof(conninfo), "host=%s user=server dbname=onceward",
		 scratch_dir);
	settings.ledger.conninfo = conninfo;
	idempotency.retention = 60L * 86400000;
	attempt(1, 5000, -1000, 1, "orders");
	sweep = sweep_new(loop, NULL, &settings);
	turn_until(1, true, LATEST_MS);
	turn_loop_for(loop, 500);
	ck_assert_int_lt(sweep_days_left(sweep), 1);
	sweep_free(sweep);
}
END_TEST

START_TEST(a_server_that_goes_is_swept_again_when_it_is_back)
{
	struct sweep *sweep = sweep_new(loop, NULL, &settings);

	turn_loop_for(loop, 500);
	scratch_do("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE "
		   "application_name = 'onceward' AND pid <> pg_backend_pid()");
	attempt(1, 5000, -1000, 1, "orders");
	turn_until(1, true, LATEST_MS);
	sweep_free(sweep);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("sweep");
	TCase *t = tcase_create("sweep");

	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, a_lease_that_ran_out_is_listed_and_no_other);
	tcase_add_test(t, one_that_runs_for_long_is_not_looked_at_in_every_round);
	tcase_add_test(t, two_that_sweep_count_a_record_once);
	tcase_add_test(t, what_ran_out_while_nobody_swept_is_listed);
	tcase_add_test(t, a_resend_whose_lease_ran_out_is_unknown_again);
	tcase_add_test(t, what_is_settled_beside_the_sweep_leaves_the_list);
	tcase_add_test(t, the_list_is_shown_by_operation);
	tcase_add_test(t, days_are_made_ahead_also_after_a_reload);
	tcase_add_test(t, a_role_that_may_not_make_days_still_sweeps);
	tcase_add_test(t, a_server_that_goes_is_swept_again_when_it_is_back);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return run_on_scratch(suite(), "");
}
