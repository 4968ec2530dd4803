/*
 * Fuzzes the reading of keys. A key has 1 to 255 visible characters; its bare and its quoted
 * spelling are the same key, in every syntax that admits them; a time has 48 bits.
 */
#include "key.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static bool parses(struct arena *arena, struct span value, enum key_syntax syntax,
		   struct span *key)
{
	const char *why = NULL;
	bool done = key_parse(arena, value, syntax, key, &why);

	assert(done == !why);
	return done;
}

/* The key as an RFC 8941 string. */
static struct span quoted(struct arena *arena, struct span key)
{
	char *at = arena_alloc(arena, 2 * key.len + 2), *end = at;

	*end++ = '"';
	for (size_t i = 0; i < key.len; i++) {
		if (key.at[i] == '"' || key.at[i] == '\\')
			*end++ = '\\';
		*end++ = key.at[i];
	}
	*end++ = '"';
	return (struct span){ at, (size_t)(end - at) };
}

static void check(struct arena *arena, struct span value, struct span key)
{
	struct span again;
	uint64_t ms = 0;

	assert(key.len >= 1 && key.len <= 255);
	for (size_t i = 0; i < key.len; i++)
		assert(key.at[i] >= 0x21 && key.at[i] <= 0x7e);
	assert(parses(arena, quoted(arena, key), KEY_STRUCTURED, &again) &&
	       span_equal(key, again));
	if (value.at[0] == '"') {
		assert(!parses(arena, value, KEY_BARE, &again));
		assert(parses(arena, value, KEY_STRUCTURED, &again) && span_equal(key, again));
	} else {
		assert(span_equal(key, value));
		assert(!parses(arena, value, KEY_STRUCTURED, &again));
		assert(parses(arena, value, KEY_BARE, &again) && span_equal(key, again));
	}
	if (key_time(key, &ms))
		assert(ms >> 48 == 0 && (key.len == 36 || key.len == 26));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	struct arena *arena = arena_new();
	struct span value = { (const char *)bytes, len }, key;

	if (parses(arena, value, KEY_ANY, &key))
		check(arena, value, key);
	arena_free(arena);
	return 0;
}
