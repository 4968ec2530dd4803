/*
 * What answers hold; see upstream_held.h.
 *
 * The sum over all calls of a thread is bounded by what they share (`held_max`), but for what each of
 * them may hold in any case: an answer that would be stored is never lost because others fill the
 * memory. The limit is set before each read, so nothing is allocated that it does not allow;
 * between setting it and counting nobody else counts. What has moved to the arena (a body of an
 * announced length) stays counted until the request's end.
 */
#include "upstream_held.h"

void held_limit(const struct upstream_call *call, struct http1_reader *reader)
{
	size_t limit = call->held_before + call->held_more;

	reader->body_max = call->answer_max;
	if (!call->held)
		return;
	if (*call->held < call->held_max)
		limit += call->held_max - *call->held;
	if (limit < call->held_anyway)
		limit = call->held_anyway;
	if (limit < call->answer_max)
		reader->body_max = limit;
}

void held_count(struct upstream_call *call, const struct http1_reader *reader)
{
	size_t bytes = reader->answer.body.len + reader->body.len;
	size_t more = 0;

	if (!call->held)
		return;
	if (reader->into)
		bytes += reader->left;
	if (bytes > call->held_before)
		more = bytes - call->held_before;
	*call->held = *call->held - call->held_more + more;
	call->held_more = more;
}

const char *held_why(const struct upstream_call *call, const struct http1_reader *reader)
{
	return reader->body_over && reader->body_max < call->answer_max
		       ? "the gateway holds too many bytes"
		       : reader->why;
}
