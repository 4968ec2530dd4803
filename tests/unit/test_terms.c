/* What answers mean, what of them is kept, and their receipts: by settings as people write them. */
#include "condition.h"
#include "outcome.h"
#include "receipt.h"
#include "response.h"
#include "settings_loading.h"
#include "unit_run.h"

static struct arena *arena;
static struct http_field fields[16];
static struct http_answer answer;

static void begin_terms(void)
{
	begin_loading();
	arena = arena_new();
	answer = (struct http_answer){ .status = 201, .fields = { fields, 0 } };
}

static void end_terms(void)
{
	arena_free(arena);
	end_loading();
}

static const struct idempotency_settings *terms(const char *settings)
{
	struct buf text;

	buf_init(&text, 65536);
	buf_format(&text,
		   COMMON "routes = ({ match = \"POST /a\" upstream = \"api\" idempotency = { "
			  "operation = \"op\" account = \"main\" %s } })",
		   settings);
	buf_byte(&text, 0);
	must_load_silently(text.at);
	buf_fini(&text);
	return loaded->routes[0].idempotency;
}

static void set(unsigned status, const char *body)
{
	answer.status = status;
	answer.body = span_of(body);
	answer.fields.n = 0;
}

static void with(const char *name, const char *value)
{
	http_add(&answer.fields, span_of(name), span_of(value));
}

static enum outcome judged(const struct idempotency_settings *idempotency)
{
	const char *why = "not set";
	enum outcome outcome = outcome_of(idempotency, &answer, &why);

	ck_assert(!why || strcmp(why, "not set") != 0);
	return outcome;
}

START_TEST(without_terms_the_status_decides)
{
	const struct idempotency_settings *plain = terms("");

	set(201, "{\"status\":\"pending\"}");
	ck_assert_int_eq(judged(plain), OUTCOME_STORE);
	set(400, "");
	ck_assert_int_eq(judged(plain), OUTCOME_RELEASE);
	set(503, "");
	with("X-Not-Executed", "1");
	ck_assert_int_eq(judged(plain), OUTCOME_UNKNOWN);
}
END_TEST

START_TEST(a_proof_comes_before_all_else)
{
	const struct idempotency_settings *one =
		terms("outcome = { release_if = { status = 503 header = \"x-shed\" equals = "
		      "\"yes\" } when = ({ pointer = \"/a\" list = \"store\" }) }");

	set(503, "{\"a\":1}");
	ck_assert_int_eq(judged(one), OUTCOME_STORE);
	with("X-Shed", "yes");
	ck_assert_int_eq(judged(one), OUTCOME_RELEASE);
	fields[0].value = SPAN("Yes");
	ck_assert_int_eq(judged(one), OUTCOME_STORE);
	fields[0].value = SPAN("yes");
	with("x-shed", "yes");
	ck_assert_int_eq(judged(one), OUTCOME_STORE);
	set(500, "");
	with("X-Shed", "yes");
	ck_assert_int_eq(judged(one), OUTCOME_UNKNOWN);
}
END_TEST

START_TEST(the_first_condition_that_holds_decides)
{
	const struct idempotency_settings *two =
		terms("outcome = { when = ("
		      "{ pointer = \"/s\" equals = \"p\" list = \"unknown\" },"
		      "{ pointer = \"/s\" list = \"release\" }) }");

	set(201, "{\"s\":\"p\"}");
	ck_assert_int_eq(judged(two), OUTCOME_UNKNOWN);
	set(201, "{\"s\":{}}");
	ck_assert_int_eq(judged(two), OUTCOME_RELEASE);
	set(201, "{\"s\":null}");
	ck_assert_int_eq(judged(two), OUTCOME_STORE);
	set(201, "{\"s\":\"p\"");
	ck_assert_int_eq(judged(two), OUTCOME_STORE);
	set(201, "{\"s\":\"p\"}");
	with("Content-Encoding", "gzip");
	ck_assert_int_eq(judged(two), OUTCOME_STORE);
	fields[0].value = SPAN("Identity");
	ck_assert_int_eq(judged(two), OUTCOME_UNKNOWN);
}
END_TEST

START_TEST(values_are_equal_by_what_they_say)
{
	static const struct {
		const char *equals, *value;
		bool holds;
	} pairs[] = {
		{ "\"a\"", "\"\\u0061\"", true },
		{ "\"a\"", "\"A\"", false },
		{ "1000", "1e3", true },
		{ "1000", "1000.0", true },
		{ "1000", "\"1000\"", false },
		{ "\"1000\"", "1000", false },
		{ "-7", "-7", true },
		{ "0", "-0", true },
		{ "true", "true", true },
		{ "true", "\"true\"", false },
		{ "false", "0", false },
		{ "\"\"", "\"\"", true },
		{ "\"\xc3\xa9\"", "\"\\u00e9\"", true },
		{ "\"[]\"", "[]", false },
		{ "\"null\"", "null", false },
	};

	for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
		struct span text =
			arena_format(arena,
				     "outcome = { when = ({ pointer = \"/v\" equals = %s list "
				     "= \"unknown\" }) }",
				     pairs[i].equals);
		struct span body = arena_format(arena, "{\"v\": %s }", pairs[i].value);
		const struct idempotency_settings *one = terms(text.at);

		set(201, body.at);
		ck_assert_msg((judged(one) == OUTCOME_UNKNOWN) == pairs[i].holds, "%s %s",
			      pairs[i].equals, pairs[i].value);
		ck_assert_int_eq(condition_holds(&one->outcome.when[0].condition, &answer),
				 pairs[i].holds);
	}
}
END_TEST

START_TEST(a_condition_that_is_not_set_never_holds)
{
	const struct idempotency_settings *plain = terms("");

	set(200, "{}");
	ck_assert(!condition_holds(&plain->recovery.found_when, &answer));
}
END_TEST

START_TEST(a_result_must_have_the_receipt_that_is_required)
{
	const struct idempotency_settings *one =
		terms("response = { receipt = \"header:Location\" } outcome = { "
		      "receipt_required = true }");
	const char *why = NULL;

	set(201, "");
	ck_assert_int_eq(judged(one), OUTCOME_UNKNOWN);
	ck_assert_int_eq(outcome_of(one, &answer, &why), OUTCOME_UNKNOWN);
	ck_assert_str_eq(why, "the answer has no receipt");
	with("location", "/a/1");
	ck_assert_int_eq(judged(one), OUTCOME_STORE);
	set(400, "");
	ck_assert_int_eq(judged(one), OUTCOME_RELEASE);
}
END_TEST

START_TEST(a_resend_never_releases)
{
	const struct idempotency_settings *one = terms(
		"key = { forward = \"client\" } recovery = { contract = \"resend\" } "
		"outcome = { release_if = { status = 201 header = \"X-Shed\" } "
		"when = ({ pointer = \"/p\" list = \"unknown\" }, { pointer = \"/d\" list "
		"= \"store\" }) }");
	const char *why = NULL;

	for (unsigned status = 200; status < 600; status++) {
		bool kept = status < 300 || status == 402;
		set(status, "{\"d\":1}");
		ck_assert_int_eq(outcome_of_resend(one, &answer, &why),
				 kept ? OUTCOME_STORE : OUTCOME_UNKNOWN);
	}
	set(201, "{\"p\":1}");
	ck_assert_int_eq(outcome_of_resend(one, &answer, &why), OUTCOME_UNKNOWN);
	ck_assert_ptr_nonnull(why);
	set(201, "");
	with("X-Shed", "");
	ck_assert_int_eq(outcome_of_resend(one, &answer, &why), OUTCOME_UNKNOWN);
}
END_TEST

static void normal(const char *text, const char *expected)
{
	struct span got = receipt_normal(arena, span_of(text));

	ck_assert_msg(span_equal(got, span_of(expected)), "%s: %.*s", text, (int)got.len,
		      got.at);
}

START_TEST(references_are_receipts_by_where_they_lead)
{
	normal("/orders/1", "/orders/1");
	normal("http://a.example:9000/orders/1", "/orders/1");
	normal("HTTPS://b.example/orders/1#top", "/orders/1");
	normal("//c.example/orders/1", "/orders/1");
	normal("/orders/./x/../1", "/orders/1");
	normal("/a/b/..", "/a/");
	normal("/a/b/.", "/a/b/");
	normal("/../a", "/a");
	normal("/a/%2E%2e/b", "/b");
	normal("/%6frders/%7e1/%2fx", "/orders/~1/%2Fx");
	normal("/a//b", "/a//b");
	normal("http://a.example", "/");
	normal("http://a.example?x=1", "/?x=1");
	normal("/orders?id=1", "/orders?id=1");
	normal("/orders?id=..%2e", "/orders?id=..%2e");
	normal("/#a", "/");
	normal("orders/1", "orders/1");
	normal("ord_1", "ord_1");
	normal("urn:x:y#z", "urn:x:y#z");
	normal("/a b", "/a b");
	normal("", "");
}
END_TEST

START_TEST(a_receipt_is_bounded_and_still_tells)
{
	char one[3000], other[3000];
	struct span a = { NULL, 0 }, b = { NULL, 0 };

	memset(one, 'a', sizeof(one));
	memset(other, 'a', sizeof(other));
	other[2999] = 'b';
	a = receipt_normal(arena, (struct span){ one, sizeof(one) });
	b = receipt_normal(arena, (struct span){ other, sizeof(other) });
	ck_assert_uint_eq(a.len, 7 + 64);
	ck_assert(!span_equal(a, b));
	a = receipt_normal(arena, (struct span){ one, RECEIPT_MAX });
	ck_assert_uint_eq(a.len, RECEIPT_MAX);
}
END_TEST

static void receipt(const char *at, const char *expected)
{
	struct span text = arena_format(arena, "response = { receipt = \"%s\" }", at);
	const struct idempotency_settings *one = terms(text.at);
	struct span got = receipt_of(arena, &one->response, &answer);

	ck_assert_msg(span_equal(got, span_of(expected)), "%s: %.*s", at, (int)got.len, got.at);
}

START_TEST(a_receipt_comes_from_a_field_or_the_body)
{
	set(201, "{\"id\":\"o1\",\"n\":1e2,\"url\":\"http://x/o/1\",\"o\":{},\"z\":null}");
	with("Location", "http://api/o/1");
	with("X-Id", "7");
	receipt("header:location", "/o/1");
	receipt("header:X-Id", "7");
	receipt("header:X-None", "");
	receipt("body:/id", "o1");
	receipt("body:/n", "100");
	receipt("body:/url", "/o/1");
	receipt("body:/o", "");
	receipt("body:/z", "");
	receipt("body:/none", "");
	with("Content-Encoding", "br");
	receipt("body:/id", "");
	ck_assert_uint_eq(receipt_of(arena, &terms("")->response, &answer).len, 0);
}
END_TEST

static struct http_answer reduced(const char *response)
{
	struct span text = arena_format(arena, "response = { %s }", response);

	return response_reduced(arena, &terms(text.at)->response, &answer);
}

START_TEST(what_speaks_of_a_whole_body_goes_with_it)
{
	struct http_answer left;

	set(201, "{\"a\":1,\"b\":2}");
	with("Content-Type", "application/json");
	with("ETag", "\"1\"");
	with("Content-Digest", "x");
	with("Repr-Digest", "x");
	with("Location", "/1");
	left = reduced("fields = [\"/b\"]");
	ck_assert(span_equal(left.body, SPAN("{\"b\":2}")));
	ck_assert_uint_eq(left.fields.n, 2);
	left = reduced("body = \"omit\"");
	ck_assert(left.body.at && left.body.len == 0);
	ck_assert_uint_eq(left.fields.n, 1);
	ck_assert_uint_eq(left.status, 201);
	left = reduced("");
	ck_assert(left.body.at == answer.body.at && left.fields.n == 5);
}
END_TEST

START_TEST(nothing_is_taken_from_what_is_nothing)
{
	struct http_answer left;

	set(204, "");
	with("ETag", "\"1\"");
	left = reduced("fields = [\"/b\"]");
	ck_assert_uint_eq(left.fields.n, 1);
	left = reduced("body = \"omit\"");
	ck_assert_uint_eq(left.fields.n, 1);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = { without_terms_the_status_decides,
				       a_proof_comes_before_all_else,
				       the_first_condition_that_holds_decides,
				       values_are_equal_by_what_they_say,
				       a_condition_that_is_not_set_never_holds,
				       a_result_must_have_the_receipt_that_is_required,
				       a_resend_never_releases,
				       references_are_receipts_by_where_they_lead,
				       a_receipt_is_bounded_and_still_tells,
				       a_receipt_comes_from_a_field_or_the_body,
				       what_speaks_of_a_whole_body_goes_with_it,
				       nothing_is_taken_from_what_is_nothing };
	Suite *suite = suite_create("terms");
	TCase *all = tcase_create("terms");

	suite_add_tcase(suite, all);
	tcase_add_checked_fixture(all, begin_terms, end_terms);
	for (size_t i = 0; i < ARRAY_LEN(tests); i++)
		tcase_add_test(all, tests[i]);
	return run_suite(suite);
}
