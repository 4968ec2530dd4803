/* An answer written past the HTTP library: where the request can no longer be answered through it. */
#pragma once
#include "problem.h"

/* A field of an answer that is the listener's to set. */
bool listener_own_field(struct span name);
/* Writes the answer as the connection's last, as far as the socket takes it at once. */
void listener_raw(int fd, const struct http_answer *answer);
/* The same for a problem that is not about a request. */
void listener_raw_problem(int fd, const struct problem_about *about);
