/* What the files of the ledger share; nobody else includes it. */
#pragma once
#include "ledger.h"
#include "pg.h"

#include <stdatomic.h>

#define LEDGER_CONNECTIONS_MAX 64
#define LEDGER_BATCH_BYTES     ((size_t)4 * 1024 * 1024)
#define LEDGER_TICK_MS         10
#define LEDGER_IDLE_TICK_MS    400 /* stops are read as often */
#define LEDGER_RENEW_MS        10000
#define LEDGER_RENEW_LIMIT_MS                                                                  \
	INT64_C(3000000) /* instance numbers are free again after an hour */
#define LEDGER_RETRY_MS      200
#define LEDGER_EPOCH_MS      INT64_C(1577836800000) /* 2020-01-01, what op_ids count from */
#define LEDGER_RESERVE_TRIES 3
#define LEDGER_FULL          "the memory for answers that PostgreSQL has not taken yet is full"

/* Where an entry is. Each state but IDLE ends by itself, when the ledger answers or is away too long. */
enum entry_state {
	ENTRY_IDLE,        /* the exchange's */
	ENTRY_TO_RESERVE,  /* queued for the next batch */
	ENTRY_RESERVING,   /* in a batch under way; may have been committed already */
	ENTRY_TO_READ_KEY, /* lost: what stands there? */
	ENTRY_READING_KEY,
	ENTRY_TO_READ_RECORD, /* how did that attempt end? */
	ENTRY_READING_RECORD,
	ENTRY_TO_FREE, /* the record was released and its key stands: it goes, then again */
	ENTRY_FREEING,
	ENTRY_WAITING,  /* between two looks */
	ENTRY_TO_CLAIM, /* wants the next generation */
	ENTRY_CLAIMING,
	ENTRY_TO_CLEAR, /* stale, and may be done again: the record ends, then it is reserved anew */
	ENTRY_CLEARING,
	ENTRY_TO_SETTLE,
	ENTRY_SETTLING,
	ENTRY_TO_CHECK, /* lost its slot: is what stands there ours, after a lost reply? */
	ENTRY_CHECKING,
	ENTRY_TO_CONCLUDE, /* its end goes into a later slot, or is kept as evidence */
	ENTRY_CONCLUDING
};

/* What was asked of the instance numbers: a new one, or that ours goes on. */
enum asked_instance { ASKED_NOTHING, ASKED_CLAIM, ASKED_RENEWAL };

/* What the ledger has confirmed to this worker last; see ledger_history.c. */
#define LEDGER_HISTORY 64U
struct history {
	struct acknowledged {
		int64_t op_id;
		int32_t day;
		unsigned char key_hash[16];
		bool ended; /* its end was confirmed too */
	} last[LEDGER_HISTORY];
	size_t n, at;   /* at: the oldest, where it is full */
	bool known;     /* of which cluster and timeline the server was */
	bool not_told;  /* that was logged */
	int64_t system; /* identifier of the cluster */
	int32_t timeline;
	bool lost; /* and that is not written yet */
	int64_t look_at_ms;
};

/* Whether it is all there, asked on one connection. */
struct history_check {
	struct ledger_link *link;
	struct pg_transaction where, read, raise;
	bool asked, by_itself; /* not for a new connection */
	bool where_known, kept;
	int64_t system;
	int32_t timeline;
	char detail[160]; /* what is missing; "" where nothing is */
};

/* One connection; it carries at most one batch of writes, and reads beside it. */
struct ledger_link {
	struct ledger *ledger;
	struct pg *pg;
	bool checked;        /* schema, role and durability are right */
	struct batch *batch; /* under way; NULL: idle */
	struct pg_transaction session;
	struct history_check history;
	enum asked_instance asked; /* by its session */
	unsigned long asked_for;   /* of which settings, counted */
	int64_t session_us;        /* when the session's questions left */
};

/* One transaction of writes: reservations and settles under one commit. */
struct batch {
	struct pg_transaction transaction;
	struct ledger_link *link;
	struct list reserves, completions,
		releases; /* entries; completions hold unknown ones too */
	size_t n_reserves, n_completions, n_releases;
	int reserve_step, settle_step, release_step; /* -1: not sent */
	int64_t sent_us;
};

struct ledger {
	struct loop *loop;
	struct metrics *metrics;
	const struct settings *settings; /* held */
	unsigned index;
	char who[32];
	struct ledger_link links[LEDGER_CONNECTIONS_MAX];
	size_t n_links;

	struct list to_reserve, to_settle, to_read_key, to_read_record, to_check, to_free,
		to_late, waiting;
	struct list busy;      /* all entries that are not IDLE */
	size_t n_busy, n_late; /* late: their exchanges have gone and they are not settled */
	size_t n_late_max, late_bytes, late_bytes_max, n_spooled;
	bool full_said;      /* until all are settled */
	struct spool *spool; /* NULL: none */
	struct loop_timer tick;
	int64_t down_since_ms; /* when the last connection went; 0: one is up */
	int64_t retry_at_ms; /* no batch before: the last one failed for no fault of its rows */
	int64_t read_at_ms;  /* the same for reads */
	size_t limit;        /* rows of a batch now: halved while one of them fails all */
	size_t read_limit;   /* the same of reads */
	bool settles_alone; /* after a failure: settles first, reservations in a batch of their own */

	struct history history;

	/* the session */
	struct hash *key_hasher, *row_hasher;
	unsigned char request_id_key[16];
	bool has_secrets;
	int32_t instance; /* -1: none */
	int64_t token, renewed_ms, renew_at_ms;
	struct pg_transaction renewal;
	bool renewing, claiming;
	enum asked_instance renewal_asked;
	int64_t renewal_us;      /* when it was asked for */
	int64_t clock_offset_us; /* PostgreSQL's clock minus the loop's: at least this, */
	int64_t clock_doubt_us;  /* and at most so much more */
	int64_t op_ms;           /* of the last op_id */
	unsigned op_count;
	struct identity_check {
		unsigned char identity[32];
		bool same; /* as the ledger holds it */
	} * identities;    /* of operations of the settings, as far as asked */
	size_t n_identities;
	struct pg_transaction recheck;
	unsigned long followed;  /* how many settings so far */
	unsigned long rechecked; /* of which the operations are known */
	unsigned long recheck_asked_for;
	int64_t recheck_at_ms;
	int64_t keys_at_ms; /* when the digest keys are looked at again */
	struct pg_transaction keys_look;
	atomic_int missing_key; /* as in ledger_state */
	bool rechecking, keys_looking;
	char gateway[128]; /* for people: host and worker */
	char last_down[128];
	atomic_bool up, durable;
	const char *_Atomic why;

	struct stops *stops;     /* ledger_stops.c's */
	struct replays *replays; /* ledger_replays.c's */
	int64_t late_at_ms;      /* no later slots before: the last try failed */
	size_t n_lates;          /* transactions about later slots that are under way */

	struct pg_params params;
	struct ledger_entry **sorted; /* scratch, of batch_max */
};

static inline struct ledger_entry *entry_of(struct list *link)
{
	return container_of(link, struct ledger_entry, link);
}

/* ledger.c */
bool entry_never_sent(const struct ledger_entry *entry);
void entry_queue(struct ledger *ledger, struct ledger_entry *entry, struct list *queue,
		 enum entry_state state);
void entry_answer(struct ledger *ledger, struct ledger_entry *entry); /* tells the exchange */
void entry_conclude(struct ledger *ledger,
		    struct ledger_entry *entry); /* what was asked has its answer; now IDLE */
void entry_found(struct ledger *ledger, struct ledger_entry *entry, enum ledger_found found,
		 const char *why);
void entry_settled(struct ledger *ledger, struct ledger_entry *entry,
		   enum ledger_settled settled);
void entry_won(struct ledger *ledger, struct ledger_entry *entry);
/* Somebody else ended the attempt: reads how, if its exchange still wants to know. */
void entry_fenced(struct ledger *ledger, struct ledger_entry *entry);

/* ledger_send.c: the statements of a batch, between pg_begin and pg_end */
void batch_send(struct ledger *ledger, struct batch *batch);

/* ledger_write.c */
void ledger_write(struct ledger *ledger); /* batches for all idle connections */

/* ledger_read.c */
void ledger_read(struct ledger *ledger);

/* ledger_record.c: a row of read_records, for the entry that asked. Its place in what was asked for
 * stands in the first column. */
#define RECORD_PLACE 0
void record_found(struct ledger *ledger, struct ledger_entry *entry, struct pg_rows *rows,
		  size_t row);
/* Of an entry that lost its slot: is what stands there its own? */
void record_checked(struct ledger *ledger, struct ledger_entry *entry, struct pg_rows *rows,
		    size_t row);

/* ledger_wait.c */
void waiters_look_later(struct ledger *ledger, struct ledger_entry *entry);
void waiters_wake(struct ledger *ledger, int64_t op_id);
void waiters_due(struct ledger *ledger, int64_t now_ms);

/* ledger_late.c: claims, and ends beyond the first slot */
void ledger_late(struct ledger *ledger);

/* ledger_stops.c */
struct stops *stops_new(struct ledger *ledger);
void stops_free(struct stops *stops);
void stops_poll(struct ledger *ledger, int64_t now_ms); /* when it is due */
bool stops_known(const struct ledger *ledger);          /* read within the last two seconds */
/* NULL: it is not stopped; else why. */
const char *stops_stop(const struct ledger *ledger, const struct ledger_entry *entry);
/* NULL: the entry may have a new record; else why not, and as what it is found then. */
const char *stops_refuse(const struct ledger *ledger, const struct ledger_entry *entry,
			 enum ledger_found *found);
/* Is a key under which nothing stands one that has done nothing, for all that is known? */
bool stops_vouch(const struct ledger *ledger, const struct ledger_entry *entry);
void stops_all(struct ledger *ledger); /* nothing more, until they have been read anew */
/* A stored response is not what was stored: said durably, so that people see it. */
void stops_raise_mismatch(struct ledger *ledger, const struct ledger_entry *entry);

/* ledger_replays.c */
struct replays *replays_new(struct ledger *ledger);
void replays_free(struct replays *replays);
void replays_count(struct ledger *ledger, const struct ledger_entry *entry);
void replays_write(struct ledger *ledger, int64_t now_ms); /* when it is due */

/* ledger_unsettled.c */
void unsettled_begin(struct ledger *ledger, struct ledger_entry *entry, bool an_answer);
void unsettled_end(struct ledger *ledger, struct ledger_entry *entry);
/* The ledger does not take its end, nor as evidence: where it stands in a file, the file stays. */
void unsettled_leave(struct ledger *ledger, struct ledger_entry *entry);
bool unsettled_full(const struct ledger *ledger);
void unsettled_refuse(struct ledger *ledger); /* what was not sent yet, while it is full */

/* ledger_leftover.c */
void ledger_free_keys(struct ledger *ledger);

/* ledger_session.c */
void session_begin(struct ledger_link *link);
void session_recheck(struct ledger *ledger); /* new settings: their operations and rules */
/* A batch was not committed durably: no more until a new connection says that it is. */
void session_not_durable(struct ledger_link *link);
void session_publish(struct ledger *ledger);
bool ledger_ready(const struct ledger *ledger);
struct ledger_link *ledger_any_link(struct ledger *ledger); /* an up and checked one, or NULL */
/* NULL: the operation is the one that the ledger knows; else why it may not be used, and as what. */
const char *operation_refused(const struct ledger *ledger,
			      const struct idempotency_settings *idempotency,
			      enum ledger_found *found);

/* ledger_history.c */
void history_won(struct ledger *ledger, const struct ledger_entry *entry);
void history_ended(struct ledger *ledger, const struct ledger_entry *entry);
void history_ask(struct ledger_link *link); /* before the questions of its session */
/* False: the session does not go on; a stop is raised first, or the connection goes. */
bool history_holds(struct ledger_link *link);
bool history_lost(struct history_check *check);
void history_look(struct ledger *ledger, int64_t now_ms);

/* ledger_keys.c */
void keys_ask(struct ledger *ledger, struct pg *pg); /* two steps of a transaction */
void keys_take(struct ledger *ledger, const struct pg_rows *rows); /* of the second */
void keys_look(struct ledger *ledger, int64_t now_ms);             /* by itself, now and then */

/* What a record holds of its request. */
struct record_digest {
	int64_t rules_id;
	int32_t key_id;
	struct span canonical, raw;
};
/* Sets entry->same. False: the record's digests are under a key that is missing here. */
bool keys_compare(struct ledger *ledger, struct ledger_entry *entry,
		  const struct record_digest *record) MUST_CHECK;

/* What the hash of a row is over, beside whose it is. */
struct row {
	unsigned slot, status;
	struct span fields, body; /* a body of NULL: not kept */
};

/* ledger_instance.c */
enum asked_instance instance_ask(struct ledger *ledger,
				 struct pg *pg); /* a step of a transaction */
/* What came of it. False: the number is not ours, or none was free. */
bool instance_take(struct ledger *ledger, enum asked_instance asked, const struct pg_rows *rows,
		   int64_t asked_us);
void instance_missing(struct ledger *ledger, bool claiming); /* says so */
void instance_clock(struct ledger *ledger, int64_t server_us, int64_t asked_us);
void instance_renew(struct ledger *ledger, int64_t now_ms);
void instance_return(struct ledger *ledger); /* an orderly end */

/* ledger_row.c: bytes in rows, and the order of arrays of entries (for qsort) */
int entry_by_key_hash(const void *a, const void *b);
int entry_by_op_id(const void *a, const void *b);
int64_t ledger_clock_us(const struct ledger *ledger); /* PostgreSQL's */
int64_t op_id_make(struct ledger *ledger);
int64_t op_id_ms(int64_t op_id); /* since 1970 */
void row_key_hash(struct ledger *ledger, struct ledger_entry *entry);
void row_request_id(struct ledger *ledger, int64_t op_id, int32_t day,
		    char out[LEDGER_REQUEST_ID_BYTES]);
enum event_kind row_kind(enum ledger_outcome outcome);
/* Over `answer` with its fields as they stand in the row. */
void row_hash(struct ledger *ledger, const struct ledger_entry *entry, int64_t op_id,
	      const struct row *row, unsigned char out[32]);
/* Does a completed record's row fit its hash, for this request's account, operation and key? Parses `fields`. */
bool row_fits(struct ledger *ledger, struct ledger_entry *entry, const struct row *row,
	      struct span hash);
/* What the upstream gets as the key where it must not learn the client's: 64 hex digits, a keyed hash
 * of account, operation and key. In the entry's arena. */
struct span row_derived_key(struct ledger *ledger, const struct ledger_entry *entry);
