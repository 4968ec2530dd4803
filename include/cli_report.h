/* A provider's report of what it has executed: CSV or JSON lines (CONTRACT 17). */
#pragma once
#include "mem.h"

#define REPORT_LINES_MAX 1000000U

/* What is not there is NULL. */
struct report_line {
	unsigned line;   /* in the file */
	unsigned status; /* 0: none is said */
	struct span key, id, account, receipt, body;
};
struct report {
	struct report_line *at;
	size_t n, room;
};

/*
 * Members, or columns by the header line: key or logical_request_id, and status, receipt, body,
 * account; others do not count. The spans live as long as the arena and the text. False: a sentence
 * with the line, in `why`. To be freed in any case.
 */
bool report_read(struct arena *arena, struct span text, struct report *report,
		 char why[256]) MUST_CHECK;
void report_free(struct report *report);
