/*
 * The back-office thread: the admin listener, the sweep, day partitions made ahead. One a process.
 */
#pragma once
#include "settings.h"
#include "worker.h"

struct office;
struct spool;

struct office_view {
	struct worker *const *workers; /* live as long as the office */
	size_t n;
	struct spool *spool; /* what earlier processes left in it is settled; NULL: none */
};
/* NULL and a sentence where the admin address cannot be bound, or the tokens cannot be read. */
struct office *office_start(const struct settings *settings, const struct office_view *view,
			    char why[256]) MUST_CHECK;
/* From any thread: takes effect between two turns. Tokens that cannot be read any more: the old
 * ones go on, and the log says so. */
void office_follow(struct office *office, const struct settings *settings);
void office_draining(struct office *office); /* /readyz says so from now on */
void office_stop(struct office *office);     /* ends the thread and joins it */
/* Where the admin listener is; NULL: nowhere. */
const char *office_address(const struct office *office);
