/*
 * The normal form of a body (CONTRACT 4). A canonicaliser is a row of a table and a function:
 * it validates, and writes the canonical bytes to a sink piece by piece (a hash, or a buf).
 */
#pragma once
#include "mem.h"

enum canonical_body {
	CANONICAL_AUTO,
	CANONICAL_JSON,
	CANONICAL_FORM,
	CANONICAL_MULTIPART,
	CANONICAL_RAW
};
enum canonical_numbers { CANONICAL_EXACT, CANONICAL_IEEE754 };

/* Where canonical bytes go. */
struct canonical_sink {
	void (*put)(struct canonical_sink *sink, const void *bytes, size_t len);
};

struct canonical_error {
	size_t offset; /* of the body, in bytes */
	const char
		*expected; /* "a value", "the end of the body": a few words, not to be freed */
	bool decoded;      /* the offset is one of the body without its Content-Encoding */
	bool too_large;    /* without its Content-Encoding; the rest says nothing then */
};

struct canonical_rules; /* canonical_rules.h */

/* Does `only` hold? Where a body has nothing of what it keeps, all such bodies would be equal. */
enum canonical_only {
	CANONICAL_ONLY_IF_THERE, /* where the body has something of it; else the whole counts */
	CANONICAL_ONLY_ALWAYS,   /* the defaults themselves */
	CANONICAL_ONLY_NEVER
};

/* What is to be brought into its normal form. */
struct canonical_task {
	struct arena *arena;
	struct span body;
	struct span content_type; /* with its parameters */
	enum canonical_numbers numbers;
	const struct canonical_rules *rules; /* NULL: every member counts */
	enum canonical_only only;
};

struct canonicaliser {
	const char *name;         /* as in `body = "json"`; the digest's body kind */
	enum canonical_body body; /* the setting that names it */
	bool (*takes)(struct span media_type); /* for "auto"; NULL: anything (the last row) */
	bool (*run)(const struct canonical_task *task, struct canonical_sink *sink,
		    struct canonical_error *error);
};
extern const struct canonicaliser canonicalisers[]; /* ends with a row whose name is NULL */

/* The one for this setting, Content-Type and body; an empty body is raw, whatever they say. */
const struct canonicaliser *canonical_for(enum canonical_body setting, struct span content_type,
					  struct span body);

/*
 * Each needs at most 12 bytes of memory for a byte of the body, and 16 KiB, and a little for each
 * rule. The sink gets few large pieces, and nothing where the body is refused.
 */
bool canonical_json(const struct canonical_task *task, struct canonical_sink *sink,
		    struct canonical_error *error) MUST_CHECK;
bool canonical_form(const struct canonical_task *task, struct canonical_sink *sink,
		    struct canonical_error *error) MUST_CHECK;
bool canonical_multipart(const struct canonical_task *task, struct canonical_sink *sink,
			 struct canonical_error *error) MUST_CHECK;

/* A sink that is a buf. */
struct canonical_buf {
	struct canonical_sink sink;
	struct buf *buf;
};
struct canonical_buf canonical_to(struct buf *buf);
