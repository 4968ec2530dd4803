/*
 * What a body is without its Content-Encoding (RFC 9110 8.4.1): gzip, and deflate, which is zlib's
 * format and, as some clients have it, the bare stream. inflate.c is the only door to zlib.
 */
#pragma once
#include "canonical.h"

enum inflate_coding {
	INFLATE_NONE, /* identity */
	INFLATE_GZIP,
	INFLATE_DEFLATE,
	INFLATE_OTHER /* another one, or several */
};
enum inflate_coding inflate_coding(struct span content_encoding);

/* The decoded body goes to `out`. False where the stream is corrupt or cut off, or has something
 * behind it; and where it is too large for out->max (error->too_large). */
bool inflate_body(enum inflate_coding coding, struct span body, struct buf *out,
		  struct canonical_error *error) MUST_CHECK;
