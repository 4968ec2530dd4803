/*
 * For tests of the reader of responses: every response is read at once, byte by byte, and in
 * pieces of several sizes, and must come to the same end each time.
 */
#pragma once
#include "http1.h"

#include <check.h>

#define OK11    "HTTP/1.1 200 OK\r\n"
#define CHUNKED OK11 "Transfer-Encoding: chunked\r\n\r\n"

/* What a stream comes to; `body` only where it is COMPLETE. */
struct want {
	enum http1_state state;
	unsigned status;
	const char *body;
	bool keep_alive;
	size_t trailing;
};

static const size_t body_max = 64;
static bool discard; /* what passes it, instead of refusing it */
static struct arena *arena;
static struct http1_reader reader;

static inline void begin(void)
{
	arena = arena_new();
	discard = false;
}

static inline void end(void)
{
	http1_reader_fini(&reader);
	arena_free(arena);
}

static inline void read_pieces(struct span stream, size_t piece, bool head_request)
{
	http1_reader_fini(&reader);
	http1_reader_init(&reader, arena, body_max, head_request);
	reader.discard = discard;
	for (size_t at = 0; at < stream.len; at += piece) {
		size_t rest = stream.len - at;
		size_t len = rest < piece ? rest : piece;
		char *copy = mem_text((struct span){ stream.at + at, len });

		(void)http1_read(&reader, (struct span){ copy, len });
		mem_free(copy);
	}
}

static inline void check(struct span stream, const struct want *want, bool head_request)
{
	static const size_t pieces[] = { SIZE_MAX / 2, 1, 2, 3, 7, 16 };

	for (size_t i = 0; i < ARRAY_LEN(pieces); i++) {
		read_pieces(stream, pieces[i], head_request);
		ck_assert_msg(reader.state == want->state, "state %d, not %d (%s): %.*s",
			      reader.state, want->state, reader.why ? reader.why : "",
			      (int)(stream.len < 200 ? stream.len : 200), stream.at);
		ck_assert_int_eq(reader.why != NULL, want->state == HTTP1_MALFORMED ||
							     want->state == HTTP1_TOO_LARGE);
		if (want->state != HTTP1_COMPLETE) {
			ck_assert(!want->body && !want->status);
			continue;
		}
		http1_reader_fini(&reader); /* the answer outlives the reader */
		ck_assert(reader.head_done);
		ck_assert_uint_eq(reader.answer.status, want->status);
		ck_assert(span_equal(reader.answer.body, span_of(want->body)));
		ck_assert_int_eq(reader.keep_alive, want->keep_alive);
		ck_assert_uint_eq(reader.trailing, want->trailing);
	}
}

static inline void whole(const char *stream, unsigned status, const char *body)
{
	check(span_of(stream), &(struct want){ HTTP1_COMPLETE, status, body, true, 0 }, false);
}

static inline void refused(const char *stream)
{
	check(span_of(stream), &(struct want){ .state = HTTP1_MALFORMED }, false);
}

static inline void unfinished(const char *stream)
{
	check(span_of(stream), &(struct want){ .state = HTTP1_MORE }, false);
	ck_assert_int_eq(http1_eof(&reader), HTTP1_CUT);
	ck_assert(!reader.keep_alive);
}

static inline void too_large(struct span stream)
{
	check(stream, &(struct want){ .state = HTTP1_TOO_LARGE }, false);
}

/* `before`, then `n` times `c`, then `after`. */
static inline struct span padded(const char *before, size_t n, char c, const char *after)
{
	struct buf buf;
	struct span made;

	buf_init(&buf, (size_t)1 << 20);
	buf_text(&buf, before);
	memset(buf_reserve(&buf, n), c, n);
	buf.len += n;
	buf_text(&buf, after);
	made = arena_copy(arena, buf_view(&buf));
	buf_fini(&buf);
	return made;
}

static inline int run(const char *name, const TTest *const *const *tests, size_t n)
{
	Suite *suite = suite_create(name);
	TCase *tcase = tcase_create(name);
	SRunner *runner = srunner_create(suite);
	int failed = 0;

	tcase_add_checked_fixture(tcase, begin, end);
	for (size_t i = 0; i < n; i++)
		tcase_add_test(tcase, *tests[i]);
	suite_add_tcase(suite, tcase);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
