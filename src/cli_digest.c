/*
 * `onceward digest`: by what a request is compared, and what differs between two. Somebody has a
 * 409 and two bodies, and shall see in one call what the gateway sees: the canonical form under
 * the route's rules, the digest as the ledger stores it, and the differences by name.
 *
 * The comparison's result is no failure: the exit code is 0 for both, and 1 where a body or the
 * request is invalid. Bodies are read as the gateway would read them, up to request.max_body.
 */
#include "cli_internal.h"

#include "cli_leaves.h"
#include "escaped.h"

#include <jansson.h>
#include <stdio.h>

#define SHOWN_MAX  160U /* bytes of a value beside another */
#define BEFORE_MAX 20U  /* of them before the first difference */

/* One of the bodies, and what became of it. */
struct subject {
	const char *name; /* of its file, for people */
	struct http_request request;
	const struct canonicaliser *kind;
	struct span canonical;
	struct leaves leaves;
	struct digest digest;
};

struct comparison {
	const struct cli_args *args;
	struct arena *arena;
	const struct settings *settings;
	const struct route *route;
	bool assumed_json; /* nobody gave a Content-Type */
	struct subject subjects[2];
	size_t n;
	struct leaf_differences differences; /* where n is 2 */
};

/* --- the request --- */

static bool read_headers(struct comparison *c, struct http_request *request)
{
	/* and one that is assumed */
	request->fields.at =
		arena_zero(c->arena, (CLI_HEADERS_MAX + 1) * sizeof(*request->fields.at));
	for (unsigned i = 0; i < CLI_HEADERS_MAX && c->args->header[i]; i++)
		if (!cli_header(&request->fields, c->args->header[i]))
			return false;
	return true;
}

/* "POST /v1/orders?a=b": the line that a client would send. */
static bool read_route(struct comparison *c, struct http_request *request)
{
	const char *text = c->args->route;
	size_t method = strcspn(text, " ");
	struct span target = span_of(text + method + strspn(text + method, " "));
	struct http_target parts = { 0 };
	struct span allow = { NULL, 0 };
	enum route_found found = ROUTE_NONE;

	request->arena = c->arena;
	request->method = (struct span){ text, method };
	request->target = target;
	if (!http_token(request->method) || !http_target(c->arena, target, true, &parts)) {
		cli_failed("--route \"%s\": write \"METHOD PATH\", as in a request", text);
		return false;
	}
	request->path = parts.path;
	request->query = parts.query;
	request->has_query = parts.has_query;
	found = settings_route(c->settings, request, &c->route, &allow);
	if (found != ROUTE_FOUND)
		cli_failed("no route takes %s%s%.*s", text,
			   found == ROUTE_OTHER_METHOD ? "; with this path they take " : "",
			   (int)allow.len, allow.at ? allow.at : "");
	else if (!c->route->idempotency || http_safe_method(request->method))
		cli_failed("%s passes through: its requests are not compared", text);
	return found == ROUTE_FOUND && c->route->idempotency &&
	       !http_safe_method(request->method);
}

/* --- the bodies --- */

static bool read_body(struct comparison *c, struct subject *subject, const char *name)
{
	size_t max = (size_t)c->route->idempotency->request.max_body;
	struct buf body;
	bool too_large = false;

	subject->name = cli_file_name(name);
	if (!cli_read(name, max, &body, &too_large))
		return false;
	if (too_large)
		cli_failed("%s is larger than request.max_body: 413", subject->name);
	subject->request.body = arena_copy(c->arena, buf_view(&body));
	buf_fini(&body);
	return !too_large;
}

/* Does the body look like JSON, in bytes that are not encoded? */
static bool looks_like_json(struct span body)
{
	size_t at = 0;

	while (at < body.len && strchr(" \t\r\n", body.at[at]) && body.at[at])
		at++;
	return at < body.len && (body.at[at] == '{' || body.at[at] == '[');
}

/* The boundary of a multipart body is its own, and stands in its first line. */
static struct span with_boundary(struct comparison *c, struct span type, struct span body)
{
	size_t len = 2;

	if (!http_same_name(http_media_type(type), SPAN("multipart/form-data")) ||
	    memchr(type.at, ';', type.len) || body.len < 3 || memcmp(body.at, "--", 2) != 0)
		return type;
	while (len < body.len && body.at[len] != '\r' && body.at[len] != '\n' &&
	       body.at[len] != '"' && body.at[len] != '\\')
		len++;
	return arena_format(c->arena, "%.*s; boundary=\"%.*s\"", (int)type.len, type.at,
			    (int)(len - 2), body.at + 2);
}

/* Each body has the same fields, but for what says how it is to be read. */
static void complete_fields(struct comparison *c, struct subject *subject)
{
	struct http_fields *fields = &subject->request.fields;
	struct http_field *own = arena_zero(c->arena, (CLI_HEADERS_MAX + 1) * sizeof(*own));
	size_t lines = 0;

	memcpy(own, fields->at, fields->n * sizeof(*own));
	fields->at = own;
	http_find(fields, SPAN("Content-Type"), &lines);
	if (lines == 0 && looks_like_json(subject->request.body)) {
		http_add(fields, SPAN("Content-Type"), SPAN("application/json"));
		c->assumed_json = true;
	}
	for (size_t i = 0; i < fields->n; i++)
		if (http_same_name(own[i].name, SPAN("Content-Type")))
			own[i].value = with_boundary(c, own[i].value, subject->request.body);
}

static void invalid(const struct subject *subject, const struct canonical_error *error)
{
	if (error->too_large)
		cli_failed("%s: without its Content-Encoding the body is larger than "
			   "request.max_body: 413",
			   subject->name);
	else
		cli_failed("%s: at byte %zu of the body%s %s was expected: 400", subject->name,
			   error->offset,
			   error->decoded ? ", without its Content-Encoding," : "",
			   error->expected);
}

static bool understand(struct comparison *c, struct subject *subject)
{
	const struct digest_rules *rules = &c->route->idempotency->rules;
	const struct digest_key *key = digest_keys_making(&c->settings->digest_keys);
	struct canonical_error error = { 0 };
	struct buf canonical;
	bool good = false;

	complete_fields(c, subject);
	buf_init(&canonical, SIZE_MAX);
	good = digest_request(rules, &subject->request, key, &subject->digest, &error) &&
	       digest_body(rules, &subject->request, &canonical, &subject->kind, &error);
	if (good) {
		subject->canonical = arena_copy(c->arena, buf_view(&canonical));
		subject->leaves.arena = c->arena;
		leaves_of(subject->kind, subject->canonical, &subject->leaves);
	} else {
		invalid(subject, &error);
	}
	buf_fini(&canonical);
	return good;
}

/* --- what is said --- */

static bool same(const struct comparison *c)
{
	return memcmp(c->subjects[0].digest.canonical, c->subjects[1].digest.canonical,
		      DIGEST_BYTES) == 0;
}

static struct span hex_of(const struct comparison *c, const unsigned char *bytes, size_t n)
{
	char *hex = arena_alloc(c->arena, 2 * n + 1);

	for (size_t i = 0; i < n; i++)
		snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
	return (struct span){ hex, 2 * n };
}

/* Without what would do harm to a terminal, or to JSON. */
static struct span clean(const struct comparison *c, struct span text)
{
	struct buf out;
	struct span kept = { NULL, 0 };

	buf_init(&out, SIZE_MAX);
	escaped_put(&out, text, false);
	kept = arena_copy(c->arena, buf_view(&out));
	buf_fini(&out);
	return kept;
}

/* Where two values part. */
static size_t common(struct span a, struct span b)
{
	size_t n = 0;

	while (n < a.len && n < b.len && a.at[n] == b.at[n])
		n++;
	return n;
}

/* A value, or of a long one what lies around the place where it differs from the other. */
static struct span excerpt(const struct comparison *c, const struct leaf *leaf,
			   const struct leaf *other)
{
	struct span value = leaf->value;
	size_t skip = other ? common(value, other->value) : 0;
	bool cut = false;

	if (value.len <= SHOWN_MAX)
		return clean(c, value);
	skip = skip > BEFORE_MAX ? skip - BEFORE_MAX : 0;
	value.at += skip;
	value.len -= skip;
	cut = value.len > SHOWN_MAX;
	if (cut)
		value.len = SHOWN_MAX;
	value = clean(c, value);
	return arena_format(c->arena, "%s%.*s%s (%zu bytes)", skip ? "..." : "", (int)value.len,
			    value.at, cut ? "..." : "", leaf->value.len);
}

static void print_difference(const struct comparison *c, const struct leaf_difference *d)
{
	struct span label = clean(c, leaf_difference_label(d));
	struct span first = SPAN("absent"), second = SPAN("absent");

	if (d->first)
		first = excerpt(c, d->first, d->second);
	if (d->second)
		second = excerpt(c, d->second, d->first);
	if (!label.len)
		label = SPAN("the body");
	printf("  %.*s: %.*s in the first, %.*s in the second\n", (int)label.len, label.at,
	       (int)first.len, first.at, (int)second.len, second.at);
}

static void print_verdict(const struct comparison *c)
{
	const struct subject *first = &c->subjects[0], *second = &c->subjects[1];

	if (same(c)) {
		puts("They are the same request: the second gets the first one's answer.");
		return;
	}
	puts("They are different requests: with one Idempotency-Key the second is refused.");
	if (first->kind != second->kind)
		printf("  the first is compared as %s, the second as %s\n", first->kind->name,
		       second->kind->name);
	else if (c->differences.reordered)
		puts("  their parts come in another order");
	for (size_t i = 0; first->kind == second->kind && i < c->differences.n; i++)
		print_difference(c, &c->differences.at[i]);
}

static void print_digests(const struct comparison *c, const struct subject *subject)
{
	struct span canonical = hex_of(c, subject->digest.canonical, DIGEST_BYTES);
	struct span raw = hex_of(c, subject->digest.raw, DIGEST_RAW_BYTES);

	if (c->n == 2)
		printf("%s\n", clean(c, span_of(subject->name)).at);
	printf("digest      %s\nraw digest  %s\n", canonical.at, raw.at);
}

static void print_canonical(const struct comparison *c)
{
	const struct subject *subject = &c->subjects[0];
	struct buf out;

	buf_init(&out, SIZE_MAX);
	leaves_show(subject->kind, &subject->leaves, subject->canonical, &out);
	printf("compared as %s\n\n", subject->kind->name);
	buf_print(&out, stdout);
	putchar('\n');
	buf_fini(&out);
}

/* What counts beside the body: a header field that does not come is told from an empty one. */
static void print_request(const struct comparison *c)
{
	const struct http_request *request = &c->subjects[0].request;
	const struct digest_rules *rules = &c->route->idempotency->rules;

	printf("request     %.*s %s%s%s\n", (int)request->method.len, request->method.at,
	       clean(c, request->path).at, request->has_query ? "?" : "",
	       clean(c, request->query).at);
	for (size_t i = 0; i < rules->n_headers; i++) {
		struct span name = rules->headers[i];
		const struct http_field *field = http_find(&request->fields, name, NULL);

		printf("header      %.*s: %s\n", (int)name.len, name.at,
		       field ? clean(c, field->value).at : "(absent)");
	}
}

static void print_text(const struct comparison *c)
{
	const struct idempotency_settings *it = c->route->idempotency;
	struct span rules = digest_rules_text(c->arena, &it->rules);

	if (c->n == 2)
		print_verdict(c);
	else
		print_canonical(c);
	if (c->n == 2)
		putchar('\n');
	print_request(c);
	for (size_t i = 0; i < c->n; i++)
		print_digests(c, &c->subjects[i]);
	if (c->subjects[0].digest.key_id)
		printf("digest key  %d\n", (int)c->subjects[0].digest.key_id);
	else
		puts("digest key  none: plain SHA-256");
	printf("operation   %s\nrules       %.*s\n", it->operation, (int)rules.len, rules.at);
	if (c->assumed_json)
		puts("No Content-Type was given: application/json was assumed.");
}

/* --- the same as JSON --- */

static json_t *json_of(struct span text)
{
	return json_stringn(text.at, text.len);
}

static json_t *json_value(const struct comparison *c, const struct leaf *leaf)
{
	return leaf ? json_of(clean(c, leaf->value)) : json_null();
}

static json_t *json_differences(const struct comparison *c)
{
	json_t *all = json_array();

	for (size_t i = 0; i < c->differences.n; i++) {
		const struct leaf_difference *d = &c->differences.at[i];

		json_array_append_new(all,
				      json_pack("{s:o,s:o,s:o}", "pointer",
						json_of(clean(c, leaf_difference_label(d))),
						"first", json_value(c, d->first), "second",
						json_value(c, d->second)));
	}
	return all;
}

static json_t *json_subject(const struct comparison *c, const struct subject *subject)
{
	struct buf shown;
	json_t *made = NULL;

	buf_init(&shown, SIZE_MAX);
	leaves_show(subject->kind, &subject->leaves, subject->canonical, &shown);
	made = json_pack(
		"{s:o,s:s,s:o,s:o,s:o}", "body", json_of(clean(c, span_of(subject->name))),
		"compared_as", subject->kind->name, "digest",
		json_of(hex_of(c, subject->digest.canonical, DIGEST_BYTES)), "raw_digest",
		json_of(hex_of(c, subject->digest.raw, DIGEST_RAW_BYTES)), "canonical",
		json_of(buf_view(&shown)));
	buf_fini(&shown);
	return made;
}

static void print_json(const struct comparison *c)
{
	const struct idempotency_settings *it = c->route->idempotency;
	json_t *subjects = json_array();
	json_t *all = NULL;

	for (size_t i = 0; i < c->n; i++)
		json_array_append_new(subjects, json_subject(c, &c->subjects[i]));
	all = json_pack("{s:s,s:o,s:i,s:o}", "operation", it->operation, "rules",
			json_of(digest_rules_text(c->arena, &it->rules)), "digest_key",
			(int)c->subjects[0].digest.key_id, "bodies", subjects);
	if (c->n == 2) {
		json_object_set_new(all, "same", json_boolean(same(c)));
		json_object_set_new(all, "reordered", json_boolean(c->differences.reordered));
		json_object_set_new(all, "differences", json_differences(c));
	}
	json_dumpf(all, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(all);
}

/* --- the command --- */

static bool compare(struct comparison *c)
{
	struct http_request request = { .minor = 1, .peer = SPAN("unix") };

	if (!read_route(c, &request) || !read_headers(c, &request))
		return false;
	for (size_t i = 0; i < c->n; i++) {
		c->subjects[i].request = request;
		if (!read_body(c, &c->subjects[i], c->args->word[1 + i]) ||
		    !understand(c, &c->subjects[i]))
			return false;
	}
	if (c->n == 2 && c->subjects[0].kind == c->subjects[1].kind)
		c->differences = leaves_differ(&c->subjects[0].leaves, &c->subjects[1].leaves);
	return true;
}

int cli_digest(const struct cli_args *args)
{
	struct comparison c = { .args = args, .n = args->words - 1 };
	bool good = false;

	c.settings = cli_settings(args, false);
	if (!c.settings)
		return CLI_FAILED;
	c.arena = arena_new();
	good = compare(&c);
	if (good && args->json)
		print_json(&c);
	else if (good)
		print_text(&c);
	arena_free(c.arena);
	settings_release(c.settings);
	return good ? CLI_DONE : CLI_FAILED;
}
