/*
 * What is written beyond the first slot of a record, by the functions of sql/schema/0002.sql:
 *
 *   a claim       the right to send a request once more, as the next generation
 *   an end        of a resend; or of a first attempt that lost its slot, kept as evidence at least
 *   a new begin   of a record that is stale where an execution more is accepted
 *
 * These are rare, so each is a transaction of its own and no batch fails for it. A lost reply is no
 * riddle: asked again, the same writer gets the same answer. An entry is the writer of its claims by
 * its own op_id, which no other request has. Each transaction writes WAL by itself, so that what
 * is answered without a new row is as durable as what is answered with one.
 */
#include "ledger_internal.h"

#include "log.h"

#include <assert.h>

#define LATES_MAX 32U

struct late {
	struct pg_transaction transaction;
	struct ledger_link *link;
	struct ledger_entry *entry; /* NULL: nobody waits for it */
};

/* The steps of a transaction. */
enum { STEP_CONFIRMED, STEP_ANSWERED };

static bool claims(const struct ledger_entry *entry)
{
	return entry->state == ENTRY_TO_CLAIM || entry->state == ENTRY_CLAIMING;
}

static bool clears(const struct ledger_entry *entry)
{
	return entry->state == ENTRY_TO_CLEAR || entry->state == ENTRY_CLEARING;
}

/* --- what came of it --- */

static void queue_again(struct ledger *ledger, struct ledger_entry *entry)
{
	enum entry_state state = ENTRY_TO_CONCLUDE;

	if (claims(entry))
		state = ENTRY_TO_CLAIM;
	else if (clears(entry))
		state = ENTRY_TO_CLEAR;
	entry_queue(ledger, entry, &ledger->to_late, state);
}

/* Somebody was faster: what stands there now decides. */
static void look(struct ledger *ledger, struct ledger_entry *entry)
{
	if (entry->answered)
		entry_conclude(ledger, entry);
	else
		entry_queue(ledger, entry, &ledger->to_read_record, ENTRY_TO_READ_RECORD);
}

static void reserve_anew(struct ledger *ledger, struct ledger_entry *entry)
{
	if (entry->answered) {
		entry_conclude(ledger, entry);
		return;
	}
	entry->op_id = entry->sent_ms = 0;
	entry->doubt = false;
	entry->generation = 1;
	entry_queue(ledger, entry, &ledger->to_reserve, ENTRY_TO_RESERVE);
}

/* A later result is kept from its own time on. */
static void note_expiry(struct ledger_entry *entry, const struct pg_rows *rows)
{
	if (!pg_is_null(rows, 0, 1))
		entry->expires_at = pg_int(rows, 0, 1);
}

static void answered(struct ledger *ledger, struct ledger_entry *entry,
		     const struct pg_rows *rows)
{
	int64_t result = pg_int(rows, 0, 0);

	if (claims(entry)) {
		if (result == 1)
			entry_won(ledger, entry);
		else
			look(ledger, entry);
	} else if (clears(entry)) {
		if (result == CONCLUDED || result == CONCLUDED_RELEASED_BEFORE)
			reserve_anew(ledger, entry);
		else
			look(ledger, entry);
	} else if (result == CONCLUDED) {
		note_expiry(entry, rows);
		entry_settled(ledger, entry, LEDGER_SETTLED);
	} else {
		if (result == CONCLUDED_NO_RECORD)
			unsettled_leave(ledger, entry);
		entry_fenced(ledger, entry);
	}
}

/* PostgreSQL refuses this one thing. A claim that is not ours is none; an end that can't be written
 * leaves the record unknown, which it is. */
static void refused(struct ledger *ledger, struct ledger_entry *entry)
{
	if (claims(entry) || clears(entry)) {
		entry_found(ledger, entry, LEDGER_UNAVAILABLE,
			    "the ledger does not take this record");
	} else {
		unsettled_leave(ledger, entry);
		entry_settled(ledger, entry, LEDGER_FENCED);
	}
}

static void failed(struct ledger *ledger, struct late *late)
{
	const char *sqlstate = late->transaction.sqlstate;
	bool data = strncmp(sqlstate, "22", 2) == 0 || strncmp(sqlstate, "23", 2) == 0;

	if (data || loop_now(ledger->loop) >= ledger->late_at_ms) /* one of many is said */
		log_error(ledger->who, "a later end of %s failed: %s (SQLSTATE %s)",
			  late->entry->request_id, late->transaction.message, sqlstate);
	if (data) {
		refused(ledger, late->entry);
		return;
	}
	ledger->late_at_ms = loop_now(ledger->loop) + LEDGER_RETRY_MS;
	queue_again(ledger, late->entry);
}

static void late_done(struct pg_transaction *transaction)
{
	struct late *late = container_of(transaction, struct late, transaction);
	struct ledger *ledger = late->link->ledger;

	ledger->n_lates--;
	switch (transaction->outcome) {
	case PG_COMMITTED:
		if (pg_int(transaction->rows[STEP_CONFIRMED], 0, 0)) {
			answered(ledger, late->entry, transaction->rows[STEP_ANSWERED]);
			break;
		}
		session_not_durable(late->link);
		queue_again(ledger, late->entry);
		break;
	case PG_FAILED:
		failed(ledger, late);
		break;
	case PG_LOST:
		queue_again(ledger, late->entry);
		break;
	}
	mem_free(late);
}

/* --- the questions --- */

static struct span hash_of(const struct ledger_entry *entry)
{
	return (struct span){ (const char *)entry->key_hash, sizeof(entry->key_hash) };
}

/* The record that it is about: that of its own reservation, or the one that it found. */
static int64_t op_id_of(const struct ledger_entry *entry)
{
	bool own = entry->generation == 1 && !clears(entry);

	return own ? entry->op_id : entry->record_op_id;
}

static int32_t day_of(const struct ledger_entry *entry)
{
	bool own = entry->generation == 1 && !clears(entry);

	return own ? entry->day : entry->record_day;
}

static void send_claim(struct ledger *ledger, struct pg *pg, const struct ledger_entry *entry)
{
	struct pg_params *p = &ledger->params;

	pg_params_clear(p);
	pg_add_int(p, PG_INT8, op_id_of(entry));
	pg_add_int(p, PG_DATE, day_of(entry));
	pg_add_int(p, PG_INT2, entry->generation);
	pg_add_int(p, PG_INT8, entry->idempotency->lease);
	pg_add_int(p, PG_INT8, entry->op_id);
	pg_add_bytes(p, hash_of(entry));
	pg_add_bytes(p, entry->account);
	pg_add_bytes(p, span_of(entry->idempotency->operation));
	pg_add_bytes(p, entry->key);
	pg_send(pg, QUERY_late_claim, p);
}

/* The end itself: its kind, and what there is of an answer. */
static void add_end(struct pg_params *p, const struct ledger_entry *entry)
{
	bool clear = clears(entry);
	bool whole = !clear && entry->outcome == LEDGER_COMPLETE;
	struct span cause = span_of(clear ? "its lease ran out" : entry->cause);

	pg_add_int(p, PG_INT2, clear ? EVENT_RELEASED : row_kind(entry->outcome));
	if (whole)
		pg_add_int(p, PG_INT2, entry->result.status);
	else
		pg_add_null(p);
	pg_add_if(p, whole, entry->fields);
	pg_add_if(p, whole && entry->result.body.at, entry->result.body);
	pg_add_if(p, whole && entry->receipt.len, entry->receipt);
	pg_add_if(p, cause.at != NULL, cause);
}

static void send_end(struct ledger *ledger, struct pg *pg, const struct ledger_entry *entry)
{
	const struct idempotency_settings *it = entry->idempotency;
	bool first = entry->generation == 1 && !clears(entry);
	struct pg_params *p = &ledger->params;

	pg_params_clear(p);
	pg_add_int(p, PG_INT8, op_id_of(entry));
	pg_add_int(p, PG_DATE, day_of(entry));
	pg_add_bytes(p, hash_of(entry));
	pg_add_bytes(p, entry->account);
	pg_add_bytes(p, span_of(it->operation));
	pg_add_bytes(p, entry->key);
	pg_add_int(p, PG_INT2, entry->generation);
	add_end(p, entry);
	pg_add_int(p, PG_INT8, it->retention);
	pg_add_int(p, PG_INT8, it->tombstone);
	pg_add_int(p, PG_INT8, first ? ledger->token : entry->op_id);
	pg_add_int(p, PG_INT2, it->response.receipt_unique);
	pg_add_int(p, PG_INT2, it->recovery.contract == RECOVERY_AT_LEAST_ONCE);
	pg_send(pg, QUERY_late_conclude, p);
}

/* A stop forbids what leads to a forward; what has ended is written all the same. An account with
 * too many unknown results may resend: that is how they become known. */
static bool may_go(struct ledger *ledger, struct ledger_entry *entry)
{
	const char *why = NULL;

	if (claims(entry) && entry->answered) { /* nobody waits: what there may be of it ends */
		entry_won(ledger, entry);
		return false;
	}
	if (entry->sent || !(claims(entry) || clears(entry)))
		return true;
	why = stops_stop(ledger, entry);
	if (why)
		entry_found(ledger, entry, LEDGER_STOPPED, why);
	return !why;
}

static void send(struct ledger *ledger, struct ledger_link *link, struct ledger_entry *entry)
{
	struct late *late = mem_alloc(sizeof(*late));

	late->link = link;
	late->entry = entry;
	late->transaction.done = late_done;
	if (!entry->sent && claims(entry))
		entry->sent_ms = loop_now(ledger->loop);
	if (!entry->op_id) /* it came to look only; now it needs a name of its own */
		entry->op_id = op_id_make(ledger);
	entry->sent = true;
	ledger->n_lates++;
	list_remove(&entry->link);
	entry->state++; /* from TO_… to …ING */
	pg_begin(link->pg, &late->transaction);
	pg_params_clear(&ledger->params);
	pg_send(link->pg, QUERY_confirm, &ledger->params);
	if (claims(entry))
		send_claim(ledger, link->pg, entry);
	else
		send_end(ledger, link->pg, entry);
	pg_end(link->pg);
}

/* Claims and new begins wait until it is known what is stopped; ends do not. Each has a commit of its own,
 * so only some go out at a time: what else this thread asks need not wait behind all of them. */
void ledger_late(struct ledger *ledger)
{
	struct ledger_link *link = ledger_any_link(ledger);
	bool known = stops_known(ledger) && ledger_ready(ledger);
	struct list *next = NULL;

	if (!link || loop_now(ledger->loop) < ledger->late_at_ms)
		return;
	for (struct list *at = ledger->to_late.next;
	     at != &ledger->to_late && ledger->n_lates < LATES_MAX; at = next) {
		struct ledger_entry *entry = entry_of(at);

		next = at->next;
		if ((known || entry->state == ENTRY_TO_CONCLUDE) && may_go(ledger, entry))
			send(ledger, link, entry);
	}
}
