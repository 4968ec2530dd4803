/*
 * What binds a key to its content (CONTRACT 4): the digest of the canonical request, and the raw
 * digest beside it. Pure but for OpenSSL, whose only door digest.c is for hashes.
 */
#pragma once
#include "canonical.h"
#include "digest_keys.h"
#include "http.h"

#define DIGEST_BYTES     32
#define DIGEST_RAW_BYTES 16

struct digest {
	unsigned char canonical[DIGEST_BYTES];
	unsigned char raw[DIGEST_RAW_BYTES];
	int32_t key_id; /* of ledger.digest_keys; 0: plain SHA-256 */
};

/* The rules of a route by which requests are compared. All zero but the version: the defaults. */
struct digest_rules {
	unsigned version;
	enum canonical_body body;
	enum canonical_numbers numbers;
	const struct canonical_rules *members; /* of the body; NULL: every one counts */
	const struct span *headers;            /* which count: lower case, sorted */
	size_t n_headers;
	const struct span *query; /* where only some parameters count: sorted */
	size_t n_query;
	bool query_listed;
	/* Fields that must be there again, as they were, for the same bytes to be sent again (a key,
	 * as the upstream sees it). They count in the raw digest alone, and are no part of the id. */
	const struct span *sent;
	size_t n_sent;
	size_t decoded_max; /* of a body with a Content-Encoding; no part of the id */
	int64_t id;         /* digest_rules_id: stored with each record */
};
int64_t digest_rules_id(const struct digest_rules *rules); /* never negative */
/* What the id is made of, for people: the ledger keeps it beside the id. */
struct span digest_rules_text(struct arena *arena, const struct digest_rules *rules);
/* A parameter's name as it is written in the rules: however it is spelt, it is the same. */
struct span digest_parameter_name(struct arena *arena, struct span name);

/*
 * Both digests under a key (NULL: SHA-256, key id 0). The same request may be asked for again
 * under another key. False where the body is invalid or, decoded, too large; *error says how.
 */
bool digest_request(const struct digest_rules *rules, const struct http_request *request,
		    const struct digest_key *key, struct digest *out,
		    struct canonical_error *error) MUST_CHECK;
/* The canonical bytes of the body, and of which kind they are. `out` has a maximum of its own;
 * what is over it is cut (out->full). */
bool digest_body(const struct digest_rules *rules, const struct http_request *request,
		 struct buf *out, const struct canonicaliser **kind,
		 struct canonical_error *error) MUST_CHECK;

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
