/*
 * What travels between client and upstream, and what every request leaves behind for the log.
 * Shared by the enforced and the unenforced way.
 */
#pragma once
#include "ledger.h"
#include "listener.h"
#include "problem.h"
#include "settings.h"
#include "upstream.h"

/* The largest answer of an upstream that is held, but for a route that stores larger ones. */
#define FORWARD_ANSWER_MAX  ((size_t)64 * 1024 * 1024)
/* Kept free for each answer from its request's head on: where others fill the memory, a usual
 * answer still fits, and what was forwarded does not become unknown by it. */
#define FORWARD_ANSWER_ROOM ((size_t)16 * 1024)

/* What a request needs from the thread that it lives on. Counts are of this thread. */
struct services {
	const struct settings *settings; /* a request holds the ones it began with */
	struct ledger *ledger;
	struct upstreams *upstreams;
	struct metrics *metrics;
	size_t in_flight, waiters;         /* enforced requests; of them, those that wait */
	size_t in_flight_max, waiters_max; /* this thread's share of the limits */
	size_t bytes, bytes_max; /* of bodies both ways, as far as announced or read */
};

/* Every request begins so. The rest is the business of exchange.c or passthrough.c. */
struct served {
	struct http_request request;         /* first: the listener hands us out by it */
	void (*body)(struct served *served); /* what to do when the body is complete */
	void (*end)(struct served *served);  /* NULL: nothing */
	struct upstream_call *stream;        /* whose answer goes on in pieces; else NULL */
	struct upstream_call *minded; /* is cancelled where the client is gone; or NULL */
	struct services *services;
	const struct settings *settings; /* held until its end */
	const struct route *route;       /* NULL: none was found */
	size_t bytes; /* of services->bytes, until its end; `room` of them for the answer */
	size_t room;
	size_t queued; /* of `bytes`: what waits for the client to take it */
	/* for the log and the metrics */
	unsigned verdict;
	unsigned status;
	size_t sent_bytes;
	const char *cause;
	struct span request_id;
	const unsigned char *key_hash;             /* 16 bytes, or NULL */
	int64_t reserve_us, forward_us, settle_us; /* 0: did not happen */
};

/* Counts body bytes, and room for an answer, against the limit; false: the limit is reached, and
 * nothing was counted. */
bool forward_admit(struct served *served, size_t body_bytes) MUST_CHECK;

/* Does Connection take a field off the way that says what the request is, or that has its key?
 * (CONTRACT 2, 4) Then the upstream would not see what we went by. */
bool forward_drops_compared(const struct http_request *request, const struct route *route);

/* The call for this request: end-to-end fields, Via and X-Forwarded-*; `enforced` asks for identity encoding. */
void forward_prepare(struct served *served, struct upstream_call *call, bool enforced);
/* The key's own field, after forward_prepare: as the client sent it, or what the route says
 * instead. `key`: of the record; `derived`: the hash that stands for it. */
void forward_key(struct upstream_call *call, const struct key_settings *settings,
		 struct span key, struct span derived);
/* After forward_prepare: the names by which the upstream may be asked later what became of it. */
void forward_reference(struct upstream_call *call, struct span request_id, unsigned generation);
/* Notes how the call went; what its answer holds is the request's from here on. */
static inline void forward_ended(struct served *served, const struct upstream_call *call)
{
	served->forward_us = call->total_us;
	served->bytes += call->held_more;
}
/* Counts what is held for a request beside its body and its call: a stored answer. */
static inline void forward_hold(struct served *served, size_t bytes)
{
	served->bytes += bytes;
	served->services->bytes += bytes;
}
/* The answer of a call that was ANSWERED, with its end-to-end fields, without those that only we may
 * set; a Location or Link that names the upstream's own authority is made relative. */
struct http_answer forward_answer(const struct upstream_call *call);
/* The fields that are stored and replayed (CONTRACT 8); `more`: the route's own. */
struct http_fields forward_kept(struct arena *arena, const struct http_fields *from,
				const struct texts *more);

/* Gives the answer to the client, and notes it for the log. */
void forward_reply(struct served *served, unsigned verdict, const struct http_answer *answer);
/* Does the request carry an Idempotency-Key that is one, whatever the route says? (CONTRACT 10) */
bool forward_has_key(const struct http_request *request);

/*
 * An answer in pieces, with back-pressure, and its memory counted: from upstream_call.head on, with
 * the pieces of .data. The client has all of it but its end then; forward_stream_over gives the end
 * or cuts the connection. A client that is gone does not end the call, unless it is `minded`: it is
 * read to its end, and dropped. `patience_ms`: see listener.h.
 */
void forward_stream(struct served *served, struct upstream_call *call,
		    const struct http_answer *answer, int64_t patience_ms);
void forward_stream_data(struct served *served, struct span piece);
void forward_stream_over(struct served *served, unsigned verdict, bool whole);
/* The client goes on taking, or is gone. */
void forward_moved(struct served *served);
