/*
 * What must hold before this worker may reserve: a ledger of a schema that we know, that commits
 * durably and is no standby; an instance number under lease, so that our op_ids are ours alone;
 * and operations that are the same as the ledger knows them (CONTRACT 9, identity_changed).
 *
 * Asked once a connection, in one transaction. Behind a pooler the server session may be another
 * one next time: what must hold for each batch (durability) is asked again with each batch.
 */
#include "ledger_internal.h"

#include "log.h"
#include "schema.h"

#include <assert.h>
#include <stdlib.h>

static bool link_usable(const struct ledger_link *link)
{
	return link->checked && pg_up(link->pg);
}

struct ledger_link *ledger_any_link(struct ledger *ledger)
{
	for (size_t i = 0; i < ledger->n_links; i++)
		if (link_usable(&ledger->links[i]))
			return &ledger->links[i];
	return NULL;
}

static bool lease_held(const struct ledger *ledger)
{
	return ledger->instance >= 0 &&
	       loop_now(ledger->loop) - ledger->renewed_ms < LEDGER_RENEW_LIMIT_MS;
}

bool ledger_ready(const struct ledger *ledger)
{
	if (!ledger->has_secrets || !atomic_load(&ledger->durable) || !lease_held(ledger) ||
	    ledger->history.lost)
		return false;
	for (size_t i = 0; i < ledger->n_links; i++)
		if (link_usable(&ledger->links[i]))
			return true;
	return false;
}

void session_publish(struct ledger *ledger)
{
	bool connected = ledger_ready(ledger);
	bool ready = connected && !unsettled_full(ledger);

	if (connected) {
		ledger->down_since_ms = 0;
		ledger->last_down[0] = 0;
		atomic_store(&ledger->why, ready ? NULL : LEDGER_FULL);
	} else if (!atomic_load(&ledger->why)) {
		atomic_store(&ledger->why, "PostgreSQL can't be reached");
	}
	if (ready && !atomic_load(&ledger->up))
		log_info(ledger->who, "ready, as instance %d", (int)ledger->instance);
	atomic_store(&ledger->up, ready);
	metrics_set(ledger->metrics, METRIC_ledger_up, 0, ready);
}

struct ledger_state ledger_state(const struct ledger *ledger)
{
	return (struct ledger_state){ .up = atomic_load(&ledger->up),
				      .durable = atomic_load(&ledger->durable),
				      .why = atomic_load(&ledger->why),
				      .missing_key = atomic_load(&ledger->missing_key) };
}

/* --- operations --- */

static int by_operation(const void *a, const void *b)
{
	const struct idempotency_settings *const *x = a;
	const struct idempotency_settings *const *y = b;

	return strcmp((*x)->operation, (*y)->operation);
}

/* One of each operation, by name. The caller frees the array. */
static const struct idempotency_settings **operations(const struct settings *settings,
						      size_t *n)
{
	const struct idempotency_settings **all =
		mem_alloc(sizeof(struct idempotency_settings *) * (settings->n_routes + 1));
	size_t found = 0;

	for (size_t i = 0; i < settings->n_routes; i++)
		if (settings->routes[i].idempotency)
			all[found++] = settings->routes[i].idempotency;
	qsort(all, found, sizeof(struct idempotency_settings *), by_operation);
	*n = 0;
	for (size_t i = 0; i < found; i++)
		if (i == 0 || strcmp(all[i]->operation, all[i - 1]->operation) != 0)
			all[(*n)++] = all[i];
	return all;
}

const char *operation_refused(const struct ledger *ledger,
			      const struct idempotency_settings *idempotency,
			      enum ledger_found *found)
{
	for (size_t i = 0; i < ledger->n_identities; i++) {
		const struct identity_check *check = &ledger->identities[i];

		if (memcmp(check->identity, idempotency->identity, sizeof(check->identity)) !=
		    0)
			continue;
		*found = LEDGER_STOPPED;
		return check->same ? NULL : "its identity is not the one that the ledger holds";
	}
	*found = LEDGER_UNAVAILABLE;
	return "the identity of its operation has not been checked yet";
}

/* --- the questions --- */

static void send_identities(struct ledger *ledger, struct pg *pg,
			    const struct idempotency_settings **all, size_t n)
{
	struct pg_params *p = &ledger->params;

	pg_params_clear(p);
	pg_array(p, PG_TEXT, n);
	for (size_t i = 0; i < n; i++)
		pg_add_bytes(p, span_of(all[i]->operation));
	pg_array(p, PG_BYTEA, n);
	for (size_t i = 0; i < n; i++)
		pg_add_bytes(p, (struct span){ (const char *)all[i]->identity, 32 });
	pg_array(p, PG_TEXT, n);
	for (size_t i = 0; i < n; i++)
		pg_add_bytes(p, span_of(all[i]->identity_text));
	pg_send(pg, QUERY_session_identity_add, p);

	pg_params_clear(p);
	pg_array(p, PG_TEXT, n);
	for (size_t i = 0; i < n; i++)
		pg_add_bytes(p, span_of(all[i]->operation));
	pg_send(pg, QUERY_session_identity_read, p);
}

static int by_rules(const void *a, const void *b)
{
	const struct idempotency_settings *const *x = a;
	const struct idempotency_settings *const *y = b;

	return ((*x)->rules.id > (*y)->rules.id) - ((*x)->rules.id < (*y)->rules.id);
}

static void send_rules(struct ledger *ledger, struct pg *pg,
		       const struct idempotency_settings **all, size_t n)
{
	struct pg_params *p = &ledger->params;
	struct arena *arena = arena_new();

	qsort(all, n, sizeof(struct idempotency_settings *), by_rules);
	pg_params_clear(p);
	pg_array(p, PG_INT8, n);
	for (size_t i = 0; i < n; i++)
		pg_add_int(p, PG_INT8, all[i]->rules.id);
	pg_array(p, PG_TEXT, n);
	for (size_t i = 0; i < n; i++)
		pg_add_bytes(p, digest_rules_text(arena, &all[i]->rules));
	pg_send(pg, QUERY_session_rules_add, p);
	arena_free(arena);
}

/* The steps of what is asked of operations and keys, counted from the first. */
enum { O_IDENTITIES_ADDED, O_IDENTITIES, O_RULES_ADDED, O_KEY_ADDED, O_KEYS, O_STEPS };

static void send_operations(struct ledger *ledger, struct pg *pg)
{
	size_t n = 0;
	const struct idempotency_settings **all = operations(ledger->settings, &n);

	send_identities(ledger, pg, all, n);
	send_rules(ledger, pg, all, n);
	keys_ask(ledger, pg);
	mem_free(all);
}

/* --- the answers --- */

static bool ledger_holds(const struct pg_rows *held, const struct idempotency_settings *mine)
{
	for (size_t row = 0; row < pg_rows_count(held); row++)
		if (span_equal(pg_bytes(held, row, 0), span_of(mine->operation)))
			return span_equal(pg_bytes(held, row, 1),
					  (struct span){ (const char *)mine->identity, 32 });
	return false;
}

/* What was asked for older settings says nothing of these. */
static void take_identities(struct ledger *ledger, const struct pg_rows *held,
			    unsigned long asked_for)
{
	size_t n = 0;
	const struct idempotency_settings **all = operations(ledger->settings, &n);

	if (asked_for != ledger->followed) {
		mem_free(all);
		return;
	}
	ledger->rechecked = asked_for;
	mem_free(ledger->identities);
	ledger->identities = mem_alloc(sizeof(*ledger->identities) * (n + 1));
	ledger->n_identities = n;
	for (size_t i = 0; i < n; i++) {
		struct identity_check *check = &ledger->identities[i];

		memcpy(check->identity, all[i]->identity, sizeof(check->identity));
		check->same = ledger_holds(held, all[i]);
		if (!check->same)
			log_error(ledger->who,
				  "operation %s is not what the ledger knows under this name; "
				  "it is "
				  "stopped here until `onceward operations adopt %s`",
				  all[i]->operation, all[i]->operation);
	}
	mem_free(all);
}

static void take_operations(struct ledger *ledger, struct pg_rows *const *steps,
			    unsigned long asked_for)
{
	take_identities(ledger, steps[O_IDENTITIES], asked_for);
	keys_take(ledger, steps[O_KEYS]);
}

static bool take_secrets(struct ledger *ledger, const struct pg_rows *rows)
{
	struct span salt = pg_bytes(rows, 0, 4);
	struct span id_key = pg_bytes(rows, 0, 5);

	if (pg_is_null(rows, 0, 4) || pg_is_null(rows, 0, 5) || salt.len < 16 ||
	    id_key.len < 16)
		return false;
	if (ledger->key_hasher)
		hash_free(ledger->key_hasher);
	ledger->key_hasher = hash_new_keyed((const unsigned char *)salt.at, salt.len);
	memcpy(ledger->request_id_key, id_key.at, sizeof(ledger->request_id_key));
	ledger->has_secrets = true;
	return true;
}

/* The columns of session. */
enum { S_VERSION, S_OLDEST, S_READ_ONLY, S_DURABLE, S_SALT, S_ID_KEY, S_CLOCK };

/* NULL where the ledger may be used. */
static const char *session_refused(struct ledger *ledger, const struct pg_rows *rows)
{
	bool durable = pg_int(rows, 0, S_DURABLE) != 0;

	atomic_store(&ledger->durable, durable);
	if (pg_is_null(rows, 0, S_VERSION))
		return "the ledger has no schema: run `onceward migrate`";
	if (pg_int(rows, 0, S_VERSION) < SCHEMA_VERSION)
		return "the ledger's schema is older than this program: run `onceward migrate`";
	if (pg_int(rows, 0, S_OLDEST) > SCHEMA_VERSION)
		return "the ledger's schema is newer than this program supports";
	if (pg_int(rows, 0, S_READ_ONLY))
		return "the server is a standby or read-only";
	if (!durable)
		return "synchronous_commit is off or local: commits are not durable";
	return take_secrets(ledger, rows) ? NULL : "the ledger's secrets are missing";
}

static void refuse_session(struct ledger_link *link, const char *why)
{
	struct ledger *ledger = link->ledger;

	atomic_store(&ledger->why, why);
	pg_drop(link->pg, why);
}

static void session_failed(struct ledger_link *link, const struct pg_transaction *transaction)
{
	const char *why = "its tables can't be used: has `onceward migrate` been run?";

	if (strcmp(transaction->sqlstate, "25006") == 0)
		why = "the server is a standby or read-only";
	if (atomic_load(&link->ledger->why) != why) /* else it was said a second ago */
		log_error(link->ledger->who, "the ledger can't be used: %s: %s (SQLSTATE %s)",
			  why, transaction->message, transaction->sqlstate);
	refuse_session(link, why);
}

static void session_done(struct pg_transaction *transaction)
{
	struct ledger_link *link = container_of(transaction, struct ledger_link, session);
	struct ledger *ledger = link->ledger;
	const char *why = NULL;

	if (link->asked == ASKED_CLAIM)
		ledger->claiming = false;
	if (transaction->outcome == PG_LOST)
		return;
	if (transaction->outcome == PG_FAILED) {
		session_failed(link, transaction);
		return;
	}
	why = session_refused(ledger, transaction->rows[0]);
	if (why) {
		refuse_session(link, why);
		return;
	}
	if (!history_holds(link))
		return;
	instance_clock(ledger, pg_int(transaction->rows[0], 0, S_CLOCK), link->session_us);
	take_operations(ledger, &transaction->rows[1], link->asked_for);
	link->checked = true;
	if (link->asked != ASKED_NOTHING &&
	    !instance_take(ledger, link->asked, transaction->rows[1 + O_STEPS],
			   link->session_us))
		instance_missing(ledger,
				 link->asked == ASKED_CLAIM); /* a tick claims another */
	session_publish(ledger);
	stops_poll(ledger, loop_now(ledger->loop));
	loop_wake(ledger->loop); /* what is queued goes out now */
}

void session_begin(struct ledger_link *link)
{
	struct ledger *ledger = link->ledger;

	link->session.done = session_done;
	link->session_us = loop_clock_us();
	link->asked = ASKED_NOTHING;
	link->asked_for = ledger->followed;
	history_ask(link);
	pg_begin(link->pg, &link->session);
	pg_params_clear(&ledger->params);
	pg_send(link->pg, QUERY_session, &ledger->params);
	send_operations(ledger, link->pg);
	if (ledger->instance >= 0 || !ledger->claiming) /* one claim is enough */
		link->asked = instance_ask(ledger, link->pg);
	pg_end(link->pg);
	pg_flush(link->pg);
}

/* --- as time goes on --- */

static void recheck_done(struct pg_transaction *transaction)
{
	struct ledger *ledger = container_of(transaction, struct ledger, recheck);

	ledger->rechecking = false;
	ledger->recheck_at_ms = loop_now(ledger->loop);
	if (transaction->outcome == PG_COMMITTED)
		take_operations(ledger, transaction->rows, ledger->recheck_asked_for);
	else
		ledger->recheck_at_ms += LEDGER_RENEW_MS / 10;
	session_recheck(ledger);
}

/* The settings are new. A connection that is made later asks by itself. */
void session_recheck(struct ledger *ledger)
{
	struct ledger_link *link = ledger_any_link(ledger);

	if (!link || ledger->rechecking || ledger->rechecked == ledger->followed ||
	    loop_now(ledger->loop) < ledger->recheck_at_ms)
		return;
	ledger->rechecking = true;
	ledger->recheck_asked_for = ledger->followed;
	ledger->recheck.done = recheck_done;
	pg_begin(link->pg, &ledger->recheck);
	send_operations(ledger, link->pg);
	pg_end(link->pg);
	pg_flush(link->pg);
}

/* A batch was not committed durably. A connection that is made anew is asked anew. */
void session_not_durable(struct ledger_link *link)
{
	struct ledger *ledger = link->ledger;

	if (!link->checked)
		return; /* said already, for another part of the same batch */
	atomic_store(&ledger->durable, false);
	atomic_store(&ledger->why,
		     "synchronous_commit is off or local: commits are not durable");
	log_error(ledger->who,
		  "synchronous_commit is off or local for this role or database: what is "
		  "written could be lost, so nothing is forwarded");
	pg_drop(link->pg, "commits are not durable");
}
