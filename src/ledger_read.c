/*
 * Reading what stands there: for reservations that lost, for those that wait for the first request
 * of their key, and for settles that lost their slot. Reads of one turn go out together, records
 * of one day in one statement; a waiter never has a query of its own.
 *
 * After a lost reply (`doubt`) a row may be this entry's own. What such a read shows counts only
 * when the transaction that read it has itself committed WAL, so a `confirm` goes first.
 */
#include "ledger_internal.h"

#include "log.h"

#include <assert.h>
#include <stdlib.h>

#define ANY_DAY INT32_MIN

/* One read under way, with its entries in the order of what is asked for. */
struct read {
	struct pg_transaction transaction;
	struct ledger *ledger;
	struct ledger_link *link;
	unsigned rows_step;
	size_t n;
	bool *seen;
	struct ledger_entry *entries[];
};

/* A check reads the entry's own record, the others the one that they found. */
static int64_t asked_op_id(const struct ledger_entry *entry)
{
	return entry->state == ENTRY_CHECKING ? entry->op_id : entry->record_op_id;
}

static int by_op_id(const void *a, const void *b)
{
	int64_t x = asked_op_id(*(struct ledger_entry *const *)a);
	int64_t y = asked_op_id(*(struct ledger_entry *const *)b);

	return (x > y) - (x < y);
}

/* The partition that the record stands in. */
static int32_t of_day(const struct ledger_entry *entry)
{
	return entry->state == ENTRY_TO_CHECK ? entry->day : entry->record_day;
}

static size_t smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

static size_t batch_max(const struct ledger *ledger)
{
	return (size_t)ledger->settings->ledger.batch_max;
}

static struct read *read_new(struct ledger *ledger, struct ledger_link *link,
			     void (*done)(struct pg_transaction *))
{
	size_t n = batch_max(ledger);
	struct read *read = mem_alloc(sizeof(*read) + n * sizeof(struct ledger_entry *));

	read->ledger = ledger;
	read->link = link;
	read->seen = mem_alloc(n);
	read->transaction.done = done;
	return read;
}

static void read_free(struct read *read)
{
	mem_free(read->seen);
	mem_free(read);
}

/* Moves entries of that day out of the queue into the read. */
static void take(struct read *read, struct list *queue, enum entry_state state, int32_t day)
{
	struct list *next = NULL;

	for (struct list *at = queue->next; at != queue && read->n < read->ledger->read_limit;
	     at = next) {
		struct ledger_entry *entry = entry_of(at);

		next = at->next;
		if (day != ANY_DAY && of_day(entry) != day)
			continue;
		list_remove(at);
		entry->state = state;
		read->entries[read->n++] = entry;
	}
}

static void confirm(struct ledger *ledger, struct ledger_link *link)
{
	pg_params_clear(&ledger->params);
	pg_send(link->pg, QUERY_confirm, &ledger->params);
}

/* One entry, by itself, and what stands there can't be read. Whether it is ours must be known. */
static void unreadable(struct ledger *ledger, struct ledger_entry *entry)
{
	if (entry->state == ENTRY_CHECKING) {
		unsettled_leave(ledger, entry);
		entry_settled(ledger, entry, LEDGER_FENCED);
	} else if (entry->doubt) {
		entry_queue(ledger, entry, &ledger->to_reserve, ENTRY_TO_RESERVE);
	} else {
		entry_found(ledger, entry, LEDGER_UNAVAILABLE, "the record can't be read");
	}
}

/* An entry whose read failed goes back; one whose exchange has gone only wants to know its own row. */
static void put_back(struct ledger *ledger, struct ledger_entry *entry, struct list *queue,
		     enum entry_state state)
{
	if (entry->answered && entry->fenced)
		entry_settled(ledger, entry, LEDGER_FENCED);
	else if (entry->answered && state == ENTRY_TO_READ_RECORD)
		entry_conclude(ledger, entry);
	else
		entry_queue(ledger, entry, queue, state);
}

/* Did the read commit, and, where it must confirm a row, durably? */
static bool believed(struct read *read)
{
	const struct pg_transaction *transaction = &read->transaction;

	if (transaction->outcome != PG_COMMITTED)
		return false;
	if (read->rows_step == 0 || pg_int(transaction->rows[0], 0, 0))
		return true;
	session_not_durable(read->link);
	return false;
}

/* Back into the queue it came from: the read failed or was lost. What fails together is read in
 * halves, so that one row that can't be read is no more than one. */
static bool again(struct read *read, struct list *queue, enum entry_state state)
{
	struct ledger *ledger = read->ledger;
	bool failed = read->transaction.outcome == PG_FAILED;

	if (believed(read)) {
		ledger->read_limit = smaller(ledger->read_limit * 2, batch_max(ledger));
		return false;
	}
	if (failed) {
		log_error(ledger->who, "a read of %zu failed: %s (SQLSTATE %s)", read->n,
			  read->transaction.message, read->transaction.sqlstate);
		ledger->read_limit = read->n > 1 ? read->n / 2 : 1;
		if (read->n == 1)
			ledger->read_at_ms = loop_now(ledger->loop) + LEDGER_RETRY_MS;
	}
	if (failed && read->n == 1) {
		unreadable(ledger, read->entries[0]);
	} else {
		for (size_t i = 0; i < read->n; i++)
			put_back(ledger, read->entries[i], queue, state);
	}
	read_free(read);
	return true;
}

/* --- keys --- */

/* The columns of read_keys. */
enum { K_HASH, K_OP_ID, K_DAY, K_DIGEST, K_RAW, K_RULES, K_DIGEST_KEY, K_EXPIRED, K_EXPIRES };

/* Another's record stands there: what it is about, and how it has ended, decide. */
static void other_found(struct ledger *ledger, struct ledger_entry *entry,
			const struct pg_rows *rows, size_t row)
{
	struct record_digest record = { .rules_id = pg_int(rows, row, K_RULES),
					.key_id = (int32_t)pg_int(rows, row, K_DIGEST_KEY),
					.canonical = pg_bytes(rows, row, K_DIGEST),
					.raw = pg_bytes(rows, row, K_RAW) };

	if (entry->answered) /* its exchange has gone: nothing of its own stands there */
		entry_conclude(ledger, entry);
	else if (!keys_compare(ledger, entry, &record))
		entry_found(ledger, entry, LEDGER_UNAVAILABLE,
			    "the record's digest was made under a key that is missing here");
	else
		entry_queue(ledger, entry, &ledger->to_read_record, ENTRY_TO_READ_RECORD);
}

static void key_found(struct read *read, struct ledger_entry *entry, size_t row)
{
	struct ledger *ledger = read->ledger;
	struct pg_rows *rows = read->transaction.rows[read->rows_step];
	int64_t op_id = pg_int(rows, row, K_OP_ID);

	entry->expires_at = pg_int(rows, row, K_EXPIRES);
	if (op_id == entry->op_id && read->rows_step) { /* ours, and durable: see confirm */
		entry->day = (int32_t)pg_int(rows, row, K_DAY);
		entry_won(ledger, entry);
		return;
	}
	if (op_id == entry->op_id) {
		entry->doubt = true;
		entry_queue(ledger, entry, &ledger->to_read_key, ENTRY_TO_READ_KEY);
		return;
	}
	entry->record_op_id = op_id;
	entry->record_day = (int32_t)pg_int(rows, row, K_DAY);
	entry->expired = pg_int(rows, row, K_EXPIRED) != 0;
	entry->first_seen = op_id_ms(op_id) / 1000;
	/* rather too old than too young: what may be sent again for a time is not, afterwards */
	entry->age_ms =
		(ledger_clock_us(ledger) + ledger->clock_doubt_us) / 1000 - op_id_ms(op_id);
	row_request_id(ledger, op_id, entry->record_day, entry->request_id);
	other_found(ledger, entry, rows, row);
}

/* It was there when the insert lost, and is gone: released or purged meanwhile. Try again. */
static void key_gone(struct ledger *ledger, struct ledger_entry *entry)
{
	enum ledger_found found = LEDGER_STOPPED;
	const char *why = entry->stopped ? stops_refuse(ledger, entry, &found) : NULL;

	entry->stopped = false;
	if (entry->answered) {
		entry_conclude(ledger, entry);
	} else if (why) {
		entry->no_record = stops_vouch(ledger, entry);
		entry_found(ledger, entry, found, why);
	} else if (entry->tries++ < LEDGER_RESERVE_TRIES) {
		entry_queue(ledger, entry, &ledger->to_reserve, ENTRY_TO_RESERVE);
	} else {
		entry->same = LEDGER_SAME;
		entry_found(ledger, entry, LEDGER_RELEASED, NULL);
	}
}

static size_t first_with(const struct read *read, struct span hash)
{
	size_t low = 0;
	size_t high = read->n;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (memcmp(read->entries[middle]->key_hash, hash.at, 16) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Which row is whose is settled before any entry is let go of: it may be freed then. */
static void keys_done(struct pg_transaction *transaction)
{
	struct read *read = container_of(transaction, struct read, transaction);
	struct ledger *ledger = read->ledger;
	struct pg_rows *rows = NULL;
	size_t *row_of = NULL;

	if (again(read, &ledger->to_read_key, ENTRY_TO_READ_KEY))
		return;
	rows = transaction->rows[read->rows_step];
	row_of = mem_alloc(read->n * sizeof(*row_of));
	for (size_t row = 0; row < pg_rows_count(rows); row++) {
		struct span hash = pg_bytes(rows, row, K_HASH);

		for (size_t i = first_with(read, hash);
		     i < read->n && memcmp(read->entries[i]->key_hash, hash.at, 16) == 0; i++) {
			read->seen[i] = true;
			row_of[i] = row;
		}
	}
	for (size_t i = 0; i < read->n; i++) {
		if (read->seen[i])
			key_found(read, read->entries[i], row_of[i]);
		else
			key_gone(ledger, read->entries[i]);
	}
	mem_free(row_of);
	read_free(read);
}

static void read_keys(struct ledger *ledger, struct ledger_link *link)
{
	struct read *read = read_new(ledger, link, keys_done);
	bool doubt = false;

	take(read, &ledger->to_read_key, ENTRY_READING_KEY, ANY_DAY);
	qsort(read->entries, read->n, sizeof(struct ledger_entry *), entry_by_key_hash);
	for (size_t i = 0; i < read->n; i++)
		doubt |= read->entries[i]->doubt;
	pg_begin(link->pg, &read->transaction);
	if (doubt)
		confirm(ledger, link);
	read->rows_step = doubt;
	pg_params_clear(&ledger->params);
	pg_array(&ledger->params, PG_UUID, read->n);
	for (size_t i = 0; i < read->n; i++)
		pg_add_bytes(&ledger->params,
			     (struct span){ (const char *)read->entries[i]->key_hash, 16 });
	pg_send(link->pg, QUERY_read_keys, &ledger->params);
	pg_end(link->pg);
}

/* --- records --- */

/* A poll need not look at a lease that was seen to hold longer. */
static bool lease_is_due(const struct ledger *ledger, const struct ledger_entry *entry)
{
	return !entry->waiting || loop_now(ledger->loop) >= entry->lease_ends_ms;
}

/* A row comes back for every id that was asked for, with its place in the array. */
static void records_done(struct pg_transaction *transaction)
{
	struct read *read = container_of(transaction, struct read, transaction);
	struct ledger *ledger = read->ledger;
	bool checking = read->entries[0]->state == ENTRY_CHECKING;
	struct pg_rows *rows = NULL;

	if (again(read, checking ? &ledger->to_check : &ledger->to_read_record,
		  checking ? ENTRY_TO_CHECK : ENTRY_TO_READ_RECORD))
		return;
	rows = transaction->rows[read->rows_step];
	assert(pg_rows_count(rows) == read->n);
	for (size_t row = 0; row < read->n; row++) {
		size_t place = (size_t)pg_int(rows, row, RECORD_PLACE) - 1;

		assert(place < read->n && !read->seen[place]);
		read->seen[place] = true;
		if (checking)
			record_checked(ledger, read->entries[place], rows, row);
		else
			record_found(ledger, read->entries[place], rows, row);
	}
	read_free(read);
}

/* The records of one day, the one of the first in the queue. */
static void read_records(struct ledger *ledger, struct ledger_link *link, struct list *queue)
{
	struct read *read = read_new(ledger, link, records_done);
	bool checking = queue == &ledger->to_check;
	int32_t day = of_day(entry_of(queue->next));

	take(read, queue, checking ? ENTRY_CHECKING : ENTRY_READING_RECORD, day);
	qsort(read->entries, read->n, sizeof(struct ledger_entry *), by_op_id);
	for (size_t i = 0; i < read->n; i++)
		read->entries[i]->looked_at_lease =
			!checking && lease_is_due(ledger, read->entries[i]);
	pg_begin(link->pg, &read->transaction);
	if (checking)
		confirm(ledger, link);
	read->rows_step = checking;
	pg_params_clear(&ledger->params);
	pg_array(&ledger->params, PG_INT8, read->n);
	for (size_t i = 0; i < read->n; i++)
		pg_add_int(&ledger->params, PG_INT8, asked_op_id(read->entries[i]));
	pg_array(&ledger->params, PG_INT2, read->n);
	for (size_t i = 0; i < read->n; i++)
		pg_add_int(&ledger->params, PG_INT2, read->entries[i]->looked_at_lease);
	pg_add_int(&ledger->params, PG_DATE, day);
	pg_send(link->pg, QUERY_read_records, &ledger->params);
	pg_end(link->pg);
}

void ledger_read(struct ledger *ledger)
{
	struct ledger_link *link = ledger_any_link(ledger);

	if (!link || loop_now(ledger->loop) < ledger->read_at_ms)
		return;
	while (!list_empty(&ledger->to_read_key))
		read_keys(ledger, link);
	while (!list_empty(&ledger->to_read_record))
		read_records(ledger, link, &ledger->to_read_record);
	while (!list_empty(&ledger->to_check))
		read_records(ledger, link, &ledger->to_check);
}
