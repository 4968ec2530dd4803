/*
 * What the rows of a record say: how it ended, who said so, or that nobody knows. See
 * ledger_read.c, which asks for them, and sql/schema/ for what a slot means.
 */
#include "ledger_internal.h"

#include "log.h"

/* The columns of read_records. */
enum {
	R_PLACE = RECORD_PLACE,
	R_KIND,
	R_STATUS,
	R_FIELDS,
	R_BODY,
	R_HASH,
	R_WRITER,
	R_AT,
	R_LEASE_LEFT,
	R_LEFT_OUT,
	R_SLOT,
	R_SOURCE,
	R_GENERATION,
	R_TRIED,
	R_EXPIRES,
	R_EXPIRED
};

/* Nobody knows. Who waits for what a look-up finds waits on. */
static void unknown(struct ledger *ledger, struct ledger_entry *entry)
{
	if (entry->looked_up && entry->waiting && !entry->answered)
		waiters_look_later(ledger, entry);
	else
		entry_found(ledger, entry, LEDGER_UNKNOWN, NULL);
}

/* No end of its last attempt is written: whether it still runs its lease says, by PostgreSQL's clock. */
static void no_end(struct ledger *ledger, struct ledger_entry *entry, struct pg_rows *rows,
		   size_t row)
{
	bool asked = entry->looked_at_lease || !pg_is_null(rows, row, R_KIND);
	int64_t left =
		pg_is_null(rows, row, R_LEASE_LEFT) ? 0 : pg_int(rows, row, R_LEASE_LEFT);
	bool running = left > 0 || !asked;

	if (left > 0)
		entry->lease_ends_ms = loop_now(ledger->loop) + left;
	entry->stale = pg_is_null(rows, row, R_KIND) && !running;
	if (running && entry->waiting && !entry->answered)
		waiters_look_later(ledger, entry);
	else if (running)
		entry_found(ledger, entry, LEDGER_IN_FLIGHT, NULL);
	else
		unknown(ledger, entry);
}

static struct span copy(struct ledger_entry *entry, struct pg_rows *rows, size_t row,
			unsigned column)
{
	if (pg_is_null(rows, row, column))
		return (struct span){ NULL, 0 };
	return arena_copy(entry->arena, pg_bytes(rows, row, column));
}

static void completed(struct ledger *ledger, struct ledger_entry *entry, struct pg_rows *rows,
		      size_t row)
{
	struct row stored = { (unsigned)pg_int(rows, row, R_SLOT), 0,
			      copy(entry, rows, row, R_FIELDS),
			      copy(entry, rows, row, R_BODY) };

	entry->completed_at = pg_is_null(rows, row, R_AT) ? 0 : pg_int(rows, row, R_AT);
	entry->source = (enum record_source)pg_int(rows, row, R_SOURCE);
	if (!pg_is_null(rows, row, R_STATUS))
		stored.status = (unsigned)pg_int(rows, row, R_STATUS);
	if (!pg_is_null(rows, row, R_EXPIRES)) { /* it counts from its resolution */
		entry->expires_at = pg_int(rows, row, R_EXPIRES);
		entry->expired = pg_int(rows, row, R_EXPIRED) != 0;
	}
	entry->stored = (struct http_answer){ .status = stored.status, .body = stored.body };
	entry->retained = stored.body.at && !entry->expired;
	if (!stored.body.at && pg_is_null(rows, row, R_HASH)) { /* it was taken away */
		entry->retained = false;
	} else if (entry->same == LEDGER_SAME &&
		   !row_fits(ledger, entry, &stored, pg_bytes(rows, row, R_HASH))) {
		metrics_add(ledger->metrics, METRIC_replay_mismatches_total, 0, 1);
		log_error(ledger->who, "the stored response of %s does not fit its hash",
			  entry->request_id);
		stops_raise_mismatch(ledger, entry);
		entry_found(ledger, entry, LEDGER_STOPPED,
			    "its stored response does not fit its hash");
		return;
	}
	entry_found(ledger, entry, LEDGER_COMPLETED, NULL);
}

/* Its key was freed between two statements, or stands though it should not. A waiter says so; a
 * fresh request sees to it that the key is free, and tries again. */
static void released(struct ledger *ledger, struct ledger_entry *entry)
{
	if (entry->waiting || entry->fenced || entry->answered || entry->stopped ||
	    entry->tries++ >= LEDGER_RESERVE_TRIES)
		entry_found(ledger, entry, LEDGER_RELEASED, NULL);
	else
		entry_queue(ledger, entry, &ledger->to_free, ENTRY_TO_FREE);
}

void record_found(struct ledger *ledger, struct ledger_entry *entry, struct pg_rows *rows,
		  size_t row)
{
	if (!entry->fenced) /* else it is its own attempt's */
		entry->generation = (unsigned)pg_int(rows, row, R_GENERATION);
	entry->tried_ms = pg_is_null(rows, row, R_TRIED) ? -1 : pg_int(rows, row, R_TRIED);
	if (entry->tried_ms < 0 && !pg_is_null(rows, row, R_TRIED))
		entry->tried_ms = 0; /* it began behind this transaction's back */
	entry->stale = false;
	if (pg_is_null(rows, row, R_KIND) || pg_int(rows, row, R_KIND) == EVENT_CLAIM) {
		no_end(ledger, entry, rows, row);
		return;
	}
	if (pg_int(rows, row, R_LEFT_OUT)) {
		entry_queue(ledger, entry, &ledger->to_read_record, ENTRY_TO_READ_RECORD);
		return;
	}
	switch (pg_int(rows, row, R_KIND)) {
	case EVENT_COMPLETED:
		/* Before its time nothing of a record goes: then it was lost. */
		if (pg_is_null(rows, row, R_STATUS) && !entry->expired)
			unknown(ledger, entry);
		else
			completed(ledger, entry, rows, row);
		break;
	case EVENT_RELEASED:
		released(ledger, entry);
		break;
	default: /* unknown; or what a later version writes, which is no permission to send */
		unknown(ledger, entry);
		break;
	}
}

void record_checked(struct ledger *ledger, struct ledger_entry *entry, struct pg_rows *rows,
		    size_t row)
{
	bool ours = !pg_is_null(rows, row, R_KIND) &&
		    pg_int(rows, row, R_WRITER) == ledger->token &&
		    pg_int(rows, row, R_KIND) == row_kind(entry->outcome);

	if (ours)
		entry_settled(ledger, entry, LEDGER_SETTLED);
	else if (entry->outcome != LEDGER_RELEASE) /* it may still decide, is evidence, or was
						      listed for nothing */
		entry_queue(ledger, entry, &ledger->to_late, ENTRY_TO_CONCLUDE);
	else
		entry_fenced(ledger, entry);
}
