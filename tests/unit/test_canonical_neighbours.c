/*
 * Numbers that lie next to each other: what is equal exactly is equal as a double, and never the
 * other way round by mistake. Around a double there are its spellings, the doubles above and below,
 * what differs in the last digit, and the decimals halfway to the next doubles, with those just
 * beside them. Of every pair both forms are compared: exact ones as decimals are, and doubles as
 * strtod, another reader, has them.
 */
#include "canonical_rig.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

#define DIGITS_MAX  900 /* a halfway decimal has up to 768 */
#define HALF_PLACES 800
#define MEMBERS_MAX 64

/* 0.DIGITS times ten to the power of exp. */
struct decimal {
	bool negative;
	char digits[DIGITS_MAX];
	int exp;
};

struct member {
	struct span digits; /* without zeros at the ends; none: zero */
	int exp;
	bool negative;
	double value; /* an infinity: no double holds it */
	struct span exact, as_double;
};

struct neighbourhood {
	struct arena *arena;
	struct member members[MEMBERS_MAX];
	size_t n;
	struct buf exact, as_doubles; /* the texts, as arrays */
};

static void init(struct neighbourhood *all)
{
	all->arena = arena_new();
	all->n = 0;
	buf_init(&all->exact, SIZE_MAX / 2);
	buf_init(&all->as_doubles, SIZE_MAX / 2);
}

static void fini(struct neighbourhood *all)
{
	arena_free(all->arena);
	buf_fini(&all->exact);
	buf_fini(&all->as_doubles);
}

static void add_element(struct buf *array, struct span text)
{
	buf_byte(array, array->len ? ',' : '[');
	buf_span(array, text);
}

static void stripped(struct member *member, const struct decimal *decimal)
{
	size_t zeros = strspn(decimal->digits, "0"), len = strlen(decimal->digits);

	while (len > zeros && decimal->digits[len - 1] == '0')
		len--;
	member->digits.at = decimal->digits + zeros;
	member->digits.len = len - zeros;
	member->exp = len > zeros ? decimal->exp - (int)zeros : 0;
	member->negative = len > zeros && decimal->negative;
}

/* As a double, which would be infinite. */
static void check_refused(struct span text)
{
	struct canonical_task task = { .body = text, .numbers = CANONICAL_IEEE754 };
	struct canonical_error error;
	struct to_buf to;

	ck_assert_msg(!canonical_by("json", task, &to, &error), "%s was taken", text.at);
	buf_fini(&to.buf);
}

/* That decimal, spelt so. */
static void add(struct neighbourhood *all, const struct decimal *decimal, struct span text)
{
	struct member *member = &all->members[all->n++];

	assert(all->n <= MEMBERS_MAX);
	stripped(member, decimal);
	member->digits =
		arena_format(all->arena, "%.*s", (int)member->digits.len, member->digits.at);
	member->value = strtod(text.at, NULL);
	member->as_double = SPAN("refused");
	add_element(&all->exact, text);
	if (isinf(member->value))
		check_refused(text);
	else
		add_element(&all->as_doubles, text);
}

/* The canonical array, to be freed with buf_fini. */
static void read_array(struct buf *array, enum canonical_numbers numbers, struct to_buf *to)
{
	struct canonical_task task = { .numbers = numbers };
	struct canonical_error error;

	buf_byte(array, ']');
	task.body = buf_view(array);
	if (!canonical_by("json", task, to, &error))
		ck_abort_msg("refused at %zu: %s", error.offset, error.expected);
	buf_byte(&to->buf, 0);
}

static const char *read_element(struct arena *arena, const char *at, struct span *element)
{
	size_t len = strcspn(at + 1, ",]");

	*element = arena_format(arena, "%.*s", (int)len, at + 1);
	return at + 1 + len;
}

static void read_forms(struct neighbourhood *all)
{
	const char *exact = NULL, *as_double = NULL;
	struct to_buf exacts, doubles;

	read_array(&all->exact, CANONICAL_EXACT, &exacts);
	read_array(&all->as_doubles, CANONICAL_IEEE754, &doubles);
	exact = exacts.buf.at;
	as_double = doubles.buf.at;
	for (struct member *member = all->members; member < all->members + all->n; member++) {
		exact = read_element(all->arena, exact, &member->exact);
		if (!isinf(member->value))
			as_double = read_element(all->arena, as_double, &member->as_double);
	}
	if (strcmp(exact, "]") != 0 || strcmp(as_double, "]") != 0)
		ck_abort_msg("%s and %s are left", exact, as_double);
	buf_fini(&exacts.buf);
	buf_fini(&doubles.buf);
}

/* From what printf writes for %e. */
static struct decimal read_decimal(const char *text)
{
	struct decimal decimal = { .negative = text[0] == '-' };
	const char *at = text + decimal.negative, *e = strchr(at, 'e');
	size_t n = 0;

	for (; at < e; at++)
		if (*at != '.')
			decimal.digits[n++] = *at;
	decimal.exp = (int)strtol(e + 1, NULL, 10) + 1;
	return decimal;
}

static struct decimal of_double(double value, int places)
{
	char text[64];

	snprintf(text, sizeof(text), "%.*e", places, value);
	return read_decimal(text);
}

/* One more, or one less, in the last place; zero has nothing below. */
static bool bump(struct decimal *decimal, int by)
{
	char from = by > 0 ? '9' : '0', to = by > 0 ? '0' : '9';
	size_t len = strlen(decimal->digits), at = len;

	if (by < 0 && strspn(decimal->digits, "0") == len)
		return false;
	memmove(decimal->digits + 1, decimal->digits, len + 1);
	decimal->digits[0] = '0';
	decimal->exp++;
	for (; decimal->digits[at] == from; at--)
		decimal->digits[at] = to;
	decimal->digits[at] = (char)(decimal->digits[at] + by);
	return true;
}

static void add_plainly(struct neighbourhood *all, const struct decimal *decimal)
{
	add(all, decimal,
	    arena_format(all->arena, "%s0.%se%d", decimal->negative ? "-" : "", decimal->digits,
			 decimal->exp));
}

static void add_beside(struct neighbourhood *all, struct decimal decimal, int by)
{
	if (bump(&decimal, by))
		add_plainly(all, &decimal);
}

static void add_with_sides(struct neighbourhood *all, struct decimal decimal)
{
	add_plainly(all, &decimal);
	add_beside(all, decimal, 1);
	add_beside(all, decimal, -1);
}

/* Without an exponent. */
static struct span plain(struct arena *arena, const struct decimal *decimal, const char *more)
{
	const char *sign = decimal->negative ? "-" : "", *digits = decimal->digits;
	int n = (int)strlen(digits), exp = decimal->exp;
	char zeros[DIGITS_MAX];

	memset(zeros, '0', sizeof(zeros));
	if (exp <= 0)
		return arena_format(arena, "%s0.%.*s%s%s", sign, -exp, zeros, digits, more);
	if (exp < n)
		return arena_format(arena, "%s%.*s.%s%s", sign, exp, digits, digits + exp,
				    more);
	return arena_format(arena, "%s%s%.*s%s%s", sign, digits, exp - n, zeros,
			    *more ? "." : "", more);
}

static void add_spellings(struct neighbourhood *all, const struct decimal *decimal)
{
	const char *sign = decimal->negative ? "-" : "", *digits = decimal->digits;
	int n = (int)strlen(digits), exp = decimal->exp;
	struct arena *arena = all->arena;

	add(all, decimal, plain(arena, decimal, ""));
	add(all, decimal, plain(arena, decimal, "000"));
	add(all, decimal, plain(arena, decimal, "00e-0"));
	add(all, decimal, arena_format(arena, "%s%se%d", sign, digits, exp - n));
	add(all, decimal, arena_format(arena, "%s%s0000E%+d", sign, digits, exp - n - 4));
	add(all, decimal,
	    arena_format(arena, "%s%c.%s00e%+05d", sign, *digits, digits + 1, exp - 1));
	add(all, decimal, arena_format(arena, "%s0.0000%sE%d", sign, digits, exp + 4));
}

static void add_zeros(struct neighbourhood *all)
{
	static const char *const zeros[] = { "0", "-0", "0.000", "-0e9", "0.0E-300", "0e+400" };
	struct decimal zero = { .digits = "0" };

	for (size_t i = 0; i < ARRAY_LEN(zeros); i++)
		add(all, &zero, span_of(zeros[i]));
}

/* The fewest digits that mean this double. */
static struct decimal shortest(double value)
{
	char text[64];
	int places = -1;

	do
		snprintf(text, sizeof(text), "%.*e", ++places, value);
	while (strtod(text, NULL) != value);
	return read_decimal(text);
}

static void add_doubles(struct neighbourhood *all, double value, double towards)
{
	for (int i = 0; i < 2; i++) {
		value = nextafter(value, towards);
		if (!isinf(value))
			add_with_sides(all, of_double(value, 16));
	}
}

/* The decimal between a double and the next one, exactly: a long double holds it. Beside it in its
 * own last place, and very far down. */
static void add_halfway(struct neighbourhood *all, double value, double towards)
{
	double next = nextafter(value, towards), before = nextafter(value, -towards);
	long double step =
		isinf(next) ? (long double)value - before : (long double)next - value;
	struct decimal half;
	size_t len = 0;
	char text[HALF_PLACES + 64];

	snprintf(text, sizeof(text), "%.*Le", HALF_PLACES, value + step / 2);
	half = read_decimal(text);
	add_with_sides(all, half);
	len = strlen(half.digits);
	while (half.digits[len - 1] == '0')
		len--;
	half.digits[len] = 0;
	add_with_sides(all, half);
}

static bool same_decimal(const struct member *a, const struct member *b)
{
	return a->exp == b->exp && a->negative == b->negative &&
	       span_equal(a->digits, b->digits);
}

/* True for two decimals that are one double. No ck_assert: there are millions of pairs. */
static bool check_pair(const struct member *a, const struct member *b)
{
	bool exact = span_equal(a->exact, b->exact), same = same_decimal(a, b);
	bool one_double = span_equal(a->as_double, b->as_double);

	if (exact && !one_double)
		ck_abort_msg("%s is one decimal, and %s and %s", a->exact.at, a->as_double.at,
			     b->as_double.at);
	if (exact != same)
		ck_abort_msg("%s and %s: %s", a->exact.at, b->exact.at,
			     same ? "one decimal" : "two decimals");
	if (one_double != (a->value == b->value))
		ck_abort_msg("%s became %s, and %s became %s", a->exact.at, a->as_double.at,
			     b->exact.at, b->as_double.at);
	return one_double && !exact;
}

static void check_around(double value)
{
	struct neighbourhood all;
	struct decimal decimal = of_double(value, 16), rounded = of_double(value, 14);
	size_t collapsed = 0;

	init(&all);
	if (value == 0)
		add_zeros(&all);
	else
		add_spellings(&all, &decimal);
	add_with_sides(&all, decimal);
	add_with_sides(&all, shortest(value));
	add_plainly(&all, &rounded);
	add_doubles(&all, value, INFINITY);
	add_doubles(&all, value, -INFINITY);
	if (LDBL_MANT_DIG > DBL_MANT_DIG) {
		add_halfway(&all, value, INFINITY);
		add_halfway(&all, value, -INFINITY);
	}
	read_forms(&all);
	for (size_t i = 0; i < all.n; i++)
		for (size_t j = 0; j < i; j++)
			collapsed += check_pair(&all.members[i], &all.members[j]);
	ck_assert_uint_gt(collapsed, 0); /* doubles that are equal are not equal exactly */
	fini(&all);
}

START_TEST(neighbours_of_any_double_are_told_apart_exactly)
{
	uint64_t bits = UINT64_C(0x2545f4914f6cdd1d);

	for (unsigned i = 0; i < 400; i++) {
		double value = 0;

		bits = bits * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		memcpy(&value, &bits, sizeof(value));
		if (isfinite(value))
			check_around(value);
	}
}
END_TEST

START_TEST(neighbours_of_amounts_are_told_apart_exactly)
{
	for (unsigned cents = 1; cents < 40000; cents += 97) {
		check_around(cents / 100.0);
		check_around(-1e9 - cents / 1000.0);
	}
}
END_TEST

START_TEST(neighbours_at_the_bounds_are_told_apart_exactly)
{
	static const double bounds[] = { 0,       1,      DBL_MIN,
					 DBL_MAX, 1e21,   1e-7,
					 1e23,    0x1p53, 9007199254740993.0,
					 0x1p63,  0x1p64, 0x1p-1074,
					 0x1p970, 0.1,    DBL_MIN - 0x1p-1074 };

	for (size_t i = 0; i < ARRAY_LEN(bounds); i++) {
		check_around(bounds[i]);
		check_around(-bounds[i]);
	}
}
END_TEST

/* Lines of "bits,number". */
START_TEST(neighbours_of_ten_thousand_numbers_are_told_apart_exactly)
{
	const char *folder = getenv("ONCEWARD_CORPORA");
	char path[1024], line[128];
	size_t n = 0;
	FILE *in = NULL;

	snprintf(path, sizeof(path), "%s/json-canonicalization/testdata/es6testfile_10000.txt",
		 folder ? folder : "../shared/corpora");
	in = fopen(path, "r");
	if (!in)
		fprintf(stderr, "skipped: no %s\n", path);
	for (; in && fgets(line, sizeof(line), in); n++) {
		uint64_t bits = strtoull(line, NULL, 16);
		double value = 0;

		memcpy(&value, &bits, sizeof(value));
		check_around(value);
	}
	if (in)
		fclose(in);
	ck_assert(!in || n == 10000);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		neighbours_of_any_double_are_told_apart_exactly,
		neighbours_of_amounts_are_told_apart_exactly,
		neighbours_at_the_bounds_are_told_apart_exactly,
		neighbours_of_ten_thousand_numbers_are_told_apart_exactly,
	};

	return run("canonical neighbours", tests, ARRAY_LEN(tests));
}
