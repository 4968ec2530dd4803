/*
 * Canonical JSON, taken apart: each scalar and each empty object or array is a leaf, and its
 * pointer is the label. Depth is that of what the reader admits (READER_DEPTH_MAX).
 */
#include "cli_leaves_internal.h"

#include "escaped.h"

#include <stdlib.h>

#define LABEL_MAX  ((size_t)1024) /* bytes; each leaf has its own */
#define ZEROS_MAX  20U            /* that a number is written out with */
#define DIGITS_MAX 30U

struct walk {
	struct leaves *leaves;
	struct buf label; /* of where it is */
	const char *end;
};

/* 12e5 is shorter, and 1200000 is what people read. */
static struct span plain_number(struct arena *arena, struct span scalar)
{
	size_t digits = scalar.at[0] == '-';
	unsigned long zeros = 0;

	while (digits < scalar.len && scalar.at[digits] >= '0' && scalar.at[digits] <= '9')
		digits++;
	if (scalar.len > DIGITS_MAX || scalar.len - digits < 2 || scalar.at[digits] != 'e' ||
	    scalar.at[digits + 1] == '-')
		return scalar;
	zeros = strtoul(scalar.at + digits + 1, NULL, 10); /* ends with the number */
	if (zeros > ZEROS_MAX)
		return scalar;
	return arena_format(arena, "%.*s%0*d", (int)digits, scalar.at, (int)zeros, 0);
}

static const char *walk_value(struct walk *w, const char *at);

/* Behind a string that begins here. */
static const char *behind_string(const char *at)
{
	for (at++; *at != '"'; at++)
		at += *at == '\\';
	return at + 1;
}

static const char *behind_scalar(const struct walk *w, const char *at)
{
	if (*at == '"')
		return behind_string(at);
	if (*at == '{' || *at == '[') /* an empty one */
		return at + 2;
	while (at < w->end && *at != ',' && *at != ']' && *at != '}')
		at++;
	return at;
}

static void pop(struct walk *w, size_t len)
{
	w->label.len = len;
	w->label.full = false;
}

static const char *walk_members(struct walk *w, const char *at)
{
	size_t len = w->label.len;

	do {
		const char *name = at + 1;

		at = behind_string(name);
		leaves_put_step(&w->label, (struct span){ name + 1, (size_t)(at - name - 2) });
		at = walk_value(w, at + 1);
		pop(w, len);
	} while (*at == ',');
	return at + 1;
}

static const char *walk_elements(struct walk *w, const char *at)
{
	size_t len = w->label.len;
	size_t i = 0;

	do {
		buf_format(&w->label, "/%zu", i++);
		at = walk_value(w, at + 1);
		pop(w, len);
	} while (*at == ',');
	return at + 1;
}

/* What is cut says so. */
static struct span label_here(const struct walk *w)
{
	if (!w->label.full)
		return arena_copy(w->leaves->arena, buf_view(&w->label));
	return arena_format(w->leaves->arena, "%.*s...", (int)w->label.len, w->label.at);
}

/* The depth is that of what the reader admits. */
static const char *walk_value(struct walk *w, const char *at)
{
	const char *end = NULL;

	if (*at == '{' && at[1] != '}')
		return walk_members(w, at);
	if (*at == '[' && at[1] != ']')
		return walk_elements(w, at);
	end = behind_scalar(w, at);
	leaves_add(w->leaves, label_here(w),
		   plain_number(w->leaves->arena, (struct span){ at, (size_t)(end - at) }));
	return end;
}

void leaves_json(struct span canonical, struct leaves *out)
{
	struct walk w = { .leaves = out, .end = canonical.at + canonical.len };

	buf_init(&w.label, LABEL_MAX);
	walk_value(&w, canonical.at);
	buf_fini(&w.label);
}

static void new_line(struct buf *out, unsigned depth)
{
	buf_byte(out, '\n');
	for (unsigned i = 0; i < depth; i++)
		buf_text(out, "  ");
}

/* One byte between names and values. */
static void show_mark(struct buf *out, char mark, unsigned *depth)
{
	if (mark == '}' || mark == ']')
		new_line(out, --*depth);
	buf_byte(out, mark);
	if (mark == '{' || mark == '[')
		new_line(out, ++*depth);
	else if (mark == ',')
		new_line(out, *depth);
	else if (mark == ':')
		buf_byte(out, ' ');
}

static bool is_mark(const char *at)
{
	bool opens = *at == '{' || *at == '[';

	if (opens)
		return at[1] != '}' && at[1] != ']';
	return *at == '}' || *at == ']' || *at == ',' || *at == ':';
}

void leaves_show_json(const struct leaves *leaves, struct span canonical, struct buf *out)
{
	const struct walk w = { .end = canonical.at + canonical.len };
	unsigned depth = 0;

	for (const char *at = canonical.at; at < w.end;) {
		const char *end = is_mark(at) ? at + 1 : behind_scalar(&w, at);
		struct span scalar = { at, (size_t)(end - at) };

		if (is_mark(at))
			show_mark(out, *at, &depth);
		else
			escaped_put(out, plain_number(leaves->arena, scalar), false);
		at = end;
	}
	buf_byte(out, '\n');
}
