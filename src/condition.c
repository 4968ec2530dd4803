/*
 * A body is looked through as a whole before anything in it is believed: half of a JSON text, or
 * one in which a name stands twice, says nothing. Values compare in their canonical form, so
 * 1.0 equals 1, however it is spelt.
 */
#include "condition.h"

#include "json_find.h"
#include "json_text.h"

struct span condition_json(const struct http_answer *answer)
{
	size_t lines = 0;
	const struct http_field *coding =
		http_find(&answer->fields, SPAN("Content-Encoding"), &lines);
	bool plain = !coding || (lines == 1 && http_same_name(coding->value, SPAN("identity")));

	if (plain && json_valid(answer->body))
		return answer->body;
	return (struct span){ "", 0 };
}

bool condition_met(const struct condition *condition, struct span json)
{
	struct span value = { NULL, 0 };
	struct arena *arena = NULL;
	bool same = false;

	if (!json_find(condition->place, json, &value))
		return false;
	if (!condition->equals)
		return *value.at != 'n'; /* null */
	if (*value.at == '{' || *value.at == '[')
		return false;
	arena = arena_new();
	same = span_equal(json_canonical(arena, value), span_of(condition->equals));
	arena_free(arena);
	return same;
}

bool condition_holds(const struct condition *condition, const struct http_answer *answer)
{
	struct span json = { "", 0 };

	if (condition->place)
		json = condition_json(answer);
	return json.len > 0 && condition_met(condition, json);
}
