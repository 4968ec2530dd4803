/*
 * What goes over a connection and comes back: statements, results, the ends of transactions.
 *
 * A transaction is its statements and one Sync. Results come in the order of the statements,
 * then the Sync's; only that says that the commit is done (trap 3). An error aborts what comes
 * up to the next Sync, and no more. What a transaction will end as stands in its `outcome` from
 * the beginning and is made worse by what comes: an error with a SQLSTATE rolls it back; a
 * warning about the commit, or an error of libpq's own, leaves it open. On a connection that
 * breaks all are lost, whatever had come before.
 */
#include "pg_internal.h"

#include "log.h"

#include <assert.h>
#include <stdio.h>

static const char *const names[] = {
#define QUERY(name, text) #name,
#include PG_QUERIES
#undef QUERY
};

static const char *const texts[] = {
#define QUERY(name, text) text,
#include PG_QUERIES
#undef QUERY
};

const char *pg_query_text(enum query query)
{
	return texts[query];
}

static struct pg_transaction *oldest(const struct pg *pg)
{
	if (list_empty(&pg->sent))
		return NULL;
	return container_of(pg->sent.next, struct pg_transaction, link);
}

void pg_begin(struct pg *pg, struct pg_transaction *transaction)
{
	assert(!pg->open && (pg->state == PG_UP || pg->state == PG_BROKEN));
	list_init(&transaction->link);
	transaction->outcome = PG_COMMITTED;
	transaction->sqlstate[0] = '\0';
	transaction->message[0] = '\0';
	memset((void *)transaction->rows, 0, sizeof(transaction->rows));
	transaction->steps = 0;
	transaction->step = 0;
	pg->open = transaction;
}

static bool send_values(struct pg *pg, enum query query, const struct pg_params *params)
{
	static const int binary[PG_PARAMS_MAX] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
						   1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 };
	const char *values[PG_PARAMS_MAX];
	int lengths[PG_PARAMS_MAX], n = params ? (int)params->n : 0;

	assert(!params || (!params->left && !params->bytes.full));
	for (int i = 0; i < n; i++) {
		lengths[i] = params->param[i].len;
		/* An empty value may stand where no byte was ever kept. */
		values[i] = lengths[i] < 0    ? NULL
			    : lengths[i] == 0 ? ""
					      : params->bytes.at + params->param[i].at;
		if (lengths[i] < 0)
			lengths[i] = 0;
	}
	if (pg->options.prepared)
		return PQsendQueryPrepared(pg->conn, names[query], n, values, lengths, binary,
					   1) == 1;
	return PQsendQueryParams(pg->conn, texts[query], n, NULL, values, lengths, binary, 1) ==
	       1;
}

void pg_send(struct pg *pg, enum query query, const struct pg_params *params)
{
	assert(pg->open && pg->open->steps < PG_STEPS_MAX && query < QUERY_COUNT);
	pg->open->steps++;
	if (pg->state == PG_UP && !send_values(pg, query, params))
		pg_fail(pg, PQerrorMessage(pg->conn));
}

void pg_send_text(struct pg *pg, const char *sql)
{
	assert(pg->open && pg->open->steps < PG_STEPS_MAX);
	pg->open->steps++;
	if (pg->state == PG_UP &&
	    PQsendQueryParams(pg->conn, sql, 0, NULL, NULL, NULL, NULL, 1) != 1)
		pg_fail(pg, PQerrorMessage(pg->conn));
}

void pg_end(struct pg *pg)
{
	assert(pg->open && pg->open->steps > 0);
	list_append(&pg->sent, &pg->open->link);
	pg->open = NULL;
	if (pg->state == PG_UP && PQpipelineSync(pg->conn) != 1)
		pg_fail(pg, PQerrorMessage(pg->conn));
}

void pg_prepare(struct pg *pg)
{
	bool sent = true;

	pg->state = PG_PREPARING;
	pg->prepared = 0;
	for (unsigned i = 0; sent && i < QUERY_COUNT; i++)
		sent = PQsendPrepare(pg->conn, names[i], texts[i], 0, NULL) == 1;
	if (!sent || PQpipelineSync(pg->conn) != 1)
		pg_fail(pg, PQerrorMessage(pg->conn));
}

/* A result while preparing: the statements in order, then the Sync. */
static void prepared(struct pg *pg, PGresult *result)
{
	ExecStatusType status = PQresultStatus(result);
	char line[256], why[256];

	if (status == PGRES_PIPELINE_SYNC) {
		pg_is_up(pg);
	} else if (status == PGRES_COMMAND_OK) {
		pg->prepared++;
	} else {
		pg_first_line(line, PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY));
		snprintf(why, sizeof(why), "the statement %s cannot be prepared: %.190s",
			 pg->prepared < QUERY_COUNT ? names[pg->prepared] : "(none)", line);
		pg_fail(pg, why);
	}
	PQclear(result);
}

static void worsen(struct pg_transaction *t, enum pg_outcome outcome, const PGresult *reason)
{
	const char *sqlstate = PQresultErrorField(reason, PG_DIAG_SQLSTATE);
	const char *message = PQresultErrorField(reason, PG_DIAG_MESSAGE_PRIMARY);

	if (t->outcome != PG_COMMITTED)
		return;
	t->outcome = outcome;
	snprintf(t->sqlstate, sizeof(t->sqlstate), "%s", sqlstate ? sqlstate : "");
	pg_first_line(t->message, message ? message : PQresultErrorMessage(reason));
}

/* The server's last words are a better reason than the end of the file behind them. */
static bool last_words(struct pg *pg, const PGresult *result)
{
	const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);

	if (!severity || (strcmp(severity, "FATAL") != 0 && strcmp(severity, "PANIC") != 0))
		return false;
	if (!pg->why[0])
		pg_first_line(pg->why, PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY));
	return true;
}

void pg_noticed(void *arg, const PGresult *notice)
{
	struct pg *pg = arg;
	struct pg_transaction *t = oldest(pg);
	const char *severity = PQresultErrorField(notice, PG_DIAG_SEVERITY_NONLOCALIZED);
	const char *message = PQresultErrorField(notice, PG_DIAG_MESSAGE_PRIMARY);

	if (last_words(pg, notice) || !severity || !message || strcmp(severity, "WARNING") != 0)
		return;
	log_warning(pg->who, "PostgreSQL warns: %s", message);
	if (t && t->step + 1 >= t->steps && pg_doubts_commit(notice))
		worsen(t, PG_LOST, notice);
}

static void drop_rows(struct pg_rows *rows[PG_STEPS_MAX])
{
	for (unsigned i = 0; i < PG_STEPS_MAX; i++) {
		pg_rows_free(rows[i]);
		rows[i] = NULL;
	}
}

/* The owner may use the transaction anew from within `done`: its rows are kept beside it. */
static void finish(struct pg_transaction *t)
{
	struct pg_rows *rows[PG_STEPS_MAX];

	list_remove(&t->link);
	if (t->outcome != PG_COMMITTED)
		drop_rows(t->rows);
	memcpy((void *)rows, (const void *)t->rows, sizeof(rows));
	t->done(t);
	drop_rows(rows);
}

void pg_lose(struct pg *pg)
{
	struct list lost;
	struct list *link = NULL;

	list_init(&lost);
	list_move(&lost, &pg->sent);
	while ((link = list_shift(&lost))) {
		struct pg_transaction *t = container_of(link, struct pg_transaction, link);

		if (t->outcome != PG_FAILED)
			snprintf(t->message, sizeof(t->message), "%s", pg->why);
		t->outcome = PG_LOST;
		finish(t);
	}
}

/* A result of the oldest transaction. */
static void took(struct pg *pg, PGresult *result)
{
	struct pg_transaction *t = oldest(pg);
	ExecStatusType status = PQresultStatus(result);

	if (t && (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK)) {
		assert(t->step < t->steps);
		t->rows[t->step++] = (struct pg_rows *)(void *)result;
		return;
	}
	if (t && status == PGRES_PIPELINE_SYNC) {
		finish(t);
	} else if (t && status == PGRES_PIPELINE_ABORTED) {
		t->step++;
	} else if (t) {
		/* The commit itself may fail too, behind the last step. */
		(void)last_words(pg, result);
		worsen(t, PQresultErrorField(result, PG_DIAG_SQLSTATE) ? PG_FAILED : PG_LOST,
		       result);
		t->step++;
	}
	PQclear(result);
}

/* libpq gives a NULL between two statements, and two in a row where it has nothing left. */
void pg_read(struct pg *pg)
{
	unsigned nothing = 0;

	pg->reading = true;
	while (nothing < 2 && (pg->state == PG_UP || pg->state == PG_PREPARING) &&
	       !PQisBusy(pg->conn)) {
		PGresult *result = PQgetResult(pg->conn);

		nothing = result ? 0 : nothing + 1;
		if (result && pg->state == PG_PREPARING)
			prepared(pg, result);
		else if (result)
			took(pg, result);
	}
	pg->reading = false;
}
