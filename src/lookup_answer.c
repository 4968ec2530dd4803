/*
 * Judges answers to lookups; see lookup_answer.h. A found status whose document does not fulfil
 * found_when (an empty list, say) says nothing about the record: nothing is concluded from it, and
 * it is no proof that lookups work. A receipt is brought into the same normal form as those of the operation's own answers, so
 * that the two are equal where they name the same thing.
 */
#include "lookup_answer.h"

#include "condition.h"
#include "forward.h"
#include "receipt.h"

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
	if (recovery->pending_when.place && condition_holds(&recovery->pending_when, answer))
		return LOOKUP_PENDING;
	if (recovery->found_when.place && !condition_holds(&recovery->found_when, answer))
		return LOOKUP_OTHER;
	return LOOKUP_FOUND;
}

static struct span text_at(const struct canonical_rules *place,
			   const struct upstream_call *call)
{
	return place ? receipt_text(call->arena, place, &call->answer)
		     : (struct span){ NULL, 0 };
}

/* Does the route take its receipts from Location? */
static bool by_location(const struct idempotency_settings *idempotency)
{
	const struct source *at = idempotency->response.receipt_at;

	return at && at->header.at && http_same_name(at->header, SPAN("Location"));
}

/* As in the operation's own answers: relative where it names the upstream itself, whom no client can
 * reach. Empty: there is none. */
static struct span location_of(const struct recovery_settings *recovery,
			       const struct upstream_call *call)
{
	struct http_field field = { SPAN("Location"), text_at(recovery->location_at, call) };
	struct upstream_call as = { .arena = call->arena,
				    .upstream = call->upstream,
				    .answer.fields = { &field, 1 } };

	if (field.value.len == 0 || !http_field_value(field.value))
		return (struct span){ NULL, 0 };
	return forward_answer(&as).fields.at[0].value;
}

struct lookup_result lookup_result_of(const struct idempotency_settings *idempotency,
				      const struct upstream_call *call)
{
	const struct recovery_settings *recovery = &idempotency->recovery;
	struct span location = location_of(recovery, call);
	struct span receipt = text_at(recovery->receipt_at, call);
	struct lookup_result result = { .status = recovery->result_status };

	result.fields.at = arena_alloc(call->arena, sizeof(*result.fields.at));
	if (location.len > 0)
		http_add(&result.fields, SPAN("Location"), location);
	if (receipt.len == 0 && by_location(idempotency))
		receipt = location;
	result.receipt = receipt.len ? receipt_normal(call->arena, receipt) : receipt;
	return result;
}
