/*
 * The two names of a record.
 *
 * The key hash is 128 bits of HMAC-SHA-256 over the length-prefixed account, operation and key. A
 * key that has its time in it (UUIDv7, ULID) keeps it in front, with 80 bits of the HMAC: still a
 * function of the three, and the index is filled in order.
 *
 * The logical request id is req_ and the base32 of one AES block that holds op_id and day: opaque,
 * and found again without a table. Of the block 32 bits are zero, so an id that somebody made up
 * is told from a real one.
 */
#include "record_id.h"

#include "key.h"

#define PREFIX_BYTES 4U
#define LETTERS      26U

static const char letters[] = "abcdefghijklmnopqrstuvwxyz234567";

void record_key_hash(struct hash *hasher, struct span account, struct span operation,
		     struct span key, unsigned char out[16])
{
	unsigned char full[32];
	uint64_t ms = 0;

	hash_reset(hasher);
	hash_add_span(hasher, account);
	hash_add_span(hasher, operation);
	hash_add_span(hasher, key);
	hash_end(hasher, full);
	memcpy(out, full, 16);
	if (!key_time(key, &ms))
		return;
	for (int i = 0; i < 6; i++)
		out[i] = (unsigned char)(ms >> (40 - 8 * i));
}

static void put_big_endian(unsigned char *out, uint64_t value, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		out[i] = (unsigned char)(value >> (8 * (bytes - 1 - i)));
}

static uint64_t get_big_endian(const unsigned char *at, size_t bytes)
{
	uint64_t value = 0;

	for (size_t i = 0; i < bytes; i++)
		value = value << 8 | at[i];
	return value;
}

void record_id_write(const unsigned char key[16], int64_t op_id, int32_t day,
		     char out[RECORD_ID_BYTES])
{
	unsigned char plain[16] = { 0 };
	unsigned char block[17] = { 0 }; /* one more, for the last letter's missing bits */

	put_big_endian(plain, (uint64_t)op_id, 8);
	put_big_endian(plain + 8, (uint64_t)day, 4);
	block_encrypt(key, plain, block);
	memcpy(out, "req_", PREFIX_BYTES);
	for (unsigned i = 0; i < LETTERS; i++) {
		unsigned bit = i * 5;
		unsigned pair = (unsigned)block[bit / 8] << 8 | block[bit / 8 + 1];

		out[PREFIX_BYTES + i] = letters[(pair >> (11 - bit % 8)) & 31];
	}
	out[PREFIX_BYTES + LETTERS] = 0;
}

/* The 130 bits of 26 letters; those behind the block must be zero. */
static bool read_block(struct span text, unsigned char block[17])
{
	for (unsigned i = 0; i < LETTERS; i++) {
		const char *at = text.at[i] ? strchr(letters, text.at[i]) : NULL;
		unsigned bit = i * 5;
		unsigned pair = 0;

		if (!at)
			return false;
		pair = (unsigned)(at - letters) << (11 - bit % 8);
		block[bit / 8] = (unsigned char)(block[bit / 8] | pair >> 8);
		block[bit / 8 + 1] = (unsigned char)(block[bit / 8 + 1] | (pair & 0xff));
	}
	return block[16] == 0;
}

bool record_id_read(const unsigned char key[16], struct span text, int64_t *op_id, int32_t *day)
{
	unsigned char block[17] = { 0 };
	unsigned char plain[16];

	if (text.len != PREFIX_BYTES + LETTERS || memcmp(text.at, "req_", PREFIX_BYTES) != 0)
		return false;
	text.at += PREFIX_BYTES;
	if (!read_block(text, block))
		return false;
	block_decrypt(key, block, plain);
	*op_id = (int64_t)get_big_endian(plain, 8);
	*day = (int32_t)get_big_endian(plain + 8, 4);
	return get_big_endian(plain + 12, 4) == 0;
}
