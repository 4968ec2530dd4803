/*
 * Puts a conclusion on the wire; see conclude.h. Its fields are written as rows have them, "name:
 * value" lines, into the parameters themselves.
 */
#include "conclude.h"

static void add_whose(struct pg_params *params, const struct conclusion *as)
{
	pg_add_int(params, PG_INT8, as->op_id);
	pg_add_int(params, PG_DATE, as->day);
	pg_add_bytes(params, as->key_hash);
	pg_add_bytes(params, as->account);
	pg_add_bytes(params, span_of(as->idempotency->operation));
	pg_add_bytes(params, as->key);
	pg_add_int(params, PG_INT2, as->generation);
	pg_add_int(params, PG_INT2, as->source);
	pg_add_int(params, PG_INT2, as->kind);
}

static void add_result(struct pg_params *params, const struct conclusion *as)
{
	pg_add_int(params, PG_INT2, as->status);
	pg_add_bytes(params, as->fields);
	pg_add_bytes(params, as->body.len ? as->body : SPAN(""));
	pg_add_if(params, as->receipt.len > 0, as->receipt);
}

void conclude_send(struct pg *pg, struct pg_params *params, const struct conclusion *as)
{
	pg_params_clear(params);
	add_whose(params, as);
	if (as->kind == EVENT_COMPLETED)
		add_result(params, as);
	for (unsigned i = 0; as->kind != EVENT_COMPLETED && i < 4; i++)
		pg_add_null(params);
	pg_add_bytes(params, span_of(as->note));
	pg_add_int(params, PG_INT8, as->idempotency->retention);
	pg_add_int(params, PG_INT8, as->idempotency->tombstone);
	pg_add_int(params, PG_INT8, as->writer);
	pg_add_int(params, PG_INT2, as->idempotency->response.receipt_unique);
	pg_send(pg, QUERY_conclude_known, params);
}
