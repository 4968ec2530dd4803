/*
 * The admin listener's answers (CONTRACT 15).
 *
 * A request is asked four things in this order: is its Host one of ours (a page in somebody's
 * browser that resolves its own name to our address is refused here: DNS rebinding), is the path
 * known, is the method, and may whoever asks do it. Then the endpoint's function answers, at
 * once: nothing here waits for anything.
 *
 * An endpoint is a row of the table and a function. It knows what the office tells it, and
 * neither threads nor sockets.
 */
#include "admin.h"

#include "escape.h"
#include "problem.h"

#include <assert.h>
#include <time.h>

/* Room for 512 operations with every verdict, at some 2 KiB each. */
#define METRICS_MAX ((size_t)64 * 1024 * 1024)
#define READY_MAX   ((size_t)16 * 1024)

struct asked {
	const struct http_request *request;
	const struct admin_view *view;
	struct arena *arena;
};

static struct http_answer metrics(const struct asked *asked);
static struct http_answer healthz(const struct asked *asked);
static struct http_answer readyz(const struct asked *asked);

/* The rows of one path stand together. HEAD is answered as GET; the listener leaves the body out. */
static const struct endpoint {
	const char *method, *path;
	enum admin_role role;
	struct http_answer (*answer)(const struct asked *asked);
} endpoints[] = {
	{ "GET", "/metrics", ADMIN_SCRAPER, metrics },
	{ "GET", "/healthz", ADMIN_ANYBODY, healthz },
	{ "GET", "/readyz", ADMIN_ANYBODY, readyz },
};

static struct http_answer refuse(const struct asked *asked, enum problem problem,
				 const char *detail)
{
	struct problem_about about = { .problem = problem, .detail = span_of(detail) };

	return problem_answer(asked->arena, &about);
}

static struct http_answer answer(const struct asked *asked, unsigned status, struct span type,
				 struct span body)
{
	struct http_answer answer = { .status = status, .body = body };

	answer.fields.at = arena_alloc(asked->arena, 2 * sizeof(*answer.fields.at));
	http_add(&answer.fields, SPAN("Content-Type"), type);
	http_add(&answer.fields, SPAN("Cache-Control"), SPAN("no-store"));
	return answer;
}

static void buf_free(void *buf)
{
	buf_fini(buf);
}

/* A buf whose bytes live as long as the request. */
static struct buf *buf_in(struct arena *arena, size_t max)
{
	struct buf *buf = arena_alloc(arena, sizeof(*buf));

	buf_init(buf, max);
	arena_defer(arena, buf_free, buf);
	return buf;
}

static struct http_answer metrics(const struct asked *asked)
{
	struct buf *text = buf_in(asked->arena, METRICS_MAX);

	metrics_render(text);
	if (text->full)
		return refuse(asked, PROBLEM_INTERNAL, "There are more metrics than fit");
	return answer(asked, 200, SPAN("text/plain; version=0.0.4; charset=utf-8"),
		      buf_view(text));
}

static struct http_answer healthz(const struct asked *asked)
{
	return answer(asked, 200, SPAN("application/json"), SPAN("{\"status\":\"ok\"}\n"));
}

static void put_string(struct buf *out, struct span text)
{
	char piece[ESCAPE_MAX];

	buf_byte(out, '"');
	while (text.len > 0)
		buf_append(out, piece, escape_next(&text, true, piece));
	buf_byte(out, '"');
}

static void put_check(struct buf *out, const struct admin_check *check)
{
	buf_byte(out, ',');
	put_string(out, span_of(check->name));
	buf_format(out, ":{\"ok\":%s,\"detail\":", check->ok ? "true" : "false");
	put_string(out, span_of(check->detail));
	buf_byte(out, '}');
}

static struct http_answer readyz(const struct asked *asked)
{
	struct admin_check checks[ADMIN_CHECKS] = { 0 };
	struct buf *out = buf_in(asked->arena, READY_MAX);
	bool ready = !asked->view->draining;

	asked->view->ready(asked->view->arg, checks);
	for (size_t i = 0; i < ADMIN_CHECKS; i++)
		ready = ready && checks[i].ok;
	buf_format(out, "{\"ready\":%s,\"draining\":%s", ready ? "true" : "false",
		   asked->view->draining ? "true" : "false");
	for (size_t i = 0; i < ADMIN_CHECKS; i++)
		put_check(out, &checks[i]);
	buf_text(out, "}\n");
	assert(!out->full);
	return answer(asked, ready ? 200 : 503, SPAN("application/json"), buf_view(out));
}

/* A host without its port, and without the brackets of an IPv6 address; one without brackets has
 * several colons and no port. */
static struct span host_name(struct span host)
{
	const char *colon = memchr(host.at, ':', host.len);
	const char *close = memchr(host.at, ']', host.len);

	if (host.len > 0 && host.at[0] == '[')
		return (struct span){ host.at + 1,
				      close ? (size_t)(close - host.at - 1) : host.len - 1 };
	if (colon && !memchr(colon + 1, ':', host.len - (size_t)(colon + 1 - host.at)))
		host.len = (size_t)(colon - host.at);
	return host;
}

static bool host_is(struct span host, const char *allowed)
{
	struct span name = host_name(span_of(allowed));

	return name.len > 0 && http_same_name(host_name(host), name);
}

static bool host_allowed(struct span host, const struct admin_settings *settings)
{
	static const char *const local[] = { "localhost", "127.0.0.1", "[::1]" };

	if (host.len == 0)
		return false;
	for (size_t i = 0; i < ARRAY_LEN(local); i++)
		if (host_is(host, local[i]))
			return true;
	for (size_t i = 0; i < settings->hosts.n; i++)
		if (host_is(host, settings->hosts.at[i]))
			return true;
	return host_is(host, settings->listen);
}

/* HEAD goes wherever GET goes. */
static bool method_is(struct span method, const char *endpoint)
{
	return span_equal(method, span_of(endpoint)) ||
	       (span_equal(method, SPAN("HEAD")) && strcmp(endpoint, "GET") == 0);
}

static struct http_answer refuse_path(const struct asked *asked, struct span allow)
{
	struct problem_about about = { .problem = PROBLEM_METHOD_NOT_ALLOWED,
				       .detail = SPAN("This method is not answered here"),
				       .allow = allow };

	if (allow.len == 0)
		return refuse(asked, PROBLEM_ROUTE_NOT_FOUND, "There is nothing at this path");
	return problem_answer(asked->arena, &about);
}

/* NULL: there is none; `allow` then lists the methods that the path has. */
static const struct endpoint *find(const struct asked *asked, struct span *allow)
{
	*allow = SPAN("");
	for (size_t i = 0; i < ARRAY_LEN(endpoints); i++) {
		const struct endpoint *at = &endpoints[i];
		if (!span_equal(asked->request->path, span_of(at->path)))
			continue;
		if (method_is(asked->request->method, at->method))
			return at;
		*allow = arena_format(asked->arena, "%.*s%s%s%s", (int)allow->len, allow->at,
				      allow->len ? ", " : "", at->method,
				      strcmp(at->method, "GET") == 0 ? ", HEAD" : "");
	}
	return NULL;
}

/* What follows "Bearer" in the one Authorization field; empty where there is none. */
static struct span presented(const struct http_request *request)
{
	static const struct span scheme = { "Bearer ", 7 };
	size_t lines = 0;
	const struct http_field *field =
		http_find(&request->fields, SPAN("Authorization"), &lines);
	struct span value = field && lines == 1 ? field->value : SPAN("");

	if (value.len < scheme.len ||
	    !http_same_name((struct span){ value.at, scheme.len }, scheme))
		return SPAN("");
	value.at += scheme.len;
	value.len -= scheme.len;
	while (value.len > 0 && value.at[0] == ' ') {
		value.at++;
		value.len--;
	}
	return value;
}

/* Where tokens are configured but none could be loaded, nobody has one. */
static enum admin_role role_of(const struct asked *asked, const struct admin_tokens *tokens)
{
	struct timespec now;
	struct span token = presented(asked->request);

	if (!tokens && !asked->view->settings->admin.tokens_file)
		return ADMIN_SCRAPER;
	if (!tokens || token.len == 0)
		return ADMIN_ANYBODY;
	clock_gettime(CLOCK_REALTIME, &now);
	return admin_tokens_role(tokens, token, now.tv_sec);
}

static struct http_answer refuse_role(const struct asked *asked, enum admin_role role)
{
	struct http_answer answer;

	if (role != ADMIN_ANYBODY)
		return refuse(asked, PROBLEM_FORBIDDEN, "This needs a token with another role");
	answer = refuse(asked, PROBLEM_UNAUTHENTICATED,
			"This needs a bearer token of admin.tokens_file that has not expired");
	http_add(&answer.fields, SPAN("WWW-Authenticate"), SPAN("Bearer"));
	return answer;
}

struct http_answer admin_answer(const struct http_request *request,
				const struct admin_view *view,
				const struct admin_tokens *tokens)
{
	struct asked asked = { request, view, request->arena };
	const struct endpoint *endpoint = NULL;
	enum admin_role role = ADMIN_ANYBODY;
	struct span allow;

	if (!host_allowed(request->host, &view->settings->admin))
		return refuse(&asked, PROBLEM_FORBIDDEN,
			      "This Host is not answered here: it is not in admin.hosts");
	endpoint = find(&asked, &allow);
	if (!endpoint)
		return refuse_path(&asked, allow);
	role = role_of(&asked, tokens);
	return role >= endpoint->role ? endpoint->answer(&asked) : refuse_role(&asked, role);
}
