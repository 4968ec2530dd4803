/*
 * Loading: the file's tree becomes a struct settings, section by section, and goes on after an
 * error so that one run tells all. What is derived (servers, outcomes, leases, identities) is
 * worked out here, once, so that a request only looks things up.
 *
 * Settings live in an arena of their own and are never changed again. Whoever keeps them holds
 * them; the last one to let go frees them, on whatever thread that is.
 */
#include "settings.h"

#include "metrics.h"
#include "settings_internal.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#define LEASE_MARGIN_MS 15000
#define SENTENCE_MAX    1024

struct settings_count {
	atomic_uint holders;
	struct arena *arena;
};

static void say(struct loader *loader, const struct item *at, const char *severity,
		const char *sentence)
{
	if (at && at->line > 0)
		buf_format(loader->errors, "%s:%u: %s%s\n", at->file, at->line, severity,
			   sentence);
	else
		buf_format(loader->errors, "%s: %s%s\n", at ? at->file : loader->file, severity,
			   sentence);
}

void settings_error(struct loader *loader, const struct item *at, const char *format, ...)
{
	char sentence[SENTENCE_MAX];
	va_list args;

	va_start(args, format);
	vsnprintf(sentence, sizeof(sentence), format, args);
	va_end(args);
	say(loader, at, "", sentence);
	loader->failed = true;
}

void settings_warning(struct loader *loader, const struct item *at, const char *format, ...)
{
	char sentence[SENTENCE_MAX];
	va_list args;

	va_start(args, format);
	vsnprintf(sentence, sizeof(sentence), format, args);
	va_end(args);
	say(loader, at, "warning: ", sentence);
}

/* The number of groups in a group or list of that name; 0 and an error where it is something else. */
static const struct item *collection(struct loader *loader, const struct item *root,
				     const char *name, enum item_kind kind,
				     const char *expected)
{
	static const struct item none = { .n = 0 };
	const struct item *item = item_find(root, name);

	if (!item)
		return &none;
	if (item->kind == kind)
		return item;
	settings_error(loader, item, "`%s` must be %s", name, expected);
	return &none;
}

static void read_accounts(struct loader *loader, const struct item *root)
{
	struct settings *settings = loader->settings;
	const struct item *groups = collection(loader, root, "accounts", ITEM_GROUP,
					       "a group of groups: { NAME = { … } }");

	settings->accounts = arena_zero(loader->arena, groups->n * sizeof(*settings->accounts));
	settings->n_accounts = groups->n;
	for (size_t i = 0; i < groups->n; i++) {
		struct account_settings *account = &settings->accounts[i];
		account->name = groups->at[i].name;
		settings_read(loader, SECTION_ACCOUNT, &groups->at[i], account);
		settings_check_account(loader, &groups->at[i], account);
	}
}

static void read_upstreams(struct loader *loader, const struct item *root)
{
	struct settings *settings = loader->settings;
	const struct item *groups = collection(loader, root, "upstreams", ITEM_GROUP,
					       "a group of groups: { NAME = { … } }");

	settings->upstreams =
		arena_zero(loader->arena, groups->n * sizeof(*settings->upstreams));
	settings->n_upstreams = groups->n;
	for (size_t i = 0; i < groups->n; i++) {
		const struct item *group = &groups->at[i];
		struct upstream_settings *upstream = &settings->upstreams[i];
		upstream->name = group->name;
		settings_read(loader, SECTION_UPSTREAM, group, upstream);
		settings_read(loader, SECTION_TLS, item_find(group, "tls"), &upstream->tls);
		settings_servers(loader, group, upstream);
		settings_check_upstream(loader, group, upstream);
	}
}

static void derive(struct loader *loader, const struct item *group,
		   struct idempotency_settings *idempotency,
		   const struct upstream_settings *upstream)
{
	settings_outcome(loader, item_find(group, "outcome"), idempotency);
	settings_request(loader, item_find(group, "request"), idempotency);
	settings_terms(loader, group, idempotency);
	settings_recovery(loader, group, idempotency, upstream);
	if (idempotency->lease < 0 && upstream)
		idempotency->lease = upstream->queue_timeout + upstream->connect_timeout +
				     upstream->timeout + LEASE_MARGIN_MS;
}

static struct idempotency_settings *read_idempotency(struct loader *loader,
						     const struct item *group,
						     const struct upstream_settings *upstream)
{
	struct idempotency_settings *idempotency =
		arena_zero(loader->arena, sizeof(*idempotency));

	settings_read(loader, SECTION_IDEMPOTENCY, group, idempotency);
	settings_read(loader, SECTION_KEY, item_find(group, "key"), &idempotency->key);
	settings_read(loader, SECTION_REQUEST, item_find(group, "request"),
		      &idempotency->request);
	settings_read(loader, SECTION_RESPONSE, item_find(group, "response"),
		      &idempotency->response);
	settings_read(loader, SECTION_OUTCOME, item_find(group, "outcome"),
		      &idempotency->outcome);
	settings_read(loader, SECTION_RECOVERY, item_find(group, "recovery"),
		      &idempotency->recovery);
	derive(loader, group, idempotency, upstream);
	settings_check_idempotency(loader, group, idempotency, upstream);
	return idempotency;
}

static void read_route(struct loader *loader, size_t i)
{
	const struct item *group = loader->routes[i];
	const struct item *match = item_find(group, "match");
	const struct item *gate = item_find(group, "idempotency");
	struct route *route = &loader->settings->routes[i];
	struct idempotency_settings *idempotency = NULL;

	settings_read(loader, SECTION_ROUTE, group, route);
	if (match && route->match && !settings_pattern(loader, match, route))
		route->match = NULL;
	if (!gate)
		return;
	idempotency = read_idempotency(loader, gate, route->upstream);
	if (route->account && idempotency->account && route->account != idempotency->account)
		settings_error(loader, item_find(group, "account"),
			       "`account` is another than that of `idempotency`");
	loader->idempotency[i] = idempotency;
	route->idempotency = idempotency;
	route->account = idempotency->account;
}

static void read_routes(struct loader *loader, const struct item *root)
{
	struct settings *settings = loader->settings;
	const struct item *groups = collection(loader, root, "routes", ITEM_LIST,
					       "a list of groups: ( { … }, { … } )");

	settings->routes = arena_zero(loader->arena, groups->n * sizeof(*settings->routes));
	settings->n_routes = groups->n;
	loader->routes = arena_zero(loader->arena, groups->n * sizeof(const struct item *));
	loader->idempotency =
		arena_zero(loader->arena, groups->n * sizeof(struct idempotency_settings *));
	for (size_t i = 0; i < groups->n; i++) {
		loader->routes[i] = &groups->at[i];
		read_route(loader, i);
	}
}

/* The file is read with the settings: a reload takes up its new keys, and an exchange keeps those
 * it began with. */
static void read_digest_keys(struct loader *loader, const struct item *ledger)
{
	struct settings *settings = loader->settings;
	char why[256];

	if (settings->ledger.digest_keys &&
	    !digest_keys_load(loader->arena, settings->ledger.digest_keys,
			      &settings->digest_keys, why))
		settings_error(loader, item_find(ledger, "digest_keys"), "`digest_keys`: %s",
			       why);
}

static void read_root(struct loader *loader, const struct item *root)
{
	struct settings *settings = loader->settings;

	settings_read(loader, SECTION_GATEWAY, root, &settings->gateway);
	settings_read(loader, SECTION_LIMITS, item_find(root, "limits"), &settings->limits);
	settings_read(loader, SECTION_LOG, item_find(root, "log"), &settings->log);
	settings_read(loader, SECTION_LEDGER, item_find(root, "ledger"), &settings->ledger);
	read_digest_keys(loader, item_find(root, "ledger"));
	settings_read(loader, SECTION_ADMIN, item_find(root, "admin"), &settings->admin);
	read_accounts(loader, root);
	read_upstreams(loader, root);
	read_routes(loader, root);
	settings_check_gateway(loader, root);
	settings_check_operations(loader);
}

/* What only makes sense for a file without errors. */
static void finish(struct loader *loader)
{
	const struct settings *settings = loader->settings;

	settings_check_routes(loader);
	for (size_t i = 0; i < settings->n_routes; i++) {
		struct idempotency_settings *one = loader->idempotency[i];
		if (!one)
			continue;
		one->metrics_operation = metrics_operation(one->operation);
		settings_identity(loader, one);
	}
}

struct settings *settings_load(const char *file, struct buf *errors)
{
	struct arena *arena = arena_new();
	struct settings *settings = arena_zero(arena, sizeof(*settings));
	struct loader loader = { .settings = settings,
				 .arena = arena,
				 .errors = errors,
				 .file = arena_copy(arena, span_of(file)).at };
	const struct item *root = settings_file(&loader);

	settings->file = loader.file;
	settings->count = arena_zero(arena, sizeof(*settings->count));
	settings->count->arena = arena;
	atomic_init(&settings->count->holders, 1);
	if (root)
		read_root(&loader, root);
	if (!loader.failed)
		finish(&loader);
	if (!loader.failed)
		return settings;
	arena_free(arena);
	return NULL;
}

void settings_hold(const struct settings *settings)
{
	atomic_fetch_add_explicit(&settings->count->holders, 1, memory_order_relaxed);
}

void settings_release(const struct settings *settings)
{
	struct settings_count *count = settings->count;

	if (atomic_fetch_sub_explicit(&count->holders, 1, memory_order_acq_rel) == 1)
		arena_free(count->arena);
}

void settings_release_deferred(void *settings)
{
	settings_release(settings);
}

const char *settings_needs_restart(const struct settings *old, const struct settings *new)
{
	const struct gateway_settings *before = &old->gateway, *after = &new->gateway;
	bool same_listen = before->listen.n == after->listen.n;

	for (size_t i = 0; same_listen && i < before->listen.n; i++)
		same_listen = strcmp(before->listen.at[i], after->listen.at[i]) == 0;
	if (!same_listen)
		return "`listen` changed: that takes a restart";
	if (before->workers != after->workers)
		return "`workers` changed: that takes a restart";
	if (settings_differ(SECTION_LEDGER, &old->ledger, &new->ledger))
		return "`ledger` changed: that takes a restart";
	if (strcmp(old->admin.listen, new->admin.listen) != 0)
		return "`admin.listen` changed: that takes a restart";
	return NULL;
}
