/* What the tests of the canonical form have in common: a body becomes these bytes, or is refused
 * at that byte. */
#pragma once
#include "canonical.h"
#include "unit_run.h"

#include <stdio.h>

struct to_buf {
	struct canonical_sink sink;
	struct buf buf;
	size_t puts;
};

static inline void put(struct canonical_sink *sink, const void *bytes, size_t len)
{
	struct to_buf *to = container_of(sink, struct to_buf, sink);

	buf_append(&to->buf, bytes, len);
	to->puts++;
}

/* The canonical bytes, to be freed with buf_fini; refused: false, and *error is set. The body is
 * copied to the end of a block, so that a read behind it is seen. */
static inline bool canonical_by(const char *kind, struct canonical_task task, struct to_buf *to,
				struct canonical_error *error)
{
	size_t len = task.body.len, rules = task.rules ? 65536 : 0;
	char *copy = mem_alloc(len);
	const struct canonicaliser *row = canonicalisers;
	bool done = false;

	while (strcmp(row->name, kind) != 0)
		row++;
	task.arena = arena_new();
	*to = (struct to_buf){ .sink = { put } };
	buf_init(&to->buf, SIZE_MAX / 2);
	if (len)
		memcpy(copy, task.body.at, len);
	task.body.at = copy;
	*error = (struct canonical_error){ 0 };
	done = row->run(&task, &to->sink, error);
	ck_assert_uint_le(arena_bytes(task.arena), 12 * len + 16384 + rules);
	ck_assert(done || (to->puts == 0 && error->expected && error->offset <= len));
	mem_free(copy);
	arena_free(task.arena);
	return done;
}

/* As JSON, with exact numbers. */
static inline bool canonical(struct span body, struct to_buf *to, struct canonical_error *error)
{
	bool done = canonical_by("json", (struct canonical_task){ .body = body }, to, error);

	ck_assert_uint_le(to->buf.len, body.len);
	return done;
}

static inline void becomes_bytes(struct span body, struct span expected)
{
	struct canonical_error error = { 0 };
	struct to_buf to;

	if (!canonical(body, &to, &error))
		ck_abort_msg("%.*s: refused at %zu: %s", (int)body.len, body.at, error.offset,
			     error.expected);
	if (!span_equal(buf_view(&to.buf), expected))
		ck_abort_msg("%.*s became %.*s, not %.*s", (int)body.len, body.at,
			     (int)to.buf.len, to.buf.at, (int)expected.len, expected.at);
	buf_fini(&to.buf);
}

static inline void becomes(const char *body, const char *expected)
{
	becomes_bytes(span_of(body), span_of(expected));
}

static inline void refused_bytes(struct span body, size_t offset, const char *expected)
{
	struct canonical_error error = { 0 };
	struct to_buf to;

	if (canonical(body, &to, &error))
		ck_abort_msg("%.*s was taken", (int)body.len, body.at);
	ck_assert_msg(error.offset == offset && strstr(error.expected, expected),
		      "%.*s: refused at %zu: %s, not at %zu: %s", (int)body.len, body.at,
		      error.offset, error.expected, offset, expected);
	ck_assert_uint_eq(to.puts, 0);
	buf_fini(&to.buf);
}

static inline void refused(const char *body, size_t offset, const char *expected)
{
	refused_bytes(span_of(body), offset, expected);
}

/* A body of `n` times `fill`, between two texts. */
static inline struct span long_body(struct buf *buf, const char *before, const char *fill,
				    size_t n, const char *after)
{
	buf_init(buf, SIZE_MAX / 2);
	buf_text(buf, before);
	while (n--)
		buf_text(buf, fill);
	buf_text(buf, after);
	return buf_view(buf);
}
