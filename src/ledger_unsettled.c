/*
 * Ends of attempts that the ledger has not taken in time. Their exchanges have gone, and the ledger
 * goes on with them by itself: from memory, which is bounded. Where the bound is passed nothing new
 * is reserved until the ledger has taken some, because each reservation may become one more.
 *
 * Where there is a spool, answers are kept on disk as well, by a thread of the spool's: a process
 * that ends before the ledger is back leaves them to the next one. What was found to be unknown is
 * not kept: a lease that runs out says the same.
 */
#include "ledger_internal.h"

#include "log.h"
#include "spool.h"

static size_t weight(const struct ledger_entry *entry)
{
	return sizeof(*entry) + entry->account.len + entry->key.len + entry->fields.len +
	       entry->result.body.len;
}

static void publish(struct ledger *ledger, bool was_full)
{
	metrics_set(ledger->metrics, METRIC_unsettled_in_memory, 0, (int64_t)ledger->n_late);
	metrics_set(ledger->metrics, METRIC_unsettled_spooled, 0, (int64_t)ledger->n_spooled);
	if (!ledger->n_late)
		ledger->full_said = false;
	if (unsettled_full(ledger) == was_full)
		return;
	if (!was_full && !ledger->full_said)
		log_error(ledger->who,
			  "%zu answers (%zu bytes) wait for PostgreSQL: nothing is reserved "
			  "until it has taken some",
			  ledger->n_late, ledger->late_bytes);
	ledger->full_said = ledger->n_late > 0;
	session_publish(ledger);
}

bool unsettled_full(const struct ledger *ledger)
{
	return ledger->n_late > ledger->n_late_max ||
	       ledger->late_bytes > ledger->late_bytes_max;
}

/* The record that it is about: that of its own reservation, or the one that it resends. */
static int64_t record_of(const struct ledger_entry *entry)
{
	return entry->generation == 1 ? entry->op_id : entry->record_op_id;
}

static struct spool_answer answer_of(const struct ledger *ledger,
				     const struct ledger_entry *entry)
{
	const struct idempotency_settings *it = entry->idempotency;
	bool completes = entry->outcome == LEDGER_COMPLETE;
	bool first = entry->generation == 1;
	struct spool_answer answer = {
		.op_id = record_of(entry),
		.writer = first ? ledger->token : entry->op_id,
		.day = first ? entry->day : entry->record_day,
		.generation = entry->generation,
		.kind = completes ? EVENT_COMPLETED : EVENT_RELEASED,
		.receipt_unique = it->response.receipt_unique,
		.at_least_once = it->recovery.contract == RECOVERY_AT_LEAST_ONCE,
		.retention_ms = it->retention,
		.tombstone_ms = it->tombstone,
		.account = entry->account,
		.operation = span_of(it->operation),
		.key = entry->key,
		.note = span_of(entry->cause),
	};

	memcpy(answer.key_hash, entry->key_hash, sizeof(answer.key_hash));
	if (completes) {
		answer.status = entry->result.status;
		answer.fields = entry->fields;
		answer.body = entry->result.body;
	}
	if (completes && entry->receipt.len)
		answer.receipt = entry->receipt;
	return answer;
}

/* One that is fenced is in the ledger already, as evidence. */
static void keep(struct ledger *ledger, struct ledger_entry *entry)
{
	struct spool_answer answer;

	if (!ledger->spool || entry->spooled || entry->fenced ||
	    entry->outcome == LEDGER_MARK_UNKNOWN)
		return;
	answer = answer_of(ledger, entry);
	spool_put(ledger->spool, &answer);
	entry->spooled = true;
	ledger->n_spooled++;
}

/* An answer, or a reservation that was given back, which is worth no file of its own. */
void unsettled_begin(struct ledger *ledger, struct ledger_entry *entry, bool an_answer)
{
	bool was_full = unsettled_full(ledger);

	entry->unsettled = weight(entry);
	ledger->late_bytes += entry->unsettled;
	ledger->n_late++;
	if (an_answer)
		keep(ledger, entry);
	publish(ledger, was_full);
}

void unsettled_leave(struct ledger *ledger, struct ledger_entry *entry)
{
	if (entry->spooled)
		ledger->n_spooled--;
	entry->spooled = false;
}

/* Settled, whether its exchange has waited for that or not. */
void unsettled_end(struct ledger *ledger, struct ledger_entry *entry)
{
	bool was_full = unsettled_full(ledger);

	if (!entry->spooled && !entry->answered)
		return;
	if (entry->spooled)
		spool_drop(ledger->spool, record_of(entry), entry->generation);
	unsettled_leave(ledger, entry);
	if (entry->answered) {
		ledger->late_bytes -= entry->unsettled;
		ledger->n_late--;
	}
	entry->unsettled = 0;
	publish(ledger, was_full);
}

void unsettled_refuse(struct ledger *ledger)
{
	struct list queue;
	struct list *at = NULL;

	if (!unsettled_full(ledger) || list_empty(&ledger->to_reserve))
		return;
	list_init(&queue);
	list_move(&queue, &ledger->to_reserve);
	while ((at = list_shift(&queue)) != NULL) {
		struct ledger_entry *entry = entry_of(at);

		list_append(&ledger->to_reserve, at);
		if (!entry_never_sent(entry))
			continue;
		entry_found(ledger, entry, LEDGER_OVERLOADED, LEDGER_FULL);
		loop_wake(ledger->loop); /* the answer was given behind the listener's back */
	}
}

/* --- from outside --- */

void ledger_limit(struct ledger *ledger, size_t answers, size_t bytes)
{
	bool was_full = unsettled_full(ledger);

	ledger->n_late_max = answers ? answers : 1;
	ledger->late_bytes_max = bytes;
	publish(ledger, was_full);
}

void ledger_spool(struct ledger *ledger, struct spool *spool)
{
	ledger->spool = spool;
}

void ledger_spool_rest(struct ledger *ledger)
{
	for (struct list *at = ledger->busy.next; at != &ledger->busy; at = at->next) {
		struct ledger_entry *entry = container_of(at, struct ledger_entry, busy_link);

		if (entry->state >= ENTRY_TO_SETTLE)
			keep(ledger, entry);
	}
	publish(ledger, unsettled_full(ledger));
}
