/*
 * The logical request id (CONTRACT 1): op_id and day, opaque to whoever has no key. Pure.
 */
#pragma once
#include "base.h"

#define REQUEST_ID_BYTES 31 /* "req_", 26 characters of base32, NUL */

/* `key`: the ledger's secret request_id_key, of which the first 16 bytes count. */
void request_id_make(struct span key, int64_t op_id, int32_t day, char out[REQUEST_ID_BYTES]);
