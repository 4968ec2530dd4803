/*
 * Routes: what a pattern means, which one a request takes, and which of them stand in each
 * other's way. A pattern is a list of segments; so is a path, cut where it is looked at, so that
 * finding a route allocates nothing. All routes are looked at in turn: a few hundred of them
 * compare a few bytes each.
 */
#include "settings_internal.h"

#include <stdlib.h>

#define METHODS_MAX 32U
#define MATCH_MAX   1024U

static bool refuse(struct loader *loader, const struct item *at, const char *why)
{
	settings_error(loader, at, "`match`: %s; write \"METHOD[,METHOD...] /path\"", why);
	return false;
}

static int by_text(const void *a, const void *b)
{
	const char *const *one = a, *const *other = b;

	return strcmp(*one, *other);
}

static bool valid_method(struct span method)
{
	for (size_t i = 0; i < method.len; i++)
		if ((method.at[i] >= 'a' && method.at[i] <= 'z') || method.at[i] == '*')
			return false;
	return http_token(method);
}

static bool has_method(const char *const *methods, size_t n, struct span method)
{
	for (size_t i = 0; i < n; i++)
		if (span_equal(span_of(methods[i]), method))
			return true;
	return false;
}

/* "POST,PUT" or "*". */
static bool parse_methods(struct loader *loader, const struct item *at, struct span text,
			  struct route *route)
{
	const char *found[METHODS_MAX], **methods = NULL;
	size_t n = 0;

	if (span_equal(text, SPAN("*")))
		return true;
	for (size_t from = 0; from <= text.len; n++) {
		const char *comma = memchr(text.at + from, ',', text.len - from);
		size_t end = comma ? (size_t)(comma - text.at) : text.len;
		struct span method = { text.at + from, end - from };
		if (n == METHODS_MAX || !valid_method(method))
			return refuse(loader, at, "a method is a word in capitals, or *");
		if (has_method(found, n, method))
			return refuse(loader, at, "a method stands there twice");
		found[n] = arena_copy(loader->arena, method).at;
		from = end + 1;
	}
	methods = arena_alloc(loader->arena, n * sizeof(*methods));
	memcpy(methods, found, n * sizeof(*methods));
	qsort(methods, n, sizeof(*methods), by_text);
	route->methods = (struct texts){ methods, n };
	return true;
}

/* {name}: letters, digits and _. */
static bool valid_name(struct span segment)
{
	if (segment.len < 3 || segment.at[0] != '{' || segment.at[segment.len - 1] != '}')
		return false;
	for (size_t i = 1; i < segment.len - 1; i++) {
		char c = segment.at[i];
		bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
		if (!letter && !(c >= '0' && c <= '9') && c != '_')
			return false;
	}
	return true;
}

/* A literal segment is compared with normalised paths: it is normalised too. */
static bool parse_segment(struct loader *loader, const struct item *at, struct span text,
			  struct route *route)
{
	struct route_segment *segment = &route->segments[route->n_segments];
	struct http_target target = { 0 };
	struct span path = { 0 };

	if (memchr(text.at, '{', text.len) || memchr(text.at, '}', text.len)) {
		route->n_segments++;
		return valid_name(text) || refuse(loader, at, "{name} must fill its segment");
	}
	if (memchr(text.at, '*', text.len))
		return refuse(loader, at, "* stands for the rest, as the last segment");
	path = arena_format(loader->arena, "/%.*s", (int)text.len, text.at);
	if (!http_target(loader->arena, path, route->loose_paths, &target) || target.has_query)
		return refuse(loader, at, "this is no path that a request may have");
	segment->len = target.path.len - 1;
	segment->text =
		arena_copy(loader->arena, (struct span){ target.path.at + 1, segment->len }).at;
	route->n_segments++;
	return true;
}

static bool parse_path(struct loader *loader, const struct item *at, struct span text,
		       struct route *route)
{
	size_t from = 1;

	if (text.len == 0 || text.at[0] != '/')
		return refuse(loader, at, "the path must begin with /");
	if (text.len >= 2 && text.at[text.len - 1] == '*' && text.at[text.len - 2] == '/') {
		route->rest = true;
		text.len -= 2;
	}
	route->segments = arena_zero(loader->arena, SEGMENTS_MAX * sizeof(*route->segments));
	while (from <= text.len) {
		const char *slash = memchr(text.at + from, '/', text.len - from);
		size_t end = slash ? (size_t)(slash - text.at) : text.len;
		struct span segment = { text.at + from, end - from };
		if (route->n_segments == SEGMENTS_MAX)
			return refuse(loader, at, "the path has too many segments");
		if (segment.len == 0 && (slash || route->rest) && !route->loose_paths)
			return refuse(loader, at, "// is for routes with loose_paths");
		if (!parse_segment(loader, at, segment, route))
			return false;
		from = end + 1;
	}
	return true;
}

bool settings_pattern(struct loader *loader, const struct item *at, struct route *route)
{
	struct span match = span_of(route->match);
	const char *space = match.at ? memchr(match.at, ' ', match.len) : NULL;
	size_t methods = space ? (size_t)(space - match.at) : 0;
	size_t path = methods;

	if (!space || methods == 0 || match.len > MATCH_MAX)
		return refuse(loader, at, "it is a method, a space and a path");
	while (path < match.len && match.at[path] == ' ')
		path++;
	return parse_methods(loader, at, (struct span){ match.at, methods }, route) &&
	       parse_path(loader, at, (struct span){ match.at + path, match.len - path },
			  route);
}

static bool takes_method(const struct route *route, struct span method)
{
	return route->methods.n == 0 || has_method(route->methods.at, route->methods.n, method);
}

/* `path` begins with a slash: {name} takes a segment that is not empty. */
static bool takes_path(const struct route *route, struct span path)
{
	const char *at = path.at, *end = path.at + path.len;

	if (route->rest && route->n_segments == 0)
		return true; /* also what is no path: * */
	if (path.len == 0 || *at != '/')
		return false;
	for (size_t i = 0; i < route->n_segments; i++) {
		const struct route_segment *segment = &route->segments[i];
		const char *slash = NULL;
		size_t len = 0;
		if (at == end)
			return false;
		at++;
		slash = memchr(at, '/', (size_t)(end - at));
		len = (size_t)((slash ? slash : end) - at);
		if (segment->text ? len != segment->len || memcmp(at, segment->text, len) != 0
				  : len == 0)
			return false;
		at += len;
	}
	return route->rest ? at < end : at == end;
}

/* The methods of all routes that know the path: the Allow field's value. */
static struct span allowed(const struct settings *settings, struct arena *arena,
			   struct span path)
{
	const char **methods = NULL;
	struct span value = { "", 0 };
	size_t n = 0;

	for (size_t i = 0; i < settings->n_routes; i++)
		n += settings->routes[i].methods.n;
	methods = arena_alloc(arena, n * sizeof(*methods));
	n = 0;
	for (size_t i = 0; i < settings->n_routes; i++) {
		const struct route *route = &settings->routes[i];
		for (size_t j = 0; takes_path(route, path) && j < route->methods.n; j++)
			methods[n++] = route->methods.at[j];
	}
	qsort(methods, n, sizeof(*methods), by_text);
	for (size_t i = 0; i < n; i++)
		if (i == 0 || strcmp(methods[i], methods[i - 1]) != 0)
			value = arena_format(arena, "%s%s%s", value.at, i ? ", " : "",
					     methods[i]);
	return value;
}

enum route_found settings_route(const struct settings *settings,
				const struct http_request *request, const struct route **route,
				struct span *allow)
{
	bool known = false;

	for (size_t i = 0; i < settings->n_routes; i++) {
		if (!takes_path(&settings->routes[i], request->path))
			continue;
		known = true;
		if (takes_method(&settings->routes[i], request->method)) {
			*route = &settings->routes[i];
			return ROUTE_FOUND;
		}
	}
	if (!known)
		return ROUTE_NONE;
	*allow = allowed(settings, request->arena, request->path);
	return ROUTE_OTHER_METHOD;
}

void settings_put_pattern(struct buf *out, const struct route *route)
{
	for (size_t i = 0; i < route->methods.n; i++)
		buf_format(out, "%s%s", i ? "," : "", route->methods.at[i]);
	buf_text(out, route->methods.n ? " " : "* ");
	for (size_t i = 0; i < route->n_segments; i++)
		buf_format(out, "/%s",
			   route->segments[i].text ? route->segments[i].text : "{}");
	buf_text(out, route->rest ? "/*" : "");
}
