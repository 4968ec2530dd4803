/* Comma-separated values (RFC 4180), a record at a time. Pure. */
#pragma once
#include "mem.h"

#define CSV_FIELDS_MAX 64U

struct csv {
	struct span rest;  /* not read yet */
	unsigned line;     /* of the record that was read last, from 1 */
	unsigned lines;    /* ended so far */
	const char *wrong; /* why reading ended before its time; NULL: it did not */
};
struct csv_record {
	struct span at[CSV_FIELDS_MAX]; /* in the text, or in the arena where it was quoted */
	size_t n;
};

void csv_init(struct csv *csv, struct span text);
/* False: there is no more, or `wrong`. Lines with nothing on them are passed over. */
bool csv_next(struct csv *csv, struct arena *arena, struct csv_record *record) MUST_CHECK;
