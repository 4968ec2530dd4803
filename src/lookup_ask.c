/*
 * One asking: a record under our lease, one GET, and what the ledger is told; see
 * lookup_internal.h.
 *
 *   lookup_ask_record -> asked() -> tell() -> told()
 *
 * Nothing is held open meanwhile: the lease on the attention row keeps others away. What was
 * found contends for the record's next slot like a late answer, so a lease that ran out too
 * early does no harm. Whatever comes of it, the lease is given back with the time of the next
 * asking, in the same transaction; where the ledger is away it runs out by itself, and somebody
 * asks again.
 *
 * Credentials, targets and answers are never logged.
 */
#include "lookup_internal.h"

#include "field_lines.h"
#include "http.h"
#include "log.h"
#include "lookup_path.h"

#include <assert.h>

#define BACKOFF_MS     1000
#define BACKOFF_MAX_MS 60000
#define SOON_MS        1000
#define SLACK_MS       20 /* so that a time has passed when it is looked at */
#define FIELDS_ADDED   4U
#define ANSWER_MIN     ((size_t)64 * 1024)
#define STATUS_MAX     600U

/* How lookup_return takes what was not found. */
enum { FORGET = -1, SAYS_NOTHING = 0, COUNTS = 1 };

static void asked(struct upstream_call *call);
static void told(struct pg_transaction *transaction);

static void ask_end(struct lookup_ask *ask)
{
	struct lookup *lookup = ask->lookup;
	struct lookup_target *target = ask->target;
	const struct settings *settings = ask->settings;

	arena_free(ask->arena);
	ask->arena = NULL;
	ask->target = NULL;
	lookup->n_asks--;
	lookup_target_release(target);
	settings_release(settings);
	lookup_freed(lookup);
}

static struct lookup_ask *ask_new(struct lookup *lookup, struct lookup_target *target)
{
	struct lookup_ask *ask = lookup->asks;

	assert(lookup->n_asks < LOOKUP_ASKS);
	while (ask->target)
		ask++;
	*ask = (struct lookup_ask){ .lookup = lookup,
				    .target = target,
				    .settings = lookup->settings,
				    .idempotency = target->route->idempotency,
				    .arena = arena_new() };
	ask->transaction.done = told;
	settings_hold(ask->settings);
	lookup->n_asks++;
	target->asks++;
	return ask;
}

/* Fields that frame a message are the codec's; answers are wanted as they are. */
static bool ours(struct span name)
{
	const struct http_fields none = { NULL, 0 };

	return http_hop_by_hop(&none, name) || http_same_name(name, SPAN("Content-Length")) ||
	       http_same_name(name, SPAN("Expect")) ||
	       http_same_name(name, SPAN("Accept-Encoding"));
}

/* Those of headers_file, and ours; a Host or User-Agent of theirs replaces ours. */
static struct http_fields fields_of(struct lookup_ask *ask, const struct route *route)
{
	const struct http_fields *more = &ask->idempotency->recovery.headers;
	struct http_fields out = {
		arena_alloc(ask->arena, sizeof(*out.at) * (more->n + FIELDS_ADDED)), 0
	};

	if (!http_find(more, SPAN("Host"), NULL))
		http_add(&out, SPAN("Host"), span_of(route->upstream->server[0].host));
	for (size_t i = 0; i < more->n; i++)
		if (!ours(more->at[i].name))
			http_add(&out, more->at[i].name, more->at[i].value);
	http_add(&out, SPAN("Accept-Encoding"), SPAN("identity"));
	if (!http_find(more, SPAN("User-Agent"), NULL))
		http_add(&out, SPAN("User-Agent"), SPAN("onceward/" ONCEWARD_VERSION));
	return out;
}

/* What is looked up is not what is stored: a route that keeps no bodies can be asked, too. */
static size_t answer_max(const struct idempotency_settings *idempotency)
{
	size_t most = (size_t)idempotency->response.max_body;

	return most > ANSWER_MIN ? most : ANSWER_MIN;
}

/*
 * False: this record cannot be asked for by this path. The call begins so early, by the lease
 * that was taken when the ledger was asked, that it ends under it.
 */
static bool call_begin(struct lookup_ask *ask, const struct route *route)
{
	struct lookup *lookup = ask->lookup;
	struct upstream_call *call = &ask->call;
	struct lookup_names names = { .key = ask->record.key,
				      .account = ask->record.account,
				      .request_id = span_of(ask->request_id),
				      .generation = ask->record.generation };

	call->upstream = route->upstream;
	call->arena = ask->arena;
	call->method = SPAN("GET");
	if (!lookup_path(ask->arena, span_of(ask->idempotency->recovery.lookup_path), &names,
			 &call->target))
		return false;
	call->fields = fields_of(ask, route);
	call->answer_max = answer_max(ask->idempotency);
	call->start_by_ms = lookup->sent_ms + lookup_lease_ms(route) - route->upstream->timeout;
	call->done = asked;
	ask->calling = true;
	upstream_send(lookup->upstreams, call);
	return true;
}

static int64_t backoff_ms(const struct lookup_ask *ask)
{
	unsigned looks = ask->record.looks ? ask->record.looks - 1 : 0;
	int64_t ms = (int64_t)BACKOFF_MS << (looks < 6 ? looks : 6);

	return ms < BACKOFF_MAX_MS ? ms : BACKOFF_MAX_MS;
}

static int64_t sooner(int64_t ms, int64_t other_ms)
{
	return other_ms > 0 && other_ms + SLACK_MS < ms ? other_ms + SLACK_MS : ms;
}

/* May a "not found" ever count? What was sent under another contract, or to somewhere else, cannot
 * be known by this name here. */
static bool may_count(const struct lookup_ask *ask)
{
	return ask->verdict == LOOKUP_NOT_FOUND &&
	       ask->idempotency->recovery.not_found_after > 0 && ask->record.sent_alike;
}

/* Does this one count as evidence? */
static bool counts(const struct lookup_ask *ask)
{
	return may_count(ask) && ask->record.lease_left_ms == 0 &&
	       lookup_control_fresh(ask->lookup, ask->target);
}

/* When to ask again: with growing gaps, but at the moment when a "not found" would decide. */
static int64_t due_ms(const struct lookup_ask *ask)
{
	int64_t after = ask->idempotency->recovery.not_found_after;
	int64_t gap = backoff_ms(ask);

	if (!may_count(ask))
		return gap;
	if (ask->record.lease_left_ms > 0)
		return sooner(gap, ask->record.lease_left_ms);
	if (!counts(ask))
		return gap < SOON_MS || ask->target->control_missing ? gap : SOON_MS;
	return sooner(gap,
		      ask->record.not_found_ms < 0 ? after : after - ask->record.not_found_ms);
}

static void send_return(struct lookup_ask *ask)
{
	struct lookup *lookup = ask->lookup;
	int not_found = counts(ask) ? COUNTS : SAYS_NOTHING;

	if (ask->verdict == LOOKUP_FOUND || ask->verdict == LOOKUP_PENDING ||
	    ask->verdict == LOOKUP_OTHER)
		not_found = FORGET;
	pg_params_clear(&lookup->params);
	pg_add_int(&lookup->params, PG_INT8, lookup->writer);
	pg_add_int(&lookup->params, PG_INT8, ask->record.op_id);
	pg_add_int(&lookup->params, PG_INT8, due_ms(ask));
	pg_add_int(&lookup->params, PG_INT2, not_found);
	pg_send(lookup->pg, QUERY_lookup_return, &lookup->params);
}

static void send_conclude(struct lookup_ask *ask)
{
	const struct lookup_record *record = &ask->record;
	struct lookup_result result;
	struct conclusion as = { .op_id = record->op_id,
				 .day = record->day,
				 .generation = record->generation,
				 .key_hash = record->key_hash,
				 .account = record->account,
				 .key = record->key,
				 .idempotency = ask->idempotency,
				 .source = RECORD_BY_LOOKUP,
				 .kind = ask->kind,
				 .note = "lookups did not find it",
				 .writer = ask->lookup->writer };

	if (ask->kind == EVENT_COMPLETED) {
		result = lookup_result_of(ask->idempotency, &ask->call);
		as.status = result.status;
		as.fields = field_lines(ask->arena, &result.fields);
		as.receipt = result.receipt;
		as.note = "a lookup found it";
	}
	conclude_send(ask->lookup->pg, &ask->lookup->params, &as);
}

/* What the asking makes of the record, and the lease given back. Ends in told(). */
static void tell(struct lookup_ask *ask)
{
	struct lookup *lookup = ask->lookup;

	if (!pg_up(lookup->pg)) {
		ask_end(ask);
		return;
	}
	if (ask->verdict == LOOKUP_FOUND)
		ask->kind = EVENT_COMPLETED;
	else if (counts(ask) &&
		 ask->record.not_found_ms >= ask->idempotency->recovery.not_found_after)
		ask->kind = EVENT_RELEASED;
	pg_begin(lookup->pg, &ask->transaction);
	if (ask->kind)
		send_conclude(ask);
	send_return(ask);
	pg_end(lookup->pg);
}

static void log_concluded(const struct lookup_ask *ask, int64_t result)
{
	const char *what = ask->kind == EVENT_COMPLETED ? "found: it is completed"
							: "not found again: its key is free";

	if (result == CONCLUDED)
		log_info("lookup", "%s: %s %s", ask->target->operation, ask->request_id, what);
	else
		log_info("lookup", "%s: %s was settled by somebody else meanwhile (%d)",
			 ask->target->operation, ask->request_id, (int)result);
}

static void told(struct pg_transaction *transaction)
{
	struct lookup_ask *ask = container_of(transaction, struct lookup_ask, transaction);
	int64_t result = 0;

	if (transaction->outcome == PG_FAILED)
		log_warning("lookup", "%s: %s cannot be told to the ledger: %.200s",
			    ask->target->operation, ask->request_id, transaction->message);
	if (transaction->outcome == PG_COMMITTED && ask->kind) {
		result = pg_int(transaction->rows[0], 0, 0);
		log_concluded(ask, result);
		if (result == CONCLUDED && ask->kind == EVENT_RELEASED)
			metrics_add(ask->lookup->metrics, METRIC_lookups_total, LOOKED_RELEASED,
				    1);
	}
	ask_end(ask);
}

void lookup_ask_give_up(struct lookup_ask *ask)
{
	if (ask->target && ask->calling)
		upstream_cancel(&ask->call, "the gateway ends");
}

/* What keeps lookups from saying anything is said once. */
static void log_trouble(struct lookup_ask *ask)
{
	struct lookup_target *target = ask->target;
	const struct upstream_call *call = &ask->call;
	bool odd = ask->verdict == LOOKUP_ODD || ask->verdict == LOOKUP_FAILED;
	bool answered = call->end == UPSTREAM_ANSWERED;
	int what = answered ? (int)call->answer.status : (int)(STATUS_MAX + call->end);

	if (odd && what != target->said && answered)
		log_warning("lookup",
			    "%s: lookups are answered with status %u, which is "
			    "neither in recovery.found nor in not_found",
			    target->operation, call->answer.status);
	else if (odd && what != target->said)
		log_warning("lookup", "%s: lookups get no answer: %s", target->operation,
			    call->cause ? call->cause : "it was not whole");
	target->said = odd ? what : 0;
}

static enum lookup_verdict verdict_of(const struct lookup_ask *ask)
{
	const struct upstream_call *call = &ask->call;

	if (call->end != UPSTREAM_ANSWERED || call->close_delimited)
		return LOOKUP_FAILED;
	return lookup_judge(&ask->idempotency->recovery, &call->answer);
}

static void count(struct lookup_ask *ask)
{
	static const enum metrics_looked results[] = {
		[LOOKUP_FOUND] = LOOKED_FOUND,   [LOOKUP_PENDING] = LOOKED_PENDING,
		[LOOKUP_OTHER] = LOOKED_PENDING, [LOOKUP_NOT_FOUND] = LOOKED_NOT_FOUND,
		[LOOKUP_ODD] = LOOKED_FAILED,    [LOOKUP_FAILED] = LOOKED_FAILED,
	};

	metrics_add(ask->lookup->metrics, METRIC_lookups_total, results[ask->verdict], 1);
}

static void heard(struct lookup_ask *ask)
{
	bool wants_control = may_count(ask) && ask->record.lease_left_ms == 0;

	count(ask);
	if (wants_control && !lookup_control_fresh(ask->lookup, ask->target))
		lookup_control_want(ask->target);
	tell(ask);
}

static void asked(struct upstream_call *call)
{
	struct lookup_ask *ask = container_of(call, struct lookup_ask, call);

	ask->calling = false;
	if (ask->lookup->ending) {
		ask_end(ask);
		return;
	}
	ask->verdict = verdict_of(ask);
	log_trouble(ask);
	if (!ask->control) {
		heard(ask);
		return;
	}
	lookup_control_heard(ask->lookup, ask->target, ask->verdict);
	ask_end(ask);
}

/* Its logical request id, by the ledger's key for these. */
static void name(struct lookup_ask *ask, struct span key)
{
	assert(key.len >= 16);
	record_id_write((const unsigned char *)key.at, ask->record.op_id, ask->record.day,
			ask->request_id);
}

static struct span copied(struct lookup_ask *ask, const struct pg_rows *rows, size_t row,
			  unsigned column)
{
	return arena_copy(ask->arena, pg_bytes(rows, row, column));
}

void lookup_ask_record(struct lookup *lookup, struct lookup_target *target,
		       const struct pg_rows *rows, size_t row)
{
	struct lookup_ask *ask = ask_new(lookup, target);

	ask->record = (struct lookup_record){
		.op_id = pg_int(rows, row, 1),
		.day = (int32_t)pg_int(rows, row, 2),
		.key_hash = copied(ask, rows, row, 3),
		.account = copied(ask, rows, row, 4),
		.key = copied(ask, rows, row, 5),
		.generation = (unsigned)pg_int(rows, row, 6),
		.looks = (unsigned)pg_int(rows, row, 7),
		.lease_left_ms = pg_int(rows, row, 8),
		.not_found_ms = pg_is_null(rows, row, 9) ? -1 : pg_int(rows, row, 9),
	};
	ask->record.sent_alike =
		ask->record.generation == 1 &&
		span_equal(pg_bytes(rows, row, 11), ask->idempotency->recovery.lookup_mark);
	name(ask, pg_bytes(rows, row, 10));
	if (call_begin(ask, target->route))
		return;
	log_debug("lookup", "%s: %s cannot be asked for by recovery.lookup_path",
		  target->operation, ask->request_id);
	ask->verdict = LOOKUP_FAILED;
	heard(ask);
}

void lookup_ask_control(struct lookup *lookup, struct lookup_target *target,
			const struct pg_rows *rows)
{
	struct lookup_ask *ask = ask_new(lookup, target);

	ask->control = true;
	ask->record = (struct lookup_record){
		.op_id = pg_int(rows, 0, 0),
		.day = (int32_t)pg_int(rows, 0, 1),
		.account = copied(ask, rows, 0, 2),
		.key = copied(ask, rows, 0, 3),
		.generation = 1,
		.not_found_ms = -1,
	};
	name(ask, pg_bytes(rows, 0, 4));
	if (call_begin(ask, target->route))
		return;
	lookup_control_heard(lookup, target, LOOKUP_FAILED);
	ask_end(ask);
}
