/* Any bytes, written so that a reader of JSON or of a terminal takes no harm. Pure. */
#pragma once
#include "base.h"

#define ESCAPE_MAX 6U /* bytes that one step writes at most */

/*
 * Takes one character off the front of *in (which is not empty) and writes it escaped: for a JSON
 * string, with control characters (C0, DEL, C1) as \u00XX, and each byte that is no UTF-8 as
 * \ufffd. `quoted`: also `"` and `\`. The number of bytes written.
 */
size_t escape_next(struct span *in, bool quoted, char out[ESCAPE_MAX]);
