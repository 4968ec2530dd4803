/* What http1.c and http1_chunked.c share; nobody else includes it. */
#pragma once
#include "http1.h"

enum http1_step {
	STEP_HEAD,
	STEP_SIZED,       /* a body of `left` more bytes */
	STEP_UNTIL_CLOSE, /* a body that ends with the stream */
	STEP_CHUNK_SIZE,  /* from here on: http1_chunked */
	STEP_SIZE_END,    /* its digits are over */
	STEP_SIZE_PAD,    /* white space, which only an extension may follow */
	STEP_EXTENSION,   /* until the CR */
	STEP_SIZE_LF,
	STEP_CHUNK, /* `left` more bytes of data */
	STEP_CHUNK_CR,
	STEP_CHUNK_LF,
	STEP_TRAILERS, /* where a line of them begins */
	STEP_TRAILER_NAME,
	STEP_TRAILER_VALUE,
	STEP_TRAILER_LF,
	STEP_LAST_LF
};

void http1_refuse(struct http1_reader *r, enum http1_state state, const char *why);
void http1_malformed(struct http1_reader *r, const char *why);
void http1_complete(struct http1_reader *r);

/* May that many bytes more of the body be held? */
bool http1_fits(const struct http1_reader *r, uint64_t more) MUST_CHECK;
/* The body is more than may be held: no byte of it is kept, whether it is read on or not. */
void http1_body_over(struct http1_reader *r);
/* Body bytes that no length of the whole announced. */
void http1_collect(struct http1_reader *r, struct span bytes);

/* One step through a chunked body; how many of the bytes (at least one) it took. */
size_t http1_chunked(struct http1_reader *r, struct span bytes);
