/* What enters the digests and what does not, against known answers. For the hashes themselves see
 * test_hash.c, for rules and encodings test_digest_rules.c. */
#include "digest_rig.h"

#include <pthread.h>

static const struct digest_key key = { 7, 4, "Jefe" };

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
	       "f2dd96040551f9eea7d4f5bf757711f2c849156ea27267cf325f1db1b3bc3080");
	hex_is(out.raw, DIGEST_RAW_BYTES, "38c8eab78e60372888baeac77b3084d7");
	ck_assert_int_eq(out.key_id, 0);
}
END_TEST

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

/* A message as the layout says it, put together here. */
static void put_number(struct buf *out, size_t number)
{
	for (int shift = 56; shift >= 0; shift -= 8)
		buf_byte(out, (char)(number >> shift));
}

static void put_text(struct buf *out, const char *text)
{
	put_number(out, strlen(text));
	buf_text(out, text);
}

START_TEST(keyed_digests_are_hmac_over_the_same_layout)
{
	struct hash *hash = hash_new_keyed(key.secret, key.len);
	unsigned char expected[32];
	struct digest keyed, plain;
	struct buf m;

	buf_init(&m, 4096);
	put_text(&m, "onceward request 2");
	put_number(&m, 1);
	put_text(&m, "POST");
	put_text(&m, "/v1/orders");
	put_number(&m, 2);
	put_text(&m, "a");
	put_text(&m, "=1");
	put_text(&m, "b");
	put_text(&m, "=2");
	put_number(&m, 0);
	put_number(&m, 0);
	put_text(&m, "json");
	buf_text(&m, "{\"a\":[],\"b\":1}");
	hash_add(hash, m.at, m.len);
	hash_end(hash, expected);
	ck_assert(digest_under(&key, &order, &keyed) && digest_of(&rules, &order, &plain));
	ck_assert_mem_eq(keyed.canonical, expected, DIGEST_BYTES);
	ck_assert_int_eq(keyed.key_id, 7);
	buf_clear(&m);
	hash_reset(hash);
	put_text(&m, "onceward raw 2");
	put_text(&m, "POST");
	put_text(&m, order.target);
	put_number(&m, 1);
	put_text(&m, "application/json");
	put_number(&m, 0);
	put_number(&m, 0);
	buf_text(&m, order.body);
	hash_add(hash, m.at, m.len);
	hash_end(hash, expected);
	ck_assert_mem_eq(keyed.raw, expected, DIGEST_RAW_BYTES);
	ck_assert_mem_ne(keyed.canonical, plain.canonical, DIGEST_BYTES);
	ck_assert_mem_ne(keyed.raw, plain.raw, DIGEST_RAW_BYTES);
	hash_free(hash);
	buf_fini(&m);
}
END_TEST

START_TEST(each_key_has_its_own_digest)
{
	const struct digest_key other = { 8, 4, "jefE" };
	struct digest first, second, again;

	ck_assert(digest_under(&key, &order, &first) && digest_under(&other, &order, &second));
	ck_assert_mem_ne(first.canonical, second.canonical, DIGEST_BYTES);
	ck_assert_int_eq(second.key_id, 8);
	ck_assert(digest_under(&key, &order, &again));
	ck_assert_mem_eq(first.canonical, again.canonical, DIGEST_BYTES);
	ck_assert_mem_eq(first.raw, again.raw, DIGEST_RAW_BYTES);
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

	ck_assert(!digest_request(&rules, &request, NULL, &out, &error));
	ck_assert_uint_eq(error.offset, 5);
	ck_assert_str_eq(error.expected, "a value");
	request.body = SPAN("{}"); /* and the thread's hash is as good as new */
	ck_assert(digest_request(&rules, &request, NULL, &out, &error));
	arena_free(request.arena);
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
		keyed_digests_are_hmac_over_the_same_layout,
		each_key_has_its_own_digest,
		an_invalid_body_is_refused_and_says_where,
		threads_digest_alike_and_leave_nothing,
	};

	return run("digest", tests, ARRAY_LEN(tests));
}
