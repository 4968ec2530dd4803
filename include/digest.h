/*
 * What binds a key to its content (CONTRACT 4): the digest of the canonical request, and the raw
 * digest beside it. Pure but for OpenSSL, whose only door this file is for hashes.
 */
#pragma once
#include "canonical.h"
#include "http.h"

#define DIGEST_BYTES     32
#define DIGEST_RAW_BYTES 16

struct digest {
	unsigned char canonical[DIGEST_BYTES];
	unsigned char raw[DIGEST_RAW_BYTES];
	int32_t key_id; /* of ledger.digest_keys; 0: plain SHA-256 */
};

/* The rules of a route by which requests are compared. */
struct digest_rules {
	unsigned version;
	enum canonical_body body;
	int64_t id; /* digest_rules_id: stored with each record */
};
int64_t digest_rules_id(const struct digest_rules *rules); /* never negative */
/* What the id is made of, for people: the ledger keeps it beside the id. */
struct span digest_rules_text(struct arena *arena, const struct digest_rules *rules);

/* False where the body is invalid; *error says where. */
bool digest_request(const struct digest_rules *rules, const struct http_request *request,
		    struct digest *out, struct canonical_error *error) MUST_CHECK;

/* SHA-256, HMAC-SHA-256 over pieces, and random bytes; for whoever needs them. */
struct hash;
struct hash *hash_new(void);                                       /* SHA-256 */
struct hash *hash_new_keyed(const unsigned char *key, size_t len); /* HMAC-SHA-256 */
void hash_reset(struct hash *hash); /* ready for another message, same key */
void hash_add(struct hash *hash, const void *bytes, size_t len);
void hash_add_span(struct hash *hash,
		   struct span bytes); /* its length first, 8 bytes big-endian */
void hash_end(struct hash *hash, unsigned char out[32]); /* then hash_reset before the next */
void hash_free(struct hash *hash);
void random_bytes(void *out, size_t len);
/* AES-128 of one block: what makes an op_id opaque in a logical request id. */
void block_encrypt(const unsigned char key[16], const unsigned char in[16],
		   unsigned char out[16]);
void block_decrypt(const unsigned char key[16], const unsigned char in[16],
		   unsigned char out[16]);
