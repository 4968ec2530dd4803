/*
 * The keys under which digests are made (CONTRACT 4): a file of secrets with ids. The first one
 * makes, all verify. Immutable once loaded. Key id 0 is no key: plain SHA-256, which everybody
 * can verify.
 */
#pragma once
#include "mem.h"

#define DIGEST_KEYS_MAX       64U /* in a file */
#define DIGEST_KEY_SECRET_MIN 16U /* bytes */
#define DIGEST_KEY_SECRET_MAX 64U /* HMAC-SHA-256 would hash a longer one first */

struct digest_key {
	int32_t id; /* above 0 */
	size_t len;
	unsigned char secret[DIGEST_KEY_SECRET_MAX];
};

struct digest_keys {
	const struct digest_key *at; /* in the order of the file */
	size_t n;                    /* 0: digests are plain SHA-256 */
};

/* Lines of: ID SECRET, the secret in hex or base64. The file must be its owner's alone. The keys
 * live in the arena and are wiped with it. False: a sentence with the line, in `why`. */
bool digest_keys_load(struct arena *arena, const char *file, struct digest_keys *keys,
		      char why[256]) MUST_CHECK;
/* Changes whenever keys are wiped: who has made something of a key drops it then. */
unsigned digest_keys_wiped(void);
/* The one of that id; NULL where there is none, as for 0. */
static inline const struct digest_key *digest_keys_find(const struct digest_keys *keys,
							int32_t id)
{
	for (size_t i = 0; i < keys->n; i++)
		if (keys->at[i].id == id)
			return &keys->at[i];
	return NULL;
}
/* Can digests under this id be verified? */
static inline bool digest_keys_verify(const struct digest_keys *keys, int32_t id)
{
	return id == 0 || digest_keys_find(keys, id) != NULL;
}
/* The one that makes; NULL: none, digests are plain SHA-256. */
static inline const struct digest_key *digest_keys_making(const struct digest_keys *keys)
{
	return keys->n ? &keys->at[0] : NULL;
}
