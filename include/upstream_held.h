/*
 * How much of an answer may be held, and the count of what is. Knows no connection. Inside upstream
 * only.
 */
#pragma once
#include "http1.h"
#include "upstream.h"

/* Before a read: the reader may not hold more than that of the body. */
void held_limit(const struct upstream_call *call, struct http1_reader *reader);
/* After it: counts what the answer has grown by, an announced length at once, and gives back what
 * was dropped. */
void held_count(struct upstream_call *call, const struct http1_reader *reader);
/* Why the reader found it too large. */
const char *held_why(const struct upstream_call *call, const struct http1_reader *reader);
