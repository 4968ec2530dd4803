/*
 * The ledger's tables: which version they are, and how they become ours (sql/schema/).
 * A program accepts a newer schema whose oldest_program is not above its own version.
 */
#pragma once
#include "pg.h"
#include "settings.h"

/* The newest step in sql/schema/: as many as there are files. */
enum {
#define SCHEMA(number, text) SCHEMA_STEP_##number,
#include "schema.def"
#undef SCHEMA
	SCHEMA_VERSION
};

/* Day partitions that stand ready beyond the one that the largest retention needs today. */
#define SCHEMA_DAYS_AHEAD 10

enum schema_state {
	SCHEMA_OK,
	SCHEMA_AWAY,    /* PostgreSQL was not reached or did not tell */
	SCHEMA_MISSING, /* no tables yet */
	SCHEMA_TOO_NEW, /* made for a later program */
	SCHEMA_TOO_OLD  /* made for an earlier program */
};
/* Blocks for some seconds at most. All but OK come with a sentence that says what to do. */
enum schema_state pg_schema_check(const char *conninfo, char why[256]) MUST_CHECK;
/* The same on a session that is open. */
enum schema_state schema_check(struct pg_session *session, char why[256]) MUST_CHECK;

/* The day on which a response of the largest retention expires at the latest; 0 is today. */
int schema_days_needed(const struct settings *settings);

/*
 * Brings the tables up to SCHEMA_VERSION, and makes partitions from yesterday to `days` from
 * today. Says in `out`, line by line, what was done and what was there. False: `why`.
 */
bool schema_migrate(struct pg_session *session, int days, struct buf *out,
		    char why[256]) MUST_CHECK;
/* The SQL of all steps, to be read or run by hand. */
void schema_print(struct buf *out);
