/*
 * Fuzzes the decoding of bodies. The first byte chooses the coding, the largest body and how zlib
 * compresses; the rest is read twice: as a compressed body, and as a plain one that is compressed
 * and has to come back. What is cut off, damaged or continued is refused, and nothing is ever
 * larger than it may be.
 */
#include "inflate.h"

#include <assert.h>
#include <zlib.h>

#define LARGEST ((size_t)1 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

/* To be freed with buf_fini. Every refusal has a place and words, or is for the size. */
static bool decoded(enum inflate_coding coding, struct span body, size_t max, struct buf *out)
{
	struct canonical_error error = { 0 };
	bool done = false;

	buf_init(out, max);
	done = inflate_body(coding, body, out, &error);
	assert(out->len <= max && out->room <= 2 * max + 4096);
	assert(error.offset <= body.len && error.expected);
	assert(error.too_large == out->full && !(done && error.too_large));
	return done;
}

static bool taken(enum inflate_coding coding, struct span body)
{
	struct buf out;
	bool done = decoded(coding, body, LARGEST, &out);

	buf_fini(&out);
	return done;
}

static void comes_back(enum inflate_coding coding, struct span body, struct span plain)
{
	struct buf out;
	bool done = decoded(coding, body, plain.len, &out);

	assert(done && span_equal(buf_view(&out), plain));
	buf_fini(&out);
	if (!plain.len)
		return;
	done = decoded(coding, body, plain.len - 1, &out);
	assert(!done && out.full);
	assert(span_equal(buf_view(&out), (struct span){ plain.at, plain.len - 1 }));
	buf_fini(&out);
}

/* A body twice: with gzip, its content twice; else one with something behind it. */
static void twice(enum inflate_coding coding, struct span body, struct span plain)
{
	struct buf both, content;

	buf_init(&both, SIZE_MAX / 2);
	buf_init(&content, SIZE_MAX / 2);
	buf_span(&both, body);
	buf_byte(&both, 0);
	assert(!taken(coding, buf_view(&both)));
	both.len--;
	buf_span(&both, body);
	buf_span(&content, plain);
	buf_span(&content, plain);
	if (coding == INFLATE_GZIP)
		comes_back(coding, buf_view(&both), buf_view(&content));
	else
		assert(!taken(coding, buf_view(&both)));
	buf_fini(&both);
	buf_fini(&content);
}

/* What holds for every body that is taken. */
static void check_taken(enum inflate_coding coding, struct span body, struct span plain)
{
	struct span cut = { body.at, body.len - 1 };

	comes_back(coding, body, plain);
	twice(coding, body, plain);
	assert(!taken(coding, cut));
}

static void read_compressed(enum inflate_coding coding, struct span body, size_t max)
{
	struct buf out;

	if (decoded(coding, body, max, &out))
		check_taken(coding, body, buf_view(&out));
	buf_fini(&out);
}

/* zlib's output in the format of that window. */
static void compress_to(struct buf *out, struct span plain, int window, uint8_t how)
{
	static const int strategies[] = { Z_DEFAULT_STRATEGY, Z_HUFFMAN_ONLY, Z_RLE, Z_FIXED };
	z_stream stream = { 0 };
	Bytef *copy = mem_alloc(plain.len + 1); /* next_in is not const */
	int result = deflateInit2(&stream, how % 10, Z_DEFLATED, window, 1 + how % 9,
				  strategies[how >> 4 & 3]);
	size_t room = 0;

	assert(result == Z_OK);
	if (plain.len)
		memcpy(copy, plain.at, plain.len);
	room = deflateBound(&stream, plain.len) + 64;
	buf_init(out, SIZE_MAX / 2);
	stream.next_in = copy;
	stream.avail_in = (uInt)plain.len;
	stream.next_out = (Bytef *)buf_reserve(out, room);
	stream.avail_out = (uInt)room;
	result = deflate(&stream, Z_FINISH);
	assert(result == Z_STREAM_END);
	out->len = room - stream.avail_out;
	deflateEnd(&stream);
	mem_free(copy);
}

static void flip(struct buf *body, size_t at, uint8_t how)
{
	uint8_t *byte = (uint8_t *)body->at + at;

	*byte ^= how | 1;
}

/* The checks at the end, and in gzip the whole content, notice a byte that is another. */
static void damage(enum inflate_coding coding, struct buf *body, struct span plain, uint8_t how)
{
	size_t tail = coding == INFLATE_GZIP ? 8 : 4;
	size_t at = body->len - 1 - how % tail;
	struct buf out;

	flip(body, at, how);
	assert(!taken(coding, buf_view(body)));
	flip(body, at, how);
	if (coding != INFLATE_GZIP)
		return;
	at = (plain.len * 31 + how) % body->len;
	flip(body, at, how);
	/* a time, a file's name: not the content */
	if (decoded(coding, buf_view(body), LARGEST, &out))
		assert(span_equal(buf_view(&out), plain));
	buf_fini(&out);
	flip(body, at, how);
}

/* A bare stream may begin as zlib's format does, but for the check: one stored block with a bit set
 * in its padding, and an empty one. */
static void padded(struct span plain)
{
	size_t len = plain.len;
	const uint8_t head[] = { 8, len & 255, len >> 8 & 255, ~len & 255, ~len >> 8 & 255 };
	struct buf body;

	if (len > 0xffff || (head[0] << 8 | head[1]) % 31 == 0)
		return;
	buf_init(&body, SIZE_MAX / 2);
	buf_append(&body, head, sizeof(head));
	buf_span(&body, plain);
	buf_append(&body, "\3", 2);
	check_taken(INFLATE_DEFLATE, buf_view(&body), plain);
	buf_fini(&body);
}

static void there_and_back(struct span plain, uint8_t how)
{
	static const struct {
		enum inflate_coding coding, other;
		int window;
		bool checked;
	} formats[] = {
		{ INFLATE_GZIP, INFLATE_DEFLATE, MAX_WBITS + 16, true },
		{ INFLATE_DEFLATE, INFLATE_GZIP, MAX_WBITS, true },
		{ INFLATE_DEFLATE, INFLATE_GZIP, 9, true },
		{ INFLATE_DEFLATE, INFLATE_GZIP, -MAX_WBITS, false },
	};

	for (size_t i = 0; i < ARRAY_LEN(formats); i++) {
		struct buf body;

		compress_to(&body, plain, formats[i].window, how);
		check_taken(formats[i].coding, buf_view(&body), plain);
		assert(!taken(formats[i].other, buf_view(&body)));
		if (formats[i].checked)
			damage(formats[i].coding, &body, plain, how);
		buf_fini(&body);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	static const size_t limits[] = { 0, 1, 100, 4096, 32767, 32768, 65537, LARGEST };
	struct span rest = { (const char *)bytes + 1, len ? len - 1 : 0 };
	enum inflate_coding coding = 0;

	if (!len)
		return 0;
	coding = bytes[0] & 1 ? INFLATE_GZIP : INFLATE_DEFLATE;
	read_compressed(coding, rest, limits[bytes[0] >> 1 & 7]);
	there_and_back(rest, bytes[0]);
	padded(rest);
	return 0;
}
