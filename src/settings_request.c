/*
 * The rules by which requests are compared, from `request`: pointers, defaults, header fields and
 * parameters become what the digest works with. A rule that cannot hold, or that would have no
 * effect, is said here; and so is a header field that differs from one retry to the next, which
 * would make of each retry another request.
 */
#include "canonical_rules.h"
#include "settings_internal.h"

#include <stdlib.h>

/* A text of a list, and where it stands. */
struct listed {
	struct span text;
	const struct item *at;
};

static int by_text(const void *a, const void *b)
{
	const struct listed *one = a, *other = b;
	size_t n = one->text.len < other->text.len ? one->text.len : other->text.len;
	int order = n ? memcmp(one->text.at, other->text.at, n) : 0;

	if (order)
		return order;
	return (one->text.len > other->text.len) - (one->text.len < other->text.len);
}

/* Sorted, so that the order in the file is no rule; what stands there twice is said. */
static void sort_listed(struct loader *loader, struct listed *all, size_t n)
{
	if (n < 2)
		return;
	qsort(all, n, sizeof(*all), by_text);
	for (size_t i = 1; i < n; i++)
		if (span_equal(all[i].text, all[i - 1].text))
			settings_error(loader, all[i].at, "\"%.*s\" stands there twice",
				       (int)all[i].text.len, all[i].text.at);
}

static struct listed *listed_of(struct loader *loader, const struct texts *texts,
				const struct item *item)
{
	struct listed *all = arena_alloc(loader->arena, texts->n * sizeof(*all));

	for (size_t i = 0; i < texts->n; i++)
		all[i] = (struct listed){ span_of(texts->at[i]), item ? &item->at[i] : NULL };
	return all;
}

static const struct span *texts_of(struct loader *loader, const struct listed *all, size_t n)
{
	struct span *texts = arena_alloc(loader->arena, n * sizeof(*texts));

	for (size_t i = 0; i < n; i++)
		texts[i] = all[i].text;
	return texts;
}

static bool begins(struct span name, const char *with)
{
	size_t len = strlen(with);

	return name.len >= len && http_same_name((struct span){ name.at, len }, span_of(with));
}

/* Fields that no two tries of one request need to have in common, and why. */
static const struct refused {
	const char *name; /* all that begin so, where it ends with - */
	const char *why;
} refused[] = {
	{ "Authorization", "is a credential: a retry may come with a fresh one" },
	{ "Proxy-Authorization", "is a credential: a retry may come with a fresh one" },
	{ "Cookie", "is a credential: a retry may come with a fresh one" },
	{ "Idempotency-Key", "is the key itself" },
	{ "Content-Length", "says how the message is framed" },
	{ "Expect", "says how the message is framed" },
	{ "Date", "differs from one retry to the next" },
	{ "Traceparent", "differs from one retry to the next" },
	{ "Tracestate", "differs from one retry to the next" },
	{ "Baggage", "differs from one retry to the next" },
	{ "b3", "differs from one retry to the next" },
	{ "X-B3-", "differs from one retry to the next" },
	{ "X-Amzn-Trace-Id", "differs from one retry to the next" },
	{ "X-Cloud-Trace-Context", "differs from one retry to the next" },
	{ "Uber-Trace-Id", "differs from one retry to the next" },
	{ "Sentry-Trace", "differs from one retry to the next" },
	{ "X-Datadog-", "differs from one retry to the next" },
	{ "X-Request-Id", "differs from one retry to the next" },
	{ "X-Correlation-Id", "differs from one retry to the next" },
	{ "Via", "differs from one way here to the next" },
	{ "Forwarded", "differs from one way here to the next" },
	{ "X-Forwarded-", "differs from one way here to the next" },
};

static const char *why_refused(struct span name)
{
	const struct http_fields none = { 0 };

	if (!http_token(name))
		return "is no name of a header field";
	for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
		const char *other = refused[i].name;
		bool prefix = other[strlen(other) - 1] == '-';

		if (prefix ? begins(name, other) : http_same_name(name, span_of(other)))
			return refused[i].why;
	}
	return http_hop_by_hop(&none, name) ? "is for one connection only" : NULL;
}

static struct span lower(struct arena *arena, struct span name)
{
	char *out = arena_alloc(arena, name.len + 1);

	for (size_t i = 0; i < name.len; i++) {
		char c = name.at[i];

		out[i] = (char)(c >= 'A' && c <= 'Z' ? c | 0x20 : c);
	}
	return (struct span){ out, name.len };
}

static void read_headers(struct loader *loader, const struct item *group,
			 struct idempotency_settings *idempotency)
{
	const struct texts *headers = &idempotency->request.headers;
	struct listed *all = listed_of(loader, headers, item_find(group, "headers"));

	for (size_t i = 0; i < headers->n; i++) {
		const char *why = why_refused(all[i].text);

		if (why)
			settings_error(loader, all[i].at,
				       "`headers`: \"%s\" %s, and cannot count", headers->at[i],
				       why);
		all[i].text = lower(loader->arena, all[i].text);
	}
	sort_listed(loader, all, headers->n);
	idempotency->rules.headers = texts_of(loader, all, headers->n);
	idempotency->rules.n_headers = headers->n;
}

static bool valid_parameter(struct span name)
{
	for (size_t i = 0; i < name.len; i++)
		if (!http_is(name.at[i], HTTP_QUERY) || name.at[i] == '&' || name.at[i] == '=')
			return false;
	return name.len > 0;
}

static void read_query(struct loader *loader, const struct item *group,
		       struct idempotency_settings *idempotency)
{
	const struct texts *query = &idempotency->request.query;
	struct listed *all = listed_of(loader, query, item_find(group, "query"));

	if (query->n == 1 && strcmp(query->at[0], "*") == 0)
		return;
	for (size_t i = 0; i < query->n; i++) {
		if (strcmp(query->at[i], "*") == 0)
			settings_error(loader, all[i].at,
				       "`query`: \"*\" is every parameter, and stands alone");
		else if (!valid_parameter(all[i].text))
			settings_error(loader, all[i].at,
				       "`query`: \"%s\" is no name of a parameter; "
				       "what is not plain ASCII is written as %%XX",
				       query->at[i]);
		all[i].text = digest_parameter_name(loader->arena, all[i].text);
	}
	sort_listed(loader, all, query->n);
	idempotency->rules.query_listed = true;
	idempotency->rules.query = texts_of(loader, all, query->n);
	idempotency->rules.n_query = query->n;
}

/* Forms have fields, and nothing in them. */
static bool fits_form(struct loader *loader, const struct listed *pointer, int body)
{
	if ((body != CANONICAL_FORM && body != CANONICAL_MULTIPART) || !pointer->text.len ||
	    !memchr(pointer->text.at + 1, '/', pointer->text.len - 1))
		return true;
	settings_error(loader, pointer->at,
		       "\"%s\" has more than one step, and a form has only fields: /NAME",
		       pointer->text.at);
	return false;
}

static void read_pointers(struct loader *loader, const struct item *group, const char *name,
			  const struct idempotency_settings *idempotency,
			  struct canonical_rules *rules)
{
	bool ignore = strcmp(name, "ignore") == 0;
	const struct request_settings *request = &idempotency->request;
	const struct texts *texts = ignore ? &request->ignore : &request->only;
	const struct item *item = item_find(group, name);
	struct listed *all = listed_of(loader, texts, item);

	if (texts->n > CANONICAL_POINTERS_MAX)
		settings_error(loader, item, "`%s` has more than %u pointers", name,
			       CANONICAL_POINTERS_MAX);
	sort_listed(loader, all, texts->n);
	for (size_t i = 0; i < texts->n && i < CANONICAL_POINTERS_MAX; i++) {
		const char *why = NULL;

		if (fits_form(loader, &all[i], request->body))
			why = ignore ? canonical_rules_ignore(rules, all[i].text)
				     : canonical_rules_only(rules, all[i].text);
		if (why)
			settings_error(loader, all[i].at, "`%s`: \"%s\" %s", name,
				       all[i].text.at, why);
	}
}

static void read_defaults(struct loader *loader, const struct item *item, const char *json,
			  struct canonical_rules *rules)
{
	struct canonical_error error;

	if (!canonical_rules_defaults(rules, span_of(json), &error))
		settings_error(loader, item,
			       "`defaults` must be a JSON object in quotes: at byte %zu %s was "
			       "expected",
			       error.offset, error.expected);
}

/* True: it was said that a rule of the body would have no effect. */
static bool without_effect(struct loader *loader, const struct item *group, int body)
{
	static const struct {
		const char *name;
		int body; /* for which there is none */
		const char *word;
	} pairs[] = {
		{ "ignore", CANONICAL_RAW, "raw" },
		{ "only", CANONICAL_RAW, "raw" },
		{ "defaults", CANONICAL_RAW, "raw" },
		{ "numbers", CANONICAL_RAW, "raw" },
		{ "numbers", CANONICAL_FORM, "form" },
		{ "numbers", CANONICAL_MULTIPART, "multipart" },
		{ "defaults", CANONICAL_MULTIPART, "multipart" },
	};
	bool found = false;

	for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
		const struct item *item = item_find(group, pairs[i].name);

		if (!item || pairs[i].body != body)
			continue;
		settings_error(loader, item, "`%s` has no effect where body = \"%s\"",
			       pairs[i].name, pairs[i].word);
		found = true;
	}
	return found;
}

static void read_members(struct loader *loader, const struct item *group,
			 struct idempotency_settings *idempotency)
{
	const struct request_settings *request = &idempotency->request;
	struct canonical_rules *rules = NULL;

	if (without_effect(loader, group, request->body) ||
	    (!request->ignore.n && !request->only.n && !request->defaults))
		return;
	rules = canonical_rules_new(loader->arena, (enum canonical_numbers)request->numbers);
	read_pointers(loader, group, "ignore", idempotency, rules);
	read_pointers(loader, group, "only", idempotency, rules);
	if (request->defaults)
		read_defaults(loader, item_find(group, "defaults"), request->defaults, rules);
	idempotency->rules.members = rules;
}

void settings_request(struct loader *loader, const struct item *group,
		      struct idempotency_settings *idempotency)
{
	const struct request_settings *request = &idempotency->request;

	idempotency->rules = (struct digest_rules){
		.version = (unsigned)request->version,
		.body = (enum canonical_body)request->body,
		.numbers = (enum canonical_numbers)request->numbers,
		.decoded_max = (size_t)request->max_body,
	};
	read_headers(loader, group, idempotency);
	read_query(loader, group, idempotency);
	read_members(loader, group, idempotency);
	idempotency->rules.id = digest_rules_id(&idempotency->rules);
}
