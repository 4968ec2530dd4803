/*
 * Header values with parameters, as the parts of a multipart body have them, and as they are
 * written into its canonical form. A quoted value keeps its backslashes: upstreams read them
 * differently.
 */
#include "multipart_text.h"

#include "http.h"

/* Up to the next `;` that stands in no quotes. */
size_t text_piece(struct span text)
{
	bool quoted = false;
	size_t i = 0;

	for (; i < text.len && (quoted || text.at[i] != ';'); i++) {
		if (text.at[i] == '"')
			quoted = !quoted;
		else if (quoted && text.at[i] == '\\')
			i++;
	}
	return i < text.len ? i : text.len;
}

/* The next `; name=value`; false where there is none, and with text->len where it is malformed. */
bool text_parameter(struct span *text, struct text_parameter *p)
{
	struct span piece = { 0 };
	const char *equals = NULL;

	do { /* an empty one is nothing */
		if (!text->len || text->at[0] != ';')
			return false;
		*text = text_from(*text, 1);
		piece = text_trimmed(text_upto(*text, text_piece(*text)));
		*text = text_from(*text, text_piece(*text));
	} while (!piece.len);
	equals = memchr(piece.at, '=', piece.len);
	if (equals) {
		p->name = text_trimmed(text_upto(piece, (size_t)(equals - piece.at)));
		p->value = text_trimmed(text_from(piece, (size_t)(equals - piece.at) + 1));
	}
	if (!equals || !http_token(p->name)) {
		*text = piece;
		return false;
	}
	if (p->value.len && p->value.at[0] == '"') {
		size_t last = p->value.len - 1;

		if (last == 0 || p->value.at[last] != '"') {
			*text = piece;
			return false;
		}
		p->value = text_upto(text_from(p->value, 1), last - 1);
	}
	return true;
}

void text_put_lower(struct buf *out, struct span text)
{
	for (size_t i = 0; i < text.len; i++) {
		char c = text.at[i];

		buf_byte(out, (char)(c >= 'A' && c <= 'Z' ? c | 0x20 : c));
	}
}

void text_put_parameter(struct buf *out, const struct text_parameter *p)
{
	buf_byte(out, ';');
	text_put_lower(out, p->name);
	buf_format(out, " %zu:", p->value.len);
	buf_span(out, p->value);
}
