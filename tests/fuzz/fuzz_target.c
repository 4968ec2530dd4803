/*
 * Fuzzes http_target and what else judges single strings of a request. The first byte says
 * whether the path is loose; the rest is the target. What was admitted must be normal, must
 * hold nothing that the contract refuses, and must be its own normal form.
 */
#include "http.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static bool holds(struct span text, const char *what)
{
	return text.len && memmem(text.at, text.len, what, strlen(what));
}

static bool ends(struct span text, const char *with)
{
	size_t len = strlen(with);

	return text.len >= len && memcmp(text.at + text.len - len, with, len) == 0;
}

static void check_strict(struct span path)
{
	static const char *const never[] = { "//", "/./", "/../", "%2F", "%5C", "%00" };

	for (size_t i = 0; i < ARRAY_LEN(never); i++)
		assert(!holds(path, never[i]));
	assert(!ends(path, "/.") && !ends(path, "/.."));
}

static void check_normal(struct span path)
{
	assert(path.len && (path.at[0] == '/' || span_equal(path, SPAN("*"))));
	for (size_t i = 0; i < path.len; i++) {
		assert(path.at[i] > ' ' && path.at[i] < 0x7f);
		assert(!strchr("\\#?", path.at[i]));
		if (path.at[i] != '%')
			continue;
		assert(path.len - i >= 3);
		assert(http_is(path.at[i + 1], HTTP_HEX) && path.at[i + 1] < 'a');
		assert(http_is(path.at[i + 2], HTTP_HEX) && path.at[i + 2] < 'a');
	}
}

static void check_target(struct arena *arena, struct span target, bool loose)
{
	struct http_target first, again;

	if (!http_target(arena, target, loose, &first)) {
		assert(loose || !http_target(arena, target, true, &again) ||
		       !http_target(arena, again.path, false, &again));
		return;
	}
	check_normal(first.path);
	if (!loose)
		check_strict(first.path);
	assert(http_target(arena, first.path, loose, &again));
	assert(span_equal(again.path, first.path) && again.path.at == first.path.at);
	assert(first.has_query == (memchr(target.at, '?', target.len) != NULL));
	assert(!first.authority.len || http_host_valid(first.authority));
}

static void check_text(struct span text)
{
	struct http_field field = { text, text };
	struct http_fields fields = { &field, 1 };
	struct span media = http_media_type(text);

	assert(!http_token(text) || http_field_value(text));
	assert(media.len <= text.len && !holds(media, ";"));
	assert(!http_host_valid(text) || (text.len && http_field_value(text)));
	assert(http_find(&fields, text, NULL) == &field);
	(void)http_hop_by_hop(&fields, text);
	(void)http_list_has(&fields, text, media);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	struct arena *arena = arena_new();
	struct span text = { (const char *)bytes + 1, len ? len - 1 : 0 };

	if (text.len) {
		check_target(arena, text, bytes[0] & 1);
		check_text(text);
	}
	arena_free(arena);
	return 0;
}
