/*
 * Durations and sizes, read and written with their units. A number without a unit is no duration:
 * nobody has to remember whether it was seconds.
 */
#include "settings_internal.h"

#include <stdlib.h>

struct named_unit {
	const char *name;
	int64_t worth;
};

/* The smallest first; as many of each. */
#define N_UNITS 5
static const struct named_unit named[][N_UNITS] = {
	[UNIT_TIME] = { { "ms", 1 },
			{ "s", 1000 },
			{ "m", 60000 },
			{ "h", 3600000 },
			{ "d", 86400000 } },
	[UNIT_SIZE] = { { "B", 1 },
			{ "KiB", INT64_C(1) << 10 },
			{ "MiB", INT64_C(1) << 20 },
			{ "GiB", INT64_C(1) << 30 },
			{ "TiB", INT64_C(1) << 40 } },
};

bool settings_measure(const char *text, enum unit unit, int64_t *out)
{
	size_t digits = strspn(text, "0123456789");
	int64_t number = digits > 18 ? 0 : strtoll(text, NULL, 10);

	if (digits == 0 || digits > 18)
		return false;
	for (size_t i = 0; i < N_UNITS; i++)
		if (strcmp(text + digits, named[unit][i].name) == 0)
			return !__builtin_mul_overflow(number, named[unit][i].worth, out);
	return false;
}

void settings_put_measure(struct buf *out, int64_t value, enum unit unit)
{
	size_t i = N_UNITS - 1;

	while (i > 0 && (value == 0 || value % named[unit][i].worth != 0))
		i--;
	if (value == 0 && unit == UNIT_TIME)
		i = 1; /* people write "0s" */
	buf_format(out, "%lld%s", (long long)(value / named[unit][i].worth),
		   named[unit][i].name);
}
