/*
 * Answers in pieces: what is queued for a client, and how slow it may be.
 *
 * The library asks for bytes as the client takes them (stream_take). Where there are none, the
 * connection is suspended first, or the library would ask on and on. Of an answer whose length is
 * known the last byte is withheld until the stream's end; one without has its last chunk. A client
 * that leaves is noticed by the library when it writes; then `moved` says so, and whatever comes
 * for it is dropped.
 *
 * A queue is bounded by whoever fills it: it stops where it finds too much in it, until `moved`.
 */
#include "listener_inner.h"

#include <assert.h>
#include <poll.h>
#include <sys/socket.h>

/* More than anybody may queue: a whole answer that was held first (response.max_body), and then
 * some. */
#define QUEUE_MAX ((size_t)2 * 1024 * 1024 * 1024)

#define SHRINK_FROM ((size_t)64 * 1024)

static size_t queued(const struct stream *s)
{
	return s->queue.len - s->taken;
}

static int64_t now_of(const struct inbound *in)
{
	return loop_now(in->listener->loop);
}

static bool over(const struct stream *s)
{
	return s->ended || s->aborted;
}

void stream_moved(struct inbound *inbound)
{
	const struct listener_handler *handler = inbound->listener->handler;
	bool waits = inbound->stream.on ? !over(&inbound->stream)
					: inbound->minded && !inbound->answered;

	if (waits && handler->moved)
		handler->moved(inbound_request(inbound), handler->arg);
}

/* The memory of what was taken is given back where it is most of the queue. */
static void shrink(struct stream *s)
{
	struct buf rest;

	if (s->taken < SHRINK_FROM || s->taken < queued(s))
		return;
	buf_init(&rest, QUEUE_MAX);
	buf_append(&rest, s->queue.at + s->taken, queued(s));
	buf_fini(&s->queue);
	s->queue = rest;
	s->taken = 0;
}

static void took(struct inbound *in, size_t n)
{
	struct stream *s = &in->stream;

	s->taken += n;
	if (s->sized)
		s->left -= n;
	shrink(s);
	listener_wait(in->connection, WAITING_STREAM);
	if (queued(s) >= s->below)
		return;
	s->below = 0;
	s->waited_ms += now_of(in) - s->waits_since;
	stream_moved(in);
}

long stream_take(struct inbound *inbound, char *to, size_t room)
{
	struct stream *s = &inbound->stream;
	size_t n = queued(s) < room ? queued(s) : room;

	if (s->aborted)
		return STREAM_FAILED;
	if (s->sized && !s->ended && n >= s->left)
		n = (size_t)s->left - 1;
	if (n > 0) {
		memcpy(to, s->queue.at + s->taken, n);
		took(inbound, n);
		return (long)n;
	}
	if (s->ended)
		return s->sized ? STREAM_FAILED : STREAM_ENDED;
	inbound->suspended = true;
	listener_suspend(inbound->connection);
	return 0;
}

static void go_on(struct inbound *in)
{
	struct connection *c = in->connection;

	if (!c || !in->suspended)
		return;
	in->suspended = false;
	listener_wait(c, WAITING_STREAM);
	listener_resume(c);
}

void listener_stream(struct http_request *request, const struct listener_stream *stream)
{
	struct inbound *in = inbound_of(request);
	struct stream *s = &in->stream;

	assert(in->given && !in->inside && !in->answered && !in->raw && stream->length > 0);
	in->answered = true;
	in->answer = *stream->answer;
	in->holds++;
	s->on = true;
	s->sized = stream->length != LISTENER_LENGTH_UNKNOWN;
	s->left = stream->length;
	s->patience = stream->patience;
	buf_init(&s->queue, QUEUE_MAX);
	inbound_send(in);
}

size_t listener_stream_data(struct http_request *request, struct span bytes)
{
	struct inbound *in = inbound_of(request);
	struct stream *s = &in->stream;

	assert(s->on && !over(s));
	if (!in->connection || in->gone)
		return 0;
	buf_span(&s->queue, bytes);
	assert(!s->queue.full);
	go_on(in);
	return queued(s);
}

void listener_stream_until(struct http_request *request, size_t below)
{
	struct inbound *in = inbound_of(request);
	struct stream *s = &in->stream;

	assert(s->on && !over(s) && below > 0);
	if (!s->below)
		s->waits_since = now_of(in);
	s->below = below;
}

size_t listener_stream_queued(const struct http_request *request)
{
	const struct inbound *in = inbound_of(request);

	return in->connection && !in->gone ? queued(&in->stream) : 0;
}

void listener_stream_end(struct http_request *request)
{
	struct inbound *in = inbound_of(request);

	assert(in->stream.on && !over(&in->stream));
	in->stream.ended = true;
	in->stream.below = 0;
	go_on(in);
	listener_release(request);
}

/* A reset, which an orderly end cannot be taken for. What the client has not taken is lost with it;
 * of a socket that knows none (unix) nothing happens here. */
static void reset(int fd)
{
	const struct sockaddr nobody = { .sa_family = AF_UNSPEC };

	(void)!connect(fd, &nobody, sizeof(nobody));
}

void listener_stream_abort(struct http_request *request)
{
	struct inbound *in = inbound_of(request);

	assert(in->stream.on && !over(&in->stream));
	in->stream.aborted = true;
	if (in->connection) {
		if (request->minor == 0 && !in->stream.sized)
			reset(in->connection->fd);
		shutdown(in->connection->fd, SHUT_RDWR);
	}
	go_on(in);
	listener_release(request);
}

void listener_mind(struct http_request *request)
{
	inbound_of(request)->minded = true;
}

bool stream_stalled(const struct inbound *inbound, int64_t now)
{
	const struct stream *s = &inbound->stream;

	return s->below && s->patience - s->waited_ms <= now - s->waits_since;
}

/* Reported whether anybody asked or not; the end of the client's half is not among it. */
bool stream_reset(const struct inbound *inbound)
{
	struct pollfd ready = { .fd = inbound->connection->fd };

	return poll(&ready, 1, 0) > 0;
}

void stream_fini(struct inbound *inbound)
{
	buf_fini(&inbound->stream.queue);
}
