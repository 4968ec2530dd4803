/*
 * The parts of the JSON reader (canonical_json.c), and of nobody else: each reads one thing of
 * the body and writes its canonical bytes. What is written is never longer than what was read,
 * so an output as long as the body always suffices; but for reader_double, see there.
 *
 * A function that reads returns where reading goes on, or NULL after reader_wrong().
 */
#pragma once
#include "canonical.h"

/* Words are read and written whole, so both ends of the output may be passed by this many. */
#define READER_SLACK     32U
#define READER_BODY_MAX  ((size_t)INT32_MAX) /* places in a body are kept in 32 bits */
#define READER_DEPTH_MAX 128U

struct reader_io {
	const char *end;      /* of the body */
	char *out;            /* where the next canonical byte goes */
	bool escaped;         /* a string held an escape; set here, cleared by who asks */
	const char *wrong;    /* the byte that is not what was expected */
	const char *expected; /* a few words, as in canonical_error */
};

static inline const char *reader_wrong(struct reader_io *io, const char *at,
				       const char *expected)
{
	io->wrong = at;
	io->expected = expected;
	return NULL;
}

/* Eight bytes as a number; the first is the lowest. Compilers make one load of it. */
static inline uint64_t reader_load(const char *at)
{
	const unsigned char *b = (const unsigned char *)at;

	return (uint64_t)b[0] | (uint64_t)b[1] << 8 | (uint64_t)b[2] << 16 |
	       (uint64_t)b[3] << 24 | (uint64_t)b[4] << 32 | (uint64_t)b[5] << 40 |
	       (uint64_t)b[6] << 48 | (uint64_t)b[7] << 56;
}

#define READER_EACH(byte) (0x0101010101010101U * (uint64_t)(byte))

/* Behind white space, of which there may be none. */
const char *reader_skip(const char *at, const char *end);
/* A string, from its quote on. */
const char *reader_string(struct reader_io *io, const char *at);
/* A number, from its minus or first digit on, exactly. */
const char *reader_number(struct reader_io *io, const char *at);
/* The same, as the double next to it is spelt by ECMAScript. */
const char *reader_double(struct reader_io *io, const char *at);
/* By how many bytes doubles may be longer than what was read of this body, at most. */
size_t reader_double_growth(struct span body);

/* The value of a number: D x 10^E; the digits of D stand in two places, because the point was
 * between them, and neither begin nor end with a zero. Zero has no digits. */
struct reader_decimal {
	struct span high, low;
	int64_t exponent;
	bool negative;
};
const char *reader_decimal(struct reader_io *io, const char *at, struct reader_decimal *d);
/* Writes the digits of D; returns their end. */
char *reader_digits(char *out, const struct reader_decimal *d);

/*
 * A run of canonical bytes in the output, [start, end), that is followed by the run `next`.
 * Each member of an object begins a run of its own; `last` is the run it ends with, another
 * one only where an object inside it was put in order.
 */
struct reader_piece {
	struct reader_piece *next, *last;
	uint64_t key; /* the name's first eight bytes, such that smaller comes first */
	uint32_t start, end;
	uint32_t name;    /* twice its length as written, and 1 where it holds an escape */
	uint32_t body_at; /* of the name's quote, in the body */
};

struct reader_members {
	struct arena *arena;
	const char *body_end;
	const char *out;            /* start of the output */
	struct reader_piece *free;  /* used before, by next */
	struct reader_piece *fresh; /* never used, an array */
	uint32_t n_fresh, batch;    /* how many there are, and how many are made at once */
	uint32_t duplicate;         /* where in the body; UINT32_MAX: none was found */
};

void reader_members_init(struct reader_members *members, struct arena *arena, struct span body,
			 const char *out);
struct reader_piece *reader_piece_new(struct reader_members *members, size_t start);
/* Gives back a chain from first to last, whose pieces are all plain. */
void reader_pieces_free(struct reader_members *members, struct reader_piece *first,
			struct reader_piece *last);
/* To be called when a member's name, which stands behind the quote at `quote` in the body, has
 * been written. */
void reader_member_named(const struct reader_members *members, struct reader_piece *member,
			 const char *quote, size_t name_len, bool escaped);
int reader_compare_same_key(const struct reader_members *members, const struct reader_piece *a,
			    const struct reader_piece *b);
/* By the UTF-16 code units of the names, as RFC 8785 wants: < 0, 0, > 0. */
static inline int reader_member_compare(const struct reader_members *members,
					const struct reader_piece *a,
					const struct reader_piece *b)
{
	if (a->key != b->key)
		return a->key < b->key ? -1 : 1;
	return reader_compare_same_key(members, a, b);
}
/* Orders `n` members chained by last->next; returns the first, *end the last one. */
struct reader_piece *reader_members_sort(struct reader_members *members,
					 struct reader_piece *first, size_t n,
					 struct reader_piece **end);
/* Takes out members that are empty runs; NULL: nothing else was there. */
struct reader_piece *reader_pieces_kept(struct reader_piece *first, struct reader_piece **end);
/* Writes a chain of runs. Small ones are gathered, so that the sink is called seldom; large ones
 * go as they are. */
void reader_emit(const struct reader_members *members, const struct reader_piece *piece,
		 struct canonical_sink *sink);
