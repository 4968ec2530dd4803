/*
 * Judges answers to lookups; see lookup_answer.h. A found status whose document does not fulfil
 * found_when says that something is there and not what was hoped for: nothing is concluded from
 * that. A receipt is put through the same door as one of the operation's own answers, so that the
 * two are equal where they name the same thing.
 */
#include "lookup_answer.h"

#include "json_find.h"
#include "json_text.h"
#include "outcome.h"

/* Statuses by which servers say that they cannot answer now. */
static bool unwell(unsigned status)
{
	return status >= 500 || status == 408 || status == 425 || status == 429;
}

enum lookup_verdict lookup_judge(const struct recovery_settings *recovery,
				 const struct http_answer *answer)
{
	if (recovery->not_found_of[answer->status])
		return LOOKUP_NOT_FOUND;
	if (!recovery->found_of[answer->status])
		return unwell(answer->status) ? LOOKUP_FAILED : LOOKUP_ODD;
	if (recovery->pending_when.place &&
	    condition_holds(&recovery->pending_when, answer->body))
		return LOOKUP_PENDING;
	if (recovery->found_when.place && !condition_holds(&recovery->found_when, answer->body))
		return LOOKUP_PENDING;
	return LOOKUP_FOUND;
}

/* The text or integer at that place of the body; empty: there is none. */
static struct span value_at(struct arena *arena, const struct canonical_rules *place,
			    struct span body)
{
	struct span value, text = { NULL, 0 };
	enum json_scalar kind = JSON_NONE;

	if (!place || !json_valid(body) || !json_find(place, body, &value))
		return text;
	kind = json_scalar(arena, value, &text);
	return kind == JSON_TEXT || kind == JSON_INTEGER ? text : (struct span){ NULL, 0 };
}

/* As the route's own receipts are taken, from a field of that name. */
static struct span as_receipt(struct arena *arena,
			      const struct idempotency_settings *idempotency,
			      struct span value)
{
	const struct source *at = idempotency->response.receipt_at;
	struct http_field field;
	struct http_answer as = { .fields = { &field, 1 } };

	if (!at || !at->header.at)
		return value;
	field = (struct http_field){ at->header, value };
	return receipt_of(arena, idempotency, &as);
}

static struct span receipt_found(struct arena *arena,
				 const struct idempotency_settings *idempotency,
				 const struct http_answer *answer, struct span location)
{
	const struct source *at = idempotency->response.receipt_at;
	struct span value = value_at(arena, idempotency->recovery.receipt_at, answer->body);

	if (value.len > 0)
		return as_receipt(arena, idempotency, value);
	if (location.len > 0 && at && at->header.at &&
	    http_same_name(at->header, SPAN("Location")))
		return as_receipt(arena, idempotency, location);
	return (struct span){ NULL, 0 };
}

struct lookup_result lookup_result_of(struct arena *arena,
				      const struct idempotency_settings *idempotency,
				      const struct http_answer *answer)
{
	struct span location =
		value_at(arena, idempotency->recovery.location_at, answer->body);
	struct lookup_result result = { .status = idempotency->recovery.result_status };

	result.fields.at = arena_alloc(arena, sizeof(*result.fields.at));
	if (location.len > 0 && http_field_value(location))
		http_add(&result.fields, SPAN("Location"), location);
	else
		location = (struct span){ NULL, 0 };
	result.receipt = receipt_found(arena, idempotency, answer, location);
	return result;
}
