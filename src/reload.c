/*
 * Operations that a reload would remove, and whether the ledger has unresolved records of them:
 * on the attention list, or in flight. Those in flight are attempts without an end among the
 * latest op_ids of each day: the sweep has listed whatever is older than a lease and ten minutes.
 *
 * It looks at the moment of the reload. A request that a worker takes in between ends under the
 * settings that it began with, as any other.
 *
 * Nothing is written, and a plan that reads a whole table is forbidden, as in the sweep.
 */
#include "reload.h"

#include "loop.h"
#include "mem.h"
#include "pg.h"
#include "schema.h"

#include <inttypes.h>
#include <stdio.h>

#define PATIENCE_MS 5000 /* of the whole look */
#define LATE_MS     600000
#define WHY_SIZE    512

struct look {
	struct pg_session *session;
	int64_t end_us;
	struct span names; /* of the operations that go: a text[] */
	char back_ms[24];  /* how old an attempt may be that nobody has listed */
	char error[256];   /* why the ledger does not tell */
};

/* Is there such a record? */
enum told { TOLD_NO, TOLD_YES, TOLD_NOTHING };

static const char *operation_of(const struct settings *settings, size_t route)
{
	const struct idempotency_settings *it = settings->routes[route].idempotency;

	return it ? it->operation : NULL;
}

static bool among(const struct settings *settings, const char *operation)
{
	for (size_t i = 0; i < settings->n_routes; i++) {
		const char *one = operation_of(settings, i);

		if (one && strcmp(one, operation) == 0)
			return true;
	}
	return false;
}

/* PostgreSQL's text of an array; an operation's name needs no quotes. Empty: none goes. */
static void add_names(struct buf *out, const struct settings *old, const struct settings *next)
{
	for (size_t i = 0; i < old->n_routes; i++) {
		const char *operation = operation_of(old, i);

		if (operation && !among(next, operation))
			buf_format(out, "%s%s", out->len ? "," : "{", operation);
	}
	if (out->len)
		buf_byte(out, '}');
}

static int64_t longest_lease(const struct settings *old)
{
	int64_t longest = 0;

	for (size_t i = 0; i < old->n_routes; i++) {
		const struct idempotency_settings *it = old->routes[i].idempotency;

		if (it && it->lease > longest)
			longest = it->lease;
	}
	return longest;
}

/* NULL: `error` says why. */
static struct pg_rows *ask(struct look *look, const char *sql, const struct span *params,
			   size_t n)
{
	/* rounded up: what takes all of the time is not said to have taken less */
	int64_t left_ms = (look->end_us - loop_clock_us() + 999) / 1000;
	struct pg_rows *rows = NULL;

	if (left_ms > 0) {
		pg_session_patience(look->session, (int)left_ms);
		rows = pg_session_run(look->session, sql, params, n, look->error);
	}
	if (!rows && loop_clock_us() >= look->end_us)
		snprintf(look->error, sizeof(look->error),
			 "PostgreSQL did not answer within %d s", PATIENCE_MS / 1000);
	return rows;
}

/* An operation's name in the first row, where there is one. */
static enum told ask_name(struct look *look, const char *sql, const struct span *params,
			  size_t n, char name[128])
{
	struct pg_rows *rows = ask(look, sql, params, n);
	enum told told = TOLD_NOTHING;

	if (!rows)
		return TOLD_NOTHING;
	told = pg_rows_count(rows) > 0 ? TOLD_YES : TOLD_NO;
	if (told == TOLD_YES)
		snprintf(name, 128, "%.*s", (int)pg_text(rows, 0, 0).len,
			 pg_text(rows, 0, 0).at);
	pg_rows_free(rows);
	return told;
}

/* The inner LIMIT makes it one look into the index for each name, however long the list is. */
static enum told look_at_list(struct look *look, char name[128])
{
	static const char sql[] =
		"SELECT name FROM unnest($1::text[]) AS name, LATERAL ("
		"SELECT FROM onceward.attention AS a "
		"WHERE a.operation = convert_to(name, 'UTF8') LIMIT 1) AS one LIMIT 1";

	return ask_name(look, sql, &look->names, 1, name);
}

/* A scalar date lets the planner open one partition. */
static enum told look_at_day(struct look *look, const struct span *params, char name[128])
{
	static const char sql[] =
		"WITH gone AS MATERIALIZED ("
		"SELECT convert_to(name, 'UTF8') AS operation FROM unnest($1::text[]) AS "
		"name), "
		"unended AS MATERIALIZED ("
		"SELECT op_id FROM onceward.op WHERE expires_on = $2::date "
		"AND op_id >= $3::int8 AND operation IN (SELECT operation FROM gone) "
		"EXCEPT SELECT op_id FROM onceward.event WHERE expires_on = $2::date "
		"AND op_id >= $3::int8 LIMIT 1) "
		"SELECT convert_from(op.operation, 'UTF8') "
		"FROM unended JOIN onceward.op ON op.op_id = unended.op_id "
		"WHERE op.expires_on = $2::date AND op.op_id >= $3::int8";

	return ask_name(look, sql, params, 3, name);
}

/* The days on which attempts of that age may expire, and the op_id at which they begin. */
static enum told look_in_flight(struct look *look, char name[128])
{
	static const char sql[] =
		"SELECT to_date(substr(part.relname::text, 4), 'YYYYMMDD'), "
		"greatest(0, (extract(epoch FROM now()) * 1000)::int8 - $1::int8 "
		"- 1577836800000) << 22 "
		"FROM pg_inherits JOIN pg_class AS part ON part.oid = inhrelid "
		"WHERE inhparent = 'onceward.op'::regclass AND NOT inhdetachpending "
		"AND part.relname::text ~ '^op_[0-9]{8}$' "
		"AND part.relname::text >= 'op_' || to_char((now() - "
		"$1::int8 * interval '1 millisecond') AT TIME ZONE 'UTC', 'YYYYMMDD')";
	struct span back = span_of(look->back_ms);
	struct pg_rows *days = ask(look, sql, &back, 1);
	enum told told = days ? TOLD_NO : TOLD_NOTHING;

	for (size_t row = 0; told == TOLD_NO && row < pg_rows_count(days); row++) {
		struct span params[3] = { look->names, pg_text(days, row, 0),
					  pg_text(days, row, 1) };

		told = look_at_day(look, params, name);
	}
	pg_rows_free(days);
	return told;
}

static bool begin(struct look *look)
{
	static const char sql[] =
		"BEGIN READ ONLY; SELECT set_config('enable_seqscan', 'off', true)";
	struct pg_rows *rows = ask(look, sql, NULL, 0);

	pg_rows_free(rows);
	return rows != NULL;
}

static bool untold(const struct look *look, char why[WHY_SIZE])
{
	snprintf(why, WHY_SIZE,
		 "operations are gone from the settings (%.120s), and the ledger cannot be "
		 "asked "
		 "whether their records are resolved: %.200s",
		 look->names.at, look->error);
	return false;
}

static bool is_resolved(struct look *look, char why[WHY_SIZE])
{
	char name[128] = "";
	bool begun = begin(look);
	enum told listed = begun ? look_at_list(look, name) : TOLD_NOTHING;
	enum told told = listed == TOLD_NO ? look_in_flight(look, name) : listed;

	if (told == TOLD_NOTHING)
		return untold(look, why);
	if (told == TOLD_NO)
		return true;
	snprintf(why, WHY_SIZE,
		 listed == TOLD_YES ? "operation `%s` is gone from the settings, and there are "
				      "records of it whose result is unknown: they have to be "
				      "resolved first"
				    : "operation `%s` is gone from the settings, and requests "
				      "of it are in flight: they have to end first",
		 name);
	return false;
}

static bool ask_ledger(struct look *look, const char *conninfo, char why[WHY_SIZE])
{
	bool resolved = false;

	look->end_us = loop_clock_us() + (int64_t)PATIENCE_MS * 1000;
	look->session = pg_session_open(conninfo, PATIENCE_MS, look->error);
	if (!look->session)
		return untold(look, why);
	resolved = is_resolved(look, why);
	if (resolved)
		pg_rows_free(ask(look, "COMMIT", NULL, 0)); /* a pooler keeps the connection */
	pg_session_close(look->session);
	return resolved;
}

/* Responses of a longer retention need partitions that are not there yet. */
static bool make_days(const struct settings *next, char why[WHY_SIZE])
{
	const struct ledger_settings *ledger = &next->ledger;
	const char *conninfo =
		ledger->maintenance_conninfo ? ledger->maintenance_conninfo : ledger->conninfo;
	char error[256] = "";
	struct buf said;
	struct pg_session *session = pg_session_open(conninfo, PATIENCE_MS, error);
	bool made = false;

	buf_init(&said, (size_t)64 * 1024);
	if (session) {
		made = schema_migrate(session, schema_days_needed(next) + SCHEMA_DAYS_AHEAD,
				      &said, error);
		pg_session_close(session);
	}
	buf_fini(&said);
	if (!made)
		snprintf(why, WHY_SIZE,
			 "the largest retention is longer than before, and the ledger's days "
			 "cannot be "
			 "made: %.200s",
			 error);
	return made;
}

bool reload_allowed(const struct settings *old, const struct settings *next, char why[512])
{
	struct look look = { 0 };
	struct buf names;
	bool allowed = true;

	buf_init(&names, SIZE_MAX);
	add_names(&names, old, next);
	if (names.len) {
		buf_byte(&names, 0);
		look.names = (struct span){ names.at, names.len - 1 };
		snprintf(look.back_ms, sizeof(look.back_ms), "%" PRId64,
			 longest_lease(old) + LATE_MS);
		allowed = ask_ledger(&look, old->ledger.conninfo, why);
	}
	buf_fini(&names);
	if (allowed && schema_days_needed(next) > schema_days_needed(old))
		allowed = make_days(next, why);
	return allowed;
}
