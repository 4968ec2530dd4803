/*
 * The admin listener's answers, without a listener: who is answered at all, and what the
 * endpoints say.
 */
#include "admin_rig.h"

static const char *token_name;

START_TEST(healthz_is_ok_as_long_as_somebody_answers)
{
	struct http_answer answer;

	view.draining = true;
	given[0].ok = false;
	answer = ask("GET", "/healthz");
	ck_assert_uint_eq(answer.status, 200);
	ck_assert(has(&answer, "Content-Type", "application/json"));
	ck_assert(has(&answer, "Cache-Control", "no-store"));
	ck_assert(span_equal(answer.body, SPAN("{\"status\":\"ok\"}\n")));
}
END_TEST

START_TEST(readyz_is_ready_when_all_checks_are)
{
	struct http_answer answer = ask("GET", "/readyz");

	ck_assert_uint_eq(answer.status, 200);
	ck_assert(says(&answer, "{\"ready\":true,\"draining\":false,"
				"\"ledger\":{\"ok\":true,\"detail\":\"fine\"},"
				"\"durable\":{\"ok\":true,\"detail\":\"fine\"},"
				"\"keys\":{\"ok\":true,\"detail\":\"fine\"},"
				"\"days_left\":{\"ok\":true,\"detail\":\"fine\"},"
				"\"routes\":{\"ok\":true,\"detail\":\"fine\"}}\n"));
}
END_TEST

START_TEST(readyz_is_503_when_one_check_is_not)
{
	for (size_t i = 0; i < ADMIN_CHECKS; i++) {
		struct http_answer answer;

		given[i].ok = false;
		answer = ask("GET", "/readyz");
		ck_assert_uint_eq(answer.status, 503);
		ck_assert(says(&answer, "\"ready\":false"));
		ck_assert(says(&answer, "\"ok\":false"));
		given[i].ok = true;
	}
}
END_TEST

START_TEST(readyz_is_503_while_draining)
{
	struct http_answer answer;

	view.draining = true;
	answer = ask("GET", "/readyz");
	ck_assert_uint_eq(answer.status, 503);
	ck_assert(says(&answer, "\"ready\":false,\"draining\":true"));
}
END_TEST

START_TEST(the_longest_details_fit_and_are_escaped)
{
	struct http_answer answer;

	for (size_t i = 0; i < ADMIN_CHECKS; i++)
		memset(given[i].detail, i ? 0x01 : '"', sizeof(given[i].detail) - 1);
	answer = ask("GET", "/readyz");
	ck_assert(says(&answer, "\\\"\\\"\"},"));
	ck_assert(says(&answer, "\\u0001\"}}\n"));
}
END_TEST

START_TEST(metrics_are_prometheus_text)
{
	struct http_answer answer = ask("GET", "/metrics");

	ck_assert_uint_eq(answer.status, 200);
	ck_assert(has(&answer, "Content-Type", "text/plain; version=0.0.4; charset=utf-8"));
	ck_assert(says(&answer, "# TYPE onceward_requests_total counter\n"));
	ck_assert_int_eq(answer.body.at[answer.body.len - 1], '\n');
}
END_TEST

START_TEST(head_is_answered_as_get)
{
	ck_assert_uint_eq(ask("HEAD", "/healthz").status, 200);
	ck_assert_uint_eq(ask("HEAD", "/metrics").status, 200);
	ck_assert_uint_eq(ask("HEAD", "/readyz").status, 200);
}
END_TEST

START_TEST(an_unknown_path_is_404)
{
	static const char *const paths[] = {
		"/", "/metrics/", "/Metrics", "/v1/record", "*", ""
	};

	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		struct http_answer answer = ask("GET", paths[i]);
		ck_assert_uint_eq(answer.status, 404);
		ck_assert(has(&answer, "Content-Type", "application/problem+json"));
		ck_assert(says(&answer, "route_not_found"));
	}
}
END_TEST

START_TEST(another_method_is_405_with_allow)
{
	static const char *const methods[] = { "POST", "DELETE", "OPTIONS", "get" };

	for (size_t i = 0; i < ARRAY_LEN(methods); i++) {
		struct http_answer answer = ask(methods[i], "/metrics");
		ck_assert_uint_eq(answer.status, 405);
		ck_assert(has(&answer, "Allow", "GET, HEAD"));
		ck_assert(says(&answer, "method_not_allowed"));
	}
}
END_TEST

START_TEST(the_listen_address_and_localhost_are_answered_with_any_port)
{
	static const char *const hosts[] = { "127.0.0.1",      "127.0.0.1:1",  "localhost",
					     "LOCALHOST:9180", "[::1]",        "[::1]:9180",
					     "10.1.2.3",       "10.1.2.3:9999" };

	settings.admin.listen = "10.1.2.3:9180";
	for (size_t i = 0; i < ARRAY_LEN(hosts); i++)
		ck_assert_msg(status_for_host(hosts[i]) == 200, "%s", hosts[i]);
	settings.admin.listen = "[fd00::1]:9180";
	ck_assert_uint_eq(status_for_host("[FD00::1]:7"), 200);
}
END_TEST

START_TEST(a_name_that_was_rebound_to_our_address_is_refused)
{
	static const char *const hosts[] = {
		"",           "evil.example", "evil.example:9180",
		"localhost.", "127.0.0.2",    "localhost.evil.example",
		"[::2]",      "0.0.0.0",      "127.0.0.1.x",
		":9180"
	};

	for (size_t i = 0; i < ARRAY_LEN(hosts); i++)
		ck_assert_msg(status_for_host(hosts[i]) == 403, "%s", hosts[i]);
	request.host = SPAN("evil.example");
	struct http_answer answer = ask("GET", "/metrics");
	ck_assert(has(&answer, "Content-Type", "application/problem+json"));
	ck_assert(says(&answer, "admin.hosts"));
	ck_assert_uint_eq(ask("GET", "/nothing").status, 403);
}
END_TEST

START_TEST(hosts_that_are_configured_are_answered)
{
	static const char *const hosts[] = { "ops.example", "fd00::2" };

	settings.admin.hosts = (struct texts){ hosts, ARRAY_LEN(hosts) };
	ck_assert_uint_eq(status_for_host("ops.example:80"), 200);
	ck_assert_uint_eq(status_for_host("OPS.example"), 200);
	ck_assert_uint_eq(status_for_host("[fd00::2]:80"), 200);
	ck_assert_uint_eq(status_for_host("x.ops.example"), 403);
}
END_TEST

START_TEST(with_a_tokens_file_metrics_need_a_token)
{
	struct http_answer answer;

	load("");
	answer = ask("GET", "/metrics");
	ck_assert_uint_eq(answer.status, 401);
	ck_assert(has(&answer, "WWW-Authenticate", "Bearer"));
	ck_assert(says(&answer, "account_unauthenticated"));
	ck_assert_uint_eq(ask("GET", "/healthz").status, 200);
	ck_assert_uint_eq(ask("GET", "/readyz").status, 200);
	ck_assert_uint_eq(status_with("Bearer secret"), 200);
	ck_assert_uint_eq(status_with("bearer   secret"), 200);
}
END_TEST

START_TEST(whatever_is_not_exactly_the_token_is_401)
{
	static const char *const wrong[] = { "Bearer secreT", "Bearer secret ", "Bearer",
					     "Bearer ",       "Basic secret",   "secret",
					     "Bearersecret",  "Bearer secre",   "" };

	load("");
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
		ck_assert_msg(status_with(wrong[i]) == 401, "%s", wrong[i]);
	ck_assert_uint_eq(status_with(arena_format(arena, "Bearer %s", hex_of("secret")).at),
			  401);
	request.fields.n = 0;
	http_add(&request.fields, SPAN("Authorization"), SPAN("Bearer secret"));
	http_add(&request.fields, SPAN("Authorization"), SPAN("Bearer secret"));
	ck_assert_uint_eq(ask("GET", "/metrics").status, 401);
}
END_TEST

START_TEST(a_token_ends_when_it_says)
{
	load("2000-01-01T00:00:00Z");
	ck_assert_uint_eq(status_with("Bearer secret"), 401);
	admin_tokens_free(tokens);
	load("2999-01-01T00:00:00Z");
	ck_assert_uint_eq(status_with("Bearer secret"), 200);
	ck_assert_int_eq(
		admin_tokens_role(tokens, SPAN("secret"), 32472144000 - 1, &token_name),
		ADMIN_VIEWER);
	ck_assert_int_eq(admin_tokens_role(tokens, SPAN("secret"), 32472144000, &token_name),
			 ADMIN_ANYBODY);
}
END_TEST

START_TEST(tokens_that_could_not_be_loaded_let_nobody_in)
{
	settings.admin.tokens_file = file;
	ck_assert_uint_eq(status_with("Bearer secret"), 401);
}
END_TEST

START_TEST(an_empty_file_lets_nobody_in)
{
	char why[256];

	settings.admin.tokens_file = file;
	tokens = admin_tokens_load(file, why);
	ck_assert_ptr_nonnull(tokens);
	ck_assert_uint_eq(admin_tokens_count(tokens), 0);
	ck_assert_uint_eq(status_with("Bearer secret"), 401);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		healthz_is_ok_as_long_as_somebody_answers,
		readyz_is_ready_when_all_checks_are,
		readyz_is_503_when_one_check_is_not,
		readyz_is_503_while_draining,
		the_longest_details_fit_and_are_escaped,
		metrics_are_prometheus_text,
		head_is_answered_as_get,
		an_unknown_path_is_404,
		another_method_is_405_with_allow,
		the_listen_address_and_localhost_are_answered_with_any_port,
		a_name_that_was_rebound_to_our_address_is_refused,
		hosts_that_are_configured_are_answered,
		with_a_tokens_file_metrics_need_a_token,
		whatever_is_not_exactly_the_token_is_401,
		a_token_ends_when_it_says,
		tokens_that_could_not_be_loaded_let_nobody_in,
		an_empty_file_lets_nobody_in,
	};
	Suite *suite = suite_create("admin");
	TCase *all = tcase_create("all");
	SRunner *runner = NULL;
	int failed = 0;

	tcase_add_checked_fixture(all, setup, teardown);
	for (size_t i = 0; i < ARRAY_LEN(tests); i++)
		tcase_add_test(all, tests[i]);
	suite_add_tcase(suite, all);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
