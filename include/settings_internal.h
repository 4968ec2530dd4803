/*
 * What the parts of settings share: the file as a tree of items, the tables of options, and the
 * loader that carries errors. settings.c puts the pieces together; nobody else includes this.
 */
#pragma once
#include "settings.h"

/* One setting of the file, as it stands there. */
enum item_kind { ITEM_GROUP, ITEM_LIST, ITEM_TEXT, ITEM_NUMBER, ITEM_FRACTION, ITEM_FLAG };
struct item {
	enum item_kind kind;
	const char *name; /* NULL in a list */
	const char *file;
	unsigned line;
	const char *text;
	int64_t number;        /* of a flag too */
	const struct item *at; /* of a group or a list */
	size_t n;
};

struct loader {
	struct settings *settings;
	struct arena *arena;
	struct buf *errors;
	bool failed;
	const char *file;  /* as the caller named it */
	struct hash *hash; /* of all that is read; only while it is */
	/* for each of settings->routes where it stands, and its idempotency while it may be changed */
	const struct item **routes;
	struct idempotency_settings **idempotency;
};

/* "FILE:LINE: sentence"; an error fails the load, which goes on to find the next. */
void settings_error(struct loader *loader, const struct item *at, const char *format, ...)
	PRINTF_LIKE(3, 4);
void settings_warning(struct loader *loader, const struct item *at, const char *format, ...)
	PRINTF_LIKE(3, 4);

/* settings_file.c: the file and what it includes; NULL where it cannot be read or is not well-formed. */
const struct item *settings_file(struct loader *loader);
/* Looks through the text first, for what libconfig does not survive or does not see. */
bool settings_scan(struct loader *loader, const char *file, unsigned depth) MUST_CHECK;
const struct item *item_find(const struct item *group, const char *name);

enum option_type {
	OPTION_TEXT,
	OPTION_FILE,
	OPTION_TEXTS,
	OPTION_CIDRS,
	OPTION_COUNT,
	OPTION_DURATION,
	OPTION_SIZE,
	OPTION_FLAG,
	OPTION_CHOICE,
	OPTION_SCALAR,
	OPTION_UPSTREAM,
	OPTION_ACCOUNT
};
struct option {
	const char *name;
	enum option_type type;
	const char *fallback, *min, *max, *help;
	size_t offset;
};

enum section {
	SECTION_GATEWAY,
	SECTION_LIMITS,
	SECTION_LOG,
	SECTION_LEDGER,
	SECTION_ADMIN,
	SECTION_ACCOUNT,
	SECTION_UPSTREAM,
	SECTION_TLS,
	SECTION_ROUTE,
	SECTION_IDEMPOTENCY,
	SECTION_KEY,
	SECTION_REQUEST,
	SECTION_RESPONSE,
	SECTION_OUTCOME,
	SECTION_RELEASE_IF,
	SECTION_CONDITION,
	SECTION_WHEN,
	SECTION_RECOVERY,
	SECTION_COUNT
};
struct section_table {
	const char *where; /* for people: "a route", "`limits`" */
	const struct option *options;
	size_t n;
	const char *groups[8]; /* names of the groups that may stand in it; ends with NULL */
};
extern const struct section_table settings_sections[SECTION_COUNT];

/* settings_option.c: reads a group (NULL: all defaults) into the struct of the section. */
void settings_read(struct loader *loader, enum section section, const struct item *group,
		   void *into);
/* The name of the first option in which two structs of a section differ; NULL where in none. */
const char *settings_differ(enum section section, const void *a, const void *b);
bool option_required(const struct option *option);
/* settings_value.c: one option. False: an error was said. */
bool option_set(struct loader *loader, const struct option *option, const struct item *item,
		void *field) MUST_CHECK;
void option_fallback(struct loader *loader, const struct option *option, void *field);
bool option_same(const struct option *option, const void *a, const void *b);
/* The nearest of the names that `each` gives (until NULL); NULL where none is near. */
const char *settings_nearest(const char *name, const char *(*each)(const void *of, size_t i),
			     const void *of);

/* settings_unit.c: a whole number and a unit; false where it is something else, or too much to count. */
enum unit { UNIT_NONE, UNIT_TIME, UNIT_SIZE };
bool settings_measure(const char *text, enum unit unit, int64_t *out) MUST_CHECK;
void settings_put_measure(struct buf *out, int64_t value,
			  enum unit unit); /* in the largest unit that fits */

/* settings_check.c: what values must be beyond their types. `group` is where they stand. */
void settings_check_gateway(struct loader *loader, const struct item *root);
void settings_check_account(struct loader *loader, const struct item *group,
			    const struct account_settings *account);
void settings_check_upstream(struct loader *loader, const struct item *group,
			     const struct upstream_settings *upstream);
void settings_check_idempotency(struct loader *loader, const struct item *group,
				const struct idempotency_settings *idempotency,
				const struct upstream_settings *upstream);
/* Two routes of one operation have one set of rules. */
void settings_check_operations(struct loader *loader);

/* settings_network.c: addresses to listen at, servers to connect to, how to reach PostgreSQL. */
void settings_check_listen(struct loader *loader, const struct item *at, const char *address);
void settings_check_conninfo(struct loader *loader, const struct item *at,
			     const char *conninfo);
void settings_servers(struct loader *loader, const struct item *group,
		      struct upstream_settings *upstream);

/* settings_route.c */
#define SEGMENTS_MAX 64U
bool settings_pattern(struct loader *loader, const struct item *at,
		      struct route *route) MUST_CHECK;
/* The pattern again, without what does not matter: methods sorted, {} for any segment. */
void settings_put_pattern(struct buf *out, const struct route *route);
/* settings_cover.c: warns where one stands in another's way. */
void settings_check_routes(struct loader *loader);
/* settings_identity.c */
void settings_identity(struct loader *loader, struct idempotency_settings *idempotency);

/* settings_request.c: the rules by which requests are compared; `group`: request, may be NULL. */
void settings_request(struct loader *loader, const struct item *group,
		      struct idempotency_settings *idempotency);

/* settings_outcome.c: the lists of statuses; `group`: outcome, may be NULL. */
void settings_outcome(struct loader *loader, const struct item *group,
		      struct idempotency_settings *idempotency);
/* Marks the statuses and classes that are listed. */
void settings_statuses(struct loader *loader, const struct item *item,
		       const struct texts *texts, unsigned char by_status[600]);

/* settings_place.c: where values stand in messages. NULL: an error was said, or it is not set. */
const struct canonical_rules *settings_pointer(struct loader *loader, const struct item *at,
					       const char *pointer);
const struct source *settings_source(struct loader *loader, const struct item *at,
				     const char *text);
/* May a field of that name carry something of ours: a key, an account, what is replayed? */
bool settings_free_field(const char *name);

/* settings_terms.c: key, response and outcome beyond their plain values; `group`: idempotency. */
void settings_terms(struct loader *loader, const struct item *group,
		    struct idempotency_settings *idempotency);
void settings_condition(struct loader *loader, const struct item *group,
			struct condition *condition);
/* The name of a setting in which the groups of two outcomes differ; NULL: in none. */
const char *settings_terms_differ(const struct outcome_settings *a,
				  const struct outcome_settings *b);
/* settings_recovery.c: the same for recovery, which needs the outcomes. */
void settings_recovery(struct loader *loader, const struct item *group,
		       struct idempotency_settings *idempotency,
		       const struct upstream_settings *upstream);
const char *settings_recovery_differ(const struct recovery_settings *a,
				     const struct recovery_settings *b);
