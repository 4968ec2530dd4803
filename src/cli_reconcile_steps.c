/*
 * The steps of a reconciliation: lines go to the ledger some at a time, and come back with what
 * they are to it. Then the records that wait for somebody and were on no line.
 */
#include "cli_reconcile.h"

#include "mem.h"

#include <stdio.h>
#include <stdlib.h>

#define STEP       100U
#define STEP_BYTES ((size_t)4 * 1024 * 1024) /* of bodies */
#define TRIES      5

/* Arrays as PostgreSQL reads them from text. */
struct arrays {
	struct buf text[7];
	unsigned n;
};

static void arrays_begin(struct arrays *arrays, unsigned n)
{
	arrays->n = n;
	for (unsigned i = 0; i < n; i++) {
		buf_init(&arrays->text[i], SIZE_MAX);
		buf_byte(&arrays->text[i], '{');
	}
}

static void arrays_add(struct arrays *arrays, unsigned i, struct span value)
{
	struct buf *text = &arrays->text[i];

	if (text->len > 1)
		buf_byte(text, ',');
	if (!value.at) {
		buf_text(text, "NULL");
		return;
	}
	buf_byte(text, '"');
	if (value.len && value.at[0] == '\\') /* \x...: the only one there is */
		buf_byte(text, '\\');
	buf_span(text, value);
	buf_byte(text, '"');
}

static void arrays_end(struct arrays *arrays, struct records_call *call)
{
	for (unsigned i = 0; i < arrays->n; i++) {
		buf_byte(&arrays->text[i], '}');
		call->param[call->n++] = buf_view(&arrays->text[i]);
	}
}

static void arrays_free(struct arrays *arrays)
{
	for (unsigned i = 0; i < arrays->n; i++)
		buf_fini(&arrays->text[i]);
}

/* Two that lock the same rows in another order take turns. */
static struct pg_rows *run(struct reconcile *r, const struct records_call *call)
{
	struct cli_error error;

	for (int i = 0; i < TRIES; i++) {
		struct pg_rows *rows = cli_transact(r->desk.session, call, &error);

		if (rows)
			return rows;
		if (strcmp(error.state, "40P01") != 0 && strcmp(error.state, "40001") != 0 &&
		    strcmp(error.state, "55P03") != 0)
			break;
	}
	cli_failed("%s; steps that were done stay done, run it again for the rest", error.why);
	return NULL;
}

static void progress(const char *what, size_t done, size_t of)
{
	if (done % 1000 < STEP || done == of)
		fprintf(stderr, "%s: %zu of %zu\n", what, done, of);
}

static struct span yes_no(bool flag)
{
	return flag ? SPAN("true") : SPAN("false");
}

/* --- lines --- */

static void add_line(struct arena *arena, const struct reconcile *r, struct arrays *arrays,
		     const struct reconcile_line *line)
{
	const struct span none = { NULL, 0 };
	const struct report_line *said = line->said;
	struct record_key key = { said->account, span_of(r->desk.args->operation), said->key };
	bool by_id = line->op_id != 0;
	bool bodiless = said->status == 204 || said->status == 205 || said->status == 304;

	arrays_add(arrays, 0, by_id ? records_number(arena, line->op_id) : none);
	arrays_add(arrays, 1, by_id ? records_number(arena, line->day) : none);
	arrays_add(arrays, 2, by_id ? none : records_hash(arena, &r->desk.secrets, &key));
	arrays_add(arrays, 3, records_number(arena, said->status));
	arrays_add(arrays, 4, SPAN("\\x"));
	arrays_add(arrays, 5, bodiless ? SPAN("\\x") : records_hex(arena, said->body));
	arrays_add(arrays, 6, records_hex(arena, said->receipt));
}

/* Lines that are left alone are looked up as well: their records are named by the report. */
static bool belongs(const struct reconcile_line *line, bool left_alone)
{
	if (line->verdict == VERDICT_BAD_ID)
		return false;
	return left_alone == (line->verdict != VERDICT_NONE);
}

/* Some lines on their way. */
struct step {
	bool left_alone;
	size_t at; /* the next line */
	size_t n;
	struct reconcile_line *line[STEP];
	struct arrays arrays;
};

/* The next lines that belong to it. */
static void gather(struct arena *arena, struct reconcile *r, struct step *step)
{
	size_t bytes = 0;

	arrays_begin(&step->arrays, 7);
	for (step->n = 0; step->at < r->n && step->n < STEP && bytes < STEP_BYTES; step->at++) {
		struct reconcile_line *line = &r->lines[step->at];

		if (!belongs(line, step->left_alone))
			continue;
		bytes += line->said->body.len;
		add_line(arena, r, &step->arrays, line);
		step->line[step->n++] = line;
	}
}

static void take(const struct step *step, const struct pg_rows *rows)
{
	for (size_t row = 0; row < pg_rows_count(rows); row++) {
		size_t place = (size_t)records_int(rows, row, 0);
		struct reconcile_line *line =
			place >= 1 && place <= step->n ? step->line[place - 1] : NULL;

		if (!line)
			continue;
		line->op_id = records_int(rows, row, 1);
		line->day = (int32_t)records_int(rows, row, 2);
		if (line->verdict == VERDICT_NONE)
			line->verdict = reconcile_verdict(pg_text(rows, row, 3));
	}
}

static bool receipt_unique(const struct reconcile *r)
{
	const struct idempotency_settings *it =
		records_operation_named(r->desk.settings, span_of(r->desk.args->operation));

	return it && it->response.receipt_unique;
}

static bool step_lines(struct arena *arena, struct reconcile *r, struct step *step)
{
	struct records_call call = { QUERY_reconcile_lines,
				     { records_hex(arena, span_of(r->desk.args->operation)),
				       yes_no(r->desk.args->apply && !step->left_alone),
				       span_of(r->desk.args->evidence), r->who,
				       records_number(arena, records_writer()) },
				     5 };
	struct pg_rows *rows = NULL;
	bool good = true;

	gather(arena, r, step);
	if (step->n) {
		arrays_end(&step->arrays, &call);
		call.param[call.n++] = yes_no(receipt_unique(r));
		rows = run(r, &call);
		good = rows != NULL;
	}
	if (rows)
		take(step, rows);
	pg_rows_free(rows);
	arrays_free(&step->arrays);
	return good;
}

static bool walk_lines(struct reconcile *r, bool left_alone)
{
	struct step step = { .left_alone = left_alone };
	bool good = true;

	while (good && step.at < r->n) {
		struct arena *arena = arena_new();

		good = step_lines(arena, r, &step);
		arena_free(arena);
		if (good && !left_alone)
			progress("lines", step.at, r->n);
	}
	return good;
}

/* First those that are left alone: nothing is seen of them that this run has changed. */
bool reconcile_lines(struct reconcile *r)
{
	return walk_lines(r, true) && walk_lines(r, false);
}

/* --- what the report does not name --- */

static int by_op_id(const void *a, const void *b)
{
	const int64_t *x = a;
	const int64_t *y = b;

	return (*x > *y) - (*x < *y);
}

/* The records of all lines, sorted. */
static int64_t *named(struct reconcile *r)
{
	int64_t *ids = arena_alloc(r->desk.arena, (r->n + 1) * sizeof(*ids));

	for (size_t i = 0; i < r->n; i++)
		ids[i] = r->lines[i].op_id;
	qsort(ids, r->n, sizeof(*ids), by_op_id);
	return ids;
}

static void add_absent(struct reconcile *r, size_t *room, int64_t op_id, int32_t day)
{
	if (r->n_absent == *room) {
		struct reconcile_line *at = NULL;

		*room = *room ? 2 * *room : 1024;
		at = arena_zero(r->desk.arena, *room * sizeof(*at));
		if (r->n_absent)
			memcpy(at, r->absent, r->n_absent * sizeof(*at));
		r->absent = at;
	}
	r->absent[r->n_absent++] =
		(struct reconcile_line){ NULL, VERDICT_LEDGER_ONLY, op_id, day };
}

/* A page of what waits; `call` then asks for the next. False: there is none, or it failed. */
static bool look(struct reconcile *r, const int64_t *ids, size_t *room,
		 struct records_call *call, bool *failed)
{
	struct pg_rows *rows = cli_call(r->desk.session, call);
	bool more = false;

	*failed = rows == NULL;
	for (size_t row = 0; rows && row < pg_rows_count(rows); row++) {
		int64_t op_id = records_int(rows, row, 0);

		if (!op_id) {
			call->param[5] =
				records_number(r->desk.arena, records_int(rows, row, 3));
			call->param[6] =
				records_number(r->desk.arena, records_int(rows, row, 4));
			more = true;
		} else if (!bsearch(&op_id, ids, r->n, sizeof(*ids), by_op_id)) {
			add_absent(r, room, op_id, (int32_t)records_int(rows, row, 1));
		}
	}
	pg_rows_free(rows);
	return more && r->n_absent < REPORT_LINES_MAX;
}

static int line_by_op_id(const void *a, const void *b)
{
	const struct reconcile_line *x = a;
	const struct reconcile_line *y = b;

	return (x->op_id > y->op_id) - (x->op_id < y->op_id);
}

static bool find_absent(struct reconcile *r)
{
	struct records_filter filter = { .state = SPAN("unknown"),
					 .operation = span_of(r->desk.args->operation),
					 .limit = SPAN("1000") };
	const char *account = r->desk.args->account; /* of others the report says nothing */
	struct records_call call;
	const char *wrong = NULL;
	const int64_t *ids = named(r);
	size_t room = 0;
	bool failed = false;

	if (account)
		filter.account = span_of(account);
	wrong = records_list(r->desk.arena, &r->desk.secrets, &filter, &call);
	failed = wrong != NULL;

	while (!failed && look(r, ids, &room, &call, &failed))
		continue;
	if (r->n_absent)
		qsort(r->absent, r->n_absent, sizeof(*r->absent), line_by_op_id);
	return !failed;
}

static bool step_absent(struct arena *arena, struct reconcile *r, size_t at, size_t n)
{
	struct arrays arrays;
	struct records_call call = { QUERY_reconcile_absent,
				     { yes_no(r->desk.args->apply),
				       span_of(r->desk.args->as_of),
				       span_of(r->desk.args->evidence), r->who,
				       records_number(arena, records_writer()) },
				     5 };
	struct pg_rows *rows = NULL;

	arrays_begin(&arrays, 2);
	for (size_t i = at; i < at + n; i++) {
		arrays_add(&arrays, 0, records_number(arena, r->absent[i].op_id));
		arrays_add(&arrays, 1, records_number(arena, r->absent[i].day));
	}
	arrays_end(&arrays, &call);
	rows = run(r, &call);
	arrays_free(&arrays);
	for (size_t row = 0; rows && row < pg_rows_count(rows) && row < n; row++)
		r->absent[at + row].verdict = reconcile_verdict(pg_text(rows, row, 2));
	pg_rows_free(rows);
	return rows != NULL;
}

bool reconcile_absent(struct reconcile *r)
{
	if (!find_absent(r))
		return false;
	for (size_t at = 0; r->desk.args->absent_is_proof && at < r->n_absent;) {
		size_t left = r->n_absent - at;
		size_t n = left < STEP ? left : STEP;
		struct arena *arena = arena_new();
		bool good = step_absent(arena, r, at, n);

		arena_free(arena);
		if (!good)
			return false;
		at += n;
		progress("absent", at, r->n_absent);
	}
	return true;
}
