/* Answers on disk: what is put is found by the next process, whole or not at all. */
#include "digest.h"
#include "spool.h"
#include "unit_run.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64];
static struct spool *spool;

static struct spool_answer an_answer(int64_t op_id)
{
	return (struct spool_answer){
		.op_id = op_id,
		.writer = -3,
		.day = 20000,
		.generation = 1,
		.kind = 2,
		.status = 201,
		.receipt_unique = true,
		.retention_ms = 86400000,
		.tombstone_ms = INT64_C(2592000000),
		.key_hash = "0123456789abcde",
		.account = SPAN("alice"),
		.operation = SPAN("orders.create"),
		.key = SPAN("a key"),
		.fields = SPAN("Content-Type: text/plain\r\n"),
		.body = { "zero\0inside", 11 },
		.receipt = SPAN(""),
	};
}

static void same(const struct spool_answer *a, const struct spool_answer *b)
{
	ck_assert_int_eq(a->op_id, b->op_id);
	ck_assert_int_eq(a->writer, b->writer);
	ck_assert_int_eq(a->day, b->day);
	ck_assert_uint_eq(a->generation, b->generation);
	ck_assert_uint_eq(a->kind, b->kind);
	ck_assert_uint_eq(a->status, b->status);
	ck_assert_int_eq(a->receipt_unique, b->receipt_unique);
	ck_assert_int_eq(a->at_least_once, b->at_least_once);
	ck_assert_int_eq(a->retention_ms, b->retention_ms);
	ck_assert_int_eq(a->tombstone_ms, b->tombstone_ms);
	ck_assert_mem_eq(a->key_hash, b->key_hash, sizeof(a->key_hash));
	ck_assert(span_equal(a->account, b->account));
	ck_assert(span_equal(a->operation, b->operation));
	ck_assert(span_equal(a->key, b->key));
	ck_assert(span_equal(a->fields, b->fields));
	ck_assert(span_equal(a->body, b->body));
	ck_assert_int_eq(a->receipt.at == NULL, b->receipt.at == NULL);
	ck_assert_int_eq(a->note.at == NULL, b->note.at == NULL);
	ck_assert_int_eq(a->body.at == NULL, b->body.at == NULL);
}

/* --- the format --- */

START_TEST(an_answer_is_read_as_it_was_written)
{
	struct spool_answer answer = an_answer(-(INT64_C(1) << 62)), read;
	struct buf bytes;
	const char *why = NULL;

	if (_i)
		answer.body = answer.fields = (struct span){ NULL, 0 };
	buf_init(&bytes, 100000);
	spool_encode(&answer, &bytes);
	ck_assert(spool_decode(buf_view(&bytes), &read, &why));
	same(&read, &answer);
	buf_fini(&bytes);
}
END_TEST

START_TEST(an_answer_that_was_cut_anywhere_is_none)
{
	struct spool_answer answer = an_answer(7), read;
	struct buf bytes;
	const char *why = NULL;

	buf_init(&bytes, 100000);
	spool_encode(&answer, &bytes);
	for (size_t len = 0; len < bytes.len; len++) {
		char *cut = mem_alloc(len + 1); /* its own memory: reading beyond is seen */

		memcpy(cut, bytes.at, len);
		ck_assert(!spool_decode((struct span){ cut, len }, &read, &why));
		ck_assert_ptr_nonnull(why);
		mem_free(cut);
	}
	buf_byte(&bytes, 0);
	ck_assert(!spool_decode(buf_view(&bytes), &read, &why));
	buf_fini(&bytes);
}
END_TEST

START_TEST(an_answer_with_any_bit_changed_is_none)
{
	struct spool_answer answer = an_answer(7), read;
	struct buf bytes;
	const char *why = NULL;

	buf_init(&bytes, 100000);
	spool_encode(&answer, &bytes);
	for (size_t i = 0; i < bytes.len * 8; i++) {
		bytes.at[i / 8] ^= (char)(1 << i % 8);
		ck_assert(!spool_decode(buf_view(&bytes), &read, &why));
		bytes.at[i / 8] ^= (char)(1 << i % 8);
	}
	ck_assert(spool_decode(buf_view(&bytes), &read, &why));
	buf_fini(&bytes);
}
END_TEST

/* Its checksum fits, so nothing but care keeps the reader inside. */
START_TEST(lengths_that_lie_are_not_believed)
{
	struct spool_answer answer = an_answer(7), read;
	struct hash *hash = hash_new();
	struct buf bytes;
	const char *why = NULL;

	buf_init(&bytes, 100000);
	spool_encode(&answer, &bytes);
	for (size_t at = 18; at + 32 < bytes.len; at++) {
		char old = bytes.at[at];

		bytes.at[at] = (char)(old ^ 0x5f);
		hash_reset(hash);
		hash_add(hash, bytes.at, bytes.len - 32);
		hash_end(hash, (unsigned char *)bytes.at + bytes.len - 32);
		(void)!spool_decode(buf_view(&bytes), &read, &why);
		bytes.at[at] = old;
	}
	hash_free(hash);
	buf_fini(&bytes);
}
END_TEST

/* --- the directory --- */

static void set_up(void)
{
	snprintf(dir, sizeof(dir), "/tmp/onceward-spool.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	spool = NULL;
}

static void tear_down(void)
{
	char command[128];

	if (spool)
		spool_close(spool);
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	ck_assert_int_eq(system(command), 0);
}

static void begin(void)
{
	char why[256] = "";

	spool = spool_open(dir, why);
	ck_assert_msg(spool != NULL, "%s", why);
}

/* The process ends in order, and another one begins. */
static void begin_anew(void)
{
	spool_close(spool);
	begin();
}

static void put(int64_t op_id)
{
	struct spool_answer answer = an_answer(op_id);

	spool_put(spool, &answer);
}

static void written(void)
{
	while (spool_waiting(spool))
		usleep(1000);
}

static void only_file(char path[320])
{
	char name[SPOOL_NAME] = "", more[SPOOL_NAME];

	ck_assert_uint_eq(spool_look(spool), 1);
	ck_assert(spool_next(spool, name));
	ck_assert(!spool_next(spool, more));
	snprintf(path, 320, "%s/%s", dir, name);
}

START_TEST(what_is_put_is_left_to_the_next_process)
{
	struct spool_answer answer = an_answer(5), read;
	struct buf bytes;
	struct stat st;
	char path[320];
	const char *why = NULL;

	begin();
	put(5);
	written();
	ck_assert_uint_eq(spool_look(spool), 0); /* its own are not left behind */
	begin_anew();
	only_file(path);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 0777, 0600);
	ck_assert_int_eq(spool_read(spool, strrchr(path, '/') + 1, &bytes, &read, &why),
			 SPOOL_READ);
	same(&read, &answer);
	buf_fini(&bytes);
	spool_remove(spool, strrchr(path, '/') + 1);
	ck_assert_uint_eq(spool_look(spool), 0);
	ck_assert_int_eq(spool_read(spool, strrchr(path, '/') + 1, &bytes, &read, &why),
			 SPOOL_GONE);
	buf_fini(&bytes);
}
END_TEST

START_TEST(what_the_ledger_took_is_left_to_nobody)
{
	begin();
	for (int64_t i = 0; i < 50; i++)
		put(i);
	for (int64_t i = 0; i < 50; i++)
		spool_drop(spool, i, 1);
	spool_drop(spool, 99, 1); /* was never put */
	begin_anew();
	ck_assert_uint_eq(spool_look(spool), 0);
}
END_TEST

START_TEST(a_close_waits_for_what_was_put)
{
	begin();
	for (int64_t i = 0; i < 200; i++)
		put(i);
	begin_anew();
	ck_assert_uint_eq(spool_look(spool), 200);
}
END_TEST

START_TEST(a_killed_process_leaves_what_was_written)
{
	char path[320];
	pid_t child = fork();

	if (child == 0) {
		begin();
		put(5);
		written();
		kill(getpid(), SIGKILL);
	}
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	begin(); /* the lock went with it */
	only_file(path);
}
END_TEST

START_TEST(a_file_that_was_cut_is_set_aside_and_one_that_was_not_renamed_is_read)
{
	struct spool_answer read;
	struct buf bytes;
	char path[320], new[320], bad[340];
	const char *why = NULL;

	begin();
	put(5);
	begin_anew();
	only_file(path);
	snprintf(new, sizeof(new), "%s/%.16s-x.new", dir, "0000000000000000");
	ck_assert_int_eq(rename(path, new), 0);
	only_file(path);
	ck_assert_str_eq(path, new);
	ck_assert_int_eq(spool_read(spool, strrchr(path, '/') + 1, &bytes, &read, &why),
			 SPOOL_READ);
	buf_fini(&bytes);
	ck_assert_int_eq(truncate(path, 60), 0);
	ck_assert_int_eq(spool_read(spool, strrchr(path, '/') + 1, &bytes, &read, &why),
			 SPOOL_BAD);
	buf_fini(&bytes);
	spool_set_aside(spool, strrchr(path, '/') + 1, why);
	ck_assert_uint_eq(spool_look(spool), 0);
	snprintf(bad, sizeof(bad), "%s.bad", path);
	ck_assert_int_eq(access(bad, F_OK), 0);
}
END_TEST

START_TEST(one_directory_is_for_one_process)
{
	char why[256] = "";

	begin();
	ck_assert_ptr_null(spool_open(dir, why));
	ck_assert_ptr_nonnull(strstr(why, "another gateway uses"));
}
END_TEST

START_TEST(a_directory_that_others_can_read_is_refused)
{
	char why[256] = "";

	ck_assert_int_eq(chmod(dir, 0750), 0);
	ck_assert_ptr_null(spool_open(dir, why));
	ck_assert_ptr_nonnull(strstr(why, "chmod 700"));
}
END_TEST

START_TEST(a_directory_is_made_where_its_parent_stands)
{
	char why[256] = "", inner[96];
	struct stat st;

	snprintf(inner, sizeof(inner), "%s/a/b", dir);
	ck_assert_ptr_null(spool_open(inner, why));
	ck_assert_ptr_nonnull(strstr(why, "cannot be used"));
	snprintf(inner, sizeof(inner), "%s/a", dir);
	spool = spool_open(inner, why);
	ck_assert_ptr_nonnull(spool);
	ck_assert_int_eq(stat(inner, &st), 0);
	ck_assert_uint_eq(st.st_mode & 0777, 0700);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("spool");
	TCase *f = tcase_create("format"), *t = tcase_create("directory");

	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_loop_test(f, an_answer_is_read_as_it_was_written, 0, 2);
	tcase_add_test(f, an_answer_that_was_cut_anywhere_is_none);
	tcase_add_test(f, an_answer_with_any_bit_changed_is_none);
	tcase_add_test(f, lengths_that_lie_are_not_believed);
	tcase_add_test(t, what_is_put_is_left_to_the_next_process);
	tcase_add_test(t, what_the_ledger_took_is_left_to_nobody);
	tcase_add_test(t, a_close_waits_for_what_was_put);
	tcase_add_test(t, a_killed_process_leaves_what_was_written);
	tcase_add_test(t,
		       a_file_that_was_cut_is_set_aside_and_one_that_was_not_renamed_is_read);
	tcase_add_test(t, one_directory_is_for_one_process);
	tcase_add_test(t, a_directory_that_others_can_read_is_refused);
	tcase_add_test(t, a_directory_is_made_where_its_parent_stands);
	suite_add_tcase(s, f);
	suite_add_tcase(s, t);
	return run_suite(s);
}
