/*
 * The door to zlib. A compressed body is decoded in steps, into a buf whose maximum is the largest
 * body that the route takes: so a bomb costs no more than an honest body does. Only one byte is
 * ever decoded beyond that, to tell a body that just fits from one that does not.
 *
 * Several gzip members in a row are one body (RFC 1952 2.2).
 */
#include "inflate.h"

#include "http.h"

#include <assert.h>
#define ZLIB_CONST
#include <zlib.h>

#define STEP 32768U /* decoded bytes at most, in one go */

enum inflate_coding inflate_coding(struct span content_encoding)
{
	static const struct {
		struct span name;
		enum inflate_coding coding;
	} known[] = {
		{ { "identity", 8 }, INFLATE_NONE },
		{ { "gzip", 4 }, INFLATE_GZIP },
		{ { "x-gzip", 6 }, INFLATE_GZIP }, /* RFC 9110: the same */
		{ { "deflate", 7 }, INFLATE_DEFLATE },
	};

	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		if (http_same_name(content_encoding, known[i].name))
			return known[i].coding;
	return INFLATE_OTHER;
}

/* zlib's format begins with a method, a window, and a check of both. */
static bool has_zlib_head(struct span body)
{
	const unsigned char *at = (const unsigned char *)body.at;

	return body.len >= 2 && (at[0] & 15) == 8 && (at[0] << 8 | at[1]) % 31 == 0;
}

static int window_of(enum inflate_coding coding, struct span body)
{
	if (coding == INFLATE_GZIP)
		return MAX_WBITS + 16;
	return has_zlib_head(body) ? MAX_WBITS : -MAX_WBITS;
}

/* One step; the byte beyond the maximum goes to `spare`. */
static int step(z_stream *stream, struct buf *out, unsigned char *spare)
{
	size_t left = out->max - out->len;
	size_t room = left < STEP ? left : STEP;
	char *at = room ? buf_reserve(out, room) : NULL;
	int result = 0;

	stream->next_out = at ? (unsigned char *)at : spare;
	stream->avail_out = at ? (uInt)room : 1;
	result = inflate(stream, Z_NO_FLUSH);
	if (at)
		out->len += room - stream->avail_out;
	else if (stream->avail_out == 0)
		out->full = true;
	return result;
}

/* From the first byte to the last; what zlib said in the end. */
static int run(z_stream *stream, enum inflate_coding coding, struct buf *out)
{
	unsigned char spare = 0;
	int result = Z_OK;

	while (result == Z_OK && !out->full) {
		result = step(stream, out, &spare);
		if (result == Z_STREAM_END && stream->avail_in && coding == INFLATE_GZIP)
			result = inflateReset(stream);
	}
	return result;
}

bool inflate_body(enum inflate_coding coding, struct span body, struct buf *out,
		  struct canonical_error *error)
{
	z_stream stream = { .next_in = (const unsigned char *)body.at,
			    .avail_in = (uInt)body.len };
	int result = inflateInit2(&stream, window_of(coding, body));

	assert(result == Z_OK && body.len <= INT32_MAX); /* else memory has run out */
	(void)result;
	result = run(&stream, coding, out);
	error->offset = body.len - stream.avail_in;
	error->too_large = out->full;
	if (result == Z_BUF_ERROR)
		error->expected = "the rest of the compressed body";
	else if (result == Z_STREAM_END)
		error->expected = "the end of the body";
	else
		error->expected = "a compressed body as its Content-Encoding says";
	result = result == Z_STREAM_END && !stream.avail_in && !out->full;
	inflateEnd(&stream);
	return result;
}
