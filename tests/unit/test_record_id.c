/* The names of records: other versions read them, so what they are made of does not change. */
#include "record_id.h"
#include "unit_run.h"

#include <check.h>

static const unsigned char key[16] = "0123456789abcdef";

START_TEST(an_id_is_read_as_it_was_written)
{
	static const int64_t ids[] = { 0, 1, 915355876808720386, INT64_MAX };
	static const int32_t days[] = { 0, 20787, INT32_MAX };

	for (size_t i = 0; i < ARRAY_LEN(ids) * ARRAY_LEN(days); i++) {
		char text[RECORD_ID_BYTES];
		int64_t op_id = -1;
		int32_t day = -1;

		record_id_write(key, ids[i / 3], days[i % 3], text);
		ck_assert_uint_eq(strlen(text), RECORD_ID_BYTES - 1);
		ck_assert(record_id_read(key, span_of(text), &op_id, &day));
		ck_assert_int_eq(op_id, ids[i / 3]);
		ck_assert_int_eq(day, days[i % 3]);
	}
}
END_TEST

START_TEST(an_id_is_made_as_it_always_was)
{
	char text[RECORD_ID_BYTES];

	record_id_write(key, 915355876808720386, 20787, text);
	ck_assert_str_eq(text, "req_atnf6ddxvbsit4swysayev42y4");
}
END_TEST

START_TEST(what_nobody_gave_out_is_no_id)
{
	static const char *const none[] = { "",
					    "req_",
					    "req_aaaaaaaaaaaaaaaaaaaaaaaaaa",
					    "req_aaaaaaaaaaaaaaaaaaaaaaaaa1",
					    "REQ_aaaaaaaaaaaaaaaaaaaaaaaaaa",
					    "req_AAAAAAAAAAAAAAAAAAAAAAAAAA",
					    "req_aaaaaaaaaaaaaaaaaaaaaaaaaab" };
	char text[RECORD_ID_BYTES];
	int64_t op_id = 0;
	int32_t day = 0;

	for (size_t i = 0; i < ARRAY_LEN(none); i++)
		ck_assert_msg(!record_id_read(key, span_of(none[i]), &op_id, &day), "%s",
			      none[i]);
	record_id_write(key, 17, 4, text);
	ck_assert(!record_id_read((const unsigned char *)"another key, 16 b", span_of(text),
				  &op_id, &day));
	for (size_t i = 4; i + 1 < RECORD_ID_BYTES; i++) {
		char was = text[i];

		text[i] = was == 'b' ? 'c' : 'b';
		ck_assert(!record_id_read(key, span_of(text), &op_id, &day));
		text[i] = was;
	}
	ck_assert(
		!record_id_read(key, (struct span){ text, RECORD_ID_BYTES - 2 }, &op_id, &day));
}
END_TEST

static void hash_of(const char *account, const char *operation, const char *name,
		    unsigned char out[16])
{
	struct hash *hasher = hash_new_keyed(key, sizeof(key));

	record_key_hash(hasher, span_of(account), span_of(operation), span_of(name), out);
	hash_free(hasher);
}

START_TEST(no_two_of_account_operation_and_key_share_a_hash_by_how_they_are_cut)
{
	unsigned char a[16], b[16];

	hash_of("ab", "c", "d", a);
	hash_of("a", "bc", "d", b);
	ck_assert_int_ne(memcmp(a, b, 16), 0);
	hash_of("ab", "", "cd", b);
	ck_assert_int_ne(memcmp(a, b, 16), 0);
	hash_of("ab", "c", "d", b);
	ck_assert_int_eq(memcmp(a, b, 16), 0);
}
END_TEST

START_TEST(a_key_with_its_time_keeps_it_in_front)
{
	static const unsigned char ms[] = { 0x01, 0x8f, 0x00, 0x00, 0x00, 0x01 };
	unsigned char hash[16];

	hash_of("a", "b", "018f0000-0001-7000-8000-000000000000", hash);
	ck_assert_int_eq(memcmp(hash, ms, sizeof(ms)), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("record_id");
	TCase *all = tcase_create("all");

	tcase_add_test(all, an_id_is_read_as_it_was_written);
	tcase_add_test(all, an_id_is_made_as_it_always_was);
	tcase_add_test(all, what_nobody_gave_out_is_no_id);
	tcase_add_test(all,
		       no_two_of_account_operation_and_key_share_a_hash_by_how_they_are_cut);
	tcase_add_test(all, a_key_with_its_time_keeps_it_in_front);
	suite_add_tcase(suite, all);
	return run_suite(suite);
}
