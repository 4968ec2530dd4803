/*
 * How an answer is read: off the connection, through the codec, to whoever waits for it.
 *
 * It is held whole as far as it may be (upstream_held.c); what is more goes on in pieces, where the
 * caller takes them. A caller who cannot take more for now pauses the call: then nothing is read,
 * the kernel's buffers fill, and the upstream waits. One read may still be under way, so what a
 * caller is given beyond its pause is less than UPSTREAM_READ_BYTES.
 */
#include "upstream.h"

#include "upstream_held.h"
#include "upstream_inner.h"

#include <assert.h>

#define READS 16 /* of one ready socket before the others have their turn */

static struct upstream_call *call_of(struct http1_reader *reader)
{
	return container_of(reader, struct upstream_link, reader)->call;
}

/* The body is more than may be held: does it go on in pieces? */
static bool over(struct http1_reader *reader)
{
	struct upstream_call *call = call_of(reader);

	if (!call->head)
		return false;
	call->answer = reader->answer;
	call->length = reader->length;
	call->close_delimited = reader->close_delimited;
	call->streamed = call->head(call);
	if (call->streamed && call->endless)
		call->deadline_ms = INT64_MAX;
	return call->streamed;
}

static void piece(struct http1_reader *reader, struct span bytes)
{
	struct upstream_call *call = call_of(reader);

	call->data(call, bytes);
}

void upstream_listen(struct upstream_link *link)
{
	struct upstream_call *call = link->call;

	http1_reader_init(&link->reader, call->arena, call->answer_max,
			  span_equal(call->method, SPAN("HEAD")));
	link->reader.discard = call->drop_over;
	link->reader.over = over;
	link->reader.piece = piece;
}

static int64_t due_ms(const struct upstream_link *link)
{
	const struct upstream_settings *settings = link->call->upstream;
	int64_t pause = link->written && !link->heard ? settings->first_byte_timeout
						      : settings->idle_timeout;
	int64_t due = link->moved_ms + pause;

	if (link->call->paused)
		return link->call->deadline_ms;
	return due < link->call->deadline_ms ? due : link->call->deadline_ms;
}

/* A timer that is set too early is left alone: it looks again when it is due. */
void upstream_arm(struct upstream_link *link)
{
	struct loop *loop = upstream_owner(link->call)->loop;
	struct loop_timer *timer = &link->call->timer;
	int64_t due = due_ms(link);

	if (due != INT64_MAX && (!loop_timer_set(timer) || timer->at > due))
		loop_timer(loop, timer, due - loop_now(loop));
}

static void answered(struct upstream_link *link)
{
	const struct http1_reader *reader = &link->reader;
	bool keep = reader->keep_alive && reader->trailing == 0 && !reader->close_delimited &&
		    link->written && !link->broken;

	link->call->answer = reader->answer;
	link->call->close_delimited = reader->close_delimited;
	link->call->length = reader->length;
	link->call->dropped = reader->body_over && !reader->passing;
	upstream_over(upstream_part(link, keep), UPSTREAM_ANSWERED, NULL);
}

/* What has just been read. False where the call has ended, and the link is gone. */
static bool take(struct upstream_link *link, size_t n)
{
	struct upstreams *upstreams = upstream_owner(link->call);
	struct http1_reader *reader = &link->reader;
	enum http1_state state = HTTP1_MORE;
	const char *why = NULL;

	held_limit(link->call, reader);
	(void)http1_read(reader, (struct span){ upstreams->read, n });
	if (link->call->eager && n < UPSTREAM_READ_BYTES &&
	    reader->length == HTTP1_LENGTH_UNKNOWN)
		http1_pass_on(reader);
	state = reader->state;
	held_count(link->call, reader);
	why = held_why(link->call, reader);
	link->heard = true;
	link->moved_ms = loop_now(upstreams->loop);
	if (state == HTTP1_COMPLETE)
		answered(link);
	else if (state != HTTP1_MORE)
		upstream_over(upstream_part(link, false), UPSTREAM_MALFORMED, why);
	return state == HTTP1_MORE;
}

static void stream_ended(struct upstream_link *link, enum wire_moved how)
{
	bool seen = link->reader.seen;

	if (how == WIRE_ENDED && !link->broken && http1_eof(&link->reader) == HTTP1_COMPLETE)
		answered(link);
	else
		upstream_over(upstream_part(link, false), UPSTREAM_CUT,
			      seen ? "the answer was cut off"
				   : "the connection ended without an answer");
}

bool upstream_pull(struct upstream_link *link)
{
	struct upstream_call *call = link->call;
	struct upstreams *upstreams = upstream_owner(call);
	size_t n = 0;

	for (unsigned reads = 1; !call->paused; reads++) {
		enum wire_moved moved =
			wire_read(&link->wire, upstreams->read, sizeof(upstreams->read), &n);

		if (moved == WIRE_BLOCKED)
			break;
		if (moved != WIRE_MOVED) {
			stream_ended(link, moved);
			return false;
		}
		if (!take(link, n))
			return false;
		if (!wire_more(&link->wire, n, sizeof(upstreams->read)) ||
		    (reads >= READS && !link->wire.tls))
			break;
	}
	upstream_arm(link);
	return true;
}

/* What has come but was not read yet, because the machine slept or was busy, counts. */
void upstream_overdue(struct upstream_link *link)
{
	struct upstream_call *call = link->call;
	const char *cause = "the answer took too long as a whole";
	bool sent = link->sent;

	if (sent && !upstream_pull(link))
		return;
	if (loop_now(upstream_owner(call)->loop) < due_ms(link)) {
		upstream_arm(link);
		return;
	}
	if (due_ms(link) < call->deadline_ms)
		cause = link->heard     ? "the answer paused for too long"
			: link->written ? "the answer did not begin in time"
					: "the request was not taken in time";
	upstream_over(upstream_part(link, false), sent ? UPSTREAM_TIMED_OUT : UPSTREAM_NOT_SENT,
		      cause);
}

void upstream_pause(struct upstream_call *call)
{
	if (!call->on || call->paused)
		return;
	assert(call->streamed);
	call->paused = true;
	wire_pause(&call->on->wire);
}

/* It goes on by its timer: not in the caller's function, and also with what TLS holds already. */
void upstream_resume(struct upstream_call *call)
{
	struct loop *loop = NULL;

	if (!call->on || !call->paused)
		return;
	loop = upstream_owner(call)->loop;
	call->paused = false;
	call->on->moved_ms = loop_now(loop);
	wire_resume(&call->on->wire);
	loop_timer(loop, &call->timer, 0);
}
