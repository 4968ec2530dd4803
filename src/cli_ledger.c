/*
 * `onceward migrate`, and how commands reach the ledger: by maintenance_conninfo where it is
 * set, because what they do wants a session of its own and the right to make tables.
 */
#include "cli_internal.h"

#include "mem.h"
#include "schema.h"

#include <pwd.h>
#include <stdio.h>
#include <unistd.h>

#define CONNECT_PATIENCE_MS 10000
/* PostgreSQL has 10 s for a statement: people_patience.sql */
#define CALL_PATIENCE_MS    15000
/* A step of a migration, or waiting for somebody else's. */
#define STEP_PATIENCE_MS    3600000

struct pg_session *cli_ledger(const struct settings *settings)
{
	const char *conninfo = settings->ledger.maintenance_conninfo;
	struct pg_session *session = NULL;
	char why[256];

	if (!conninfo)
		conninfo = settings->ledger.conninfo;
	session = pg_session_open(conninfo, CONNECT_PATIENCE_MS, why);
	if (!session)
		cli_failed("the ledger cannot be reached: %s", why);
	return session;
}

struct pg_session *cli_ledger_ready(const struct settings *settings)
{
	struct pg_session *session = cli_ledger(settings);
	char why[256];

	if (!session || schema_check(session, why) == SCHEMA_OK)
		return session;
	cli_failed("%s", why);
	pg_session_close(session);
	return NULL;
}

struct span cli_who(const struct cli_args *args, char out[64])
{
	const struct passwd *user = getpwuid(getuid());

	if (args->as)
		return span_of(args->as);
	if (user)
		snprintf(out, 64, "%.63s", user->pw_name);
	else
		snprintf(out, 64, "uid %u", (unsigned)getuid());
	return span_of(out);
}

/* PostgreSQL ends a statement before this program stops waiting for it (people_patience.sql): what
 * a command gave up would else be done behind its back, when the lock it waited for came free. */
static bool begin(struct pg_session *session, char why[256])
{
	const char *const texts[] = { "BEGIN", pg_query_text(QUERY_people_patience) };

	pg_session_patience(session, CALL_PATIENCE_MS);
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		struct pg_rows *rows = pg_session_run(session, texts[i], NULL, 0, why);

		if (!rows)
			return false;
		pg_rows_free(rows);
	}
	return true;
}

/* Only here can it stay open whether something was done. */
static bool commit(struct pg_session *session, char why[256])
{
	char said[256];
	struct pg_rows *rows = pg_session_run(session, "COMMIT", NULL, 0, said);

	if (!rows)
		snprintf(why, 256,
			 "the commit: %.150s: whether it was done is not known, look before "
			 "you repeat it",
			 said);
	pg_rows_free(rows);
	return rows != NULL;
}

static void roll_back(struct pg_session *session)
{
	char why[256]; /* the first error is the one that counts */
	struct pg_rows *rows = pg_session_run(session, "ROLLBACK", NULL, 0, why);

	pg_rows_free(rows);
}

struct pg_rows *cli_transact(struct pg_session *session, const struct records_call *call,
			     struct cli_error *error)
{
	bool begun = begin(session, error->why);
	struct pg_rows *rows = begun ? pg_session_run(session, pg_query_text(call->query),
						      call->param, call->n, error->why)
				     : NULL;

	snprintf(error->state, sizeof(error->state), "%s", pg_session_sqlstate(session));
	if (rows && commit(session, error->why))
		return rows;
	if (begun && !rows)
		roll_back(session);
	pg_rows_free(rows);
	return NULL;
}

struct pg_rows *cli_call(struct pg_session *session, const struct records_call *call)
{
	struct cli_error error;
	struct pg_rows *rows = cli_transact(session, call, &error);

	if (!rows)
		cli_failed("%s%s", error.why,
			   strcmp(error.state, "23514") == 0
				   ? ": run `onceward migrate -c FILE`"
				   : "");
	return rows;
}

static int print(void)
{
	struct buf out;

	buf_init(&out, SIZE_MAX);
	schema_print(&out);
	buf_print(&out, stdout);
	buf_fini(&out);
	return CLI_DONE;
}

static int migrate(const struct settings *settings, struct pg_session *session)
{
	int days = schema_days_needed(settings) + SCHEMA_DAYS_AHEAD;
	struct buf out;
	char why[256];
	bool done = false;

	pg_session_patience(session, STEP_PATIENCE_MS);
	buf_init(&out, SIZE_MAX);
	done = schema_migrate(session, days, &out, why);
	buf_print(&out, stdout);
	fflush(stdout);
	buf_fini(&out);
	return done ? CLI_DONE : cli_failed("%s", why);
}

int cli_migrate(const struct cli_args *args)
{
	const struct settings *settings = NULL;
	struct pg_session *session = NULL;
	int result = CLI_FAILED;

	if (args->print)
		return print();
	settings = cli_settings(args, false);
	if (!settings)
		return CLI_FAILED;
	session = cli_ledger(settings);
	if (session) {
		result = migrate(settings, session);
		pg_session_close(session);
	}
	settings_release(settings);
	return result;
}
