/*
 * Which key a request carries. A value is either one RFC 8941 string ("..." with \" and \\ as
 * its only escapes, nothing behind it), or bare. Both stand for their bytes: "abc" and abc are
 * the same key. What looks like a list, an item with parameters or half a string is refused
 * rather than guessed at, since two readers of it might see two keys.
 *
 * Keys compare as given: a UUID in upper case is another key than the same in lower case.
 */
#include "key.h"

#define KEY_MAX 255U

static bool refuse(const char **why, const char *sentence)
{
	*why = sentence;
	return false;
}

static bool visible(char c)
{
	return c >= 0x21 && c <= 0x7e;
}

static bool bare(struct span value, const char **why)
{
	for (size_t i = 0; i < value.len; i++) {
		char c = value.at[i];

		if (c == ',')
			return refuse(why, "The key is a list; send one key, without commas.");
		if (c == '"' || c == '\\')
			return refuse(why, "A key outside quotes holds no quote or backslash.");
		if (!visible(c))
			return refuse(why, "The key holds a byte that is not visible ASCII.");
	}
	return true;
}

/* Where the string's closing quote is, or 0; *escapes counts the backslashes before it. */
static size_t closing_quote(struct span value, size_t *escapes, const char **why)
{
	for (size_t i = 1; i < value.len; i++) {
		char c = value.at[i];

		if (c == '"')
			return i;
		if (!visible(c))
			return refuse(why, "The key holds a byte that is not visible ASCII.");
		if (c != '\\')
			continue;
		i++;
		if (i == value.len || (value.at[i] != '"' && value.at[i] != '\\'))
			return refuse(why,
				      "A backslash in the key escapes nothing; only \\\" and "
				      "\\\\ are known.");
		++*escapes;
	}
	return refuse(why, "The quoted key has no closing quote.");
}

/* The value's text up to its closing quote, without the escapes. */
static struct span unescaped(struct arena *arena, struct span text, size_t escapes)
{
	char *out = NULL;
	size_t n = 0;

	if (!escapes)
		return text;
	out = arena_alloc(arena, text.len);
	for (size_t i = 0; i < text.len; i++) {
		if (text.at[i] == '\\')
			i++;
		out[n++] = text.at[i];
	}
	return (struct span){ out, n };
}

static bool quoted(struct arena *arena, struct span value, struct span *key, const char **why)
{
	size_t escapes = 0, end = closing_quote(value, &escapes, why);

	if (!end)
		return false;
	if (end + 1 < value.len)
		return refuse(why, "Something follows the quoted key; send one key, without "
				   "parameters.");
	*key = unescaped(arena, (struct span){ value.at + 1, end - 1 }, escapes);
	return true;
}

bool key_parse(struct arena *arena, struct span value, enum key_syntax syntax, struct span *key,
	       const char **why)
{
	bool in_quotes = value.len && value.at[0] == '"';
	struct span found = value;

	if (!value.len)
		return refuse(why, "The key is empty.");
	if (in_quotes && syntax == KEY_BARE)
		return refuse(why, "The key is quoted; this route takes it without quotes.");
	if (!in_quotes && syntax == KEY_STRUCTURED)
		return refuse(why, "The key is not quoted; this route takes it as \"...\".");
	if (in_quotes ? !quoted(arena, value, &found, why) : !bare(value, why))
		return false;
	if (!found.len)
		return refuse(why, "The key is empty.");
	if (found.len > KEY_MAX)
		return refuse(why, "The key is longer than 255 characters.");
	*key = found;
	return true;
}

static bool uuid(struct span key)
{
	if (key.len != 36)
		return false;
	for (size_t i = 0; i < key.len; i++) {
		bool dash = i == 8 || i == 13 || i == 18 || i == 23;

		if (dash ? key.at[i] != '-' : !http_is(key.at[i], HTTP_HEX))
			return false;
	}
	return true;
}

bool key_read(struct arena *arena, struct span value, struct key_form form, struct span *key,
	      const char **why)
{
	if (!key_parse(arena, value, form.syntax, key, why))
		return false;
	if (form.format == KEY_FORMAT_UUID && !uuid(*key))
		return refuse(why, "The key is not a UUID; this route takes only those.");
	return true;
}

enum key_found key_of(const struct http_request *request, struct span name,
		      struct key_form form, struct span *key, const char **why)
{
	size_t lines = 0;
	const struct http_field *field = http_find(&request->fields, name, &lines);

	if (!field)
		return KEY_MISSING;
	if (lines > 1) {
		*why = arena_format(request->arena, "The request has several %.*s fields.",
				    (int)name.len, name.at)
			       .at;
		return KEY_INVALID;
	}
	return key_read(request->arena, field->value, form, key, why) ? KEY_FOUND : KEY_INVALID;
}

/* RFC 9562 5.7: 48 bits of time, the version 7, the variant 10. */
static bool uuid7_time(struct span key, uint64_t *milliseconds)
{
	uint64_t time = 0;

	if (!uuid(key) || key.at[14] != '7' || (http_hex(key.at[19]) & 0xc) != 8)
		return false;
	for (size_t i = 0; i < 13; i++)
		if (key.at[i] != '-')
			time = time << 4 | http_hex(key.at[i]);
	*milliseconds = time;
	return true;
}

/* The value of a digit of Crockford's base 32, which knows no I, L, O and U; 32 for others. */
static unsigned crockford(char c)
{
	static const char digits[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
	const char *found = NULL;

	if (!c)
		return 32;
	if (c >= 'a' && c <= 'z')
		c = (char)(c - 'a' + 'A');
	found = strchr(digits, c);
	return found ? (unsigned)(found - digits) : 32;
}

/* 26 digits of 5 bits for 128: the first holds 3, and ten of them the time. */
static bool ulid_time(struct span key, uint64_t *milliseconds)
{
	uint64_t time = 0;

	if (key.len != 26 || crockford(key.at[0]) > 7)
		return false;
	for (size_t i = 0; i < key.len; i++) {
		unsigned digit = crockford(key.at[i]);

		if (digit > 31)
			return false;
		if (i < 10)
			time = time << 5 | digit;
	}
	*milliseconds = time;
	return true;
}

bool key_time(struct span key, uint64_t *milliseconds)
{
	return uuid7_time(key, milliseconds) || ulid_time(key, milliseconds);
}
