/* The rules of a route, and encodings, as the digests see them. */
#include "canonical_rules.h"
#include "digest_rig.h"

#include <zlib.h>

/* With the body in `buf`, as zlib's windowBits say. */
static struct sketch compressed(struct sketch s, const char *encoding, int window,
				struct buf *buf)
{
	z_stream stream = { .next_in = (unsigned char *)(uintptr_t)s.body,
			    .avail_in = (unsigned)strlen(s.body) };

	buf_init(buf, 1 << 20);
	stream.next_out = (unsigned char *)buf_reserve(buf, 65536);
	stream.avail_out = 65536;
	ck_assert_int_eq(deflateInit2(&stream, 9, Z_DEFLATED, window, 9, Z_DEFAULT_STRATEGY),
			 Z_OK);
	ck_assert_int_eq(deflate(&stream, Z_FINISH), Z_STREAM_END);
	buf->len = stream.total_out;
	deflateEnd(&stream);
	s.encoding = encoding;
	s.bytes = buf_view(buf);
	return s;
}

START_TEST(a_compressed_body_is_what_is_in_it)
{
	static const struct {
		const char *encoding;
		int window;
	} codings[] = {
		{ "gzip", 31 }, { "X-GZip", 31 }, { "deflate", 15 }, { "Deflate", -15 }
	};
	struct buf buf;

	for (size_t i = 0; i < ARRAY_LEN(codings); i++) {
		struct sketch s =
			compressed(order, codings[i].encoding, codings[i].window, &buf);

		ck_assert(same_canonical(order, s));
		ck_assert(!same_raw(order, s));
		ck_assert(same_canonical(WITH(type, "x/y"), /* of whatever type */ ({
						 struct sketch other = s;
						 other.type = "x/y";
						 other;
					 })));
		buf_fini(&buf);
	}
	ck_assert(same_canonical(order, WITH(encoding, "Identity")));
}
END_TEST

START_TEST(an_empty_body_is_empty_in_any_coding)
{
	struct buf buf;
	struct sketch s = compressed(WITH(body, ""), "gzip", 31, &buf);

	ck_assert(same_canonical(WITH(body, ""), s));
	buf_fini(&buf);
	s = compressed(WITH(body, ""), "br", 31, &buf);
	s.bytes = SPAN("");
	ck_assert(!same_canonical(WITH(body, ""), s)); /* nobody knows what it means */
	buf_fini(&buf);
}
END_TEST

START_TEST(other_encodings_are_their_bytes)
{
	struct digest_rules raw = rules;
	struct sketch br = WITH(encoding, "br"), two = WITH(encoding, "gzip, gzip");
	struct sketch none = WITH(type, "text/csv");
	struct digest out, plain;
	struct buf buf;

	raw.body = CANONICAL_RAW;
	br.body = two.body = none.body = "\x1f\x8b\x08";
	ck_assert(!same_canonical(br, two)); /* and these mean what the encoding says */
	ck_assert(!same_canonical(br, none));
	ck_assert(same_canonical(br, br));
	br.encoding = "gzip";
	ck_assert(digest_of(&raw, &br, &out) && digest_of(&raw, &none, &plain));
	ck_assert_mem_ne(out.canonical, plain.canonical, DIGEST_BYTES);
	two = compressed(order, "gzip", 31, &buf);
	ck_assert(digest_of(&raw, &two, &out) && digest_of(&raw, &order, &plain));
	ck_assert_mem_ne(out.canonical, plain.canonical, DIGEST_BYTES);
	buf_fini(&buf);
}
END_TEST

/* Refused; *error says how. */
static struct canonical_error refusal(const struct digest_rules *by, const struct sketch *s)
{
	struct digest out;

	ck_assert(!digest_of(by, s, &out));
	return why_refused;
}

START_TEST(a_corrupt_stream_is_refused_and_a_bomb_is_too_large)
{
	struct digest_rules tight = rules;
	struct canonical_error error;
	struct digest out;
	struct buf buf;
	struct sketch s = compressed(order, "gzip", 31, &buf);
	size_t len = s.bytes.len;

	tight.decoded_max = strlen(order.body);
	ck_assert(digest_of(&tight, &s, &out)); /* it just fits */
	tight.decoded_max--;
	ck_assert(refusal(&tight, &s).too_large);
	tight.decoded_max = 0;
	ck_assert(refusal(&tight, &s).too_large);
	for (s.bytes.len = 1; s.bytes.len < len; s.bytes.len++) {
		error = refusal(&rules, &s);
		ck_assert(!error.too_large && error.expected && error.offset <= s.bytes.len);
	}
	buf_byte(&buf, 'x'); /* something behind it */
	s.bytes = buf_view(&buf);
	ck_assert_uint_eq(refusal(&rules, &s).too_large, false);
	buf.at[len / 2] ^= 0x55;
	s.bytes.len = len;
	ck_assert_ptr_nonnull(refusal(&rules, &s).expected);
	buf_fini(&buf);
}
END_TEST

START_TEST(an_error_in_a_decoded_body_says_that_it_is_there)
{
	struct buf buf;
	struct sketch s = compressed(WITH(body, "{\"a\":}"), "gzip", 31, &buf);
	struct canonical_error error = refusal(&rules, &s);

	ck_assert(error.decoded);
	ck_assert_uint_eq(error.offset, 5);
	buf_fini(&buf);
}
END_TEST

START_TEST(a_row_of_gzip_members_is_one_body)
{
	struct buf first, second;
	struct sketch a = compressed(WITH(body, "{\"b\":1.0,"), "gzip", 31, &first);
	struct sketch b = compressed(WITH(body, "\"a\":[]}"), "gzip", 31, &second);

	buf_span(&first, b.bytes);
	a.bytes = buf_view(&first);
	ck_assert(same_canonical(order, a));
	buf_fini(&first);
	buf_fini(&second);
}
END_TEST

/* Is it the same, with and without another header field? */
static bool header_counts(const char *name, const char *a, const char *b)
{
	static const struct span selected[] = { { "api-version", 11 }, { "x-b", 3 } };
	struct digest_rules by = rules;
	struct sketch one = order, other = order;
	struct digest first, second;

	by.headers = selected;
	by.n_headers = 2;
	one.header = other.header = name;
	one.header_value = a;
	other.header_value = b;
	ck_assert(digest_of(&by, &one, &first) && digest_of(&by, &other, &second));
	ck_assert((memcmp(first.raw, second.raw, DIGEST_RAW_BYTES) == 0) ==
		  (memcmp(first.canonical, second.canonical, DIGEST_BYTES) == 0));
	return memcmp(first.canonical, second.canonical, DIGEST_BYTES) != 0;
}

START_TEST(selected_header_fields_count_and_no_others)
{
	ck_assert(header_counts("API-Version", "1", "2"));
	ck_assert(header_counts("api-version", NULL, "1"));
	ck_assert(header_counts("Api-Version", NULL, "")); /* absent is not empty */
	ck_assert(!header_counts("API-VERSION", "1", "1"));
	ck_assert(!header_counts("X-Other", "1", "2"));
	ck_assert(!header_counts("X-Other", NULL, "2"));
	ck_assert(header_counts("X-B", "", "1"));
}
END_TEST

static bool same_listed(const char *a, const char *b, size_t n)
{
	static const struct span listed[] = { { "a", 1 }, { "b%2F", 4 } };
	struct digest_rules by = rules;
	struct sketch one = WITH(query, a), other = WITH(query, b);
	struct digest first, second;

	by.query_listed = true;
	by.query = listed;
	by.n_query = n;
	ck_assert(digest_of(&by, &one, &first) && digest_of(&by, &other, &second));
	return memcmp(first.canonical, second.canonical, DIGEST_BYTES) == 0;
}

START_TEST(listed_parameters_count_and_no_others)
{
	ck_assert(same_listed("a=1&x=2", "x=3&%61=1&y", 2));
	ck_assert(!same_listed("a=1", "a=2", 2));
	ck_assert(!same_listed("a=1", "a=1&a=1", 2));
	ck_assert(!same_listed("b%2f=1", "b%2f=2", 2));
	ck_assert(same_listed("b%2f=1", "b%2F=1", 2));
	ck_assert(same_listed("a=1", NULL, 0));
}
END_TEST

START_TEST(a_listed_parameter_counts_however_its_name_is_spelt)
{
	static const struct {
		const char *name, *one, *other;
	} cases[] = {
		{ "$amount", "%24amount=5", "%24amount=6" },
		{ "$amount", "$amount=5", "$amount=6" },
		{ "%24amount", "$amount=5", "$amount=6" },
		{ "ids[]", "ids%5B%5D=1", "ids%5B%5D=2" },
		{ "ids%5b%5d", "ids[]=1", "ids[]=2" },
		{ "a b", "a+b=1", "a+b=2" },
		{ "a b", "a%20b=1", "a%20b=2" },
		{ "a+b", "a b=1", "a b=2" },
		{ "a%", "a%25=1", "a%25=2" },
		{ "a%zz", "a%zz=1", "a%zz=2" },
	};
	struct arena *arena = arena_new();

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct span name = digest_parameter_name(arena, span_of(cases[i].name));
		struct sketch one = WITH(query, cases[i].one);
		struct sketch other = WITH(query, cases[i].other);
		struct digest_rules by = rules;
		struct digest first, second;

		by.query_listed = true;
		by.query = &name;
		by.n_query = 1;
		ck_assert(digest_of(&by, &one, &first) && digest_of(&by, &other, &second));
		ck_assert_msg(memcmp(first.canonical, second.canonical, DIGEST_BYTES) != 0,
			      "%s does not count as %s", cases[i].one, cases[i].name);
	}
	ck_assert(span_equal(digest_parameter_name(arena, SPAN("a b;[%e4")),
			     SPAN("a%20b%3B%5B%E4")));
	arena_free(arena);
}
END_TEST

START_TEST(the_canonical_body_can_be_had_for_itself)
{
	const struct canonicaliser *kind = NULL;
	struct canonical_error error;
	struct http_field type = { SPAN("Content-Type"), SPAN("application/json") };
	struct http_request request = { .arena = arena_new(),
					.fields = { &type, 1 },
					.body = SPAN("{\"b\":1.0,\"a\":[]}") };
	struct buf out;

	buf_init(&out, 100);
	ck_assert(digest_body(&rules, &request, &out, &kind, &error));
	ck_assert_str_eq(kind->name, "json");
	ck_assert(span_equal(buf_view(&out), SPAN("{\"a\":[],\"b\":1}")));
	buf_fini(&out);
	arena_free(request.arena);
}
END_TEST

static bool other_id(struct digest_rules other)
{
	return digest_rules_id(&other) != digest_rules_id(&rules);
}

#define RULES(member, value)                                                                   \
	({                                                                                     \
		struct digest_rules changed = rules;                                           \
		changed.member = (value);                                                      \
		changed;                                                                       \
	})

static struct canonical_rules *members(struct arena *arena, const char *ignore,
				       const char *only, const char *defaults)
{
	struct canonical_rules *made = canonical_rules_new(arena, CANONICAL_EXACT);
	struct canonical_error error;

	if (ignore)
		ck_assert_ptr_null(canonical_rules_ignore(made, span_of(ignore)));
	if (only)
		ck_assert_ptr_null(canonical_rules_only(made, span_of(only)));
	if (defaults)
		ck_assert(canonical_rules_defaults(made, span_of(defaults), &error));
	return made;
}

START_TEST(rules_have_an_id_that_any_change_changes)
{
	static const struct span names[] = { { "a", 1 } };
	struct arena *arena = arena_new();
	struct digest_rules other = rules;
	struct span text = digest_rules_text(arena, &rules);

	ck_assert(span_equal(text,
			     SPAN("layout 3; version 1; body auto; numbers exact; query *")));
	ck_assert_int_gt(digest_rules_id(&rules), 0);
	ck_assert(!other_id(rules));
	ck_assert(!other_id(RULES(id, 77)));
	ck_assert(!other_id(RULES(decoded_max, 7)));
	ck_assert(other_id(RULES(version, 2)));
	ck_assert(other_id(RULES(body, CANONICAL_RAW)));
	ck_assert(other_id(RULES(body, CANONICAL_FORM)));
	ck_assert(other_id(RULES(numbers, CANONICAL_IEEE754)));
	ck_assert(other_id(RULES(query_listed, true)));
	ck_assert(other_id(RULES(members, members(arena, "/a", NULL, NULL))));
	ck_assert(other_id(RULES(members, members(arena, NULL, "/a", NULL))));
	ck_assert(other_id(RULES(members, members(arena, NULL, NULL, "{\"a\":1}"))));
	other.headers = other.query = names;
	other.n_headers = other.n_query = 1;
	other.query_listed = true;
	other.members = members(arena, "/a\"b", "/c", "{ \"c\": 1.0, \"d\": 2 }");
	text = digest_rules_text(arena, &other);
	ck_assert(span_equal(text, SPAN("layout 3; version 1; body auto; numbers exact; "
					"query a; headers a; defaults {\"c\":1} (\"c\" 1.0); "
					"ignore \"/a\\\"b\"; only \"/c\"")));
	arena_free(arena);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		a_compressed_body_is_what_is_in_it,
		an_empty_body_is_empty_in_any_coding,
		other_encodings_are_their_bytes,
		a_listed_parameter_counts_however_its_name_is_spelt,
		a_corrupt_stream_is_refused_and_a_bomb_is_too_large,
		an_error_in_a_decoded_body_says_that_it_is_there,
		a_row_of_gzip_members_is_one_body,
		selected_header_fields_count_and_no_others,
		listed_parameters_count_and_no_others,
		the_canonical_body_can_be_had_for_itself,
		rules_have_an_id_that_any_change_changes,
	};

	return run("digest rules", tests, ARRAY_LEN(tests));
}
