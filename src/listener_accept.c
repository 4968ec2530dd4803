/*
 * New connections: accepted here, counted, and handed to listener.c. Over the limit a connection
 * is told so and closed; where the process has no descriptor left, accepting rests until the next
 * second, so that a full process does not spin on a socket that stays ready.
 */
#include "listener_inner.h"
#include "listener_raw.h"
#include "listener_socket.h"
#include "log.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#define ACCEPTS_ONCE  64
#define WARNING_EVERY ((int64_t)10 * 1000)

static bool may_warn(struct listener *l)
{
	int64_t now = loop_now(l->loop);

	if (l->warned && now - l->warned < WARNING_EVERY)
		return false;
	l->warned = now;
	return true;
}

/* What the client has sent already is read, so that closing is no reset that overtakes the answer. */
static void turn_away(struct listener *l, int fd)
{
	static const struct problem_about about = {
		.problem = PROBLEM_OVERLOADED,
		.may_have_executed = true, /* nobody has looked for a key */
		.retry_after = 1,
	};
	char unread[4096];

	if (may_warn(l))
		log_warning("listener", "%zu connections: the limit; more are turned away",
			    l->n_connections);
	metrics_add(l->metrics, METRIC_requests_total,
		    METRICS_PAIR(0, verdict_of(about.problem)), 1);
	(void)!recv(fd, unread, sizeof(unread), MSG_DONTWAIT);
	listener_raw_problem(fd, &about);
	shutdown(fd, SHUT_WR);
	close(fd);
}

static void rest(struct listener *l, int error)
{
	if (error != EMFILE && error != ENFILE && error != ENOBUFS && error != ENOMEM)
		return; /* nothing is waiting any more, or that client is gone */
	if (may_warn(l))
		log_warning("listener", "cannot accept: %s", strerror(error));
	for (size_t i = 0; i < l->n_doors; i++)
		loop_unwatch(l->loop, &l->doors[i].watch);
}

static void accept_some(struct loop_watch *watch, unsigned events)
{
	struct door *door = container_of(watch, struct door, watch);
	struct listener *l = door->listener;

	(void)events;
	for (int i = 0; i < ACCEPTS_ONCE; i++) {
		struct sockaddr_storage from;
		struct sockaddr *at = (struct sockaddr *)&from;
		socklen_t len = sizeof(from);
		int fd = accept4(watch->fd, at, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0) {
			rest(l, errno);
			return;
		}
		if (l->n_connections >= l->limits.connections)
			turn_away(l, fd);
		else
			listener_take(l, fd, at, len);
	}
}

bool listener_doors_open(struct listener *listener, const struct listener_start *start,
			 char why[256])
{
	listener->doors = mem_alloc(start->n_addresses * sizeof(*listener->doors));
	for (size_t i = 0; i < start->n_addresses; i++) {
		struct door *door = &listener->doors[i];

		door->socket = listener_socket_open(start->addresses[i], start->alone, why);
		if (!door->socket)
			return false;
		door->listener = listener;
		door->watch.fd = listener_socket_fd(door->socket);
		door->watch.shared = listener_socket_shared(door->socket);
		door->watch.ready = accept_some;
		listener->n_doors++;
	}
	listener_doors_watch(listener);
	return true;
}

void listener_doors_watch(struct listener *listener)
{
	for (size_t i = 0; i < listener->n_doors; i++)
		if (listener->doors[i].socket)
			loop_watch(listener->loop, &listener->doors[i].watch, LOOP_READ);
}

void listener_doors_close(struct listener *listener)
{
	for (size_t i = 0; i < listener->n_doors; i++) {
		struct door *door = &listener->doors[i];

		if (!door->socket)
			continue;
		loop_unwatch(listener->loop, &door->watch);
		listener_socket_close(door->socket);
		door->socket = NULL;
	}
}

const char *listener_address(const struct listener *listener, size_t i)
{
	const struct listener_socket *socket = listener->doors[i].socket;

	return socket ? listener_socket_address(socket) : ""; /* drained */
}
