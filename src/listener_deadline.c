/*
 * Deadlines of connections, looked at once a second: a second more or less is no matter, and one
 * pass over ten thousand connections is cheaper than ten thousand timers that are always moved.
 *
 * While the handler works on a request there is no deadline here: it has its own. Where it wants to
 * know that the client has given up, only a reset says so; nobody else sees that of a connection
 * that is suspended.
 *
 * The library listens edge-triggered and trusts a short read to be the last: where a client's end
 * came together with its last bytes, it does not see the end. So the first look after something
 * came is for that, too.
 */
#include "listener_inner.h"
#include "listener_raw.h"
#include "log.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define SWALLOW_TIME ((int64_t)5 * 1000)
#define CLOSE_TIME   ((int64_t)2 * 1000)

/* The library sees its end, and reports it. */
static void drop(struct connection *c)
{
	log_debug("listener", "%s: dropped: it left, or was too slow", c->peer);
	shutdown(c->fd, SHUT_RDWR);
	listener_wait(c, WAITING_CLOSE);
	c->looked = true;
}

/* The request did not come in time. Of its answer nothing was written yet. */
static void time_out(struct connection *c)
{
	struct problem_about about = {
		.problem = PROBLEM_REQUEST_TIMEOUT,
		/* before the head is complete nobody knows whether there is a key */
		.may_have_executed = !c->inbound || !c->inbound->begun || c->inbound->keyed,
	};

	metrics_add(c->listener->metrics, METRIC_requests_total,
		    METRICS_PAIR(0, verdict_of(about.problem)), 1);
	listener_raw_problem(c->fd, &about);
	drop(c);
}

/* Has the client taken anything since the last look? Only the kernel knows. */
static bool reads_on(struct connection *c)
{
	int before = c->unread;

	if (ioctl(c->fd, SIOCOUTQ, &c->unread) != 0)
		c->unread = 0;
	return c->unread != before;
}

static bool has_left(struct connection *c)
{
	bool reading = c->waiting != WAITING_ANSWER && c->waiting != WAITING_READER &&
		       c->waiting != WAITING_STREAM;
	char byte;

	if (c->looked || !reading)
		return false;
	c->looked = true;
	return recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

static void look_at_reader(struct connection *c, int64_t now)
{
	bool idle = c->inbound && c->inbound->suspended; /* there is nothing to take */

	if (idle || reads_on(c))
		c->since = now;
	if (now - c->since >= c->listener->limits.client_stall ||
	    (c->inbound && stream_stalled(c->inbound, now)))
		drop(c);
}

static void look_for_reset(struct connection *c)
{
	struct inbound *in = c->inbound;

	if (!in || in->gone || !in->minded || !in->suspended || !stream_reset(in))
		return;
	in->gone = true;
	stream_moved(in);
}

static void look(struct connection *c, int64_t now)
{
	const struct listener_limits *limits = &c->listener->limits;
	int64_t waited = now - c->since;

	if (has_left(c)) {
		drop(c);
		return;
	}
	switch (c->waiting) {
	case WAITING_HEAD:
		if (waited >= limits->header_timeout)
			time_out(c);
		break;
	case WAITING_BODY:
		if (waited >= limits->body_timeout)
			time_out(c);
		break;
	case WAITING_SWALLOW:
		if (waited >= SWALLOW_TIME)
			inbound_give_up(c->inbound);
		break;
	case WAITING_READER:
		look_at_reader(c, now);
		break;
	case WAITING_STREAM:
		look_at_reader(c, now);
		look_for_reset(c);
		break;
	case WAITING_NEXT:
		if (waited >= limits->idle_timeout || c->listener->draining)
			drop(c);
		break;
	case WAITING_CLOSE:
		if (waited >= CLOSE_TIME)
			drop(c);
		break;
	case WAITING_ANSWER:
		look_for_reset(c);
		break;
	}
}

void listener_deadlines(struct listener *listener)
{
	int64_t now = loop_now(listener->loop);
	struct list *next = NULL;

	for (struct list *at = listener->connections.next; at != &listener->connections;
	     at = next) {
		next = at->next;
		look(container_of(at, struct connection, link), now);
	}
}
