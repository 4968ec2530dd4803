/*
 * What `onceward check --explain` prints: the file as it is understood. Each route in the order
 * in which they are tried, and for those with idempotency everything that was derived.
 */
#include "settings_internal.h"

static const char *const outcome_names[] = {
	[OUTCOME_UNKNOWN] = "unknown", [OUTCOME_STORE] = "store", [OUTCOME_RELEASE] = "release"
};

static void put_range(struct buf *out, unsigned first, unsigned last)
{
	if (first % 100 == 0 && last == first + 99)
		buf_format(out, " %uxx", first / 100);
	else if (first == last)
		buf_format(out, " %u", first);
	else
		buf_format(out, " %u-%u", first, last);
}

/* The statuses of one meaning, as ranges that do not leave their class. */
static void put_outcome(struct buf *out, const struct idempotency_settings *idempotency,
			enum outcome outcome)
{
	buf_format(out, "    %-8s", outcome_names[outcome]);
	for (unsigned status = 200; status < 600; status++) {
		unsigned first = status;
		if (idempotency->outcome_of[status] != outcome)
			continue;
		while (status % 100 != 99 && idempotency->outcome_of[status + 1] == outcome)
			status++;
		put_range(out, first, status);
	}
	buf_byte(out, '\n');
}

static void put_times(struct buf *out, const struct idempotency_settings *idempotency)
{
	const struct {
		const char *name;
		int64_t ms;
	} times[] = { { "lease", idempotency->lease },
		      { "wait", idempotency->wait },
		      { "settle_wait", idempotency->settle_wait },
		      { "retention", idempotency->retention },
		      { "tombstone", idempotency->tombstone } };

	buf_text(out, "   ");
	for (size_t i = 0; i < ARRAY_LEN(times); i++) {
		buf_format(out, " %s ", times[i].name);
		settings_put_measure(out, times[i].ms, UNIT_TIME);
	}
	buf_byte(out, '\n');
}

/* The identity's lines, indented. */
static void put_identity(struct buf *out, const struct idempotency_settings *idempotency)
{
	const char *line = idempotency->identity_text;

	while (*line) {
		size_t len = strcspn(line, "\n");
		buf_format(out, "    %.*s\n", (int)len, line);
		line += len + (line[len] == '\n');
	}
	buf_text(out, "    identity ");
	for (size_t i = 0; i < sizeof(idempotency->identity); i++)
		buf_format(out, "%02x", idempotency->identity[i]);
	buf_byte(out, '\n');
}

static void put_rules(struct buf *out, const struct idempotency_settings *idempotency)
{
	struct arena *arena = arena_new();

	buf_text(out, "    compared by ");
	buf_span(out, digest_rules_text(arena, &idempotency->rules));
	buf_byte(out, '\n');
	arena_free(arena);
}

static void put_texts(struct buf *out, const char *name, const struct texts *texts)
{
	for (size_t i = 0; i < texts->n; i++)
		buf_format(out, "%s%s", i ? ", " : name, texts->at[i]);
}

static void put_condition(struct buf *out, const char *name, const struct condition *condition)
{
	if (condition->pointer)
		buf_format(out, "%s%s %s", name, condition->pointer,
			   condition->equals ? condition->equals : "is there");
}

static const char *const lists[] = {
	[WHEN_STORE] = "store", [WHEN_RELEASE] = "release", [WHEN_UNKNOWN] = "unknown"
};

static void put_response(struct buf *out, const struct response_settings *response)
{
	buf_format(out, "    stored body %s",
		   response->body == RESPONSE_OMIT ? "omitted"
		   : response->kept                ? "reduced to "
						   : "whole");
	put_texts(out, "", &response->fields);
	if (response->receipt)
		buf_format(out, ", receipt %s%s", response->receipt,
			   response->receipt_unique ? " (unique)" : "");
	buf_byte(out, '\n');
}

/* What an answer means beside its status. */
static void put_conditions(struct buf *out, const struct outcome_settings *outcome)
{
	for (size_t i = 0; i < outcome->n_release_if; i++) {
		const struct release_if *one = &outcome->release_if[i];
		buf_format(out, "    release  %u with %s%s%s\n", (unsigned)one->status,
			   one->header, one->equals ? ": " : "",
			   one->equals ? one->equals : "");
	}
	for (size_t i = 0; i < outcome->n_when; i++) {
		const struct when *one = &outcome->when[i];
		put_condition(out, "    when ", &one->condition);
		buf_format(out, " -> %s\n", lists[one->list]);
	}
	if (outcome->receipt_required)
		buf_text(out, "    store without a receipt -> unknown\n");
}

static void put_lookup(struct buf *out, const struct recovery_settings *recovery)
{
	buf_format(out, ": GET %s", recovery->lookup_path);
	put_texts(out, ", found ", &recovery->found);
	put_condition(out, " and ", &recovery->found_when);
	buf_format(out, " as %u", recovery->result_status);
	put_condition(out, ", pending ", &recovery->pending_when);
	put_texts(out, ", not found ", &recovery->not_found);
	if (recovery->not_found_after < 0) {
		buf_text(out, " proves nothing");
		return;
	}
	buf_text(out, " twice, apart ");
	settings_put_measure(out, recovery->not_found_after, UNIT_TIME);
}

static void put_resend(struct buf *out, const struct recovery_settings *recovery)
{
	buf_text(out, ": within ");
	settings_put_measure(out, recovery->resend_window, UNIT_TIME);
	buf_format(out, ", %u attempts", (unsigned)recovery->max_attempts);
	put_texts(out, ", stores ", &recovery->resend_store);
}

static void put_recovery(struct buf *out, const struct recovery_settings *recovery)
{
	static const char *const contracts[] = { [RECOVERY_HOLD] = "hold",
						 [RECOVERY_RESEND] = "resend",
						 [RECOVERY_LOOKUP] = "lookup",
						 [RECOVERY_AT_LEAST_ONCE] = "at_least_once" };

	buf_format(out, "    recovery %s", contracts[recovery->contract]);
	if (recovery->contract == RECOVERY_RESEND)
		put_resend(out, recovery);
	if (recovery->contract == RECOVERY_LOOKUP)
		put_lookup(out, recovery);
	buf_text(out, ", deadline ");
	settings_put_measure(out, recovery->deadline, UNIT_TIME);
	buf_text(out, recovery->after_deadline == RECOVERY_END_FINAL ? ", then final" : "");
	buf_text(out, recovery->stop ? ", then stops\n" : "\n");
}

static void put_route(struct buf *out, const struct route *route)
{
	buf_format(out, "%s -> %s", route->match, route->upstream->name);
	buf_format(out, ", account %s", route->account ? route->account->name : "not asked");
	if (!route->idempotency) {
		buf_text(out, ", passes through\n");
		return;
	}
	buf_text(out, ", enforced for unsafe methods\n");
	put_identity(out, route->idempotency);
	put_rules(out, route->idempotency);
	put_times(out, route->idempotency);
	put_outcome(out, route->idempotency, OUTCOME_STORE);
	put_outcome(out, route->idempotency, OUTCOME_RELEASE);
	put_outcome(out, route->idempotency, OUTCOME_UNKNOWN);
	put_conditions(out, &route->idempotency->outcome);
	put_response(out, &route->idempotency->response);
	put_recovery(out, &route->idempotency->recovery);
}

void settings_explain(const struct settings *settings, struct buf *out)
{
	for (size_t i = 0; i < settings->n_routes; i++)
		put_route(out, &settings->routes[i]);
}
