/*
 * The connections of one thread: which there are, which are idle, how many there may be, and
 * which server comes next. Knows nothing of what is said over them. Inside upstream only.
 */
#pragma once
#include "http1.h"
#include "upstream.h"
#include "upstream_wire.h"

#define UPSTREAM_READ_BYTES ((size_t)64 * 1024)

struct upstreams {
	struct loop *loop;
	struct metrics *metrics;
	struct wires *wires;
	struct list pools;
	struct list ended;       /* calls whose `done` is to be called */
	struct loop_timer sweep; /* closes connections that were idle for too long */
	size_t calls, links;
	unsigned threads;
	bool followed; /* settings: what is in none of them is on its way out */
	bool outside;  /* of loop_wait: whoever ends now must wake it */
	/* the owner's: what links are opened with */
	void (*opened)(struct upstream_wire *wire, const char *failure);
	void (*ready)(struct loop_watch *watch, unsigned events);
	char read[UPSTREAM_READ_BYTES];
};

/* One server of one upstream. */
struct upstream_place {
	struct upstream_pool *pool;
	char *url;
	bool tls;
	int64_t failed_until_ms;
	struct list idle; /* links, the latest last */
};

/* One upstream, by content: name, servers and CA. Other settings may change under its links. */
struct upstream_pool {
	struct list link;
	struct upstreams *of;
	const struct upstream_settings *settings; /* compared, never followed; NULL: unknown */
	char *name, *ca_file;
	size_t max, links;
	size_t calls;        /* not ended */
	size_t next;         /* where the round robin is */
	struct list waiting; /* calls, for a connection */
	bool serving;        /* those that wait */
	bool stale;          /* in no settings any more: nothing is kept for later */
	size_t n_places;
	struct upstream_place places[];
};

/* One connection, and the call that it serves. */
struct upstream_link {
	struct upstream_wire wire;
	struct list link; /* where it is idle */
	struct upstream_place *place;
	struct upstream_call *call; /* NULL: idle */
	int64_t idle_until_ms;
	bool pooled; /* has served a call before */
	/* of the present call */
	struct buf head; /* over TLS with the beginning of the body, so that it is one record */
	size_t head_sent, body_sent;
	bool sent;        /* perhaps: not provably nothing */
	bool written;     /* all of it */
	bool broken;      /* cannot be written to any more */
	bool heard;       /* any byte */
	int64_t moved_ms; /* when bytes were last accepted or heard */
	struct http1_reader reader;
};

void pools_init(struct upstreams *upstreams);
void pools_fini(struct upstreams *upstreams);
void pools_each(struct upstreams *upstreams, void (*fn)(struct upstream_pool *pool));
void pools_follow(struct upstreams *upstreams, const struct settings *settings);

struct upstream_pool *pool_of(struct upstreams *upstreams,
			      const struct upstream_settings *settings);

/* The server to begin with, or to go on with after those tried; false where none is left. */
size_t pool_begin(struct upstream_pool *pool);
bool pool_next(struct upstream_pool *pool, uint64_t tried, size_t *server) MUST_CHECK;
uint64_t pool_bit(size_t server);
void place_failed(struct upstream_place *place);

/* An idle link that is alive and young; NULL where there is none. */
struct upstream_link *place_take(struct upstream_place *place);
/* Is there room for one more, perhaps by closing an idle one? */
bool pool_room(struct upstream_pool *pool) MUST_CHECK;
/* A new one, opening for the call. */
struct upstream_link *place_open(struct upstream_place *place, struct upstream_call *call);
void link_park(struct upstream_link *link, int64_t keepalive_ms); /* or drops */
void link_drop(struct upstream_link *link);
