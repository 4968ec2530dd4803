/*
 * The terms of an operation beyond its plain values: where keys come from and how they go on,
 * what of an answer is kept, and by what an answer is judged beside its status. All places and
 * conditions are compiled here; a request only looks.
 */
#include "settings_internal.h"

#define GROUPS_MAX 32U /* of a list of conditions: each answer is held against all */

static const struct item *list_of(const struct item *group, const char *name, size_t i)
{
	const struct item *item = item_find(group, name);

	return item && i < item->n ? &item->at[i] : item;
}

static bool same_source(const struct source *a, const struct source *b)
{
	if (!a->header.at || !b->header.at)
		return false;
	return http_same_name(a->header, b->header);
}

/* Fields that do not go on as they came, say what a body is, or who asks; and names with a _ are
 * dropped at the door. */
static bool taken(const struct loader *loader, const char *name)
{
	static const char *const names[] = { "Content-Type", "Content-Encoding",
					     "Accept-Encoding", "Via", "Forwarded" };
	static const struct span begins[] = { { "X-Forwarded-", 12 }, { "X-Onceward-", 11 } };
	const struct settings *settings = loader->settings;
	struct span text = span_of(name);

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (http_same_name(text, span_of(names[i])))
			return true;
	for (size_t i = 0; i < ARRAY_LEN(begins); i++)
		if (strncasecmp(name, begins[i].at, begins[i].len) == 0)
			return true;
	for (size_t i = 0; i < settings->n_accounts; i++)
		if (settings->accounts[i].header &&
		    http_same_name(text, span_of(settings->accounts[i].header)))
			return true;
	return strchr(name, '_') != NULL;
}

static void check_source(struct loader *loader, const struct item *at,
			 const struct source *source)
{
	if (source->header.at && taken(loader, source->header.at))
		settings_error(loader, at, "\"%s\" cannot be the field of a key",
			       source->header.at);
}

static void read_sources(struct loader *loader, const struct item *group,
			 struct key_settings *key)
{
	struct source *all = arena_alloc(loader->arena, key->from.n * sizeof(*all));
	struct sources *sources = &key->sources;

	sources->at = all;
	if (key->from.n == 0)
		settings_error(loader, item_find(group, "from"), "`from` is empty");
	for (size_t i = 0; i < key->from.n; i++) {
		const struct item *at = list_of(group, "from", i);
		const struct source *source = settings_source(loader, at, key->from.at[i]);
		bool twice = false;

		if (!source)
			continue;
		check_source(loader, at, source);
		for (size_t j = 0; j < sources->n; j++)
			twice |= same_source(source, &all[j]);
		for (size_t j = 0; j < i; j++)
			twice |= strcmp(key->from.at[i], key->from.at[j]) == 0;
		if (twice)
			settings_error(loader, at, "\"%s\" stands there twice",
				       key->from.at[i]);
		sources->body |= source->body != NULL;
		all[sources->n++] = *source;
	}
}

/* What stands in the body is compared, too, and a retry of a webhook says what number it is. */
static void check_body_source(struct loader *loader, const struct item *group,
			      const struct idempotency_settings *idempotency)
{
	const struct request_settings *request = &idempotency->request;
	const struct item *from = item_find(item_find(group, "key"), "from");

	if (!idempotency->key.sources.body)
		return;
	if (!request->only.n && !request->ignore.n)
		settings_error(loader, from,
			       "a key from the body needs `request.only` or `request.ignore`: "
			       "say what of the body is the same in each retry");
	if (request->body != CANONICAL_AUTO && request->body != CANONICAL_JSON)
		settings_error(loader, from,
			       "a key from the body is read of JSON, and `request.body` is "
			       "something else");
}

static void read_forward(struct loader *loader, const struct item *group,
			 struct key_settings *key)
{
	static const char *const words[] = { [KEY_FORWARD_CLIENT] = "client",
					     [KEY_FORWARD_DERIVED] = "derived",
					     [KEY_FORWARD_NONE] = "none" };
	const struct item *at = item_find(group, "forward");

	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		if (strcmp(key->forward, words[i]) == 0) {
			key->forward_how = (enum key_forward)i;
			return;
		}
	key->forward_how = KEY_FORWARD_NAMED;
	if (strncmp(key->forward, "header:", 7) == 0 && settings_free_field(key->forward + 7) &&
	    !taken(loader, key->forward + 7))
		key->forward_name = span_of(key->forward + 7);
	else
		settings_error(loader, at,
			       "`forward` must be \"client\", \"derived\", \"none\" or "
			       "\"header:NAME\", a field that is free for it");
}

/* A field by which requests are compared goes on as it came, and is not the key. */
static void check_compared(struct loader *loader, const struct item *group,
			   const struct idempotency_settings *idempotency)
{
	const struct item *counts = item_find(item_find(group, "request"), "headers");
	const struct key_settings *key = &idempotency->key;

	for (size_t j = 0; j < idempotency->request.headers.n; j++) {
		const char *name = idempotency->request.headers.at[j];
		bool is_key = http_same_name(key->forward_name, span_of(name));

		for (size_t i = 0; i < key->sources.n; i++)
			is_key |= http_same_name(key->sources.at[i].header, span_of(name));
		if (is_key)
			settings_error(loader, counts,
				       "`headers`: \"%s\" is the key itself, and cannot count",
				       name);
	}
}

static void read_key(struct loader *loader, const struct item *group,
		     struct idempotency_settings *idempotency)
{
	const struct item *key = item_find(group, "key");

	read_sources(loader, key, &idempotency->key);
	read_forward(loader, key, &idempotency->key);
	check_body_source(loader, group, idempotency);
	check_compared(loader, group, idempotency);
}

static void read_fields(struct loader *loader, const struct item *group,
			struct response_settings *response)
{
	struct canonical_rules *rules = canonical_rules_new(loader->arena, CANONICAL_EXACT);
	const struct texts *fields = &response->fields;

	if (fields->n == 0)
		return;
	if (fields->n > CANONICAL_POINTERS_MAX)
		settings_error(loader, item_find(group, "fields"),
			       "`fields` has more than %u pointers", CANONICAL_POINTERS_MAX);
	if (response->body == RESPONSE_OMIT)
		settings_error(loader, item_find(group, "fields"),
			       "`fields` has no effect where body = \"omit\"");
	for (size_t i = 0; i < fields->n && i < CANONICAL_POINTERS_MAX; i++) {
		const char *why = canonical_rules_only(rules, span_of(fields->at[i]));
		if (why)
			settings_error(loader, list_of(group, "fields", i),
				       "`fields`: \"%s\" %s", fields->at[i], why);
	}
	response->kept = rules;
}

static void read_response(struct loader *loader, const struct item *group,
			  struct response_settings *response)
{
	const struct item *unique = item_find(group, "receipt_unique");

	read_fields(loader, group, response);
	if (response->receipt)
		response->receipt_at =
			settings_source(loader, item_find(group, "receipt"), response->receipt);
	else if (response->receipt_unique)
		settings_error(loader, unique, "`receipt_unique` needs `receipt`");
}

void settings_condition(struct loader *loader, const struct item *group,
			struct condition *condition)
{
	condition->place =
		settings_pointer(loader, item_find(group, "pointer"), condition->pointer);
}

/* The groups of a list, or one alone; what is neither is said. */
static struct item groups_of(struct loader *loader, const struct item *item, bool alone)
{
	if (!item)
		return (struct item){ .n = 0 };
	if (alone && item->kind == ITEM_GROUP)
		return (struct item){ .at = item, .n = 1 };
	if (item->kind == ITEM_LIST && item->n <= GROUPS_MAX)
		return *item;
	settings_error(loader, item, "`%s` must be %sa list of at most %u groups: ( { … } )",
		       item->name, alone ? "a group: { … }, or " : "", GROUPS_MAX);
	return (struct item){ .n = 0 };
}

static void read_release_if(struct loader *loader, const struct item *group,
			    struct outcome_settings *outcome)
{
	const struct item list = groups_of(loader, item_find(group, "release_if"), true);
	struct release_if *all = arena_zero(loader->arena, list.n * sizeof(*all));

	for (size_t i = 0; i < list.n; i++) {
		const struct item *one = &list.at[i];

		settings_read(loader, SECTION_RELEASE_IF, one, &all[i]);
		if (item_find(one, "status") && all[i].status < 200)
			settings_error(loader, item_find(one, "status"),
				       "`status` must be from 200 to 599");
		if (all[i].header && !settings_free_field(all[i].header))
			settings_error(loader, item_find(one, "header"),
				       "\"%s\" is no name of a header field that can prove "
				       "anything",
				       all[i].header);
	}
	outcome->release_if = all;
	outcome->n_release_if = list.n;
}

static void read_when(struct loader *loader, const struct item *group,
		      struct outcome_settings *outcome)
{
	const struct item list = groups_of(loader, item_find(group, "when"), false);
	struct when *all = arena_zero(loader->arena, list.n * sizeof(*all));

	for (size_t i = 0; i < list.n; i++) {
		settings_read(loader, SECTION_WHEN, &list.at[i], &all[i]);
		settings_condition(loader, &list.at[i], &all[i].condition);
	}
	outcome->when = all;
	outcome->n_when = list.n;
}

void settings_terms(struct loader *loader, const struct item *group,
		    struct idempotency_settings *idempotency)
{
	const struct item *outcome = item_find(group, "outcome");

	read_key(loader, group, idempotency);
	read_response(loader, item_find(group, "response"), &idempotency->response);
	read_release_if(loader, outcome, &idempotency->outcome);
	read_when(loader, outcome, &idempotency->outcome);
	if (idempotency->outcome.receipt_required && !idempotency->response.receipt)
		settings_error(loader, item_find(outcome, "receipt_required"),
			       "`receipt_required` needs `response.receipt`");
}

const char *settings_terms_differ(const struct outcome_settings *a,
				  const struct outcome_settings *b)
{
	if (a->receipt_required != b->receipt_required)
		return "receipt_required";
	if (a->n_release_if != b->n_release_if)
		return "release_if";
	if (a->n_when != b->n_when)
		return "when";
	for (size_t i = 0; i < a->n_release_if; i++)
		if (settings_differ(SECTION_RELEASE_IF, &a->release_if[i], &b->release_if[i]))
			return "release_if";
	for (size_t i = 0; i < a->n_when; i++)
		if (settings_differ(SECTION_WHEN, &a->when[i], &b->when[i]))
			return "when";
	return NULL;
}
