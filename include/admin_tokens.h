/*
 * The operators' bearer tokens (CONTRACT 15): a file of hashes, so that reading it gives nobody
 * a token. Lines of: name role sha256-of-token [expires]. Immutable once loaded.
 */
#pragma once
#include "base.h"

/* Who asks, and who may: each may do what those before it may. */
enum admin_role {
	ADMIN_ANYBODY,  /* whoever reaches the listener */
	ADMIN_SCRAPER,  /* the same where no tokens are configured; else whoever has a token */
	ADMIN_VIEWER,   /* has a token */
	ADMIN_OPERATOR, /* has a token that may change things */
};

struct admin_tokens;
/* The file must be its owner's alone, and that the user who runs the gateway. NULL and a sentence
 * that says what to do on error. No token at all is no error: then nobody gets in. */
struct admin_tokens *admin_tokens_load(const char *file, char why[256]) MUST_CHECK;
void admin_tokens_free(struct admin_tokens *tokens);
size_t admin_tokens_count(const struct admin_tokens *tokens);

/* The role of a presented token at a time (seconds since 1970), and its name; ADMIN_ANYBODY where it
 * is not known or has expired. Takes the same time for each token that is as long. */
enum admin_role admin_tokens_role(const struct admin_tokens *tokens, struct span presented,
				  int64_t now, const char **name);
