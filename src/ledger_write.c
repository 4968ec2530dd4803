/*
 * The combined batch: settles and reservations under one Sync and one commit. It is collected
 * while the one before it commits, so it grows with the load and a lone request does not wait.
 *
 * What a failure means:
 *   lost connection, 40P01, 40001    the same rows again, under the same op_ids
 *   class 22 or 23, 55P03, 57014     one row may be the cause: halves, settles first and alone; a row
 *                                    that fails by itself is given up, alone
 *   anything else                    reservations are not available; settles again a little later
 */
#include "ledger_internal.h"

#include "log.h"

#include <assert.h>

static size_t weight(const struct ledger_entry *entry)
{
	return 300 + entry->account.len + entry->key.len +
	       (entry->state == ENTRY_TO_SETTLE ? entry->fields.len + entry->result.body.len
						: 0);
}

struct room {
	size_t rows, bytes;
};

static bool fits(struct ledger *ledger, struct room *room, struct list *queue)
{
	size_t more = list_empty(queue) ? 0 : weight(entry_of(queue->next));

	if (more == 0 || room->rows == ledger->limit ||
	    (room->rows && room->bytes + more > LEDGER_BATCH_BYTES))
		return false;
	room->rows++;
	room->bytes += more;
	return true;
}

static void take_settles(struct ledger *ledger, struct batch *batch, struct room *room)
{
	while (fits(ledger, room, &ledger->to_settle)) {
		struct ledger_entry *entry = entry_of(list_shift(&ledger->to_settle));

		entry->state = ENTRY_SETTLING;
		if (entry->outcome == LEDGER_RELEASE) {
			list_append(&batch->releases, &entry->link);
			batch->n_releases++;
		} else {
			list_append(&batch->completions, &entry->link);
			batch->n_completions++;
		}
	}
}

/* Nothing may be forwarded for it; what stands under its key is told all the same. */
static void look_only(struct ledger *ledger, struct ledger_entry *entry)
{
	entry->stopped = true;
	row_key_hash(ledger, entry);
	entry_queue(ledger, entry, &ledger->to_read_key, ENTRY_TO_READ_KEY);
}

static bool may_reserve(const struct ledger *ledger)
{
	return ledger_ready(ledger) && stops_known(ledger);
}

static void take_reserves(struct ledger *ledger, struct batch *batch, struct room *room)
{
	while (fits(ledger, room, &ledger->to_reserve)) {
		struct ledger_entry *entry = entry_of(list_shift(&ledger->to_reserve));
		enum ledger_found refused = LEDGER_STOPPED;
		const char *why = operation_refused(ledger, entry->idempotency, &refused);

		if (why && !entry->doubt) {
			room->rows--;
			entry_found(ledger, entry, refused, why);
			continue;
		}
		if (!entry->doubt && stops_refuse(ledger, entry, &refused)) {
			room->rows--;
			look_only(ledger, entry);
			continue;
		}
		if (!entry->op_id) {
			entry->op_id = op_id_make(ledger);
			row_key_hash(ledger, entry);
		}
		if (!entry->sent_ms)
			entry->sent_ms = loop_now(ledger->loop);
		entry->state = ENTRY_RESERVING;
		list_append(&batch->reserves, &entry->link);
		batch->n_reserves++;
	}
}

/* --- what came of it --- */

/* Where the rows of a batch that failed go, and what is known of them. */
struct return_as {
	bool first;   /* before all others: the same rows again, or a half of them */
	bool doubt;   /* they may have been committed */
	bool suspect; /* one of them may be the cause */
};

static void requeue(struct list *list, struct list *queue, enum entry_state state,
		    struct return_as as)
{
	struct list others;
	struct list *at = NULL;

	list_init(&others);
	if (as.first)
		list_move(&others, queue);
	while ((at = list_shift(list)) != NULL) {
		struct ledger_entry *entry = entry_of(at);

		entry->doubt |= as.doubt;
		entry->suspect = as.suspect;
		entry->state = state;
		list_append(queue, at);
	}
	list_move(queue, &others);
}

static void requeue_all(struct ledger *ledger, struct batch *batch, struct return_as as)
{
	requeue(&batch->completions, &ledger->to_settle, ENTRY_TO_SETTLE, as);
	requeue(&batch->releases, &ledger->to_settle, ENTRY_TO_SETTLE, as);
	requeue(&batch->reserves, &ledger->to_reserve, ENTRY_TO_RESERVE, as);
}

/* The entry of that op_id, looked for from `at` on, around the list: rows come in nearly its order. */
static struct list *find(struct list *list, struct list *at, int64_t op_id)
{
	struct list *start = at;

	while (at == list || entry_of(at)->op_id != op_id) {
		at = at->next;
		assert(at != start); /* an id comes back that was never sent */
	}
	return at;
}

/* Takes the entries whose op_id came back out of `from`, in the rows' order. */
static void take_returned(struct pg_rows *rows, struct list *from, struct list *to)
{
	size_t n = pg_rows_count(rows);
	struct list *at = from->next;

	for (size_t row = 0; row < n; row++) {
		struct list *found = find(from, at, pg_int(rows, row, 0));

		at = found->next;
		list_remove(found);
		list_append(to, found);
	}
}

static void won_but_not_durable(struct ledger *ledger, struct ledger_entry *entry)
{
	atomic_store(&ledger->durable, false);
	log_error(ledger->who,
		  "synchronous_commit is off or local for this role or database: a "
		  "reservation could be lost, so nothing is forwarded");
	if (!entry->answered) {
		entry->found = LEDGER_UNAVAILABLE;
		entry->why = "the ledger does not commit durably";
		entry_answer(ledger, entry);
	}
	entry_won(ledger, entry); /* which releases it */
}

static void reserves_ended(struct ledger *ledger, struct batch *batch)
{
	struct pg_rows *rows = batch->transaction.rows[batch->reserve_step];
	struct list won;
	struct list *at = NULL;
	size_t row = 0;

	if (pg_rows_count(rows) && !pg_int(rows, 0, 3))
		session_not_durable(batch->link);
	list_init(&won);
	take_returned(rows, &batch->reserves, &won); /* in the rows' order */
	while ((at = list_shift(&batch->reserves)) != NULL)
		entry_queue(ledger, entry_of(at), &ledger->to_read_key, ENTRY_TO_READ_KEY);
	for (; (at = list_shift(&won)) != NULL; row++) {
		struct ledger_entry *entry = entry_of(at);

		entry->day = (int32_t)pg_int(rows, row, 1);
		entry->expires_at = pg_int(rows, row, 2);
		if (pg_int(rows, row, 3))
			entry_won(ledger, entry);
		else
			won_but_not_durable(ledger, entry);
	}
}

/* What is written and not durable is written again, on a connection that is: that will find the
 * slot taken, look who took it, and believe that only behind a commit that is durable. */
static void settle_again(struct ledger *ledger, struct list *settled)
{
	struct list *at = NULL;

	while ((at = list_shift(settled)) != NULL)
		entry_queue(ledger, entry_of(at), &ledger->to_settle, ENTRY_TO_SETTLE);
}

static void settles_ended(struct ledger_link *link, struct pg_rows *rows, struct list *list)
{
	struct ledger *ledger = link->ledger;
	struct list settled;
	struct list *at = NULL;

	list_init(&settled);
	take_returned(rows, list, &settled);
	while ((at = list_shift(list)) != NULL)
		entry_queue(ledger, entry_of(at), &ledger->to_check, ENTRY_TO_CHECK);
	if (pg_rows_count(rows) && !pg_int(rows, 0, 1)) {
		session_not_durable(link);
		settle_again(ledger, &settled);
	}
	while ((at = list_shift(&settled)) != NULL)
		entry_settled(ledger, entry_of(at), LEDGER_SETTLED);
}

static bool suspect_first(const struct list *queue)
{
	return !list_empty(queue) && entry_of(queue->next)->suspect;
}

/* Batches grow again when what has failed together has gone, whichever row of it was the cause: else
 * under load it would always meet others, and fail with them. */
static void grow(struct ledger *ledger)
{
	size_t full = (size_t)ledger->settings->ledger.batch_max;

	if (suspect_first(&ledger->to_settle) || suspect_first(&ledger->to_reserve))
		return;
	ledger->limit = ledger->limit * 2 < full ? ledger->limit * 2 : full;
	if (ledger->limit == full)
		ledger->settles_alone = false;
}

static void committed(struct ledger *ledger, struct batch *batch)
{
	grow(ledger);
	ledger_write(ledger); /* before the results are worked on: the server need not wait */
	pg_flush(batch->link->pg);
	if (batch->settle_step >= 0)
		settles_ended(batch->link, batch->transaction.rows[batch->settle_step],
			      &batch->completions);
	if (batch->release_step >= 0)
		settles_ended(batch->link, batch->transaction.rows[batch->release_step],
			      &batch->releases);
	if (batch->reserve_step >= 0)
		reserves_ended(ledger, batch);
}

static void refuse_reserves(struct ledger *ledger, struct batch *batch, const char *why)
{
	struct list *at = NULL;

	while ((at = list_shift(&batch->reserves)) != NULL) {
		struct ledger_entry *entry = entry_of(at);

		if (entry->doubt) { /* an earlier try may stand there: go on until that is known */
			entry_queue(ledger, entry, &ledger->to_read_key, ENTRY_TO_READ_KEY);
		} else {
			entry_found(ledger, entry, LEDGER_UNAVAILABLE, why);
		}
	}
}

static bool is(const struct batch *batch, const char *sqlstate)
{
	return strcmp(batch->transaction.sqlstate, sqlstate) == 0;
}

static bool is_class(const struct batch *batch, const char *class)
{
	return strncmp(batch->transaction.sqlstate, class, 2) == 0;
}

/* One row, by itself, and PostgreSQL does not take it. An end whose day has gone in the meantime
 * finds its place among the later slots; any other is refused there as well. */
static void give_up_row(struct ledger *ledger, struct batch *batch)
{
	struct list *at = NULL;

	refuse_reserves(ledger, batch, "the ledger does not take this record");
	list_move(&batch->completions, &batch->releases);
	while ((at = list_shift(&batch->completions)) != NULL)
		entry_queue(ledger, entry_of(at), &ledger->to_late, ENTRY_TO_CONCLUDE);
}

static void failed(struct ledger *ledger, struct batch *batch)
{
	size_t n = batch->n_reserves + batch->n_completions + batch->n_releases;
	bool timed_out = is(batch, "55P03") || is(batch, "57014");
	bool data = is_class(batch, "22") || is_class(batch, "23");

	if (is(batch, "40P01") || is(batch, "40001")) {
		requeue_all(ledger, batch, (struct return_as){ .first = true });
		return;
	}
	log_error(ledger->who, "a batch of %zu rows failed: %s (SQLSTATE %s)", n,
		  batch->transaction.message, batch->transaction.sqlstate);
	if ((timed_out || data) && n > 1) {
		ledger->limit = n / 2;
		ledger->settles_alone = true;
		requeue_all(ledger, batch,
			    (struct return_as){ .first = true, .suspect = true });
		return;
	}
	if (data) {
		give_up_row(ledger, batch);
		return;
	}
	ledger->retry_at_ms = loop_now(ledger->loop) + LEDGER_RETRY_MS;
	refuse_reserves(ledger, batch, timed_out ? "it is too slow" : "it refuses to write");
	requeue_all(ledger, batch, (struct return_as){ 0 });
	if (is(batch, "25006"))
		pg_drop(batch->link->pg, "the server is read-only");
	else if (is_class(batch, "26") || is_class(batch, "42") || is_class(batch, "0A"))
		pg_drop(batch->link->pg, "the server does not know our statements any more");
}

static void batch_done(struct pg_transaction *transaction)
{
	struct batch *batch = container_of(transaction, struct batch, transaction);
	struct ledger *ledger = batch->link->ledger;

	batch->link->batch = NULL;
	switch (transaction->outcome) {
	case PG_COMMITTED:
		committed(ledger, batch);
		break;
	case PG_FAILED:
		failed(ledger, batch);
		break;
	case PG_LOST:
		requeue_all(ledger, batch, (struct return_as){ .first = true, .doubt = true });
		break;
	}
	mem_free(batch);
}

static struct batch *batch_new(struct ledger_link *link)
{
	struct batch *batch = mem_alloc(sizeof(*batch));

	batch->link = link;
	list_init(&batch->reserves);
	list_init(&batch->completions);
	list_init(&batch->releases);
	batch->reserve_step = batch->settle_step = batch->release_step = -1;
	batch->transaction.done = batch_done;
	return batch;
}

static void send(struct ledger *ledger, struct batch *batch)
{
	struct ledger_link *link = batch->link;

	link->batch = batch;
	metrics_observe_count(ledger->metrics, METRIC_ledger_batch_rows, 0,
			      batch->n_reserves + batch->n_completions + batch->n_releases);
	pg_begin(link->pg, &batch->transaction);
	batch_send(ledger, batch);
	pg_end(link->pg);
}

void ledger_write(struct ledger *ledger)
{
	if (loop_now(ledger->loop) < ledger->retry_at_ms)
		return;
	for (size_t i = 0; i < ledger->n_links; i++) {
		struct ledger_link *link = &ledger->links[i];
		struct room room = { 0 };
		struct batch *batch = NULL;

		if (link->batch || !link->checked || !pg_up(link->pg))
			continue;
		if (list_empty(&ledger->to_settle) &&
		    (list_empty(&ledger->to_reserve) || !may_reserve(ledger)))
			return;
		batch = batch_new(link);
		take_settles(ledger, batch, &room);
		if (may_reserve(ledger) && !(ledger->settles_alone && room.rows))
			take_reserves(ledger, batch, &room);
		if (room.rows)
			send(ledger, batch);
		else
			mem_free(batch);
	}
}
