/* Settings of key sources, answers' terms and recovery. */
#include "settings_loading.h"
#include "unit_run.h"

#define KEY_OF(settings)      ONE_GATED("key = { " settings " }")
#define RESPONSE_OF(settings) ONE_GATED("response = { " settings " }")
#define OUTCOME_OF(settings)  ONE_GATED("outcome = { " settings " }")
#define RECOVERY_OF(settings) ONE_GATED("recovery = { " settings " }")
#define RESEND(settings)      RECOVERY_OF("contract = \"resend\" " settings)
#define LOOKUP(settings)                                                                       \
	RECOVERY_OF("contract = \"lookup\" lookup_path = \"/o/{key}\" " settings)

static const struct {
	const char *text, *line;
} errors[] = {
	/* key */
	{ KEY_OF("from = []"), "3: `from` is empty" },
	{ KEY_OF("from = [\"Idempotency-Key\"]"), "3: \"Idempotency-Key\" says no place" },
	{ KEY_OF("from = [\"header:\"]"), "3: \"\" cannot be the field" },
	{ KEY_OF("from = [\"header:A B\"]"), "3: \"A B\" cannot be the field" },
	{ KEY_OF("from = [\"header:Authorization\"]"), "3: \"Authorization\" cannot be" },
	{ KEY_OF("from = [\"header:Connection\"]"), "3: \"Connection\" cannot be the field" },
	{ KEY_OF("from = [\"header:content-type\"]"), "3: \"content-type\" cannot be the" },
	{ KEY_OF("from = [\"header:X-Forwarded-For\"]"), "3: \"X-Forwarded-For\" cannot be" },
	{ KEY_OF("from = [\"header:x-onceward-key\"]"), "3: \"x-onceward-key\" cannot be" },
	{ KEY_OF("from = [\"header:X_Key\"]"), "3: \"X_Key\" cannot be the field of a key" },
	{ KEY_OF("from = [\"header:X-A\", \"header:x-a\"]"),
	  "3: \"header:x-a\" stands there twice" },
	{ KEY_OF("from = [\"body:id\"]"), "3: \"id\" is no JSON Pointer here: it must begin" },
	{ KEY_OF("from = [\"body:\"]"), "3: \"\" is no JSON Pointer here" },
	{ KEY_OF("from = [\"body:/a/*/b\"]"),
	  "3: \"/a/*/b\" is no JSON Pointer here: it has a *" },
	{ KEY_OF("from = [\"body:/a~2\"]"), "3: \"/a~2\" is no JSON Pointer here: it has a ~" },
	{ KEY_OF("from = [\"body:/id\"]"), "3: a key from the body needs `request.only`" },
	{ ONE_GATED("key = { from = [\"body:/id\", \"body:/id\"] } request = { only = [\"/a\"] "
		    "}"),
	  "3: \"body:/id\" stands there twice" },
	{ ONE_GATED("key = { from = [\"body:/id\"] } request = { only = [\"/a\"] body = "
		    "\"form\" }"),
	  "3: a key from the body is read of JSON" },
	{ ONE_GATED("key = { from = [\"header:X-K\"] } request = { headers = [\"x-k\"] }"),
	  "3: `headers`: \"x-k\" is the key itself" },
	{ KEY_OF("forward = \"header:\""), "3: `forward` must be \"client\", \"derived\"" },
	{ KEY_OF("forward = \"header:Host\""), "3: `forward` must be" },
	{ KEY_OF("forward = \"secret\""), "3: `forward` must be" },
	{ KEY_OF("forward = \"header:Accept-Encoding\""), "3: `forward` must be" },
	{ KEY_OF("forward = \"header:x-account\""), "3: `forward` must be" },
	{ KEY_OF("from = [\"header:x-account\"]"), "3: \"x-account\" cannot be the field" },
	{ KEY_OF("forward = \"header:X-Onceward-Request-Id\""), "3: `forward` must be" },
	{ ONE_GATED("key = { forward = \"header:X-K\" } request = { headers = [\"x-k\"] }"),
	  "3: `headers`: \"x-k\" is the key itself" },
	/* response */
	{ RESPONSE_OF("receipt = \"Location\""), "3: \"Location\" says no place" },
	{ RESPONSE_OF("receipt = \"body:/a/*\""), "3: \"/a/*\" is no JSON Pointer here" },
	{ RESPONSE_OF("receipt_unique = true"), "3: `receipt_unique` needs `receipt`" },
	{ RESPONSE_OF("fields = [\"a\"]"), "3: `fields`: \"a\" must begin with a slash" },
	{ RESPONSE_OF("fields = [\"/a\"] body = \"omit\""), "3: `fields` has no effect where" },
	{ RESPONSE_OF("body = \"none\""), "3: `body` must be one of \"full|omit\"" },
	/* outcome */
	{ OUTCOME_OF("receipt_required = true"),
	  "3: `receipt_required` needs `response.receipt`" },
	{ OUTCOME_OF("release_if = 3"), "3: `release_if` must be a group: { … }, or a list" },
	{ OUTCOME_OF("release_if = { status = 503 }"), "3: `release_if` needs `header`" },
	{ OUTCOME_OF("release_if = { header = \"X\" }"), "3: `release_if` needs `status`" },
	{ OUTCOME_OF("release_if = { status = 99 header = \"X\" }"),
	  "3: `status` must be from 200" },
	{ OUTCOME_OF("release_if = { status = 600 header = \"X\" }"),
	  "3: `status` must be from" },
	{ OUTCOME_OF("release_if = ({ status = 503 header = \"X Y\" })"),
	  "3: \"X Y\" is no name of a header field" },
	{ OUTCOME_OF("release_if = ({ status = 503 header = \"Connection\" })"),
	  "3: \"Connection\" is no name of a header field that can prove" },
	{ OUTCOME_OF("release_if = ({ status = 503 header = \"X\" equal = \"1\" })"),
	  "3: `equal` is no setting of `release_if`; did you mean `equals`?" },
	{ OUTCOME_OF("when = { pointer = \"/a\" list = \"store\" }"),
	  "3: `when` must be a list" },
	{ OUTCOME_OF("when = (3)"), "3: `when` must be a group" },
	{ OUTCOME_OF("when = ({ list = \"store\" })"), "3: `when` needs `pointer`" },
	{ OUTCOME_OF("when = ({ pointer = \"/a\" })"), "3: `when` needs `list`" },
	{ OUTCOME_OF("when = ({ pointer = \"a\" list = \"store\" })"),
	  "3: \"a\" is no JSON Pointer" },
	{ OUTCOME_OF("when = ({ pointer = \"/a\" list = \"stored\" })"),
	  "3: `list` must be one of" },
	{ OUTCOME_OF("when = ({ pointer = \"/a\" list = \"store\" equals = 1.5 })"),
	  "3: `equals` must be a text in quotes (UTF-8), a whole number, true or false" },
	{ OUTCOME_OF("when = ({ pointer = \"/a\" list = \"store\" equals = [1] })"),
	  "3: `equals` must be" },
	{ OUTCOME_OF("when = ({ pointer = \"/a\" list = \"store\" equals = \"\xff\" })"),
	  "3: `equals` must be" },
	/* recovery */
	{ RECOVERY_OF("contract = \"retry\""), "3: `contract` must be one of \"hold|resend|" },
	{ RECOVERY_OF("resend_window = \"1h\""),
	  "3: `resend_window` belongs to contract = \"resend\"" },
	{ RECOVERY_OF("max_attempts = 3"),
	  "3: `max_attempts` belongs to contract = \"resend\"" },
	{ RECOVERY_OF("resend_store = [\"200\"]"), "3: `resend_store` belongs to contract" },
	{ RECOVERY_OF("lookup_path = \"/{key}\""),
	  "3: `lookup_path` belongs to contract = \"lookup\"" },
	{ RECOVERY_OF("found_when = { pointer = \"/a\" }"),
	  "3: `found_when` belongs to contract" },
	{ LOOKUP("max_attempts = 3"), "3: `max_attempts` belongs to contract = \"resend\"" },
	{ RESEND(""), "3: contract = \"resend\" needs `key.forward` written out" },
	{ ONE_GATED("key = { forward = \"none\" } recovery = { contract = \"resend\" }"),
	  "3: contract = \"resend\" with forward = \"none\"" },
	{ ONE_GATED("key = { forward = \"derived\" } tombstone = \"24h\" "
		    "recovery = { contract = \"resend\" }"),
	  "3: `tombstone` must be longer than `resend_window`" },
	{ ONE_GATED("key = { forward = \"derived\" } "
		    "recovery = { contract = \"resend\" resend_window = \"30d\" }"),
	  "3: `tombstone` must be longer than `resend_window`" },
	{ RESEND("max_attempts = 1"), "3: `max_attempts` must be from 2 to 100" },
	{ RESEND("resend_store = [\"20x\"]"), "3: \"20x\" is no status" },
	{ RECOVERY_OF("contract = \"lookup\""),
	  "3: contract = \"lookup\" needs `lookup_path`" },
	{ RECOVERY_OF("contract = \"lookup\" lookup_path = \"o/{key}\""),
	  "3: `lookup_path`: " },
	{ RECOVERY_OF("contract = \"lookup\" lookup_path = \"//o/{key}\""),
	  "3: `lookup_path`: " },
	{ RECOVERY_OF("contract = \"lookup\" lookup_path = \"/o {key}\""),
	  "3: `lookup_path`: " },
	{ RECOVERY_OF("contract = \"lookup\" lookup_path = \"/o#{key}\""),
	  "3: `lookup_path`: " },
	{ RECOVERY_OF("contract = \"lookup\" lookup_path = \"/o/{id}\""),
	  "3: `lookup_path`: \"{id}\": there is {key}" },
	{ RECOVERY_OF("contract = \"lookup\" lookup_path = \"/o/{key\""),
	  "3: `lookup_path`: \"{key\"" },
	{ RECOVERY_OF("contract = \"lookup\" lookup_path = \"/o/{account}\""),
	  "3: `lookup_path` needs {key}, {logical_request_id}" },
	{ LOOKUP("not_found_after = \"500ms\""), "3: `not_found_after` must be from 1s" },
	{ LOOKUP("found = [\"404\"]"), "3: 404 stands in `found` and in `not_found`" },
	{ LOOKUP("found_status = 100"), "3: `found_status` must be from 200 to 599, or 0" },
	{ LOOKUP("found_location = \"url\""), "3: \"url\" is no JSON Pointer" },
	{ LOOKUP("found_receipt = \"\""), "3: \"\" is no JSON Pointer" },
	{ LOOKUP("pending_when = { equals = 1 }"), "3: a condition needs `pointer`" },
	{ LOOKUP("pending_when = ( )"), "3: a condition must be a group" },
	{ LOOKUP("headers_file = \"none\""), "3: `headers_file`: cannot open" },
	{ LOOKUP("headers_file = \"bad.headers\""), "3: `headers_file`: line 2 of" },
	/* the others */
	{ ONE_GATED("on_settle_failure = \"wait\""), "3: `on_settle_failure` must be one of" },
	{ ONE_GATED("stopped_status = 200"), "3: `stopped_status` must be from 400 to 599" },
	{ "ledger = { audit_retention = \"1h\" }", "1: `audit_retention` must be from 1d" },
};

START_TEST(an_error_is_said_with_its_line)
{
	write_file("bad.headers", "A: 1\nno header\n");
	ck_assert_int_eq(chmod(file_path("bad.headers"), 0600), 0);
	must_fail(errors[_i].text, errors[_i].line);
}
END_TEST

static const struct idempotency_settings *first(void)
{
	return loaded->routes[0].idempotency;
}

START_TEST(without_a_word_nothing_is_sent_again)
{
	const struct recovery_settings *recovery = NULL;

	must_load_silently(ONE_GATED(""));
	recovery = &first()->recovery;
	ck_assert_int_eq(recovery->contract, RECOVERY_HOLD);
	ck_assert_int_eq(recovery->deadline, 3600000);
	ck_assert_int_eq(recovery->after_deadline, RECOVERY_END_HOLD);
	ck_assert(!recovery->stop && !recovery->found_when.place);
	ck_assert_int_eq(recovery->not_found_after, -1);
	ck_assert_int_eq(recovery->max_attempts, 5);
	ck_assert_int_eq(recovery->resend_window, 86400000);
	ck_assert_int_eq(first()->on_settle_failure, SETTLE_FAILURE_REFUSE);
	ck_assert_int_eq(first()->stopped_status, 503);
	ck_assert_int_eq(first()->max_unknown_per_account, 0);
	ck_assert_int_eq(first()->key.forward_how, KEY_FORWARD_CLIENT);
	ck_assert(first()->key.sources.n == 1 && !first()->key.sources.body);
	ck_assert(!first()->response.kept && !first()->response.receipt_at);
	ck_assert_ptr_null(loaded->ledger.spool);
	ck_assert_int_eq(loaded->ledger.audit_retention, INT64_C(400) * 86400000);
}
END_TEST

START_TEST(statuses_of_recovery_are_worked_out_at_start)
{
	const struct recovery_settings *recovery = NULL;

	must_load_silently(LOOKUP("found = [\"2xx\", \"409\"] not_found = [\"404\", \"410\"]"));
	recovery = &first()->recovery;
	for (unsigned status = 200; status < 600; status++) {
		ck_assert_int_eq(recovery->found_of[status], status < 300 || status == 409);
		ck_assert_int_eq(recovery->not_found_of[status],
				 status == 404 || status == 410);
		ck_assert_int_eq(recovery->resend_store_of[status],
				 status < 300 || status == 402);
	}
	ck_assert_uint_eq(recovery->result_status, 200);
	must_load_silently(ONE_GATED("outcome = { store = [\"201\", \"3xx\"] } recovery = { "
				     "contract = \"lookup\" lookup_path = \"/o?k={key}\" }"));
	ck_assert_uint_eq(first()->recovery.result_status, 201);
	must_load_silently(LOOKUP("found_status = 202"));
	ck_assert_uint_eq(first()->recovery.result_status, 202);
}
END_TEST

/* Is a record looked up another way than at the last time? */
static bool other_mark(const char *text)
{
	static char last[64];
	char mark[64] = "";
	bool other = false;

	must_load_silently(text);
	memcpy(mark, first()->recovery.lookup_mark.at, first()->recovery.lookup_mark.len);
	other = memcmp(mark, last, sizeof(last)) != 0;
	memcpy(last, mark, sizeof(last));
	return other;
}

START_TEST(a_record_is_marked_by_how_and_where_it_is_looked_up)
{
	ck_assert(other_mark(LOOKUP("")));
	ck_assert(!other_mark(LOOKUP("not_found_after = \"1m\" found = [\"200\"]")));
	ck_assert(other_mark(RECOVERY_OF("contract = \"lookup\" lookup_path = \"/O/{key}\"")));
	ck_assert(
		other_mark(ONE_GATED("key = { forward = \"derived\" } recovery = { contract = "
				     "\"lookup\" lookup_path = \"/O/{key}\" }")));
	must_load_silently(ONE_GATED(""));
	ck_assert_uint_eq(first()->recovery.lookup_mark.len, 0);
	must_load_silently(LOOKUP(""));
	ck_assert_uint_eq(first()->recovery.lookup_mark.len, 8);
}
END_TEST

START_TEST(headers_of_a_lookup_are_read_with_the_settings)
{
	const struct http_fields *headers = NULL;

	write_file("lookup.headers", "# who we are\n\nAuthorization: Bearer a b\t\r\nX-Empty:\n"
				     "Accept:application/json");
	ck_assert_int_eq(chmod(file_path("lookup.headers"), 0600), 0);
	must_load_silently(LOOKUP("headers_file = \"lookup.headers\""));
	headers = &first()->recovery.headers;
	ck_assert_uint_eq(headers->n, 3);
	ck_assert(span_equal(headers->at[0].name, SPAN("Authorization")));
	ck_assert(span_equal(headers->at[0].value, SPAN("Bearer a b")));
	ck_assert_uint_eq(headers->at[1].value.len, 0);
	ck_assert(span_equal(headers->at[2].value, SPAN("application/json")));
	ck_assert_int_eq(chmod(file_path("lookup.headers"), 0644), 0);
	must_fail(LOOKUP("headers_file = \"lookup.headers\""), "3: `headers_file`: ");
}
END_TEST

START_TEST(a_spool_is_beside_the_file_that_names_it)
{
	must_load("ledger = { spool = \"answers\" }");
	ck_assert_str_eq(loaded->ledger.spool, file_path("answers"));
}
END_TEST

static const char *identity_of(const char *text)
{
	static char copy[1024];

	must_load_silently(text);
	snprintf(copy, sizeof(copy), "%s", first()->identity_text);
	return copy;
}

#define IDENTITY(lines)                                                                        \
	"operation op\nmatch POST /a\naccount header x-account\n" lines                        \
	"record account, operation, key\n"

START_TEST(an_identity_says_of_keys_only_what_is_not_usual)
{
	ck_assert_str_eq(identity_of(ONE_GATED("")), IDENTITY("key header:Idempotency-Key\n"));
	ck_assert_str_eq(identity_of(KEY_OF("from = [\"header:idempotency-KEY\"] forward = "
					    "\"client\"")),
			 IDENTITY("key header:Idempotency-Key\n"));
	ck_assert_str_eq(
		identity_of(ONE_GATED("key = { from = [\"header:X-A\", \"body:/Id\"] } "
				      "request = { only = [\"/a\"] }")),
		IDENTITY("key header:x-a, body:/Id\n"));
	ck_assert_str_eq(identity_of(KEY_OF("forward = \"derived\"")),
			 IDENTITY("key header:Idempotency-Key\nforwarded derived\n"));
}
END_TEST

/* Two routes of one operation: the second says something else. */
static void differs(const char *settings, const char *name)
{
	char line[256];
	struct buf text;

	buf_init(&text, 65536);
	buf_format(&text,
		   COMMON "routes = (" ROUTE_OF(
			   "POST /a", GATED("")) ",\n"
						 "{ match = \"POST /b\" upstream = \"api\" "
						 "idempotency = { operation = "
						 "\"op\" account = \"main\" %s } })",
		   settings);
	buf_byte(&text, 0);
	snprintf(line, sizeof(line), "4: operation `op` has another `%s` here than on line 3",
		 name);
	must_fail(text.at, line);
	buf_fini(&text);
}

START_TEST(two_routes_of_one_operation_have_one_set_of_terms)
{
	differs("key = { from = [\"header:X-A\"] }", "from");
	differs("response = { receipt = \"header:Location\" }", "receipt");
	differs("response = { receipt = \"header:Location\" receipt_unique = true }",
		"receipt");
	differs("response = { fields = [\"/a\"] }", "fields");
	differs("outcome = { release_if = { status = 503 header = \"X\" } }", "release_if");
	differs("outcome = { when = ({ pointer = \"/a\" list = \"store\" }) }", "when");
	differs("recovery = { contract = \"at_least_once\" }", "contract");
	differs("recovery = { deadline = \"2h\" }", "deadline");
	differs("on_settle_failure = \"deliver\"", "on_settle_failure");
}
END_TEST

START_TEST(terms_are_explained)
{
	static const char *const lines[] = {
		"    key header:Idempotency-Key, body:/id\n",
		"    release  503 with X-Shed: yes\n",
		"    when /s \"p\" -> unknown\n",
		"    when /t is there -> store\n",
		"    store without a receipt -> unknown\n",
		"    stored body reduced to /id, /a, receipt body:/id (unique)\n",
		"    recovery lookup: GET /o/{key}, found 200 and /data/0 is there as 201, "
		"pending /s "
		"\"p\", not found 404 twice, apart 1m, deadline 1h, then final, then stops\n",
	};
	struct buf out;

	must_load_silently(ONE_GATED(
		"key = { from = [\"header:Idempotency-Key\", \"body:/id\"] } request = { "
		"ignore = "
		"[\"/n\"] } outcome = { receipt_required = true release_if = { status = 503 "
		"header "
		"= \"X-Shed\" equals = \"yes\" } when = ({ pointer = \"/s\" equals = \"p\" "
		"list = "
		"\"unknown\" }, { pointer = \"/t\" list = \"store\" }) } response = { fields = "
		"[\"/id\", \"/a\"] receipt = \"body:/id\" receipt_unique = true } recovery = { "
		"contract = \"lookup\" lookup_path = \"/o/{key}\" found_when = { pointer = "
		"\"/data/0\" } pending_when = { pointer = \"/s\" equals = \"p\" } found_status "
		"= "
		"201 not_found_after = \"1m\" after_deadline = \"final\" stop = true }"));
	buf_init(&out, 65536);
	settings_explain(loaded, &out);
	buf_byte(&out, 0);
	for (size_t i = 0; i < ARRAY_LEN(lines); i++)
		ck_assert_msg(strstr(out.at, lines[i]) != NULL, "%sin:\n%s", lines[i], out.at);
	buf_fini(&out);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("settings_terms");
	TCase *tests = tcase_create("settings_terms");

	suite_add_tcase(suite, tests);
	tcase_add_checked_fixture(tests, begin_loading, end_loading);
	tcase_add_loop_test(tests, an_error_is_said_with_its_line, 0, ARRAY_LEN(errors));
	tcase_add_test(tests, without_a_word_nothing_is_sent_again);
	tcase_add_test(tests, statuses_of_recovery_are_worked_out_at_start);
	tcase_add_test(tests, a_record_is_marked_by_how_and_where_it_is_looked_up);
	tcase_add_test(tests, headers_of_a_lookup_are_read_with_the_settings);
	tcase_add_test(tests, a_spool_is_beside_the_file_that_names_it);
	tcase_add_test(tests, an_identity_says_of_keys_only_what_is_not_usual);
	tcase_add_test(tests, two_routes_of_one_operation_have_one_set_of_terms);
	tcase_add_test(tests, terms_are_explained);
	return run_suite(suite);
}
