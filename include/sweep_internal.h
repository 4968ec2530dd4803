/* What the files of the sweep share; nobody else includes it. */
#pragma once
#include "pg.h"
#include "spool.h"
#include "sweep.h"

#define SWEEP_EPOCH_MS INT64_C(1577836800000) /* 2020-01-01, what op_ids count from */
#define SWEEP_DAY_MS   INT64_C(86400000)
#define SWEEP_WHO      "sweep"

/* A day's partitions, and how far they have been looked at. */
struct sweep_day {
	int32_t day; /* since 1970 */
	int64_t mark; /* op_id: what is below has an end or is listed, but for what commits late */
	int64_t seen; /* op_id: from `mark` to here are only those that were under lease when looked at */
	int64_t ends_ms; /* when the first of those leases ends; loop's */
	int64_t slow;    /* op_id where the pass over older ones goes on, or one of these: */
	bool live;       /* an attempt at `mark` is still under its lease */
};
#define SWEEP_NO_PASS    (-1)
#define SWEEP_FIND_FIRST (-2)

enum sweep_job {
	JOB_DAYS,     /* which days are there, and what time is it? */
	JOB_MAKE_DAY, /* makes `make_day` */
	JOB_MAKE_MONTH,
	JOB_ROUND,     /* a day of the round over what has just run out */
	JOB_FIRST,     /* where does the pass over a day begin? */
	JOB_SLOW,      /* a stretch of a pass */
	JOB_ATTENTION, /* the gauges */
	JOB_CLAIMS,    /* resends whose lease ran out */
	JOB_OVERDUE,   /* what is unknown for too long */
	JOB_FINAL,     /* one record of these, which ends */
	JOB_SPOOL,     /* an answer that an earlier process left */
	JOB_BACKENDS,  /* those that wait for the end of a transaction that nobody will send */
	JOB_COUNT
};

/* When a job, or a kind of pass, is due; loop's ms. */
struct sweep_due {
	int64_t days, round, attention, minute, hour, claims, overdue, spool, backends;
};

struct sweep {
	struct loop *loop;
	struct metrics *metrics;
	const struct settings *settings;
	struct pg *pg;
	struct loop_timer timer;
	struct sweep_due due;
	int64_t not_before; /* after a failure */
	char said[256];     /* the failure that was last logged */

	/* One job at a time. */
	struct pg_transaction transaction;
	struct pg_params params;
	bool busy;
	enum sweep_job job;
	size_t at;        /* the job's day, by its place in `days` */
	int64_t from, to; /* its stretch */
	int64_t sent_us;

	/* Retentions and leases that the records at hand may have: also those of earlier settings. */
	int64_t *retentions;
	size_t n_retentions;
	int64_t lease_min_ms, lease_max_ms;

	struct sweep_day *days; /* sorted */
	size_t n_days;
	size_t round_at; /* the next day of the round; n_days: none is under way */
	int64_t chunk_ms;
	int32_t today;
	int64_t clock_ms; /* PostgreSQL's clock less the loop's */
	int32_t make_day; /* to be made next; 0: none */
	bool made;        /* one was: look again */
	int make_month;   /* to be made next, counted from the present one; -1: none */
	int days_left;
	bool shown[METRICS_OPERATIONS]; /* gauges that are not 0 */

	int64_t writer;                /* whose rows ours are */
	struct sweep_overdue *overdue; /* what was found, until it is dealt with; or NULL */
	struct spool *spool;           /* NULL: none */
	char spooled[SPOOL_NAME];      /* the file of the job */
	size_t spool_left;             /* files that are not settled yet */
};

int64_t sweep_now(const struct sweep *sweep); /* ms since 1970, PostgreSQL's clock */
void sweep_clock(struct sweep *sweep, int64_t now_ms);
/* Is there a record of an attempt that began `back_ms` ago or later, among those of `day`? */
bool sweep_concerns(const struct sweep *sweep, int32_t day, int64_t back_ms);

/* sweep_pass.c: choosing, sending and taking in the jobs that look for leases that ran out. */
void sweep_round_begin(struct sweep *sweep);
void sweep_passes_begin(struct sweep *sweep, int64_t back_ms);
bool sweep_round_next(struct sweep *sweep); /* sends; false: none is left */
bool sweep_slow_next(struct sweep *sweep);
void sweep_first_done(struct sweep *sweep, const struct pg_rows *rows);
void sweep_stale_done(struct sweep *sweep, const struct pg_rows *rows);
void sweep_stale_failed(struct sweep *sweep);

/* sweep_days.c: partitions. */
bool sweep_make_next(struct sweep *sweep);
void sweep_days_done(struct sweep *sweep, const struct pg_rows *rows);
void sweep_make_done(struct sweep *sweep, const struct pg_rows *rows);
void sweep_make_failed(struct sweep *sweep);

/* sweep_overdue.c: what is unknown for longer than recovery.deadline. */
bool sweep_overdue_send(struct sweep *sweep); /* false: there is nothing to ask for */
void sweep_overdue_done(struct sweep *sweep);
bool sweep_final_next(struct sweep *sweep); /* sends; false: none is left */
void sweep_final_done(struct sweep *sweep);
void sweep_overdue_free(struct sweep *sweep);

/* The label of an operation that stands in a row. */
unsigned sweep_label(struct span operation);
/* sweep_spool.c */
bool sweep_spool_look(struct sweep *sweep); /* false: nothing was left */
bool sweep_spool_next(struct sweep *sweep);
void sweep_spool_done(struct sweep *sweep, const struct pg_rows *rows);
void sweep_spool_failed(struct sweep *sweep);

/* sweep.c */
void sweep_days_due(struct sweep *sweep, int64_t in_ms);
void sweep_begin(struct sweep *sweep, enum sweep_job job);
void sweep_end(struct sweep *sweep);
