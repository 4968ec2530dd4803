/* Bytes as letters (RFC 4648): read in either alphabet, written in the one for URLs. Pure. */
#pragma once
#include "base.h"

#define BASE64_LETTERS(bytes) (((bytes)*4 + 2) / 3) /* without padding */

/* Without padding, and a NUL behind it: BASE64_LETTERS(len) + 1 bytes. */
void base64_write(const void *bytes, size_t len, char *out);
/*
 * The bytes of a text whose padding may be there or missing, and how many they are; `out` has room
 * for 3 bytes of each 4 letters begun. False: it is none, or not the one spelling of its bytes.
 */
bool base64_read(struct span text, unsigned char *out, size_t *len) MUST_CHECK;
