/*
 * An answer in a file, version 1:
 *
 *   "onceward answer 1\n"
 *   op_id 8, day 4, generation 2, kind 2, status 2, flags 2, writer 8, retention 8, tombstone 8,
 *   key hash 16
 *   account, operation, key, fields, body, receipt, note: the length in 8 bytes (all bits set:
 *   none), and the bytes
 *   SHA-256 of everything before it, 32
 *
 * Numbers are big-endian. The last 32 bytes say that nothing is missing and nothing was changed: a
 * file that a crash cut is told from one that is whole. A later version has another first line.
 */
#include "digest.h"
#include "spool.h"

#define FIRST_LINE SPAN("onceward answer 1\n")
#define NO_BYTES   UINT64_MAX
#define SUM_BYTES  32U

enum { FLAG_RECEIPT_UNIQUE = 1, FLAG_AT_LEAST_ONCE = 2 };

static void put_number(struct buf *out, uint64_t value, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++)
		buf_byte(out, (char)(value >> (8 * (bytes - 1 - i))));
}

static void put_bytes(struct buf *out, struct span bytes)
{
	put_number(out, bytes.at ? bytes.len : NO_BYTES, 8);
	if (bytes.at)
		buf_span(out, bytes);
}

static void sum(struct span of, unsigned char out[SUM_BYTES])
{
	struct hash *hash = hash_new();

	hash_reset(hash);
	hash_add(hash, of.at, of.len);
	hash_end(hash, out);
	hash_free(hash);
}

void spool_encode(const struct spool_answer *answer, struct buf *out)
{
	const struct span parts[] = { answer->account, answer->operation, answer->key,
				      answer->fields,  answer->body,      answer->receipt,
				      answer->note };
	unsigned char end[SUM_BYTES];
	size_t start = out->len;

	buf_span(out, FIRST_LINE);
	put_number(out, (uint64_t)answer->op_id, 8);
	put_number(out, (uint32_t)answer->day, 4);
	put_number(out, answer->generation, 2);
	put_number(out, answer->kind, 2);
	put_number(out, answer->status, 2);
	put_number(out,
		   (answer->receipt_unique ? FLAG_RECEIPT_UNIQUE : 0U) |
			   (answer->at_least_once ? FLAG_AT_LEAST_ONCE : 0U),
		   2);
	put_number(out, (uint64_t)answer->writer, 8);
	put_number(out, (uint64_t)answer->retention_ms, 8);
	put_number(out, (uint64_t)answer->tombstone_ms, 8);
	buf_append(out, answer->key_hash, sizeof(answer->key_hash));
	for (size_t i = 0; i < ARRAY_LEN(parts); i++)
		put_bytes(out, parts[i]);
	if (out->full)
		return;
	sum((struct span){ out->at + start, out->len - start }, end);
	buf_append(out, end, sizeof(end));
}

/* What is still to be read; `ok` turns false where something was missing. */
struct rest {
	struct span bytes;
	bool ok;
};

static struct span take(struct rest *rest, uint64_t len)
{
	struct span taken = { rest->bytes.at, (size_t)len };

	if (!rest->ok || len > rest->bytes.len) {
		rest->ok = false;
		return (struct span){ NULL, 0 };
	}
	rest->bytes.at += len;
	rest->bytes.len -= (size_t)len;
	return taken;
}

static uint64_t take_number(struct rest *rest, unsigned bytes)
{
	struct span at = take(rest, bytes);
	uint64_t value = 0;

	for (size_t i = 0; i < at.len; i++)
		value = value << 8 | (unsigned char)at.at[i];
	return value;
}

static struct span take_bytes(struct rest *rest)
{
	uint64_t len = take_number(rest, 8);

	return len == NO_BYTES ? (struct span){ NULL, 0 } : take(rest, len);
}

static void take_answer(struct rest *rest, struct spool_answer *answer)
{
	struct span *const parts[] = { &answer->account, &answer->operation, &answer->key,
				       &answer->fields,  &answer->body,      &answer->receipt,
				       &answer->note };
	struct span key_hash;
	uint64_t flags = 0;

	answer->op_id = (int64_t)take_number(rest, 8);
	answer->day = (int32_t)take_number(rest, 4);
	answer->generation = (unsigned)take_number(rest, 2);
	answer->kind = (unsigned)take_number(rest, 2);
	answer->status = (unsigned)take_number(rest, 2);
	flags = take_number(rest, 2);
	answer->receipt_unique = flags & FLAG_RECEIPT_UNIQUE;
	answer->at_least_once = flags & FLAG_AT_LEAST_ONCE;
	answer->writer = (int64_t)take_number(rest, 8);
	answer->retention_ms = (int64_t)take_number(rest, 8);
	answer->tombstone_ms = (int64_t)take_number(rest, 8);
	key_hash = take(rest, sizeof(answer->key_hash));
	if (rest->ok)
		memcpy(answer->key_hash, key_hash.at, sizeof(answer->key_hash));
	for (size_t i = 0; i < ARRAY_LEN(parts); i++)
		*parts[i] = take_bytes(rest);
}

bool spool_decode(struct span bytes, struct spool_answer *answer, const char **why)
{
	struct span line = FIRST_LINE;
	struct rest rest = { bytes, true };
	unsigned char due[SUM_BYTES];

	*answer = (struct spool_answer){ 0 };
	if (bytes.len < line.len || memcmp(bytes.at, line.at, line.len) != 0) {
		*why = "it is no answer of a version that this program knows";
		return false;
	}
	*why = "it is cut off or was changed: its checksum does not fit";
	if (bytes.len < line.len + SUM_BYTES)
		return false;
	rest.bytes.len -= SUM_BYTES;
	sum(rest.bytes, due);
	if (memcmp(due, bytes.at + rest.bytes.len, SUM_BYTES) != 0)
		return false;
	take(&rest, line.len);
	take_answer(&rest, answer);
	return rest.ok && rest.bytes.len == 0;
}
