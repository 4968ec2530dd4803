/* A serving thread and its turn: a listener, the upstreams, a ledger, one loop; shares nothing. */
#pragma once
#include "ledger.h"
#include "settings.h"

struct worker;

/* Opens its sockets (NULL and a sentence where it cannot) and starts the thread. Holds the settings. */
struct worker *worker_start(const struct settings *settings, unsigned index, unsigned workers,
			    char why[256]) MUST_CHECK;
/* From any thread: takes effect between two turns. */
void worker_follow(struct worker *worker, const struct settings *settings);
void worker_drain(
	struct worker
		*worker); /* stop accepting, finish and settle what is under way, then end */
bool worker_ended(const struct worker *worker);
void worker_join(
	struct worker *
		worker); /* after worker_ended, or to leave it behind: then only on the way to exit */
/* Thread-safe views. */
struct ledger_state worker_ledger(const struct worker *worker);
size_t worker_under_way(const struct worker *worker); /* requests and unsettled answers */
const char *worker_address(const struct worker *worker, size_t i);
