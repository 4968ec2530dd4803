/* A request that is not enforced: forwarded as it is, once; its answer given as it comes. */
#pragma once
#include "forward.h"

extern const size_t passthrough_size; /* of what it needs, a struct served first */

/* The head is in. `account` (NULL: nobody is asked) must be known before anything is forwarded. */
void passthrough_head(struct served *served, const struct account_settings *account);
/* The body is in, and it turns out that the request is held to nothing: whoever has read it gives up
 * the room behind the struct served. */
void passthrough_body(struct served *served);
/* Answers by itself: no route, a method that is not allowed, a malformed path. */
void passthrough_refuse(struct served *served, const struct problem_about *about);
