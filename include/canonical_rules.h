/*
 * What of a body counts: the rules `ignore`, `only` and `defaults` of a route as a tree of places
 * in a body. Made with the settings, immutable then. The readers walk down it as they read.
 */
#pragma once
#include "canonical.h"

/* A place that some rule speaks of: a member's name or an index, below another place. */
struct rule {
	struct span name;          /* as canonical JSON has it between quotes */
	struct span plain;         /* the same as it is: a form field's */
	struct rule *first, *next; /* below it; beside it */
	uint32_t number;           /* of all places, in any order */
	int64_t index;             /* of an array; -1: a name only */
	bool any;                  /* `*`: any index, or that name */
	bool pointed;              /* some pointer goes through it, not only a default */
	bool drop;                 /* a pointer of `ignore` ends here */
	bool keep;                 /* a pointer of `only` ends here */
	bool keep_below;           /* … or further down */
	bool indexed;              /* an index may be below */
	bool keep_indexed;         /* one that leads on to what is kept */
	bool keep_named;           /* a name that does, and can be no index */
	struct span fallback; /* where absent: `"name":value,`, canonical; .at NULL: nothing */
	struct span text;     /* the same for a form field; .at NULL: nothing */
	bool literal;         /* it is spelt as in the settings, and not canonical */
};

struct canonical_rules {
	struct arena *arena;
	enum canonical_numbers numbers;
	struct rule root;
	uint32_t n;               /* places */
	bool only;                /* what no pointer of `only` keeps is left out */
	size_t fallback_bytes;    /* all of them */
	struct span defaults;     /* canonical, without what is left out anyway */
	struct buf ignored, kept; /* the pointers, quoted */
};

#define CANONICAL_POINTERS_MAX 64U /* in a list */
#define CANONICAL_DEFAULTS_MAX ((size_t)16 * 1024)

/* May the whole body count, where `only` keeps nothing of it? */
static inline bool canonical_only_if_there(const struct canonical_task *task)
{
	return task->rules && task->rules->only && task->only == CANONICAL_ONLY_IF_THERE;
}

struct canonical_rules *canonical_rules_new(struct arena *arena,
					    enum canonical_numbers numbers);
/* Each adds a JSON Pointer (RFC 6901; `*` stands for any index). NULL, or what is wrong with it,
 * as the end of a sentence. To be called with all of `ignore` first, each list sorted. */
const char *canonical_rules_ignore(struct canonical_rules *rules, struct span pointer);
const char *canonical_rules_only(struct canonical_rules *rules, struct span pointer);
/* After the pointers, once. False where it is no JSON object. */
bool canonical_rules_defaults(struct canonical_rules *rules, struct span json,
			      struct canonical_error *error) MUST_CHECK;
/* All of them, as part of a line. */
void canonical_rules_text(const struct canonical_rules *rules, struct buf *out);

/* The place below, where some rule speaks of it; NULL: none does. */
const struct rule *rule_named(const struct rule *outer, struct span canonical_name);
const struct rule *rule_at(const struct rule *outer, size_t index);
/* Of a form or multipart field. */
const struct rule *rule_field(const struct canonical_rules *rules, struct span name);
/* Is it one that `only` keeps: `a`, and below it `a[b]`, `a.b`? */
bool rule_field_kept(const struct canonical_rules *rules, struct span name);
/* `whole`: whatever `only` says. */
bool rule_field_counts(const struct canonical_rules *rules, bool whole, struct span name);
