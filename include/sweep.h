/*
 * Leases that ran out (DESIGN 5): records without an event whose lease is over are unknown for every
 * reader at once; the sweep puts them on the attention list, so that people and recovery find them. Also keeps the
 * day partitions made ahead, and counts the attention list for the metrics. Lives in the office, on its own connection.
 */
#pragma once
#include "loop.h"
#include "metrics.h"
#include "settings.h"

struct sweep;
struct spool;
struct sweep *sweep_new(struct loop *loop, struct metrics *metrics,
			const struct settings *settings);
/* Before its first turn: what earlier processes left there is settled as well. NULL: none. */
void sweep_spool(struct sweep *sweep, struct spool *spool);
void sweep_free(struct sweep *sweep);
void sweep_follow(struct sweep *sweep, const struct settings *settings);
void sweep_flush(struct sweep *sweep); /* once a turn */
int sweep_days_left(
	const struct sweep *
		sweep); /* days made ahead of the largest retention's need; -1: not known yet */
