/* A serving thread and its turn: a listener, the upstreams, a ledger, one loop; shares nothing. */
#pragma once
#include "ledger.h"
#include "settings.h"

struct worker;
struct spool;

struct worker_start {
	const struct settings *settings; /* it holds them */
	unsigned index, workers;
	struct spool *
		spool; /* where answers are kept; NULL: nowhere. Lives longer than the worker */
};
/* Opens its sockets (NULL and a sentence where it cannot) and starts the thread. */
struct worker *worker_start(const struct worker_start *start, char why[256]) MUST_CHECK;
/* From any thread: takes effect between two turns. */
void worker_follow(struct worker *worker, const struct settings *settings);
void worker_drain(
	struct worker
		*worker); /* stop accepting, finish and settle what is under way, then end */
/* There is no time to settle what is left: its answers go to the spool, in the worker's next turn. */
void worker_spool(struct worker *worker);
bool worker_spooled(const struct worker *worker); /* they have been given to it */
bool worker_ended(const struct worker *worker);
void worker_join(
	struct worker *
		worker); /* after worker_ended, or to leave it behind: then only on the way to exit */
/* Thread-safe views. */
struct ledger_state worker_ledger(const struct worker *worker);
size_t worker_under_way(const struct worker *worker); /* requests and unsettled answers */
const char *worker_address(const struct worker *worker, size_t i);
