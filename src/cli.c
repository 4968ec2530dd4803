/*
 * The command line: options, and the commands on files; see cli.h. The commands on the ledger
 * stand in cli_ledger.c and cli_operations.c.
 *
 * What a command was asked for goes to standard output, every complaint to standard error.
 */
#include "cli.h"

#include "cli_internal.h"
#include "escape.h"
#include "mem.h"

#include <stdarg.h>
#include <stdio.h>

#define ERRORS_MAX ((size_t)1 << 20)

/* Where an option's value or its being there is kept. */
#define TEXT(name, member, value)                                                              \
	{                                                                                      \
		name, offsetof(struct cli_args, member), 1, value                              \
	}
#define FLAG(name, member)                                                                     \
	{                                                                                      \
		name, offsetof(struct cli_args, member), 0, NULL                               \
	}
static const struct option {
	const char *name;
	size_t at;
	unsigned values;   /* that it may have, one behind the other; 0: a flag */
	const char *value; /* a word for it */
} options[] = {
	TEXT("-c", file, "FILE"),
	TEXT("--as", as, "WHO"),
	TEXT("--reason", reason, "TEXT"),
	TEXT("--route", route, "\"METHOD PATH\""),
	{ "--header", offsetof(struct cli_args, header), CLI_HEADERS_MAX, "\"NAME: VALUE\"" },
	TEXT("--state", state, "STATE"),
	TEXT("--operation", operation, "NAME"),
	TEXT("--account", account, "ACCOUNT"),
	TEXT("--older-than", older_than, "TIME"),
	TEXT("--limit", limit, "NUMBER"),
	TEXT("--cursor", cursor, "CURSOR"),
	TEXT("--completed", completed, "STATUS"),
	TEXT("--body", body, "FILE"),
	TEXT("--receipt", receipt, "RECEIPT"),
	TEXT("--evidence", evidence, "TEXT"),
	TEXT("--generation", generation, "NUMBER"),
	TEXT("--amend", amend, "SLOT"),
	TEXT("--status", status, "STATUS"),
	TEXT("--as-of", as_of, "TIME"),
	FLAG("--not-executed", not_executed),
	FLAG("--apply", apply),
	FLAG("--dry-run", dry_run),
	FLAG("--absent-is-proof", absent_is_proof),
	FLAG("--reveal", reveal),
	FLAG("--all", all),
	FLAG("--explain", explain),
	FLAG("--print", print),
	FLAG("--json", json),
	FLAG("--help", help),
	FLAG("--version", version),
};

static const char **text_at(struct cli_args *args, const struct option *option)
{
	return (const char **)(void *)((char *)args + option->at);
}

static bool *flag_at(struct cli_args *args, const struct option *option)
{
	return (bool *)(void *)((char *)args + option->at);
}

static const struct option *find(const char *word, size_t len)
{
	if (len == 2 && memcmp(word, "-h", 2) == 0)
		word = "--help", len = strlen(word);
	if (len == 2 && memcmp(word, "-V", 2) == 0)
		word = "--version", len = strlen(word);
	for (size_t i = 0; i < ARRAY_LEN(options); i++)
		if (strlen(options[i].name) == len && memcmp(options[i].name, word, len) == 0)
			return &options[i];
	return NULL;
}

/* "--name=VALUE" and "-cVALUE" hold the value themselves. */
static const char *value_within(const char *word)
{
	const char *equals = word[1] == '-' ? strchr(word, '=') : NULL;

	if (equals)
		return equals + 1;
	return strncmp(word, "-c", 2) == 0 && word[2] ? word + 2 : NULL;
}

static size_t name_len(const char *word)
{
	if (word[1] == '-')
		return strcspn(word, "=");
	return strncmp(word, "-c", 2) == 0 ? 2 : strlen(word);
}

/* The option at argv[*i], and its value, which may be the next word; *i goes on to the last. */
static bool take(int argc, char *const *argv, int *i, struct cli_args *args, char why[256])
{
	const char *word = argv[*i];
	const char *within = value_within(word);
	const struct option *option = find(word, name_len(word));
	const char **at = NULL;
	unsigned given = 0;

	if (!option) {
		snprintf(why, 256, "there is no option %.200s", word);
		return false;
	}
	if (!option->values) {
		*flag_at(args, option) = true;
		if (within)
			snprintf(why, 256, "%s takes no value", option->name);
		return !within;
	}
	if (!within && *i + 1 >= argc) {
		snprintf(why, 256, "%s needs a value", option->name);
		return false;
	}
	for (at = text_at(args, option); given < option->values && *at; at++)
		given++;
	if (given == option->values) {
		snprintf(why, 256, given == 1 ? "%s is given twice" : "%s is given too often",
			 option->name);
		return false;
	}
	*at = within ? within : argv[++*i];
	return true;
}

bool cli_parse(int argc, char *const *argv, struct cli_args *args, char why[256])
{
	bool plain = false; /* behind "--" */

	*args = (struct cli_args){ 0 };
	for (int i = 1; i < argc; i++) {
		if (!plain && strcmp(argv[i], "--") == 0) {
			plain = true;
		} else if (!plain && argv[i][0] == '-' && argv[i][1]) {
			if (!take(argc, argv, &i, args, why))
				return false;
		} else if (args->words == CLI_WORDS_MAX) {
			snprintf(why, 256, "\"%.200s\" is one word too many", argv[i]);
			return false;
		} else {
			args->word[args->words++] = argv[i];
		}
	}
	return true;
}

static bool is_among(const char *name, const char *list)
{
	size_t len = strlen(name);

	for (const char *at = strstr(list, name); at; at = strstr(at + 1, name))
		if ((at == list || at[-1] == ' ') && (at[len] == ' ' || !at[len]))
			return true;
	return false;
}

const char *cli_stray(const struct cli_args *args, const char *allowed)
{
	struct cli_args copy = *args;

	for (size_t i = 0; i < ARRAY_LEN(options); i++) {
		const struct option *o = &options[i];
		bool given = o->values ? *text_at(&copy, o) != NULL : *flag_at(&copy, o);

		if (given && !is_among(o->name, allowed))
			return o->name;
	}
	return NULL;
}

static bool is_given(struct cli_args *args, const struct option *option)
{
	const char *text = NULL;

	if (!option->values)
		return *flag_at(args, option);
	text = *text_at(args, option);
	return text && text[0];
}

const char *cli_missing(const struct cli_args *args, const char *needed, char out[64])
{
	struct cli_args copy = *args;

	for (size_t i = 0; i < ARRAY_LEN(options); i++) {
		const struct option *o = &options[i];

		if (!is_among(o->name, needed) || is_given(&copy, o))
			continue;
		snprintf(out, 64, "%s%s%s", o->name, o->value ? " " : "",
			 o->value ? o->value : "");
		return out;
	}
	return NULL;
}

const char *cli_empty(const struct cli_args *args)
{
	struct cli_args copy = *args;

	for (size_t i = 0; i < ARRAY_LEN(options); i++) {
		const struct option *o = &options[i];
		const char *text = o->values ? *text_at(&copy, o) : NULL;

		if (text && !text[0])
			return o->name;
	}
	return NULL;
}

/* It may speak of files and of what PostgreSQL says: no terminal obeys it. */
int cli_failed(const char *format, ...)
{
	char text[4096], piece[ESCAPE_MAX];
	struct span rest = { text, 0 };
	va_list list;

	va_start(list, format);
	vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	rest.len = strlen(text);
	fputs("onceward: ", stderr);
	while (rest.len > 0) {
		bool line = rest.at[0] == '\n';
		size_t n = escape_next(&rest, false, piece);

		fwrite(line ? "\n" : piece, 1, line ? 1 : n, stderr);
	}
	fputc('\n', stderr);
	return CLI_FAILED;
}

struct settings *cli_settings(const struct cli_args *args, bool warnings)
{
	struct settings *settings = NULL;
	struct buf errors;

	buf_init(&errors, ERRORS_MAX);
	settings = settings_load(args->file, &errors);
	if (!settings || warnings)
		buf_print(&errors, stderr);
	buf_fini(&errors);
	return settings;
}

/* What only libpq can tell. */
static bool conninfo_good(const struct settings *settings, const char *name,
			  const char *conninfo)
{
	char why[256];

	if (!conninfo || pg_conninfo_valid(conninfo, why))
		return true;
	cli_failed("%s: ledger.%s: %s", settings->file, name, why);
	return false;
}

int cli_check(const struct cli_args *args)
{
	const struct settings *settings = cli_settings(args, true);
	struct buf out;
	bool good = false;

	if (!settings)
		return CLI_FAILED;
	good = conninfo_good(settings, "conninfo", settings->ledger.conninfo);
	if (!conninfo_good(settings, "maintenance_conninfo",
			   settings->ledger.maintenance_conninfo))
		good = false;
	if (good && args->explain) {
		buf_init(&out, SIZE_MAX);
		settings_explain(settings, &out);
		buf_print(&out, stdout);
		buf_fini(&out);
	} else if (good) {
		printf("%s: good\n", args->file);
	}
	settings_release(settings);
	return good ? CLI_DONE : CLI_FAILED;
}

int cli_example(const struct cli_args *args)
{
	struct buf out;

	(void)args;
	buf_init(&out, SIZE_MAX);
	settings_example(&out);
	buf_print(&out, stdout);
	buf_fini(&out);
	return CLI_DONE;
}
