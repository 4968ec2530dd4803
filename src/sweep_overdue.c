/*
 * Records that are unknown for longer than recovery.deadline: somebody is told, the operation
 * stops where recovery.stop says so, and where after_deadline is "final" the record ends with a
 * stored answer that says that it will never be known (CONTRACT 7, 9). See sweep_internal.h.
 *
 * A record is told of once, by whichever gateway meets it first; the attention list remembers it.
 * One that ends is taken under a lease there, and then contends for its next slot like a late
 * answer: whatever else has settled it meanwhile stays. Under at_least_once nothing ends so: its
 * keys become free.
 *
 * Settings may change while the ledger is asked; what was asked for is answered by those it was
 * asked under, which are held until the last record of it is dealt with.
 */
#include "sweep_internal.h"

#include "conclude.h"
#include "field_lines.h"
#include "log.h"
#include "problem.h"
#include "record_id.h"

#include <assert.h>

#define WHO "recovery"

struct sweep_final {
	const struct idempotency_settings *idempotency;
	struct span key_hash, account, key;
	char request_id[RECORD_ID_BYTES];
	int64_t op_id;
	int32_t day;
	unsigned generation;
};

struct sweep_overdue {
	struct arena *arena;
	const struct settings *settings;
	const struct idempotency_settings **operations; /* one of each */
	size_t n;
	bool stops;     /* it was asked which of them stop */
	size_t *places; /* of those, among the operations */
	struct sweep_final *finals;
	size_t n_finals, at;
};

static bool known(const struct sweep_overdue *overdue, const char *operation)
{
	for (size_t i = 0; i < overdue->n; i++)
		if (strcmp(overdue->operations[i]->operation, operation) == 0)
			return true;
	return false;
}

static struct sweep_overdue *overdue_new(const struct settings *settings)
{
	struct arena *arena = arena_new();
	struct sweep_overdue *overdue = arena_zero(arena, sizeof(*overdue));

	overdue->arena = arena;
	overdue->settings = settings;
	settings_hold(settings);
	overdue->operations =
		arena_alloc(arena, sizeof(struct idempotency_settings *) * settings->n_routes);
	for (size_t i = 0; i < settings->n_routes; i++) {
		const struct idempotency_settings *it = settings->routes[i].idempotency;

		if (it && !known(overdue, it->operation))
			overdue->operations[overdue->n++] = it;
	}
	return overdue;
}

void sweep_overdue_free(struct sweep *sweep)
{
	struct sweep_overdue *overdue = sweep->overdue;

	sweep->overdue = NULL;
	if (!overdue)
		return;
	settings_release(overdue->settings);
	arena_free(overdue->arena);
}

static bool ends(const struct recovery_settings *recovery)
{
	return recovery->after_deadline == RECOVERY_END_FINAL &&
	       recovery->contract != RECOVERY_AT_LEAST_ONCE;
}

static void send_overdue(struct sweep *sweep)
{
	const struct sweep_overdue *overdue = sweep->overdue;
	struct pg_params *params = &sweep->params;

	pg_params_clear(params);
	pg_add_int(params, PG_INT8, sweep->writer);
	pg_array(params, PG_BYTEA, overdue->n);
	for (size_t i = 0; i < overdue->n; i++)
		pg_add_bytes(params, span_of(overdue->operations[i]->operation));
	pg_array(params, PG_INT8, overdue->n);
	for (size_t i = 0; i < overdue->n; i++)
		pg_add_int(params, PG_INT8, overdue->operations[i]->recovery.deadline);
	pg_array(params, PG_INT2, overdue->n);
	for (size_t i = 0; i < overdue->n; i++)
		pg_add_int(params, PG_INT2, ends(&overdue->operations[i]->recovery));
	pg_send(sweep->pg, QUERY_sweep_overdue, params);
}

static size_t find_stopping(struct sweep_overdue *overdue)
{
	size_t n = 0;

	overdue->places = arena_alloc(overdue->arena, sizeof(*overdue->places) * overdue->n);
	for (size_t i = 0; i < overdue->n; i++)
		if (overdue->operations[i]->recovery.stop)
			overdue->places[n++] = i;
	overdue->stops = n > 0;
	return n;
}

static void send_stops(struct sweep *sweep)
{
	struct sweep_overdue *overdue = sweep->overdue;
	struct pg_params *params = &sweep->params;
	size_t n = find_stopping(overdue);

	if (n == 0)
		return;
	pg_params_clear(params);
	pg_array(params, PG_BYTEA, n);
	for (size_t i = 0; i < n; i++)
		pg_add_bytes(params,
			     span_of(overdue->operations[overdue->places[i]]->operation));
	pg_array(params, PG_INT8, n);
	for (size_t i = 0; i < n; i++)
		pg_add_int(params, PG_INT8,
			   overdue->operations[overdue->places[i]]->recovery.deadline);
	pg_add_bytes(params, SPAN("gateway"));
	pg_send(sweep->pg, QUERY_sweep_stop, params);
}

bool sweep_overdue_send(struct sweep *sweep)
{
	sweep_overdue_free(sweep);
	sweep->overdue = overdue_new(sweep->settings);
	if (sweep->overdue->n == 0)
		return false;
	sweep_begin(sweep, JOB_OVERDUE);
	send_overdue(sweep);
	send_stops(sweep);
	sweep_end(sweep);
	return true;
}

static void alert(struct sweep *sweep, const struct sweep_final *record, int64_t age_ms)
{
	const char *owner = record->idempotency->owner;

	metrics_add(sweep->metrics, METRIC_overdue_total,
		    record->idempotency->metrics_operation, 1);
	log_warning(WHO,
		    "%s: it is not known what became of %s, for %lld s; recovery.deadline is "
		    "over; owner: %s",
		    record->idempotency->operation, record->request_id,
		    (long long)age_ms / 1000, owner ? owner : "-");
}

static struct span copied(struct sweep *sweep, const struct pg_rows *rows, size_t row,
			  unsigned column)
{
	return arena_copy(sweep->overdue->arena, pg_bytes(rows, row, column));
}

/* Its logical request id, by the ledger's key for these. */
static void name(struct sweep_final *record, struct span key)
{
	assert(key.len >= 16);
	record_id_write((const unsigned char *)key.at, record->op_id, record->day,
			record->request_id);
}

static void take_record(struct sweep *sweep, const struct pg_rows *rows, size_t row)
{
	struct sweep_overdue *overdue = sweep->overdue;
	struct sweep_final *record = &overdue->finals[overdue->n_finals];

	*record = (struct sweep_final){
		.idempotency = overdue->operations[pg_int(rows, row, 0)],
		.op_id = pg_int(rows, row, 1),
		.day = (int32_t)pg_int(rows, row, 2),
		.key_hash = copied(sweep, rows, row, 3),
		.account = copied(sweep, rows, row, 4),
		.key = copied(sweep, rows, row, 5),
		.generation = (unsigned)pg_int(rows, row, 6),
	};
	name(record, pg_bytes(rows, row, 10));
	if (pg_int(rows, row, 8))
		alert(sweep, record, pg_int(rows, row, 7));
	if (pg_int(rows, row, 9))
		overdue->n_finals++;
}

static void take_stops(const struct sweep_overdue *overdue, const struct pg_rows *rows)
{
	for (size_t row = 0; row < pg_rows_count(rows); row++) {
		size_t place = overdue->places[pg_int(rows, row, 0)];

		log_error(WHO,
			  "%s is stopped: a result is unknown for longer than "
			  "recovery.deadline; `onceward operations resume` ends that",
			  overdue->operations[place]->operation);
	}
}

void sweep_overdue_done(struct sweep *sweep)
{
	struct sweep_overdue *overdue = sweep->overdue;
	const struct pg_rows *rows = sweep->transaction.rows[0];
	size_t n = pg_rows_count(rows);

	overdue->finals = arena_alloc(overdue->arena, sizeof(*overdue->finals) * (n + 1));
	for (size_t row = 0; row < n; row++)
		take_record(sweep, rows, row);
	if (overdue->stops)
		take_stops(overdue, sweep->transaction.rows[1]);
	if (overdue->n_finals == 0)
		sweep_overdue_free(sweep);
}

/* Whoever replays the answer says which request it is about, and by what verdict. */
static bool said_by_replays(struct span name)
{
	return http_same_name(name, SPAN("Idempotency-Request-Id")) ||
	       http_same_name(name, SPAN("Idempotency-Verdict"));
}

/* The answer that is stored. */
static struct http_answer last_word(struct arena *arena, const struct sweep_final *record)
{
	struct problem_about about = {
		.problem = PROBLEM_UNDETERMINED,
		.detail = SPAN("What became of it was not found out within the time that its "
			       "operation allows. Ask the owner before it is sent again."),
		.request_id = span_of(record->request_id),
		.owner = span_of(record->idempotency->owner),
		.may_have_executed = true,
	};
	struct http_answer answer = problem_answer(arena, &about);
	size_t n = 0;

	for (size_t i = 0; i < answer.fields.n; i++)
		if (!said_by_replays(answer.fields.at[i].name))
			answer.fields.at[n++] = answer.fields.at[i];
	answer.fields.n = n;
	return answer;
}

bool sweep_final_next(struct sweep *sweep)
{
	struct sweep_overdue *overdue = sweep->overdue;
	const struct sweep_final *record = NULL;
	struct http_answer answer;

	if (!overdue || overdue->at == overdue->n_finals) {
		sweep_overdue_free(sweep);
		return false;
	}
	record = &overdue->finals[overdue->at++];
	answer = last_word(overdue->arena, record);
	sweep_begin(sweep, JOB_FINAL);
	conclude_send(
		sweep->pg, &sweep->params,
		&(struct conclusion){ .op_id = record->op_id,
				      .day = record->day,
				      .generation = record->generation,
				      .key_hash = record->key_hash,
				      .account = record->account,
				      .key = record->key,
				      .idempotency = record->idempotency,
				      .source = RECORD_BY_DEADLINE,
				      .kind = EVENT_COMPLETED,
				      .status = answer.status,
				      .fields = field_lines(overdue->arena, &answer.fields),
				      .body = answer.body,
				      .note = "recovery.deadline was over",
				      .writer = sweep->writer });
	sweep_end(sweep);
	return true;
}

void sweep_final_done(struct sweep *sweep)
{
	const struct sweep_final *record = &sweep->overdue->finals[sweep->overdue->at - 1];

	if (pg_int(sweep->transaction.rows[0], 0, 0) == CONCLUDED)
		log_warning(WHO, "%s: %s is completed with outcome_undetermined",
			    record->idempotency->operation, record->request_id);
}
