/*
 * The admin listener's answers (CONTRACT 15).
 *
 * A request is asked four things in this order: is its Host one of ours (a page in somebody's
 * browser that resolves its own name to our address is refused here: DNS rebinding), is the path
 * known, is the method, and may whoever asks do it. Then the endpoint's function answers, at
 * once, or when the ledger has (admin_ledger.c): nothing here waits for anything.
 *
 * An endpoint is a row of the table and a function. It knows what the office tells it, and
 * neither threads nor sockets.
 */
#include "admin_internal.h"

#include "escaped.h"

#include <assert.h>
#include <time.h>

/* Room for 512 operations with every verdict, at some 2 KiB each. */
#define METRICS_MAX ((size_t)64 * 1024 * 1024)
#define READY_MAX   ((size_t)16 * 1024)

static struct http_answer metrics(struct asked *asked);
static struct http_answer healthz(struct asked *asked);
static struct http_answer readyz(struct asked *asked);

/* HEAD is answered as GET; the listener leaves the body out. {} is one segment of the path. */
static const struct endpoint {
	const char *method, *path;
	enum admin_role role;
	struct http_answer (*answer)(struct asked *asked);
} endpoints[] = {
	{ "GET", "/metrics", ADMIN_SCRAPER, metrics },
	{ "GET", "/healthz", ADMIN_ANYBODY, healthz },
	{ "GET", "/readyz", ADMIN_ANYBODY, readyz },
	{ "GET", "/v1/records", ADMIN_VIEWER, admin_records_list },
	{ "POST", "/v1/records/find", ADMIN_VIEWER, admin_records_find },
	{ "GET", "/v1/records/{}", ADMIN_VIEWER, admin_records_show },
	{ "POST", "/v1/records/{}/resolve", ADMIN_OPERATOR, admin_records_resolve },
	{ "POST", "/v1/accounts/erase", ADMIN_OPERATOR, admin_accounts_erase },
	{ "GET", "/v1/operations", ADMIN_VIEWER, admin_operations_list },
	{ "POST", "/v1/operations/{}/stop", ADMIN_OPERATOR, admin_operations_stop },
	{ "POST", "/v1/operations/{}/resume", ADMIN_OPERATOR, admin_operations_resume },
	{ "POST", "/v1/operations/{}/adopt", ADMIN_OPERATOR, admin_operations_adopt },
};

struct http_answer admin_refuse(const struct asked *asked, enum problem problem,
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

struct http_answer admin_json(const struct asked *asked, struct span body)
{
	return answer(asked, 200, SPAN("application/json"), body);
}

static void buf_free(void *buf)
{
	buf_fini(buf);
}

struct buf *admin_buf(struct arena *arena, size_t max)
{
	struct buf *buf = arena_alloc(arena, sizeof(*buf));

	buf_init(buf, max);
	arena_defer(arena, buf_free, buf);
	return buf;
}

static struct http_answer metrics(struct asked *asked)
{
	struct buf *text = admin_buf(asked->arena, METRICS_MAX);

	metrics_render(text);
	if (text->full)
		return admin_refuse(asked, PROBLEM_INTERNAL, "There are more metrics than fit");
	return answer(asked, 200, SPAN("text/plain; version=0.0.4; charset=utf-8"),
		      buf_view(text));
}

static struct http_answer healthz(struct asked *asked)
{
	return answer(asked, 200, SPAN("application/json"), SPAN("{\"status\":\"ok\"}\n"));
}

static void put_check(struct buf *out, const struct admin_check *check)
{
	buf_byte(out, ',');
	escaped_string(out, span_of(check->name));
	buf_format(out, ":{\"ok\":%s,\"detail\":", check->ok ? "true" : "false");
	escaped_string(out, span_of(check->detail));
	buf_byte(out, '}');
}

static struct http_answer readyz(struct asked *asked)
{
	struct admin_check checks[ADMIN_CHECKS] = { 0 };
	struct buf *out = admin_buf(asked->arena, READY_MAX);
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
		return admin_refuse(asked, PROBLEM_ROUTE_NOT_FOUND,
				    "There is nothing at this path");
	return problem_answer(asked->arena, &about);
}

/* Does the path match? {} is a segment, that goes to *part. */
static bool path_is(struct span path, const char *pattern, struct span *part)
{
	size_t before = strcspn(pattern, "{");
	struct span behind = span_of(pattern[before] ? pattern + before + 2 : "");

	*part = SPAN("");
	if (!pattern[before])
		return span_equal(path, span_of(pattern));
	if (path.len <= before + behind.len || memcmp(path.at, pattern, before) != 0 ||
	    memcmp(path.at + path.len - behind.len, behind.at, behind.len) != 0)
		return false;
	*part = (struct span){ path.at + before, path.len - before - behind.len };
	return memchr(part->at, '/', part->len) == NULL;
}

/* NULL: there is none; `allow` then lists the methods that the path has. */
static const struct endpoint *find(struct asked *asked, struct span *allow)
{
	*allow = SPAN("");
	for (size_t i = 0; i < ARRAY_LEN(endpoints); i++) {
		const struct endpoint *at = &endpoints[i];
		if (!path_is(asked->request->path, at->path, &asked->part))
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
static void identify(struct asked *asked, const struct admin_tokens *tokens)
{
	struct timespec now;
	struct span token = presented(asked->request);
	const char *name = "";

	asked->who = SPAN("");
	asked->role = ADMIN_ANYBODY;
	if (!tokens && !asked->view->settings->admin.tokens_file)
		asked->role = ADMIN_SCRAPER;
	if (!tokens || token.len == 0)
		return;
	clock_gettime(CLOCK_REALTIME, &now);
	asked->role = admin_tokens_role(tokens, token, now.tv_sec, &name);
	asked->who = arena_copy(asked->arena, span_of(name));
}

static struct http_answer refuse_role(const struct asked *asked)
{
	struct http_answer answer;

	if (!asked->view->settings->admin.tokens_file)
		return admin_refuse(
			asked, PROBLEM_FORBIDDEN,
			"Nothing of records is shown or changed without tokens: set "
			"admin.tokens_file");
	if (asked->role != ADMIN_ANYBODY)
		return admin_refuse(asked, PROBLEM_FORBIDDEN,
				    "This needs a token with another role");
	answer = admin_refuse(asked, PROBLEM_UNAUTHENTICATED,
			      "This needs a bearer token of admin.tokens_file that has not "
			      "expired");
	http_add(&answer.fields, SPAN("WWW-Authenticate"), SPAN("Bearer"));
	return answer;
}

/* NULL: `*refusal`. What the view says is copied: the answer may take its time. */
static const struct endpoint *admit(struct asked *asked, const struct admin_tokens *tokens,
				    struct http_answer *refusal)
{
	const struct endpoint *endpoint = NULL;
	struct span allow;

	if (!host_allowed(asked->request->host, &asked->view->settings->admin)) {
		*refusal = admin_refuse(asked, PROBLEM_FORBIDDEN,
					"This Host is not answered here: it is not in "
					"admin.hosts");
		return NULL;
	}
	endpoint = find(asked, &allow);
	if (!endpoint) {
		*refusal = refuse_path(asked, allow);
		return NULL;
	}
	identify(asked, tokens);
	if (asked->role >= endpoint->role)
		return endpoint;
	*refusal = refuse_role(asked);
	return NULL;
}

static struct asked ask_of(struct http_request *request, const struct admin_view *view)
{
	struct admin_view *copy = arena_alloc(request->arena, sizeof(*copy));

	*copy = *view;
	return (struct asked){ .request = request, .view = copy, .arena = request->arena };
}

struct http_answer admin_answer(struct http_request *request, const struct admin_view *view,
				const struct admin_tokens *tokens)
{
	struct asked asked = ask_of(request, view);
	struct http_answer refusal;
	const struct endpoint *endpoint = admit(&asked, tokens, &refusal);

	return endpoint ? endpoint->answer(&asked) : refusal;
}

size_t admin_body_max(struct http_request *request, const struct admin_view *view,
		      const struct admin_tokens *tokens)
{
	struct asked asked = ask_of(request, view);
	struct http_answer refusal;
	const struct endpoint *endpoint = admit(&asked, tokens, &refusal);
	size_t largest = 0;

	if (!endpoint || strcmp(endpoint->method, "POST") != 0)
		return 0;
	for (size_t i = 0; i < view->settings->n_routes; i++) {
		const struct idempotency_settings *it = view->settings->routes[i].idempotency;

		if (it && (size_t)it->response.max_body > largest)
			largest = (size_t)it->response.max_body;
	}
	return ADMIN_BODY_BASE + largest;
}

static void release(void *view)
{
	settings_release(((struct admin_view *)view)->settings);
}

struct http_answer admin_ask(const struct asked *asked, struct admin_task *task)
{
	struct admin_view *held = NULL;

	if (!asked->view->ledger || !admin_ledger_secrets(asked->view->ledger))
		return admin_refuse(asked, PROBLEM_LEDGER_UNAVAILABLE,
				    "PostgreSQL is not reached");
	if (!admin_ledger_run(asked->view->ledger, task))
		return admin_refuse(asked, PROBLEM_OVERLOADED,
				    "Too many questions are under way");
	held = arena_alloc(asked->arena, sizeof(*held));
	*held = *asked->view;
	settings_hold(held->settings);
	arena_defer(asked->arena, release, held);
	return (struct http_answer){ .status = 0 };
}
