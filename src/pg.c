/*
 * The life of a pipelined connection; see pg.h. pg_pipeline.c has what goes over it.
 *
 *   AWAY --timer--> CONNECTING --PQconnectPoll--> PREPARING --Sync--> UP
 *     ^                  |                            |              |
 *     +---- BROKEN <-----+----------------------------+--------------+
 *
 * Whatever goes wrong, anywhere, is a call of pg_fail: it notes the reason and sets the timer
 * to "at once", so that callbacks come from the loop alone, never out of a call of the owner's.
 * From there all transactions end as lost, the owner hears why, and the timer is set to the
 * back-off. libpq changes its socket while it tries several addresses, and closes the old one
 * by itself: while connecting, the watch is taken out before each PQconnectPoll. Names are
 * resolved by libpq, which blocks: a conninfo should name a socket directory, an address, or a
 * host that the machine resolves at once.
 */
#include "pg_internal.h"

#include "log.h"

#include <assert.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>

#define BACKOFF_MIN_MS  50
#define BACKOFF_MAX_MS  1000
#define HOST_PATIENCE_S 5
/* A connection that stood this long was a good one: the next try comes at once. */
#define STOOD_MS        5000

/* libpq closes its socket by itself when it reads the end of the connection. */
static void unwatch(struct pg *pg)
{
	if (PQsocket(pg->conn) == pg->watch.fd)
		loop_unwatch(pg->loop, &pg->watch);
	else
		loop_unwatch_closed(pg->loop, &pg->watch);
}

void pg_fail(struct pg *pg, const char *why)
{
	if (pg->state == PG_BROKEN || pg->state == PG_AWAY)
		return;
	if (!pg->why[0])
		pg_first_line(pg->why, why);
	pg->state = PG_BROKEN;
	unwatch(pg);
	loop_timer(pg->loop, &pg->timer, 0);
}

void pg_drop(struct pg *pg, const char *why)
{
	pg_fail(pg, why);
}

/* Three quarters to the whole of what the number of failures asks for. */
static int64_t backoff_ms(const struct pg *pg)
{
	unsigned doublings = pg->failures < 8 ? pg->failures : 8;
	int64_t most = BACKOFF_MIN_MS << doublings;
	uint64_t dice = (uint64_t)loop_clock_us() * 0x9E3779B97F4A7C15U >> 33;

	if (most > BACKOFF_MAX_MS)
		most = BACKOFF_MAX_MS;
	return most - (int64_t)(dice % (uint64_t)(most / 4 + 1));
}

static void disconnect(struct pg *pg)
{
	unwatch(pg);
	loop_timer_stop(pg->loop, &pg->timer);
	PQfinish(pg->conn);
	pg->conn = NULL;
	pg->state = PG_AWAY;
}

/* A ledger that stays away says so once, and again only where the reason is another one. */
static void log_down(struct pg *pg)
{
	if (strcmp(pg->said, pg->why) == 0)
		log_debug(pg->who, "still not connected to PostgreSQL: %s", pg->why);
	else
		log_warning(pg->who, "not connected to PostgreSQL: %s", pg->why);
	memcpy(pg->said, pg->why, sizeof(pg->said));
}

static void broken(struct pg *pg)
{
	char why[256];

	disconnect(pg);
	pg_lose(pg);
	if (pg->up_since && loop_now(pg->loop) - pg->up_since >= STOOD_MS)
		pg->failures = 0;
	pg->up_since = 0;
	loop_timer(pg->loop, &pg->timer, backoff_ms(pg));
	pg->failures++;
	log_down(pg);
	memcpy(why, pg->why, sizeof(why));
	if (pg->options.down)
		pg->options.down(pg->options.arg, why);
}

static void begin(struct pg *pg)
{
	struct pg_keywords keywords;
	char why[256];

	pg->state = PG_CONNECTING;
	pg->why[0] = '\0';
	if (!pg_keywords_read(&keywords, pg->conninfo, why)) {
		pg_fail(pg, why);
		return;
	}
	pg->conn = PQconnectStartParams(keywords.keyword, keywords.value, 0);
	loop_timer(pg->loop, &pg->timer, (int64_t)HOST_PATIENCE_S * 1000 * keywords.hosts);
	pg_keywords_free(&keywords);
	assert(pg->conn); /* NULL: out of memory */
	PQsetNoticeReceiver(pg->conn, pg_noticed, pg);
	if (PQstatus(pg->conn) == CONNECTION_BAD) {
		pg_fail(pg, PQerrorMessage(pg->conn));
		return;
	}
	pg->watch.fd = PQsocket(pg->conn);
	loop_watch(pg->loop, &pg->watch, LOOP_WRITE);
}

static void due(struct loop_timer *timer)
{
	struct pg *pg = container_of(timer, struct pg, timer);

	switch (pg->state) {
	case PG_AWAY:
		begin(pg);
		break;
	case PG_CONNECTING:
	case PG_PREPARING:
		pg_fail(pg, "PostgreSQL does not answer");
		break;
	case PG_BROKEN:
		broken(pg);
		break;
	case PG_UP:
		break;
	}
}

void pg_is_up(struct pg *pg)
{
	int version = PQserverVersion(pg->conn);

	loop_timer_stop(pg->loop, &pg->timer);
	pg->state = PG_UP;
	pg->up_since = loop_now(pg->loop);
	pg->said[0] = '\0';
	log_info(pg->who, "connected to PostgreSQL %d.%d", version / 10000, version % 10000);
	if (pg->options.up)
		pg->options.up(pg->options.arg);
}

static void connected(struct pg *pg)
{
	loop_watch(pg->loop, &pg->watch, LOOP_READ);
	if (PQsetnonblocking(pg->conn, 1) != 0 || !PQenterPipelineMode(pg->conn))
		pg_fail(pg, PQerrorMessage(pg->conn));
	else if (pg->options.prepared)
		pg_prepare(pg);
	else
		pg_is_up(pg);
	pg_flush(pg);
}

static void connecting(struct pg *pg)
{
	PostgresPollingStatusType next = PGRES_POLLING_FAILED;

	loop_unwatch(pg->loop, &pg->watch);
	next = PQconnectPoll(pg->conn);
	if (next == PGRES_POLLING_FAILED) {
		pg_fail(pg, PQerrorMessage(pg->conn));
		return;
	}
	pg->watch.fd = PQsocket(pg->conn);
	if (next == PGRES_POLLING_OK)
		connected(pg);
	else
		loop_watch(pg->loop, &pg->watch,
			   next == PGRES_POLLING_READING ? LOOP_READ : LOOP_WRITE);
}

/* Bytes that TLS has decrypted are not seen by epoll any more. */
static bool decrypted(const struct pg *pg)
{
	SSL *ssl = PQsslStruct(pg->conn, "OpenSSL");

	return ssl && SSL_pending(ssl) > 0;
}

static void ready(struct loop_watch *watch, unsigned events)
{
	struct pg *pg = container_of(watch, struct pg, watch);
	bool there = true;

	(void)events; /* libpq finds out by itself, and an error ends in a read of nothing */
	if (pg->state == PG_CONNECTING) {
		connecting(pg);
		return;
	}
	do {
		there = PQconsumeInput(pg->conn) == 1;
		if (!there)
			unwatch(pg); /* before anybody opens another of its number */
		pg_read(pg);
	} while (there && pg->state != PG_BROKEN && decrypted(pg));
	if (!there || PQstatus(pg->conn) == CONNECTION_BAD)
		pg_fail(pg, PQerrorMessage(pg->conn));
	pg_flush(pg);
}

void pg_flush(struct pg *pg)
{
	int left = 0;
	unsigned events = LOOP_READ;

	if (pg->state != PG_UP && pg->state != PG_PREPARING)
		return;
	left = PQflush(pg->conn);
	if (left < 0) {
		pg_fail(pg, PQerrorMessage(pg->conn));
		return;
	}
	events |= left ? LOOP_WRITE : 0;
	if (events != pg->watch.events)
		loop_watch(pg->loop, &pg->watch, events);
}

bool pg_up(const struct pg *pg)
{
	return pg->state == PG_UP;
}

struct pg *pg_new(struct loop *loop, const struct pg_options *options)
{
	struct pg *pg = mem_alloc(sizeof(*pg));

	pg->loop = loop;
	pg->options = *options;
	pg->conninfo = mem_text(span_of(options->conninfo));
	pg->who = mem_text(span_of(options->who));
	pg->watch.ready = ready;
	pg->timer.due = due;
	list_init(&pg->sent);
	loop_timer(loop, &pg->timer, 0);
	return pg;
}

void pg_free(struct pg *pg)
{
	assert(!pg->open && !pg->reading);
	disconnect(pg);
	pg_lose(pg);
	mem_free(pg->conninfo);
	mem_free(pg->who);
	mem_free(pg);
}
