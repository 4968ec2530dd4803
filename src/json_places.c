/*
 * The walk down the tree of rules, beside the reader. Where the pointers of `only` speak of
 * elements and an object stands there, or of members and there is an array, it is none that was
 * meant: it counts as a whole, so that more is refused and not less.
 */
#include "json_places.h"

void json_places_init(struct json_places *places, const struct canonical_task *task)
{
	const struct canonical_rules *rules = task->rules;

	*places = (struct json_places){ .now = { .kept = true } };
	if (!rules)
		return;
	places->now.rule = &rules->root;
	places->now.kept = !rules->only || task->only == CANONICAL_ONLY_NEVER;
	places->now.merge = true;
	places->seen = arena_zero(task->arena, rules->n);
}

bool json_places_down(struct json_places *places, const struct json_place *outer,
		      const struct rule *rule, bool merge)
{
	bool keeps = rule && rule->keep, kept = outer->kept || keeps;

	places->now = (struct json_place){ rule, kept, merge };
	places->kept |= keeps;
	if (rule)
		places->seen[rule->number] = true;
	if (kept ? !(rule && rule->drop) : rule && rule->keep_below)
		return true;
	places->now = (struct json_place){ .kept = true }; /* read, and taken back */
	return false;
}

static struct json_place kept_whole(struct json_places *places, struct json_place place)
{
	places->kept |= !place.kept;
	place.kept = true;
	return place;
}

struct json_place json_places_array(struct json_places *places)
{
	struct json_place place = places->now;

	if (!place.rule)
		return place;
	if (!place.rule->keep_indexed)
		place = kept_whole(places, place);
	if (!place.rule->indexed)
		place = (struct json_place){ .kept = true };
	return place;
}

struct json_place json_places_object(struct json_places *places)
{
	struct json_place place = places->now;

	if (place.rule && place.rule->keep_indexed && !place.rule->keep_named)
		place = kept_whole(places, place);
	return place;
}
