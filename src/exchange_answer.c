/*
 * What an exchange says: the stored answer given again (CONTRACT 8), and refusals (CONTRACT 10). What
 * is claimed of an effect is claimed of the key, and "it did not" only where that is certain.
 */
#include "exchange_internal.h"

static void add_date(const struct exchange *x, struct http_fields *fields, struct span name,
		     int64_t seconds)
{
	char *date = arena_alloc(x->served.request.arena, HTTP_DATE_BYTES);

	http_date(seconds, date);
	http_add(fields, name, span_of(date));
}

/* A result that is kept says until when; what is released or unknown has no such time. */
void exchange_mark(const struct exchange *x, struct http_answer *answer)
{
	const struct ledger_entry *entry = &x->entry;

	http_add(&answer->fields, SPAN("Idempotency-Request-Id"), span_of(entry->request_id));
	if (x->unrecorded)
		http_add(&answer->fields, SPAN("Idempotency-Recorded"), SPAN("false"));
	else if (entry->found == LEDGER_COMPLETED || entry->outcome == LEDGER_COMPLETE)
		add_date(x, &answer->fields, SPAN("Idempotency-Expires"), entry->expires_at);
}

/* Where no upstream gave the answer to a request of this key, the client is told who did. */
static void add_source(const struct exchange *x, struct http_fields *fields)
{
	switch (x->entry.source) {
	case RECORD_BY_ATTEMPT:
		break;
	case RECORD_BY_LOOKUP:
		http_add(fields, SPAN("Idempotency-Recovered"), SPAN("lookup"));
		break;
	case RECORD_BY_OPERATOR:
	case RECORD_BY_REPORT:
		http_add(fields, SPAN("Idempotency-Resolved"), SPAN("operator"));
		break;
	case RECORD_BY_DEADLINE:
		http_add(fields, SPAN("Idempotency-Verdict"), SPAN("outcome_undetermined"));
		break;
	}
}

struct http_answer exchange_replay(struct exchange *x)
{
	struct arena *arena = x->served.request.arena;
	const struct http_answer *stored = &x->entry.stored;
	struct http_answer with = { .status = stored->status, .body = stored->body };

	with.fields.at = arena_alloc(arena, sizeof(struct http_field) * (stored->fields.n + 8));
	for (size_t i = 0; i < stored->fields.n; i++)
		http_add(&with.fields, stored->fields.at[i].name, stored->fields.at[i].value);
	http_add(&with.fields, SPAN("Idempotent-Replayed"), SPAN("true"));
	add_date(x, &with.fields, SPAN("Idempotency-First-Seen"), x->entry.first_seen);
	add_source(x, &with.fields);
	if (!http_find(&stored->fields, SPAN("Cache-Control"), NULL))
		http_add(&with.fields, SPAN("Cache-Control"), SPAN("no-store"));
	return with;
}

/* Did, for all that is known, an attempt of this key have an effect? (CONTRACT 10) */
static bool may_have_executed(const struct exchange *x)
{
	const struct ledger_entry *entry = &x->entry;

	if (!x->held)
		return x->has_key; /* the ledger was not asked */
	if (entry->no_record)
		return false;
	/* Where twice is accepted, running out of time is enough to be given free. And what others
	 * gave free while it was under way here may have been done all the same. */
	if (entry->found == LEDGER_RELEASED)
		return x->idempotency->recovery.contract == RECOVERY_AT_LEAST_ONCE ||
		       (entry->settled == LEDGER_FENCED && entry->outcome != LEDGER_RELEASE);
	if (x->problem == PROBLEM_RESULT_UNKNOWN)
		return true; /* even where it was given free: twice is accepted there */
	if (entry->found == LEDGER_WON)
		return entry->outcome != LEDGER_RELEASE || entry->settled != LEDGER_SETTLED;
	return true;
}

/* Of the status of each problem the route may have its own opinion. */
static unsigned status_of(const struct exchange *x, enum problem problem)
{
	if (problem == PROBLEM_MISMATCH)
		return (unsigned)x->idempotency->mismatch_status;
	if (problem == PROBLEM_IN_PROGRESS)
		return (unsigned)x->idempotency->in_progress_status;
	if (problem == PROBLEM_STOPPED)
		return (unsigned)x->idempotency->stopped_status;
	if (problem == PROBLEM_RESULT_UNKNOWN && !x->status)
		return (unsigned)x->idempotency->unknown_status;
	return x->status;
}

/* Seconds; a little different for each request, so that retries do not come all at once. An unknown
 * result is asked for less and less often: it takes people, or the upstream, to settle it. */
static unsigned retry_after(const struct exchange *x, enum problem problem)
{
	unsigned jitter = (unsigned)(x->served.request.began_us & 1);
	int64_t age = x->entry.age_ms / 4000;

	switch (problem_status(problem)) {
	case 503:
		break;
	default:
		return 0;
	}
	if (problem == PROBLEM_RESULT_UNKNOWN && x->again_ms)
		return (unsigned)((x->again_ms + 999) / 1000) + jitter;
	if (problem == PROBLEM_RESULT_UNKNOWN)
		return age < 5 ? 5 + jitter : (age > 300 ? 300 : (unsigned)age);
	return problem == PROBLEM_STOPPED ? 60 : 1 + jitter;
}

static const char *state_word(const struct ledger_entry *entry)
{
	switch (entry->found) {
	case LEDGER_COMPLETED:
		return "completed";
	case LEDGER_IN_FLIGHT:
		return "in_flight";
	case LEDGER_UNKNOWN:
		return "unknown";
	case LEDGER_WON:
	case LEDGER_RELEASED:
	case LEDGER_STOPPED:
	case LEDGER_OVERLOADED:
	case LEDGER_UNAVAILABLE:
		break;
	}
	return "released";
}

static void tell_text(struct problem_about *about, const char *name, struct span text)
{
	if (text.len)
		about->extra[about->n_extra++] =
			(struct problem_extra){ .name = name, .text = text };
}

static void tell_date(struct exchange *x, struct problem_about *about, const char *name,
		      int64_t seconds)
{
	char *date = arena_alloc(x->served.request.arena, HTTP_DATE_BYTES);

	if (!seconds)
		return;
	http_date(seconds, date);
	tell_text(about, name, span_of(date));
}

/* What of the record a refusal tells: never stored content, nor a digest. */
static void tell_record(struct exchange *x, enum problem problem, struct problem_about *about)
{
	const struct ledger_entry *entry = &x->entry;
	const struct http_answer *of = entry->found == LEDGER_WON ? &x->answer : &entry->stored;
	const struct http_field *location = NULL;

	if (problem == PROBLEM_MISMATCH || problem == PROBLEM_RULES_CHANGED)
		tell_text(about, "state", span_of(state_word(entry)));
	if (problem == PROBLEM_NOT_RETAINED && of->status) {
		location = http_find(&of->fields, SPAN("Location"), NULL);
		about->extra[about->n_extra++] =
			(struct problem_extra){ .name = "original_status",
						.number = (int64_t)of->status };
		if (location)
			tell_text(about, "location", location->value);
		tell_date(x, about, "completed_at", entry->completed_at);
	}
	if (entry->found != LEDGER_WON && entry->found != LEDGER_UNAVAILABLE)
		tell_date(x, about, "first_seen_at", entry->first_seen);
}

struct http_answer exchange_refusal(struct exchange *x, enum problem problem,
				    const char *detail)
{
	struct problem_about about = {
		.problem = problem,
		.status = status_of(x, problem),
		.detail = span_of(detail),
		.owner = span_of(x->idempotency->owner),
		.may_have_executed = may_have_executed(x),
		.retry_after = retry_after(x, problem),
	};

	if (x->held) {
		about.request_id = span_of(x->entry.request_id);
		tell_record(x, problem, &about);
	}
	return problem_answer(x->served.request.arena, &about);
}
