/*
 * The parts of canonical_multipart.c that read text, and of nobody else: values with parameters.
 */
#pragma once
#include "mem.h"

static inline bool text_space(char c)
{
	return c == ' ' || c == '\t';
}

static inline struct span text_upto(struct span text, size_t len)
{
	return (struct span){ text.at, len };
}

static inline struct span text_from(struct span text, size_t at)
{
	return (struct span){ text.at + at, text.len - at };
}

static inline struct span text_trimmed(struct span text)
{
	while (text.len && text_space(text.at[0]))
		text = text_from(text, 1);
	while (text.len && text_space(text.at[text.len - 1]))
		text.len--;
	return text;
}

struct text_parameter {
	struct span name, value; /* of a quoted value what stands between the quotes */
};

/* Up to the next `;` that stands in no quotes. */
size_t text_piece(struct span text);
/* The next `; name=value`; false where there is none, and with text->len where it is malformed. */
bool text_parameter(struct span *text, struct text_parameter *p) MUST_CHECK;
void text_put_lower(struct buf *out, struct span text);
/* `;name LENGTH:value`, the name in lower case. */
void text_put_parameter(struct buf *out, const struct text_parameter *p);
