/*
 * The key of a request, from all places where the route says that it may stand (CONTRACT 2.3).
 * Those that are there must be equal.
 */
#pragma once
#include "settings.h"

/* As far as the head tells. The results are those of key_of. */
enum key_found key_of_fields(const struct key_settings *settings,
			     const struct http_request *request, struct span *key,
			     const char **why) MUST_CHECK;
/*
 * Where the body may hold it, too: after the body came. *key: what the fields gave, and the
 * key. The body is known to be one that can be read. A body that is not JSON holds none.
 */
enum key_found key_of_body(const struct idempotency_settings *idempotency,
			   const struct http_request *request, struct span *key,
			   const char **why) MUST_CHECK;
/* Does a field of the request hold a key, or something instead of one? */
bool key_in_fields(const struct sources *sources, const struct http_request *request);
