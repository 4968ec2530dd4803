/* Names, values, targets, hosts, dates: what HTTP says of single strings. */
#include "http.h"

#include <check.h>
#include <stdio.h>
#include <time.h>

static struct arena *arena;

static void begin(void)
{
	arena = arena_new();
}

static void end(void)
{
	arena_free(arena);
}

static void becomes(const char *target, const char *path)
{
	struct http_target out;

	ck_assert_msg(http_target(arena, span_of(target), false, &out), "refused: %s", target);
	ck_assert_msg(span_equal(out.path, span_of(path)), "%s became %.*s", target,
		      (int)out.path.len, out.path.at);
}

static void refused(struct span target)
{
	struct http_target out;

	ck_assert_msg(!http_target(arena, target, false, &out), "admitted: %.*s",
		      (int)target.len, target.at);
}

START_TEST(a_token_is_a_token)
{
	ck_assert(http_token(SPAN("!#$%&'*+-.^_`|~09azAZ")));
	ck_assert(!http_token(SPAN("")));
	for (unsigned byte = 0; byte < 256; byte++) {
		char text[] = { 'a', (char)byte };
		bool fine =
			byte > ' ' && byte < 0x7f && !strchr("\"(),/:;<=>?@[\\]{}", (int)byte);

		ck_assert_int_eq(http_token((struct span){ text, 2 }), fine);
	}
}
END_TEST

START_TEST(a_field_value_has_no_control_byte_but_htab)
{
	ck_assert(http_field_value(SPAN("")));
	for (unsigned byte = 0; byte < 256; byte++) {
		char text[] = { 'a', (char)byte };
		bool fine = byte == '\t' || (byte >= ' ' && byte != 0x7f);

		ck_assert_int_eq(http_field_value((struct span){ text, 2 }), fine);
	}
}
END_TEST

START_TEST(names_compare_without_case)
{
	ck_assert(http_same_name(SPAN("Content-Type"), SPAN("content-TYPE")));
	ck_assert(http_same_name(SPAN(""), SPAN("")));
	ck_assert(!http_same_name(SPAN("a"), SPAN("ab")));
	ck_assert(!http_same_name(SPAN("@"), SPAN("`")));
	ck_assert(!http_same_name(SPAN("["), SPAN("{")));
	ck_assert(!http_same_name(SPAN("\xc4"), SPAN("\xe4")));
}
END_TEST

START_TEST(fields_are_found_and_counted)
{
	struct http_field room[4];
	struct http_fields fields = { room, 0 };
	size_t lines = 9;

	ck_assert_ptr_null(http_find(&fields, SPAN("A"), &lines));
	ck_assert_uint_eq(lines, 0);
	http_add(&fields, SPAN("A"), SPAN("1"));
	http_add(&fields, SPAN("B"), SPAN("2"));
	http_add(&fields, SPAN("a"), SPAN("3"));
	ck_assert_ptr_eq(http_find(&fields, SPAN("a"), &lines), &room[0]);
	ck_assert_uint_eq(lines, 2);
	ck_assert_ptr_eq(http_find(&fields, SPAN("b"), NULL), &room[1]);
	ck_assert_ptr_null(http_find(&fields, SPAN("ab"), NULL));
}
END_TEST

START_TEST(a_list_is_read_over_all_its_lines)
{
	struct http_field room[4];
	struct http_fields fields = { room, 0 };
	const struct span name = SPAN("Connection");

	http_add(&fields, name, SPAN(""));
	http_add(&fields, name, SPAN(",, one\t,two ,"));
	http_add(&fields, SPAN("Other"), SPAN("four"));
	http_add(&fields, SPAN("connection"), SPAN("Three"));
	ck_assert(http_list_has(&fields, name, SPAN("ONE")));
	ck_assert(http_list_has(&fields, name, SPAN("two")));
	ck_assert(http_list_has(&fields, name, SPAN("three")));
	ck_assert(!http_list_has(&fields, name, SPAN("four")));
	ck_assert(!http_list_has(&fields, name, SPAN("on")));
	ck_assert(!http_list_has(&fields, name, SPAN("")));
}
END_TEST

START_TEST(hop_by_hop_fields_are_known_or_named_by_connection)
{
	static const struct span always[] = {
		SPAN("connection"),
		SPAN("Keep-Alive"),
		SPAN("Proxy-Connection"),
		SPAN("te"),
		SPAN("Trailer"),
		SPAN("TRANSFER-ENCODING"),
		SPAN("Upgrade"),
		SPAN("Proxy-Authenticate"),
		SPAN("Proxy-Authorization"),
		SPAN("Proxy-Authentication-Info"),
		SPAN("HTTP2-Settings"),
	};
	struct http_field room[2];
	struct http_fields fields = { room, 0 };

	for (size_t i = 0; i < ARRAY_LEN(always); i++)
		ck_assert(http_hop_by_hop(&fields, always[i]));
	ck_assert(!http_hop_by_hop(&fields, SPAN("X-A")));
	ck_assert(!http_hop_by_hop(&fields, SPAN("Trailers")));
	http_add(&fields, SPAN("Connection"), SPAN("close, x-a"));
	ck_assert(http_hop_by_hop(&fields, SPAN("X-A")));
	ck_assert(!http_hop_by_hop(&fields, SPAN("X-B")));
}
END_TEST

START_TEST(a_path_without_change_is_the_received_bytes)
{
	const struct span target =
		SPAN("/a/b%20c/%C3%A4/~x;y=1,(z)@:!$&'*+=/?q=//%2e%2F..\\%zz?");
	struct http_target out;

	ck_assert(http_target(arena, target, false, &out));
	ck_assert_ptr_eq(out.path.at, target.at);
	ck_assert_uint_eq(out.path.len, strlen("/a/b%20c/%C3%A4/~x;y=1,(z)@:!$&'*+=/"));
	ck_assert(out.has_query && span_equal(out.query, SPAN("q=//%2e%2F..\\%zz?")));
	ck_assert_uint_eq(out.authority.len, 0);
	ck_assert(http_target(arena, SPAN("/a"), false, &out) && !out.has_query);
	ck_assert(http_target(arena, SPAN("/a?"), false, &out) && out.has_query);
	ck_assert_uint_eq(out.query.len, 0);
}
END_TEST

START_TEST(escapes_take_one_form)
{
	becomes("/%41%7a%30%2D%5f%7E%2e", "/Az0-_~.");
	becomes("/%c3%a4", "/%C3%A4");
	becomes("/%Ca", "/%CA");
	becomes("/%aC", "/%AC");
	becomes("/%3a%3F%23%25%5B%20%0d%0A%7F%ff", "/%3A%3F%23%25%5B%20%0D%0A%7F%FF");
	becomes("/%2541", "/%2541");
	becomes("/a%2Eb/...", "/a.b/...");
	becomes("/\"<>[]^`{|}", "/\"<>[]^`{|}");
}
END_TEST

START_TEST(dot_segments_are_refused_also_escaped)
{
	static const struct span targets[] = {
		SPAN("/."),       SPAN("/.."),     SPAN("/./"),      SPAN("/../a"),
		SPAN("/a/."),     SPAN("/a/.."),   SPAN("/a/./b"),   SPAN("/a/../b"),
		SPAN("/%2e"),     SPAN("/a/%2E"),  SPAN("/%2e%2e/"), SPAN("/a/.%2e"),
		SPAN("/a/%2e./"), SPAN("/..?a=b"), SPAN("/a/.?b"),   SPAN("http://h/.."),
		SPAN("/%2E?"),
	};

	for (size_t i = 0; i < ARRAY_LEN(targets); i++)
		refused(targets[i]);
	becomes("/.a/..b/c./d../.../a.b", "/.a/..b/c./d../.../a.b");
}
END_TEST

START_TEST(empty_segments_and_escaped_delimiters_are_refused)
{
	static const struct span targets[] = {
		SPAN("//"),         SPAN("//a"),    SPAN("/a//b"), SPAN("/a//"),
		SPAN("http://h//"), SPAN("/a%2fb"), SPAN("/a%2F"), SPAN("/a%5cb"),
		SPAN("/a%5C"),      SPAN("/a%00"),  SPAN("/%00"),  SPAN("/%2f?q"),
	};
	struct http_target out;

	for (size_t i = 0; i < ARRAY_LEN(targets); i++) {
		refused(targets[i]);
		ck_assert(http_target(arena, targets[i], true, &out));
	}
}
END_TEST

START_TEST(a_loose_path_is_normal_but_not_cleaned)
{
	struct http_target out;

	ck_assert(http_target(arena, SPAN("//a/%2e%2E/./%2f%5c%00%41"), true, &out));
	ck_assert(span_equal(out.path, SPAN("//a/.././%2F%5C%00A")));
}
END_TEST

START_TEST(what_is_no_target_is_refused_even_loose)
{
	static const struct span targets[] = {
		SPAN(""),
		SPAN("a"),
		SPAN("?a"),
		SPAN("**"),
		SPAN("*?a"),
		SPAN("/a b"),
		SPAN("/a?b c"),
		SPAN("/a#b"),
		SPAN("/a?b#c"),
		SPAN("/\\"),
		SPAN("/a\\b"),
		SPAN("/\xc3\xa4"),
		SPAN("/?\xff"),
		SPAN("/\0"),
		SPAN("/a\x7f"),
		SPAN("/a\r\n"),
		SPAN("/?\t"),
		SPAN("/%"),
		SPAN("/%4"),
		SPAN("/%zz"),
		SPAN("/%4g"),
		SPAN("/%g4"),
		SPAN("/%%41"),
		SPAN("/%?41"),
		SPAN("/% 41"),
		SPAN("host:443"),
		SPAN("ftp://h/"),
		SPAN("http:/h/"),
		SPAN("http://"),
		SPAN("http:///a"),
		SPAN("http://u@h/"),
		SPAN("http://h:x/"),
		SPAN("http://h#"),
		SPAN("http://[::1/"),
		SPAN("s://]ufd/:"),
		SPAN("http://h\\a/"),
	};
	struct http_target out;

	for (size_t i = 0; i < ARRAY_LEN(targets); i++) {
		refused(targets[i]);
		ck_assert(!http_target(arena, targets[i], true, &out));
	}
	for (size_t cut = 2; cut < 4; cut++) /* what lies behind the end is not looked at */
		refused((struct span){ "/%41", cut });
}
END_TEST

START_TEST(absolute_and_asterisk_forms_are_understood)
{
	struct http_target out;

	ck_assert(http_target(arena, SPAN("http://example.com:80/a%41?q"), false, &out));
	ck_assert(span_equal(out.authority, SPAN("example.com:80")));
	ck_assert(span_equal(out.path, SPAN("/aA")) && span_equal(out.query, SPAN("q")));
	ck_assert(http_target(arena, SPAN("HTTPS://[::1]"), false, &out));
	ck_assert(span_equal(out.authority, SPAN("[::1]")));
	ck_assert(span_equal(out.path, SPAN("/")) && !out.has_query);
	ck_assert(http_target(arena, SPAN("http://h?a/b"), false, &out));
	ck_assert(span_equal(out.path, SPAN("/")) && span_equal(out.query, SPAN("a/b")));
	becomes("*", "*");
}
END_TEST

START_TEST(hosts_are_valid_or_not)
{
	static const struct span valid[] = {
		SPAN("h"),
		SPAN("example.com"),
		SPAN("h:80"),
		SPAN("h:"),
		SPAN("127.0.0.1"),
		SPAN("127.0.0.1:1"),
		SPAN("[::1]"),
		SPAN("[::1]:8080"),
		SPAN("h:65535"),
		SPAN("[::ffff:1.2.3.4]"),
		SPAN("%41bc"),
		SPAN("a_b-c~d!"),
		SPAN("[1:2:3:4:5:6:7:8]:"),
	};
	static const struct span invalid[] = {
		SPAN(""),        SPAN(":80"),
		SPAN("u@h"),     SPAN("h/a"),
		SPAN("h:a"),     SPAN("h:1:2"),
		SPAN("h:65536"), SPAN("h:000080"),
		SPAN("h:-1"),    SPAN("h 1"),
		SPAN("h, i"),    SPAN("::1"),
		SPAN("[::1"),    SPAN("[]"),
		SPAN("[::1]x"),  SPAN("[g::]"),
		SPAN("[::1%1]"), SPAN("[v1.a]"),
		SPAN("h\\"),     SPAN("h?"),
		SPAN("h#"),      SPAN("\xc3"),
		SPAN("h\0"),     SPAN("[::1\0]"),
		SPAN("%4"),      SPAN("%zz"),
		SPAN("h]"),      SPAN("[1.2.3.4]"),
		SPAN("["),       SPAN("[0000:0000:0000:0000:0000:0000:0000:0000:0000]"),
	};

	for (size_t i = 0; i < ARRAY_LEN(valid); i++)
		ck_assert_msg(http_host_valid(valid[i]), "refused: %s", valid[i].at);
	for (size_t i = 0; i < ARRAY_LEN(invalid); i++)
		ck_assert_msg(!http_host_valid(invalid[i]), "admitted: %s", invalid[i].at);
}
END_TEST

START_TEST(reasons_are_known_or_empty)
{
	ck_assert_str_eq(http_reason(200), "OK");
	ck_assert_str_eq(http_reason(404), "Not Found");
	ck_assert_str_eq(http_reason(511), "Network Authentication Required");
	ck_assert_str_eq(http_reason(0), "");
	ck_assert_str_eq(http_reason(299), "");
	ck_assert_str_eq(http_reason(512), "");
	ck_assert_str_eq(http_reason(4000000000U), "");
}
END_TEST

/* Against libc, whose %a and %b are English in the C locale of this test. */
static void same_as_libc(int64_t seconds)
{
	char ours[HTTP_DATE_BYTES], theirs[64];
	time_t t = seconds;
	struct tm tm;

	ck_assert(gmtime_r(&t, &tm));
	strftime(theirs, sizeof(theirs), "%a, %d %b %Y %H:%M:%S GMT", &tm);
	http_date(seconds, ours);
	ck_assert_msg(strcmp(ours, theirs) == 0, "%s is %s", ours, theirs);
}

START_TEST(dates_are_those_of_libc)
{
	char date[HTTP_DATE_BYTES];

	http_date(784111777, date);
	ck_assert_str_eq(date, "Sun, 06 Nov 1994 08:49:37 GMT");
	for (int64_t t = -30000000000; t < 253402300799; t += 1234567 * (int64_t)9)
		same_as_libc(t);
	for (int64_t day = -200; day < 40000; day++) {
		same_as_libc(day * 86400);
		same_as_libc(day * 86400 - 1);
	}
	same_as_libc(253402300799);
}
END_TEST

START_TEST(dates_stay_29_bytes)
{
	char date[HTTP_DATE_BYTES];

	http_date(INT64_MAX, date);
	ck_assert_str_eq(date, "Fri, 31 Dec 9999 23:59:59 GMT");
	http_date(INT64_MIN, date);
	ck_assert_str_eq(date, "Sat, 01 Jan 0000 00:00:00 GMT");
}
END_TEST

START_TEST(a_media_type_has_no_parameters)
{
	ck_assert(span_equal(http_media_type(SPAN("Application/JSON; charset=utf-8")),
			     SPAN("Application/JSON")));
	ck_assert(span_equal(http_media_type(SPAN(" a/b\t;c;d")), SPAN("a/b")));
	ck_assert(span_equal(http_media_type(SPAN("a/b")), SPAN("a/b")));
	ck_assert_uint_eq(http_media_type(SPAN(";")).len, 0);
	ck_assert_uint_eq(http_media_type((struct span){ NULL, 0 }).len, 0);
}
END_TEST

int main(void)
{
	static const TTest *const *const tests[] = {
		&a_token_is_a_token,
		&a_field_value_has_no_control_byte_but_htab,
		&names_compare_without_case,
		&fields_are_found_and_counted,
		&a_list_is_read_over_all_its_lines,
		&hop_by_hop_fields_are_known_or_named_by_connection,
		&a_path_without_change_is_the_received_bytes,
		&escapes_take_one_form,
		&dot_segments_are_refused_also_escaped,
		&empty_segments_and_escaped_delimiters_are_refused,
		&a_loose_path_is_normal_but_not_cleaned,
		&what_is_no_target_is_refused_even_loose,
		&absolute_and_asterisk_forms_are_understood,
		&hosts_are_valid_or_not,
		&reasons_are_known_or_empty,
		&dates_are_those_of_libc,
		&dates_stay_29_bytes,
		&a_media_type_has_no_parameters,
	};
	Suite *suite = suite_create("http");
	TCase *tcase = tcase_create("http");
	SRunner *runner = srunner_create(suite);
	int failed = 0;

	tcase_add_checked_fixture(tcase, begin, end);
	for (size_t i = 0; i < ARRAY_LEN(tests); i++)
		tcase_add_test(tcase, *tests[i]);
	suite_add_tcase(suite, tcase);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
