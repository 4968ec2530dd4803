/*
 * Canonical bytes, taken apart for people. The bytes come from the canonicalisers, so they are
 * well-formed: what is read here is not checked again.
 *
 * Everything that is shown came from a stranger: it is escaped on its way to a terminal.
 */
#include "cli_leaves_internal.h"

#include "escaped.h"

#include <stdlib.h>

void leaves_add(struct leaves *leaves, struct span label, struct span value)
{
	if (leaves->n == leaves->room) {
		size_t room = leaves->room ? leaves->room * 2 : 64;
		struct leaf *more = arena_alloc(leaves->arena, room * sizeof(*more));

		if (leaves->n)
			memcpy(more, leaves->at, leaves->n * sizeof(*more));
		leaves->at = more;
		leaves->room = room;
	}
	leaves->at[leaves->n] = (struct leaf){ label, value, leaves->n };
	leaves->n++;
}

/* `~` and `/` are escaped; what stands in the name else stays. */
void leaves_put_step(struct buf *label, struct span name)
{
	buf_byte(label, '/');
	for (size_t i = 0; i < name.len; i++) {
		if (name.at[i] == '~' || name.at[i] == '/')
			buf_text(label, name.at[i] == '~' ? "~0" : "~1");
		else
			buf_byte(label, name.at[i]);
	}
}

/* --- the kinds --- */

static int by_label(const void *a, const void *b)
{
	const struct leaf *const *x = a;
	const struct leaf *const *y = b;
	size_t n = (*x)->label.len < (*y)->label.len ? (*x)->label.len : (*y)->label.len;
	int order = n ? memcmp((*x)->label.at, (*y)->label.at, n) : 0;

	if (order)
		return order;
	return ((*x)->label.len > (*y)->label.len) - ((*x)->label.len < (*y)->label.len);
}

static int by_label_and_place(const void *a, const void *b)
{
	const struct leaf *const *x = a;
	const struct leaf *const *y = b;
	int order = by_label(a, b);

	return order ? order : ((*x)->place > (*y)->place) - ((*x)->place < (*y)->place);
}

static struct leaf **sorted(const struct leaves *leaves)
{
	struct leaf **all = arena_alloc(leaves->arena, (leaves->n + 1) * sizeof(struct leaf *));

	for (size_t i = 0; i < leaves->n; i++)
		all[i] = &leaves->at[i];
	qsort(all, leaves->n, sizeof(struct leaf *), by_label_and_place);
	return all;
}

/* A name that comes several times: "/a", "/a (2)", ... */
static void number_equals(struct leaves *leaves)
{
	struct leaf **all = sorted(leaves);
	struct span label = { NULL, 0 };
	size_t times = 0;

	for (size_t i = 0; i < leaves->n; i++) {
		bool again = i > 0 && span_equal(label, all[i]->label);

		times = again ? times + 1 : 1;
		label = all[i]->label;
		if (again)
			all[i]->label = arena_format(leaves->arena, "%.*s (%zu)",
						     (int)label.len, label.at, times);
	}
}

void leaves_of(const struct canonicaliser *kind, struct span canonical, struct leaves *out)
{
	switch (kind->body) {
	case CANONICAL_JSON:
		leaves_json(canonical, out);
		break;
	case CANONICAL_FORM:
		leaves_form(canonical, out);
		break;
	case CANONICAL_MULTIPART:
		leaves_multipart(canonical, out);
		break;
	case CANONICAL_RAW:
	case CANONICAL_AUTO:
		if (canonical.len)
			leaves_add(out, SPAN(""), canonical);
		break;
	}
	number_equals(out);
}

/* --- two lists --- */

static int by_place(const void *a, const void *b)
{
	const struct leaf_difference *x = a, *y = b;

	if (!x->first != !y->first)
		return x->first ? -1 : 1;
	if (x->first)
		return (x->first->place > y->first->place) -
		       (x->first->place < y->first->place);
	return (x->second->place > y->second->place) - (x->second->place < y->second->place);
}

/* The next pair of two sorted lists: leaves of one label, or one that is alone. */
static struct leaf_difference next_pair(struct leaf *const *first, size_t n,
					struct leaf *const *second, size_t m)
{
	int order = n && m ? by_label(first, second) : 0;

	return (struct leaf_difference){ .first = n && order <= 0 ? first[0] : NULL,
					 .second = m && order >= 0 ? second[0] : NULL };
}

struct leaf_differences leaves_differ(const struct leaves *first, const struct leaves *second)
{
	struct leaf **a = sorted(first);
	struct leaf **b = sorted(second);
	struct leaf_differences found = { 0 };
	bool reordered = false;

	found.at = arena_alloc(first->arena, (first->n + second->n + 1) * sizeof(*found.at));
	for (size_t i = 0, j = 0; i < first->n || j < second->n;) {
		struct leaf_difference pair =
			next_pair(a + i, first->n - i, b + j, second->n - j);

		i += pair.first != NULL;
		j += pair.second != NULL;
		if (!pair.first || !pair.second ||
		    !span_equal(pair.first->value, pair.second->value))
			found.at[found.n++] = pair;
		else
			reordered |= pair.first->place != pair.second->place;
	}
	qsort(found.at, found.n, sizeof(*found.at), by_place);
	found.reordered = reordered && found.n == 0;
	return found;
}

void leaves_show(const struct canonicaliser *kind, const struct leaves *leaves,
		 struct span canonical, struct buf *out)
{
	if (kind->body == CANONICAL_JSON) {
		leaves_show_json(leaves, canonical, out);
		return;
	}
	for (size_t i = 0; i < leaves->n; i++) {
		escaped_put(out, leaves->at[i].label, false);
		buf_text(out, leaves->at[i].label.len ? " = " : "");
		escaped_put(out, leaves->at[i].value, false);
		buf_byte(out, '\n');
	}
	if (leaves->n == 0)
		buf_text(out, "(nothing)\n");
}
