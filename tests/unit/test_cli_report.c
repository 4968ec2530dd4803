/* Reports of providers: CSV by RFC 4180 and JSON lines, read whole or not at all. */
#include "cli_report.h"

#include "csv.h"
#include "unit_run.h"

#include <check.h>

static struct arena *arena;
static struct report report;
static char why[256];

static void setup(void)
{
	arena = arena_new();
	report = (struct report){ NULL, 0, 0 };
}

static void teardown(void)
{
	report_free(&report);
	arena_free(arena);
}

static bool reads(const char *text)
{
	report_free(&report);
	return report_read(arena, span_of(text), &report, why);
}

static void is(struct span value, const char *wanted)
{
	ck_assert_msg(wanted ? value.at && span_equal(value, span_of(wanted)) : !value.at,
		      "%.*s is not %s", (int)value.len, value.at ? value.at : "",
		      wanted ? wanted : "NULL");
}

START_TEST(columns_are_told_by_their_names)
{
	ck_assert(reads("\xef\xbb\xbfstatus,note,key,receipt\r\n201,x,k-1,/o/1\r\n,,k-2,\r\n"));
	ck_assert_uint_eq(report.n, 2);
	is(report.at[0].key, "k-1");
	is(report.at[0].receipt, "/o/1");
	is(report.at[0].body, NULL);
	ck_assert_uint_eq(report.at[0].status, 201);
	is(report.at[1].key, "k-2");
	is(report.at[1].receipt, NULL);
	ck_assert_uint_eq(report.at[1].status, 0);
	ck_assert_uint_eq(report.at[1].line, 3);
}
END_TEST

START_TEST(quoted_fields_hold_anything)
{
	ck_assert(reads("key,body\n\"a,\"\"b\"\"\",\"line\r\none\ntwo\"\n\nk,\"\"\n"));
	ck_assert_uint_eq(report.n, 2);
	is(report.at[0].key, "a,\"b\"");
	is(report.at[0].body, "line\r\none\ntwo");
	is(report.at[1].body, NULL);
	ck_assert_uint_eq(report.at[1].line, 6);
}
END_TEST

START_TEST(an_empty_file_is_no_report)
{
	static const char *const empty[] = { "", " \r\n\n", "\xef\xbb\xbf" };

	for (size_t i = 0; i < ARRAY_LEN(empty); i++) {
		ck_assert(!reads(empty[i]));
		ck_assert_str_eq(why, "the file is empty");
	}
	ck_assert(reads("key,status\n"));
	ck_assert_uint_eq(report.n, 0);
}
END_TEST

START_TEST(two_columns_of_one_name_are_refused)
{
	ck_assert(!reads("key,status,receipt,status\nk,201,r,202\n"));
	ck_assert_str_eq(why, "line 1: two columns have one name");
	ck_assert(reads("key,,,status\nk,a,b,201\n"));
}
END_TEST

START_TEST(json_lines_may_have_a_byte_order_mark)
{
	ck_assert(reads("\xef\xbb\xbf{\"key\": \"k\", \"status\": 201}\r\n"));
	ck_assert_uint_eq(report.n, 1);
	is(report.at[0].key, "k");
}
END_TEST

START_TEST(csv_that_could_be_cut_otherwise_is_refused_with_its_line)
{
	static const char *const wrong[] = {
		"key,status\nk\n",
		"key,status\nk,201,x\n",
		"key\n\"k\n",
		"key\nk\"k\n",
		"key\n\"k\"k\n",
		"key,status\nk,42\n",
		"key,status\nk,2x1\n",
		"key,status\nk,2010\n",
		"key,logical_request_id\n,\n",
		"key,logical_request_id\na,b\n",
		"key\nk\rk\n",
	};

	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		ck_assert_msg(!reads(wrong[i]), "%s", wrong[i]);
		ck_assert_msg(strncmp(why, "line 2: ", 8) == 0, "%s: %s", wrong[i], why);
	}
	ck_assert(!reads("a,b\n1,2\n"));
	ck_assert(strstr(why, "columns"));
}
END_TEST

START_TEST(json_lines_are_objects)
{
	ck_assert(
		reads(" {\"key\": \"k\", \"status\": 201, \"receipt\": null, \"other\": [1]}\n"
		      "\n{\"logical_request_id\":\"req_x\",\"body\":\"{}\"}"));
	ck_assert_uint_eq(report.n, 2);
	is(report.at[0].key, "k");
	is(report.at[0].receipt, NULL);
	ck_assert_uint_eq(report.at[0].status, 201);
	is(report.at[1].id, "req_x");
	is(report.at[1].body, "{}");
	ck_assert_uint_eq(report.at[1].line, 3);
}
END_TEST

START_TEST(json_lines_that_say_something_else_are_refused)
{
	static const char *const wrong[] = {
		"{\"key\":\"k\"}\n[1]",
		"{\"key\":\"k\"}\n{\"key\":17}",
		"{\"key\":\"k\"}\n{\"key\":\"k\",\"key\":\"l\"}",
		"{\"key\":\"k\"}\n{\"key\":\"k\",\"status\":\"201\"}",
		"{\"key\":\"k\"}\n{\"key\":\"k\",\"status\":99}",
		"{\"key\":\"k\"}\n{\"key\":\"k\",\"body\":{}}",
		"{\"key\":\"k\"}\n{\"status\":201}",
		"{\"key\":\"k\"}\n{\"key\":",
	};

	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		ck_assert_msg(!reads(wrong[i]), "%s", wrong[i]);
		ck_assert_msg(strncmp(why, "line 2: ", 8) == 0, "%s: %s", wrong[i], why);
	}
}
END_TEST

START_TEST(many_fields_are_too_many)
{
	struct csv csv;
	struct csv_record record;
	char text[2 * CSV_FIELDS_MAX + 2];

	memset(text, ',', sizeof(text));
	csv_init(&csv, (struct span){ text, CSV_FIELDS_MAX - 1 });
	ck_assert(csv_next(&csv, arena, &record));
	ck_assert_uint_eq(record.n, CSV_FIELDS_MAX);
	csv_init(&csv, (struct span){ text, CSV_FIELDS_MAX });
	ck_assert(!csv_next(&csv, arena, &record));
	ck_assert_ptr_nonnull(csv.wrong);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cli_report");
	TCase *all = tcase_create("all");

	tcase_add_checked_fixture(all, setup, teardown);
	tcase_add_test(all, an_empty_file_is_no_report);
	tcase_add_test(all, two_columns_of_one_name_are_refused);
	tcase_add_test(all, json_lines_may_have_a_byte_order_mark);
	tcase_add_test(all, columns_are_told_by_their_names);
	tcase_add_test(all, quoted_fields_hold_anything);
	tcase_add_test(all, csv_that_could_be_cut_otherwise_is_refused_with_its_line);
	tcase_add_test(all, json_lines_are_objects);
	tcase_add_test(all, json_lines_that_say_something_else_are_refused);
	tcase_add_test(all, many_fields_are_too_many);
	suite_add_tcase(suite, all);
	return run_suite(suite);
}
