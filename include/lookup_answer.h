/*
 * What the answer to a lookup says of the record (CONTRACT 7). Pure: the route's recovery settings
 * and an answer in, a verdict out.
 */
#pragma once
#include "settings.h"
#include "upstream.h"

enum lookup_verdict {
	LOOKUP_FOUND,     /* it was done */
	LOOKUP_PENDING,   /* it is there, and not at its end */
	LOOKUP_OTHER,     /* something is there, and not what found_when wants */
	LOOKUP_NOT_FOUND, /* it is not there; what that proves is not decided here */
	LOOKUP_ODD,       /* a status that no list speaks of: credentials, a wrong path */
	LOOKUP_FAILED     /* no answer, or one that says that the upstream is not well */
};

enum lookup_verdict lookup_judge(const struct recovery_settings *recovery,
				 const struct http_answer *answer);

/* What is stored of a record that was found. The looked-up document is not the operation's
 * answer, so there is no body. */
struct lookup_result {
	unsigned status;
	struct http_fields fields; /* Location, where the route says where it stands */
	struct span receipt;       /* empty: none */
};
struct lookup_result lookup_result_of(const struct idempotency_settings *idempotency,
				      const struct upstream_call *call); /* in its arena */
