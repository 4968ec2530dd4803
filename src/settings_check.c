/*
 * What values must be beyond their types, and what they must be to each other: a contradiction is
 * said at start, by name and line, and not found out by a request. What is odd but works is a
 * warning.
 */
#include "settings_internal.h"

#define OPERATION_MAX 64U

/* A field that may name an account, or be kept. */
static bool valid_field(const char *name)
{
	return settings_free_field(name) &&
	       !http_same_name(span_of(name), SPAN("Idempotency-Key"));
}

static void check_texts(struct loader *loader, const struct item *item,
			const struct texts *texts, bool (*valid)(const char *text),
			const char *what)
{
	for (size_t i = 0; item && i < texts->n; i++) {
		if (!valid(texts->at[i]))
			settings_error(loader, &item->at[i], "\"%s\" is no %s", texts->at[i],
				       what);
		for (size_t j = 0; j < i; j++)
			if (strcmp(texts->at[i], texts->at[j]) == 0)
				settings_error(loader, &item->at[i],
					       "\"%s\" stands there twice", texts->at[i]);
	}
}

static bool any_text(const char *text)
{
	return text[0];
}

static bool valid_host(const char *text)
{
	return http_host_valid(span_of(text));
}

static void check_listen(struct loader *loader, const struct item *item)
{
	const struct texts *listen = &loader->settings->gateway.listen;

	for (size_t i = 0; item && i < listen->n; i++)
		settings_check_listen(loader, &item->at[i], listen->at[i]);
	check_texts(loader, item, listen, any_text, "address");
	if (listen->n == 0)
		settings_error(loader, item, "`listen` is empty");
}

static bool loopback(const char *address)
{
	return strncmp(address, "127.", 4) == 0 || strncmp(address, "[::1]", 5) == 0 ||
	       strncmp(address, "unix:", 5) == 0;
}

static void check_admin(struct loader *loader, const struct item *group)
{
	const struct admin_settings *admin = &loader->settings->admin;
	const struct item *item = item_find(group, "listen");
	const struct texts *listen = &loader->settings->gateway.listen;

	check_texts(loader, item_find(group, "hosts"), &admin->hosts, valid_host, "host");
	if (!admin->listen[0])
		return;
	if (item)
		settings_check_listen(loader, item, admin->listen);
	for (size_t i = 0; i < listen->n; i++)
		if (strcmp(admin->listen, listen->at[i]) == 0)
			settings_error(
				loader, item,
				"clients (`listen`) and operators (`admin.listen`) share "
				"\"%s\"",
				admin->listen);
	if (!loopback(admin->listen) && !admin->tokens_file)
		settings_warning(
			loader, item,
			"\"%s\" can be reached from elsewhere, and there is no `tokens_file`",
			admin->listen);
}

static void check_ledger(struct loader *loader, const struct item *group)
{
	const struct ledger_settings *ledger = &loader->settings->ledger;
	const struct item *conninfo = item_find(group, "conninfo");
	const struct item *maintenance = item_find(group, "maintenance_conninfo");

	if (conninfo)
		settings_check_conninfo(loader, conninfo, ledger->conninfo);
	if (maintenance && ledger->maintenance_conninfo)
		settings_check_conninfo(loader, maintenance, ledger->maintenance_conninfo);
}

void settings_check_gateway(struct loader *loader, const struct item *root)
{
	check_listen(loader, item_find(root, "listen"));
	check_ledger(loader, item_find(root, "ledger"));
	check_admin(loader, item_find(root, "admin"));
	if (loader->settings->n_routes == 0)
		settings_warning(loader, root, "there are no `routes`: every request gets 404");
}

/* A setting of another method would be without effect. */
static void refuse_foreign(struct loader *loader, const struct item *group, const char *name,
			   const char *method)
{
	const struct item *item = item_find(group, name);

	if (item)
		settings_error(loader, item, "`%s` belongs to method = \"%s\"", name, method);
}

static bool everybody(const struct cidrs *ranges)
{
	for (size_t i = 0; i < ranges->n; i++)
		if (ranges->at[i].bits == 0 ||
		    (ranges->at[i].bits == 96 && ranges->at[i].address[10]))
			return true;
	return false;
}

static void check_header_account(struct loader *loader, const struct item *group,
				 const struct account_settings *account)
{
	const struct item *header = item_find(group, "header");
	const struct item *trusted = item_find(group, "trusted");

	refuse_foreign(loader, group, "account", "anonymous");
	if (!header)
		settings_error(loader, group, "method = \"header\" needs `header`");
	else if (account->header && !valid_field(account->header))
		settings_error(loader, header, "\"%s\" cannot be the field of an account",
			       account->header);
	if (!trusted || (account->trusted.n == 0 && !account->trusted.unix_sockets))
		settings_error(loader, trusted ? trusted : group,
			       "method = \"header\" needs `trusted`: nobody would be believed");
	else if (everybody(&account->trusted))
		settings_warning(
			loader, trusted,
			"`trusted` is everybody: any client may say that it is any account");
}

static void check_anonymous_account(struct loader *loader, const struct item *group,
				    const struct account_settings *account)
{
	const struct item *item = item_find(group, "account");
	size_t len = account->account ? strlen(account->account) : 0;

	refuse_foreign(loader, group, "header", "header");
	refuse_foreign(loader, group, "trusted", "header");
	if (!item)
		settings_error(loader, group, "method = \"anonymous\" needs `account`");
	else if (account->account && (len == 0 || len > 255))
		settings_error(loader, item, "`account` must have from 1 to 255 bytes");
}

void settings_check_account(struct loader *loader, const struct item *group,
			    const struct account_settings *account)
{
	if (!item_find(group, "method"))
		return; /* that is missed already */
	switch ((enum account_method)account->method) {
	case ACCOUNT_HEADER:
		check_header_account(loader, group, account);
		break;
	case ACCOUNT_ANONYMOUS:
		check_anonymous_account(loader, group, account);
		break;
	}
}

static void check_within(struct loader *loader, const struct item *group, const char *name,
			 int64_t value, int64_t timeout)
{
	const struct item *item = item_find(group, name);

	if (item && value > timeout)
		settings_warning(loader, item,
				 "`%s` is longer than `timeout`, which ends first", name);
}

void settings_check_upstream(struct loader *loader, const struct item *group,
			     const struct upstream_settings *upstream)
{
	const struct item *ca_file = item_find(item_find(group, "tls"), "ca_file");
	bool tls = false;

	check_within(loader, group, "first_byte_timeout", upstream->first_byte_timeout,
		     upstream->timeout);
	check_within(loader, group, "idle_timeout", upstream->idle_timeout, upstream->timeout);
	for (size_t i = 0; i < upstream->n_servers; i++)
		tls = tls || upstream->server[i].tls;
	if (ca_file && !tls)
		settings_warning(loader, ca_file,
				 "`ca_file` has no effect: no server is https://");
}

static bool valid_operation(const char *name)
{
	size_t len = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-");

	return len > 0 && len <= OPERATION_MAX && !name[len];
}

static void check_lease(struct loader *loader, const struct item *group,
			const struct idempotency_settings *idempotency,
			const struct upstream_settings *upstream)
{
	const struct item *item = item_find(group, "lease");
	int64_t needed =
		upstream->queue_timeout + upstream->connect_timeout + upstream->timeout;
	struct buf text;

	if (!item || idempotency->lease >= needed)
		return;
	buf_init(&text, 64);
	settings_put_measure(&text, needed, UNIT_TIME);
	settings_error(loader, item,
		       "`lease` is shorter than what a forward to `%s` may take "
		       "(queue_timeout + connect_timeout + timeout = %.*s)",
		       upstream->name, (int)text.len, text.at);
	buf_fini(&text);
}

void settings_check_idempotency(struct loader *loader, const struct item *group,
				const struct idempotency_settings *idempotency,
				const struct upstream_settings *upstream)
{
	const struct item *operation = item_find(group, "operation");
	const struct item *tombstone = item_find(group, "tombstone");

	if (operation && idempotency->operation && !valid_operation(idempotency->operation))
		settings_error(loader, operation,
			       "`operation` must have from 1 to 64 of a-z, 0-9, ., _ and -");
	if (idempotency->tombstone < idempotency->retention)
		settings_error(loader, tombstone ? tombstone : item_find(group, "retention"),
			       "`tombstone` is shorter than `retention`");
	if (upstream)
		check_lease(loader, group, idempotency, upstream);
	check_texts(loader, item_find(item_find(group, "response"), "headers"),
		    &idempotency->response.headers, valid_field, "field that may be kept");
}

/* The name of a setting in which two routes of one operation differ; NULL where in none. */
static const char *rules_differ(const struct route *a, const struct route *b)
{
	const struct idempotency_settings *one = a->idempotency, *other = b->idempotency;
	const char *name = settings_differ(SECTION_IDEMPOTENCY, one, other);

	if (a->upstream != b->upstream)
		return "upstream";
	if (!name)
		name = settings_differ(SECTION_KEY, &one->key, &other->key);
	if (!name)
		name = settings_differ(SECTION_REQUEST, &one->request, &other->request);
	if (!name)
		name = settings_differ(SECTION_RESPONSE, &one->response, &other->response);
	if (!name && memcmp(one->outcome_of, other->outcome_of, sizeof(one->outcome_of)) != 0)
		name = "outcome";
	if (!name)
		name = settings_terms_differ(&one->outcome, &other->outcome);
	if (!name)
		name = settings_recovery_differ(&one->recovery, &other->recovery);
	return name;
}

static void check_operation(struct loader *loader, size_t i)
{
	const struct route *routes = loader->settings->routes;

	for (size_t j = 0; j < i; j++) {
		const struct idempotency_settings *one = routes[j].idempotency;
		const char *name = NULL;
		if (!one || !one->operation ||
		    strcmp(one->operation, routes[i].idempotency->operation) != 0)
			continue;
		name = rules_differ(&routes[j], &routes[i]);
		if (name)
			settings_error(loader, loader->routes[i],
				       "operation `%s` has another `%s` here than on line %u",
				       one->operation, name, loader->routes[j]->line);
		return; /* the others were compared with the first already */
	}
}

void settings_check_operations(struct loader *loader)
{
	for (size_t i = 0; i < loader->settings->n_routes; i++) {
		const struct idempotency_settings *one =
			loader->settings->routes[i].idempotency;
		if (one && one->operation)
			check_operation(loader, i);
	}
}
