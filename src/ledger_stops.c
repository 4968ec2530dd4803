/*
 * What is stopped (CONTRACT 9): read more than twice a second, by every thread, and obeyed from then on. A
 * thread whose knowledge is older than two seconds forwards nothing until it has read again, so
 * that a process that was asleep does not act on what it knew before.
 *
 * A stop forbids new forwards and resends. What stands in the ledger is told all the same. Accounts
 * with too many records of unknown result are kept from new keys in the same way, alone.
 */
#include "ledger_internal.h"

#include "log.h"

#include <stdio.h>
#include <stdlib.h>

#define EVERY_MS                 LEDGER_IDLE_TICK_MS
#define KNOWN_MS                 2000
#define CROWDED_MS               1000
#define CROWDED_AFTER_FAILURE_MS 60000
#define CROWDED_SHARE            20 /* of the time at most one part goes into counting */
#define STOPS_MAX                10000

struct stop {
	char *operation; /* NULL: everything */
	char *account;   /* NULL: every account */
	size_t account_len;
	int64_t unknown; /* of a crowded account: how many; 0: a stop */
	enum metrics_stop reason;
};

struct stops {
	struct ledger *ledger;
	struct pg_transaction look;
	struct ledger_link *link;  /* of the look */
	bool looking, crowded_too; /* the look under way */
	int64_t asked_ms;          /* when it was sent */
	int64_t known_ms;          /* when what is known was asked for; 0: never */
	int64_t due_ms, crowded_due_ms;
	unsigned long round;     /* of stops_all: what was asked before does not count */
	unsigned long asked_for; /* of the look */
	int64_t newest;          /* the highest id that was seen */
	bool everything;         /* stopped, whatever is in the list */
	struct stop *stop, *crowded;
	size_t n_stop, n_crowded;
};

struct stops *stops_new(struct ledger *ledger)
{
	struct stops *stops = mem_alloc(sizeof(*stops));

	stops->ledger = ledger;
	stops->newest = -1;
	return stops;
}

static void list_clear(struct stop **list, size_t *n)
{
	for (size_t i = 0; i < *n; i++) {
		mem_free((*list)[i].operation);
		mem_free((*list)[i].account);
	}
	mem_free(*list);
	*list = NULL;
	*n = 0;
}

void stops_free(struct stops *stops)
{
	list_clear(&stops->stop, &stops->n_stop);
	list_clear(&stops->crowded, &stops->n_crowded);
	mem_free(stops);
}

bool stops_known(const struct ledger *ledger)
{
	const struct stops *stops = ledger->stops;

	return stops->known_ms && loop_now(ledger->loop) - stops->known_ms <= KNOWN_MS;
}

void stops_all(struct ledger *ledger)
{
	struct stops *stops = ledger->stops;

	stops->known_ms = 0;
	stops->due_ms = 0;
	stops->round++;
}

/* --- is it stopped? --- */

static const char *const texts[] = {
	[STOP_DUPLICATE_EFFECT] = "there are signs that something was done twice",
	[STOP_LATE_EFFECT] = "an attempt that was released had an effect",
	[STOP_REPLAY_MISMATCH] = "stored responses are not what was stored",
	[STOP_HISTORY_LOST] = "the ledger has lost records",
	[STOP_UNKNOWN_AGE] = "a result has not been known for too long",
	[STOP_OPERATOR] = "an operator has stopped it",
	[STOP_OTHER] = "it was stopped",
};
_Static_assert(ARRAY_LEN(texts) == STOP_COUNT, "each reason has its sentence");

static enum metrics_stop reason_of(struct span name)
{
	unsigned reason = 0;

	while (reason < STOP_OTHER &&
	       !span_equal(name, span_of(metrics_stop_name((enum metrics_stop)reason))))
		reason++;
	return (enum metrics_stop)reason;
}

static bool concerns(const struct stop *stop, const struct ledger_entry *entry)
{
	if (stop->operation && strcmp(stop->operation, entry->idempotency->operation) != 0)
		return false;
	return !stop->account ||
	       (stop->account_len == entry->account.len &&
		memcmp(stop->account, entry->account.at, entry->account.len) == 0);
}

const char *stops_stop(const struct ledger *ledger, const struct ledger_entry *entry)
{
	const struct stops *stops = ledger->stops;

	if (stops->everything)
		return "there are too many stops to tell them apart";
	for (size_t i = 0; i < stops->n_stop; i++)
		if (concerns(&stops->stop[i], entry))
			return texts[stops->stop[i].reason];
	return NULL;
}

/* What these are signs of happened under keys that look free now. */
static bool casts_doubt(enum metrics_stop reason)
{
	return reason == STOP_HISTORY_LOST || reason == STOP_LATE_EFFECT ||
	       reason == STOP_OTHER;
}

bool stops_vouch(const struct ledger *ledger, const struct ledger_entry *entry)
{
	const struct stops *stops = ledger->stops;

	for (size_t i = 0; i < stops->n_stop; i++)
		if (casts_doubt(stops->stop[i].reason) && concerns(&stops->stop[i], entry))
			return false;
	return !stops->everything;
}

const char *stops_refuse(const struct ledger *ledger, const struct ledger_entry *entry,
			 enum ledger_found *found)
{
	const struct stops *stops = ledger->stops;
	int64_t most = entry->idempotency->max_unknown_per_account;
	const char *why = stops_stop(ledger, entry);

	*found = LEDGER_STOPPED;
	if (why)
		return why;
	for (size_t i = 0; i < stops->n_crowded && most; i++)
		if (stops->crowded[i].unknown >= most && concerns(&stops->crowded[i], entry)) {
			*found = LEDGER_OVERLOADED;
			return "too many results of this account are not known";
		}
	return NULL;
}

/* --- reading --- */

static char *text_or_null(const struct pg_rows *rows, size_t row, unsigned column, size_t *len)
{
	struct span bytes = { 0 };

	if (pg_is_null(rows, row, column))
		return NULL;
	bytes = pg_bytes(rows, row, column);
	if (len)
		*len = bytes.len;
	return mem_text(bytes);
}

/* Only one thread counts what all of them see. */
static void count_new(struct stops *stops, const struct stop *stop)
{
	struct ledger *ledger = stops->ledger;

	if (ledger->index != 0 || stops->newest < 0)
		return;
	if (stop->reason == STOP_DUPLICATE_EFFECT)
		metrics_add(ledger->metrics, METRIC_duplicate_effects_total, 0, 1);
	if (stop->reason == STOP_LATE_EFFECT)
		metrics_add(ledger->metrics, METRIC_late_effects_total, 0, 1);
}

static void say(const struct stops *stops, const struct stop *stop)
{
	log_error(stops->ledger->who,
		  "%s is stopped%s: %s; nothing is forwarded for it until `onceward operations "
		  "resume`",
		  stop->operation ? stop->operation : "everything",
		  stop->account ? " for an account" : "", texts[stop->reason]);
}

static void take_stops(struct stops *stops, const struct pg_rows *rows)
{
	size_t n = pg_rows_count(rows);
	int64_t newest = stops->newest < 0 ? 0 : stops->newest;

	list_clear(&stops->stop, &stops->n_stop);
	stops->everything = n > STOPS_MAX;
	stops->stop = mem_alloc((n + 1) * sizeof(*stops->stop));
	stops->n_stop = n;
	for (size_t row = 0; row < n; row++) {
		struct stop *stop = &stops->stop[row];
		int64_t id = pg_int(rows, row, 0);

		stop->operation = text_or_null(rows, row, 1, NULL);
		stop->account = text_or_null(rows, row, 2, &stop->account_len);
		stop->reason = reason_of(pg_bytes(rows, row, 3));
		if (id <= stops->newest)
			continue;
		if (stops->ledger->index == 0)
			say(stops, stop);
		count_new(stops, stop);
		newest = id > newest ? id : newest;
	}
	stops->newest = newest;
}

static void show(const struct stops *stops)
{
	int64_t open[STOP_COUNT] = { 0 };

	if (stops->ledger->index != 0)
		return;
	for (size_t i = 0; i < stops->n_stop; i++)
		open[stops->stop[i].reason]++;
	for (unsigned i = 0; i < STOP_COUNT; i++)
		metrics_set(stops->ledger->metrics, METRIC_operations_stopped, i, open[i]);
}

static void take_crowded(struct stops *stops, const struct pg_rows *rows)
{
	size_t n = pg_rows_count(rows);

	list_clear(&stops->crowded, &stops->n_crowded);
	stops->crowded = mem_alloc((n + 1) * sizeof(*stops->crowded));
	stops->n_crowded = n;
	for (size_t row = 0; row < n; row++) {
		struct stop *one = &stops->crowded[row];

		one->operation = text_or_null(rows, row, 0, NULL);
		one->account = text_or_null(rows, row, 1, &one->account_len);
		one->unknown = pg_int(rows, row, 2);
	}
}

/* Nothing is reserved until it is known what is stopped, so no batch finds out that the connection is
 * of no use; and counting, which may be what took too long, can wait. */
static void look_failed(struct stops *stops, const struct pg_transaction *transaction)
{
	static const char *const hopeless[] = { "26", "42", "0A" };
	struct ledger *ledger = stops->ledger;

	log_error(ledger->who, "what is stopped can't be read: %s (SQLSTATE %s)",
		  transaction->message, transaction->sqlstate);
	if (stops->crowded_too)
		stops->crowded_due_ms = loop_now(ledger->loop) + CROWDED_AFTER_FAILURE_MS;
	for (size_t i = 0; i < ARRAY_LEN(hopeless); i++)
		if (strncmp(transaction->sqlstate, hopeless[i], 2) == 0)
			pg_drop(stops->link->pg,
				"the server does not know our statements any more");
}

/* A long list takes long to count, on a connection that others wait for. */
static void crowded_looked(struct stops *stops, const struct pg_rows *rows)
{
	int64_t now = loop_now(stops->ledger->loop);
	int64_t due = now + (now - stops->asked_ms) * CROWDED_SHARE;

	if (due > stops->crowded_due_ms)
		stops->crowded_due_ms = due;
	take_crowded(stops, rows);
}

static void looked(struct pg_transaction *transaction)
{
	struct stops *stops = container_of(transaction, struct stops, look);

	stops->looking = false;
	if (transaction->outcome == PG_FAILED)
		look_failed(stops, transaction);
	if (transaction->outcome != PG_COMMITTED)
		return;
	take_stops(stops, transaction->rows[0]);
	if (stops->crowded_too)
		crowded_looked(stops, transaction->rows[1]);
	show(stops);
	if (stops->asked_for == stops->round)
		stops->known_ms = stops->asked_ms;
	loop_wake(stops->ledger->loop); /* what waited for it goes out now */
}

/* The smallest limit of a route; 0: none has one. */
static int64_t crowded_limit(const struct settings *settings)
{
	int64_t least = 0;

	for (size_t i = 0; i < settings->n_routes; i++) {
		const struct idempotency_settings *it = settings->routes[i].idempotency;
		int64_t limit = it ? it->max_unknown_per_account : 0;

		if (limit && (!least || limit < least))
			least = limit;
	}
	return least;
}

void stops_poll(struct ledger *ledger, int64_t now_ms)
{
	struct stops *stops = ledger->stops;
	struct ledger_link *link = ledger_any_link(ledger);
	int64_t crowded = crowded_limit(ledger->settings);

	if (!link || stops->looking || now_ms < stops->due_ms)
		return;
	stops->looking = true;
	stops->link = link;
	stops->look.done = looked;
	stops->asked_ms = now_ms;
	stops->asked_for = stops->round;
	stops->due_ms = now_ms + EVERY_MS - LEDGER_TICK_MS;
	stops->crowded_too = crowded && now_ms >= stops->crowded_due_ms;
	pg_begin(link->pg, &stops->look);
	pg_params_clear(&ledger->params);
	pg_send(link->pg, QUERY_stops_read, &ledger->params);
	if (stops->crowded_too) {
		stops->crowded_due_ms = now_ms + CROWDED_MS;
		pg_params_clear(&ledger->params);
		pg_add_int(&ledger->params, PG_INT8, crowded);
		pg_send(link->pg, QUERY_stops_crowded, &ledger->params);
	}
	pg_end(link->pg);
	pg_flush(link->pg);
}

/* --- raising --- */

static void raised(struct pg_transaction *transaction)
{
	mem_free(transaction);
}

/* If it does not get through, the next replay tries again. */
void stops_raise_mismatch(struct ledger *ledger, const struct ledger_entry *entry)
{
	struct ledger_link *link = ledger_any_link(ledger);
	struct pg_transaction *transaction = NULL;
	struct pg_params *p = &ledger->params;
	char detail[128];

	if (!link)
		return;
	snprintf(detail, sizeof(detail), "the stored response of %s does not fit its hash",
		 entry->request_id);
	transaction = mem_alloc(sizeof(*transaction));
	transaction->done = raised;
	pg_begin(link->pg, transaction);
	pg_params_clear(p);
	pg_add_bytes(p, span_of(entry->idempotency->operation));
	pg_add_bytes(p, entry->account);
	pg_add_bytes(p, span_of(detail));
	pg_add_bytes(p, span_of(ledger->gateway));
	pg_add_int(p, PG_INT8, entry->record_op_id);
	pg_send(link->pg, QUERY_stops_raise_record, p);
	pg_end(link->pg);
}
