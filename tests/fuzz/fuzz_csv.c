/* Fuzzes the reading of CSV: fields lie in the text or in the arena, and lines are counted forward. */
#include "csv.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	struct arena *arena = arena_new();
	struct csv csv;
	struct csv_record record;
	unsigned line = 0;
	size_t total = 0;

	csv_init(&csv, (struct span){ (const char *)bytes, len });
	while (csv_next(&csv, arena, &record)) {
		assert(record.n >= 1 && record.n <= CSV_FIELDS_MAX && csv.line > line);
		line = csv.line;
		for (size_t i = 0; i < record.n; i++)
			for (size_t at = 0; at < record.at[i].len; at++)
				total += record.at[i].at[at] != 0;
	}
	assert(total <= len && (csv.wrong || csv.rest.len == 0));
	arena_free(arena);
	return 0;
}
