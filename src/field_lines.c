/* Header fields as they stand in rows; see field_lines.h. */
#include "field_lines.h"

static char *put(char *at, struct span bytes)
{
	return bytes.len ? (char *)memcpy(at, bytes.at, bytes.len) + bytes.len : at;
}

struct span field_lines(struct arena *arena, const struct http_fields *fields)
{
	size_t len = 0;
	struct span out;
	char *at = NULL;

	for (size_t i = 0; i < fields->n; i++)
		len += fields->at[i].name.len + fields->at[i].value.len + 4;
	at = arena_alloc(arena, len);
	out = (struct span){ at, len };
	for (size_t i = 0; i < fields->n; i++) {
		at = put(at, fields->at[i].name);
		at = put(at, SPAN(": "));
		at = put(at, fields->at[i].value);
		at = put(at, SPAN("\r\n"));
	}
	return out;
}

/* One line off the front of the text; false where it is none. */
static bool take_field(struct span *text, struct http_field *field)
{
	const char *end = memmem(text->at, text->len, "\r\n", 2);
	const char *colon = end ? memmem(text->at, (size_t)(end - text->at), ": ", 2) : NULL;

	if (!colon)
		return false;
	field->name = (struct span){ text->at, (size_t)(colon - text->at) };
	field->value = (struct span){ colon + 2, (size_t)(end - colon - 2) };
	text->len -= (size_t)(end + 2 - text->at);
	text->at = end + 2;
	return true;
}

bool field_lines_read(struct arena *arena, struct span text, struct http_fields *fields)
{
	*fields = (struct http_fields){
		arena_alloc(arena, sizeof(struct http_field) * HTTP_FIELDS_MAX), 0
	};
	while (text.len) {
		if (fields->n == HTTP_FIELDS_MAX || !take_field(&text, &fields->at[fields->n]))
			return false;
		fields->n++;
	}
	return true;
}
