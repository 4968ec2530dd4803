/*
 * Counters, gauges and histograms of metrics.def, one set a thread, written without locks and
 * added up when somebody asks (Prometheus text, CONTRACT 16). Label values come from closed
 * lists: never keys, accounts or paths.
 */
#pragma once
#include "mem.h"

/* A build that breaks a promise on purpose, for tests of the tests, says so wherever it names itself. */
#ifndef ONCEWARD_BROKEN
#define ONCEWARD_BROKEN ""
#endif
#define ONCEWARD_VERSION "0.1.0" ONCEWARD_BROKEN

enum metric {
#define METRIC(name, kind, labels, help) METRIC_##name,
#include "metrics.def"
#undef METRIC
	METRIC_COUNT
};

struct metrics;
/* One a thread. When it is freed its counts stay in the sums, and its gauges go. */
struct metrics *metrics_new(void);
/* One that no sum shows: for what is counted alike and is not what the metrics speak of. */
struct metrics *metrics_new_apart(void);
void metrics_free(struct metrics *metrics);

/* `label`: see metrics.def; 0 where there is none. For (operation, verdict): METRICS_PAIR. */
void metrics_add(struct metrics *metrics, enum metric metric, unsigned label, uint64_t n);
/* A gauge; those of all threads are added up. */
void metrics_set(struct metrics *metrics, enum metric metric, unsigned label, int64_t value);
void metrics_observe(struct metrics *metrics, enum metric metric, unsigned label,
		     int64_t microseconds);
/* for histograms that count things (ledger_batch_rows) */
void metrics_observe_count(struct metrics *metrics, enum metric metric, unsigned label,
			   uint64_t n);

/* The label of an operation's name: process-wide, the same after a reload. 0 is "-": no operation.
 * At most METRICS_OPERATIONS; beyond, all share the last, "other". */
#define METRICS_OPERATIONS 512U
unsigned metrics_operation(const char *name);
#define METRICS_PAIR(operation, verdict) ((operation)*64U + (verdict))

/* ledger_seconds{step} */
enum metrics_step { STEP_RESERVE, STEP_READ, STEP_SETTLE, STEP_COUNT };
/* unknown_total{cause} */
enum metrics_cause {
	CAUSE_TIMEOUT,
	CAUSE_CUT_OFF,
	CAUSE_MALFORMED,
	CAUSE_STATUS,
	CAUSE_SETTLE,
	CAUSE_LEASE,
	CAUSE_NOT_SENT, /* of a resend: the attempt before it is as unknown as it was */
	CAUSE_COUNT
};
/* operations_stopped{reason}; the last is what a later version may write */
enum metrics_stop {
	STOP_DUPLICATE_EFFECT,
	STOP_LATE_EFFECT,
	STOP_REPLAY_MISMATCH,
	STOP_HISTORY_LOST,
	STOP_UNKNOWN_AGE,
	STOP_OPERATOR,
	STOP_OTHER,
	STOP_COUNT
};
/* The reason as it stands in the ledger. */
const char *metrics_stop_name(enum metrics_stop reason);
/* lookups_total{result} */
enum metrics_looked {
	LOOKED_FOUND,
	LOOKED_PENDING,
	LOOKED_NOT_FOUND,
	LOOKED_RELEASED,
	LOOKED_FAILED,
	LOOKED_CONTROL_FAILED,
	LOOKED_COUNT
};

/* All threads' sums, in Prometheus text exposition format 0.0.4. */
void metrics_render(struct buf *out);
