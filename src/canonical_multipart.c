/*
 * The canonical form of multipart/form-data (RFC 7578, RFC 2046): its parts in their order, each
 * with its name, file name, content type and bytes. The boundary, what stands before the first and
 * behind the last one, other header fields of a part, and how headers are spelt do not count.
 *
 * A part is written as a line of `key LENGTH:bytes`, with what it does not have left out:
 *     name 5:photo filename 5:a.png type 9:image/png body 3:abc
 * Parameters of a content type, and those of the Content-Disposition that have no key of their
 * own, are each written as `;name LENGTH:value`, the name in lower case.
 *
 * Refused: no boundary in the Content-Type, a body that ends before the last boundary, a boundary
 * where no part can be (some would read one there), a header line that is none, two of a header
 * or parameter that counts. What upstreams may read differently is not taken for the same: a
 * quoted text keeps its backslashes, a Content-Transfer-Encoding that changes the bytes counts, as
 * `filename*` does, and so does a Content-Disposition that is not form-data, whatever it says. A
 * line that only begins with the boundary is content. No rule leaves out a part with a `name*`:
 * that may be what it is called.
 *
 * The body is read twice, so that nothing is written of one that is refused; each time in one
 * pass, and memory is only needed for content types.
 */
#include "canonical.h"

#include "canonical_rules.h"
#include "http.h"
#include "multipart_text.h"

#include <stdio.h>

#define BOUNDARY_MAX   256U /* RFC 2046 has 70; clients have more */
#define PARTS_MAX      10000U
#define HEADERS_MAX    ((size_t)16 * 1024) /* bytes of the headers of a part */
#define PARAMETERS_MAX (16 * HEADERS_MAX)  /* as they are written: more than any become */

struct part {
	struct span name, filename, filename_star, type, encoding; /* .at NULL: has none */
	struct span disposition; /* one that is not form-data */
	struct span others;      /* other parameters of the Content-Disposition */
	bool renamed;            /* one of them may be a name */
	struct span content;
	bool described; /* Content-Disposition was there */
};

struct multipart {
	const struct canonical_task *task;
	struct canonical_sink *sink; /* NULL: only look */
	struct canonical_error *error;
	const char *at, *end;
	bool last;                        /* the delimiter before `at` was the last one */
	bool kept;                        /* there is a part that `only` keeps */
	bool whole;                       /* there is none, and all count */
	char delimiter[BOUNDARY_MAX + 4]; /* CR LF - - boundary */
	size_t delimiter_len;
};

/* `at` may lie in a copy of a header line: the line begins at m->at then. */
static bool wrong(struct multipart *m, const char *at, const char *expected)
{
	uintptr_t start = (uintptr_t)m->task->body.at;
	bool inside = (uintptr_t)at >= start && (uintptr_t)at <= (uintptr_t)m->end;

	m->error->offset = (size_t)((uintptr_t)(inside ? at : m->at) - start);
	m->error->expected = expected;
	return false;
}

/* The part's value of a parameter that may be there once. */
static bool set_once(struct span *field, struct span value)
{
	bool once = !field->at;

	*field = value;
	return once;
}

static bool find_boundary(struct multipart *m)
{
	struct span rest = m->task->content_type, boundary = { 0 };
	struct text_parameter p = { 0 };
	bool once = true;

	rest = text_from(rest, text_piece(rest));
	while (once && text_parameter(&rest, &p))
		if (http_same_name(p.name, SPAN("boundary")))
			once = set_once(&boundary, p.value);
	if (!once || rest.len || !boundary.len || boundary.len > BOUNDARY_MAX ||
	    !http_field_value(boundary))
		return wrong(m, m->at, "a Content-Type with a boundary");
	memcpy(m->delimiter, "\r\n--", 4);
	memcpy(m->delimiter + 4, boundary.at, boundary.len);
	m->delimiter_len = boundary.len + 4;
	return true;
}

/* Is the delimiter before m->at one? Goes behind the line end that must follow; the last one has
 * -- before that, and may be the end of the body. */
static bool is_delimiter(struct multipart *m)
{
	const char *at = m->at;

	m->last = m->end - at >= 2 && at[0] == '-' && at[1] == '-';
	if (m->last)
		at += 2;
	while (at < m->end && text_space(*at))
		at++;
	if (m->last && at == m->end)
		return true;
	if (m->end - at < 2 || at[0] != '\r' || at[1] != '\n')
		return false;
	m->at = at + 2;
	return true;
}

/* Goes behind the next delimiter from `at` on; its start, NULL where there is none. What only
 * begins like one is content. */
static const char *next_delimiter(struct multipart *m, const char *at)
{
	for (;; at++) {
		at = memmem(at, (size_t)(m->end - at), m->delimiter, m->delimiter_len);
		if (!at)
			return NULL;
		m->at = at + m->delimiter_len;
		if (is_delimiter(m))
			return at;
	}
}

/* Nothing from `at` to `end` may look like a boundary. */
static bool no_boundary(struct multipart *m, const char *at, const char *end)
{
	at = memmem(at, (size_t)(end - at), m->delimiter + 2, m->delimiter_len - 2);
	return !at || wrong(m, at, "no boundary outside of the parts");
}

/* The first one needs no line end before it. */
static bool first_delimiter(struct multipart *m)
{
	const char *start = m->at, *found = NULL;
	size_t len = m->delimiter_len - 2;

	if ((size_t)(m->end - start) >= len && memcmp(start, m->delimiter + 2, len) == 0) {
		m->at += len;
		return is_delimiter(m) ||
		       wrong(m, m->at, "a line end or -- behind the boundary");
	}
	found = next_delimiter(m, start);
	if (!found || m->last)
		return wrong(m, found ? found : m->end, "the first boundary");
	return no_boundary(m, start, found);
}

/* A parameter that has no place of its own, name* among them, and name*0 of RFC 2231. */
static void read_other(struct part *part, const struct text_parameter *p, struct buf *others)
{
	const struct span name = SPAN("name*");

	text_put_parameter(others, p);
	part->renamed |=
		p->name.len >= name.len && http_same_name(text_upto(p->name, name.len), name);
}

/* A parameter of a form-data; false: it is there twice. */
static bool read_form_data(struct part *part, const struct text_parameter *p,
			   struct buf *others)
{
	if (http_same_name(p->name, SPAN("name")))
		return set_once(&part->name, p->value);
	if (http_same_name(p->name, SPAN("filename")))
		return set_once(&part->filename, p->value);
	if (http_same_name(p->name, SPAN("filename*")))
		return set_once(&part->filename_star, p->value);
	read_other(part, p, others);
	return true;
}

static bool read_disposition(struct multipart *m, struct span value, struct part *part)
{
	const char *start = value.at;
	struct span type = text_trimmed(text_upto(value, text_piece(value)));
	struct text_parameter p = { 0 };
	struct buf others;
	bool once = !part->described;

	part->described = true;
	if (once && !http_same_name(type, SPAN("form-data"))) {
		part->disposition = value;
		return true;
	}
	value = text_from(value, text_piece(value));
	buf_init(&others, PARAMETERS_MAX);
	while (once && text_parameter(&value, &p))
		once = read_form_data(part, &p, &others);
	if (others.len)
		part->others = arena_copy(m->task->arena, buf_view(&others));
	buf_fini(&others);
	if (!once)
		return wrong(m, start, "one Content-Disposition with one name");
	return !value.len || wrong(m, value.at, "a parameter: name=value");
}

/* Names in lower case, no white space, no quotes: text/plain;charset 5:UTF-8. */
static bool read_type(struct multipart *m, struct span value, struct part *part)
{
	const char *start = value.at;
	struct text_parameter p = { 0 };
	struct buf out;

	buf_init(&out, PARAMETERS_MAX);
	text_put_lower(&out, text_trimmed(text_upto(value, text_piece(value))));
	value = text_from(value, text_piece(value));
	while (text_parameter(&value, &p))
		text_put_parameter(&out, &p);
	if (part->type.at)
		wrong(m, start, "one Content-Type");
	else if (value.len)
		wrong(m, value.at, "a parameter: name=value");
	else
		part->type = arena_copy(m->task->arena, buf_view(&out));
	buf_fini(&out);
	return part->type.at && !m->error->expected;
}

/* Most say that nothing was done to the bytes: that is as if they said nothing. */
static bool read_encoding(struct multipart *m, struct span value, struct part *part)
{
	static const char *const none[] = { "7bit", "8bit", "binary" };

	for (size_t i = 0; i < ARRAY_LEN(none); i++)
		if (http_same_name(value, span_of(none[i])))
			return true;
	return set_once(&part->encoding, value) ||
	       wrong(m, value.at, "one Content-Transfer-Encoding");
}

static bool read_header(struct multipart *m, struct span line, struct part *part)
{
	const char *colon = memchr(line.at, ':', line.len);
	struct span name = { 0 }, value = { 0 };

	if (!colon)
		return wrong(m, line.at, "a header field");
	name = text_upto(line, (size_t)(colon - line.at));
	value = text_trimmed(text_from(line, name.len + 1));
	if (!http_token(name) || !http_field_value(value))
		return wrong(m, line.at, "a header field");
	if (http_same_name(name, SPAN("Content-Disposition")))
		return read_disposition(m, value, part);
	if (http_same_name(name, SPAN("Content-Type")))
		return read_type(m, value, part);
	if (http_same_name(name, SPAN("Content-Transfer-Encoding")))
		return read_encoding(m, value, part);
	return true;
}

/* Where the header line at `at` ends: a line that begins with a space goes on with it. */
static const char *header_end(const struct multipart *m, const char *at)
{
	for (const char *from_here = at;;) {
		const char *end = memmem(from_here, (size_t)(m->end - from_here), "\r\n", 2);

		if (!end || end == at)
			return end;
		from_here = end + 2;
		if (from_here == m->end || !text_space(*from_here))
			return end;
	}
}

/* A line that was folded, in one. */
static struct span unfolded(struct arena *arena, struct span line)
{
	char *out = NULL;

	if (!memmem(line.at, line.len, "\r\n", 2))
		return line;
	out = arena_alloc(arena, line.len);
	memcpy(out, line.at, line.len);
	for (size_t i = 0; i + 1 < line.len; i++)
		if (out[i] == '\r' && out[i + 1] == '\n')
			out[i] = out[i + 1] = ' ';
	return (struct span){ out, line.len };
}

/* Up to the empty line behind the headers, which may be the beginning of a delimiter. */
static bool read_headers(struct multipart *m, struct part *part)
{
	const char *start = m->at;

	for (;;) {
		const char *end = header_end(m, m->at);
		struct span line = { m->at, end ? (size_t)(end - m->at) : 0 };

		if (!end)
			return wrong(m, m->end, "the end of the headers of a part");
		if ((size_t)(end - start) > HEADERS_MAX)
			return wrong(m, start, "headers of at most 16 KiB");
		if (!line.len)
			return true;
		if (!read_header(m, unfolded(m->task->arena, line), part))
			return false;
		m->at = end + 2;
	}
}

static void put_item(struct multipart *m, const char *key, struct span bytes)
{
	char head[64];
	int len = snprintf(head, sizeof(head), "%s %zu:", key, bytes.len);

	if (!bytes.at)
		return;
	m->sink->put(m->sink, head, (size_t)len);
	m->sink->put(m->sink, bytes.at, bytes.len);
	m->sink->put(m->sink, " ", 1);
}

/* What most upstreams take the name for: with \", \\ and %22 undone. */
static struct span plain_name(struct arena *arena, struct span name)
{
	char *out = arena_alloc(arena, name.len + 1);
	size_t n = 0;

	for (size_t i = 0; i < name.len; i++) {
		size_t left = name.len - i;

		if (left > 1 && name.at[i] == '\\' &&
		    (name.at[i + 1] == '"' || name.at[i + 1] == '\\')) {
			out[n++] = name.at[++i];
		} else if (left > 2 && memcmp(name.at + i, "%22", 3) == 0) {
			out[n++] = '"';
			i += 2;
		} else {
			out[n++] = name.at[i];
		}
	}
	return (struct span){ out, n };
}

/* No copy is made of a name that has no escapes, nor without rules. */
static struct span ruled_name(const struct multipart *m, const struct part *part)
{
	struct span name = part->name;

	if (!m->task->rules || !name.len ||
	    !(memchr(name.at, '\\', name.len) || memchr(name.at, '%', name.len)))
		return name;
	return plain_name(m->task->arena, name);
}

static bool part_is_kept(const struct multipart *m, const struct part *part)
{
	return part->name.at && (rule_field_kept(m->task->rules, ruled_name(m, part)) ||
				 rule_field_kept(m->task->rules, part->name));
}

static bool part_counts(const struct multipart *m, const struct part *part)
{
	return !part->name.at || part->renamed ||
	       rule_field_counts(m->task->rules, m->whole, ruled_name(m, part)) ||
	       rule_field_kept(m->task->rules, part->name);
}

static void put_part(struct multipart *m, const struct part *part)
{
	char head[64];
	int len = snprintf(head, sizeof(head), "body %zu:", part->content.len);

	put_item(m, "name", part->name);
	put_item(m, "disposition", part->disposition);
	put_item(m, "filename", part->filename);
	put_item(m, "filename*", part->filename_star);
	put_item(m, "parameters", part->others);
	put_item(m, "type", part->type);
	put_item(m, "encoding", part->encoding);
	m->sink->put(m->sink, head, (size_t)len);
	m->sink->put(m->sink, part->content.at, part->content.len);
	m->sink->put(m->sink, "\n", 1);
}

/* From behind a delimiter to behind the next one. */
static bool read_part(struct multipart *m)
{
	struct part part = { 0 };
	const char *content = NULL, *end = NULL;

	if (!read_headers(m, &part))
		return false;
	content = m->at + 2;
	end = next_delimiter(m, m->at);
	if (!end)
		return wrong(m, m->end, "the last boundary");
	part.content = (struct span){ content, end > content ? (size_t)(end - content) : 0 };
	if (!m->sink)
		m->kept |= part_is_kept(m, &part);
	else if (part_counts(m, &part))
		put_part(m, &part);
	return true;
}

static bool read_parts(struct multipart *m)
{
	m->at = m->task->body.at;
	if (!first_delimiter(m))
		return false;
	for (size_t n = 0; !m->last; n++) {
		if (n == PARTS_MAX)
			return wrong(m, m->at, "no more than 10,000 parts");
		if (!read_part(m))
			return false;
	}
	return no_boundary(m, m->at, m->end);
}

bool canonical_multipart(const struct canonical_task *task, struct canonical_sink *sink,
			 struct canonical_error *error)
{
	struct multipart m = { .task = task, .error = error };

	m.at = task->body.at;
	m.end = m.at + task->body.len;
	*error = (struct canonical_error){ 0 };
	if (!find_boundary(&m) || !read_parts(&m))
		return false;
	m.whole = canonical_only_if_there(task) && !m.kept;
	m.sink = sink;
	return read_parts(&m);
}
