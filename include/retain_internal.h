/* What the files of retain share; nobody else includes it. */
#pragma once
#include "pg.h"
#include "retain.h"

#define RETAIN_SAID 256

enum retain_job {
	RETAIN_SESSION, /* what a direct connection is told first */
	RETAIN_LOOK,    /* what is there to do, and what time is it? */
	RETAIN_PARTS,   /* a step of taking away a day or a month */
	RETAIN_DETACH,  /* ... this one, outside of a transaction */
	RETAIN_ERASE,   /* a step of the erasures */
	RETAIN_ROWS,    /* a step of the walk */
	RETAIN_ROWS_END,
	RETAIN_VACUUM_TAKE, /* nobody else is at it */
	RETAIN_VACUUM,
	RETAIN_VACUUM_LEAVE,
	RETAIN_JOBS
};

struct retain {
	struct loop *loop;
	struct metrics *metrics;
	const struct settings *settings; /* held */
	int64_t (*clock_ms)(void);
	struct pg *pg;
	struct loop_timer timer;
	int64_t token;            /* whose leases are ours */
	bool direct;              /* the session is this connection's alone */
	int64_t grace_ms;         /* the longest that any settings so far asked for */
	int64_t walk_ms;          /* between two walks */
	int64_t next_at, look_at; /* loop's ms */
	char said[RETAIN_JOBS][RETAIN_SAID]; /* the failures that were last logged */
	char stopped[160];                   /* why nothing is purged; "": it is */

	/* One job at a time. */
	struct pg_transaction transaction;
	struct pg_params params;
	bool busy;
	enum retain_job job;
	int64_t sent_us, sent_clock_ms;

	/* What there is to do, by the last look and what came of it. */
	bool parts, erasures, rows, vacuum, vacuuming, vacuumed, greeted;
	int64_t n_parts;
	bool warned;                    /* that there are many */
	char detach[RETAIN_DETACH_MAX]; /* the statement that is to come next; "": none */
	int64_t parts_blocks;           /* of op, a step */
	int what;                /* the walk: 0 keys, 1 event_late, 2 receipts, 3 its end */
	int64_t block, n_blocks; /* where it is, and how far a step goes */
	int64_t walked;          /* rows of this walk that went */
};

/* retain.c: one transaction, from retain_begin to retain_end */
void retain_begin(struct retain *retain, enum retain_job job);
void retain_end(struct retain *retain);

/* retain_jobs.c */
bool retain_send_next(struct retain *retain); /* false: there is nothing to do */
void retain_take(struct retain *retain);      /* the job has ended well: what came of it */
