/*
 * JSON strings: UTF-8 is checked, escapes are undone, and the few that RFC 8785 (3.2.2.2) wants
 * are written: \" \\ \b \t \n \f \r, and \u00xx in lower case for the other control characters.
 * All else stands for itself; nothing is Unicode-normalised. A surrogate without its other half,
 * escaped or not, is no character and refused.
 *
 * Most bytes of most bodies are plain ASCII in strings: they are taken eight at a time.
 */
#include "json_reader.h"

/* High bit set in the first byte that is not plain (and perhaps in later ones): a quote, a
 * backslash, a control character, or no ASCII. */
static inline uint64_t special(uint64_t w)
{
	return (w | (w - READER_EACH(0x20)) | ((w ^ READER_EACH('"')) - READER_EACH(1)) |
		((w ^ READER_EACH('\\')) - READER_EACH(1))) &
	       READER_EACH(0x80);
}

/* Copies up to the first byte that is not plain, and returns it. */
static inline const char *plain(const char *at, const char *end, char *out)
{
	while (end - at >= 8) {
		uint64_t w = reader_load(at);
		uint64_t found = special(w);

		memcpy(out, at, 8);
		if (found)
			return at + (__builtin_ctzll(found) >> 3);
		at += 8;
		out += 8;
	}
	while (at < end && !(special((unsigned char)*at | READER_EACH('a') << 8)))
		*out++ = *at++;
	return at;
}

/* Four bytes as a number, the first lowest; zeros stand for what is behind the end. */
static inline uint32_t load4(const char *at, const char *end)
{
	unsigned char b[4] = { 0 };

	memcpy(b, at, end - at >= 4 ? 4 : (size_t)(end - at));
	return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static inline void store4(char *out, uint32_t w)
{
	out[0] = (char)w;
	out[1] = (char)(w >> 8);
	out[2] = (char)(w >> 16);
	out[3] = (char)(w >> 24);
}

/* How many bytes the UTF-8 character that `w` begins with has; 0 where it is none (RFC 3629:
 * nothing overlong, no surrogates, nothing over U+10FFFF). */
static inline unsigned utf8_length(uint32_t w)
{
	if ((w & 0xc0c0f0) == 0x8080e0)
		return (w & 0x200f) != 0 && (w & 0x200f) != 0x200d ? 3 : 0;
	if ((w & 0xc0e0) == 0x80c0)
		return (w & 0x1e) != 0 ? 2 : 0;
	if ((w & 0xc0c0c0f8) == 0x808080f0) {
		uint32_t plane = (w & 7) << 2 | (w >> 12 & 3);

		return plane >= 1 && plane <= 16 ? 4 : 0;
	}
	return 0;
}

/* Characters that are not ASCII, as many as there are in a row: they seldom come alone. */
static const char *foreign(struct reader_io *io, const char *at)
{
	while (at < io->end && (unsigned char)*at >= 0x80) {
		uint32_t w = load4(at, io->end);
		unsigned len = utf8_length(w);

		if (!len)
			return reader_wrong(io, at, "valid UTF-8");
		store4(io->out, w);
		io->out += len;
		at += len;
	}
	return at;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The four digits of \uXXXX at `at`; negative where they are not there. */
static int hex4(const char *at, const char *end)
{
	int unit = 0;

	if (end - at < 4)
		return -1;
	for (unsigned i = 0; i < 4; i++) {
		int digit = hex_digit(at[i]);

		if (digit < 0)
			return -1;
		unit = unit << 4 | digit;
	}
	return unit;
}

static void put_utf8(struct reader_io *io, uint32_t c)
{
	char *out = io->out;

	if (c >= 0x10000) {
		*out++ = (char)(0xf0 | c >> 18);
		*out++ = (char)(0x80 | (c >> 12 & 0x3f));
		*out++ = (char)(0x80 | (c >> 6 & 0x3f));
	} else if (c >= 0x800) {
		*out++ = (char)(0xe0 | c >> 12);
		*out++ = (char)(0x80 | (c >> 6 & 0x3f));
	} else {
		*out++ = (char)(0xc0 | c >> 6);
	}
	*out++ = (char)(0x80 | (c & 0x3f));
	io->out = out;
}

static void put_escape(struct reader_io *io, uint32_t c)
{
	static const char letters[128] = {
		['"'] = '"',  ['\\'] = '\\', ['\b'] = 'b', ['\t'] = 't',
		['\n'] = 'n', ['\f'] = 'f',  ['\r'] = 'r'
	};
	static const char digits[] = "0123456789abcdef";

	*io->out++ = '\\';
	if (letters[c]) {
		*io->out++ = letters[c];
		return;
	}
	memcpy(io->out, "u00", 3);
	io->out[3] = digits[c >> 4];
	io->out[4] = digits[c & 15];
	io->out += 5;
}

static void put_character(struct reader_io *io, uint32_t c)
{
	if (c >= 0x80)
		put_utf8(io, c);
	else if (c < 0x20 || c == '"' || c == '\\')
		put_escape(io, c);
	else
		*io->out++ = (char)c;
}

/* \uXXXX, or two of them for a character beyond U+FFFF, from the backslash on. */
static const char *unicode_escape(struct reader_io *io, const char *at)
{
	int unit = hex4(at + 2, io->end), low = 0;

	if (unit < 0)
		return reader_wrong(io, at, "four hexadecimal digits after \\u");
	if (unit < 0xd800 || unit > 0xdfff) {
		put_character(io, (uint32_t)unit);
		return at + 6;
	}
	if (unit > 0xdbff || io->end - at < 12 || at[6] != '\\' || at[7] != 'u')
		return reader_wrong(io, at, "a surrogate with its other half");
	low = hex4(at + 8, io->end);
	if (low < 0xdc00 || low > 0xdfff)
		return reader_wrong(io, at, "a surrogate with its other half");
	put_utf8(io, 0x10000 + (((uint32_t)unit & 0x3ff) << 10 | ((uint32_t)low & 0x3ff)));
	return at + 12;
}

static const char *escape(struct reader_io *io, const char *at)
{
	static const char meant[128] = {
		['"'] = '"',  ['\\'] = '\\', ['/'] = '/',  ['b'] = '\b',
		['f'] = '\f', ['n'] = '\n',  ['r'] = '\r', ['t'] = '\t'
	};
	unsigned char letter = 0;

	io->escaped = true;
	if (io->end - at < 2)
		return reader_wrong(io, at, "a known escape");
	letter = (unsigned char)at[1];
	if (letter == 'u')
		return unicode_escape(io, at);
	if (letter >= sizeof(meant) || !meant[letter])
		return reader_wrong(io, at, "a known escape");
	put_character(io, (uint32_t)meant[letter]);
	return at + 2;
}

/* What is not plain: an escape, or no ASCII. */
static const char *other(struct reader_io *io, const char *at)
{
	if (at == io->end)
		return reader_wrong(io, at, "the end of the string");
	if (*at == '\\')
		return escape(io, at);
	if ((unsigned char)*at >= 0x80)
		return foreign(io, at);
	return reader_wrong(io, at, "no control character in a string");
}

const char *reader_string(struct reader_io *io, const char *at)
{
	const char *end = io->end;
	char *out = io->out; /* a copy: else each byte that is written may change it */

	*out++ = '"';
	at++;
	for (;;) {
		const char *stop = plain(at, end, out);

		out += stop - at;
		if (stop < end && *stop == '"') {
			*out = '"';
			io->out = out + 1;
			return stop + 1;
		}
		io->out = out;
		at = other(io, stop);
		if (!at)
			return NULL;
		out = io->out;
	}
}
