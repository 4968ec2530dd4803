/*
 * What was counted, as Prometheus reads it (text exposition format 0.0.4): HELP and TYPE once
 * for each metric, all its series behind them, and what every program says about its process.
 *
 * A series with labels is there once it has occurred; one without is there from the start, so
 * that an alert on it never looks at nothing. A histogram agrees with itself: its count is the
 * sum of the buckets that were read.
 */
#include "metrics.h"

#include "metrics_internal.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void put_escaped(struct buf *out, const char *text)
{
	for (; *text; text++) {
		if (*text == '\n') {
			buf_text(out, "\\n");
			continue;
		}
		if (*text == '\\' || *text == '"')
			buf_byte(out, '\\');
		buf_byte(out, *text);
	}
}

/* A sample's name and labels; what is between the braces is gathered by the caller. */
static void put_name(struct buf *out, enum metric metric, const char *suffix)
{
	buf_text(out, "onceward_");
	buf_text(out, metrics_descriptions[metric].name);
	buf_text(out, suffix);
}

static void put_label(struct buf *out, const char *name, const char *value)
{
	buf_byte(out, out->len ? ',' : '{');
	buf_text(out, name);
	buf_text(out, "=\"");
	put_escaped(out, value);
	buf_byte(out, '"');
}

/* `labels` is "" or "{name="value"", still open. */
static void put_labels(struct buf *out, const struct buf *labels, const char *le)
{
	size_t open = labels->len;

	buf_span(out, buf_view(labels));
	if (le)
		buf_format(out, "%sle=\"%s\"", open ? "," : "{", le);
	buf_text(out, open || le ? "} " : " ");
}

static void put_value(struct buf *out, enum metrics_kind kind, uint64_t value)
{
	if (kind == KIND_gauge)
		buf_format(out, "%" PRId64 "\n", (int64_t)value);
	else if (kind == KIND_seconds)
		buf_format(out, "%" PRIu64 ".%06" PRIu64 "\n", value / 1000000,
			   value % 1000000);
	else
		buf_format(out, "%" PRIu64 "\n", value);
}

static void put_histogram(struct buf *out, enum metric metric, const struct buf *labels,
			  const struct metrics_cell *cells)
{
	enum metrics_kind kind = metrics_descriptions[metric].kind;
	uint64_t count = 0;

	for (unsigned i = 0; i <= metrics_kinds[kind].n_bounds; i++) {
		count += metrics_get(&cells[i]);
		put_name(out, metric, "_bucket");
		put_labels(out, labels,
			   i < metrics_kinds[kind].n_bounds ? metrics_kinds[kind].bounds[i].text
							    : "+Inf");
		buf_format(out, "%" PRIu64 "\n", count);
	}
	put_name(out, metric, "_sum");
	put_labels(out, labels, NULL);
	put_value(out, kind, metrics_get(&cells[metrics_kinds[kind].n_bounds + 1]));
	put_name(out, metric, "_count");
	put_labels(out, labels, NULL);
	buf_format(out, "%" PRIu64 "\n", count);
}

/* Has anything been counted here? A gauge that was set says its value, also where it is 0. */
static bool occurred(enum metric metric, const struct metrics_cell *cells)
{
	bool any = metrics_descriptions[metric].kind == KIND_gauge;

	for (unsigned i = 0; !any && i < metrics_cells(metric); i++)
		any = metrics_get(&cells[i]) != 0;
	return any;
}

static void put_series(struct buf *out, enum metric metric, const struct buf *labels,
		       const struct metrics_cell *cells)
{
	enum metrics_kind kind = metrics_descriptions[metric].kind;

	if (metrics_kinds[kind].bounds) {
		put_histogram(out, metric, labels, cells);
		return;
	}
	put_name(out, metric, "");
	put_labels(out, labels, NULL);
	put_value(out, kind, metrics_get(cells));
}

static void put_row(struct buf *out, enum metric metric, unsigned row,
		    const struct metrics_cell *cells)
{
	enum metrics_labels space = metrics_descriptions[metric].labels;
	struct buf labels;

	buf_init(&labels, 1024);
	for (unsigned word = 0; word < metrics_labels[space].n; word++) {
		const struct metrics_cell *at = &cells[(size_t)word * metrics_cells(metric)];
		if (space != LABELS_none && !occurred(metric, at))
			continue;
		buf_clear(&labels);
		if (metrics_labels[space].operation)
			put_label(&labels, "operation", metrics_operation_name(row));
		if (metrics_labels[space].name)
			put_label(&labels, metrics_labels[space].name,
				  metrics_labels[space].words[word]);
		put_series(out, metric, &labels, at);
	}
	buf_fini(&labels);
}

static void put_head(struct buf *out, const char *name, const char *help, const char *type)
{
	buf_format(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_metric(struct buf *out, enum metric metric, const struct metrics *sums)
{
	char name[96];

	snprintf(name, sizeof(name), "onceward_%s", metrics_descriptions[metric].name);
	put_head(out, name, metrics_descriptions[metric].help,
		 metrics_kinds[metrics_descriptions[metric].kind].type);
	for (unsigned row = 0; row < metrics_rows(metric); row++) {
		const struct metrics_cell *cells = metrics_peek(sums, metric, row);
		if (cells)
			put_row(out, metric, row, cells);
	}
}

/* The second number of statm counts pages; 0 where /proc is not there. */
static uint64_t resident_bytes(void)
{
	char text[128] = "";
	char *at = text;
	int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return 0;
	if (read(fd, text, sizeof(text) - 1) < 0)
		text[0] = 0;
	close(fd);
	(void)strtoull(at, &at, 10);
	return strtoull(at, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* What every program says of itself, under the names that dashboards expect. */
static void put_process(struct buf *out)
{
	struct timespec began = metrics_began();
	struct timespec cpu;

	put_head(out, "process_start_time_seconds", "When the process began, since 1970",
		 "gauge");
	buf_format(out, "process_start_time_seconds %lld.%03ld\n", (long long)began.tv_sec,
		   began.tv_nsec / 1000000);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
	put_head(out, "process_cpu_seconds_total", "CPU time used, user and system", "counter");
	buf_format(out, "process_cpu_seconds_total %lld.%06ld\n", (long long)cpu.tv_sec,
		   cpu.tv_nsec / 1000);
	put_head(out, "process_resident_memory_bytes", "Memory in RAM", "gauge");
	buf_format(out, "process_resident_memory_bytes %" PRIu64 "\n", resident_bytes());
}

void metrics_render(struct buf *out)
{
	struct metrics *sums = metrics_sums();

	for (unsigned m = 0; m < METRIC_COUNT; m++)
		put_metric(out, m, sums);
	put_process(out);
	metrics_sums_free(sums);
}
