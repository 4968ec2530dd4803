/* The rules by which requests are compared: what the file says becomes what the digest works with,
 * and what cannot hold is said. */
#include "settings_loading.h"

#define REQUEST_OF(settings) ONE_GATED("request = { " settings " }")

static const struct {
	const char *settings, *line;
} errors[] = {
	{ "numbers = \"double\"", "3: `numbers` must be one of \"exact|ieee754\"" },
	{ "body = \"xml\"", "3: `body` must be one of \"auto|json|form|multipart|raw\"" },
	{ "defaults = \"[1]\"", "3: `defaults` must be a JSON object in quotes: at byte 0 an "
				"object was expected" },
	{ "defaults = \"{\\\"a\\\":}\"", "3: `defaults` must be a JSON object in quotes: at "
					 "byte 5 a value was expected" },
	{ "ignore = [\"a\"]", "3: `ignore`: \"a\" must begin with a slash" },
	{ "ignore = [\"\"]", "3: `ignore`: \"\" must begin with a slash" },
	{ "ignore = [\"/a~x\"]", "3: `ignore`: \"/a~x\" has a ~ that is neither ~0 nor ~1" },
	{ "ignore = [\"/a\", \"/a\"]", "3: \"/a\" stands there twice" },
	{ "ignore = [\"/a/*\", \"/a/1\"]", "3: `ignore`: \"/a/1\" has a * where another" },
	{ "only = [\"x\"]", "3: `only`: \"x\" must begin with a slash" },
	{ "ignore = [\"/a\"] only = [\"/a\"]", "3: `only`: \"/a\" is left out by `ignore`" },
	{ "ignore = [\"/a\"]\nonly = [\"/b\",\n\"/a/c\"]",
	  "5: `only`: \"/a/c\" is left out by `ignore`" },
	{ "body = \"raw\" ignore = [\"/a\"]",
	  "3: `ignore` has no effect where body = \"raw\"" },
	{ "body = \"raw\" numbers = \"exact\"", "3: `numbers` has no effect where" },
	{ "body = \"form\" numbers = \"exact\"", "3: `numbers` has no effect where" },
	{ "body = \"multipart\" defaults = \"{}\"", "3: `defaults` has no effect where" },
	{ "body = \"form\" ignore = [\"/a/b\"]", "3: \"/a/b\" has more than one step" },
	{ "headers = [\"Authorization\"]",
	  "3: `headers`: \"Authorization\" is a credential: a retry may come with a fresh one, "
	  "and cannot count" },
	{ "headers = [\"cookie\"]", "3: `headers`: \"cookie\" is a credential" },
	{ "headers = [\"DATE\"]", "3: `headers`: \"DATE\" differs from one retry to the next" },
	{ "headers = [\"traceparent\"]", "3: `headers`: \"traceparent\" differs" },
	{ "headers = [\"X-B3-SpanId\"]", "3: `headers`: \"X-B3-SpanId\" differs" },
	{ "headers = [\"Idempotency-Key\"]", "3: `headers`: \"Idempotency-Key\" is the key" },
	{ "headers = [\"Connection\"]", "3: `headers`: \"Connection\" is for one connection" },
	{ "headers = [\"X Y\"]", "3: `headers`: \"X Y\" is no name of a header field" },
	{ "headers = [\"A\",\n\"a\"]", "\"a\" stands there twice" },
	{ "query = [\"*\", \"a\"]", "3: `query`: \"*\" is every parameter, and stands alone" },
	{ "query = [\"a&b\"]", "3: `query`: \"a&b\" is no name of a parameter" },
	{ "query = [\"\"]", "3: `query`: \"\" is no name of a parameter" },
	{ "query = [\"a\", \"%61\"]", "3: \"a\" stands there twice" },
};

START_TEST(an_error_is_said_with_its_line)
{
	struct buf text;

	buf_init(&text, 65536);
	buf_format(&text, ONE_GATED("request = { %s }"), errors[_i].settings);
	buf_byte(&text, 0);
	if (errors[_i].line[0] == '"') { /* whichever of two lines it is */
		ck_assert(!load(text.at));
		ck_assert_ptr_nonnull(strstr(said.at, errors[_i].line));
	} else {
		must_fail(text.at, errors[_i].line);
	}
	buf_fini(&text);
}
END_TEST

static const struct digest_rules *rules(void)
{
	return &loaded->routes[0].idempotency->rules;
}

START_TEST(without_a_word_all_of_a_request_counts)
{
	must_load_silently(ONE_GATED(""));
	ck_assert_int_eq(rules()->body, CANONICAL_AUTO);
	ck_assert_int_eq(rules()->numbers, CANONICAL_EXACT);
	ck_assert_ptr_null(rules()->members);
	ck_assert_uint_eq(rules()->n_headers, 0);
	ck_assert(!rules()->query_listed);
	ck_assert_uint_eq(rules()->decoded_max, 1 << 20);
	ck_assert_int_eq(rules()->id, digest_rules_id(rules()));
}
END_TEST

static int64_t id_of(const char *text)
{
	must_load_silently(text);
	return rules()->id;
}

START_TEST(every_rule_is_in_the_text_of_the_rules)
{
	struct arena *arena = arena_new();
	struct span text = { 0 };

	must_load_silently(REQUEST_OF("version = 3 body = \"json\" numbers = \"ieee754\" "
				      "defaults = \"{ \\\"n\\\": 1e0 }\" "
				      "ignore = [\"/time\", \"/items/*/at\"] only = [\"/n\", "
				      "\"/items\"] headers = [\"X-B\", \"API-Version\"] "
				      "query = [\"b\", \"%61\"]"));
	text = digest_rules_text(arena, rules());
	ck_assert(span_equal(
		text,
		SPAN("layout 3; version 3; body json; numbers ieee754; query a b; headers "
		     "api-version x-b; defaults {\"n\":1} (\"n\" 1e0); ignore \"/items/*/at\" "
		     "\"/time\"; "
		     "only \"/items\" \"/n\"")));
	arena_free(arena);
}
END_TEST

START_TEST(the_order_in_the_file_is_no_rule)
{
	ck_assert_int_eq(id_of(REQUEST_OF("ignore = [\"/a\", \"/b\"] headers = [\"X\", \"y\"] "
					  "query = [\"a\", \"b\"]")),
			 id_of(REQUEST_OF("query = [\"b\", \"a\"] headers = [\"Y\", \"x\"] "
					  "ignore = [\"/b\", \"/a\"]")));
	ck_assert_int_eq(id_of(REQUEST_OF("query = [\"*\"]")), id_of(REQUEST_OF("")));
	ck_assert_int_ne(id_of(REQUEST_OF("query = []")), id_of(REQUEST_OF("")));
	ck_assert_int_eq(id_of(REQUEST_OF("max_body = \"2MiB\"")), id_of(REQUEST_OF("")));
	ck_assert_int_eq(id_of(REQUEST_OF("defaults = \"{\\\"a\\\":1,\\\"b\\\":2}\"")),
			 id_of(REQUEST_OF("defaults = \"{ \\\"b\\\":2, \\\"a\\\":1 }\"")));
	ck_assert_int_ne(id_of(REQUEST_OF("defaults = \"{\\\"a\\\":2}\"")), /* in a form */
			 id_of(REQUEST_OF("defaults = \"{\\\"a\\\":2.0}\"")));
}
END_TEST

START_TEST(two_routes_of_one_operation_have_one_set_of_rules)
{
	must_fail(COMMON "routes = (" ROUTE_OF(
			  "POST /a", GATED("request = { ignore = [\"/a\"] "
					   "}")) ",\n" ROUTE_OF("POST /b", GATED("")) ")",
		  "4: operation `op` has another `ignore` here than on line 3");
}
END_TEST

START_TEST(what_is_compared_is_explained)
{
	struct buf out;

	buf_init(&out, 65536);
	must_load_silently(REQUEST_OF("ignore = [\"/time\"]"));
	settings_explain(loaded, &out);
	buf_byte(&out, 0);
	ck_assert_ptr_nonnull(strstr(out.at, "compared by layout 3; version 1; body auto; "
					     "numbers exact; query *; ignore \"/time\"\n"));
	buf_fini(&out);
}
END_TEST

START_TEST(a_list_of_pointers_is_bounded)
{
	struct buf text;

	buf_init(&text, 65536);
	buf_text(&text, COMMON "routes = ({ match = \"POST /a\" upstream = \"api\" idempotency "
			       "= { operation = \"op\" account = \"main\" request = { ignore = "
			       "[\"/x\"");
	for (unsigned i = 0; i < 64; i++)
		buf_format(&text, ", \"/%u\"", i);
	buf_text(&text, "] } } })");
	buf_byte(&text, 0);
	must_fail(text.at, "3: `ignore` has more than 64 pointers");
	buf_fini(&text);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("settings_request");
	TCase *tests = tcase_create("settings_request");
	SRunner *runner = srunner_create(suite);
	int failed = 0;

	suite_add_tcase(suite, tests);
	tcase_add_checked_fixture(tests, begin_loading, end_loading);
	tcase_add_loop_test(tests, an_error_is_said_with_its_line, 0, ARRAY_LEN(errors));
	tcase_add_test(tests, without_a_word_all_of_a_request_counts);
	tcase_add_test(tests, every_rule_is_in_the_text_of_the_rules);
	tcase_add_test(tests, the_order_in_the_file_is_no_rule);
	tcase_add_test(tests, two_routes_of_one_operation_have_one_set_of_rules);
	tcase_add_test(tests, what_is_compared_is_explained);
	tcase_add_test(tests, a_list_of_pointers_is_bounded);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
