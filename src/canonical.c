/*
 * The table of canonicalisers: which media types have a normal form, and the function that
 * writes it. The first row that takes a media type is used for it; the last one takes anything.
 * A new kind of body is a row here and a function.
 */
#include "canonical.h"

#include "http.h"

/* application/json, and the suffix +json of any type (RFC 6839). */
static bool takes_json(struct span media_type)
{
	const struct span suffix = SPAN("+json");

	if (http_same_name(media_type, SPAN("application/json")))
		return true;
	if (media_type.len <= suffix.len || !memchr(media_type.at, '/', media_type.len))
		return false;
	return http_same_name(
		(struct span){ media_type.at + media_type.len - suffix.len, suffix.len },
		suffix);
}

static bool takes_form(struct span media_type)
{
	return http_same_name(media_type, SPAN("application/x-www-form-urlencoded"));
}

static bool takes_multipart(struct span media_type)
{
	return http_same_name(media_type, SPAN("multipart/form-data"));
}

/* The bytes are their own normal form. */
static bool run_raw(const struct canonical_task *task, struct canonical_sink *sink,
		    struct canonical_error *error)
{
	(void)error;
	sink->put(sink, task->body.at, task->body.len);
	return true;
}

const struct canonicaliser canonicalisers[] = {
	{ "json", CANONICAL_JSON, takes_json, canonical_json },
	{ "form", CANONICAL_FORM, takes_form, canonical_form },
	{ "multipart", CANONICAL_MULTIPART, takes_multipart, canonical_multipart },
	{ "raw", CANONICAL_RAW, NULL, run_raw },
	{ 0 },
};

static void put_to_buf(struct canonical_sink *sink, const void *bytes, size_t len)
{
	buf_append(container_of(sink, struct canonical_buf, sink)->buf, bytes, len);
}

struct canonical_buf canonical_to(struct buf *buf)
{
	return (struct canonical_buf){ .sink = { put_to_buf }, .buf = buf };
}

const struct canonicaliser *canonical_for(enum canonical_body setting, struct span content_type,
					  struct span body)
{
	const struct canonicaliser *row = canonicalisers;

	if (!body.len)
		setting = CANONICAL_RAW;
	if (setting != CANONICAL_AUTO) {
		while (row->body != setting)
			row++;
		return row;
	}
	content_type = http_media_type(content_type);
	while (row->takes && !row->takes(content_type))
		row++;
	return row;
}
