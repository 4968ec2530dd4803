/* What a lookup asks for, and what an answer to it says. */
#include "lookup_answer.h"
#include "lookup_path.h"
#include "settings_loading.h"
#include "unit_run.h"

static struct arena *arena;

static void begin(void)
{
	begin_loading();
	arena = arena_new();
}

static void end(void)
{
	arena_free(arena);
	end_loading();
}

/* --- the target --- */

static const struct lookup_names names = { .key = { "k-1", 3 },
					   .account = { "acme", 4 },
					   .request_id = { "req_abc", 7 },
					   .generation = 2 };

static bool is_target(const char *path, const struct lookup_names *as, const char *target)
{
	struct span made;

	if (!lookup_path(arena, span_of(path), as, &made))
		return target == NULL;
	return target && span_equal(made, span_of(target));
}

START_TEST(each_name_has_its_place)
{
	ck_assert(is_target("/v1/orders/by-key/{key}", &names, "/v1/orders/by-key/k-1"));
	ck_assert(is_target("/{account}/x?r={logical_request_id}&a={attempt_id}", &names,
			    "/acme/x?r=req_abc&a=req_abc.2"));
	ck_assert(is_target("/{key}{key}/{key}", &names, "/k-1k-1/k-1"));
	ck_assert(is_target("/nothing", &names, "/nothing"));
	ck_assert(is_target("/{other}", &names, NULL));
	ck_assert(is_target("/{key", &names, "/{key"));
	ck_assert(is_target("/{}", &names, NULL));
}
END_TEST

START_TEST(a_value_is_one_segment_whatever_its_bytes)
{
	struct lookup_names as = names;

	as.key = SPAN("a/b?c#d&e=f%2F{key} \\+~");
	ck_assert(
		is_target("/x/{key}", &as, "/x/a%2Fb%3Fc%23d%26e%3Df%252F%7Bkey%7D%20%5C%2B~"));
	as.key = SPAN("\r\n\0\xff\x80");
	ck_assert(is_target("/{key}", &as, "/%0D%0A%00%FF%80"));
	as.account = SPAN("\xc3\xa4/..");
	ck_assert(is_target("/{account}", &as, "/%C3%A4%2F.."));
}
END_TEST

START_TEST(a_segment_of_dots_is_no_place_to_ask)
{
	struct lookup_names as = names;

	as.key = SPAN("..");
	ck_assert(is_target("/a/{key}", &as, NULL));
	ck_assert(is_target("/a/{key}/b", &as, NULL));
	ck_assert(is_target("/a/{key}?b", &as, NULL));
	ck_assert(is_target("/a/x{key}", &as, "/a/x.."));
	ck_assert(is_target("/a?k={key}", &as, "/a?k=.."));
	ck_assert(is_target("/a?/{key}/", &as, "/a?/../"));
	as.key = SPAN(".");
	ck_assert(is_target("/{key}", &as, NULL));
	ck_assert(is_target("/.{key}", &as, NULL));
	as.key = SPAN("...");
	ck_assert(is_target("/{key}", &as, "/..."));
}
END_TEST

START_TEST(a_target_has_a_limit)
{
	struct lookup_names as = names;
	struct span made;
	char path[4001], key[256];

	memset(key, ' ', sizeof(key));
	memset(path, 'a', sizeof(path));
	memcpy(path + sizeof(path) - 6, "{key}", 6);
	path[0] = '/';
	as.key = (struct span){ key, 255 };
	ck_assert(lookup_path(arena, span_of(path), &as, &made));
	for (int i = 0; i < 12; i++)
		memcpy(path + 10 + i * 5, "{key}", 5);
	ck_assert(!lookup_path(arena, span_of(path), &as, &made));
}
END_TEST

/* --- the answer --- */

static const struct idempotency_settings *with(const char *recovery, const char *more)
{
	char text[2048];

	snprintf(text, sizeof(text),
		 "accounts = { all = { method = \"anonymous\" account = \"a\" } };"
		 "upstreams = { up = { servers = [\"http://127.0.0.1:9\"] } };"
		 "routes = ({ match = \"POST /x\" upstream = \"up\" idempotency = { operation "
		 "= \"x\" account = \"all\" %s recovery = { contract = \"lookup\" lookup_path "
		 "= \"/x/{key}\" %s } } });",
		 more, recovery);
	write_file("gateway.conf", text);
	ck_assert_msg(load_file(file_path("gateway.conf")), "%s", said.at);
	return loaded->routes[0].idempotency;
}

static enum lookup_verdict judged(const char *recovery, unsigned status, const char *body)
{
	struct http_answer answer = { .status = status, .body = span_of(body) };

	return lookup_judge(&with(recovery, "")->recovery, &answer);
}

START_TEST(a_status_says_whether_it_is_there)
{
	static const struct {
		unsigned status;
		enum lookup_verdict verdict;
	} rows[] = {
		{ 200, LOOKUP_FOUND },  { 404, LOOKUP_NOT_FOUND }, { 201, LOOKUP_ODD },
		{ 204, LOOKUP_ODD },    { 301, LOOKUP_ODD },       { 401, LOOKUP_ODD },
		{ 403, LOOKUP_ODD },    { 410, LOOKUP_ODD },       { 408, LOOKUP_FAILED },
		{ 425, LOOKUP_FAILED }, { 429, LOOKUP_FAILED },    { 500, LOOKUP_FAILED },
		{ 502, LOOKUP_FAILED }, { 503, LOOKUP_FAILED },    { 599, LOOKUP_FAILED },
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		ck_assert_int_eq(judged("", rows[i].status, "{}"), rows[i].verdict);
	ck_assert_int_eq(judged("not_found = [\"404\", \"410\"]", 410, ""), LOOKUP_NOT_FOUND);
	ck_assert_int_eq(judged("found = [\"2xx\"]", 204, ""), LOOKUP_FOUND);
	ck_assert_int_eq(judged("not_found = [\"503\"]", 503, ""), LOOKUP_NOT_FOUND);
}
END_TEST

START_TEST(a_document_says_whether_it_is_done)
{
	static const char when[] =
		"found_when = { pointer = \"/status\" equals = \"done\" } pending_when = { "
		"pointer = \"/wait\" equals = true }";

	ck_assert_int_eq(judged(when, 200, "{\"status\":\"done\"}"), LOOKUP_FOUND);
	ck_assert_int_eq(judged(when, 200, "{\"status\":\"d\\u006fne\"}"), LOOKUP_FOUND);
	ck_assert_int_eq(judged(when, 200, "{\"status\":\"failed\"}"), LOOKUP_OTHER);
	ck_assert_int_eq(judged(when, 200, "{\"status\":\"done\",\"wait\":true}"),
			 LOOKUP_PENDING);
	ck_assert_int_eq(judged(when, 200, "{\"status\":\"done\""), LOOKUP_OTHER);
	ck_assert_int_eq(judged(when, 200, ""), LOOKUP_OTHER);
	ck_assert_int_eq(judged(when, 404, "{\"status\":\"done\"}"), LOOKUP_NOT_FOUND);
}
END_TEST

static struct lookup_result result_of(const struct idempotency_settings *idempotency,
				      const char *body)
{
	struct upstream_call call = { .arena = arena, .upstream = &loaded->upstreams[0] };

	call.answer = (struct http_answer){ .status = 200, .body = span_of(body) };
	return lookup_result_of(idempotency, &call);
}

static const char places[] = "found_location = \"/self\" found_receipt = \"/id\"";

START_TEST(the_result_is_taken_from_the_document)
{
	struct lookup_result result = result_of(
		with(places, ""), "{\"id\": 7, \"self\": \"http://127.0.0.1:9/orders/7\"}");

	ck_assert_uint_eq(result.status, 200);
	ck_assert_uint_eq(result.fields.n, 1);
	ck_assert(span_equal(result.fields.at[0].name, SPAN("Location")));
	ck_assert(span_equal(result.fields.at[0].value, SPAN("/orders/7")));
	ck_assert(span_equal(result.receipt, SPAN("7")));
	result = result_of(with("", ""), "{\"id\": 7}");
	ck_assert_uint_eq(result.fields.n, 0);
	ck_assert_uint_eq(result.receipt.len, 0);
}
END_TEST

START_TEST(what_is_no_place_is_left_out)
{
	struct lookup_result result =
		result_of(with(places, ""), "{\"id\": {}, \"self\": \"/a\\r\\nX: 1\"}");

	ck_assert_uint_eq(result.fields.n, 0);
	ck_assert_uint_eq(result.receipt.len, 0);
	result = result_of(with(places, ""), "no document");
	ck_assert_uint_eq(result.fields.n, 0);
}
END_TEST

START_TEST(a_receipt_is_what_the_operation_itself_would_give)
{
	static const char by_location[] = "response = { receipt = \"header:Location\" }";
	struct lookup_result result = result_of(with("found_location = \"/self\"", by_location),
						"{\"self\": \"/orders/%37\"}");

	ck_assert(span_equal(result.receipt, SPAN("/orders/7")));
	result = result_of(with(places, by_location),
			   "{\"self\": \"/orders/7\", \"id\": \"https://api/orders/8\"}");
	ck_assert(span_equal(result.receipt, SPAN("/orders/8")));
}
END_TEST

START_TEST(the_status_is_the_first_stored_2xx_unless_written)
{
	ck_assert_uint_eq(with("", "")->recovery.result_status, 200);
	ck_assert_uint_eq(
		with("", "outcome = { store = [\"201\", \"402\"] }")->recovery.result_status,
		201);
	ck_assert_uint_eq(with("found_status = 202", "")->recovery.result_status, 202);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("lookup");
	TCase *t = tcase_create("lookup");

	tcase_add_checked_fixture(t, begin, end);
	tcase_add_test(t, each_name_has_its_place);
	tcase_add_test(t, a_value_is_one_segment_whatever_its_bytes);
	tcase_add_test(t, a_segment_of_dots_is_no_place_to_ask);
	tcase_add_test(t, a_target_has_a_limit);
	tcase_add_test(t, a_status_says_whether_it_is_there);
	tcase_add_test(t, a_document_says_whether_it_is_done);
	tcase_add_test(t, the_result_is_taken_from_the_document);
	tcase_add_test(t, what_is_no_place_is_left_out);
	tcase_add_test(t, a_receipt_is_what_the_operation_itself_would_give);
	tcase_add_test(t, the_status_is_the_first_stored_2xx_unless_written);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return run_suite(suite());
}
