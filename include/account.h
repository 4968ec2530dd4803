/* Who is asking (CONTRACT 11)? A table of methods; a method is a row there and a function. */
#pragma once
#include "problem.h"
#include "settings.h"

/*
 * PROBLEM_NONE and the account's bytes (1-255, in the request's arena or the settings), or
 * UNAUTHENTICATED / FORBIDDEN, `*why` then says in a sentence what was missing.
 */
enum problem account_of(const struct account_settings *account,
			const struct http_request *request, struct span *name,
			const char **why) MUST_CHECK;

/* Is this header one that only a trusted hop may set, and is the peer none? Such fields are
 * not forwarded, on any route. Also every X-Onceward-*. */
bool account_stripped(const struct settings *settings, const struct http_request *request,
		      struct span name);
/* Is the peer's address (text, as in http_request.peer) in one of the ranges? */
bool account_trusted(const struct cidrs *ranges, struct span peer);
