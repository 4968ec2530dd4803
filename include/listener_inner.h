/* What the listener's files share; nobody else includes this. */
#pragma once
#include "listener.h"
#include "listener_check.h"

#include <netinet/in.h>
#include <stdalign.h>

enum waiting {
	WAITING_HEAD, /* for a first request, or for the rest of a head whose first line came */
	WAITING_BODY, /* for the next piece of it */
	WAITING_SWALLOW, /* for the end of a body that nobody wants */
	WAITING_ANSWER,  /* for the handler; it has deadlines of its own */
	WAITING_READER,  /* for the client to take its answer */
	WAITING_STREAM,  /* the same, or for the next piece of it */
	WAITING_NEXT,    /* for another request */
	WAITING_CLOSE    /* for the client to close, after an answer past the library */
};

struct MHD_Connection;
struct MHD_Daemon;
struct sockaddr;

struct connection {
	struct list link;
	struct listener *listener;
	struct MHD_Connection *mhd;
	struct inbound *inbound; /* NULL between requests */
	int fd;
	int unread; /* bytes that the client had not taken at the last look */
	enum waiting waiting;
	int64_t since;    /* ms, the loop's clock */
	bool own_timeout; /* see listener.c */
	bool looked;      /* for an end that the library did not see: listener_deadline.c */
	char peer[INET6_ADDRSTRLEN];
};

/* An answer in pieces. */
struct stream {
	struct buf queue;
	size_t taken;  /* of the queue */
	uint64_t left; /* of the whole, where its length is known */
	size_t below;  /* that is waited for; 0: nothing is */
	int64_t patience, waits_since, waited_ms;
	bool on;
	bool sized;
	bool ended, aborted;
};

/* A request, and what only the listener knows of it; the handler's struct lies behind it. */
struct inbound {
	alignas(max_align_t) struct listener *listener;
	struct connection *connection; /* NULL: it has its answer, or is gone */
	const char *target;            /* where the library has it */
	size_t announced, max, swallowed;
	struct buf body; /* grows up to max, or to what was announced */
	struct http_answer answer;
	struct stream stream;
	unsigned holds;
	bool begun;   /* the head is complete */
	bool handled; /* the handler knows of it */
	bool expects, keyed;
	bool reading;  /* listener_read_body was called */
	bool unwanted; /* the body is swallowed */
	bool given;    /* `body` was called */
	bool answered; /* listener_answer was called */
	bool inside;   /* inside the handler: whoever called it sees to the answer */
	bool raw;      /* can only be answered past the library */
	bool suspended;
	bool minded; /* listener_mind was called */
	bool gone;
};

struct door {
	struct loop_watch watch;
	struct listener *listener;
	struct listener_socket *socket;
};

struct listener {
	struct loop *loop;
	struct metrics *metrics;
	struct listener_limits limits;
	const struct listener_handler *handler;
	struct MHD_Daemon *daemon;
	struct loop_watch ready; /* the daemon's own epoll set */
	struct loop_timer second, soon;
	struct door *doors;
	size_t n_doors, n_connections, n_requests;
	struct list connections;
	struct buf text; /* a field with a NUL behind name and value */
	int64_t warned;
	bool in_place; /* see listener_check.h */
	bool due, running, draining;
};

static inline struct http_request *inbound_request(struct inbound *inbound)
{
	return (struct http_request *)(void *)(inbound + 1);
}

static inline struct inbound *inbound_of(const struct http_request *request)
{
	union {
		const struct http_request *in;
		struct inbound *out;
	} same = { .in = request };

	return same.out - 1;
}

/* listener.c */
void listener_take(struct listener *listener, int fd, const struct sockaddr *from,
		   socklen_t len);
void listener_queue(struct inbound *inbound); /* its answer */
void listener_suspend(struct connection *connection);
void listener_resume(struct connection *connection);
void listener_wait(struct connection *connection, enum waiting waiting);

/* listener_request.c */
struct inbound *inbound_new(struct connection *connection, const char *target);
void inbound_begin(struct inbound *inbound, const struct listener_checked *checked);
void inbound_piece(struct inbound *inbound, const char *bytes, size_t len);
void inbound_whole(struct inbound *inbound);
void inbound_give_up(struct inbound *inbound); /* reads no further: the answer goes out raw */
void inbound_send(struct inbound *inbound);    /* its answer, or its stream */
void inbound_end(struct inbound *inbound, bool whole); /* the answer went out whole */

/* listener_stream.c */
#define STREAM_ENDED  (-1L)
#define STREAM_FAILED (-2L)
/* What goes out next: a number of bytes, or one of these; 0: it is suspended. */
long stream_take(struct inbound *inbound, char *to, size_t room);
void stream_moved(struct inbound *inbound);
/* Once a second: is its client too slow, or gone? */
bool stream_stalled(const struct inbound *inbound, int64_t now) MUST_CHECK;
bool stream_reset(const struct inbound *inbound) MUST_CHECK;
void stream_fini(struct inbound *inbound);

/* listener_accept.c */
bool listener_doors_open(struct listener *listener, const struct listener_start *start,
			 char why[256]);
void listener_doors_watch(struct listener *listener); /* again, after a pause */
void listener_doors_close(struct listener *listener);

/* listener_deadline.c: at every connection, once a second */
void listener_deadlines(struct listener *listener);
