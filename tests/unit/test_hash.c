/* The hashes, the block cipher and the random bytes, against known answers. */
#include "digest.h"
#include "unit_run.h"

#include <stdio.h>

static void hex_is(const unsigned char *bytes, size_t n, const char *expected)
{
	char text[2 * 64 + 1];

	for (size_t i = 0; i < n; i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
	ck_assert_str_eq(text, expected);
}

START_TEST(hashes_are_sha_256)
{
	struct hash *hash = hash_new();
	unsigned char out[32];

	hash_add(hash, "abc", 3);
	hash_end(hash, out);
	hex_is(out, 32, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	hash_reset(hash);
	hash_end(hash, out);
	hex_is(out, 32, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	hash_reset(hash);
	hash_add(hash, "ignored", 7);
	hash_reset(hash);
	hash_add(hash, "a", 1);
	hash_add(hash, NULL, 0);
	hash_add(hash, "bc", 2);
	hash_end(hash, out);
	hex_is(out, 32, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	hash_free(hash);
	hash_free(NULL);
}
END_TEST

START_TEST(keyed_hashes_are_hmac_sha_256)
{
	struct hash *hash = hash_new_keyed((const unsigned char *)"Jefe", 4); /* RFC 4231, 2 */
	struct hash *spans = hash_new_keyed((const unsigned char *)"Jefe", 4);
	unsigned char out[32], again[32];

	hash_add(hash, "what do ya want for nothing?", 28);
	hash_end(hash, out);
	hex_is(out, 32, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
	hash_reset(hash);
	hash_add(hash, "what do ya want ", 16);
	hash_add(hash, "for nothing?", 12);
	hash_end(hash, out);
	hex_is(out, 32, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
	hash_reset(hash);
	hash_add(hash, "\0\0\0\0\0\0\0\3abc", 11);
	hash_end(hash, out);
	hash_add_span(spans, SPAN("abc"));
	hash_end(spans, again);
	ck_assert_mem_eq(out, again, 32);
	hash_free(hash);
	hash_free(spans);
}
END_TEST

START_TEST(blocks_are_aes_128)
{
	const unsigned char key[16] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
	unsigned char block[16];

	for (unsigned i = 0; i < 16; i++) /* FIPS 197, C.1 */
		block[i] = (unsigned char)(i * 17);
	block_encrypt(key, block, block);
	hex_is(block, 16, "69c4e0d86a7b0430d8cdb78070b4c55a");
	block_decrypt(key, block, block);
	hex_is(block, 16, "00112233445566778899aabbccddeeff");
}
END_TEST

START_TEST(random_bytes_are_not_the_same_twice)
{
	unsigned char a[32] = { 0 }, b[32] = { 0 };

	random_bytes(a, sizeof(a));
	random_bytes(b, sizeof(b));
	ck_assert_mem_ne(a, b, sizeof(a));
	random_bytes(a, 0);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		hashes_are_sha_256,
		keyed_hashes_are_hmac_sha_256,
		blocks_are_aes_128,
		random_bytes_are_not_the_same_twice,
	};

	return run("hash", tests, ARRAY_LEN(tests));
}
