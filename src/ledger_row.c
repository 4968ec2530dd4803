/*
 * What stands in the ledger's rows, byte for byte: op_ids, key hashes, logical request ids, header
 * fields and the hash of a stored response. Other instances and later versions read them: a
 * change here is a change of the schema.
 */
#include "ledger_internal.h"

#include "digest.h"
#include "field_lines.h"
#include "record_id.h"

#include <assert.h>

/* op_id = milliseconds since 2020 << 22 | instance << 11 | counter: time-ordered, unique while
 * an instance number has one owner, and never backward within a worker. */
#define INSTANCE_SHIFT 11
#define TIME_SHIFT     22
#define COUNTER_LIMIT  2048U

int64_t ledger_clock_us(const struct ledger *ledger)
{
	return loop_clock_us() + ledger->clock_offset_us;
}

int64_t op_id_make(struct ledger *ledger)
{
	int64_t ms = ledger_clock_us(ledger) / 1000 - LEDGER_EPOCH_MS;

	assert(ledger->instance >= 0);
	if (ms > ledger->op_ms) {
		ledger->op_ms = ms;
		ledger->op_count = 0;
	} else if (++ledger->op_count == COUNTER_LIMIT) { /* or the clock went back: count on */
		ledger->op_ms++;
		ledger->op_count = 0;
	}
	return ledger->op_ms << TIME_SHIFT | (int64_t)ledger->instance << INSTANCE_SHIFT |
	       ledger->op_count;
}

int64_t op_id_ms(int64_t op_id)
{
	return (op_id >> TIME_SHIFT) + LEDGER_EPOCH_MS;
}

void row_key_hash(struct ledger *ledger, struct ledger_entry *entry)
{
	record_key_hash(ledger->key_hasher, entry->account,
			span_of(entry->idempotency->operation), entry->key, entry->key_hash);
}

static void put_big_endian(unsigned char *out, uint64_t value, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		out[i] = (unsigned char)(value >> (8 * (bytes - 1 - i)));
}

void row_request_id(struct ledger *ledger, int64_t op_id, int32_t day,
		    char out[LEDGER_REQUEST_ID_BYTES])
{
	_Static_assert(LEDGER_REQUEST_ID_BYTES == RECORD_ID_BYTES, "an id is an id");
	record_id_write(ledger->request_id_key, op_id, day, out);
}

enum event_kind row_kind(enum ledger_outcome outcome)
{
	static const enum event_kind kinds[] = { [LEDGER_COMPLETE] = EVENT_COMPLETED,
						 [LEDGER_MARK_UNKNOWN] = EVENT_UNKNOWN,
						 [LEDGER_RELEASE] = EVENT_RELEASED };

	return kinds[outcome];
}

/* SHA-256 over whose it is (account, operation, key), op_id, slot, status, fields and body. An
 * answer that was stored for somebody else, or was changed, does not fit. */
void row_hash(struct ledger *ledger, const struct ledger_entry *entry, int64_t op_id,
	      const struct row *row, unsigned char out[32])
{
	struct hash *hash = ledger->row_hasher;
	unsigned char numbers[13];

	put_big_endian(numbers, (uint64_t)op_id, 8);
	put_big_endian(numbers + 8, row->slot, 2);
	put_big_endian(numbers + 10, row->status, 2);
	numbers[12] = row->body.at != NULL;
	hash_reset(hash);
	hash_add_span(hash, entry->account);
	hash_add_span(hash, span_of(entry->idempotency->operation));
	hash_add_span(hash, entry->key);
	hash_add(hash, numbers, sizeof(numbers));
	hash_add_span(hash, row->fields);
	hash_add_span(hash, row->body);
	hash_end(hash, out);
}

/* Does the row say what was written, for whom it was written? */
bool row_fits(struct ledger *ledger, struct ledger_entry *entry, const struct row *row,
	      struct span hash)
{
	unsigned char due[32];

	row_hash(ledger, entry, entry->record_op_id, row, due);
	return hash.len == sizeof(due) && memcmp(hash.at, due, sizeof(due)) == 0 &&
	       field_lines_read(entry->arena, row->fields, &entry->stored.fields);
}

/* Never the same as a key hash: a word stands in front. */
struct span row_derived_key(struct ledger *ledger, const struct ledger_entry *entry)
{
	static const char digits[] = "0123456789abcdef";
	struct hash *hash = ledger->key_hasher;
	unsigned char full[32];
	char *out = arena_alloc(entry->arena, 2 * sizeof(full));

	hash_reset(hash);
	hash_add_span(hash, SPAN("forwarded key"));
	hash_add_span(hash, entry->account);
	hash_add_span(hash, span_of(entry->idempotency->operation));
	hash_add_span(hash, entry->key);
	hash_end(hash, full);
	for (size_t i = 0; i < sizeof(full); i++) {
		out[2 * i] = digits[full[i] >> 4];
		out[2 * i + 1] = digits[full[i] & 15];
	}
	return (struct span){ out, 2 * sizeof(full) };
}

int entry_by_key_hash(const void *a, const void *b)
{
	const struct ledger_entry *const *x = a;
	const struct ledger_entry *const *y = b;

	return memcmp((*x)->key_hash, (*y)->key_hash, sizeof((*x)->key_hash));
}

int entry_by_op_id(const void *a, const void *b)
{
	const struct ledger_entry *const *x = a;
	const struct ledger_entry *const *y = b;

	return ((*x)->op_id > (*y)->op_id) - ((*x)->op_id < (*y)->op_id);
}
