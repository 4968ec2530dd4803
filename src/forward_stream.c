/*
 * An answer that is passed on while it comes: the upstream is read as fast as the client takes it,
 * and what waits in between counts among limits.bytes_in_flight. One stream holds what had been
 * held before it began, or the listener's high mark and one read.
 */
#include "forward.h"

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

void forward_stream_data(struct served *served, struct span piece)
{
	size_t queued = listener_stream_data(&served->request, piece);

	served->sent_bytes += piece.len;
	count(served, queued);
	if (queued > LISTENER_STREAM_HIGH)
		upstream_pause(served->stream);
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
