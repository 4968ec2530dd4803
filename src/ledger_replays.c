/*
 * How often a stored answer was given again, for people (CONTRACT 15). Counted in memory, record by
 * record, and added up in the ledger every 10 s by one statement, so that a replay itself writes
 * nothing. The count is there to look at and decides nothing: what a lost connection or the end of
 * the process takes with it is not counted, and where more records are replayed in a moment than
 * there is room for, those beyond it are not.
 */
#include "ledger_internal.h"

#include "log.h"

#include <stdlib.h>

#define EVERY_MS    10000
#define REPLAYS_MAX ((size_t)1024)
#define SLOTS       (2 * REPLAYS_MAX) /* never more than half full */
#define DAY_S       86400

struct replayed {
	int64_t op_id, n; /* n 0: nobody's */
	int32_t day;      /* on which its answer expires */
};

struct replays {
	struct ledger *ledger;
	struct pg_transaction write;
	bool writing;
	int64_t due_ms; /* 0: nothing is counted */
	size_t n;
	struct replayed at[SLOTS];
	struct replayed sorted[REPLAYS_MAX]; /* scratch */
};

struct replays *replays_new(struct ledger *ledger)
{
	struct replays *replays = mem_alloc(sizeof(*replays));

	replays->ledger = ledger;
	return replays;
}

void replays_free(struct replays *replays)
{
	mem_free(replays);
}

/* Its own, or the one that would be. */
static struct replayed *slot_of(struct replays *replays, int64_t op_id)
{
	size_t i = ((uint64_t)op_id * UINT64_C(0x9e3779b97f4a7c15)) >> 32;

	while (replays->at[i % SLOTS].n && replays->at[i % SLOTS].op_id != op_id)
		i++;
	return &replays->at[i % SLOTS];
}

void replays_count(struct ledger *ledger, const struct ledger_entry *entry)
{
	struct replays *replays = ledger->replays;
	struct replayed *slot = slot_of(replays, entry->record_op_id);

	if (!slot->n) {
		if (replays->n == REPLAYS_MAX) {
			replays->due_ms = 1; /* as soon as may be */
			return;
		}
		replays->n++;
		slot->op_id = entry->record_op_id;
		slot->day = (int32_t)(entry->expires_at / DAY_S);
	}
	slot->n++;
	if (!replays->due_ms)
		replays->due_ms = loop_now(ledger->loop) + EVERY_MS;
}

static void written(struct pg_transaction *transaction)
{
	struct replays *replays = container_of(transaction, struct replays, write);

	replays->writing = false;
	if (transaction->outcome == PG_FAILED)
		log_debug(replays->ledger->who, "replays were not counted: %s",
			  transaction->message);
}

static int by_op_id(const void *a, const void *b)
{
	const struct replayed *x = a;
	const struct replayed *y = b;

	return (x->op_id > y->op_id) - (x->op_id < y->op_id);
}

/* All that is counted, in the order in which everybody takes the rows; then nothing is. */
static size_t take(struct replays *replays)
{
	size_t n = 0;

	for (size_t i = 0; i < SLOTS; i++)
		if (replays->at[i].n)
			replays->sorted[n++] = replays->at[i];
	memset(replays->at, 0, sizeof(replays->at));
	replays->n = 0;
	replays->due_ms = 0;
	qsort(replays->sorted, n, sizeof(*replays->sorted), by_op_id);
	return n;
}

static void send(struct replays *replays, struct pg *pg)
{
	struct pg_params *p = &replays->ledger->params;
	size_t n = take(replays);

	pg_params_clear(p);
	pg_array(p, PG_INT8, n);
	for (size_t i = 0; i < n; i++)
		pg_add_int(p, PG_INT8, replays->sorted[i].op_id);
	pg_array(p, PG_INT8, n);
	for (size_t i = 0; i < n; i++)
		pg_add_int(p, PG_INT8, replays->sorted[i].n);
	pg_array(p, PG_DATE, n);
	for (size_t i = 0; i < n; i++)
		pg_add_int(p, PG_DATE, replays->sorted[i].day);
	replays->write.done = written;
	replays->writing = true;
	pg_begin(pg, &replays->write);
	pg_send(pg, QUERY_replays_add, p);
	pg_end(pg);
	pg_flush(pg);
}

void replays_write(struct ledger *ledger, int64_t now_ms)
{
	struct replays *replays = ledger->replays;
	struct ledger_link *link = ledger_any_link(ledger);

	if (link && !replays->writing && replays->due_ms && now_ms >= replays->due_ms)
		send(replays, link->pg);
}
