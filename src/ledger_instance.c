/*
 * The instance number: a leased row, so that the op_ids of this thread are its own. It is renewed as
 * long as the thread runs; who cannot renew it for long reserves nothing.
 */
#include "ledger_internal.h"

#include "log.h"

static void send_number(struct ledger *ledger, struct pg *pg, enum query query)
{
	struct pg_params *p = &ledger->params;

	pg_params_clear(p);
	pg_add_int(p, PG_INT4, ledger->instance);
	pg_add_int(p, PG_INT8, ledger->token);
	pg_add_int(p, PG_INT8, ledger->op_ms);
	pg_send(pg, query, p);
}

/* A number of our own, or that the one we have goes on being ours. */
enum asked_instance instance_ask(struct ledger *ledger, struct pg *pg)
{
	struct pg_params *p = &ledger->params;

	if (ledger->instance >= 0) {
		send_number(ledger, pg, QUERY_instance_renew);
		return ASKED_RENEWAL;
	}
	pg_params_clear(p);
	pg_add_int(p, PG_INT8, ledger->token);
	pg_add_bytes(p, span_of(ledger->gateway));
	pg_send(pg, QUERY_instance_claim, p);
	ledger->claiming = true;
	return ASKED_CLAIM;
}

/*
 * The server told the time at some moment between the question and now. A reply that is read late (a
 * stalled connection, a process that was stopped) says little, and what is known already is kept
 * where it agrees with it.
 */
void instance_clock(struct ledger *ledger, int64_t server_us, int64_t asked_us)
{
	int64_t least = server_us - loop_clock_us(), most = server_us - asked_us;
	int64_t was_least = ledger->clock_offset_us;
	int64_t was_most = was_least + ledger->clock_doubt_us;

	if (was_least <= most && was_most >= least) {
		least = was_least > least ? was_least : least;
		most = was_most < most ? was_most : most;
	}
	ledger->clock_offset_us = least;
	ledger->clock_doubt_us = most - least;
}

/* False: the number is not ours, or none was free. */
bool instance_take(struct ledger *ledger, enum asked_instance asked, const struct pg_rows *rows,
		   int64_t asked_us)
{
	if (pg_rows_count(rows) == 0) {
		ledger->instance = -1;
		return false;
	}
	if (asked == ASKED_CLAIM && ledger->instance < 0) {
		ledger->instance = (int32_t)pg_int(rows, 0, 0);
		if (ledger->op_ms <=
		    pg_int(rows, 0, 1)) /* above what others made of the number */
			ledger->op_ms = pg_int(rows, 0, 1) + 1;
		ledger->op_count = 0;
	} else if (asked == ASKED_RENEWAL) {
		instance_clock(ledger, pg_int(rows, 0, 0), asked_us);
	}
	ledger->renewed_ms = asked_us / 1000;
	ledger->renew_at_ms = ledger->renewed_ms + LEDGER_RENEW_MS;
	return true;
}

void instance_missing(struct ledger *ledger, bool claiming)
{
	const char *why =
		claiming ? "no instance number is free: 2048 gateway threads were started "
			   "within the last hour"
			 : "its instance number was given to somebody else";

	log_error(ledger->who, "nothing can be reserved: %s", why);
	ledger->renew_at_ms = loop_now(ledger->loop) + (claiming ? LEDGER_RENEW_MS / 10 : 0);
	atomic_store(&ledger->why, why);
}

static void renewal_done(struct pg_transaction *transaction)
{
	struct ledger *ledger = container_of(transaction, struct ledger, renewal);
	bool claiming = ledger->renewal_asked == ASKED_CLAIM;

	ledger->renewing = false;
	if (claiming)
		ledger->claiming = false;
	ledger->renew_at_ms =
		loop_now(ledger->loop) + LEDGER_RENEW_MS / 10; /* after a failure */
	if (transaction->outcome != PG_COMMITTED)
		return;
	if (!instance_take(ledger, ledger->renewal_asked, transaction->rows[0],
			   ledger->renewal_us))
		instance_missing(ledger, claiming);
	session_publish(ledger);
}

void instance_renew(struct ledger *ledger, int64_t now_ms)
{
	struct ledger_link *link = ledger_any_link(ledger);

	if (!link || ledger->renewing || ledger->claiming || now_ms < ledger->renew_at_ms)
		return;
	ledger->renewing = true;
	ledger->renewal.done = renewal_done;
	ledger->renewal_us = loop_clock_us();
	pg_begin(link->pg, &ledger->renewal);
	ledger->renewal_asked = instance_ask(ledger, link->pg);
	pg_end(link->pg);
	pg_flush(link->pg);
}

static void returned(struct pg_transaction *transaction)
{
	struct ledger *ledger = container_of(transaction, struct ledger, renewal);

	ledger->renewing = false;
}

/* An orderly end. Not worth waiting for long: an unreturned number is free again in an hour. */
void instance_return(struct ledger *ledger)
{
	struct ledger_link *link = ledger_any_link(ledger);
	int64_t until = loop_clock_us() + 500000;

	if (!link || ledger->renewing || ledger->instance < 0)
		return;
	ledger->renewing = true;
	ledger->renewal.done = returned;
	pg_begin(link->pg, &ledger->renewal);
	send_number(ledger, link->pg, QUERY_instance_return);
	pg_end(link->pg);
	pg_flush(link->pg);
	while (ledger->renewing && loop_clock_us() < until)
		loop_wait(ledger->loop, 50);
}
