/*
 * The real ledger on a loop of the test's own, against a scratch server: a test is the exchange.
 * Settings, metrics and the log are fakes (ledger_fakes.h).
 *
 * An attempt is an entry and what became of it. Whatever a test leaves behind is left and waited
 * for in tear_down: no ledger may be busy then, and each `done` and `gone` came just once.
 */
#pragma once
#include "../turned.h"
#include "ledger_fakes.h"
#include "ledger_internal.h"
#include "scratch.h"

#include <check.h>

#define SOON 20000 /* ms: by then anything has happened, on a busy machine too */
#define PATIENCE                                                                               \
	(SOON / 2) /* ms: of a request with the ledger, where it is not what is tested */

struct attempt {
	struct ledger_entry entry;
	struct ledger *ledger;
	unsigned asked, answered, gone;
	bool leaves; /* as soon as it is answered */
	int64_t asked_ms, took_ms;
	int64_t asked_turned_us, turned_ms; /* of that what it was turned for */
};

#define ATTEMPTS_MAX 20000
#define LEDGERS_MAX  4

static struct loop *loop;
static struct ledger *ledgers[LEDGERS_MAX];
static struct attempt *attempts[ATTEMPTS_MAX];
static size_t n_ledgers, n_attempts;
static struct arena *arena;
static struct idempotency_settings orders, payments;
static struct route routes[2];
static struct settings settings;

/* --- turns, as a worker's --- */

#define TURN_US 20000 /* a turn that is not held up */

static inline void turn(void)
{
	int64_t began = loop_clock_us();

	for (size_t i = 0; i < n_ledgers; i++)
		if (ledgers[i])
			ledger_flush(ledgers[i]);
	loop_wait(loop, 10);
	turned(began, TURN_US);
}

static inline void turn_for(int64_t ms)
{
	int64_t end = turned_us + ms * 1000;

	while (turned_us < end)
		turn();
}

#define TURN_UNTIL(condition)                                                                  \
	do {                                                                                   \
		int64_t end_ = turned_us + SOON * 1000L;                                       \
                                                                                               \
		while (!(condition)) {                                                         \
			ck_assert_msg(turned_us < end_, "never: %s\n%s", #condition, logged);  \
			turn();                                                                \
		}                                                                              \
	} while (0)

/* --- ledgers --- */

/* One that has not connected yet. */
static inline struct ledger *ledger_begin(void)
{
	ck_assert_uint_lt(n_ledgers, LEDGERS_MAX);
	ledgers[n_ledgers] = ledger_new(loop, NULL, &settings, (unsigned)n_ledgers);
	return ledgers[n_ledgers++];
}

static inline struct ledger *ledger_open(void)
{
	struct ledger *ledger = ledger_begin();

	TURN_UNTIL(ledger_state(ledger).up);
	ck_assert(ledger_state(ledger).durable);
	ck_assert_ptr_null(ledger_state(ledger).why);
	return ledger;
}

static inline void ledger_end(struct ledger *ledger)
{
	TURN_UNTIL(ledger_busy(ledger) == 0);
	for (size_t i = 0; i < n_ledgers; i++)
		if (ledgers[i] == ledger)
			ledgers[i] = NULL;
	ledger_free(ledger);
}

/* --- attempts --- */

static inline void attempt_leave(struct attempt *a)
{
	ledger_leave(a->ledger, &a->entry);
}

static void attempt_done(struct ledger_entry *entry)
{
	struct attempt *a = container_of(entry, struct attempt, entry);

	a->answered++;
	ck_assert_uint_eq(a->answered, a->asked);
	ck_assert_uint_eq(a->gone, 0);
	ck_assert_int_ge(entry->took_us, 0);
	a->took_ms = loop_clock_us() / 1000 - a->asked_ms;
	a->turned_ms = (turned_us - a->asked_turned_us) / 1000;
	if (a->leaves)
		attempt_leave(a);
}

static void attempt_gone(struct ledger_entry *entry)
{
	struct attempt *a = container_of(entry, struct attempt, entry);

	a->gone++;
	ck_assert_uint_eq(a->gone, 1);
	ck_assert_uint_eq(a->answered, a->asked);
}

static inline void content_set(struct attempt *a, const char *canonical, const char *raw)
{
	struct hash *hash = hash_new();
	unsigned char out[32];

	hash_reset(hash);
	hash_add_span(hash, span_of(canonical));
	hash_end(hash, a->entry.digest.canonical);
	hash_reset(hash);
	hash_add_span(hash, span_of(raw));
	hash_end(hash, out);
	memcpy(a->entry.digest.raw, out, sizeof(a->entry.digest.raw));
	hash_free(hash);
}

static inline struct attempt *attempt_new(struct ledger *ledger, const char *key,
					  const char *content)
{
	struct attempt *a = mem_alloc(sizeof(*a));

	ck_assert_uint_lt(n_attempts, ATTEMPTS_MAX);
	attempts[n_attempts++] = a;
	a->ledger = ledger;
	a->entry.idempotency = &orders;
	a->entry.arena = arena;
	a->entry.account = SPAN("alice");
	a->entry.key = arena_copy(arena, span_of(key));
	a->entry.done = attempt_done;
	a->entry.gone = attempt_gone;
	content_set(a, content, content);
	return a;
}

static inline void asks(struct attempt *a)
{
	a->asked++;
	a->asked_ms = loop_now(loop); /* what deadlines count from */
	a->asked_turned_us = turned_us;
}

static inline bool is_answered(const struct attempt *a)
{
	return a->answered == a->asked;
}

static inline void reserve(struct attempt *a)
{
	asks(a);
	ledger_reserve(a->ledger, &a->entry);
	ck_assert(!is_answered(a));
}

/* One that waits no longer than so for the ledger; the others have all the time of a busy machine. */
static inline void reserve_within(struct attempt *a, int64_t ms)
{
	settings.ledger.timeout = ms;
	reserve(a);
	settings.ledger.timeout = PATIENCE;
}

static inline void answered(struct attempt *a)
{
	TURN_UNTIL(is_answered(a));
}

/* Reserves and waits for the answer. */
static inline struct attempt *reserved(struct ledger *ledger, const char *key,
				       const char *content)
{
	struct attempt *a = attempt_new(ledger, key, content);

	reserve(a);
	answered(a);
	return a;
}

static inline void found_is(const struct attempt *a, enum ledger_found found)
{
	static const char *const words[] = { "won",     "completed",  "in flight",
					     "unknown", "released",   "overloaded",
					     "stopped", "unavailable" };

	ck_assert_msg(a->entry.found == found, "%.*s was found %s (%s), not %s\n%s",
		      (int)a->entry.key.len, a->entry.key.at, words[a->entry.found],
		      a->entry.why ? a->entry.why : "-", words[found], logged);
}

static inline struct attempt *found(struct ledger *ledger, const char *key, const char *content,
				    enum ledger_found found)
{
	struct attempt *a = reserved(ledger, key, content);

	found_is(a, found);
	return a;
}

static inline struct attempt *won(struct ledger *ledger, const char *key, const char *content)
{
	return found(ledger, key, content, LEDGER_WON);
}

static inline void settle_within(struct attempt *a, enum ledger_outcome outcome,
				 int64_t wait_ms)
{
	a->entry.outcome = outcome;
	a->entry.cause = outcome == LEDGER_COMPLETE ? NULL : "a test's";
	asks(a);
	ledger_settle(a->ledger, &a->entry, wait_ms);
	ck_assert(!is_answered(a));
}

static inline void settle(struct attempt *a, enum ledger_outcome outcome)
{
	settle_within(a, outcome, SOON);
}

static inline void settled_is(struct attempt *a, enum ledger_settled settled)
{
	answered(a);
	ck_assert_msg(a->entry.settled == settled, "%.*s was settled %d, not %d\n%s",
		      (int)a->entry.key.len, a->entry.key.at, (int)a->entry.settled,
		      (int)settled, logged);
}

static inline void settled(struct attempt *a, enum ledger_outcome outcome)
{
	settle(a, outcome);
	settled_is(a, LEDGER_SETTLED);
}

/* What is to be stored: 201, two fields, and that body. */
static inline void result_set(struct attempt *a, struct span body)
{
	static struct http_field fields[2];

	fields[0] = (struct http_field){ SPAN("Content-Type"), SPAN("text/plain") };
	fields[1] = (struct http_field){ SPAN("Location"), SPAN("/orders/1") };
	a->entry.result =
		(struct http_answer){ .status = 201, .fields = { fields, 2 }, .body = body };
}

static inline struct attempt *completed(struct ledger *ledger, const char *key,
					const char *content, const char *body)
{
	struct attempt *a = won(ledger, key, content);

	result_set(a, span_of(body));
	settled(a, LEDGER_COMPLETE);
	return a;
}

/* In flight already: waits for its end. */
static inline void wait_for(struct attempt *a, int64_t wait_ms)
{
	asks(a);
	ledger_wait(a->ledger, &a->entry, wait_ms);
	ck_assert(!is_answered(a));
}

static inline void replayed(const struct attempt *a, struct span body)
{
	found_is(a, LEDGER_COMPLETED);
	ck_assert_int_eq(a->entry.same, LEDGER_SAME);
	ck_assert(a->entry.retained);
	ck_assert_uint_eq(a->entry.stored.status, 201);
	ck_assert(span_equal(a->entry.stored.body, body));
	ck_assert_uint_eq(a->entry.stored.fields.n, 2);
	ck_assert(span_equal(a->entry.stored.fields.at[1].value, SPAN("/orders/1")));
}

/* --- the server --- */

/* A number about a key, e.g. rows("onceward.key", "k"). */
static inline long rows(const char *table, const char *condition)
{
	char sql[512];

	snprintf(sql, sizeof(sql), "SELECT count(*) FROM onceward.%s WHERE %s", table,
		 condition);
	return scratch_number(sql);
}

static inline void rows_are(const char *table, const char *condition, long n)
{
	long there = rows(table, condition);

	ck_assert_msg(there == n, "%s where %s: %ld rows, not %ld\n%s", table, condition, there,
		      n, logged);
}

#define OURS "application_name = 'onceward' AND pid <> pg_backend_pid()"

/* Until n backends wait for a lock. */
static inline void locked(long n)
{
	TURN_UNTIL(scratch_number("SELECT count(*) FROM pg_stat_activity WHERE "
				  "wait_event_type = 'Lock' AND " OURS) == n);
}

/* A session that is none of ours, and waits for as long as it takes. */
static inline struct pg_session *stranger(void)
{
	char conninfo[192];
	struct pg_session *session = NULL;

	snprintf(conninfo, sizeof(conninfo), "%s application_name=stranger", scratch_conninfo);
	session = scratch_open(conninfo);
	scratch_run(session, "SET lock_timeout = 0");
	scratch_run(session, "SET statement_timeout = 0");
	return session;
}

/* One that holds a table against everybody. */
static inline struct pg_session *lock(const char *table)
{
	struct pg_session *session = stranger();
	char sql[128];

	snprintf(sql, sizeof(sql), "BEGIN; LOCK TABLE onceward.%s", table);
	scratch_run(session, sql);
	return session;
}

static inline void unlock(struct pg_session *session)
{
	scratch_run(session, "ROLLBACK");
	pg_session_close(session);
}

static inline void terminate_ours(void)
{
	/* one of an earlier look may just be going, and is not there any more */
	scratch_do("SET client_min_messages = error;"
		   "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE " OURS);
}

/* For all sessions, those that run included. NULL: as before. */
static inline void configure(const char *name, const char *value)
{
	struct pg_session *session = scratch_open(scratch_conninfo);
	char sql[256];

	scratch_run(session, "SET default_transaction_read_only = off");
	if (value)
		snprintf(sql, sizeof(sql), "ALTER SYSTEM SET %s = '%s'", name, value);
	else
		snprintf(sql, sizeof(sql), "ALTER SYSTEM RESET %s", name);
	scratch_run(session, sql);
	scratch_run(session, "SELECT pg_reload_conf()");
	pg_session_close(session);
	if (!value)
		return;
	snprintf(sql, sizeof(sql), "SELECT count(*) WHERE current_setting('%s') = '%s'", name,
		 value);
	while (scratch_number(sql) != 1)
		usleep(2000);
}

/* --- before and after --- */

static inline struct idempotency_settings an_operation(const char *name)
{
	struct idempotency_settings made = {
		.operation = name,
		.lease = 60000,
		.retention = 86400000,
		.tombstone = 30L * 86400000,
		.rules = { .version = 1, .body = CANONICAL_JSON },
		.identity_text = name,
	};
	struct hash *hash = hash_new();

	made.rules.id = digest_rules_id(&made.rules);
	hash_reset(hash);
	hash_add_span(hash, span_of(name));
	hash_end(hash, made.identity);
	hash_free(hash);
	return made;
}

static inline void set_up(void)
{
	scratch_same_day();
	loop = loop_new();
	arena = arena_new();
	orders = an_operation("orders.create");
	payments = an_operation("payments.create");
	routes[0] = (struct route){ .idempotency = &orders };
	routes[1] = (struct route){ .idempotency = &payments };
	settings = (struct settings){ .routes = routes, .n_routes = 2 };
	settings.ledger.conninfo = scratch_conninfo;
	settings.ledger.prepared = true;
	settings.ledger.timeout = PATIENCE;
	settings.ledger.connections = 1;
	settings.ledger.batch_max = 256;
	settings.limits.in_flight = 2000;
	settings.limits.bytes_in_flight = 256L * 1024 * 1024;
	memcpy(settings.fingerprint, "of the settings", 16);
	scratch_do("TRUNCATE onceward.key, onceward.op, onceward.event, onceward.event_late, "
		   "onceward.attention, onceward.identity, onceward.stop, onceward.receipt");
}

/* Everybody leaves, and the ledgers end when they have nothing more to do. */
static inline void tear_down_ledgers(void)
{
	for (size_t i = 0; i < n_attempts; i++) {
		attempts[i]->leaves = true;
		if (!attempts[i]->entry.left && attempts[i]->asked && is_answered(attempts[i]))
			attempt_leave(attempts[i]);
	}
	for (size_t i = 0; i < n_ledgers; i++)
		if (ledgers[i])
			ledger_end(ledgers[i]);
	for (size_t i = 0; i < n_attempts; i++) {
		ck_assert(attempts[i]->asked == 0 || attempts[i]->gone == 1);
		mem_free(attempts[i]);
	}
	ck_assert_int_eq(gauges[METRIC_unsettled_in_memory], 0);
	ck_assert_int_eq(holders, 0);
}

static inline void tear_down(void)
{
	tear_down_ledgers();
	arena_free(arena);
	loop_free(loop);
}
