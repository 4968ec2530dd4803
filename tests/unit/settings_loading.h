/* Settings from texts: each test has a directory of its own, which is gone behind it. */
#pragma once
#include "settings.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char directory[64];
static struct buf said; /* errors and warnings of the last load */
static struct settings *loaded;

static const char *file_path(const char *name)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	return path;
}

static void write_file(const char *name, const char *text)
{
	FILE *file = fopen(file_path(name), "w");

	ck_assert_ptr_nonnull(file);
	fputs(text, file);
	fclose(file);
}

static void begin_loading(void)
{
	strcpy(directory, "/tmp/test_settings.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(directory));
	buf_init(&said, (size_t)1024 * 1024);
}

static void end_loading(void)
{
	char command[128];

	if (loaded)
		settings_release(loaded);
	loaded = NULL;
	buf_fini(&said);
	snprintf(command, sizeof(command), "rm -rf %s", directory);
	ck_assert_int_eq(system(command), 0);
}

/* True where it loaded; `said` is a text then and also where not. */
static bool load_file(const char *path)
{
	if (loaded)
		settings_release(loaded);
	buf_clear(&said);
	loaded = settings_load(path, &said);
	buf_byte(&said, 0);
	return loaded != NULL;
}

static bool load(const char *text)
{
	write_file("a.conf", text);
	return load_file(file_path("a.conf"));
}

/* What most tests do not talk about: an account method and an upstream. */
#define COMMON                                                                                 \
	"accounts = { main = { method = \"header\" header = \"X-Account\" trusted = "          \
	"[\"127.0.0.1\"] } }\n"                                                                \
	"upstreams = { api = { servers = [\"http://127.0.0.1:9000\"] } }\n"
#define GATED(settings)           "idempotency = { operation = \"op\" account = \"main\" " settings " }"
#define ROUTE_OF(match, settings) "{ match = \"" match "\" upstream = \"api\" " settings " }"
/* Line 3 of the file. */
#define ONE_ROUTE(settings)       COMMON "routes = (" ROUTE_OF("POST /a", settings) ")\n"
#define ONE_GATED(settings)       ONE_ROUTE(GATED(settings))

static inline void must_load(const char *text)
{
	ck_assert_msg(load(text), "%s", said.at);
}

static inline void must_load_silently(const char *text)
{
	must_load(text);
	ck_assert_str_eq(said.at, "");
}

/* Fails, with that line among the others; "FILE:LINE: " is to be given as "LINE: ". */
static inline void must_fail(const char *text, const char *line)
{
	char *expected = NULL;

	ck_assert_msg(!load(text), "no error in: %s", text);
	ck_assert_int_gt(asprintf(&expected, "%s:%s", file_path("a.conf"), line), 0);
	ck_assert_msg(strstr(said.at, expected) != NULL, "expected %s\nin: %s", expected,
		      said.at);
	free(expected);
}

static inline void must_warn(const char *text, const char *what)
{
	must_load(text);
	ck_assert_msg(strstr(said.at, "warning: ") && strstr(said.at, what),
		      "expected %s\nin: %s", what, said.at);
}
