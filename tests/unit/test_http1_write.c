/* The writer of requests: what it writes, and that it refuses whole. */
#include "http1.h"

#include <check.h>

static struct http_field room[HTTP_FIELDS_MAX];
static struct http_fields fields;
static struct http1_head head;
static struct buf out;

static void begin(void)
{
	fields = (struct http_fields){ room, 0 };
	head = (struct http1_head){ .method = SPAN("GET"),
				    .target = SPAN("/"),
				    .fields = &fields };
	buf_init(&out, HTTP_HEAD_MAX);
	buf_text(&out, "before ");
}

static void end(void)
{
	buf_fini(&out);
}

static void written(const char *text)
{
	out.len = 7;
	ck_assert(http1_write_head(&out, &head));
	ck_assert(span_equal((struct span){ out.at + 7, out.len - 7 }, span_of(text)));
}

static void refused(void)
{
	out.len = 7;
	ck_assert(!http1_write_head(&out, &head));
	ck_assert_uint_eq(out.len, 7);
}

START_TEST(a_head_is_written_as_given)
{
	written("GET / HTTP/1.1\r\n\r\n");
	head.target = SPAN("/a%20b?c=d");
	http_add(&fields, SPAN("Host"), SPAN("example.com"));
	http_add(&fields, SPAN("X-Empty"), SPAN(""));
	http_add(&fields, SPAN("x-a"), SPAN("b\tc \xff"));
	written("GET /a%20b?c=d HTTP/1.1\r\nHost: example.com\r\nX-Empty: \r\nx-a: b\tc "
		"\xff\r\n"
		"\r\n");
	head.close = true;
	fields.n = 1;
	written("GET /a%20b?c=d HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n");
}
END_TEST

START_TEST(a_length_is_written_where_there_is_a_body_or_custom)
{
	head.body_bytes = 1234567890;
	written("GET / HTTP/1.1\r\nContent-Length: 1234567890\r\n\r\n");
	head.body_bytes = 0;
	head.method = SPAN("DELETE");
	written("DELETE / HTTP/1.1\r\n\r\n");
	head.method = SPAN("POST");
	written("POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n");
	head.method = SPAN("PUT");
	written("PUT / HTTP/1.1\r\nContent-Length: 0\r\n\r\n");
	head.method = SPAN("PATCH");
	head.body_bytes = SIZE_MAX;
	written("PATCH / HTTP/1.1\r\nContent-Length: 18446744073709551615\r\n\r\n");
}
END_TEST

START_TEST(what_would_change_the_framing_is_refused)
{
	static const struct span bad[] = { SPAN("a\r\nB: c"), SPAN("a\nb"),  SPAN("a\rb"),
					   SPAN("a\0b"),      SPAN("a\x7f"), SPAN("\x01") };

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		head.method = bad[i];
		refused();
		head.method = SPAN("GET");
		head.target = bad[i];
		refused();
		head.target = SPAN("/");
		fields.n = 0;
		http_add(&fields, bad[i], SPAN("v"));
		refused();
		fields.n = 0;
		http_add(&fields, SPAN("n"), bad[i]);
		refused();
		fields.n = 0;
	}
}
END_TEST

START_TEST(methods_targets_and_names_are_checked)
{
	static const struct span targets[] = { SPAN(""), SPAN("/a b"), SPAN("/\t"),
					       SPAN("/\xc3") };
	static const struct span names[] = { SPAN(""), SPAN("a b"), SPAN("a:"), SPAN("\xc3") };

	for (size_t i = 0; i < ARRAY_LEN(targets); i++) {
		head.target = targets[i];
		refused();
	}
	head.target = SPAN("/");
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		head.method = names[i];
		refused();
		head.method = SPAN("GET");
		http_add(&fields, names[i], SPAN("v"));
		refused();
		fields.n = 0;
	}
}
END_TEST

START_TEST(fields_that_are_the_codecs_are_refused)
{
	static const struct span names[] = { SPAN("Content-Length"), SPAN("content-length"),
					     SPAN("Transfer-Encoding"), SPAN("CONNECTION") };

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		fields.n = 0;
		http_add(&fields, names[i], SPAN("0"));
		refused();
	}
}
END_TEST

START_TEST(a_head_without_room_is_refused_whole)
{
	buf_fini(&out);
	buf_init(&out, 7 + sizeof("GET / HTTP/1.1\r\n\r\n") - 1);
	buf_text(&out, "before ");
	written("GET / HTTP/1.1\r\n\r\n");
	head.target = SPAN("/1");
	refused();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("http1_write");
	TCase *tcase = tcase_create("writer");
	SRunner *runner = srunner_create(suite);
	int failed = 0;

	tcase_add_checked_fixture(tcase, begin, end);
	tcase_add_test(tcase, a_head_is_written_as_given);
	tcase_add_test(tcase, a_length_is_written_where_there_is_a_body_or_custom);
	tcase_add_test(tcase, what_would_change_the_framing_is_refused);
	tcase_add_test(tcase, methods_targets_and_names_are_checked);
	tcase_add_test(tcase, fields_that_are_the_codecs_are_refused);
	tcase_add_test(tcase, a_head_without_room_is_refused_whole);
	suite_add_tcase(suite, tcase);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
