/*
 * Retention against a real server, with the real ledger beside it. Time is made by moving rows into
 * days that have been.
 */
#pragma once
#include "ledger_rig.h"
#include "retain_internal.h"

static struct ledger *ledger;
static struct retain *retains[2];
static int64_t clock_off_ms;

static int64_t fake_clock_ms(void)
{
	return retain_clock_ms() + clock_off_ms;
}

#define TODAY "(now() AT TIME ZONE 'UTC')::date"

static const char days_and_months[] =
	"SELECT onceward.make_day(" TODAY " + i) FROM generate_series(-5, 3) AS i;"
	"SELECT onceward.make_month(" TODAY "), onceward.make_month('2020-01-01')";

static inline void set_up_one(void)
{
	set_up();
	scratch_do("TRUNCATE onceward.receipt, onceward.audit, onceward.erasure, "
		   "onceward.erasure_record, onceward.erasure_stop, onceward.stop, "
		   "onceward.digest_key");
	scratch_do(
		"UPDATE onceward.retention SET owner = 0, leased_until = '-infinity', done_at "
		"= '-infinity', going = NULL");
	scratch_do(days_and_months);
	orders.lease = 10000;
	settings.ledger.audit_retention = 730L * 86400000;
	clock_off_ms = 0;
	ledger = ledger_open();
}

static inline void tear_down_one(void)
{
	for (size_t i = 0; i < ARRAY_LEN(retains); i++) {
		if (retains[i])
			retain_free(retains[i]);
		retains[i] = NULL;
	}
	tear_down();
}

static inline struct retain *retain_begin_at(size_t i)
{
	retains[i] = retain_new(loop, NULL, &settings, fake_clock_ms);
	return retains[i];
}

static inline bool idle(const struct retain *r)
{
	return r->look_at > 0 && !r->busy && !r->parts && !r->rows && !r->erasures &&
	       !r->vacuum && loop_clock_us() / 1000 >= r->next_at;
}

/* Retention does all that it has to do. */
static inline void retained(void)
{
	struct retain *r = retain_begin_at(0);

	TURN_UNTIL(r->look_at > 0);
	TURN_UNTIL(idle(r));
	retain_free(r);
	retains[0] = NULL;
}

/* As if the day before yesterday's records could go today as well. */
static inline void a_day_later(void)
{
	scratch_do("UPDATE onceward.retention SET done_at = '-infinity'");
}

/* The records of a key become `days` older. */
static inline void age(const char *key, int days)
{
	struct pg_session *session = scratch_open(scratch_conninfo);
	char sql[512];

	snprintf(sql, sizeof(sql),
		 "SELECT onceward.make_day(expires_on - %d) FROM onceward.op WHERE key = '%s'",
		 days, key);
	scratch_run(session, sql);
	snprintf(sql, sizeof(sql),
		 "CREATE TEMP TABLE aged AS SELECT op_id FROM onceward.op WHERE key = '%s';"
		 "CREATE TEMP VIEW back AS SELECT %d AS days, interval '%d d' AS back",
		 key, days, days);
	scratch_run(session, sql);
	scratch_run(
		session,
		"UPDATE onceward.key SET expires_at = expires_at - back, keep_until = "
		"keep_until "
		"- back FROM aged, back WHERE key.op_id = aged.op_id;"
		"UPDATE onceward.event SET expires_on = expires_on - days, at = at - back FROM "
		"aged, back WHERE event.op_id = aged.op_id;"
		"UPDATE onceward.attention SET expires_on = expires_on - days FROM aged, back "
		"WHERE attention.op_id = aged.op_id;"
		"UPDATE onceward.op SET expires_on = expires_on - days, created_at = "
		"created_at - "
		"back, lease_until = lease_until - back FROM aged, back WHERE op.op_id = "
		"aged.op_id");
	pg_session_close(session);
}

static inline long parts(const char *condition)
{
	char sql[256];

	snprintf(sql, sizeof(sql), "SELECT count(*) FROM onceward.part WHERE %s", condition);
	return scratch_number(sql);
}

/* 410: completed, and what it was is not there any more. */
static inline void gone(const char *key)
{
	struct attempt *a = found(ledger, key, "content", LEDGER_COMPLETED);

	ck_assert(!a->entry.retained);
	ck_assert_int_eq(a->entry.same, LEDGER_SAME);
}

static inline void resolve(const char *key, int kind, const char *body)
{
	char sql[512];

	snprintf(sql, sizeof(sql),
		 "SELECT onceward.resolve(op_id, expires_on, NULL::int2, %d::int2, 201::int2, "
		 "'Content-Type: text/plain\r\nLocation: /orders/1\r\n', '%s', NULL::bytea, "
		 "'seen', "
		 "'me', 2::int2, 86400000, 2592000000, 77) FROM onceward.attention WHERE key = "
		 "'%s'",
		 kind, body, key);
	ck_assert_int_eq(scratch_number(sql), 1);
}
