/*
 * req_ and the base32 of one AES block that holds op_id and day: without the key nobody can tell
 * one record from the next by it.
 */
#include "request_id.h"

#include "digest.h"

#include <assert.h>

static void put_big_endian(unsigned char *out, uint64_t value, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		out[i] = (unsigned char)(value >> (8 * (bytes - 1 - i)));
}

void request_id_make(struct span key, int64_t op_id, int32_t day, char out[REQUEST_ID_BYTES])
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz234567";
	unsigned char plain[16] = { 0 };
	unsigned char block[17] = { 0 }; /* one more, for the last letter's missing bits */

	assert(key.len >= 16);
	put_big_endian(plain, (uint64_t)op_id, 8);
	put_big_endian(plain + 8, (uint64_t)day, 4);
	block_encrypt((const unsigned char *)key.at, plain, block);
	memcpy(out, "req_", 4);
	for (unsigned i = 0; i < 26; i++) {
		unsigned bit = i * 5;
		unsigned pair = (unsigned)block[bit / 8] << 8 | block[bit / 8 + 1];

		out[4 + i] = letters[(pair >> (11 - bit % 8)) & 31];
	}
	out[30] = 0;
}
