/*
 * Rules against a second implementation of them, which works on a library's tree: for any body and
 * any rules, the canonical form under the rules is that of the body to which they were applied.
 */
#include "canonical_rig.h"
#include "canonical_rules.h"

#include <jansson.h>
#include <stdlib.h>

#define ROUNDS       20000U
#define POINTERS_MAX 6U
#define STEPS_MAX    4U

static uint64_t seed;

static unsigned chance(unsigned n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (unsigned)((seed >> 32) % n);
}

/* Few names, so that pointers meet members. */
static const char *const names[] = { "a", "b", "c", "0", "1", "\"\\\n" };

struct pointer {
	const char *step[STEPS_MAX];
	unsigned n;
	bool only;
};

static struct pointer pointer[POINTERS_MAX];
static unsigned n_pointers;
static bool kept_there; /* something that is kept was applied to */

static json_t *any(unsigned depth)
{
	json_t *made = NULL;
	unsigned n = chance(4);

	switch (chance(depth ? 5 : 2)) {
	case 0:
		return json_integer(chance(10));
	case 1:
		return json_string(names[chance(ARRAY_LEN(names))]);
	case 2:
		made = json_array();
		while (n--)
			json_array_append_new(made, any(depth - 1));
		return made;
	default:
		made = json_object();
		while (n--)
			json_object_set_new(made, names[chance(ARRAY_LEN(names))],
					    any(depth - 1));
		return made;
	}
}

static bool is_index(const char *step)
{
	return strcmp(step, "*") == 0 || strcmp(step, "0") == 0 || strcmp(step, "1") == 0;
}

/* The pointers that go on from a place, by their numbers as bits. */
static unsigned going_on(unsigned alive, unsigned depth, const char *step, bool element)
{
	unsigned next = 0;

	for (unsigned i = 0; i < n_pointers; i++) {
		const struct pointer *p = &pointer[i];

		if ((alive >> i & 1) && p->n > depth &&
		    (strcmp(p->step[depth], step) == 0 ||
		     (element && strcmp(p->step[depth], "*") == 0)))
			next |= 1U << i;
	}
	return next;
}

static bool ends(unsigned alive, unsigned depth, bool only)
{
	for (unsigned i = 0; i < n_pointers; i++)
		if ((alive >> i & 1) && pointer[i].n == depth && pointer[i].only == only)
			return true;
	return false;
}

static bool has_only(unsigned alive)
{
	for (unsigned i = 0; i < n_pointers; i++)
		if ((alive >> i & 1) && pointer[i].only)
			return true;
	return false;
}

/* Does something that is kept lie at an element? */
static bool keeps_element(unsigned alive, unsigned depth)
{
	for (unsigned i = 0; i < n_pointers; i++)
		if ((alive >> i & 1) && pointer[i].only && pointer[i].n > depth &&
		    is_index(pointer[i].step[depth]))
			return true;
	return false;
}

/* … or at a member that can be no element? */
static bool keeps_member(unsigned alive, unsigned depth)
{
	for (unsigned i = 0; i < n_pointers; i++)
		if ((alive >> i & 1) && pointer[i].only && pointer[i].n > depth &&
		    !is_index(pointer[i].step[depth]))
			return true;
	return false;
}

static bool whole_instead(bool kept, bool whole)
{
	kept_there |= whole && !kept;
	return kept || whole;
}

static json_t *apply(const json_t *value, unsigned alive, unsigned depth, bool kept,
		     const json_t *defaults);

/* What becomes of a child; NULL: it is left out. */
static json_t *apply_child(const json_t *child, unsigned alive, unsigned depth, bool kept,
			   const json_t *defaults)
{
	if (ends(alive, depth, false))
		return NULL;
	if (ends(alive, depth, true))
		kept = kept_there = true;
	if (!kept && !has_only(alive))
		return NULL;
	return apply(child, alive, depth, kept, defaults);
}

static json_t *apply_array(const json_t *value, unsigned alive, unsigned depth, bool kept)
{
	json_t *made = json_array(), *child = NULL;
	char step[24];
	size_t i = 0;

	kept = whole_instead(kept, alive && !keeps_element(alive, depth));
	json_array_foreach(value, i, child)
	{
		json_t *next = NULL;

		snprintf(step, sizeof(step), "%zu", i);
		next = apply_child(child, going_on(alive, depth, step, true), depth + 1, kept,
				   NULL);
		if (next)
			json_array_append_new(made, next);
	}
	return made;
}

static json_t *apply_object(const json_t *value, unsigned alive, unsigned depth, bool kept,
			    const json_t *defaults)
{
	json_t *made = json_object(), *child = NULL;
	const char *name = NULL;

	kept = whole_instead(kept, keeps_element(alive, depth) && !keeps_member(alive, depth));
	json_object_foreach((json_t *)(uintptr_t)value, name, child)
	{
		json_t *next = apply_child(child, going_on(alive, depth, name, false),
					   depth + 1, kept, json_object_get(defaults, name));

		if (next)
			json_object_set_new(made, name, next);
	}
	json_object_foreach((json_t *)(uintptr_t)defaults, name, child)
	{
		if (!json_object_get(value, name))
			json_object_set(made, name, child);
	}
	return made;
}

static json_t *apply(const json_t *value, unsigned alive, unsigned depth, bool kept,
		     const json_t *defaults)
{
	if (json_is_array(value))
		return apply_array(value, alive, depth, kept);
	if (json_is_object(value))
		return apply_object(value, alive, depth, kept,
				    json_is_object(defaults) ? defaults : NULL);
	return json_deep_copy(value);
}

static void put_pointer(struct buf *out, const struct pointer *p)
{
	buf_init(out, 256);
	for (unsigned i = 0; i < p->n; i++)
		buf_format(out, "/%s", p->step[i]);
}

/* A pointer that the rules take is noted. */
static void add_pointer(struct canonical_rules *rules, bool only)
{
	struct pointer *p = &pointer[n_pointers];
	struct buf text;

	*p = (struct pointer){ .n = 1 + chance(STEPS_MAX - 1), .only = only };
	for (unsigned i = 0; i < p->n; i++)
		p->step[i] = chance(3) ? names[chance(ARRAY_LEN(names))] : "*";
	put_pointer(&text, p);
	if (only ? !canonical_rules_only(rules, buf_view(&text))
		 : !canonical_rules_ignore(rules, buf_view(&text)))
		n_pointers++;
	buf_fini(&text);
}

/* NULL: a pointer was refused, and may have left its beginning. */
static struct canonical_rules *any_rules(struct arena *arena)
{
	struct canonical_rules *rules = canonical_rules_new(arena, CANONICAL_EXACT);
	unsigned n_ignore = chance(4), n_only = chance(3);

	n_pointers = 0;
	for (unsigned i = 0; i < n_ignore; i++)
		add_pointer(rules, false);
	for (unsigned i = 0; i < n_only; i++)
		add_pointer(rules, true);
	return n_pointers == n_ignore + n_only ? rules : NULL;
}

static json_t *any_defaults(struct canonical_rules *rules)
{
	json_t *defaults = chance(2) ? any(2) : NULL, *filtered = NULL;
	struct canonical_error error;
	char *text = NULL;

	if (!json_is_object(defaults)) {
		json_decref(defaults);
		return NULL;
	}
	text = json_dumps(defaults, 0);
	ck_assert(canonical_rules_defaults(rules, span_of(text), &error));
	filtered = apply(defaults, ~0U, 0, !has_only(~0U), NULL);
	json_decref(defaults);
	free(text);
	return filtered;
}

/* All of it, where nothing of it is kept. */
static json_t *apply_body(const json_t *body, const json_t *defaults)
{
	json_t *applied = NULL;

	kept_there = false;
	applied = apply(body, ~0U, 0, !has_only(~0U), defaults);
	if (!has_only(~0U) || kept_there)
		return applied;
	json_decref(applied);
	return apply(body, ~0U, 0, true, defaults);
}

static void check(const json_t *body, const struct canonical_rules *rules,
		  const json_t *defaults)
{
	json_t *applied = apply_body(body, defaults);
	char *text = json_dumps(body, JSON_ENCODE_ANY);
	char *expected = json_dumps(applied, JSON_ENCODE_ANY);
	struct canonical_task task = { .body = span_of(text), .rules = rules };
	struct canonical_error error;
	struct to_buf to, plain;
	struct buf about;

	buf_init(&about, 65536);
	canonical_rules_text(rules, &about);
	ck_assert(canonical_by("json", task, &to, &error));
	ck_assert(canonical(span_of(expected), &plain, &error));
	ck_assert_msg(span_equal(buf_view(&to.buf), buf_view(&plain.buf)),
		      "%s under%.*s became %.*s, not %.*s", text, (int)about.len, about.at,
		      (int)to.buf.len, to.buf.at, (int)plain.buf.len, plain.buf.at);
	buf_fini(&to.buf);
	buf_fini(&plain.buf);
	buf_fini(&about);
	free(text);
	free(expected);
	json_decref(applied);
}

START_TEST(rules_are_what_a_second_implementation_makes_of_them)
{
	unsigned checked = 0;

	for (uint64_t round = 0; round < ROUNDS; round++) {
		struct arena *arena = arena_new();
		struct canonical_rules *rules = NULL;
		json_t *body = NULL, *defaults = NULL;

		seed = 0x9e3779b97f4a7c15U * (round + 1);
		rules = any_rules(arena);
		if (rules) {
			defaults = any_defaults(rules);
			body = any(4);
			check(body, rules, defaults);
			checked++;
		}
		json_decref(body);
		json_decref(defaults);
		arena_free(arena);
	}
	ck_assert_uint_gt(checked, ROUNDS / 2);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		rules_are_what_a_second_implementation_makes_of_them,
	};

	return run("canonical rules, properties", tests, ARRAY_LEN(tests));
}
