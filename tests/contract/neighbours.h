/*
 * The fakes that exchange.c stands on in the walk, and what they were told on this path, in which
 * order. Whatever a neighbour has to decide, it asks decide().
 */
#pragma once
#include "account.h"
#include "exchange_internal.h"
#include "key_source.h"
#include "outcome.h"
#include "passthrough.h"
#include "receipt.h"
#include "recovery.h"
#include "response.h"
#include "source.h"
#include "walk.h"

#include <assert.h>

/* --- what happened on this path --- */

static struct {
	/* B body, K key of the body, P passed, H hold, R reserve, W wait, C claim, N new begin, U
	 * look-up, F forward, T stream, S settle, A answer or a stream's end, L leave */
	char events[32];
	unsigned n;
	enum problem account;
	enum key_found key; /* as far as it is known */
	bool in_body, required, key_forwarded, judged, reduced;
	bool seen_whole; /* the route looks at whole answers */
	bool crowded, admitted, full, too_large, digested, invalid;
	enum ledger_found found; /* what the ledger said last, before a settle */
	enum ledger_found told;  /* what a fenced settle said */
	enum ledger_same same;
	enum recovery allowed;
	bool ruled, resend, twice, delivers, no_record, referred;
	unsigned resends, questions;
	bool retained, close_delimited;
	enum upstream_end end;
	enum outcome listed;
	enum { SMALL, BIG, DROPPED, STREAMED } size;
	bool bare; /* a refusal is given without its body */
	unsigned minor;     /* HTTP/1.minor */
	size_t streamed;    /* bytes */
	bool whole, marked; /* the stream has its end; its head says until when it is kept */
	enum ledger_settled settled;
	enum ledger_outcome outcome;
	struct http_answer result;
	struct http_answer answer;
	struct problem_about about;
	bool gateway_made;
	int holds;
	unsigned mismatches, replays, asked;
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
						   .stopped_status = 503,
						   .settle_wait = 5000,
						   .response = { .max_body = 4 },
						   .request = { .max_body = 100 } };
static struct upstream_settings upstream = { .timeout = 1000 };
static struct route route = { .upstream = &upstream, .idempotency = &idempotency };
static const struct digest_key keys[] = { { .id = 5, .len = 1 }, { .id = 3, .len = 1 } };
static const struct settings settings = { .digest_keys = { keys, 2 } };
static struct services services;
static struct served *served;

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

enum key_found key_of_fields(const struct key_settings *key_settings,
			     const struct http_request *request, struct span *key,
			     const char **why)
{
	assert(key_settings == &idempotency.key && request == &served->request);
	*why = "because";
	now.key = (enum key_found)decide(3);
	if (now.key == KEY_FOUND)
		*key = SPAN("k");
	return now.key;
}

enum key_found key_of_body(const struct idempotency_settings *settings_,
			   const struct http_request *request, struct span *key,
			   const char **why)
{
	static const enum key_found added[] = { KEY_FOUND, KEY_INVALID, KEY_MISSING };
	unsigned choices = 0;

	note('K');
	assert(settings_ == &idempotency && request == &served->request);
	assert(now.in_body && now.digested && !now.invalid);
	*why = "because";
	choices = now.key == KEY_FOUND ? 2 : 3; /* what is there does not go */
	now.key = added[decide(choices)];
	*key = SPAN("k");
	return now.key;
}

void passthrough_body(struct served *s)
{
	assert(s == served);
	note('P');
	note('A');
}

bool digest_request(const struct digest_rules *rules, const struct http_request *request,
		    const struct digest_key *key, struct digest *out,
		    struct canonical_error *error)
{
	assert(rules == &idempotency.rules && request == &served->request);
	memset(out, 0, sizeof(*out));
	out->key_id = key ? key->id : 0;
	*error = (struct canonical_error){ .offset = 7, .expected = "a value" };
	if (now.digested) /* once more, of a body that is known to be good */
		return true;
	assert(key == &keys[0]); /* the first one makes */
	now.digested = true;
	now.invalid = decide(2);
	return !now.invalid;
}

/* The ledger has met a record under another key. */
static void other_keys(struct ledger_entry *entry)
{
	struct digest digest;

	assert(entry->digest.key_id == 5);
	assert(entry->digest_under(entry, 3, &digest) && digest.key_id == 3);
	assert(entry->digest_under(entry, 0, &digest) && digest.key_id == 0);
	assert(!entry->digest_under(entry, 4, &digest));
}

static void entry_done(void *arg)
{
	struct ledger_entry *entry = arg;

	entry->done(entry);
}

/* What the ledger may find: the first `n` of these, `won` of them the last. */
static const enum ledger_found finds[] = { LEDGER_COMPLETED,  LEDGER_IN_FLIGHT, LEDGER_UNKNOWN,
					   LEDGER_RELEASED,   LEDGER_STOPPED,   LEDGER_OVERLOADED,
					   LEDGER_UNAVAILABLE, LEDGER_WON };
#define FINDS     ARRAY_LEN(finds)
#define NOT_WON   (ARRAY_LEN(finds) - 1)

static void finds_one(struct ledger_entry *entry, unsigned n)
{
	entry->found = now.found = finds[decide(n)];
	entry->took_us = 3;
	now.questions++;
	entry->retained = now.retained = entry->found == LEDGER_COMPLETED && decide(2);
	if (entry->found == LEDGER_WON)
		entry->lease_until_ms = 61000;
	later(entry_done, entry);
}

void ledger_reserve(struct ledger *ledger, struct ledger_entry *entry)
{
	(void)ledger;
	note('R');
	assert(span_equal(entry->key, SPAN("k")) && span_equal(entry->account, SPAN("me")));
	other_keys(entry);
	finds_one(entry, FINDS);
	entry->generation = 1;
	if (entry->found != LEDGER_WON)
		entry->same = now.same = (enum ledger_same)decide(3);
	entry->no_record = now.no_record = entry->found == LEDGER_STOPPED && decide(2);
	entry->stored = (struct http_answer){ .status = 202, .body = SPAN("stored") };
	entry->first_seen = 1;
}

void ledger_wait(struct ledger *ledger, struct ledger_entry *entry, int64_t wait_ms)
{
	(void)ledger;
	note('W');
	assert(entry->found == LEDGER_IN_FLIGHT && wait_ms == idempotency.wait && wait_ms > 0);
	assert(services.waiters == 1);
	finds_one(entry, NOT_WON);
}

/* The rules themselves have a test of their own; here each may be the answer. */
struct recovery_ruling recovery_of(const struct recovery_settings *settings_,
				   const struct recovery_case *record)
{
	assert(settings_ == &idempotency.recovery && record->generation >= 1);
	assert(now.found == LEDGER_UNKNOWN && now.same == LEDGER_SAME);
	if (now.ruled) /* unknown still */
		return (struct recovery_ruling){ RECOVER_RESEND, 0 };
	now.ruled = true;
	now.allowed = (enum recovery)decide(RECOVER_BEGIN_AGAIN + 1);
	return (struct recovery_ruling){ now.allowed, now.allowed == RECOVER_HELD ? 7000 : 0 };
}

void ledger_claim(struct ledger *ledger, struct ledger_entry *entry)
{
	(void)ledger;
	note('C');
	assert(now.allowed == RECOVER_RESEND && entry->found == LEDGER_UNKNOWN);
	finds_one(entry, FINDS);
	now.resend = entry->found == LEDGER_WON;
	entry->begin_by_ms = now.resend ? 50000 : 0;
	entry->generation = now.resend ? 2 : 1;
}

void ledger_begin_again(struct ledger *ledger, struct ledger_entry *entry)
{
	(void)ledger;
	note('N');
	assert(now.allowed == RECOVER_BEGIN_AGAIN && entry->found == LEDGER_UNKNOWN);
	finds_one(entry, FINDS);
}

void ledger_look_up(struct ledger *ledger, struct ledger_entry *entry, int64_t wait_ms)
{
	(void)ledger;
	note('U');
	assert(now.allowed == RECOVER_LOOK_UP && wait_ms == idempotency.wait && wait_ms > 0);
	assert(services.waiters == 1);
	finds_one(entry, NOT_WON);
}

void ledger_settle(struct ledger *ledger, struct ledger_entry *entry, int64_t wait_ms)
{
	static const enum ledger_found others[] = { LEDGER_UNKNOWN, LEDGER_COMPLETED,
						    LEDGER_RELEASED };

	(void)ledger;
	note('S');
	assert(wait_ms == 5000);
	now.outcome = entry->outcome;
	now.result = entry->result;
	if (entry->outcome == LEDGER_COMPLETE)
		assert(span_equal(entry->receipt, SPAN("/orders/1")));
	else if (now.end == UPSTREAM_ANSWERED && !now.close_delimited)
		assert((strcmp(entry->cause, "judged") == 0) == now.judged);
	assert(entry->outcome == LEDGER_COMPLETE || entry->cause); /* people want to know why */
	entry->settled = now.settled = (enum ledger_settled)decide(3);
	now.told = LEDGER_WON;
	if (entry->settled == LEDGER_FENCED && decide(2)) { /* else it can't be written at all */
		entry->found = now.told = others[decide(3)];
		entry->retained = now.retained = now.told == LEDGER_COMPLETED && decide(2);
	}
	later(entry_done, entry);
}

void ledger_leave(struct ledger *ledger, struct ledger_entry *entry)
{
	(void)ledger;
	note('L');
	entry->gone(entry);
}

/* What the record must say, by how the forward ended. */
static enum ledger_outcome due(void)
{
	bool whole = now.end == UPSTREAM_ANSWERED && !now.close_delimited;

	if (whole && now.size == DROPPED && idempotency.outcome.n_when)
		return LEDGER_MARK_UNKNOWN; /* what was to decide was not seen */
	if (now.resend) /* nothing of it is given free */
		return whole && now.listed == OUTCOME_STORE ? LEDGER_COMPLETE
							    : LEDGER_MARK_UNKNOWN;
	if (now.end == UPSTREAM_NOT_SENT || now.end == UPSTREAM_TOO_LATE)
		return LEDGER_RELEASE;
	if (!whole)
		return now.twice ? LEDGER_RELEASE : LEDGER_MARK_UNKNOWN;
	if (now.listed == OUTCOME_STORE)
		return LEDGER_COMPLETE;
	return now.listed == OUTCOME_RELEASE ? LEDGER_RELEASE : LEDGER_MARK_UNKNOWN;
}

#include "neighbours_upstream.h"

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
	now.resends += metric == METRIC_resends_total;
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
