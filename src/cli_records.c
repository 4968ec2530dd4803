/*
 * `onceward records list|show|find|resolve`: people look at records, and say how one has ended that
 * the gateway does not know the end of (CONTRACT 15, 17). What is asked and what the answers mean
 * stands in records.h; here are words, tables and exit codes. Reconciling is cli_reconcile.c's.
 *
 * Accounts and keys are shown as hashes. Who wants them in clear says --reveal, and the audit
 * table says who did.
 */
#include "cli_internal.h"

#include "mem.h"

#include <stdio.h>
#include <stdlib.h>

#define OUT_MAX  ((size_t)64 * 1024 * 1024)
#define BODY_MAX ((size_t)64 * 1024 * 1024)

static bool desk_open(struct desk *desk, const struct cli_args *args)
{
	struct records_call call = { .query = QUERY_people_secrets };
	struct pg_rows *rows = NULL;
	bool good = false;

	*desk = (struct desk){ .args = args, .settings = cli_settings(args, false) };
	desk->arena = arena_new();
	if (desk->settings)
		desk->session = cli_ledger_ready(desk->settings);
	if (desk->session)
		rows = cli_call(desk->session, &call);
	if (!rows)
		return false;
	good = records_secrets_take(&desk->secrets, rows);
	pg_rows_free(rows);
	if (!good)
		cli_failed("the ledger's secrets are missing");
	return good;
}

int desk_run(struct desk *desk, const struct cli_args *args, int (*work)(struct desk *))
{
	int result = desk_open(desk, args) ? work(desk) : CLI_FAILED;

	if (desk->session)
		pg_session_close(desk->session);
	if (desk->settings)
		settings_release(desk->settings);
	arena_free(desk->arena);
	return result;
}

static struct span opt(const char *text)
{
	return text ? span_of(text) : (struct span){ NULL, 0 };
}

void desk_operation(const struct desk *desk)
{
	const char *name = desk->args->operation;

	if (name && !records_operation_named(desk->settings, span_of(name)))
		fprintf(stderr, "onceward: %s has no operation %s\n", desk->args->file, name);
}

/* Who sees accounts and keys in clear is noted before. */
static bool note_reveal(struct desk *desk, struct span about)
{
	char name[64];
	struct actor actor = { cli_who(desk->args, name), SPAN("--reveal") };
	struct records_call call;
	struct pg_rows *rows = NULL;

	if (!desk->args->reveal)
		return true;
	records_audit(&actor, SPAN("reveal"), about, &call);
	rows = cli_call(desk->session, &call);
	pg_rows_free(rows);
	return rows != NULL;
}

/* --- list --- */

static void show_list(json_t *page)
{
	static const struct cli_column columns[] = {
		{ "ID", "logical_request_id", 30 },
		{ "STATE", "state", 9 },
		{ "OPERATION", "operation", 20 },
		{ "ACCOUNT", "account", 12 },
		{ "KEY", "key", 12 },
		{ "CREATED", "created_at", 24 },
		{ "GENERATION", "generation", 10 },
		{ "STATUS", "status", 6 },
		{ "CAUSE", "cause", 0 },
	};
	const char *next = json_string_value(json_object_get(page, "next_cursor"));

	cli_table(json_object_get(page, "records"), columns, ARRAY_LEN(columns));
	if (next)
		fprintf(stdout, "there may be more: --cursor %s\n", next);
	else if (!json_array_size(json_object_get(page, "records")))
		fputs("none\n", stdout);
}

static int print_json(struct desk *desk, const struct buf *text, void (*show_it)(json_t *))
{
	json_t *value = json_loadb(text->at, text->len, 0, NULL);

	if (!value)
		return cli_failed("the answer is too large: use --limit");
	if (desk->args->json)
		cli_json(value);
	else
		show_it(value);
	json_decref(value);
	return CLI_DONE;
}

static int list(struct desk *desk)
{
	const struct cli_args *args = desk->args;
	struct records_filter filter = { opt(args->state),   opt(args->operation),
					 opt(args->account), opt(args->older_than),
					 opt(args->limit),   opt(args->cursor),
					 args->reveal };
	struct records_call call;
	const char *wrong = records_list(desk->arena, &desk->secrets, &filter, &call);
	struct pg_rows *rows = NULL;
	struct buf out;
	int result = CLI_FAILED;

	if (wrong) {
		cli_failed("%s", wrong);
		return CLI_USAGE;
	}
	desk_operation(desk);
	rows = note_reveal(desk, SPAN("a list of records")) ? cli_call(desk->session, &call)
							    : NULL;
	if (!rows)
		return CLI_FAILED;
	buf_init(&out, OUT_MAX);
	records_put_list(&out, &desk->secrets, &filter, rows);
	pg_rows_free(rows);
	result = print_json(desk, &out, show_list);
	buf_fini(&out);
	return result;
}

int cli_records_list(const struct cli_args *args)
{
	struct desk desk;

	return desk_run(&desk, args, list);
}

/* --- one --- */

/* What the call found. */
static int print_one(struct desk *desk, const struct records_call *call, const char *missing)
{
	struct pg_rows *rows = cli_call(desk->session, call);
	struct buf out;
	int result = CLI_FAILED;

	if (!rows)
		return CLI_FAILED;
	buf_init(&out, OUT_MAX);
	if (records_put_one(&out, &desk->secrets, rows))
		result = print_json(desk, &out, cli_object);
	else
		cli_failed("%s", missing);
	buf_fini(&out);
	pg_rows_free(rows);
	return result;
}

static bool read_id(struct desk *desk, bool loose, struct record_ref *ref)
{
	struct span id = span_of(desk->args->word[2]);

	if (loose ? records_ref_loose(&desk->secrets, id, ref)
		  : records_ref(&desk->secrets, id, ref))
		return true;
	cli_failed("%s is no id that this ledger has given out: it is the req_... of "
		   "Idempotency-Request-Id, of a problem document or of `records list`",
		   desk->args->word[2]);
	return false;
}

static int show(struct desk *desk)
{
	struct record_ref ref;
	struct records_call call;

	if (!read_id(desk, true, &ref) || !note_reveal(desk, span_of(desk->args->word[2])))
		return CLI_FAILED;
	records_show(desk->arena, &ref, desk->args->reveal, &call);
	return print_one(
		desk, &call,
		"the ledger holds nothing of this record any more, but perhaps its key: "
		"`records find KEY` tells");
}

int cli_records_show(const struct cli_args *args)
{
	struct desk desk;

	return desk_run(&desk, args, show);
}

static int find(struct desk *desk)
{
	const struct cli_args *args = desk->args;
	struct record_key key = { span_of(args->account), span_of(args->operation),
				  span_of(args->word[2]) };
	struct records_call call;

	desk_operation(desk);
	if (!note_reveal(desk, records_about(desk->arena, &desk->secrets, &key)))
		return CLI_FAILED;
	records_find(desk->arena, &desk->secrets, &key, args->reveal, &call);
	return print_one(
		desk, &call,
		"there is no record of this key for this operation and account: it was "
		"never used, was released, or is forgotten");
}

int cli_records_find(const struct cli_args *args)
{
	struct desk desk;

	return desk_run(&desk, args, find);
}

/* --- resolve --- */

static bool read_number(const char *text, const char *option, int *number)
{
	char *end = NULL;
	long value = strtol(text, &end, 10);

	*number = (int)value;
	if (text[0] >= '0' && text[0] <= '9' && !*end && value >= 1 && value <= 32767)
		return true;
	cli_failed("%s: a number is wanted, not \"%s\"", option, text);
	return false;
}

static int usage(const char *sentence)
{
	cli_failed("%s", sentence);
	return CLI_USAGE;
}

static bool read_headers(struct desk *desk, struct http_fields *fields)
{
	fields->at = arena_zero(desk->arena, CLI_HEADERS_MAX * sizeof(*fields->at));
	for (unsigned i = 0; i < CLI_HEADERS_MAX && desk->args->header[i]; i++)
		if (!cli_header(fields, desk->args->header[i]))
			return false;
	return true;
}

/* CLI_DONE: it is read. */
static int read_resolution(struct desk *desk, struct resolution *it)
{
	const struct cli_args *args = desk->args;
	int status = 0;

	if (!args->completed == !args->not_executed)
		return usage("say either --completed STATUS or --not-executed");
	if (args->not_executed && (args->body || args->header[0] || args->receipt))
		return usage("what was not executed has no --body, --header or --receipt");
	if ((args->completed && !read_number(args->completed, "--completed", &status)) ||
	    (args->generation &&
	     !read_number(args->generation, "--generation", &it->generation)) ||
	    (args->amend && !read_number(args->amend, "--amend", &it->amends)))
		return CLI_USAGE;
	it->completed = args->completed != NULL;
	it->status = (unsigned)status;
	it->receipt = opt(args->receipt);
	it->evidence = span_of(args->evidence);
	return read_headers(desk, &it->fields) ? CLI_DONE : CLI_USAGE;
}

static bool read_body(struct desk *desk, struct resolution *it)
{
	struct buf body;
	bool too_large = false;

	if (!desk->args->body)
		return true;
	if (!cli_read(desk->args->body, BODY_MAX, &body, &too_large))
		return false;
	if (too_large)
		cli_failed("%s is larger than 64 MiB", cli_file_name(desk->args->body));
	it->body = arena_copy(desk->arena, buf_view(&body));
	buf_fini(&body);
	return !too_large;
}

/* The settings of the record's operation, NULL where they have none; false: no such record. */
static bool find_operation(struct desk *desk, const struct record_ref *ref,
			   const struct idempotency_settings **operation)
{
	struct records_call call;
	struct pg_rows *rows = NULL;
	bool there = false;

	records_operation(desk->arena, ref, &call);
	rows = cli_call(desk->session, &call);
	if (!rows)
		return false;
	there = pg_rows_count(rows) > 0;
	if (there)
		*operation = records_operation_named(desk->settings, pg_text(rows, 0, 0));
	else
		cli_failed("there is no such record, or its time is over");
	pg_rows_free(rows);
	return there;
}

/* What stands there, behind a refusal. */
static int refuse(struct desk *desk, const struct record_ref *ref, const char *why)
{
	struct records_call call;

	cli_failed("%s", why);
	records_show(desk->arena, ref, false, &call);
	(void)print_one(desk, &call, "there is no such record");
	return CLI_FAILED;
}

static int resolve(struct desk *desk)
{
	struct resolution it = { 0 };
	const struct idempotency_settings *operation = NULL;
	struct record_ref ref;
	struct records_call call;
	struct pg_rows *rows = NULL;
	const char *wrong = NULL;
	char name[64];
	int result = read_resolution(desk, &it);

	if (result != CLI_DONE)
		return result;
	it.who = cli_who(desk->args, name);
	if (!read_id(desk, false, &ref) || !find_operation(desk, &ref, &operation) ||
	    !read_body(desk, &it))
		return CLI_FAILED;
	wrong = records_resolve(desk->arena, &ref, operation, &it, &call);
	if (wrong)
		return usage(wrong);
	rows = cli_call(desk->session, &call);
	if (!rows)
		return CLI_FAILED;
	wrong = records_refused(pg_text(rows, 0, 0));
	pg_rows_free(rows);
	if (wrong)
		return refuse(desk, &ref, wrong);
	records_show(desk->arena, &ref, false, &call);
	return print_one(desk, &call, "it is resolved, and gone");
}

int cli_records_resolve(const struct cli_args *args)
{
	struct desk desk;

	return desk_run(&desk, args, resolve);
}
