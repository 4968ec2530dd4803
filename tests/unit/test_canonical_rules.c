/* Rules on JSON: what is left out, what alone counts, what absent members mean; and which rules
 * there cannot be. */
#include "canonical_rig.h"
#include "canonical_rules.h"

static struct arena *arena;

/* Pointers are separated by spaces. */
struct rule_texts {
	const char *ignore, *only, *defaults;
	enum canonical_numbers numbers;
};

static const char *add(struct canonical_rules *rules, const char *pointers,
		       const char *(*one)(struct canonical_rules *rules, struct span pointer))
{
	const char *why = NULL;

	while (pointers && *pointers && !why) {
		size_t len = strcspn(pointers, " ");

		why = one(rules, (struct span){ pointers, len });
		pointers += len + (pointers[len] == ' ');
	}
	return why;
}

static const struct canonical_rules *rules_of(struct rule_texts t)
{
	struct canonical_rules *rules = canonical_rules_new(arena, t.numbers);
	struct canonical_error error;

	ck_assert_ptr_null(add(rules, t.ignore, canonical_rules_ignore));
	ck_assert_ptr_null(add(rules, t.only, canonical_rules_only));
	if (t.defaults && !canonical_rules_defaults(rules, span_of(t.defaults), &error))
		ck_abort_msg("%s: refused at %zu: %s", t.defaults, error.offset,
			     error.expected);
	return rules;
}

static void under(struct rule_texts t, const char *body, const char *expected)
{
	struct canonical_task task = { .body = span_of(body),
				       .rules = rules_of(t),
				       .numbers = t.numbers };
	struct canonical_error error;
	struct to_buf to;

	if (!canonical_by("json", task, &to, &error))
		ck_abort_msg("%s: refused at %zu: %s", body, error.offset, error.expected);
	buf_byte(&to.buf, 0);
	ck_assert_msg(strcmp(to.buf.at, expected) == 0, "%s became %s, not %s", body, to.buf.at,
		      expected);
	buf_fini(&to.buf);
}

#define IGNORE(pointers)   ((struct rule_texts){ .ignore = (pointers) })
#define ONLY(pointers)     ((struct rule_texts){ .only = (pointers) })
#define DEFAULTS(json)     ((struct rule_texts){ .defaults = (json) })
#define BOTH(ignore, only) ((struct rule_texts){ (ignore), (only), NULL, 0 })

START_TEST(what_is_ignored_is_as_if_it_were_not_there)
{
	const struct rule_texts time = IGNORE("/time");

	under(time, "{\"a\":1}", "{\"a\":1}");
	under(time, "{\"a\":1,\"time\":2}", "{\"a\":1}");
	under(time, "{\"time\":2,\"a\":1}", "{\"a\":1}");
	under(time, "{\"z\":1,\"time\":{\"b\":[1,{\"y\":1,\"a\":2}],\"a\":3},\"b\":2}",
	      "{\"b\":2,\"z\":1}");
	under(time, "{\"time\":2}", "{}");
	under(time, "{}", "{}");
	under(time, "[{\"time\":2}]", "[{\"time\":2}]");
	under(time, "{\"a\":{\"time\":2}}", "{\"a\":{\"time\":2}}");
	under(time, "7", "7");
	under(IGNORE("/a /b"), "{\"b\":1,\"a\":2}", "{}");
	under(IGNORE("/a /c"), "{\"d\":1,\"c\":{\"z\":1,\"a\":1},\"b\":2,\"a\":3}",
	      "{\"b\":2,\"d\":1}");
	under(IGNORE("/a/b"), "{\"a\":{\"b\":1}}", "{\"a\":{}}");
	under(IGNORE("/a/b"), "{\"a\":{\"c\":0,\"b\":1},\"Z\":1}", "{\"Z\":1,\"a\":{\"c\":0}}");
	under(IGNORE("/a/b"), "{\"a\":5}", "{\"a\":5}");
	under(IGNORE("/a/b"), "{\"a\":[{\"b\":1}]}", "{\"a\":[{\"b\":1}]}");
}
END_TEST

START_TEST(a_star_is_any_index)
{
	const struct rule_texts each = IGNORE("/items/*/at");

	under(each, "{\"items\":[{\"at\":1,\"n\":2},{\"n\":3},{\"at\":4}]}",
	      "{\"items\":[{\"n\":2},{\"n\":3},{}]}");
	under(each, "{\"items\":[1,\"x\",[{\"at\":1}],null]}",
	      "{\"items\":[1,\"x\",[{\"at\":1}],null]}");
	under(each, "{\"items\":[]}", "{\"items\":[]}");
	under(each, "{\"items\":{\"*\":{\"at\":1,\"b\":2},\"0\":{\"at\":1}}}",
	      "{\"items\":{\"*\":{\"b\":2},\"0\":{\"at\":1}}}");
	under(IGNORE("/*/*/x"), "[[{\"x\":1}],[{\"x\":2,\"a\":1},{\"x\":3}]]",
	      "[[{}],[{\"a\":1},{}]]");
	under(IGNORE("/a/*"), "{\"a\":[1,{\"b\":1,\"a\":2},3]}", "{\"a\":[]}");
	under(IGNORE("/0"), "[1,2,3]", "[2,3]");
	under(IGNORE("/1"), "[1,{\"z\":1,\"a\":1},3]", "[1,3]");
	under(IGNORE("/2"), "[1,2,3]", "[1,2]");
	under(IGNORE("/01 /-"), "[1,2]", "[1,2]");
	under(IGNORE("/0"), "{\"0\":1,\"1\":2}", "{\"1\":2}");
}
END_TEST

START_TEST(only_what_is_kept_counts)
{
	under(ONLY("/a"), "{\"b\":2,\"a\":{\"z\":1,\"b\":1}}", "{\"a\":{\"b\":1,\"z\":1}}");
	under(ONLY("/a /c"), "{\"c\":1,\"b\":2,\"a\":3}", "{\"a\":3,\"c\":1}");
	under(ONLY("/a/b"), "{\"a\":{\"b\":1,\"c\":2},\"b\":3}", "{\"a\":{\"b\":1}}");
	under(ONLY("/items/*/sku"), "{\"items\":[{\"sku\":1,\"n\":2},{\"n\":3}],\"x\":1}",
	      "{\"items\":[{\"sku\":1},{}]}");
	under(ONLY("/1"), "[5,{\"b\":1,\"a\":2},7]", "[{\"a\":2,\"b\":1}]");
	/* what has no place for the pointer is kept whole: that refuses more, and takes for the
	 * same less */
	under(ONLY("/a/b"), "{\"a\":5}", "{\"a\":5}");
	under(ONLY("/a/b"), "{\"a\":[{\"b\":1}]}", "{\"a\":[{\"b\":1}]}");
	under(ONLY("/a"), "[1,2]", "[1,2]");
	under(ONLY("/a"), "\"x\"", "\"x\"");
	under(BOTH("/a/time", "/a"), "{\"a\":{\"time\":1,\"n\":2},\"b\":1}",
	      "{\"a\":{\"n\":2}}");
	under(BOTH("/a/*/t", "/a"), "{\"a\":[{\"t\":1,\"n\":2}],\"b\":1}",
	      "{\"a\":[{\"n\":2}]}");
}
END_TEST

START_TEST(a_body_without_anything_that_is_kept_counts_whole)
{
	under(ONLY("/a"), "{\"c\":1,\"b\":2}", "{\"b\":2,\"c\":1}");
	under(ONLY("/a"), "{}", "{}");
	under(ONLY("/a/b"), "{\"a\":{\"c\":2},\"Z\":3}", "{\"Z\":3,\"a\":{\"c\":2}}");
	under(ONLY("/payment/amount"), "{\"Payment\":{\"Amount\":5}}",
	      "{\"Payment\":{\"Amount\":5}}");
	under(BOTH("/t", "/a"), "{\"t\":1,\"b\":2}", "{\"b\":2}");
	under(BOTH("/t", "/a"), "{\"t\":1,\"b\":2,\"a\":3}", "{\"a\":3}");
	under(ONLY("/a"), "[{\"a\":1}]", "[{\"a\":1}]");
	under(ONLY("/a/b"), "{\"a\":5,\"c\":1}", "{\"a\":5,\"c\":1}");
	/* an object in place of an array, and beside what is kept */
	under(ONLY("/items/*/id"), "{\"items\":{\"x\":{\"id\":1}}}",
	      "{\"items\":{\"x\":{\"id\":1}}}");
	under(ONLY("/items/*/id /id"), "{\"items\":{\"x\":{\"id\":1}},\"id\":2,\"t\":3}",
	      "{\"id\":2,\"items\":{\"x\":{\"id\":1}}}");
	under(ONLY("/items/0/id"), "{\"items\":{\"0\":{\"id\":1},\"t\":2}}",
	      "{\"items\":{\"0\":{\"id\":1},\"t\":2}}");
	/* a default is not in the body, and what it adds is only what is kept */
	under((struct rule_texts){ NULL, "/n", "{\"n\":1,\"m\":2}", 0 }, "{\"m\":3}",
	      "{\"m\":3,\"n\":1}");
	under((struct rule_texts){ NULL, "/n", "{\"m\":2}", 0 }, "{\"n\":3}", "{\"n\":3}");
}
END_TEST

START_TEST(defaults_stand_for_what_is_absent)
{
	const struct rule_texts two =
		DEFAULTS("{\"n\":1,\"ship\":{\"fast\":false,\"to\":[1]}}");

	under(two, "{}", "{\"n\":1,\"ship\":{\"fast\":false,\"to\":[1]}}");
	under(two, "{\"n\":1.0}", "{\"n\":1,\"ship\":{\"fast\":false,\"to\":[1]}}");
	under(two, "{\"ship\":{},\"z\":0}",
	      "{\"n\":1,\"ship\":{\"fast\":false,\"to\":[1]},\"z\":0}");
	under(two, "{\"ship\":{\"to\":[],\"by\":\"air\"},\"n\":2}",
	      "{\"n\":2,\"ship\":{\"by\":\"air\",\"fast\":false,\"to\":[]}}");
	under(two, "{\"ship\":null}", "{\"n\":1,\"ship\":null}");
	under(two, "{\"ship\":[{}]}", "{\"n\":1,\"ship\":[{}]}");
	under(two, "[{}]", "[{}]");
	under(two, "3", "3");
	under(DEFAULTS("{\"\\u0061\\n\\\"\":\"\\u0062\"}"), "{\"b\":1}",
	      "{\"a\\n\\\"\":\"b\",\"b\":1}");
	under(DEFAULTS("{\"\\u0061\\n\\\"\":\"\\u0062\"}"), "{\"a\\u000a\\u0022\":2}",
	      "{\"a\\n\\\"\":2}");
	under(DEFAULTS("{\"a\":{\"0\":{\"x\":1}}}"), "{\"a\":[{},{}]}", "{\"a\":[{},{}]}");
	under(DEFAULTS("{\"a\":{\"*\":{\"x\":1}}}"), "{\"a\":[{},{}]}", "{\"a\":[{},{}]}");
	under(DEFAULTS("{ }"), "{\"b\":1}", "{\"b\":1}");
	under((struct rule_texts){ "/n", NULL, "{\"n\":1,\"m\":{\"a\":1}}", 0 }, "{}",
	      "{\"m\":{\"a\":1}}");
	under((struct rule_texts){ "/m/a", NULL, "{\"m\":{\"a\":1}}", 0 }, "{}", "{\"m\":{}}");
	under((struct rule_texts){ "/m/a", NULL, "{\"m\":{\"a\":1}}", 0 }, "{\"m\":{\"a\":3}}",
	      "{\"m\":{}}");
	under((struct rule_texts){ NULL, NULL, "{\"n\":1e2}", CANONICAL_IEEE754 }, "{}",
	      "{\"n\":100}");
}
END_TEST

START_TEST(what_does_not_count_is_read_all_the_same)
{
	static const struct {
		const char *ignore, *body;
		size_t offset;
	} cases[] = {
		{ "/a", "{\"a\":1,\"a\":2}", 7 },
		{ "/a", "{\"a\":1,\"b\":2,\"a\":2}", 13 },
		{ "/a", "{\"b\":1,\"a\":1,\"b\":2}", 13 },
		{ "/a", "{\"b\":1,\"a\":{\"x\":1,\"x\":2}}", 18 },
		{ "/a", "{\"a\":01}", 6 },
		{ "/a", "{\"a\":1,}", 7 },
		{ "/*", "[1,]", 3 },
		{ "/*/a", "[{\"a\":1,\"a\":1}]", 8 },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct canonical_task task = { .body = span_of(cases[i].body),
					       .rules = rules_of(IGNORE(cases[i].ignore)) };
		struct canonical_error error;
		struct to_buf to;

		ck_assert_msg(!canonical_by("json", task, &to, &error), "%s", cases[i].body);
		ck_assert_msg(error.offset == cases[i].offset, "%s: %zu", cases[i].body,
			      error.offset);
		buf_fini(&to.buf);
	}
}
END_TEST

START_TEST(a_default_never_comes_twice)
{
	struct canonical_task task = { .body = SPAN("{\"m\":{},\"m\":{},\"m\":{}}"),
				       .rules = rules_of(DEFAULTS(
					       "{\"m\":{\"long\":\"0123456789abcdef\"}}")) };
	struct canonical_error error;
	struct to_buf to;

	ck_assert(!canonical_by("json", task, &to, &error));
	ck_assert_uint_eq(error.offset, 8);
	buf_fini(&to.buf);
}
END_TEST

START_TEST(pointers_are_those_of_rfc_6901)
{
	under(IGNORE("/a~1b /m~0n /~01"), "{\"a/b\":1,\"m~n\":2,\"~1\":3,\"x\":4}",
	      "{\"x\":4}");
	under(IGNORE("/"), "{\"\":1,\"a\":2}", "{\"a\":2}");
	under(IGNORE("/a//b"), "{\"a\":{\"\":{\"b\":1,\"c\":2}}}", "{\"a\":{\"\":{\"c\":2}}}");
	under(IGNORE("/\xc3\xa4 /\" /\\"), "{\"\\u00e4\":1,\"\\\"\":2,\"\\\\\":3,\"x\":4}",
	      "{\"x\":4}");
}
END_TEST

START_TEST(a_pointer_that_cannot_hold_is_refused)
{
	static const struct {
		const char *ignore, *only, *why;
	} cases[] = {
		{ "a", NULL, "must begin with a slash" },
		{ "/a~", NULL, "neither ~0 nor ~1" },
		{ "/a~2", NULL, "neither ~0 nor ~1" },
		{ "/\xff", NULL, "UTF-8" },
		{ "/a/* /a/0", NULL, "write one of them" },
		{ "/a/0/b", "/a/*/c", "write one of them" },
		{ "/a", "/a", "left out by `ignore`" },
		{ "/a", "/a/b", "left out by `ignore`" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct canonical_rules *rules = canonical_rules_new(arena, CANONICAL_EXACT);
		const char *why = add(rules, cases[i].ignore, canonical_rules_ignore);

		if (!why)
			why = add(rules, cases[i].only, canonical_rules_only);
		ck_assert_msg(why && strstr(why, cases[i].why), "%s %s: %s", cases[i].ignore,
			      cases[i].only, why);
	}
	ck_assert_str_eq(
		canonical_rules_ignore(canonical_rules_new(arena, CANONICAL_EXACT), SPAN("")),
		"must begin with a slash");
}
END_TEST

START_TEST(defaults_are_an_object)
{
	static const struct {
		const char *json;
		size_t offset;
	} cases[] = { { "", 0 },    { "[]", 0 },       { "1", 0 },
		      { "{", 1 },   { "{\"a\":}", 5 }, { "{\"a\":1,\"a\":2}", 7 },
		      { "{} x", 3 } };
	struct buf large;

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct canonical_error error;

		ck_assert(!canonical_rules_defaults(canonical_rules_new(arena, CANONICAL_EXACT),
						    span_of(cases[i].json), &error));
		ck_assert_msg(error.offset == cases[i].offset, "%s: %zu", cases[i].json,
			      error.offset);
	}
	long_body(&large, "{\"a\":\"", "x", CANONICAL_DEFAULTS_MAX, "\"}");
	ck_assert(!canonical_rules_defaults(canonical_rules_new(arena, CANONICAL_EXACT),
					    buf_view(&large), &(struct canonical_error){ 0 }));
	buf_fini(&large);
}
END_TEST

/* The body that needs the most for its rules: canonical_by compares what it took. */
START_TEST(memory_is_bounded_where_members_are_left_out)
{
	static const struct {
		const char *fill, *ignore;
	} cases[] = { { "{\"\":1},", "/*/" },
		      { "{\"\":1,\"a\":1},", "/*/" },
		      { "{\"a\":{\"b\":1,\"a\":1}},", "/*/a" },
		      { "{\"b\":1,\"a\":1,\"\":1},", "/*/ /*/a" } };

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct canonical_task task = { .rules = rules_of(IGNORE(cases[i].ignore)) };
		struct canonical_error error;
		struct to_buf to;
		struct buf body;

		task.body = long_body(&body, "[", cases[i].fill, 20000, "{}]");
		ck_assert(canonical_by("json", task, &to, &error));
		buf_fini(&to.buf);
		buf_fini(&body);
	}
}
END_TEST

static void setup(void)
{
	arena = arena_new();
}

static void teardown(void)
{
	arena_free(arena);
}

int main(void)
{
	const TTest *const tests[] = {
		what_is_ignored_is_as_if_it_were_not_there,
		a_star_is_any_index,
		only_what_is_kept_counts,
		a_body_without_anything_that_is_kept_counts_whole,
		defaults_stand_for_what_is_absent,
		what_does_not_count_is_read_all_the_same,
		a_default_never_comes_twice,
		pointers_are_those_of_rfc_6901,
		a_pointer_that_cannot_hold_is_refused,
		defaults_are_an_object,
		memory_is_bounded_where_members_are_left_out,
	};
	int failed = 0;

	setup();
	failed = run("canonical rules", tests, ARRAY_LEN(tests));
	teardown();
	return failed;
}
