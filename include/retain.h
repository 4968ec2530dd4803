/*
 * Retention (CONTRACT 12): drops days whose responses are over, walks over keys behind their tombstones,
 * pushes erasures on. In small steps, in the office, on a connection of its own; of many gateways
 * one does each task at a time. What goes, and in which order, stands in sql/schema/0003.sql.
 *
 * Nothing goes while PostgreSQL's clock and this machine's differ by more than a minute.
 */
#pragma once
#include "loop.h"
#include "metrics.h"
#include "settings.h"

#define RETAIN_CLOCKS_APART_MS INT64_C(60000)

struct retain;
/* clock_ms: this machine's clock, milliseconds since 1970; retain_clock_ms but for a test. */
struct retain *retain_new(struct loop *loop, struct metrics *metrics,
			  const struct settings *settings, int64_t (*clock_ms)(void));
void retain_free(struct retain *retain);
void retain_follow(struct retain *retain, const struct settings *settings);
void retain_flush(struct retain *retain); /* once a turn */
/* Why nothing is purged at present; NULL: all is well. */
const char *retain_stopped(const struct retain *retain);

int64_t retain_clock_ms(void);
/* How long after its end a day is left alone: longer than any lease and settle; at least an hour. */
int64_t retain_grace_ms(const struct settings *settings);

/* The columns of a step of retain_parts and purge_parts, and what it did; as in sql/schema/0003.sql. */
enum retain_parts_column {
	PARTS_DOING,
	PARTS_DAY,
	PARTS_PARENT,
	PARTS_NAME,
	PARTS_RECORDS,
	PARTS_LISTED
};
enum retain_parts_doing {
	PARTS_NONE,
	PARTS_MORE,
	PARTS_DETACH, /* now, outside of any transaction */
	PARTS_GONE,
	PARTS_OTHERS, /* somebody else is at it */
	PARTS_LATER   /* a record of that day is under way */
};
#define RETAIN_DETACH_MAX 160U
/* The statement that PARTS_DETACH asks for. */
void retain_detach_text(char out[RETAIN_DETACH_MAX], struct span parent, struct span name);
