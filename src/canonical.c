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

/* The bytes are their own normal form. */
static bool run_raw(struct arena *arena, struct span body, struct canonical_sink *sink,
		    struct canonical_error *error)
{
	(void)arena;
	(void)error;
	sink->put(sink, body.at, body.len);
	return true;
}

const struct canonicaliser canonicalisers[] = {
	{ "json", CANONICAL_JSON, takes_json, canonical_json },
	{ "raw", CANONICAL_RAW, NULL, run_raw },
	{ 0 },
};

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
