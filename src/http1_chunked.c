/*
 * The chunked body of a response, byte for byte as RFC 9112 7.1 writes it: sizes of hexadecimal
 * digits alone, every CRLF in its place. Chunk extensions and trailers are checked, counted against
 * one limit, and dropped; neither means anything to a store of answers. Where a chunk's size shows
 * that the body is too large, that is decided before a byte of the chunk has come.
 */
#include "http1.h"

#include "http1_internal.h"

#define CHUNK_DIGITS_MAX 16U           /* so that a size fits 64 bits */
#define DROPPED_MAX      HTTP_HEAD_MAX /* chunk extensions and trailers of one answer */

static size_t read_chunk_size(struct http1_reader *r, struct span bytes)
{
	size_t i = 0;

	for (; i < bytes.len && http_is(bytes.at[i], HTTP_HEX); i++) {
		if (++r->line > CHUNK_DIGITS_MAX) {
			http1_malformed(r, "chunk size");
			return i;
		}
		r->left = r->left << 4 | http_hex(bytes.at[i]);
	}
	if (i == bytes.len)
		return i;
	if (!r->line)
		http1_malformed(r, "chunk size");
	else if (!http1_fits(r, r->left))
		http1_body_over(r);
	r->line = 0;
	r->step = STEP_SIZE_END;
	return i;
}

/* Counts a byte that is dropped. */
static void drop(struct http1_reader *r)
{
	if (++r->dropped > DROPPED_MAX)
		http1_refuse(r, HTTP1_TOO_LARGE, "chunk extensions and trailers");
}

static size_t read_size_end(struct http1_reader *r, struct span bytes)
{
	char byte = bytes.at[0];

	if (byte == '\r' && r->step == STEP_SIZE_END)
		r->step = STEP_SIZE_LF;
	else if (byte == ';')
		r->step = STEP_EXTENSION;
	else if (byte == ' ' || byte == '\t')
		r->step = STEP_SIZE_PAD;
	else
		http1_malformed(r, "chunk size");
	if (byte != '\r')
		drop(r);
	return 1;
}

static size_t read_extension(struct http1_reader *r, struct span bytes)
{
	for (size_t i = 0; i < bytes.len && r->state == HTTP1_MORE; i++) {
		if (bytes.at[i] == '\r') {
			r->step = STEP_SIZE_LF;
			return i + 1;
		}
		if (http_is(bytes.at[i], HTTP_VALUE))
			drop(r);
		else
			http1_malformed(r, "chunk extension");
	}
	return bytes.len;
}

static size_t read_chunk(struct http1_reader *r, struct span bytes)
{
	size_t n = bytes.len < r->left ? bytes.len : r->left;

	http1_collect(r, (struct span){ bytes.at, n });
	r->left -= n;
	if (!r->left)
		r->step = STEP_CHUNK_CR;
	return n;
}

/* The one byte that may stand here, and the step behind it. */
static size_t read_mark(struct http1_reader *r, struct span bytes)
{
	char mark = r->step == STEP_CHUNK_CR ? '\r' : '\n';

	if (bytes.at[0] != mark)
		http1_malformed(r, "chunked framing");
	else if (r->step == STEP_SIZE_LF)
		r->step = r->left ? STEP_CHUNK : STEP_TRAILERS;
	else if (r->step == STEP_CHUNK_CR)
		r->step = STEP_CHUNK_LF;
	else if (r->step == STEP_CHUNK_LF)
		r->step = STEP_CHUNK_SIZE;
	else
		http1_complete(r);
	return 1;
}

static void trailer_byte(struct http1_reader *r, char byte)
{
	if (r->step == STEP_TRAILER_LF && byte == '\n')
		r->step = STEP_TRAILERS;
	else if (r->step == STEP_TRAILERS && byte == '\r')
		r->step = STEP_LAST_LF;
	else if (r->step == STEP_TRAILER_NAME && byte == ':')
		r->step = STEP_TRAILER_VALUE;
	else if (r->step == STEP_TRAILER_VALUE && byte == '\r')
		r->step = STEP_TRAILER_LF;
	else if (r->step <= STEP_TRAILER_NAME && http_is(byte, HTTP_TCHAR))
		r->step = STEP_TRAILER_NAME;
	else if (r->step != STEP_TRAILER_VALUE || !http_is(byte, HTTP_VALUE))
		http1_malformed(r, "trailer");
	drop(r);
}

static size_t read_trailers(struct http1_reader *r, struct span bytes)
{
	size_t i = 0;

	while (i < bytes.len && r->state == HTTP1_MORE && r->step != STEP_LAST_LF)
		trailer_byte(r, bytes.at[i++]);
	return i;
}

static size_t (*const steps[])(struct http1_reader *r, struct span bytes) = {
	[STEP_CHUNK_SIZE] = read_chunk_size,  [STEP_SIZE_END] = read_size_end,
	[STEP_SIZE_PAD] = read_size_end,      [STEP_EXTENSION] = read_extension,
	[STEP_SIZE_LF] = read_mark,           [STEP_CHUNK] = read_chunk,
	[STEP_CHUNK_CR] = read_mark,          [STEP_CHUNK_LF] = read_mark,
	[STEP_TRAILERS] = read_trailers,      [STEP_TRAILER_NAME] = read_trailers,
	[STEP_TRAILER_VALUE] = read_trailers, [STEP_TRAILER_LF] = read_trailers,
	[STEP_LAST_LF] = read_mark,
};

size_t http1_chunked(struct http1_reader *r, struct span bytes)
{
	return steps[r->step](r, bytes);
}
