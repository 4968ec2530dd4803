/*
 * HTTP to the upstreams: the pool, connecting (libcurl, CONNECT_ONLY), limits, at most one send.
 * The only door to libcurl, which upstream_wire.c goes through. One per thread.
 */
#pragma once
#include "loop.h"
#include "metrics.h"
#include "settings.h"

struct upstreams;

enum upstream_end {
	UPSTREAM_ANSWERED,  /* a whole answer */
	UPSTREAM_NOT_SENT,  /* provably not one byte was accepted for sending (CONTRACT 5) */
	UPSTREAM_TOO_LATE,  /* the same, because start_by_ms had come */
	UPSTREAM_TIMED_OUT, /* sent, at least in part, and no whole answer in time */
	UPSTREAM_CUT,       /* sent, and the connection ended or was reset */
	UPSTREAM_MALFORMED, /* sent, and what came back cannot be believed, or passes a maximum */
};

/*
 * Embedded in whoever forwards, lent from upstream_send until `done`, which is never called
 * inside it.
 */
struct upstream_call {
	/* set by the caller, who holds the settings until done; the answer is put in the arena */
	const struct upstream_settings *upstream;
	struct arena *arena;
	struct span method, target;
	struct http_fields fields; /* end-to-end; the connection's own are the codec's */
	struct span body;
	/* What may be held of the answer's body. What is over it goes on in pieces, where `head` is
	 * there and says so; else it is MALFORMED, or with `drop_over` read to its end and dropped. */
	size_t answer_max;
	/* Grows with the answer's body, and not over held_max: that is too much too, but for the
	 * first `held_anyway` bytes. NULL: not counted. */
	size_t *held;
	size_t held_max, held_anyway;
	size_t held_before; /* bytes of the answer that are in *held already */
	bool drop_over;
	bool eager;   /* of an unknown length: in pieces as soon as it does not come at once */
	bool endless; /* once it is in pieces the upstream's `timeout` ends, idle_timeout holds */
	/*
	 * An answer in pieces. `head` is asked when status and fields are in `answer`, and `length`
	 * and close_delimited are known; true: `data` is called with the body as it comes, the
	 * bytes living for that call, and answer.body stays empty. Both are called in a turn of the
	 * upstreams, never inside a function of theirs, before `done`, and may pause the call.
	 */
	bool (*head)(struct upstream_call *call); /* NULL: never in pieces */
	void (*data)(struct upstream_call *call, struct span piece);
	/* Not begun to send by then, on the clock of the loop: TOO_LATE (queue, connecting, other
	 * servers included). 0: no such time. */
	int64_t start_by_ms;
	void (*done)(struct upstream_call *call);
	/* results */
	enum upstream_end end;
	struct http_answer answer;
	bool dropped;         /* it was whole; its body was too much, and is empty here */
	bool streamed;        /* it went to `data`, as far as it came */
	bool close_delimited; /* whole only as far as anybody can tell */
	uint64_t length;      /* of the body, where it is announced; UINT64_MAX */
	const char *cause;    /* a few words for the log where it is not ANSWERED */
	size_t held_more;     /* what *held grew by; whoever owns it takes it off again */
	int64_t total_us;     /* from upstream_send to the end */
	int64_t wait_us;      /* of it, until the connection was there */
	/* upstream.c's */
	struct list link;
	struct loop_timer timer;
	struct upstream_pool *pool;
	struct upstream_link *on;
	size_t server;
	uint64_t tried; /* servers, by position */
	int64_t began_us;
	int64_t deadline_ms; /* of the whole, from the connection on */
	bool retried, paused;
	bool lent; /* and has not ended */
};

struct upstreams *upstreams_new(struct loop *loop, struct metrics *metrics);
void upstreams_free(struct upstreams *upstreams); /* no call under way */
/*
 * The share of max_connections of this thread is a `threads`-th, at least 1. Idle connections of
 * upstreams that are not in the new settings any more, or were changed, are closed.
 */
void upstreams_follow(struct upstreams *upstreams, const struct settings *settings,
		      unsigned threads);
void upstream_send(struct upstreams *upstreams, struct upstream_call *call);
/*
 * Back-pressure, of a call that is streamed: while it is paused nothing is read from its connection,
 * and idle_timeout does not run; `timeout` does, but for `endless`. Harmless for a call that has
 * ended and is not sent again.
 */
void upstream_pause(struct upstream_call *call);
void upstream_resume(struct upstream_call *call);
/* Ends a call that nobody waits for any more, as CUT or NOT_SENT; `done` is called as always. */
void upstream_cancel(struct upstream_call *call, const char *cause);
/* Once a turn: calls `done` of the calls that ended. */
void upstreams_run(struct upstreams *upstreams);
size_t upstreams_calls(const struct upstreams *upstreams); /* under way: `done` not called */
