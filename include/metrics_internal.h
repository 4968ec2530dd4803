/* What the two files of the metrics share, the counting and the text; nobody else includes it. */
#pragma once
#include "metrics.h"

#include <stdatomic.h>
#include <time.h>

struct metrics_bound {
	uint64_t most;
	const char *text; /* le */
};

enum metrics_kind { KIND_counter, KIND_gauge, KIND_seconds, KIND_rows };

/* A series is one cell; of a histogram: one for each bound, one for what is above, the sum. */
struct metrics_kind_is {
	const char *type;
	const struct metrics_bound *bounds;
	unsigned n_bounds, cells;
};
extern const struct metrics_kind_is metrics_kinds[];

enum metrics_labels {
	LABELS_none,
	LABELS_operation,
	LABELS_operation_verdict,
	LABELS_step,
	LABELS_cause,
	LABELS_stop,
	LABELS_lookup,
	LABELS_version
};

/* Two labels at most: an operation, which chooses the row, and a word of a closed list. */
struct metrics_labels_are {
	const char *name; /* of the second; NULL: there is none */
	const char *const *words;
	unsigned n; /* series in a row */
	bool operation;
};
extern const struct metrics_labels_are metrics_labels[];

struct metrics_description {
	const char *name, *help;
	enum metrics_kind kind;
	enum metrics_labels labels;
};
extern const struct metrics_description metrics_descriptions[METRIC_COUNT];

struct metrics_cell {
	atomic_uint_fast64_t n;
};
struct metrics_row {
	_Atomic(struct metrics_cell *) cells; /* NULL until something was counted here */
};
struct metrics {
	struct list link;
	bool apart;
	struct metrics_row
		*rows[METRIC_COUNT]; /* by operation; one where the metric has none */
};

unsigned metrics_rows(enum metric metric);
static inline unsigned metrics_cells(enum metric metric)
{
	return metrics_kinds[metrics_descriptions[metric].kind].cells;
}
static inline struct metrics_cell *metrics_peek(const struct metrics *set, enum metric metric,
						unsigned row)
{
	return atomic_load_explicit(&set->rows[metric][row].cells, memory_order_acquire);
}
static inline uint64_t metrics_get(const struct metrics_cell *cell)
{
	return atomic_load_explicit(&cell->n, memory_order_relaxed);
}

/* What all threads have counted: a set of the caller's own, in which each metric without labels
 * has its row. */
struct metrics *metrics_sums(void);
void metrics_sums_free(struct metrics *sums);
const char *metrics_operation_name(unsigned operation);
struct timespec metrics_began(void); /* when the first thread registered */
