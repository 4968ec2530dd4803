/*
 * Walks down a JSON text that is known to be one: so it looks at nothing but brackets, commas and
 * quotes, and steps over what no pointer leads into. Names are compared without their escapes.
 *
 * Names come once in an object (json_valid has seen to it), so what is found is the only one.
 */
#include "json_find.h"

#include "json_reader.h"
#include "json_text.h"

/* A member of an object, or an element of an array. */
struct part {
	struct span whole, name, value; /* the name between its quotes; none in an array */
	size_t index;
};

/* Goes through the parts of an object or array. */
struct parts {
	const char *at, *end;
	bool named;
	size_t next;
};

static bool container(struct span json)
{
	return *json.at == '{' || *json.at == '[';
}

static struct span trimmed(struct span json)
{
	const char *end = json.at + json.len, *at = reader_skip(json.at, end);

	return (struct span){ at, (size_t)(end - at) };
}

static const char *string_end(const char *at)
{
	for (at++; *at != '"'; at++)
		at += *at == '\\';
	return at + 1;
}

/* Behind the value at `at`. */
static const char *value_end(const char *at, const char *end)
{
	size_t depth = 0;

	for (; at < end; at++) {
		if (*at == '"')
			at = string_end(at) - 1;
		else if (*at == '{' || *at == '[')
			depth++;
		else if (depth > 0 && (*at == '}' || *at == ']'))
			depth--;
		else if (depth == 0 && (strchr(",}] \t\r\n", *at)))
			return at;
	}
	return at;
}

static struct parts parts_of(struct span json)
{
	return (struct parts){ .at = json.at + 1,
			       .end = json.at + json.len,
			       .named = *json.at == '{' };
}

static bool next_part(struct parts *parts, struct part *part)
{
	const char *at = reader_skip(parts->at, parts->end);

	if (*at == ',')
		at = reader_skip(at + 1, parts->end);
	if (*at == '}' || *at == ']')
		return false;
	*part = (struct part){ .whole = { at, 0 }, .index = parts->next++ };
	if (parts->named) {
		const char *behind = string_end(at);
		part->name = (struct span){ at + 1, (size_t)(behind - at) - 2 };
		at = reader_skip(reader_skip(behind, parts->end) + 1, parts->end);
	}
	parts->at = value_end(at, parts->end);
	part->value = (struct span){ at, (size_t)(parts->at - at) };
	part->whole.len = (size_t)(parts->at - part->whole.at);
	return true;
}

/* The name is spelt as the rules spell theirs first. */
static const struct rule *rule_escaped(const struct rule *outer, struct span name)
{
	struct buf canonical;
	struct reader_io io = { .end = name.at + name.len + 1 };
	const struct rule *rule = NULL;
	char *start = NULL;

	buf_init(&canonical, name.len + 2 + READER_SLACK + READER_SLACK);
	start = buf_reserve(&canonical, canonical.max) + READER_SLACK;
	io.out = start;
	if (reader_string(&io, name.at - 1))
		rule = rule_named(outer,
				  (struct span){ start + 1, (size_t)(io.out - start) - 2 });
	buf_fini(&canonical);
	return rule;
}

static const struct rule *rule_of(const struct rule *outer, const struct part *part)
{
	if (!part->name.at)
		return rule_at(outer, part->index);
	if (memchr(part->name.at, '\\', part->name.len))
		return rule_escaped(outer, part->name);
	return rule_named(outer, part->name);
}

/* One step: the part of `json` that the rules below `outer` speak of first. */
static const struct rule *step(const struct rule *outer, struct span json, struct span *value)
{
	struct parts parts = parts_of(json);
	const struct rule *rule = NULL;
	struct part part;

	while (!rule && next_part(&parts, &part))
		rule = rule_of(outer, &part);
	if (rule)
		*value = part.value;
	return rule;
}

bool json_find(const struct canonical_rules *pointer, struct span json, struct span *value)
{
	const struct rule *rule = &pointer->root;

	*value = trimmed(json);
	while (rule && !rule->keep)
		rule = container(*value) ? step(rule, *value, value) : NULL;
	return rule != NULL;
}

static bool pick(const struct rule *outer, struct span json, struct buf *out);

/* False, and nothing is written: nothing in the part is kept. */
static bool pick_part(const struct rule *rule, const struct part *part, struct buf *out)
{
	size_t before = out->len;

	if (!rule || !(rule->keep || rule->keep_below))
		return false;
	if (rule->keep) {
		buf_span(out, part->whole);
		return true;
	}
	buf_span(out,
		 (struct span){ part->whole.at, (size_t)(part->value.at - part->whole.at) });
	if (container(part->value) && pick(rule, part->value, out))
		return true;
	out->len = before;
	return false;
}

/* What is kept of an object or array; false: nothing is, and its brackets alone were written. */
static bool pick(const struct rule *outer, struct span json, struct buf *out)
{
	struct parts parts = parts_of(json);
	struct part part;
	bool any = false;

	buf_byte(out, *json.at);
	while (next_part(&parts, &part)) {
		size_t before = out->len;

		if (any)
			buf_byte(out, ',');
		if (pick_part(rule_of(outer, &part), &part, out))
			any = true;
		else
			out->len = before;
	}
	buf_byte(out, parts.named ? '}' : ']');
	return any;
}

bool json_pick(const struct canonical_rules *pointers, struct span json, struct buf *out)
{
	struct span whole = trimmed(json);

	if (!container(whole))
		return false;
	(void)pick(&pointers->root, whole, out);
	return true;
}

/* D x 10^E without a point; false where it has a fraction. *text is empty where it is too long. */
static bool integer(struct arena *arena, struct span number, struct span *text)
{
	struct reader_io io = { .end = number.at + number.len };
	struct reader_decimal d;
	char *out = NULL, *at = NULL;
	size_t digits = 0;

	if (!reader_decimal(&io, number.at, &d))
		return false;
	digits = d.high.len + d.low.len;
	if (digits > 0 && d.exponent < 0)
		return false;
	*text = (struct span){ "0", 1 };
	if (digits == 0)
		return true;
	*text = (struct span){ "", 0 };
	if (digits + (size_t)d.exponent > JSON_DIGITS_MAX)
		return true;
	out = at = arena_alloc(arena, JSON_DIGITS_MAX + 1);
	if (d.negative)
		*at++ = '-';
	at = reader_digits(at, &d);
	memset(at, '0', (size_t)d.exponent);
	*text = (struct span){ out, (size_t)(at - out) + (size_t)d.exponent };
	return true;
}

enum json_scalar json_scalar(struct arena *arena, struct span value, struct span *text)
{
	*text = (struct span){ NULL, 0 };
	if (*value.at == 'n')
		return JSON_NULL;
	if (container(value))
		return JSON_NONE;
	*text = json_canonical(arena, value);
	if (*value.at == '"') {
		*text = json_unquoted(arena, (struct span){ text->at + 1, text->len - 2 });
		return JSON_TEXT;
	}
	if (*value.at == 't' || *value.at == 'f' || !integer(arena, value, text))
		return JSON_WORD;
	return text->len ? JSON_INTEGER : JSON_NONE;
}
