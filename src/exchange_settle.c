/*
 * FORWARD's end and SETTLE: what the end of a forward means, written down before the client hears of
 * it. See exchange.c.
 *
 * What an answer means is the route's to say (outcome.c); of no answer it is said here. What the
 * client gets follows from what the ledger says it holds, never from the answer alone.
 */
#include "exchange_internal.h"

#include "outcome.h"
#include "receipt.h"
#include "response.h"

static void settle(struct exchange *x, enum ledger_outcome outcome, const char *cause);
static void settled(struct ledger_entry *entry);

/*
 * How a forward ended, what the record says from then on (an answer's status decides by the
 * route's lists), and what the client hears where there is no answer to pass on.
 */
static const struct {
	enum ledger_outcome outcome;
	enum problem problem;
	unsigned status;
	enum metrics_cause cause;
} endings[] = {
	[UPSTREAM_ANSWERED] = { LEDGER_MARK_UNKNOWN, PROBLEM_NONE, 0, CAUSE_STATUS },
	[UPSTREAM_NOT_SENT] = { LEDGER_RELEASE, PROBLEM_UPSTREAM_UNREACHABLE, 0,
				CAUSE_NOT_SENT },
	[UPSTREAM_TOO_LATE] = { LEDGER_RELEASE, PROBLEM_LEDGER_UNAVAILABLE, 0, CAUSE_NOT_SENT },
	[UPSTREAM_TIMED_OUT] = { LEDGER_MARK_UNKNOWN, PROBLEM_RESULT_UNKNOWN, 504,
				 CAUSE_TIMEOUT },
	[UPSTREAM_CUT] = { LEDGER_MARK_UNKNOWN, PROBLEM_RESULT_UNKNOWN, 502, CAUSE_CUT_OFF },
	[UPSTREAM_MALFORMED] = { LEDGER_MARK_UNKNOWN, PROBLEM_RESULT_UNKNOWN, 502,
				 CAUSE_MALFORMED },
};

/* What a status of the route's lists makes of the record. */
static const enum ledger_outcome meanings[] = {
	[OUTCOME_STORE] = LEDGER_COMPLETE,
	[OUTCOME_RELEASE] = LEDGER_RELEASE,
	[OUTCOME_UNKNOWN] = LEDGER_MARK_UNKNOWN,
};

static struct services *services_of(const struct exchange *x)
{
	return x->served.services;
}

static void count_unknown(struct exchange *x, enum metrics_cause cause)
{
	metrics_add(services_of(x)->metrics, METRIC_unknown_total,
		    METRICS_PAIR(x->idempotency->metrics_operation, cause), 1);
}

/*
 * A resend gives nothing free: the attempt before it may have had its effect. Where an execution more
 * is accepted, what was cut off is given free at once.
 */
static enum ledger_outcome without_answer(const struct exchange *x)
{
	if (x->entry.generation > 1)
		return LEDGER_MARK_UNKNOWN;
	if (x->idempotency->recovery.contract == RECOVERY_AT_LEAST_ONCE)
		return LEDGER_RELEASE;
	return endings[x->call.end].outcome;
}

/* What the end of the call makes of the record. */
enum ledger_outcome exchange_judge(struct exchange *x)
{
	const struct upstream_call *call = &x->call;

	/* Whether an answer that ends with its connection is whole, nobody can tell. */
	if (call->end != UPSTREAM_ANSWERED || call->close_delimited)
		return without_answer(x);
	/* It was too large to be held, and what is in it was to decide. */
	if (call->dropped && x->idempotency->outcome.n_when > 0)
		return LEDGER_MARK_UNKNOWN;
	if (x->entry.generation > 1)
		return meanings[outcome_of_resend(x->idempotency, &call->answer, &x->judged)];
	return meanings[outcome_of(x->idempotency, &call->answer, &x->judged)];
}

static const char too_large[] = "the answer's body was too large to be held";

/* Why, for the record and the log; NULL where there is nothing to explain. */
static const char *cause_of(const struct exchange *x, enum ledger_outcome outcome)
{
	const struct upstream_call *call = &x->call;

	if (call->cause || outcome == LEDGER_COMPLETE)
		return call->cause;
	if (call->close_delimited)
		return "the upstream's answer ended with its connection";
	if (x->judged)
		return x->judged;
	if (outcome == LEDGER_RELEASE)
		return "the upstream's status says that nothing was done";
	return call->dropped ? too_large
			     : "the upstream's status does not say whether it was done";
}

void exchange_forwarded(struct upstream_call *call)
{
	struct exchange *x = container_of(call, struct exchange, call);
	enum ledger_outcome outcome = exchange_judge(x);

	forward_ended(&x->served, call);
	metrics_observe(services_of(x)->metrics, METRIC_upstream_seconds,
			x->idempotency->metrics_operation, call->total_us);
	x->problem = endings[call->end].problem;
	x->status = endings[call->end].status;
	if (!x->problem)
		x->answer = forward_answer(call);
	if (x->entry.generation > 1 && outcome != LEDGER_COMPLETE) {
		x->problem = PROBLEM_RESULT_UNKNOWN;
		x->status = 0;
	}
	if (outcome == LEDGER_MARK_UNKNOWN)
		count_unknown(x, endings[call->end].cause);
	settle(x, outcome, cause_of(x, outcome));
}

static const struct span no_body = { "", 0 };

/* SETTLE: what the end means goes into the ledger before the client hears it. Ends in settled(). */
static void settle(struct exchange *x, enum ledger_outcome outcome, const char *cause)
{
	struct ledger_entry *entry = &x->entry;
	size_t keep = (size_t)x->idempotency->response.max_body;

	entry->outcome = outcome;
	entry->cause = cause;
	x->served.cause = cause;
	if (outcome == LEDGER_COMPLETE) {
		const struct response_settings *response = &x->idempotency->response;

		entry->receipt = receipt_of(entry->arena, response, &x->answer);
		x->answer = response_reduced(entry->arena, response, &x->answer);
		entry->result.status = x->answer.status;
		entry->result.fields =
			forward_kept(entry->arena, &x->answer.fields, &response->headers);
		entry->result.body = x->answer.body.len ? x->answer.body : no_body;
		/* completed; later retries get 410 */
		if (x->answer.body.len > keep || x->call.dropped || x->call.streamed)
			entry->result.body = (struct span){ NULL, 0 };
	}
	entry->done = settled;
	ledger_settle(services_of(x)->ledger, entry, x->idempotency->settle_wait);
}

/* The attempt was over for everybody else before it ended: the client hears what the record says. */
static void answer_record(struct exchange *x)
{
	x->problem = PROBLEM_NONE;
	x->status = 0;
	if (x->entry.found != LEDGER_COMPLETED)
		exchange_refuse(x, PROBLEM_RESULT_UNKNOWN, x->served.cause);
	else if (x->entry.retained && !x->call.streamed)
		exchange_replayed(x);
	else
		exchange_refuse(x, PROBLEM_NOT_RETAINED, NULL);
}

/* The answer is there and whole, and the ledger does not have it: what the route says of that. */
static void not_settled(struct exchange *x)
{
	bool late = x->entry.settled == LEDGER_LATE;

	count_unknown(x, CAUSE_SETTLE);
	if (late && x->idempotency->on_settle_failure == SETTLE_FAILURE_DELIVER &&
	    !x->call.dropped && !x->call.streamed) {
		x->unrecorded = true;
		return;
	}
	x->problem = PROBLEM_RESULT_UNKNOWN;
	x->status = 0;
}

/* A refusal says what it says by its status; of a result the client hears what the record says. */
static void without_body(struct exchange *x)
{
	const struct ledger_entry *entry = &x->entry;

	if (entry->outcome == LEDGER_MARK_UNKNOWN || x->call.close_delimited)
		x->problem = PROBLEM_RESULT_UNKNOWN;
	else if (entry->outcome == LEDGER_RELEASE)
		x->answer = response_without_body(entry->arena, &x->answer);
	else
		x->problem = PROBLEM_NOT_RETAINED;
}

/*
 * What the ledger did not take in time, the client may not hear, unless the route says so: it is
 * told that the result is not known, and a retry finds it once the ledger has it. What was not
 * sent stays not sent. To one that has all but the end of an answer nothing can be said: it gets the
 * end, or is cut off.
 */
static void settled(struct ledger_entry *entry)
{
	struct exchange *x = container_of(entry, struct exchange, entry);
	const char *detail = entry->outcome == LEDGER_RELEASE ? NULL : x->served.cause;

	x->served.settle_us = entry->took_us;
	if (entry->settled == LEDGER_FENCED && entry->found != LEDGER_WON) {
		answer_record(x);
		return;
	}
	if (entry->settled != LEDGER_SETTLED && !x->problem) {
		not_settled(x);
	} else if (x->call.dropped && !x->problem) {
		without_body(x);
		detail = detail ? detail : too_large;
	}
	if (x->problem)
		exchange_refuse(x, x->problem, detail);
	else
		exchange_answer(x, VERDICT_FORWARDED, &x->answer);
}
