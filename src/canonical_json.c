/*
 * The canonical form of JSON: RFC 8785 member order and string escapes, numbers as json_number.c
 * or json_double.c spells them, no white space. Two bodies have the same canonical bytes exactly
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
 *
 * Where the route has rules, the reader walks down their tree beside the body. What does not count
 * is read like everything else, and then taken back: a member becomes an empty run that keeps its
 * name until the object ends, for a name must not come twice whether it counts or not. What a
 * default adds is written behind the last member and put in order with the others. Where nothing
 * was there of what `only` keeps, the body is read once more, and all of it counts.
 */
#include "canonical.h"

#include "json_places.h"
#include "json_reader.h"

#include <assert.h>

struct reader {
	struct reader_io io;
	bool doubles;
	struct json_places places;
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
	bool holes;   /* some member does not count */
	struct json_place place;
};

static const char *value(struct reader *r, const char *at, unsigned depth);

/* White space, of which there is mostly none. */
static inline const char *skip(const struct reader *r, const char *at)
{
	return at < r->io.end && (unsigned char)*at > ' ' ? at : reader_skip(at, r->io.end);
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

/* What was written since then is taken back, and `open` is the run that is written again. */
static void take_back(struct reader *r, struct reader_piece *open, char *out)
{
	r->io.out = out;
	r->open = open;
	open->next = NULL;
	open->last = open;
}

/* One element and a comma behind it; nothing, where the element does not count. */
static const char *ruled_element(struct reader *r, const struct json_place *place, size_t index,
				 const char *at, unsigned depth)
{
	struct reader_piece *open = r->open;
	char *out = r->io.out;
	bool counts = json_places_down(&r->places, place, rule_at(place->rule, index), false);

	at = value(r, at, depth);
	if (!at)
		return NULL;
	if (counts)
		put(r, ',');
	else
		take_back(r, open, out);
	return skip(r, at);
}

static const char *end_array(struct reader *r, const char *at, bool empty)
{
	if (empty)
		put(r, ']');
	else
		r->io.out[-1] = ']';
	return at + 1;
}

/* From behind its bracket; it is not empty. */
static const char *ruled_array(struct reader *r, struct json_place place, const char *at,
			       unsigned depth)
{
	bool empty = true;

	for (size_t index = 0;; index++) {
		char *out = r->io.out;

		at = ruled_element(r, &place, index, at, depth);
		if (!at)
			return NULL;
		empty &= r->io.out == out;
		if (is(r, at, ']'))
			return end_array(r, at, empty);
		if (!is(r, at, ','))
			return reader_wrong(&r->io, at, "a comma or the end of the array");
		at = skip(r, at + 1);
	}
}

static const char *array(struct reader *r, const char *at, unsigned depth)
{
	struct json_place place = json_places_array(&r->places);

	if (depth > READER_DEPTH_MAX)
		return too_deep(r, at);
	put(r, '[');
	at = skip(r, at + 1);
	if (is(r, at, ']')) {
		put(r, ']');
		return at + 1;
	}
	if (place.rule)
		return ruled_array(r, place, at, depth);
	r->places.now = place;
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

static inline void end_member(struct reader *r, struct object *o)
{
	put(r, ',');
	r->open->end = (uint32_t)written(r);
	o->latest->last = r->open;
	o->plain &= r->open == o->latest;
}

/* The value of a member, in an object that rules speak of. */
static const char *ruled_value(struct reader *r, struct object *o, const char *at,
			       unsigned depth)
{
	struct reader_piece *member = o->latest;
	struct span name = { r->out + member->start + 1, member->name >> 1 };
	bool counts = json_places_down(&r->places, &o->place, rule_named(o->place.rule, name),
				       o->place.merge);

	at = value(r, at, depth);
	if (!at)
		return NULL;
	if (counts) {
		end_member(r, o);
	} else {
		take_back(r, member, r->out + member->start + name.len + 2);
		member->end = member->start;
		o->holes = true;
		o->plain = false;
	}
	return skip(r, at);
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
	if (o->place.rule)
		return ruled_value(r, o, skip(r, at + 1), depth);
	at = value(r, skip(r, at + 1), depth);
	if (!at)
		return NULL;
	end_member(r, o);
	return skip(r, at);
}

/* Where nothing came and a default says what it means. */
static void add_defaults(struct reader *r, struct object *o)
{
	for (const struct rule *rule = o->place.rule->first; rule; rule = rule->next) {
		struct reader_piece *member = NULL;
		struct span text = rule->fallback;

		if (!text.len || r->places.seen[rule->number])
			continue;
		r->places.seen[rule->number] = true;
		member = reader_piece_new(&r->members, written(r));
		memcpy(r->io.out, text.at, text.len);
		r->io.out += text.len;
		reader_member_named(&r->members, member, r->members.body_end, rule->name.len,
				    memchr(rule->name.at, '\\', rule->name.len) != NULL);
		member->body_at = 0;
		member->end = (uint32_t)written(r);
		append(o, member);
		o->ordered = false;
	}
}

/* Nothing in the object counts: it is empty. */
static void close_empty(struct reader *r, struct object *o, size_t start)
{
	r->io.out = r->out + start;
	put(r, '}');
	r->open = o->outer;
}

/* The comma behind the last member becomes the brace, wherever in the output that one is. */
static bool close_object(struct reader *r, struct object *o)
{
	struct reader_piece *end = NULL, *first = NULL;
	size_t start = 0;

	if (o->place.rule && o->place.merge)
		add_defaults(r, o);
	end = o->latest;
	first = o->first;
	if (!first) {
		put(r, '}');
		return true;
	}
	start = first->start;
	if (o->ordered && o->plain) {
		r->io.out[-1] = '}';
		reader_pieces_free(&r->members, first, end);
		r->open = o->outer;
		return true;
	}
	o->outer->end = (uint32_t)start;
	if (!o->ordered)
		first = reader_members_sort(&r->members, first, o->n, &end);
	if (r->members.duplicate != UINT32_MAX) {
		twice(r, r->members.duplicate);
		return false;
	}
	if (o->holes)
		first = reader_pieces_kept(first, &end);
	if (!first) {
		close_empty(r, o, start);
		return true;
	}
	r->out[end->last->end - 1] = '}';
	o->outer->next = first;
	r->open = reader_piece_new(&r->members, written(r));
	end->last->next = r->open;
	return true;
}

static const char *object(struct reader *r, const char *at, unsigned depth)
{
	struct object o = { .outer = r->open,
			    .plain = true,
			    .ordered = true,
			    .place = json_places_object(&r->places) };

	if (depth > READER_DEPTH_MAX)
		return too_deep(r, at);
	put(r, '{');
	at = skip(r, at + 1);
	if (is(r, at, '}'))
		return close_object(r, &o) ? at + 1 : NULL;
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
		return r->doubles ? reader_double(&r->io, at) : reader_number(&r->io, at);
	default:
		return reader_wrong(&r->io, at, "a value");
	}
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

/* The output has room for what may become longer than it was. */
static size_t room_for(const struct canonical_task *task)
{
	size_t room = task->body.len;

	if (task->numbers == CANONICAL_IEEE754)
		room += reader_double_growth(task->body);
	if (task->rules)
		room += task->rules->fallback_bytes;
	return room;
}

static void begin(struct reader *r, const struct canonical_task *task, size_t room)
{
	r->body = task->body.at;
	r->out = arena_alloc(task->arena, room + READER_SLACK);
	r->io = (struct reader_io){ .end = r->body + task->body.len, .out = r->out };
	r->doubles = task->numbers == CANONICAL_IEEE754;
	json_places_init(&r->places, task);
	reader_members_init(&r->members, task->arena, task->body, r->out);
	r->open = reader_piece_new(&r->members, 0);
}

/* Nothing is written where it is said that all of it must count instead. */
static bool read_by(const struct canonical_task *task, struct canonical_sink *sink,
		    struct canonical_error *error, bool *whole)
{
	size_t room = room_for(task);
	struct reader r;
	struct reader_piece *root = NULL;

	if (room > UINT32_MAX) {
		*error = (struct canonical_error){ .expected = "numbers of less than 4 GiB" };
		return false;
	}
	begin(&r, task, room);
	root = r.open;
	if (!read_body(&r)) {
		error->offset = (size_t)(r.io.wrong - r.body);
		error->expected = r.io.expected;
		return false;
	}
	r.open->end = (uint32_t)written(&r);
	assert(written(&r) <= room);
	*whole = !r.places.kept;
	if (*whole && canonical_only_if_there(task))
		return true;
	if (root->next)
		reader_emit(&r.members, root, sink);
	else
		sink->put(sink, r.out, root->end);
	return true;
}

bool canonical_json(const struct canonical_task *task, struct canonical_sink *sink,
		    struct canonical_error *error)
{
	struct canonical_task again = *task;
	bool whole = false, done = false;

	if (!canonical_only_if_there(task))
		return read_by(task, sink, error, &whole);
	again.arena = arena_new();
	done = read_by(&again, sink, error, &whole);
	arena_free(again.arena);
	again.arena = task->arena;
	again.only = CANONICAL_ONLY_NEVER;
	return done && (!whole || read_by(&again, sink, error, &whole));
}
