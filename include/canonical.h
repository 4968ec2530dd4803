/*
 * The normal form of a body (CONTRACT 4). A canonicaliser is a row of a table and a function:
 * it validates, and writes the canonical bytes to a sink piece by piece (a hash, or a buf).
 */
#pragma once
#include "mem.h"

enum canonical_body { CANONICAL_AUTO, CANONICAL_JSON, CANONICAL_RAW };

/* Where canonical bytes go. */
struct canonical_sink {
	void (*put)(struct canonical_sink *sink, const void *bytes, size_t len);
};

struct canonical_error {
	size_t offset; /* of the body, in bytes */
	const char
		*expected; /* "a value", "the end of the body": a few words, not to be freed */
};

struct canonicaliser {
	const char *name;         /* as in `body = "json"`; the digest's body kind */
	enum canonical_body body; /* the setting that names it */
	bool (*takes)(struct span media_type); /* for "auto"; NULL: anything (the last row) */
	bool (*run)(struct arena *arena, struct span body, struct canonical_sink *sink,
		    struct canonical_error *error);
};
extern const struct canonicaliser canonicalisers[]; /* ends with a row whose name is NULL */

/* The one for this setting, Content-Type and body; an empty body is raw, whatever they say. */
const struct canonicaliser *canonical_for(enum canonical_body setting, struct span content_type,
					  struct span body);

/* At most 12 bytes of memory for a byte of the body, and 16 KiB. The sink gets few large pieces,
 * and nothing where the body is refused. */
bool canonical_json(struct arena *arena, struct span body, struct canonical_sink *sink,
		    struct canonical_error *error) MUST_CHECK;
