/*
 * A batch's rows as the parameters of its statements: a table of columns for each statement, in the
 * order of its parameters, each column an array over the rows. Every transaction takes its locks in one
 * order (key inserts, attention, events, key deletes), each sorted, so that overlapping batches
 * of many gateways cannot deadlock.
 */
#include "ledger_internal.h"

#include <stdlib.h>

/* A settle this near to the end of its lease may have been listed by a sweep. */
#define LEASE_MARGIN_MS 2000

/* Sorts a list of entries, and leaves them in ledger->sorted as well; how many. */
static size_t sort(struct ledger *ledger, struct list *list,
		   int (*order)(const void *, const void *))
{
	size_t n = 0;
	struct list *at = NULL;

	while ((at = list_shift(list)) != NULL)
		ledger->sorted[n++] = entry_of(at);
	qsort(ledger->sorted, n, sizeof(struct ledger_entry *), order);
	for (size_t i = 0; i < n; i++)
		list_append(list, &ledger->sorted[i]->link);
	return n;
}

/* --- columns --- */

struct column {
	enum pg_type type;
	void (*add)(struct pg_params *params, const struct ledger_entry *entry);
};

static void add_columns(struct ledger *ledger, const struct column *columns, size_t n_columns,
			size_t n_rows)
{
	for (size_t c = 0; c < n_columns; c++) {
		pg_array(&ledger->params, columns[c].type, n_rows);
		for (size_t row = 0; row < n_rows; row++)
			columns[c].add(&ledger->params, ledger->sorted[row]);
	}
}

static void add_bytes(struct pg_params *params, const void *at, size_t len)
{
	pg_add_bytes(params, (struct span){ at, len });
}

static void key_hash(struct pg_params *params, const struct ledger_entry *entry)
{
	add_bytes(params, entry->key_hash, sizeof(entry->key_hash));
}

static void op_id(struct pg_params *params, const struct ledger_entry *entry)
{
	pg_add_int(params, PG_INT8, entry->op_id);
}

static void created_us(struct pg_params *params, const struct ledger_entry *entry)
{
	pg_add_int(params, PG_INT8, op_id_ms(entry->op_id) * 1000);
}

static void day(struct pg_params *params, const struct ledger_entry *entry)
{
	pg_add_int(params, PG_DATE, entry->day);
}

static void digest(struct pg_params *params, const struct ledger_entry *entry)
{
	add_bytes(params, entry->digest.canonical, sizeof(entry->digest.canonical));
}

static void raw_digest(struct pg_params *params, const struct ledger_entry *entry)
{
	add_bytes(params, entry->digest.raw, sizeof(entry->digest.raw));
}

static void rules_id(struct pg_params *params, const struct ledger_entry *entry)
{
	pg_add_int(params, PG_INT8, entry->idempotency->rules.id);
}

static void digest_key(struct pg_params *params, const struct ledger_entry *entry)
{
	pg_add_int(params, PG_INT4, entry->digest.key_id);
}

static void retention(struct pg_params *params, const struct ledger_entry *entry)
{
	pg_add_int(params, PG_INT8, entry->idempotency->retention);
}

static void tombstone(struct pg_params *params, const struct ledger_entry *entry)
{
	pg_add_int(params, PG_INT8, entry->idempotency->tombstone);
}

static void lease(struct pg_params *params, const struct ledger_entry *entry)
{
	pg_add_int(params, PG_INT8, entry->idempotency->lease);
}

static void account(struct pg_params *params, const struct ledger_entry *entry)
{
	pg_add_bytes(params, entry->account);
}

static void operation(struct pg_params *params, const struct ledger_entry *entry)
{
	pg_add_bytes(params, span_of(entry->idempotency->operation));
}

static void key(struct pg_params *params, const struct ledger_entry *entry)
{
	pg_add_bytes(params, entry->key);
}

static bool completes(const struct ledger_entry *entry)
{
	return entry->outcome == LEDGER_COMPLETE;
}

static void kind(struct pg_params *params, const struct ledger_entry *entry)
{
	pg_add_int(params, PG_INT2, row_kind(entry->outcome));
}

static void status(struct pg_params *params, const struct ledger_entry *entry)
{
	if (completes(entry))
		pg_add_int(params, PG_INT2, entry->result.status);
	else
		pg_add_null(params);
}

static void fields(struct pg_params *params, const struct ledger_entry *entry)
{
	pg_add_if(params, completes(entry), entry->fields);
}

static void body(struct pg_params *params, const struct ledger_entry *entry)
{
	pg_add_if(params, completes(entry) && entry->result.body.at, entry->result.body);
}

static void row_hash_of(struct pg_params *params, const struct ledger_entry *entry)
{
	const struct span hash = { (const char *)entry->hash, sizeof(entry->hash) };

	pg_add_if(params, completes(entry), hash);
}

static void receipt(struct pg_params *params, const struct ledger_entry *entry)
{
	pg_add_if(params, completes(entry) && entry->receipt.len, entry->receipt);
}

static void lookup_mark(struct pg_params *params, const struct ledger_entry *entry)
{
	const struct span mark = entry->idempotency->recovery.lookup_mark;

	pg_add_if(params, mark.len > 0, mark);
}

static void cause(struct pg_params *params, const struct ledger_entry *entry)
{
	pg_add_if(params, entry->cause != NULL, span_of(entry->cause));
}

/* --- statements --- */

static void send_reserves(struct ledger *ledger, struct batch *batch)
{
	static const struct column columns[] = {
		{ PG_UUID, key_hash },     { PG_INT8, op_id },      { PG_BYTEA, digest },
		{ PG_BYTEA, raw_digest },  { PG_INT8, rules_id },   { PG_INT4, digest_key },
		{ PG_INT8, retention },    { PG_INT8, tombstone },  { PG_INT8, lease },
		{ PG_BYTEA, account },     { PG_BYTEA, operation }, { PG_BYTEA, key },
		{ PG_BYTEA, lookup_mark },
	};
	const struct settings *settings = ledger->settings;
	size_t n = sort(ledger, &batch->reserves, entry_by_key_hash);

	pg_params_clear(&ledger->params);
	add_columns(ledger, columns, ARRAY_LEN(columns), n);
	pg_add_bytes(&ledger->params, span_of(ledger->gateway));
	add_bytes(&ledger->params, settings->fingerprint, sizeof(settings->fingerprint));
	batch->reserve_step = (int)batch->transaction.steps;
	pg_send(batch->link->pg, QUERY_reserve, &ledger->params);
}

/* What is near or past the end of its lease may stand on the attention list: off it. */
static void send_unlisting(struct ledger *ledger, struct batch *batch)
{
	static const struct column columns[] = { { PG_INT8, op_id } };
	struct list *const lists[] = { &batch->completions, &batch->releases };
	int64_t soon = loop_now(ledger->loop) + LEASE_MARGIN_MS;
	size_t n = 0;

	for (size_t l = 0; l < ARRAY_LEN(lists); l++)
		for (struct list *at = lists[l]->next; at != lists[l]; at = at->next) {
			struct ledger_entry *entry = entry_of(at);

			if (entry->outcome != LEDGER_MARK_UNKNOWN &&
			    soon > entry->sent_ms + entry->idempotency->lease)
				ledger->sorted[n++] = entry;
		}
	if (!n)
		return;
	qsort(ledger->sorted, n, sizeof(struct ledger_entry *), entry_by_op_id);
	pg_params_clear(&ledger->params);
	add_columns(ledger, columns, ARRAY_LEN(columns), n);
	pg_send(batch->link->pg, QUERY_attention_remove, &ledger->params);
}

/* Attempts whose result is not known: on the attention list. */
static void send_listing(struct ledger *ledger, struct batch *batch)
{
	static const struct column columns[] = {
		{ PG_INT8, created_us }, { PG_INT8, op_id },    { PG_DATE, day },
		{ PG_UUID, key_hash },   { PG_BYTEA, account }, { PG_BYTEA, operation },
		{ PG_BYTEA, key },       { PG_BYTEA, cause },
	};
	size_t all = sort(ledger, &batch->completions, entry_by_op_id);
	size_t n = 0;

	for (size_t i = 0; i < all; i++)
		if (!completes(ledger->sorted[i]))
			ledger->sorted[n++] = ledger->sorted[i];
	if (!n)
		return;
	pg_params_clear(&ledger->params);
	add_columns(ledger, columns, ARRAY_LEN(columns), n);
	pg_send(batch->link->pg, QUERY_attention_add, &ledger->params);
}

static void send_completions(struct ledger *ledger, struct batch *batch)
{
	static const struct column columns[] = {
		{ PG_INT8, op_id },        { PG_DATE, day },      { PG_INT2, kind },
		{ PG_INT2, status },       { PG_BYTEA, fields },  { PG_BYTEA, body },
		{ PG_BYTEA, row_hash_of }, { PG_BYTEA, receipt }, { PG_BYTEA, cause },
	};
	size_t n = sort(ledger, &batch->completions, entry_by_op_id);

	pg_params_clear(&ledger->params);
	pg_add_int(&ledger->params, PG_INT8, ledger->token);
	add_columns(ledger, columns, ARRAY_LEN(columns), n);
	batch->settle_step = (int)batch->transaction.steps;
	pg_send(batch->link->pg, QUERY_settle, &ledger->params);
}

/* Receipts that may stand under one key only. */
static void send_receipts(struct ledger *ledger, struct batch *batch)
{
	static const struct column columns[] = {
		{ PG_INT8, op_id },    { PG_BYTEA, account },  { PG_BYTEA, operation },
		{ PG_BYTEA, receipt }, { PG_INT8, tombstone },
	};
	size_t n = 0;

	for (struct list *at = batch->completions.next; at != &batch->completions;
	     at = at->next) {
		struct ledger_entry *entry = entry_of(at);

		if (completes(entry) && entry->receipt.len &&
		    entry->idempotency->response.receipt_unique)
			ledger->sorted[n++] = entry;
	}
	if (!n)
		return;
	pg_params_clear(&ledger->params);
	add_columns(ledger, columns, ARRAY_LEN(columns), n);
	pg_send(batch->link->pg, QUERY_receipts_add, &ledger->params);
}

static void send_releases(struct ledger *ledger, struct batch *batch)
{
	static const struct column columns[] = {
		{ PG_INT8, op_id },
		{ PG_DATE, day },
		{ PG_UUID, key_hash },
		{ PG_BYTEA, cause },
	};
	size_t n = sort(ledger, &batch->releases, entry_by_op_id);

	pg_params_clear(&ledger->params);
	pg_add_int(&ledger->params, PG_INT8, ledger->token);
	add_columns(ledger, columns, ARRAY_LEN(columns), n);
	batch->release_step = (int)batch->transaction.steps;
	pg_send(batch->link->pg, QUERY_release, &ledger->params);
}

void batch_send(struct ledger *ledger, struct batch *batch)
{
	if (batch->n_reserves)
		send_reserves(ledger, batch);
	send_unlisting(ledger, batch);
	if (batch->n_completions) {
		send_listing(ledger, batch);
		send_completions(ledger, batch);
		send_receipts(ledger, batch);
	}
	if (batch->n_releases)
		send_releases(ledger, batch);
}
