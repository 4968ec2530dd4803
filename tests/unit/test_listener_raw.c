/* What a request's head must be: raw requests, and what the listener makes of them. */
#include "listener_rig.h"

/* ---- what is refused: the table of raw requests */

/* 200 leaves the connection open, anything else closes it. */
struct raw {
	const char *what;
	const char *bytes;
	size_t len;      /* 0: strlen */
	unsigned status; /* CLOSED: 400, or (some versions of the library) not a word */
};

#define CLOSED         0
#define WITH_NUL(text) text, sizeof(text) - 1

static const struct raw raws[] = {
	{ "plain", LINE HOST "Content-Length: 2\r\n\r\nhi", 0, 200 },
	{ "chunked", LINE HOST "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", 0,
	  200 },
	{ "Chunked", LINE HOST "Transfer-Encoding: Chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", 0,
	  200 },
	{ "length with zeros", LINE HOST "Content-Length: 0002\r\n\r\nhi", 0, 200 },
	{ "an empty line first", "\r\n" LINE HOST "Content-Length: 2\r\n\r\nhi", 0, 200 },
	{ "tab around value", LINE "Host:\ta\t\r\nContent-Length: 0\r\n\r\n", 0, 200 },
	{ "no blank behind colon", LINE "Host:a\r\nContent-Length:2\r\n\r\nhi", 0, 200 },
	{ "empty value", LINE HOST "X-A:\r\nX-B: \r\n\r\n", 0, 200 },
	{ "absolute form", "GET http://b/body HTTP/1.1\r\nHost: b\r\n\r\n", 0, 200 },
	{ "lower-case method is a method", "post /body HTTP/1.1\r\n" HOST "\r\n", 0, 200 },
	{ "obs-text", LINE HOST "X-A: \xe4\r\n\r\n", 0, 200 },

	{ "CL + TE",
	  LINE HOST "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 0,
	  400 },
	{ "TE + CL",
	  LINE HOST "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n", 0,
	  400 },
	{ "two CL", LINE HOST "Content-Length: 2\r\nContent-Length: 3\r\n\r\nhi!", 0, 400 },
	{ "two equal CL", LINE HOST "Content-Length: 2\r\nContent-Length: 2\r\n\r\nhi", 0,
	  400 },
	{ "CL list", LINE HOST "Content-Length: 2, 2\r\n\r\nhi", 0, 400 },
	{ "CL +2", LINE HOST "Content-Length: +2\r\n\r\nhi", 0, 400 },
	{ "CL -2", LINE HOST "Content-Length: -2\r\n\r\nhi", 0, 400 },
	{ "CL 0x2", LINE HOST "Content-Length: 0x2\r\n\r\nhi", 0, 400 },
	{ "CL 2abc", LINE HOST "Content-Length: 2abc\r\n\r\nhi", 0, 400 },
	{ "CL empty", LINE HOST "Content-Length: \r\n\r\nhi", 0, 400 },
	{ "CL 2^63", LINE HOST "Content-Length: 9223372036854775808\r\n\r\nhi", 0, 400 },
	{ "CL 2^64", LINE HOST "Content-Length: 18446744073709551616\r\n\r\nhi", 0, 413 },
	{ "CL space colon", LINE HOST "Content-Length : 2\r\n\r\nhi", 0, 400 },
	{ "TE xchunked", LINE HOST "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 0, 400 },
	{ "TE list", LINE HOST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 0, 400 },
	{ "TE identity", LINE HOST "Transfer-Encoding: identity\r\n\r\nhi", 0, 400 },
	{ "TE identity + CL",
	  LINE HOST "Transfer-Encoding: identity\r\nContent-Length: 2\r\n\r\nhi", 0, 400 },
	{ "TE with a tab before",
	  LINE HOST "Transfer-Encoding: \x0b"
		    "chunked\r\n\r\n0\r\n\r\n",
	  0, 400 },
	{ "TE twice",
	  LINE HOST
	  "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
	  0, 400 },
	{ "TE chunked twice",
	  LINE HOST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	  0, 400 },
	{ "TE space colon", LINE HOST "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 0, 400 },
	{ "TE in 1.0",
	  "POST /body HTTP/1.0\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 0,
	  400 },
	{ "Transfer_Encoding", LINE HOST "Transfer_Encoding: chunked\r\n\r\n", 0, 400 },
	{ "Content_Length", LINE HOST "content_length: 2\r\n\r\n", 0, 400 },
	{ "Idempotency_Key", LINE HOST "Idempotency_Key: k\r\n\r\n", 0, 400 },
	{ "X_Forwarded-For", LINE HOST "X_Forwarded-For: k\r\n\r\n", 0, 400 },
	{ "fold", LINE HOST "X-A: one\r\n two\r\n\r\n", 0, 400 },
	{ "fold with a tab", LINE HOST "X-A: one\r\n\ttwo\r\n\r\n", 0, 400 },
	{ "fold of the last line", LINE HOST "Idempotency-Key: one\r\n  two\r\n\r\n", 0, 400 },
	{ "empty fold", LINE HOST "X-A: one\r\n \r\n\r\n", 0, 400 },
	{ "fold first", LINE " " HOST "\r\n", 0, 400 },
	{ "NUL in value", WITH_NUL(LINE HOST "Idempotency-Key: k1\0k2\r\n\r\n"), 400 },
	{ "NUL at a value's end", WITH_NUL(LINE HOST "Idempotency-Key: k1\0\r\n\r\n"), 400 },
	{ "NUL in name", WITH_NUL(LINE HOST "X-\0A: k\r\n\r\n"), 400 },
	{ "NUL in target", WITH_NUL("POST /body\0/x HTTP/1.1\r\n" HOST "\r\n"), CLOSED },
	{ "NUL in query", WITH_NUL("POST /body?a\0b HTTP/1.1\r\n" HOST "\r\n"), CLOSED },
	{ "NUL in method", WITH_NUL("PO\0ST /body HTTP/1.1\r\n" HOST "\r\n"), CLOSED },
	{ "%00 in target", "POST /body%00 HTTP/1.1\r\n" HOST "\r\n", 0, 200 }, /* loose_path */
	{ "0x01 in value", LINE HOST "X-A: \x01\r\n\r\n", 0, 400 },
	{ "DEL in value", LINE HOST "X-A: \x7f\r\n\r\n", 0, 400 },
	{ "bare CR in value", LINE HOST "X-A: a\rb\r\n\r\n", 0, 400 },
	{ "bare LF: all", "POST /body HTTP/1.1\nHost: a\n\n", 0, 400 },
	{ "bare LF: request line", "POST /body HTTP/1.1\nHost: a\r\n\r\n", 0, 400 },
	{ "bare LF: a field", LINE "X-A: a\nHost: a\r\n\r\n", 0, 400 },
	{ "bare LF: the empty line", LINE HOST "\n", 0, 400 },
	{ "bare LF: the last field", LINE "Host: a\n\r\n", 0, 400 },
	{ "no Host", LINE "\r\n", 0, 400 },
	{ "two Host", LINE "Host: a\r\nHost: b\r\n\r\n", 0, 400 },
	{ "two equal Host", LINE "Host: a\r\nHost: a\r\n\r\n", 0, 400 },
	{ "empty Host", LINE "Host: \r\n\r\n", 0, 400 },
	{ "Host a b", LINE "Host: a b\r\n\r\n", 0, 400 },
	{ "Host with user", LINE "Host: u@a\r\n\r\n", 0, 400 },
	{ "Host with path", LINE "Host: a/b\r\n\r\n", 0, 400 },
	{ "absolute form without Host", "GET http://b/body HTTP/1.1\r\n\r\n", 0, 400 },
	{ "HTTP/1.2", "POST /body HTTP/1.2\r\n" HOST "\r\n", 0, 505 },
	{ "HTTP/2.0", "POST /body HTTP/2.0\r\n" HOST "\r\n", 0, 505 },
	{ "HTTP/0.9", "GET /body\r\n\r\n", 0, 400 },
	{ "lower-case version", "GET /body http/1.1\r\n" HOST "\r\n", 0, 400 },
	{ "two blanks before the target", "POST  /body HTTP/1.1\r\n" HOST "\r\n", 0, 400 },
	{ "two blanks behind the target", "POST /body  HTTP/1.1\r\n" HOST "\r\n", 0, 400 },
	{ "blank in the target", "POST /bo dy HTTP/1.1\r\n" HOST "\r\n", 0, 400 },
	{ "tab in the target", "POST /bo\tdy HTTP/1.1\r\n" HOST "\r\n", 0, 400 },
	{ "control byte in the target",
	  "POST /bo\x01"
	  "dy HTTP/1.1\r\n" HOST "\r\n",
	  0, 400 },
	{ "blank behind the version", "POST /body HTTP/1.1 \r\n" HOST "\r\n", 0, 400 },
	{ "tab as a blank", "POST\t/body HTTP/1.1\r\n" HOST "\r\n", 0, CLOSED },
	{ "target is no target", "POST body HTTP/1.1\r\n" HOST "\r\n", 0, 400 },
	{ "target with a fragment", "POST /body#x HTTP/1.1\r\n" HOST "\r\n", 0, 400 },
	{ "CONNECT", "CONNECT a:80 HTTP/1.1\r\n" HOST "\r\n", 0, 400 },
	{ "method is no token", "P@ST /body HTTP/1.1\r\n" HOST "\r\n", 0, 400 },
	{ "Expect: foo", LINE HOST "Expect: foo\r\n\r\n", 0, 417 },
	{ "two Expect", LINE HOST "Expect: 100-continue\r\nExpect: foo\r\n\r\n", 0, 417 },
	{ "blank in a name", LINE HOST "X A: b\r\n\r\n", 0, 400 },
	{ "name is no token", LINE HOST "X(A): b\r\n\r\n", 0, 400 },
	{ "no colon", LINE HOST "X-A\r\n\r\n", 0, 400 },
	{ "empty name", LINE HOST ": v\r\n\r\nPOST /body HTTP/1.1\r\n" HOST "\r\n", 0, 400 },
	{ "empty name first", LINE ": v\r\n" HOST "\r\n", 0, 400 },
	{ "Connection: Idempotency-Key", LINE HOST "Connection: close, idempotency-key\r\n\r\n",
	  0, 400 },
	{ "Connection: Host", LINE HOST "Connection: Host\r\n\r\n", 0, 400 },
	{ "Connection: Content-Length", LINE HOST "Connection: content-length\r\n\r\n", 0,
	  400 },
	{ "Connection: X-Forwarded-For",
	  LINE HOST "Connection: keep-alive\r\nConnection: X-Forwarded-For\r\n\r\n", 0, 400 },
	{ "Connection: keep-alive, X-Other",
	  LINE HOST "Connection: keep-alive, X-Other\r\n\r\n", 0, 200 },
	{ "chunk size over 2^64",
	  LINE HOST "Transfer-Encoding: chunked\r\n\r\n1ffffffffffffffff\r\n", 0, 413 },
	{ "chunk size is no number", LINE HOST "Transfer-Encoding: chunked\r\n\r\nxyz\r\n", 0,
	  400 },
	{ "chunk is longer",
	  LINE HOST "Transfer-Encoding: chunked\r\n\r\n2\r\nhihi\r\n0\r\n\r\n", 0, 400 },
};

START_TEST(a_request_that_can_be_read_in_two_ways_is_refused)
{
	const struct raw *raw = &raws[_i];
	int fd = dial();
	const char *text = NULL;

	ck_assert(say_bytes(fd, raw->bytes, raw->len ? raw->len : strlen(raw->bytes)));
	text = hear_until(fd, raw->status == 200 ? "\r\n\r\n" : NULL, 5000);
	if (raw->status || strncmp(text, "HTTP", 4) == 0)
		ck_assert_msg(status_in(text) == (raw->status ? raw->status : 400), "%s: %s",
			      raw->what, text);
	if (raw->status == 200) {
		ck_assert_msg(!strstr(text, "<"), "%s: %s", raw->what, text);
	} else {
		ck_assert_msg(strstr(text, "<end>") || strstr(text, "<reset>"), "%s: %s",
			      raw->what, text);
		ck_assert_msg(!strstr(text, " 200 "), "%s: %s", raw->what, text);
		ck_assert_uint_eq(bodies, 0);
	}
	close(fd);
	turn_for(5);
	ck_assert_uint_eq(ends, heads);
	ck_assert_uint_eq(listener_requests(listener), 0);
}
END_TEST

/* Some versions of the library take the blank for a part of the coding's name. */
START_TEST(a_blank_behind_a_coding_hangs_nobody)
{
	int fd = dial();
	const char *text =
		ask(fd, LINE HOST "Transfer-Encoding: chunked \r\n\r\n0\r\n\r\n", "\r\n\r\n");

	ck_assert(status_in(text) == 400 || status_in(text) == 200);
	close(fd);
}
END_TEST

START_TEST(a_refusal_says_what_and_whether_there_was_a_key)
{
	int fd = dial();
	const char *text =
		ask(fd,
		    LINE HOST
		    "Idempotency-Key: k\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
		    NULL);

	ck_assert_ptr_nonnull(strstr(text, "application/problem+json"));
	ck_assert_ptr_nonnull(strstr(text, "\"code\": \"request_malformed\""));
	ck_assert_ptr_nonnull(strstr(text, "\"may_have_executed\": true"));
	ck_assert_ptr_nonnull(strstr(text, "Idempotency-Verdict: request_malformed"));
	ck_assert_ptr_nonnull(strstr(text, "Content-Length is not one decimal number"));
	close(fd);
	fd = dial();
	text = ask(fd, LINE HOST HOST "\r\n", NULL);
	ck_assert_ptr_nonnull(strstr(text, "\"may_have_executed\": false"));
	close(fd);
	ck_assert_uint_eq(heads, 0);
}
END_TEST

START_TEST(a_head_over_the_limit_is_431)
{
	static char text[20000];
	int fd = dial();
	size_t len = (size_t)snprintf(text, sizeof(text), LINE HOST "X-Long: ");

	memset(text + len, 'x', 16350);
	snprintf(text + len + 16350, sizeof(text) - len - 16350, "\r\n\r\n");
	ck_assert_uint_eq(status_in(ask(fd, text, NULL)), 431);
	close(fd);

	fd = dial();
	len = (size_t)snprintf(text, sizeof(text), LINE HOST);
	for (int i = 0; i < 100; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "X-%d: 1\r\n", i);
	snprintf(text + len, sizeof(text) - len, "\r\n");
	ck_assert_uint_eq(status_in(ask(fd, text, NULL)), 431);
	close(fd);
	ck_assert_uint_eq(heads, 0);
}
END_TEST

START_TEST(a_head_just_under_the_limit_is_served_however_it_comes)
{
	static char text[20000];
	size_t len = (size_t)snprintf(text, sizeof(text), LINE HOST);

	for (int i = 0; i < 99; i++)
		len += (size_t)snprintf(
			text + len, sizeof(text) - len, "X-%02d: %.*s\r\n", i, 150,
			"0123456789012345678901234567890123456789012345678901234567"
			"8901234567890123456789012345678901234567890123456789012345"
			"67890123456789012345678901234567890123456789012345678901");
	snprintf(text + len, sizeof(text) - len, "\r\n");
	ck_assert_uint_gt(len, 15500);
	for (size_t step = 1; step < len; step = step * 7) {
		int fd = dial();

		for (size_t at = 0; at < len + 2; at += step)
			ck_assert(say_bytes(fd, text + at,
					    len + 2 - at < step ? len + 2 - at : step));
		ck_assert_uint_eq(status_in(hear_until(fd, "nothing", 3000)), 200);
		ck_assert_uint_eq(n_fields, 100);
		close(fd);
	}
}
END_TEST

/* What both heads need at once is less than the library's memory for a connection. */
START_TEST(a_large_head_gets_an_answer_with_a_large_head)
{
	static char text[20000];
	size_t len = (size_t)snprintf(text, sizeof(text), "POST /wide HTTP/1.1\r\n" HOST);
	int fd = dial();
	const char *got = NULL;

	memset(wide, 'w', sizeof(wide));
	for (int i = 0; i < 99; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "X-%02d: %0150d\r\n", i,
					0);
	snprintf(text + len, sizeof(text) - len, "\r\n");
	got = ask(fd, text, "nothing");
	ck_assert_uint_eq(status_in(got), 200);
	ck_assert_uint_gt(strlen(got), 15000);
	close(fd);
}
END_TEST

START_TEST(many_cookies_are_served_and_very_many_hang_nobody)
{
	static char text[16384];
	static const int numbers[] = { 180, 3000 };

	for (size_t n = 0; n < ARRAY_LEN(numbers); n++) {
		int fd = dial();
		unsigned status = 0;
		size_t len = (size_t)snprintf(text, sizeof(text), LINE HOST "Cookie: a");

		for (int i = 0; i < numbers[n]; i++)
			len += (size_t)snprintf(text + len, sizeof(text) - len, ";%s",
						n ? " b" : " name_of_it=and_its_value");
		snprintf(text + len, sizeof(text) - len, "\r\n\r\n");
		status = status_in(ask(fd, text, "\r\n\r\n"));
		ck_assert(status == 200 || (n && status == 431));
		close(fd);
	}
}
END_TEST

START_TEST(a_query_with_a_thousand_parameters_is_served)
{
	static char text[8192];
	int fd = dial();
	size_t len = (size_t)snprintf(text, sizeof(text), "GET /body?q=%%41");

	for (int i = 0; i < 1000; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "&a=%d", i);
	snprintf(text + len, sizeof(text) - len, " HTTP/1.1\r\n" HOST "\r\n");
	ck_assert_uint_eq(status_in(ask(fd, text, "nothing")), 200);
	ck_assert_str_eq(last_path, "/body");
	ck_assert_int_eq(strncmp(last_target, "/body?q=%41&a=0&a=1&", 20), 0);
	ck_assert_uint_eq(strlen(last_target), 255);
	close(fd);
}
END_TEST

START_TEST(the_request_is_as_it_was_sent)
{
	int fd = dial();

	ask(fd,
	    "POST /%62ody?a=%20+b HTTP/1.1\r\nHost: h:80\r\nX-A:  one \t two\t \r\nx_dropped: "
	    "1\r\n"
	    "Cookie: a=\"b\"; c\r\nX-A: three\r\nContent-Length: 2\r\n\r\nhi",
	    "hi");
	ck_assert_str_eq(last_target, "/%62ody?a=%20+b");
	ck_assert_str_eq(last_path, "/body");
	ck_assert_str_eq(last_host, "h:80");
	ck_assert_str_eq(last_peer, "127.0.0.1");
	ck_assert_str_eq(last_fields, "Host=h:80|X-A=one \t two|Cookie=a=\"b\"; c|X-A=three|"
				      "Content-Length=2|");
	ck_assert(!was_loose);
	ask(fd, "GET /body//x/../%2f HTTP/1.1\r\n" HOST "\r\n", "nothing");
	ck_assert(was_loose);
	ask(fd, "GET http://b:8/body HTTP/1.1\r\n" HOST "\r\n", "nothing");
	ck_assert_str_eq(last_host, "b:8");
	ck_assert_str_eq(last_path, "/body");
	ck_assert(!was_loose);
	close(fd);
}
END_TEST

START_TEST(trailers_are_not_merged_into_the_fields)
{
	int fd = dial();
	const char *text = ask(fd,
			       LINE HOST "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n"
					 "Idempotency-Key: t\r\n\r\n" LINE HOST "\r\n",
			       "nothing");

	ck_assert_uint_eq(answers_in(text), 2);
	ck_assert_ptr_null(strstr(last_fields, "Idempotency-Key"));
	close(fd);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("raw");

	tcase_add_loop_test(tcase, a_request_that_can_be_read_in_two_ways_is_refused, 0,
			    (int)ARRAY_LEN(raws));
	tcase_add_test(tcase, a_blank_behind_a_coding_hangs_nobody);
	tcase_add_test(tcase, a_refusal_says_what_and_whether_there_was_a_key);
	tcase_add_test(tcase, a_head_over_the_limit_is_431);
	tcase_add_test(tcase, a_head_just_under_the_limit_is_served_however_it_comes);
	tcase_add_test(tcase, a_large_head_gets_an_answer_with_a_large_head);
	tcase_add_test(tcase, many_cookies_are_served_and_very_many_hang_nobody);
	tcase_add_test(tcase, a_query_with_a_thousand_parameters_is_served);
	tcase_add_test(tcase, the_request_is_as_it_was_sent);
	tcase_add_test(tcase, trailers_are_not_merged_into_the_fields);
	return run_case("listener_raw", tcase);
}
