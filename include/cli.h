/*
 * The commands (CONTRACT 17) but for serving: on files, and on the ledger. Those on the ledger
 * speak to PostgreSQL themselves, so that they work while the gateway is down. Each returns the
 * exit code: 0 done, 1 it failed, 2 wrong usage.
 */
#pragma once
#include "base.h"

enum cli_exit { CLI_DONE, CLI_FAILED, CLI_USAGE };

#define CLI_WORDS_MAX   4U
#define CLI_HEADERS_MAX 32U

/* What stood behind the command. */
struct cli_args {
	const char *file; /* -c */
	const char *as;   /* who acts; NULL: the system's user */
	const char *reason;
	const char *route; /* METHOD PATH */
	const char *state, *operation, *account, *older_than, *limit, *cursor;
	const char *completed, *body, *receipt, *evidence, *generation,
		*amend;                      /* of a resolution */
	const char *status, *as_of;          /* of a report */
	const char *header[CLI_HEADERS_MAX]; /* NAME: VALUE, as often as wanted; then NULL */
	bool explain, print, json, help, version, reveal, all;
	bool not_executed, apply, absent_is_proof, dry_run;
	const char *word[CLI_WORDS_MAX];
	unsigned words;
};

/* Options may stand anywhere, "--name VALUE" or "--name=VALUE". False: a sentence in `why`. */
bool cli_parse(int argc, char *const *argv, struct cli_args *args, char why[256]) MUST_CHECK;
/* The first option that was given and is not among `allowed` ("-c", "--json", ...); or NULL. */
const char *cli_stray(const struct cli_args *args, const char *allowed);
/* The first option of `needed` that was not given, or is empty, with a word for its value
 * ("--reason TEXT"), written into `out`; or NULL. */
const char *cli_missing(const struct cli_args *args, const char *needed, char out[64]);

/* The first option that was given with nothing as its value (an unset variable of a script); or NULL. */
const char *cli_empty(const struct cli_args *args);

int cli_check(const struct cli_args *args);
int cli_example(const struct cli_args *args);
int cli_digest(const struct cli_args *args);
int cli_migrate(const struct cli_args *args);
int cli_purge(const struct cli_args *args);
int cli_erase(const struct cli_args *args);
int cli_operations_list(const struct cli_args *args);
int cli_operations_adopt(const struct cli_args *args);
int cli_operations_stop(const struct cli_args *args);
int cli_operations_resume(const struct cli_args *args);
int cli_records_list(const struct cli_args *args);
int cli_records_show(const struct cli_args *args);
int cli_records_find(const struct cli_args *args);
int cli_records_resolve(const struct cli_args *args);
int cli_records_reconcile(const struct cli_args *args);
