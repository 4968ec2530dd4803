/*
 * Memory. Out of memory is death: nothing here returns NULL. What strangers can make grow is
 * bounded first, by its owner: every buf has a maximum, every arena's owner counts.
 */
#pragma once
#include "base.h"

#include <stdio.h>

void *mem_alloc(size_t size);            /* zeroed; free with mem_free */
void *mem_resize(void *at, size_t size); /* as realloc; new bytes are not zeroed */
char *mem_text(struct span text);        /* a NUL-terminated copy; free with mem_free */
void mem_free(void *at);                 /* NULL is fine */

/*
 * An arena gives memory that is freed all at once. Alignment is that of max_align_t.
 * Not zeroed unless the name says so.
 */
struct arena;
struct arena *arena_new(void);
void arena_free(struct arena *arena); /* runs the deferred functions, latest first */
void *arena_alloc(struct arena *arena, size_t size);
void *arena_zero(struct arena *arena, size_t size);
struct span arena_copy(struct arena *arena, struct span bytes); /* and a NUL behind it */
struct span arena_format(struct arena *arena, const char *format, ...) PRINTF_LIKE(2, 3);
/* Calls fn(arg) when the arena is freed: for what is not memory. */
void arena_defer(struct arena *arena, void (*fn)(void *), void *arg);
size_t arena_bytes(const struct arena *arena); /* taken from the system so far */

/*
 * Bytes that grow up to a maximum. An append that would pass the maximum appends nothing and
 * sets `full`, and so does every later one: check once at the end.
 */
struct buf {
	char *at;
	size_t len, room, max;
	bool full;
};
void buf_init(struct buf *buf, size_t max);
void buf_fini(struct buf *buf);  /* frees; the buf may be used again, as new */
void buf_clear(struct buf *buf); /* len = 0, full = false; keeps the room */
void buf_append(struct buf *buf, const void *bytes, size_t len);
void buf_span(struct buf *buf, struct span bytes);
void buf_text(struct buf *buf, const char *text);
void buf_byte(struct buf *buf, char byte);
void buf_format(struct buf *buf, const char *format, ...) PRINTF_LIKE(2, 3);
/* Room for `len` more bytes, at the end; NULL where the maximum forbids. buf->len += what was used. */
char *buf_reserve(struct buf *buf, size_t len);
void buf_skip(struct buf *buf, size_t len); /* drops the first bytes */
void buf_print(const struct buf *buf, FILE *to);
static inline struct span buf_view(const struct buf *buf)
{
	return (struct span){ buf->at, buf->len };
}
