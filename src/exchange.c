/*
 * One enforced request, from its head to its answer.
 *
 * The contract:
 *
 *   1. Only the exchange whose reservation won, durably, forwards; and it forwards once.
 *   2. The client hears the upstream's answer only after the ledger holds what it means.
 *   3. A stored answer is given, byte for byte, to every later request of the same account,
 *      operation, key and content; to another content it is refused.
 *   4. Where nobody can know whether the upstream acted, the record says so, and nothing is sent
 *      again but by the route's recovery contract, as the next generation. Only what was provably
 *      not sent, or refused before any effect, is given free; of a resend nothing is.
 *   5. A reservation that is not forwarded is given back.
 *
 *              body          won            ended          settled
 *     RECEIVE -----> RESERVE ----> FORWARD --------> SETTLE --------> ANSWER
 *        |              |  ^ |                                           ^
 *        |              |  +-+ wait                                      |
 *        +--------------+---------- refused or replayed -----------------+
 *
 * Each room is a function that starts its work and an event that ends it; no arrow runs back. The
 * exchange outlives its client: from the body on, the listener reports no departure, and while
 * the ledger still works on its entry it is held. Every exchange answers once.
 *
 * This file knows no socket, no SQL and no clock.
 */
#include "exchange_internal.h"

#include "account.h"
#include "digest.h"
#include "key_source.h"
#include "passthrough.h"

#include <assert.h>

const size_t exchange_size = sizeof(struct exchange);

static void begin(struct served *served);
static void take_key(struct exchange *x);
static void reserve(struct exchange *x);
static void reserved(struct ledger_entry *entry);
static void wait(struct exchange *x);
static void waited(struct ledger_entry *entry);
static void forward(struct exchange *x);
static void end(struct served *served);

/*
 * What the ledger found, and what this request gets for it, in the contract's words. A record of
 * another content is refused before that, whatever its state: see other_content.
 */
enum ruling { RULE_FORWARD, RULE_REPLAY, RULE_WAIT, RULE_RECOVER, RULE_REFUSE };
static const struct {
	enum ruling ruling;
	enum problem problem;
} rulings[] = {
	[LEDGER_WON] = { RULE_FORWARD, PROBLEM_NONE },
	[LEDGER_COMPLETED] = { RULE_REPLAY, PROBLEM_NOT_RETAINED },
	[LEDGER_IN_FLIGHT] = { RULE_WAIT, PROBLEM_IN_PROGRESS },
	[LEDGER_UNKNOWN] = { RULE_RECOVER, PROBLEM_RESULT_UNKNOWN },
	[LEDGER_RELEASED] = { RULE_REFUSE, PROBLEM_IN_PROGRESS },
	[LEDGER_STOPPED] = { RULE_REFUSE, PROBLEM_STOPPED },
	[LEDGER_UNAVAILABLE] = { RULE_REFUSE, PROBLEM_LEDGER_UNAVAILABLE },
	[LEDGER_OVERLOADED] = { RULE_REFUSE, PROBLEM_OVERLOADED },
};

static struct exchange *exchange_of(struct served *served)
{
	return container_of(served, struct exchange, served);
}

static struct exchange *of_entry(struct ledger_entry *entry)
{
	return container_of(entry, struct exchange, entry);
}

static struct services *services_of(const struct exchange *x)
{
	return x->served.services;
}

static const struct digest_keys *keys_of(const struct exchange *x)
{
	return &x->served.settings->digest_keys;
}

static bool overloaded(const struct exchange *x)
{
	return services_of(x)->in_flight > services_of(x)->in_flight_max;
}

/* A chunked body counts as the largest that it may become. */
static size_t body_bytes(const struct exchange *x)
{
	size_t announced = listener_body_announced(&x->served.request);
	size_t most = (size_t)x->idempotency->request.max_body;

	return announced < most ? announced : most;
}

static bool key_in_body(const struct exchange *x)
{
	return x->idempotency->key.sources.body;
}

/* RECEIVE, the head: who asks, under which key? Nothing is read or recorded for a stranger. */
void exchange_head(struct served *served)
{
	struct exchange *x = exchange_of(served);
	const struct http_request *request = &served->request;
	enum problem problem = PROBLEM_NONE;
	enum key_found key = KEY_MISSING;
	const char *why = NULL;
	const char *key_why = NULL;

	served->body = begin;
	served->end = end;
	x->idempotency = served->route->idempotency;
	services_of(x)->in_flight++;
	key = key_of_fields(&x->idempotency->key, request, &x->entry.key, &key_why);
	x->has_key = key == KEY_FOUND || key_in_body(x);
	problem = account_of(x->idempotency->account, request, &x->entry.account, &why);
	if (problem)
		exchange_refuse(x, problem, why);
	else if (key == KEY_MISSING && !key_in_body(x))
		exchange_refuse(x, PROBLEM_KEY_MISSING, NULL);
	else if (key == KEY_INVALID)
		exchange_refuse(x, PROBLEM_KEY_INVALID, key_why);
	else if (overloaded(x) || !forward_admit(served, body_bytes(x)))
		exchange_refuse(x, PROBLEM_OVERLOADED, NULL);
	else
		listener_read_body(&served->request, (size_t)x->idempotency->request.max_body);
}

static void refuse_body(struct exchange *x, const struct canonical_error *error)
{
	struct span detail = { 0 };

	if (error->too_large) {
		exchange_refuse(x, PROBLEM_BODY_TOO_LARGE,
				"That is its size without Content-Encoding.");
		return;
	}
	detail = arena_format(x->served.request.arena,
			      "At byte %zu of the %sbody %s was expected.", error->offset,
			      error->decoded ? "decoded " : "", error->expected);
	exchange_refuse(x, PROBLEM_BODY_INVALID, detail.at);
}

/* RECEIVE, the body: what does the request say? */
static void begin(struct served *served)
{
	struct exchange *x = exchange_of(served);
	struct canonical_error error = { 0 };

	if (served->request.body_too_large)
		exchange_refuse(x, PROBLEM_BODY_TOO_LARGE, NULL);
	else if (!digest_request(&x->idempotency->rules, &served->request,
				 digest_keys_making(keys_of(x)), &x->entry.digest, &error))
		refuse_body(x, &error);
	else if (key_in_body(x))
		take_key(x);
	else
		reserve(x);
}

/* RECEIVE, a key that may stand in the body. Without one the request is not held to any. */
static void take_key(struct exchange *x)
{
	const char *why = NULL;
	enum key_found key =
		key_of_body(x->idempotency, &x->served.request, &x->entry.key, &why);

	x->has_key = key != KEY_MISSING;
	if (key == KEY_INVALID)
		exchange_refuse(x, PROBLEM_KEY_INVALID, why);
	else if (key == KEY_FOUND)
		reserve(x);
	else if (x->idempotency->key.required)
		exchange_refuse(x, PROBLEM_KEY_MISSING, NULL);
	else
		passthrough_body(&x->served);
}

/* The same request under the key of a record that was made before the keys were changed. */
static bool digest_under(struct ledger_entry *entry, int32_t key_id, struct digest *out)
{
	struct exchange *x = of_entry(entry);
	struct canonical_error error = { 0 };

	return digest_keys_verify(keys_of(x), key_id) &&
	       digest_request(&x->idempotency->rules, &x->served.request,
			      digest_keys_find(keys_of(x), key_id), out, &error);
}

static void let_go(struct ledger_entry *entry)
{
	listener_release(&of_entry(entry)->served.request);
}

/* RESERVE: ask the ledger for the record. Ends in reserved(). */
static void reserve(struct exchange *x)
{
	listener_hold(&x->served.request);
	x->held = true;
	x->entry.idempotency = x->idempotency;
	x->entry.arena = x->served.request.arena;
	x->entry.digest_under = digest_under;
	x->entry.done = reserved;
	x->entry.gone = let_go;
	ledger_reserve(services_of(x)->ledger, &x->entry);
}

/* Does this record belong to another content? Only records that stand there have one. */
static enum problem other_content(const struct ledger_entry *entry)
{
	bool stands = entry->found == LEDGER_COMPLETED || entry->found == LEDGER_IN_FLIGHT ||
		      entry->found == LEDGER_UNKNOWN;

	if (!stands || entry->same == LEDGER_SAME)
		return PROBLEM_NONE;
	return entry->same == LEDGER_DIFFERENT ? PROBLEM_MISMATCH : PROBLEM_RULES_CHANGED;
}

void exchange_rule(struct exchange *x)
{
	const struct ledger_entry *entry = &x->entry;
	enum problem other = other_content(entry);

	if (other) {
		metrics_add(services_of(x)->metrics, METRIC_mismatches_total,
			    x->idempotency->metrics_operation, 1);
		exchange_refuse(x, other, NULL);
		return;
	}
	switch (rulings[entry->found].ruling) {
	case RULE_FORWARD:
		forward(x);
		break;
	case RULE_REPLAY:
		if (entry->retained)
			exchange_replayed(x);
		else
			exchange_refuse(x, PROBLEM_NOT_RETAINED, NULL);
		break;
	case RULE_WAIT:
		wait(x);
		break;
	case RULE_RECOVER:
		exchange_recover(x);
		break;
	case RULE_REFUSE:
		exchange_refuse(x, rulings[entry->found].problem, entry->why);
		break;
	}
}

static void reserved(struct ledger_entry *entry)
{
	struct exchange *x = of_entry(entry);

	x->served.reserve_us = entry->took_us;
	exchange_rule(x);
}

bool exchange_begin_wait(struct exchange *x, void (*done)(struct ledger_entry *entry))
{
	struct services *services = services_of(x);

	if (x->idempotency->wait == 0 || services->waiters >= services->waiters_max)
		return false;
	metrics_set(services->metrics, METRIC_waiters, 0, (int64_t)++services->waiters);
	x->entry.done = done;
	return true;
}

void exchange_end_wait(struct exchange *x)
{
	struct services *services = services_of(x);

	metrics_set(services->metrics, METRIC_waiters, 0, (int64_t)--services->waiters);
	x->served.reserve_us += x->entry.took_us;
}

/* An attempt of this key is under way: wait for it. Never sends anything. Ends in waited(). */
static void wait(struct exchange *x)
{
	x->recovering = true;
	if (!exchange_begin_wait(x, waited))
		exchange_refuse(x, PROBLEM_IN_PROGRESS, NULL);
	else
		ledger_wait(services_of(x)->ledger, &x->entry, x->idempotency->wait);
}

static void waited(struct ledger_entry *entry)
{
	struct exchange *x = of_entry(entry);

	exchange_end_wait(x);
	assert(entry->found != LEDGER_WON);
	if (entry->found == LEDGER_IN_FLIGHT)
		exchange_refuse(x, PROBLEM_IN_PROGRESS, NULL);
	else
		exchange_rule(x);
}

/*
 * FORWARD: the upstream gets the request, once, if the lease outlasts it. An answer is never lost
 * for its size: what would be stored is held whatever others hold, and a larger one is streamed, or
 * at least its status is heard. Ends in
 * exchange_forwarded().
 */
static void forward(struct exchange *x)
{
	struct upstream_call *call = &x->call;
	size_t keep = (size_t)x->idempotency->response.max_body;

	if (x->entry.generation > 1)
		metrics_add(services_of(x)->metrics, METRIC_resends_total,
			    x->idempotency->metrics_operation, 1);
	forward_prepare(&x->served, call, true);
	forward_key(call, &x->idempotency->key, x->entry.key, x->entry.forward_key);
	if (x->idempotency->recovery.contract == RECOVERY_LOOKUP)
		forward_reference(call, span_of(x->entry.request_id), x->entry.generation);
	call->start_by_ms = x->entry.lease_until_ms - call->upstream->timeout;
	if (x->entry.begin_by_ms && x->entry.begin_by_ms < call->start_by_ms)
		call->start_by_ms = x->entry.begin_by_ms;
	call->answer_max = keep > FORWARD_ANSWER_MAX ? keep : FORWARD_ANSWER_MAX;
	call->held_anyway = keep;
	call->drop_over = true;
	exchange_stream(x);
	call->done = exchange_forwarded;
	upstream_send(services_of(x)->upstreams, call);
}

/* ANSWER, from here on; exchange_answer.c has the words. */
void exchange_replayed(struct exchange *x)
{
	struct http_answer with = exchange_replay(x);

	forward_hold(&x->served, with.body.len);
	metrics_add(services_of(x)->metrics, METRIC_replays_total,
		    x->idempotency->metrics_operation, 1);
	exchange_answer(x, VERDICT_REPLAYED, &with);
}

void exchange_refuse(struct exchange *x, enum problem problem, const char *detail)
{
	struct http_answer with = exchange_refusal(x, problem, detail);

	if (detail)
		x->served.cause = detail;
	exchange_answer(x, verdict_of(problem), &with);
}

void exchange_answer(struct exchange *x, unsigned verdict, struct http_answer *with)
{
	struct served *served = &x->served;

	if (x->held) {
		served->request_id = span_of(x->entry.request_id);
		served->key_hash = x->entry.op_id ? x->entry.key_hash : NULL;
		if (verdict < VERDICT_PROBLEM && !x->call.streamed)
			exchange_mark(x, with);
	}
	if (x->call.streamed)
		forward_stream_over(served, verdict, verdict == VERDICT_FORWARDED);
	else
		forward_reply(served, verdict, with);
	if (x->held)
		ledger_leave(services_of(x)->ledger, &x->entry);
}

static void end(struct served *served)
{
	served->services->in_flight--;
}
