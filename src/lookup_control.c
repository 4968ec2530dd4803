/*
 * The positive control: before "not found" counts for anything, the same template must find a
 * record that is known to be there (CONTRACT 7). A lookup that has lost its index, its credentials
 * or its database finds nothing either, and taking that for a proof would execute again what was
 * done. See lookup_internal.h.
 *
 * It is made only when a "not found" waits for it, and holds for a minute. Where it finds nothing,
 * or an answer that says neither, nothing of the operation is looked up until it succeeds again.
 * An upstream that is away says nothing of its lookups: the control is made again later.
 */
#include "lookup_internal.h"

#include "log.h"

#define FRESH_MS     60000
#define AGE_MAX_MS   60000 /* of what is looked for: what is new may not be seen yet */
#define AGAIN_MS     1000
#define AGAIN_MAX_MS 60000
#define MISSING_MS   15000

bool lookup_control_fresh(const struct lookup *lookup, const struct lookup_target *target)
{
	return !target->control_failing && target->control_found_ms != LOOKUP_NEVER &&
	       loop_now(lookup->loop) - target->control_found_ms < FRESH_MS;
}

void lookup_control_want(struct lookup_target *target)
{
	target->control_wanted = true;
}

static struct lookup_target *due(const struct lookup *lookup)
{
	for (size_t i = 0; i < lookup->n_targets; i++) {
		struct lookup_target *target = lookup->targets[i];

		if ((target->control_wanted || target->control_failing) &&
		    !target->control_asking && loop_now(lookup->loop) >= target->control_due_ms)
			return target;
	}
	return NULL;
}

static int64_t age_ms(const struct idempotency_settings *idempotency)
{
	int64_t after = idempotency->recovery.not_found_after;

	return after > 0 && after < AGE_MAX_MS ? after : AGE_MAX_MS;
}

bool lookup_control_next(struct lookup *lookup)
{
	struct lookup_target *target = lookup->n_asks < LOOKUP_ASKS ? due(lookup) : NULL;
	const struct idempotency_settings *idempotency = NULL;

	if (!target)
		return false;
	idempotency = target->route->idempotency;
	target->control_asking = true;
	target->asks++;
	lookup->sampled = target;
	lookup_begin(lookup, LOOKUP_JOB_CONTROL);
	pg_params_clear(&lookup->params);
	pg_add_bytes(&lookup->params, span_of(target->operation));
	pg_add_int(&lookup->params, PG_INT8, idempotency->retention);
	pg_add_int(&lookup->params, PG_INT8, age_ms(idempotency));
	pg_add_bytes(&lookup->params, idempotency->recovery.lookup_mark);
	pg_send(lookup->pg, QUERY_lookup_control, &lookup->params);
	lookup_end(lookup);
	return true;
}

static void again_in(struct lookup *lookup, struct lookup_target *target, int64_t in_ms)
{
	target->control_asking = false;
	target->control_due_ms = loop_now(lookup->loop) + in_ms;
}

/* rows NULL: the ledger did not answer. */
void lookup_control_sample(struct lookup *lookup, const struct pg_rows *rows)
{
	struct lookup_target *target = lookup->sampled;

	lookup->sampled = NULL;
	if (!rows || !target->route) {
		again_in(lookup, target, AGAIN_MS);
	} else if (pg_rows_count(rows) == 0) {
		if (!target->control_missing)
			log_info("lookup",
				 "%s: there is no completed record to look for, so that "
				 "\"not found\" proves nothing",
				 target->operation);
		target->control_missing = true;
		target->control_wanted = false;
		again_in(lookup, target, MISSING_MS);
	} else {
		target->control_missing = false;
		lookup_ask_control(lookup, target, rows);
	}
	lookup_target_release(target);
}

static int64_t backoff_ms(const struct lookup_target *target)
{
	unsigned doublings = target->control_tries < 6 ? target->control_tries : 6;
	int64_t ms = (int64_t)AGAIN_MS << doublings;

	return ms < AGAIN_MAX_MS ? ms : AGAIN_MAX_MS;
}

static void found(struct lookup *lookup, struct lookup_target *target)
{
	if (target->control_failing)
		log_info("lookup", "%s: lookups find again what is there, and go on",
			 target->operation);
	target->control_failing = target->control_wanted = false;
	target->control_tries = 0;
	target->control_found_ms = loop_now(lookup->loop);
	again_in(lookup, target, 0);
}

static void failed(struct lookup *lookup, struct lookup_target *target)
{
	metrics_add(lookup->metrics, METRIC_lookups_total, LOOKED_CONTROL_FAILED, 1);
	if (!target->control_failing)
		log_error("lookup",
			  "%s: a lookup does not find a record that was completed; nothing of "
			  "this operation is looked up until it does (recovery.lookup_path, "
			  "headers_file, found)",
			  target->operation);
	target->control_failing = true;
}

void lookup_control_heard(struct lookup *lookup, struct lookup_target *target,
			  enum lookup_verdict verdict)
{
	switch (verdict) {
	case LOOKUP_FOUND:
	case LOOKUP_PENDING:
		found(lookup, target);
		return;
	case LOOKUP_OTHER:
	case LOOKUP_NOT_FOUND:
	case LOOKUP_ODD:
		failed(lookup, target);
		break;
	case LOOKUP_FAILED:
		metrics_add(lookup->metrics, METRIC_lookups_total, LOOKED_FAILED, 1);
		break;
	}
	again_in(lookup, target, backoff_ms(target));
	target->control_tries++;
}
