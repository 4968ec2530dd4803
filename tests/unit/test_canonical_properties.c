/*
 * Properties of the canonical form over random values: however a value is spelt (order of members,
 * white space, escapes, numbers), its canonical bytes are the same; a change of the value changes
 * them; they are canonical themselves; and they mean what the body means, as another library reads
 * both. Seeded, so that a failure comes again.
 */
#include "canonical_rig.h"

#include <jansson.h>

#define ROUNDS       400
#define CHANGES      1600
#define CHILDREN_MAX 12
#define NAMES_MAX    200

enum kind { WORD, NUMBER, STRING, ARRAY, OBJECT };

/* A JSON value. Text is a word, the characters of a string, or the digits of a number. */
struct value {
	enum kind kind;
	uint32_t text[24];
	size_t len;
	bool negative;
	int exponent;
	size_t n;
	struct value *children[CHILDREN_MAX], *names[CHILDREN_MAX];
};

static struct arena *arena;
static uint64_t seed;

static uint64_t chance(uint64_t below)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (seed >> 11) % below;
}

static uint32_t character(void)
{
	static const uint32_t odd[] = { '"',    '\\',   0,       '\n',    '\t',     0x1f,
					0x7f,   0x80,   0x7ff,   0x800,   0xd7ff,   0xe000,
					0xfb33, 0xffff, 0x10000, 0x1f600, 0x10ffff, '/' };

	return chance(3) ? (uint32_t)('a' + chance(4)) : odd[chance(ARRAY_LEN(odd))];
}

static struct value *string(void)
{
	struct value *v = arena_zero(arena, sizeof(*v));

	v->kind = STRING;
	v->len = chance(chance(4) ? 6 : ARRAY_LEN(v->text));
	for (size_t i = 0; i < v->len; i++)
		v->text[i] = character();
	return v;
}

static struct value *number(void)
{
	struct value *v = arena_zero(arena, sizeof(*v));

	v->kind = NUMBER;
	v->len = chance(ARRAY_LEN(v->text));
	for (size_t i = 0; i < v->len; i++)
		v->text[i] = (uint32_t)('0' + chance(10));
	if (v->len) /* neither the first nor the last is a zero */
		v->text[0] = v->text[v->len - 1] = (uint32_t)('1' + chance(9));
	v->negative = chance(2);
	v->exponent = (int)chance(40) - 20;
	return v;
}

static bool same_name(const struct value *a, const struct value *b)
{
	return a->len == b->len && memcmp(a->text, b->text, a->len * sizeof(a->text[0])) == 0;
}

static bool has_name(const struct value *object, const struct value *name)
{
	for (size_t i = 0; i < object->n; i++)
		if (same_name(object->names[i], name))
			return true;
	return false;
}

static struct value *any(unsigned depth)
{
	struct value *v = arena_zero(arena, sizeof(*v));
	size_t n = chance(CHILDREN_MAX);

	v->kind = depth ? (enum kind)chance(5) : (enum kind)chance(3);
	if (v->kind == NUMBER)
		return number();
	if (v->kind == STRING)
		return string();
	if (v->kind == WORD) {
		v->len = chance(3);
		return v;
	}
	while (v->n < n) {
		struct value *name = string();

		if (v->kind == OBJECT && has_name(v, name))
			continue;
		v->names[v->n] = name;
		v->children[v->n++] = any(depth - 1);
	}
	return v;
}

static void spell_space(struct buf *out)
{
	static const char *const spaces[] = { "", "", "", " ", "\n\t", "\r\n            " };

	buf_text(out, spaces[chance(ARRAY_LEN(spaces))]);
}

static void spell_utf8(struct buf *out, uint32_t c)
{
	if (c < 0x80)
		buf_byte(out, (char)c);
	else if (c < 0x800)
		buf_format(out, "%c%c", (char)(0xc0 | c >> 6), (char)(0x80 | (c & 0x3f)));
	else if (c < 0x10000)
		buf_format(out, "%c%c%c", (char)(0xe0 | c >> 12),
			   (char)(0x80 | (c >> 6 & 0x3f)), (char)(0x80 | (c & 0x3f)));
	else
		buf_format(out, "%c%c%c%c", (char)(0xf0 | c >> 18),
			   (char)(0x80 | (c >> 12 & 0x3f)), (char)(0x80 | (c >> 6 & 0x3f)),
			   (char)(0x80 | (c & 0x3f)));
}

static void spell_character(struct buf *out, uint32_t c)
{
	const char *format = chance(2) ? "\\u%04x" : "\\u%04X";

	if (c >= 0x20 && c != '"' && c != '\\' && chance(3)) {
		spell_utf8(out, c);
	} else if (c >= 0x10000) {
		buf_format(out, "\\u%04x", 0xd800 | (c - 0x10000) >> 10);
		buf_format(out, "\\u%04X", 0xdc00 | (c & 0x3ff));
	} else if ((c == '"' || c == '\\' || c == '/') && chance(2)) {
		buf_format(out, "\\%c", (int)c);
	} else if (c == '\n' && chance(2)) {
		buf_text(out, "\\n");
	} else if (format[5] == 'x') {
		buf_format(out, "\\u%04x", c);
	} else {
		buf_format(out, "\\u%04X", c);
	}
}

static void spell_string(struct buf *out, const struct value *v)
{
	buf_byte(out, '"');
	for (size_t i = 0; i < v->len; i++)
		spell_character(out, v->text[i]);
	buf_byte(out, '"');
}

static void spell_digits(struct buf *out, const struct value *v, size_t from, size_t to)
{
	for (size_t i = from; i < to; i++)
		buf_byte(out, (char)(i < v->len ? v->text[i] : '0'));
}

/* The digits with the point behind the first `whole` of them, and the exponent that this needs. */
static void spell_number(struct buf *out, const struct value *v)
{
	size_t digits = v->len + chance(4), whole = chance(digits + 1);
	int exponent = v->exponent + (int)v->len - (int)whole;
	unsigned zeros = whole ? 0 : (unsigned)chance(3);

	if (v->negative)
		buf_byte(out, '-');
	if (!v->len) {
		buf_text(out, chance(2) ? "0" : "0.00e7");
		return;
	}
	spell_digits(out, v, 0, whole);
	if (!whole)
		buf_byte(out, '0');
	if (digits > whole)
		buf_byte(out, '.');
	for (unsigned i = 0; i < zeros && digits > whole; i++, exponent++)
		buf_byte(out, '0');
	spell_digits(out, v, whole, digits);
	if (exponent || chance(2))
		buf_format(out, chance(2) ? "e%d" : "E%+03d", exponent);
}

static void spell(struct buf *out, const struct value *v);

/* Children in the order given, or members in any order. */
static void spell_children(struct buf *out, const struct value *v)
{
	size_t order[CHILDREN_MAX] = { 0 };

	for (size_t i = 0; i < v->n; i++) {
		size_t other = v->kind == OBJECT ? chance(i + 1) : i;

		order[i] = order[other];
		order[other] = i;
	}
	for (size_t i = 0; i < v->n; i++) {
		if (i)
			buf_byte(out, ',');
		spell_space(out);
		if (v->kind == OBJECT) {
			spell_string(out, v->names[order[i]]);
			spell_space(out);
			buf_byte(out, ':');
		}
		spell(out, v->children[order[i]]);
	}
}

static void spell(struct buf *out, const struct value *v)
{
	static const char *const words[] = { "null", "true", "false" };

	spell_space(out);
	switch (v->kind) {
	case WORD:
		buf_text(out, words[v->len]);
		break;
	case NUMBER:
		spell_number(out, v);
		break;
	case STRING:
		spell_string(out, v);
		break;
	case ARRAY:
	case OBJECT:
		buf_byte(out, v->kind == ARRAY ? '[' : '{');
		spell_children(out, v);
		spell_space(out);
		buf_byte(out, v->kind == ARRAY ? ']' : '}');
	}
	spell_space(out);
}

static void canonical_of(const struct value *v, struct buf *out)
{
	struct canonical_error error = { 0 };
	struct to_buf to;
	struct buf body;

	buf_init(&body, SIZE_MAX / 2);
	spell(&body, v);
	ck_assert_msg(canonical(buf_view(&body), &to, &error),
		      "seed %ju: %.*s\nrefused at %zu: %s", (uintmax_t)seed, (int)body.len,
		      body.at, error.offset, error.expected);
	*out = to.buf;
	buf_fini(&body);
}

static struct value *begin(uint64_t round)
{
	arena = arena_new();
	seed = 0x9e3779b97f4a7c15U * (round + 1);
	return any(4);
}

START_TEST(spelling_never_changes_the_canonical_form)
{
	for (uint64_t round = 0; round < ROUNDS; round++) {
		struct value *v = begin(round);
		struct buf first, again;

		canonical_of(v, &first);
		for (unsigned i = 0; i < 4; i++) {
			canonical_of(v, &again);
			ck_assert_msg(span_equal(buf_view(&first), buf_view(&again)),
				      "round %ju: %.*s\n%.*s", (uintmax_t)round, (int)first.len,
				      first.at, (int)again.len, again.at);
			buf_fini(&again);
		}
		becomes_bytes(buf_view(&first), buf_view(&first));
		buf_fini(&first);
		arena_free(arena);
	}
}
END_TEST

/* A value inside this one, itself included. */
static struct value *inside(struct value *v)
{
	while (v->n && chance(4))
		v = v->children[chance(v->n)];
	return v;
}

static void change_number(struct value *v)
{
	if (v->len && chance(2))
		v->exponent += chance(2) ? 1 : -1;
	else if (v->len < 23)
		v->text[v->len++] = (uint32_t)('1' + chance(9));
	else
		v->kind = STRING;
}

static void change_string(struct value *v)
{
	if (v->len && chance(2))
		v->len--;
	else if (v->len < 24)
		v->text[v->len++] = character();
	else
		v->text[0] = v->text[0] == 'a' ? 'b' : 'a';
}

/* One child less, or one more. */
static void change_children(struct value *v)
{
	size_t gone = v->n ? chance(v->n) : 0;

	if (v->n && chance(2)) {
		v->n--;
		v->children[gone] = v->children[v->n];
		v->names[gone] = v->names[v->n];
		return;
	}
	v->names[v->n] = string();
	while (has_name(v, v->names[v->n]))
		v->names[v->n] = string();
	v->children[v->n++] = any(0);
}

/* Makes another value of this one, whatever it is. */
static void change(struct value *v)
{
	switch (v->kind) {
	case WORD:
		v->len = (v->len + 1 + chance(2)) % 3;
		break;
	case NUMBER:
		change_number(v);
		break;
	case STRING:
		change_string(v);
		break;
	case ARRAY:
	case OBJECT:
		change_children(v);
	}
}

START_TEST(any_change_of_the_value_changes_the_canonical_form)
{
	for (uint64_t round = 0; round < CHANGES; round++) {
		struct value *v = begin(round);
		struct buf first, second;

		canonical_of(v, &first);
		change(inside(v));
		canonical_of(v, &second);
		ck_assert_msg(!span_equal(buf_view(&first), buf_view(&second)),
			      "round %ju: %.*s", (uintmax_t)round, (int)first.len, first.at);
		buf_fini(&first);
		buf_fini(&second);
		arena_free(arena);
	}
}
END_TEST

static unsigned unit_of(const char *hex4)
{
	char digits[5] = { hex4[0], hex4[1], hex4[2], hex4[3] };

	return (unsigned)strtoul(digits, NULL, 16);
}

/* UTF-16 code units of a name, as another library spells them. */
static size_t units_of(const char *name, unsigned *units)
{
	json_t *text = json_string(name);
	char *ascii = json_dumps(text, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
	size_t n = 0;

	for (const char *at = ascii + 1; at[0] != '"' || at[1]; at++) {
		units[n] = (unsigned char)*at;
		if (at[0] == '\\' && at[1] == 'u') {
			units[n] = unit_of(at + 2);
			at += 5;
		} else if (at[0] == '\\') {
			at++;
			units[n] = *at == 'n' ? '\n' : *at == 't' ? '\t' : (unsigned char)*at;
		}
		n++;
	}
	free(ascii);
	json_decref(text);
	return n;
}

static bool comes_before(const char *a, const char *b)
{
	unsigned first[64], second[64];
	size_t n = units_of(a, first), m = units_of(b, second), i = 0;

	while (i < n && i < m && first[i] == second[i])
		i++;
	return i == n || i == m ? n < m : first[i] < second[i];
}

/* jansson takes no NUL in a name. */
static bool fit(struct value *const *names, size_t n)
{
	for (size_t i = 0; i < names[n]->len; i++)
		if (!names[n]->text[i])
			return false;
	for (size_t i = 0; i < n; i++)
		if (same_name(names[i], names[n]))
			return false;
	return true;
}

/* An object of so many members. */
static void spell_names(struct buf *out, size_t want)
{
	struct value *names[NAMES_MAX];

	for (size_t n = 0; n < want;) {
		names[n] = string();
		if (!fit(names, n))
			continue;
		buf_byte(out, n ? ',' : '{');
		spell_string(out, names[n++]);
		buf_text(out, ":0");
	}
	buf_byte(out, '}');
}

static void check_order(struct span object, size_t members)
{
	json_t *read = json_loadb(object.at, object.len, 0, NULL), *child = NULL;
	const char *name = NULL, *last = NULL;

	ck_assert_uint_eq(json_object_size(read), members);
	json_object_foreach(read, name, child)
	{
		ck_assert_msg(!last || comes_before(last, name), "%s, %s", last, name);
		last = name;
	}
	json_decref(read);
}

START_TEST(names_come_in_the_order_of_an_independent_comparison)
{
	for (uint64_t round = 0; round < 60; round++) {
		struct canonical_error error = { 0 };
		size_t want = (begin(round), 1 + chance(NAMES_MAX));
		struct to_buf to;
		struct buf body;

		buf_init(&body, SIZE_MAX / 2);
		spell_names(&body, want);
		ck_assert(canonical(buf_view(&body), &to, &error));
		check_order(buf_view(&to.buf), want);
		buf_fini(&to.buf);
		buf_fini(&body);
		arena_free(arena);
	}
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		spelling_never_changes_the_canonical_form,
		any_change_of_the_value_changes_the_canonical_form,
		names_come_in_the_order_of_an_independent_comparison,
	};

	return run("canonical properties", tests, ARRAY_LEN(tests));
}
