/* What the tests of the admin listener's answers share: a request, what it is asked of, tokens. */
#pragma once
#include "admin.h"

#include "digest.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static struct arena *arena;
static struct settings settings;
static struct admin_view view;
static struct admin_check given[ADMIN_CHECKS];
static struct http_field fields[8];
static struct http_request request;
static struct admin_tokens *tokens;
static char file[64];

static inline void ready(void *arg, struct admin_check checks[ADMIN_CHECKS])
{
	ck_assert_ptr_eq(arg, &given);
	memcpy(checks, given, sizeof(given));
}

static inline void setup(void)
{
	static const char *const names[] = { "ledger", "durable", "keys", "days_left",
					     "routes" };
	int fd = -1;

	arena = arena_new();
	settings = (struct settings){ .admin = { .listen = "127.0.0.1:9180" } };
	view = (struct admin_view){ .settings = &settings, .ready = ready, .arg = &given };
	for (size_t i = 0; i < ADMIN_CHECKS; i++)
		given[i] =
			(struct admin_check){ .name = names[i], .ok = true, .detail = "fine" };
	request = (struct http_request){ .arena = arena,
					 .method = SPAN("GET"),
					 .host = SPAN("127.0.0.1:9180"),
					 .fields = { .at = fields } };
	tokens = NULL;
	snprintf(file, sizeof(file), "/tmp/test_admin.XXXXXX");
	fd = mkstemp(file);
	ck_assert_int_ge(fd, 0);
	close(fd);
}

static inline void teardown(void)
{
	unlink(file);
	admin_tokens_free(tokens);
	arena_free(arena);
}

static inline struct http_answer ask(const char *method, const char *path)
{
	request.method = span_of(method);
	request.path = request.target = span_of(path);
	return admin_answer(&request, &view, tokens);
}

static inline unsigned status_for_host(const char *host)
{
	request.host = span_of(host);
	return ask("GET", "/healthz").status;
}

static inline bool has(const struct http_answer *answer, const char *name, const char *value)
{
	const struct http_field *field = http_find(&answer->fields, span_of(name), NULL);

	return field && span_equal(field->value, span_of(value));
}

static inline bool says(const struct http_answer *answer, const char *text)
{
	return memmem(answer->body.at, answer->body.len, text, strlen(text)) != NULL;
}

static inline void write_file(const char *text)
{
	FILE *out = fopen(file, "w");

	ck_assert_ptr_nonnull(out);
	ck_assert_int_ge(fputs(text, out), 0);
	ck_assert_int_eq(fclose(out), 0);
}

static inline const char *hex_of(const char *token)
{
	static char hex[65];
	unsigned char bytes[32];
	struct hash *hash = hash_new();

	hash_add(hash, token, strlen(token));
	hash_end(hash, bytes);
	hash_free(hash);
	for (size_t i = 0; i < sizeof(bytes); i++)
		snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
	return hex;
}

/* A file with one line, whose %s is the hash of "secret". */
static inline void load(const char *format)
{
	char why[256];

	write_file(arena_format(arena, "# who\n\n\tann  viewer %s %s\r\n", hex_of("secret"),
				format)
			   .at);
	settings.admin.tokens_file = file;
	tokens = admin_tokens_load(file, why);
	ck_assert_msg(tokens != NULL, "%s", why);
}

static inline unsigned status_with(const char *authorization)
{
	request.fields.n = 0;
	http_add(&request.fields, SPAN("Authorization"), span_of(authorization));
	return ask("GET", "/metrics").status;
}
