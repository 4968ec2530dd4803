/*
 * What becomes of an unknown result (CONTRACT 7). A setting of another contract than the route's is
 * refused: it would promise what is not done. And what a contract cannot do without is demanded.
 *
 * The file with the headers of a lookup is read with the settings: a reload takes up its new
 * credentials.
 */
#include "secret_file.h"
#include "settings_internal.h"

#include <stdio.h>

#define HEADERS_FILE_MAX  ((size_t)16 * 1024)
#define HEADERS_MAX       16U
#define MARK_TEXT_MAX     ((size_t)1024 * 1024)
#define LOOKUP_MARK_BYTES 8U

static const char *const contracts[] = { [RECOVERY_HOLD] = "hold",
					 [RECOVERY_RESEND] = "resend",
					 [RECOVERY_LOOKUP] = "lookup",
					 [RECOVERY_AT_LEAST_ONCE] = "at_least_once" };

/* Which contract a setting belongs to. What is not here is every contract's. */
static const struct {
	const char *name;
	enum recovery_contract contract;
} owned[] = {
	{ "resend_window", RECOVERY_RESEND },   { "max_attempts", RECOVERY_RESEND },
	{ "resend_store", RECOVERY_RESEND },    { "lookup_path", RECOVERY_LOOKUP },
	{ "headers_file", RECOVERY_LOOKUP },    { "found", RECOVERY_LOOKUP },
	{ "found_when", RECOVERY_LOOKUP },      { "found_status", RECOVERY_LOOKUP },
	{ "found_location", RECOVERY_LOOKUP },  { "found_receipt", RECOVERY_LOOKUP },
	{ "pending_when", RECOVERY_LOOKUP },    { "not_found", RECOVERY_LOOKUP },
	{ "not_found_after", RECOVERY_LOOKUP },
};

static void refuse_others(struct loader *loader, const struct item *group,
			  const struct recovery_settings *recovery)
{
	for (size_t i = 0; i < ARRAY_LEN(owned); i++) {
		const struct item *item = item_find(group, owned[i].name);

		if (item && (int)owned[i].contract != recovery->contract)
			settings_error(loader, item, "`%s` belongs to contract = \"%s\"",
				       owned[i].name, contracts[owned[i].contract]);
	}
}

static void check_resend(struct loader *loader, const struct item *group,
			 const struct idempotency_settings *idempotency)
{
	const struct item *recovery = item_find(group, "recovery");
	const struct item *contract = item_find(recovery, "contract");
	const struct item *forward = item_find(item_find(group, "key"), "forward");
	const struct item *tombstone = item_find(group, "tombstone");
	const struct item *window = item_find(recovery, "resend_window");

	if (!forward)
		settings_error(loader, contract,
			       "contract = \"resend\" needs `key.forward` written out: "
			       "\"client\" where the upstream tells credentials apart, "
			       "or \"derived\"");
	else if (idempotency->key.forward_how == KEY_FORWARD_NONE)
		settings_error(loader, forward,
			       "contract = \"resend\" with forward = \"none\": the upstream "
			       "would not know the key again");
	if (idempotency->tombstone <= idempotency->recovery.resend_window)
		settings_error(loader, tombstone ? tombstone : (window ? window : contract),
			       "`tombstone` must be longer than `resend_window`");
}

/* Each placeholder of the path; false: something between braces is none, and that was said. */
static bool check_placeholders(struct loader *loader, const struct item *at, const char *path,
			       bool *refers)
{
	static const char *const known[] = { "{key}", "{logical_request_id}", "{attempt_id}",
					     "{account}" };

	for (path = strpbrk(path, "{}"); path; path = strpbrk(path, "{}")) {
		size_t i = 0;

		while (i < ARRAY_LEN(known) && strncmp(path, known[i], strlen(known[i])) != 0)
			i++;
		if (i == ARRAY_LEN(known)) {
			settings_error(loader, at,
				       "`lookup_path`: \"%s\": there is {key}, {account}, "
				       "{logical_request_id} and {attempt_id}",
				       path);
			return false;
		}
		*refers |= i < ARRAY_LEN(known) - 1; /* an account has many records */
		path += strlen(known[i]);
	}
	return true;
}

static bool valid_target(const char *path)
{
	for (const char *at = path; *at; at++)
		if (!http_is(*at, HTTP_PATH | HTTP_QUERY) && !strchr("{}%?", *at))
			return false;
	return path[0] == '/' && path[1] != '/' && strlen(path) < 2048;
}

static void check_lookup(struct loader *loader, const struct item *group,
			 const struct recovery_settings *recovery)
{
	const struct item *path = item_find(group, "lookup_path");
	bool found = item_find(group, "found") != NULL;
	bool refers = false;

	if (!path)
		settings_error(loader, item_find(group, "contract"),
			       "contract = \"lookup\" needs `lookup_path`");
	else if (recovery->lookup_path && !valid_target(recovery->lookup_path))
		settings_error(loader, path,
			       "`lookup_path`: \"%s\" is no path: it begins with one /, and "
			       "holds no space and no #",
			       recovery->lookup_path);
	else if (recovery->lookup_path &&
		 check_placeholders(loader, path, recovery->lookup_path, &refers) && !refers)
		settings_error(loader, path,
			       "`lookup_path` needs {key}, {logical_request_id} or "
			       "{attempt_id}: else it is the same for all");
	for (unsigned status = 200; status < 600; status++)
		if (recovery->found_of[status] && recovery->not_found_of[status]) {
			settings_error(loader, item_find(group, found ? "found" : "not_found"),
				       "%u stands in `found` and in `not_found`", status);
			break;
		}
}

/* "Name: value"; false where it is none. An empty line and one that begins with # are nothing. */
static bool read_header(struct arena *arena, struct span line, struct http_fields *headers)
{
	const char *colon = memchr(line.at, ':', line.len);
	struct span name = { line.at, colon ? (size_t)(colon - line.at) : 0 };
	struct span value = { line.at + name.len + 1, line.len - name.len - 1 };

	if (!colon || !http_token(name))
		return false;
	while (value.len && strchr(" \t", value.at[0])) {
		value.at++;
		value.len--;
	}
	while (value.len && strchr(" \t\r", value.at[value.len - 1]))
		value.len--;
	if (!http_field_value(value) || headers->n == HEADERS_MAX)
		return false;
	http_add(headers, arena_copy(arena, name), value);
	return true;
}

static void wipe(void *text)
{
	struct buf *buf = text;

	explicit_bzero(buf->at, buf->len);
	buf_fini(buf);
}

static void read_headers(struct loader *loader, const struct item *at,
			 struct recovery_settings *recovery)
{
	struct buf *text = arena_zero(loader->arena, sizeof(*text));
	struct span rest = { NULL, 0 };
	char why[256];

	buf_init(text, HEADERS_FILE_MAX);
	buf_reserve(text, HEADERS_FILE_MAX); /* in one piece, so that one place is wiped */
	arena_defer(loader->arena, wipe, text);
	recovery->headers.at =
		arena_alloc(loader->arena, HEADERS_MAX * sizeof(struct http_field));
	if (!secret_file_read(recovery->headers_file, text, why)) {
		settings_error(loader, at, "`headers_file`: %s", why);
		return;
	}
	rest = buf_view(text);
	for (unsigned line = 1; rest.len; line++) {
		struct span one = secret_file_line(&rest);

		if (one.len == 0 || one.at[0] == '#' || one.at[0] == '\r')
			continue;
		if (!read_header(loader->arena, one, &recovery->headers))
			settings_error(loader, at,
				       "`headers_file`: line %u of %s is no \"NAME: VALUE\", "
				       "or there are more than %u",
				       line, recovery->headers_file, HEADERS_MAX);
	}
}

static unsigned result_status(const struct idempotency_settings *idempotency)
{
	unsigned status = 200;

	if (idempotency->recovery.found_status)
		return (unsigned)idempotency->recovery.found_status;
	while (status < 300 && idempotency->outcome_of[status] != OUTCOME_STORE)
		status++;
	return status < 300 ? status : 200;
}

/* A condition is a group that may be absent. */
static void read_condition(struct loader *loader, const struct item *group,
			   struct condition *condition)
{
	settings_read(loader, SECTION_CONDITION, group, condition);
	settings_condition(loader, group, condition);
}

static void read_found(struct loader *loader, const struct item *group,
		       struct idempotency_settings *idempotency)
{
	struct recovery_settings *recovery = &idempotency->recovery;
	const struct item *status = item_find(group, "found_status");

	read_condition(loader, item_find(group, "found_when"), &recovery->found_when);
	read_condition(loader, item_find(group, "pending_when"), &recovery->pending_when);
	settings_statuses(loader, item_find(group, "found"), &recovery->found,
			  recovery->found_of);
	settings_statuses(loader, item_find(group, "not_found"), &recovery->not_found,
			  recovery->not_found_of);
	recovery->location_at = settings_pointer(loader, item_find(group, "found_location"),
						 recovery->found_location);
	recovery->receipt_at = settings_pointer(loader, item_find(group, "found_receipt"),
						recovery->found_receipt);
	if (recovery->found_status && recovery->found_status < 200)
		settings_error(loader, status, "`found_status` must be from 200 to 599, or 0");
	recovery->result_status = result_status(idempotency);
}

/* An upstream that knows a key again knows it as it was spelt, in the field in which it was. */
static void read_sent(struct loader *loader, struct idempotency_settings *idempotency)
{
	const struct key_settings *key = &idempotency->key;
	struct span *sent = arena_alloc(loader->arena, key->sources.n * sizeof(*sent));
	struct digest_rules *rules = &idempotency->rules;

	rules->sent = sent;
	if (key->forward_how != KEY_FORWARD_CLIENT && key->forward_how != KEY_FORWARD_NAMED)
		return;
	for (size_t i = 0; i < key->sources.n; i++)
		if (key->sources.at[i].header.at)
			sent[rules->n_sent++] = key->sources.at[i].header;
}

/* What an upstream has never been told it does not find either: "not found" says something only of
 * what was sent to be asked for in this way, there. */
static void read_mark(struct loader *loader, struct idempotency_settings *idempotency,
		      const struct upstream_settings *upstream)
{
	struct hash *hash = hash_new();
	unsigned char whole[32];
	struct buf text;

	buf_init(&text, MARK_TEXT_MAX);
	buf_format(&text, "%s\n%s\n", idempotency->recovery.lookup_path,
		   idempotency->key.forward);
	for (size_t i = 0; i < upstream->servers.n; i++)
		buf_format(&text, "%s\n", upstream->servers.at[i]);
	hash_add(hash, text.at, text.len);
	hash_end(hash, whole);
	hash_free(hash);
	buf_fini(&text);
	idempotency->recovery.lookup_mark = arena_copy(
		loader->arena, (struct span){ (const char *)whole, LOOKUP_MARK_BYTES });
}

void settings_recovery(struct loader *loader, const struct item *group,
		       struct idempotency_settings *idempotency,
		       const struct upstream_settings *upstream)
{
	struct recovery_settings *recovery = &idempotency->recovery;
	const struct item *inner = item_find(group, "recovery");

	read_found(loader, inner, idempotency);
	settings_statuses(loader, item_find(inner, "resend_store"), &recovery->resend_store,
			  recovery->resend_store_of);
	if (recovery->headers_file)
		read_headers(loader, item_find(inner, "headers_file"), recovery);
	refuse_others(loader, inner, recovery);
	if (recovery->contract == RECOVERY_RESEND) {
		read_sent(loader, idempotency);
		check_resend(loader, group, idempotency);
	}
	if (recovery->contract != RECOVERY_LOOKUP)
		return;
	check_lookup(loader, inner, recovery);
	if (upstream && recovery->lookup_path)
		read_mark(loader, idempotency, upstream);
}

const char *settings_recovery_differ(const struct recovery_settings *a,
				     const struct recovery_settings *b)
{
	const char *name = settings_differ(SECTION_RECOVERY, a, b);

	if (!name && settings_differ(SECTION_CONDITION, &a->found_when, &b->found_when))
		name = "found_when";
	if (!name && settings_differ(SECTION_CONDITION, &a->pending_when, &b->pending_when))
		name = "pending_when";
	return name;
}
