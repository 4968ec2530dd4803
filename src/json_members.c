/*
 * The members of objects: their runs of canonical bytes, and how they are put in order without
 * moving a byte. Names compare by UTF-16 code units (RFC 8785 3.2.3), two equal ones in an
 * object are found here.
 *
 * UTF-8 bytes compare like code points, and code points like UTF-16 but for one thing: U+E000 to
 * U+FFFF (first byte EE or EF) come behind all that needs surrogates (first byte F0 to F4). So
 * these two bytes are ranked behind all others; where two names differ first, both bytes are
 * first ones of a character or both are not.
 *
 * Bodies repeat themselves: most objects have their members in the order of another one before.
 * Starting from what put that one in order, most need one comparison a member.
 *
 * The pieces come from the arena in batches; what an object that was in order has used is used
 * again, so that memory grows only with what has to be moved.
 */
#include "json_reader.h"

#include <assert.h>

#define SHAPES    64U /* how many orders are remembered */
#define GATHERED  4096U
#define SHAPE_MAX 63U /* members; more are sorted otherwise */

/* The order that the last object of some shape was brought into. */
struct shape {
	unsigned char n; /* members */
	unsigned char order[SHAPE_MAX];
};

/* Requests are alike, too: what one taught is kept for the next. It saves time and decides
 * nothing: any order is only where sorting starts. */
static __thread struct shape shapes[SHAPES];

void reader_members_init(struct reader_members *members, struct arena *arena, struct span body,
			 const char *out)
{
	*members = (struct reader_members){ .arena = arena,
					    .body_end = body.at + body.len,
					    .out = out,
					    .batch = 16,
					    .duplicate = UINT32_MAX };
	if (body.len > 16384)
		members->batch = body.len > 1048576 ? 1024 : (uint32_t)(body.len / 1024);
}

static struct reader_piece *fresh_piece(struct reader_members *members)
{
	if (!members->n_fresh) {
		members->fresh =
			arena_alloc(members->arena, members->batch * sizeof(*members->fresh));
		members->n_fresh = members->batch;
	}
	members->n_fresh--;
	return members->fresh++;
}

struct reader_piece *reader_piece_new(struct reader_members *members, size_t start)
{
	struct reader_piece *piece = members->free;

	if (piece)
		members->free = piece->next;
	else
		piece = fresh_piece(members);
	piece->next = NULL;
	piece->last = piece;
	piece->start = piece->end = (uint32_t)start;
	return piece;
}

void reader_pieces_free(struct reader_members *members, struct reader_piece *first,
			struct reader_piece *last)
{
	last->next = members->free;
	members->free = first;
}

static inline unsigned rank(unsigned char byte)
{
	return byte == 0xee || byte == 0xef ? byte + 0x10U : byte;
}

static unsigned hex(char digit)
{
	return (unsigned)(digit <= '9' ? digit - '0' : digit - 'a' + 10);
}

/* The next byte that a written name stands for, ranked; negative at its end. */
static int next_rank(struct span *name)
{
	static const char meant[128] = {
		['"'] = '"',  ['\\'] = '\\', ['b'] = '\b', ['f'] = '\f',
		['n'] = '\n', ['r'] = '\r',  ['t'] = '\t'
	};
	const char *at = name->at;
	size_t used = 1;
	int byte = 0;

	if (!name->len)
		return -1;
	byte = (int)rank((unsigned char)*at);
	if (*at == '\\') {
		used = at[1] == 'u' ? 6 : 2;
		byte = used == 6 ? (int)(hex(at[4]) << 4 | hex(at[5])) : meant[(int)at[1]];
	}
	name->at += used;
	name->len -= used;
	return byte;
}

static struct span name_of(const struct reader_members *members,
			   const struct reader_piece *member)
{
	return (struct span){ members->out + member->start + 1, member->name >> 1 };
}

/* For a name that holds an escape or is not ASCII. */
static uint64_t careful_key(struct span name)
{
	uint64_t key = 0;

	for (unsigned i = 0; i < 8; i++) {
		int byte = next_rank(&name);

		key = key << 8 | (byte < 0 ? 0 : (uint64_t)byte);
	}
	return key;
}

void reader_member_named(const struct reader_members *members, struct reader_piece *member,
			 const char *quote, size_t name_len, bool escaped)
{
	const char *from = members->out + member->start + 1;
	uint64_t bytes = 0;

	member->name = (uint32_t)(name_len << 1 | escaped);
	/* What was written a moment ago byte by byte is slow to load: the body has the same. */
	if (!escaped && members->body_end - quote > 8)
		from = quote + 1;
	bytes = reader_load(from);
	if (name_len < 8) /* what stands behind the name does not count */
		bytes &= ((uint64_t)1 << 8 * name_len) - 1;
	if (escaped || bytes & READER_EACH(0x80))
		member->key = careful_key(name_of(members, member));
	else
		member->key = __builtin_bswap64(bytes);
}

static int compare_careful(struct span a, struct span b)
{
	int from_a = 0, from_b = 0;

	do {
		from_a = next_rank(&a);
		from_b = next_rank(&b);
	} while (from_a == from_b && from_a >= 0);
	return from_a - from_b;
}

/* Names without escapes whose keys are equal: their first eight bytes are, too. */
static int compare_plain(struct span a, struct span b)
{
	size_t n = a.len < b.len ? a.len : b.len;
	size_t i = n < 8 ? n : 8;

	while (i + 8 <= n && reader_load(a.at + i) == reader_load(b.at + i))
		i += 8;
	while (i < n && a.at[i] == b.at[i])
		i++;
	if (i < n)
		return (int)rank((unsigned char)a.at[i]) - (int)rank((unsigned char)b.at[i]);
	return (a.len > b.len) - (a.len < b.len);
}

int reader_compare_same_key(const struct reader_members *members, const struct reader_piece *a,
			    const struct reader_piece *b)
{
	if ((a->name | b->name) & 1)
		return compare_careful(name_of(members, a), name_of(members, b));
	return compare_plain(name_of(members, a), name_of(members, b));
}

/* Two members have one name: the first place where a name comes again is kept. */
static void note_duplicate(struct reader_members *members, const struct reader_piece *a,
			   const struct reader_piece *b)
{
	uint32_t second = a->body_at > b->body_at ? a->body_at : b->body_at;

	if (second < members->duplicate)
		members->duplicate = second;
}

static inline bool before(struct reader_members *members, const struct reader_piece *a,
			  const struct reader_piece *b)
{
	int order = reader_member_compare(members, a, b);

	if (order == 0)
		note_duplicate(members, a, b);
	return order < 0;
}

/* The order of an object like this one, or the one it came in. */
static unsigned char *known_order(const struct reader_piece *first, size_t n)
{
	uint64_t mixed = (first->key + n) * UINT64_C(0x9e3779b97f4a7c15);
	struct shape *shape = &shapes[mixed >> 58];

	if (shape->n != n) {
		shape->n = (unsigned char)n;
		for (size_t i = 0; i < n; i++)
			shape->order[i] = (unsigned char)i;
	}
	return shape->order;
}

/* Where the member belongs among the first `n` of the order. */
static size_t place(struct reader_members *members, struct reader_piece *const *in,
		    const unsigned char *order, size_t n)
{
	const struct reader_piece *member = in[order[n]];
	size_t low = 0, high = n;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (before(members, in[order[middle]], member))
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static struct reader_piece *sort_few(struct reader_members *members, struct reader_piece *first,
				     size_t n, struct reader_piece **end)
{
	struct reader_piece *in[SHAPE_MAX];
	unsigned char *order = known_order(first, n);
	size_t listed = 0;

	do {
		in[listed++] = first;
		first = first->last->next;
	} while (listed < n);
	for (size_t i = 1; i < n; i++) {
		unsigned char member = order[i];
		size_t at = 0;

		if (before(members, in[order[i - 1]], in[member]))
			continue;
		at = place(members, in, order, i);
		memmove(order + at + 1, order + at, i - at);
		order[at] = member;
	}
	for (size_t i = 0; i + 1 < n; i++)
		in[order[i]]->last->next = in[order[i + 1]];
	*end = in[order[n - 1]];
	(*end)->last->next = NULL;
	return in[order[0]];
}

static struct reader_piece *merge(struct reader_members *members, struct reader_piece *a,
				  struct reader_piece *b)
{
	struct reader_piece *first = NULL, **link = &first;

	while (a && b) {
		struct reader_piece **less = before(members, a, b) ? &a : &b;

		*link = *less;
		link = &(*less)->last->next;
		*less = *link;
	}
	*link = a ? a : b;
	return first;
}

/* Cuts the chain behind its first `n` members; returns the rest. */
static struct reader_piece *cut(struct reader_piece *first, size_t n)
{
	struct reader_piece *rest = NULL;

	while (--n)
		first = first->last->next;
	rest = first->last->next;
	first->last->next = NULL;
	return rest;
}

/* Halves down to one: n log n comparisons whatever the names are, and no memory. */
static struct reader_piece *sort_many(struct reader_members *members,
				      struct reader_piece *first, size_t n)
{
	struct reader_piece *second = NULL;

	if (n < 2)
		return first;
	second = cut(first, n / 2);
	first = sort_many(members, first, n / 2);
	return merge(members, first, sort_many(members, second, n - n / 2));
}

struct reader_piece *reader_members_sort(struct reader_members *members,
					 struct reader_piece *first, size_t n,
					 struct reader_piece **end)
{
	assert(n > 0);
	if (n <= SHAPE_MAX)
		return sort_few(members, first, n, end);
	first = sort_many(members, first, n);
	for (*end = first; (*end)->last->next;)
		*end = (*end)->last->next;
	return first;
}

struct reader_piece *reader_pieces_kept(struct reader_piece *first, struct reader_piece **end)
{
	struct reader_piece *kept = NULL, **link = &kept;

	while (first) {
		struct reader_piece *next = first->last->next;

		if (first->last->end > first->start || first->last != first) {
			*link = *end = first;
			link = &first->last->next;
		}
		first = next;
	}
	*link = NULL;
	return kept;
}

/* Most pieces are short, and a copy of a fixed length is faster than one of the right length. */
static inline void copy_piece(char *to, const char *from, size_t len)
{
	if (len <= READER_SLACK)
		memcpy(to, from, READER_SLACK);
	else
		memcpy(to, from, len);
}

void reader_emit(const struct reader_members *members, const struct reader_piece *piece,
		 struct canonical_sink *sink)
{
	char gathered[GATHERED + READER_SLACK];
	size_t n = 0;

	for (; piece; piece = piece->next) {
		size_t start = piece->start, len = 0;

		while (piece->next && piece->next->start == piece->end)
			piece = piece->next;
		len = piece->end - start;
		if (n && len > GATHERED - n) {
			sink->put(sink, gathered, n);
			n = 0;
		}
		if (len > GATHERED) {
			sink->put(sink, members->out + start, len);
			continue;
		}
		copy_piece(gathered + n, members->out + start, len);
		n += len;
	}
	if (n)
		sink->put(sink, gathered, n);
}
