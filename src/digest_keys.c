/*
 * Reads the file of digest keys. A mistake in it is told with its line and never with its text.
 *
 * A secret that is hex digits throughout is hex; else it is base64 (RFC 4648, either alphabet,
 * with or without padding). Thirty-two bytes from a random source are what it wants:
 *     echo "1 $(openssl rand -hex 32)" > digest.keys
 *
 * The keys lie in one piece, which is wiped when the arena ends.
 */
#include "digest_keys.h"

#include "http.h"
#include "secret_file.h"

#include <stdatomic.h>
#include <stdio.h>

#define FILE_MAX ((size_t)64 * 1024)

/* What is wiped. */
struct ring {
	size_t n;
	struct digest_key at[DIGEST_KEYS_MAX];
};

static atomic_uint wiped;

static void wipe(void *ring)
{
	explicit_bzero(ring, sizeof(struct ring));
	atomic_fetch_add(&wiped, 1);
}

unsigned digest_keys_wiped(void)
{
	return atomic_load(&wiped);
}

static bool is_hex(struct span word)
{
	for (size_t i = 0; i < word.len; i++)
		if (!http_is(word.at[i], HTTP_HEX))
			return false;
	return true;
}

static bool read_hex(struct span word, struct digest_key *key)
{
	if (word.len % 2 || word.len / 2 > DIGEST_KEY_SECRET_MAX)
		return false;
	for (; key->len < word.len / 2; key->len++)
		key->secret[key->len] = (unsigned char)(http_hex(word.at[2 * key->len]) << 4 |
							http_hex(word.at[2 * key->len + 1]));
	return true;
}

static int base64_digit(char c)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const char *found = NULL;

	if (c == '-' || c == '_')
		c = c == '-' ? '+' : '/';
	found = memchr(digits, c, sizeof(digits) - 1);
	return found ? (int)(found - digits) : -1;
}

/* Padding is right where it fills up the last four; bits that belong to no byte must be 0. */
static bool read_base64(struct span word, struct digest_key *key)
{
	size_t digits = word.len;
	unsigned bits = 0, held = 0;

	while (digits > 0 && word.at[digits - 1] == '=')
		digits--;
	if (digits % 4 == 1 || (digits < word.len && (word.len % 4 || word.len - digits > 2)))
		return false;
	for (size_t i = 0; i < digits; i++) {
		int digit = base64_digit(word.at[i]);

		if (digit < 0)
			return false;
		bits = (bits << 6 | (unsigned)digit) & 0xfff;
		held += 6;
		if (held < 8)
			continue;
		held -= 8;
		if (key->len == DIGEST_KEY_SECRET_MAX)
			return false;
		key->secret[key->len++] = (unsigned char)(bits >> held);
	}
	return (bits & ((1U << held) - 1)) == 0;
}

/* 1 to 2147483647, without a sign or zeros in front. */
static bool read_id(struct span word, int32_t *id)
{
	int64_t number = 0;

	if (word.len == 0 || word.len > 10 || word.at[0] == '0')
		return false;
	for (size_t i = 0; i < word.len; i++) {
		if (word.at[i] < '0' || word.at[i] > '9')
			return false;
		number = number * 10 + (word.at[i] - '0');
	}
	*id = (int32_t)number;
	return number <= INT32_MAX;
}

static bool same_secret(const struct digest_key *a, const struct digest_key *b)
{
	return a->len == b->len && memcmp(a->secret, b->secret, a->len) == 0;
}

static const char *known_already(const struct ring *ring, const struct digest_key *key)
{
	for (size_t i = 0; i < ring->n; i++) {
		if (ring->at[i].id == key->id)
			return "this id stands on an earlier line, too";
		if (same_secret(&ring->at[i], key))
			return "this secret stands on an earlier line, too";
	}
	return NULL;
}

/* What is wrong with a line; NULL: nothing. */
static const char *read_line(struct span line, struct ring *ring)
{
	struct digest_key *key = &ring->at[ring->n];
	struct span id = secret_file_word(&line);
	struct span secret = secret_file_word(&line);
	const char *known = NULL;

	if (id.len == 0 || id.at[0] == '#')
		return NULL;
	if (ring->n == DIGEST_KEYS_MAX)
		return "there are too many keys";
	if (!read_id(id, &key->id))
		return "a line begins with the key's id, a number from 1 to 2147483647";
	if (!(is_hex(secret) ? read_hex(secret, key) : read_base64(secret, key)))
		return "behind the id stands a secret of 16 to 64 bytes, in hex or base64";
	if (key->len < DIGEST_KEY_SECRET_MIN)
		return "the secret is too short: it must have 16 bytes at least";
	if (secret_file_word(&line).len > 0)
		return "a line is: id secret";
	known = known_already(ring, key);
	ring->n += known == NULL;
	return known;
}

static bool read_lines(const char *file, struct span text, struct ring *ring, char why[256])
{
	for (unsigned number = 1; text.len > 0; number++) {
		const char *wrong = read_line(secret_file_line(&text), ring);

		if (wrong) {
			snprintf(why, 256, "%s:%u: %s", file, number, wrong);
			return false;
		}
	}
	if (ring->n == 0)
		snprintf(why, 256, "%s holds no key; a line is: id secret", file);
	return ring->n > 0;
}

bool digest_keys_load(struct arena *arena, const char *file, struct digest_keys *keys,
		      char why[256])
{
	struct ring *ring = arena_zero(arena, sizeof(*ring));
	struct buf text;
	bool good = false;

	arena_defer(arena, wipe, ring);
	buf_init(&text, FILE_MAX);
	buf_reserve(&text, FILE_MAX); /* at once: growing would leave copies behind */
	good = secret_file_read(file, &text, why) &&
	       read_lines(file, buf_view(&text), ring, why);
	explicit_bzero(text.at, text.room);
	buf_fini(&text);
	*keys = (struct digest_keys){ ring->at, good ? ring->n : 0 };
	return good;
}
