/* The reader of responses: heads, and what they say of the body. */
#include "http1_reading.h"

START_TEST(an_answer_with_a_length_is_read)
{
	whole(OK11 "Content-Length: 5\r\nX-A:\t one \t\r\nx-b:\r\n\r\nhello", 200, "hello");
	ck_assert_uint_eq(reader.answer.fields.n, 3);
	ck_assert(span_equal(reader.answer.fields.at[1].name, SPAN("X-A")));
	ck_assert(span_equal(reader.answer.fields.at[1].value, SPAN("one")));
	ck_assert_uint_eq(reader.answer.fields.at[2].value.len, 0);
	ck_assert(!reader.answer.close);
	whole(OK11 "Content-Length: 0\r\n\r\n", 200, "");
	whole(OK11 "content-length: 005\r\n\r\nhello", 200, "hello");
}
END_TEST

START_TEST(status_lines_come_in_three_forms)
{
	whole("HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n", 201, "");
	whole("HTTP/1.1 404 \r\nContent-Length: 0\r\n\r\n", 404, "");
	whole("HTTP/1.1 599\r\nContent-Length: 0\r\n\r\n", 599, "");
	whole("HTTP/1.1 200 \xc3\xa4\ttab\r\nContent-Length: 0\r\n\r\n", 200, "");
}
END_TEST

START_TEST(other_status_lines_are_refused)
{
	static const char *const lines[] = {
		"HTTP/1.1 20 OK",    "HTTP/1.1 2000 OK",
		"HTTP/1.1 099 OK",   "HTTP/1.1 600 OK",
		"HTTP/1.1 000 OK",   "HTTP/1.1 2x0 OK",
		"HTTP/1.1  200",     "HTTP/1.1 200OK",
		"HTTP/1.1 +20 OK",   "HTTP/1.1 -20 OK",
		"HTTP/1.1\t200",     "HTTP/1.1 200\tOK",
		"HTTP/1.1",          "HTTP/1.2 200 OK",
		"HTTP/2.0 200 OK",   "HTTP/1.10 200 OK",
		"http/1.1 200 OK",   " HTTP/1.1 200 OK",
		"ICY 200 OK",        "HTTP/1.1 200 a\x7f",
		"HTTP/1.1 200 a\rb", "",
	};

	for (size_t i = 0; i < ARRAY_LEN(lines); i++)
		refused(arena_format(arena, "%s\r\nContent-Length: 0\r\n\r\n", lines[i]).at);
}
END_TEST

START_TEST(what_is_no_http_is_refused_with_its_first_byte)
{
	refused("S");
	refused("HTTP/2");
	unfinished("HTTP/1.");
	refused("HTTP/1.1 abc\r\n");
}
END_TEST

START_TEST(content_length_with_transfer_encoding_is_refused)
{
	refused(OK11 "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
	refused(OK11 "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n");
	check(SPAN(OK11 "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"),
	      &(struct want){ .state = HTTP1_MALFORMED }, true);
}
END_TEST

START_TEST(several_content_lengths_are_refused_also_equal_ones)
{
	refused(OK11 "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello");
	refused(OK11 "Content-Length: 5\r\nCONTENT-LENGTH: 5\r\n\r\nhello");
	refused(OK11 "Content-Length: 5, 5\r\n\r\nhello");
	refused(OK11 "Content-Length: 5,\r\n\r\nhello");
}
END_TEST

START_TEST(a_content_length_is_digits_only)
{
	static const char *const values[] = {
		"+5",  "-5", "-0",    "0x5", "5 5", "5a", "",
		"5.0", "5;", "\"5\"", "0o5", "1_0", " ",
	};

	for (size_t i = 0; i < ARRAY_LEN(values); i++)
		refused(arena_format(arena, OK11 "Content-Length: %s\r\n\r\nhello", values[i])
				.at);
}
END_TEST

START_TEST(a_content_length_that_overflows_is_refused)
{
	refused(OK11 "Content-Length: 18446744073709551616\r\n\r\n");
	refused(OK11 "Content-Length: 99999999999999999999999999999999999\r\n\r\n");
	too_large(SPAN(OK11 "Content-Length: 18446744073709551615\r\n\r\n"));
	too_large(SPAN(OK11 "Content-Length: 9223372036854775808\r\n\r\n"));
}
END_TEST

START_TEST(a_transfer_encoding_is_chunked_or_refused)
{
	static const char *const values[] = {
		"gzip",
		"gzip, chunked",
		"chunked, gzip",
		"chunked, chunked",
		"xchunked",
		"chunk",
		"",
		"identity",
		"chunked;a=b",
		"\"chunked\"",
		"chunked,",
		", chunked",
	};

	for (size_t i = 0; i < ARRAY_LEN(values); i++)
		refused(arena_format(arena, OK11 "Transfer-Encoding: %s\r\n\r\n0\r\n\r\n",
				     values[i])
				.at);
	refused(OK11
		"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
	whole(OK11 "transfer-encoding: Chunked\r\n\r\n0\r\n\r\n", 200, "");
}
END_TEST

START_TEST(an_http_1_0_answer_has_no_transfer_encoding)
{
	refused("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
}
END_TEST

START_TEST(a_cut_header_block_is_no_answer)
{
	unfinished("");
	ck_assert(!reader.seen);
	unfinished("H");
	ck_assert(reader.seen);
	unfinished("HTTP/1.1 200 OK");
	unfinished(OK11);
	unfinished(OK11 "Content-Length: 0\r\n");
	unfinished(OK11 "Content-Length: 0\r\n\r");
	unfinished("HTTP/1.1 100 Continue\r\n\r\n");
	ck_assert(!reader.head_done);
}
END_TEST

START_TEST(a_cut_body_is_no_answer)
{
	unfinished(OK11 "Content-Length: 5\r\n\r\nhell");
	ck_assert(reader.head_done);
	unfinished(CHUNKED);
	unfinished(CHUNKED "5");
	unfinished(CHUNKED "5\r\nhello");
	unfinished(CHUNKED "5\r\nhello\r\n");
	unfinished(CHUNKED "5\r\nhello\r\n0\r\n");
	unfinished(CHUNKED "5\r\nhello\r\n0\r\n\r");
	unfinished(CHUNKED "0\r\nX: y\r\n");
}
END_TEST

START_TEST(lines_without_cr_are_refused)
{
	refused("HTTP/1.1 200 OK\nContent-Length: 0\n\n");
	refused(OK11 "Content-Length: 0\n\r\n");
	refused(OK11 "Content-Length: 0\r\n\n");
	refused(OK11 "A: b\n\r\nContent-Length: 0\r\n\r\n");
	refused(OK11 "\n");
	refused(CHUNKED "5\nhello\r\n0\r\n\r\n");
	refused(CHUNKED "5\r\nhello\n0\r\n\r\n");
	refused(CHUNKED "0\r\n\n");
	refused(CHUNKED "0\r\nX: y\n\r\n");
	refused(CHUNKED "0\n\r\n");
}
END_TEST

START_TEST(folded_lines_are_refused)
{
	refused(OK11 "A: b\r\n c\r\nContent-Length: 0\r\n\r\n");
	refused(OK11 "A: b\r\n\tc\r\nContent-Length: 0\r\n\r\n");
	refused(OK11 " A: b\r\nContent-Length: 0\r\n\r\n");
	refused(CHUNKED "0\r\nA: b\r\n c\r\n\r\n");
}
END_TEST

START_TEST(control_bytes_in_values_are_refused)
{
	for (unsigned byte = 0; byte < 256; byte++) {
		char stream[] = OK11 "A: b?c\r\nContent-Length: 0\r\n\r\n";
		bool fine = byte == '\t' || (byte >= ' ' && byte != 0x7f);

		*strchr(stream, '?') = (char)byte;
		check((struct span){ stream, sizeof(stream) - 1 },
		      fine ? &(struct want){ HTTP1_COMPLETE, 200, "", true, 0 }
			   : &(struct want){ .state = HTTP1_MALFORMED },
		      false);
	}
	refused(OK11 "A: b\x01?C: d\r\nContent-Length: 0\r\n\r\n");
	refused(OK11 "A: b\rxC: d\r\nContent-Length: 0\r\n\r\n");
}
END_TEST

START_TEST(names_that_are_no_tokens_are_refused)
{
	for (unsigned byte = 0; byte < 256; byte++) {
		char stream[] = OK11 "A?c: b\r\nContent-Length: 0\r\n\r\n";
		char text[] = { (char)byte };
		bool fine = http_token((struct span){ text, 1 }) || byte == ':';

		*strchr(stream, '?') = (char)byte;
		check((struct span){ stream, sizeof(stream) - 1 },
		      fine ? &(struct want){ HTTP1_COMPLETE, 200, "", true, 0 }
			   : &(struct want){ .state = HTTP1_MALFORMED },
		      false);
	}
	refused(OK11 ": b\r\nContent-Length: 0\r\n\r\n");
	refused(OK11 "A : b\r\nContent-Length: 0\r\n\r\n");
	refused(OK11 "Content-Length : 0\r\n\r\n");
	refused(OK11 "no colon\r\nContent-Length: 0\r\n\r\n");
	refused(OK11 "nocolon\r\nContent-Length: 0\r\n\r\n");
}
END_TEST

START_TEST(switching_protocols_is_refused)
{
	refused("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n" OK11
		"Content-Length: 0\r\n\r\n");
}
END_TEST

START_TEST(interim_answers_are_skipped)
{
	whole("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early "
	      "Hints\r\nLink: </a>\r\nContent-Length: 0\r\n\r\n" OK11
	      "Content-Length: 2\r\nA: b\r\n\r\nhi",
	      200, "hi");
	ck_assert_uint_eq(reader.interim, 3);
	ck_assert_uint_eq(reader.answer.fields.n, 2);
}
END_TEST

START_TEST(at_most_8_interim_answers_are_skipped)
{
#define INTERIM   "HTTP/1.1 100\r\n\r\n"
#define INTERIM_8 INTERIM INTERIM INTERIM INTERIM INTERIM INTERIM INTERIM INTERIM
	whole(INTERIM_8 OK11 "Content-Length: 0\r\n\r\n", 200, "");
	ck_assert_uint_eq(reader.interim, 8);
	refused(INTERIM_8 INTERIM OK11 "Content-Length: 0\r\n\r\n");
}
END_TEST

START_TEST(malformed_interim_answers_are_refused)
{
	refused("HTTP/1.1 100\r\nA : b\r\n\r\n" OK11 "Content-Length: 0\r\n\r\n");
	refused("HTTP/1.1 100\r\nContent-Length: 5\r\n\r\nhello" OK11
		"Content-Length: 0\r\n\r\n");
	refused("HTTP/1.1 100\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" OK11 "\r\n");
}
END_TEST

START_TEST(heads_are_bounded)
{
	size_t around = sizeof(OK11 "Content-Length: 0\r\nA:\r\n\r\n") - 1;
	const struct want fine = { HTTP1_COMPLETE, 200, "", true, 0 };
	const char *begins = OK11 "Content-Length: 0\r\nA:";

	check(padded(begins, HTTP_HEAD_MAX - around, 'b', "\r\n\r\n"), &fine, false);
	too_large(padded(begins, HTTP_HEAD_MAX - around + 1, 'b', "\r\n\r\n"));
	too_large(padded(begins, HTTP_HEAD_MAX, 'b', ""));
	too_large(padded("HTTP/1.1 200 ", HTTP_HEAD_MAX, 'b', "\r\n\r\n"));
}
END_TEST

START_TEST(fields_are_counted)
{
	struct buf buf;

	buf_init(&buf, HTTP_HEAD_MAX);
	buf_text(&buf, OK11 "Content-Length: 0\r\n");
	for (unsigned i = 1; i < HTTP_FIELDS_MAX; i++)
		buf_text(&buf, "A: b\r\n");
	buf_text(&buf, "\r\n");
	check(buf_view(&buf), &(struct want){ HTTP1_COMPLETE, 200, "", true, 0 }, false);
	ck_assert_uint_eq(reader.answer.fields.n, HTTP_FIELDS_MAX);
	buf.len -= 2;
	buf_text(&buf, "A: b\r\n\r\n");
	too_large(buf_view(&buf));
	buf_fini(&buf);
}
END_TEST

START_TEST(connections_are_kept_by_version_and_connection_field)
{
	static const struct {
		const char *head;
		bool keep_alive;
	} cases[] = {
		{ OK11, true },
		{ OK11 "Connection: close\r\n", false },
		{ OK11 "Connection: x, CLOSE\r\n", false },
		{ OK11 "Connection: x\r\nConnection: close\r\n", false },
		{ OK11 "Connection: closed\r\n", true },
		{ "HTTP/1.0 200 OK\r\n", false },
		{ "HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\n", true },
		{ "HTTP/1.0 200 OK\r\nConnection: keep-alive, close\r\n", false },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		const struct want want = { HTTP1_COMPLETE, 200, "", cases[i].keep_alive, 0 };

		check(arena_format(arena, "%sContent-Length: 0\r\n\r\n", cases[i].head), &want,
		      false);
	}
	read_pieces(SPAN(OK11 "Content-Length: 0\r\n\r\n"), 1, false);
	ck_assert_int_eq(http1_eof(&reader), HTTP1_COMPLETE);
	ck_assert(!reader.keep_alive);
}
END_TEST

int main(void)
{
	static const TTest *const *const tests[] = {
		&an_answer_with_a_length_is_read,
		&status_lines_come_in_three_forms,
		&other_status_lines_are_refused,
		&what_is_no_http_is_refused_with_its_first_byte,
		&content_length_with_transfer_encoding_is_refused,
		&several_content_lengths_are_refused_also_equal_ones,
		&a_content_length_is_digits_only,
		&a_content_length_that_overflows_is_refused,
		&a_transfer_encoding_is_chunked_or_refused,
		&an_http_1_0_answer_has_no_transfer_encoding,
		&a_cut_header_block_is_no_answer,
		&a_cut_body_is_no_answer,
		&lines_without_cr_are_refused,
		&folded_lines_are_refused,
		&control_bytes_in_values_are_refused,
		&names_that_are_no_tokens_are_refused,
		&switching_protocols_is_refused,
		&interim_answers_are_skipped,
		&at_most_8_interim_answers_are_skipped,
		&malformed_interim_answers_are_refused,
		&heads_are_bounded,
		&fields_are_counted,
		&connections_are_kept_by_version_and_connection_field,
	};

	return run("http1", tests, ARRAY_LEN(tests));
}
