/*
 * POST /v1/accounts/erase (CONTRACT 12, 15): what is kept of an account goes, but hashes. The ledger
 * does it (sql/schema/0003.sql), within some seconds as far as it gets, and the back office goes on.
 * The account is in the request's body and in no path, log or answer.
 */
#include "admin_internal.h"

struct erasing {
	struct admin_task task;
	struct asked asked;
	bool dry;
};

static struct http_answer erased(struct admin_task *task, struct pg_rows *const *rows)
{
	struct erasing *e = container_of(task, struct erasing, task);
	struct span n = pg_bytes(rows[0], 0, 0), waiting = pg_bytes(rows[0], 0, 1);

	return admin_json(
		&e->asked,
		arena_format(e->asked.arena,
			     "{\"dry_run\": %s, \"erased\": %.*s, \"waiting\": %.*s}\n",
			     e->dry ? "true" : "false", (int)n.len, n.at, (int)waiting.len,
			     waiting.at));
}

/* NULL, or what is wrong. */
static const char *read(const json_t *body, struct erasing *e, struct span *account,
			struct span *reason)
{
	const json_t *dry = json_object_get(body, "dry_run");

	*account = admin_string(body, "account");
	*reason = admin_string(body, "reason");
	e->dry = json_is_true(dry);
	if (account->len < 1 || account->len > RECORDS_ACCOUNT_MAX)
		return "account is needed, as a string of 1 to 255 bytes";
	if (!records_says_something(*reason))
		return "A reason is needed, as a string";
	if (dry && !json_is_boolean(dry))
		return "dry_run is true or false";
	return NULL;
}

struct http_answer admin_accounts_erase(struct asked *asked)
{
	struct erasing *e = arena_zero(asked->arena, sizeof(*e));
	struct http_answer refusal;
	struct actor actor = { .who = asked->who };
	struct span account;
	const char *wrong = NULL;
	const json_t *body = admin_object(asked, "", "account reason dry_run", &refusal);

	if (!body)
		return refusal;
	wrong = read(body, e, &account, &actor.reason);
	if (wrong)
		return admin_refuse(asked, PROBLEM_ADMIN_INVALID, wrong);
	e->asked = *asked;
	e->task.request = asked->request;
	e->task.done = erased;
	e->task.changes = !e->dry;
	e->task.n = 1;
	records_erase(asked->arena, account, e->dry, &actor, &e->task.calls[0]);
	return admin_ask(asked, &e->task);
}
