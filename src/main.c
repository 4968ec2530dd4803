/* The table of commands, and serving where there is none. See cli.h and gateway.h. */
#include "cli.h"
#include "gateway.h"
#include "metrics.h"
#include "pg.h"

#include <jansson.h>
#include <stdio.h>

struct command {
	const char *name;    /* one or two words */
	unsigned words;      /* that it takes, the name's included */
	unsigned more;       /* words that it may take beside them */
	const char *needed;  /* options that must be there */
	const char *allowed; /* options that may */
	int (*run)(const struct cli_args *args);
	const char *usage; /* behind "onceward" */
	const char *help;
};

static int serve(const struct cli_args *args)
{
	return gateway_run(args->file);
}

static const struct command commands[] = {
	{ "", 0, 0, "-c", "-c", serve, "-c FILE", "Serve, by the settings in FILE." },
	{ "check", 1, 0, "-c", "-c --explain", cli_check, "check -c FILE [--explain]",
	  "Print every error in FILE; with --explain, what its settings mean." },
	{ "example", 1, 0, "", "", cli_example, "example",
	  "Print a file that shows every setting with its default." },
	{ "migrate", 1, 0, "-c", "-c --print", cli_migrate, "migrate -c FILE | --print",
	  "Make or bring up to date the ledger's tables; or print the SQL." },
	{ "digest", 2, 1, "-c --route", "-c --route --header --json", cli_digest,
	  "digest -c FILE --route \"METHOD PATH\" [--header \"NAME: VALUE\"]... [--json] BODY "
	  "[BODY2]",
	  "Show by what a request is compared, and what differs between two." },
	{ "purge", 1, 0, "-c", "-c --dry-run", cli_purge, "purge -c FILE [--dry-run]",
	  "Drop every day and key that is over, now; or say what would go." },
	{ "erase", 1, 0, "-c --account --reason", "-c --account --reason --as --dry-run",
	  cli_erase, "erase -c FILE --account ACCOUNT --reason TEXT [--dry-run] [--as WHO]",
	  "Erase what is kept of an account but hashes; or say how many records that is." },
	{ "operations list", 2, 0, "-c", "-c --json", cli_operations_list,
	  "operations list -c FILE [--json]", "Show what the ledger holds of each operation." },
	{ "operations adopt", 3, 0, "-c --reason", "-c --reason --as", cli_operations_adopt,
	  "operations adopt NAME -c FILE --reason TEXT [--as WHO]",
	  "Accept that an operation has become what FILE says." },
	{ "operations stop", 3, 0, "-c --reason", "-c --reason --as --account",
	  cli_operations_stop,
	  "operations stop NAME -c FILE --reason TEXT [--account ACCOUNT] [--as WHO]",
	  "Forward no request of an operation, or of one account of it, until it is resumed." },
	{ "operations resume", 2, 1, "-c --reason", "-c --reason --as --account --all",
	  cli_operations_resume,
	  "operations resume NAME|--all -c FILE --reason TEXT [--account ACCOUNT] [--as WHO]",
	  "End the stops of an operation, or (--all) those that concern every operation." },
	{ "records list", 2, 0, "-c",
	  "-c --state --operation --account --older-than --limit --cursor --reveal --as --json",
	  cli_records_list,
	  "records list -c FILE [--state unknown|stale|in_flight|completed|released|all]\n"
	  "        [--operation NAME] [--account ACCOUNT] [--older-than TIME] [--limit "
	  "NUMBER]\n"
	  "        [--cursor CURSOR] [--reveal] [--json]",
	  "List records, the oldest first; without --state those that wait for somebody." },
	{ "records show", 3, 0, "-c", "-c --reveal --as --json", cli_records_show,
	  "records show ID -c FILE [--reveal] [--as WHO] [--json]",
	  "Show one record and its history; --reveal: its account and key, too." },
	{ "records find", 3, 0, "-c --operation --account",
	  "-c --operation --account --reveal --as --json", cli_records_find,
	  "records find KEY -c FILE --operation NAME --account ACCOUNT [--reveal] [--json]",
	  "Show the record of a key." },
	{ "records resolve", 3, 0, "-c --evidence",
	  "-c --completed --not-executed --body --header --receipt --evidence --generation "
	  "--amend --as --json",
	  cli_records_resolve,
	  "records resolve ID -c FILE --evidence TEXT --not-executed |\n"
	  "        --completed STATUS [--body FILE] [--header \"NAME: VALUE\"]... "
	  "[--receipt RECEIPT]\n"
	  "        [--generation NUMBER] [--amend SLOT] [--as WHO] [--json]",
	  "Say how an unknown record has ended. Without --body its retries get 410." },
	{ "records reconcile", 3, 0, "-c --operation --evidence",
	  "-c --operation --account --status --evidence --apply --absent-is-proof --as-of --as "
	  "--json",
	  cli_records_reconcile,
	  "records reconcile REPORT -c FILE --operation NAME --evidence TEXT [--apply]\n"
	  "        [--account ACCOUNT] [--status STATUS] [--absent-is-proof --as-of TIME] "
	  "[--as WHO] [--json]",
	  "Compare a provider's report (CSV or JSON lines: key or logical_request_id, status,\n"
	  "        receipt, body, account) with the ledger; --apply resolves what is "
	  "unknown." },
};

static int version(void)
{
	printf("onceward %s\n", ONCEWARD_VERSION);
	return CLI_DONE;
}

/* All commands, or those that these words begin. */
static bool is_meant(const struct command *command, const struct cli_args *args)
{
	size_t len = args->words ? strlen(args->word[0]) : 0;
	const char *behind = command->name + len;

	if (len == 0)
		return true;
	if (strncmp(command->name, args->word[0], len) != 0 || (*behind && *behind != ' '))
		return false;
	return args->words < 2 || !*behind || strcmp(behind + 1, args->word[1]) == 0;
}

static int help(const struct cli_args *args)
{
	fputs("onceward makes unsafe HTTP requests safe to retry.\n\n", stdout);
	for (size_t i = 0; i < ARRAY_LEN(commands); i++)
		if (is_meant(&commands[i], args))
			printf("  onceward %s\n        %s\n", commands[i].usage,
			       commands[i].help);
	fputs("  onceward --help | --version\n\n"
	      "-c FILE and the other options may stand anywhere behind the command. Commands "
	      "on the\n"
	      "ledger work while the gateway is down. Exit codes: 0 done, 1 it failed, 2 wrong "
	      "usage.\n",
	      stdout);
	return CLI_DONE;
}

static int wrong(const char *what, const struct command *command)
{
	fprintf(stderr, "onceward: %s\n", what);
	if (command)
		fprintf(stderr, "usage: onceward %s\n", command->usage);
	else
		fputs("onceward --help lists the commands\n", stderr);
	return CLI_USAGE;
}

static int wrong_command(const struct cli_args *args)
{
	const struct cli_args first = { .word = { args->word[0] }, .words = 1 };
	char why[256];

	snprintf(why, sizeof(why), "there is no command %.100s%s%.100s", args->word[0],
		 args->words > 1 ? " " : "", args->words > 1 ? args->word[1] : "");
	wrong(why, NULL);
	for (size_t i = 0; i < ARRAY_LEN(commands); i++)
		if (is_meant(&commands[i], &first) && commands[i].name[0])
			fprintf(stderr, "       onceward %s\n", commands[i].usage);
	return CLI_USAGE;
}

/* Does the command's name stand in front? */
static bool matches(const struct command *command, const struct cli_args *args)
{
	const char *space = strchr(command->name, ' ');
	size_t first = space ? (size_t)(space - command->name) : strlen(command->name);

	if (first == 0)
		return args->words == 0;
	if (args->words == 0 || strlen(args->word[0]) != first ||
	    memcmp(args->word[0], command->name, first) != 0)
		return false;
	return !space || (args->words > 1 && strcmp(args->word[1], space + 1) == 0);
}

static const struct command *find(const struct cli_args *args)
{
	for (size_t i = 0; i < ARRAY_LEN(commands); i++)
		if (matches(&commands[i], args))
			return &commands[i];
	return NULL;
}

static int run(const struct command *command, const struct cli_args *args)
{
	const char *stray = cli_stray(args, command->allowed);
	const char *missing = NULL;
	char option[64], why[128];

	if (stray) {
		snprintf(why, sizeof(why), "%s does not belong here", stray);
		return wrong(why, command);
	}
	if (args->words < command->words || args->words > command->words + command->more)
		return wrong(args->words < command->words ? "a word is missing"
							  : "there is a word too many",
			     command);
	missing = args->print ? NULL : cli_missing(args, command->needed, option);
	if (missing) {
		snprintf(why, sizeof(why), "%s is missing", missing);
		return wrong(why, command);
	}
	if (cli_empty(args)) {
		snprintf(why, sizeof(why), "%s needs a value", cli_empty(args));
		return wrong(why, command);
	}
	return command->run(args);
}

/* Output that nobody could take is a failure too. */
static int finished(int result)
{
	if (fflush(stdout) != 0 || ferror(stdout)) {
		fputs("onceward: standard output cannot be written\n", stderr);
		return CLI_FAILED;
	}
	return result;
}

int main(int argc, char **argv)
{
	struct cli_args args;
	const struct command *command = NULL;
	char why[256];

	if (!cli_parse(argc, argv, &args, why))
		return wrong(why, NULL);
	if (args.version)
		return finished(version());
	if (args.help)
		return finished(help(&args));
	if (argc < 2)
		return wrong("what shall it do?", NULL);
	command = find(&args);
	if (!command) {
		return wrong_command(&args);
	}
	json_object_seed(0);
	pg_ignore_environment();
	return finished(run(command, &args));
}
