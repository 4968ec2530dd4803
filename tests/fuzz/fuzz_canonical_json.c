/*
 * Fuzzes the JSON reader. What it takes becomes bytes that are no longer than the body, that are
 * their own canonical form, and for which at most twelve bytes a byte were needed; what it
 * refuses has a place in the body and words, and reaches no sink.
 */
#include "canonical.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

struct to_buf {
	struct canonical_sink sink;
	struct buf buf;
	size_t puts;
};

static void put(struct canonical_sink *sink, const void *bytes, size_t len)
{
	struct to_buf *to = container_of(sink, struct to_buf, sink);

	buf_append(&to->buf, bytes, len);
	to->puts++;
}

static bool canonical(struct span body, struct to_buf *to)
{
	struct arena *arena = arena_new();
	struct canonical_error error = { SIZE_MAX, NULL };
	bool done = false;

	*to = (struct to_buf){ .sink = { put } };
	buf_init(&to->buf, body.len);
	done = canonical_json(arena, body, &to->sink, &error);
	assert(arena_bytes(arena) <= 12 * body.len + 16384);
	assert(done || (error.offset <= body.len && error.expected && !to->puts));
	assert(!done || (to->buf.len && !to->buf.full));
	arena_free(arena);
	return done;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	struct to_buf first, again;

	if (canonical((struct span){ (const char *)bytes, len }, &first)) {
		assert(canonical(buf_view(&first.buf), &again));
		assert(span_equal(buf_view(&first.buf), buf_view(&again.buf)));
		buf_fini(&again.buf);
	}
	buf_fini(&first.buf);
	return 0;
}
