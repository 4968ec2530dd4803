/* Which key a request carries, in which spellings; and what is refused. */
#include "corpora.h"
#include "key.h"
#include "unit_run.h"

static void check_key(struct span value, struct span key, const char *expected)
{
	ck_assert(key.len >= 1 && key.len <= 255);
	ck_assert_msg(!expected || span_equal(key, span_of(expected)), "%.*s became %.*s",
		      (int)value.len, value.at, (int)key.len, key.at);
}

static bool parses(struct span value, enum key_syntax syntax, const char *expected)
{
	struct arena *arena = arena_new();
	const char *why = NULL;
	struct span key = { 0 };
	bool done = key_parse(arena, value, syntax, &key, &why);

	if (done)
		check_key(value, key, expected);
	else
		ck_assert(why && why[strlen(why) - 1] == '.');
	arena_free(arena);
	return done;
}

static bool taken(const char *value)
{
	return parses(span_of(value), KEY_ANY, NULL);
}

/* What key_of says of these header lines, each "name: value". */
static enum key_found found(const char *const *lines, size_t n, enum key_format format,
			    const char *expected)
{
	struct http_field fields[4];
	struct http_request request = { .arena = arena_new(), .fields = { fields, n } };
	const char *why = NULL;
	struct span key = { 0 };
	enum key_found result;

	for (size_t i = 0; i < n; i++) {
		const char *colon = strchr(lines[i], ':');

		fields[i].name = (struct span){ lines[i], (size_t)(colon - lines[i]) };
		fields[i].value = span_of(colon + 2);
	}
	result = key_of(&request, SPAN("Idempotency-Key"), (struct key_form){ KEY_ANY, format },
			&key, &why);
	if (result == KEY_FOUND)
		ck_assert(span_equal(key, span_of(expected)));
	ck_assert(!why == (result != KEY_INVALID));
	arena_free(request.arena);
	return result;
}

START_TEST(quoted_and_bare_are_the_same_key)
{
	ck_assert(parses(SPAN("abc"), KEY_ANY, "abc"));
	ck_assert(parses(SPAN("\"abc\""), KEY_ANY, "abc"));
	ck_assert(parses(SPAN("a'b;c=1"), KEY_ANY, "a'b;c=1"));
	ck_assert(parses(SPAN("\"a'b;c=1\""), KEY_ANY, "a'b;c=1"));
	ck_assert(parses(SPAN("\"a\\\"b\\\\c,d\""), KEY_ANY, "a\"b\\c,d"));
	ck_assert(parses(SPAN("\"\\\"\""), KEY_ANY, "\""));
	ck_assert(parses(SPAN("!~"), KEY_ANY, "!~"));
}
END_TEST

START_TEST(a_syntax_admits_only_its_form)
{
	ck_assert(parses(SPAN("\"abc\""), KEY_STRUCTURED, "abc"));
	ck_assert(!parses(SPAN("abc"), KEY_STRUCTURED, NULL));
	ck_assert(parses(SPAN("abc"), KEY_BARE, "abc"));
	ck_assert(!parses(SPAN("\"abc\""), KEY_BARE, NULL));
	ck_assert(!parses(SPAN(""), KEY_BARE, NULL));
	ck_assert(!parses(SPAN(""), KEY_STRUCTURED, NULL));
}
END_TEST

START_TEST(malformed_keys_are_refused)
{
	const char *const malformed[] = {
		"",          "\"\"",         "\"",           "\"abc",
		"\"abc\\\"", "\"abc\\",      "\"a\\b\"",     "\"a\"b",
		"\"a\" ",    "\"a\";p=1",    "\"a\", \"b\"", "a,b",
		"a, b",      "a\"b",         "a\\b",         "a b",
		"\"a b\"",   "\"a\tb\"",     "a\x7f",        "\"\x7f\"",
		"\xc3\xa4",  "\"\xc3\xa4\"", "a\x01",        " a",
		"abc\"",     "\"a\"\"b\"",
	};

	for (size_t i = 0; i < ARRAY_LEN(malformed); i++)
		ck_assert_msg(!taken(malformed[i]), "%s", malformed[i]);
	ck_assert(!parses(SPAN("a\0b"), KEY_ANY, NULL));
}
END_TEST

START_TEST(a_key_has_at_most_255_characters)
{
	char value[600];
	struct span text = { value, 255 };

	memset(value, 'k', sizeof(value));
	ck_assert(parses(text, KEY_ANY, NULL));
	text.len = 256;
	ck_assert(!parses(text, KEY_ANY, NULL));
	value[0] = value[256] = '"';
	text.len = 257;
	ck_assert(parses(text, KEY_ANY, NULL));
	value[256] = 'k';
	value[257] = '"';
	text.len = 258;
	ck_assert(!parses(text, KEY_ANY, NULL));
	for (size_t i = 0; i < 510; i++) /* escapes do not count, what they stand for does */
		value[1 + i] = '\\';
	value[511] = '"';
	text.len = 512;
	ck_assert(parses(text, KEY_ANY, NULL));
}
END_TEST

START_TEST(a_request_carries_one_key_line)
{
	const char *const one[] = { "Host: x", "idempotency-KEY: \"k1\"" };
	const char *const two[] = { "Idempotency-Key: k1", "Host: x", "Idempotency-Key: k1" };
	const char *const list[] = { "Idempotency-Key: k1, k2" };
	const char *const empty[] = { "Idempotency-Key: " };
	const char *const other[] = { "X-Idempotency-Key: k1" };

	ck_assert_int_eq(found(one, 2, KEY_FORMAT_ANY, "k1"), KEY_FOUND);
	ck_assert_int_eq(found(two, 3, KEY_FORMAT_ANY, NULL), KEY_INVALID);
	ck_assert_int_eq(found(list, 1, KEY_FORMAT_ANY, NULL), KEY_INVALID);
	ck_assert_int_eq(found(empty, 1, KEY_FORMAT_ANY, NULL), KEY_INVALID);
	ck_assert_int_eq(found(other, 1, KEY_FORMAT_ANY, NULL), KEY_MISSING);
	ck_assert_int_eq(found(other, 0, KEY_FORMAT_ANY, NULL), KEY_MISSING);
}
END_TEST

START_TEST(the_uuid_format_takes_only_uuids_as_given)
{
	const char *const good[] = {
		"Idempotency-Key: \"0190163d-8694-739B-aea5-966c26f8ad91\"",
		"Idempotency-Key: 00000000-0000-0000-0000-000000000000"
	};
	const char *const bad[] = { "Idempotency-Key: 0190163d-8694-739b-aea5-966c26f8ad9",
				    "Idempotency-Key: 0190163d-8694-739b-aea5-966c26f8ad911",
				    "Idempotency-Key: 0190163d8694739baea5966c26f8ad91",
				    "Idempotency-Key: 0190163g-8694-739b-aea5-966c26f8ad91",
				    "Idempotency-Key: 0190163d-8694-739b-aea5+966c26f8ad91",
				    "Idempotency-Key: {0190163d-8694-739b-aea5-966c26f8ad9}",
				    "Idempotency-Key: order-17" };

	ck_assert_int_eq(
		found(&good[0], 1, KEY_FORMAT_UUID, "0190163d-8694-739B-aea5-966c26f8ad91"),
		KEY_FOUND);
	ck_assert_int_eq(found(&good[1], 1, KEY_FORMAT_UUID, good[1] + 17), KEY_FOUND);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		ck_assert_int_eq(found(&bad[i], 1, KEY_FORMAT_UUID, NULL), KEY_INVALID);
}
END_TEST

START_TEST(uuid7_and_ulid_keys_tell_their_time)
{
	const struct {
		const char *key;
		uint64_t ms;
	} timed[] = {
		{ "017F22E2-79B0-7CC3-98C4-DC0C0C07398F", 1645557742000 }, /* RFC 9562 A.6 */
		{ "017f22e2-79b0-7cc3-b8c4-dc0c0c07398f", 1645557742000 },
		{ "ffffffff-ffff-7fff-bfff-ffffffffffff", 281474976710655 },
		{ "01ARZ3NDEKTSV4RRFFQ69G5FAV", 1469922850259 }, /* the ULID page's example */
		{ "01arz3ndektsv4rrffq69g5fav", 1469922850259 },
		{ "7ZZZZZZZZZZZZZZZZZZZZZZZZZ", 281474976710655 },
	};
	const char *const timeless[] = { "",
					 "order-17",
					 "017F22E2-79B0-4CC3-98C4-DC0C0C07398F",
					 "017F22E2-79B0-7CC3-78C4-DC0C0C07398F",
					 "017F22E2-79B0-7CC3-C8C4-DC0C0C07398F",
					 "017F22E279B07CC398C4DC0C0C07398F",
					 "81ARZ3NDEKTSV4RRFFQ69G5FAV",
					 "01ARZ3NDEKTSV4RRFFQ69G5FAI",
					 "01ARZ3NDEKTSV4RRFFQ69G5FAU",
					 "01ARZ3NDEKTSV4RRFFQ69G5FA",
					 "01ARZ3NDEKTSV4RRFFQ69G5FAVV",
					 "01ARZ3NDEK-SV4RRFFQ69G5FAV" };
	uint64_t ms = 0;

	for (size_t i = 0; i < ARRAY_LEN(timed); i++) {
		ck_assert_msg(key_time(span_of(timed[i].key), &ms), "%s", timed[i].key);
		ck_assert_uint_eq(ms, timed[i].ms);
	}
	for (size_t i = 0; i < ARRAY_LEN(timeless); i++)
		ck_assert_msg(!key_time(span_of(timeless[i]), &ms), "%s", timeless[i]);
}
END_TEST

/* As corpus(), but for strings that hold a NUL. */
static json_t *generated(const char *name)
{
	const char *folder = getenv("ONCEWARD_CORPORA");
	char path[1024];
	json_t *json = NULL;

	snprintf(path, sizeof(path), "%s/structured-field-tests/%s",
		 folder ? folder : "../shared/corpora", name);
	json = json_load_file(path, JSON_ALLOW_NUL, NULL);
	if (!json)
		fprintf(stderr, "skipped: no %s\n", path);
	return json;
}

/* An RFC 8941 string without parameters is a key if it is one of a key's bytes; where it is none,
 * the value may still be a bare key. */
static void check_item(const json_t *test)
{
	const json_t *raw = json_object_get(test, "raw");
	const json_t *item = json_array_get(json_object_get(test, "expected"), 0);
	const json_t *line = json_array_get(raw, 0);
	struct span value = { json_string_value(line), json_string_length(line) };
	const char *text = json_is_string(item) ? json_string_value(item) : NULL;
	bool key = text && json_array_size(raw) == 1 && text[0] && strlen(text) < 256;

	for (const char *at = text; key && *at; at++)
		key = *at >= 0x21 && *at <= 0x7e;
	while (value.len && *value.at == ' ') { /* what HTTP has trimmed by then */
		value.at++;
		value.len--;
	}
	while (value.len && value.at[value.len - 1] == ' ')
		value.len--;
	if (json_array_size(json_array_get(json_object_get(test, "expected"), 1)))
		key = false;
	ck_assert_msg(parses(value, KEY_STRUCTURED, key ? text : NULL) == key, "%s",
		      json_string_value(json_object_get(test, "name")));
}

START_TEST(structured_strings_of_the_corpus_are_keys)
{
	const char *const files[] = { "string.json", "string-generated.json" };

	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		json_t *tests = generated(files[i]), *test = NULL;
		size_t at = 0;

		json_array_foreach(tests, at, test) check_item(test);
		json_decref(tests);
	}
}
END_TEST

START_TEST(naughty_strings_are_keys_or_refused)
{
	json_t *strings = corpus("naughty-strings/blns.json"), *string = NULL;
	size_t at = 0;

	json_array_foreach(strings, at, string)
	{
		struct span text = { json_string_value(string), json_string_length(string) };

		(void)parses(text, KEY_ANY, NULL);
		(void)parses(text, KEY_STRUCTURED, NULL);
	}
	json_decref(strings);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		quoted_and_bare_are_the_same_key,    a_syntax_admits_only_its_form,
		malformed_keys_are_refused,          a_key_has_at_most_255_characters,
		a_request_carries_one_key_line,      the_uuid_format_takes_only_uuids_as_given,
		uuid7_and_ulid_keys_tell_their_time, structured_strings_of_the_corpus_are_keys,
		naughty_strings_are_keys_or_refused,
	};

	return run("key", tests, ARRAY_LEN(tests));
}
