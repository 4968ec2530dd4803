/*
 * Has the ledger forgotten what it had confirmed? A failover to a standby that lagged, a restore of
 * an old backup or an old primary that comes back does that, and keys that were used look free. So
 * a worker remembers the last reservations it won and the last ends it was told were written, and,
 * on each new connection, before it reserves anything, looks whether they are still there, and
 * whether the server is of the same cluster (CONTRACT 6). If not, everything is stopped, durably and
 * for all gateways, until a person has looked.
 *
 * Another timeline alone is a failover that lost nothing, for all that can be seen: it is logged.
 * A pooler hides that its server has changed, so the same is looked at now and then.
 */
#include "ledger_internal.h"

#include "log.h"

#include <stdio.h>

#define LOOK_MS 10000
#define LOST    "records that it had confirmed are missing"

static struct acknowledged *find(struct history *history, int64_t op_id)
{
	for (size_t i = 0; i < history->n; i++)
		if (history->last[i].op_id == op_id)
			return &history->last[i];
	return NULL;
}

static struct acknowledged *find_or_add(struct history *history,
					const struct ledger_entry *entry)
{
	struct acknowledged *one = find(history, entry->op_id);

	if (one)
		return one;
	one = &history->last[history->at];
	history->at = (history->at + 1) % LEDGER_HISTORY;
	if (history->n < LEDGER_HISTORY)
		history->n++;
	*one = (struct acknowledged){ .op_id = entry->op_id, .day = entry->day };
	memcpy(one->key_hash, entry->key_hash, sizeof(one->key_hash));
	return one;
}

void history_won(struct ledger *ledger, const struct ledger_entry *entry)
{
	find_or_add(&ledger->history, entry);
}

void history_ended(struct ledger *ledger, const struct ledger_entry *entry)
{
	find_or_add(&ledger->history, entry)->ended = true;
}

/* --- asking --- */

static void where_done(struct pg_transaction *transaction)
{
	struct history_check *check = container_of(transaction, struct history_check, where);
	struct ledger *ledger = check->link->ledger;

	check->where_known = transaction->outcome == PG_COMMITTED;
	if (check->where_known) {
		check->system = pg_int(transaction->rows[0], 0, 0);
		check->timeline = (int32_t)pg_int(transaction->rows[0], 0, 1);
	} else if (strcmp(transaction->sqlstate, "42501") == 0 && !ledger->history.not_told) {
		ledger->history.not_told = true;
		log_warning(ledger->who,
			    "the server does not tell which cluster and timeline it is (%s): "
			    "only records tell whether its history was lost",
			    transaction->message);
	}
}

static void missing(struct history_check *check, const struct pg_rows *rows)
{
	struct ledger *ledger = check->link->ledger;
	size_t n = pg_rows_count(rows);
	char id[LEDGER_REQUEST_ID_BYTES] = "";

	check->kept = n == 0;
	if (!n)
		return;
	row_request_id(ledger, pg_int(rows, 0, 0), (int32_t)pg_int(rows, 0, 1), id);
	snprintf(check->detail, sizeof(check->detail),
		 "%zu of the last %zu confirmed records are missing, the first is %s (%s)", n,
		 ledger->history.n, id, pg_int(rows, 0, 2) ? "its reservation" : "its end");
}

static void drop_all(struct ledger *ledger, const char *why)
{
	for (size_t i = 0; i < ledger->n_links; i++)
		if (ledger->links[i].checked)
			pg_drop(ledger->links[i].pg, why);
}

static void accept(struct history_check *check);

/* What is lost is raised by the session of a new connection. */
static void looked(struct history_check *check)
{
	struct ledger *ledger = check->link->ledger;

	if (history_lost(check))
		drop_all(ledger, LOST);
	else if (check->kept)
		accept(check);
}

static void read_done(struct pg_transaction *transaction)
{
	struct history_check *check = container_of(transaction, struct history_check, read);

	if (transaction->outcome == PG_COMMITTED)
		missing(check, transaction->rows[0]);
	if (check->by_itself)
		looked(check);
	check->by_itself = check->asked = false;
}

static void send_read(struct ledger *ledger, struct pg *pg)
{
	const struct history *history = &ledger->history;
	struct pg_params *p = &ledger->params;

	pg_params_clear(p);
	pg_array(p, PG_INT8, history->n);
	for (size_t i = 0; i < history->n; i++)
		pg_add_int(p, PG_INT8, history->last[i].op_id);
	pg_array(p, PG_DATE, history->n);
	for (size_t i = 0; i < history->n; i++)
		pg_add_int(p, PG_DATE, history->last[i].day);
	pg_array(p, PG_UUID, history->n);
	for (size_t i = 0; i < history->n; i++)
		pg_add_bytes(p, (struct span){ (const char *)history->last[i].key_hash, 16 });
	pg_array(p, PG_INT2, history->n);
	for (size_t i = 0; i < history->n; i++)
		pg_add_int(p, PG_INT2, history->last[i].ended);
	pg_send(pg, QUERY_history_read, p);
}

/* Two transactions, whose results come before those of whatever is sent next. */
void history_ask(struct ledger_link *link)
{
	struct history_check *check = &link->history;

	*check = (struct history_check){ .link = link, .asked = true };
	check->where.done = where_done;
	check->read.done = read_done;
	pg_begin(link->pg, &check->where);
	pg_send(link->pg, QUERY_history_where, NULL);
	pg_end(link->pg);
	pg_begin(link->pg, &check->read);
	send_read(link->ledger, link->pg);
	pg_end(link->pg);
}

/* --- what came of it --- */

bool history_lost(struct history_check *check)
{
	const struct history *history = &check->link->ledger->history;

	if (!check->detail[0] && history->known && check->where_known &&
	    history->system != check->system)
		snprintf(check->detail, sizeof(check->detail),
			 "the server is of another cluster than before");
	return check->detail[0] != 0;
}

/* This is the history that goes on. */
static void accept(struct history_check *check)
{
	struct ledger *ledger = check->link->ledger;
	struct history *history = &ledger->history;

	history->look_at_ms = loop_now(ledger->loop) + LOOK_MS;
	history->lost = false;
	if (!check->where_known)
		return;
	if (history->known && history->timeline != check->timeline)
		log_warning(ledger->who,
			    "the server is on timeline %d now, and was on %d: what it had "
			    "confirmed last is there",
			    (int)check->timeline, (int)history->timeline);
	history->system = check->system;
	history->timeline = check->timeline;
	history->known = true;
}

/* It is written that everything is stopped: now the session may begin. */
static void raised(struct pg_transaction *transaction)
{
	struct history_check *check = container_of(transaction, struct history_check, raise);
	struct ledger_link *link = check->link;
	struct history *history = NULL;

	if (transaction->outcome == PG_LOST)
		return; /* the next connection finds the same */
	if (transaction->outcome == PG_FAILED) {
		log_error(link->ledger->who, "everything could not be stopped: %s",
			  transaction->message);
		pg_drop(link->pg, "its history was lost");
		return;
	}
	history = &link->ledger->history;
	history->n = history->at = 0;
	history->known = history->lost = false;
	stops_all(link->ledger); /* that one is known before anything is reserved */
	session_begin(link);
}

static void raise_stop(struct history_check *check)
{
	struct ledger_link *link = check->link;
	struct pg_params *p = &link->ledger->params;

	log_error(link->ledger->who,
		  "history was lost: %s. Everything is stopped until `onceward operations "
		  "resume`: keys that were used may look free",
		  check->detail);
	link->ledger->history.lost = true; /* other connections reserve nothing either */
	atomic_store(&link->ledger->why, LOST);
	session_publish(link->ledger);
	check->raise.done = raised;
	pg_begin(link->pg, &check->raise);
	pg_params_clear(p);
	pg_add_bytes(p, span_of(check->detail));
	pg_add_bytes(p, span_of(link->ledger->gateway));
	pg_send(link->pg, QUERY_history_raise, p);
	pg_end(link->pg);
	pg_flush(link->pg);
}

bool history_holds(struct ledger_link *link)
{
	struct history_check *check = &link->history;

	if (history_lost(check)) {
		raise_stop(check);
		return false;
	}
	if (!check->kept) {
		pg_drop(link->pg, "what it had confirmed can't be read");
		return false;
	}
	accept(check);
	return true;
}

void history_look(struct ledger *ledger, int64_t now_ms)
{
	struct ledger_link *link = ledger_any_link(ledger);

	if (!link || link->history.asked || now_ms < ledger->history.look_at_ms)
		return;
	ledger->history.look_at_ms = now_ms + LOOK_MS;
	history_ask(link);
	link->history.by_itself = true;
	pg_flush(link->pg);
}
