/* What commands on the ledger begin with. */
#pragma once
#include "cli.h"
#include "pg.h"
#include "records.h"
#include "settings.h"

#include <jansson.h>

/* The settings that -c names; NULL: what is wrong stands on standard error. Warnings belong to
 * `check`; whoever else shows them tells people what they have heard. */
struct settings *cli_settings(const struct cli_args *args, bool warnings) MUST_CHECK;
/* A session on their ledger, by maintenance_conninfo where it is set; NULL: as above. */
struct pg_session *cli_ledger(const struct settings *settings) MUST_CHECK;
/* The same where the tables are there and right. */
struct pg_session *cli_ledger_ready(const struct settings *settings) MUST_CHECK;
/* Says on standard error what went wrong. Always CLI_FAILED. */
int cli_failed(const char *format, ...) PRINTF_LIKE(1, 2);
/* Who acts: --as, or the system's user. */
struct span cli_who(const struct cli_args *args, char out[64]);

/* Why a call was not done: a sentence, and what PostgreSQL calls it ("": it said nothing). */
struct cli_error {
	char why[256], state[6];
};
/* Runs it in a transaction of its own, and PostgreSQL is told how long it may take. NULL: it was
 * not done, or the error says that this is not known. */
struct pg_rows *cli_transact(struct pg_session *session, const struct records_call *call,
			     struct cli_error *error) MUST_CHECK;
/* The same. NULL: what is wrong stands on standard error. */
struct pg_rows *cli_call(struct pg_session *session,
			 const struct records_call *call) MUST_CHECK;

/* cli_input.c. The whole of a file ("-": standard input); where it is larger than `max`, some of it.
 * False: what is wrong stands on standard error. */
bool cli_read(const char *name, size_t max, struct buf *out, bool *too_large) MUST_CHECK;
const char *cli_file_name(const char *name); /* for people */
/* "NAME: VALUE"; there must be room for it. */
bool cli_header(struct http_fields *fields, const char *text) MUST_CHECK;

/* cli_text.c: JSON for people */
struct cli_column {
	const char *title, *member;
	int width; /* the last one's does not count */
};
/* A line for each object of the array; without titles where there is none. */
void cli_table(const json_t *array, const struct cli_column *columns, size_t n);
void cli_object(json_t *object);    /* a member a line, what is null left out */
void cli_json(const json_t *value); /* as it is, indented */

/* What a command on records works with (cli_records.c). */
struct desk {
	const struct cli_args *args;
	struct arena *arena;
	const struct settings *settings;
	struct pg_session *session;
	struct records_secrets secrets;
};
/* Opens it, works and closes it. What cannot be opened stands on standard error. */
/* Says on standard error that the settings have no such --operation: what follows may come to nothing. */
void desk_operation(const struct desk *desk);
int desk_run(struct desk *desk, const struct cli_args *args, int (*work)(struct desk *));
