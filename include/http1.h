/*
 * The HTTP/1.1 codec of the upstream side (RFC 9112): writes a request, reads a response.
 * Pure, incremental, bounded: bytes in, message out, no socket. It is strict where being lax
 * would let a cut or ambiguous answer pass for a whole one (DESIGN, traps 1 and 2).
 */
#pragma once
#include "http.h"

/*
 * Appends the request's head: request line, the fields, Content-Length where there is a body or
 * the method has one by custom (POST, PUT, PATCH: also 0), and the empty line. False where a
 * method, target, name or value could not be written without changing the framing (CR, LF, NUL,
 * not a token, anything but visible ASCII in the target), where fields hold Content-Length,
 * Transfer-Encoding, Connection (those are this function's), or where the buf has no room for
 * it. Nothing is appended then.
 */
struct http1_head {
	struct span method, target;
	const struct http_fields *fields;
	size_t body_bytes;
	bool close; /* adds Connection: close */
};
bool http1_write_head(struct buf *out, const struct http1_head *head) MUST_CHECK;

#define HTTP1_LENGTH_UNKNOWN UINT64_MAX

enum http1_state {
	HTTP1_MORE,      /* needs more bytes */
	HTTP1_COMPLETE,  /* the answer is whole, by its framing */
	HTTP1_CUT,       /* only from http1_eof: the stream ended inside the answer */
	HTTP1_MALFORMED, /* not an answer we may believe: `why` says what */
	HTTP1_TOO_LARGE  /* the head or the body passes its limit */
};

struct http1_reader {
	/* set by http1_reader_init */
	struct arena *arena;
	/* The owner may lower it between reads, and raise it again as far as it was first. */
	size_t body_max;
	bool head_request; /* the answer to HEAD has no body whatever it says */
	/* set by the owner: a body over body_max is no TOO_LARGE. It is read to its end and not
	 * kept: answer.body is empty, `body_over` says why. */
	bool discard;
	/* Set by the owner, or NULL: asked once, when the body passes body_max and status, fields and
	 * `length` are known. True: what there is of the body, and all that follows, goes to
	 * `piece`, inside http1_read, and answer.body stays empty. Bytes live for the call. */
	bool (*over)(struct http1_reader *reader);
	void (*piece)(struct http1_reader *reader, struct span bytes);
	/* the result, valid when COMPLETE; status and fields as soon as head_done */
	struct http_answer
		answer; /* all of it in the arena, the body dechunked; close stays false */
	bool head_done;
	bool keep_alive;      /* may the connection be used again? */
	bool close_delimited; /* the body ends with the connection: completeness is not provable */
	bool body_over;       /* the body passed body_max; nothing of it is held */
	bool passing;         /* it goes to `piece` */
	uint64_t length;      /* of the body, as announced; HTTP1_LENGTH_UNKNOWN */
	unsigned interim;     /* 1xx answers skipped so far; over 8 is MALFORMED */
	size_t trailing;      /* bytes after the end: the connection is not used again */
	const char *why;      /* for MALFORMED and TOO_LARGE */
	bool seen;            /* any byte at all */
	/* private */
	struct buf head; /* where it comes in pieces */
	struct buf
		body; /* where its length is not announced; given to the arena when complete */
	char *into;   /* where it is: the arena's bytes for it */
	enum http1_state state;
	int step;
	unsigned minor;
	uint64_t left;  /* of the body or the chunk */
	size_t scanned; /* of the head */
	size_t line;    /* where the present line of the head begins; digits of a chunk size */
	size_t dropped; /* bytes of chunk extensions and trailers */
};
void http1_reader_init(struct http1_reader *reader, struct arena *arena, size_t body_max,
		       bool head_request);
void http1_reader_fini(struct http1_reader *reader); /* the answer stays: it is the arena's */
/* Takes all bytes. After a state other than MORE further bytes only count as `trailing`. How
 * the bytes are cut into pieces changes nothing about the result. */
enum http1_state http1_read(struct http1_reader *reader, struct span bytes);
/* As if the body had passed body_max: what is held of one that is under way goes on now. */
void http1_pass_on(struct http1_reader *reader);
/* The stream ended. COMPLETE for a close-delimited answer (with close_delimited set), CUT
 * otherwise; what was decided before stays. */
enum http1_state http1_eof(struct http1_reader *reader);
