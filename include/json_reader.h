/*
 * The parts of the JSON reader (canonical_json.c), and of nobody else: each reads one thing of
 * the body and writes its canonical bytes. What is written is never longer than what was read,
 * so an output as long as the body always suffices.
 *
 * A function that reads returns where reading goes on, or NULL after json_wrong().
 */
#pragma once
#include "mem.h"

/* Words are read and written whole, so both ends of the output may be passed by this many. */
#define JSON_SLACK     32U
#define JSON_BODY_MAX  ((size_t)INT32_MAX) /* places in a body are kept in 32 bits */
#define JSON_DEPTH_MAX 128U

struct json_io {
	const char *end;      /* of the body */
	char *out;            /* where the next canonical byte goes */
	bool escaped;         /* a string held an escape; set here, cleared by who asks */
	const char *wrong;    /* the byte that is not what was expected */
	const char *expected; /* a few words, as in canonical_error */
};

static inline const char *json_wrong(struct json_io *io, const char *at, const char *expected)
{
	io->wrong = at;
	io->expected = expected;
	return NULL;
}

/* Eight bytes as a number; the first is the lowest. Compilers make one load of it. */
static inline uint64_t json_load(const char *at)
{
	const unsigned char *b = (const unsigned char *)at;

	return (uint64_t)b[0] | (uint64_t)b[1] << 8 | (uint64_t)b[2] << 16 |
	       (uint64_t)b[3] << 24 | (uint64_t)b[4] << 32 | (uint64_t)b[5] << 40 |
	       (uint64_t)b[6] << 48 | (uint64_t)b[7] << 56;
}

#define JSON_EACH(byte) (0x0101010101010101U * (uint64_t)(byte))

/* A string, from its quote on. */
const char *json_string(struct json_io *io, const char *at);
/* A number, from its minus or first digit on. */
const char *json_number(struct json_io *io, const char *at);

/*
 * A run of canonical bytes in the output, [start, end), that is followed by the run `next`.
 * Each member of an object begins a run of its own; `last` is the run it ends with, another
 * one only where an object inside it was put in order.
 */
struct json_piece {
	struct json_piece *next, *last;
	uint64_t key; /* the name's first eight bytes, such that smaller comes first */
	uint32_t start, end;
	uint32_t name;    /* twice its length as written, and 1 where it holds an escape */
	uint32_t body_at; /* of the name's quote, in the body */
};

struct json_members {
	struct arena *arena;
	const char *body_end;
	const char *out;          /* start of the output */
	struct json_piece *free;  /* used before, by next */
	struct json_piece *fresh; /* never used, an array */
	uint32_t n_fresh, batch;  /* how many there are, and how many are made at once */
	uint32_t duplicate;       /* where in the body; UINT32_MAX: none was found */
};

void json_members_init(struct json_members *members, struct arena *arena, struct span body,
		       const char *out);
struct json_piece *json_piece_new(struct json_members *members, size_t start);
/* Gives back a chain from first to last, whose pieces are all plain. */
void json_pieces_free(struct json_members *members, struct json_piece *first,
		      struct json_piece *last);
/* To be called when a member's name, which stands behind the quote at `quote` in the body, has
 * been written. */
void json_member_named(const struct json_members *members, struct json_piece *member,
		       const char *quote, size_t name_len, bool escaped);
int json_compare_same_key(const struct json_members *members, const struct json_piece *a,
			  const struct json_piece *b);
/* By the UTF-16 code units of the names, as RFC 8785 wants: < 0, 0, > 0. */
static inline int json_member_compare(const struct json_members *members,
				      const struct json_piece *a, const struct json_piece *b)
{
	if (a->key != b->key)
		return a->key < b->key ? -1 : 1;
	return json_compare_same_key(members, a, b);
}
/* Orders `n` members chained by last->next; returns the first, *end the last one. */
struct json_piece *json_members_sort(struct json_members *members, struct json_piece *first,
				     size_t n, struct json_piece **end);
