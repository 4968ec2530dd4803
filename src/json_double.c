/*
 * JSON numbers as ECMAScript has them (RFC 8785 3.2.2.3): the double next to what was written,
 * spelt with as few digits as tell it from all other doubles, and of those the nearest.
 *
 * Decimals of at most 15 digits are apart further than doubles are (but for the smallest ones):
 * none of them shares its double with another, so each is its double's shortest spelling, and
 * nothing has to be computed. Else the double's nearest decimal of 15 digits is tried, then of
 * 16, then of 17, which always suffices. A power of two has its lower neighbour nearer than its
 * upper one: there the decimal above may do where the nearest one, below, does not. The smallest
 * doubles are all as far apart as the smallest of them is from 0, so that where the first digit
 * stands says how many digits there can be, but for a few.
 *
 * A number that no double is near enough to (1e400) is refused; one that is too small is 0.
 */
#include "json_reader.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define EXACT_DIGITS   15U
#define EXACT_EXPONENT 300 /* of the first digit; far from where doubles end or lose bits */
#define DIGITS_MAX     17U
#define TEXT_MAX       1040U  /* a thousand digits and an exponent */
#define SMALLEST_POINT (-322) /* the digits that tell it are as many more, or one or two */
#define GROWTH         17U    /* 1e20 becomes 21 digits; nothing with an exponent grows more */
#define CARRY_DIGITS   16U /* 9999999999999999 becomes 10000000000000000; fewer digits stay */

/* 0.D x 10^point */
struct shortest {
	char digits[DIGITS_MAX];
	size_t n;
	int64_t point;
};

size_t reader_double_growth(struct span body)
{
	size_t n = 0;

	for (size_t i = 1; i < body.len; i++)
		n += (body.at[i] | 0x20) == 'e' && body.at[i - 1] >= '0' &&
		     body.at[i - 1] <= '9';
	return n * GROWTH + body.len / CARRY_DIGITS;
}

static double to_double(const char *digits, size_t n, int64_t exponent)
{
	char text[TEXT_MAX];

	assert(n + 32 < sizeof(text));
	memcpy(text, digits, n);
	snprintf(text + n, sizeof(text) - n, "e%lld", (long long)exponent);
	return strtod(text, NULL);
}

static bool stands_for(const struct shortest *s, double value)
{
	return to_double(s->digits, s->n, s->point - (int64_t)s->n) == value;
}

/* The nearest decimal of `n` digits. */
static void nearest(double value, size_t n, struct shortest *s)
{
	char text[DIGITS_MAX + 16];
	char *exponent = NULL;

	snprintf(text, sizeof(text), "%.*e", (int)n - 1, value);
	s->digits[0] = text[0];
	if (n > 1)
		memcpy(s->digits + 1, text + 2, n - 1);
	s->n = n;
	exponent = strchr(text, 'e');
	assert(exponent);
	s->point = strtol(exponent + 1, NULL, 10) + 1;
}

/* The next decimal above, of as many digits; false where it is nearest's. */
static bool step_up(struct shortest *s)
{
	size_t i = s->n;

	while (i > 0 && s->digits[i - 1] == '9')
		s->digits[--i] = '0';
	if (i == 0)
		return false;
	s->digits[i - 1]++;
	return true;
}

static bool try_digits(double value, size_t n, struct shortest *s)
{
	nearest(value, n, s);
	return stands_for(s, value) || (step_up(s) && stands_for(s, value));
}

static void shorten(double value, struct shortest *s)
{
	size_t n = EXACT_DIGITS;

	if (value < 0x1p-1022)
		n = s->point > SMALLEST_POINT ? (size_t)(s->point - SMALLEST_POINT) : 1;
	if (n > EXACT_DIGITS)
		n = EXACT_DIGITS;
	while (n < DIGITS_MAX && !try_digits(value, n, s))
		n++;
	if (n == DIGITS_MAX)
		nearest(value, n, s);
	while (s->n > 1 && s->digits[s->n - 1] == '0')
		s->n--;
}

/* ECMAScript's Number::toString, of a number above 0. */
static char *spell(char *out, const struct shortest *s)
{
	int64_t n = (int64_t)s->n, point = s->point;
	size_t before = (size_t)(point > 0 && point < n ? point : n);

	if (point > 21 || point < -5) {
		*out++ = s->digits[0];
		if (n > 1)
			*out++ = '.';
		memcpy(out, s->digits + 1, s->n - 1);
		out += n - 1;
		return out + snprintf(out, 8, "e%+lld", (long long)(point - 1));
	}
	if (point <= 0) {
		*out++ = '0';
		*out++ = '.';
		memset(out, '0', (size_t)-point);
		out -= point;
		memcpy(out, s->digits, s->n);
		return out + n;
	}
	memcpy(out, s->digits, before);
	out += before;
	if (point < n) {
		*out++ = '.';
		memcpy(out, s->digits + before, s->n - before);
		return out + (s->n - before);
	}
	memset(out, '0', (size_t)(point - n));
	return out + (point - n);
}

/* False where it is beyond all doubles. Zero has no digits. */
static bool shortest_of(const struct reader_decimal *d, struct shortest *s)
{
	char digits[TEXT_MAX];
	double value = 0;

	s->n = d->high.len + d->low.len;
	s->point = d->exponent + (int64_t)s->n;
	if (s->n <= EXACT_DIGITS && s->point <= EXACT_EXPONENT && s->point >= -EXACT_EXPONENT) {
		reader_digits(s->digits, d);
		return true;
	}
	reader_digits(digits, d);
	value = to_double(digits, s->n, d->exponent);
	s->n = 0;
	if (value > 0 && !isinf(value))
		shorten(value, s);
	return !isinf(value);
}

const char *reader_double(struct reader_io *io, const char *at)
{
	const char *start = at;
	struct reader_decimal d;
	struct shortest s;

	at = reader_decimal(io, at, &d);
	if (!at)
		return NULL;
	if (!shortest_of(&d, &s))
		return reader_wrong(io, start, "a number that a double can hold");
	if (s.n == 0) {
		*io->out++ = '0';
		return at;
	}
	if (d.negative)
		*io->out++ = '-';
	io->out = spell(io->out, &s);
	return at;
}
