/*
 * Published vectors against the codec. They are of requests; a response has the same fields and
 * the same framing, so a request line is replaced by a status line where the body is of
 * interest, and by its target where that is.
 */
#include "corpora.h"
#include "http1_reading.h"

/* What is admitted here though its source refuses it, or the other way round, and why. */
static const struct {
	const char *id, *why;
} apart[] = {
	{ "invalid/rfc9110_trailer_forbidden_cl_01.http",
	  "trailers are dropped, whatever they say" },
	{ "invalid/rfc9110_trailer_forbidden_te_01.http", "the same" },
	{ "invalid/rfc9110_trailer_forbidden_host_01.http", "the same" },
	{ "invalid/chunked_05.http", "its version goes with the request line" },
	{ "invalid/chunked_07.http", "names with an underscore are other names" },
	{ "valid/025.http", "gzip as a transfer coding is refused" },
	{ "valid/025_line.http", "the same" },
	{ "valid/029.http", "several lines of Transfer-Encoding, too" },
	{ "valid/030.http", "the same" },
	{ "valid/rfc9112_smuggle_gzip_chunked_01.http", "the same" },
	{ "valid/pp_02.http", "a PROXY line comes first" },
	{ "valid/rfc9112_smuggle_te_identity_chunked_01.http", "so is identity" },
	{ "SMUG-CHUNK-BARE-SEMICOLON", "chunk extensions are ignored, not understood" },
	{ "SMUG-CHUNK-EXT-INVALID-TOKEN", "the same" },
	{ "SMUG-TE-HTTP10", "its version goes with the request line" },
};

static bool is_apart(const char *id)
{
	for (size_t i = 0; i < ARRAY_LEN(apart); i++)
		if (strcmp(apart[i].id, id) == 0)
			return true;
	return false;
}

/* The request behind its first line, as a response; empty where it has no line. */
static struct span as_response(struct span request)
{
	static const struct span status_line = SPAN(OK11);
	const char *cr = memmem(request.at, request.len, "\r\n", 2);
	size_t skipped = cr ? (size_t)(cr - request.at) + 2 : request.len;
	char *at = arena_alloc(arena, status_line.len + request.len);

	memcpy(at, status_line.at, status_line.len);
	memcpy(at + status_line.len, request.at + skipped, request.len - skipped);
	return (struct span){ at, cr ? status_line.len + request.len - skipped : 0 };
}

static struct span target_of(struct span request)
{
	const char *from = memchr(request.at, ' ', request.len), *to = NULL;

	if (!from)
		return SPAN("");
	from++;
	to = memmem(from, (size_t)(request.at + request.len - from), " HTTP/", 6);
	return to ? (struct span){ from, (size_t)(to - from) } : SPAN("");
}

static bool holds(struct span request, const char *what)
{
	return request.at && memmem(request.at, request.len, what, strlen(what));
}

static bool is_chunked(struct span request)
{
	return holds(request, "hunked");
}

START_TEST(chunked_messages_of_gunicorn_are_judged_as_it_does)
{
	json_t *json = corpus("gunicorn-http/expected.json"), *message = NULL;
	const char *name = NULL;

	json_object_foreach(json, name, message)
	{
		struct span request = corpus_bytes(arena, json_object_get(message, "raw_b64"));
		bool valid = strncmp(name, "valid/", 6) == 0;

		if (!is_chunked(request))
			continue;
		read_pieces(as_response(request), 5, false);
		ck_assert_msg((reader.state == HTTP1_COMPLETE) == (valid != is_apart(name)),
			      "%s: state %d", name, reader.state);
	}
	json_decref(json);
}
END_TEST

START_TEST(targets_of_gunicorn_are_judged_by_the_contract)
{
	static const struct {
		const char *name;
		bool fine;
	} targets[] = {
		{ "valid/001.http", true },
		{ "valid/005.http", false }, /* a fragment */
		{ "valid/009.http", false },
		{ "valid/014.http", true },  /* quotes */
		{ "valid/027.http", false }, /* not ASCII */
		{ "valid/100.http", false }, /* empty segments */
		{ "valid/rfc9112_target_absolute_01.http", true },
		{ "valid/rfc9112_target_absolute_https_01.http", true },
		{ "valid/rfc9112_target_absolute_ipv6_01.http", true },
		{ "valid/rfc9112_target_absolute_userinfo_01.http", false },
		{ "valid/rfc9112_target_asterisk_options_01.http", true },
		{ "valid/rfc9112_target_authority_connect_01.http", false },
		{ "valid/rfc9112_target_authority_ipv6_01.http", false },
		{ "invalid/016.http", false },
		{ "invalid/rfc9112_target_authority_non_connect_01.http", false },
		{ "invalid/rfc9112_target_relative_01.http", false },
	};
	json_t *json = corpus("gunicorn-http/expected.json");
	struct http_target out;

	for (size_t i = 0; json && i < ARRAY_LEN(targets); i++) {
		json_t *message = json_object_get(json, targets[i].name);
		struct span request = corpus_bytes(arena, json_object_get(message, "raw_b64"));

		ck_assert_msg(http_target(arena, target_of(request), false, &out) ==
				      targets[i].fine,
			      "%s", targets[i].name);
	}
	json_decref(json);
}
END_TEST

static void probe(const char *id, struct span request, bool refuse)
{
	struct http_target out;

	if (strncmp(id, "MAL-NUL-IN-URL", 14) == 0 ||
	    strncmp(id, "MAL-NON-ASCII-URL", 17) == 0 ||
	    strncmp(id, "MAL-URL-OVERLONG", 16) == 0 || strncmp(id, "COMP-SPACE-IN", 13) == 0)
		ck_assert_msg(!http_target(arena, target_of(request), true, &out), "%s", id);
	if (!holds(request, "ontent-Length") && !is_chunked(request))
		return;
	read_pieces(as_response(request), 5, false);
	if (refuse && !is_apart(id))
		ck_assert_msg(reader.state == HTTP1_MALFORMED, "%s: state %d", id,
			      reader.state);
}

START_TEST(what_http11probe_wants_refused_is_refused)
{
	json_t *json = corpus("http11probe/cases.json"), *message = NULL;
	size_t i = 0;

	json_array_foreach(json, i, message)
	{
		json_t *expected = json_object_get(message, "expected");
		const char *status = json_string_value(json_object_get(expected, "status"));
		struct span request =
			corpus_bytes(arena, json_object_get(message, "payload_b64"));

		if (request.len)
			probe(json_string_value(json_object_get(message, "id")), request,
			      status && strcmp(status, "Exact(400)") == 0);
	}
	json_decref(json);
}
END_TEST

/* With a length beside it no spelling of Transfer-Encoding may make a message chunked. */
START_TEST(no_spelling_of_transfer_encoding_beats_a_length)
{
	json_t *json = corpus("smuggler-te/te-header-mutations.json"), *base64 = NULL;
	const char *name = NULL;

	json_object_foreach(json, name, base64)
	{
		struct span line = corpus_bytes(arena, base64);
		struct buf stream;

		buf_init(&stream, HTTP_HEAD_MAX);
		buf_text(&stream, OK11);
		buf_span(&stream, line);
		buf_text(&stream, "\r\nContent-Length: 5\r\n\r\n0\r\n\r\n");
		read_pieces(buf_view(&stream), 5, false);
		buf_fini(&stream);
		ck_assert_msg(reader.state == HTTP1_MALFORMED ||
				      (reader.state == HTTP1_COMPLETE &&
				       span_equal(reader.answer.body, SPAN("0\r\n\r\n"))),
			      "%s: state %d", name, reader.state);
	}
	json_decref(json);
}
END_TEST

/* Alone it is the one form, or another field (the body ends with the stream), or bad. */
START_TEST(only_one_spelling_of_transfer_encoding_is_chunked)
{
	json_t *json = corpus("smuggler-te/te-header-mutations.json"), *base64 = NULL;
	const char *name = NULL;

	json_object_foreach(json, name, base64)
	{
		struct span line = corpus_bytes(arena, base64);
		struct buf stream;

		buf_init(&stream, HTTP_HEAD_MAX);
		buf_text(&stream, OK11);
		buf_span(&stream, line);
		buf_text(&stream, "\r\n\r\n0\r\n\r\n");
		read_pieces(buf_view(&stream), 5, false);
		buf_fini(&stream);
		if (reader.state != HTTP1_COMPLETE)
			continue;
		ck_assert_msg(http_list_has(&reader.answer.fields, SPAN("Transfer-Encoding"),
					    SPAN("chunked")),
			      "%s", name);
	}
	json_decref(json);
}
END_TEST

int main(void)
{
	static const TTest *const *const tests[] = {
		&chunked_messages_of_gunicorn_are_judged_as_it_does,
		&targets_of_gunicorn_are_judged_by_the_contract,
		&what_http11probe_wants_refused_is_refused,
		&no_spelling_of_transfer_encoding_beats_a_length,
		&only_one_spelling_of_transfer_encoding_is_chunked,
	};

	return run("http_corpora", tests, ARRAY_LEN(tests));
}
