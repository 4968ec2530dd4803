/*
 * What retention does, step by step; see retain_internal.h. Which records, keys and rows may go is
 * decided in SQL (sql/schema/0003.sql), where it is one snapshot; here is only what comes next.
 *
 * A day: steps over its records, then two detaches, each outside of any transaction, then its end.
 * The walk: keys, then event_late, then receipts, stretch by stretch of their heaps. The vacuum of
 * keys is a job like any other; while it runs this connection does nothing else.
 */
#include "retain_internal.h"

#include "log.h"

#include <assert.h>
#include <stdio.h>

#define WHO        "retention"
#define QUICK_US   20000
#define SLOW_US    60000
#define BLOCKS_MIN INT64_C(8)
#define BLOCKS_MAX INT64_C(4096)
#define MANY_PARTS 3

/* A statement whose one parameter is who asks. */
static void send_token(struct retain *retain, enum retain_job job, enum query query)
{
	retain_begin(retain, job);
	pg_add_int(&retain->params, PG_INT8, retain->token);
	pg_send(retain->pg, query, &retain->params);
	retain_end(retain);
}

static void send_text(struct retain *retain, enum retain_job job, const char *sql)
{
	retain_begin(retain, job);
	pg_send_text(retain->pg, sql);
	retain_end(retain);
}

static void send_parts(struct retain *retain)
{
	retain_begin(retain, RETAIN_PARTS);
	pg_add_int(&retain->params, PG_INT8, retain->token);
	pg_add_int(&retain->params, PG_INT8, retain->grace_ms);
	pg_add_int(&retain->params, PG_INT8, retain->settings->ledger.audit_retention);
	pg_add_int(&retain->params, PG_INT8, retain->parts_blocks);
	pg_send(retain->pg, QUERY_retain_parts, &retain->params);
	retain_end(retain);
}

static void send_erase(struct retain *retain)
{
	retain_begin(retain, RETAIN_ERASE);
	pg_add_int(&retain->params, PG_INT8, retain->token);
	pg_add_int(&retain->params, PG_INT8, retain->parts_blocks);
	pg_send(retain->pg, QUERY_retain_erase, &retain->params);
	retain_end(retain);
}

static void send_rows(struct retain *retain)
{
	if (retain->what == 3) {
		send_token(retain, RETAIN_ROWS_END, QUERY_retain_rows_end);
		return;
	}
	retain_begin(retain, RETAIN_ROWS);
	pg_add_int(&retain->params, PG_INT8, retain->token);
	pg_add_int(&retain->params, PG_INT2, retain->what);
	pg_add_int(&retain->params, PG_INT8, retain->block);
	pg_add_int(&retain->params, PG_INT8, retain->n_blocks);
	pg_send(retain->pg, QUERY_retain_rows, &retain->params);
	retain_end(retain);
}

static void send_vacuum(struct retain *retain)
{
	if (retain->vacuumed)
		send_token(retain, RETAIN_VACUUM_LEAVE, QUERY_retain_vacuum_leave);
	else if (retain->vacuuming)
		send_text(retain, RETAIN_VACUUM, "VACUUM (INDEX_CLEANUP ON) onceward.key");
	else
		send_token(retain, RETAIN_VACUUM_TAKE, QUERY_retain_vacuum_take);
}

bool retain_send_next(struct retain *retain)
{
	if (retain->detach[0])
		send_text(retain, RETAIN_DETACH, retain->detach);
	else if (retain->parts)
		send_parts(retain);
	else if (retain->erasures)
		send_erase(retain);
	else if (retain->rows)
		send_rows(retain);
	else if (retain->vacuum)
		send_vacuum(retain);
	else
		return false;
	return true;
}

static void pace(const struct retain *retain, int64_t *blocks)
{
	int64_t took = loop_now_us(retain->loop) - retain->sent_us;

	if (took < QUICK_US && *blocks < BLOCKS_MAX)
		*blocks *= 2;
	else if (took > SLOW_US && *blocks > BLOCKS_MIN)
		*blocks /= 2;
}

void retain_detach_text(char out[RETAIN_DETACH_MAX], struct span parent, struct span name)
{
	snprintf(out, RETAIN_DETACH_MAX,
		 "ALTER TABLE onceward.%.*s DETACH PARTITION onceward.%.*s CONCURRENTLY",
		 (int)parent.len, parent.at, (int)name.len, name.at);
}

static void say_gone(struct retain *retain, const struct pg_rows *rows)
{
	struct span what = pg_bytes(rows, 0, PARTS_NAME);
	int64_t records = pg_int(rows, 0, PARTS_RECORDS);

	log_info(WHO, "dropped %.*s: %lld records, %lld of them without a known end",
		 (int)what.len, what.at, (long long)records,
		 (long long)pg_int(rows, 0, PARTS_LISTED));
	metrics_add(retain->metrics, METRIC_purged_total, 0, (uint64_t)records);
	retain->n_parts--;
	retain->warned = false;
}

static void parts_done(struct retain *retain, const struct pg_rows *rows)
{
	switch ((enum retain_parts_doing)pg_int(rows, 0, PARTS_DOING)) {
	case PARTS_MORE:
		pace(retain, &retain->parts_blocks);
		break;
	case PARTS_DETACH:
		retain_detach_text(retain->detach, pg_bytes(rows, 0, PARTS_PARENT),
				   pg_bytes(rows, 0, PARTS_NAME));
		break;
	case PARTS_GONE:
		say_gone(retain, rows);
		break;
	case PARTS_NONE:
		if (retain->n_parts >= MANY_PARTS && !retain->warned)
			log_warning(WHO,
				    "%lld days or months are over, and one a day goes by "
				    "itself: `onceward purge` drops them all",
				    (long long)retain->n_parts);
		retain->warned = retain->n_parts >= MANY_PARTS;
		retain->parts = false;
		break;
	case PARTS_OTHERS:
	case PARTS_LATER:
		retain->parts = false;
		break;
	}
}

static void erase_done(struct retain *retain, const struct pg_rows *rows)
{
	retain->erasures = pg_int(rows, 0, 0) != 0;
	pace(retain, &retain->parts_blocks);
}

static void walk_ends(struct retain *retain)
{
	retain->rows = false;
	retain->what = 0;
	retain->block = 0;
	retain->walked = 0;
}

/* The columns of retain_rows. */
enum { W_MINE, W_PURGED, W_NEXT };

static void rows_done(struct retain *retain, const struct pg_rows *rows)
{
	if (!pg_int(rows, 0, W_MINE)) {
		walk_ends(retain);
		return;
	}
	retain->walked += pg_int(rows, 0, W_PURGED);
	metrics_add(retain->metrics, METRIC_purged_total, 0,
		    (uint64_t)pg_int(rows, 0, W_PURGED));
	pace(retain, &retain->n_blocks);
	if (pg_is_null(rows, 0, W_NEXT)) {
		retain->what++;
		retain->block = 0;
	} else {
		retain->block = pg_int(rows, 0, W_NEXT);
	}
}

static void rows_end_done(struct retain *retain)
{
	if (retain->walked)
		log_info(WHO, "purged %lld keys and rows beside them",
			 (long long)retain->walked);
	walk_ends(retain);
}

void retain_take(struct retain *retain)
{
	const struct pg_rows *rows = retain->transaction.rows[0];

	switch (retain->job) {
	case RETAIN_PARTS:
		parts_done(retain, rows);
		break;
	case RETAIN_DETACH:
		retain->detach[0] = '\0';
		break;
	case RETAIN_ERASE:
		erase_done(retain, rows);
		break;
	case RETAIN_ROWS:
		rows_done(retain, rows);
		break;
	case RETAIN_ROWS_END:
		rows_end_done(retain);
		break;
	case RETAIN_VACUUM_TAKE:
		retain->vacuum = retain->vacuuming = pg_int(rows, 0, 0) != 0;
		break;
	case RETAIN_VACUUM:
		retain->vacuumed = true;
		break;
	case RETAIN_VACUUM_LEAVE:
		retain->vacuum = retain->vacuuming = retain->vacuumed = false;
		break;
	case RETAIN_SESSION:
	case RETAIN_LOOK:
	case RETAIN_JOBS:
		break;
	}
}
