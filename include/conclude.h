/*
 * What is known of a record from elsewhere than its own attempts (a lookup, a deadline), as a step
 * of a transaction: onceward.conclude decides whether it still counts. See sql/schema/0002.sql.
 */
#pragma once
#include "pg.h"
#include "settings.h"

enum conclude_source { CONCLUDE_LOOKUP = 1, CONCLUDE_DEADLINE = 4 };
enum conclude_kind { CONCLUDE_NOTHING = 0, CONCLUDE_COMPLETED = 2, CONCLUDE_RELEASED = 4 };
/* What comes back, an int2: 1 where the record says so from now on, other numbers where others
 * were faster, 5 where the attempt may still be running. */
#define CONCLUDE_SETTLED 1

struct conclusion {
	int64_t op_id;
	int32_t day;
	unsigned generation;
	struct span key_hash, account, key;
	const struct idempotency_settings *idempotency;
	enum conclude_source source;
	enum conclude_kind kind;
	/* COMPLETED */
	unsigned status;
	struct http_fields fields; /* names are tokens, values are field values */
	struct span body, receipt; /* a receipt of length 0: none */
	const char *note;
	int64_t writer; /* whose row it is: after a lost reply it is known again */
};
void conclude_send(struct pg *pg, struct pg_params *params, const struct conclusion *as);
