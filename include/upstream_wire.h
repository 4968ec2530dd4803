/*
 * One connection to a server: resolved, connected and (https) verified by libcurl, then bytes in
 * and out of our own hand. Knows no HTTP, no pool and no call. Inside upstream only.
 */
#pragma once
#include "loop.h"

struct wires; /* what the connections of one thread share */
struct wires *wires_new(struct loop *loop);
void wires_free(struct wires *wires); /* no wire is open or opening */

struct wire_target {
	const char *url;     /* scheme://host:port */
	const char *ca_file; /* NULL: the system's */
	bool tls;
	int64_t connect_timeout_ms; /* for resolving, connecting and the handshake together */
};

enum wire_moved {
	WIRE_MOVED,   /* some bytes, at least one */
	WIRE_BLOCKED, /* none now; `ready` is called when it is worth trying again */
	WIRE_ENDED,   /* reading: the peer has sent its last byte (over TLS: and has said so) */
	WIRE_BROKEN,  /* reset; or, over TLS, an end that may as well be a cut */
};

struct upstream_wire {
	/* Set by the owner before wire_open. `watch.ready` is called once the wire is open,
	 * whenever something can be read, is over, or what blocked before may be tried again. */
	struct loop_watch watch;
	/* NULL: it is open. Else a few words for the log, and the wire is closed already. Never
	 * called inside wire_open. */
	void (*opened)(struct upstream_wire *wire, const char *failure);
	/* private */
	struct wires *of;
	void *easy, *share; /* libcurl's; of an open wire only TLS still has them */
	struct ssl_st *ssl; /* lives in `easy` */
	bool tls, opening;
	bool write_blocked, read_blocked; /* by a socket that cannot be written */
	bool paused;
};

void wire_open(struct wires *wires, struct upstream_wire *wire, const struct wire_target *to);
/* Also of one that is opening; harmless for one that is closed. */
void wire_close(struct upstream_wire *wire);

/* Writes from the first span, and from the second behind it where that costs no second call. */
enum wire_moved wire_write(struct upstream_wire *wire, struct span first, struct span second,
			   size_t *n) MUST_CHECK;
enum wire_moved wire_read(struct upstream_wire *wire, char *to, size_t room,
			  size_t *n) MUST_CHECK;
/* After a read that moved `n` of `room`: must it be read again now? (A `false` may be followed by a
 * `ready`.) */
bool wire_more(const struct upstream_wire *wire, size_t n, size_t room) MUST_CHECK;
/* `ready` is not called, whatever happens, until it is resumed; it is not read or written either. What
 * came meanwhile is reported by the kernel then, but for what is left inside TLS: read. */
void wire_pause(struct upstream_wire *wire);
void wire_resume(struct upstream_wire *wire);
/* Is it open, with nothing to be read? TLS messages that are no data are taken in on the way. */
bool wire_quiet(struct upstream_wire *wire) MUST_CHECK;
