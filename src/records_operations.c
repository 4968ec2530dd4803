/*
 * Operations for people: what the ledger and the settings say of each, and what is stopped. An
 * operation's keys mean what its identity says: adopting another one lets old keys meet requests
 * that are told apart differently, so somebody has to say why.
 */
#include "records.h"

#include "escaped.h"

#define NAME_LEN_MAX 64U

bool records_operation_valid(struct span name)
{
	for (size_t i = 0; i < name.len; i++)
		if (!name.at[i] ||
		    !strchr("abcdefghijklmnopqrstuvwxyz0123456789._-", name.at[i]))
			return false;
	return name.len >= 1 && name.len <= NAME_LEN_MAX;
}

const struct idempotency_settings *records_operation_named(const struct settings *settings,
							   struct span name)
{
	for (size_t i = 0; i < settings->n_routes; i++) {
		const struct idempotency_settings *it = settings->routes[i].idempotency;

		if (it && span_equal(span_of(it->operation), name))
			return it;
	}
	return NULL;
}

/* --- what is sent --- */

bool records_says_something(struct span text)
{
	for (size_t i = 0; i < text.len; i++)
		if ((unsigned char)text.at[i] > ' ')
			return true;
	return false;
}

static void act(struct records_call *call, enum query query, struct span operation,
		struct span account)
{
	*call = (struct records_call){ query, { operation, account }, 4 };
}

void records_stop(struct arena *arena, struct span operation, struct span account,
		  const struct actor *actor, struct records_call *call)
{
	act(call, QUERY_operations_stop, operation, records_hex(arena, account));
	call->param[2] = actor->who;
	call->param[3] = actor->reason;
}

void records_resume(struct arena *arena, struct span operation, struct span account,
		    const struct actor *actor, struct records_call *call)
{
	act(call, QUERY_operations_resume, operation, records_hex(arena, account));
	call->param[2] = actor->who;
	call->param[3] = actor->reason;
}

void records_adopt(struct arena *arena, const struct idempotency_settings *operation,
		   const struct actor *actor, struct records_call *call)
{
	struct span identity = { (const char *)operation->identity,
				 sizeof(operation->identity) };

	*call = (struct records_call){
		QUERY_operations_adopt,
		{ span_of(operation->operation), records_hex(arena, identity),
		  span_of(operation->identity_text), actor->who, actor->reason },
		5
	};
}

void records_erase(struct arena *arena, struct span account, bool dry_run,
		   const struct actor *actor, struct records_call *call)
{
	*call = (struct records_call){ QUERY_accounts_erase,
				       { records_hex(arena, account), actor->who, actor->reason,
					 dry_run ? SPAN("true") : SPAN("false") },
				       4 };
}

void records_audit(const struct actor *actor, struct span action, struct span about,
		   struct records_call *call)
{
	*call = (struct records_call){ QUERY_people_audit,
				       { actor->who, action, about, actor->reason, SPAN("") },
				       5 };
}

/* --- what comes back --- */

static void put_name(struct buf *out, size_t *n, struct span name, const char *identity)
{
	buf_text(out, (*n)++ ? ",\n{\"operation\": " : "\n{\"operation\": ");
	if (name.at)
		escaped_string(out, name);
	else
		buf_text(out, "null");
	buf_format(out, ", \"identity\": \"%s\", ", identity);
}

static const char *compare(const struct idempotency_settings *ours, struct span theirs)
{
	char hex[2 * sizeof(ours->identity) + 1];

	if (!ours)
		return "not in the settings";
	if (!theirs.at)
		return "new";
	for (size_t i = 0; i < sizeof(ours->identity); i++)
		snprintf(hex + 2 * i, 3, "%02x", ours->identity[i]);
	return span_equal(span_of(hex), theirs) ? "the same" : "changed";
}

static bool is_known(const struct pg_rows *rows, struct span name)
{
	for (size_t row = 0; row < pg_rows_count(rows); row++)
		if (span_equal(pg_text(rows, row, 0), name))
			return true;
	return false;
}

/* Operations that no gateway has brought to the ledger yet; once each. */
static void put_new(struct buf *out, size_t *n, const struct settings *settings,
		    const struct pg_rows *rows)
{
	for (size_t i = 0; i < settings->n_routes; i++) {
		const struct idempotency_settings *it = settings->routes[i].idempotency;
		struct span name = it ? span_of(it->operation) : SPAN("");

		if (!it || records_operation_named(settings, name) != it ||
		    is_known(rows, name))
			continue;
		put_name(out, n, name, "new");
		buf_text(out, "\"since\": null, \"stopped\": null, \"unknown\": 0, "
			      "\"oldest_unknown_seconds\": null, \"stops\": []}");
	}
}

void records_put_operations(struct buf *out, const struct settings *settings,
			    const struct pg_rows *rows)
{
	size_t n = 0;

	buf_text(out, "{\"operations\": [");
	for (size_t row = 0; row < pg_rows_count(rows); row++) {
		struct span name = pg_text(rows, row, 0);
		struct span json = pg_text(rows, row, 2);

		put_name(out, &n, name,
			 name.at ? compare(records_operation_named(settings, name),
					   pg_text(rows, row, 1))
				 : "all operations");
		buf_append(out, json.at + 1, json.len - 1);
	}
	put_new(out, &n, settings, rows);
	buf_text(out, "]}\n");
}
