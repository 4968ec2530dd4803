/*
 * A request that is not enforced: a route without idempotency, a safe method, an optional key that is
 * missing. The gateway is a plain proxy here: one forward, never repeated, the answer as it
 * comes. A small answer that comes at once, or whose length is known, is given whole; any other goes on
 * in pieces while it comes, for as long as it does, at the pace of the client. The request's body is
 * held whole, within limits.bytes_in_flight. A client that resets its connection ends the forward.
 *
 * It does not know the ledger.
 */
#include "passthrough.h"

#include "account.h"

#include <assert.h>

/* The largest request body; the sum over all requests is bounded by bytes_in_flight.
 * A chunked one counts as the largest it may become, from its head on. */
#define BODY_MAX         ((size_t)64 * 1024 * 1024)
#define BODY_MAX_CHUNKED ((size_t)8 * 1024 * 1024)
#define ANSWER_MAX       ((size_t)64 * 1024) /* that is held */

struct passthrough {
	struct served served; /* first */
	struct upstream_call call;
};
const size_t passthrough_size = sizeof(struct passthrough);

/* How a forward ended, and what the client hears where there is no answer to pass on. */
static const enum problem problems[] = {
	[UPSTREAM_ANSWERED] = PROBLEM_NONE,
	[UPSTREAM_NOT_SENT] = PROBLEM_UPSTREAM_UNREACHABLE,
	[UPSTREAM_TOO_LATE] = PROBLEM_UPSTREAM_UNREACHABLE,
	[UPSTREAM_TIMED_OUT] = PROBLEM_UPSTREAM_TIMEOUT,
	[UPSTREAM_CUT] = PROBLEM_UPSTREAM_BAD,
	[UPSTREAM_MALFORMED] = PROBLEM_UPSTREAM_BAD,
};

void passthrough_refuse(struct served *served, const struct problem_about *about)
{
	struct http_answer answer = problem_answer(served->request.arena, about);

	forward_reply(served, verdict_of(about->problem), &answer);
}

static void refuse(struct served *served, enum problem problem, const char *detail)
{
	passthrough_refuse(served,
			   &(struct problem_about){
				   .problem = problem,
				   .detail = span_of(detail),
				   .may_have_executed = forward_has_key(&served->request),
				   .retry_after = problem == PROBLEM_OVERLOADED ||
						  problem == PROBLEM_UPSTREAM_UNREACHABLE,
			   });
}

static bool answer_begins(struct upstream_call *call)
{
	struct passthrough *pass = container_of(call, struct passthrough, call);
	struct http_answer answer = forward_answer(call);

	forward_stream(&pass->served, call, &answer, INT64_MAX);
	return true;
}

static void answer_goes_on(struct upstream_call *call, struct span piece)
{
	forward_stream_data(&container_of(call, struct passthrough, call)->served, piece);
}

static void forwarded(struct upstream_call *call)
{
	struct passthrough *pass = container_of(call, struct passthrough, call);
	struct http_answer answer;

	forward_ended(&pass->served, call);
	pass->served.minded = NULL;
	pass->served.cause = call->cause;
	if (call->streamed) {
		forward_stream_over(&pass->served,
				    problems[call->end] ? verdict_of(problems[call->end])
							: VERDICT_PASSED,
				    !problems[call->end]);
		return;
	}
	if (problems[call->end]) {
		refuse(&pass->served, problems[call->end], call->cause);
		return;
	}
	answer = forward_answer(call);
	forward_reply(&pass->served, VERDICT_PASSED, &answer);
}

void passthrough_body(struct served *served)
{
	struct passthrough *pass = container_of(served, struct passthrough, served);

	if (served->request.body_too_large) {
		refuse(served, PROBLEM_BODY_TOO_LARGE, NULL);
		return;
	}
	pass->call = (struct upstream_call){ 0 }; /* others may have had the room before */
	forward_prepare(served, &pass->call, false);
	pass->call.answer_max = ANSWER_MAX;
	pass->call.head = answer_begins;
	pass->call.data = answer_goes_on;
	pass->call.eager = pass->call.endless = true;
	pass->call.start_by_ms = loop_clock_us() / 1000 + pass->call.upstream->timeout;
	pass->call.done = forwarded;
	served->minded = &pass->call;
	listener_mind(&served->request);
	upstream_send(served->services->upstreams, &pass->call);
}

void passthrough_head(struct served *served, const struct account_settings *account)
{
	struct span name;
	const char *why = NULL;
	enum problem problem =
		account ? account_of(account, &served->request, &name, &why) : PROBLEM_NONE;
	size_t announced = listener_body_announced(&served->request);
	bool chunked = announced == SIZE_MAX;
	size_t quarter = served->services->bytes_max / 4;
	size_t most =
		chunked ? (quarter < BODY_MAX_CHUNKED ? quarter : BODY_MAX_CHUNKED) : BODY_MAX;

	served->body = passthrough_body;
	if (problem)
		refuse(served, problem, why);
	else if (!chunked && announced > BODY_MAX)
		refuse(served, PROBLEM_BODY_TOO_LARGE, NULL);
	else if (!forward_admit(served, chunked ? most : announced))
		refuse(served, PROBLEM_OVERLOADED, NULL);
	else
		listener_read_body(&served->request, most);
}
