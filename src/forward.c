/*
 * What travels between client and upstream. Fields that are for one connection stay on it (RFC 9110
 * 7.6.1); the target, the Host and the body's bytes go on exactly as they came; fields by which
 * only a trusted hop or the gateway itself may speak are taken from everybody else.
 */
#include "forward.h"

#include "account.h"
#include "key.h"

#include <assert.h>

/* Room for what is added to a request's own fields: Via, three X-Forwarded-*, Accept-Encoding, Host, the
 * key, what a look-up asks for. */
#define FIELDS_ADDED 12

/* A small share of a small memory may not go to answers alone. */
static size_t answer_room(const struct services *services)
{
	size_t most = services->bytes_max / 16;

	return most < FORWARD_ANSWER_ROOM ? most : FORWARD_ANSWER_ROOM;
}

bool forward_admit(struct served *served, size_t body_bytes)
{
	struct services *services = served->services;
	size_t room = answer_room(services);

	/* Whoever is alone comes in, whatever the share. More than the maximum is held after a reload
	 * that lowered it. */
	if (services->bytes && (services->bytes > services->bytes_max ||
				body_bytes > services->bytes_max - services->bytes ||
				room > services->bytes_max - services->bytes - body_bytes))
		return false;
	served->room = room;
	served->bytes = body_bytes + room;
	services->bytes += served->bytes;
	return true;
}

/* What is never passed on as it came: it is the codec's, ours, or replaced. */
static bool request_field_ours(struct span name, bool trusted_proxy, bool enforced)
{
	static const char *const always[] = { "Content-Length", "Expect", "Via", "Host" };
	static const char *const forwarded[] = { "X-Forwarded-For", "X-Forwarded-Proto",
						 "X-Forwarded-Host" };

	for (size_t i = 0; i < ARRAY_LEN(always); i++)
		if (http_same_name(name, span_of(always[i])))
			return true;
	for (size_t i = 0; i < ARRAY_LEN(forwarded); i++)
		if (http_same_name(name, span_of(forwarded[i])))
			return true;
	if (!trusted_proxy && http_same_name(name, SPAN("Forwarded")))
		return true;
	return enforced && http_same_name(name, SPAN("Accept-Encoding"));
}

bool forward_drops_compared(const struct http_request *request, const struct route *route)
{
	const struct digest_rules *rules = &route->idempotency->rules;
	const struct sources *sources = &route->idempotency->key.sources;

	if (!http_find(&request->fields, SPAN("Connection"), NULL))
		return false;
	for (size_t i = 0; i < rules->n_headers; i++)
		if (http_list_has(&request->fields, SPAN("Connection"), rules->headers[i]))
			return true;
	for (size_t i = 0; i < sources->n; i++)
		if (sources->at[i].header.at &&
		    http_list_has(&request->fields, SPAN("Connection"), sources->at[i].header))
			return true;
	return false;
}

/* All lines of that name, joined by commas, with one more element behind them. */
static struct span joined(struct arena *arena, const struct http_fields *fields,
			  struct span name, struct span last)
{
	struct span all = last;

	for (size_t i = fields->n; i-- > 0;)
		if (http_same_name(fields->at[i].name, name) && fields->at[i].value.len)
			all = arena_format(arena, "%.*s, %.*s", (int)fields->at[i].value.len,
					   fields->at[i].value.at, (int)all.len, all.at);
	return all;
}

/* What a trusted proxy said stays; anybody else's is replaced. */
static void add_forwarded(struct served *served, struct http_fields *out, bool trusted)
{
	const struct http_request *request = &served->request;
	const struct http_fields none = { NULL, 0 };
	const struct http_fields *said = trusted ? &request->fields : &none;
	const struct http_field *proto = http_find(said, SPAN("X-Forwarded-Proto"), NULL);
	const struct http_field *host = http_find(said, SPAN("X-Forwarded-Host"), NULL);

	http_add(out, SPAN("X-Forwarded-For"),
		 joined(request->arena, said, SPAN("X-Forwarded-For"), request->peer));
	http_add(out, SPAN("X-Forwarded-Proto"), proto ? proto->value : SPAN("http"));
	http_add(out, SPAN("X-Forwarded-Host"), host ? host->value : request->host);
}

static struct http_fields request_fields(struct served *served, bool enforced)
{
	const struct http_request *request = &served->request;
	const struct http_fields *in = &request->fields;
	bool trusted =
		account_trusted(&served->settings->gateway.trusted_proxies, request->peer);
	struct http_fields out = { arena_alloc(request->arena, sizeof(struct http_field) *
								       (in->n + FIELDS_ADDED)),
				   0 };

	http_add(&out, SPAN("Host"),
		 request->host.len ? request->host
				   : span_of(served->route->upstream->server[0].host));
	for (size_t i = 0; i < in->n; i++) {
		struct span name = in->at[i].name;

		if (!request_field_ours(name, trusted, enforced) &&
		    !http_hop_by_hop(in, name) &&
		    !account_stripped(served->settings, request, name))
			http_add(&out, name, in->at[i].value);
	}
	if (enforced)
		http_add(&out, SPAN("Accept-Encoding"), SPAN("identity"));
	http_add(&out, SPAN("Via"),
		 joined(request->arena, in, SPAN("Via"),
			request->minor ? SPAN("1.1 onceward") : SPAN("1.0 onceward")));
	add_forwarded(served, &out, trusted);
	return out;
}

/* The received target; of one in absolute form what stands behind its authority. */
static struct span origin_form(const struct http_request *request)
{
	struct span target = request->target;
	const char *authority = NULL;
	const char *path = NULL;

	if (target.len == 0 || target.at[0] == '/' || target.at[0] == '*')
		return target;
	authority = memmem(target.at, target.len, "://", 3);
	assert(authority); /* http_target has taken it */
	authority += 3;
	for (path = authority; path < target.at + target.len; path++)
		if (*path == '/' || *path == '?')
			break;
	target.len -= (size_t)(path - target.at);
	target.at = path;
	if (target.len == 0 || target.at[0] == '?')
		return arena_format(request->arena, "/%.*s", (int)target.len, target.at);
	return target;
}

void forward_prepare(struct served *served, struct upstream_call *call, bool enforced)
{
	struct http_request *request = &served->request;

	call->upstream = served->route->upstream;
	call->arena = request->arena;
	call->method = request->method;
	call->target = origin_form(request);
	call->fields = request_fields(served, enforced);
	call->body = request->body;
	call->held = &served->services->bytes;
	call->held_max = served->services->bytes_max;
	call->held_before = served->room;
}

static bool is_key_field(const struct sources *sources, struct span name)
{
	for (size_t i = 0; i < sources->n; i++)
		if (sources->at[i].header.at && http_same_name(sources->at[i].header, name))
			return true;
	return false;
}

/* What the client wrote, in the first of its fields that are there; a key from the body itself. */
static struct span clients_key(const struct upstream_call *call, const struct sources *sources,
			       struct span key)
{
	for (size_t i = 0; i < sources->n; i++) {
		const struct http_field *field =
			sources->at[i].header.at
				? http_find(&call->fields, sources->at[i].header, NULL)
				: NULL;
		if (field)
			return field->value;
	}
	return key;
}

void forward_key(struct upstream_call *call, const struct key_settings *settings,
		 struct span key, struct span derived)
{
	struct http_fields *fields = &call->fields;
	struct http_field one = { SPAN("Idempotency-Key"), derived };
	size_t n = 0;

	if (settings->forward_how == KEY_FORWARD_CLIENT)
		return;
	if (settings->forward_how == KEY_FORWARD_NAMED)
		one = (struct http_field){ settings->forward_name,
					   clients_key(call, &settings->sources, key) };
	if (settings->forward_how == KEY_FORWARD_NONE)
		one = (struct http_field){ { "", 0 }, { "", 0 } };
	for (size_t i = 0; i < fields->n; i++)
		if (!is_key_field(&settings->sources, fields->at[i].name) &&
		    !http_same_name(fields->at[i].name, one.name))
			fields->at[n++] = fields->at[i];
	fields->n = n;
	if (one.name.len)
		http_add(fields, one.name, one.value);
}

void forward_reference(struct upstream_call *call, struct span request_id, unsigned generation)
{
	http_add(&call->fields, SPAN("X-Onceward-Request-Id"), request_id);
	http_add(&call->fields, SPAN("X-Onceward-Attempt-Id"),
		 arena_format(call->arena, "%.*s.%u", (int)request_id.len, request_id.at,
			      generation));
}

/* Fields by which the gateway itself speaks to the client. */
static bool answer_field_ours(struct span name)
{
	static const char *const ours[] = {
		"Idempotent-Replayed",    "Idempotency-Verdict",  "Idempotency-Request-Id",
		"Idempotency-First-Seen", "Idempotency-Recorded", "Idempotency-Recovered",
		"Idempotency-Resolved",   "Idempotency-Expires",
	};

	for (size_t i = 0; i < ARRAY_LEN(ours); i++)
		if (http_same_name(name, span_of(ours[i])))
			return true;
	return false;
}

/* Does the reference begin with that much of the server's URL, and end there or go on with a path? */
static bool begins_with(struct span reference, const char *url, size_t len)
{
	return reference.len >= len && strncasecmp(reference.at, url, len) == 0 &&
	       (reference.len == len || strchr("/?#>", reference.at[len]));
}

/* How much of a reference names the server itself: scheme and authority, or nothing. The
 * scheme's own port may be left out. */
static size_t own_prefix(struct span reference, const struct server *server)
{
	size_t len = strlen(server->url);
	const char *port = strrchr(server->url, ':');

	if (begins_with(reference, server->url, len))
		return len;
	if (strcmp(port, server->tls ? ":443" : ":80") != 0)
		return 0;
	len -= strlen(port);
	return begins_with(reference, server->url, len) ? len : 0;
}

static size_t own_authority(struct span reference, const struct upstream_settings *upstream)
{
	size_t len = 0;

	for (size_t i = 0; i < upstream->n_servers && !len; i++)
		len = own_prefix(reference, &upstream->server[i]);
	return len;
}

/* A reference to the upstream itself is of no use to a client, who can't reach it. One at the
 * value's start (Location), or each behind a `<` (Link). */
static struct span relative(const struct upstream_call *call, struct span value, bool link)
{
	struct buf out;
	struct span copy;

	buf_init(&out, value.len + HTTP_HEAD_MAX);
	for (size_t i = 0; i < value.len;) {
		struct span rest = { value.at + i, value.len - i };
		bool here = link ? i > 0 && value.at[i - 1] == '<' : i == 0;
		size_t own = here ? own_authority(rest, call->upstream) : 0;

		if (rest.len > own + 1 && own && memcmp(rest.at + own, "//", 2) == 0)
			own = 0; /* what is left would name another authority */
		if (own && (rest.len == own || rest.at[own] != '/'))
			buf_byte(&out, '/');
		i += own;
		if (i < value.len)
			buf_byte(&out, value.at[i++]);
	}
	copy = arena_copy(call->arena, buf_view(&out));
	buf_fini(&out);
	return copy;
}

static struct span answer_value(const struct upstream_call *call,
				const struct http_field *field)
{
	bool link = http_same_name(field->name, SPAN("Link"));

	if (link || http_same_name(field->name, SPAN("Location")) ||
	    http_same_name(field->name, SPAN("Content-Location")))
		return relative(call, field->value, link);
	return field->value;
}

struct http_answer forward_answer(const struct upstream_call *call)
{
	const struct http_answer *from = &call->answer;
	struct http_answer out = { .status = from->status, .body = from->body };

	if (from->status == 205) /* it tells the client to reset a form, and has no body */
		out.body = (struct span){ "", 0 };
	out.fields.at = arena_alloc(call->arena, sizeof(struct http_field) *
							 (from->fields.n + FIELDS_ADDED));
	for (size_t i = 0; i < from->fields.n; i++) {
		const struct http_field *field = &from->fields.at[i];

		if (!http_hop_by_hop(&from->fields, field->name) &&
		    !answer_field_ours(field->name))
			http_add(&out.fields, field->name, answer_value(call, field));
	}
	return out;
}

static bool among(struct span name, const char *const *names, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (http_same_name(name, span_of(names[i])))
			return true;
	return false;
}

struct http_fields forward_kept(struct arena *arena, const struct http_fields *from,
				const struct texts *more)
{
	static const char *const kept[] = {
		"Content-Type",
		"Content-Language",
		"Content-Disposition",
		"Content-Encoding",
		"Content-Location",
		"Content-Range",
		"Content-Digest",
		"Repr-Digest",
		"Location",
		"ETag",
		"Last-Modified",
		"Link",
		"Vary",
		"Cache-Control",
		"Retry-After",
	};
	static const char *const never[] = { "Set-Cookie",     "Set-Cookie2",
					     "Authorization",  "WWW-Authenticate",
					     "Content-Length", "Date" };
	struct http_fields out = {
		arena_alloc(arena, sizeof(struct http_field) * (from->n + 1)), 0
	};

	for (size_t i = 0; i < from->n; i++) {
		struct span name = from->at[i].name;
		bool proxy = name.len > 6 && strncasecmp(name.at, "Proxy-", 6) == 0;

		if ((among(name, kept, ARRAY_LEN(kept)) || among(name, more->at, more->n)) &&
		    !among(name, never, ARRAY_LEN(never)) && !proxy &&
		    !http_hop_by_hop(from, name) && !answer_field_ours(name))
			http_add(&out, name, from->at[i].value);
	}
	return out;
}

void forward_reply(struct served *served, unsigned verdict, const struct http_answer *answer)
{
	served->verdict = verdict;
	served->status = answer->status;
	served->sent_bytes = answer->body.len;
	listener_answer(&served->request, answer);
}

bool forward_has_key(const struct http_request *request)
{
	const struct key_form any = { KEY_ANY, KEY_FORMAT_ANY };
	struct span key;
	const char *why = NULL;

	return key_of(request, SPAN("Idempotency-Key"), any, &key, &why) == KEY_FOUND;
}
