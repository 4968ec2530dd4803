/*
 * What a file of tokens may look like, whose it must be, and what is said of one that is wrong.
 */
#include "admin_tokens.h"

#include "digest.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static struct arena *arena;
static struct admin_tokens *tokens;
static const char *token_name;
static char file[64];

static void setup(void)
{
	int fd = -1;

	arena = arena_new();
	tokens = NULL;
	snprintf(file, sizeof(file), "/tmp/test_admin_tokens.XXXXXX");
	fd = mkstemp(file);
	ck_assert_int_ge(fd, 0);
	close(fd);
}

static void teardown(void)
{
	unlink(file);
	admin_tokens_free(tokens);
	arena_free(arena);
}

static void write_file(const char *text)
{
	FILE *out = fopen(file, "w");

	ck_assert_ptr_nonnull(out);
	ck_assert_int_ge(fputs(text, out), 0);
	ck_assert_int_eq(fclose(out), 0);
}

static const char *hex_of(const char *token)
{
	static char hex[65];
	unsigned char bytes[32];
	struct hash *hash = hash_new();

	hash_add(hash, token, strlen(token));
	hash_end(hash, bytes);
	hash_free(hash);
	for (size_t i = 0; i < sizeof(bytes); i++)
		snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
	return hex;
}

/* A file with one line, whose %s is the hash of "secret". */
static void load(const char *format)
{
	char why[256];

	write_file(arena_format(arena, "# who\n\n\tann  viewer %s %s\r\n", hex_of("secret"),
				format)
			   .at);
	tokens = admin_tokens_load(file, why);
	ck_assert_msg(tokens != NULL, "%s", why);
}

static const char *refused(const char *text)
{
	static char why[256];

	write_file(text);
	why[0] = 0;
	ck_assert_ptr_null(admin_tokens_load(file, why));
	return why;
}

START_TEST(roles_are_read)
{
	char why[256];
	struct span one = arena_format(arena, "a operator %s\n", hex_of("one"));

	write_file(arena_format(arena, "%sb viewer %s", one.at, hex_of("two")).at);
	tokens = admin_tokens_load(file, why);
	ck_assert_ptr_nonnull(tokens);
	ck_assert_uint_eq(admin_tokens_count(tokens), 2);
	ck_assert_int_eq(admin_tokens_role(tokens, SPAN("one"), 0, &token_name),
			 ADMIN_OPERATOR);
	ck_assert_int_eq(admin_tokens_role(tokens, SPAN("two"), 0, &token_name), ADMIN_VIEWER);
	ck_assert_int_eq(admin_tokens_role(tokens, SPAN("three"), 0, &token_name),
			 ADMIN_ANYBODY);
}
END_TEST

START_TEST(a_time_zone_counts)
{
	load("1970-01-02T02:30:00.5+02:30");
	ck_assert_int_eq(admin_tokens_role(tokens, SPAN("secret"), 86399, &token_name),
			 ADMIN_VIEWER);
	ck_assert_int_eq(admin_tokens_role(tokens, SPAN("secret"), 86400, &token_name),
			 ADMIN_ANYBODY);
	admin_tokens_free(tokens);
	load("1970-01-01t23:59:60z");
	ck_assert_int_eq(admin_tokens_role(tokens, SPAN("secret"), 86399, &token_name),
			 ADMIN_VIEWER);
	ck_assert_int_eq(admin_tokens_role(tokens, SPAN("secret"), 86400, &token_name),
			 ADMIN_ANYBODY);
	admin_tokens_free(tokens);
	load("1969-12-31T20:00:00-04:00");
	ck_assert_int_eq(admin_tokens_role(tokens, SPAN("secret"), -1, &token_name),
			 ADMIN_VIEWER);
	ck_assert_int_eq(admin_tokens_role(tokens, SPAN("secret"), 0, &token_name),
			 ADMIN_ANYBODY);
}
END_TEST

START_TEST(what_is_no_time_is_refused)
{
	static const char *const wrong[] = { "2030-01-31",
					     "2030-01-31T12:00:00",
					     "2030-02-29T12:00:00Z",
					     "2030-00-10T12:00:00Z",
					     "2030-13-10T12:00:00Z",
					     "2030-01-00T12:00:00Z",
					     "2030-01-31T24:00:00Z",
					     "2030-01-31T12:60:00Z",
					     "2030-01-31T12:00:61Z",
					     "2030-01-31T12:00:00.Z",
					     "2030-01-31T12:00:00Zx",
					     "2030-01-31T12:00:00+2",
					     "2030-01-31T12:00:00+24:00",
					     "+030-01-31T12:00:00Z",
					     "never",
					     "1893456000" };

	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		const char *why = refused(
			arena_format(arena, "a viewer %s %s\n", hex_of("x"), wrong[i]).at);
		ck_assert_msg(strstr(why, ":1: the expiry is not a time"), "%s: %s", wrong[i],
			      why);
	}
	load("2028-02-29T12:00:00Z");
}
END_TEST

START_TEST(a_wrong_line_is_told_with_its_number_and_never_its_text)
{
	const char *hash = hex_of("x");

	ck_assert_ptr_nonnull(strstr(refused("# a\n\nann\n"), ":3: behind the name"));
	ck_assert_ptr_nonnull(strstr(refused("ann admin 00\n"), ":1: behind the name"));
	ck_assert_ptr_nonnull(strstr(refused("ann viewer\n"), ":1: behind the role"));
	ck_assert_ptr_nonnull(strstr(refused("ann viewer hunter2\n"), ":1: behind the role"));
	ck_assert_ptr_null(strstr(refused("ann viewer hunter2\n"), "hunter2"));
	ck_assert_ptr_nonnull(strstr(refused("a\x01 viewer x\n"), "visible characters"));
	ck_assert_ptr_nonnull(strstr(refused(arena_format(arena, "a viewer g%.63s\n", hash).at),
				     "64 hex digits"));
	ck_assert_ptr_nonnull(strstr(refused(arena_format(arena, "a viewer %s0\n", hash).at),
				     "64 hex digits"));
	ck_assert_ptr_nonnull(strstr(
		refused(arena_format(arena, "a viewer %s 2030-01-31T12:00:00Z x\n", hash).at),
		"a line is"));
	ck_assert_ptr_nonnull(strstr(
		refused(arena_format(arena, "a viewer %s\nb operator %s\n", hash, hash).at),
		":2: this token"));
	ck_assert_ptr_nonnull(strstr(
		refused(arena_format(arena, "%065d viewer %s\n", 0, hash).at), "1 to 64"));
}
END_TEST

START_TEST(a_file_that_others_can_read_is_refused)
{
	char why[256];

	ck_assert_int_eq(chmod(file, 0640), 0);
	ck_assert_ptr_null(admin_tokens_load(file, why));
	ck_assert_ptr_nonnull(strstr(why, "open to others (mode 640): chmod 600 it"));
	ck_assert_int_eq(chmod(file, 0602), 0);
	ck_assert_ptr_null(admin_tokens_load(file, why));
	ck_assert_int_eq(chmod(file, 0400), 0);
	tokens = admin_tokens_load(file, why);
	ck_assert_msg(tokens != NULL, "%s", why);
}
END_TEST

START_TEST(a_file_of_somebody_else_is_refused)
{
	char why[256];

	if (geteuid() != 0)
		return; /* only root can give a file away */
	ck_assert_int_eq(chown(file, 1, (gid_t)-1), 0);
	ck_assert_ptr_null(admin_tokens_load(file, why));
	ck_assert_ptr_nonnull(strstr(why, "belongs to user 1"));
}
END_TEST

START_TEST(what_is_no_file_is_refused)
{
	char why[256];

	ck_assert_ptr_null(admin_tokens_load("/nonexistent/tokens", why));
	ck_assert_ptr_nonnull(strstr(why, "cannot open /nonexistent/tokens: No such file"));
	ck_assert_ptr_null(admin_tokens_load("/tmp", why));
	ck_assert_ptr_nonnull(strstr(why, "not a regular file"));
	ck_assert_ptr_null(admin_tokens_load("/dev/null", why));
}
END_TEST

START_TEST(a_file_that_is_too_large_is_refused)
{
	struct buf text;

	buf_init(&text, (size_t)1024 * 1024);
	for (unsigned i = 0; i < 30000; i++)
		buf_text(&text, "# filler\n ");
	buf_byte(&text, 0);
	ck_assert_ptr_nonnull(strstr(refused(text.at), "is larger than"));
	buf_clear(&text);
	for (unsigned i = 0; i < 1001; i++)
		buf_format(&text, "a viewer %064x\n", i);
	buf_byte(&text, 0);
	ck_assert_ptr_nonnull(strstr(refused(text.at), ":1001: there are too many tokens"));
	buf_fini(&text);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		roles_are_read,
		a_time_zone_counts,
		what_is_no_time_is_refused,
		a_wrong_line_is_told_with_its_number_and_never_its_text,
		a_file_that_others_can_read_is_refused,
		a_file_of_somebody_else_is_refused,
		what_is_no_file_is_refused,
		a_file_that_is_too_large_is_refused,
	};
	Suite *suite = suite_create("admin_tokens");
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
