/*
 * Metrics: what threads count is added up, and a strict reader of the exposition format finds
 * each metric described once, each series once, and each histogram in agreement with itself.
 */
#include "metrics.h"

#include "problem.h"

#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static struct buf text;

static const char *render(void)
{
	buf_fini(&text);
	buf_init(&text, (size_t)64 * 1024 * 1024);
	metrics_render(&text);
	buf_byte(&text, 0);
	ck_assert(!text.full);
	return text.at;
}

/* The value of one sample by its name and labels, as written; -1 where it is not there. */
static double sample(const char *series)
{
	const char *at = render();
	size_t len = strlen(series);

	for (; at; at = strchr(at, '\n'), at = at ? at + 1 : NULL)
		if (strncmp(at, series, len) == 0 && at[len] == ' ')
			return strtod(at + len, NULL);
	return -1;
}

static bool name_start(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ':';
}

static const char *read_name(const char *at)
{
	ck_assert_msg(name_start(*at), "a name begins with a letter: %.40s", at);
	while (name_start(*at) || (*at >= '0' && *at <= '9'))
		at++;
	return at;
}

/* Behind the closing quote; only three escapes exist. */
static const char *read_quoted(const char *at)
{
	ck_assert_int_eq(*at++, '"');
	for (; *at != '"'; at++) {
		ck_assert_msg(*at && *at != '\n', "an open quote");
		if (*at == '\\')
			ck_assert_ptr_nonnull(memchr("\\\"n", *++at, 3));
	}
	return at + 1;
}

static const char *read_labels(const char *at)
{
	if (*at != '{')
		return at;
	do {
		at = read_name(at + 1);
		ck_assert_int_eq(*at, '=');
		at = read_quoted(at + 1);
	} while (*at == ',');
	ck_assert_int_eq(*at, '}');
	return at + 1;
}

struct reader {
	char described[100][80];
	size_t n_described;
	char type[16];
	const char *series[20000];
	size_t series_len[20000];
	size_t n_series;
};

static void check_new_name(struct reader *reader)
{
	for (size_t i = 0; i < reader->n_described; i++)
		ck_assert_str_ne(reader->described[i], reader->described[reader->n_described]);
	ck_assert_uint_lt(++reader->n_described, 100);
}

/* "# HELP name text\n# TYPE name type\n": never twice. */
static const char *read_head(struct reader *reader, const char *at)
{
	char help[80];
	char *name = reader->described[reader->n_described];
	int len = -1;

	ck_assert(sscanf(at, "# HELP %79[^ \n] %*[^\n]\n%n", help, &len) == 1 && len > 0);
	at += len;
	len = -1;
	ck_assert(sscanf(at, "# TYPE %79[^ \n] %15[a-z]%n", name, reader->type, &len) == 2);
	ck_assert(strcmp(help, name) == 0 && len > 0 && at[len] == '\n');
	check_new_name(reader);
	return at + len + 1;
}

/* A sample belongs to the metric that was described last, with the suffixes of its type. */
static void check_name(const struct reader *reader, const char *at, size_t len)
{
	const char *name = reader->described[reader->n_described - 1];
	size_t own = strlen(name);
	struct span suffix = { at + own, len - own };

	ck_assert_msg(len >= own && memcmp(at, name, own) == 0, "%.*s below %s", (int)len, at,
		      name);
	if (strcmp(reader->type, "histogram") == 0)
		ck_assert(span_equal(suffix, SPAN("_bucket")) ||
			  span_equal(suffix, SPAN("_sum")) ||
			  span_equal(suffix, SPAN("_count")));
	else
		ck_assert_uint_eq(suffix.len, 0);
}

static void check_new(struct reader *reader, const char *at, size_t len)
{
	for (size_t i = 0; i < reader->n_series; i++)
		ck_assert_msg(reader->series_len[i] != len ||
				      memcmp(reader->series[i], at, len) != 0,
			      "%.*s is there twice", (int)len, at);
	reader->series[reader->n_series] = at;
	reader->series_len[reader->n_series++] = len;
	ck_assert_uint_lt(reader->n_series, ARRAY_LEN(reader->series));
}

static const char *read_sample(struct reader *reader, const char *at)
{
	const char *behind = read_name(at);
	char *end = NULL;

	check_name(reader, at, (size_t)(behind - at));
	behind = read_labels(behind);
	check_new(reader, at, (size_t)(behind - at));
	ck_assert_int_eq(*behind, ' ');
	ck_assert_msg(behind[1] == '-' || (behind[1] >= '0' && behind[1] <= '9'), "%.60s", at);
	strtod(behind + 1, &end);
	ck_assert_int_eq(*end, '\n');
	return end + 1;
}

static size_t read_strictly(void)
{
	struct reader *reader = mem_alloc(sizeof(*reader));
	const char *at = render();
	size_t n = 0;

	while (*at)
		at = *at == '#' ? read_head(reader, at) : read_sample(reader, at);
	n = reader->n_series;
	mem_free(reader);
	return n;
}

START_TEST(metrics_without_labels_are_there_before_anything_happened)
{
	ck_assert(sample("onceward_in_flight") == 0);
	ck_assert(sample("onceward_key_ignored_total") == 0);
	ck_assert(sample("onceward_ledger_batch_rows_count") == 0);
	ck_assert(sample("onceward_ledger_batch_rows_bucket{le=\"+Inf\"}") == 0);
	ck_assert_ptr_null(strstr(render(), "operation="));
	ck_assert_ptr_null(strstr(render(), "build_info{"));
	read_strictly();
}
END_TEST

START_TEST(the_process_says_its_start_cpu_and_memory)
{
	struct metrics *m = metrics_new();
	time_t now = time(NULL);

	ck_assert(sample("process_start_time_seconds") > (double)now - 100);
	ck_assert(sample("process_start_time_seconds") < (double)now + 2);
	ck_assert(sample("process_cpu_seconds_total") > 0);
	ck_assert(sample("process_resident_memory_bytes") > 100000);
	metrics_free(m);
}
END_TEST

START_TEST(a_counter_adds_up_over_threads_that_live_and_threads_that_are_gone)
{
	struct metrics *a = metrics_new();
	struct metrics *b = metrics_new();

	metrics_add(a, METRIC_key_ignored_total, 0, 3);
	metrics_add(b, METRIC_key_ignored_total, 0, 4);
	ck_assert(sample("onceward_key_ignored_total") == 7);
	metrics_free(a);
	ck_assert(sample("onceward_key_ignored_total") == 7);
	metrics_add(b, METRIC_key_ignored_total, 0, 1);
	metrics_free(b);
	ck_assert(sample("onceward_key_ignored_total") == 8);
}
END_TEST

START_TEST(a_gauge_goes_with_its_thread)
{
	struct metrics *a = metrics_new();
	struct metrics *b = metrics_new();

	metrics_set(a, METRIC_in_flight, 0, 5);
	metrics_set(b, METRIC_in_flight, 0, 6);
	metrics_set(b, METRIC_in_flight, 0, 2);
	ck_assert(sample("onceward_in_flight") == 7);
	metrics_free(a);
	ck_assert(sample("onceward_in_flight") == 2);
	metrics_set(b, METRIC_in_flight, 0, -3);
	ck_assert(sample("onceward_in_flight") == -3);
	metrics_free(b);
	ck_assert(sample("onceward_in_flight") == 0);
}
END_TEST

START_TEST(a_set_apart_is_in_no_sum)
{
	struct metrics *m = metrics_new_apart();
	double before = sample("onceward_key_ignored_total");

	metrics_set(m, METRIC_connections, 0, 5);
	metrics_add(m, METRIC_key_ignored_total, 0, 5);
	ck_assert(sample("onceward_connections") == 0);
	metrics_free(m);
	ck_assert(sample("onceward_key_ignored_total") == before);
}
END_TEST

START_TEST(verdict_labels_are_the_names_of_problem_h)
{
	struct metrics *m = metrics_new();
	unsigned operation = metrics_operation("orders.create");
	char series[160];

	for (unsigned verdict = 0; verdict < VERDICT_COUNT; verdict++) {
		if (verdict == verdict_of(PROBLEM_NONE))
			continue;
		metrics_add(m, METRIC_requests_total, METRICS_PAIR(operation, verdict),
			    verdict + 1);
		snprintf(series, sizeof(series),
			 "onceward_requests_total{operation=\"orders.create\",verdict=\"%s\"}",
			 verdict_name(verdict));
		ck_assert_msg(sample(series) == verdict + 1, "%s", series);
	}
	ck_assert_ptr_null(strstr(render(), "verdict=\"none\""));
	read_strictly();
	metrics_free(m);
}
END_TEST

START_TEST(a_labelled_series_is_there_once_it_has_occurred)
{
	struct metrics *m = metrics_new();
	unsigned operation = metrics_operation("a");

	metrics_add(m, METRIC_replays_total, operation, 0);
	ck_assert(sample("onceward_replays_total{operation=\"a\"}") == -1);
	metrics_add(m, METRIC_replays_total, operation, 1);
	ck_assert(sample("onceward_replays_total{operation=\"a\"}") == 1);
	metrics_add(m, METRIC_replays_total, 0, 2);
	ck_assert(sample("onceward_replays_total{operation=\"-\"}") == 2);
	metrics_add(m, METRIC_unknown_total, METRICS_PAIR(operation, CAUSE_LEASE), 1);
	metrics_add(m, METRIC_unknown_total, METRICS_PAIR(operation, CAUSE_CUT_OFF), 2);
	ck_assert(sample("onceward_unknown_total{operation=\"a\",cause=\"lease\"}") == 1);
	ck_assert(sample("onceward_unknown_total{operation=\"a\",cause=\"cut_off\"}") == 2);
	ck_assert(sample("onceward_unknown_total{operation=\"a\",cause=\"timeout\"}") == -1);
	metrics_free(m);
}
END_TEST

START_TEST(a_labelled_gauge_that_came_back_to_nothing_says_zero)
{
	struct metrics *m = metrics_new();
	unsigned operation = metrics_operation("a");

	metrics_set(m, METRIC_unknown_records, operation, 2);
	ck_assert(sample("onceward_unknown_records{operation=\"a\"}") == 2);
	metrics_set(m, METRIC_unknown_records, operation, 0);
	ck_assert(sample("onceward_unknown_records{operation=\"a\"}") == 0);
	metrics_free(m);
}
END_TEST

START_TEST(the_build_says_its_version)
{
	struct metrics *m = metrics_new();

	metrics_set(m, METRIC_build_info, 0, 1);
	ck_assert(sample("onceward_build_info{version=\"" ONCEWARD_VERSION "\"}") == 1);
	metrics_free(m);
}
END_TEST

START_TEST(a_duration_counts_in_the_first_bucket_that_holds_it)
{
	struct metrics *m = metrics_new();
	unsigned label = STEP_SETTLE;
	static const int64_t us[] = { -5, 0, 500, 501, 60000000, 60000001 };

	for (size_t i = 0; i < ARRAY_LEN(us); i++)
		metrics_observe(m, METRIC_ledger_seconds, label, us[i]);
	ck_assert(sample("onceward_ledger_seconds_bucket{step=\"settle\",le=\"0.0005\"}") == 3);
	ck_assert(sample("onceward_ledger_seconds_bucket{step=\"settle\",le=\"0.001\"}") == 4);
	ck_assert(sample("onceward_ledger_seconds_bucket{step=\"settle\",le=\"30\"}") == 4);
	ck_assert(sample("onceward_ledger_seconds_bucket{step=\"settle\",le=\"60\"}") == 5);
	ck_assert(sample("onceward_ledger_seconds_bucket{step=\"settle\",le=\"+Inf\"}") == 6);
	ck_assert(sample("onceward_ledger_seconds_count{step=\"settle\"}") == 6);
	ck_assert_ptr_nonnull(strstr(text.at, "_sum{step=\"settle\"} 120.001002\n"));
	ck_assert_ptr_null(strstr(text.at, "step=\"read\""));
	metrics_free(m);
}
END_TEST

START_TEST(rows_are_counted_as_numbers)
{
	struct metrics *m = metrics_new();

	metrics_observe_count(m, METRIC_ledger_batch_rows, 0, 1);
	metrics_observe_count(m, METRIC_ledger_batch_rows, 0, 3);
	metrics_observe_count(m, METRIC_ledger_batch_rows, 0, 5000);
	ck_assert(sample("onceward_ledger_batch_rows_bucket{le=\"1\"}") == 1);
	ck_assert(sample("onceward_ledger_batch_rows_bucket{le=\"4\"}") == 2);
	ck_assert(sample("onceward_ledger_batch_rows_bucket{le=\"4096\"}") == 2);
	ck_assert(sample("onceward_ledger_batch_rows_bucket{le=\"+Inf\"}") == 3);
	ck_assert(sample("onceward_ledger_batch_rows_sum") == 5004);
	metrics_free(m);
}
END_TEST

START_TEST(an_operation_has_the_same_label_for_good)
{
	unsigned a = metrics_operation("orders.create");
	unsigned b = metrics_operation("orders.cancel");

	ck_assert_uint_ne(a, b);
	ck_assert_uint_ne(a, 0);
	ck_assert_uint_eq(metrics_operation("orders.create"), a);
	ck_assert_uint_eq(metrics_operation("orders.cancel"), b);
	ck_assert_uint_eq(metrics_operation("-"), 0);
}
END_TEST

START_TEST(operations_beyond_the_limit_share_the_last_label)
{
	struct metrics *m = metrics_new();
	unsigned sharing = 0;
	char name[32];

	ck_assert_uint_eq(metrics_operation("other"), METRICS_OPERATIONS - 1);
	for (unsigned i = 1; i < METRICS_OPERATIONS + 100; i++) {
		snprintf(name, sizeof(name), "operation.%u", i);
		unsigned label = metrics_operation(name);
		ck_assert_uint_lt(label, METRICS_OPERATIONS);
		sharing += label == METRICS_OPERATIONS - 1;
		metrics_add(m, METRIC_replays_total, label, 1);
	}
	ck_assert_uint_ge(sharing, 101);
	ck_assert(sample("onceward_replays_total{operation=\"operation.1\"}") == 1);
	ck_assert(sample("onceward_replays_total{operation=\"other\"}") == sharing);
	ck_assert_uint_gt(read_strictly(), METRICS_OPERATIONS);
	metrics_free(m);
}
END_TEST

START_TEST(label_values_are_escaped)
{
	struct metrics *m = metrics_new();

	metrics_add(m, METRIC_replays_total, metrics_operation("a\"b\\c\nd"), 1);
	ck_assert(sample("onceward_replays_total{operation=\"a\\\"b\\\\c\\nd\"}") == 1);
	read_strictly();
	metrics_free(m);
}
END_TEST

START_TEST(a_text_that_does_not_fit_says_so)
{
	struct buf small;

	buf_init(&small, 100);
	metrics_render(&small);
	ck_assert(small.full);
	buf_fini(&small);
}
END_TEST

#define ROUNDS 20000

static void *count(void *arg)
{
	const unsigned *operation = arg;
	struct metrics *m = metrics_new();

	for (unsigned i = 0; i < ROUNDS; i++) {
		metrics_add(m, METRIC_requests_total, METRICS_PAIR(*operation, i % 3), 1);
		metrics_observe(m, METRIC_request_seconds, METRICS_PAIR(*operation, i % 3), i);
		metrics_set(m, METRIC_in_flight, 0, i);
	}
	metrics_free(m);
	return NULL;
}

/* For ThreadSanitizer, too: threads count, come and go while somebody reads. */
START_TEST(reading_while_threads_count_loses_nothing)
{
	unsigned operations[2] = { metrics_operation("x"), metrics_operation("y") };
	pthread_t threads[4];

	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, count, &operations[i % 2]),
				 0);
	for (unsigned i = 0; i < 20; i++)
		read_strictly();
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		pthread_join(threads[i], NULL);
	ck_assert(sample("onceward_requests_total{operation=\"x\",verdict=\"passed\"}") +
			  sample("onceward_requests_total{operation=\"x\",verdict="
				 "\"forwarded\"}") +
			  sample("onceward_requests_total{operation=\"x\",verdict="
				 "\"replayed\"}") ==
		  2 * ROUNDS);
	ck_assert(sample("onceward_in_flight") == 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("metrics");
	TCase *tcase = tcase_create("metrics");
	SRunner *runner = srunner_create(suite);
	int failed = 0;

	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	tcase_add_test(tcase, metrics_without_labels_are_there_before_anything_happened);
	tcase_add_test(tcase, the_process_says_its_start_cpu_and_memory);
	tcase_add_test(tcase,
		       a_counter_adds_up_over_threads_that_live_and_threads_that_are_gone);
	tcase_add_test(tcase, a_gauge_goes_with_its_thread);
	tcase_add_test(tcase, a_set_apart_is_in_no_sum);
	tcase_add_test(tcase, verdict_labels_are_the_names_of_problem_h);
	tcase_add_test(tcase, a_labelled_series_is_there_once_it_has_occurred);
	tcase_add_test(tcase, a_labelled_gauge_that_came_back_to_nothing_says_zero);
	tcase_add_test(tcase, the_build_says_its_version);
	tcase_add_test(tcase, a_duration_counts_in_the_first_bucket_that_holds_it);
	tcase_add_test(tcase, rows_are_counted_as_numbers);
	tcase_add_test(tcase, an_operation_has_the_same_label_for_good);
	tcase_add_test(tcase, label_values_are_escaped);
	tcase_add_test(tcase, a_text_that_does_not_fit_says_so);
	tcase_add_test(tcase, reading_while_threads_count_loses_nothing);
	tcase_add_test(tcase, operations_beyond_the_limit_share_the_last_label);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	buf_fini(&text);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
