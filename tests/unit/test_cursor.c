/* Cursors, and base64 below them: what is read is what was written, and nothing else is. */
#include "cursor.h"
#include "unit_run.h"

#include <check.h>

static const struct span secret = { "0123456789abcdef0123456789abcdef", 32 };
static const struct span list = { "7:unknown0:0:0:", 15 };

static void write_one(int64_t a, int64_t b, char out[CURSOR_BYTES])
{
	cursor_write(secret, list, &(struct cursor){ { a, b } }, out);
}

START_TEST(a_cursor_is_read_as_it_was_written)
{
	static const int64_t values[] = { 0, 1, -1, INT64_MAX, INT64_MIN, 1796074647521958 };

	for (size_t i = 0; i < ARRAY_LEN(values); i++) {
		char text[CURSOR_BYTES];
		struct cursor cursor;

		write_one(values[i], ~values[i], text);
		ck_assert_uint_eq(strlen(text), CURSOR_BYTES - 1);
		ck_assert_uint_eq(strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrst"
					       "uvwxyz0123456789-_"),
				  CURSOR_BYTES - 1);
		ck_assert(cursor_read(secret, list, span_of(text), &cursor));
		ck_assert_int_eq(cursor.at[0], values[i]);
		ck_assert_int_eq(cursor.at[1], ~values[i]);
	}
}
END_TEST

START_TEST(a_cursor_that_was_altered_anywhere_is_none)
{
	char text[CURSOR_BYTES];
	struct cursor cursor;

	write_one(17, 4, text);
	for (size_t i = 0; i + 1 < CURSOR_BYTES; i++) {
		char was = text[i];

		for (const char *c = "ABZaz09-_+/=\n"; *c; c++) {
			text[i] = *c;
			ck_assert(was == *c ||
				  !cursor_read(secret, list, span_of(text), &cursor));
		}
		text[i] = was;
	}
	ck_assert(cursor_read(secret, list, span_of(text), &cursor));
}
END_TEST

START_TEST(a_cursor_goes_with_its_list_and_its_ledger)
{
	char text[CURSOR_BYTES];
	struct cursor cursor;

	write_one(17, 4, text);
	ck_assert(!cursor_read(secret, SPAN("6:staleX0:0:0:"), span_of(text), &cursor));
	ck_assert(!cursor_read(secret, SPAN(""), span_of(text), &cursor));
	ck_assert(!cursor_read(SPAN("another secret of another one"), list, span_of(text),
			       &cursor));
}
END_TEST

START_TEST(what_is_too_short_or_too_long_is_none)
{
	char text[CURSOR_BYTES + 1] = { 0 };
	struct cursor cursor;

	write_one(17, 4, text);
	for (size_t n = 0; n < CURSOR_BYTES - 1; n++)
		ck_assert(!cursor_read(secret, list, (struct span){ text, n }, &cursor));
	text[CURSOR_BYTES - 1] = 'A';
	ck_assert(!cursor_read(secret, list, (struct span){ text, CURSOR_BYTES }, &cursor));
}
END_TEST

START_TEST(base64_has_one_spelling_of_all_bytes)
{
	unsigned char bytes[64], back[68];
	char text[BASE64_LETTERS(64) + 1];

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (unsigned char)(i * 37 + 250);
	for (size_t n = 0; n <= sizeof(bytes); n++) {
		size_t len = 99;

		base64_write(bytes, n, text);
		ck_assert_uint_eq(strlen(text), BASE64_LETTERS(n));
		ck_assert(base64_read(span_of(text), back, &len));
		ck_assert_uint_eq(len, n);
		ck_assert_int_eq(memcmp(back, bytes, n), 0);
	}
}
END_TEST

START_TEST(base64_of_others_is_read_with_and_without_padding)
{
	static const struct {
		const char *text;
		bool good;
	} all[] = { { "", true },      { "YQ", true },    { "YQ==", true },   { "YWI=", true },
		    { "YWJj", true },  { "+/8=", true },  { "-_8", true },    { "Y", false },
		    { "YR==", false }, { "YQ=", false },  { "YQ===", false }, { "=", false },
		    { "Y Q=", false }, { "YQ\n=", false } };
	unsigned char out[16];
	size_t len = 0;

	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		ck_assert_msg(base64_read(span_of(all[i].text), out, &len) == all[i].good, "%s",
			      all[i].text);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cursor");
	TCase *all = tcase_create("all");

	tcase_add_test(all, a_cursor_is_read_as_it_was_written);
	tcase_add_test(all, a_cursor_that_was_altered_anywhere_is_none);
	tcase_add_test(all, a_cursor_goes_with_its_list_and_its_ledger);
	tcase_add_test(all, what_is_too_short_or_too_long_is_none);
	tcase_add_test(all, base64_has_one_spelling_of_all_bytes);
	tcase_add_test(all, base64_of_others_is_read_with_and_without_padding);
	suite_add_tcase(suite, all);
	return run_suite(suite);
}
