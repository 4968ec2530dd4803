/*
 * Asking the upstream by reference what became of a request (CONTRACT 7, recovery.contract
 * "lookup"). Lives in the office, on its own connection to the ledger and with its own
 * connections to the upstreams; knows no clients. Where no route has that contract it does nothing.
 */
#pragma once
#include "loop.h"
#include "metrics.h"
#include "settings.h"

struct lookup;
struct lookup *lookup_new(struct loop *loop, struct metrics *metrics,
			  const struct settings *settings);
void lookup_free(struct lookup *lookup); /* what is being asked is given up */
void lookup_follow(struct lookup *lookup, const struct settings *settings);
void lookup_run(struct lookup *lookup); /* once a turn: takes in answers, sends */
