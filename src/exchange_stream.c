/*
 * An answer that is larger than what is stored: it goes to the client while it comes, but for its
 * end, which follows the settle (CONTRACT 2.7, 8). So the client holds a whole answer only if
 * the record says what it means; a retry is told that it is not retained.
 *
 * Such a client may be slow, or leave: the upstream's answer is read to its end in any case, and
 * decides about the record alone. For that a client may hold the upstream up for half of the time
 * that the forward may take, and is dropped then.
 *
 * Where the route wants to see the whole of an answer first, to judge or to reduce it, and from a resend
 * on, nothing is streamed.
 *
 * HTTP/1.0 has no end that can be withheld but a Content-Length. Without one the answer is held as
 * far as memory goes, and dropped beyond that.
 */
#include "exchange_internal.h"

#include "source.h"

static bool begins(struct upstream_call *call)
{
	struct exchange *x = container_of(call, struct exchange, call);

	if (x->served.request.minor == 0 && call->length == LISTENER_LENGTH_UNKNOWN)
		return false;
	x->answer = forward_answer(call);
	/* if the rest comes; where it does not, there will be no end */
	x->entry.outcome = exchange_judge(x);
	exchange_mark(x, &x->answer);
	forward_stream(&x->served, call, &x->answer, call->upstream->timeout / 2);
	return true;
}

static void goes_on(struct upstream_call *call, struct span piece)
{
	forward_stream_data(&container_of(call, struct exchange, call)->served, piece);
}

static bool needs_whole(const struct idempotency_settings *idempotency)
{
	const struct response_settings *response = &idempotency->response;

	return idempotency->outcome.n_when > 0 || response->body != RESPONSE_FULL ||
	       response->kept || (response->receipt_at && !response->receipt_at->header.at);
}

void exchange_stream(struct exchange *x)
{
	struct upstream_call *call = &x->call;

	if (x->entry.generation > 1 || needs_whole(x->idempotency))
		return;

	call->head = begins;
	call->data = goes_on;
	if (x->served.request.minor > 0)
		call->answer_max = (size_t)x->idempotency->response.max_body;
}
