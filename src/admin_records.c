/*
 * Records over HTTP: lists, one of them by its id or by its key (CONTRACT 15). Nobody sees a
 * payload here; accounts and keys in clear only an operator who asks for it, where the settings
 * admit it, and the audit table says who did.
 */
#include "admin_internal.h"

#define OUT_MAX ((size_t)64 * 1024 * 1024)

struct shown {
	struct admin_task task;
	struct asked asked;
	struct records_filter filter; /* of a list */
	struct records_secrets secrets;
	const char *missing; /* what it means that there is no record */
};

/* The secrets may change while the question is under way: of its own it has a copy. */
static struct shown *shown_new(const struct asked *asked,
			       struct http_answer (*done)(struct admin_task *,
							  struct pg_rows *const *))
{
	const struct records_secrets *secrets =
		asked->view->ledger ? admin_ledger_secrets(asked->view->ledger) : NULL;
	struct shown *shown = NULL;

	if (!secrets)
		return NULL;
	shown = arena_zero(asked->arena, sizeof(*shown));
	shown->asked = *asked;
	shown->task.request = asked->request;
	shown->task.done = done;
	shown->secrets = *secrets;
	return shown;
}

static struct http_answer away(const struct asked *asked)
{
	return admin_refuse(asked, PROBLEM_LEDGER_UNAVAILABLE, "PostgreSQL is not reached");
}

/* ?reveal=1. False: `*answer` says why not. */
static bool read_reveal(const struct asked *asked, bool *reveal, struct http_answer *answer)
{
	struct span value;

	if (!admin_parameter(asked, SPAN("reveal"), &value) ||
	    (value.at && !span_equal(value, SPAN("1")) && !span_equal(value, SPAN("0")))) {
		*answer = admin_refuse(asked, PROBLEM_ADMIN_INVALID, "reveal is 1 or 0");
		return false;
	}
	*reveal = value.at && span_equal(value, SPAN("1"));
	if (*reveal && (asked->role < ADMIN_OPERATOR || !asked->view->settings->admin.reveal)) {
		*answer = admin_refuse(asked, PROBLEM_FORBIDDEN,
				       "reveal needs a token of an operator, and admin.reveal");
		return false;
	}
	return true;
}

/* Who sees what is noted in the same transaction. */
static void note_reveal(struct shown *shown, bool reveal, struct span about)
{
	struct actor actor = { shown->asked.who, SPAN("reveal=1") };

	if (!reveal)
		return;
	records_audit(&actor, SPAN("reveal"), about, &shown->task.calls[shown->task.n++]);
	shown->task.changes = true;
}

static struct http_answer finished(const struct asked *asked, const struct buf *out)
{
	if (out->full)
		return admin_refuse(asked, PROBLEM_ADMIN_INVALID,
				    "The answer would be too large: use limit");
	return admin_json(asked, buf_view(out));
}

/* --- list --- */

static struct http_answer listed(struct admin_task *task, struct pg_rows *const *rows)
{
	struct shown *shown = container_of(task, struct shown, task);
	struct buf *out = admin_buf(shown->asked.arena, OUT_MAX);

	records_put_list(out, &shown->secrets, &shown->filter, rows[0]);
	return finished(&shown->asked, out);
}

static bool read_filter(const struct asked *asked, struct records_filter *filter)
{
	return admin_only_parameters(
		       asked, "state operation account older_than limit cursor reveal") &&
	       admin_parameter(asked, SPAN("state"), &filter->state) &&
	       admin_parameter(asked, SPAN("operation"), &filter->operation) &&
	       admin_parameter(asked, SPAN("account"), &filter->account) &&
	       admin_parameter(asked, SPAN("older_than"), &filter->older_than) &&
	       admin_parameter(asked, SPAN("limit"), &filter->limit) &&
	       admin_parameter(asked, SPAN("cursor"), &filter->cursor);
}

struct http_answer admin_records_list(struct asked *asked)
{
	struct shown *shown = shown_new(asked, listed);
	struct http_answer refusal;
	const char *wrong = NULL;

	if (!shown)
		return away(asked);
	if (!read_filter(asked, &shown->filter))
		return admin_refuse(asked, PROBLEM_ADMIN_INVALID,
				    "The parameters are state, operation, account, older_than, "
				    "limit, cursor and reveal, each once");
	if (!read_reveal(asked, &shown->filter.reveal, &refusal))
		return refusal;
	wrong = records_list(asked->arena, &shown->secrets, &shown->filter,
			     &shown->task.calls[0]);
	if (wrong)
		return admin_refuse(asked, PROBLEM_ADMIN_INVALID, wrong);
	shown->task.n = 1;
	note_reveal(shown, shown->filter.reveal, SPAN("a list of records"));
	return admin_ask(asked, &shown->task);
}

/* --- one --- */

static struct http_answer one(struct admin_task *task, struct pg_rows *const *rows)
{
	struct shown *shown = container_of(task, struct shown, task);
	struct buf *out = admin_buf(shown->asked.arena, OUT_MAX);

	if (!records_put_one(out, &shown->secrets, rows[0]))
		return admin_refuse(&shown->asked, PROBLEM_RECORD_NOT_FOUND, shown->missing);
	return finished(&shown->asked, out);
}

struct http_answer admin_records_show(struct asked *asked)
{
	struct shown *shown = shown_new(asked, one);
	struct http_answer refusal;
	struct record_ref ref;
	bool reveal = false;

	if (!shown)
		return away(asked);
	if (!admin_only_parameters(asked, "reveal"))
		return admin_refuse(asked, PROBLEM_ADMIN_INVALID,
				    "The only parameter is reveal");
	if (!read_reveal(asked, &reveal, &refusal))
		return refusal;
	if (!records_ref_loose(&shown->secrets, asked->part, &ref))
		return admin_refuse(asked, PROBLEM_RECORD_NOT_FOUND,
				    "No gateway of this ledger has given out this id");
	shown->missing =
		"The ledger holds nothing of this record any more, but perhaps its key: "
		"POST /v1/records/find tells";
	records_show(asked->arena, &ref, reveal, &shown->task.calls[0]);
	shown->task.n = 1;
	note_reveal(shown, reveal, asked->part);
	return admin_ask(asked, &shown->task);
}

struct http_answer admin_records_find(struct asked *asked)
{
	struct shown *shown = shown_new(asked, one);
	struct http_answer refusal;
	const json_t *body = NULL;
	struct record_key key;
	bool reveal = false;

	if (!shown)
		return away(asked);
	if (!read_reveal(asked, &reveal, &refusal))
		return refusal;
	body = admin_object(asked, "reveal", "account operation key", &refusal);
	if (!body)
		return refusal;
	key = (struct record_key){ admin_string(body, "account"),
				   admin_string(body, "operation"), admin_string(body, "key") };
	if (!key.account.len || !key.operation.len || !key.key.len)
		return admin_refuse(asked, PROBLEM_ADMIN_INVALID,
				    "account, operation and key are needed, as strings");
	shown->missing =
		"There is no record of this key for this operation and account: it was "
		"never used, was released, or is forgotten";
	records_find(asked->arena, &shown->secrets, &key, reveal, &shown->task.calls[0]);
	shown->task.n = 1;
	note_reveal(shown, reveal, records_about(asked->arena, &shown->secrets, &key));
	return admin_ask(asked, &shown->task);
}
