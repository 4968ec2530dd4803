/* What the files of the lookups share; nobody else includes it. */
#pragma once
#include "conclude.h"
#include "lookup.h"
#include "lookup_answer.h"
#include "pg.h"
#include "record_id.h"
#include "upstream.h"

#define LOOKUP_ASKS        8U /* at a time */
#define LOOKUP_ASKS_OF_ONE 4U /* of them, of one operation */
#define LOOKUP_NEVER       INT64_MIN

/* An operation that is looked up. Lives on while something of it is being asked. */
struct lookup_target {
	char *operation;
	const struct route *route; /* NULL: it is not looked up any more */
	unsigned asks;             /* under way, and one that is the list's own */
	int said; /* a status, or how an asking ended, that the log has spoken of; 0: none */
	/* the positive control; times of the loop's clock */
	int64_t control_found_ms; /* when it last found what is there; or LOOKUP_NEVER */
	int64_t control_due_ms;
	unsigned control_tries;
	bool control_wanted;  /* a "not found" waits for it */
	bool control_asking;  /* it is under way */
	bool control_failing; /* it did not find what is there: nothing is looked up */
	bool control_missing; /* there was nothing to look for; the log has said so */
};

struct lookup_record {
	int64_t op_id;
	int32_t day;
	unsigned generation, looks;
	struct span key_hash, account, key;
	int64_t lease_left_ms; /* of its attempt; 0: over */
	bool sent_alike; /* to be asked for as it is now, and never again: "not found" may count */
	int64_t not_found_ms; /* since it was first not found; -1: it was not */
};

struct lookup_ask {
	struct lookup *lookup;
	struct lookup_target *target; /* NULL: free */
	const struct settings *settings;
	const struct idempotency_settings *idempotency;
	struct arena *arena;
	struct lookup_record record;
	char request_id[RECORD_ID_BYTES];
	bool control, calling;
	enum lookup_verdict verdict;
	enum event_kind kind; /* what is concluded */
	struct upstream_call call;
	struct pg_transaction transaction;
};

enum lookup_job { LOOKUP_JOB_TAKE, LOOKUP_JOB_CONTROL };

struct lookup {
	struct loop *loop;
	struct metrics *metrics;
	struct upstreams *upstreams;
	struct pg *pg; /* NULL: nothing is looked up */
	struct loop_timer timer;
	int64_t writer; /* whose leases and rows ours are */
	bool ending;

	const struct settings *settings;
	const struct settings *next_settings; /* held; NULL: none wait */
	struct lookup_target **targets;
	size_t n_targets, first; /* the first to be served, in turns */

	/* one question to the ledger at a time, beside what asks have to tell it */
	struct pg_transaction transaction;
	struct pg_params params;
	enum lookup_job job;
	bool busy;
	bool more;                     /* there was more than what could be taken */
	struct lookup_target *sampled; /* CONTROL: for this one */
	int64_t sent_ms, not_before_ms;
	char failure[256]; /* that the log has spoken of */

	struct lookup_ask asks[LOOKUP_ASKS];
	size_t n_asks;
};

/* lookup.c */
void lookup_freed(struct lookup *lookup); /* an ask has ended */
void lookup_begin(struct lookup *lookup, enum lookup_job job);
void lookup_end(struct lookup *lookup);
int64_t lookup_lease_ms(const struct route *route);
void lookup_target_release(struct lookup_target *target); /* one ask less */

/* lookup_ask.c */
/* From a row of lookup_take; there is a free ask. */
void lookup_ask_record(struct lookup *lookup, struct lookup_target *target,
		       const struct pg_rows *rows, size_t row);
/* From the row of lookup_control. */
void lookup_ask_control(struct lookup *lookup, struct lookup_target *target,
			const struct pg_rows *rows);
/* Where its call is under way, that ends. */
void lookup_ask_give_up(struct lookup_ask *ask);

/* lookup_control.c */
bool lookup_control_fresh(const struct lookup *lookup, const struct lookup_target *target);
void lookup_control_want(struct lookup_target *target);
bool lookup_control_next(struct lookup *lookup); /* sends; false: none is due */
void lookup_control_sample(struct lookup *lookup, const struct pg_rows *rows);
void lookup_control_heard(struct lookup *lookup, struct lookup_target *target,
			  enum lookup_verdict verdict);
