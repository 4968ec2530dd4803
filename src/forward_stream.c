/*
 * An answer that is passed on while it comes: the upstream is read as fast as the client takes it,
 * and what waits in between counts among limits.bytes_in_flight. One stream holds what had been
 * held before it began, or what might have been, and one read; where all together hold too much, less.
 */
#include "forward.h"

#define QUEUED_MAX                                                                             \
	((size_t)256 * 1024) /* or what may be held of the answer, where that is more */
#define QUEUED_LOW ((size_t)64 * 1024) /* where the memory is full */

static void count(struct served *served, size_t queued)
{
	served->services->bytes += queued - served->queued;
	served->bytes += queued - served->queued;
	served->queued = queued;
}

void forward_stream(struct served *served, struct upstream_call *call,
		    const struct http_answer *answer, int64_t patience_ms)
{
	const struct listener_stream stream = { .answer = answer,
						.length = call->length,
						.patience = patience_ms };

	served->stream = call;
	served->status = answer->status;
	listener_stream(&served->request, &stream);
}

static size_t most_queued(const struct served *served)
{
	const struct services *services = served->services;
	size_t held = served->stream->answer_max;

	if (services->bytes > services->bytes_max)
		return QUEUED_LOW;
	return held > QUEUED_MAX ? held : QUEUED_MAX;
}

void forward_stream_data(struct served *served, struct span piece)
{
	size_t queued = listener_stream_data(&served->request, piece);

	served->sent_bytes += piece.len;
	count(served, queued);
	if (queued <= most_queued(served))
		return;
	upstream_pause(served->stream);
	listener_stream_until(&served->request, most_queued(served) / 4);
}

void forward_stream_over(struct served *served, unsigned verdict, bool whole)
{
	served->verdict = verdict;
	served->stream = NULL;
	if (whole)
		listener_stream_end(&served->request);
	else
		listener_stream_abort(&served->request);
}

void forward_moved(struct served *served)
{
	if (served->stream)
		count(served, listener_stream_queued(&served->request));
	if (served->minded && listener_gone(&served->request))
		upstream_cancel(served->minded, "the client left");
	else if (served->stream)
		upstream_resume(served->stream);
}
