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
}

void settings_explain(const struct settings *settings, struct buf *out)
{
	for (size_t i = 0; i < settings->n_routes; i++)
		put_route(out, &settings->routes[i]);
}
