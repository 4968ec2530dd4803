/*
 * What makes an operation what it is (CONTRACT 9): its name, the paths that lead to it, how an
 * account is told, where the key comes from and how a record's key is made of them. Where one of
 * these changes, old records would be looked for under the wrong name, or not found; the ledger
 * holds the hash and stops the operation until somebody says that it is meant.
 *
 * What only decides which requests are refused (who is trusted, a key's syntax) is not in it.
 */
#include "settings_internal.h"

#include <assert.h>
#include <ctype.h>
#include <stdlib.h>

#define PATTERN_MAX                                                                            \
	((size_t)8 * 1024) /* a match has 1 KiB, an escape is no longer than its source */
#define IDENTITY_MAX ((size_t)4 * 1024 * 1024)

static int by_text(const void *a, const void *b)
{
	const char *const *one = a, *const *other = b;

	return strcmp(*one, *other);
}

/* The patterns of an operation's routes, sorted. */
static void put_patterns(struct loader *loader, const char *operation, struct buf *text)
{
	const struct settings *settings = loader->settings;
	const char **patterns =
		arena_alloc(loader->arena, settings->n_routes * sizeof(*patterns));
	size_t n = 0;

	for (size_t i = 0; i < settings->n_routes; i++) {
		const struct route *route = &settings->routes[i];
		struct buf pattern;
		if (!route->idempotency ||
		    strcmp(route->idempotency->operation, operation) != 0)
			continue;
		buf_init(&pattern, PATTERN_MAX);
		settings_put_pattern(&pattern, route);
		patterns[n++] = arena_copy(loader->arena, buf_view(&pattern)).at;
		buf_fini(&pattern);
	}
	qsort(patterns, n, sizeof(*patterns), by_text);
	for (size_t i = 0; i < n; i++)
		if (i == 0 || strcmp(patterns[i], patterns[i - 1]) != 0)
			buf_format(text, "match %s\n", patterns[i]);
}

/* Header names compare without case. */
static void put_lower(struct buf *text, const char *name)
{
	for (; *name; name++)
		buf_byte(text, (char)tolower((unsigned char)*name));
}

static void put_account(struct buf *text, const struct account_settings *account)
{
	switch ((enum account_method)account->method) {
	case ACCOUNT_HEADER:
		buf_text(text, "account header ");
		put_lower(text, account->header);
		break;
	case ACCOUNT_ANONYMOUS:
		buf_format(text, "account anonymous %s", account->account);
		break;
	}
}

/* Where the key comes from and as what it goes on. The text of what was always so stays what it
 * was: the ledger knows it. */
static void put_key(struct buf *text, const struct key_settings *key)
{
	buf_text(text, "\nkey ");
	for (size_t i = 0; i < key->sources.n; i++) {
		const struct source *source = &key->sources.at[i];

		buf_text(text, i ? ", " : "");
		if (source->body)
			buf_text(text, key->from.at[i]);
		else if (http_same_name(source->header, SPAN("Idempotency-Key")))
			buf_text(text, "header:Idempotency-Key");
		else
			put_lower(text, key->from.at[i]);
	}
	if (key->forward_how != KEY_FORWARD_CLIENT) {
		buf_text(text, "\nforwarded ");
		put_lower(text, key->forward);
	}
	buf_text(text, "\nrecord account, operation, key\n");
}

void settings_identity(struct loader *loader, struct idempotency_settings *idempotency)
{
	struct hash *hash = hash_new();
	struct buf text;

	buf_init(&text, IDENTITY_MAX);
	buf_format(&text, "operation %s\n", idempotency->operation);
	put_patterns(loader, idempotency->operation, &text);
	put_account(&text, idempotency->account);
	put_key(&text, &idempotency->key);
	assert(!text.full);
	hash_add(hash, text.at, text.len);
	hash_end(hash, idempotency->identity);
	hash_free(hash);
	idempotency->identity_text = arena_copy(loader->arena, buf_view(&text)).at;
	buf_fini(&text);
}
