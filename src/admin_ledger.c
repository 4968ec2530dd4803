/*
 * What people ask of the ledger over HTTP, under way.
 *
 * A question belongs to a request that waits for its answer. Whichever comes first answers it: the
 * transaction, the end of its time, the end of the connection. PostgreSQL is told a time as well;
 * the one here is for a PostgreSQL that does not say anything. What has been sent can't be taken
 * back, so a question that ran out of time stays until its transaction ends, and counts until
 * then; the request's memory is held for as long.
 */
#include "admin_ledger.h"

#include "log.h"
#include "problem.h"

#include <assert.h>

#define UNDER_WAY_MAX 16U
#define PATIENCE_MS   15000 /* PostgreSQL has 10 s for a statement: people_patience.sql */
#define WHO           "admin ledger"

struct question {
	struct pg_transaction transaction;
	struct list link;
	struct loop_timer timer;
	struct admin_ledger *ledger;
	struct admin_task *task;
	bool answered;
};

struct admin_ledger {
	struct loop *loop;
	struct pg *pg;
	char *conninfo;
	struct pg_params params;
	struct list questions;
	size_t n;
	struct pg_transaction session;
	struct records_secrets secrets;
	bool has_secrets;
};

static void answer(struct question *question, const struct http_answer *answer)
{
	question->answered = true;
	loop_timer_stop(question->ledger->loop, &question->timer);
	listener_answer(question->task->request, answer);
}

static void refuse(struct question *question, enum problem problem, const char *detail)
{
	struct problem_about about = { .problem = problem,
				       .detail = span_of(detail),
				       .retry_after = problem == PROBLEM_INTERNAL ? 0 : 2 };
	struct http_answer refusal = problem_answer(question->task->request->arena, &about);

	answer(question, &refusal);
}

static void end(struct question *question)
{
	struct admin_ledger *ledger = question->ledger;
	struct http_request *request = question->task->request;

	assert(question->answered);
	list_remove(&question->link);
	ledger->n--;
	mem_free(question);
	listener_release(request);
}

static void late(struct loop_timer *timer)
{
	struct question *question = container_of(timer, struct question, timer);

	refuse(question, PROBLEM_LEDGER_UNAVAILABLE,
	       question->task->changes
		       ? "PostgreSQL did not answer in time: whether it was done is not known, "
			 "look before you repeat it"
		       : "PostgreSQL did not answer in time");
}

static void send_call(struct admin_ledger *ledger, const struct records_call *call)
{
	pg_params_clear(&ledger->params);
	for (unsigned i = 0; i < call->n; i++)
		pg_add_if(&ledger->params, call->param[i].at, call->param[i]);
	pg_send(ledger->pg, call->query, &ledger->params);
}

static void send(struct question *question)
{
	struct admin_ledger *ledger = question->ledger;

	pg_begin(ledger->pg, &question->transaction);
	pg_send(ledger->pg, QUERY_people_patience, NULL);
	for (unsigned i = 0; i < question->task->n; i++)
		send_call(ledger, &question->task->calls[i]);
	pg_end(ledger->pg);
	pg_flush(ledger->pg);
	buf_fini(&ledger->params.bytes); /* it may have been a large body */
	pg_params_init(&ledger->params);
}

/* Rolled back; most often PostgreSQL's limits of time. */
static void failed(struct question *question)
{
	const struct pg_transaction *transaction = &question->transaction;

	if (strcmp(transaction->sqlstate, "57014") == 0 ||
	    strcmp(transaction->sqlstate, "55P03") == 0) {
		refuse(question, PROBLEM_LEDGER_UNAVAILABLE,
		       "It took too long, and nothing was done");
		return;
	}
	log_error(WHO, "a statement failed: %s (SQLSTATE %s)", transaction->message,
		  transaction->sqlstate);
	if (strncmp(transaction->sqlstate, "22", 2) == 0)
		refuse(question, PROBLEM_ADMIN_INVALID, "The ledger cannot take these values");
	else
		refuse(question, PROBLEM_INTERNAL,
		       "The ledger refused it, and nothing was done: the log says why");
}

static void committed(struct question *question)
{
	struct admin_task *task = question->task;
	struct http_answer made = task->done(task, question->transaction.rows + 1);

	if (made.status) {
		answer(question, &made);
		end(question);
		return;
	}
	if (pg_up(question->ledger->pg)) {
		send(question);
		return;
	}
	refuse(question, PROBLEM_LEDGER_UNAVAILABLE, "PostgreSQL is not reached");
	end(question);
}

static void done(struct pg_transaction *transaction)
{
	struct question *question = container_of(transaction, struct question, transaction);

	if (!question->answered && transaction->outcome == PG_COMMITTED) {
		committed(question);
		return;
	}
	if (!question->answered && transaction->outcome == PG_FAILED)
		failed(question);
	else if (!question->answered)
		refuse(question, PROBLEM_LEDGER_UNAVAILABLE,
		       question->task->changes ? "The connection to PostgreSQL was lost: "
						 "whether it was done is "
						 "not known, look before you repeat it"
					       : "The connection to PostgreSQL was lost");
	end(question);
}

bool admin_ledger_run(struct admin_ledger *ledger, struct admin_task *task)
{
	struct question *question = NULL;

	assert(ledger->has_secrets && task->n > 0 && task->n <= ADMIN_TASK_CALLS);
	if (ledger->n == UNDER_WAY_MAX)
		return false;
	question = mem_alloc(sizeof(*question));
	question->ledger = ledger;
	question->task = task;
	question->transaction.done = done;
	question->timer.due = late;
	list_append(&ledger->questions, &question->link);
	ledger->n++;
	listener_hold(task->request);
	loop_timer(ledger->loop, &question->timer, PATIENCE_MS);
	send(question);
	return true;
}

/* --- the connection --- */

static void session_done(struct pg_transaction *transaction)
{
	struct admin_ledger *ledger = container_of(transaction, struct admin_ledger, session);

	if (transaction->outcome != PG_COMMITTED)
		return;
	ledger->has_secrets = records_secrets_take(&ledger->secrets, transaction->rows[0]);
	if (!ledger->has_secrets)
		log_error(WHO, "the ledger's secrets are missing");
}

static void up(void *arg)
{
	struct admin_ledger *ledger = arg;

	ledger->session.done = session_done;
	pg_begin(ledger->pg, &ledger->session);
	pg_send(ledger->pg, QUERY_people_secrets, NULL);
	pg_end(ledger->pg);
	pg_flush(ledger->pg);
}

static void down(void *arg, const char *why)
{
	struct admin_ledger *ledger = arg;

	ledger->has_secrets = false;
	log_debug(WHO, "not connected: %s", why);
}

struct admin_ledger *admin_ledger_new(struct loop *loop, const struct settings *settings)
{
	struct admin_ledger *ledger = mem_alloc(sizeof(*ledger));
	const char *conninfo = settings->ledger.maintenance_conninfo;
	struct pg_options options = {
		.prepared = settings->ledger.prepared, .who = WHO, .up = up, .down = down
	};

	ledger->loop = loop;
	ledger->conninfo = mem_text(span_of(conninfo ? conninfo : settings->ledger.conninfo));
	options.conninfo = ledger->conninfo;
	options.arg = ledger;
	list_init(&ledger->questions);
	pg_params_init(&ledger->params);
	ledger->pg = pg_new(loop, &options);
	return ledger;
}

void admin_ledger_free(struct admin_ledger *ledger)
{
	pg_free(ledger->pg);
	assert(ledger->n == 0);
	pg_params_fini(&ledger->params);
	mem_free(ledger->conninfo);
	explicit_bzero(&ledger->secrets, sizeof(ledger->secrets));
	mem_free(ledger);
}

const struct records_secrets *admin_ledger_secrets(const struct admin_ledger *ledger)
{
	return ledger->has_secrets && pg_up(ledger->pg) ? &ledger->secrets : NULL;
}
