/*
 * Looking for leases that ran out, stretch by stretch of op_ids; see sweep_internal.h.
 *
 * The round, every two seconds, covers what has just run out. An op_id begins with the time at
 * which it was made, so nothing younger than the shortest lease need be looked at, and nothing
 * below a day's mark: there every attempt has an end or is listed. The mark stops at the oldest
 * attempt that is still under its lease; what was seen above it is looked at again when the first
 * of the leases there ends, and not before: one long attempt must not make each round long.
 * Attempts commit a little after their op_id was made, so a round begins before what was seen, by
 * twice the time that a request waits for the ledger.
 *
 * Passes go over more than that, in the same way: five minutes each minute and a day each hour,
 * for whatever came later still; and from its first record over a day that is met for the first
 * time, for what ran out while no gateway was there. They go in pieces that take a fraction of
 * a second, between rounds.
 */
#include "sweep_internal.h"

#include <assert.h>

#define LATE_MS       INT64_C(600000)
#define CHUNK_MIN_MS  INT64_C(1000)
#define CHUNK_MAX_MS  (400 * SWEEP_DAY_MS)
#define QUICK_US      50000
#define SLOW_US       500000
#define OP_ID_MS_BITS 22

static int64_t id_at(int64_t ms)
{
	return ms > SWEEP_EPOCH_MS ? (ms - SWEEP_EPOCH_MS) << OP_ID_MS_BITS : 0;
}

static int64_t id_add(int64_t op_id, int64_t ms)
{
	int64_t at = (op_id >> OP_ID_MS_BITS) + ms;

	if (at > INT64_MAX >> OP_ID_MS_BITS)
		return INT64_MAX;
	return at > 0 ? at << OP_ID_MS_BITS : 0;
}

static void send_stretch(struct sweep *sweep, enum sweep_job job, size_t at)
{
	sweep->at = at;
	sweep_begin(sweep, job);
	pg_params_clear(&sweep->params);
	pg_add_int(&sweep->params, PG_INT8, sweep->from);
	pg_add_int(&sweep->params, PG_INT8, sweep->to);
	pg_add_int(&sweep->params, PG_DATE, sweep->days[at].day);
	pg_send(sweep->pg, QUERY_sweep_plan, NULL);
	pg_send(sweep->pg, QUERY_sweep_settled, &sweep->params);
	pg_send(sweep->pg, QUERY_sweep_stale, &sweep->params);
	sweep_end(sweep);
}

void sweep_round_begin(struct sweep *sweep)
{
	sweep->round_at = 0;
}

/* Where a round over a day begins: no lease that was seen has ended, or it begins with those. */
static int64_t round_from(const struct sweep *sweep, const struct sweep_day *day)
{
	return day->live && loop_now(sweep->loop) < day->ends_ms ? day->seen : day->mark;
}

bool sweep_round_next(struct sweep *sweep)
{
	int64_t overlap = 2 * sweep->settings->ledger.timeout;

	for (; sweep->round_at < sweep->n_days; sweep->round_at++) {
		const struct sweep_day *day = &sweep->days[sweep->round_at];

		if (!day->live &&
		    !sweep_concerns(sweep, day->day, sweep->lease_max_ms + LATE_MS))
			continue;
		sweep->from = id_add(round_from(sweep, day), -overlap);
		sweep->to = id_at(sweep_now(sweep) - sweep->lease_min_ms);
		if (sweep->from >= sweep->to)
			continue;
		send_stretch(sweep, JOB_ROUND, sweep->round_at++);
		return true;
	}
	return false;
}

void sweep_passes_begin(struct sweep *sweep, int64_t back_ms)
{
	for (size_t i = 0; i < sweep->n_days; i++) {
		struct sweep_day *day = &sweep->days[i];
		int64_t from = id_add(day->mark, -back_ms);

		if (day->slow == SWEEP_FIND_FIRST ||
		    (!day->live &&
		     !sweep_concerns(sweep, day->day, sweep->lease_max_ms + back_ms)))
			continue;
		if (day->slow == SWEEP_NO_PASS || day->slow > from)
			day->slow = from;
	}
}

static void send_first(struct sweep *sweep, size_t at)
{
	sweep->at = at;
	sweep_begin(sweep, JOB_FIRST);
	pg_params_clear(&sweep->params);
	pg_add_int(&sweep->params, PG_DATE, sweep->days[at].day);
	pg_send(sweep->pg, QUERY_sweep_first, &sweep->params);
	sweep_end(sweep);
}

bool sweep_slow_next(struct sweep *sweep)
{
	for (size_t i = 0; i < sweep->n_days; i++) {
		const struct sweep_day *day = &sweep->days[i];

		if (day->slow == SWEEP_NO_PASS)
			continue;
		if (day->slow == SWEEP_FIND_FIRST) {
			send_first(sweep, i);
			return true;
		}
		sweep->from = day->slow;
		sweep->to = id_add(day->slow, sweep->chunk_ms);
		if (sweep->to > id_at(sweep_now(sweep)))
			sweep->to = INT64_MAX;
		send_stretch(sweep, JOB_SLOW, i);
		return true;
	}
	return false;
}

void sweep_first_done(struct sweep *sweep, const struct pg_rows *rows)
{
	struct sweep_day *day = &sweep->days[sweep->at];

	day->slow =
		pg_is_null(rows, 0, 0) ? SWEEP_NO_PASS : id_add(pg_int(rows, 0, 0), -LATE_MS);
}

unsigned sweep_label(struct span operation)
{
	char name[65];

	if (operation.len >= sizeof(name))
		return metrics_operation("other");
	memcpy(name, operation.at, operation.len);
	name[operation.len] = '\0';
	return metrics_operation(name);
}

/* The columns of sweep_stale. */
enum { S_OLDEST, S_OPERATION, S_LISTED, S_CLOCK, S_ENDS };

static void count(struct sweep *sweep, const struct pg_rows *rows)
{
	for (size_t row = 0; row < pg_rows_count(rows); row++)
		if (!pg_is_null(rows, row, S_OPERATION))
			metrics_add(sweep->metrics, METRIC_unknown_total,
				    METRICS_PAIR(sweep_label(pg_bytes(rows, row, S_OPERATION)),
						 CAUSE_LEASE),
				    (uint64_t)pg_int(rows, row, S_LISTED));
}

/* Pieces grow while they are quick, and shrink when they are not. */
static void pace(struct sweep *sweep, bool failed)
{
	int64_t took = loop_now_us(sweep->loop) - sweep->sent_us;

	if (failed || took > SLOW_US)
		sweep->chunk_ms =
			sweep->chunk_ms / 2 > CHUNK_MIN_MS ? sweep->chunk_ms / 2 : CHUNK_MIN_MS;
	else if (took < QUICK_US && sweep->chunk_ms < CHUNK_MAX_MS)
		sweep->chunk_ms *= 2;
}

/* What a stretch had under lease; `oldest` is INT64_MAX where it was nothing. */
struct under_lease {
	int64_t oldest, ends_ms;
};

/* All from the mark on, or what has come since; the mark is looked at again when a lease ends. */
static void round_done(struct sweep *sweep, struct sweep_day *day, struct under_lease found)
{
	bool all = sweep->from <= day->mark;

	day->seen = sweep->to;
	if (!all && found.ends_ms < day->ends_ms)
		day->ends_ms = found.ends_ms;
	if (!all)
		return;
	day->live = found.oldest != INT64_MAX;
	day->mark = day->live ? found.oldest : sweep->to;
	day->ends_ms = found.ends_ms;
}

static void slow_done(struct sweep *sweep, struct sweep_day *day, struct under_lease found)
{
	if (found.oldest < day->mark) {
		day->ends_ms = day->live && day->ends_ms < found.ends_ms ? day->ends_ms
									 : found.ends_ms;
		day->live = true;
		day->mark = found.oldest;
	} else if (found.ends_ms < day->ends_ms) {
		day->ends_ms = found.ends_ms;
	}
	if (day->slow == sweep->from)
		day->slow = sweep->to == INT64_MAX ? SWEEP_NO_PASS : sweep->to;
	pace(sweep, false);
}

void sweep_stale_done(struct sweep *sweep, const struct pg_rows *rows)
{
	struct sweep_day *day = &sweep->days[sweep->at];
	struct under_lease found = { INT64_MAX, INT64_MAX };

	if (!pg_is_null(rows, 0, S_OLDEST)) {
		found.oldest = pg_int(rows, 0, S_OLDEST);
		found.ends_ms = loop_now(sweep->loop) + pg_int(rows, 0, S_ENDS);
	}
	count(sweep, rows);
	sweep_clock(sweep, pg_int(rows, 0, S_CLOCK));
	if (sweep->job == JOB_ROUND)
		round_done(sweep, day, found);
	else
		slow_done(sweep, day, found);
}

void sweep_stale_failed(struct sweep *sweep)
{
	if (sweep->job == JOB_SLOW)
		pace(sweep, true);
}
