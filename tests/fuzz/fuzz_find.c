/*
 * Fuzzes places in JSON: lines of pointers, an empty line, then a text. What is found lies in the
 * text and is JSON; what is picked is JSON, and picks itself again.
 */
#include "canonical_rules.h"
#include "json_find.h"
#include "json_text.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static struct span line_of(struct span *rest)
{
	const char *end = rest->len ? memchr(rest->at, '\n', rest->len) : NULL;
	struct span line = { rest->at, end ? (size_t)(end - rest->at) : rest->len };

	rest->at += line.len + (end != NULL);
	rest->len -= line.len + (end != NULL);
	return line;
}

static void check_find(struct arena *arena, const struct canonical_rules *pointer,
		       struct span json)
{
	struct span value, text;

	if (!json_find(pointer, json, &value))
		return;
	assert(value.at >= json.at && value.at + value.len <= json.at + json.len);
	assert(json_valid(value));
	if (json_scalar(arena, value, &text) == JSON_INTEGER)
		assert(text.len > 0 && text.len <= JSON_DIGITS_MAX + 1);
}

static void check_pick(const struct canonical_rules *rules, struct span json)
{
	struct buf out, again;

	buf_init(&out, json.len);
	buf_init(&again, json.len);
	if (json_pick(rules, json, &out)) {
		assert(!out.full && json_valid(buf_view(&out)));
		assert(json_pick(rules, buf_view(&out), &again) && again.len <= out.len);
	}
	buf_fini(&out);
	buf_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	struct arena *arena = arena_new();
	struct canonical_rules *all = canonical_rules_new(arena, CANONICAL_EXACT);
	const struct canonical_rules *one[CANONICAL_POINTERS_MAX];
	struct span rest = { (const char *)bytes, len };
	size_t n = 0;

	while (rest.len && n < CANONICAL_POINTERS_MAX) {
		struct span line = line_of(&rest);
		struct canonical_rules *rules = canonical_rules_new(arena, CANONICAL_EXACT);

		if (!line.len)
			break;
		if (canonical_rules_only(rules, line))
			continue;
		one[n++] = rules;
		(void)canonical_rules_only(all, line);
	}
	if (n && all->only && json_valid(rest)) {
		for (size_t i = 0; i < n; i++)
			check_find(arena, one[i], rest);
		check_pick(all, rest);
	}
	arena_free(arena);
	return 0;
}
