/*
 * Escaping, character by character, so that a writer with little room can stop between two of
 * them and never inside one. What comes out is valid UTF-8 whatever went in: the log and the
 * problem documents carry bytes that strangers chose.
 */
#include "escape.h"

/* The bounds of the second byte keep out overlong forms, surrogates and what is over U+10FFFF. */
static const struct lead {
	unsigned char first, last, second_min, second_max;
	unsigned char len;
} leads[] = {
	{ 0xc2, 0xdf, 0x80, 0xbf, 2 }, { 0xe0, 0xe0, 0xa0, 0xbf, 3 },
	{ 0xe1, 0xec, 0x80, 0xbf, 3 }, { 0xed, 0xed, 0x80, 0x9f, 3 },
	{ 0xee, 0xef, 0x80, 0xbf, 3 }, { 0xf0, 0xf0, 0x90, 0xbf, 4 },
	{ 0xf1, 0xf3, 0x80, 0xbf, 4 }, { 0xf4, 0xf4, 0x80, 0x8f, 4 },
};

static bool continues(const unsigned char *at, const struct lead *lead)
{
	if (at[1] < lead->second_min || at[1] > lead->second_max)
		return false;
	for (size_t i = 2; i < lead->len; i++)
		if ((at[i] & 0xc0) != 0x80)
			return false;
	return true;
}

/* The length of the UTF-8 character at the front; 0 where there is none. */
static size_t utf8_length(struct span in)
{
	const unsigned char *at = (const unsigned char *)in.at;

	if (at[0] < 0x80)
		return 1;
	for (size_t i = 0; i < ARRAY_LEN(leads); i++) {
		const struct lead *lead = &leads[i];
		if (at[0] >= lead->first && at[0] <= lead->last)
			return in.len >= lead->len && continues(at, lead) ? lead->len : 0;
	}
	return 0;
}

static size_t put(struct span bytes, char out[ESCAPE_MAX])
{
	memcpy(out, bytes.at, bytes.len);
	return bytes.len;
}

static size_t code(unsigned char byte, char out[ESCAPE_MAX])
{
	static const char digits[] = "0123456789abcdef";

	put(SPAN("\\u00"), out);
	out[4] = digits[byte >> 4];
	out[5] = digits[byte & 15];
	return 6;
}

/* The short form of a character that has one in JSON; 0 for the others. */
static char short_form(char c)
{
	static const char from[] = "\n\r\t\b\f", to[] = "nrtbf";
	const char *found = memchr(from, c, sizeof(from) - 1);

	if (!found)
		return 0;
	return to[found - from];
}

static size_t escape_ascii(char c, bool quoted, char out[ESCAPE_MAX])
{
	char letter = short_form(c);

	if (quoted && (c == '"' || c == '\\'))
		letter = c;
	if (letter) {
		out[0] = '\\';
		out[1] = letter;
		return 2;
	}
	if ((unsigned char)c < 0x20 || c == 0x7f)
		return code((unsigned char)c, out);
	out[0] = c;
	return 1;
}

size_t escape_next(struct span *in, bool quoted, char out[ESCAPE_MAX])
{
	const char *at = in->at;
	size_t len = utf8_length(*in);

	in->at += len ? len : 1;
	in->len -= len ? len : 1;
	if (len == 0)
		return put(SPAN("\\ufffd"), out);
	if (len == 1)
		return escape_ascii(*at, quoted, out);
	if ((unsigned char)at[0] == 0xc2 && (unsigned char)at[1] < 0xa0) /* C1 */
		return code((unsigned char)at[1], out);
	return put((struct span){ at, len }, out);
}
