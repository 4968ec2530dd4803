/*
 * The sweep's connection and its jobs, one at a time; see sweep.h, sweep_pass.c, sweep_days.c.
 *
 * When a job has ended, the next one is the first of this list that there is something to do
 * for: the days, a partition to make, the round under way, a round or the gauges that are due,
 * resends whose lease ran out and what is unknown for too long, a piece of a pass. A round is due every two seconds, so a lease that ran out is listed within
 * about that; no other job takes longer than a fraction of a second. All gateways sweep: the
 * attention list takes each record once, and who put it there counts it.
 */
#include "sweep_internal.h"

#include "digest.h"
#include "log.h"
#include "mem.h"

#include <assert.h>
#include <stdio.h>

#define ROUND_MS     2000
#define ATTENTION_MS 5000
#define CLAIMS_MS    2000
#define OVERDUE_MS   5000
#define MINUTE_MS    INT64_C(60000)
#define HOUR_MS      3600000
#define DAYS_MS      600000
#define SPOOL_MS     MINUTE_MS
#define BACKENDS_MS  5000
#define PAUSE_MS     1000 /* after a failure */
#define CHUNK_MS     (10 * MINUTE_MS)

static void next(struct sweep *sweep);

int64_t sweep_now(const struct sweep *sweep)
{
	return loop_now(sweep->loop) + sweep->clock_ms;
}

void sweep_clock(struct sweep *sweep, int64_t now_ms)
{
	sweep->clock_ms = now_ms - loop_now(sweep->loop);
}

static int64_t day_of(int64_t ms)
{
	return ms / SWEEP_DAY_MS;
}

bool sweep_concerns(const struct sweep *sweep, int32_t day, int64_t back_ms)
{
	for (size_t i = 0; i < sweep->n_retentions; i++) {
		int64_t newest = sweep_now(sweep) + sweep->retentions[i];

		if (day >= day_of(newest - back_ms) && day <= day_of(newest))
			return true;
	}
	return false;
}

void sweep_days_due(struct sweep *sweep, int64_t in_ms)
{
	sweep->due.days = loop_now(sweep->loop) + in_ms;
}

/* Is it time? Then the next time is set. */
static bool is_due(const struct sweep *sweep, int64_t *due, int64_t every_ms)
{
	if (loop_now(sweep->loop) < *due)
		return false;
	*due = loop_now(sweep->loop) + every_ms;
	return true;
}

void sweep_begin(struct sweep *sweep, enum sweep_job job)
{
	sweep->busy = true;
	sweep->job = job;
	sweep->sent_us = loop_now_us(sweep->loop);
	pg_begin(sweep->pg, &sweep->transaction);
}

void sweep_end(struct sweep *sweep)
{
	pg_end(sweep->pg);
	pg_flush(sweep->pg);
}

static void send_plain(struct sweep *sweep, enum sweep_job job, enum query query)
{
	sweep_begin(sweep, job);
	pg_send(sweep->pg, query, NULL);
	sweep_end(sweep);
}

static void send_claims(struct sweep *sweep)
{
	sweep_begin(sweep, JOB_CLAIMS);
	pg_params_clear(&sweep->params);
	pg_add_int(&sweep->params, PG_INT8, sweep->writer);
	pg_send(sweep->pg, QUERY_sweep_claims, &sweep->params);
	sweep_end(sweep);
}

/* What is unknown: resends that are, again, and records that are for too long. */
static bool send_unknown(struct sweep *sweep)
{
	if (sweep_final_next(sweep))
		return true;
	if (is_due(sweep, &sweep->due.claims, CLAIMS_MS)) {
		send_claims(sweep);
		return true;
	}
	return is_due(sweep, &sweep->due.overdue, OVERDUE_MS) && sweep_overdue_send(sweep);
}

static void begin_passes(struct sweep *sweep)
{
	if (is_due(sweep, &sweep->due.hour, HOUR_MS))
		sweep_passes_begin(sweep, SWEEP_DAY_MS);
	if (is_due(sweep, &sweep->due.minute, MINUTE_MS))
		sweep_passes_begin(sweep, 5 * MINUTE_MS);
}

static bool send_one(struct sweep *sweep)
{
	if (is_due(sweep, &sweep->due.days, DAYS_MS)) {
		send_plain(sweep, JOB_DAYS, QUERY_sweep_days);
		return true;
	}
	if (sweep_make_next(sweep) || sweep_round_next(sweep))
		return true;
	if (is_due(sweep, &sweep->due.round, ROUND_MS)) {
		sweep_round_begin(sweep);
		if (sweep_round_next(sweep))
			return true;
	}
	if (is_due(sweep, &sweep->due.backends, BACKENDS_MS)) {
		send_plain(sweep, JOB_BACKENDS, QUERY_sweep_backends);
		return true;
	}
	if (is_due(sweep, &sweep->due.spool, SPOOL_MS))
		sweep_spool_look(sweep);
	if (sweep_spool_next(sweep))
		return true;
	if (is_due(sweep, &sweep->due.attention, ATTENTION_MS)) {
		send_plain(sweep, JOB_ATTENTION, QUERY_sweep_attention);
		return true;
	}
	if (send_unknown(sweep))
		return true;
	begin_passes(sweep);
	return sweep_slow_next(sweep);
}

static void sooner(int64_t *at, int64_t other)
{
	if (other < *at)
		*at = other;
}

static void next(struct sweep *sweep)
{
	int64_t now = loop_now(sweep->loop), at = sweep->not_before;

	if (sweep->busy || !pg_up(sweep->pg))
		return;
	if (now >= sweep->not_before) {
		if (send_one(sweep))
			return;
		at = sweep->due.days;
		sooner(&at, sweep->due.round);
		sooner(&at, sweep->due.attention);
		sooner(&at, sweep->due.claims);
		sooner(&at, sweep->due.overdue);
		sooner(&at, sweep->due.minute);
		sooner(&at, sweep->due.backends);
		sooner(&at, sweep->due.spool);
	}
	loop_timer(sweep->loop, &sweep->timer, at > now ? at - now : 0);
}

static void due(struct loop_timer *timer)
{
	next(container_of(timer, struct sweep, timer));
}

struct shown {
	int64_t records, oldest_s;
};

/* Operations beyond the labels share one: they are added up before the gauges are set. */
static void gather(const struct pg_rows *rows, struct shown shown[METRICS_OPERATIONS])
{
	for (size_t row = 0; row < pg_rows_count(rows); row++) {
		struct span name = pg_bytes(rows, row, 0);
		char *text = mem_text(name);
		struct shown *one = &shown[metrics_operation(text)];

		one->records += pg_int(rows, row, 1);
		if (pg_int(rows, row, 2) > one->oldest_s)
			one->oldest_s = pg_int(rows, row, 2);
		mem_free(text);
	}
}

static void attention_done(struct sweep *sweep, const struct pg_rows *rows)
{
	struct shown shown[METRICS_OPERATIONS] = { { 0 } };

	gather(rows, shown);
	for (unsigned i = 0; i < METRICS_OPERATIONS; i++) {
		if (!shown[i].records && !sweep->shown[i])
			continue;
		sweep->shown[i] = shown[i].records > 0;
		metrics_set(sweep->metrics, METRIC_unknown_records, i, shown[i].records);
		metrics_set(sweep->metrics, METRIC_oldest_unknown_seconds, i,
			    shown[i].oldest_s);
	}
}

static void claims_done(struct sweep *sweep, const struct pg_rows *rows)
{
	for (size_t row = 0; row < pg_rows_count(rows); row++)
		metrics_add(sweep->metrics, METRIC_unknown_total,
			    METRICS_PAIR(sweep_label(pg_bytes(rows, row, 0)), CAUSE_LEASE),
			    (uint64_t)pg_int(rows, row, 1));
}

static void backends_done(const struct pg_rows *rows)
{
	for (size_t row = 0; row < pg_rows_count(rows); row++)
		log_warning(SWEEP_WHO,
			    "backend %d was ended: for %d s it had waited for the rest of a "
			    "transaction and blocked what it had locked",
			    (int)pg_int(rows, row, 0), (int)pg_int(rows, row, 1));
}

static void take(struct sweep *sweep)
{
	struct pg_rows *const *rows = sweep->transaction.rows;

	switch (sweep->job) {
	case JOB_DAYS:
		sweep_days_done(sweep, rows[0]);
		break;
	case JOB_MAKE_DAY:
	case JOB_MAKE_MONTH:
		sweep_make_done(sweep, rows[0]);
		break;
	case JOB_ROUND:
	case JOB_SLOW:
		sweep_stale_done(sweep, rows[2]);
		break;
	case JOB_FIRST:
		sweep_first_done(sweep, rows[0]);
		break;
	case JOB_ATTENTION:
		attention_done(sweep, rows[0]);
		break;
	case JOB_CLAIMS:
		claims_done(sweep, rows[0]);
		break;
	case JOB_OVERDUE:
		sweep_overdue_done(sweep);
		break;
	case JOB_FINAL:
		sweep_final_done(sweep);
		break;
	case JOB_SPOOL:
		sweep_spool_done(sweep, rows[0]);
		break;
	case JOB_BACKENDS:
		backends_done(rows[0]);
		break;
	case JOB_COUNT:
		break;
	}
}

/* A ledger that refuses the same thing again and again says so once. */
static void failed(struct sweep *sweep)
{
	static const char *const doing[JOB_COUNT] = {
		[JOB_DAYS] = "looking at the day partitions",
		[JOB_MAKE_DAY] = "making a day's partitions",
		[JOB_MAKE_MONTH] = "making a month of the audit table",
		[JOB_ROUND] = "looking for leases that ran out",
		[JOB_FIRST] = "looking for the first record of a day",
		[JOB_SLOW] = "looking for older leases that ran out",
		[JOB_ATTENTION] = "counting the attention list",
		[JOB_CLAIMS] = "looking for resends whose lease ran out",
		[JOB_OVERDUE] = "looking for what is unknown for too long",
		[JOB_FINAL] = "completing a record that was unknown for too long",
		[JOB_SPOOL] = "settling an answer of ledger.spool",
		[JOB_BACKENDS] = "looking for backends that hang",
	};
	char line[256];

	snprintf(line, sizeof(line), "%s: %.200s", doing[sweep->job],
		 sweep->transaction.message);
	if (sweep->transaction.outcome == PG_FAILED && strcmp(line, sweep->said) != 0)
		log_warning(SWEEP_WHO, "%s", line);
	memcpy(sweep->said, line, sizeof(line));
	if (sweep->job == JOB_MAKE_DAY || sweep->job == JOB_MAKE_MONTH)
		sweep_make_failed(sweep);
	else if (sweep->job == JOB_ROUND || sweep->job == JOB_SLOW)
		sweep_stale_failed(sweep);
	else if (sweep->job == JOB_SPOOL)
		sweep_spool_failed(sweep);
	else if (sweep->job == JOB_DAYS)
		sweep_days_due(sweep, PAUSE_MS);
	if (strcmp(sweep->transaction.sqlstate, "25006") == 0)
		pg_drop(sweep->pg, "the server is read-only");
	sweep->not_before = loop_now(sweep->loop) + PAUSE_MS;
}

static void done(struct pg_transaction *transaction)
{
	struct sweep *sweep = container_of(transaction, struct sweep, transaction);

	sweep->busy = false;
	if (transaction->outcome == PG_COMMITTED)
		take(sweep);
	else
		failed(sweep);
	next(sweep);
}

/* A new connection may lead to another server: what is there is looked at first. */
static void up(void *arg)
{
	struct sweep *sweep = arg;

	sweep->due.days = sweep->due.spool = 0;
	next(sweep);
}

static void add_retention(struct sweep *sweep, int64_t retention_ms)
{
	for (size_t i = 0; i < sweep->n_retentions; i++)
		if (sweep->retentions[i] == retention_ms)
			return;
	sweep->retentions = mem_resize(sweep->retentions,
				       (sweep->n_retentions + 1) * sizeof(*sweep->retentions));
	sweep->retentions[sweep->n_retentions++] = retention_ms;
}

/* Records of earlier settings are still there: what these say is added to what those said. */
static void learn(struct sweep *sweep)
{
	for (size_t i = 0; i < sweep->settings->n_routes; i++) {
		const struct idempotency_settings *it = sweep->settings->routes[i].idempotency;

		if (!it)
			continue;
		add_retention(sweep, it->retention);
		if (it->lease < sweep->lease_min_ms)
			sweep->lease_min_ms = it->lease;
		if (it->lease > sweep->lease_max_ms)
			sweep->lease_max_ms = it->lease;
	}
}

struct sweep *sweep_new(struct loop *loop, struct metrics *metrics,
			const struct settings *settings)
{
	struct sweep *sweep = mem_alloc(sizeof(*sweep));
	const char *maintenance = settings->ledger.maintenance_conninfo;
	struct pg_options options = {
		.conninfo = maintenance ? maintenance : settings->ledger.conninfo,
		.prepared = maintenance ? true : settings->ledger.prepared,
		.who = SWEEP_WHO,
		.up = up,
		.arg = sweep
	};

	sweep->loop = loop;
	sweep->metrics = metrics;
	sweep->settings = settings;
	settings_hold(settings);
	sweep->timer.due = due;
	sweep->transaction.done = done;
	pg_params_init(&sweep->params);
	sweep->lease_min_ms = INT64_MAX;
	sweep->chunk_ms = CHUNK_MS;
	sweep->make_month = -1;
	sweep->days_left = -1;
	sweep->due.hour = loop_now(loop) + HOUR_MS;
	random_bytes(&sweep->writer, sizeof(sweep->writer));
	sweep->writer &= INT64_MAX;
	learn(sweep);
	sweep->pg = pg_new(loop, &options);
	return sweep;
}

void sweep_free(struct sweep *sweep)
{
	loop_timer_stop(sweep->loop, &sweep->timer);
	pg_free(sweep->pg);
	loop_timer_stop(sweep->loop, &sweep->timer);
	sweep_overdue_free(sweep);
	pg_params_fini(&sweep->params);
	settings_release(sweep->settings);
	mem_free(sweep->retentions);
	mem_free(sweep->days);
	mem_free(sweep);
}

void sweep_spool(struct sweep *sweep, struct spool *spool)
{
	sweep->spool = spool;
}

void sweep_follow(struct sweep *sweep, const struct settings *settings)
{
	settings_hold(settings);
	settings_release(sweep->settings);
	sweep->settings = settings;
	learn(sweep);
	sweep->due.days = 0;
	next(sweep);
}

void sweep_flush(struct sweep *sweep)
{
	pg_flush(sweep->pg);
}

int sweep_days_left(const struct sweep *sweep)
{
	return sweep->days_left;
}
