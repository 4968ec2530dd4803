/*
 * `onceward records reconcile`: a provider's report, of thousands of lines perhaps, against the
 * ledger. What the ledger does not know the end of, and the provider has executed, is completed;
 * with --absent-is-proof what a complete report does not name was not executed. Everything else is
 * told and nothing of it changed. A dry run unless --apply is said.
 *
 * Work is done in steps, each of which is one transaction, so that an end in the middle leaves
 * whole steps, and a second run finds done what the first did. Two lines with one receipt, or two
 * receipts of one key, in the report or in the ledger and the report, are what the whole program is there
 * to prevent: they are told, left alone, and the exit code is 1; so it is for an effect of what the
 * ledger takes for not executed.
 */
#include "cli_reconcile.h"

#include "mem.h"
#include "receipt.h"

#include <stdio.h>
#include <stdlib.h>

#define REPORT_MAX ((size_t)256 * 1024 * 1024)

static const char *const words[] = {
	[VERDICT_NONE] = "not_reached",
	[VERDICT_RESOLVED] = "unknown",
	[VERDICT_SAME] = "same",
	[VERDICT_PROVIDER_ONLY] = "provider_only",
	[VERDICT_IN_FLIGHT] = "in_flight",
	[VERDICT_RELEASED] = "released",
	[VERDICT_OTHER_RECEIPT] = "other_receipt",
	[VERDICT_OTHER_STATUS] = "other_status",
	[VERDICT_NOT_KEPT] = "not_kept",
	[VERDICT_OTHER_OPERATION] = "other_operation",
	[VERDICT_CHANGED] = "changed",
	[VERDICT_BAD_ID] = "bad_id",
	[VERDICT_DOUBLED_RECEIPT] = "doubled_receipt",
	[VERDICT_DOUBLED_KEY] = "doubled_key",
	[VERDICT_NOT_STORED] = "not_stored",
	[VERDICT_ABSENT] = "absent",
	[VERDICT_LEDGER_ONLY] = "ledger_only",
	[VERDICT_TOO_NEW] = "too_new",
};

static const char *const meanings[] = {
	[VERDICT_NONE] = "not looked at before it ended",
	[VERDICT_RESOLVED] = "unknown to the ledger, executed by the provider",
	[VERDICT_SAME] = "completed, as the report says",
	[VERDICT_PROVIDER_ONLY] = "executed by the provider, not in the ledger",
	[VERDICT_IN_FLIGHT] = "still in flight",
	[VERDICT_RELEASED] = "executed by the provider, not executed for the ledger",
	[VERDICT_OTHER_RECEIPT] = "completed with another receipt",
	[VERDICT_OTHER_STATUS] = "completed with another status",
	[VERDICT_NOT_KEPT] = "completed, and no longer kept",
	[VERDICT_OTHER_OPERATION] = "a record of another operation",
	[VERDICT_CHANGED] = "changed at the same moment: run it again",
	[VERDICT_BAD_ID] = "no id of this ledger",
	[VERDICT_DOUBLED_RECEIPT] = "one receipt on several lines",
	[VERDICT_DOUBLED_KEY] = "several lines of one key that say different things",
	[VERDICT_NOT_STORED] = "a status that the operation's outcome.store does not have",
	[VERDICT_ABSENT] = "unknown to the ledger, not in the report: not executed",
	[VERDICT_LEDGER_ONLY] = "unknown to the ledger, not in the report",
	[VERDICT_TOO_NEW] = "unknown to the ledger, newer than the report",
};

enum reconcile_verdict reconcile_verdict(struct span word)
{
	for (size_t i = 1; i < ARRAY_LEN(words); i++)
		if (span_equal(word, span_of(words[i])))
			return (enum reconcile_verdict)i;
	return VERDICT_CHANGED;
}

/* --- what the report says against itself --- */

static int compare_spans(struct span a, struct span b)
{
	size_t n = a.len < b.len ? a.len : b.len;
	int order = n ? memcmp(a.at, b.at, n) : 0;

	return order ? order : (a.len > b.len) - (a.len < b.len);
}

static struct span subject(const struct report_line *line)
{
	return line->id.len ? line->id : line->key;
}

static int same_subject(const struct report_line *a, const struct report_line *b)
{
	int order = compare_spans(subject(a), subject(b));

	return order ? order : compare_spans(a->account, b->account);
}

static int by_receipt(const void *a, const void *b)
{
	const struct reconcile_line *const *x = a;
	const struct reconcile_line *const *y = b;

	return compare_spans((*x)->said->receipt, (*y)->said->receipt);
}

static int by_subject(const void *a, const void *b)
{
	const struct reconcile_line *const *x = a;
	const struct reconcile_line *const *y = b;

	return same_subject((*x)->said, (*y)->said);
}

/* Of one receipt: are they about two records? */
static bool of_two(const struct report_line *a, const struct report_line *b)
{
	return a->receipt.len && same_subject(a, b) != 0;
}

static bool contradict(const struct report_line *a, const struct report_line *b)
{
	return a->status != b->status || compare_spans(a->receipt, b->receipt) != 0 ||
	       compare_spans(a->body, b->body) != 0;
}

/* Lines that are equal in one thing are judged together: where one of them says something else than
 * the first, nothing that any of them says is believed. */
static void judge(struct reconcile_line **order, size_t n,
		  int (*compare)(const void *, const void *),
		  bool (*differ)(const struct report_line *, const struct report_line *),
		  enum reconcile_verdict verdict)
{
	size_t end = 0;

	qsort((void *)order, n, sizeof(struct reconcile_line *), compare);
	for (size_t begin = 0; begin < n; begin = end) {
		bool bad = false;

		for (end = begin; end < n && compare(&order[begin], &order[end]) == 0; end++)
			bad = bad || differ(order[begin]->said, order[end]->said);
		for (size_t i = begin; bad && i < end; i++)
			order[i]->verdict = verdict;
	}
}

static void find_doubles(struct reconcile *r)
{
	struct reconcile_line **order =
		arena_alloc(r->desk.arena, (r->n + 1) * sizeof(struct reconcile_line *));

	for (size_t i = 0; i < r->n; i++)
		order[i] = &r->lines[i];
	judge(order, r->n, by_receipt, of_two, VERDICT_DOUBLED_RECEIPT);
	judge(order, r->n, by_subject, contradict, VERDICT_DOUBLED_KEY);
}

/* --- reading --- */

static bool read_status(struct reconcile *r)
{
	const char *text = r->desk.args->status;

	if (!text)
		return true;
	r->status = strlen(text) == 3 && strspn(text, "0123456789") == 3
			    ? (unsigned)strtol(text, NULL, 10)
			    : 0;
	if (r->status >= 200 && r->status <= 599)
		return true;
	cli_failed("--status: a status from 200 to 599 is wanted, not \"%s\"", text);
	return false;
}

/* Before anything is done: the report is of a moment that PostgreSQL reads, and that is over by its
 * clock. */
static bool read_as_of(struct reconcile *r)
{
	const char *text = r->desk.args->as_of;
	struct records_call call = { QUERY_reconcile_moment, { { NULL, 0 } }, 1 };
	struct pg_rows *rows = NULL;
	bool over = false;

	if (!text)
		return true;
	call.param[0] = span_of(text);
	rows = cli_call(r->desk.session, &call);
	over = rows && span_equal(pg_text(rows, 0, 0), SPAN("true"));
	if (!over)
		cli_failed("--as-of: a moment is wanted that is over, not \"%s\"", text);
	pg_rows_free(rows);
	return over;
}

/* Whose keys are they where a line does not say? */
static struct span default_account(const struct reconcile *r)
{
	const struct idempotency_settings *it =
		records_operation_named(r->desk.settings, span_of(r->desk.args->operation));

	if (r->desk.args->account)
		return span_of(r->desk.args->account);
	if (it && it->account->method == ACCOUNT_ANONYMOUS && it->account->account)
		return span_of(it->account->account);
	return SPAN("");
}

static bool is_stored(const struct reconcile *r, unsigned status)
{
	const struct idempotency_settings *it =
		records_operation_named(r->desk.settings, span_of(r->desk.args->operation));

	return !it || it->outcome_of[status] == OUTCOME_STORE;
}

static bool take_line(struct reconcile *r, struct report_line *said,
		      struct reconcile_line *line)
{
	struct record_ref ref;

	line->said = said;
	if (said->receipt.len)
		said->receipt = receipt_normal(r->desk.arena, said->receipt);
	if (!said->status)
		said->status = r->status;
	if (!said->account.len && said->key.len)
		said->account = default_account(r);
	if (!said->status)
		cli_failed("line %u: there is no status: a column, or --status for all lines",
			   said->line);
	else if (said->key.len && !said->account.len)
		cli_failed("line %u: a key is an account's: a column account, or --account "
			   "for all lines",
			   said->line);
	if (!said->status || (said->key.len && !said->account.len))
		return false;
	if (said->id.len && !records_ref(&r->desk.secrets, said->id, &ref))
		line->verdict = VERDICT_BAD_ID;
	else if (said->id.len) {
		line->op_id = ref.op_id;
		line->day = ref.day;
	}
	if (!is_stored(r, said->status))
		line->verdict = VERDICT_NOT_STORED;
	return true;
}

static bool take_report(struct reconcile *r, struct report *report)
{
	r->n = report->n;
	r->lines = arena_zero(r->desk.arena, (report->n + 1) * sizeof(*r->lines));
	for (size_t i = 0; i < report->n; i++)
		if (!take_line(r, &report->at[i], &r->lines[i]))
			return false;
	find_doubles(r);
	return true;
}

/* --- what came of it --- */

static bool worth_telling(enum reconcile_verdict verdict)
{
	return verdict != VERDICT_NONE && verdict != VERDICT_RESOLVED &&
	       verdict != VERDICT_SAME && verdict != VERDICT_ABSENT;
}

static struct span name_of(struct reconcile *r, const struct reconcile_line *line)
{
	char id[RECORD_ID_BYTES];

	if (!line->op_id)
		return subject(line->said);
	record_id_write(r->desk.secrets.request_id.at, line->op_id, line->day, id);
	return arena_copy(r->desk.arena, span_of(id));
}

static json_t *told(struct reconcile *r, const struct reconcile_line *line)
{
	struct span name = name_of(r, line);
	json_t *one = json_object();

	json_object_set_new(one, "verdict", json_string(words[line->verdict]));
	if (line->said) {
		struct span receipt = line->said->receipt;

		json_object_set_new(one, "line", json_integer(line->said->line));
		json_object_set_new(one, "receipt",
				    receipt.at ? json_stringn(receipt.at, receipt.len)
					       : json_null());
	}
	json_object_set_new(one, "record", json_stringn(name.at, name.len));
	return one;
}

static json_t *result_of(struct reconcile *r)
{
	json_t *counts = json_object();
	json_t *lines = json_array();

	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		if (r->counts[i])
			json_object_set_new(counts, words[i],
					    json_integer((json_int_t)r->counts[i]));
	for (size_t i = 0; i < r->n; i++)
		if (worth_telling(r->lines[i].verdict))
			json_array_append_new(lines, told(r, &r->lines[i]));
	for (size_t i = 0; i < r->n_absent; i++)
		if (worth_telling(r->absent[i].verdict))
			json_array_append_new(lines, told(r, &r->absent[i]));
	return json_pack("{s:b,s:o,s:o}", "applied", r->desk.args->apply, "counts", counts,
			 "differences", lines);
}

static void show(struct reconcile *r, const json_t *result)
{
	static const struct cli_column columns[] = {
		{ "LINE", "line", 7 },
		{ "VERDICT", "verdict", 16 },
		{ "RECORD", "record", 36 },
		{ "RECEIPT", "receipt", 0 },
	};

	cli_table(json_object_get(result, "differences"), columns, ARRAY_LEN(columns));
	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		if (r->counts[i])
			fprintf(stdout, "%8zu  %-16s %s\n", r->counts[i], words[i],
				meanings[i]);
	if (!r->desk.args->apply)
		fputs("nothing was changed; --apply resolves what is unknown\n", stdout);
}

static void count(struct reconcile *r)
{
	for (size_t i = 0; i < r->n; i++)
		r->counts[r->lines[i].verdict]++;
	for (size_t i = 0; i < r->n_absent; i++)
		r->counts[r->absent[i].verdict]++;
}

/* A row for the run, beside those of the records. */
static bool note(struct reconcile *r, const json_t *result)
{
	struct actor actor = { r->who, span_of(r->desk.args->evidence) };
	struct records_call call;
	struct pg_rows *rows = NULL;
	char *counts = json_dumps(json_object_get(result, "counts"), JSON_COMPACT);

	records_audit(&actor, SPAN("reconcile"), span_of(r->desk.args->operation), &call);
	call.param[4] = span_of(counts);
	rows = cli_call(r->desk.session, &call);
	pg_rows_free(rows);
	free(counts); /* jansson's */
	return rows != NULL;
}

/* Whatever was done twice, or may be done again. */
static bool done_twice(const struct reconcile *r)
{
	static const enum reconcile_verdict signs[] = { VERDICT_DOUBLED_RECEIPT,
							VERDICT_DOUBLED_KEY,
							VERDICT_OTHER_RECEIPT,
							VERDICT_RELEASED };
	for (size_t i = 0; i < ARRAY_LEN(signs); i++)
		if (r->counts[signs[i]])
			return true;
	return false;
}

static int finish(struct reconcile *r, bool whole)
{
	json_t *result = NULL;
	int code = CLI_FAILED;

	count(r);
	result = result_of(r);
	if (r->desk.args->json)
		cli_json(result);
	else
		show(r, result);
	if (whole && (!r->desk.args->apply || note(r, result)) && !done_twice(r))
		code = CLI_DONE;
	json_decref(result);
	return code;
}

static int run(struct reconcile *r, struct span text)
{
	struct report report;
	char why[256];
	int code = CLI_FAILED;

	if (!report_read(r->desk.arena, text, &report, why))
		cli_failed("%s: %s", cli_file_name(r->desk.args->word[2]), why);
	else if (take_report(r, &report))
		code = finish(r, reconcile_lines(r) && reconcile_absent(r));
	report_free(&report);
	return code;
}

static int reconcile(struct desk *desk)
{
	struct reconcile *r = container_of(desk, struct reconcile, desk);
	const char *file = r->desk.args->word[2];
	struct buf text;
	bool too_large = false;
	int code = CLI_FAILED;

	if (!read_status(r) || !read_as_of(r))
		return CLI_USAGE;
	desk_operation(desk);
	r->who = cli_who(r->desk.args, r->name);
	if (!cli_read(file, REPORT_MAX, &text, &too_large))
		return CLI_FAILED;
	if (too_large)
		cli_failed("%s is larger than 256 MiB: cut it in pieces", cli_file_name(file));
	else
		code = run(r, buf_view(&text));
	buf_fini(&text);
	return code;
}

/* A time of nobody's zone would be of the wrong one. */
static bool has_zone(const char *time)
{
	size_t len = strlen(time);

	return len > 16 &&
	       (time[len - 1] == 'Z' || (strchr("+-", time[len - 6]) && time[len - 3] == ':'));
}

int cli_records_reconcile(const struct cli_args *args)
{
	struct reconcile r = { .status = 0 };

	if (args->absent_is_proof != (args->as_of != NULL)) {
		cli_failed("--absent-is-proof and --as-of TIME go together: of which moment is "
			   "the report?");
		return CLI_USAGE;
	}
	if (args->as_of && !has_zone(args->as_of)) {
		cli_failed("--as-of: a time like 2030-01-31T12:00:00Z is wanted, not \"%s\"",
			   args->as_of);
		return CLI_USAGE;
	}
	return desk_run(&r.desk, args, reconcile);
}
