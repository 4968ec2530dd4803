/*
 * Values of a request of the admin listener as they are written. Apart from the rest, because this
 * reads by the gateway's own JSON reader, which leaves numbers alone, and the rest by jansson.
 */
#include "admin_written.h"

#include "json_find.h"
#include "json_text.h"

struct span admin_written(struct arena *arena, struct span json, struct span pointer)
{
	struct canonical_rules *rules = canonical_rules_new(arena, CANONICAL_EXACT);
	struct span value = { NULL, 0 };

	if (canonical_rules_only(rules, pointer) || !json_valid(json) ||
	    !json_find(rules, json, &value))
		return (struct span){ NULL, 0 };
	return value;
}
