/*
 * Retention's connection, its clock guard and its rhythm; what the jobs are stands in retain_jobs.c.
 *
 * A look each minute says what there is to do: it compares the clocks, and where they are apart
 * nothing is done. Then jobs follow each other until all is done, one at a time and with a pause
 * behind each, so that requests have the database to themselves nearly all of the time. Steps grow
 * while they are quick and shrink where they are not.
 *
 * Whatever fails is tried again from a new look: all that must be remembered is in the ledger. A
 * connection that goes in the middle of a DETACH leaves a partition that is neither in nor out; the
 * next step of whoever is next brings that to its end.
 */
#include "retain_internal.h"

#include "digest.h"
#include "log.h"
#include "mem.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define WHO           "retention"
#define LOOK_MS       INT64_C(60000)
#define LOOK_MIN_MS   INT64_C(1000)
#define FAILED_MS     INT64_C(5000)
#define GRACE_MIN_MS  INT64_C(3600000)
#define GRACE_MORE_MS INT64_C(600000)
#define WALK_MIN_MS   INT64_C(4000)
#define WALK_MAX_MS   INT64_C(86400000)
#define BLOCKS        64
#define PAUSE_MIN_MS  INT64_C(10)
#define PAUSE_MAX_MS  INT64_C(2000)
#define PAUSE_TIMES   4

/* Steps: work that could go on and on. Behind each comes a pause of some times its length. */
static const bool is_step[RETAIN_JOBS] = {
	[RETAIN_PARTS] = true,
	[RETAIN_ERASE] = true,
	[RETAIN_ROWS] = true,
};

static const char *const doing[RETAIN_JOBS] = {
	[RETAIN_SESSION] = "beginning",
	[RETAIN_LOOK] = "looking for what is over",
	[RETAIN_PARTS] = "taking a day or a month away",
	[RETAIN_DETACH] = "detaching a partition",
	[RETAIN_ERASE] = "erasing",
	[RETAIN_ROWS] = "purging rows",
	[RETAIN_ROWS_END] = "ending a walk over keys",
	[RETAIN_VACUUM_TAKE] = "looking whether keys may be vacuumed",
	[RETAIN_VACUUM] = "vacuuming keys",
	[RETAIN_VACUUM_LEAVE] = "noting that keys were vacuumed",
};

int64_t retain_clock_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t retain_grace_ms(const struct settings *settings)
{
	int64_t longest = GRACE_MIN_MS;

	for (size_t i = 0; i < settings->n_routes; i++) {
		const struct idempotency_settings *it = settings->routes[i].idempotency;

		if (it && it->lease + it->settle_wait + GRACE_MORE_MS > longest)
			longest = it->lease + it->settle_wait + GRACE_MORE_MS;
	}
	return longest;
}

/* Keys of short tombstones are walked over more often. */
static int64_t walk_ms(const struct settings *settings)
{
	int64_t every = WALK_MAX_MS;

	for (size_t i = 0; i < settings->n_routes; i++) {
		const struct idempotency_settings *it = settings->routes[i].idempotency;

		if (it && it->tombstone / 4 < every)
			every = it->tombstone / 4;
	}
	return every > WALK_MIN_MS ? every : WALK_MIN_MS;
}

static void learn(struct retain *retain)
{
	int64_t grace = retain_grace_ms(retain->settings);

	if (grace > retain->grace_ms)
		retain->grace_ms = grace;
	retain->walk_ms = walk_ms(retain->settings);
}

void retain_begin(struct retain *retain, enum retain_job job)
{
	retain->busy = true;
	retain->job = job;
	retain->sent_us = loop_now_us(retain->loop);
	retain->sent_clock_ms = retain->clock_ms();
	pg_params_clear(&retain->params);
	pg_begin(retain->pg, &retain->transaction);
}

void retain_end(struct retain *retain)
{
	pg_end(retain->pg);
	pg_flush(retain->pg);
}

static void greet(struct retain *retain)
{
	retain_begin(retain, RETAIN_SESSION);
	pg_send(retain->pg, QUERY_retain_session, NULL);
	retain_end(retain);
}

static void look(struct retain *retain)
{
	int64_t every = retain->walk_ms / 4;

	if (every > LOOK_MS)
		every = LOOK_MS;
	if (every < LOOK_MIN_MS)
		every = LOOK_MIN_MS;
	retain->look_at = loop_now(retain->loop) + every;
	retain_begin(retain, RETAIN_LOOK);
	pg_add_int(&retain->params, PG_INT8, retain->grace_ms);
	pg_add_int(&retain->params, PG_INT8, retain->settings->ledger.audit_retention);
	pg_add_int(&retain->params, PG_INT8, retain->walk_ms);
	pg_send(retain->pg, QUERY_retain_look, &retain->params);
	retain_end(retain);
}

static void next(struct retain *retain)
{
	int64_t now = loop_now(retain->loop);

	if (retain->busy || !pg_up(retain->pg))
		return;
	if (now < retain->next_at) {
		loop_timer(retain->loop, &retain->timer, retain->next_at - now);
	} else if (retain->direct && !retain->greeted) {
		greet(retain);
	} else if (now >= retain->look_at) {
		look(retain);
	} else if (!retain_send_next(retain)) {
		loop_timer(retain->loop, &retain->timer, retain->look_at - now);
	}
}

static void due(struct loop_timer *timer)
{
	next(container_of(timer, struct retain, timer));
}

static void nothing_to_do(struct retain *retain)
{
	retain->parts = retain->erasures = retain->rows = retain->vacuum = false;
	retain->vacuuming = retain->vacuumed = false;
	retain->detach[0] = '\0';
}

/* PostgreSQL's clock, asked for between two looks at ours. True: they agree. */
static bool clocks_agree(struct retain *retain, int64_t server_ms)
{
	int64_t now = retain->clock_ms();
	int64_t apart = server_ms < retain->sent_clock_ms ? retain->sent_clock_ms - server_ms
			: server_ms > now                 ? server_ms - now
							  : 0;
	bool agreed = retain->stopped[0] == '\0';

	if (apart <= RETAIN_CLOCKS_APART_MS) {
		retain->stopped[0] = '\0';
		if (!agreed)
			log_info(WHO, "the clocks agree again: purging goes on");
	} else {
		snprintf(retain->stopped, sizeof(retain->stopped),
			 "nothing is purged: PostgreSQL's clock and this machine's differ by "
			 "%lld s",
			 (long long)apart / 1000);
		if (agreed)
			log_error(WHO, "%s", retain->stopped);
	}
	metrics_set(retain->metrics, METRIC_purge_stopped, 0, retain->stopped[0] != '\0');
	return retain->stopped[0] == '\0';
}

/* The columns of retain_look. */
enum { L_CLOCK, L_PARTS, L_ROWS, L_VACUUM, L_ERASURES, L_DUE };

static void looked(struct retain *retain, const struct pg_rows *rows)
{
	metrics_set(retain->metrics, METRIC_purge_due_rows, 0, pg_int(rows, 0, L_DUE));
	if (!clocks_agree(retain, pg_int(rows, 0, L_CLOCK))) {
		nothing_to_do(retain);
		return;
	}
	retain->n_parts = pg_int(rows, 0, L_PARTS);
	retain->parts = retain->n_parts > 0;
	retain->rows |= pg_int(rows, 0, L_ROWS) != 0;
	retain->vacuum |= pg_int(rows, 0, L_VACUUM) != 0;
	retain->erasures |= pg_int(rows, 0, L_ERASURES) != 0;
}

/* What failed waits for the next look, and what has nothing to do with it goes on: a reader that holds
 * up a day must not hold up an erasure. */
static void put_off(struct retain *retain)
{
	switch (retain->job) {
	case RETAIN_PARTS:
	case RETAIN_DETACH:
		retain->parts = false;
		retain->detach[0] = '\0';
		break;
	case RETAIN_ERASE:
		retain->erasures = false;
		break;
	case RETAIN_ROWS:
	case RETAIN_ROWS_END:
		retain->rows = false;
		break;
	case RETAIN_VACUUM_TAKE:
	case RETAIN_VACUUM:
	case RETAIN_VACUUM_LEAVE:
		retain->vacuum = retain->vacuuming = retain->vacuumed = false;
		break;
	case RETAIN_SESSION:
	case RETAIN_LOOK:
	case RETAIN_JOBS:
		nothing_to_do(retain);
		break;
	}
}

/* What is refused again and again is said once. */
static void say_failed(struct retain *retain)
{
	char *said = retain->said[retain->job];

	if (strcmp(retain->transaction.message, said) != 0)
		log_warning(WHO, "%s: %.200s", doing[retain->job], retain->transaction.message);
	snprintf(said, RETAIN_SAID, "%s", retain->transaction.message);
}

static void failed(struct retain *retain)
{
	if (retain->transaction.outcome == PG_FAILED)
		say_failed(retain);
	put_off(retain);
	retain->next_at = loop_now(retain->loop) + FAILED_MS;
	if (strcmp(retain->transaction.sqlstate, "25006") == 0)
		pg_drop(retain->pg, "the server is read-only");
}

static int64_t pause_ms(const struct retain *retain)
{
	int64_t took_ms = (loop_now_us(retain->loop) - retain->sent_us) / 1000;

	if (!is_step[retain->job])
		return 0;
	took_ms = took_ms < PAUSE_MAX_MS / PAUSE_TIMES ? took_ms : PAUSE_MAX_MS / PAUSE_TIMES;
	return PAUSE_MIN_MS + PAUSE_TIMES * took_ms;
}

static void done(struct pg_transaction *transaction)
{
	struct retain *retain = container_of(transaction, struct retain, transaction);

	retain->busy = false;
	retain->next_at = loop_now(retain->loop) + pause_ms(retain);
	if (transaction->outcome != PG_COMMITTED)
		failed(retain);
	else if (retain->job == RETAIN_SESSION)
		retain->greeted = true;
	else if (retain->job == RETAIN_LOOK)
		looked(retain, transaction->rows[0]);
	else
		retain_take(retain);
	next(retain);
}

/* A new connection may lead to another server. */
static void up(void *arg)
{
	struct retain *retain = arg;

	retain->greeted = false;
	retain->look_at = 0;
	nothing_to_do(retain);
	next(retain);
}

struct retain *retain_new(struct loop *loop, struct metrics *metrics,
			  const struct settings *settings, int64_t (*clock_ms)(void))
{
	struct retain *retain = mem_alloc(sizeof(*retain));
	const char *maintenance = settings->ledger.maintenance_conninfo;
	struct pg_options options = {
		.conninfo = maintenance ? maintenance : settings->ledger.conninfo,
		.prepared = maintenance ? true : settings->ledger.prepared,
		.who = WHO,
		.up = up,
		.arg = retain
	};

	retain->loop = loop;
	retain->metrics = metrics;
	retain->settings = settings;
	retain->clock_ms = clock_ms;
	settings_hold(settings);
	retain->timer.due = due;
	retain->transaction.done = done;
	retain->direct = options.prepared;
	retain->parts_blocks = retain->n_blocks = BLOCKS;
	random_bytes(&retain->token, sizeof(retain->token));
	pg_params_init(&retain->params);
	learn(retain);
	retain->pg = pg_new(loop, &options);
	return retain;
}

void retain_free(struct retain *retain)
{
	loop_timer_stop(retain->loop, &retain->timer);
	pg_free(retain->pg);
	loop_timer_stop(retain->loop, &retain->timer);
	pg_params_fini(&retain->params);
	settings_release(retain->settings);
	mem_free(retain);
}

void retain_follow(struct retain *retain, const struct settings *settings)
{
	settings_hold(settings);
	settings_release(retain->settings);
	retain->settings = settings;
	learn(retain);
	retain->look_at = 0;
	next(retain);
}

void retain_flush(struct retain *retain)
{
	pg_flush(retain->pg);
}

const char *retain_stopped(const struct retain *retain)
{
	return retain->stopped[0] ? retain->stopped : NULL;
}
