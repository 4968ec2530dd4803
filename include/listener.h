/*
 * HTTP from the clients' side: sockets, limits, strict request checks, the life of a request.
 * listener.c is the only door to libmicrohttpd (external epoll mode, one daemon a listener).
 *
 * A request's life: its head is complete and well-formed -> `head`, which decides, before it
 * returns, by calling listener_read_body or listener_answer -> the body is complete -> `body`,
 * which ends in listener_answer, at once or some time later -> the client has its answer, or is
 * gone -> and nobody holds it -> `end`, then its arena is freed. From `body` to listener_answer
 * a client that leaves changes nothing and is not noticed. One that leaves earlier ends its
 * request: `end` comes without `body`.
 * After listener_answer in `head` the body is swallowed (at most 1 MiB or 5 s), then the
 * connection closes.
 *
 * What is refused before `head` (malformed, too large, too slow) the listener answers itself,
 * with the problem documents of problem.h; the handler does not hear of it.
 */
#pragma once
#include "http.h"
#include "loop.h"
#include "metrics.h"

struct listener;

struct listener_handler {
	size_t size; /* of the struct that begins with a struct http_request; zeroed */
	void (*head)(struct http_request *request, void *arg);
	void (*body)(struct http_request *request, void *arg);
	void (*end)(struct http_request *request, void *arg); /* see listener_gone */
	/* Of a stream: it may go on, or its client is gone. NULL where there are no streams. */
	void (*moved)(struct http_request *request, void *arg);
	void *arg;
};

struct listener_limits {
	int64_t header_timeout, body_timeout, idle_timeout; /* ms */
	int64_t client_stall; /* ms: for how long a client may take nothing of its answer */
	size_t connections;   /* of this listener */
};

/*
 * Addresses are ADDRESS:PORT, [IPV6]:PORT and unix:PATH. Every listener binds its own TCP socket
 * (SO_REUSEPORT); a unix socket is bound by the first listener of the process (a stale one is
 * replaced, a live one is an error) and shared by the later ones. With port 0 the first listener
 * takes a free port and the later ones of the process that name the same text take the same.
 * Only listeners of one process share: an address at which another process listens is an error,
 * and so is, for one that is `alone`, an address at which anybody does.
 * NULL, and a sentence in `why`, where one cannot be opened. `handler` must outlive the listener.
 */
struct listener_start {
	struct loop *loop;
	const char *const *addresses;
	size_t n_addresses;
	const struct listener_limits *limits;
	const struct listener_handler *handler;
	struct metrics *metrics;
	bool alone; /* shares its addresses with no other listener */
};
struct listener *listener_new(const struct listener_start *start, char why[256]) MUST_CHECK;
void listener_free(
	struct listener *listener); /* no request may be between `body` and its answer */

void listener_follow(struct listener *listener,
		     const struct listener_limits *limits); /* a reload */
/* Once a turn: reads, parses, calls the handler, writes answers. True: call again before waiting. */
bool listener_run(struct listener *listener);
/* Is there work for listener_run, an answer given since it ran perhaps? Then the loop had better
 * not wait (it wakes by itself, within a millisecond). */
bool listener_due(const struct listener *listener);

/* In `head` only: go on and read at most `max` bytes; of a longer body the rest is swallowed (1 MiB
 * or 5 s at most), body_too_large is set and `body` is empty. Its answer closes the connection. */
void listener_read_body(struct http_request *request, size_t max);
/* What Content-Length says; SIZE_MAX for a chunked body. */
size_t listener_body_announced(const struct http_request *request);
/*
 * Sends the answer; once a request. Fields that are for the connection (Connection, Keep-Alive,
 * Content-Length, Transfer-Encoding, and Date where it is absent) are the listener's; only for
 * HEAD and 304 a Content-Length of the answer counts, where its body is empty. The answer's
 * bytes must live in the arena or longer; the struct itself is copied.
 */
void listener_answer(struct http_request *request, const struct http_answer *answer);
/*
 * An answer in pieces, instead of listener_answer, some time after `body` has returned. Status and
 * fields go out at once; what is queued goes as the client takes it. The end is withheld until
 * listener_stream_end: the last chunk, or where the length is known at least the last byte. After
 * listener_stream_abort, or where the client is dropped, the connection closes without it, so that
 * nobody takes what came for the whole. (With HTTP/1.0 and no length only a reset says so, and a
 * client that does not look does not see it.)
 *
 * Until one of these two is called, once, the request is held: its client may be gone by then, and
 * what is queued for it is dropped.
 */
#define LISTENER_LENGTH_UNKNOWN UINT64_MAX
struct listener_stream {
	const struct http_answer *answer; /* as for listener_answer; without a body */
	uint64_t length;                  /* of its body; at least 1 */
	/* ms: for how long, added up over the stream, it may be waited for the client by
	 * listener_stream_until; one that is slower is dropped. INT64_MAX: for as long as it takes
	 * anything. */
	int64_t patience;
};
void listener_stream(struct http_request *request, const struct listener_stream *stream);
/* Queues a copy, and returns how much is queued then: 0 where the client is gone. */
size_t listener_stream_data(struct http_request *request, struct span bytes);
size_t listener_stream_queued(const struct http_request *request);
/* Too much is queued: `moved` is called once it is less than that, or the client is gone. */
void listener_stream_until(struct http_request *request, size_t below);
void listener_stream_end(struct http_request *request);
void listener_stream_abort(struct http_request *request);
/* From `body` on: a client that resets its connection is gone before it has its answer; `moved` is
 * called within some seconds, once. One that only closes its own half still waits. */
void listener_mind(struct http_request *request);

/* The client left, or was dropped, before it had a whole answer: in `end`, in `moved` and later. */
bool listener_gone(const struct http_request *request);

/* Keeps the request alive beyond its answer (a settle that goes on in the background). */
void listener_hold(struct http_request *request);
void listener_release(struct http_request *request);

/* Drain: accept nothing more, close idle connections, close the others behind their answer. */
void listener_drain(struct listener *listener);
size_t listener_connections(const struct listener *listener);
size_t listener_requests(const struct listener *listener); /* given to `head`, not yet ended */
/* Bound ports, for people and tests ("127.0.0.1:8080" after ":0"). */
const char *listener_address(const struct listener *listener, size_t i);
