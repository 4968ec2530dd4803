/*
 * The contract, tried on every way that a request can go. The real exchange.c stands on fakes of
 * its neighbours; whenever a neighbour has something to decide, the walk tries each decision in
 * turn, so that every path of the exchange is gone exactly once. After each path the promises
 * are checked on what the neighbours were told, and in which order.
 */
#include "account.h"
#include "exchange.h"
#include "walk.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

/* --- what happened on this path --- */

static struct {
	char events[32]; /* H hold, R reserve, W wait, F forward, S settle, A answer, L leave */
	unsigned n;
	enum problem account;
	enum key_found key;
	bool crowded, admitted, full, too_large, invalid;
	enum ledger_found found, waited;
	enum ledger_same same;
	bool retained, room, close_delimited;
	enum upstream_end end;
	enum outcome listed;
	bool big;
	enum ledger_settled settled;
	enum ledger_outcome outcome;
	struct http_answer result;
	struct http_answer answer;
	struct problem_about about;
	bool gateway_made;
	int holds;
	unsigned mismatches, replays;
} now;

static void (*pending)(void *);
static void *pending_arg;

static void note(char event)
{
	assert(now.n < sizeof(now.events) - 1);
	now.events[now.n++] = event;
}

static void later(void (*fn)(void *), void *arg)
{
	assert(!pending); /* an exchange does one thing at a time */
	pending = fn;
	pending_arg = arg;
}

/* --- fakes --- */

static struct idempotency_settings idempotency = { .operation = "orders.create",
						   .mismatch_status = 409,
						   .in_progress_status = 503,
						   .unknown_status = 503,
						   .settle_wait = 5000,
						   .response = { .max_body = 4 },
						   .request = { .max_body = 100 } };
static struct upstream_settings upstream = { .timeout = 1000 };
static struct route route = { .upstream = &upstream, .idempotency = &idempotency };
static struct services services;
static struct served *served;
static const unsigned char four[] = "body";

enum problem account_of(const struct account_settings *account,
			const struct http_request *request, struct span *name, const char **why)
{
	static const enum problem all[] = { PROBLEM_NONE, PROBLEM_UNAUTHENTICATED,
					    PROBLEM_FORBIDDEN };

	(void)account;
	(void)request;
	*name = SPAN("me");
	*why = "because";
	now.account = all[decide(3)];
	return now.account;
}

enum key_found key_of(const struct http_request *request, enum key_syntax syntax,
		      enum key_format format, struct span *key, const char **why)
{
	(void)request;
	(void)syntax;
	(void)format;
	*key = SPAN("k");
	*why = "because";
	now.key = (enum key_found)decide(3);
	return now.key;
}

bool digest_request(const struct digest_rules *rules, const struct http_request *request,
		    struct digest *out, struct canonical_error *error)
{
	(void)rules;
	(void)request;
	memset(out, 0, sizeof(*out));
	*error = (struct canonical_error){ 7, "a value" };
	now.invalid = decide(2);
	return !now.invalid;
}

static void entry_done(void *arg)
{
	struct ledger_entry *entry = arg;

	entry->done(entry);
}

void ledger_reserve(struct ledger *ledger, struct ledger_entry *entry)
{
	(void)ledger;
	note('R');
	assert(span_equal(entry->key, SPAN("k")) && span_equal(entry->account, SPAN("me")));
	entry->found = now.found = (enum ledger_found)decide(LEDGER_UNAVAILABLE + 1);
	if (entry->found == LEDGER_WON) {
		now.room = decide(2);
		entry->lease_left_ms = now.room ? 1001 : 1000;
	} else {
		entry->same = now.same = (enum ledger_same)decide(3);
	}
	if (entry->found == LEDGER_COMPLETED)
		entry->retained = now.retained = decide(2);
	entry->stored = (struct http_answer){ .status = 201, .body = SPAN("stored") };
	entry->first_seen = 1;
	later(entry_done, entry);
}

void ledger_wait(struct ledger *ledger, struct ledger_entry *entry, int64_t wait_ms)
{
	static const enum ledger_found ends[] = { LEDGER_IN_FLIGHT, LEDGER_COMPLETED,
						  LEDGER_UNKNOWN,   LEDGER_RELEASED,
						  LEDGER_STOPPED,   LEDGER_UNAVAILABLE };

	(void)ledger;
	note('W');
	assert(entry->found == LEDGER_IN_FLIGHT && wait_ms == idempotency.wait && wait_ms > 0);
	assert(services.waiters == 1);
	entry->found = now.waited = ends[decide(ARRAY_LEN(ends))];
	if (entry->found == LEDGER_COMPLETED)
		entry->retained = now.retained = decide(2);
	later(entry_done, entry);
}

void ledger_settle(struct ledger *ledger, struct ledger_entry *entry, int64_t wait_ms)
{
	(void)ledger;
	note('S');
	assert(wait_ms == 5000);
	now.outcome = entry->outcome;
	now.result = entry->result;
	assert(entry->outcome == LEDGER_COMPLETE || entry->cause); /* people want to know why */
	entry->settled = now.settled = (enum ledger_settled)decide(3);
	later(entry_done, entry);
}

void ledger_leave(struct ledger *ledger, struct ledger_entry *entry)
{
	(void)ledger;
	note('L');
	entry->gone(entry);
}

static void call_done(void *arg)
{
	struct upstream_call *call = arg;

	call->done(call);
}

void upstream_send(struct upstreams *upstreams, struct upstream_call *call)
{
	static const unsigned statuses[] = {
		[OUTCOME_UNKNOWN] = 500, [OUTCOME_STORE] = 201, [OUTCOME_RELEASE] = 400
	};

	(void)upstreams;
	note('F');
	assert(call->start_within_ms > 0);
	call->end = now.end = (enum upstream_end)decide(UPSTREAM_MALFORMED + 1);
	if (call->end != UPSTREAM_ANSWERED) {
		call->cause = "it ended so";
	} else {
		now.listed = (enum outcome)decide(3);
		call->close_delimited = now.close_delimited = decide(2);
		now.big = decide(2);
		call->answer.status = statuses[now.listed];
		call->answer.body =
			now.big ? SPAN("a large body") : (struct span){ (const char *)four, 4 };
	}
	later(call_done, call);
}

bool forward_admit(struct served *s, size_t bytes)
{
	(void)s;
	assert(bytes <= 100);
	now.full = decide(2);
	now.admitted = !now.full;
	return now.admitted;
}

void forward_prepare(struct served *s, struct upstream_call *call, bool enforced)
{
	assert(enforced);
	call->upstream = s->route->upstream;
	call->arena = s->request.arena;
}

struct http_answer forward_answer(const struct upstream_call *call)
{
	struct http_answer out = call->answer;

	out.fields.at = arena_alloc(call->arena, sizeof(struct http_field) * 8);
	return out;
}

struct http_fields forward_kept(struct arena *arena, const struct http_fields *from,
				const struct texts *more)
{
	(void)arena;
	(void)from;
	(void)more;
	return (struct http_fields){ NULL, 0 };
}

void forward_reply(struct served *s, unsigned verdict, const struct http_answer *with)
{
	note('A');
	s->verdict = verdict;
	now.answer = *with;
}

bool forward_has_key(const struct http_request *request)
{
	(void)request;
	return now.key == KEY_FOUND;
}

unsigned problem_status(enum problem problem)
{
	static const unsigned statuses[] = {
#define PROBLEM(name, code, status, retry, title) [PROBLEM_##name] = (status),
#include "problems.def"
#undef PROBLEM
	};

	return statuses[problem];
}

struct http_answer problem_answer(struct arena *arena, const struct problem_about *about)
{
	(void)arena;
	now.about = *about;
	now.gateway_made = true;
	return (struct http_answer){ .status = about->status ? about->status
							     : problem_status(about->problem) };
}

void listener_read_body(struct http_request *request, size_t max)
{
	assert(max == 100);
	note('B');
	request->body_too_large = now.too_large = decide(2);
}

size_t listener_body_announced(const struct http_request *request)
{
	(void)request;
	return SIZE_MAX;
}

void listener_hold(struct http_request *request)
{
	(void)request;
	note('H');
	now.holds++;
}

void listener_release(struct http_request *request)
{
	(void)request;
	now.holds--;
}

void metrics_add(struct metrics *m, enum metric metric, unsigned label, uint64_t n)
{
	(void)m;
	(void)label;
	assert(n == 1);
	now.mismatches += metric == METRIC_mismatches_total;
	now.replays += metric == METRIC_replays_total;
}

void metrics_set(struct metrics *m, enum metric metric, unsigned label, int64_t value)
{
	(void)m;
	(void)metric;
	(void)label;
	assert(value >= 0);
}

void metrics_observe(struct metrics *m, enum metric metric, unsigned label, int64_t us)
{
	(void)m;
	(void)metric;
	(void)label;
	(void)us;
}

/* --- the promises --- */

static size_t count(char event)
{
	size_t n = 0;

	for (unsigned i = 0; i < now.n; i++)
		n += now.events[i] == event;
	return n;
}

static bool before(char first, char second)
{
	const char *a = strchr(now.events, first);
	const char *b = strchr(now.events, second);

	return a && b && a < b;
}

/* What the ledger said last of this key. */
static enum ledger_found last_found(void)
{
	return count('W') ? now.waited : now.found;
}

static bool stands(enum ledger_found found)
{
	return found == LEDGER_COMPLETED || found == LEDGER_IN_FLIGHT ||
	       found == LEDGER_UNKNOWN;
}

static void each_request_is_answered_once(void)
{
	assert(count('A') == 1);
	assert(count('R') == count('L') && count('R') == count('H') && count('R') <= 1);
	assert(now.holds == 0 && services.waiters == 0);
	assert(!count('R') || before('H', 'R'));
	assert(!count('L') || before('A', 'L')); /* the ledger may free what the answer needs */
}

static void nothing_is_asked_for_a_stranger(void)
{
	if (now.account || now.key != KEY_FOUND)
		assert(now.n == 1 && now.events[0] == 'A');
	if (now.crowded || now.full)
		assert(count('R') == 0 && count('B') == 0);
	if (count('B'))
		assert(now.admitted); /* its bytes are counted before they are read */
	if (now.too_large || now.invalid)
		assert(count('R') == 0);
}

static void only_the_winner_forwards_and_once(void)
{
	assert(count('F') <= 1 && count('S') <= 1);
	if (count('F'))
		assert(now.found == LEDGER_WON && now.room && before('R', 'F') && !count('W'));
	if (now.n && count('R') && now.found == LEDGER_WON)
		assert(count('S') == 1 && (now.room ? count('F') == 1 : count('F') == 0));
	else
		assert(!count('F') && !count('S'));
}

/* What the record must say, by how the forward ended. */
static enum ledger_outcome due(void)
{
	if (!count('F') || now.end == UPSTREAM_NOT_SENT)
		return LEDGER_RELEASE;
	if (now.end != UPSTREAM_ANSWERED || now.close_delimited)
		return LEDGER_MARK_UNKNOWN;
	if (now.listed == OUTCOME_STORE)
		return LEDGER_COMPLETE;
	return now.listed == OUTCOME_RELEASE ? LEDGER_RELEASE : LEDGER_MARK_UNKNOWN;
}

static void the_ledger_hears_first_and_hears_the_truth(void)
{
	if (!count('S'))
		return;
	assert(before('S', 'A') && now.outcome == due());
	if (now.outcome != LEDGER_COMPLETE)
		return;
	assert(now.result.status == 201);
	if (now.big)
		assert(now.result.body.at == NULL); /* over response.max_body: not kept */
	else
		assert(span_equal(now.result.body, (struct span){ (const char *)four, 4 }));
}

static void an_answer_is_given_only_when_it_is_recorded(void)
{
	bool upstreams_own = count('F') && !now.gateway_made;

	if (upstreams_own) {
		assert(now.end == UPSTREAM_ANSWERED && now.settled == LEDGER_SETTLED);
		assert(served->verdict == VERDICT_FORWARDED);
	}
	if (count('F') && now.end == UPSTREAM_ANSWERED && now.settled != LEDGER_SETTLED)
		assert(now.about.problem == PROBLEM_RESULT_UNKNOWN && now.answer.status == 503);
	if (served->verdict == VERDICT_REPLAYED) {
		assert(last_found() == LEDGER_COMPLETED && now.same == LEDGER_SAME &&
		       now.retained);
		assert(span_equal(now.answer.body, SPAN("stored")) && now.answer.status == 201);
	}
	assert(now.replays == (served->verdict == VERDICT_REPLAYED));
}

static enum problem due_before_the_ledger(void)
{
	if (now.account)
		return now.account;
	if (now.key != KEY_FOUND)
		return now.key == KEY_MISSING ? PROBLEM_KEY_MISSING : PROBLEM_KEY_INVALID;
	if (now.crowded || now.full)
		return PROBLEM_OVERLOADED;
	return now.too_large ? PROBLEM_BODY_TOO_LARGE : PROBLEM_BODY_INVALID;
}

static enum problem due_of_record(void)
{
	static const enum problem of[] = { [LEDGER_COMPLETED] = PROBLEM_NOT_RETAINED,
					   [LEDGER_IN_FLIGHT] = PROBLEM_IN_PROGRESS,
					   [LEDGER_UNKNOWN] = PROBLEM_RESULT_UNKNOWN,
					   [LEDGER_RELEASED] = PROBLEM_IN_PROGRESS,
					   [LEDGER_STOPPED] = PROBLEM_STOPPED,
					   [LEDGER_UNAVAILABLE] = PROBLEM_LEDGER_UNAVAILABLE };

	if (stands(now.found) && now.same != LEDGER_SAME)
		return now.same == LEDGER_DIFFERENT ? PROBLEM_MISMATCH : PROBLEM_RULES_CHANGED;
	return of[last_found()];
}

static enum problem due_after_winning(void)
{
	if (!count('F'))
		return PROBLEM_LEDGER_UNAVAILABLE;
	return now.end == UPSTREAM_NOT_SENT ? PROBLEM_UPSTREAM_UNREACHABLE
					    : PROBLEM_RESULT_UNKNOWN;
}

static void each_refusal_has_its_name(void)
{
	enum problem expected = PROBLEM_NONE;

	if (!now.gateway_made)
		return;
	if (!count('R'))
		expected = due_before_the_ledger();
	else
		expected = now.found == LEDGER_WON ? due_after_winning() : due_of_record();
	assert(now.about.problem == expected && served->verdict == verdict_of(expected));
	assert((problem_status(expected) == 503) == (now.about.retry_after > 0));
	if (expected == PROBLEM_RESULT_UNKNOWN && count('F')) {
		if (now.end == UPSTREAM_TIMED_OUT)
			assert(now.answer.status == 504);
		if (now.end == UPSTREAM_CUT || now.end == UPSTREAM_MALFORMED)
			assert(now.answer.status == 502);
	}
	assert(now.mismatches ==
	       (expected == PROBLEM_MISMATCH || expected == PROBLEM_RULES_CHANGED));
}

/* "It did not" is said only where that is certain (CONTRACT 10). */
static void no_effect_is_claimed_only_when_sure(void)
{
	bool released =
		count('S') && now.outcome == LEDGER_RELEASE && now.settled == LEDGER_SETTLED;

	if (!now.gateway_made)
		return;
	if (!count('R'))
		assert(now.about.may_have_executed == (now.key == KEY_FOUND));
	else if (now.found == LEDGER_WON)
		assert(now.about.may_have_executed == !released);
	else
		assert(now.about.may_have_executed == (last_found() != LEDGER_RELEASED));
}

/* What of a record is told: never what is stored. */
static void a_refusal_tells_no_stored_content(void)
{
	for (size_t i = 0; now.gateway_made && i < now.about.n_extra; i++)
		assert(!span_equal(now.about.extra[i].text, SPAN("stored")));
	if (now.gateway_made && now.about.problem == PROBLEM_MISMATCH)
		assert(now.about.n_extra == 2);
}

static void check(void)
{
	each_request_is_answered_once();
	nothing_is_asked_for_a_stranger();
	only_the_winner_forwards_and_once();
	the_ledger_hears_first_and_hears_the_truth();
	an_answer_is_given_only_when_it_is_recorded();
	each_refusal_has_its_name();
	no_effect_is_claimed_only_when_sure();
	a_refusal_tells_no_stored_content();
}

static void run_pending(void)
{
	while (pending) {
		void (*fn)(void *) = pending;

		pending = NULL;
		fn(pending_arg);
	}
}

static void walk_one(void)
{
	memset(&now, 0, sizeof(now));
	served = calloc(1, exchange_size);
	assert(served);
	served->request.arena = arena_new();
	served->services = &services;
	served->route = &route;
	now.crowded = decide(2);
	idempotency.wait = decide(2) ? 5000 : 0;
	services.waiters_max = decide(2);
	services.in_flight = now.crowded ? 5 : 4;
	services.in_flight_max = 5;
	exchange_head(served);
	if (count('B')) {
		served->body(served);
		run_pending();
	}
	if (now.found == LEDGER_IN_FLIGHT && count('R') && now.same == LEDGER_SAME)
		assert(count('W') == (idempotency.wait && services.waiters_max));
	check();
	served->end(served);
	assert(services.in_flight == (now.crowded ? 5 : 4));
	arena_free(served->request.arena);
	free(served);
}

int main(void)
{
	unsigned long paths = 0;

	idempotency.outcome_of[500] = OUTCOME_UNKNOWN;
	idempotency.outcome_of[201] = OUTCOME_STORE;
	idempotency.outcome_of[400] = OUTCOME_RELEASE;
	do {
		walk_one();
		paths++;
	} while (next_path());
	printf("contract: every promise holds on %lu paths\n", paths);
	printf("1 passed, 0 failed\n");
	return paths > 100 ? 0 : 1;
}
