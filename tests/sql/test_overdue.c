/*
 * What is unknown for longer than recovery.deadline, on a real server: who is told, what stops, and
 * what ends. Settings are fakes.
 */
#include "../turned.h"
#include "scratch.h"

#include "loop.h"
#include "mem.h"
#include "metrics.h"
#include "sweep.h"

#include <check.h>

#define WITHIN_MS 7000

static struct loop *loop;
static struct metrics *metrics;
static struct idempotency_settings operations[2];
static struct route routes[2];
static struct settings settings;

void settings_hold(const struct settings *s)
{
	(void)s;
}

void settings_release(const struct settings *s)
{
	(void)s;
}

static void set_up(void)
{
	static const char *const names[] = { "orders", "payments" };

	scratch_same_day();
	loop = loop_new();
	metrics = metrics_new();
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		operations[i] = (struct idempotency_settings){ .operation = names[i],
							       .owner = "somebody",
							       .retention = 86400000,
							       .tombstone = 2 * 86400000L,
							       .lease = 1000 };
		operations[i].recovery.deadline = 60000;
		operations[i].metrics_operation = metrics_operation(names[i]);
		routes[i] = (struct route){ .idempotency = &operations[i] };
	}
	settings = (struct settings){ .routes = routes, .n_routes = 2 };
	settings.ledger.conninfo = scratch_conninfo;
	settings.ledger.prepared = true;
	settings.ledger.timeout = 2000;
	scratch_do("TRUNCATE onceward.op, onceward.event, onceward.event_late, onceward.key, "
		   "onceward.attention, onceward.stop");
}

static void tear_down(void)
{
	metrics_free(metrics);
	loop_free(loop);
}

/* A record whose only attempt began so many seconds ago and was cut off. */
static void unknown(int number, const char *operation, int age_s)
{
	char sql[1200];

	snprintf(sql, sizeof(sql),
		 "WITH made AS (INSERT INTO onceward.op SELECT (((extract(epoch FROM now()) * "
		 "1000)::int8 - 1577836800000 - %d * 1000) << 22) + %d, (now() AT TIME ZONE "
		 "'UTC')::date + 1, gen_random_uuid(), now() - %d * interval '1 s', now() - %d "
		 "* interval '1 s', 'a', '%s', '%d', 'g', 's' RETURNING *), ended AS (INSERT "
		 "INTO onceward.event (op_id, writer, expires_on, slot, kind) SELECT op_id, 1, "
		 "expires_on, 1, 3 FROM made) INSERT INTO onceward.attention (created_at, "
		 "op_id, "
		 "expires_on, state, slot, key_hash, account, operation, key, cause) SELECT "
		 "created_at, op_id, expires_on, 3, 1, key_hash, account, operation, key, 'x' "
		 "FROM made",
		 age_s, number, age_s, age_s - 2, operation, number);
	scratch_do(sql);
}

/* overdue_total of an operation */
static unsigned long told(const char *operation)
{
	char line[80];
	const char *found = NULL;
	unsigned long n = 0;
	struct buf out;

	snprintf(line, sizeof(line), "onceward_overdue_total{operation=\"%s\"} ", operation);
	buf_init(&out, (size_t)1024 * 1024);
	metrics_render(&out);
	buf_byte(&out, 0);
	found = strstr(out.at, line);
	n = found ? strtoul(found + strlen(line), NULL, 10) : 0;
	buf_fini(&out);
	return n;
}

static void until(const char *sql, long number)
{
	int64_t end = turned_us + (int64_t)WITHIN_MS * 1000;

	while (scratch_number(sql) != number) {
		ck_assert_msg(turned_us < end, "%s is not %ld", sql, number);
		turn_loop_for(loop, 100);
	}
}

START_TEST(each_record_is_told_of_once_whoever_meets_it)
{
	struct sweep *one = NULL, *other = NULL;

	for (int i = 0; i < 250; i++) /* more than come at a time */
		unknown(i, "orders", 120);
	unknown(300, "orders", 5);
	unknown(301, "payments", 120);
	one = sweep_new(loop, metrics, &settings);
	other = sweep_new(loop, metrics, &settings);
	turn_loop_for(loop, 2000);
	unknown(302, "payments", 57); /* in a moment */
	turn_loop_for(loop, 3000);
	until("SELECT count(*) FROM onceward.attention WHERE alerted", 252);
	turn_loop_for(loop, 6000);
	ck_assert_uint_eq(told("orders"), 250);
	ck_assert_uint_eq(told("payments"), 2);
	ck_assert_int_eq(
		scratch_number("SELECT count(*) FROM onceward.attention WHERE owner IS "
			       "NOT NULL"),
		0);
	ck_assert_int_eq(scratch_number("SELECT count(*) FROM onceward.stop"), 0);
	sweep_free(one);
	sweep_free(other);
}
END_TEST

START_TEST(a_record_ends_once_with_an_answer_that_fits_its_hash)
{
	struct sweep *one = NULL, *other = NULL;

	operations[0].recovery.after_deadline = RECOVERY_END_FINAL;
	for (int i = 0; i < 20; i++)
		unknown(i, "orders", 120);
	unknown(20, "orders", 5);
	unknown(21, "payments", 120);
	one = sweep_new(loop, metrics, &settings);
	other = sweep_new(loop, metrics, &settings);
	until("SELECT count(*) FROM onceward.attention", 2);
	turn_loop_for(loop, 500);
	ck_assert_int_eq(
		scratch_number(
			"SELECT count(*) FROM onceward.event_late AS l JOIN onceward.op USING "
			"(op_id) WHERE slot = 2 AND kind = 2 AND source = 4 AND status = 503 "
			"AND "
			"position('\"outcome_undetermined\"' IN convert_from(body, 'UTF8')) > "
			"0 "
			"AND position('\"somebody\"' IN convert_from(body, 'UTF8')) > 0 "
			"AND headers = convert_to(E'Content-Type: "
			"application/problem+json\\r\\nCache-Control: no-store\\r\\n', 'UTF8') "
			"AND hash = onceward.row_hash(account, operation, key, op_id, slot, "
			"status, headers, body) AND expires_at > now() + interval '23 hours' "
			"AND "
			"keep_until > now() + interval '47 hours'"),
		20);
	ck_assert_int_eq(scratch_number("SELECT count(*) FROM onceward.event_late"), 20);
	ck_assert_uint_eq(told("orders"), 20);
	sweep_free(one);
	sweep_free(other);
}
END_TEST

START_TEST(what_is_being_looked_up_ends_behind_that)
{
	struct sweep *sweep = NULL;

	operations[0].recovery.after_deadline = RECOVERY_END_FINAL;
	unknown(1, "orders", 120);
	scratch_do("UPDATE onceward.attention SET owner = 5, lease_until = now() + interval '1 "
		   "h'");
	sweep = sweep_new(loop, metrics, &settings);
	turn_loop_for(loop, 2000);
	ck_assert_int_eq(scratch_number("SELECT count(*) FROM onceward.attention"), 1);
	scratch_do("UPDATE onceward.attention SET lease_until = now()");
	until("SELECT count(*) FROM onceward.attention", 0);
	sweep_free(sweep);
}
END_TEST

START_TEST(where_a_second_execution_is_accepted_nothing_ends_so)
{
	struct sweep *sweep = NULL;

	operations[0].recovery.after_deadline = RECOVERY_END_FINAL;
	operations[0].recovery.contract = RECOVERY_AT_LEAST_ONCE;
	unknown(1, "orders", 120);
	sweep = sweep_new(loop, metrics, &settings);
	until("SELECT count(*) FROM onceward.attention WHERE alerted", 1);
	turn_loop_for(loop, 6000);
	ck_assert_int_eq(scratch_number("SELECT count(*) FROM onceward.event_late"), 0);
	sweep_free(sweep);
}
END_TEST

START_TEST(an_operation_stops_once_for_what_became_overdue)
{
	static const char open[] =
		"SELECT count(*) FROM onceward.stop WHERE ended_at IS NULL AND operation = "
		"'orders' AND account IS NULL AND reason = 'unknown_age'";
	struct sweep *one = NULL, *other = NULL;

	operations[0].recovery.stop = true;
	unknown(1, "orders", 120);
	unknown(2, "payments", 120);
	one = sweep_new(loop, metrics, &settings);
	other = sweep_new(loop, metrics, &settings);
	until(open, 1);
	turn_loop_for(loop, 6000);
	ck_assert_int_eq(scratch_number("SELECT count(*) FROM onceward.stop"), 1);
	scratch_do("SELECT onceward.end_stops('orders', NULL, 'me', 'looked at')");
	turn_loop_for(loop, 6000);
	ck_assert_int_eq(scratch_number(open), 0);
	unknown(3, "orders", 58); /* another one, in a moment */
	turn_loop_for(loop, 2000);
	until(open, 1);
	sweep_free(one);
	sweep_free(other);
}
END_TEST

START_TEST(new_settings_while_records_end_do_no_harm)
{
	struct sweep *sweep = NULL;

	operations[0].recovery.after_deadline = RECOVERY_END_FINAL;
	for (int i = 0; i < 30; i++)
		unknown(i, "orders", 120);
	sweep = sweep_new(loop, metrics, &settings);
	for (int i = 0; i < 100; i++) {
		sweep_follow(sweep, &settings);
		turn_loop_for(loop, 20);
	}
	until("SELECT count(*) FROM onceward.attention", 0);
	sweep_free(sweep);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("overdue");
	TCase *t = tcase_create("overdue");

	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, each_record_is_told_of_once_whoever_meets_it);
	tcase_add_test(t, a_record_ends_once_with_an_answer_that_fits_its_hash);
	tcase_add_test(t, what_is_being_looked_up_ends_behind_that);
	tcase_add_test(t, where_a_second_execution_is_accepted_nothing_ends_so);
	tcase_add_test(t, an_operation_stops_once_for_what_became_overdue);
	tcase_add_test(t, new_settings_while_records_end_do_no_harm);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return run_on_scratch(suite(), "");
}
