/*
 * Rules become a tree, at start, by the operator's hand: what is wrong with them is said there and
 * never found out by a request.
 *
 * An index and `*` may not stand beside each other: an element would be in two places, and no
 * reader of the file could say which rule holds. `only` below something ignored is refused, too.
 *
 * Defaults are brought into their canonical form by the reader itself, under the pointers, before
 * they enter the tree: so what they add is what a body that says the same would have said.
 */
#include "canonical_rules.h"

#include "json_text.h"

#define STEPS_MAX 128U /* a body has no more levels */

struct canonical_rules *canonical_rules_new(struct arena *arena, enum canonical_numbers numbers)
{
	struct canonical_rules *rules = arena_zero(arena, sizeof(*rules));

	rules->arena = arena;
	rules->numbers = numbers;
	rules->root.index = -1;
	return rules;
}

/* "0", or digits that do not begin with it. */
static int64_t index_of(struct span name)
{
	int64_t index = 0;

	if (name.len == 0 || name.len > 9 || (name.len > 1 && name.at[0] == '0'))
		return -1;
	for (size_t i = 0; i < name.len; i++) {
		if (name.at[i] < '0' || name.at[i] > '9')
			return -1;
		index = index * 10 + (name.at[i] - '0');
	}
	return index;
}

/* The text as canonical JSON has it, without quotes; false where it is no UTF-8. */
static bool canonical_name(struct arena *arena, struct span text, struct span *name)
{
	struct span quoted = json_quoted(arena, text);

	if (!quoted.at)
		return false;
	*name = (struct span){ quoted.at + 1, quoted.len - 2 };
	return true;
}

static struct rule *child_of(struct canonical_rules *rules, struct rule *outer,
			     struct span name, struct span plain)
{
	struct rule **link = &outer->first;
	struct rule *child = NULL;

	while (*link && !span_equal((*link)->name, name))
		link = &(*link)->next;
	child = *link;
	if (child)
		return child;
	child = *link = arena_zero(rules->arena, sizeof(*child));
	child->name = name;
	child->plain = plain;
	child->number = rules->n++;
	child->any = span_equal(plain, SPAN("*"));
	child->index = index_of(plain);
	return child;
}

/* The next step of a pointer, from behind its slash, without its escapes; false where one is no
 * escape. */
static bool next_step(struct arena *arena, struct span *pointer, struct span *step)
{
	char *out = arena_alloc(arena, pointer->len + 1);
	size_t n = 0, i = 0;

	for (; i < pointer->len && pointer->at[i] != '/'; i++) {
		char c = pointer->at[i];

		if (c == '~') {
			i++;
			if (i == pointer->len || (pointer->at[i] | 1) != '1')
				return false;
			c = pointer->at[i] == '0' ? '~' : '/';
		}
		out[n++] = c;
	}
	*step = (struct span){ out, n };
	pointer->at += i;
	pointer->len -= i;
	return true;
}

static bool ambiguous(const struct rule *outer)
{
	bool any = false, index = false;

	for (const struct rule *r = outer->first; r; r = r->next) {
		any |= r->pointed && r->any;
		index |= r->pointed && r->index >= 0;
	}
	return any && index;
}

/* One step down; NULL: *why says why not. */
static struct rule *step_down(struct canonical_rules *rules, struct rule *outer,
			      struct span *rest, const char **why)
{
	struct span plain = { 0 }, name = { 0 };
	struct rule *child = NULL;

	rest->at++;
	rest->len--;
	*why = "has a ~ that is neither ~0 nor ~1";
	if (!next_step(rules->arena, rest, &plain))
		return NULL;
	*why = "is not UTF-8";
	if (!canonical_name(rules->arena, plain, &name))
		return NULL;
	child = child_of(rules, outer, name, plain);
	child->pointed = true;
	outer->indexed |= child->any || child->index >= 0;
	*why = "has a * where another pointer has a number: write one of them";
	return ambiguous(outer) ? NULL : child;
}

/* The place where a pointer ends, with all on the way there in path[0 … *n). */
static struct rule *walk(struct canonical_rules *rules, struct span pointer, struct rule **path,
			 size_t *n, const char **why)
{
	struct rule *place = &rules->root;

	*why = "must begin with a slash";
	if (!pointer.len || pointer.at[0] != '/')
		return NULL;
	for (*n = 0; pointer.len; (*n)++) {
		*why = "has more than 128 steps";
		if (*n == STEPS_MAX)
			return NULL;
		place = step_down(rules, place, &pointer, why);
		if (!place)
			return NULL;
		path[*n] = place;
	}
	return place;
}

static void forget(void *list)
{
	buf_fini(list);
}

/* The list lives as long as the rules do. */
static void note(struct canonical_rules *rules, struct buf *list, struct span pointer)
{
	if (!list->max) {
		buf_init(list, SIZE_MAX / 2);
		arena_defer(rules->arena, forget, list);
	}
	buf_byte(list, ' ');
	json_quote(list, pointer);
}

const char *canonical_rules_ignore(struct canonical_rules *rules, struct span pointer)
{
	struct rule *path[STEPS_MAX];
	const char *why = NULL;
	size_t n = 0;
	struct rule *place = walk(rules, pointer, path, &n, &why);

	if (!place)
		return why;
	place->drop = true;
	note(rules, &rules->ignored, pointer);
	return NULL;
}

const char *canonical_rules_only(struct canonical_rules *rules, struct span pointer)
{
	struct rule *path[STEPS_MAX];
	const char *why = NULL;
	size_t n = 0;
	struct rule *place = walk(rules, pointer, path, &n, &why);

	if (!place)
		return why;
	for (size_t i = 0; i < n; i++) {
		struct rule *outer = i ? path[i - 1] : &rules->root;

		if (path[i]->drop)
			return "is left out by `ignore`";
		path[i]->keep_below = true;
		outer->keep_indexed |= path[i]->any || path[i]->index >= 0;
		outer->keep_named |= !path[i]->any && path[i]->index < 0;
	}
	rules->root.keep_below = rules->only = place->keep = true;
	note(rules, &rules->kept, pointer);
	return NULL;
}

/* Behind the string that begins at `at`, in canonical JSON. */
static const char *string_end(const char *at)
{
	for (at++; *at != '"'; at++)
		at += *at == '\\';
	return at + 1;
}

/* Behind the value that begins at `at`, in canonical JSON. */
static const char *value_end(const char *at)
{
	size_t depth = 0;

	do {
		bool closes = *at == '}' || *at == ']';

		if (depth == 0 && (closes || *at == ','))
			return at;
		depth += *at == '{' || *at == '[';
		depth -= closes;
		at = *at == '"' ? string_end(at) : at + 1;
	} while (*at);
	return at;
}

static struct span form_text(struct arena *arena, const char *value, const char *end)
{
	if (*value == '"')
		return json_unquoted(arena,
				     (struct span){ value + 1, (size_t)(end - value) - 2 });
	if (*value == '{' || *value == '[' || *value == 'n')
		return (struct span){ 0 };
	return (struct span){ value, (size_t)(end - value) };
}

/* The members of an object, from behind its brace on, become places; so do those in objects. */
static void place_defaults(struct canonical_rules *rules, struct rule *outer, const char *at)
{
	while (*at != '}') {
		const char *name_end = string_end(at), *end = value_end(name_end + 1);
		struct span name = { at + 1, (size_t)(name_end - at) - 2 };
		struct rule *place =
			child_of(rules, outer, name, json_unquoted(rules->arena, name));

		place->fallback = arena_format(rules->arena, "%.*s,", (int)(end - at), at);
		place->text = form_text(rules->arena, name_end + 1, end);
		rules->fallback_bytes += place->fallback.len;
		if (name_end[1] == '{')
			place_defaults(rules, place, name_end + 2);
		at = *end == ',' ? end + 1 : end;
	}
}

static const char *skip(const char *at)
{
	return at + strspn(at, " \t\r\n");
}

/* A client that writes 1000 into a form means the text; canonical JSON has 1e3. */
static void set_literal(struct canonical_rules *rules, struct span quoted_name, const char *at)
{
	struct span literal = { at, strspn(at, "+-.0123456789Ee") };
	struct span name = { quoted_name.at + 1, quoted_name.len - 2 };

	for (struct rule *place = rules->root.first; literal.len && place; place = place->next)
		if (place->text.at && span_equal(place->name, name)) {
			place->literal = !span_equal(place->text, literal);
			place->text = literal;
		}
}

/* The members of the object as it was written: a NUL is behind it, and it is known to be one. */
static void spell_as_written(struct canonical_rules *rules, const char *at)
{
	for (at = skip(skip(at) + 1); *at != '}'; at = *at == ',' ? skip(at + 1) : at) {
		struct span name = { at, (size_t)(string_end(at) - at) };
		struct span canonical = { 0 };

		at = skip(skip(at + name.len) + 1);
		canonical = json_canonical(rules->arena, name);
		if (canonical.at)
			set_literal(rules, canonical, at);
		at = skip(value_end(at));
	}
}

bool canonical_rules_defaults(struct canonical_rules *rules, struct span json,
			      struct canonical_error *error)
{
	struct canonical_task task = {
		.arena = rules->arena,
		.body = json,
		.numbers = rules->numbers,
		.rules = rules,
		.only = CANONICAL_ONLY_ALWAYS,
	};
	struct buf out;
	struct canonical_buf to = canonical_to(&out);
	bool done = false;

	*error = (struct canonical_error){ .expected = "at most 16 KiB" };
	if (json.len > CANONICAL_DEFAULTS_MAX)
		return false;
	buf_init(&out, 8 * CANONICAL_DEFAULTS_MAX);
	done = canonical_json(&task, &to.sink, error);
	if (done && out.at[0] != '{') {
		*error = (struct canonical_error){ .expected = "an object" };
		done = false;
	}
	if (done) {
		rules->defaults = arena_copy(rules->arena, buf_view(&out));
		place_defaults(rules, &rules->root, rules->defaults.at + 1);
		spell_as_written(rules, arena_copy(rules->arena, json).at);
	}
	buf_fini(&out);
	return done;
}

void canonical_rules_text(const struct canonical_rules *rules, struct buf *out)
{
	if (rules->defaults.len) {
		buf_text(out, "; defaults ");
		buf_span(out, rules->defaults);
		for (const struct rule *r = rules->root.first; r; r = r->next)
			if (r->literal)
				buf_format(out, " (\"%.*s\" %.*s)", (int)r->name.len,
					   r->name.at, (int)r->text.len, r->text.at);
	}
	if (rules->ignored.len) {
		buf_text(out, "; ignore");
		buf_span(out, buf_view(&rules->ignored));
	}
	if (rules->kept.len) {
		buf_text(out, "; only");
		buf_span(out, buf_view(&rules->kept));
	}
}

const struct rule *rule_named(const struct rule *outer, struct span canonical_name_)
{
	for (const struct rule *r = outer->first; r; r = r->next)
		if (span_equal(r->name, canonical_name_))
			return r;
	return NULL;
}

const struct rule *rule_at(const struct rule *outer, size_t index)
{
	for (const struct rule *r = outer->first; r; r = r->next)
		if (r->pointed && (r->any || r->index == (int64_t)index))
			return r;
	return NULL;
}

const struct rule *rule_field(const struct canonical_rules *rules, struct span name)
{
	if (!rules)
		return NULL;
	for (const struct rule *r = rules->root.first; r; r = r->next)
		if (span_equal(r->plain, name))
			return r;
	return NULL;
}

bool rule_field_kept(const struct canonical_rules *rules, struct span name)
{
	const struct rule *place = rule_field(rules, name);
	size_t n = 0;

	if (!rules || !rules->only || (place && place->drop))
		return false;
	if (place && place->keep)
		return true;
	while (n < name.len && name.at[n] != '[' && name.at[n] != '.')
		n++;
	place = n < name.len ? rule_field(rules, (struct span){ name.at, n }) : NULL;
	return place && place->keep_below;
}

bool rule_field_counts(const struct canonical_rules *rules, bool whole, struct span name)
{
	const struct rule *place = rule_field(rules, name);

	if (place && place->drop)
		return false;
	return !rules || !rules->only || whole || (place && place->keep_below) ||
	       rule_field_kept(rules, name);
}
