/*
 * `onceward operations`: what the ledger holds of each operation, how a changed identity is
 * accepted, and how one is stopped and resumed (CONTRACT 9). Gateways obey a stop within two
 * seconds; it ends by a person's word alone.
 */
#include "cli_internal.h"

#include "mem.h"

#include <stdio.h>

#define OUT_MAX ((size_t)64 * 1024 * 1024)

/* --- list --- */

static void show(const json_t *operations)
{
	static const struct cli_column columns[] = {
		{ "OPERATION", "operation", 40 },
		{ "IDENTITY", "identity", 19 },
		{ "SINCE", "since", 24 },
		{ "UNKNOWN", "unknown", 8 },
		{ "OLDEST", "oldest_unknown_seconds", 8 },
		{ "STOPPED", "stopped", 0 },
	};
	static const struct cli_column stops[] = {
		{ "REASON", "reason", 18 },   { "SCOPE", "scope", 13 },
		{ "ACCOUNT", "account", 12 }, { "RAISED", "raised_at", 24 },
		{ "BY", "raised_by", 16 },    { "DETAIL", "detail", 0 },
	};
	cli_table(operations, columns, ARRAY_LEN(columns));
	for (size_t i = 0; i < json_array_size(operations); i++) {
		const json_t *one = json_array_get(operations, i);
		const json_t *open = json_object_get(one, "stops");
		const char *name = json_string_value(json_object_get(one, "operation"));

		if (json_array_size(open) == 0)
			continue;
		fprintf(stdout, "\nstops of %s\n", name ? name : "all operations");
		cli_table(open, stops, ARRAY_LEN(stops));
	}
}

static int list(struct desk *desk)
{
	struct records_call call = { .query = QUERY_operations_list };
	struct pg_rows *rows = cli_call(desk->session, &call);
	json_t *value = NULL;
	struct buf out;

	if (!rows)
		return CLI_FAILED;
	buf_init(&out, OUT_MAX);
	records_put_operations(&out, desk->settings, rows);
	pg_rows_free(rows);
	value = json_loadb(out.at, out.len, 0, NULL);
	buf_fini(&out);
	if (!value)
		return cli_failed("there are more operations than can be shown");
	if (desk->args->json)
		cli_json(json_object_get(value, "operations"));
	else
		show(json_object_get(value, "operations"));
	json_decref(value);
	return CLI_DONE;
}

int cli_operations_list(const struct cli_args *args)
{
	struct desk desk;

	return desk_run(&desk, args, list);
}

/* --- changes --- */

static struct actor actor_of(const struct desk *desk, char name[64])
{
	return (struct actor){ cli_who(desk->args, name), span_of(desk->args->reason) };
}

/* Runs it and prints one of two sentences: 0 and false are the second. */
static int change(struct desk *desk, const struct records_call *call, const char *done,
		  const char *not_done)
{
	struct pg_rows *rows = cli_call(desk->session, call);
	struct span answer;
	bool nothing = false;

	if (!rows)
		return CLI_FAILED;
	answer = pg_text(rows, 0, 0);
	nothing = span_equal(answer, SPAN("false")) || span_equal(answer, SPAN("0"));
	pg_rows_free(rows);
	fprintf(stdout, "%s: %s\n",
		desk->args->word[2] ? desk->args->word[2] : "all operations",
		nothing ? not_done : done);
	return CLI_DONE;
}

static int adopt(struct desk *desk)
{
	const struct idempotency_settings *it =
		records_operation_named(desk->settings, span_of(desk->args->word[2]));
	struct records_call call;
	char name[64];
	struct actor actor = actor_of(desk, name);

	if (!it)
		return cli_failed("%s has no operation %s", desk->args->file,
				  desk->args->word[2]);
	records_adopt(desk->arena, it, &actor, &call);
	return change(desk, &call,
		      "adopted; running gateways take it up on a reload (SIGHUP), or when they "
		      "next connect to the ledger",
		      "the ledger holds this identity already");
}

int cli_operations_adopt(const struct cli_args *args)
{
	struct desk desk;

	return desk_run(&desk, args, adopt);
}

static struct span account_of(const struct cli_args *args)
{
	return args->account ? span_of(args->account) : (struct span){ NULL, 0 };
}

static int stop(struct desk *desk)
{
	struct span name = span_of(desk->args->word[2]);
	struct records_call call;
	char who[64];
	struct actor actor = actor_of(desk, who);

	if (!records_operation_valid(name))
		return cli_failed("%s cannot be an operation's name", desk->args->word[2]);
	if (!records_operation_named(desk->settings, name))
		fprintf(stderr,
			"onceward: %s has no operation %s; it is stopped all the same\n",
			desk->args->file, desk->args->word[2]);
	records_stop(desk->arena, name, account_of(desk->args), &actor, &call);
	return change(desk, &call, "stopped; gateways obey within two seconds",
		      "it is stopped already");
}

int cli_operations_stop(const struct cli_args *args)
{
	struct desk desk;

	return desk_run(&desk, args, stop);
}

static int resume(struct desk *desk)
{
	struct span name = { NULL, 0 };
	struct records_call call;
	char who[64];
	struct actor actor = actor_of(desk, who);

	if (desk->args->words == 3)
		name = span_of(desk->args->word[2]);
	records_resume(desk->arena, name, account_of(desk->args), &actor, &call);
	return change(desk, &call, "resumed; gateways obey within two seconds",
		      "nothing is stopped there: `onceward operations list` shows what is");
}

int cli_operations_resume(const struct cli_args *args)
{
	struct desk desk;

	if ((args->words == 3) == args->all || (args->all && args->account)) {
		cli_failed("say either NAME or --all; --account goes with NAME");
		return CLI_USAGE;
	}
	return desk_run(&desk, args, resume);
}
