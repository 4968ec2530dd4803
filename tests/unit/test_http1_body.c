/* The reader of responses: bodies by each framing, and their ends. */
#include "http1_reading.h"

START_TEST(chunks_are_joined)
{
	whole(CHUNKED "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n", 200, "hello world");
	whole(CHUNKED "0\r\n\r\n", 200, "");
	whole(CHUNKED "a\r\n0123456789\r\nA\r\n0123456789\r\n000\r\n\r\n", 200,
	      "01234567890123456789");
	whole(CHUNKED "0000000000000005\r\nhello\r\n0\r\n\r\n", 200, "hello");
	whole(CHUNKED "2\r\n\r\n\r\n0\r\n\r\n", 200, "\r\n");
}
END_TEST

START_TEST(chunk_extensions_are_ignored)
{
	whole(CHUNKED "5;a=b\r\nhello\r\n0;x=\"y z\";q\r\n\r\n", 200, "hello");
	whole(CHUNKED "5 \t; a = b\r\nhello\r\n0 ;\r\n\r\n", 200, "hello");
	whole(CHUNKED "5;;5\xff\r\nhello\r\n0\r\n\r\n", 200, "hello");
}
END_TEST

START_TEST(chunk_sizes_that_are_not_hex_are_refused)
{
	static const char *const sizes[] = {
		"",  " 5", "+5",  "-5", "0x5", "5_",     "5 ",     "5\t",
		"g", "5,", " ;a", ";a", "5\r", "5;a\rb", "5;\x01", "5\x0b",
	};

	for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
		refused(arena_format(arena, CHUNKED "%s\r\nhello\r\n0\r\n\r\n", sizes[i]).at);
}
END_TEST

START_TEST(chunk_sizes_that_overflow_are_refused)
{
	refused(CHUNKED "10000000000000000\r\n");
	refused(CHUNKED "FFFFFFFFFFFFFFFFF\r\n");
	refused(CHUNKED "00000000000000005\r\nhello\r\n0\r\n\r\n");
	too_large(SPAN(CHUNKED "FFFFFFFFFFFFFFFF\r\n"));
	too_large(SPAN(CHUNKED "5\r\nhello\r\nFFFFFFFFFFFFFFFB\r\n"));
}
END_TEST

START_TEST(chunks_that_are_longer_or_shorter_than_they_say_are_refused)
{
	refused(CHUNKED "5\r\nhello!\r\n0\r\n\r\n");
	refused(CHUNKED "5\r\nhell\r\n0\r\n\r\n");
	refused(CHUNKED "5\r\nhello0\r\n\r\n");
	refused(CHUNKED "5\r\nhello\r\r\n0\r\n\r\n");
}
END_TEST

START_TEST(trailers_are_dropped)
{
	whole(CHUNKED "2\r\nhi\r\n0\r\nContent-Length: 99\r\nX-A: b\r\nC:\r\n\r\n", 200, "hi");
	ck_assert_uint_eq(reader.answer.fields.n, 1);
}
END_TEST

START_TEST(malformed_trailers_are_refused)
{
	refused(CHUNKED "0\r\nA b\r\n\r\n");
	refused(CHUNKED "0\r\n: b\r\n\r\n");
	refused(CHUNKED "0\r\nA : b\r\n\r\n");
	refused(CHUNKED "0\r\nA\r\n\r\n");
	refused(CHUNKED "0\r\nA: b\rc\r\n\r\n");
	refused(CHUNKED "0\r\nA: b\x01\r\n\r\n");
	refused(CHUNKED "0\r\n\rX");
}
END_TEST

START_TEST(trailers_and_extensions_are_bounded_together)
{
	size_t most = HTTP_HEAD_MAX - sizeof("A:\r\n\r");
	const struct want fine = { HTTP1_COMPLETE, 200, "", true, 0 };

	check(padded(CHUNKED "0\r\nA:", most, 'b', "\r\n\r\n"), &fine, false);
	too_large(padded(CHUNKED "0\r\nA:", most + 2, 'b', "\r\n\r\n"));
	too_large(padded(CHUNKED "0\r\nA:", most + 99, 'b', ""));
	check(padded(CHUNKED "0;", HTTP_HEAD_MAX - 2, 'b', "\r\n\r\n"), &fine, false);
	too_large(padded(CHUNKED "0;", HTTP_HEAD_MAX, 'b', "\r\n\r\n"));
	too_large(padded(CHUNKED "1 ", HTTP_HEAD_MAX, '\t', ";"));
	too_large(
		padded(CHUNKED "1;1234567890\r\na\r\n0;", HTTP_HEAD_MAX - 9, 'b', "\r\n\r\n"));
}
END_TEST

START_TEST(bodies_are_bounded_as_soon_as_it_shows)
{
	const char *most = padded("", body_max, 'b', "").at;

	check(padded(OK11 "Content-Length: 64\r\n\r\n", 64, 'b', ""),
	      &(struct want){ HTTP1_COMPLETE, 200, most, true, 0 }, false);
	too_large(SPAN(OK11 "Content-Length: 65\r\n\r\n"));
	check(padded(CHUNKED "40\r\n", 64, 'b', "\r\n0\r\n\r\n"),
	      &(struct want){ HTTP1_COMPLETE, 200, most, true, 0 }, false);
	too_large(SPAN(CHUNKED "41\r\n"));
	too_large(padded(CHUNKED "3f\r\n", 63, 'b', "\r\n2\r\n"));
	check(padded(OK11 "\r\n", 64, 'b', ""), &(struct want){ .state = HTTP1_MORE }, false);
	ck_assert_int_eq(http1_eof(&reader), HTTP1_COMPLETE);
	too_large(padded(OK11 "\r\n", 65, 'b', ""));
}
END_TEST

/* Read to its end, by its framing, and not kept. */
static void dropped(struct span stream, bool keep_alive, size_t trailing)
{
	check(stream, &(struct want){ HTTP1_COMPLETE, 200, "", keep_alive, trailing }, false);
	ck_assert(reader.body_over);
}

START_TEST(a_body_over_the_limit_can_be_read_to_its_end)
{
	discard = true;
	dropped(padded(OK11 "Content-Length: 65\r\n\r\n", 65, 'b', ""), true, 0);
	dropped(padded(OK11 "Content-Length: 999\r\n\r\n", 999, 'b', "123"), false, 3);
	dropped(padded(CHUNKED "41\r\n", 65, 'b', "\r\n0\r\n\r\n"), true, 0);
	dropped(padded(CHUNKED "40;x\r\n", 64, 'b', "\r\n1\r\nc\r\n0\r\nA:b\r\n\r\n123"), false,
		3);
	dropped(padded(CHUNKED "3e8\r\n", 1000, 'b', "\r\n1\r\nc\r\n0\r\n\r\n"), true, 0);
	check(padded(OK11 "\r\n", 65, 'b', ""), &(struct want){ .state = HTTP1_MORE }, false);
	ck_assert_int_eq(http1_eof(&reader), HTTP1_COMPLETE);
	ck_assert(reader.body_over && reader.close_delimited && !reader.answer.body.len);
}
END_TEST

START_TEST(a_body_within_the_limit_is_kept_also_then)
{
	const char *most = padded("", body_max, 'b', "").at;

	discard = true;
	whole(padded(OK11 "Content-Length: 64\r\n\r\n", 64, 'b', "").at, 200, most);
	ck_assert(!reader.body_over);
	whole(padded(CHUNKED "40\r\n", 64, 'b', "\r\n0\r\n\r\n").at, 200, most);
	ck_assert(!reader.body_over);
}
END_TEST

START_TEST(a_dropped_body_is_read_as_strictly)
{
	discard = true;
	unfinished(OK11 "Content-Length: 18446744073709551615\r\n\r\nb");
	unfinished(padded(OK11 "Content-Length: 66\r\n\r\n", 65, 'b', "").at);
	unfinished(CHUNKED "FFFFFFFFFFFFFFFF\r\nb");
	unfinished(padded(CHUNKED "41\r\n", 65, 'b', "\r\n0\r\n\r").at);
	refused(padded(CHUNKED "41\r\n", 66, 'b', "\r\n0\r\n\r\n").at);
	refused(padded(CHUNKED "41\r\n", 65, 'b', "\r\nx\r\n\r\n").at);
	refused(padded(CHUNKED "41\r\n", 65, 'b', "\r\n0\r\nA b\r\n\r\n").at);
	too_large(padded(OK11 "A:", HTTP_HEAD_MAX, 'b', "")); /* a head is never dropped */
	too_large(padded(CHUNKED "41;", HTTP_HEAD_MAX + 1, 'b', ""));
}
END_TEST

/* What was kept so far, and what an announced chunk needs, no longer fits. */
START_TEST(the_limit_may_be_lowered_between_reads)
{
	static const char *const heads[] = { CHUNKED "20\r\n", OK11 "\r\n" };

	for (size_t i = 0; i < 2 * ARRAY_LEN(heads); i++) {
		http1_reader_init(&reader, arena, body_max, false);
		reader.discard = i < ARRAY_LEN(heads);
		(void)http1_read(&reader, span_of(heads[i % 2]));
		(void)http1_read(&reader, SPAN("0123456789"));
		ck_assert_uint_eq(reader.body.len, 10);
		reader.body_max = 5;
		(void)http1_read(&reader, SPAN("0"));
		ck_assert(reader.body_over && !reader.body.at);
		ck_assert_int_eq(reader.state, reader.discard ? HTTP1_MORE : HTTP1_TOO_LARGE);
		reader.body_max = body_max;
		(void)http1_read(&reader, SPAN("0123456789"));
		ck_assert_ptr_null(reader.body.at); /* what is lost stays lost */
		http1_reader_fini(&reader);
	}
}
END_TEST

START_TEST(bytes_after_the_end_spoil_the_connection)
{
	struct want want = { HTTP1_COMPLETE, 200, "hi", false, 3 };

	check(SPAN(OK11 "Content-Length: 2\r\n\r\nhi123"), &want, false);
	check(SPAN(CHUNKED "2\r\nhi\r\n0\r\n\r\n123"), &want, false);
	want.body = "";
	check(SPAN(OK11 "Content-Length: 0\r\n\r\n123"), &want, false);
	check(SPAN(OK11 "Content-Length: 3\r\n\r\n123"), &want, true);
}
END_TEST

START_TEST(some_answers_have_no_body)
{
	const struct want want = { HTTP1_COMPLETE, 200, "", true, 0 };

	whole("HTTP/1.1 204 No Content\r\n\r\n", 204, "");
	whole("HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", 204, "");
	refused("HTTP/1.1 204 No Content\r\nContent-Length: 1\r\n\r\n");
	refused("HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n");
	whole("HTTP/1.1 304 Not Modified\r\nContent-Length: 500\r\n\r\n", 304, "");
	whole("HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n", 304, "");
	check(SPAN(OK11 "Content-Length: 500\r\n\r\n"), &want, true);
	check(SPAN(CHUNKED), &want, true);
	check(SPAN(OK11 "\r\n"), &want, true);
}
END_TEST

START_TEST(a_close_delimited_answer_says_so)
{
	static const char *const streams[] = { OK11 "\r\nhello", "HTTP/1.0 200 OK\r\n\r\nhello",
					       OK11 "Connection: close\r\n\r\nhello" };

	for (size_t i = 0; i < ARRAY_LEN(streams); i++) {
		check(span_of(streams[i]), &(struct want){ .state = HTTP1_MORE }, false);
		ck_assert(reader.close_delimited && !reader.keep_alive);
		ck_assert_int_eq(http1_eof(&reader), HTTP1_COMPLETE);
		ck_assert(reader.close_delimited && !reader.keep_alive);
		ck_assert(span_equal(reader.answer.body, SPAN("hello")));
		ck_assert_int_eq(http1_eof(&reader), HTTP1_COMPLETE);
	}
	read_pieces(SPAN(OK11 "Content-Length: 0\r\n\r\n"), 1, false);
	ck_assert(!reader.close_delimited);
}
END_TEST

START_TEST(a_large_body_is_whole_whatever_its_framing)
{
	const size_t len = (size_t)3 << 20, chunk = 12345;
	char *bytes = arena_alloc(arena, len);
	struct buf chunked;

	buf_init(&chunked, len * 2);
	buf_text(&chunked, CHUNKED);
	for (size_t i = 0; i < len; i++)
		bytes[i] = (char)(i * 31 >> 3);
	for (size_t at = 0; at < len; at += chunk) {
		size_t n = len - at < chunk ? len - at : chunk;

		buf_format(&chunked, "%zx\r\n", n);
		buf_append(&chunked, bytes + at, n);
		buf_text(&chunked, "\r\n");
	}
	buf_text(&chunked, "0\r\n\r\n");
	http1_reader_init(&reader, arena, len, false);
	for (size_t at = 0; at < chunked.len; at += 16384) {
		size_t rest = chunked.len - at;

		(void)http1_read(&reader,
				 (struct span){ chunked.at + at, rest < 16384 ? rest : 16384 });
	}
	buf_fini(&chunked);
	http1_reader_fini(&reader);
	ck_assert_int_eq(reader.state, HTTP1_COMPLETE);
	ck_assert(span_equal(reader.answer.body, (struct span){ bytes, len }));

	http1_reader_init(&reader, arena, len, false);
	(void)http1_read(&reader, arena_format(arena, OK11 "Content-Length: %zu\r\n\r\n", len));
	ck_assert_int_eq(http1_read(&reader, (struct span){ bytes, len }), HTTP1_COMPLETE);
	ck_assert(span_equal(reader.answer.body, (struct span){ bytes, len }));
}
END_TEST

int main(void)
{
	static const TTest *const *const tests[] = {
		&chunks_are_joined,
		&chunk_extensions_are_ignored,
		&chunk_sizes_that_are_not_hex_are_refused,
		&chunk_sizes_that_overflow_are_refused,
		&chunks_that_are_longer_or_shorter_than_they_say_are_refused,
		&trailers_are_dropped,
		&malformed_trailers_are_refused,
		&trailers_and_extensions_are_bounded_together,
		&bodies_are_bounded_as_soon_as_it_shows,
		&a_body_over_the_limit_can_be_read_to_its_end,
		&a_body_within_the_limit_is_kept_also_then,
		&a_dropped_body_is_read_as_strictly,
		&the_limit_may_be_lowered_between_reads,
		&bytes_after_the_end_spoil_the_connection,
		&some_answers_have_no_body,
		&a_close_delimited_answer_says_so,
		&a_large_body_is_whole_whatever_its_framing,
	};

	return run("http1_body", tests, ARRAY_LEN(tests));
}
