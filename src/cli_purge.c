/*
 * `onceward purge` and `onceward erase` (CONTRACT 12, 17): what retention does by itself, now and
 * without its pauses. The same steps as in the back office (sql/schema/0003.sql), one transaction
 * each, so that a gateway that serves meanwhile does not notice, and an interrupted command is
 * simply run again. Unlike the office a purge drops as many days as are over.
 */
#include "cli_internal.h"

#include "digest.h"
#include "loop.h"
#include "mem.h"
#include "retain.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define STEP_PATIENCE_MS 3600000
#define BLOCKS           "1024"
#define BUSY_TRIES       60
#define BUSY_MS          1000
#define HEX_MAX          (2 + 2 * 255 + 1)

/* What a purge is run with, as PostgreSQL reads it. */
struct purge {
	struct pg_session *session;
	char token[24], grace[24], audit[24];
};

static struct pg_rows *run(struct pg_session *session, const char *sql,
			   const struct span *params, size_t n)
{
	char why[256];
	struct pg_rows *rows = pg_session_run(session, sql, params, n, why);

	if (!rows)
		cli_failed("%s", why);
	return rows;
}

static int64_t number(const struct pg_rows *rows, unsigned column)
{
	struct span text = pg_text(rows, 0, column);
	char copy[24];

	snprintf(copy, sizeof(copy), "%.*s", (int)text.len, text.at ? text.at : "");
	return strtoll(copy, NULL, 10);
}

/* The first column of what a function says of one number; -1: it failed, and that was said. */
static int64_t ask(struct pg_session *session, const char *sql, const char *param)
{
	struct span one = span_of(param);
	struct pg_rows *rows = run(session, sql, &one, param ? 1 : 0);
	int64_t value = rows ? number(rows, 0) : -1;

	pg_rows_free(rows);
	return value;
}

/* What a role's limits are for is requests. */
static bool take_time(struct pg_session *session)
{
	struct pg_rows *rows = NULL;

	pg_session_patience(session, STEP_PATIENCE_MS);
	rows = run(session, "SET statement_timeout = 0; SET lock_timeout = '30s'", NULL, 0);
	pg_rows_free(rows);
	return rows != NULL;
}

static bool clocks_agree(struct pg_session *session)
{
	int64_t before = retain_clock_ms();
	int64_t server = ask(
		session, "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::int8", NULL);
	int64_t after = retain_clock_ms();

	if (server < 0)
		return false;
	if (server >= before - RETAIN_CLOCKS_APART_MS &&
	    server <= after + RETAIN_CLOCKS_APART_MS)
		return true;
	cli_failed("PostgreSQL's clock and this machine's differ by %" PRId64
		   " s: nothing is purged",
		   (server > after ? server - after : before - server) / 1000);
	return false;
}

/* --- purge --- */

static int report(const struct purge *purge)
{
	const struct span params[] = { span_of(purge->grace), span_of(purge->audit) };
	struct pg_rows *rows = run(purge->session,
				   "SELECT what, n, pg_size_pretty(bytes) FROM "
				   "onceward.purge_report($1::int8, $2::int8)",
				   params, ARRAY_LEN(params));

	if (!rows)
		return CLI_FAILED;
	for (size_t i = 0; i < pg_rows_count(rows); i++) {
		struct span what = pg_text(rows, i, 0), n = pg_text(rows, i, 1),
			    bytes = pg_text(rows, i, 2);

		printf("%-32.*s %s%.*s", (int)what.len, what.at, bytes.at ? "about " : "",
		       (int)n.len, n.at);
		if (bytes.at)
			printf(" records, %.*s", (int)bytes.len, bytes.at);
		putchar('\n');
	}
	pg_rows_free(rows);
	return CLI_DONE;
}

static bool detach(struct pg_session *session, const struct pg_rows *rows)
{
	struct pg_rows *done = NULL;
	char sql[RETAIN_DETACH_MAX];

	retain_detach_text(sql, pg_text(rows, 0, PARTS_PARENT), pg_text(rows, 0, PARTS_NAME));
	done = run(session, sql, NULL, 0);
	pg_rows_free(done);
	return done != NULL;
}

static void say_gone(const struct pg_rows *rows)
{
	struct span what = pg_text(rows, 0, PARTS_NAME);

	printf("dropped %.*s: %" PRId64 " records, %" PRId64 " of them without a known end\n",
	       (int)what.len, what.at, number(rows, PARTS_RECORDS), number(rows, PARTS_LISTED));
	fflush(stdout);
}

/* One step. False: it failed, and that was said. */
static bool parts_step(const struct purge *purge, int *doing)
{
	static const char sql[] =
		"SELECT doing, day, parent, name, records, listed FROM "
		"onceward.purge_parts($1::int8, $2::int8, $3::int8, " BLOCKS ", false)";
	const struct span params[] = { span_of(purge->token), span_of(purge->grace),
				       span_of(purge->audit) };
	struct pg_rows *rows = run(purge->session, sql, params, ARRAY_LEN(params));
	bool good = rows != NULL;

	if (!good)
		return false;
	*doing = (int)number(rows, PARTS_DOING);
	if (*doing == PARTS_DETACH)
		good = detach(purge->session, rows);
	else if (*doing == PARTS_GONE)
		say_gone(rows);
	pg_rows_free(rows);
	return good;
}

static int purge_parts(const struct purge *purge)
{
	int doing = PARTS_MORE, busy = 0;

	while (doing != PARTS_NONE && doing != PARTS_LATER) {
		if (!parts_step(purge, &doing))
			return CLI_FAILED;
		if (doing != PARTS_OTHERS)
			continue;
		if (++busy == BUSY_TRIES)
			return cli_failed("a gateway is taking a day away: try again later");
		usleep(BUSY_MS * 1000);
	}
	if (doing == PARTS_LATER)
		return cli_failed("a record of the oldest day is still under way: that day "
				  "and later ones stay");
	return CLI_DONE;
}

/* A walk over the heap of a table. How many rows went; -1: it failed. */
static int64_t walk(struct pg_session *session, const char *size, const char *step)
{
	int64_t blocks = ask(session, size, NULL), gone = 0;

	for (int64_t at = 0; at < blocks; at += 1024) {
		char block[24];
		int64_t n = 0;

		snprintf(block, sizeof(block), "%" PRId64, at);
		n = ask(session, step, block);
		if (n < 0)
			return -1;
		gone += n;
	}
	return blocks < 0 ? -1 : gone;
}

static const struct walked {
	const char *what, *size, *step;
} walks[] = {
	{ "keys", "SELECT onceward.blocks('onceward.key')",
	  "SELECT onceward.purge_keys($1::int8, " BLOCKS ")" },
	{ "late results", "SELECT onceward.blocks('onceward.event_late')",
	  "SELECT onceward.purge_late($1::int8, " BLOCKS ")" },
	{ "receipts", "SELECT onceward.blocks('onceward.receipt')",
	  "SELECT onceward.purge_receipts($1::int8, " BLOCKS ")" },
};

static int purge_rows(const struct purge *purge)
{
	for (size_t i = 0; i < ARRAY_LEN(walks); i++) {
		int64_t gone = walk(purge->session, walks[i].size, walks[i].step);

		if (gone < 0)
			return CLI_FAILED;
		printf("purged %" PRId64 " %s\n", gone, walks[i].what);
		fflush(stdout);
	}
	return CLI_DONE;
}

static int purge(const struct settings *settings, struct pg_session *session, bool dry)
{
	struct purge purge = { .session = session };
	int64_t token = 0;
	int parts = CLI_DONE, rows = CLI_DONE;

	random_bytes(&token, sizeof(token));
	snprintf(purge.token, sizeof(purge.token), "%" PRId64, token);
	snprintf(purge.grace, sizeof(purge.grace), "%" PRId64, retain_grace_ms(settings));
	snprintf(purge.audit, sizeof(purge.audit), "%" PRId64,
		 settings->ledger.audit_retention);
	if (!take_time(session) || !clocks_agree(session))
		return CLI_FAILED;
	if (dry)
		return report(&purge);
	parts = purge_parts(&purge);
	rows = purge_rows(&purge);
	return parts != CLI_DONE ? parts : rows;
}

int cli_purge(const struct cli_args *args)
{
	const struct settings *settings = cli_settings(args, false);
	struct pg_session *session = settings ? cli_ledger_ready(settings) : NULL;
	int result = CLI_FAILED;

	if (session) {
		result = purge(settings, session, args->dry_run);
		pg_session_close(session);
	}
	if (settings)
		settings_release(settings);
	return result;
}

/* --- erase --- */

/* As PostgreSQL reads a bytea; false: no account is that long. */
static bool hex_of(const char *text, char out[HEX_MAX])
{
	size_t len = strlen(text);

	if (len == 0 || len > 255)
		return false;
	snprintf(out, 3, "\\x");
	for (size_t i = 0; i < len; i++)
		snprintf(out + 2 + 2 * i, 3, "%02x", (unsigned)(unsigned char)text[i]);
	return true;
}

/* The rest of an erasure that takes long; how many more were erased, -1: it failed. */
static int64_t erase_on(struct pg_session *session, const char *account)
{
	static const char sql[] = "SELECT CASE WHEN done THEN 1 ELSE 0 END, erased FROM "
				  "onceward.erase_step(sha256($1::bytea), " BLOCKS ")";
	const struct span param = span_of(account);
	int64_t erased = 0;
	bool done = false;

	while (!done) {
		struct pg_rows *rows = run(session, sql, &param, 1);

		if (!rows)
			return -1;
		done = number(rows, 0) == 1;
		erased += number(rows, 1);
		pg_rows_free(rows);
	}
	return erased;
}

static int64_t erase_waiting(struct pg_session *session, const char *account)
{
	return ask(session,
		   "SELECT count(*) FROM onceward.erasure_record WHERE account_hash = "
		   "sha256($1::bytea)",
		   account);
}

static int erase_done(struct pg_session *session, const char *account, int64_t erased)
{
	int64_t more = erase_on(session, account), waiting = erase_waiting(session, account);

	if (more < 0 || waiting < 0)
		return CLI_FAILED;
	printf("erased %" PRId64 " records\n", erased + more);
	if (waiting)
		printf("%" PRId64
		       " are in flight or unknown, and are erased when they have an end\n",
		       waiting);
	return CLI_DONE;
}

static int erase(struct pg_session *session, const struct cli_args *args)
{
	static const char sql[] =
		"SELECT erased, waiting FROM onceward.erase($1::bytea, $2, $3, $4::bool)";
	char account[HEX_MAX], name[64];
	struct span params[4];
	struct pg_rows *rows = NULL;
	int result = CLI_DONE;

	if (!hex_of(args->account, account))
		return cli_failed("an account has 1 to 255 bytes");
	params[0] = span_of(account);
	params[1] = cli_who(args, name);
	params[2] = span_of(args->reason);
	params[3] = args->dry_run ? SPAN("true") : SPAN("false");
	rows = take_time(session) ? run(session, sql, params, ARRAY_LEN(params)) : NULL;
	if (!rows)
		return CLI_FAILED;
	if (args->dry_run)
		printf("would erase %" PRId64 " records, and %" PRId64
		       " in flight or unknown when they have an end\n",
		       number(rows, 0), number(rows, 1));
	else
		result = erase_done(session, account, number(rows, 0));
	pg_rows_free(rows);
	return result;
}

int cli_erase(const struct cli_args *args)
{
	const struct settings *settings = NULL;
	struct pg_session *session = NULL;
	int result = CLI_FAILED;

	settings = cli_settings(args, false);
	session = settings ? cli_ledger_ready(settings) : NULL;
	if (session) {
		result = erase(session, args);
		pg_session_close(session);
	}
	if (settings)
		settings_release(settings);
	return result;
}
