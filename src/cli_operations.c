/*
 * `onceward operations`: what the ledger holds of each operation, and how a changed identity is
 * accepted (CONTRACT 9). An operation's keys mean what its identity says: adopting another one
 * lets old keys meet requests that are told apart differently, so somebody has to say why.
 */
#include "cli_internal.h"

#include "mem.h"

#include <jansson.h>
#include <pwd.h>
#include <stdio.h>
#include <unistd.h>

#define HEX_BYTES (2 * 32 + 3)

/* \x and 64 digits: how PostgreSQL writes and reads a bytea. */
static void hex_of(const unsigned char identity[32], char out[HEX_BYTES])
{
	snprintf(out, 3, "\\x");
	for (size_t i = 0; i < 32; i++)
		snprintf(out + 2 + 2 * i, 3, "%02x", identity[i]);
}

static const struct idempotency_settings *find(const struct settings *settings,
					       struct span operation)
{
	for (size_t i = 0; i < settings->n_routes; i++) {
		const struct idempotency_settings *it = settings->routes[i].idempotency;

		if (it && span_equal(span_of(it->operation), operation))
			return it;
	}
	return NULL;
}

static const char *compare(const struct idempotency_settings *ours, struct span theirs)
{
	char hex[HEX_BYTES];

	if (!ours)
		return "not in the settings";
	hex_of(ours->identity, hex);
	return span_equal(span_of(hex), theirs) ? "the same" : "changed";
}

static json_t *json_of(struct span text)
{
	return text.at ? json_stringn(text.at, text.len) : json_null();
}

/* One line of the list: JSON objects are collected, text goes out at once. */
static void list_one(json_t *json, struct span name, const char *identity, struct span since,
		     struct span stopped)
{
	if (json)
		json_array_append_new(json,
				      json_pack("{s:o,s:s,s:o,s:o}", "operation", json_of(name),
						"identity", identity, "since", json_of(since),
						"stopped", json_of(stopped)));
	else
		fprintf(stdout, "%-40.*s %-20s %-21.*s %.*s\n", (int)name.len, name.at,
			identity, (int)since.len, since.at ? since.at : "", (int)stopped.len,
			stopped.at ? stopped.at : "");
}

static void list_known(const struct settings *settings, const struct pg_rows *rows,
		       json_t *json)
{
	for (size_t row = 0; row < pg_rows_count(rows); row++) {
		struct span name = pg_text(rows, row, 0);

		list_one(json, name, compare(find(settings, name), pg_text(rows, row, 1)),
			 pg_text(rows, row, 2), pg_text(rows, row, 3));
	}
}

static bool is_known(const struct pg_rows *rows, struct span name)
{
	for (size_t row = 0; row < pg_rows_count(rows); row++)
		if (span_equal(pg_text(rows, row, 0), name))
			return true;
	return false;
}

/* Operations that no gateway has brought to the ledger yet; once each. */
static void list_new(const struct settings *settings, const struct pg_rows *rows, json_t *json)
{
	for (size_t i = 0; i < settings->n_routes; i++) {
		const struct idempotency_settings *it = settings->routes[i].idempotency;

		if (it && find(settings, span_of(it->operation)) == it &&
		    !is_known(rows, span_of(it->operation)))
			list_one(json, span_of(it->operation), "new", (struct span){ NULL, 0 },
				 (struct span){ NULL, 0 });
	}
}

static int list(const struct settings *settings, struct pg_session *session, bool as_json)
{
	static const char sql[] =
		"SELECT operation, identity::text, "
		"to_char(since AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"'), "
		"(SELECT string_agg(DISTINCT reason, ' ' ORDER BY reason) FROM onceward.stop "
		"WHERE ended_at IS NULL AND (stop.operation IS NULL OR stop.operation = "
		"identity.operation)) FROM onceward.identity ORDER BY operation";
	char why[256];
	struct pg_rows *rows = pg_session_run(session, sql, NULL, 0, why);
	json_t *json = as_json ? json_array() : NULL;

	if (!rows) {
		json_decref(json);
		return cli_failed("%s", why);
	}
	if (!json)
		fprintf(stdout, "%-40s %-20s %-21s %s\n", "OPERATION", "IDENTITY", "SINCE",
			"STOPPED");
	list_known(settings, rows, json);
	list_new(settings, rows, json);
	if (json) {
		json_dumpf(json, stdout, JSON_INDENT(2));
		fputc('\n', stdout);
		json_decref(json);
	}
	pg_rows_free(rows);
	return CLI_DONE;
}

static const char *who(const struct cli_args *args, char out[64])
{
	const struct passwd *user = getpwuid(getuid());

	if (args->as)
		return args->as;
	if (user)
		snprintf(out, 64, "%.63s", user->pw_name);
	else
		snprintf(out, 64, "uid %u", (unsigned)getuid());
	return out;
}

static int adopt(const struct idempotency_settings *it, struct pg_session *session,
		 const struct cli_args *args)
{
	static const char sql[] =
		"WITH old AS (SELECT text FROM onceward.identity WHERE operation = $1), "
		"new AS (INSERT INTO onceward.identity AS i (operation, identity, text) "
		"VALUES ($1, $2::bytea, $3) ON CONFLICT (operation) DO UPDATE "
		"SET identity = EXCLUDED.identity, text = EXCLUDED.text, since = now() "
		"WHERE i.identity <> EXCLUDED.identity RETURNING text), "
		"noted AS (INSERT INTO onceward.audit (who, action, about, reason, detail) "
		"SELECT $4, 'operations adopt', $1, $5, "
		"'was: ' || coalesce((SELECT text FROM old), 'nothing') || E'\\nis: ' || text "
		"FROM new) SELECT count(*) FROM new";
	char hex[HEX_BYTES], name[64], why[256];
	struct span params[5] = { span_of(it->operation) };
	struct pg_rows *rows = NULL;
	bool same = false;

	hex_of(it->identity, hex);
	params[1] = span_of(hex);
	params[2] = span_of(it->identity_text);
	params[3] = span_of(who(args, name));
	params[4] = span_of(args->reason);
	rows = pg_session_run(session, sql, params, ARRAY_LEN(params), why);
	if (!rows)
		return cli_failed("%s%s", why,
				  strcmp(pg_session_sqlstate(session), "23514") == 0
					  ? ": run `onceward migrate -c FILE`"
					  : "");
	same = span_equal(pg_text(rows, 0, 0), SPAN("0"));
	pg_rows_free(rows);
	fprintf(stdout,
		same ? "%s: the ledger holds this identity already\n"
		     : "%s: adopted; running gateways take it up on a reload (SIGHUP), or when "
		       "they next connect to the ledger\n",
		it->operation);
	return CLI_DONE;
}

int cli_operations_list(const struct cli_args *args)
{
	const struct settings *settings = cli_settings(args, false);
	struct pg_session *session = settings ? cli_ledger_ready(settings) : NULL;
	int result = CLI_FAILED;

	if (session) {
		result = list(settings, session, args->json);
		pg_session_close(session);
	}
	if (settings)
		settings_release(settings);
	return result;
}

int cli_operations_adopt(const struct cli_args *args)
{
	const struct settings *settings = cli_settings(args, false);
	const struct idempotency_settings *it = NULL;
	struct pg_session *session = NULL;
	int result = CLI_FAILED;

	if (!settings)
		return CLI_FAILED;
	it = find(settings, span_of(args->word[2]));
	if (!it)
		result = cli_failed("%s has no operation %s", args->file, args->word[2]);
	else
		session = cli_ledger_ready(settings);
	if (session) {
		result = adopt(it, session, args);
		pg_session_close(session);
	}
	settings_release(settings);
	return result;
}
