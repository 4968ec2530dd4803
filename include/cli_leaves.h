/*
 * A canonical body as a list of its smallest parts, each with a name that people know it by: for
 * JSON a JSON Pointer and a value, for forms a field, for multipart a part. Two bodies are told
 * apart by their lists.
 */
#pragma once
#include "canonical.h"

struct leaf {
	struct span label; /* a JSON Pointer; for all of a body that has no parts "" */
	struct span value;
	size_t place; /* in the body */
};

struct leaves {
	struct arena *arena; /* holds them */
	struct leaf *at;
	size_t n, room;
};

/* Of canonical bytes, whose kind's function wrote them. Labels are unique. */
void leaves_of(const struct canonicaliser *kind, struct span canonical, struct leaves *out);

/* Where two lists differ, in the order of the first and then of the second. */
struct leaf_difference {
	const struct leaf *first, *second; /* of one label; one may be NULL: absent */
};
static inline struct span leaf_difference_label(const struct leaf_difference *difference)
{
	return difference->first ? difference->first->label : difference->second->label;
}
struct leaf_differences {
	struct leaf_difference *at;
	size_t n;
	bool reordered; /* nothing else, but the parts come in another order */
};
struct leaf_differences leaves_differ(const struct leaves *first, const struct leaves *second);

/* The canonical bytes as people read them: lines, each with an end. */
void leaves_show(const struct canonicaliser *kind, const struct leaves *leaves,
		 struct span canonical, struct buf *out);
