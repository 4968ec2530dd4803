/*
 * What is known of a record from elsewhere than its own attempts (a lookup, a deadline), as a step
 * of a transaction: onceward.conclude decides whether it still counts. See sql/schema/0002.sql.
 */
#pragma once
#include "pg.h"
#include "record_slot.h"
#include "settings.h"

/* What comes back is an enum concluded, an int2. */
struct conclusion {
	int64_t op_id;
	int32_t day;
	unsigned generation;
	struct span key_hash, account, key;
	const struct idempotency_settings *idempotency;
	enum record_source source;
	enum event_kind kind;
	/* COMPLETED */
	unsigned status;
	struct span fields, body,
		receipt; /* fields: field_lines.h; a receipt of length 0: none */
	const char *note;
	int64_t writer; /* whose row it is: after a lost reply it is known again */
};
void conclude_send(struct pg *pg, struct pg_params *params, const struct conclusion *as);
