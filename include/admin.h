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
struct admin_view {
	const struct settings *settings;
	bool draining;
	/* fills in all checks at the moment of asking */
	void (*ready)(void *arg, struct admin_check checks[ADMIN_CHECKS]);
	void *arg;
};

/*
 * The answer to one request; never fails, never asks PostgreSQL. `tokens`: NULL where none are
 * loaded; where the settings name a file for them nobody has a token then.
 */
struct http_answer admin_answer(const struct http_request *request,
				const struct admin_view *view,
				const struct admin_tokens *tokens);
