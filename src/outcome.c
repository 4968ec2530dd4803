/*
 * Judges an answer. The body is looked through once, and only where a condition asks for it; what
 * cannot be read there holds nothing against the status.
 */
#include "outcome.h"

#include "condition.h"
#include "receipt.h"

/* Several lines of a field that proves something prove nothing. */
static bool released_by(const struct release_if *proof, const struct http_answer *answer)
{
	size_t lines = 0;
	const struct http_field *field = NULL;

	if (answer->status != (unsigned)proof->status)
		return false;
	field = http_find(&answer->fields, span_of(proof->header), &lines);
	if (!field || lines > 1)
		return false;
	return !proof->equals || span_equal(field->value, span_of(proof->equals));
}

/* The first condition that the body meets; NULL: none. */
static const struct when *met(const struct outcome_settings *outcome,
			      const struct http_answer *answer)
{
	struct span json = { "", 0 };

	if (outcome->n_when)
		json = condition_json(answer);
	for (size_t i = 0; json.len && i < outcome->n_when; i++)
		if (condition_met(&outcome->when[i].condition, json))
			return &outcome->when[i];
	return NULL;
}

static enum outcome listed(const struct idempotency_settings *idempotency,
			   const struct http_answer *answer, const char **why)
{
	static const enum outcome meant[] = { [WHEN_STORE] = OUTCOME_STORE,
					      [WHEN_RELEASE] = OUTCOME_RELEASE,
					      [WHEN_UNKNOWN] = OUTCOME_UNKNOWN };
	const struct when *when = met(&idempotency->outcome, answer);

	*why = when ? "the answer's body says so (outcome.when)" : NULL;
	if (when)
		return meant[when->list];
	return (enum outcome)idempotency->outcome_of[answer->status];
}

static bool has_receipt(const struct idempotency_settings *idempotency,
			const struct http_answer *answer)
{
	struct arena *arena = arena_new();
	bool has = receipt_of(arena, &idempotency->response, answer).len > 0;

	arena_free(arena);
	return has;
}

static bool released(const struct outcome_settings *terms, const struct http_answer *answer)
{
	for (size_t i = 0; i < terms->n_release_if; i++)
		if (released_by(&terms->release_if[i], answer))
			return true;
	return false;
}

/* What would be stored must have its receipt. */
static enum outcome with_receipt(const struct idempotency_settings *idempotency,
				 const struct http_answer *answer, const char **why)
{
	if (!idempotency->outcome.receipt_required || has_receipt(idempotency, answer))
		return OUTCOME_STORE;
	*why = "the answer has no receipt";
	return OUTCOME_UNKNOWN;
}

enum outcome outcome_of(const struct idempotency_settings *idempotency,
			const struct http_answer *answer, const char **why)
{
	enum outcome outcome = OUTCOME_UNKNOWN;

	if (released(&idempotency->outcome, answer)) {
		*why = "a field of the answer says that nothing was done";
		return OUTCOME_RELEASE;
	}
	outcome = listed(idempotency, answer, why);
	return outcome == OUTCOME_STORE ? with_receipt(idempotency, answer, why) : outcome;
}

enum outcome outcome_of_resend(const struct idempotency_settings *idempotency,
			       const struct http_answer *answer, const char **why)
{
	const struct when *when = NULL;

	*why = NULL;
	if (!idempotency->recovery.resend_store_of[answer->status])
		return OUTCOME_UNKNOWN;
	when = met(&idempotency->outcome, answer);
	if (!released(&idempotency->outcome, answer) && !(when && when->list != WHEN_STORE))
		return with_receipt(idempotency, answer, why);
	*why = "the answer to a resend does not say that it was done";
	return OUTCOME_UNKNOWN;
}
