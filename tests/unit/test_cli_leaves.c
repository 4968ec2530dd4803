/* Canonical bodies, taken apart for people: names, values, and what differs between two. */
#include "cli_leaves.h"

#include "unit_run.h"

static struct arena *arena;
static struct buf shown;

static const struct canonicaliser *kind_of(enum canonical_body body)
{
	const struct canonicaliser *row = canonicalisers;

	while (row->body != body)
		row++;
	return row;
}

static void begin(void)
{
	arena = arena_new();
	buf_init(&shown, SIZE_MAX);
}

static void end(void)
{
	buf_fini(&shown);
	arena_free(arena);
}

/* A list of a body as somebody sends it. */
static struct leaves leaves(enum canonical_body body, const char *type, struct span bytes)
{
	struct canonical_task task = { .arena = arena,
				       .body = bytes,
				       .content_type = span_of(type) };
	struct leaves made = { .arena = arena };
	struct canonical_error error = { 0 };
	struct buf out;
	struct canonical_buf sink;

	buf_init(&out, SIZE_MAX);
	sink = canonical_to(&out);
	ck_assert(kind_of(body)->run(&task, &sink.sink, &error));
	leaves_of(kind_of(body), arena_copy(arena, buf_view(&out)), &made);
	buf_clear(&shown);
	leaves_show(kind_of(body), &made, arena_copy(arena, buf_view(&out)), &shown);
	buf_byte(&shown, 0);
	buf_fini(&out);
	return made;
}

static struct leaves json(const char *text)
{
	return leaves(CANONICAL_JSON, "application/json", span_of(text));
}

static struct leaves form(const char *text)
{
	return leaves(CANONICAL_FORM, "application/x-www-form-urlencoded", span_of(text));
}

/* "label=value" lines. */
static void are(const struct leaves *list, const char *expected)
{
	struct buf out;

	buf_init(&out, SIZE_MAX);
	for (size_t i = 0; i < list->n; i++)
		buf_format(&out, "%.*s=%.*s\n", (int)list->at[i].label.len,
			   list->at[i].label.at, (int)list->at[i].value.len,
			   list->at[i].value.at);
	buf_byte(&out, 0);
	ck_assert_str_eq(out.at, expected);
	buf_fini(&out);
}

/* "label first second" lines; "-" where absent. */
static void differ(struct leaves first, struct leaves second, const char *expected,
		   bool reordered)
{
	struct leaf_differences found = leaves_differ(&first, &second);
	struct buf out;

	buf_init(&out, SIZE_MAX);
	for (size_t i = 0; i < found.n; i++) {
		const struct leaf_difference *d = &found.at[i];
		struct span a = d->first ? d->first->value : SPAN("-");
		struct span b = d->second ? d->second->value : SPAN("-");

		struct span label = leaf_difference_label(d);

		buf_format(&out, "%.*s %.*s %.*s\n", (int)label.len, label.at, (int)a.len, a.at,
			   (int)b.len, b.at);
	}
	buf_byte(&out, 0);
	ck_assert_str_eq(out.at, expected);
	ck_assert(found.reordered == reordered);
	buf_fini(&out);
}

START_TEST(every_scalar_and_every_empty_thing_is_a_leaf)
{
	struct leaves list;

	begin();
	list = json("{\"b\":[1,\"x\",[],{\"c\":null}],\"a\":{},\"d\":{\"e\":true}}");
	are(&list, "/a={}\n/b/0=1\n/b/1=\"x\"\n/b/2=[]\n/b/3/c=null\n/d/e=true\n");
	list = json("\"alone\"");
	are(&list, "=\"alone\"\n");
	list = json("[]");
	are(&list, "=[]\n");
	list = json(" -0.50 ");
	are(&list, "=-0.5\n");
	end();
}
END_TEST

START_TEST(labels_are_json_pointers)
{
	struct leaves list;

	begin();
	list = json("{\"\":1,\"a/b\":2,\"m~n\":3,\"q\\\"\\\\\":4,\"{[,:]}\":5}");
	are(&list, "/=1\n/a~1b=2\n/m~0n=3\n/q\\\"\\\\=4\n/{[,:]}=5\n");
	end();
}
END_TEST

START_TEST(numbers_are_written_out_where_people_would)
{
	struct leaves list;

	begin();
	list = json("[1000000,12e5,1e20,1e21,5e-7,-3e3,123456e4,0,\"1e6\"]");
	are(&list, "/0=1000000\n/1=1200000\n/2=100000000000000000000\n/3=1e21\n/4=5e-7\n"
		   "/5=-3000\n/6=1234560000\n/7=0\n/8=\"1e6\"\n");
	end();
}
END_TEST

START_TEST(json_is_shown_with_a_line_for_each_value)
{
	begin();
	json("{\"b\":[1e6,{}],\"a\":\"x,{\\\"\",\"c\":{\"d\":[]}}");
	ck_assert_str_eq(shown.at,
			 "{\n  \"a\": \"x,{\\\"\",\n  \"b\": [\n    1000000,\n    {}\n  "
			 "],\n  \"c\": {\n    \"d\": []\n  }\n}\n");
	json("[]");
	ck_assert_str_eq(shown.at, "[]\n");
	json("\"\xc2\x9b and \x7f\"");
	ck_assert_str_eq(shown.at, "\"\\u009b and \\u007f\"\n");
	end();
}
END_TEST

START_TEST(differences_come_in_the_order_of_the_first_then_of_the_second)
{
	begin();
	differ(json("{\"a\":1,\"b\":{\"c\":[1,2],\"d\":\"x\"},\"z\":1.0}"),
	       json("{\"z\":1,\"b\":{\"c\":[2],\"d\":\"y\",\"e\":null},\"A\":0,\"a\":{\"f\":1}"
		    "}"),
	       "/a 1 -\n/b/c/0 1 2\n/b/c/1 2 -\n/b/d \"x\" \"y\"\n/A - 0\n/a/f - 1\n/b/e - "
	       "null\n",
	       false);
	differ(json("{\"a\":10E-1,\"b\":2}"), json("{\"b\":2.00,\"a\":1}"), "", false);
	differ(json("[]"), json("{}"), " [] {}\n", false);
	end();
}
END_TEST

START_TEST(fields_of_a_form_have_a_step_as_label)
{
	struct leaves list;

	begin();
	list = form("b=x+y&a=%C3%A9&b=%22&a%2Fb=&%7E=1&b");
	are(&list, "/a=\"\xc3\xa9\"\n/a~1b=\"\"\n/b=\"x y\"\n/b (2)=\"\\\"\"\n/b (3)=\"\"\n"
		   "/~0=\"1\"\n");
	ck_assert_str_eq(shown.at,
			 "/a = \"\xc3\xa9\"\n/a~1b = \"\"\n/b = \"x y\"\n/b (2) = \"\\\"\"\n"
			 "/b (3) = \"\"\n/~0 = \"1\"\n");
	differ(form("a=1&b=2&b=3"), form("b=2&b=4&c=5"),
	       "/a \"1\" -\n/b (2) \"3\" \"4\"\n/c - \"5\"\n", false);
	list = form("&&");
	ck_assert_uint_eq(list.n, 0);
	ck_assert_str_eq(shown.at, "(nothing)\n");
	end();
}
END_TEST

#define PART(disposition, body)                                                                \
	"--x\r\nContent-Disposition: form-data; " disposition "\r\n\r\n" body "\r\n"
#define LAST "--x--\r\n"

static struct leaves parts(const char *text)
{
	return leaves(CANONICAL_MULTIPART, "multipart/form-data; boundary=x", span_of(text));
}

START_TEST(parts_are_named_and_long_ones_are_hashed)
{
	struct leaves list;

	begin();
	list = parts(PART("name=a", "text") PART("name=\"b\"; filename=\"f.bin\"", "\x01")
			     PART("name=a", "") LAST);
	are(&list, "/a=\"text\"\n/b=filename \"f.bin\", 1 bytes with SHA-256 "
		   "4bf5122f344554c53bde2ebb8cd2b7e3d1600ad631c385a5d7cce23c7785459a\n"
		   "/a (2)=\"\"\n");
	differ(parts(PART("name=a", "1") PART("name=b", "2") LAST),
	       parts(PART("name=a", "1") PART("name=b; filename=b", "2") LAST),
	       "/b \"2\" filename \"b\", \"2\"\n", false);
	end();
}
END_TEST

START_TEST(parts_in_another_order_are_said_to_be)
{
	begin();
	differ(parts(PART("name=a", "1") PART("name=b", "2") LAST),
	       parts(PART("name=b", "2") PART("name=a", "1") LAST), "", true);
	end();
}
END_TEST

START_TEST(other_bodies_are_one_leaf)
{
	struct leaves list;

	begin();
	list = leaves(CANONICAL_RAW, "", SPAN("a\033[31m"));
	are(&list, "=a\033[31m\n");
	ck_assert_str_eq(shown.at, "a\\u001b[31m\n");
	list = leaves(CANONICAL_RAW, "", SPAN(""));
	ck_assert_uint_eq(list.n, 0);
	differ(leaves(CANONICAL_RAW, "", SPAN("")), leaves(CANONICAL_RAW, "", SPAN("x")),
	       " - x\n", false);
	end();
}
END_TEST

START_TEST(deep_and_wide_bodies_are_taken_apart_too)
{
	struct leaves list;
	struct buf text;

	begin();
	buf_init(&text, SIZE_MAX);
	for (int i = 0; i < 127; i++)
		buf_text(&text, "[");
	for (int i = 0; i < 127; i++)
		buf_text(&text, "]");
	buf_byte(&text, 0);
	list = json(text.at);
	ck_assert_uint_eq(list.n, 1);
	ck_assert_uint_eq(list.at[0].label.len, 2 * 126);
	buf_clear(&text);
	buf_text(&text, "[0");
	for (int i = 1; i < 10000; i++)
		buf_format(&text, ",%d", i);
	buf_text(&text, "]");
	buf_byte(&text, 0);
	list = json(text.at);
	ck_assert_uint_eq(list.n, 10000);
	differ(list, list, "", false);
	buf_fini(&text);
	end();
}
END_TEST

START_TEST(long_labels_are_cut)
{
	struct leaves list;
	struct buf text;

	begin();
	buf_init(&text, SIZE_MAX);
	buf_text(&text, "{\"");
	for (int i = 0; i < 60000; i++)
		buf_byte(&text, 'a');
	buf_text(&text, "\":[0,1],\"b\":2}");
	buf_byte(&text, 0);
	list = json(text.at);
	ck_assert_uint_eq(list.n, 3);
	ck_assert_uint_eq(list.at[0].label.len, 1024 + 3);
	ck_assert_int_eq(memcmp(list.at[0].label.at + 1020, "aaaa...", 7), 0);
	ck_assert(span_equal(list.at[2].label, SPAN("/b")));
	buf_fini(&text);
	end();
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		every_scalar_and_every_empty_thing_is_a_leaf,
		labels_are_json_pointers,
		numbers_are_written_out_where_people_would,
		json_is_shown_with_a_line_for_each_value,
		differences_come_in_the_order_of_the_first_then_of_the_second,
		fields_of_a_form_have_a_step_as_label,
		parts_are_named_and_long_ones_are_hashed,
		parts_in_another_order_are_said_to_be,
		other_bodies_are_one_leaf,
		deep_and_wide_bodies_are_taken_apart_too,
		long_labels_are_cut,
	};

	return run("cli_leaves", tests, ARRAY_LEN(tests));
}
