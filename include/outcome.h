/*
 * What an upstream's answer means for the record (CONTRACT 5): by its status,
 * and by what the operator said of its fields and its body. Pure.
 */
#pragma once
#include "settings.h"

/*
 * The first that decides: a field that proves that nothing was done (release_if), what the body
 * says (when), the status. What would be stored and lacks the receipt that it must have is
 * unknown. *why: a few words where anything but the status decided, else NULL.
 */
enum outcome outcome_of(const struct idempotency_settings *idempotency,
			const struct http_answer *answer, const char **why);
/*
 * The same of a later attempt: it never releases (CONTRACT 5). Stored is a status of
 * recovery.resend_store, unless a field or the body says something else of it.
 */
enum outcome outcome_of_resend(const struct idempotency_settings *idempotency,
			       const struct http_answer *answer, const char **why);
