/*
 * Keys that stand though their attempt was released. A backend whose connection was lost may go on
 * working: its insert comes after everybody has agreed that the reservation is gone. Nobody
 * forwards for such a row, and its end is written, so whoever meets it takes it away.
 */
#include "ledger_internal.h"

#include <stdlib.h>

struct freeing {
	struct pg_transaction transaction;
	struct ledger *ledger;
	struct list entries;
};

/* However it went: the reserve that follows finds out. */
static void freed(struct pg_transaction *transaction)
{
	struct freeing *freeing = container_of(transaction, struct freeing, transaction);
	struct list *at = NULL;

	while ((at = list_shift(&freeing->entries)) != NULL) {
		struct ledger_entry *entry = entry_of(at);

		if (entry->answered)
			entry_conclude(freeing->ledger, entry);
		else
			entry_queue(freeing->ledger, entry, &freeing->ledger->to_reserve,
				    ENTRY_TO_RESERVE);
	}
	mem_free(freeing);
}

static size_t take(struct ledger *ledger, struct list *entries)
{
	size_t most = (size_t)ledger->settings->ledger.batch_max;
	size_t n = 0;
	struct list *at = NULL;

	while (n < most && (at = list_shift(&ledger->to_free)) != NULL) {
		entry_of(at)->state = ENTRY_FREEING;
		ledger->sorted[n++] = entry_of(at);
		list_append(entries, at);
	}
	qsort(ledger->sorted, n, sizeof(struct ledger_entry *), entry_by_key_hash);
	return n;
}

void ledger_free_keys(struct ledger *ledger)
{
	struct ledger_link *link = ledger_any_link(ledger);
	struct pg_params *params = &ledger->params;
	struct freeing *freeing = NULL;
	size_t n = 0;

	if (!link || list_empty(&ledger->to_free))
		return;
	freeing = mem_alloc(sizeof(*freeing));
	freeing->ledger = ledger;
	freeing->transaction.done = freed;
	list_init(&freeing->entries);
	n = take(ledger, &freeing->entries);
	pg_params_clear(params);
	pg_array(params, PG_UUID, n);
	for (size_t i = 0; i < n; i++)
		pg_add_bytes(params,
			     (struct span){ (const char *)ledger->sorted[i]->key_hash, 16 });
	pg_array(params, PG_INT8, n);
	for (size_t i = 0; i < n; i++)
		pg_add_int(params, PG_INT8, ledger->sorted[i]->record_op_id);
	pg_array(params, PG_DATE, n);
	for (size_t i = 0; i < n; i++)
		pg_add_int(params, PG_DATE, ledger->sorted[i]->record_day);
	pg_begin(link->pg, &freeing->transaction);
	pg_send(link->pg, QUERY_free_keys, params);
	pg_end(link->pg);
}
