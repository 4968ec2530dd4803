/* Any bytes into a buf, escaped so that a reader of JSON or of a terminal takes no harm: escape.h. */
#pragma once
#include "mem.h"

/* `quoted`: also `"` and `\`, as inside of a JSON string. */
void escaped_put(struct buf *out, struct span text, bool quoted);
/* A JSON string, with its quotes. */
void escaped_string(struct buf *out, struct span text);
