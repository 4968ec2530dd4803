/*
 * The door to OpenSSL for hashes: SHA-256, HMAC-SHA-256, AES-128 of one block, random bytes.
 *
 * The OpenSSL objects are expensive to make: each thread makes its own once, and keeps the keyed
 * hash of the key that it used last. It is wiped with its thread, and, by the next message of the
 * thread, when keys are: one that was taken out of the file does not stay.
 */
#include "digest.h"

#include "digest_internal.h"

#include <assert.h>
#include <endian.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <pthread.h>

struct hash {
	EVP_MD_CTX *plain; /* one of the two */
	EVP_MAC_CTX *keyed;
};

/* What a thread owns. */
struct own {
	struct hash *hash;
	struct hash *keyed; /* under `key`; NULL: no key was used yet */
	struct digest_key key;
	unsigned wiped; /* as it was when the key was made use of */
	EVP_CIPHER_CTX *cipher;
};

static pthread_once_t fetched = PTHREAD_ONCE_INIT;
static EVP_MD *sha256;
static EVP_CIPHER *aes128;
static EVP_MAC *hmac;
static pthread_key_t own_key; /* only for its destructor */
static __thread struct own *own;

/* OpenSSL fails here only where it is not installed properly or memory has run out. */
static void must(bool done)
{
	assert(done);
}

static void own_free(void *at)
{
	struct own *ended = at;

	hash_free(ended->hash);
	hash_free(ended->keyed);
	EVP_CIPHER_CTX_free(ended->cipher);
	explicit_bzero(ended, sizeof(*ended));
	mem_free(ended);
}

static void fetch(void)
{
	sha256 = EVP_MD_fetch(NULL, "SHA2-256", NULL);
	aes128 = EVP_CIPHER_fetch(NULL, "AES-128-ECB", NULL);
	hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
	must(sha256 && aes128 && hmac && pthread_key_create(&own_key, own_free) == 0);
}

static struct own *own_of_thread(void)
{
	if (own)
		return own;
	pthread_once(&fetched, fetch);
	own = mem_alloc(sizeof(*own));
	own->hash = hash_new();
	own->cipher = EVP_CIPHER_CTX_new();
	must(own->cipher && pthread_setspecific(own_key, own) == 0);
	return own;
}

struct hash *hash_new(void)
{
	struct hash *hash = mem_alloc(sizeof(*hash));

	pthread_once(&fetched, fetch);
	hash->plain = EVP_MD_CTX_new();
	must(hash->plain);
	hash_reset(hash);
	return hash;
}

struct hash *hash_new_keyed(const unsigned char *key, size_t len)
{
	struct hash *hash = mem_alloc(sizeof(*hash));
	char name[] = "SHA2-256";
	OSSL_PARAM params[] = { OSSL_PARAM_construct_utf8_string("digest", name, 0),
				OSSL_PARAM_construct_end() };

	assert(len > 0); /* OpenSSL takes none to mean: the same as before */
	pthread_once(&fetched, fetch);
	hash->keyed = EVP_MAC_CTX_new(hmac);
	must(hash->keyed && EVP_MAC_init(hash->keyed, key, len, params) == 1);
	return hash;
}

void hash_reset(struct hash *hash)
{
	if (hash->keyed)
		must(EVP_MAC_init(hash->keyed, NULL, 0, NULL) == 1);
	else
		must(EVP_DigestInit_ex2(hash->plain, sha256, NULL) == 1);
}

void hash_add(struct hash *hash, const void *bytes, size_t len)
{
	if (!len)
		return;
	if (hash->keyed)
		must(EVP_MAC_update(hash->keyed, bytes, len) == 1);
	else
		must(EVP_DigestUpdate(hash->plain, bytes, len) == 1);
}

static void put_number(unsigned char out[8], uint64_t number)
{
	number = htobe64(number);
	memcpy(out, &number, 8);
}

void hash_add_span(struct hash *hash, struct span bytes)
{
	unsigned char len[8];

	put_number(len, bytes.len);
	hash_add(hash, len, sizeof(len));
	hash_add(hash, bytes.at, bytes.len);
}

void hash_end(struct hash *hash, unsigned char out[32])
{
	size_t len = 32;
	unsigned digest_len = 32;

	if (hash->keyed)
		must(EVP_MAC_final(hash->keyed, out, &len, len) == 1);
	else
		must(EVP_DigestFinal_ex(hash->plain, out, &digest_len) == 1);
	assert(len == 32 && digest_len == 32);
}

void hash_free(struct hash *hash)
{
	if (!hash)
		return;
	EVP_MD_CTX_free(hash->plain);
	EVP_MAC_CTX_free(hash->keyed);
	mem_free(hash);
}

void random_bytes(void *out, size_t len)
{
	assert(len <= INT32_MAX);
	must(RAND_bytes(out, (int)len) == 1);
}

static void block(const unsigned char key[16], const unsigned char in[16],
		  unsigned char out[16], int encrypt)
{
	EVP_CIPHER_CTX *cipher = own_of_thread()->cipher;
	int len = 0;

	must(EVP_CipherInit_ex2(cipher, aes128, key, NULL, encrypt, NULL) == 1);
	EVP_CIPHER_CTX_set_padding(cipher, 0);
	must(EVP_CipherUpdate(cipher, out, &len, in, 16) == 1 && len == 16);
}

void block_encrypt(const unsigned char key[16], const unsigned char in[16],
		   unsigned char out[16])
{
	block(key, in, out, 1);
}

void block_decrypt(const unsigned char key[16], const unsigned char in[16],
		   unsigned char out[16])
{
	block(key, in, out, 0);
}

static bool same_key(const struct digest_key *a, const struct digest_key *b)
{
	return a->len == b->len && memcmp(a->secret, b->secret, a->len) == 0;
}

/* OpenSSL wipes its copy when it frees it. */
static void drop_key(struct own *mine)
{
	hash_free(mine->keyed);
	mine->keyed = NULL;
	explicit_bzero(&mine->key, sizeof(mine->key));
}

struct hash *digest_hash(const struct digest_key *key)
{
	struct own *mine = own_of_thread();

	if (mine->keyed && mine->wiped != digest_keys_wiped())
		drop_key(mine);
	if (key && !(mine->keyed && same_key(key, &mine->key))) {
		hash_free(mine->keyed);
		mine->keyed = hash_new_keyed(key->secret, key->len);
		mine->key = *key;
		mine->wiped = digest_keys_wiped();
	} else {
		hash_reset(key ? mine->keyed : mine->hash);
	}
	return key ? mine->keyed : mine->hash;
}
