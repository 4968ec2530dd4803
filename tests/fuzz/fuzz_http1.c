/*
 * Fuzzes the reader of responses. The first byte says whether the request was HEAD, how
 * large a body may be and whether a larger one is dropped, the second how the stream is cut; the rest is the stream. Read at once,
 * byte by byte and in pieces it must come to the same end; what is believed must be
 * well-formed, and http1_write_head must write a request with the same fields, or refuse it
 * whole.
 */
#include "http1.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

struct input {
	struct span stream;
	size_t body_max;
	bool head_request, discard;
};

static void read_in_pieces(struct http1_reader *reader, struct arena *arena,
			   const struct input *input, size_t piece)
{
	http1_reader_init(reader, arena, input->body_max, input->head_request);
	reader->discard = input->discard;
	for (size_t at = 0; at < input->stream.len; at += piece) {
		size_t rest = input->stream.len - at;
		/* a copy of its own, so that reading past the piece is seen */
		char *copy = mem_text(
			(struct span){ input->stream.at + at, rest < piece ? rest : piece });

		(void)http1_read(reader, (struct span){ copy, rest < piece ? rest : piece });
		mem_free(copy);
	}
	http1_eof(reader);
	http1_reader_fini(reader);
}

static void check_answer(const struct http1_reader *reader, const struct input *input)
{
	const struct http_answer *answer = &reader->answer;

	assert(reader->state != HTTP1_MORE);
	assert(reader->interim <= 9 && reader->keep_alive == false);
	assert((reader->why != NULL) ==
	       (reader->state == HTTP1_MALFORMED || reader->state == HTTP1_TOO_LARGE));
	if (reader->state != HTTP1_COMPLETE)
		return;
	assert(reader->head_done && answer->status >= 200 && answer->status <= 599);
	assert(answer->body.at && answer->body.len <= input->body_max);
	assert(!answer->body.len || !input->head_request);
	assert(answer->fields.n <= HTTP_FIELDS_MAX && !answer->close);
	for (size_t i = 0; i < answer->fields.n; i++) {
		assert(http_token(answer->fields.at[i].name));
		assert(http_field_value(answer->fields.at[i].value));
	}
}

/* What passes the limit is dropped whole, and ends nothing where it may be dropped. */
static void check_limit(const struct http1_reader *reader, const struct input *input)
{
	if (!reader->body_over)
		return;
	assert(!reader->body.at && !reader->answer.body.len);
	assert(input->discard || reader->state == HTTP1_TOO_LARGE);
}

static void check_equal(const struct http1_reader *a, const struct http1_reader *b)
{
	assert(a->state == b->state && a->interim == b->interim && a->seen == b->seen);
	assert(span_equal(span_of(a->why), span_of(b->why)));
	if (a->state != HTTP1_COMPLETE)
		return;
	assert(a->body_over == b->body_over && a->trailing == b->trailing &&
	       a->close_delimited == b->close_delimited);
	assert(a->answer.status == b->answer.status);
	assert(span_equal(a->answer.body, b->answer.body));
	assert(a->answer.fields.n == b->answer.fields.n);
	for (size_t i = 0; i < a->answer.fields.n; i++) {
		assert(span_equal(a->answer.fields.at[i].name, b->answer.fields.at[i].name));
		assert(span_equal(a->answer.fields.at[i].value, b->answer.fields.at[i].value));
	}
}

static void check_write(const struct http_answer *answer, struct span target)
{
	struct http1_head head = { .method = SPAN("POST"),
				   .target = target,
				   .fields = &answer->fields,
				   .body_bytes = answer->body.len };
	struct buf out;

	buf_init(&out, HTTP_HEAD_MAX * 4);
	if (http1_write_head(&out, &head)) {
		size_t lines = 0;

		for (size_t i = 0; i < out.len; i++)
			lines += out.at[i] == '\n';
		assert(lines == answer->fields.n + 3);
	} else {
		assert(out.len == 0);
	}
	buf_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	struct arena *arena = arena_new();
	struct http1_reader whole, other;

	if (len > 2) {
		struct input input = { .stream = { (const char *)bytes + 2, len - 2 },
				       .body_max = (size_t)4 << (bytes[0] >> 1) % 16,
				       .head_request = bytes[0] & 1,
				       .discard = bytes[0] & 0x80 };

		read_in_pieces(&whole, arena, &input, input.stream.len);
		check_answer(&whole, &input);
		check_limit(&whole, &input);
		read_in_pieces(&other, arena, &input, 1);
		check_equal(&whole, &other);
		read_in_pieces(&other, arena, &input, 2 + bytes[1]);
		check_equal(&whole, &other);
		if (whole.state == HTTP1_COMPLETE)
			check_write(&whole.answer, whole.answer.body);
	}
	arena_free(arena);
	return 0;
}
