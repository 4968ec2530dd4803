/*
 * The digests that bind a key to its content (CONTRACT 4). They are stored for as long as keys
 * are, so the layout below is a stored format: a change of it changes LAYOUT, with that the rules
 * id, and then the raw digest decides.
 *
 * Canonical digest: SHA-256 over
 *     text    "onceward request 1"
 *     number  rules version
 *     text    method, path (normalised)
 *     number  of parameters, then for each: text name, text value
 *     number  of selected header fields (none yet)
 *     text    body kind: a canonicaliser's name
 *     bytes   canonical body, up to the end: its length is not known when it begins
 * Raw digest: the first half of SHA-256 over
 *     text    "onceward raw 1", method, target (as received)
 *     number  of Content-Type fields, then the text of each; the same of Content-Encoding
 *     bytes   body
 * A number is 8 bytes, big-endian; a text is its length as a number, and its bytes.
 *
 * Parameters: the query is split at `&`, a piece at its first `=`, which belongs to the value (so
 * `a` and `a=` differ); an empty piece is none. Escapes are normalised as in paths: unreserved
 * ones decoded, hex in upper case; `+` and malformed escapes stand as they are. They are sorted
 * by the bytes of the name; equal names keep their order.
 *
 * A body with a Content-Encoding, or with several Content-Types, is compared by its bytes. The
 * OpenSSL objects are expensive to make: each thread makes its own once.
 */
#include "digest.h"

#include <assert.h>
#include <endian.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define LAYOUT 1

struct hash {
	EVP_MD_CTX *plain; /* one of the two */
	EVP_MAC_CTX *keyed;
};

/* What a thread owns. */
struct own {
	struct hash *hash;
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
	EVP_CIPHER_CTX_free(ended->cipher);
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

/* A message on its way into a hash: small fields are gathered, calls of OpenSSL are not free. */
struct message {
	struct canonical_sink sink; /* for its last field */
	struct hash *hash;
	size_t n;
	char gathered[512];
};

static void add_bytes(struct message *m, const void *bytes, size_t len)
{
	if (len > sizeof(m->gathered) - m->n) {
		hash_add(m->hash, m->gathered, m->n);
		m->n = 0;
	}
	if (len > sizeof(m->gathered)) {
		hash_add(m->hash, bytes, len);
	} else if (len) {
		memcpy(m->gathered + m->n, bytes, len);
		m->n += len;
	}
}

static void add_number(struct message *m, uint64_t number)
{
	unsigned char bytes[8];

	put_number(bytes, number);
	add_bytes(m, bytes, sizeof(bytes));
}

static void add_text(struct message *m, struct span text)
{
	add_number(m, text.len);
	add_bytes(m, text.at, text.len);
}

static void message_sink(struct canonical_sink *sink, const void *bytes, size_t len)
{
	add_bytes(container_of(sink, struct message, sink), bytes, len);
}

static void message_begin(struct message *m, struct span kind)
{
	m->sink.put = message_sink;
	m->hash = own_of_thread()->hash;
	m->n = 0;
	hash_reset(m->hash);
	add_text(m, kind);
}

static void message_end(struct message *m, unsigned char out[32])
{
	hash_add(m->hash, m->gathered, m->n);
	hash_end(m->hash, out);
}

struct parameter {
	struct span name, value;
	size_t place; /* keeps equal names in their order */
};

static int by_name(const void *a, const void *b)
{
	const struct parameter *p = a, *q = b;
	size_t n = p->name.len < q->name.len ? p->name.len : q->name.len;
	int order = n ? memcmp(p->name.at, q->name.at, n) : 0;

	if (order)
		return order;
	if (p->name.len != q->name.len)
		return p->name.len < q->name.len ? -1 : 1;
	return p->place < q->place ? -1 : 1;
}

/* Three bytes for one; what they make of an escape. */
static size_t put_escape(char *out, const char *escape)
{
	static const char digits[] = "0123456789ABCDEF";
	unsigned byte = http_hex(escape[1]) << 4 | http_hex(escape[2]);

	if (http_is((char)byte, HTTP_UNRESERVED)) {
		*out = (char)byte;
		return 1;
	}
	out[0] = '%';
	out[1] = digits[byte >> 4];
	out[2] = digits[byte & 15];
	return 3;
}

static struct span normal(struct arena *arena, struct span text)
{
	char *out = NULL;
	size_t n = 0;

	if (!text.len || !memchr(text.at, '%', text.len))
		return text;
	out = arena_alloc(arena, text.len);
	for (size_t i = 0; i < text.len; i++) {
		if (text.at[i] == '%' && text.len - i > 2 &&
		    http_is(text.at[i + 1], HTTP_HEX) && http_is(text.at[i + 2], HTTP_HEX)) {
			n += put_escape(out + n, text.at + i);
			i += 2;
		} else {
			out[n++] = text.at[i];
		}
	}
	return (struct span){ out, n };
}

/* The piece up to the next `&`, taken off the query's front. */
static struct span next_piece(struct span *query)
{
	const char *end = memchr(query->at, '&', query->len);
	struct span piece = { query->at, end ? (size_t)(end - query->at) : query->len };
	size_t used = piece.len + (end ? 1 : 0);

	query->at += used;
	query->len -= used;
	return piece;
}

static struct parameter parameter_of(struct arena *arena, struct span piece, size_t place)
{
	const char *equals = memchr(piece.at, '=', piece.len);
	size_t name_len = equals ? (size_t)(equals - piece.at) : piece.len;
	struct span value = { piece.at + name_len, piece.len - name_len };

	return (struct parameter){ normal(arena, (struct span){ piece.at, name_len }),
				   normal(arena, value), place };
}

static size_t pieces_at_most(struct span query)
{
	size_t n = 1;

	for (size_t i = 0; i < query.len; i++)
		n += query.at[i] == '&';
	return n;
}

static void add_query(struct message *m, const struct http_request *request)
{
	struct span query = request->query;
	struct parameter *all = NULL;
	size_t n = 0;

	if (query.len)
		all = arena_alloc(request->arena, pieces_at_most(query) * sizeof(*all));
	while (query.len) {
		struct span piece = next_piece(&query);

		if (piece.len) {
			all[n] = parameter_of(request->arena, piece, n);
			n++;
		}
	}
	if (n > 1)
		qsort(all, n, sizeof(*all), by_name);
	add_number(m, n);
	for (size_t i = 0; i < n; i++) {
		add_text(m, all[i].name);
		add_text(m, all[i].value);
	}
}

static const struct canonicaliser *canonicaliser_of(const struct digest_rules *rules,
						    const struct http_request *request)
{
	const struct http_field *type = NULL, *encoding = NULL;
	enum canonical_body body = rules->body;
	size_t types = 0, encodings = 0;

	type = http_find(&request->fields, SPAN("Content-Type"), &types);
	encoding = http_find(&request->fields, SPAN("Content-Encoding"), &encodings);
	if (types > 1 || encodings > 1 ||
	    (encoding && !http_same_name(encoding->value, SPAN("identity"))))
		body = CANONICAL_RAW;
	return canonical_for(body, type ? type->value : SPAN(""), request->body);
}

static bool digest_canonical(const struct digest_rules *rules,
			     const struct http_request *request,
			     unsigned char out[DIGEST_BYTES], struct canonical_error *error)
{
	const struct canonicaliser *canonicaliser = canonicaliser_of(rules, request);
	struct message m;

	message_begin(&m, SPAN("onceward request 1"));
	add_number(&m, rules->version);
	add_text(&m, request->method);
	add_text(&m, request->path);
	add_query(&m, request);
	add_number(&m, 0);
	add_text(&m, span_of(canonicaliser->name));
	if (!canonicaliser->run(request->arena, request->body, &m.sink, error))
		return false;
	message_end(&m, out);
	return true;
}

static void add_fields(struct message *m, const struct http_fields *fields, struct span name)
{
	size_t n = 0;

	http_find(fields, name, &n);
	add_number(m, n);
	for (size_t i = 0; n && i < fields->n; i++)
		if (http_same_name(fields->at[i].name, name))
			add_text(m, fields->at[i].value);
}

static void digest_raw(const struct http_request *request, unsigned char out[DIGEST_RAW_BYTES])
{
	unsigned char whole[32];
	struct message m;

	message_begin(&m, SPAN("onceward raw 1"));
	add_text(&m, request->method);
	add_text(&m, request->target);
	add_fields(&m, &request->fields, SPAN("Content-Type"));
	add_fields(&m, &request->fields, SPAN("Content-Encoding"));
	add_bytes(&m, request->body.at, request->body.len);
	message_end(&m, whole);
	memcpy(out, whole, DIGEST_RAW_BYTES);
}

bool digest_request(const struct digest_rules *rules, const struct http_request *request,
		    struct digest *out, struct canonical_error *error)
{
	if (!digest_canonical(rules, request, out->canonical, error))
		return false;
	digest_raw(request, out->raw);
	out->key_id = 0;
	return true;
}

struct span digest_rules_text(struct arena *arena, const struct digest_rules *rules)
{
	static const char *const bodies[] = {
		[CANONICAL_AUTO] = "auto", [CANONICAL_JSON] = "json", [CANONICAL_RAW] = "raw"
	};

	return arena_format(arena, "layout %d; version %u; body %s; numbers exact; query *",
			    LAYOUT, rules->version, bodies[rules->body]);
}

int64_t digest_rules_id(const struct digest_rules *rules)
{
	struct arena *arena = arena_new();
	struct hash *hash = own_of_thread()->hash;
	struct span text = digest_rules_text(arena, rules);
	unsigned char whole[32];
	uint64_t first = 0;

	hash_reset(hash);
	hash_add(hash, text.at, text.len);
	hash_end(hash, whole);
	arena_free(arena);
	memcpy(&first, whole, sizeof(first));
	return (int64_t)(be64toh(first) & INT64_MAX);
}
