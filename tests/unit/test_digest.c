/* What enters the digests and what does not, against known answers; and the hashes themselves. */
#include "digest.h"
#include "unit_run.h"

#include <pthread.h>
#include <stdio.h>

static const struct digest_rules rules = { .version = 1, .body = CANONICAL_AUTO };

/* A request made of texts; the first field counts only where it is set. */
struct sketch {
	const char *method, *target, *path, *query, *type, *encoding, *body;
};

static const struct sketch order = {
	"POST", "/v1/orders?b=2&a=1",  "/v1/orders", "b=2&a=1", "application/json",
	NULL,   "{\"b\":1.0,\"a\":[]}"
};

static bool digest_of(const struct digest_rules *by, const struct sketch *s, struct digest *out)
{
	struct http_field fields[2];
	struct http_request request = { .arena = arena_new(),
					.method = span_of(s->method),
					.target = span_of(s->target),
					.path = span_of(s->path),
					.query = span_of(s->query),
					.has_query = s->query != NULL,
					.fields = { fields, 0 },
					.body = span_of(s->body) };
	struct canonical_error error;
	bool done = false;

	if (s->type)
		http_add(&request.fields, SPAN("content-type"), span_of(s->type));
	if (s->encoding)
		http_add(&request.fields, SPAN("Content-Encoding"), span_of(s->encoding));
	done = digest_request(by, &request, out, &error);
	arena_free(request.arena);
	return done;
}

static bool same_canonical(struct sketch a, struct sketch b)
{
	struct digest da, db;

	ck_assert(digest_of(&rules, &a, &da) && digest_of(&rules, &b, &db));
	return memcmp(da.canonical, db.canonical, DIGEST_BYTES) == 0;
}

static bool same_raw(struct sketch a, struct sketch b)
{
	struct digest da, db;

	ck_assert(digest_of(&rules, &a, &da) && digest_of(&rules, &b, &db));
	return memcmp(da.raw, db.raw, DIGEST_RAW_BYTES) == 0;
}

static void hex_is(const unsigned char *bytes, size_t n, const char *expected)
{
	char text[2 * 64 + 1];

	for (size_t i = 0; i < n; i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
	ck_assert_str_eq(text, expected);
}

/* A stored format: these values were computed from the layout by other means. */
START_TEST(digests_are_those_of_the_documented_layout)
{
	struct digest out;

	ck_assert(digest_of(&rules, &order, &out));
	hex_is(out.canonical, DIGEST_BYTES,
	       "86686162d945f2834c558844f632611dafdd9efd8d19a16dd5f06463014d2119");
	hex_is(out.raw, DIGEST_RAW_BYTES, "3622f67d4d27cacc2a903be0c14b5dee");
	ck_assert_int_eq(out.key_id, 0);
}
END_TEST

#define WITH(member, value)                                                                    \
	({                                                                                     \
		struct sketch changed = order;                                                 \
		changed.member = (value);                                                      \
		changed;                                                                       \
	})

START_TEST(spelling_does_not_change_the_canonical_digest_but_the_raw_one)
{
	ck_assert(same_canonical(order, WITH(body, " {\"a\": [ ], \"b\": 1} ")));
	ck_assert(!same_raw(order, WITH(body, " {\"a\": [ ], \"b\": 1} ")));
	ck_assert(same_canonical(order, WITH(target, "/v1/%6frders?b=2&a=1")));
	ck_assert(!same_raw(order, WITH(target, "/v1/%6frders?b=2&a=1")));
	ck_assert(same_canonical(order, WITH(type, "application/vnd.x+json;v=2")));
	ck_assert(!same_raw(order, WITH(type, "application/vnd.x+json;v=2")));
	ck_assert(same_raw(order, order));
}
END_TEST

START_TEST(every_field_counts)
{
	struct digest_rules second = rules;
	struct digest a, b;

	ck_assert(!same_canonical(order, WITH(method, "PATCH")));
	ck_assert(!same_canonical(order, WITH(path, "/v1/order")));
	ck_assert(!same_canonical(order, WITH(query, "b=2&a=2")));
	ck_assert(!same_canonical(order, WITH(query, NULL)));
	ck_assert(!same_canonical(order, WITH(body, "{\"b\":1.0,\"a\":[0]}")));
	ck_assert(!same_canonical(order, WITH(body, "")));
	ck_assert(!same_canonical(WITH(body, "{}"), /* the same bytes, of another kind */
				  ({
					  struct sketch s = WITH(body, "{}");
					  s.type = "text/plain";
					  s;
				  })));
	ck_assert(!same_raw(order, WITH(method, "PATCH")));
	ck_assert(!same_raw(order, WITH(type, NULL)));
	ck_assert(!same_raw(order, WITH(encoding, "identity")));
	ck_assert(!same_raw(order, WITH(body, "")));
	second.version = 2;
	ck_assert(digest_of(&rules, &order, &a) && digest_of(&second, &order, &b));
	ck_assert_mem_ne(a.canonical, b.canonical, DIGEST_BYTES);
}
END_TEST

START_TEST(fields_do_not_run_into_each_other)
{
	ck_assert(!same_canonical(WITH(query, "a=1"), WITH(query, "a&=1")));
	ck_assert(!same_canonical(WITH(query, "a=1&b=2"), WITH(query, "a=1b=2")));
	ck_assert(!same_canonical(WITH(path, "/v1/ordersa"), WITH(path, "/v1/orders")));
	ck_assert(!same_raw(WITH(method, "POS"), WITH(target, "T/v1/orders?b=2&a=1")));
}
END_TEST

START_TEST(parameters_compare_sorted_by_name)
{
	ck_assert(same_canonical(order, WITH(query, "a=1&b=2")));
	ck_assert(same_canonical(order, WITH(query, "&a=1&&b=2&")));
	ck_assert(same_canonical(order, WITH(query, "%61=%31&b=2")));
	ck_assert(same_canonical(WITH(query, "a=1&b=2&a=3"), WITH(query, "b=2&a=1&a=3")));
	ck_assert(!same_canonical(WITH(query, "a=1&b=2&a=3"), WITH(query, "b=2&a=3&a=1")));
	ck_assert(same_canonical(WITH(query, "a=%c3%a4"), WITH(query, "a=%C3%A4")));
	ck_assert(!same_canonical(WITH(query, "a=%26b"), WITH(query, "a=&b")));
	ck_assert(!same_canonical(WITH(query, "a=1%3D"), WITH(query, "a=1=")));
	ck_assert(!same_canonical(WITH(query, "a=+"), WITH(query, "a=%20")));
	ck_assert(!same_canonical(WITH(query, "a"), WITH(query, "a=")));
	ck_assert(!same_canonical(WITH(query, "a=%zz"), WITH(query, "a=%ZZ")));
	ck_assert(same_canonical(WITH(query, "a=%"), WITH(query, "a=%")));
	ck_assert(same_canonical(WITH(query, ""), WITH(query, NULL)));
	ck_assert(same_canonical(WITH(query, "&&"), WITH(query, NULL)));
}
END_TEST

START_TEST(an_empty_body_is_valid_whatever_its_type)
{
	struct sketch empty = WITH(body, "");
	struct digest out;

	ck_assert(digest_of(&rules, &empty, &out));
	empty.type = "text/plain";
	ck_assert(same_canonical(empty, WITH(body, "")));
}
END_TEST

START_TEST(an_encoded_body_is_its_bytes)
{
	struct sketch gzip = WITH(encoding, "gzip"), identity = WITH(encoding, "Identity");
	struct digest out;

	gzip.body = "\x1f\x8b\x08";
	ck_assert(digest_of(&rules, &gzip, &out));
	ck_assert(same_canonical(order, identity));
}
END_TEST

START_TEST(an_invalid_body_is_refused_and_says_where)
{
	struct http_field type = { SPAN("Content-Type"), SPAN("application/json") };
	struct http_request request = { .arena = arena_new(),
					.method = SPAN("POST"),
					.path = SPAN("/"),
					.target = SPAN("/"),
					.fields = { &type, 1 },
					.body = SPAN("{\"a\":}") };
	struct canonical_error error = { 0 };
	struct digest out;

	ck_assert(!digest_request(&rules, &request, &out, &error));
	ck_assert_uint_eq(error.offset, 5);
	ck_assert_str_eq(error.expected, "a value");
	request.body = SPAN("{}"); /* and the thread's hash is as good as new */
	ck_assert(digest_request(&rules, &request, &out, &error));
	arena_free(request.arena);
}
END_TEST

START_TEST(rules_have_an_id_that_any_change_changes)
{
	struct arena *arena = arena_new();
	struct digest_rules other = rules;
	int64_t id = digest_rules_id(&rules);
	struct span text = digest_rules_text(arena, &rules);

	ck_assert(span_equal(text,
			     SPAN("layout 1; version 1; body auto; numbers exact; query *")));
	ck_assert_int_gt(id, 0);
	ck_assert_int_eq(id, digest_rules_id(&rules));
	ck_assert_int_eq(id, INT64_C(6454213490627994301));
	other.id = id;
	ck_assert_int_eq(id, digest_rules_id(&other));
	other.version = 2;
	ck_assert_int_ne(id, digest_rules_id(&other));
	other.version = 1;
	other.body = CANONICAL_RAW;
	ck_assert_int_ne(id, digest_rules_id(&other));
	arena_free(arena);
}
END_TEST

START_TEST(hashes_are_sha_256)
{
	struct hash *hash = hash_new();
	unsigned char out[32];

	hash_add(hash, "abc", 3);
	hash_end(hash, out);
	hex_is(out, 32, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	hash_reset(hash);
	hash_end(hash, out);
	hex_is(out, 32, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	hash_reset(hash);
	hash_add(hash, "ignored", 7);
	hash_reset(hash);
	hash_add(hash, "a", 1);
	hash_add(hash, NULL, 0);
	hash_add(hash, "bc", 2);
	hash_end(hash, out);
	hex_is(out, 32, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	hash_free(hash);
	hash_free(NULL);
}
END_TEST

START_TEST(keyed_hashes_are_hmac_sha_256)
{
	struct hash *hash = hash_new_keyed((const unsigned char *)"Jefe", 4); /* RFC 4231, 2 */
	struct hash *spans = hash_new_keyed((const unsigned char *)"Jefe", 4);
	unsigned char out[32], again[32];

	hash_add(hash, "what do ya want for nothing?", 28);
	hash_end(hash, out);
	hex_is(out, 32, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
	hash_reset(hash);
	hash_add(hash, "what do ya want ", 16);
	hash_add(hash, "for nothing?", 12);
	hash_end(hash, out);
	hex_is(out, 32, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
	hash_reset(hash);
	hash_add(hash, "\0\0\0\0\0\0\0\3abc", 11);
	hash_end(hash, out);
	hash_add_span(spans, SPAN("abc"));
	hash_end(spans, again);
	ck_assert_mem_eq(out, again, 32);
	hash_free(hash);
	hash_free(spans);
}
END_TEST

START_TEST(blocks_are_aes_128)
{
	const unsigned char key[16] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
	unsigned char block[16];

	for (unsigned i = 0; i < 16; i++) /* FIPS 197, C.1 */
		block[i] = (unsigned char)(i * 17);
	block_encrypt(key, block, block);
	hex_is(block, 16, "69c4e0d86a7b0430d8cdb78070b4c55a");
	block_decrypt(key, block, block);
	hex_is(block, 16, "00112233445566778899aabbccddeeff");
}
END_TEST

START_TEST(random_bytes_are_not_the_same_twice)
{
	unsigned char a[32] = { 0 }, b[32] = { 0 };

	random_bytes(a, sizeof(a));
	random_bytes(b, sizeof(b));
	ck_assert_mem_ne(a, b, sizeof(a));
	random_bytes(a, 0);
}
END_TEST

static void *in_a_thread(void *out)
{
	ck_assert(digest_of(&rules, &order, out));
	return NULL;
}

START_TEST(threads_digest_alike_and_leave_nothing)
{
	struct digest here, there[4];
	pthread_t threads[4];

	ck_assert(digest_of(&rules, &order, &here));
	for (unsigned i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, in_a_thread, &there[i]), 0);
	for (unsigned i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		ck_assert_mem_eq(here.canonical, there[i].canonical, DIGEST_BYTES);
		ck_assert_mem_eq(here.raw, there[i].raw, DIGEST_RAW_BYTES);
	}
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		digests_are_those_of_the_documented_layout,
		spelling_does_not_change_the_canonical_digest_but_the_raw_one,
		every_field_counts,
		fields_do_not_run_into_each_other,
		parameters_compare_sorted_by_name,
		an_empty_body_is_valid_whatever_its_type,
		an_encoded_body_is_its_bytes,
		an_invalid_body_is_refused_and_says_where,
		rules_have_an_id_that_any_change_changes,
		hashes_are_sha_256,
		keyed_hashes_are_hmac_sha_256,
		blocks_are_aes_128,
		random_bytes_are_not_the_same_twice,
		threads_digest_alike_and_leave_nothing,
	};

	return run("digest", tests, ARRAY_LEN(tests));
}
