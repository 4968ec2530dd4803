/*
 * The canonical form against the corpora of others: JSONTestSuite, json-canonicalization (RFC
 * 8785's own), nativejson-benchmark, the big list of naughty strings.
 */
#include "canonical_rig.h"
#include "corpora.h"

#include <dirent.h>

#define FILE_MAX (16U << 20)

/* The files of JSONTestSuite on which RFC 8259 leaves the choice, and the one valid thing that is
 * refused. What is not named here: y_ is taken, n_ is refused. */
static const struct {
	const char *name;
	bool taken;
} chosen[] = {
	{ "y_object_duplicated_key.json", false },
	{ "y_object_duplicated_key_and_value.json", false },
	/* numbers are decimals of any size, within 1,000 digits and an exponent of 9,999 */
	{ "i_number_double_huge_neg_exp.json", true },
	{ "i_number_huge_exp.json", false },
	{ "i_number_neg_int_huge_exp.json", true },
	{ "i_number_pos_double_huge_exp.json", true },
	{ "i_number_real_neg_overflow.json", false },
	{ "i_number_real_pos_overflow.json", false },
	{ "i_number_real_underflow.json", false },
	{ "i_number_too_big_neg_int.json", true },
	{ "i_number_too_big_pos_int.json", true },
	{ "i_number_very_big_negative_int.json", true },
	/* half a surrogate pair is no character */
	{ "i_object_key_lone_2nd_surrogate.json", false },
	{ "i_string_1st_surrogate_but_2nd_missing.json", false },
	{ "i_string_1st_valid_surrogate_2nd_invalid.json", false },
	{ "i_string_UTF8_surrogate_U+D800.json", false },
	{ "i_string_incomplete_surrogate_and_escape_valid.json", false },
	{ "i_string_incomplete_surrogate_pair.json", false },
	{ "i_string_incomplete_surrogates_escape_valid.json", false },
	{ "i_string_invalid_lonely_surrogate.json", false },
	{ "i_string_invalid_surrogate.json", false },
	{ "i_string_inverted_surrogates_U+1D11E.json", false },
	{ "i_string_lone_second_surrogate.json", false },
	/* a body is UTF-8 */
	{ "i_string_UTF-16LE_with_BOM.json", false },
	{ "i_string_UTF-8_invalid_sequence.json", false },
	{ "i_string_invalid_utf-8.json", false },
	{ "i_string_iso_latin_1.json", false },
	{ "i_string_lone_utf8_continuation_byte.json", false },
	{ "i_string_not_in_unicode_range.json", false },
	{ "i_string_overlong_sequence_2_bytes.json", false },
	{ "i_string_overlong_sequence_6_bytes.json", false },
	{ "i_string_overlong_sequence_6_bytes_null.json", false },
	{ "i_string_truncated-utf-8.json", false },
	{ "i_string_utf16BE_no_BOM.json", false },
	{ "i_string_utf16LE_no_BOM.json", false },
	{ "i_structure_UTF-8_BOM_empty_object.json", false },
	/* 128 levels */
	{ "i_structure_500_nested_arrays.json", false },
	/* test_transform: names that are spelt differently are others, equal ones are refused */
	{ "object_same_key_different_values.json", false },
	{ "object_same_key_same_value.json", false },
	{ "object_same_key_unclear_values.json", false },
	{ "string_1_escaped_invalid_codepoint.json", false },
	{ "string_1_invalid_codepoint.json", false },
	{ "string_2_escaped_invalid_codepoints.json", false },
	{ "string_2_invalid_codepoints.json", false },
	{ "string_3_escaped_invalid_codepoints.json", false },
	{ "string_3_invalid_codepoints.json", false },
	/* nativejson-benchmark: a text may be a string, and 20 levels are not many */
	{ "fail01_EXCLUDE.json", true },
	{ "fail18_EXCLUDE.json", true },
};

static bool is_taken(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(chosen); i++)
		if (strcmp(chosen[i].name, name) == 0)
			return chosen[i].taken;
	ck_assert_msg(strncmp(name, "i_", 2) != 0, "no verdict on %s", name);
	return strncmp(name, "n_", 2) != 0 && strncmp(name, "fail", 4) != 0;
}

static const char *corpora(void)
{
	const char *folder = getenv("ONCEWARD_CORPORA");

	return folder ? folder : "../shared/corpora";
}

/* Calls for each file of a folder; how many there were. */
static size_t each(const char *folder, void (*check)(const char *name, struct span bytes))
{
	struct arena *arena = arena_new();
	struct span path = arena_format(arena, "%s/%s", corpora(), folder);
	DIR *dir = opendir(path.at);
	size_t n = 0;

	if (!dir)
		fprintf(stderr, "skipped: no %s\n", path.at);
	for (struct dirent *entry = NULL; dir && (entry = readdir(dir));) {
		struct span file = arena_format(arena, "%s/%s", path.at, entry->d_name);
		FILE *in = entry->d_type == DT_DIR ? NULL : fopen(file.at, "rb");
		struct buf bytes;

		if (!in)
			continue;
		buf_init(&bytes, FILE_MAX);
		bytes.len = fread(buf_reserve(&bytes, FILE_MAX), 1, FILE_MAX, in);
		fclose(in);
		check(entry->d_name, buf_view(&bytes));
		buf_fini(&bytes);
		n++;
	}
	if (dir)
		closedir(dir);
	arena_free(arena);
	return n;
}

static void check_verdict(const char *name, struct span bytes)
{
	struct canonical_error error = { 0 };
	struct to_buf to;
	bool taken = false;

	if (!strstr(name, ".json"))
		return;
	taken = canonical(bytes, &to, &error);
	ck_assert_msg(taken == is_taken(name), "%s: %s", name,
		      taken ? "taken" : error.expected);
	if (taken)
		becomes_bytes(buf_view(&to.buf), buf_view(&to.buf));
	buf_fini(&to.buf);
}

START_TEST(what_json_is_and_what_not)
{
	size_t n = each("JSONTestSuite/test_parsing", check_verdict);

	ck_assert(n == 0 || n > 300);
	(void)each("JSONTestSuite/test_transform", check_verdict);
	(void)each("nativejson-benchmark/data/jsonchecker", check_verdict);
	(void)each("nativejson-benchmark/data/roundtrip", check_verdict);
}
END_TEST

/* The bytes of RFC 8785, but for the numbers, which are spelt otherwise. */
static const char values_exactly[] =
	"{\"literals\":[null,true,false],\"numbers\":[333333333.33333329,1e30,4.5,2e-3,1e-27],"
	"\"string\":\"\xe2\x82\xac$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}";

static const char *expected_folder = "json-canonicalization/testdata/output";
static struct {
	const char *name;
	struct span bytes;
} wanted;

static void compare_wanted(const char *name, struct span bytes)
{
	if (strcmp(name, wanted.name) != 0)
		return;
	if (strcmp(name, "values.json") == 0)
		bytes = SPAN(values_exactly);
	becomes_bytes(wanted.bytes, bytes);
}

static void check_rfc8785(const char *name, struct span bytes)
{
	wanted.name = name;
	wanted.bytes = bytes;
	ck_assert_uint_ge(each(expected_folder, compare_wanted), 6);
}

START_TEST(the_canonical_form_is_that_of_rfc_8785)
{
	(void)each("json-canonicalization/testdata/input", check_rfc8785);
}
END_TEST

/* Lines of "bits,number": each number as ECMAScript spells it. */
static void check_numbers(const char *name, struct span bytes)
{
	const char *at = bytes.at, *end = bytes.at + bytes.len, *stop = NULL;

	if (strcmp(name, "es6testfile_10000.txt") != 0)
		return;
	for (; at < end && (stop = memchr(at, '\n', (size_t)(end - at))); at = stop + 1) {
		const char *comma = memchr(at, ',', (size_t)(stop - at));
		struct span number = { comma + 1, (size_t)(stop - comma - 1) };
		struct canonical_error error = { 0 };
		struct to_buf to;

		ck_assert_msg(canonical(number, &to, &error), "%.*s", (int)number.len,
			      number.at);
		buf_byte(&to.buf, 0);
		ck_assert_msg(strtod(to.buf.at, NULL) == strtod(number.at, NULL), "%.*s: %s",
			      (int)number.len, number.at, to.buf.at);
		buf_fini(&to.buf);
	}
}

START_TEST(ten_thousand_numbers_keep_their_value)
{
	(void)each("json-canonicalization/testdata", check_numbers);
}
END_TEST

/* Another library reads the same value from the body and from its canonical form. */
static void check_meaning(const char *name, struct span bytes)
{
	struct canonical_error error = { 0 };
	json_t *before = NULL, *after = NULL;
	struct to_buf to;

	ck_assert_msg(canonical(bytes, &to, &error), "%s: %s", name, error.expected);
	before = json_loadb(bytes.at, bytes.len, JSON_DECODE_INT_AS_REAL, NULL);
	after = json_loadb(to.buf.at, to.buf.len, JSON_DECODE_INT_AS_REAL, NULL);
	ck_assert_msg(before && json_equal(before, after), "%s", name);
	becomes_bytes(buf_view(&to.buf), buf_view(&to.buf));
	json_decref(before);
	json_decref(after);
	buf_fini(&to.buf);
}

static void doubles(struct span body, struct span expected)
{
	struct canonical_task task = { .body = body, .numbers = CANONICAL_IEEE754 };
	struct canonical_error error;
	struct to_buf to;

	if (!canonical_by("json", task, &to, &error))
		ck_abort_msg("%.*s: refused at %zu: %s", (int)body.len, body.at, error.offset,
			     error.expected);
	ck_assert_msg(span_equal(buf_view(&to.buf), expected), "%.*s became %.*s, not %.*s",
		      (int)body.len, body.at, (int)to.buf.len, to.buf.at, (int)expected.len,
		      expected.at);
	buf_fini(&to.buf);
}

static void compare_doubles(const char *name, struct span bytes)
{
	if (strcmp(name, wanted.name) == 0)
		doubles(wanted.bytes, bytes);
}

static void check_doubles(const char *name, struct span bytes)
{
	wanted.name = name;
	wanted.bytes = bytes;
	ck_assert_uint_ge(each(expected_folder, compare_doubles), 6);
}

/* The double of those bits, written with 17 digits, and as it is expected. */
static void check_line(struct span bits, struct span number)
{
	uint64_t word = strtoull(bits.at, NULL, 16);
	double value = 0;
	char text[64];

	memcpy(&value, &word, sizeof(value));
	snprintf(text, sizeof(text), "%.16e", value);
	doubles(span_of(text), number);
	doubles(number, number);
}

static size_t each_line(struct span bytes, void (*check)(struct span bits, struct span number))
{
	const char *at = bytes.at, *end = bytes.at + bytes.len, *stop = NULL;
	size_t n = 0;

	for (; at < end && (stop = memchr(at, '\n', (size_t)(end - at))); at = stop + 1, n++) {
		const char *comma = memchr(at, ',', (size_t)(stop - at));

		check((struct span){ at, (size_t)(comma - at) },
		      (struct span){ comma + 1, (size_t)(stop - comma - 1) });
	}
	return n;
}

static void check_all_doubles(const char *name, struct span bytes)
{
	if (strcmp(name, "es6testfile_10000.txt") == 0)
		ck_assert_uint_eq(each_line(bytes, check_line), 10000);
}

START_TEST(with_doubles_it_is_rfc_8785_byte_for_byte)
{
	(void)each("json-canonicalization/testdata/input", check_doubles);
	(void)each("json-canonicalization/testdata", check_all_doubles);
}
END_TEST

/* Both forms of a number; false where one of them is refused. */
static bool both(const char *number, struct to_buf *exact, struct to_buf *as_double)
{
	struct canonical_task task = { .body = span_of(number), .numbers = CANONICAL_IEEE754 };
	struct canonical_error error;
	bool done = canonical(span_of(number), exact, &error);

	return canonical_by("json", task, as_double, &error) && done;
}

/* Decimals that are equal are one double; those next to each other may be. */
static void check_neighbours(struct span bits, struct span number)
{
	static const char *const spellings[] = { "0e0", "1e0", "00e-0" };
	struct to_buf exact[4], doubled[4];
	char text[4][64];

	(void)bits;
	if (memchr(number.at, 'e', number.len) || !memchr(number.at, '.', number.len))
		return;
	snprintf(text[3], sizeof(text[3]), "%.*s", (int)number.len, number.at);
	for (size_t i = 0; i < 3; i++)
		snprintf(text[i], sizeof(text[i]), "%.*s%s", (int)number.len, number.at,
			 spellings[i]);
	for (size_t i = 0; i < 4; i++)
		ck_assert(both(text[i], &exact[i], &doubled[i]));
	for (size_t i = 0; i < 16; i++) {
		struct span a = buf_view(&exact[i / 4].buf), b = buf_view(&exact[i % 4].buf);
		bool one = i / 4 == 1, other = i % 4 == 1;

		ck_assert(span_equal(a, b) == (one == other));
		ck_assert(!span_equal(a, b) || span_equal(buf_view(&doubled[i / 4].buf),
							  buf_view(&doubled[i % 4].buf)));
	}
	for (size_t i = 0; i < 4; i++) {
		buf_fini(&exact[i].buf);
		buf_fini(&doubled[i].buf);
	}
}

static void check_all_neighbours(const char *name, struct span bytes)
{
	if (strcmp(name, "es6testfile_10000.txt") == 0)
		(void)each_line(bytes, check_neighbours);
}

START_TEST(what_is_equal_exactly_is_equal_as_a_double)
{
	(void)each("json-canonicalization/testdata", check_all_neighbours);
}
END_TEST

START_TEST(large_files_keep_their_meaning)
{
	(void)each("nativejson-benchmark/data", check_meaning);
}
END_TEST

/* As a name and as a value, in ASCII and in UTF-8. */
static void check_naughty(const json_t *string)
{
	json_t *object = json_object();
	char *ascii = NULL, *utf8 = NULL;
	struct canonical_error error;
	struct to_buf to;

	json_object_set_new_nocheck(object, json_string_value(string), json_integer(1));
	json_object_set_new(object, "value", json_string_nocheck(json_string_value(string)));
	ascii = json_dumps(object, JSON_ENSURE_ASCII | JSON_INDENT(3));
	utf8 = json_dumps(object, JSON_COMPACT);
	ck_assert(canonical(span_of(ascii), &to, &error));
	becomes_bytes(span_of(utf8), buf_view(&to.buf));
	buf_fini(&to.buf);
	free(ascii);
	free(utf8);
	json_decref(object);
}

START_TEST(naughty_strings_are_names_and_values)
{
	json_t *strings = corpus("naughty-strings/blns.json"), *string = NULL;
	size_t at = 0;

	json_array_foreach(strings, at, string) check_naughty(string);
	json_decref(strings);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		what_json_is_and_what_not,
		the_canonical_form_is_that_of_rfc_8785,
		ten_thousand_numbers_keep_their_value,
		with_doubles_it_is_rfc_8785_byte_for_byte,
		what_is_equal_exactly_is_equal_as_a_double,
		large_files_keep_their_meaning,
		naughty_strings_are_names_and_values,
	};

	return run("canonical corpora", tests, ARRAY_LEN(tests));
}
