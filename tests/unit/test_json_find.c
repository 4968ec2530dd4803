/* Places in JSON that stands there as it came. */
#include "json_find.h"
#include "json_text.h"
#include "unit_run.h"

static struct arena *arena;

static const struct canonical_rules *rules_of(const char *const *pointers, size_t n)
{
	struct canonical_rules *rules = canonical_rules_new(arena, CANONICAL_EXACT);

	for (size_t i = 0; i < n; i++)
		ck_assert_ptr_null(canonical_rules_only(rules, span_of(pointers[i])));
	return rules;
}

/* NULL: nothing is there. */
static void finds(const char *pointer, const char *json, const char *expected)
{
	struct span value = { NULL, 0 };
	bool found = false;

	arena = arena_new();
	ck_assert(json_valid(span_of(json)));
	found = json_find(rules_of(&pointer, 1), span_of(json), &value);
	ck_assert_msg(found == (expected != NULL), "%s in %s", pointer, json);
	if (found)
		ck_assert_msg(span_equal(value, span_of(expected)), "%s in %s: %.*s", pointer,
			      json, (int)value.len, value.at);
	arena_free(arena);
}

START_TEST(a_pointer_leads_to_what_stands_there_as_it_came)
{
	finds("/a", "{\"a\":1}", "1");
	finds("/a", " { \"b\" : [1, {\"a\":2}] ,\n\"a\"\t: \"x\\\"}\" } ", "\"x\\\"}\"");
	finds("/a/b/c", "{\"a\":{\"x\":{\"c\":0},\"b\":{\"c\":[1, 2]}}}", "[1, 2]");
	finds("/1", "[ 1 , 2.50 , 3 ]", "2.50");
	finds("/0/a", "[{\"a\":null}]", "null");
	finds("/", "{\"\":true}", "true");
	finds("/a~1b/m~0n", "{\"a/b\":{\"m~n\":7}}", "7");
	finds("/0", "{\"0\":1}", "1");
	finds("/a", "{\"a\":{}}", "{}");
	finds("/a", "{\"a\":-1e5}", "-1e5");
}
END_TEST

START_TEST(a_name_is_found_however_it_is_spelt)
{
	finds("/status", "{\"st\\u0061tus\":1}", "1");
	finds("/a\"b\\c", "{\"a\\\"b\\\\c\":1}", "1");
	finds("/\xc3\xa9", "{\"\\u00e9\":1}", "1");
	finds("/\xc3\xa9", "{\"\xc3\xa9\":1}", "1");
	finds("/\xf0\x9f\x98\x80", "{\"\\ud83d\\ude00\":1}", "1");
	finds("/\n", "{\"\\n\":1}", "1");
	finds("/\n", "{\"\\u000a\":1}", "1");
	finds("/a", "{\"\\u0062\":0,\"x\":{\"\\u0061\":3},\"\\u0061\":1}", "1");
}
END_TEST

START_TEST(what_is_not_there_is_not_found)
{
	finds("/a", "{}", NULL);
	finds("/a", "[]", NULL);
	finds("/a", "\"a\"", NULL);
	finds("/a/b", "{\"a\":\"b\"}", NULL);
	finds("/a", "{\"b\":{\"a\":1}}", NULL);
	finds("/a", "{\"aa\":1,\"A\":1}", NULL);
	finds("/2", "[1,2]", NULL);
	finds("/-", "[1,2]", NULL);
	finds("/01", "[1,2]", NULL);
	finds("/a", "{\"b\":\"\\\",\\\"a\\\":1\"}", NULL);
}
END_TEST

/* NULL: no object or array. */
static void picks(const char *const pointers[4], const char *json, const char *expected)
{
	struct buf out;
	size_t n = 0;
	bool done = false;

	arena = arena_new();
	while (n < 4 && pointers[n])
		n++;
	ck_assert(json_valid(span_of(json)));
	buf_init(&out, strlen(json));
	done = json_pick(rules_of(pointers, n), span_of(json), &out);
	ck_assert_int_eq(done, expected != NULL);
	if (done)
		ck_assert_msg(span_equal(buf_view(&out), span_of(expected)), "%.*s",
			      (int)out.len, out.at);
	ck_assert(!out.full);
	if (done)
		ck_assert(json_valid(buf_view(&out)));
	buf_fini(&out);
	arena_free(arena);
}

START_TEST(what_is_picked_keeps_its_order_and_its_bytes)
{
	const char *const two[4] = { "/a", "/b" };
	const char *const deep[4] = { "/a/x", "/c" };
	const char *const all[4] = { "/*/id" };
	const char *const some[4] = { "/1", "/2/k" };

	picks(two, "{\"b\" : 1.0, \"x\":[{}], \"a\":\"\\u0061\"}",
	      "{\"b\" : 1.0,\"a\":\"\\u0061\"}");
	picks(two, "{\"c\":{\"a\":1}}", "{}");
	picks(two, "[1,2]", "[]");
	picks(deep, "{\"a\": {\"y\":1,\"x\":{\"q\": [1 ,2]}},\"b\":2,\"c\":3}",
	      "{\"a\": {\"x\":{\"q\": [1 ,2]}},\"c\":3}");
	picks(deep, "{\"a\":5,\"c\":3}", "{\"c\":3}");
	picks(deep, "{\"c\":3,\"a\":{\"y\":1}}", "{\"c\":3}");
	picks(deep, "{\"a\":{},\"c\":[]}", "{\"c\":[]}");
	picks(all, " [ {\"id\":1,\"n\":2}, {\"n\":3}, 4, {\"id\":[5]} ] ",
	      "[{\"id\":1},{\"id\":[5]}]");
	picks(some, "[0,1,{\"k\":1,\"l\":2},3]", "[1,{\"k\":1}]");
	picks(two, "\"a\"", NULL);
	picks(two, "17", NULL);
}
END_TEST

static void scalar(const char *json, enum json_scalar kind, const char *text)
{
	struct span found = { NULL, 0 };

	arena = arena_new();
	ck_assert_int_eq(json_scalar(arena, span_of(json), &found), kind);
	ck_assert_msg(span_equal(found, span_of(text)), "%s: %.*s", json, (int)found.len,
		      found.at);
	arena_free(arena);
}

START_TEST(scalars_have_texts)
{
	char digits[300] = "1e";

	scalar("\"a\\u0062\\n\\\"\"", JSON_TEXT, "ab\n\"");
	scalar("\"\"", JSON_TEXT, "");
	scalar("0", JSON_INTEGER, "0");
	scalar("-0.0", JSON_INTEGER, "0");
	scalar("1200", JSON_INTEGER, "1200");
	scalar("12e2", JSON_INTEGER, "1200");
	scalar("-1.20e1", JSON_INTEGER, "-12");
	scalar("9007199254740993", JSON_INTEGER, "9007199254740993");
	scalar("10000000000000000000000", JSON_INTEGER, "10000000000000000000000");
	scalar("0.5", JSON_WORD, "0.5");
	scalar("15e-1", JSON_WORD, "1.5");
	scalar("true", JSON_WORD, "true");
	scalar("false", JSON_WORD, "false");
	scalar("null", JSON_NULL, "");
	scalar("{\"a\":1}", JSON_NONE, "");
	scalar("[]", JSON_NONE, "");
	scalar("1e300", JSON_NONE, "");
	strcpy(digits, "1");
	memset(digits + 1, '0', 255);
	scalar(digits, JSON_INTEGER, digits);
	digits[256] = '0';
	scalar(digits, JSON_NONE, "");
}
END_TEST

START_TEST(what_is_no_json_is_not_valid)
{
	static const char *const bad[] = { "",           " ",           "{",
					   "{\"a\":1,}", "{\"a\":1}x",  "{\"a\":1,\"a\":2}",
					   "\"\xff\"",   "\"\\ud800\"", "nul",
					   "01" };

	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		ck_assert_msg(!json_valid(span_of(bad[i])), "%s", bad[i]);
	ck_assert(!json_valid((struct span){ NULL, 0 }));
}
END_TEST

int main(void)
{
	const TTest *const tests[] = { a_pointer_leads_to_what_stands_there_as_it_came,
				       a_name_is_found_however_it_is_spelt,
				       what_is_not_there_is_not_found,
				       what_is_picked_keeps_its_order_and_its_bytes,
				       scalars_have_texts,
				       what_is_no_json_is_not_valid };

	return run("json_find", tests, ARRAY_LEN(tests));
}
