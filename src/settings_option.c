/*
 * The tables of options.def, and what a whole section needs: every option of it read or given its
 * default, what is required demanded, and what nobody knows refused with the nearest name that
 * somebody does. A later feature's setting is unknown here until it has an effect.
 */
#include "settings_internal.h"

#define NAME_MAX_ 64U /* longer names have no nearest one */

#define ROW(owner, name, ...) ROW_IN(owner, name, name, __VA_ARGS__)
#define ROW_IN(owner, name, field, type, fallback, min, max, help)                             \
	{ #name, TYPE_##type, fallback, min, max, help, offsetof(struct owner, field) },
#define TYPE_text     OPTION_TEXT
#define TYPE_file     OPTION_FILE
#define TYPE_texts    OPTION_TEXTS
#define TYPE_cidrs    OPTION_CIDRS
#define TYPE_count    OPTION_COUNT
#define TYPE_duration OPTION_DURATION
#define TYPE_size     OPTION_SIZE
#define TYPE_flag     OPTION_FLAG
#define TYPE_choice   OPTION_CHOICE
#define TYPE_scalar   OPTION_SCALAR
#define TYPE_upstream OPTION_UPSTREAM
#define TYPE_account  OPTION_ACCOUNT

static const struct option gateway_options[] = {
#define GATEWAY(...) ROW(gateway_settings, __VA_ARGS__)
#include "options.def"
};
static const struct option limits_options[] = {
#define LIMITS(...) ROW(limits_settings, __VA_ARGS__)
#include "options.def"
};
static const struct option log_options[] = {
#define LOG(...) ROW(log_settings, __VA_ARGS__)
#include "options.def"
};
static const struct option ledger_options[] = {
#define LEDGER(...) ROW(ledger_settings, __VA_ARGS__)
#include "options.def"
};
static const struct option admin_options[] = {
#define ADMIN(...) ROW(admin_settings, __VA_ARGS__)
#include "options.def"
};
static const struct option account_options[] = {
#define ACCOUNT(...) ROW(account_settings, __VA_ARGS__)
#include "options.def"
};
static const struct option upstream_options[] = {
#define UPSTREAM(...) ROW(upstream_settings, __VA_ARGS__)
#include "options.def"
};
static const struct option tls_options[] = {
#define TLS(...) ROW(tls_settings, __VA_ARGS__)
#include "options.def"
};
static const struct option route_options[] = {
#define ROUTE(...) ROW(route, __VA_ARGS__)
#include "options.def"
};
static const struct option idempotency_options[] = {
#define IDEMPOTENCY(...) ROW(idempotency_settings, __VA_ARGS__)
#include "options.def"
};
static const struct option key_options[] = {
#define KEY(...) ROW(key_settings, __VA_ARGS__)
#include "options.def"
};
static const struct option request_options[] = {
#define REQUEST(...) ROW(request_settings, __VA_ARGS__)
#include "options.def"
};
static const struct option response_options[] = {
#define RESPONSE(...) ROW(response_settings, __VA_ARGS__)
#include "options.def"
};
static const struct option outcome_options[] = {
#define OUTCOME(...) ROW(outcome_settings, __VA_ARGS__)
#include "options.def"
};
static const struct option release_if_options[] = {
#define RELEASE_IF(...) ROW(release_if, __VA_ARGS__)
#include "options.def"
};
static const struct option condition_options[] = {
#define CONDITION(...) ROW(condition, __VA_ARGS__)
#include "options.def"
};
static const struct option when_options[] = {
#define CONDITION(name, ...) ROW_IN(when, name, condition.name, __VA_ARGS__)
#define WHEN(...)            ROW(when, __VA_ARGS__)
#include "options.def"
};
static const struct option recovery_options[] = {
#define RECOVERY(...) ROW(recovery_settings, __VA_ARGS__)
#include "options.def"
};

#define TABLE(options) options, ARRAY_LEN(options)
const struct section_table settings_sections[SECTION_COUNT] = {
	[SECTION_GATEWAY] = { "the file",
			      TABLE(gateway_options),
			      { "limits", "log", "ledger", "admin", "accounts", "upstreams",
				"routes" } },
	[SECTION_LIMITS] = { "`limits`", TABLE(limits_options), { 0 } },
	[SECTION_LOG] = { "`log`", TABLE(log_options), { 0 } },
	[SECTION_LEDGER] = { "`ledger`", TABLE(ledger_options), { 0 } },
	[SECTION_ADMIN] = { "`admin`", TABLE(admin_options), { 0 } },
	[SECTION_ACCOUNT] = { "an account method", TABLE(account_options), { 0 } },
	[SECTION_UPSTREAM] = { "an upstream", TABLE(upstream_options), { "tls" } },
	[SECTION_TLS] = { "`tls`", TABLE(tls_options), { 0 } },
	[SECTION_ROUTE] = { "a route", TABLE(route_options), { "idempotency" } },
	[SECTION_IDEMPOTENCY] = { "`idempotency`",
				  TABLE(idempotency_options),
				  { "key", "request", "response", "outcome", "recovery" } },
	[SECTION_KEY] = { "`key`", TABLE(key_options), { 0 } },
	[SECTION_REQUEST] = { "`request`", TABLE(request_options), { 0 } },
	[SECTION_RESPONSE] = { "`response`", TABLE(response_options), { 0 } },
	[SECTION_OUTCOME] = { "`outcome`", TABLE(outcome_options), { "release_if", "when" } },
	[SECTION_RELEASE_IF] = { "`release_if`", TABLE(release_if_options), { 0 } },
	[SECTION_CONDITION] = { "a condition", TABLE(condition_options), { 0 } },
	[SECTION_WHEN] = { "`when`", TABLE(when_options), { 0 } },
	[SECTION_RECOVERY] = { "`recovery`",
			       TABLE(recovery_options),
			       { "found_when", "pending_when" } },
};

/* The i-th name that a section knows: its options, then its groups. */
static const char *each_name(const void *of, size_t i)
{
	const struct section_table *table = of;

	return i < table->n ? table->options[i].name : table->groups[i - table->n];
}

static bool knows(const struct section_table *table, const char *name)
{
	for (size_t i = 0; each_name(table, i); i++)
		if (strcmp(each_name(table, i), name) == 0)
			return true;
	return false;
}

static size_t least(size_t a, size_t b, size_t c)
{
	size_t ab = a < b ? a : b;

	return ab < c ? ab : c;
}

/* Insertions, deletions, replacements and swaps of neighbours that lead from one to the other. */
static size_t distance(const char *a, const char *b)
{
	size_t rows[3][NAME_MAX_ + 1], n = strlen(b);
	size_t *before = rows[0], *above = rows[1], *row = rows[2];

	for (size_t j = 0; j <= n; j++)
		above[j] = before[j] = j;
	for (size_t i = 1; a[i - 1]; i++) {
		size_t *freed = before;
		row[0] = i;
		for (size_t j = 1; j <= n; j++) {
			size_t other = a[i - 1] != b[j - 1];
			row[j] = least(above[j] + 1, row[j - 1] + 1, above[j - 1] + other);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				row[j] = least(row[j], row[j], before[j - 2] + 1);
		}
		before = above;
		above = row;
		row = freed;
	}
	return above[n];
}

/* Near is: at most a third of it is wrong, and never all of it. */
const char *settings_nearest(const char *name, const char *(*each)(const void *of, size_t i),
			     const void *of)
{
	const char *nearest = NULL;
	size_t best = strlen(name) / 3 + 2;

	if (strlen(name) > NAME_MAX_)
		return NULL;
	for (size_t i = 0; each(of, i); i++) {
		const char *known = each(of, i);
		size_t d = strlen(known) <= NAME_MAX_ ? distance(name, known) : best;
		if (d < best && d < strlen(known)) {
			best = d;
			nearest = known;
		}
	}
	return nearest;
}

/* The sections that do know the name: it may only stand in the wrong place. NULL where none does. */
static const char *known_elsewhere(struct loader *loader, const char *name)
{
	const char *where = NULL;

	for (size_t i = 0; i < SECTION_COUNT; i++) {
		const struct section_table *table = &settings_sections[i];
		if (!knows(table, name))
			continue;
		where = where ? arena_format(loader->arena, "%s, %s", where, table->where).at
			      : table->where;
	}
	return where;
}

static void refuse_unknown(struct loader *loader, const struct section_table *table,
			   const struct item *item)
{
	const char *nearest = settings_nearest(item->name, each_name, table);
	const char *elsewhere = known_elsewhere(loader, item->name);

	if (elsewhere)
		settings_error(loader, item, "`%s` is no setting of %s, but of %s", item->name,
			       table->where, elsewhere);
	else if (nearest)
		settings_error(loader, item, "`%s` is no setting of %s; did you mean `%s`?",
			       item->name, table->where, nearest);
	else
		settings_error(loader, item, "`%s` is no setting of %s", item->name,
			       table->where);
}

static void read_option(struct loader *loader, const struct section_table *table, size_t i,
			const struct item *group, char *into)
{
	const struct option *option = &table->options[i];
	const struct item *item = item_find(group, option->name);

	if (item && option_set(loader, option, item, into + option->offset))
		return;
	if (!item && group && option_required(option))
		settings_error(loader, group, "%s needs `%s`", table->where, option->name);
	option_fallback(loader, option, into + option->offset);
}

void settings_read(struct loader *loader, enum section section, const struct item *group,
		   void *into)
{
	const struct section_table *table = &settings_sections[section];

	if (group && group->kind != ITEM_GROUP) {
		settings_error(loader, group, "%s must be a group: { … }", table->where);
		group = NULL;
	}
	for (size_t i = 0; i < table->n; i++)
		read_option(loader, table, i, group, into);
	for (size_t i = 0; group && i < group->n; i++)
		if (!knows(table, group->at[i].name))
			refuse_unknown(loader, table, &group->at[i]);
}

const char *settings_differ(enum section section, const void *a, const void *b)
{
	const struct section_table *table = &settings_sections[section];

	for (size_t i = 0; i < table->n; i++) {
		const struct option *option = &table->options[i];
		if (!option_same(option, (const char *)a + option->offset,
				 (const char *)b + option->offset))
			return option->name;
	}
	return NULL;
}
