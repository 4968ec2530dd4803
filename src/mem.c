/* The only file that asks libc for memory; see mem.h. */
#include "mem.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Most requests fit into one chunk: head fields, a small body, the answer's head. */
#define CHUNK_BYTES ((size_t)8 * 1024)
#define ALIGNMENT   ((size_t) _Alignof(max_align_t))

static void die(void)
{
	fputs("onceward: out of memory\n", stderr);
	abort();
}

void *mem_alloc(size_t size)
{
	void *at = calloc(1, size ? size : 1);

	if (!at)
		die();
	return at;
}

void *mem_resize(void *at, size_t size)
{
	void *moved = realloc(at, size ? size : 1);

	if (!moved)
		die();
	return moved;
}

char *mem_text(struct span text)
{
	char *copy = mem_alloc(text.len + 1);

	if (text.len)
		memcpy(copy, text.at, text.len);
	return copy;
}

void mem_free(void *at)
{
	free(at);
}

struct chunk {
	struct chunk *next;
	size_t size; /* of the bytes behind this head */
	max_align_t bytes[];
};

struct deferred {
	struct deferred *next;
	void (*fn)(void *);
	void *arg;
};

/* The arena itself lies in its first chunk. */
struct arena {
	struct chunk *chunks; /* the one that is being filled comes first */
	size_t used;          /* of the first chunk */
	size_t bytes;
	struct deferred *deferred;
};

static size_t aligned(size_t size)
{
	return (size + ALIGNMENT - 1) & ~(ALIGNMENT - 1);
}

static struct chunk *chunk_new(size_t size)
{
	struct chunk *chunk = malloc(sizeof(*chunk) + size);

	if (!chunk)
		die();
	chunk->next = NULL;
	chunk->size = size;
	return chunk;
}

struct arena *arena_new(void)
{
	struct chunk *chunk = chunk_new(CHUNK_BYTES);
	struct arena *arena = (struct arena *)(void *)chunk->bytes;

	*arena = (struct arena){ .chunks = chunk,
				 .used = aligned(sizeof(*arena)),
				 .bytes = sizeof(*chunk) + CHUNK_BYTES };
	return arena;
}

void arena_free(struct arena *arena)
{
	struct chunk *chunk = arena->chunks;

	for (struct deferred *d = arena->deferred; d; d = d->next)
		d->fn(d->arg);
	while (chunk) { /* the arena lies in one of them: not touched again */
		struct chunk *next = chunk->next;
		free(chunk);
		chunk = next;
	}
}

/* A large piece gets a chunk of its own, behind the first, so that the first goes on filling. */
static void *alloc_apart(struct arena *arena, size_t size)
{
	struct chunk *chunk = chunk_new(size);

	chunk->next = arena->chunks->next;
	arena->chunks->next = chunk;
	arena->bytes += sizeof(*chunk) + size;
	return chunk->bytes;
}

void *arena_alloc(struct arena *arena, size_t size)
{
	char *at = NULL;

	assert(size <= SIZE_MAX / 2);
	size = aligned(size ? size : 1);
	if (size > CHUNK_BYTES / 4 && size > arena->chunks->size - arena->used)
		return alloc_apart(arena, size);
	if (size > arena->chunks->size - arena->used) {
		struct chunk *chunk = chunk_new(CHUNK_BYTES);

		chunk->next = arena->chunks;
		arena->chunks = chunk;
		arena->used = 0;
		arena->bytes += sizeof(*chunk) + CHUNK_BYTES;
	}
	at = (char *)arena->chunks->bytes + arena->used;
	arena->used += size;
	return at;
}

void *arena_zero(struct arena *arena, size_t size)
{
	return memset(arena_alloc(arena, size), 0, size);
}

struct span arena_copy(struct arena *arena, struct span bytes)
{
	char *copy = arena_alloc(arena, bytes.len + 1);

	if (bytes.len)
		memcpy(copy, bytes.at, bytes.len);
	copy[bytes.len] = 0;
	return (struct span){ copy, bytes.len };
}

struct span arena_format(struct arena *arena, const char *format, ...)
{
	va_list args;
	char *at = NULL;
	int len = 0;

	va_start(args, format);
	/* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): clang 14 misses the va_start */
	len = vsnprintf(NULL, 0, format, args);
	va_end(args);
	assert(len >= 0);
	at = arena_alloc(arena, (size_t)len + 1);
	va_start(args, format);
	vsnprintf(at, (size_t)len + 1, format, args);
	va_end(args);
	return (struct span){ at, (size_t)len };
}

void arena_defer(struct arena *arena, void (*fn)(void *), void *arg)
{
	struct deferred *d = arena_alloc(arena, sizeof(*d));

	*d = (struct deferred){ .next = arena->deferred, .fn = fn, .arg = arg };
	arena->deferred = d;
}

size_t arena_bytes(const struct arena *arena)
{
	return arena->bytes;
}

void buf_init(struct buf *buf, size_t max)
{
	*buf = (struct buf){ .max = max };
}

void buf_fini(struct buf *buf)
{
	free(buf->at);
	*buf = (struct buf){ .max = buf->max };
}

void buf_clear(struct buf *buf)
{
	buf->len = 0;
	buf->full = false;
}

char *buf_reserve(struct buf *buf, size_t len)
{
	size_t room = buf->room ? buf->room : 256;

	if (buf->full || len > buf->max - buf->len) {
		buf->full = true;
		return NULL;
	}
	if (buf->len + len > buf->room) {
		while (room < buf->len + len)
			room *= 2;
		if (room > buf->max)
			room = buf->max;
		buf->at = mem_resize(buf->at, room);
		buf->room = room;
	}
	return buf->at + buf->len;
}

void buf_append(struct buf *buf, const void *bytes, size_t len)
{
	char *at = len ? buf_reserve(buf, len) : NULL;

	if (!at)
		return;
	memcpy(at, bytes, len);
	buf->len += len;
}

void buf_span(struct buf *buf, struct span bytes)
{
	buf_append(buf, bytes.at, bytes.len);
}

void buf_text(struct buf *buf, const char *text)
{
	buf_append(buf, text, strlen(text));
}

void buf_byte(struct buf *buf, char byte)
{
	buf_append(buf, &byte, 1);
}

void buf_format(struct buf *buf, const char *format, ...)
{
	va_list args;
	char *at = NULL;
	int len = 0;

	va_start(args, format);
	/* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): clang 14 misses the va_start */
	len = vsnprintf(NULL, 0, format, args);
	va_end(args);
	assert(len >= 0);
	at = buf_reserve(buf, (size_t)len + 1); /* vsnprintf writes a NUL, which is not kept */
	if (!at)
		return;
	va_start(args, format);
	vsnprintf(at, (size_t)len + 1, format, args);
	va_end(args);
	buf->len += (size_t)len;
}

void buf_skip(struct buf *buf, size_t len)
{
	assert(len <= buf->len);
	memmove(buf->at, buf->at + len, buf->len - len);
	buf->len -= len;
}

void buf_print(const struct buf *buf, FILE *to)
{
	if (buf->len)
		fwrite(buf->at, 1, buf->len, to);
}
