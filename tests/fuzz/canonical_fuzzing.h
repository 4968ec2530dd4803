/* What the fuzz targets of the canonical forms have in common. */
#pragma once
#include "canonical.h"

#include <assert.h>

struct fuzzed {
	struct canonical_sink sink;
	struct buf buf; /* the canonical bytes */
	size_t puts;
	struct canonical_error error;
};

static void fuzzed_put(struct canonical_sink *sink, const void *bytes, size_t len)
{
	struct fuzzed *to = container_of(sink, struct fuzzed, sink);

	buf_append(&to->buf, bytes, len);
	to->puts++;
}

/* What is taken needs bounded memory; what is refused has a place and words, and reaches no sink.
 * To be freed with buf_fini. */
static bool fuzzed(const char *kind, struct canonical_task task, struct fuzzed *to)
{
	const struct canonicaliser *row = canonicalisers;
	bool done = false;

	while (strcmp(row->name, kind) != 0)
		row++;
	task.arena = arena_new();
	*to = (struct fuzzed){ .sink = { fuzzed_put } };
	buf_init(&to->buf, SIZE_MAX / 2);
	done = row->run(&task, &to->sink, &to->error);
	assert(arena_bytes(task.arena) <=
	       12 * task.body.len + 16384 + (task.rules ? 1 << 20 : 0));
	assert(done || (to->error.offset <= task.body.len && to->error.expected && !to->puts));
	arena_free(task.arena);
	return done;
}

/* The text up to the line end, taken off the front. */
static inline struct span fuzzed_line(struct span *rest)
{
	const char *end = rest->len ? memchr(rest->at, '\n', rest->len) : NULL;
	struct span line = { rest->at, end ? (size_t)(end - rest->at) : rest->len };
	size_t used = line.len + (end ? 1 : 0);

	rest->at += used;
	rest->len -= used;
	return line;
}
