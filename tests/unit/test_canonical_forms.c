/* Forms: of names and values in a line, and of parts. */
#include "canonical_rig.h"
#include "canonical_rules.h"

static void form(const struct canonical_rules *rules, const char *body, const char *expected)
{
	struct canonical_task task = { .body = span_of(body), .rules = rules };
	struct canonical_error error;
	struct to_buf to;

	ck_assert(canonical_by("form", task, &to, &error));
	buf_byte(&to.buf, 0);
	ck_assert_msg(strcmp(to.buf.at, expected) == 0, "%s became %s, not %s", body, to.buf.at,
		      expected);
	buf_fini(&to.buf);
}

START_TEST(fields_are_sorted_and_equal_names_keep_their_order)
{
	form(NULL, "b=2&a=1", "a=1&b=2");
	form(NULL, "a=2&b=x&a=1&a=3", "a=2&a=1&a=3&b=x");
	form(NULL, "b&a&&ab&", "a=&ab=&b=");
	form(NULL, "=&=b&a", "=&=b&a=");
	form(NULL, "=&=x&z=1&y=1&=w", "=&=x&=w&y=1&z=1");
	form(NULL, "=x&=&z=1&y=1&=w", "=x&=&=w&y=1&z=1");
	form(NULL, "z=1&y=2&x=3&w=4&v=5&u=6&z=0&y=0", "u=6&v=5&w=4&x=3&y=2&y=0&z=1&z=0");
}
END_TEST

START_TEST(spelling_of_fields_does_not_count)
{
	form(NULL, "a+b=c%20d", "a+b=c+d");
	form(NULL, "%61=%7e%2D%2e", "a=%7E-.");
	form(NULL, "a=%", "a=%25");
	form(NULL, "a=%zz%4", "a=%25zz%254");
	form(NULL, "a==b", "a=%3Db");
	form(NULL, "a=%26&b=%2b", "a=%26&b=%2B");
	form(NULL, "\xc3\xa4=%c3%a4", "%C3%A4=%C3%A4");
	form(NULL, "a=%ff&b=%fe", "a=%FF&b=%FE"); /* no UTF-8, and not the same */
	form(NULL, "a=%00", "a=%00");
	form(NULL, "&&", "");
}
END_TEST

START_TEST(rules_speak_of_fields)
{
	struct arena *arena = arena_new();
	struct canonical_rules *ignore = canonical_rules_new(arena, CANONICAL_EXACT);
	struct canonical_rules *only = canonical_rules_new(arena, CANONICAL_EXACT);
	struct canonical_rules *defaults = canonical_rules_new(arena, CANONICAL_EXACT);
	struct canonical_rules *below = canonical_rules_new(arena, CANONICAL_EXACT);
	struct canonical_rules *literal = canonical_rules_new(arena, CANONICAL_IEEE754);
	struct canonical_error error;

	ck_assert_ptr_null(canonical_rules_only(below, SPAN("/payment/amount")));
	ck_assert_ptr_null(canonical_rules_only(below, SPAN("/id")));
	ck_assert(canonical_rules_defaults(
		literal,
		SPAN(" { \"\\u0061\" : 1000 , \"b\":0.005,\"o\":{\"x\":[1,\"}\"]} "
		     ",\"c\":1.50\n,"
		     "\"d\":-1E2 } "),
		&error));
	ck_assert_ptr_null(canonical_rules_ignore(ignore, SPAN("/client time")));
	ck_assert_ptr_null(canonical_rules_only(only, SPAN("/a~1b")));
	ck_assert(canonical_rules_defaults(
		defaults, SPAN("{\"n\":1,\"s\":\"x y\",\"t\":true,\"o\":{},\"z\":null}"),
		&error));
	form(ignore, "client+time=1&a=2&client%20time=3", "a=2");
	form(only, "a=1&a%2fb=2&c=3", "a%2Fb=2");
	form(only, "c=3&a=1", "a=1&c=3"); /* nothing of it: all counts */
	form(only, "c=3&a%2fb[x]=1&a%2fb.y=2", "a%2Fb.y=2&a%2Fb%5Bx%5D=1");
	form(below, "payment%5Bamount%5D=5&t=1", "payment%5Bamount%5D=5");
	form(below, "amount=5&t=1", "amount=5&t=1");
	form(below, "id=1&payment.amount=5&t=1", "id=1&payment.amount=5");
	form(literal, "", "a=1000&b=0.005&c=1.50&d=-1E2");
	form(defaults, "", "n=1&s=x+y&t=true");
	form(defaults, "s=&n=2&u=0", "n=2&s=&t=true&u=0");
	arena_free(arena);
}
END_TEST

START_TEST(a_form_of_many_fields_needs_bounded_memory)
{
	static const char *const fills[] = { "a&", "%61&", "=&", "&", "b=1&a=2&" };

	for (size_t i = 0; i < ARRAY_LEN(fills); i++) {
		struct canonical_task task = { 0 };
		struct canonical_error error;
		struct to_buf to;
		struct buf body;

		task.body = long_body(&body, "", fills[i], 100000, "");
		ck_assert(canonical_by("form", task, &to, &error));
		ck_assert_uint_le(to.buf.len, 3 * body.len);
		buf_fini(&to.buf);
		buf_fini(&body);
	}
}
END_TEST

static bool parts_by(const struct canonical_rules *rules, const char *type, struct span body,
		     struct to_buf *to, struct canonical_error *error)
{
	struct canonical_task task = { .body = body,
				       .content_type = span_of(type),
				       .rules = rules };

	return canonical_by("multipart", task, to, error);
}

#define TYPE        "multipart/form-data; boundary=b"
#define FIELD(name) "Content-Disposition: form-data; name=\"" name "\"\r\n\r\n"

static void parts(const char *type, const char *body, const char *expected)
{
	struct canonical_error error;
	struct to_buf to;

	if (!parts_by(NULL, type, span_of(body), &to, &error))
		ck_abort_msg("%s: refused at %zu: %s", body, error.offset, error.expected);
	buf_byte(&to.buf, 0);
	ck_assert_msg(strcmp(to.buf.at, expected) == 0, "%s became %s, not %s", body, to.buf.at,
		      expected);
	buf_fini(&to.buf);
}

START_TEST(parts_are_names_file_names_types_and_bytes)
{
	parts(TYPE, "--b\r\n" FIELD("a") "1\r\n--b\r\n" FIELD("z") "\r\n--b--\r\n",
	      "name 1:a body 1:1\nname 1:z body 0:\n");
	parts(TYPE,
	      "--b\r\nContent-Disposition: form-data; name=f; filename=\"x;y\"\r\n"
	      "Content-Type: Image/PNG ; Q=\"1\"\r\n\r\n\r\n\r\n--b--",
	      "name 1:f filename 3:x;y type 15:image/png;q 1:1 body 2:\r\n\n");
	parts(TYPE, "--b--", "");
	parts(TYPE, "--b\r\n\r\nx\r\n--b--", "body 1:x\n");
	parts(TYPE, "--b\r\n\r\n--b--", "body 0:\n");
	parts(TYPE, "--b\r\n" FIELD("a") "--b--", "name 1:a body 0:\n");
	parts(TYPE, "--b\r\nContent-Disposition: inline\r\n\r\nx\r\n--b--",
	      "disposition 6:inline body 1:x\n");
}
END_TEST

START_TEST(boundary_preamble_and_header_spelling_do_not_count)
{
	static const char expected[] = "name 1:a type 10:text/plain body 3:x\ny\n";

	parts(TYPE,
	      "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n"
	      "Content-Type: text/plain\r\n\r\nx\ny\r\n--b--\r\n",
	      expected);
	parts("Multipart/Form-Data;charset=x;BOUNDARY=\"c d\"",
	      "hello\r\n--c d \t\r\ncontent-TYPE:text/plain\r\nX-Other: 1\r\n"
	      "CONTENT-disposition:  Form-Data ;NAME=a;; \r\n\r\nx\ny\r\n--c d-- \t\r\nbye",
	      expected);
	parts(TYPE,
	      "--b\r\nContent-Disposition: form-data;\r\n name=\"a\"\r\nContent-Type:\r\n\t"
	      "text/plain\r\nContent-Transfer-Encoding: 8BIT\r\n\r\nx\ny\r\n--b--",
	      expected);
	/* what only looks like a boundary is content */
	parts(TYPE, "--b\r\n" FIELD("a") "1\r\n--bb\r\n--b-\r\n--b\n\r\n--b--",
	      "name 1:a body 19:1\r\n--bb\r\n--b-\r\n--b\n\n");
	parts(TYPE, "--b\r\n" FIELD("a") "1\r\n--b--x\r\n--b--\n\r\n--b-- \t",
	      "name 1:a body 17:1\r\n--b--x\r\n--b--\n\n");
}
END_TEST

START_TEST(what_may_be_read_differently_is_not_the_same)
{
	parts(TYPE,
	      "--b\r\nContent-Disposition: form-data; name=\"a\\\"b\"; filename*=UTF-8''x\r\n"
	      "Content-Transfer-Encoding: base64\r\n\r\neA==\r\n--b--",
	      "name 4:a\\\"b filename* 8:UTF-8''x encoding 6:base64 body 4:eA==\n");
	parts(TYPE, "--b\r\nContent-Disposition: form-data; name=\"\"\r\n\r\n1\r\n--b--",
	      "name 0: body 1:1\n");
	parts(TYPE,
	      "--b\r\nContent-Disposition: form-data; Name*=UTF-8''tip; filename*0=a; "
	      "x=\"\"\r\n"
	      "\r\n1\r\n--b--",
	      "parameters 40:;name* 10:UTF-8''tip;filename*0 1:a;x 0: body 1:1\n");
	parts(TYPE, "--b\r\nContent-Type: a/b; charset=\"utf-8;x=y\"\r\n\r\n1\r\n--b--",
	      "type 23:a/b;charset 9:utf-8;x=y body 1:1\n");
	parts(TYPE, "--b\r\nContent-Type: a/b; charset=utf-8; x=y\r\n\r\n1\r\n--b--",
	      "type 25:a/b;charset 5:utf-8;x 1:y body 1:1\n");
}
END_TEST

START_TEST(malformed_parts_are_refused_with_their_place)
{
	static const struct {
		const char *type, *body;
		size_t offset;
		const char *expected;
	} cases[] = {
		{ "multipart/form-data", "--b--", 0, "a boundary" },
		{ "multipart/form-data; boundary=", "--b--", 0, "a boundary" },
		{ "multipart/form-data; boundary=b; boundary=c", "--b--", 0, "a boundary" },
		{ "multipart/form-data; boundary=\"b", "--b--", 0, "a boundary" },
		{ "multipart/form-data; boundary=b; foo; boundary=c", "--b--", 0,
		  "a boundary" },
		{ "multipart/form-data; boundary=b; x=\"", "--b--", 0, "a boundary" },
		{ TYPE, "--b--x", 3, "behind the boundary" },
		{ TYPE, "--b\r\n" FIELD("a") "1\r\n--b--x", 58, "the last boundary" },
		{ TYPE, "x", 1, "the first boundary" },
		{ TYPE, "--c\r\n\r\n--c--", 12, "the first boundary" },
		{ TYPE, "x\r\n--b--", 1, "the first boundary" },
		{ TYPE, "--bx\r\n\r\n--b--", 3, "behind the boundary" },
		{ TYPE, "--b", 3, "behind the boundary" },
		{ TYPE, "--b\n\n1\n--b--", 3, "behind the boundary" },
		{ TYPE, "--b\r\n", 5, "the end of the headers" },
		{ TYPE, "--b\r\nA: b", 9, "the end of the headers" },
		{ TYPE, "--b\r\nA b\r\n\r\n", 5, "a header field" },
		{ TYPE, "--b\r\n: b\r\n\r\n", 5, "a header field" },
		{ TYPE, "--b\r\nA: \1\r\n\r\n", 5, "a header field" },
		{ TYPE, "--b\r\n" FIELD("a") "1", 50, "the last boundary" },
		{ TYPE, "--b\r\n" FIELD("a") "1\r\n--b", 55, "the last boundary" },
		{ TYPE, "--b\r\n" FIELD("a") "1\r\n--b-", 56, "the last boundary" },
		{ TYPE,
		  "--b\r\nContent-Disposition: form-data; name=a; name=b\r\n\r\n1\r\n--b--", 26,
		  "one Content-Disposition" },
		{ TYPE, "--b\r\nContent-Disposition: form-data; name\r\n\r\n1\r\n--b--", 37,
		  "a parameter" },
		{ TYPE, "--b\r\nContent-Disposition: form-data; name=\"a\r\n\r\n1\r\n--b--", 37,
		  "a parameter" },
		{ TYPE, "--b\r\nContent-Type: a/b\r\nContent-Type: a/b\r\n\r\n1\r\n--b--", 38,
		  "one Content-Type" },
		{ TYPE, "\n--b\n\n\r\n--b\r\n\r\n--b--", 1, "no boundary outside" },
		{ TYPE, "--b\r\n\r\n--b--\r\n--b\r\n\r\n--b--", 14, "no boundary outside" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct canonical_error error;
		struct to_buf to;

		ck_assert_msg(
			!parts_by(NULL, cases[i].type, span_of(cases[i].body), &to, &error),
			"%s was taken", cases[i].body);
		ck_assert_msg(error.offset == cases[i].offset &&
				      strstr(error.expected, cases[i].expected),
			      "%s: refused at %zu: %s", cases[i].body, error.offset,
			      error.expected);
		buf_fini(&to.buf);
	}
}
END_TEST

START_TEST(parts_are_bounded)
{
	struct canonical_error error;
	struct to_buf to;
	struct buf body;

	long_body(&body, "--b\r\n", "\r\n\r\n--b\r\n", 9999, "\r\n--b--");
	ck_assert(parts_by(NULL, TYPE, buf_view(&body), &to, &error));
	buf_fini(&body);
	buf_fini(&to.buf);
	long_body(&body, "--b\r\n", "\r\n\r\n--b\r\n", 10000, "\r\n--b--");
	ck_assert(!parts_by(NULL, TYPE, buf_view(&body), &to, &error));
	ck_assert_str_eq(error.expected, "no more than 10,000 parts");
	buf_fini(&body);
	buf_fini(&to.buf);
	long_body(&body, "--b\r\nA: ", "x", 16384, "\r\n\r\n--b--");
	ck_assert(!parts_by(NULL, TYPE, buf_view(&body), &to, &error));
	ck_assert_str_eq(error.expected, "headers of at most 16 KiB");
	buf_fini(&body);
	buf_fini(&to.buf);
	long_body(&body, "--b\r\n", "Content-Type: a/b;c=d\r\n\r\n\r\n--b\r\n", 9000,
		  "\r\n--b--");
	ck_assert(parts_by(NULL, TYPE, buf_view(&body), &to, &error));
	buf_fini(&body);
	buf_fini(&to.buf);
}
END_TEST

/* Under those rules, of parts with these headers the ones with these numbers count. */
static void parts_count(const struct canonical_rules *rules, const char *const *headers,
			size_t n, const char *expected)
{
	struct canonical_error error;
	struct to_buf to;
	struct buf body, found;

	buf_init(&body, 65536);
	buf_init(&found, 65536);
	for (size_t i = 0; i < n; i++)
		buf_format(&body, "--b\r\nContent-Disposition: form-data; %s\r\n\r\n#%zu\r\n",
			   headers[i], i);
	buf_text(&body, "--b--");
	ck_assert(parts_by(rules, TYPE, buf_view(&body), &to, &error));
	for (size_t i = 0; i + 1 < to.buf.len; i++)
		if (to.buf.at[i] == '#')
			buf_byte(&found, to.buf.at[i + 1]);
	buf_byte(&found, 0);
	ck_assert_str_eq(found.at, expected);
	buf_fini(&found);
	buf_fini(&body);
	buf_fini(&to.buf);
}

START_TEST(the_names_of_parts_are_read_for_rules)
{
	static const char *const escaped[] = { "name=\"a\\\"b\"", "name=\"a%22b\"",
					       "name=\"a\\\\b\"", "name=c" };
	static const char *const others[] = { "name=t", "name=t; name*=UTF-8''x",
					      "name=t; name*0=x", "name=t; x=y", "name=u" };
	struct arena *arena = arena_new();
	struct canonical_rules *only = canonical_rules_new(arena, CANONICAL_EXACT);
	struct canonical_rules *ignore = canonical_rules_new(arena, CANONICAL_EXACT);
	struct canonical_rules *none = canonical_rules_new(arena, CANONICAL_EXACT);

	ck_assert_ptr_null(canonical_rules_only(only, SPAN("/a\"b")));
	ck_assert_ptr_null(canonical_rules_ignore(ignore, SPAN("/a\"b")));
	ck_assert_ptr_null(canonical_rules_ignore(ignore, SPAN("/t")));
	ck_assert_ptr_null(canonical_rules_only(none, SPAN("/z/y")));
	parts_count(only, escaped, 4, "01");
	parts_count(ignore, escaped, 4, "23");
	parts_count(none, escaped, 4, "0123"); /* nothing of it: all count */
	parts_count(ignore, others, 5, "124");
	arena_free(arena);
}
END_TEST

START_TEST(rules_speak_of_parts)
{
	struct arena *arena = arena_new();
	struct canonical_rules *ignore = canonical_rules_new(arena, CANONICAL_EXACT);
	struct span body = SPAN("--b\r\n" FIELD("t") "1\r\n--b\r\n" FIELD("a") "2\r\n--b--");
	struct canonical_error error;
	struct to_buf to;

	ck_assert_ptr_null(canonical_rules_ignore(ignore, SPAN("/t")));
	ck_assert(parts_by(ignore, TYPE, body, &to, &error));
	ck_assert(span_equal(buf_view(&to.buf), SPAN("name 1:a body 1:2\n")));
	buf_fini(&to.buf);
	arena_free(arena);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		fields_are_sorted_and_equal_names_keep_their_order,
		spelling_of_fields_does_not_count,
		rules_speak_of_fields,
		a_form_of_many_fields_needs_bounded_memory,
		parts_are_names_file_names_types_and_bytes,
		boundary_preamble_and_header_spelling_do_not_count,
		what_may_be_read_differently_is_not_the_same,
		malformed_parts_are_refused_with_their_place,
		parts_are_bounded,
		rules_speak_of_parts,
		the_names_of_parts_are_read_for_rules,
	};

	return run("canonical forms", tests, ARRAY_LEN(tests));
}
