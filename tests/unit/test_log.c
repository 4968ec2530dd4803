/* The log writes to standard error: each test puts a pipe or a file there and reads what came. */
#include "log.h"

#include "escape.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static int reader;

static void into_pipe(void)
{
	int ends[2];

	signal(SIGPIPE, SIG_IGN);
	ck_assert_int_eq(pipe(ends), 0);
	dup2(ends[1], STDERR_FILENO);
	close(ends[1]);
	reader = ends[0];
}

static const char *seen(void)
{
	static char text[1024 * 1024];
	size_t len = 0;
	struct pollfd ready = { .fd = reader, .events = POLLIN };

	while (len < sizeof(text) - 1 && poll(&ready, 1, 0) == 1) {
		ssize_t n = read(reader, text + len, sizeof(text) - 1 - len);
		if (n <= 0)
			break;
		len += (size_t)n;
	}
	text[len] = 0;
	return text;
}

static json_t *one_object(const char *text)
{
	json_error_t error;
	json_t *object = json_loads(text, JSON_REJECT_DUPLICATES, &error);

	ck_assert_msg(object != NULL, "%s in: %s", error.text, text);
	ck_assert_int_eq(text[strlen(text) - 1], '\n');
	ck_assert_ptr_eq(strchr(text, '\n'), text + strlen(text) - 1);
	return object;
}

static const char *member(json_t *object, const char *name)
{
	const char *value = json_string_value(json_object_get(object, name));

	ck_assert_msg(value != NULL, "no %s", name);
	return value;
}

START_TEST(a_line_is_one_json_object_with_time_level_who_and_message)
{
	json_t *object = NULL;

	into_pipe();
	log_configure(LOG_JSON, LOG_INFO);
	log_warning("ledger", "%d rows \"lost\"\n", 3);
	object = one_object(seen());
	ck_assert_str_eq(member(object, "level"), "warning");
	ck_assert_str_eq(member(object, "who"), "ledger");
	ck_assert_str_eq(member(object, "message"), "3 rows \"lost\"\n");
	json_decref(object);
}
END_TEST

START_TEST(the_time_is_rfc_3339_in_utc_with_milliseconds)
{
	json_t *object = NULL;
	struct tm tm = { 0 };
	const char *rest = NULL;

	into_pipe();
	setenv("TZ", "Asia/Tokyo", 1);
	log_configure(LOG_JSON, LOG_INFO);
	log_error("a", "b");
	object = one_object(seen());
	rest = strptime(member(object, "time"), "%Y-%m-%dT%H:%M:%S", &tm);
	ck_assert_ptr_nonnull(rest);
	ck_assert_int_le(labs(timegm(&tm) - time(NULL)), 2);
	ck_assert_uint_eq(strlen(rest), 5);
	ck_assert_int_eq(rest[0], '.');
	ck_assert_uint_eq(strspn(rest + 1, "0123456789"), 3);
	ck_assert_int_eq(rest[4], 'Z');
	json_decref(object);
}
END_TEST

START_TEST(information_waits_for_a_flush_and_an_error_takes_it_along)
{
	const char *text = NULL;

	into_pipe();
	log_info("a", "first");
	ck_assert_str_eq(seen(), "");
	log_flush();
	ck_assert_ptr_nonnull(strstr(seen(), "a: first\n"));
	log_info("a", "second");
	log_error("a", "third");
	text = seen();
	ck_assert_ptr_nonnull(strstr(text, "info a: second\n"));
	ck_assert_ptr_nonnull(strstr(text, "error a: third\n"));
}
END_TEST

START_TEST(levels_below_the_configured_one_are_not_written)
{
	into_pipe();
	log_configure(LOG_TEXT, LOG_WARNING);
	ck_assert(log_enabled(LOG_ERROR));
	ck_assert(!log_enabled(LOG_INFO));
	log_info("a", "b");
	log_debug("a", "b");
	log_line_begin(LOG_INFO, "access");
	log_line_number("n", 1);
	log_line_text("t", SPAN("x"));
	log_line_end();
	log_flush();
	ck_assert_str_eq(seen(), "");
}
END_TEST

START_TEST(a_line_of_fields_keeps_their_types)
{
	json_t *object = NULL;

	into_pipe();
	log_configure(LOG_JSON, LOG_INFO);
	log_line_begin(LOG_INFO, "access");
	log_line_text("operation", SPAN("orders.create"));
	log_line_number("status", -201);
	log_line_number("least", INT64_MIN);
	log_line_ms("upstream_ms", 1234567);
	log_line_ms("skew_ms", -1);
	log_line_flag("replayed", true);
	log_line_text("nothing", (struct span){ NULL, 0 });
	log_line_end();
	log_flush();
	object = one_object(seen());
	ck_assert_str_eq(member(object, "event"), "access");
	ck_assert_str_eq(member(object, "operation"), "orders.create");
	ck_assert_int_eq(json_integer_value(json_object_get(object, "status")), -201);
	ck_assert_int_eq(json_integer_value(json_object_get(object, "least")), INT64_MIN);
	ck_assert_double_eq(json_real_value(json_object_get(object, "upstream_ms")), 1234.567);
	ck_assert_double_eq(json_real_value(json_object_get(object, "skew_ms")), -0.001);
	ck_assert(json_is_true(json_object_get(object, "replayed")));
	ck_assert_str_eq(member(object, "nothing"), "");
	ck_assert_ptr_null(json_object_get(object, "cut"));
	json_decref(object);
}
END_TEST

START_TEST(text_quotes_what_people_could_misread)
{
	into_pipe();
	log_configure(LOG_TEXT, LOG_INFO);
	log_line_begin(LOG_INFO, "access");
	log_line_text("plain", SPAN("orders.create"));
	log_line_text("spaced", SPAN("a b"));
	log_line_text("forged", SPAN("x\nerror a: b"));
	log_line_text("empty", SPAN(""));
	log_line_number("n", 5);
	log_line_end();
	log_flush();
	ck_assert_ptr_nonnull(strstr(seen(), "Z info access plain=orders.create spaced=\"a b\" "
					     "forged=\"x\\nerror a: b\" empty=\"\" n=5\n"));
}
END_TEST

START_TEST(a_message_for_people_cannot_forge_a_line_or_drive_a_terminal)
{
	into_pipe();
	log_error("a", "%s", "x\n2000-01-01 \x1b[31m \x7f \xc2\x9b");
	ck_assert_ptr_nonnull(
		strstr(seen(), "a: x\\n2000-01-01 \\u001b[31m \\u007f \\u009b\n"));
}
END_TEST

START_TEST(every_byte_makes_valid_json)
{
	char bytes[256 * 3];
	size_t n = 0;
	json_t *object = NULL;

	for (int i = 0; i < 256; i++) {
		bytes[n++] = (char)i;
		bytes[n++] = (char)0xc3; /* a lead byte before each, and */
		bytes[n++] = (char)(255 - i);
	}
	into_pipe();
	log_configure(LOG_JSON, LOG_INFO);
	log_line_begin(LOG_WARNING, "x");
	log_line_text("bytes", (struct span){ bytes, n });
	log_line_end();
	object = json_loads(seen(), JSON_ALLOW_NUL, NULL);
	ck_assert_ptr_nonnull(object);
	json_decref(object);
}
END_TEST

START_TEST(a_field_that_is_too_long_is_cut_and_says_so)
{
	static char big[100000];
	json_t *object = NULL;

	memset(big, '"', sizeof(big));
	into_pipe();
	log_configure(LOG_JSON, LOG_INFO);
	log_line_begin(LOG_WARNING, "x");
	log_line_text("big", (struct span){ big, sizeof(big) });
	log_line_text("late", SPAN("no room"));
	log_line_number("later", 1);
	log_line_end();
	object = one_object(seen());
	ck_assert_uint_gt(strlen(member(object, "big")), 3000);
	ck_assert_ptr_null(json_object_get(object, "late"));
	ck_assert(json_is_true(json_object_get(object, "cut")));
	json_decref(object);
}
END_TEST

START_TEST(a_message_that_is_too_long_is_cut_and_says_so)
{
	json_t *object = NULL;

	into_pipe();
	log_configure(LOG_JSON, LOG_INFO);
	log_error("x", "%0100000d", 1);
	object = one_object(seen());
	ck_assert(json_is_true(json_object_get(object, "cut")));
	json_decref(object);
}
END_TEST

START_TEST(a_full_buffer_leaves_by_itself_in_whole_lines)
{
	const char *text = NULL;

	into_pipe();
	ck_assert_int_ge(fcntl(reader, F_SETPIPE_SZ, 1048576), 1048576);
	for (int i = 0; i < 2000; i++)
		log_info("a", "line %d of many, with some text behind it", i);
	text = seen();
	ck_assert_uint_gt(strlen(text), 40000);
	ck_assert_int_eq(text[strlen(text) - 1], '\n');
}
END_TEST

static void *chatter(void *arg)
{
	const char *name = arg;

	for (int i = 0; i < 3000; i++) {
		log_info(name, "%0200d", i);
		if (i % 10 == 0)
			log_flush();
	}
	log_flush();
	return NULL;
}

START_TEST(threads_do_not_mix_inside_a_line)
{
	char path[] = "/tmp/test_log.XXXXXX", line[1024];
	static char names[4][8] = { "one", "two", "three", "four" };
	pthread_t threads[4];
	int fd = mkstemp(path), lines = 0;
	FILE *file = NULL;

	dup2(fd, STDERR_FILENO);
	log_configure(LOG_JSON, LOG_INFO);
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, chatter, names[i]);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	file = fopen(path, "r");
	unlink(path);
	while (fgets(line, sizeof(line), file)) {
		json_decref(one_object(line));
		lines++;
	}
	fclose(file);
	ck_assert_int_eq(lines, 12000);
}
END_TEST

START_TEST(a_reader_that_stops_loses_lines_but_stops_nobody)
{
	const char *text = NULL;
	struct timespec before, after;

	into_pipe();
	log_configure(LOG_TEXT, LOG_INFO);
	clock_gettime(CLOCK_MONOTONIC, &before);
	for (int i = 0; i < 5000; i++)
		log_info("a", "line %d %0100d", i, 0);
	log_flush();
	clock_gettime(CLOCK_MONOTONIC, &after);
	ck_assert_int_lt(after.tv_sec - before.tv_sec, 5);
	ck_assert_uint_gt(log_lost(), 1000);
	seen();
	log_error("a", "reads again");
	text = seen();
	ck_assert_ptr_nonnull(strstr(text, "error a: reads again\n"));
	ck_assert_ptr_nonnull(strstr(text, "warning log: standard error did not take "));
}
END_TEST

START_TEST(a_line_that_was_torn_is_ended_before_the_next)
{
	const char *text = NULL;

	into_pipe();
	ck_assert_int_eq(fcntl(reader, F_SETPIPE_SZ, 4096), 4096);
	for (int i = 0; i < 50; i++)
		log_info("a", "%0100d", i);
	log_flush();
	text = seen();
	ck_assert_uint_gt(strlen(text), 0);
	log_error("a", "whole");
	ck_assert_int_eq(seen()[0], '\n');
}
END_TEST

START_TEST(a_reader_that_is_gone_loses_lines_and_no_process)
{
	into_pipe();
	close(reader);
	log_error("a", "into the void");
	ck_assert_uint_eq(log_lost(), 1);
	log_error("a", "again");
	ck_assert_uint_eq(log_lost(), 2);
}
END_TEST

START_TEST(a_closed_standard_error_loses_lines_and_no_process)
{
	close(STDERR_FILENO);
	log_error("a", "into the void");
	ck_assert_uint_eq(log_lost(), 1);
}
END_TEST

START_TEST(a_full_socket_stops_nobody)
{
	int ends[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	dup2(ends[1], STDERR_FILENO);
	for (int i = 0; i < 10000; i++)
		log_info("a", "line %d %0100d", i, 0);
	log_flush();
	ck_assert_uint_gt(log_lost(), 1000);
}
END_TEST

START_TEST(logging_leaves_errno_alone)
{
	close(STDERR_FILENO);
	errno = ENOENT;
	log_error("a", "b");
	ck_assert_int_eq(errno, ENOENT);
}
END_TEST

static const char *escaped(struct span in, bool quoted)
{
	static char out[256];
	size_t n = 0;

	while (in.len)
		n += escape_next(&in, quoted, out + n);
	out[n] = 0;
	return out;
}

START_TEST(what_is_no_utf_8_becomes_the_replacement_character)
{
	ck_assert_str_eq(escaped(SPAN("\xff"), true), "\\ufffd");
	ck_assert_str_eq(escaped(SPAN("a\x80z"), true), "a\\ufffdz");
	ck_assert_str_eq(escaped(SPAN("\xc3\xa9"), true), "\xc3\xa9");
	ck_assert_str_eq(escaped(SPAN("\xc3"), true), "\\ufffd");
	ck_assert_str_eq(escaped(SPAN("\xc0\xaf"), true), "\\ufffd\\ufffd"); /* overlong */
	ck_assert_str_eq(escaped(SPAN("\xed\xa0\x80"), true), "\\ufffd\\ufffd\\ufffd");
	ck_assert_str_eq(escaped(SPAN("\xf0\x9f\x98\x80"), true), "\xf0\x9f\x98\x80");
	ck_assert_str_eq(escaped(SPAN("\xf4\x90\x80\x80"), true),
			 "\\ufffd\\ufffd\\ufffd\\ufffd"); /* over U+10FFFF */
	ck_assert_str_eq(escaped(SPAN("\xe2\x82"), true), "\\ufffd\\ufffd");
}
END_TEST

START_TEST(quotes_are_escaped_only_where_text_is_quoted)
{
	ck_assert_str_eq(escaped(SPAN("\"\\/\t\x01\x7f"), true), "\\\"\\\\/\\t\\u0001\\u007f");
	ck_assert_str_eq(escaped(SPAN("\"\\/\t"), false), "\"\\/\\t");
	ck_assert_str_eq(escaped((struct span){ "\0x", 2 }, true), "\\u0000x");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("log");
	TCase *tests = tcase_create("log");
	SRunner *runner = srunner_create(suite);
	int failed = 0;

	suite_add_tcase(suite, tests);
	tcase_add_test(tests, a_line_is_one_json_object_with_time_level_who_and_message);
	tcase_add_test(tests, the_time_is_rfc_3339_in_utc_with_milliseconds);
	tcase_add_test(tests, information_waits_for_a_flush_and_an_error_takes_it_along);
	tcase_add_test(tests, levels_below_the_configured_one_are_not_written);
	tcase_add_test(tests, a_line_of_fields_keeps_their_types);
	tcase_add_test(tests, text_quotes_what_people_could_misread);
	tcase_add_test(tests, a_message_for_people_cannot_forge_a_line_or_drive_a_terminal);
	tcase_add_test(tests, every_byte_makes_valid_json);
	tcase_add_test(tests, a_field_that_is_too_long_is_cut_and_says_so);
	tcase_add_test(tests, a_message_that_is_too_long_is_cut_and_says_so);
	tcase_add_test(tests, a_full_buffer_leaves_by_itself_in_whole_lines);
	tcase_add_test(tests, threads_do_not_mix_inside_a_line);
	tcase_add_test(tests, a_reader_that_stops_loses_lines_but_stops_nobody);
	tcase_add_test(tests, a_line_that_was_torn_is_ended_before_the_next);
	tcase_add_test(tests, a_reader_that_is_gone_loses_lines_and_no_process);
	tcase_add_test(tests, a_closed_standard_error_loses_lines_and_no_process);
	tcase_add_test(tests, a_full_socket_stops_nobody);
	tcase_add_test(tests, logging_leaves_errno_alone);
	tcase_add_test(tests, what_is_no_utf_8_becomes_the_replacement_character);
	tcase_add_test(tests, quotes_are_escaped_only_where_text_is_quoted);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
