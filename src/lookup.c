/*
 * Rounds of lookups: what is due is taken from the attention list, under a lease, and asked for.
 *
 * A round comes every half a second, or as soon as an asking has ended where there was more than
 * could be taken. A few are asked at a time, of one operation fewer still, so that one slow
 * upstream holds up no other. Two instances never ask for one record together: lookup_take skips
 * what others hold. See lookup_ask.c for what comes of a record, lookup_control.c for what "not
 * found" needs beside itself.
 *
 * New settings take effect between two questions to the ledger; what is being asked goes on under
 * those it began with.
 */
#include "lookup_internal.h"

#include "digest.h"
#include "log.h"

#include <assert.h>
#include <stdio.h>

#define WHO      "lookup"
#define ROUND_MS 500
#define PAUSE_MS 1000 /* after a failure */
#define LEASE_MS 5000 /* beyond what an asking can take */

static void next(struct lookup *lookup);

int64_t lookup_lease_ms(const struct route *route)
{
	const struct upstream_settings *upstream = route->upstream;

	return upstream->queue_timeout + upstream->connect_timeout + upstream->timeout +
	       LEASE_MS;
}

void lookup_target_release(struct lookup_target *target)
{
	assert(target->asks > 0);
	if (--target->asks > 0)
		return;
	mem_free(target->operation);
	mem_free(target);
}

static bool looked_up(const struct route *route)
{
	return route->idempotency && route->idempotency->recovery.contract == RECOVERY_LOOKUP;
}

static struct lookup_target *find(struct lookup_target *const *targets, size_t n,
				  const char *operation)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(targets[i]->operation, operation) == 0)
			return targets[i];
	return NULL;
}

static struct lookup_target *target_new(const char *operation)
{
	struct lookup_target *target = mem_alloc(sizeof(*target));

	target->operation = mem_text(span_of(operation));
	target->control_found_ms = LOOKUP_NEVER;
	target->asks = 1; /* the list's own */
	return target;
}

/* Settings may have changed what its control says. */
static struct lookup_target *target_kept(struct lookup_target *target)
{
	target->control_found_ms = LOOKUP_NEVER;
	target->control_due_ms = 0;
	target->said = 0;
	target->asks++;
	return target;
}

static void targets_drop(struct lookup_target **targets, size_t n)
{
	for (size_t i = 0; i < n; i++)
		lookup_target_release(targets[i]);
	mem_free(targets);
}

/* One of each operation; those that were there before go on. */
static void targets_make(struct lookup *lookup)
{
	const struct settings *settings = lookup->settings;
	struct lookup_target **old = lookup->targets;
	size_t n_old = lookup->n_targets;

	lookup->targets = mem_alloc(sizeof(struct lookup_target *) * (settings->n_routes + 1));
	lookup->n_targets = lookup->first = 0;
	for (size_t i = 0; i < n_old; i++)
		old[i]->route = NULL;
	for (size_t i = 0; i < settings->n_routes; i++) {
		const struct route *route = &settings->routes[i];
		struct lookup_target *target = NULL;

		if (!looked_up(route) ||
		    find(lookup->targets, lookup->n_targets, route->idempotency->operation))
			continue;
		target = find(old, n_old, route->idempotency->operation);
		target = target ? target_kept(target)
				: target_new(route->idempotency->operation);
		target->route = route;
		lookup->targets[lookup->n_targets++] = target;
	}
	targets_drop(old, n_old);
}

static void up(void *arg)
{
	next(arg);
}

/* Nobody is connected to for lookups that no route asks for. */
static void connect_or_not(struct lookup *lookup)
{
	struct pg_options options = { .conninfo = lookup->settings->ledger.conninfo,
				      .prepared = lookup->settings->ledger.prepared,
				      .who = WHO,
				      .up = up,
				      .arg = lookup };

	if (lookup->n_targets && !lookup->pg)
		lookup->pg = pg_new(lookup->loop, &options);
}

static void apply(struct lookup *lookup)
{
	const struct settings *settings = lookup->next_settings;

	if (!settings)
		return;
	lookup->next_settings = NULL;
	if (lookup->settings)
		settings_release(lookup->settings);
	lookup->settings = settings;
	targets_make(lookup);
	upstreams_follow(lookup->upstreams, settings, 1);
	connect_or_not(lookup);
}

void lookup_begin(struct lookup *lookup, enum lookup_job job)
{
	lookup->busy = true;
	lookup->job = job;
	lookup->sent_ms = loop_clock_us() / 1000;
	pg_begin(lookup->pg, &lookup->transaction);
}

void lookup_end(struct lookup *lookup)
{
	pg_end(lookup->pg);
	pg_flush(lookup->pg);
}

static struct lookup_target *in_turn(const struct lookup *lookup, size_t i)
{
	return lookup->targets[(lookup->first + i) % lookup->n_targets];
}

/* One of its asks is the list's own. */
static int64_t room_of(const struct lookup_target *target)
{
	int64_t asks = (int64_t)target->asks - 1;

	if (target->control_failing || asks >= (int64_t)LOOKUP_ASKS_OF_ONE)
		return 0;
	return (int64_t)LOOKUP_ASKS_OF_ONE - asks;
}

static void add_targets(struct lookup *lookup)
{
	struct pg_params *params = &lookup->params;
	size_t n = lookup->n_targets;

	pg_array(params, PG_BYTEA, n);
	for (size_t i = 0; i < n; i++)
		pg_add_bytes(params, span_of(in_turn(lookup, i)->operation));
	pg_array(params, PG_INT8, n);
	for (size_t i = 0; i < n; i++)
		pg_add_int(params, PG_INT8, lookup_lease_ms(in_turn(lookup, i)->route));
	pg_array(params, PG_INT4, n);
	for (size_t i = 0; i < n; i++)
		pg_add_int(params, PG_INT4, room_of(in_turn(lookup, i)));
}

static bool take(struct lookup *lookup)
{
	if (lookup->n_asks == LOOKUP_ASKS || lookup->n_targets == 0)
		return false;
	lookup_begin(lookup, LOOKUP_JOB_TAKE);
	pg_params_clear(&lookup->params);
	pg_add_int(&lookup->params, PG_INT8, lookup->writer);
	pg_add_int(&lookup->params, PG_INT4, (int64_t)LOOKUP_ASKS - (int64_t)lookup->n_asks);
	add_targets(lookup);
	pg_send(lookup->pg, QUERY_lookup_take, &lookup->params);
	lookup_end(lookup);
	return true;
}

/* No more came than what may be asked: each target had its room, and asks only end meanwhile. */
static void taken(struct lookup *lookup, const struct pg_rows *rows)
{
	size_t n = pg_rows_count(rows);

	lookup->more = n > 0;
	for (size_t row = 0; row < n; row++)
		lookup_ask_record(lookup, in_turn(lookup, (size_t)pg_int(rows, row, 0)), rows,
				  row);
	if (lookup->n_targets)
		lookup->first = (lookup->first + 1) % lookup->n_targets;
}

static void next(struct lookup *lookup)
{
	int64_t wait = 0;

	if (lookup->ending || lookup->busy)
		return;
	apply(lookup);
	if (!lookup->pg || !pg_up(lookup->pg))
		return;
	wait = lookup->not_before_ms - loop_now(lookup->loop);
	if (wait <= 0 && (lookup_control_next(lookup) || take(lookup)))
		return;
	loop_timer(lookup->loop, &lookup->timer, wait > 0 ? wait : ROUND_MS);
}

static void due(struct loop_timer *timer)
{
	next(container_of(timer, struct lookup, timer));
}

void lookup_freed(struct lookup *lookup)
{
	if (lookup->more && !lookup->ending)
		loop_timer(lookup->loop, &lookup->timer, 0);
}

static void failed(struct lookup *lookup)
{
	const struct pg_transaction *transaction = &lookup->transaction;

	if (transaction->outcome == PG_FAILED &&
	    strcmp(transaction->message, lookup->failure) != 0) {
		log_warning(WHO, "looking for what is to be looked up: %.200s",
			    transaction->message);
		memcpy(lookup->failure, transaction->message, sizeof(lookup->failure));
	}
	if (strcmp(transaction->sqlstate, "25006") == 0)
		pg_drop(lookup->pg, "the server is read-only");
	lookup->not_before_ms = loop_now(lookup->loop) + PAUSE_MS;
}

static void done(struct pg_transaction *transaction)
{
	struct lookup *lookup = container_of(transaction, struct lookup, transaction);
	bool committed = transaction->outcome == PG_COMMITTED && !lookup->ending;
	const struct pg_rows *rows = committed ? transaction->rows[0] : NULL;
	bool control = lookup->job == LOOKUP_JOB_CONTROL;

	lookup->busy = false;
	if (!committed)
		failed(lookup);
	if (control)
		lookup_control_sample(lookup, rows);
	else if (rows)
		taken(lookup, rows);
	if (lookup->next_settings || control)
		next(lookup);
	else
		loop_timer(lookup->loop, &lookup->timer,
			   lookup->more && lookup->n_asks < LOOKUP_ASKS ? 0 : ROUND_MS);
}

struct lookup *lookup_new(struct loop *loop, struct metrics *metrics,
			  const struct settings *settings)
{
	struct lookup *lookup = mem_alloc(sizeof(*lookup));

	lookup->loop = loop;
	lookup->metrics = metrics;
	lookup->upstreams = upstreams_new(loop, metrics);
	lookup->timer.due = due;
	lookup->transaction.done = done;
	pg_params_init(&lookup->params);
	random_bytes(&lookup->writer, sizeof(lookup->writer));
	lookup->writer &= INT64_MAX;
	lookup_follow(lookup, settings);
	return lookup;
}

void lookup_free(struct lookup *lookup)
{
	lookup->ending = true;
	upstreams_run(lookup->upstreams);
	for (size_t i = 0; i < LOOKUP_ASKS; i++)
		lookup_ask_give_up(&lookup->asks[i]);
	upstreams_run(lookup->upstreams);
	upstreams_free(lookup->upstreams);
	if (lookup->pg)
		pg_free(lookup->pg);
	loop_timer_stop(lookup->loop, &lookup->timer);
	pg_params_fini(&lookup->params);
	targets_drop(lookup->targets, lookup->n_targets);
	if (lookup->next_settings)
		settings_release(lookup->next_settings);
	settings_release(lookup->settings);
	mem_free(lookup);
}

void lookup_follow(struct lookup *lookup, const struct settings *settings)
{
	if (lookup->next_settings)
		settings_release(lookup->next_settings);
	settings_hold(settings);
	lookup->next_settings = settings;
	if (!lookup->busy)
		apply(lookup);
	next(lookup);
}

void lookup_run(struct lookup *lookup)
{
	upstreams_run(lookup->upstreams);
	if (lookup->pg)
		pg_flush(lookup->pg);
}
