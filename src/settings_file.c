/*
 * The door to libconfig: a file, and what it includes, becomes a tree of items that know where
 * they stand. Everything behind this door is the loader's arena's.
 *
 * libconfig 1.5 has habits that a server cannot live with, so the text is looked through first:
 * it ends the process where an @include names a directory (flex's fatal error), it cuts integers
 * to 32 bits, and it ends the file at a quote or comment that is never closed, without a word.
 * Its @include takes paths relative to the process's directory unless told; here they are
 * relative to the main file's.
 *
 * That look also makes the fingerprint: of every text with its name, in the order of reading.
 */
#include "settings_internal.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <libconfig.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES_MAX    ((size_t)4 * 1024 * 1024)
#define INCLUDE_DEPTH_MAX 10U /* libconfig's own */

const struct item *item_find(const struct item *group, const char *name)
{
	for (size_t i = 0; group && group->kind == ITEM_GROUP && i < group->n; i++)
		if (strcmp(group->at[i].name, name) == 0)
			return &group->at[i];
	return NULL;
}

/* The directory part, "." where there is none. */
static const char *directory(struct arena *arena, const char *file)
{
	const char *slash = strrchr(file, '/');

	if (!slash)
		return ".";
	return arena_copy(arena,
			  (struct span){ file, slash == file ? 1 : (size_t)(slash - file) })
		.at;
}

/* libconfig names an included file as it was written; people want to open it. */
static const char *path_beside(struct loader *loader, const char *file)
{
	const char *dir = directory(loader->arena, loader->file);
	size_t len = strlen(dir);

	if (file[0] == '/' || strcmp(dir, ".") == 0 || strcmp(file, loader->file) == 0)
		return arena_copy(loader->arena, span_of(file)).at;
	if (strncmp(file, dir, len) == 0 && file[len] == '/')
		return arena_copy(loader->arena, span_of(file)).at;
	return arena_format(loader->arena, "%s/%s", dir, file).at;
}

struct scanner {
	struct loader *loader;
	struct item place; /* where an error would be */
	const char *at;
	unsigned depth;
	bool ok;
};

static bool open_failed(struct scanner *s, const struct item *place, const char *why)
{
	settings_error(s->loader, place, "cannot be read: %s", why);
	return false;
}

/* Reads a regular file whole, as text with a NUL behind it. */
static bool slurp(struct scanner *s, const char *file, struct buf *text)
{
	struct stat st;
	const struct item place = { .file = file };
	int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t n = 1;

	if (fd < 0)
		return open_failed(s, &place, strerror(errno));
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) ||
	    (size_t)st.st_size >= FILE_BYTES_MAX) {
		close(fd);
		return open_failed(s, &place, "it is not a file, or too large");
	}
	while (n > 0 && !text->full) {
		char *at = buf_reserve(text, 4096);
		n = at ? read(fd, at, 4096) : 0;
		text->len += n > 0 ? (size_t)n : 0;
	}
	close(fd);
	if (n < 0 || text->full)
		return open_failed(s, &place, n < 0 ? strerror(errno) : "it is too large");
	if (memchr(text->at ? text->at : "", 0, text->len))
		return open_failed(s, &place, "it holds a NUL byte");
	buf_byte(text, 0);
	return true;
}

/* libconfig would take the rest of the file for it, and say nothing. */
static void unclosed(struct scanner *s, unsigned line, const char *what)
{
	s->place.line = line;
	settings_error(s->loader, &s->place, "%s", what);
	s->ok = false;
}

static void scan_comment(struct scanner *s)
{
	const char *end = NULL;

	if (*s->at == '#' || s->at[1] == '/') {
		s->at += strcspn(s->at, "\n");
		return;
	}
	end = strstr(s->at + 2, "*/");
	if (!end)
		unclosed(s, s->place.line, "the comment that begins here has no end");
	end = end ? end + 2 : s->at + strlen(s->at);
	for (; s->at < end; s->at++)
		s->place.line += *s->at == '\n';
}

static void scan_string(struct scanner *s)
{
	unsigned line = s->place.line;

	for (s->at++; *s->at && *s->at != '"'; s->at++) {
		if (*s->at == '\\' && s->at[1])
			s->at++;
		s->place.line += *s->at == '\n';
	}
	if (!*s->at)
		unclosed(s, line, "the text that begins here has no closing quote");
	else
		s->at++;
}

static size_t word_length(const char *at)
{
	size_t len = 0;

	while (isalnum((unsigned char)at[len]) || (at[len] && strchr("_-*.", at[len])))
		len++;
	return len;
}

static void scan_number(struct scanner *s)
{
	size_t len = word_length(s->at), digits = strspn(s->at, "0123456789");
	bool hex = s->at[0] == '0' && (s->at[1] == 'x' || s->at[1] == 'X');
	bool wide = digits < len && s->at[digits] == 'L';
	int64_t value = digits > 18 ? INT64_MAX : strtoll(s->at, NULL, 10);
	bool whole = hex || wide || digits == len;

	if (whole && (hex ? len > 9 : value == INT64_MAX || (!wide && value > INT32_MAX))) {
		settings_error(s->loader, &s->place, "the number %.*s is too large", (int)len,
			       s->at);
		s->ok = false;
	}
	s->at += len;
}

static void scan_include(struct scanner *s)
{
	const char *from = NULL, *file = NULL;

	s->at += strlen("@include");
	s->at += strspn(s->at, " \t");
	if (*s->at != '"')
		return; /* libconfig says it */
	from = s->at + 1;
	scan_string(s);
	if (!s->ok)
		return;
	file = arena_copy(s->loader->arena, (struct span){ from, (size_t)(s->at - 1 - from) })
		       .at;
	if (file[0] == '/') {
		settings_error(s->loader, &s->place,
			       "@include \"%s\": name it relative to the directory of %s", file,
			       s->loader->file);
		s->ok = false;
	} else if (!settings_scan(s->loader, path_beside(s->loader, file), s->depth + 1)) {
		settings_error(s->loader, &s->place, "includes %s", file);
		s->ok = false;
		s->at = ""; /* a file that includes itself twice would be looked at 1024 times */
	}
}

static void scan_token(struct scanner *s)
{
	char c = *s->at;

	if (c == '#' || (c == '/' && (s->at[1] == '/' || s->at[1] == '*')))
		scan_comment(s);
	else if (c == '"')
		scan_string(s);
	else if (strncmp(s->at, "@include", strlen("@include")) == 0)
		scan_include(s);
	else if (isdigit((unsigned char)c))
		scan_number(s);
	else if (isalpha((unsigned char)c) || c == '_' || c == '*')
		s->at += word_length(s->at);
	else
		s->place.line += *s->at++ == '\n';
}

/* Its name counts as it is beside the main file: where both lie says nothing. */
static void hash_file(struct loader *loader, const char *file, struct span text)
{
	const char *dir = directory(loader->arena, loader->file);
	size_t len = strlen(dir);

	if (strncmp(file, dir, len) == 0 && file[len] == '/')
		file += len + 1;
	hash_add_span(loader->hash, span_of(file));
	hash_add_span(loader->hash, text);
}

bool settings_scan(struct loader *loader, const char *file, unsigned depth)
{
	struct scanner s = { .loader = loader,
			     .place = { .file = file, .line = 1 },
			     .depth = depth };
	struct buf text;

	if (depth > INCLUDE_DEPTH_MAX) {
		settings_error(loader, &s.place, "includes are nested too deep");
		return false;
	}
	buf_init(&text, FILE_BYTES_MAX + 4096 + 1);
	s.ok = slurp(&s, file, &text);
	s.at = s.ok ? text.at : "";
	hash_file(loader, file, span_of(s.at));
	while (*s.at)
		scan_token(&s);
	buf_fini(&text);
	return s.ok;
}

static enum item_kind kind_of(const config_setting_t *setting)
{
	switch (config_setting_type(setting)) {
	case CONFIG_TYPE_GROUP:
		return ITEM_GROUP;
	case CONFIG_TYPE_ARRAY:
	case CONFIG_TYPE_LIST:
		return ITEM_LIST;
	case CONFIG_TYPE_INT:
	case CONFIG_TYPE_INT64:
		return ITEM_NUMBER;
	case CONFIG_TYPE_FLOAT:
		return ITEM_FRACTION;
	case CONFIG_TYPE_BOOL:
		return ITEM_FLAG;
	default:
		return ITEM_TEXT;
	}
}

static const char *copied(struct loader *loader, const char *text)
{
	return text ? arena_copy(loader->arena, span_of(text)).at : NULL;
}

static int64_t number_of(const config_setting_t *setting)
{
	if (config_setting_type(setting) == CONFIG_TYPE_BOOL)
		return config_setting_get_bool(setting);
	if (config_setting_type(setting) == CONFIG_TYPE_INT64)
		return config_setting_get_int64(setting);
	return config_setting_get_int(setting);
}

static void copy_item(struct loader *loader, const config_setting_t *setting, struct item *item)
{
	const char *file = config_setting_source_file(setting);
	struct item *children = NULL;
	int n = config_setting_is_aggregate(setting) ? config_setting_length(setting) : 0;

	*item = (struct item){ .kind = kind_of(setting),
			       .name = copied(loader, config_setting_name(setting)),
			       .file = path_beside(loader, file ? file : loader->file),
			       .line = config_setting_source_line(setting),
			       .n = (size_t)n };
	if (item->kind == ITEM_TEXT)
		item->text = copied(loader, config_setting_get_string(setting));
	if (item->kind == ITEM_NUMBER || item->kind == ITEM_FLAG)
		item->number = number_of(setting);
	children = arena_zero(loader->arena, (size_t)n * sizeof(*children));
	for (int i = 0; i < n; i++)
		copy_item(loader, config_setting_get_elem(setting, (unsigned)i), &children[i]);
	item->at = children;
}

static void not_well_formed(struct loader *loader, const config_t *config)
{
	const char *file = config_error_file(config);
	struct item place = { .file = path_beside(loader, file ? file : loader->file),
			      .line = (unsigned)config_error_line(config) };

	settings_error(loader, &place, "%s", config_error_text(config));
}

static bool look_through(struct loader *loader)
{
	unsigned char whole[DIGEST_BYTES];
	bool ok = false;

	loader->hash = hash_new();
	ok = settings_scan(loader, loader->file, 0);
	hash_end(loader->hash, whole);
	hash_free(loader->hash);
	loader->hash = NULL;
	memcpy(loader->settings->fingerprint, whole, sizeof(loader->settings->fingerprint));
	return ok;
}

const struct item *settings_file(struct loader *loader)
{
	config_t config;
	struct item *root = NULL;

	if (!look_through(loader))
		return NULL;
	config_init(&config);
	config_set_include_dir(&config, directory(loader->arena, loader->file));
	if (config_read_file(&config, loader->file)) {
		root = arena_zero(loader->arena, sizeof(*root));
		copy_item(loader, config_root_setting(&config), root);
	} else {
		not_well_formed(loader, &config);
	}
	config_destroy(&config);
	return root;
}
