/*
 * What a file of digest keys may look like, whose it must be, and what is said of one that is
 * wrong.
 */
#include "digest_keys.h"

#include "settings_loading.h"

#define HEX16 "000102030405060708090a0b0c0d0e0f"
#define HEX32 HEX16 "101112131415161718191A1B1C1D1E1F"

static struct arena *arena;
static struct digest_keys keys;
static char why[256];

static void setup(void)
{
	begin_loading();
	arena = arena_new();
}

static void teardown(void)
{
	arena_free(arena);
	end_loading();
}

static bool loads(const char *text)
{
	write_file("digest.keys", text);
	ck_assert_int_eq(chmod(file_path("digest.keys"), 0600), 0);
	return digest_keys_load(arena, file_path("digest.keys"), &keys, why);
}

static void good(const char *text)
{
	ck_assert_msg(loads(text), "%s: %s", text, why);
}

/* Fails with these words, and without anything of the text. */
static void bad(const char *text, const char *words)
{
	ck_assert_msg(!loads(text), "no error in: %s", text);
	ck_assert_msg(strstr(why, words) != NULL, "%s\n%s", text, why);
	ck_assert_ptr_null(strstr(why, "0102"));
	ck_assert_uint_eq(keys.n, 0);
}

/* Of that many bytes, which count up from 0. */
static void secret_is(size_t i, size_t len)
{
	ck_assert_uint_eq(keys.at[i].len, len);
	for (size_t byte = 0; byte < len; byte++)
		ck_assert_uint_eq(keys.at[i].secret[byte], byte);
}

START_TEST(the_first_key_makes_and_all_are_found_by_id)
{
	good("# the new one first\n7 " HEX32 "\n\n  1\t" HEX16 "  \r\n");
	ck_assert_uint_eq(keys.n, 2);
	ck_assert_ptr_eq(digest_keys_making(&keys), &keys.at[0]);
	ck_assert_int_eq(keys.at[0].id, 7);
	secret_is(0, 32);
	secret_is(1, 16);
	ck_assert_ptr_eq(digest_keys_find(&keys, 1), &keys.at[1]);
	ck_assert_ptr_null(digest_keys_find(&keys, 2));
	ck_assert_ptr_null(digest_keys_find(&keys, 0));
	ck_assert(digest_keys_verify(&keys, 7) && digest_keys_verify(&keys, 1));
	ck_assert(digest_keys_verify(&keys, 0)); /* no key is needed */
	ck_assert(!digest_keys_verify(&keys, 2));
}
END_TEST

START_TEST(secrets_may_be_base64)
{
	good("1 AAECAwQFBgcICQoLDA0ODw==\n");
	secret_is(0, 16);
	good("1 AAECAwQFBgcICQoLDA0ODw\n");
	secret_is(0, 16);
	good("1 AAECAwQFBgcICQoLDA0ODxA=\n");
	secret_is(0, 17);
	good("1 AAECAwQFBgcICQoLDA0ODxAR");
	secret_is(0, 18);
	good("1 ----____////++++----_w==\n");
	ck_assert_uint_eq(keys.at[0].len, 16);
	ck_assert_uint_eq(keys.at[0].secret[0], 0xfb);
	ck_assert_uint_eq(keys.at[0].secret[3], 0xff);
}
END_TEST

START_TEST(the_longest_and_the_largest_fit)
{
	good("2147483647 " HEX32 HEX32);
	ck_assert_int_eq(keys.at[0].id, INT32_MAX);
	ck_assert_uint_eq(keys.at[0].len, DIGEST_KEY_SECRET_MAX);
}
END_TEST

START_TEST(a_mistake_is_told_with_its_line_and_without_its_text)
{
	static const struct {
		const char *text, *words;
	} wrong[] = {
		{ "", "holds no key" },
		{ "# nothing\n", "holds no key" },
		{ "1 " HEX16 "\n0 " HEX32 "\n", ":2: a line begins with the key's id" },
		{ "-1 " HEX16, ":1: a line begins with" },
		{ "+1 " HEX16, ":1: a line begins with" },
		{ "01 " HEX16, ":1: a line begins with" },
		{ "2147483648 " HEX16, ":1: a line begins with" },
		{ "99999999999 " HEX16, ":1: a line begins with" },
		{ "new " HEX16, ":1: a line begins with" },
		{ HEX16, ":1: a line begins with" },
		{ "1", ":1: the secret is too short" },
		{ "1 000102030405060708090a0b0c0d0e", ":1: the secret is too short" },
		{ "1 000102030405060708090a0b0c0d0e0", ":1: behind the id stands a secret" },
		{ "1 AAECAwQFBgcICQoLDA0O", ":1: the secret is too short" },
		{ "1 " HEX32 HEX32 "00", ":1: behind the id stands a secret" },
		{ "1 AAECAwQFBgcICQoLDA0ODw=", ":1: behind the id stands a secret" },
		{ "1 AAECAwQFBgcICQoLDA0ODx==", ":1: behind the id stands a secret" },
		{ "1 AAECAwQFBgcICQoLDA0ODxARA", ":1: behind the id stands a secret" },
		{ "1 AAECAwQFBgcICQoLDA0O!w==", ":1: behind the id stands a secret" },
		{ "1 ====", ":1: behind the id stands a secret" },
		{ "1 " HEX16 " more", ":1: a line is: id secret" },
		{ "1 " HEX16 "\n1 " HEX32, ":2: this id stands on an earlier line" },
		{ "1 " HEX16 "\n2 " HEX16, ":2: this secret stands on an earlier line" },
	};

	for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
		bad(wrong[i].text, wrong[i].words);
}
END_TEST

START_TEST(there_may_be_as_many_as_there_is_room_for)
{
	struct buf text;

	buf_init(&text, 65536);
	for (unsigned i = 1; i <= DIGEST_KEYS_MAX; i++)
		buf_format(&text, "%u %032x\n", i, i);
	buf_byte(&text, 0);
	good(text.at);
	ck_assert_uint_eq(keys.n, DIGEST_KEYS_MAX);
	text.len--;
	buf_text(&text, "100 " HEX16);
	buf_byte(&text, 0);
	bad(text.at, ":65: there are too many keys");
	buf_fini(&text);
}
END_TEST

START_TEST(the_file_must_be_its_owners_alone)
{
	good("1 " HEX16);
	ck_assert_int_eq(chmod(file_path("digest.keys"), 0640), 0);
	ck_assert(!digest_keys_load(arena, file_path("digest.keys"), &keys, why));
	ck_assert_ptr_nonnull(strstr(why, "chmod 600"));
	ck_assert(!digest_keys_load(arena, file_path("nothing"), &keys, why));
	ck_assert_ptr_nonnull(strstr(why, "cannot open"));
	ck_assert(!digest_keys_load(arena, "/dev/null", &keys, why));
	ck_assert_ptr_nonnull(strstr(why, "not a regular file"));
}
END_TEST

START_TEST(it_is_told_when_keys_are_wiped)
{
	unsigned before = digest_keys_wiped();

	good("1 " HEX16);
	ck_assert_uint_eq(digest_keys_wiped(), before);
	arena_free(arena);
	ck_assert_uint_ne(digest_keys_wiped(), before);
	arena = arena_new();
}
END_TEST

#define WITH_KEYS "ledger = { digest_keys = \"digest.keys\" }\n" ONE_GATED("")

START_TEST(settings_hold_the_keys_that_their_file_names)
{
	ck_assert(loads("5 " HEX32 "\n4 " HEX16 "\n"));
	must_load_silently(WITH_KEYS);
	ck_assert_uint_eq(loaded->digest_keys.n, 2);
	ck_assert_int_eq(digest_keys_making(&loaded->digest_keys)->id, 5);
	must_load_silently(ONE_GATED(""));
	ck_assert_uint_eq(loaded->digest_keys.n, 0);
	ck_assert_ptr_null(digest_keys_making(&loaded->digest_keys));
}
END_TEST

START_TEST(a_mistake_in_the_keys_is_one_of_the_settings)
{
	ck_assert(!loads("5 short\n"));
	must_fail(WITH_KEYS, "1: `digest_keys`: ");
	ck_assert_ptr_nonnull(strstr(said.at, "digest.keys:1: behind the id"));
	ck_assert_int_eq(unlink(file_path("digest.keys")), 0);
	must_fail(WITH_KEYS, "1: `digest_keys`: cannot open");
}
END_TEST

START_TEST(a_reload_may_bring_other_keys_but_not_another_file)
{
	struct settings *before = NULL;

	ck_assert(loads("5 " HEX32 "\n"));
	must_load(WITH_KEYS);
	before = loaded;
	loaded = NULL;
	ck_assert(loads("6 " HEX16 "\n5 " HEX32 "\n"));
	must_load(WITH_KEYS);
	ck_assert_ptr_null(settings_needs_restart(before, loaded));
	must_load(ONE_GATED(""));
	ck_assert_ptr_nonnull(strstr(settings_needs_restart(before, loaded), "`ledger`"));
	settings_release(before);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("digest_keys");
	TCase *all = tcase_create("all");
	SRunner *runner = NULL;
	int failed = 0;

	tcase_add_checked_fixture(all, setup, teardown);
	tcase_add_test(all, the_first_key_makes_and_all_are_found_by_id);
	tcase_add_test(all, secrets_may_be_base64);
	tcase_add_test(all, the_longest_and_the_largest_fit);
	tcase_add_test(all, a_mistake_is_told_with_its_line_and_without_its_text);
	tcase_add_test(all, there_may_be_as_many_as_there_is_room_for);
	tcase_add_test(all, the_file_must_be_its_owners_alone);
	tcase_add_test(all, it_is_told_when_keys_are_wiped);
	tcase_add_test(all, settings_hold_the_keys_that_their_file_names);
	tcase_add_test(all, a_mistake_in_the_keys_is_one_of_the_settings);
	tcase_add_test(all, a_reload_may_bring_other_keys_but_not_another_file);
	suite_add_tcase(suite, all);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}
