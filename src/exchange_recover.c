/*
 * An unknown result has been met: what does the route's recovery contract allow (CONTRACT 7)?
 *
 * At most one thing is tried for a request: a resend as the next generation, a look-up, or, where an
 * execution more is accepted, a new begin. Whatever comes of it is ruled like anything that the
 * ledger finds; if that is unknown again, the client hears so. A request that has waited for
 * another one sends nothing: it comes here only as the first to ask.
 */
#include "exchange_internal.h"

#include "recovery.h"

static void recovered(struct ledger_entry *entry)
{
	struct exchange *x = container_of(entry, struct exchange, entry);

	x->served.reserve_us += entry->took_us;
	exchange_rule(x);
}

static void looked_up(struct ledger_entry *entry)
{
	struct exchange *x = container_of(entry, struct exchange, entry);

	exchange_end_wait(x);
	exchange_rule(x);
}

/* The look-up itself is the back office's; here it is only waited for. */
static void look_up(struct exchange *x)
{
	if (!exchange_begin_wait(x, looked_up))
		exchange_refuse(x, PROBLEM_RESULT_UNKNOWN, NULL);
	else
		ledger_look_up(x->served.services->ledger, &x->entry, x->idempotency->wait);
}

void exchange_recover(struct exchange *x)
{
	const struct ledger_entry *entry = &x->entry;
	const struct recovery_case record = { .generation = entry->generation,
					      .age_ms = entry->age_ms,
					      .tried_ms = entry->tried_ms,
					      .same_raw = entry->same_raw,
					      .stale = entry->stale };
	struct recovery_ruling ruling = recovery_of(&x->idempotency->recovery, &record);
	bool first = !x->recovering;

	x->recovering = true;
	x->again_ms = ruling.again_ms;
	x->entry.done = recovered;
	if (first && ruling.what == RECOVER_RESEND)
		ledger_claim(x->served.services->ledger, &x->entry);
	else if (first && ruling.what == RECOVER_BEGIN_AGAIN)
		ledger_begin_again(x->served.services->ledger, &x->entry);
	else if (first && ruling.what == RECOVER_LOOK_UP)
		look_up(x);
	else
		exchange_refuse(x, PROBLEM_RESULT_UNKNOWN, NULL);
}
