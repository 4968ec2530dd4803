/*
 * Cursors. In bytes: a version, 16 of the SHA-256 of the list, the values big-endian, and 16 of an
 * HMAC-SHA-256 over all of that. The values are no secret; the signature keeps people from
 * making them up, and so the format is ours to change.
 */
#include "cursor.h"

#include "digest.h"

#define VERSION  1
#define LIST_AT  1U
#define VALUE_AT 17U
#define SIGN_AT  (VALUE_AT + CURSOR_VALUES * 8U)
#define HALF     16U

static void half_hash(struct hash *hash, const void *bytes, size_t len, unsigned char *out)
{
	unsigned char full[32];

	hash_add(hash, bytes, len);
	hash_end(hash, full);
	hash_free(hash);
	memcpy(out, full, HALF);
}

static void sign(struct span secret, const unsigned char *raw, unsigned char *out)
{
	half_hash(hash_new_keyed((const unsigned char *)secret.at, secret.len), raw, SIGN_AT,
		  out);
}

void cursor_write(struct span secret, struct span list, const struct cursor *cursor,
		  char out[CURSOR_BYTES])
{
	unsigned char raw[CURSOR_RAW] = { VERSION };

	half_hash(hash_new(), list.at, list.len, raw + LIST_AT);
	for (size_t i = 0; i < (size_t)CURSOR_VALUES * 8; i++)
		raw[VALUE_AT + i] =
			(unsigned char)((uint64_t)cursor->at[i / 8] >> (56 - 8 * (i % 8)));
	sign(secret, raw, raw + SIGN_AT);
	base64_write(raw, sizeof(raw), out);
}

/* Takes the same time wherever they differ. */
static bool same(const unsigned char *a, const unsigned char *b)
{
	volatile unsigned char differences = 0;

	for (size_t i = 0; i < HALF; i++)
		differences = (unsigned char)(differences | (a[i] ^ b[i]));
	return differences == 0;
}

bool cursor_read(struct span secret, struct span list, struct span text, struct cursor *cursor)
{
	unsigned char raw[CURSOR_RAW + 2], due[HALF];
	char spelt[CURSOR_BYTES];
	size_t len = 0;

	if (text.len != BASE64_LETTERS(CURSOR_RAW) || !base64_read(text, raw, &len) ||
	    len != CURSOR_RAW || raw[0] != VERSION)
		return false;
	base64_write(raw, CURSOR_RAW, spelt);
	if (!span_equal(text, span_of(spelt)))
		return false;
	sign(secret, raw, due);
	if (!same(due, raw + SIGN_AT))
		return false;
	half_hash(hash_new(), list.at, list.len, due);
	if (!same(due, raw + LIST_AT))
		return false;
	*cursor = (struct cursor){ { 0 } };
	for (size_t i = 0; i < (size_t)CURSOR_VALUES * 8; i++)
		cursor->at[i / 8] =
			(int64_t)((uint64_t)cursor->at[i / 8] << 8 | raw[VALUE_AT + i]);
	return true;
}
