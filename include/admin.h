/* The admin listener's endpoints (CONTRACT 15): a table of paths, methods, roles and functions. */
#pragma once
#include "admin_tokens.h"
#include "listener.h"
#include "settings.h"

/* What the endpoints show; filled in by the office. */
struct admin_check {
	const char *name; /* ledger, durable, keys, days_left, routes */
	bool ok;
	char detail[128];
};
#define ADMIN_CHECKS 5
struct admin_ledger;
struct admin_view {
	const struct settings *settings;
	struct admin_ledger *ledger; /* NULL: there is none */
	bool draining;
	/* fills in all checks at the moment of asking */
	void (*ready)(void *arg, struct admin_check checks[ADMIN_CHECKS]);
	void *arg;
};

/*
 * The answer to one request; never fails. A status of 0: the ledger is asked, and the request is
 * answered from there. `tokens`: NULL where none are loaded; where the settings name a file for
 * them nobody has a token then.
 */
struct http_answer admin_answer(struct http_request *request, const struct admin_view *view,
				const struct admin_tokens *tokens);
/* How large a body this request, whose head is complete, may have: of whoever may not do what it
 * asks for nothing is read. */
size_t admin_body_max(struct http_request *request, const struct admin_view *view,
		      const struct admin_tokens *tokens);
