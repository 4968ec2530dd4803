/*
 * A call's life: it waits for a connection, is written once, and is read to its end.
 *
 *   upstream_send -> start -> begin -> push -> pull -> end -> `done`, from upstreams_run
 *                      |        ^
 *               waits or opens -+
 *
 * "Not sent" is said only where it is proved: no connection came to be, or the first send() on
 * the socket failed with no byte accepted. Over TLS the first SSL_write proves nothing, whatever
 * it returns. Only such a call goes on to another connection (a pooled one that was dead: once;
 * a server that cannot be reached: the next); after one accepted byte it ends here, one way or
 * the other, and nothing is ever sent again. So push() is the one place that writes, and
 * `link->sent` is set in it and never taken back. The time by which a call must begin is looked at
 * there, on the clock itself, before the first byte: a pause of the process moves no limit.
 *
 * A reset ends an answer, it does not complete one: once a write has failed, the end of the stream
 * counts as a cut, because the kernel reports the reset once only.
 */
#include "upstream.h"

#include "upstream_inner.h"

#include <assert.h>

#define TLS_RECORD ((size_t)16 * 1024) /* a small request is one record */

static void serve(struct upstream_pool *pool);
static void go_on(struct upstream_call *call);

/* The call is over; `done` comes with the next upstreams_run. */
void upstream_over(struct upstream_call *call, enum upstream_end how, const char *cause)
{
	struct upstreams *upstreams = upstream_owner(call);

	loop_timer_stop(upstreams->loop, &call->timer);
	call->end = how;
	call->cause = cause;
	call->total_us = loop_clock_us() - call->began_us;
	call->lent = false;
	call->pool->calls--;
	if (upstreams->outside && list_empty(&upstreams->ended))
		loop_wake(upstreams->loop);
	list_append(&upstreams->ended, &call->link);
	serve(call->pool);
}

/* Parts the call from its link, which is kept where it can serve another one. */
struct upstream_call *upstream_part(struct upstream_link *link, bool keep)
{
	struct upstream_call *call = link->call;
	const struct upstream_settings *settings = call->upstream;

	if (call->paused)
		wire_resume(&link->wire);
	call->paused = false;
	call->on = NULL;
	http1_reader_fini(&link->reader);
	if (keep && settings->connections == CONNECTIONS_POOLED)
		link_park(link, settings->keepalive);
	else
		link_drop(link);
	return call;
}

/* The next server, where there is one: nothing was sent to this one. */
static void unreached(struct upstream_call *call, const char *cause)
{
	place_failed(&call->pool->places[call->server]);
	call->tried |= pool_bit(call->server);
	if (pool_next(call->pool, call->tried, &call->server))
		go_on(call);
	else
		upstream_over(call, UPSTREAM_NOT_SENT, cause);
}

/* The connection ended before it took a byte. */
static void undelivered(struct upstream_link *link)
{
	bool pooled = link->pooled;
	struct upstream_call *call = upstream_part(link, false);

	if (pooled) {
		call->retried = true;
		go_on(call);
	} else {
		unreached(call, "the connection ended before anything was sent");
	}
}

static struct span rest(struct span all, size_t done)
{
	return (struct span){ all.len > done ? all.at + done : "", all.len - done };
}

static void accepted(struct upstream_link *link, size_t n)
{
	size_t of_head = link->head.len - link->head_sent;

	link->sent = true;
	if (of_head > n)
		of_head = n;
	link->head_sent += of_head;
	link->body_sent += n - of_head;
	link->written =
		link->head_sent == link->head.len && link->body_sent == link->call->body.len;
	link->moved_ms = loop_now(upstream_owner(link->call)->loop);
}

static const char late[] = "it was too late to begin";

static bool too_late(const struct upstream_call *call)
{
	return call->start_by_ms && loop_clock_us() / 1000 >= call->start_by_ms;
}

/* Writes what the connection takes. False where the call has ended or gone on to another link. */
static bool push(struct upstream_link *link)
{
	while (!link->written && !link->broken) {
		struct span head = rest(buf_view(&link->head), link->head_sent);
		struct span body = rest(link->call->body, link->body_sent);
		enum wire_moved moved = WIRE_BROKEN;
		size_t n = 0;

		if (!link->sent && too_late(link->call)) {
			upstream_over(upstream_part(link, true), UPSTREAM_TOO_LATE, late);
			return false;
		}
		link->sent = link->sent || link->wire.tls;
		moved = wire_write(&link->wire, head, body, &n);
		if (moved == WIRE_BLOCKED)
			break;
		if (moved == WIRE_MOVED) {
			accepted(link, n);
		} else if (!link->sent) {
			undelivered(link);
			return false;
		} else {
			link->broken = true;
		}
	}
	if (link->broken && upstream_owner(link->call)->outside) {
		/* whoever calls us is not called back by what is read */
		loop_timer(upstream_owner(link->call)->loop, &link->call->timer, 0);
		return true;
	}
	if (link->broken)
		return upstream_pull(link); /* it may have answered before it hung up */
	upstream_arm(link);
	return true;
}

static bool compose(struct upstream_link *link)
{
	const struct upstream_call *call = link->call;
	const struct http1_head head = {
		.method = call->method,
		.target = call->target,
		.fields = &call->fields,
		.body_bytes = call->body.len,
		.close = call->upstream->connections == CONNECTIONS_FRESH,
	};
	size_t room = 0;

	link->head_sent = link->body_sent = 0;
	buf_clear(&link->head);
	if (!http1_write_head(&link->head, &head))
		return false;
	if (!link->wire.tls)
		return true;
	room = link->head.len < TLS_RECORD ? TLS_RECORD - link->head.len : 0;
	link->body_sent = room < call->body.len ? room : call->body.len;
	buf_append(&link->head, call->body.at, link->body_sent);
	return true;
}

static void begin(struct upstream_link *link, struct upstream_call *call)
{
	int64_t now_us = loop_clock_us();

	call->on = link;
	call->wait_us = now_us - call->began_us;
	call->deadline_ms = now_us / 1000 + call->upstream->timeout;
	link->call = call;
	link->moved_ms = now_us / 1000;
	link->sent = link->written = link->broken = link->heard = false;
	upstream_listen(link);
	if (compose(link))
		(void)push(link);
	else
		upstream_over(upstream_part(link, true), UPSTREAM_NOT_SENT,
			      "it cannot be written as HTTP/1.1");
}

/* `until`, or the time by which the call must begin. */
static void wait_until(struct upstream_call *call, int64_t until)
{
	struct loop *loop = upstream_owner(call)->loop;

	if (call->start_by_ms && call->start_by_ms < until)
		until = call->start_by_ms;
	if (until == INT64_MAX)
		loop_timer_stop(loop, &call->timer);
	else
		loop_timer(loop, &call->timer, until - loop_now(loop));
}

/* False where no connection is to be had now. */
static bool start(struct upstream_call *call)
{
	struct upstream_place *place = &call->pool->places[call->server];
	bool fresh = call->retried || call->upstream->connections == CONNECTIONS_FRESH;
	struct upstream_link *link = NULL;

	if (too_late(call)) {
		upstream_over(call, UPSTREAM_TOO_LATE, late);
		return true;
	}
	link = fresh ? NULL : place_take(place);
	if (link) {
		begin(link, call);
		return true;
	}
	if (!pool_room(call->pool))
		return false;
	call->on = place_open(place, call);
	wait_until(call, INT64_MAX); /* connecting has its own limit */
	return true;
}

static void queue_up(struct upstream_call *call)
{
	list_append(&call->pool->waiting, &call->link);
	wait_until(call, call->began_us / 1000 + call->upstream->queue_timeout);
}

/* Before those that wait: it has had its turn already. */
static void go_on(struct upstream_call *call)
{
	struct upstream_pool *pool = call->pool;

	if (!start(call))
		queue_up(call);
	serve(pool);
}

/* Connections may have become free: for the calls that wait, in their order. */
static void serve(struct upstream_pool *pool)
{
	struct list *first = NULL;

	if (pool->serving)
		return;
	pool->serving = true;
	while ((first = list_shift(&pool->waiting))) {
		if (start(container_of(first, struct upstream_call, link)))
			continue;
		list_append(pool->waiting.next, first);
		break;
	}
	pool->serving = false;
}

static void opened(struct upstream_wire *wire, const char *failure)
{
	struct upstream_link *link = container_of(wire, struct upstream_link, wire);
	struct upstream_call *call = link->call;

	if (!failure) {
		link->place->failed_until_ms = 0;
		begin(link, call);
		return;
	}
	call->on = NULL;
	link_drop(link);
	unreached(call, failure);
}

static void ready(struct loop_watch *watch, unsigned events)
{
	struct upstream_link *link = container_of(watch, struct upstream_link, wire.watch);
	struct upstream_call *call = link->call;
	struct upstream_pool *pool = link->place->pool;

	if (!call) {
		if (!wire_quiet(&link->wire)) {
			link_drop(link);
			serve(pool);
		}
		return;
	}
	if (!link->written && !push(link))
		return;
	if (link->sent)
		(void)upstream_pull(link);
	else if (events != LOOP_WRITE)
		undelivered(link); /* it speaks, or is over, before it was asked */
}

/* Of a call that has no connection yet: it waits for one, or for one to open. */
static void give_up(struct upstream_call *call, enum upstream_end how, const char *cause)
{
	struct upstream_link *link = call->on;

	list_remove(&call->link);
	call->on = NULL;
	if (link)
		link_drop(link);
	upstream_over(call, how, cause);
}

static void due(struct loop_timer *timer)
{
	struct upstream_call *call = container_of(timer, struct upstream_call, timer);
	struct upstream_link *link = call->on;

	if (link && !link->wire.opening)
		upstream_overdue(link);
	else
		give_up(call, too_late(call) ? UPSTREAM_TOO_LATE : UPSTREAM_NOT_SENT,
			link ? "no connection came to be in time"
			     : "no connection was free in time");
}

void upstream_cancel(struct upstream_call *call, const char *cause)
{
	struct upstream_link *link = call->on;
	enum upstream_end how = link && link->sent ? UPSTREAM_CUT : UPSTREAM_NOT_SENT;

	if (!call->lent)
		return;
	upstream_owner(call)->outside = true;
	if (link && !link->wire.opening)
		upstream_over(upstream_part(link, false), how, cause);
	else
		give_up(call, UPSTREAM_NOT_SENT, cause);
	upstream_owner(call)->outside = false;
}

void upstream_send(struct upstreams *upstreams, struct upstream_call *call)
{
	struct upstream_pool *pool = pool_of(upstreams, call->upstream);

	list_init(&call->link);
	call->timer = (struct loop_timer){ .due = due };
	call->pool = pool;
	call->on = NULL;
	call->answer = (struct http_answer){ 0 };
	call->end = UPSTREAM_ANSWERED;
	call->close_delimited = call->dropped = call->streamed = call->paused = false;
	call->held_more = 0;
	call->began_us = loop_clock_us();
	call->wait_us = 0;
	call->server = pool_begin(pool);
	call->tried = 0;
	call->retried = false;
	call->lent = true;
	pool->calls++;
	upstreams->calls++;
	upstreams->outside = true;
	if (!list_empty(&pool->waiting) || !start(call))
		queue_up(call);
	upstreams->outside = false;
}

void upstreams_run(struct upstreams *upstreams)
{
	struct list ended, *first = NULL;

	list_init(&ended);
	list_move(&ended, &upstreams->ended);
	while ((first = list_shift(&ended))) {
		struct upstream_call *call = container_of(first, struct upstream_call, link);

		upstreams->calls--;
		call->done(call);
	}
}

size_t upstreams_calls(const struct upstreams *upstreams)
{
	return upstreams->calls;
}

void upstreams_follow(struct upstreams *upstreams, const struct settings *settings,
		      unsigned threads)
{
	upstreams->threads = threads ? threads : 1;
	upstreams->outside = true;
	pools_follow(upstreams, settings);
	pools_each(upstreams, serve);
	upstreams->outside = false;
}

struct upstreams *upstreams_new(struct loop *loop, struct metrics *metrics)
{
	struct upstreams *upstreams = mem_alloc(sizeof(*upstreams));

	upstreams->loop = loop;
	upstreams->metrics = metrics;
	upstreams->wires = wires_new(loop);
	upstreams->opened = opened;
	upstreams->ready = ready;
	list_init(&upstreams->ended);
	pools_init(upstreams);
	return upstreams;
}

void upstreams_free(struct upstreams *upstreams)
{
	assert(upstreams->calls == 0);
	pools_fini(upstreams);
	wires_free(upstreams->wires);
	mem_free(upstreams);
}
