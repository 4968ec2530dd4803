/*
 * Texts as canonical JSON has them, and back (RFC 8785 3.2.2.2). For what the settings say and for
 * single values; bodies are read piece by piece (canonical_json.c).
 */
#pragma once
#include "canonical.h"

/* The text in quotes, as JSON; it may still not be UTF-8. */
void json_quote(struct buf *out, struct span text);
/* A JSON text in its canonical form, with a NUL behind it; .at NULL where it is none. */
struct span json_canonical(struct arena *arena, struct span json);
/* The text as a canonical JSON string; .at NULL where it is no UTF-8. */
struct span json_quoted(struct arena *arena, struct span text);
/* What a canonical JSON string says, given without its quotes. */
struct span json_unquoted(struct arena *arena, struct span string);
/* Is it a JSON text that this program reads? (depth, names, numbers: see canonical_json.c) */
bool json_valid(struct span text) MUST_CHECK;
