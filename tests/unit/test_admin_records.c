/*
 * Records and operations over HTTP, without a ledger: who may do what, and what is refused before
 * anybody is asked.
 */
#include "admin_rig.h"
#include "unit_run.h"

static unsigned status_as(const char *role, const char *method, const char *path)
{
	char line[128];
	char why[256];

	snprintf(line, sizeof(line), "who %s %s\n", role, hex_of("secret"));
	write_file(line);
	settings.admin.tokens_file = file;
	admin_tokens_free(tokens);
	tokens = admin_tokens_load(file, why);
	ck_assert_msg(tokens != NULL, "%s", why);
	request.fields.n = 0;
	http_add(&request.fields, SPAN("Authorization"), SPAN("Bearer secret"));
	return ask(method, path).status;
}

/* 503: it was let through, and there is no ledger here. 400: it was, and says nothing. */
START_TEST(who_may_look_may_not_change)
{
	static const struct {
		const char *method, *path;
		unsigned viewer, operator;
	} all[] = {
		{ "GET", "/v1/records", 503, 503 },
		{ "HEAD", "/v1/records", 503, 503 },
		{ "GET", "/v1/records/req_x", 503, 503 },
		{ "POST", "/v1/records/find", 503, 503 },
		{ "POST", "/v1/records/req_x/resolve", 403, 400 },
		{ "GET", "/v1/operations", 503, 503 },
		{ "POST", "/v1/operations/pay/stop", 403, 400 },
		{ "POST", "/v1/operations/pay/resume", 403, 400 },
		{ "POST", "/v1/operations/pay/adopt", 403, 400 },
		{ "POST", "/v1/accounts/erase", 403, 400 },
		{ "GET", "/v1/accounts/erase", 405, 405 },
		{ "POST", "/v1/records", 405, 405 },
		{ "GET", "/v1/records/", 404, 404 },
		{ "GET", "/v1/records/a/b", 404, 404 },
		{ "POST", "/v1/records//resolve", 404, 404 },
		{ "POST", "/v1/operations/a/b/stop", 404, 404 },
	};

	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		ck_assert_msg(status_as("viewer", all[i].method, all[i].path) == all[i].viewer,
			      "%s %s", all[i].method, all[i].path);
		ck_assert_msg(status_as("operator", all[i].method, all[i].path) ==
				      all[i].operator,
			      "%s %s", all[i].method, all[i].path);
	}
}
END_TEST

START_TEST(without_tokens_nothing_of_records_is_answered)
{
	struct http_answer answer = ask("GET", "/v1/records");

	ck_assert_uint_eq(answer.status, 403);
	ck_assert(says(&answer, "admin.tokens_file"));
	ck_assert_uint_eq(ask("POST", "/v1/operations/pay/stop").status, 403);
	ck_assert_uint_eq(ask("GET", "/metrics").status, 200);
}
END_TEST

START_TEST(of_whoever_may_not_do_it_no_body_is_read)
{
	request.method = SPAN("POST");
	request.path = SPAN("/v1/operations/pay/stop");
	ck_assert_uint_eq(admin_body_max(&request, &view, tokens), 0);
	status_as("viewer", "POST", "/v1/operations/pay/stop");
	ck_assert_uint_eq(admin_body_max(&request, &view, tokens), 0);
	status_as("operator", "POST", "/v1/operations/pay/stop");
	ck_assert_uint_eq(admin_body_max(&request, &view, tokens), 1 << 20);
	status_as("operator", "GET", "/v1/records");
	ck_assert_uint_eq(admin_body_max(&request, &view, tokens), 0);
}
END_TEST

static const char *says_400(const char *path, const char *query, const char *body)
{
	struct http_answer answer;

	status_as("operator", "GET", "/healthz");
	request.body = span_of(body);
	request.query = span_of(query);
	answer = ask("POST", path);
	request.query = SPAN("");
	ck_assert_msg(answer.status == 400, "%s %s: %u", path, body, answer.status);
	return arena_copy(arena, answer.body).at;
}

/* Who writes ?dry_run=1 believes that nothing is changed. */
START_TEST(a_change_with_a_parameter_that_means_nothing_is_refused)
{
	static const char *const all[][2] = {
		{ "/v1/records/req_x/resolve",
		  "{\"outcome\":\"not_executed\",\"evidence\":\"x\"}" },
		{ "/v1/operations/pay/stop", "{\"reason\":\"x\"}" },
		{ "/v1/operations/pay/resume", "{\"reason\":\"x\"}" },
		{ "/v1/operations/pay/adopt", "{\"reason\":\"x\"}" },
		{ "/v1/accounts/erase", "{\"reason\":\"x\",\"account\":\"a\"}" },
	};

	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		ck_assert_ptr_nonnull(
			strstr(says_400(all[i][0], "dry_run=1", all[i][1]), "no parameters"));
}
END_TEST

START_TEST(an_erasure_and_a_stop_are_refused_for_what_is_wrong_with_them)
{
	static const char erase[] = "/v1/accounts/erase", stop[] = "/v1/operations/pay/stop";
	static const char *const all[][3] = {
		{ erase, "{\"reason\":\"x\"}", "account is needed" },
		{ erase, "{\"account\":\"\",\"reason\":\"x\"}", "account is needed" },
		{ erase, "{\"account\":7,\"reason\":\"x\"}", "account is needed" },
		{ erase, "{\"account\":\"a\"}", "reason is needed" },
		{ erase, "{\"account\":\"a\",\"reason\":\" \\t\"}", "reason is needed" },
		{ erase, "{\"account\":\"a\",\"reason\":\"x\",\"dry_run\":\"no\"}",
		  "dry_run is" },
		{ erase, "{\"account\":\"a\",\"reason\":\"x\",\"dry-run\":true}",
		  "no member dry-run" },
		{ stop, "{\"reason\":\" \"}", "reason is needed" },
		{ stop, "{\"reason\":\"x\",\"account\":\"\"}", "account is one too" },
	};

	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		ck_assert_msg(strstr(says_400(all[i][0], "", all[i][1]), all[i][2]), "%s",
			      all[i][1]);
	ck_assert_ptr_nonnull(strstr(
		says_400(
			stop, "",
			arena_format(arena, "{\"reason\":\"x\",\"account\":\"%0256d\"}", 0).at),
		"1 to 255 bytes"));
}
END_TEST

static const char *resolve_says(const char *body)
{
	struct http_answer answer;

	status_as("operator", "GET", "/healthz");
	request.body = span_of(body);
	answer = ask("POST", "/v1/records/req_x/resolve");
	ck_assert_msg(answer.status == 400, "%s: %u", body, answer.status);
	return arena_copy(arena, answer.body).at;
}

START_TEST(a_resolution_is_refused_for_what_is_wrong_with_it)
{
	static const struct {
		const char *body, *words;
	} all[] = {
		{ "", "no JSON object" },
		{ "[]", "no JSON object" },
		{ "{\"a\":1}", "no member a here" },
		{ "{\"outcome\":\"completed\",\"outcome\":\"not_executed\"}", "duplicate" },
		{ "{}", "outcome is" },
		{ "{\"outcome\":\"completed\",\"status\":\"201\"}", "are numbers" },
		{ "{\"outcome\":\"completed\",\"status\":201.5}", "are numbers" },
		{ "{\"outcome\":\"completed\",\"status\":201}", "evidence is missing" },
		{ "{\"outcome\":\"completed\",\"status\":201,\"evidence\":\" \"}",
		  "evidence is missing" },
		{ "{\"outcome\":\"completed\",\"evidence\":\"x\"}", "from 200 to 599" },
		{ "{\"outcome\":\"completed\",\"evidence\":\"x\",\"status\":199}",
		  "from 200 to 599" },
		{ "{\"outcome\":\"completed\",\"headers\":[]}", "headers is" },
		{ "{\"outcome\":\"completed\",\"headers\":{\"A\":1}}", "headers is" },
		{ "{\"outcome\":\"completed\",\"body\":1}", "body is" },
		{ "{\"outcome\":\"completed\",\"body\":\"\",\"body_base64\":\"\"}", "exclude" },
		{ "{\"outcome\":\"completed\",\"body_base64\":\"?\"}", "no base64" },
		{ "{\"outcome\":\"not_executed\",\"evidence\":\"x\",\"receipt\":\"r\"}",
		  "has no status" },
	};

	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		ck_assert_msg(strstr(resolve_says(all[i].body), all[i].words), "%s: %s",
			      all[i].body, resolve_says(all[i].body));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("admin_records");
	TCase *all = tcase_create("all");

	tcase_add_checked_fixture(all, setup, teardown);
	tcase_add_test(all, who_may_look_may_not_change);
	tcase_add_test(all, without_tokens_nothing_of_records_is_answered);
	tcase_add_test(all, of_whoever_may_not_do_it_no_body_is_read);
	tcase_add_test(all, a_change_with_a_parameter_that_means_nothing_is_refused);
	tcase_add_test(all, an_erasure_and_a_stop_are_refused_for_what_is_wrong_with_them);
	tcase_add_test(all, a_resolution_is_refused_for_what_is_wrong_with_it);
	suite_add_tcase(suite, all);
	return run_suite(suite);
}
