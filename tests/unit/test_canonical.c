/* The canonical form: what is equal, what differs, what is refused and where. */
#include "canonical_rig.h"

START_TEST(values_that_are_canonical_stay_as_they_are)
{
	const char *const values[] = {
		"null",       "true",
		"false",      "0",
		"-1",         "12.5",
		"\"\"",       "\"a\"",
		"[]",         "{}",
		"[[]]",       "[{}]",
		"{\"a\":[]}", "{\"a\":{},\"b\":[1,\"1\",null,true]}",
		"[1,2,3]",    "\"\x7f\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\""
	};

	for (size_t i = 0; i < ARRAY_LEN(values); i++)
		becomes(values[i], values[i]);
}
END_TEST

START_TEST(white_space_does_not_count)
{
	becomes(" \t\r\n[ 1 , 2 ]\n", "[1,2]");
	becomes("{ \"b\" : 1 ,\r\n            \"a\" :\t{ } }", "{\"a\":{},\"b\":1}");
	becomes("                    null                 ", "null");
	refused("\v1", 0, "a value");
	refused("1\f", 1, "the end of the body");
	refused("\xc2\xa0"
		"1",
		0, "a value");
}
END_TEST

START_TEST(members_are_put_in_order_at_every_depth)
{
	becomes("{\"b\":1,\"a\":2}", "{\"a\":2,\"b\":1}");
	becomes("{\"b\":{\"d\":1,\"c\":2},\"a\":[{\"y\":0,\"x\":0}]}",
		"{\"a\":[{\"x\":0,\"y\":0}],\"b\":{\"c\":2,\"d\":1}}");
	becomes("{\"a\":{\"c\":1,\"b\":2},\"b\":0}", "{\"a\":{\"b\":2,\"c\":1},\"b\":0}");
	becomes("[{\"b\":0,\"a\":0},{\"b\":0,\"a\":0},{\"a\":0}]",
		"[{\"a\":0,\"b\":0},{\"a\":0,\"b\":0},{\"a\":0}]");
	becomes("{\"c\":{\"b\":{\"a\":{\"z\":1,\"y\":2},\"A\":3},\"B\":4},\"C\":[]}",
		"{\"C\":[],\"c\":{\"B\":4,\"b\":{\"A\":3,\"a\":{\"y\":2,\"z\":1}}}}");
}
END_TEST

START_TEST(names_are_ordered_by_utf16_code_units)
{
	/* a shorter one first; nothing before a control character; RFC 8785's own example */
	becomes("{\"ab\":1,\"a\":2,\"\":3}", "{\"\":3,\"a\":2,\"ab\":1}");
	becomes("{\"a\\u0000\":1,\"a\":2}", "{\"a\":2,\"a\\u0000\":1}");
	becomes("{\"a!\":1,\"a\\n\":2}", "{\"a\\n\":2,\"a!\":1}");
	becomes("{\"]\":1,\"\\\\\":2,\"[\":3}", "{\"[\":3,\"\\\\\":2,\"]\":1}");
	becomes("{\"long prefix B\":1,\"long prefix A\":2,\"long prefix\":3}",
		"{\"long prefix\":3,\"long prefix A\":2,\"long prefix B\":1}");
	becomes("{\"\\uffff\":1,\"\\ud83d\\ude00\":2,\"\\ue000\":3,\"\\ud7ff\":4}",
		"{\"\xed\x9f\xbf\":4,\"\xf0\x9f\x98\x80\":2,\"\xee\x80\x80\":3,"
		"\"\xef\xbf\xbf\":1}");
	becomes("{\"12345678\\ufb33\":1,\"12345678\\ud83d\\ude00\":2}",
		"{\"12345678\xf0\x9f\x98\x80\":2,\"12345678\xef\xac\xb3\":1}");
}
END_TEST

START_TEST(strings_are_escaped_as_rfc_8785_says)
{
	becomes("\"\\u0041\\/\\u00e4\\u20ac\\ud83d\\ude00\"",
		"\"A/\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\"");
	becomes("\"\\\"\\\\\\b\\f\\n\\r\\t\"", "\"\\\"\\\\\\b\\f\\n\\r\\t\"");
	becomes("\"\\u0022\\u005C\\u0008\\u000c\\u000A\\u000d\\u0009\"",
		"\"\\\"\\\\\\b\\f\\n\\r\\t\"");
	becomes("\"\\u0000\\u001F\\u007f\"", "\"\\u0000\\u001f\x7f\"");
	becomes("\"\\uFFFF\\uDBFF\\uDFFF\"", "\"\xef\xbf\xbf\xf4\x8f\xbf\xbf\"");
}
END_TEST

START_TEST(strings_are_not_unicode_normalised)
{
	becomes("[\"\xc3\xa9\",\"e\xcc\x81\"]", "[\"\xc3\xa9\",\"e\xcc\x81\"]");
}
END_TEST

START_TEST(equal_numbers_are_spelt_alike)
{
	const char *const alike[][2] = {
		{ "1", "1" },
		{ "1.0", "1" },
		{ "1e0", "1" },
		{ "10E-1", "1" },
		{ "0.1e+1", "1" },
		{ "0", "0" },
		{ "-0", "0" },
		{ "0.000", "0" },
		{ "-0.0e-7", "0" },
		{ "0e99999", "0" },
		{ "10", "10" },
		{ "1e1", "10" },
		{ "100", "100" },
		{ "1e2", "100" },
		{ "1000", "1e3" },
		{ "1e3", "1e3" },
		{ "10.0e2", "1e3" },
		{ "12000", "12e3" },
		{ "10000000000", "1e10" },
		{ "1200", "1200" },
		{ "12e2", "1200" },
		{ "-1.50", "-1.5" },
		{ "-15e-1", "-1.5" },
		{ "0.5", "0.5" },
		{ "5e-1", "0.5" },
		{ "0.05", "0.05" },
		{ "5e-2", "0.05" },
		{ "0.005", "5e-3" },
		{ "5E-03", "5e-3" },
		{ "0.00123", "123e-5" },
		{ "1.23e-3", "123e-5" },
		{ "0.0123", "0.0123" },
		{ "100.010", "100.01" },
		{ "10001e-2", "100.01" },
		{ "0.00012345678", "12345678e-11" },
		{ "1.5e300", "15e299" },
		{ "1e9999", "1e9999" },
		{ "1e-9999", "1e-9999" },
		{ "0.1e10000", "1e9999" },
		{ "1e0000000000000000000000000000003", "1e3" },
		{ "9007199254740993", "9007199254740993" },
		{ "9007199254740992", "9007199254740992" },
		{ "1.000000000000000000000000000000001",
		  "1.000000000000000000000000000000001" },
	};

	for (size_t i = 0; i < ARRAY_LEN(alike); i++)
		becomes(alike[i][0], alike[i][1]);
}
END_TEST

START_TEST(a_number_is_not_the_string_of_its_digits)
{
	becomes("[1,\"1\",[\"1\"],{\"1\":1}]", "[1,\"1\",[\"1\"],{\"1\":1}]");
	becomes("[null,\"null\",\"true\",true]", "[null,\"null\",\"true\",true]");
}
END_TEST

START_TEST(errors_say_where_and_what)
{
	refused("", 0, "a value");
	refused("  ", 2, "a value");
	refused("{", 1, "a member name");
	refused("{\"a\"", 4, "a colon");
	refused("{\"a\":", 5, "a value");
	refused("{\"a\":1", 6, "a comma or the end of the object");
	refused("{\"a\":1,}", 7, "a member name");
	refused("{a:1}", 1, "a member name");
	refused("{\"a\":1 \"b\":2}", 7, "a comma or the end of the object");
	refused("[", 1, "a value");
	refused("[1", 2, "a comma or the end of the array");
	refused("[1,]", 3, "a value");
	refused("[1 2]", 3, "a comma or the end of the array");
	refused("nul", 0, "a value");
	refused("True", 0, "a value");
	refused("1 1", 2, "the end of the body");
	refused("{}}", 2, "the end of the body");
	refused("01", 1, "the end of the body");
	refused("-", 1, "a digit");
	refused("+1", 0, "a value");
	refused("1.", 2, "a digit after the point");
	refused(".5", 0, "a value");
	refused("1e", 2, "a digit of the exponent");
	refused("1e+", 3, "a digit of the exponent");
	refused("-x", 1, "a digit");
	refused("\"abc", 4, "the end of the string");
	refused("\"abc\\", 4, "a known escape");
	refused("\"\\x\"", 1, "a known escape");
	refused("\"\\u12g4\"", 1, "four hexadecimal digits");
	refused("\"\\u12\"", 1, "four hexadecimal digits");
	refused("\"a\nb\"", 2, "no control character");
	refused_bytes(SPAN("\"a\0b\""), 2, "no control character");
	refused_bytes(SPAN("1\0"), 1, "the end of the body");
	refused("\xef\xbb\xbf{}", 0, "a value");
	refused("[\"\xc3\xa4\", {\"x\":\"12345678\x80\"}]", 21, "valid UTF-8");
}
END_TEST

START_TEST(lone_surrogates_are_refused)
{
	const char *const lone[] = { "\"\\ud800\"",        "\"\\udc00\"",
				     "\"\\ud800\\ud800\"", "\"\\udc00\\ud800\"",
				     "\"\\ud800\\u0041\"", "\"\\ud800x\"",
				     "\"\\ud800\\n\"",     "\"\\uDBFF\\uE000\"",
				     "\"\\ud800\\udc0\"" };

	for (size_t i = 0; i < ARRAY_LEN(lone); i++)
		refused(lone[i], 1, "a surrogate with its other half");
}
END_TEST

START_TEST(invalid_utf8_is_refused)
{
	const char *const bad[] = { "\x80",
				    "\xbf",
				    "\xc0\x80",
				    "\xc1\xbf",
				    "\xc2",
				    "\xc2\x20",
				    "\xc2\xc2",
				    "\xe0\x80\x80",
				    "\xe0\x9f\xbf",
				    "\xe2\x82",
				    "\xed\xa0\x80",
				    "\xed\xbf\xbf",
				    "\xf0\x80\x80\x80",
				    "\xf0\x8f\xbf\xbf",
				    "\xf0\x9f\x98",
				    "\xf4\x90\x80\x80",
				    "\xf5\x80\x80\x80",
				    "\xff",
				    "\xf8\x88\x80\x80\x80" };
	const char *const good[] = { "\xc2\x80",         "\xdf\xbf",        "\xe0\xa0\x80",
				     "\xed\x9f\xbf",     "\xee\x80\x80",    "\xef\xbf\xbf",
				     "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf" };
	char body[64];

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		snprintf(body, sizeof(body), "\"%s", bad[i]);
		refused(body, 1, "valid UTF-8");
		snprintf(body, sizeof(body), "\"%s1234567890\"", bad[i]);
		refused(body, 1, "valid UTF-8");
	}
	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		snprintf(body, sizeof(body), "\"%s\"", good[i]);
		becomes(body, body);
	}
}
END_TEST

START_TEST(a_name_may_not_come_twice)
{
	refused("{\"a\":1,\"a\":1}", 7, "a name that the object does not have yet");
	refused("{\"a\":1,\"\\u0061\":2}", 7, "a name that the object does not have yet");
	refused("{\"b\":1,\"a\":1,\"b\":1}", 13, "a name that the object does not have yet");
	refused("[{\"\\n\":1,\"a\":1,\"\\u000a\":1}]", 15,
		"a name that the object does not have yet");
	refused("{\"x\":{\"c\":0,\"b\":0,\"b\":0},\"a\":1}", 18,
		"a name that the object does not");
	refused("{\"\":1,\"\":2}", 6, "a name that the object does not have yet");
	becomes("{\"a\":{\"a\":{\"a\":1}}}", "{\"a\":{\"a\":{\"a\":1}}}");
}
END_TEST

START_TEST(a_media_type_has_its_canonicaliser)
{
	struct span body = SPAN("{}");
	struct {
		const char *type, *name;
	} cases[] = {
		{ "application/json", "json" },
		{ "Application/JSON; charset=utf-8", "json" },
		{ "application/problem+json", "json" },
		{ "application/vnd.api+JSON ; v=1", "json" },
		{ "application/x-www-form-urlencoded", "form" },
		{ "Application/X-WWW-Form-Urlencoded;charset=UTF-8", "form" },
		{ "multipart/form-data; boundary=b", "multipart" },
		{ "Multipart/Form-Data;BOUNDARY=b", "multipart" },
		{ "multipart/mixed; boundary=b", "raw" },
		{ "application/json5", "raw" },
		{ "application/jsonp", "raw" },
		{ "text/plain", "raw" },
		{ "+json", "raw" },
		{ "json", "raw" },
		{ "application/json, text/plain", "raw" },
		{ "", "raw" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		ck_assert_str_eq(
			canonical_for(CANONICAL_AUTO, span_of(cases[i].type), body)->name,
			cases[i].name);
	ck_assert_str_eq(canonical_for(CANONICAL_JSON, SPAN("text/plain"), body)->name, "json");
	ck_assert_str_eq(canonical_for(CANONICAL_RAW, SPAN("application/json"), body)->name,
			 "raw");
	ck_assert_str_eq(
		canonical_for(CANONICAL_JSON, SPAN("application/json"), SPAN(""))->name, "raw");
}
END_TEST

START_TEST(raw_is_the_bytes)
{
	struct canonical_error error;
	struct to_buf to;

	ck_assert(canonical_by("raw", (struct canonical_task){ .body = SPAN("\x00\xff { ") },
			       &to, &error));
	ck_assert(span_equal(buf_view(&to.buf), SPAN("\x00\xff { ")));
	buf_fini(&to.buf);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		values_that_are_canonical_stay_as_they_are,
		white_space_does_not_count,
		members_are_put_in_order_at_every_depth,
		names_are_ordered_by_utf16_code_units,
		strings_are_escaped_as_rfc_8785_says,
		strings_are_not_unicode_normalised,
		equal_numbers_are_spelt_alike,
		a_number_is_not_the_string_of_its_digits,
		errors_say_where_and_what,
		lone_surrogates_are_refused,
		invalid_utf8_is_refused,
		a_name_may_not_come_twice,
		a_media_type_has_its_canonicaliser,
		raw_is_the_bytes,
	};

	return run("canonical", tests, ARRAY_LEN(tests));
}
