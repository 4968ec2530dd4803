/*
 * What of an answer is given and kept where the route keeps less than all of its body (CONTRACT
 * 8): the client who asked first gets the same as those who come again. Pure.
 */
#pragma once
#include "settings.h"

/* The answer as it is stored. Fields that speak of the whole body go with it. */
struct http_answer response_reduced(struct arena *arena,
				    const struct response_settings *response,
				    const struct http_answer *answer);
/* Of one whose body could not be held: its status, and the fields that are true without one. */
struct http_answer response_without_body(struct arena *arena, const struct http_answer *answer);
