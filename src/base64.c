/*
 * Base64. Every sequence of bytes has one spelling: letters that no writer would write (bits
 * behind the last byte that are not zero) are refused, so that what is compared as text may be.
 */
#include "base64.h"

static const char letters[] =
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

void base64_write(const void *bytes, size_t len, char *out)
{
	const unsigned char *at = bytes;
	unsigned held = 0;
	unsigned bits = 0;

	for (size_t i = 0; i < len; i++) {
		held = held << 8 | at[i];
		for (bits += 8; bits >= 6; bits -= 6)
			*out++ = letters[held >> (bits - 6) & 63];
	}
	if (bits)
		*out++ = letters[held << (6 - bits) & 63];
	*out = 0;
}

static int value_of(char letter)
{
	const char *at = NULL;

	if (letter == '+')
		return 62;
	if (letter == '/')
		return 63;
	at = letter ? strchr(letters, letter) : NULL;
	return at ? (int)(at - letters) : -1;
}

/* Padding makes the text's length a multiple of four, or is not there. */
static bool take_padding(struct span *text)
{
	size_t len = text->len;

	while (text->len && text->at[text->len - 1] == '=')
		text->len--;
	return len == text->len || (len % 4 == 0 && len - text->len <= 2);
}

bool base64_read(struct span text, unsigned char *out, size_t *len)
{
	unsigned held = 0;
	unsigned bits = 0;

	*len = 0;
	if (!take_padding(&text) || text.len % 4 == 1)
		return false;
	for (size_t i = 0; i < text.len; i++) {
		int value = value_of(text.at[i]);

		if (value < 0)
			return false;
		held = (held << 6 | (unsigned)value) & 0xffff;
		bits += 6;
		if (bits >= 8) {
			bits -= 8;
			out[(*len)++] = (unsigned char)(held >> bits);
		}
	}
	return (held & ((1U << bits) - 1)) == 0;
}
