/*
 * The canonical form of JSON: RFC 8785 member order and string escapes, numbers as
 * reader_number.c spells them, no white space. Two bodies have the same canonical bytes exactly
 * when they are the same JSON value. Refused, with the byte that is at fault: what RFC 8259 does
 * not allow, a byte order mark, invalid UTF-8, lone surrogates, a member name that an object has
 * twice, more than 128 levels, anything behind the value.
 *
 * One pass over the body. It writes the members of an object into the output as they come, each
 * with a comma behind it. Where they come in order that is all: the last comma becomes the
 * brace. Where they do not, nothing is moved; the runs of bytes that the members are ("pieces")
 * are chained in their order, and so are the pieces inside them, whatever the depth. The chain
 * is followed once, at the end. So both time and memory are linear in the body but for the
 * sorting: the output is as long as the body, and a piece of 40 bytes is kept for each member of
 * an object that was not in order (at least five bytes), and for each such object (13 or more).
 */
#include "canonical.h"
#include "json_reader.h"

#include <assert.h>

struct reader {
	struct reader_io io;
	const char *body;
	char *out;                 /* where the output starts */
	struct reader_piece *open; /* the run that is being written; its end is not known yet */
	struct reader_members members;
};

/* An object that is being read. */
struct object {
	struct reader_piece *outer;          /* the run in which it began */
	struct reader_piece *first, *latest; /* members, as they came */
	size_t n;
	bool plain;   /* each member is one run */
	bool ordered; /* each name so far came after the one before it */
};

static const char *value(struct reader *r, const char *at, unsigned depth);

static const char *spaces(const char *at, const char *end)
{
	while (end - at >= 8) {
		uint64_t other = reader_load(at) ^ READER_EACH(' ');

		if (other)
			return at + (__builtin_ctzll(other) >> 3);
		at += 8;
	}
	while (at < end && *at == ' ')
		at++;
	return at;
}

static const char *skip_some(const char *at, const char *end)
{
	while (at < end) {
		if (*at == ' ')
			at = spaces(at, end);
		else if (*at == '\n' || *at == '\r' || *at == '\t')
			at++;
		else
			break;
	}
	return at;
}

/* White space, of which there is mostly none. */
static inline const char *skip(const struct reader *r, const char *at)
{
	return at < r->io.end && (unsigned char)*at > ' ' ? at : skip_some(at, r->io.end);
}

static inline bool is(const struct reader *r, const char *at, char byte)
{
	return at < r->io.end && *at == byte;
}

static inline void put(struct reader *r, char byte)
{
	*r->io.out++ = byte;
}

static inline size_t written(const struct reader *r)
{
	return (size_t)(r->io.out - r->out);
}

static const char *too_deep(struct reader *r, const char *at)
{
	return reader_wrong(&r->io, at, "no more than 128 levels");
}

static const char *array(struct reader *r, const char *at, unsigned depth)
{
	if (depth > READER_DEPTH_MAX)
		return too_deep(r, at);
	put(r, '[');
	at = skip(r, at + 1);
	if (is(r, at, ']')) {
		put(r, ']');
		return at + 1;
	}
	for (;;) {
		at = value(r, at, depth);
		if (!at)
			return NULL;
		at = skip(r, at);
		if (is(r, at, ']')) {
			put(r, ']');
			return at + 1;
		}
		if (!is(r, at, ','))
			return reader_wrong(&r->io, at, "a comma or the end of the array");
		put(r, ',');
		at = skip(r, at + 1);
	}
}

static const char *twice(struct reader *r, uint32_t body_at)
{
	return reader_wrong(&r->io, r->body + body_at,
			    "a name that the object does not have yet");
}

static void append(struct object *o, struct reader_piece *member)
{
	if (o->latest)
		o->latest->last->next = member;
	else
		o->first = member;
	o->latest = member;
	o->n++;
}

static const char *read_name(struct reader *r, struct object *o, const char *at)
{
	struct reader_piece *member = reader_piece_new(&r->members, written(r)),
			    *latest = o->latest;
	const char *quote = at;
	int order = -1;

	member->body_at = (uint32_t)(at - r->body);
	r->open = member;
	r->io.escaped = false;
	at = reader_string(&r->io, at);
	if (!at)
		return NULL;
	reader_member_named(&r->members, member, quote, written(r) - member->start - 2,
			    r->io.escaped);
	if (latest && o->ordered)
		order = reader_member_compare(&r->members, latest, member);
	if (order == 0)
		return twice(r, member->body_at);
	o->ordered &= order < 0;
	append(o, member);
	return at;
}

/* One member and the comma behind it, which stands for whatever follows. */
static const char *read_member(struct reader *r, struct object *o, const char *at,
			       unsigned depth)
{
	if (!is(r, at, '"'))
		return reader_wrong(&r->io, at, "a member name");
	at = read_name(r, o, at);
	if (!at)
		return NULL;
	at = skip(r, at);
	if (!is(r, at, ':'))
		return reader_wrong(&r->io, at, "a colon");
	put(r, ':');
	at = value(r, skip(r, at + 1), depth);
	if (!at)
		return NULL;
	put(r, ',');
	r->open->end = (uint32_t)written(r);
	o->latest->last = r->open;
	o->plain &= r->open == o->latest;
	return skip(r, at);
}

/* The comma behind the last member becomes the brace, wherever in the output that one is. */
static bool close_object(struct reader *r, struct object *o)
{
	struct reader_piece *end = o->latest, *first = o->first;

	if (o->ordered && o->plain) {
		r->io.out[-1] = '}';
		reader_pieces_free(&r->members, first, end);
		r->open = o->outer;
		return true;
	}
	o->outer->end = first->start;
	if (!o->ordered)
		first = reader_members_sort(&r->members, first, o->n, &end);
	if (r->members.duplicate != UINT32_MAX) {
		twice(r, r->members.duplicate);
		return false;
	}
	r->out[end->last->end - 1] = '}';
	o->outer->next = first;
	r->open = reader_piece_new(&r->members, written(r));
	end->last->next = r->open;
	return true;
}

static const char *object(struct reader *r, const char *at, unsigned depth)
{
	struct object o = { .outer = r->open, .plain = true, .ordered = true };

	if (depth > READER_DEPTH_MAX)
		return too_deep(r, at);
	put(r, '{');
	at = skip(r, at + 1);
	if (is(r, at, '}')) {
		put(r, '}');
		return at + 1;
	}
	for (;;) {
		at = read_member(r, &o, at, depth);
		if (!at)
			return NULL;
		if (is(r, at, '}'))
			return close_object(r, &o) ? at + 1 : NULL;
		if (!is(r, at, ','))
			return reader_wrong(&r->io, at, "a comma or the end of the object");
		at = skip(r, at + 1);
	}
}

static const char *word(struct reader *r, const char *at, struct span expected)
{
	if ((size_t)(r->io.end - at) < expected.len ||
	    memcmp(at, expected.at, expected.len) != 0)
		return reader_wrong(&r->io, at, "a value");
	memcpy(r->io.out, expected.at, expected.len);
	r->io.out += expected.len;
	return at + expected.len;
}

/* `depth`: of what the value stands in. */
static const char *value(struct reader *r, const char *at, unsigned depth)
{
	switch (at < r->io.end ? *at : 0) {
	case '"':
		return reader_string(&r->io, at);
	case '{':
		return object(r, at, depth + 1);
	case '[':
		return array(r, at, depth + 1);
	case 't':
		return word(r, at, SPAN("true"));
	case 'f':
		return word(r, at, SPAN("false"));
	case 'n':
		return word(r, at, SPAN("null"));
	case '-':
	case '0' ... '9':
		return reader_number(&r->io, at);
	default:
		return reader_wrong(&r->io, at, "a value");
	}
}

#define GATHERED 4096U

/* Most pieces are short, and a copy of a fixed length is faster than one of the right length. */
static inline void copy_piece(char *to, const char *from, size_t len)
{
	if (len <= READER_SLACK)
		memcpy(to, from, READER_SLACK);
	else
		memcpy(to, from, len);
}

/* Small pieces are gathered, so that the sink is called seldom; large ones go as they are. */
static void emit(const struct reader *r, const struct reader_piece *piece,
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
			sink->put(sink, r->out + start, len);
			continue;
		}
		copy_piece(gathered + n, r->out + start, len);
		n += len;
	}
	if (n)
		sink->put(sink, gathered, n);
}

static bool read_body(struct reader *r)
{
	const char *at = NULL;

	if (r->io.end - r->body > (ptrdiff_t)READER_BODY_MAX) {
		reader_wrong(&r->io, r->body, "a body of less than 2 GiB");
		return false;
	}
	at = value(r, skip(r, r->body), 0);
	if (!at)
		return false;
	at = skip(r, at);
	if (at == r->io.end)
		return true;
	reader_wrong(&r->io, at, "the end of the body");
	return false;
}

bool canonical_json(struct arena *arena, struct span body, struct canonical_sink *sink,
		    struct canonical_error *error)
{
	struct reader r;
	struct reader_piece *root = NULL;

	r.body = body.at;
	r.out = arena_alloc(arena, body.len + READER_SLACK);
	r.io = (struct reader_io){ .end = body.at + body.len, .out = r.out };
	reader_members_init(&r.members, arena, body, r.out);
	r.open = root = reader_piece_new(&r.members, 0);
	if (!read_body(&r)) {
		*error = (struct canonical_error){ (size_t)(r.io.wrong - body.at),
						   r.io.expected };
		return false;
	}
	r.open->end = (uint32_t)written(&r);
	assert(written(&r) <= body.len);
	if (root->next)
		emit(&r, root, sink);
	else
		sink->put(sink, r.out, root->end);
	return true;
}
