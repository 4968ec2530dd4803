/*
 * Where a list goes on (CONTRACT 15): the boundary values of its last page, and for which list
 * they are. A cursor is signed: one that was altered, or that belongs to another filter, is none.
 * Pure.
 */
#pragma once
#include "base64.h"

#define CURSOR_VALUES 2U
#define CURSOR_RAW    (1U + 16U + CURSOR_VALUES * 8U + 16U) /* version, list, values, signature */
#define CURSOR_BYTES  (BASE64_LETTERS(CURSOR_RAW) + 1)

struct cursor {
	int64_t at[CURSOR_VALUES];
};

/* `list`: everything that says which list it is, filter and order. */
void cursor_write(struct span secret, struct span list, const struct cursor *cursor,
		  char out[CURSOR_BYTES]);
bool cursor_read(struct span secret, struct span list, struct span text,
		 struct cursor *cursor) MUST_CHECK;
