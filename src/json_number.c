/*
 * JSON numbers, exactly: a number is a decimal of any size, never a double.
 *
 * The canonical spelling. Let the value be D x 10^E, D an integer without zeros at its end. It is
 * written either plainly (1200, 0.05, 12.5) or as D, "e" and E (12e7, 5e-3), whichever is
 * shorter, and plainly where both are equally long; zero, also a negative one, is 0. So equal
 * values are spelt alike, others differ, and no spelling of a value is shorter than this one.
 *
 * The limits. At most 1,000 digits, as written, not counting zeros at the beginning; and the
 * exponent that the first of them has in scientific notation lies within +-9,999. So 1e9999,
 * 0.1e10000 and 0e77777 are numbers, 10e9999 is not.
 */
#include "json_reader.h"

#include <assert.h>

#define DIGITS_MAX   1000U
#define EXPONENT_MAX 9999

/* What was written: [-] whole [. fraction] [e exponent]. */
struct written {
	struct span whole, fraction;
	int64_t exponent;
	bool negative, scientific;
};

static inline bool is_digit(const char *at, const char *end)
{
	return at < end && *at >= '0' && *at <= '9';
}

/* The digits at `at`, perhaps none. */
static inline struct span digits_at(const char *at, const char *end)
{
	const char *start = at;

	while (is_digit(at, end))
		at++;
	return (struct span){ start, (size_t)(at - start) };
}

/* Where no body is long enough to bring the value back into the limits, it stops counting. */
static int64_t exponent_of(struct span digits)
{
	int64_t value = 0;

	for (size_t i = 0; i < digits.len && value < INT64_C(1000000000000); i++)
		value = value * 10 + (digits.at[i] - '0');
	return value;
}

static const char *read_exponent(struct reader_io *io, const char *at, struct written *w)
{
	bool negative = at < io->end && *at == '-';
	struct span digits = { 0 };

	w->scientific = true;
	if (negative || (at < io->end && *at == '+'))
		at++;
	digits = digits_at(at, io->end);
	if (!digits.len)
		return reader_wrong(io, at, "a digit of the exponent");
	w->exponent = negative ? -exponent_of(digits) : exponent_of(digits);
	return at + digits.len;
}

static const char *read_fraction(struct reader_io *io, const char *at, struct written *w)
{
	w->fraction = digits_at(at, io->end);
	if (!w->fraction.len)
		return reader_wrong(io, at, "a digit after the point");
	return at + w->fraction.len;
}

static const char *read_written(struct reader_io *io, const char *at, struct written *w)
{
	*w = (struct written){ .negative = *at == '-' };
	if (w->negative)
		at++;
	if (!is_digit(at, io->end))
		return reader_wrong(io, at, "a digit");
	w->whole = *at == '0' ? (struct span){ at, 1 } : digits_at(at, io->end);
	at += w->whole.len;
	w->fraction.at = at; /* none */
	if (at < io->end && *at == '.')
		at = read_fraction(io, at + 1, w);
	if (at && at < io->end && (*at | 0x20) == 'e')
		at = read_exponent(io, at + 1, w);
	return at;
}

/* Is it spelt canonically, beyond doubt? Most numbers are, and are simply copied. */
static inline bool as_it_stands(const struct written *w)
{
	struct span whole = w->whole, fraction = w->fraction;

	if (w->scientific || whole.len + fraction.len > DIGITS_MAX)
		return false;
	if (!fraction.len && whole.len == 1)
		return whole.at[0] != '0' || !w->negative;
	if (!fraction.len) /* two zeros at the end are shorter than e2 is, or as long */
		return whole.len < 4 || whole.at[whole.len - 1] != '0' ||
		       whole.at[whole.len - 2] != '0';
	return fraction.at[fraction.len - 1] != '0' &&
	       (whole.at[0] != '0' || fraction.at[0] != '0');
}

static size_t zeros_before(struct span digits)
{
	size_t n = 0;

	while (n < digits.len && digits.at[n] == '0')
		n++;
	return n;
}

static size_t zeros_behind(struct span digits)
{
	size_t n = 0;

	while (n < digits.len && digits.at[digits.len - 1 - n] == '0')
		n++;
	return n;
}

static struct span without(struct span digits, size_t before, size_t behind)
{
	return (struct span){ digits.at + before, digits.len - before - behind };
}

/* False where the number is beyond the limits. Zero becomes a decimal without digits. */
static bool reduce(const struct written *w, struct reader_decimal *d)
{
	size_t behind = 0;
	int64_t scientific = 0;

	*d = (struct reader_decimal){ w->whole, w->fraction,
				      w->exponent - (int64_t)w->fraction.len, w->negative };
	d->high = without(d->high, zeros_before(d->high), 0);
	if (!d->high.len)
		d->low = without(d->low, zeros_before(d->low), 0);
	if (d->high.len + d->low.len > DIGITS_MAX)
		return false;
	behind = zeros_behind(d->low);
	d->low = without(d->low, 0, behind);
	d->exponent += (int64_t)behind;
	if (!d->low.len) {
		behind = zeros_behind(d->high);
		d->high = without(d->high, 0, behind);
		d->exponent += (int64_t)behind;
	}
	if (d->high.len + d->low.len == 0)
		return true;
	scientific = d->exponent + (int64_t)(d->high.len + d->low.len) - 1;
	return scientific >= -EXPONENT_MAX && scientific <= EXPONENT_MAX;
}

static size_t digits_of(size_t number)
{
	size_t n = 1;

	while (number /= 10)
		n++;
	return n;
}

char *reader_digits(char *out, const struct reader_decimal *d)
{
	if (d->high.len)
		memcpy(out, d->high.at, d->high.len);
	if (d->low.len)
		memcpy(out + d->high.len, d->low.at, d->low.len);
	return out + d->high.len + d->low.len;
}

static char *put_zeros(char *out, size_t n)
{
	memset(out, '0', n);
	return out + n;
}

static char *put_unsigned(char *out, size_t number)
{
	size_t len = digits_of(number);

	for (size_t i = len; i > 0; i--, number /= 10)
		out[i - 1] = (char)('0' + number % 10);
	return out + len;
}

/* D, and `shift` zeros, or D e shift. */
static char *put_large(char *out, const struct reader_decimal *d, size_t shift)
{
	out = reader_digits(out, d);
	if (shift <= 1 + digits_of(shift))
		return put_zeros(out, shift);
	*out++ = 'e';
	return put_unsigned(out, shift);
}

/* `shift` of D's digits stand behind the point; or D e -shift. */
static char *put_small(char *out, const struct reader_decimal *d, size_t shift)
{
	size_t n = d->high.len + d->low.len;
	char *end = NULL;

	if (n > shift) {
		end = reader_digits(out, d);
		memmove(end - shift + 1, end - shift, shift);
		end[-(ptrdiff_t)shift] = '.';
		return end + 1;
	}
	if (shift <= n + digits_of(shift)) {
		out[0] = '0';
		out[1] = '.';
		return reader_digits(put_zeros(out + 2, shift - n), d);
	}
	end = reader_digits(out, d);
	end[0] = 'e';
	end[1] = '-';
	return put_unsigned(end + 2, shift);
}

static char *put_decimal(char *out, const struct reader_decimal *d)
{
	if (d->high.len + d->low.len == 0) {
		*out = '0';
		return out + 1;
	}
	if (d->negative)
		*out++ = '-';
	return d->exponent < 0 ? put_small(out, d, (size_t)-d->exponent)
			       : put_large(out, d, (size_t)d->exponent);
}

static const char *beyond(struct reader_io *io, const char *at)
{
	return reader_wrong(io, at,
			    "a number of at most 1,000 digits, its exponent within 9,999");
}

const char *reader_decimal(struct reader_io *io, const char *at, struct reader_decimal *d)
{
	const char *start = at;
	struct written w;

	at = read_written(io, at, &w);
	if (at && !reduce(&w, d))
		return beyond(io, start);
	return at;
}

const char *reader_number(struct reader_io *io, const char *at)
{
	const char *start = at;
	struct written w;
	struct reader_decimal d;
	char *out = NULL;

	at = read_written(io, at, &w);
	if (!at)
		return NULL;
	if (as_it_stands(&w)) {
		memcpy(io->out, start, (size_t)(at - start));
		io->out += at - start;
		return at;
	}
	if (!reduce(&w, &d))
		return beyond(io, start);
	out = put_decimal(io->out, &d);
	assert(out - io->out <= at - start);
	io->out = out;
	return at;
}
