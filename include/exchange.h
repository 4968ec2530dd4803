/* One enforced request, from its head to its answer: the contract. See exchange.c. */
#pragma once
#include "forward.h"

extern const size_t exchange_size; /* of what it needs, a struct served first */

/* The head of a request is in, on a route with idempotency, with an unsafe method. */
void exchange_head(struct served *served);
