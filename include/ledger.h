/*
 * What the ledger's rows mean, and the batches by which they are written and read. A call returns
 * at once; what one turn asks for goes out together at its end, under one commit, and `done`
 * is called in a later turn. One ledger a thread. ledger*.c knows no HTTP beyond an answer's bytes.
 */
#pragma once
#include "loop.h"
#include "metrics.h"
#include "record_slot.h"
#include "settings.h"

struct ledger;
struct spool;

enum ledger_found {
	LEDGER_WON,        /* reserved, durably: this entry and no other may forward */
	LEDGER_COMPLETED,  /* a result is stored; where `retained` it is in `stored` */
	LEDGER_IN_FLIGHT,  /* somebody has it, under a lease that holds */
	LEDGER_UNKNOWN,    /* it may have had its effect; nobody knows: see ledger_claim */
	LEDGER_RELEASED,   /* seen while waiting: the record ended without effect */
	LEDGER_OVERLOADED, /* nothing new for now: `why` says so */
	LEDGER_STOPPED,    /* nothing may be forwarded or replayed here: `why` says so */
	LEDGER_UNAVAILABLE /* not reached, too slow, read-only, not durable: `why` says so */
};

enum ledger_same {
	LEDGER_SAME, /* the record's content is this request's */
	LEDGER_DIFFERENT,
	LEDGER_RULES_CHANGED /* compared by other rules, and not the same byte for byte */
};

enum ledger_outcome { LEDGER_COMPLETE, LEDGER_MARK_UNKNOWN, LEDGER_RELEASE };

enum ledger_settled {
	LEDGER_SETTLED, /* durably */
	LEDGER_LATE,    /* not within the time given; the ledger goes on by itself */
	/* Somebody else had ended this attempt before: `found` says what the record is now. WON: it
	 * can't be written. */
	LEDGER_FENCED
};

#define LEDGER_REQUEST_ID_BYTES 31 /* "req_", 26 characters of base32, NUL */

/*
 * Embedded in an exchange. From ledger_reserve on it belongs to the ledger until `gone`, but for
 * the time between a `done` and the next call, when the exchange may read and set it.
 */
struct ledger_entry {
	/* set before ledger_reserve; the spans live until gone */
	const struct idempotency_settings *idempotency; /* kept alive by the exchange */
	struct arena *arena;
	struct span account, key;
	struct digest digest;
	/* The digest under the key of a record that was made under another one than `digest`; false:
	 * there is no such key. NULL: there is only one. */
	bool (*digest_under)(struct ledger_entry *entry, int32_t key_id, struct digest *out);
	void (*done)(struct ledger_entry *entry); /* reserve, wait or settle has ended */
	void (*gone)(struct ledger_entry
			     *entry); /* after ledger_leave: the ledger has let go of it */

	int64_t took_us; /* of what has just ended */

	/* after a reserve or a wait */
	enum ledger_found found;
	enum ledger_same same;
	const char *why;
	int64_t expires_at;   /* of the response, seconds since 1970, PostgreSQL's clock */
	int64_t first_seen;   /* the same */
	int64_t completed_at; /* the same; where COMPLETED */
	int64_t age_ms;       /* of the record, PostgreSQL's clock */
	/* where WON, the loop's clock: from before the reserve or the claim was sent */
	int64_t lease_until_ms;
	int64_t begin_by_ms; /* where WON: no forward begins after that; 0: no such time */
	int64_t tried_ms; /* where UNKNOWN: since its last resend began; -1: there was none */
	unsigned generation; /* of the record's last attempt; where WON this one's. From 1 on */
	enum record_source source; /* where COMPLETED */
	struct http_answer stored; /* status also where not retained but known; 0: not known */
	/* where WON, and key.forward is derived: what the upstream gets */
	struct span forward_key;
	char request_id[LEDGER_REQUEST_ID_BYTES]; /* of the record found; "" where none was */
	bool stale; /* where UNKNOWN: no end of the first attempt is written */
	/* where STOPPED: nothing stands under the key, and no stop says that this may be a loss */
	bool no_record;
	bool same_raw; /* the request is the record's, byte for byte */
	bool retained; /* where COMPLETED: the response is in `stored` */

	/* set before ledger_settle */
	enum ledger_outcome outcome;
	struct http_answer
		result; /* COMPLETE: what is stored; fields are the kept ones; a body of NULL: not kept */
	struct span receipt; /* of that answer, in its normal form; none: len 0 */
	const char *cause;   /* MARK_UNKNOWN, RELEASE: why, a few words */
	/* after a settle */
	enum ledger_settled settled;

	/* the ledger's */
	struct list link;            /* in a queue, a batch or a read */
	struct list busy_link;       /* while the ledger works on it */
	int64_t op_id, record_op_id; /* this request's own; that of the record found */
	int32_t day, record_day;     /* partitions, days since 1970 */
	int64_t asked_us;            /* when reserve, wait or settle was called */
	int64_t sent_ms;             /* when the reserve first left; 0: not yet */
	int64_t deadline_ms;
	int64_t poll_at_ms, poll_every_ms;
	int64_t lease_ends_ms; /* of the record found, as far as seen; the loop's clock */
	size_t unsettled; /* bytes, while its exchange has gone and the ledger goes on; or 0 */
	struct span fields;     /* `result.fields` as they stand in the row */
	unsigned char hash[32]; /* of the row */
	unsigned char key_hash[16];
	int state;
	unsigned tries;
	bool left;      /* the exchange has its answer */
	bool answered;  /* `done` was called for what was asked */
	bool waiting;   /* asked by ledger_wait */
	bool looked_up; /* it waits for what a look-up finds: unknown is no end of it */
	bool fenced;    /* settled by somebody else; its record is read */
	bool stopped;   /* no forward for it: only what stands there is told */
	bool sent;      /* what was asked of a record's later slots has left for PostgreSQL */
	bool expired;
	bool suspect; /* failed together with others: may be what the ledger does not take */
	bool doubt;   /* a reply was lost: its row may be there already */
	bool looked_at_lease;
	bool spooled; /* it is on disk as well, or will be */
};

struct ledger *ledger_new(struct loop *loop, struct metrics *metrics,
			  const struct settings *settings, unsigned index);
void ledger_free(struct ledger *ledger); /* nothing may be busy but what drain gave up */
void ledger_follow(struct ledger *ledger,
		   const struct settings *settings); /* a reload: held by the ledger */
void ledger_flush(struct ledger *ledger);            /* once a turn, at its end */
/* How much may wait for the ledger behind its exchanges' backs; a quarter of limits.in_flight and
 * bytes_in_flight where it is not said. */
void ledger_limit(struct ledger *ledger, size_t answers, size_t bytes);
/* Where answers are kept that the ledger does not take in time; it lives longer than the ledger. */
void ledger_spool(struct ledger *ledger, struct spool *spool);
void ledger_spool_rest(struct ledger *ledger); /* the process ends: what waits is kept now */

/* Reserves (account, operation, key). Ends in done, `found` says how, within ledger.timeout. */
void ledger_reserve(struct ledger *ledger, struct ledger_entry *entry);
/*
 * After UNKNOWN, by a contract that allows it: the right to send once more, as the next generation.
 * Ends in done as a reserve does: WON, or what stands there now.
 */
void ledger_claim(struct ledger *ledger, struct ledger_entry *entry);
/* After UNKNOWN and `stale`, where an execution more is accepted: the record ends, the key is reserved
 * anew. Ends in done as a reserve does. */
void ledger_begin_again(struct ledger *ledger, struct ledger_entry *entry);
/* After UNKNOWN: asks the back office to look it up at once, and waits like ledger_wait; UNKNOWN if
 * nothing was found. */
void ledger_look_up(struct ledger *ledger, struct ledger_entry *entry, int64_t wait_ms);
/* After IN_FLIGHT: looks again, for at most wait_ms, until it is anything else. Ends in done. */
void ledger_wait(struct ledger *ledger, struct ledger_entry *entry, int64_t wait_ms);
/* After WON: writes how the attempt ended. Ends in done, after wait_ms at most; the ledger goes on if it must. */
void ledger_settle(struct ledger *ledger, struct ledger_entry *entry, int64_t wait_ms);
/* The exchange has its answer. A reservation that won too late is released. Ends in gone, perhaps at once. */
void ledger_leave(struct ledger *ledger, struct ledger_entry *entry);

size_t ledger_busy(
	const struct ledger *ledger); /* entries that the ledger works on: 0 before a stop */

/* What /readyz shows. Thread-safe; `why` is a static sentence. */
struct ledger_state {
	bool up;      /* connected, schema right, instance leased, identities checked */
	bool durable; /* synchronous_commit and standbys are as the contract needs */
	const char *why;
	int missing_key; /* there are records under this digest key, which the settings lack;
			    0: none; LEDGER_KEYS_NOT_KNOWN */
};
#define LEDGER_KEYS_NOT_KNOWN (-1)
struct ledger_state ledger_state(const struct ledger *ledger);
