/*
 * The contract, tried on every way that a request can go. The real exchange.c stands on fakes of
 * its neighbours; whenever a neighbour has something to decide, the walk tries each decision in
 * turn, so that every path of the exchange is gone exactly once. After each path the promises
 * are checked on what the neighbours were told, and in which order.
 */
#include "neighbours.h"

#include <stdio.h>
#include <stdlib.h>

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

static bool stands(enum ledger_found found)
{
	return found == LEDGER_COMPLETED || found == LEDGER_IN_FLIGHT ||
	       found == LEDGER_UNKNOWN;
}

/* The attempt was over for everybody else: the record is what counts. */
static bool told_another_end(void)
{
	return count('S') && now.settled == LEDGER_FENCED && now.told != LEDGER_WON;
}

/* The route wants the answer out though the ledger does not have it. */
static bool delivered_unrecorded(void)
{
	return count('S') && now.settled == LEDGER_LATE && now.delivers && !count('T') &&
	       now.end == UPSTREAM_ANSWERED && now.size != DROPPED &&
	       !(now.resend && now.outcome != LEDGER_COMPLETE);
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
	if (now.account || (now.key != KEY_FOUND && !now.in_body) ||
	    (now.key == KEY_INVALID && !count('K')))
		assert(now.n == 1 && now.events[0] == 'A');
	if (now.key != KEY_FOUND)
		assert(count('R') == 0);
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
		assert(before('R', 'F') && !count('W') && !count('U'));
	if (count('R') && now.found == LEDGER_WON)
		assert(count('S') == 1 && count('F') == 1);
	else
		assert(!count('F') && !count('S'));
}

/* One thing is tried, by whoever asks first; a waiter tries nothing. */
static void what_recovery_allows_is_tried_once(void)
{
	size_t tried = count('C') + count('N') + count('U');

	assert(tried <= 1 && (!tried || now.ruled));
	assert(!now.ruled || now.allowed == RECOVER_HELD || tried || count('W') ||
	       (now.allowed == RECOVER_LOOK_UP &&
		(!idempotency.wait || !services.waiters_max)));
	assert(!count('W') || !tried || before('C', 'W') || before('N', 'W') ||
	       before('U', 'W'));
	assert(now.resend <= (count('C') == 1));
	assert(served->reserve_us == 3 * (int64_t)now.questions);
}

/* Only who has no key, and need not have one; and then nothing is recorded. */
static void without_a_key_it_passes_where_it_may(void)
{
	bool passes = count('K') && now.key == KEY_MISSING && !now.required;

	assert(count('P') == (passes ? 1U : 0U));
	assert(count('K') <= 1 && (!count('K') || before('B', 'K')));
	if (count('R'))
		assert(count('K') == (now.in_body ? 1U : 0U));
	if (count('P'))
		assert(!count('R') && !count('F'));
}

static void the_ledger_hears_first_and_hears_the_truth(void)
{
	if (!count('S'))
		return;
	assert(before('S', 'A') && now.outcome == due());
	if (now.outcome != LEDGER_COMPLETE)
		return;
	assert(now.result.status == 201);
	if (now.reduced)
		assert(span_equal(now.result.body, SPAN("red")));
	else if (now.size == SMALL)
		assert(span_equal(now.result.body, SPAN("body")));
	else
		assert(now.result.body.at == NULL); /* over response.max_body: not kept */
}

static void an_answer_is_given_only_when_it_is_recorded(void)
{
	bool hidden = now.resend && now.outcome != LEDGER_COMPLETE;

	if (count('T') || told_another_end())
		return; /* an_end_is_given_only_when_it_is_recorded, what_is_replayed_is_what_is_stored */
	if (!count('F') || now.end != UPSTREAM_ANSWERED) {
		assert(now.gateway_made || !count('F'));
		return;
	}
	if (now.settled != LEDGER_SETTLED && !delivered_unrecorded()) {
		assert(now.about.problem == PROBLEM_RESULT_UNKNOWN && now.answer.status == 503);
		return;
	}
	/* a result never without its body */
	assert(now.bare ==
	       (now.size == DROPPED && !now.close_delimited && now.outcome == LEDGER_RELEASE));
	assert(now.gateway_made == ((now.size == DROPPED && !now.bare) || hidden));
	if (now.gateway_made)
		return;
	assert(served->verdict == VERDICT_FORWARDED);
	assert((http_find(&now.answer.fields, SPAN("Idempotency-Recorded"), NULL) != NULL) ==
	       delivered_unrecorded());
	assert((http_find(&now.answer.fields, SPAN("Idempotency-Expires"), NULL) != NULL) ==
	       (now.outcome == LEDGER_COMPLETE && !delivered_unrecorded()));
	if (now.reduced) /* the first as all that come */
		assert(span_equal(now.answer.body, SPAN("red")));
	else
		assert(now.answer.body.len == (now.bare ? 0 : now.size == SMALL ? 4 : 12));
}

/* Of a stream only the end can be withheld: it is, until the ledger holds what it means. */
static void an_end_is_given_only_when_it_is_recorded(void)
{
	if (!count('T')) {
		assert(now.size != STREAMED && !now.whole);
		return;
	}
	assert(count('T') == 1 && before('F', 'T') && before('T', 'S') && before('S', 'A'));
	assert(now.streamed == 12);
	assert(now.whole == (now.end == UPSTREAM_ANSWERED && now.settled == LEDGER_SETTLED));
	assert(now.whole == (served->verdict == VERDICT_FORWARDED));
	assert(now.answer.status == 0); /* nothing else was given */
	if (now.end == UPSTREAM_ANSWERED)
		assert(now.marked == (now.outcome == LEDGER_COMPLETE));
	if (now.settled != LEDGER_SETTLED && !told_another_end())
		assert(now.about.problem == PROBLEM_RESULT_UNKNOWN);
}

static void what_is_replayed_is_what_is_stored(void)
{
	assert(now.replays == (served->verdict == VERDICT_REPLAYED));
	if (!now.replays)
		return;
	assert(now.retained && !count('T'));
	if (told_another_end())
		assert(now.told == LEDGER_COMPLETED);
	else
		assert(now.found == LEDGER_COMPLETED && now.same == LEDGER_SAME);
	assert(span_equal(now.answer.body, SPAN("stored")) && now.answer.status == 202);
}

static enum problem due_before_the_ledger(void)
{
	if (now.account)
		return now.account;
	if (now.key == KEY_INVALID || count('K') || (now.key == KEY_MISSING && !now.in_body))
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
					   [LEDGER_OVERLOADED] = PROBLEM_OVERLOADED,
					   [LEDGER_UNAVAILABLE] = PROBLEM_LEDGER_UNAVAILABLE };

	if (told_another_end())
		return now.told == LEDGER_COMPLETED ? PROBLEM_NOT_RETAINED
						    : PROBLEM_RESULT_UNKNOWN;
	if (stands(now.found) && now.same != LEDGER_SAME)
		return now.same == LEDGER_DIFFERENT ? PROBLEM_MISMATCH : PROBLEM_RULES_CHANGED;
	return of[now.found];
}

static enum problem due_after_winning(void)
{
	if (now.resend && now.outcome != LEDGER_COMPLETE)
		return PROBLEM_RESULT_UNKNOWN;
	if (now.end == UPSTREAM_TOO_LATE)
		return PROBLEM_LEDGER_UNAVAILABLE;
	if (now.end == UPSTREAM_NOT_SENT)
		return PROBLEM_UPSTREAM_UNREACHABLE;
	if (now.settled == LEDGER_SETTLED && due() != LEDGER_MARK_UNKNOWN &&
	    now.end == UPSTREAM_ANSWERED && !now.close_delimited)
		return PROBLEM_NOT_RETAINED; /* only a dropped result comes here */
	return PROBLEM_RESULT_UNKNOWN;
}

static void each_refusal_has_its_name(void)
{
	enum problem expected = PROBLEM_NONE;

	if (!now.gateway_made)
		return;
	if (!count('R'))
		expected = due_before_the_ledger();
	else
		expected = now.found == LEDGER_WON && !told_another_end() ? due_after_winning()
									  : due_of_record();
	assert(now.about.problem == expected && served->verdict == verdict_of(expected));
	assert((problem_status(expected) == 503) == (now.about.retry_after > 0));
	if (expected == PROBLEM_RESULT_UNKNOWN && count('F') && !count('T') &&
	    !told_another_end() && !now.resend) {
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
		assert(now.about.may_have_executed ==
		       (now.key == KEY_FOUND || (now.in_body && now.key != KEY_MISSING) ||
			(now.in_body && !count('K'))));
	else if (now.found == LEDGER_WON && !told_another_end())
		assert(now.about.may_have_executed ==
		       (!released || now.about.problem == PROBLEM_RESULT_UNKNOWN));
	else if (told_another_end())
		assert(now.about.may_have_executed ==
		       (now.told != LEDGER_RELEASED || now.outcome != LEDGER_RELEASE ||
			now.twice));
	else
		assert(now.about.may_have_executed ==
		       ((now.found != LEDGER_RELEASED || now.twice) && !now.no_record));
}

/* What of a record is told: never what is stored. */
static void a_refusal_tells_no_stored_content(void)
{
	for (size_t i = 0; now.gateway_made && i < now.about.n_extra; i++)
		assert(!span_equal(now.about.extra[i].text, SPAN("stored")));
	if (now.gateway_made && now.about.problem == PROBLEM_MISMATCH)
		assert(now.about.n_extra == 2);
}

/* Whoever gets no body is told what there was of it: now, as at every retry. */
static void an_answer_that_was_dropped_is_told_of(void)
{
	const struct problem_extra *extra = now.about.extra;

	if (!now.gateway_made || now.about.problem != PROBLEM_NOT_RETAINED || count('T'))
		return;
	assert(now.answer.status == 410 && now.about.n_extra >= 1);
	assert(strcmp(extra[0].name, "original_status") == 0);
	if (now.found != LEDGER_WON || told_another_end()) {
		assert(extra[0].number == 202);
		return;
	}
	assert(now.about.n_extra == 2 && extra[0].number == 201);
	assert(strcmp(extra[1].name, "location") == 0 &&
	       span_equal(extra[1].text, SPAN("/orders/1")));
	assert(now.about.detail.len > 0);
}

static void check(void)
{
	each_request_is_answered_once();
	nothing_is_asked_for_a_stranger();
	only_the_winner_forwards_and_once();
	what_recovery_allows_is_tried_once();
	without_a_key_it_passes_where_it_may();
	the_ledger_hears_first_and_hears_the_truth();
	an_answer_is_given_only_when_it_is_recorded();
	an_end_is_given_only_when_it_is_recorded();
	what_is_replayed_is_what_is_stored();
	each_refusal_has_its_name();
	no_effect_is_claimed_only_when_sure();
	a_refusal_tells_no_stored_content();
	an_answer_that_was_dropped_is_told_of();
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
	served->settings = &settings;
	served->route = &route;
	served->request.minor = now.minor = decide(2);
	now.crowded = decide(2);
	idempotency.key.sources.body = now.in_body = decide(2);
	idempotency.key.required = now.required = decide(2);
	idempotency.wait = decide(2) ? 5000 : 0;
	services.waiters_max = decide(2);
	now.twice = decide(2);
	idempotency.recovery.contract = now.twice   ? RECOVERY_AT_LEAST_ONCE
					: decide(2) ? RECOVERY_LOOKUP
						    : RECOVERY_RESEND;
	now.delivers = decide(2);
	idempotency.on_settle_failure =
		now.delivers ? SETTLE_FAILURE_DELIVER : SETTLE_FAILURE_REFUSE;
	services.in_flight = now.crowded ? 5 : 4;
	services.in_flight_max = 5;
	exchange_head(served);
	if (count('B')) {
		served->body(served);
		run_pending();
	}
	if (now.found == LEDGER_IN_FLIGHT && count('R') && now.same == LEDGER_SAME)
		assert(count('W') == (idempotency.wait && services.waiters_max));
	if (now.ruled && now.allowed == RECOVER_HELD)
		assert(now.about.retry_after >= 7 && now.about.retry_after <= 8);
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
