/*
 * Writes the request's head for the upstream; see http1.h.
 *
 * It is checked and measured first and then written in one go, or not at all: nothing that was
 * received can end a line, add one, or say where the body ends. What the fields mean is for
 * whoever made them.
 */
#include "http1.h"

static const struct span version_line = SPAN(" HTTP/1.1\r\n");
static const struct span length_name = SPAN("Content-Length: ");
static const struct span close_line = SPAN("Connection: close\r\n");
static const struct span end_of_line = SPAN("\r\n");

static char *put(char *at, struct span bytes)
{
	if (bytes.len)
		memcpy(at, bytes.at, bytes.len);
	return at + bytes.len;
}

static size_t digits(size_t number)
{
	size_t n = 1;

	while (number /= 10)
		n++;
	return n;
}

static char *put_number(char *at, size_t number)
{
	char *end = at + digits(number);

	at = end;
	do
		*--at = (char)('0' + number % 10);
	while (number /= 10);
	return end;
}

static bool has_length(const struct http1_head *head)
{
	return head->body_bytes || span_equal(head->method, SPAN("POST")) ||
	       span_equal(head->method, SPAN("PUT")) || span_equal(head->method, SPAN("PATCH"));
}

static bool target_writable(struct span target)
{
	for (size_t i = 0; i < target.len; i++)
		if (target.at[i] <= ' ' || target.at[i] > '~')
			return false;
	return target.len > 0;
}

static bool field_writable(const struct http_field *field)
{
	return http_token(field->name) && http_field_value(field->value) &&
	       !http_same_name(field->name, SPAN("Content-Length")) &&
	       !http_same_name(field->name, SPAN("Transfer-Encoding")) &&
	       !http_same_name(field->name, SPAN("Connection"));
}

/* How many bytes the head takes; 0 where it cannot be written. */
static size_t measure(const struct http1_head *head)
{
	const struct http_fields *fields = head->fields;
	size_t bytes =
		head->method.len + 1 + head->target.len + version_line.len + end_of_line.len;

	if (!http_token(head->method) || !target_writable(head->target))
		return 0;
	for (size_t i = 0; i < fields->n; i++) {
		if (!field_writable(&fields->at[i]))
			return 0;
		bytes += fields->at[i].name.len + fields->at[i].value.len + 4;
	}
	if (has_length(head))
		bytes += length_name.len + digits(head->body_bytes) + end_of_line.len;
	return bytes + (head->close ? close_line.len : 0);
}

bool http1_write_head(struct buf *out, const struct http1_head *head)
{
	size_t bytes = measure(head);
	char *at = bytes ? buf_reserve(out, bytes) : NULL;

	if (!at)
		return false;
	out->len += bytes;
	at = put(put(put(put(at, head->method), SPAN(" ")), head->target), version_line);
	for (size_t i = 0; i < head->fields->n; i++) {
		at = put(put(at, head->fields->at[i].name), SPAN(": "));
		at = put(put(at, head->fields->at[i].value), end_of_line);
	}
	if (has_length(head))
		at = put(put_number(put(at, length_name), head->body_bytes), end_of_line);
	if (head->close)
		at = put(at, close_line);
	put(at, end_of_line);
	return true;
}
