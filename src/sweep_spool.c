/*
 * Answers that an earlier process left in the spool: read, settled, and removed when that is
 * durable. One a job, so that no round waits for many; the ledger's rules see to it that nothing
 * is settled twice, whoever else tries. What the ledger does not want is set aside for people.
 */
#include "sweep_internal.h"

#include "log.h"
#include "record_slot.h"

#define RETRY_MS 5000

static void show(struct sweep *sweep)
{
	metrics_set(sweep->metrics, METRIC_unsettled_spooled, 0, (int64_t)sweep->spool_left);
}

static void sooner(struct sweep *sweep)
{
	int64_t at = loop_now(sweep->loop) + RETRY_MS;

	if (at < sweep->due.spool)
		sweep->due.spool = at;
}

bool sweep_spool_look(struct sweep *sweep)
{
	if (!sweep->spool)
		return false;
	sweep->spool_left = spool_look(sweep->spool);
	if (sweep->spool_left)
		log_info(SWEEP_WHO,
			 "%zu answers that were left in ledger.spool are settled now",
			 sweep->spool_left);
	show(sweep);
	return sweep->spool_left > 0;
}

static void send(struct sweep *sweep, const struct spool_answer *a)
{
	struct pg_params *p = &sweep->params;

	sweep_begin(sweep, JOB_SPOOL);
	pg_params_clear(p);
	pg_add_int(p, PG_INT8, a->op_id);
	pg_add_int(p, PG_DATE, a->day);
	pg_add_bytes(p, (struct span){ (const char *)a->key_hash, sizeof(a->key_hash) });
	pg_add_if(p, a->account.at, a->account);
	pg_add_if(p, a->operation.at, a->operation);
	pg_add_if(p, a->key.at, a->key);
	pg_add_int(p, PG_INT2, a->generation);
	pg_add_int(p, PG_INT2, a->kind);
	if (a->status)
		pg_add_int(p, PG_INT2, a->status);
	else
		pg_add_null(p);
	pg_add_if(p, a->fields.at, a->fields);
	pg_add_if(p, a->body.at, a->body);
	pg_add_if(p, a->receipt.at, a->receipt);
	pg_add_if(p, a->note.at, a->note);
	pg_add_int(p, PG_INT8, a->retention_ms);
	pg_add_int(p, PG_INT8, a->tombstone_ms);
	pg_add_int(p, PG_INT8, a->writer);
	pg_add_int(p, PG_INT2, a->receipt_unique);
	pg_add_int(p, PG_INT2, a->at_least_once);
	pg_send(sweep->pg, QUERY_spool_conclude, p);
	sweep_end(sweep);
}

static void over(struct sweep *sweep)
{
	if (sweep->spool_left)
		sweep->spool_left--;
	show(sweep);
}

/* True: the file's answer is on its way. */
static bool try(struct sweep *sweep)
{
	struct spool_answer answer;
	struct buf bytes;
	const char *why = NULL;
	enum spool_read read = spool_read(sweep->spool, sweep->spooled, &bytes, &answer, &why);

	switch (read) {
	case SPOOL_READ:
		send(sweep, &answer);
		break;
	case SPOOL_GONE:
		over(sweep);
		break;
	case SPOOL_BAD:
		spool_set_aside(sweep->spool, sweep->spooled, why);
		over(sweep);
		break;
	case SPOOL_LATER:
		log_warning(SWEEP_WHO, "%s of ledger.spool cannot be read: %s", sweep->spooled,
			    why);
		break;
	}
	buf_fini(&bytes);
	return read == SPOOL_READ;
}

bool sweep_spool_next(struct sweep *sweep)
{
	while (sweep->spool && spool_next(sweep->spool, sweep->spooled))
		if (try(sweep))
			return true;
	return false;
}

/* It is in the ledger, durably, as the record's result or beside it. */
static void settled(struct sweep *sweep, enum concluded how)
{
	static const char *const late[] = { [CONCLUDED_COMPLETED_BEFORE] = "had been completed",
					    [CONCLUDED_UNDER_RESEND] = "had been sent again",
					    [CONCLUDED_RELEASED_BEFORE] = "had been released" };

	if (how == CONCLUDED)
		log_info(SWEEP_WHO, "%s of ledger.spool is settled", sweep->spooled);
	else
		log_warning(SWEEP_WHO, "%s of ledger.spool came too late: the record %s",
			    sweep->spooled, late[how]);
	spool_remove(sweep->spool, sweep->spooled);
	over(sweep);
}

void sweep_spool_done(struct sweep *sweep, const struct pg_rows *rows)
{
	enum concluded how = (enum concluded)pg_int(rows, 0, 0);

	if (!pg_int(rows, 0, 1)) {
		log_error(SWEEP_WHO, "the ledger does not commit durably: ledger.spool waits");
		sooner(sweep);
		return;
	}
	switch (how) {
	case CONCLUDED:
	case CONCLUDED_COMPLETED_BEFORE:
	case CONCLUDED_UNDER_RESEND:
	case CONCLUDED_RELEASED_BEFORE:
		settled(sweep, how);
		break;
	case CONCLUDED_IN_FLIGHT:
		sooner(sweep);
		break;
	case CONCLUDED_NO_RECORD:
		spool_set_aside(sweep->spool, sweep->spooled, "the ledger has no such record");
		over(sweep);
		break;
	}
}

/* Values that PostgreSQL does not take will not be taken later either. */
void sweep_spool_failed(struct sweep *sweep)
{
	sooner(sweep);
	if (strncmp(sweep->transaction.sqlstate, "22", 2) != 0)
		return;
	spool_set_aside(sweep->spool, sweep->spooled, sweep->transaction.message);
	over(sweep);
}
