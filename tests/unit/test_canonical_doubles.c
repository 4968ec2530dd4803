/* Numbers as ECMAScript has them: bounds, ties, and what only differs beyond a double. */
#include "canonical_rig.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

static bool doubled(const char *number, struct to_buf *to, struct canonical_error *error)
{
	struct canonical_task task = { .body = span_of(number), .numbers = CANONICAL_IEEE754 };

	return canonical_by("json", task, to, error);
}

static void is(const char *number, const char *expected)
{
	struct canonical_error error;
	struct to_buf to;

	ck_assert_msg(doubled(number, &to, &error), "%s: %s", number, error.expected);
	buf_byte(&to.buf, 0);
	ck_assert_msg(strcmp(to.buf.at, expected) == 0, "%s became %s, not %s", number,
		      to.buf.at, expected);
	buf_fini(&to.buf);
}

START_TEST(numbers_are_spelt_as_ecmascript_spells_them)
{
	is("0", "0");
	is("-0", "0");
	is("-0.0e5", "0");
	is("1.0", "1");
	is("-12.50", "-12.5");
	is("1e20", "100000000000000000000");
	is("1E21", "1e+21");
	is("123456789012345678901", "123456789012345680000");
	is("1234567890123456789012", "1.2345678901234568e+21");
	is("0.000001", "0.000001");
	is("1e-6", "0.000001");
	is("12e-7", "0.0000012");
	is("1e-7", "1e-7");
	is("-1.5e-7", "-1.5e-7");
	is("1e300", "1e+300");
	is("1e301", "1e+301");
	is("[1e20,{\"b\":1e20,\"a\":-1e20}]",
	   "[100000000000000000000,{\"a\":-100000000000000000000,\"b\":100000000000000000000}"
	   "]");
}
END_TEST

START_TEST(doubles_are_as_short_as_can_be)
{
	is("0.1", "0.1");
	is("0.1000000000000000055511151231257827", "0.1");
	is("0.30000000000000004", "0.30000000000000004");
	is("9007199254740993", "9007199254740992");
	is("9007199254740993.00000000000000000000000000001", "9007199254740994");
	is("99999999999999999", "100000000000000000");
	is("9999999999999999", "10000000000000000");
	is("[999999999999999999999,999999999999999999999]", "[1e+21,1e+21]");
	is("333333333.33333329", "333333333.3333333");
	is("2.2250738585072014e-308", "2.2250738585072014e-308");
	is("4.9406564584124654e-324", "5e-324");
	is("2.4703282292062328e-324", "5e-324");
	is("2.4703282292062327e-324", "0");
	is("1e-400", "0");
	is("1.7976931348623157e308", "1.7976931348623157e+308");
	is("1.7976931348623158e308", "1.7976931348623157e+308");
	/* powers of two, below which doubles lie closer */
	is("9.5367431640625e-7", "9.5367431640625e-7");
	is("5.684341886080801486968994140625e-14", "5.684341886080802e-14");
	is("9.8813129168249309e-324", "1e-323");
	is("6.6174449004242214e-24", "6.617444900424222e-24");
}
END_TEST

START_TEST(what_no_double_holds_is_refused)
{
	static const char *const numbers[] = { "1e309", "-1e400", "1.7976931348623159e308",
					       "10e9999", "1e-10000" };

	for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
		struct canonical_error error;
		struct to_buf to;

		ck_assert_msg(!doubled(numbers[i], &to, &error), "%s", numbers[i]);
		ck_assert_uint_eq(error.offset, 0);
		buf_fini(&to.buf);
	}
}
END_TEST

/* Shorter spellings than the one found mean other doubles; the found one means this double. */
static void check_shortest(double value)
{
	char text[64], shorter[64];
	struct canonical_error error;
	struct to_buf to;

	snprintf(text, sizeof(text), "%.16e", value);
	ck_assert(doubled(text, &to, &error));
	buf_byte(&to.buf, 0);
	ck_assert_msg(strtod(to.buf.at, NULL) == value, "%s became %s", text, to.buf.at);
	for (int digits = 0; digits < 17; digits++) {
		snprintf(shorter, sizeof(shorter), "%.*e", digits, value);
		if (strtod(shorter, NULL) != value)
			continue;
		is(shorter, to.buf.at);
		break;
	}
	buf_fini(&to.buf);
}

START_TEST(powers_of_two_and_their_neighbours_come_back)
{
	for (int power = -1074; power < 1024; power++) {
		double value = ldexp(1, power);

		check_shortest(value);
		check_shortest(nextafter(value, INFINITY));
		if (power > -1074)
			check_shortest(nextafter(value, 0));
	}
}
END_TEST

START_TEST(any_double_comes_back)
{
	uint64_t bits = UINT64_C(0x9e3779b97f4a7c15);

	for (unsigned i = 0; i < 20000; i++) {
		double value = 0;

		bits = bits * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		memcpy(&value, &bits, sizeof(value));
		if (isfinite(value) && value != 0)
			check_shortest(value);
	}
}
END_TEST

START_TEST(the_smallest_doubles_come_back)
{
	uint64_t bits = UINT64_C(0x9e3779b97f4a7c15);

	for (unsigned i = 1; i < 2000; i++)
		check_shortest(ldexp(i, -1074));
	for (unsigned i = 0; i < 20000; i++) {
		bits = bits * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		check_shortest(ldexp((double)(bits >> (12 + i % 52)) + 1, -1074));
	}
}
END_TEST

/* How long a body of a hundred thousand such numbers takes. */
static double seconds(const char *number)
{
	struct canonical_task task = { .numbers = CANONICAL_IEEE754 };
	struct canonical_error error;
	struct to_buf to;
	struct buf body;
	clock_t start = 0;

	task.body = long_body(&body, "[", number, 100000, "0]");
	start = clock();
	ck_assert(canonical_by("json", task, &to, &error));
	buf_fini(&to.buf);
	buf_fini(&body);
	return (double)(clock() - start) / CLOCKS_PER_SEC;
}

START_TEST(the_smallest_doubles_take_no_longer_than_others)
{
	ck_assert_double_le(seconds("1.2345678901234567e-310,"),
			    4 * seconds("1.2345678901234567e-300,") + 0.1);
}
END_TEST

START_TEST(bodies_of_growing_numbers_need_bounded_memory)
{
	static const char *const fills[] = { "1e20,", "{\"b\":1e20,\"a\":1e20},",
					     "{\"1e1e1e1e\":1,\"1e1e\":1},", "\"1e1e1e\"," };

	for (size_t i = 0; i < ARRAY_LEN(fills); i++) {
		struct canonical_task task = { .numbers = CANONICAL_IEEE754 };
		struct canonical_error error;
		struct to_buf to;
		struct buf body;

		task.body = long_body(&body, "[", fills[i], 30000, "1e20]");
		ck_assert(canonical_by("json", task, &to, &error));
		buf_fini(&to.buf);
		buf_fini(&body);
	}
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		numbers_are_spelt_as_ecmascript_spells_them,
		doubles_are_as_short_as_can_be,
		what_no_double_holds_is_refused,
		powers_of_two_and_their_neighbours_come_back,
		any_double_comes_back,
		the_smallest_doubles_come_back,
		the_smallest_doubles_take_no_longer_than_others,
		bodies_of_growing_numbers_need_bounded_memory,
	};

	return run("canonical doubles", tests, ARRAY_LEN(tests));
}
