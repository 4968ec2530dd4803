/*
 * The keys of digests, as the ledger sees them. A gateway writes down under which key it makes
 * digests, and looks which others there may be records under: where it lacks one of them, it
 * cannot tell whether a request is what the record is about, and is not ready (CONTRACT 4).
 *
 * Asked when a connection is made and when settings are new, together with what else is asked
 * then, and once a minute: others may have taken up a key that was never given to us. A record
 * under a key that is in no list says so by itself, when it is met. Of records that wait for
 * somebody, which may stand for longer than they were to, the oldest are looked at themselves.
 */
#include "ledger_internal.h"

#include "log.h"

#define DAY_MS   INT64_C(86400000)
#define EVERY_MS 60000

/* How long records that are made now may stay, and two days: see session_digest_key_add.sql. */
static int64_t days_kept(const struct settings *settings)
{
	int64_t longest = 0;

	for (size_t i = 0; i < settings->n_routes; i++) {
		const struct idempotency_settings *it = settings->routes[i].idempotency;

		if (it && it->tombstone > longest)
			longest = it->tombstone;
	}
	return (longest + DAY_MS - 1) / DAY_MS + 2;
}

void keys_ask(struct ledger *ledger, struct pg *pg)
{
	const struct digest_key *making = digest_keys_making(&ledger->settings->digest_keys);
	struct pg_params *p = &ledger->params;

	pg_params_clear(p);
	pg_array(p, PG_INT4, making ? 1 : 0);
	if (making)
		pg_add_int(p, PG_INT4, making->id);
	pg_add_int(p, PG_INT4, days_kept(ledger->settings));
	pg_send(pg, QUERY_session_digest_key_add, p);
	pg_params_clear(p);
	pg_send(pg, QUERY_session_digest_key_read, p);
}

/* 0: none is. */
static void missing(struct ledger *ledger, int32_t id)
{
	if (id > 0 && atomic_load(&ledger->missing_key) != id)
		log_error(ledger->who,
			  "there are records under digest key %d, which ledger.digest_keys "
			  "does not hold: requests for them are refused until it does",
			  (int)id);
	atomic_store(&ledger->missing_key, id);
}

void keys_take(struct ledger *ledger, const struct pg_rows *rows)
{
	int32_t lacked = 0;

	for (size_t row = 0; row < pg_rows_count(rows) && !lacked; row++) {
		int32_t id = (int32_t)pg_int(rows, row, 0);

		if (!digest_keys_verify(&ledger->settings->digest_keys, id))
			lacked = id;
	}
	missing(ledger, lacked);
	ledger->keys_at_ms = loop_now(ledger->loop) + EVERY_MS;
}

static void looked(struct pg_transaction *transaction)
{
	struct ledger *ledger = container_of(transaction, struct ledger, keys_look);

	ledger->keys_looking = false;
	ledger->keys_at_ms =
		loop_now(ledger->loop) + LEDGER_RENEW_MS / 10; /* after a failure */
	if (transaction->outcome == PG_COMMITTED)
		keys_take(ledger, transaction->rows[1]);
}

void keys_look(struct ledger *ledger, int64_t now_ms)
{
	struct ledger_link *link = ledger_any_link(ledger);

	if (!link || ledger->keys_looking || now_ms < ledger->keys_at_ms)
		return;
	ledger->keys_looking = true;
	ledger->keys_look.done = looked;
	pg_begin(link->pg, &ledger->keys_look);
	keys_ask(ledger, link->pg);
	pg_end(link->pg);
	pg_flush(link->pg);
}

/* A record under a key that its exchange lacks; one that began before a reload may lack what is
 * there by now. Which of several it is that is missing does not matter: the first is named. */
static void met(struct ledger *ledger, int32_t id)
{
	if (atomic_load(&ledger->missing_key) <= 0 &&
	    !digest_keys_verify(&ledger->settings->digest_keys, id))
		missing(ledger, id);
}

/* This request's digests under the record's key. */
static bool digest_under(struct ledger_entry *entry, int32_t key_id, struct digest *out)
{
	*out = entry->digest;
	return key_id == entry->digest.key_id ||
	       (entry->digest_under && entry->digest_under(entry, key_id, out));
}

bool keys_compare(struct ledger *ledger, struct ledger_entry *entry,
		  const struct record_digest *record)
{
	struct digest digest;
	struct span canonical = { (const char *)digest.canonical, DIGEST_BYTES };
	struct span raw = { (const char *)digest.raw, DIGEST_RAW_BYTES };

	if (!digest_under(entry, record->key_id, &digest)) {
		met(ledger, record->key_id);
		return false;
	}
	entry->same_raw = span_equal(record->raw, raw);
	if (record->rules_id == entry->idempotency->rules.id)
		entry->same = span_equal(record->canonical, canonical) ? LEDGER_SAME
								       : LEDGER_DIFFERENT;
	else
		entry->same = entry->same_raw ? LEDGER_SAME : LEDGER_RULES_CHANGED;
	return true;
}
