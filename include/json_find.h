/*
 * Places in a JSON text that stands there as it came: white space, order and escapes are the
 * sender's. The text must have passed json_valid. Pointers are compiled into rules
 * (canonical_rules_only).
 */
#pragma once
#include "canonical_rules.h"

/* What a pointer (the only one of its rules) leads to, as it stands there. */
bool json_find(const struct canonical_rules *pointer, struct span json,
	       struct span *value) MUST_CHECK;

/* The text with nothing but what the pointers lead to, in its order, the bytes as they came.
 * False where it is no object or array. */
bool json_pick(const struct canonical_rules *pointers, struct span json,
	       struct buf *out) MUST_CHECK;

enum json_scalar {
	JSON_TEXT,    /* a string: its text, without escapes */
	JSON_INTEGER, /* its digits, however it was spelt: 10 for 1e1 and 10.0 */
	JSON_WORD,    /* true, false, a number with a fraction: canonical */
	JSON_NULL,    /* nothing */
	JSON_NONE /* an object or array, or an integer of more than JSON_DIGITS_MAX digits */
};
#define JSON_DIGITS_MAX 256U
enum json_scalar json_scalar(struct arena *arena, struct span value, struct span *text);
