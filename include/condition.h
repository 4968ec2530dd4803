/* What the bodies of answers say (CONTRACT 5, 7): conditions on a place in JSON. Pure. */
#pragma once
#include "settings.h"

/* The answer's body where it is JSON that can be read, without a Content-Encoding; else empty. */
struct span condition_json(const struct http_answer *answer);
/* Does such a body, which is not empty, say so? */
bool condition_met(const struct condition *condition, struct span json) MUST_CHECK;
/* Both: does the answer say so? No body meets a condition that is not set. */
bool condition_holds(const struct condition *condition,
		     const struct http_answer *answer) MUST_CHECK;
