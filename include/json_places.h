/*
 * Where in the tree of rules the JSON reader stands. What `only` keeps is noted: where a body has
 * none of it, the whole of it counts (canonical_json.c).
 */
#pragma once
#include "canonical_rules.h"

/* Where a value stands. */
struct json_place {
	const struct rule *rule; /* NULL: no rule speaks of anything in it */
	bool kept;               /* what no rule speaks of counts */
	bool merge;              /* no array is around it: defaults may apply */
};

struct json_places {
	struct json_place now; /* of the value that is read next */
	bool *seen;            /* by a rule's number: there is something */
	bool kept;             /* there is something that `only` keeps */
};

void json_places_init(struct json_places *places, const struct canonical_task *task);
/* Down to the value of that rule, NULL: of none; false: it does not count. */
bool json_places_down(struct json_places *places, const struct json_place *outer,
		      const struct rule *rule, bool merge);
/* What rules have to say of the elements of an array, or the members of an object, there. */
struct json_place json_places_array(struct json_places *places);
struct json_place json_places_object(struct json_places *places);
