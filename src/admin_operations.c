/*
 * Operations over HTTP: what the ledger knows of them, stops, and adopting what the settings say
 * (CONTRACT 9, 15). Every change has a person's name and reason.
 */
#include "admin_internal.h"

#define OUT_MAX ((size_t)64 * 1024 * 1024)

struct operating {
	struct admin_task task;
	struct asked asked;
	const struct settings *settings; /* held until the request ends */
	const char *done, *not_done;     /* the member that a change answers with */
};

static struct operating *operating_new(const struct asked *asked,
				       struct http_answer (*done)(struct admin_task *,
								  struct pg_rows *const *))
{
	struct operating *o = arena_zero(asked->arena, sizeof(*o));

	o->asked = *asked;
	o->settings = asked->view->settings;
	o->task.request = asked->request;
	o->task.done = done;
	o->task.n = 1;
	return o;
}

static struct http_answer listed(struct admin_task *task, struct pg_rows *const *rows)
{
	struct operating *o = container_of(task, struct operating, task);
	struct buf *out = admin_buf(o->asked.arena, OUT_MAX);

	records_put_operations(out, o->settings, rows[0]);
	if (out->full)
		return admin_refuse(&o->asked, PROBLEM_INTERNAL,
				    "There are more operations than fit");
	return admin_json(&o->asked, buf_view(out));
}

struct http_answer admin_operations_list(struct asked *asked)
{
	struct operating *o = operating_new(asked, listed);

	o->task.calls[0] = (struct records_call){ .query = QUERY_operations_list };
	return admin_ask(asked, &o->task);
}

/* --- changes --- */

static struct http_answer changed(struct admin_task *task, struct pg_rows *const *rows)
{
	struct operating *o = container_of(task, struct operating, task);
	struct span result = pg_bytes(rows[0], 0, 0);
	bool nothing = span_equal(result, SPAN("false")) || span_equal(result, SPAN("0"));

	return admin_json(&o->asked,
			  arena_format(o->asked.arena,
				       "{\"operation\": \"%.*s\", \"result\": \"%s\"}\n",
				       (int)o->asked.part.len, o->asked.part.at,
				       nothing ? o->not_done : o->done));
}

/* The reason, and (where it is asked for) the account of the body. NULL: `*refusal`. */
static struct operating *read(const struct asked *asked, struct actor *actor,
			      struct span *account, struct http_answer *refusal)
{
	const json_t *body =
		admin_object(asked, "", account ? "reason account" : "reason", refusal);
	struct operating *o = NULL;

	if (!body)
		return NULL;
	actor->who = asked->who;
	actor->reason = admin_string(body, "reason");
	if (account)
		*account = admin_string(body, "account");
	if (!records_operation_valid(asked->part)) {
		*refusal = admin_refuse(asked, PROBLEM_ADMIN_INVALID,
					"This cannot be an operation's name");
		return NULL;
	}
	if (!records_says_something(actor->reason) ||
	    (account && json_object_get(body, "account") &&
	     !json_is_null(json_object_get(body, "account")) && !account->len) ||
	    (account && account->len > RECORDS_ACCOUNT_MAX)) {
		*refusal = admin_refuse(asked, PROBLEM_ADMIN_INVALID,
					"A reason is needed, as a string; account is one too, "
					"of 1 to 255 bytes");
		return NULL;
	}
	o = operating_new(asked, changed);
	o->task.changes = true;
	return o;
}

/* What is told where it is done, and where there was nothing to do. */
struct stopping {
	const char *done, *not_done;
	void (*call)(struct arena *arena, struct span operation, struct span account,
		     const struct actor *actor, struct records_call *call);
};

static struct http_answer change(struct asked *asked, const struct stopping *how)
{
	struct http_answer refusal;
	struct actor actor;
	struct span account;
	struct operating *o = read(asked, &actor, &account, &refusal);

	if (!o)
		return refusal;
	o->done = how->done;
	o->not_done = how->not_done;
	how->call(asked->arena, asked->part, account, &actor, &o->task.calls[0]);
	return admin_ask(asked, &o->task);
}

struct http_answer admin_operations_stop(struct asked *asked)
{
	return change(asked, &(struct stopping){ "stopped", "was stopped", records_stop });
}

struct http_answer admin_operations_resume(struct asked *asked)
{
	return change(asked,
		      &(struct stopping){ "resumed", "was not stopped", records_resume });
}

struct http_answer admin_operations_adopt(struct asked *asked)
{
	const struct idempotency_settings *it =
		records_operation_named(asked->view->settings, asked->part);
	struct http_answer refusal;
	struct actor actor;
	struct operating *o = read(asked, &actor, NULL, &refusal);

	if (!o)
		return refusal;
	if (!it)
		return admin_refuse(asked, PROBLEM_ADMIN_INVALID,
				    "The settings of this gateway have no such operation");
	o->done = "adopted";
	o->not_done = "was the same";
	records_adopt(asked->arena, it, &actor, &o->task.calls[0]);
	return admin_ask(asked, &o->task);
}
