/*
 * Those that wait for the first request of their key. They are looked after all together: one read
 * for whoever is due, with a growing gap, and at once where the attempt ended on this very worker.
 */
#include "ledger_internal.h"

#define POLL_MAX_MS 250

void waiters_look_later(struct ledger *ledger, struct ledger_entry *entry)
{
	entry->poll_at_ms = loop_now(ledger->loop) + entry->poll_every_ms;
	entry->poll_every_ms =
		entry->poll_every_ms * 2 < POLL_MAX_MS ? entry->poll_every_ms * 2 : POLL_MAX_MS;
	entry_queue(ledger, entry, &ledger->waiting, ENTRY_WAITING);
}

static void poked(struct pg_transaction *transaction)
{
	mem_free(transaction);
}

/* The back office is asked to look the record up now. If that does not get through it looks by
 * itself, some time later. */
static void poke(struct ledger *ledger, struct ledger_entry *entry)
{
	struct ledger_link *link = ledger_any_link(ledger);
	struct pg_transaction *transaction = NULL;

	entry->sent = true;
	if (!link)
		return;
	transaction = mem_alloc(sizeof(*transaction));
	transaction->done = poked;
	pg_begin(link->pg, transaction);
	pg_params_clear(&ledger->params);
	pg_add_int(&ledger->params, PG_INT8, entry->record_op_id);
	pg_send(link->pg, QUERY_late_poke, &ledger->params);
	pg_end(link->pg);
}

static void look(struct ledger *ledger, struct ledger_entry *entry)
{
	if (entry->looked_up && !entry->sent)
		poke(ledger, entry);
	entry_queue(ledger, entry, &ledger->to_read_record, ENTRY_TO_READ_RECORD);
}

void waiters_due(struct ledger *ledger, int64_t now_ms)
{
	struct list *next = NULL;

	for (struct list *at = ledger->waiting.next; at != &ledger->waiting; at = next) {
		next = at->next;
		if (entry_of(at)->poll_at_ms <= now_ms)
			look(ledger, entry_of(at));
	}
}

/* The attempt that they wait for has ended on this very worker: no need to wait for the poll. */
void waiters_wake(struct ledger *ledger, int64_t op_id)
{
	struct list *next = NULL;

	for (struct list *at = ledger->waiting.next; at != &ledger->waiting; at = next) {
		next = at->next;
		if (entry_of(at)->record_op_id == op_id)
			look(ledger, entry_of(at));
	}
}
