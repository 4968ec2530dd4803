/* What a reload may not take away (CONTRACT 14). */
#pragma once
#include "settings.h"

/*
 * May `next` follow `old`? Not where it has no route any more for an operation of which a record
 * is unresolved: nobody could answer for that record. The ledger is asked only where an operation
 * goes, and that blocks, for some seconds at most; where it does not tell, the answer is no.
 * A longer retention needs day partitions; they are made before anybody follows.
 * False: a sentence in `why`.
 */
bool reload_allowed(const struct settings *old, const struct settings *next,
		    char why[512]) MUST_CHECK;
