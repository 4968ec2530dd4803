/*
 * Day partitions of the ledger, made ahead, and months of the audit table; sweep_internal.h.
 *
 * A settle into a day that is not there would fail, so days are made for the largest retention
 * and ten more. A role that may not make them is told so once, and days_left goes down where
 * people see it. Making takes no lock that a reserve or a settle waits for, and gives up soon
 * where it would have to wait itself (sql/schema/).
 */
#include "sweep_internal.h"

#include "log.h"
#include "mem.h"
#include "schema.h"

#include <assert.h>

#define MONTHS_AHEAD 2
#define AGAIN_MS     60000
/* A day that is older is nobody's but the retention's, which looks at it before it goes. */
#define OLD_DAYS     2
#define MARK_MS      INT64_C(600000)
/* For so long a reservation may still belong to the day before; retention leaves it longer. */
#define JUST_MS      INT64_C(1800000)

static struct sweep_day *find(const struct sweep *sweep, int32_t day)
{
	for (size_t i = 0; i < sweep->n_days; i++)
		if (sweep->days[i].day == day)
			return &sweep->days[i];
	return NULL;
}

/* The first day from `day` on that is not there and should be; 0: none. */
static int32_t missing(const struct sweep *sweep, int32_t day)
{
	int32_t last = sweep->today + schema_days_needed(sweep->settings) + SCHEMA_DAYS_AHEAD;

	for (; day <= last; day++)
		if (!find(sweep, day))
			return day;
	return 0;
}

static int days_left(const struct sweep *sweep)
{
	int32_t last = sweep->today - 1;

	while (find(sweep, last + 1))
		last++;
	return last - sweep->today - schema_days_needed(sweep->settings);
}

static struct sweep_day met(const struct sweep *sweep, int32_t number)
{
	const struct sweep_day *known = find(sweep, number);
	int64_t mark_ms = sweep_now(sweep) - SWEEP_EPOCH_MS - MARK_MS;

	int64_t mark = mark_ms > 0 ? mark_ms << 22 : 0;

	if (known)
		return *known;
	return (struct sweep_day){ .day = number,
				   .mark = mark,
				   .seen = mark,
				   .slow = number < sweep->today - OLD_DAYS
						   ? SWEEP_NO_PASS
						   : SWEEP_FIND_FIRST };
}

void sweep_days_done(struct sweep *sweep, const struct pg_rows *rows)
{
	size_t n = pg_rows_count(rows);
	struct sweep_day *days = mem_alloc((n + 1) * sizeof(*days));

	sweep->today = (int32_t)pg_int(rows, 0, 0);
	sweep_clock(sweep, pg_int(rows, 0, 1));
	if (pg_is_null(rows, 0, 2))
		n = 0;
	for (size_t row = 0; row < n; row++)
		days[row] = met(sweep, (int32_t)pg_int(rows, row, 2));
	mem_free(sweep->days);
	sweep->days = days;
	sweep->n_days = n;
	sweep->round_at = n;
	sweep->days_left = days_left(sweep);
	metrics_set(sweep->metrics, METRIC_days_left, 0, sweep->days_left);
	sweep->make_day =
		missing(sweep, (int32_t)((sweep_now(sweep) - JUST_MS) / SWEEP_DAY_MS));
	sweep->make_month = 0;
	sweep->made = false;
}

static void send_day(struct sweep *sweep)
{
	sweep_begin(sweep, JOB_MAKE_DAY);
	pg_params_clear(&sweep->params);
	pg_add_int(&sweep->params, PG_DATE, sweep->make_day);
	pg_send(sweep->pg, QUERY_sweep_make_day, &sweep->params);
	sweep_end(sweep);
}

static void send_month(struct sweep *sweep)
{
	sweep_begin(sweep, JOB_MAKE_MONTH);
	pg_params_clear(&sweep->params);
	pg_add_int(&sweep->params, PG_INT4, sweep->make_month);
	pg_send(sweep->pg, QUERY_sweep_make_month, &sweep->params);
	sweep_end(sweep);
}

bool sweep_make_next(struct sweep *sweep)
{
	if (sweep->make_day)
		send_day(sweep);
	else if (sweep->make_month >= 0)
		send_month(sweep);
	else
		return false;
	return true;
}

void sweep_make_done(struct sweep *sweep, const struct pg_rows *rows)
{
	bool made = pg_int(rows, 0, 0) != 0;

	if (sweep->job == JOB_MAKE_MONTH) {
		sweep->make_month =
			sweep->make_month < MONTHS_AHEAD ? sweep->make_month + 1 : -1;
		return;
	}
	sweep->made |= made;
	sweep->make_day = missing(sweep, sweep->make_day + 1);
	if (!sweep->make_day && sweep->made)
		sweep_days_due(sweep, 0);
}

void sweep_make_failed(struct sweep *sweep)
{
	sweep->make_day = 0;
	sweep->make_month = -1;
	sweep_days_due(sweep, AGAIN_MS);
}
