/*
 * Records and operations as people ask for them (CONTRACT 15, 17): what is sent to the ledger and how
 * the answer reads. Two doors use it, the commands (a blocking session) and the admin listener (a
 * pipelined connection), so everything goes out and comes back as text. The thinking is the ledger's
 * (sql/schema/0004.sql); here are the ids, hashes and cursors, whose secrets PostgreSQL does not use.
 */
#pragma once
#include "pg.h"
#include "record_id.h"
#include "settings.h"

#define RECORDS_PARAMS_MAX 14U
#define RECORDS_LIMIT_MAX  1000U
#define RECORDS_LIMIT      "50"

/* One statement; a parameter whose `at` is NULL is NULL. */
struct records_call {
	enum query query;
	struct span param[RECORDS_PARAMS_MAX];
	unsigned n;
};

struct records_secret {
	unsigned char at[64];
	size_t len;
};
struct records_secrets {
	struct records_secret request_id, key_salt, cursor;
};
/* Of QUERY_people_secrets. False: they are not there. */
bool records_secrets_take(struct records_secrets *secrets,
			  const struct pg_rows *rows) MUST_CHECK;

/* Which records; what is empty does not count. */
struct records_filter {
	struct span state, operation, account, older_than, limit, cursor;
	bool reveal;
};
/* NULL, or a sentence that says what is wrong with the filter. */
const char *records_list(struct arena *arena, const struct records_secrets *secrets,
			 const struct records_filter *filter,
			 struct records_call *call) MUST_CHECK;
/* {"records": [...], "next_cursor": "..." or null} */
void records_put_list(struct buf *out, const struct records_secrets *secrets,
		      const struct records_filter *filter, const struct pg_rows *rows);

struct record_ref {
	int64_t op_id;
	int32_t day;
	bool day_known;
};
/* False: no gateway of this ledger has given out such an id. */
bool records_ref(const struct records_secrets *secrets, struct span id,
		 struct record_ref *ref) MUST_CHECK;
/* To be shown; an op_id will do too, as it stands in the ledger's tables and in stops. */
bool records_ref_loose(const struct records_secrets *secrets, struct span id,
		       struct record_ref *ref) MUST_CHECK;
void records_show(struct arena *arena, const struct record_ref *ref, bool reveal,
		  struct records_call *call);

struct record_key {
	struct span account, operation, key;
};
/* The hash as a uuid's 32 digits. */
struct span records_hash(struct arena *arena, const struct records_secrets *secrets,
			 const struct record_key *key);
/* For the audit table. */
struct span records_about(struct arena *arena, const struct records_secrets *secrets,
			  const struct record_key *key);
void records_find(struct arena *arena, const struct records_secrets *secrets,
		  const struct record_key *key, bool reveal, struct records_call *call);
/* The record of a show or a find. False: there is none. */
bool records_put_one(struct buf *out, const struct records_secrets *secrets,
		     const struct pg_rows *rows) MUST_CHECK;

/* Whose record is it? One row with the operation, or none: nothing that could be resolved. */
void records_operation(struct arena *arena, const struct record_ref *ref,
		       struct records_call *call);

/* What an operator knows of a record. */
struct resolution {
	int generation; /* that is expected; 0: any */
	int amends; /* the slot of the operator's result that is replaced; 0: there is none yet */
	bool completed; /* else not executed */
	unsigned status;
	struct http_fields fields;
	struct span body, receipt; /* NULL: none is known */
	struct span evidence, who;
};
/* NULL, or a sentence that says what is wrong with it, whatever the operation. */
const char *records_resolution_wrong(const struct resolution *it) MUST_CHECK;
/* The same, for that operation (NULL: one that the settings do not have). */
const char *records_resolve(struct arena *arena, const struct record_ref *ref,
			    const struct idempotency_settings *operation,
			    const struct resolution *it, struct records_call *call) MUST_CHECK;
/* NULL: it is resolved. Else why it is not: the result as the ledger gave it. */
const char *records_refused(struct span result);
#define RECORDS_RESOLVED "10" /* the result that says that an operator's stands there */
#define RECORDS_MISSING  "6"  /* the result that says that there is no such record */

/* Who changes something, and why. */
struct actor {
	struct span who, reason;
};
/* Nothing but blanks is no reason. */
bool records_says_something(struct span text) MUST_CHECK;
#define RECORDS_ACCOUNT_MAX 255U
void records_stop(struct arena *arena, struct span operation, struct span account,
		  const struct actor *actor, struct records_call *call);
void records_resume(struct arena *arena, struct span operation, struct span account,
		    const struct actor *actor, struct records_call *call);
void records_adopt(struct arena *arena, const struct idempotency_settings *operation,
		   const struct actor *actor, struct records_call *call);
void records_erase(struct arena *arena, struct span account, bool dry_run,
		   const struct actor *actor, struct records_call *call);
void records_audit(const struct actor *actor, struct span action, struct span about,
		   struct records_call *call);
/* {"operations": [...]}: those of the ledger, those of the settings, and what concerns all. */
void records_put_operations(struct buf *out, const struct settings *settings,
			    const struct pg_rows *rows);
/* The operation of the settings; NULL: they have none of that name. */
const struct idempotency_settings *records_operation_named(const struct settings *settings,
							   struct span name);
/* [a-z0-9._-]{1,64}, as in the settings. */
bool records_operation_valid(struct span name) MUST_CHECK;

/* \x and hex digits: how a bytea travels as text; NULL stays NULL. */
struct span records_hex(struct arena *arena, struct span bytes);
struct span records_number(struct arena *arena, int64_t number);
int64_t records_int(const struct pg_rows *rows, size_t row, unsigned column);
/* Fields as they stand in a row. NULL where one of them is none that is kept: `*bad` is its name. */
struct span records_fields(struct arena *arena, const struct http_fields *fields,
			   const struct idempotency_settings *operation, struct span *bad);
int64_t records_writer(void); /* who writes, told from everybody else */
