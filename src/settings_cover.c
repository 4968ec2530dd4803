/*
 * Which routes stand in each other's way (CONTRACT 2.1). The first match wins, so an earlier
 * route that passes through takes requests away from one that enforces; and an API that takes
 * /orders/ for /orders is reached around the one that enforces where something else lets the
 * slash through. Nobody sees either in the file, so both are said.
 */
#include "settings_internal.h"

/* Is there a segment that both take? */
static bool segments_meet(const struct route_segment *a, const struct route_segment *b)
{
	if (a->text && b->text)
		return strcmp(a->text, b->text) == 0;
	return !(a->text && a->len == 0) && !(b->text && b->len == 0);
}

/* Is there a path that both take? */
static bool paths_meet(const struct route *a, const struct route *b)
{
	size_t n = a->n_segments < b->n_segments ? a->n_segments : b->n_segments;

	for (size_t i = 0; i < n; i++)
		if (!segments_meet(&a->segments[i], &b->segments[i]))
			return false;
	if (a->n_segments == b->n_segments)
		return a->rest == b->rest || n == 0;
	return a->n_segments < b->n_segments ? a->rest : b->rest;
}

/* Does `a` take every path that `b` takes? */
static bool covers_path(const struct route *a, const struct route *b)
{
	if (a->n_segments > b->n_segments)
		return false;
	for (size_t i = 0; i < a->n_segments; i++)
		if (!segments_meet(&a->segments[i], &b->segments[i]) ||
		    (a->segments[i].text && !b->segments[i].text))
			return false;
	if (a->rest)
		return a->n_segments == 0 || a->n_segments < b->n_segments || b->rest;
	return a->n_segments == b->n_segments && !b->rest;
}

static bool takes(const struct route *route, const char *method)
{
	for (size_t i = 0; i < route->methods.n; i++)
		if (strcmp(route->methods.at[i], method) == 0)
			return true;
	return route->methods.n == 0;
}

static bool covers_methods(const struct route *a, const struct route *b)
{
	for (size_t i = 0; i < b->methods.n; i++)
		if (!takes(a, b->methods.at[i]))
			return false;
	return b->methods.n > 0 || a->methods.n == 0;
}

/* An unsafe method that both take; NULL where there is none. */
static const char *unsafe_in_common(const struct route *a, const struct route *b)
{
	const struct route *listed = a->methods.n ? a : b;
	const struct route *other = listed == a ? b : a;

	for (size_t i = 0; i < listed->methods.n; i++) {
		const char *method = listed->methods.at[i];
		if (!http_safe_method(span_of(method)) && takes(other, method))
			return method;
	}
	return listed->methods.n ? NULL : "POST";
}

/* The same path with or without the slash at its end; false where there is no such path. */
static bool twin_of(const struct route *route, struct route_segment *segments,
		    struct route *twin)
{
	size_t n = route->n_segments;

	*twin = *route;
	twin->segments = segments;
	twin->rest = false;
	if (n == 0)
		return false;
	memcpy(segments, route->segments, n * sizeof(*segments));
	if (route->rest)
		return true;
	if (segments[n - 1].text && segments[n - 1].len == 0)
		twin->n_segments--;
	else
		segments[twin->n_segments++] = (struct route_segment){ .text = "" };
	return twin->n_segments > 0;
}

static void warn_twin(struct loader *loader, size_t i)
{
	const struct settings *settings = loader->settings;
	struct route_segment segments[SEGMENTS_MAX + 1];
	struct route twin;

	if (!twin_of(&settings->routes[i], segments, &twin))
		return;
	for (size_t j = 0; j < settings->n_routes; j++) {
		const struct route *route = &settings->routes[j];
		const char *method = unsafe_in_common(route, &twin);
		if (!method || !paths_meet(route, &twin))
			continue;
		if (!route->idempotency)
			settings_warning(
				loader, loader->routes[i],
				"`%s`: the same path %s a slash at its end passes through "
				"(line %u) for %s; gate it too where the API takes both "
				"for one",
				settings->routes[i].match,
				twin.n_segments > settings->routes[i].n_segments ? "with"
										 : "without",
				loader->routes[j]->line, method);
		return;
	}
}

static void warn_pair(struct loader *loader, size_t earlier, size_t later)
{
	const struct route *a = &loader->settings->routes[earlier];
	const struct route *b = &loader->settings->routes[later];
	const char *method = unsafe_in_common(a, b);

	if (!a->idempotency && b->idempotency && method && paths_meet(a, b))
		settings_warning(loader, loader->routes[earlier],
				 "`%s` lets %s requests pass through that `%s` (line %u) would "
				 "gate: the first match wins",
				 a->match, method, b->match, loader->routes[later]->line);
	else if (covers_path(a, b) && covers_methods(a, b))
		settings_warning(loader, loader->routes[later],
				 "`%s` is never reached: `%s` (line %u) takes all its requests",
				 b->match, a->match, loader->routes[earlier]->line);
}

static bool only_safe(const struct route *route)
{
	for (size_t i = 0; i < route->methods.n; i++)
		if (!http_safe_method(span_of(route->methods.at[i])))
			return false;
	return route->methods.n > 0;
}

void settings_check_routes(struct loader *loader)
{
	for (size_t i = 0; i < loader->settings->n_routes; i++) {
		const struct route *route = &loader->settings->routes[i];
		for (size_t j = 0; j < i; j++)
			warn_pair(loader, j, i);
		if (route->idempotency)
			warn_twin(loader, i);
		if (route->idempotency && only_safe(route))
			settings_warning(
				loader, loader->routes[i],
				"`idempotency` has no effect on `%s`: its methods are safe",
				route->match);
	}
}
