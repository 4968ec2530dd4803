/*
 * The admin listener's way to the ledger: a connection of its own, on the office's loop, so that what
 * people ask waits for no request and no request for it. A bounded number of questions is under
 * way; each has its time.
 */
#pragma once
#include "listener.h"
#include "records.h"

#define ADMIN_TASK_CALLS 3U

/* Lives in the request's arena. */
struct admin_task {
	struct http_request *request;
	struct records_call calls[ADMIN_TASK_CALLS]; /* one transaction */
	unsigned n;
	bool changes; /* something: a lost reply leaves it open */
	/* The transaction is committed; rows are those of the calls. Either an answer, or calls and n
	 * set anew and a status of 0: they are sent as another transaction. */
	struct http_answer (*done)(struct admin_task *task, struct pg_rows *const *rows);
};

struct admin_ledger;
struct admin_ledger *admin_ledger_new(struct loop *loop, const struct settings *settings);
void admin_ledger_free(struct admin_ledger *ledger); /* whoever waits is answered first */
/* NULL: the ledger is not there. */
const struct records_secrets *admin_ledger_secrets(const struct admin_ledger *ledger);
/* False: too many are under way. The request gets its answer from here. */
bool admin_ledger_run(struct admin_ledger *ledger, struct admin_task *task) MUST_CHECK;
