/*
 * Receipts (CONTRACT 1, 9): what in an answer names the thing that was made. Two of them are one
 * where their normal forms are equal, byte for byte. Pure.
 */
#pragma once
#include "settings.h"

#define RECEIPT_MAX 1024U /* bytes; a longer one is kept as its SHA-256 */

/* In its normal form; empty where the answer has none. */
struct span receipt_of(struct arena *arena, const struct response_settings *response,
		       const struct http_answer *answer);
/* The normal form of what somebody says: of a reference (/PATH, http://…) its path and query, of
 * anything else itself. */
struct span receipt_normal(struct arena *arena, struct span text);
/* The text, number or word at a place of a body; empty where there is none. */
struct span receipt_text(struct arena *arena, const struct canonical_rules *pointer,
			 const struct http_answer *answer);
