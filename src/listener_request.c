/*
 * A request's life, from its first line to its end; see listener.h for what the handler is
 * promised. The HTTP library is not known here: listener.c reports what came, and is asked to
 * queue an answer, to suspend and to resume.
 *
 * The library takes an answer in the first call of its handler (then it closes the connection),
 * or in the last, when the body is there. So: a request without a body is always answered in the
 * last call, which follows at once; an answer that comes later finds the connection suspended in
 * one of these two calls; for a body that is too long to be swallowed there is listener_raw.
 */
#include "listener_inner.h"
#include "listener_raw.h"
#include "log.h"

#include <assert.h>
#include <sys/socket.h>

#define SWALLOW_MAX ((size_t)1024 * 1024)
#define ROOM_AHEAD  ((size_t)64 * 1024) /* for a body that was announced and has not come yet */

struct inbound *inbound_new(struct connection *connection, const char *target)
{
	struct listener *l = connection->listener;
	struct arena *arena = arena_new();
	struct inbound *in = arena_zero(arena, sizeof(*in) + l->handler->size);
	struct http_request *request = inbound_request(in);

	in->listener = l;
	in->connection = connection;
	in->target = target;
	in->holds = 1;
	request->arena = arena;
	request->target = arena_copy(arena, span_of(target));
	request->peer = arena_copy(arena, span_of(connection->peer));
	return in;
}

static void release(struct inbound *in)
{
	struct listener *l = in->listener;

	assert(in->holds > 0);
	if (--in->holds > 0)
		return;
	if (in->handled) {
		l->n_requests--;
		l->handler->end(inbound_request(in), l->handler->arg);
	}
	buf_fini(&in->body);
	stream_fini(in);
	arena_free(inbound_request(in)->arena);
}

void inbound_end(struct inbound *inbound, bool whole)
{
	if (!whole && !inbound->raw && !inbound->stream.aborted)
		inbound->gone = true;
	inbound->connection = NULL;
	stream_moved(inbound);
	release(inbound);
}

void inbound_send(struct inbound *in)
{
	struct connection *c = in->connection;

	if (in->raw) {
		listener_raw(c->fd, &in->answer);
		shutdown(c->fd, SHUT_WR);
		listener_wait(c, WAITING_CLOSE);
	} else {
		c->unread = -1;
		listener_wait(c, in->stream.on ? WAITING_STREAM : WAITING_READER);
		listener_queue(in);
	}
	if (in->suspended)
		listener_resume(c);
	in->suspended = false;
}

static void give_body(struct inbound *in)
{
	const struct listener_handler *handler = in->listener->handler;
	struct http_request *request = inbound_request(in);

	in->given = true;
	if (!request->body_too_large)
		request->body = buf_view(&in->body);
	in->inside = true;
	handler->body(request, handler->arg);
	in->inside = false;
}

/* No more is read: now the answer, or the handler that makes it. */
void inbound_whole(struct inbound *inbound)
{
	if (!inbound->answered && !inbound->given)
		give_body(inbound);
	if (inbound->answered) {
		inbound_send(inbound);
		return;
	}
	inbound->suspended = true;
	listener_wait(inbound->connection, WAITING_ANSWER);
	listener_suspend(inbound->connection);
}

void inbound_give_up(struct inbound *inbound)
{
	inbound->raw = true;
	inbound_whole(inbound);
}

static void refuse(struct inbound *in, const struct listener_checked *checked)
{
	struct problem_about about = {
		.problem = checked->status == 431 ? PROBLEM_HEAD_TOO_LARGE
						  : PROBLEM_REQUEST_MALFORMED,
		.status = checked->status,
		.detail = span_of(checked->why),
		.may_have_executed = checked->keyed,
	};

	metrics_add(in->listener->metrics, METRIC_requests_total,
		    METRICS_PAIR(0, verdict_of(about.problem)), 1);
	log_debug("listener", "%s: refused: %s", in->connection->peer, checked->why);
	in->answered = true;
	in->answer = problem_answer(inbound_request(in)->arena, &about);
	inbound_send(in);
}

/* The handler has seen the head. What becomes of the body? */
static void decided(struct inbound *in)
{
	struct http_request *request = inbound_request(in);
	bool chunked = in->announced == SIZE_MAX;

	assert(in->reading || in->answered);
	if (in->announced == 0)
		return; /* the last call follows at once */
	if (in->reading && !chunked && in->announced > in->max)
		request->body_too_large = true;
	in->unwanted = in->answered || request->body_too_large;
	if (in->unwanted && (in->expects || (!chunked && in->announced > SWALLOW_MAX))) {
		inbound_whole(in); /* in the first call: the library closes behind it */
		return;
	}
	listener_wait(in->connection, in->unwanted ? WAITING_SWALLOW : WAITING_BODY);
	if (in->unwanted)
		return;
	buf_init(&in->body, in->max);
	if (!chunked)
		buf_reserve(&in->body, in->announced < ROOM_AHEAD ? in->announced : ROOM_AHEAD);
}

void inbound_begin(struct inbound *inbound, const struct listener_checked *checked)
{
	struct listener *l = inbound->listener;
	struct http_request *request = inbound_request(inbound);

	inbound->begun = true;
	inbound->keyed = checked->keyed;
	inbound->expects = checked->expects;
	inbound->announced = checked->announced;
	if (checked->status) {
		refuse(inbound, checked);
		return;
	}
	request->began_us = loop_now_us(l->loop);
	inbound->handled = true;
	l->n_requests++;
	inbound->inside = true;
	l->handler->head(request, l->handler->arg);
	inbound->inside = false;
	decided(inbound);
}

void inbound_piece(struct inbound *inbound, const char *bytes, size_t len)
{
	struct connection *c = inbound->connection;

	if (inbound->raw)
		return;
	if (!inbound->unwanted) {
		buf_append(&inbound->body, bytes, len);
		if (!inbound->body.full) {
			listener_wait(c, WAITING_BODY);
			return;
		}
		inbound_request(inbound)->body_too_large = true;
		inbound->unwanted = true;
		buf_fini(&inbound->body);
		listener_wait(c, WAITING_SWALLOW);
	}
	inbound->swallowed += len;
	if (inbound->swallowed > SWALLOW_MAX)
		inbound_give_up(inbound);
}

/* ---- what the handler calls */

void listener_read_body(struct http_request *request, size_t max)
{
	struct inbound *in = inbound_of(request);

	assert(in->inside && !in->given && !in->reading && !in->answered);
	in->reading = true;
	in->max = max;
}

size_t listener_body_announced(const struct http_request *request)
{
	return inbound_of(request)->announced;
}

void listener_answer(struct http_request *request, const struct http_answer *answer)
{
	struct inbound *in = inbound_of(request);

	assert(!in->answered && in->connection);
	in->answered = true;
	in->answer = *answer;
	if (!in->inside)
		inbound_send(in);
}

bool listener_gone(const struct http_request *request)
{
	return inbound_of(request)->gone;
}

void listener_hold(struct http_request *request)
{
	inbound_of(request)->holds++;
}

void listener_release(struct http_request *request)
{
	release(inbound_of(request));
}
