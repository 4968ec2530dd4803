/*
 * What the gateway counts. metrics_text.c says it to Prometheus.
 *
 * Each thread has a set of its own and is the only one that counts in it, so counting is a load
 * and a relaxed addition that nobody contends for. A set has a row of cells for each operation,
 * made when the operation is first counted: hundreds of operations times dozens of verdicts
 * times a histogram would be megabytes a thread, nearly all of them never touched.
 *
 * Whoever asks adds up the sets of all threads, and what those that are gone have left behind.
 * A sum is not a snapshot (two counters may be a request apart), but each number only grows.
 *
 * Label values are names that this file or the settings know: never what a client sent.
 */
#include "metrics.h"

#include "metrics_internal.h"

#include <assert.h>
#include <pthread.h>

static const struct metrics_bound seconds_bounds[] = {
	/* in microseconds */
	{ 500, "0.0005" },  { 1000, "0.001" },  { 2500, "0.0025" }, { 5000, "0.005" },
	{ 10000, "0.01" },  { 25000, "0.025" }, { 50000, "0.05" },  { 100000, "0.1" },
	{ 250000, "0.25" }, { 500000, "0.5" },  { 1000000, "1" },   { 2500000, "2.5" },
	{ 5000000, "5" },   { 10000000, "10" }, { 30000000, "30" }, { 60000000, "60" },
};
static const struct metrics_bound rows_bounds[] = {
	{ 1, "1" },       { 2, "2" },       { 4, "4" },       { 8, "8" },     { 16, "16" },
	{ 32, "32" },     { 64, "64" },     { 128, "128" },   { 256, "256" }, { 512, "512" },
	{ 1024, "1024" }, { 2048, "2048" }, { 4096, "4096" },
};

/* In the order of enum verdict and enum problem (problem.h, which stands above this file). */
static const char *const verdict_names[] = {
	"passed",
	"forwarded",
	"replayed",
	"none",
#define PROBLEM(name, code, status, retry, title) code,
#include "problems.def"
#undef PROBLEM
};
static const char *const step_names[] = {
	[STEP_RESERVE] = "reserve",
	[STEP_READ] = "read",
	[STEP_SETTLE] = "settle",
};
static const char *const cause_names[] = {
	[CAUSE_TIMEOUT] = "timeout",     [CAUSE_CUT_OFF] = "cut_off",
	[CAUSE_MALFORMED] = "malformed", [CAUSE_STATUS] = "status",
	[CAUSE_SETTLE] = "settle",       [CAUSE_LEASE] = "lease",
	[CAUSE_NOT_SENT] = "not_sent",
};
static const char *const looked_names[] = {
	[LOOKED_FOUND] = "found",         [LOOKED_PENDING] = "pending",
	[LOOKED_NOT_FOUND] = "not_found", [LOOKED_RELEASED] = "released",
	[LOOKED_FAILED] = "failed",       [LOOKED_CONTROL_FAILED] = "control_failed",
};
static const char *const version_names[] = { ONCEWARD_VERSION };

_Static_assert(ARRAY_LEN(verdict_names) <= 64, "METRICS_PAIR has six bits for the verdict");
_Static_assert(ARRAY_LEN(step_names) == STEP_COUNT, "each step has a name");
_Static_assert(ARRAY_LEN(cause_names) == CAUSE_COUNT, "each cause has a name");
static const char *const stop_names[] = {
	[STOP_DUPLICATE_EFFECT] = "duplicate_effect",
	[STOP_LATE_EFFECT] = "late_effect",
	[STOP_REPLAY_MISMATCH] = "replay_mismatch",
	[STOP_HISTORY_LOST] = "history_lost",
	[STOP_UNKNOWN_AGE] = "unknown_age",
	[STOP_OPERATOR] = "operator",
	[STOP_OTHER] = "other",
};
_Static_assert(ARRAY_LEN(stop_names) == STOP_COUNT, "each reason of a stop has a name");
_Static_assert(ARRAY_LEN(looked_names) == LOOKED_COUNT, "each result has a name");

const struct metrics_kind_is metrics_kinds[] = {
	[KIND_counter] = { "counter", NULL, 0, 1 },
	[KIND_gauge] = { "gauge", NULL, 0, 1 },
	[KIND_seconds] = { "histogram", seconds_bounds, ARRAY_LEN(seconds_bounds),
			   ARRAY_LEN(seconds_bounds) + 2 },
	[KIND_rows] = { "histogram", rows_bounds, ARRAY_LEN(rows_bounds),
			ARRAY_LEN(rows_bounds) + 2 },
};

const struct metrics_labels_are metrics_labels[] = {
	[LABELS_none] = { NULL, NULL, 1, false },
	[LABELS_operation] = { NULL, NULL, 1, true },
	[LABELS_operation_verdict] = { "verdict", verdict_names, ARRAY_LEN(verdict_names),
				       true },
	[LABELS_step] = { "step", step_names, STEP_COUNT, false },
	[LABELS_cause] = { "cause", cause_names, CAUSE_COUNT, true },
	[LABELS_stop] = { "reason", stop_names, STOP_COUNT, false },
	[LABELS_lookup] = { "result", looked_names, LOOKED_COUNT, false },
	[LABELS_version] = { "version", version_names, 1, false },
};

const struct metrics_description metrics_descriptions[METRIC_COUNT] = {
#define METRIC(name, kind, labels, help) { #name, help, KIND_##kind, LABELS_##labels },
#include "metrics.def"
#undef METRIC
};

/* All that threads share. */
static struct {
	pthread_mutex_t lock;
	struct list sets;
	struct metrics *gone; /* what the threads that are gone have counted */
	struct timespec began;
	char *operations[METRICS_OPERATIONS];
	unsigned n_operations;
} process = { .lock = PTHREAD_MUTEX_INITIALIZER, .sets = { &process.sets, &process.sets } };

#define OPERATION_OTHER (METRICS_OPERATIONS - 1)

unsigned metrics_rows(enum metric metric)
{
	return metrics_labels[metrics_descriptions[metric].labels].operation
		       ? METRICS_OPERATIONS
		       : 1;
}

static size_t row_cells(enum metric metric)
{
	return (size_t)metrics_cells(metric) *
	       metrics_labels[metrics_descriptions[metric].labels].n;
}

static struct metrics *set_new(void)
{
	struct metrics *set = mem_alloc(sizeof(*set));

	for (unsigned m = 0; m < METRIC_COUNT; m++)
		set->rows[m] = mem_alloc(metrics_rows(m) * sizeof(*set->rows[m]));
	return set;
}

/* Only the thread whose set it is makes rows, so two never make the same one. */
static struct metrics_cell *row_get(struct metrics *set, enum metric metric, unsigned row)
{
	struct metrics_cell *cells = metrics_peek(set, metric, row);

	if (cells)
		return cells;
	cells = mem_alloc(row_cells(metric) * sizeof(*cells));
	atomic_store_explicit(&set->rows[metric][row].cells, cells, memory_order_release);
	return cells;
}

static void set_free(struct metrics *set)
{
	for (unsigned m = 0; m < METRIC_COUNT; m++) {
		for (unsigned row = 0; row < metrics_rows(m); row++)
			mem_free(metrics_peek(set, m, row));
		mem_free(set->rows[m]);
	}
	mem_free(set);
}

static void cell_add(struct metrics_cell *cell, uint64_t n)
{
	atomic_fetch_add_explicit(&cell->n, n, memory_order_relaxed);
}

/* Adds what `from` has counted; a gauge is true only while its thread lives. */
static void set_fold(struct metrics *into, const struct metrics *from, bool gauges)
{
	for (unsigned m = 0; m < METRIC_COUNT; m++) {
		if (metrics_descriptions[m].kind == KIND_gauge && !gauges)
			continue;
		for (unsigned row = 0; row < metrics_rows(m); row++) {
			const struct metrics_cell *cells = metrics_peek(from, m, row);
			struct metrics_cell *sums = cells ? row_get(into, m, row) : NULL;
			for (size_t i = 0; sums && i < row_cells(m); i++)
				cell_add(&sums[i], metrics_get(&cells[i]));
		}
	}
}

struct metrics *metrics_new(void)
{
	struct metrics *set = set_new();

	pthread_mutex_lock(&process.lock);
	if (!process.gone) {
		process.gone = set_new();
		clock_gettime(CLOCK_REALTIME, &process.began);
	}
	list_append(&process.sets, &set->link);
	pthread_mutex_unlock(&process.lock);
	return set;
}

struct metrics *metrics_new_apart(void)
{
	struct metrics *set = set_new();

	set->apart = true;
	return set;
}

void metrics_free(struct metrics *metrics)
{
	if (!metrics->apart) {
		pthread_mutex_lock(&process.lock);
		list_remove(&metrics->link);
		set_fold(process.gone, metrics, false);
		pthread_mutex_unlock(&process.lock);
	}
	set_free(metrics);
}

/* The first cell of a label's series. */
static struct metrics_cell *series(struct metrics *set, enum metric metric, unsigned label)
{
	enum metrics_labels labels = metrics_descriptions[metric].labels;
	unsigned row = 0;
	unsigned word = label;

	if (metrics_labels[labels].operation) {
		row = metrics_labels[labels].name ? label / METRICS_PAIR(1, 0) : label;
		word = metrics_labels[labels].name ? label % METRICS_PAIR(1, 0) : 0;
	}
	assert(row < metrics_rows(metric) && word < metrics_labels[labels].n);
	return row_get(set, metric, row) + (size_t)word * metrics_cells(metric);
}

void metrics_add(struct metrics *metrics, enum metric metric, unsigned label, uint64_t n)
{
	assert(metrics_descriptions[metric].kind == KIND_counter);
	cell_add(series(metrics, metric, label), n);
}

void metrics_set(struct metrics *metrics, enum metric metric, unsigned label, int64_t value)
{
	assert(metrics_descriptions[metric].kind == KIND_gauge);
	atomic_store_explicit(&series(metrics, metric, label)->n, (uint64_t)value,
			      memory_order_relaxed);
}

static void observe(struct metrics_cell *cells, enum metrics_kind kind, uint64_t value)
{
	unsigned i = 0;

	while (i < metrics_kinds[kind].n_bounds && value > metrics_kinds[kind].bounds[i].most)
		i++;
	cell_add(&cells[i], 1);
	cell_add(&cells[metrics_kinds[kind].n_bounds + 1], value);
}

void metrics_observe(struct metrics *metrics, enum metric metric, unsigned label,
		     int64_t microseconds)
{
	assert(metrics_descriptions[metric].kind == KIND_seconds);
	observe(series(metrics, metric, label), KIND_seconds,
		microseconds > 0 ? (uint64_t)microseconds : 0);
}

void metrics_observe_count(struct metrics *metrics, enum metric metric, unsigned label,
			   uint64_t n)
{
	assert(metrics_descriptions[metric].kind == KIND_rows);
	observe(series(metrics, metric, label), KIND_rows, n);
}

/* Names are kept for good: a reload that brings an operation back goes on with its counts. */
static unsigned operation_find(const char *name)
{
	if (strcmp(name, "-") == 0)
		return 0;
	for (unsigned i = 1; i <= process.n_operations; i++)
		if (strcmp(process.operations[i], name) == 0)
			return i;
	if (strcmp(name, "other") == 0 || process.n_operations + 1 == OPERATION_OTHER)
		return OPERATION_OTHER;
	process.operations[++process.n_operations] = mem_text(span_of(name));
	return process.n_operations;
}

unsigned metrics_operation(const char *name)
{
	unsigned label = 0;

	pthread_mutex_lock(&process.lock);
	label = operation_find(name);
	pthread_mutex_unlock(&process.lock);
	return label;
}

/* What was given out once stays as it is, so only the look-up needs the lock. */
const char *metrics_operation_name(unsigned operation)
{
	const char *name = NULL;

	if (operation == 0)
		return "-";
	if (operation == OPERATION_OTHER)
		return "other";
	pthread_mutex_lock(&process.lock);
	name = process.operations[operation];
	pthread_mutex_unlock(&process.lock);
	assert(name); /* else the label came from nowhere */
	return name;
}

const char *metrics_stop_name(enum metrics_stop reason)
{
	return stop_names[reason];
}

/* What has no labels says 0 before anything has happened. */
static void show_unlabelled(struct metrics *sums)
{
	for (unsigned m = 0; m < METRIC_COUNT; m++)
		if (metrics_descriptions[m].labels == LABELS_none)
			row_get(sums, m, 0);
}

struct metrics *metrics_sums(void)
{
	struct metrics *sums = set_new();

	show_unlabelled(sums);
	pthread_mutex_lock(&process.lock);
	if (process.gone)
		set_fold(sums, process.gone, false);
	for (struct list *at = process.sets.next; at != &process.sets; at = at->next)
		set_fold(sums, container_of(at, struct metrics, link), true);
	pthread_mutex_unlock(&process.lock);
	return sums;
}

void metrics_sums_free(struct metrics *sums)
{
	set_free(sums);
}

struct timespec metrics_began(void)
{
	struct timespec began;

	pthread_mutex_lock(&process.lock);
	began = process.began;
	pthread_mutex_unlock(&process.lock);
	return began;
}
