/*
 * The ledger's tables; see schema.h. The steps are the files of sql/schema/, in order.
 *
 * A step is one transaction, under a lock that lets one migrate work at a time: whoever waited
 * for it looks again, and finds the step done. A step notes its own version in schema_version,
 * so that it can be run by hand as well. Partitions are made one transaction each, because each
 * takes a handful of locks until its end; that they are there already is the ordinary case.
 */
#include "schema.h"

#include "mem.h"

#include <stdio.h>
#include <stdlib.h>

#define CHECK_PATIENCE_MS 5000
#define DAY_MS            86400000
#define MONTHS_AHEAD      2

static const struct step {
	const char *name;
	const char *sql;
} steps[] = {
#define SCHEMA(number, text) { #number, text },
#include "schema.def"
#undef SCHEMA
};

struct version {
	int schema;         /* 0: no tables */
	int oldest_program; /* that may use them */
};

static int number_of(struct span text)
{
	char copy[16];

	snprintf(copy, sizeof(copy), "%.*s", (int)text.len, text.at ? text.at : "");
	return (int)strtol(copy, NULL, 10);
}

static bool read_version(struct pg_session *session, struct version *version, char why[256])
{
	/* Not to_regclass: within a transaction it may answer from before a wait for the lock. */
	static const char there[] =
		"SELECT EXISTS (SELECT FROM pg_class JOIN pg_namespace ON pg_namespace.oid = "
		"relnamespace WHERE nspname = 'onceward' AND relname = 'schema_version')";
	static const char newest[] =
		"SELECT version, oldest_program FROM onceward.schema_version "
		"ORDER BY version DESC LIMIT 1";
	struct pg_rows *rows = pg_session_run(session, there, NULL, 0, why);
	bool missing = false;

	*version = (struct version){ 0 };
	if (!rows)
		return false;
	missing = !span_equal(pg_text(rows, 0, 0), SPAN("t"));
	pg_rows_free(rows);
	if (missing)
		return true;
	rows = pg_session_run(session, newest, NULL, 0, why);
	if (!rows)
		return false;
	if (pg_rows_count(rows) == 1) {
		version->schema = number_of(pg_text(rows, 0, 0));
		version->oldest_program = number_of(pg_text(rows, 0, 1));
	}
	pg_rows_free(rows);
	return true;
}

static enum schema_state judge(const struct version *version, char why[256])
{
	if (version->schema == 0) {
		snprintf(why, 256,
			 "the database has no ledger yet: run `onceward migrate -c FILE`");
		return SCHEMA_MISSING;
	}
	if (version->schema > SCHEMA_VERSION && version->oldest_program > SCHEMA_VERSION) {
		snprintf(why, 256,
			 "the ledger's schema is version %d, made by the `onceward migrate` of "
			 "a "
			 "later program; this program knows version %d: install the later one",
			 version->schema, SCHEMA_VERSION);
		return SCHEMA_TOO_NEW;
	}
	if (version->schema < SCHEMA_VERSION) {
		snprintf(why, 256,
			 "the ledger's schema is version %d, this program needs %d: run "
			 "`onceward migrate -c FILE`",
			 version->schema, SCHEMA_VERSION);
		return SCHEMA_TOO_OLD;
	}
	return SCHEMA_OK;
}

enum schema_state schema_check(struct pg_session *session, char why[256])
{
	struct version version;

	if (!read_version(session, &version, why))
		return SCHEMA_AWAY;
	return judge(&version, why);
}

enum schema_state pg_schema_check(const char *conninfo, char why[256])
{
	struct pg_session *session = pg_session_open(conninfo, CHECK_PATIENCE_MS, why);
	enum schema_state state = SCHEMA_AWAY;

	if (!session)
		return SCHEMA_AWAY;
	state = schema_check(session, why);
	pg_session_close(session);
	return state;
}

int schema_days_needed(const struct settings *settings)
{
	int64_t longest = 0;

	for (size_t i = 0; i < settings->n_routes; i++) {
		const struct idempotency_settings *it = settings->routes[i].idempotency;

		if (it && it->retention > longest)
			longest = it->retention;
	}
	return (int)((longest + DAY_MS - 1) / DAY_MS);
}

/* For what has no rows that anybody wants. */
static bool run(struct pg_session *session, const char *sql, char why[256])
{
	struct pg_rows *rows = pg_session_run(session, sql, NULL, 0, why);

	pg_rows_free(rows);
	return rows != NULL;
}

/* Inside the transaction, under the lock. */
static bool apply_locked(struct pg_session *session, const struct step *step, bool *applied,
			 char why[256])
{
	struct version version;

	if (!read_version(session, &version, why))
		return false;
	*applied = version.schema < (int)strtol(step->name, NULL, 10);
	return !*applied || run(session, step->sql, why);
}

static bool apply(struct pg_session *session, const struct step *step, struct buf *out,
		  char why[256])
{
	static const char begin[] =
		"BEGIN; SELECT pg_advisory_xact_lock(hashtext('onceward migrate'))";
	bool applied = false;
	char reason[256];

	if (!run(session, begin, reason) || !apply_locked(session, step, &applied, reason) ||
	    !run(session, "COMMIT", reason)) {
		char ignored[256];

		(void)run(session, "ROLLBACK", ignored);
		snprintf(why, 256, "step %s: %.230s", step->name, reason);
		return false;
	}
	buf_format(out, applied ? "step %s: done\n" : "step %s: already there\n", step->name);
	return true;
}

static bool apply_all(struct pg_session *session, int have, struct buf *out, char why[256])
{
	for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
		if (strtol(steps[i].name, NULL, 10) <= have)
			buf_format(out, "step %s: already there\n", steps[i].name);
		else if (!apply(session, &steps[i], out, why))
			return false;
	}
	return true;
}

/* Partitions, counted from the present one. */
struct range {
	const char *sql; /* makes one; true where it was not there */
	int from, to, made;
};

static bool make(struct pg_session *session, struct range *range, char why[256])
{
	for (int i = range->from; i <= range->to; i++) {
		char number[16];
		struct span param = { number, 0 };
		struct pg_rows *rows = NULL;

		param.len = (size_t)snprintf(number, sizeof(number), "%d", i);
		rows = pg_session_run(session, range->sql, &param, 1, why);
		if (!rows)
			return false;
		range->made += span_equal(pg_text(rows, 0, 0), SPAN("t"));
		pg_rows_free(rows);
	}
	return true;
}

static bool make_partitions(struct pg_session *session, int to, struct buf *out, char why[256])
{
	struct range days = {
		"SELECT onceward.make_day((now() AT TIME ZONE 'UTC')::date + $1::int)", -1, to,
		0
	};
	struct range months = { "SELECT onceward.make_month(((now() AT TIME ZONE 'UTC')::date "
				"+ $1::int * interval '1 month')::date)",
				0, MONTHS_AHEAD, 0 };

	if (!make(session, &days, why) || !make(session, &months, why))
		return false;
	buf_format(out, "days, from yesterday to %d days ahead: %d made, %d already there\n",
		   to, days.made, days.to - days.from + 1 - days.made);
	buf_format(out, "months of the audit table: %d made, %d already there\n", months.made,
		   months.to - months.from + 1 - months.made);
	return true;
}

bool schema_migrate(struct pg_session *session, int days, struct buf *out, char why[256])
{
	struct version version;

	if (!read_version(session, &version, why) || judge(&version, why) == SCHEMA_TOO_NEW)
		return false;
	if (version.schema > SCHEMA_VERSION)
		buf_format(
			out,
			"the schema is version %d, newer than this program's %d, which may use "
			"it: nothing to do\n",
			version.schema, SCHEMA_VERSION);
	else if (!apply_all(session, version.schema, out, why))
		return false;
	return make_partitions(session, days, out, why);
}

void schema_print(struct buf *out)
{
	for (size_t i = 0; i < ARRAY_LEN(steps); i++)
		buf_format(out, "-- step %s\nBEGIN;\n%sCOMMIT;\n", steps[i].name, steps[i].sql);
}
