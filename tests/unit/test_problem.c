/* Problem documents: what a client acts on is in every one of them, and nothing can break out. */
#include "problem.h"

#include <check.h>
#include <jansson.h>
#include <stdlib.h>

static struct arena *arena;

static void setup(void)
{
	arena = arena_new();
}

static void teardown(void)
{
	arena_free(arena);
}

static const char *field(const struct http_answer *answer, const char *name)
{
	size_t lines = 0;
	const struct http_field *found = http_find(&answer->fields, span_of(name), &lines);

	ck_assert_uint_le(lines, 1);
	return found ? arena_copy(arena, found->value).at : NULL;
}

static json_t *document(const struct http_answer *answer)
{
	json_error_t error;
	json_t *json =
		json_loadb(answer->body.at, answer->body.len, JSON_REJECT_DUPLICATES, &error);

	ck_assert_msg(json != NULL, "%s", error.text);
	ck_assert(json_is_object(json));
	return json;
}

static const char *member(json_t *json, const char *name)
{
	return json_string_value(json_object_get(json, name));
}

START_TEST(every_problem_is_a_document_with_all_that_a_client_needs)
{
	struct problem_about about = { .problem = (enum problem)_i };
	struct http_answer answer = problem_answer(arena, &about);
	json_t *json = document(&answer);
	const char *retry = member(json, "retry");

	ck_assert_uint_eq(answer.status, problem_status(about.problem));
	ck_assert_int_eq(json_integer_value(json_object_get(json, "status")), answer.status);
	ck_assert_uint_ge(answer.status, 400);
	ck_assert_str_eq(member(json, "code"), problem_code(about.problem));
	ck_assert_str_eq(
		member(json, "type"),
		arena_format(arena, "urn:onceward:problem:%s", problem_code(about.problem)).at);
	ck_assert_ptr_nonnull(member(json, "title"));
	ck_assert_ptr_nonnull(member(json, "detail"));
	ck_assert(strcmp(retry, "same_key") == 0 || strcmp(retry, "after_fix") == 0 ||
		  strcmp(retry, "never") == 0);
	ck_assert(json_is_false(json_object_get(json, "may_have_executed")));
	ck_assert_str_eq(field(&answer, "Content-Type"), "application/problem+json");
	ck_assert_str_eq(field(&answer, "Cache-Control"), "no-store");
	ck_assert_str_eq(field(&answer, "Idempotency-Verdict"), problem_code(about.problem));
	ck_assert_uint_eq(answer.fields.n, 3);
	ck_assert_uint_eq(json_object_size(json), 7);
	json_decref(json);
}
END_TEST

START_TEST(what_is_known_of_the_request_is_said)
{
	struct problem_about about = {
		.problem = PROBLEM_RESULT_UNKNOWN,
		.status = 599,
		.detail = SPAN("The API did not answer."),
		.request_id = SPAN("req_abc"),
		.owner = SPAN("orders-oncall@example.com"),
		.may_have_executed = true,
		.retry_after = 7,
		.extra = { { .name = "state", .text = SPAN("unknown") },
			   { .name = "original_status", .number = 201 } },
		.n_extra = 2,
	};
	struct http_answer answer = problem_answer(arena, &about);
	json_t *json = document(&answer);

	ck_assert_uint_eq(answer.status, 599);
	ck_assert_int_eq(json_integer_value(json_object_get(json, "status")), 599);
	ck_assert_str_eq(member(json, "detail"), "The API did not answer.");
	ck_assert_str_eq(member(json, "logical_request_id"), "req_abc");
	ck_assert_str_eq(member(json, "owner"), "orders-oncall@example.com");
	ck_assert_str_eq(member(json, "retry"), "same_key");
	ck_assert(json_is_true(json_object_get(json, "may_have_executed")));
	ck_assert_str_eq(member(json, "state"), "unknown");
	ck_assert_int_eq(json_integer_value(json_object_get(json, "original_status")), 201);
	ck_assert_str_eq(field(&answer, "Retry-After"), "7");
	ck_assert_str_eq(field(&answer, "Idempotency-Verdict"), "idempotency_result_unknown");
	ck_assert_str_eq(field(&answer, "Idempotency-Request-Id"), "req_abc");
	json_decref(json);
}
END_TEST

START_TEST(another_method_is_told_which_ones_there_are)
{
	struct problem_about about = { .problem = PROBLEM_METHOD_NOT_ALLOWED,
				       .allow = SPAN("GET, POST") };
	struct http_answer answer = problem_answer(arena, &about);

	ck_assert_uint_eq(answer.status, 405);
	ck_assert_str_eq(field(&answer, "Allow"), "GET, POST");
}
END_TEST

START_TEST(bytes_of_strangers_cannot_break_out_of_the_document)
{
	struct problem_about about = { .problem = PROBLEM_KEY_INVALID,
				       .detail = SPAN("\", \"retry\": \"never\xff\\\n\x01"),
				       .owner = SPAN("\"}") };
	struct http_answer answer = problem_answer(arena, &about);
	json_t *json = document(&answer);

	ck_assert_str_eq(member(json, "retry"), "after_fix");
	ck_assert_str_eq(member(json, "detail"), "\", \"retry\": \"never\xef\xbf\xbd\\\n\x01");
	ck_assert_str_eq(member(json, "owner"), "\"}");
	json_decref(json);
}
END_TEST

START_TEST(a_long_detail_is_cut)
{
	char *detail = mem_alloc(1000000);
	struct problem_about about = { .problem = PROBLEM_BODY_INVALID };
	struct http_answer answer;

	memset(detail, 1, 1000000);
	about.detail = (struct span){ detail, 1000000 };
	about.owner = about.request_id = about.detail;
	about.n_extra = ARRAY_LEN(about.extra);
	for (size_t i = 0; i < about.n_extra; i++)
		about.extra[i] = (struct problem_extra){ .name = "a", .text = about.detail };
	answer = problem_answer(arena, &about);
	ck_assert_uint_lt(answer.body.len, 150000);
	ck_assert_uint_gt(answer.body.len, 10000);
	mem_free(detail);
}
END_TEST

START_TEST(each_verdict_has_one_name)
{
	ck_assert_str_eq(verdict_name(VERDICT_PASSED), "passed");
	ck_assert_str_eq(verdict_name(VERDICT_FORWARDED), "forwarded");
	ck_assert_str_eq(verdict_name(VERDICT_REPLAYED), "replayed");
	ck_assert_str_eq(verdict_name(verdict_of(PROBLEM_MISMATCH)),
			 "idempotency_payload_mismatch");
	for (unsigned a = 0; a < VERDICT_COUNT; a++) {
		for (unsigned b = 0; b < a; b++)
			ck_assert_str_ne(verdict_name(a), verdict_name(b));
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("problem");
	TCase *tests = tcase_create("problem");
	SRunner *runner = srunner_create(suite);
	int failed = 0;

	suite_add_tcase(suite, tests);
	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_add_loop_test(tests, every_problem_is_a_document_with_all_that_a_client_needs,
			    PROBLEM_NONE + 1, PROBLEM_COUNT);
	tcase_add_test(tests, what_is_known_of_the_request_is_said);
	tcase_add_test(tests, another_method_is_told_which_ones_there_are);
	tcase_add_test(tests, bytes_of_strangers_cannot_break_out_of_the_document);
	tcase_add_test(tests, a_long_detail_is_cut);
	tcase_add_test(tests, each_verdict_has_one_name);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
