/* What a request's head must be before anything of it is believed. Pure. */
#pragma once
#include "http.h"

/*
 * The head as the parser found it: spans into the parser's own memory, values with the white
 * space that stood behind them. `bytes`: of the whole head, the empty line included.
 */
struct listener_head {
	struct span method, target, version;
	struct http_fields fields;
	size_t n_fields; /* that came; more than HTTP_FIELDS_MAX are not in `fields` */
	size_t bytes;
	/*
	 * The parser leaves its spans where they were received, so that what it swallowed shows as
	 * a gap between them: a folded line, a bare LF, a NUL, an empty name (which it takes for
	 * the end of the head), blanks in the request line. False where the parser copies.
	 */
	bool in_place;
};

struct listener_checked {
	unsigned status; /* 0: well-formed; else what to answer */
	const char *why;
	bool keyed;       /* an Idempotency-Key was there */
	bool expects;     /* 100-continue */
	size_t announced; /* bytes of the body; SIZE_MAX: chunked */
};

/* Fills the request, which has its arena and its target, with copies: method, path, query, fields,
 * host, minor, loose_path. Only where status is 0 is all of it set. */
struct listener_checked listener_check(struct http_request *request,
				       const struct listener_head *head) MUST_CHECK;
