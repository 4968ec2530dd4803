/*
 * What the numbers in a record's slots mean, and what onceward.conclude answers. They stand in rows:
 * a change here is a change of the schema (sql/schema/0002.sql).
 */
#pragma once

enum event_kind {
	EVENT_NONE, /* never in a row */
	EVENT_CLAIM,
	EVENT_COMPLETED,
	EVENT_UNKNOWN,
	EVENT_RELEASED
};

/* Who says how a record ended. */
enum record_source {
	RECORD_BY_ATTEMPT, /* the upstream, in its answer */
	RECORD_BY_LOOKUP,
	RECORD_BY_OPERATOR,
	RECORD_BY_REPORT,
	RECORD_BY_DEADLINE
};

enum concluded {
	CONCLUDED = 1, /* it is what the record says now */
	CONCLUDED_COMPLETED_BEFORE,
	CONCLUDED_UNDER_RESEND,
	CONCLUDED_RELEASED_BEFORE,
	CONCLUDED_IN_FLIGHT,
	CONCLUDED_NO_RECORD
};
