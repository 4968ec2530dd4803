/*
 * How a record is named: by the hash of (account, operation, key) where its key is known, and to
 * people by its logical request id. Pure. Other instances and later versions read both: a change
 * here is a change of the schema.
 */
#pragma once
#include "digest.h"

#define RECORD_ID_BYTES 31 /* "req_", 26 characters of base32, NUL */

/* `hasher` is keyed with the ledger's key_salt. */
void record_key_hash(struct hash *hasher, struct span account, struct span operation,
		     struct span key, unsigned char out[16]);

void record_id_write(const unsigned char key[16], int64_t op_id, int32_t day,
		     char out[RECORD_ID_BYTES]);
/* False: nobody has written this under that key. */
bool record_id_read(const unsigned char key[16], struct span text, int64_t *op_id,
		    int32_t *day) MUST_CHECK;
