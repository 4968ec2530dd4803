/*
 * Fuzzes route patterns and what they match. The input is a pattern, a line feed and a path. A
 * pattern that was admitted can be written again and is then the same; what http_target admits as
 * a path takes the route if and only if a plain second way of matching says so; and a pattern
 * takes the path that it is itself, with its {} filled in.
 */
#include "settings_internal.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static bool parse(struct loader *loader, struct span pattern, struct route *route)
{
	const struct item at = { .file = "fuzz", .line = 1 };

	*route = (struct route){ .match = arena_copy(loader->arena, pattern).at };
	return settings_pattern(loader, &at, route);
}

static bool takes(struct arena *arena, struct route *route, struct span path)
{
	struct settings settings = { .routes = route, .n_routes = 1 };
	struct http_request request = { .arena = arena, .method = SPAN("POST"), .path = path };
	const struct route *found = NULL;
	struct span allow = { 0 };
	enum route_found how = settings_route(&settings, &request, &found, &allow);

	assert(how != ROUTE_FOUND || found == route);
	assert(how != ROUTE_OTHER_METHOD || (route->methods.n > 0 && allow.len > 0));
	return how != ROUTE_NONE;
}

/* The slow way: the path is cut into segments first. */
static bool takes_slowly(const struct route *route, struct span path)
{
	size_t n = 0, from = 1;

	if (route->n_segments == 0 && route->rest)
		return true;
	if (path.len == 0 || path.at[0] != '/')
		return false;
	while (from <= path.len) {
		const char *slash = memchr(path.at + from, '/', path.len - from);
		size_t end = slash ? (size_t)(slash - path.at) : path.len;
		struct span is = { path.at + from, end - from };
		if (n >= route->n_segments)
			return route->rest;
		if (route->segments[n].text ? !span_equal(is, span_of(route->segments[n].text))
					    : is.len == 0)
			return false;
		n++;
		from = end + 1;
	}
	return n == route->n_segments && !route->rest;
}

static void check_own_path(struct arena *arena, struct route *route)
{
	struct buf path;

	buf_init(&path, (size_t)64 * 1024);
	for (size_t i = 0; i < route->n_segments; i++)
		buf_format(&path, "/%s",
			   route->segments[i].text ? route->segments[i].text : "x");
	buf_text(&path, route->rest ? "/" : "");
	assert(takes(arena, route, buf_view(&path)));
	buf_fini(&path);
}

/* Written again, with a name for each {}, it is the same. */
static void check_written(struct loader *loader, const struct route *route)
{
	struct buf once, named, twice;
	struct route again;

	buf_init(&once, (size_t)64 * 1024);
	buf_init(&named, (size_t)64 * 1024);
	buf_init(&twice, (size_t)64 * 1024);
	settings_put_pattern(&once, route);
	for (size_t i = 0; i < once.len; i++) {
		buf_byte(&named, once.at[i]);
		if (once.at[i] == '{')
			buf_byte(&named, 'n');
	}
	if (named.len <= 1024) { /* normal escapes are no longer, but names may be */
		bool ok = parse(loader, buf_view(&named), &again);
		assert(ok);
		settings_put_pattern(&twice, &again);
		assert(span_equal(buf_view(&once), buf_view(&twice)));
	}
	buf_fini(&once);
	buf_fini(&named);
	buf_fini(&twice);
}

static void try_route(struct loader *loader, struct route *route, struct span path)
{
	struct http_target target = { 0 };

	check_own_path(loader->arena, route);
	check_written(loader, route);
	if (http_target(loader->arena, path, route->loose_paths, &target))
		assert(takes(loader->arena, route, target.path) ==
		       takes_slowly(route, target.path));
	(void)takes(loader->arena, route, path); /* whatever it is: no harm */
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	struct span input = { (const char *)bytes, len };
	const char *line = len ? memchr(bytes, '\n', len) : NULL;
	size_t cut = line ? (size_t)(line - input.at) : len;
	struct span path = { input.at + cut + (line ? 1 : 0), len - cut - (line ? 1 : 0) };
	struct arena *arena = arena_new();
	struct buf errors;
	struct loader loader = { .arena = arena, .errors = &errors, .file = "fuzz" };
	struct route route;

	buf_init(&errors, 4096);
	if (parse(&loader, (struct span){ input.at, cut }, &route))
		try_route(&loader, &route, path);
	else
		assert(errors.len > 0);
	buf_fini(&errors);
	arena_free(arena);
	return 0;
}
