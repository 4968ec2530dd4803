/*
 * Where a value stands in a message (a key in a request, a receipt in an answer): in a field of
 * its head, or at a place in its JSON body. As the settings say it: "header:NAME",
 * "body:/POINTER".
 */
#pragma once
#include "canonical_rules.h"

struct source {
	struct span header;                 /* the field's name; .at NULL: it is in the body */
	const struct canonical_rules *body; /* one pointer (json_find.h) */
};
struct sources {
	const struct source *at;
	size_t n;
	bool body; /* one of them is in the body */
};
