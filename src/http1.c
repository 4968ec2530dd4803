/*
 * Reads the upstream's responses; see http1.h.
 *
 * A response is read by steps: the head, then its body by the one framing that the head allows
 * (none, Content-Length, chunked, until the stream ends). A step takes what it can of the bytes
 * and says how many (of a chunked body: http1_chunked.c). A head is judged when it is whole; only what shows at once that none is
 * coming (other first bytes, a bad status line, a bare LF, too many bytes) is judged before. A
 * head in one piece is looked at where it arrived and copied once, into the arena; one in
 * pieces is collected first. Body bytes are copied once, and never looked at.
 *
 * Whatever could be understood in two ways is refused here, because an answer that is believed
 * is stored, and replayed to every retry.
 */
#include "http1.h"

#include "http1_internal.h"

#define INTERIM_MAX     8U
#define STATUS_LINE_MIN (sizeof("HTTP/1.1 200") - 1)

void http1_reader_init(struct http1_reader *reader, struct arena *arena, size_t body_max,
		       bool head_request)
{
	*reader = (struct http1_reader){ .arena = arena,
					 .body_max = body_max,
					 .head_request = head_request };
	buf_init(&reader->head, HTTP_HEAD_MAX);
	buf_init(&reader->body, body_max);
}

void http1_reader_fini(struct http1_reader *reader)
{
	buf_fini(&reader->head);
	buf_fini(&reader->body);
}

void http1_refuse(struct http1_reader *r, enum http1_state state, const char *why)
{
	r->state = state;
	r->why = why;
	r->keep_alive = false;
}

void http1_malformed(struct http1_reader *r, const char *why)
{
	http1_refuse(r, HTTP1_MALFORMED, why);
}

bool http1_fits(const struct http1_reader *r, uint64_t more)
{
	return r->body.len <= r->body_max && more <= r->body_max - r->body.len;
}

/* The body is more than may be held. No byte of it is kept, whether it goes on, is read or not. */
void http1_body_over(struct http1_reader *r)
{
	struct buf held = r->body;

	if (r->body_over)
		return;
	r->body_over = true;
	buf_init(&r->body, r->body_max);
	r->passing = r->over && r->over(r);
	if (r->passing && held.len)
		r->piece(r, buf_view(&held));
	if (!r->passing && !r->discard)
		http1_refuse(r, HTTP1_TOO_LARGE, "body");
	buf_fini(&held);
}

/* One of an announced length has its bytes in the arena already, and stays there. */
void http1_pass_on(struct http1_reader *reader)
{
	if (reader->head_done && reader->state == HTTP1_MORE && !reader->into)
		http1_body_over(reader);
}

/* Body bytes that no length announced. */
void http1_collect(struct http1_reader *r, struct span bytes)
{
	if (!http1_fits(r, bytes.len))
		http1_body_over(r);
	if (r->passing)
		r->piece(r, bytes);
	else if (!r->body_over)
		buf_span(&r->body, bytes);
}

/* A collected body moves to the arena as it is, without a copy. */
void http1_complete(struct http1_reader *r)
{
	r->state = HTTP1_COMPLETE;
	if (!r->body.len)
		return;
	r->answer.body = buf_view(&r->body);
	arena_defer(r->arena, mem_free, r->body.at);
	buf_init(&r->body, r->body_max);
}

/* HTTP/1.x SP 3DIGIT [SP reason] */
static void status_line(struct http1_reader *r, struct span line)
{
	const char *at = line.at;
	unsigned status = 0;

	if (line.len < STATUS_LINE_MIN || (at[7] != '0' && at[7] != '1') || at[8] != ' ' ||
	    (line.len > STATUS_LINE_MIN && at[STATUS_LINE_MIN] != ' ') ||
	    !http_field_value(line)) {
		http1_malformed(r, "status line");
		return;
	}
	for (size_t i = 9; i < STATUS_LINE_MIN; i++) {
		unsigned digit = (unsigned)(uint8_t)at[i] - '0';

		status = digit < 10 ? status * 10 + digit : 1000;
	}
	if (status < 100 || status > 599) {
		http1_malformed(r, "status code");
		return;
	}
	r->minor = (unsigned)(at[7] - '0');
	r->answer.status = status;
}

/* A line of the head is over, at its LF: is it one, and is it the last? */
static bool head_line(struct http1_reader *r, struct span head, size_t lf)
{
	if (head.at[lf - 1] != '\r')
		http1_malformed(r, "line ends without CR");
	else if (r->line == 0)
		status_line(r, (struct span){ head.at, lf - 1 });
	return lf - 1 == r->line;
}

/* The bytes of the head with its empty line; 0 where that has not come. */
static size_t head_end(struct http1_reader *r, struct span head)
{
	static const struct span begin = SPAN("HTTP/1.");
	size_t len = head.len < HTTP_HEAD_MAX ? head.len : HTTP_HEAD_MAX;
	const char *lf = NULL;

	if (memcmp(head.at, begin.at, len < begin.len ? len : begin.len) != 0) {
		http1_malformed(r, "not HTTP/1");
		return 0;
	}
	while ((lf = memchr(head.at + r->scanned, '\n', len - r->scanned))) {
		size_t at = (size_t)(lf - head.at);
		bool last = head_line(r, head, at);

		if (r->state != HTTP1_MORE)
			return 0;
		if (last)
			return at + 1;
		r->line = r->scanned = at + 1;
	}
	r->scanned = len;
	if (len == HTTP_HEAD_MAX)
		http1_refuse(r, HTTP1_TOO_LARGE, "head");
	return 0;
}

/*
 * One field line, from `at`. Returns what follows it, NULL where it is none. It needs no end:
 * the head ends in CRLF, and no loop here gets past a CR.
 */
static const char *field_line(struct http1_reader *r, const char *at, struct http_field *field)
{
	const char *name = at, *value = NULL, *end = NULL;

	while (http_is(*at, HTTP_TCHAR))
		at++;
	if (at == name || *at != ':') {
		http1_malformed(r, "field name, or a folded line");
		return NULL;
	}
	field->name = (struct span){ name, (size_t)(at - name) };
	for (at++; *at == ' ' || *at == '\t';)
		at++;
	for (value = end = at; http_is(*at, HTTP_VALUE); at++)
		if (*at != ' ' && *at != '\t')
			end = at + 1;
	if (at[0] != '\r' || at[1] != '\n') {
		http1_malformed(r, "control byte in a field value");
		return NULL;
	}
	field->value = (struct span){ value, (size_t)(end - value) };
	return at + 2;
}

static void parse_fields(struct http1_reader *r, struct span head, struct http_fields *fields)
{
	const char *at = (const char *)memchr(head.at, '\n', head.len) + 1;
	const char *end = head.at + head.len - 2;

	while (at && at < end) {
		if (fields->n == HTTP_FIELDS_MAX) {
			http1_refuse(r, HTTP1_TOO_LARGE, "number of fields");
			return;
		}
		at = field_line(r, at, &fields->at[fields->n++]);
	}
}

/* What the head says of the body's end. */
struct framing {
	bool sized, chunked;
	uint64_t length;
};

static bool read_length(struct span digits, uint64_t *length)
{
	*length = 0;
	for (size_t i = 0; i < digits.len; i++)
		if (digits.at[i] < '0' || digits.at[i] > '9' ||
		    __builtin_mul_overflow(*length, 10, length) ||
		    __builtin_add_overflow(*length, (uint64_t)(digits.at[i] - '0'), length))
			return false;
	return digits.len > 0;
}

static void judge_framing(struct http1_reader *r, const struct http_fields *fields,
			  struct framing *framing)
{
	size_t lengths = 0, codings = 0;
	const struct http_field *length = http_find(fields, SPAN("Content-Length"), &lengths);
	const struct http_field *coding =
		http_find(fields, SPAN("Transfer-Encoding"), &codings);
	bool never = r->answer.status < 200 || r->answer.status == 204;

	framing->sized = lengths > 0;
	framing->chunked = codings > 0;
	if (length && coding)
		http1_malformed(r, "Content-Length and Transfer-Encoding");
	else if (lengths > 1)
		http1_malformed(r, "several Content-Lengths");
	else if (length && !read_length(length->value, &framing->length))
		http1_malformed(r, "Content-Length");
	else if (coding && r->minor == 0)
		http1_malformed(r, "Transfer-Encoding in HTTP/1.0");
	else if (codings > 1 || (coding && !http_same_name(coding->value, SPAN("chunked"))))
		http1_malformed(r, "Transfer-Encoding");
	else if (never && (framing->chunked || framing->length))
		http1_malformed(r, "a body where the status allows none");
}

static void begin_sized(struct http1_reader *r, uint64_t length)
{
	r->step = STEP_SIZED;
	r->left = length;
	if (!length) {
		http1_complete(r);
	} else if (!http1_fits(r, length)) {
		http1_body_over(r);
	} else {
		r->into = arena_alloc(r->arena, length);
		r->answer.body = (struct span){ r->into, 0 };
	}
}

static void begin_body(struct http1_reader *r, const struct framing *framing)
{
	r->answer.body = SPAN("");
	r->length = framing->sized ? framing->length : HTTP1_LENGTH_UNKNOWN;
	if (r->head_request || r->answer.status == 204 || r->answer.status == 304) {
		http1_complete(r);
	} else if (framing->sized) {
		begin_sized(r, framing->length);
	} else if (framing->chunked) {
		r->step = STEP_CHUNK_SIZE;
	} else {
		r->step = STEP_UNTIL_CLOSE;
		r->close_delimited = true;
		r->keep_alive = false;
	}
}

static void skip_interim(struct http1_reader *r)
{
	if (r->answer.status == 101)
		http1_malformed(r, "101 that nobody asked for");
	else if (++r->interim > INTERIM_MAX)
		http1_malformed(r, "too many interim answers");
	r->answer.status = 0;
}

static bool persistent(const struct http1_reader *r)
{
	const struct http_fields *fields = &r->answer.fields;

	if (http_list_has(fields, SPAN("Connection"), SPAN("close")))
		return false;
	return r->minor == 1 || http_list_has(fields, SPAN("Connection"), SPAN("keep-alive"));
}

static void take_head(struct http1_reader *r, struct span head)
{
	struct http_field room[HTTP_FIELDS_MAX];
	struct http_fields fields = { .at = room };
	struct framing framing = { 0 };
	bool interim = r->answer.status < 200;

	if (!interim)
		head = arena_copy(r->arena, head);
	parse_fields(r, head, &fields);
	if (r->state == HTTP1_MORE)
		judge_framing(r, &fields, &framing);
	if (r->state != HTTP1_MORE)
		return;
	if (interim) {
		skip_interim(r);
		return;
	}
	r->answer.fields.n = fields.n;
	r->answer.fields.at = arena_alloc(r->arena, fields.n * sizeof(room[0]));
	memcpy(r->answer.fields.at, room, fields.n * sizeof(room[0]));
	r->head_done = true;
	r->keep_alive = persistent(r);
	begin_body(r, &framing);
}

static size_t read_head(struct http1_reader *r, struct span bytes)
{
	size_t had = r->head.len, rest = HTTP_HEAD_MAX - had, end = 0;
	struct span head = bytes;

	if (had) {
		buf_append(&r->head, bytes.at, bytes.len < rest ? bytes.len : rest);
		head = buf_view(&r->head);
	}
	end = head_end(r, head);
	if (end) {
		take_head(r, (struct span){ head.at, end });
		buf_clear(&r->head);
		r->line = r->scanned = 0;
		return end - had;
	}
	if (!had && r->state == HTTP1_MORE)
		buf_span(&r->head, bytes);
	return bytes.len;
}

static size_t read_sized(struct http1_reader *r, struct span bytes)
{
	size_t n = bytes.len < r->left ? bytes.len : r->left;

	if (r->into) {
		memcpy(r->into + r->answer.body.len, bytes.at, n);
		r->answer.body.len += n;
	} else if (r->passing) {
		r->piece(r, (struct span){ bytes.at, n });
	}
	r->left -= n;
	if (!r->left)
		http1_complete(r);
	return n;
}

static size_t take(struct http1_reader *r, struct span bytes)
{
	switch (r->step) {
	case STEP_HEAD:
		return read_head(r, bytes);
	case STEP_SIZED:
		return read_sized(r, bytes);
	case STEP_UNTIL_CLOSE:
		http1_collect(r, bytes);
		return bytes.len;
	default:
		return http1_chunked(r, bytes);
	}
}

enum http1_state http1_read(struct http1_reader *reader, struct span bytes)
{
	if (bytes.len)
		reader->seen = true;
	while (bytes.len && reader->state == HTTP1_MORE) {
		size_t used = take(reader, bytes);

		bytes.at += used;
		bytes.len -= used;
	}
	if (bytes.len) {
		reader->trailing += bytes.len;
		reader->keep_alive = false;
	}
	return reader->state;
}

enum http1_state http1_eof(struct http1_reader *reader)
{
	reader->keep_alive = false;
	if (reader->state == HTTP1_MORE && reader->step == STEP_UNTIL_CLOSE)
		http1_complete(reader);
	else if (reader->state == HTTP1_MORE)
		reader->state = HTTP1_CUT;
	return reader->state;
}
