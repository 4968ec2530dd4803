/* What the parts of `onceward records reconcile` share. */
#pragma once
#include "cli_internal.h"
#include "cli_report.h"

enum reconcile_verdict {
	VERDICT_NONE,
	VERDICT_RESOLVED, /* or would be */
	VERDICT_SAME,
	VERDICT_PROVIDER_ONLY,
	VERDICT_IN_FLIGHT,
	VERDICT_RELEASED,
	VERDICT_OTHER_RECEIPT,
	VERDICT_OTHER_STATUS,
	VERDICT_NOT_KEPT,
	VERDICT_OTHER_OPERATION,
	VERDICT_CHANGED,
	VERDICT_BAD_ID,
	VERDICT_DOUBLED_RECEIPT,
	VERDICT_DOUBLED_KEY,
	VERDICT_NOT_STORED,
	VERDICT_ABSENT, /* resolved as not executed, or would be */
	VERDICT_LEDGER_ONLY,
	VERDICT_TOO_NEW,
	VERDICTS
};

/* A line of the report, or a record that it does not name (`said` is NULL). */
struct reconcile_line {
	const struct report_line *said;
	enum reconcile_verdict verdict;
	int64_t op_id; /* 0: not known */
	int32_t day;
};

struct reconcile {
	struct desk desk;
	char name[64];
	struct span who;
	unsigned status; /* of lines that name none; 0: none */
	struct reconcile_line *lines, *absent;
	size_t n, n_absent;
	size_t counts[VERDICTS];
};

enum reconcile_verdict reconcile_verdict(struct span word); /* as the ledger gave it */

/* cli_reconcile_steps.c. The lines that have no verdict yet get one. False: what is wrong stands on
 * standard error; whole steps are done. */
bool reconcile_lines(struct reconcile *r) MUST_CHECK;
/* What waits for somebody in the ledger and is not in the report. */
bool reconcile_absent(struct reconcile *r) MUST_CHECK;
