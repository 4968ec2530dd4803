/*
 * Header fields as they stand in rows: "name: value" lines with CRLF behind each. Names are tokens
 * and values hold neither CR nor LF. Other instances and later versions read them.
 */
#pragma once
#include "http.h"

struct span field_lines(struct arena *arena, const struct http_fields *fields);
/* False: they are no such lines, or too many. */
bool field_lines_read(struct arena *arena, struct span text,
		      struct http_fields *fields) MUST_CHECK;
