/* What the parts of the digest share; nobody else includes this. */
#pragma once
#include "digest.h"

/* The thread's own hash for this key (NULL: SHA-256), ready for a message. */
struct hash *digest_hash(const struct digest_key *key);

/* Any order that tells all bytes apart: < 0, 0, > 0. */
static inline int digest_compare(struct span a, struct span b)
{
	size_t n = a.len < b.len ? a.len : b.len;
	int order = n ? memcmp(a.at, b.at, n) : 0;

	return order ? order : (a.len > b.len) - (a.len < b.len);
}
