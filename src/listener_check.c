/*
 * Strict checks of a request's head. The parser below us is lenient: it takes Content-Length
 * together with Transfer-Encoding, differing lengths, several Hosts, and waits for ever on a
 * transfer coding that it does not know. Whatever two parties on the way could read in two ways
 * is refused here, before a byte of the body is asked for; every refusal closes the connection.
 *
 * `rules` is the whole of it, in the order in which the refusals count. A rule looks at the head
 * and at what one pass over the fields has gathered (struct seen).
 *
 * Names with an underscore are a case of their own: many servers behind us fold `_` to `-`. One
 * that would fold to a name we decide on is refused, any other is dropped.
 */
#include "listener_check.h"

#include <assert.h>
#include <stdint.h>
#include <strings.h>

/* The fields that the checks are about, how often they came, and their (last) values. */
enum known { HOST, CONTENT_LENGTH, TRANSFER_ENCODING, CONNECTION, EXPECT, KEY, KNOWN_COUNT };

struct seen {
	struct span value[KNOWN_COUNT];
	unsigned lines[KNOWN_COUNT];
	bool bad_name, bad_value, folding_name;
	unsigned minor;
	size_t length; /* what Content-Length says */
};

struct look {
	const struct listener_head *head;
	struct span target; /* as received: the parser decodes its own in place */
	struct seen seen;
};

static const struct span known_names[KNOWN_COUNT] = {
	[HOST] = { "Host", 4 },
	[CONTENT_LENGTH] = { "Content-Length", 14 },
	[TRANSFER_ENCODING] = { "Transfer-Encoding", 17 },
	[CONNECTION] = { "Connection", 10 },
	[EXPECT] = { "Expect", 6 },
	[KEY] = { "Idempotency-Key", 15 },
};

/* A name that ends in `-` stands for all that begin so. Those of `decisive` may not be declared
 * hop-by-hop by a client either: somebody on the way would drop what we decide on. */
static const struct span decisive[] = {
	{ "Idempotency-Key", 15 },   { "Host", 4 },          { "Content-Length", 14 },
	{ "Transfer-Encoding", 17 }, { "Content-Type", 12 }, { "Content-Encoding", 16 },
	{ "Authorization", 13 },     { "Forwarded", 9 },     { "Via", 3 },
	{ "X-Forwarded-", 12 },      { "X-Onceward-", 11 },
};
static const struct span also_ours[] = {
	{ "Connection", 10 }, { "Expect", 6 },  { "Keep-Alive", 10 },
	{ "TE", 2 },          { "Trailer", 7 }, { "Upgrade", 7 },
};

static char folded(char c)
{
	if (c == '_')
		return '-';
	return (char)(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
}

/* Compares as the most careless server would: without case, `_` as `-`. */
static bool means(struct span name, struct span ours)
{
	bool prefix = ours.at[ours.len - 1] == '-';

	if (prefix ? name.len < ours.len : name.len != ours.len)
		return false;
	for (size_t i = 0; i < ours.len; i++)
		if (folded(name.at[i]) != folded(ours.at[i]))
			return false;
	return true;
}

static bool means_any(struct span name, const struct span *ours, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (means(name, ours[i]))
			return true;
	return false;
}

static struct span trimmed(struct span text)
{
	while (text.len > 0 && (text.at[0] == ' ' || text.at[0] == '\t')) {
		text.at++;
		text.len--;
	}
	while (text.len > 0 && (text.at[text.len - 1] == ' ' || text.at[text.len - 1] == '\t'))
		text.len--;
	return text;
}

static bool underscored(struct span name)
{
	return memchr(name.at, '_', name.len) != NULL;
}

static void look_at(struct seen *seen, const struct http_field *field)
{
	if (!http_token(field->name))
		seen->bad_name = true;
	if (!http_field_value(field->value))
		seen->bad_value = true;
	if (underscored(field->name)) {
		if (means_any(field->name, decisive, ARRAY_LEN(decisive)) ||
		    means_any(field->name, also_ours, ARRAY_LEN(also_ours)))
			seen->folding_name = true;
		return;
	}
	for (size_t i = 0; i < KNOWN_COUNT; i++)
		if (http_same_name(field->name, known_names[i])) {
			seen->value[i] = field->value;
			seen->lines[i]++;
			return;
		}
}

static bool too_large(struct look *look)
{
	return look->head->n_fields > HTTP_FIELDS_MAX || look->head->bytes > HTTP_HEAD_MAX;
}

/* Every line must begin where the one before it ended, with CRLF and nothing else between. */
static bool cut(struct look *look)
{
	const struct listener_head *h = look->head;
	uintptr_t at = (uintptr_t)h->method.at + h->method.len + 1;

	if (!h->in_place)
		return false;
	if ((uintptr_t)h->target.at != at || h->target.len == 0)
		return true;
	at += h->target.len + 1;
	if ((uintptr_t)h->version.at != at)
		return true;
	at += h->version.len + 2;
	for (size_t i = 0; i < h->fields.n; i++) {
		const struct http_field *field = &h->fields.at[i];

		if ((uintptr_t)field->name.at != at)
			return true;
		at = (uintptr_t)field->value.at + field->value.len + 2;
	}
	return at + 2 != (uintptr_t)h->method.at + h->bytes;
}

static bool unknown_version(struct look *look)
{
	struct span version = look->head->version;

	look->seen.minor = version.len == 8 ? (unsigned)(version.at[7] - '0') : 9;
	return look->seen.minor > 1 || memcmp(version.at, "HTTP/1.", 7) != 0;
}

static bool bad_method(struct look *look)
{
	return !http_token(look->head->method);
}

static bool bad_target(struct look *look)
{
	for (size_t i = 0; i < look->target.len; i++)
		if ((uint8_t)look->target.at[i] <= ' ' || look->target.at[i] == 0x7f)
			return true;
	return look->target.len == 0;
}

static bool bad_name(struct look *look)
{
	return look->seen.bad_name;
}

static bool bad_value(struct look *look)
{
	return look->seen.bad_value;
}

static bool folding_name(struct look *look)
{
	return look->seen.folding_name;
}

static bool two_framings(struct look *look)
{
	return look->seen.lines[CONTENT_LENGTH] && look->seen.lines[TRANSFER_ENCODING];
}

static bool bad_length(struct look *look)
{
	struct seen *seen = &look->seen;
	struct span digits = seen->value[CONTENT_LENGTH];

	if (seen->lines[CONTENT_LENGTH] == 0)
		return false;
	for (size_t i = 0; i < digits.len; i++) {
		size_t digit = (size_t)(digits.at[i] - '0');

		if (digit > 9 || seen->length > (SIZE_MAX / 2 - digit) / 10)
			return true;
		seen->length = seen->length * 10 + digit;
	}
	return seen->lines[CONTENT_LENGTH] > 1 || digits.len == 0;
}

/* Without trimming: the parser compares so, and would read until the end of the connection. */
static bool bad_coding(struct look *look)
{
	unsigned lines = look->seen.lines[TRANSFER_ENCODING];
	struct span coding = look->seen.value[TRANSFER_ENCODING];

	return lines > 1 || (lines == 1 && (!http_same_name(coding, SPAN("chunked")) ||
					    look->seen.minor == 0));
}

static bool bad_host(struct look *look)
{
	unsigned lines = look->seen.lines[HOST];

	if (lines == 0)
		return look->seen.minor > 0;
	return lines > 1 || !http_host_valid(trimmed(look->seen.value[HOST]));
}

static bool element_decisive(struct span list)
{
	while (list.len > 0) {
		const char *comma = memchr(list.at, ',', list.len);
		size_t len = comma ? (size_t)(comma - list.at) : list.len;

		if (means_any(trimmed((struct span){ list.at, len }), decisive,
			      ARRAY_LEN(decisive)))
			return true;
		len += comma ? 1 : 0;
		list = (struct span){ list.at + len, list.len - len };
	}
	return false;
}

static bool bad_connection(struct look *look)
{
	const struct http_fields *fields = &look->head->fields;

	if (look->seen.lines[CONNECTION] <= 1)
		return element_decisive(look->seen.value[CONNECTION]);
	for (size_t i = 0; i < fields->n; i++)
		if (http_same_name(fields->at[i].name, known_names[CONNECTION]) &&
		    element_decisive(fields->at[i].value))
			return true;
	return false;
}

static bool bad_expectation(struct look *look)
{
	unsigned lines = look->seen.lines[EXPECT];

	if (look->seen.minor == 0 || lines == 0)
		return false;
	return lines > 1 || !http_same_name(look->seen.value[EXPECT], SPAN("100-continue"));
}

static const struct rule {
	unsigned status;
	bool (*broken)(struct look *look);
	const char *why;
} rules[] = {
	{ 431, too_large, "The head has more than 16 KiB or more than 100 fields" },
	{ 400, cut,
	  "A line of the head is folded, is blank, holds a NUL or does not end with CRLF" },
	{ 505, unknown_version, "The version is not HTTP/1.0 or HTTP/1.1" },
	{ 400, bad_method, "The method is not a token" },
	{ 400, bad_target,
	  "The request target is empty, or holds white space or control characters" },
	{ 400, bad_name, "The name of a field is not a token" },
	{ 400, bad_value, "The value of a field holds control characters" },
	{ 400, folding_name, "The name of a field has an underscore where a hyphen is meant" },
	{ 400, two_framings, "Content-Length together with Transfer-Encoding" },
	{ 400, bad_length, "Content-Length is not one decimal number" },
	{ 400, bad_coding,
	  "Transfer-Encoding is not one `chunked`, or the version is HTTP/1.0" },
	{ 400, bad_host, "There is not exactly one valid Host" },
	{ 400, bad_connection, "Connection names a field that is not for one connection" },
	{ 417, bad_expectation, "Expect is not `100-continue`" },
};

/* The fields may go on to the request's end, the parser's memory does not: one copy of all texts. */
static void keep_fields(struct http_request *request, const struct http_fields *from)
{
	size_t bytes = 0;
	char *at = NULL;

	for (size_t i = 0; i < from->n; i++)
		bytes += from->at[i].name.len + from->at[i].value.len + 2;
	at = arena_alloc(request->arena, bytes);
	request->fields.at = arena_alloc(request->arena, from->n * sizeof(*from->at));
	request->fields.n = 0;
	for (size_t i = 0; i < from->n; i++) {
		struct span name = from->at[i].name, value = trimmed(from->at[i].value);

		if (underscored(name))
			continue;
		memcpy(at, name.at, name.len);
		at[name.len] = '\0';
		request->fields.at[request->fields.n].name = (struct span){ at, name.len };
		at += name.len + 1;
		memcpy(at, value.at, value.len);
		at[value.len] = '\0';
		request->fields.at[request->fields.n++].value = (struct span){ at, value.len };
		at += value.len + 1;
	}
}

static bool keep_target(struct http_request *request)
{
	struct http_target target = { 0 };
	const struct http_field *host = NULL;

	request->loose_path = false;
	if (!http_target(request->arena, request->target, false, &target)) {
		request->loose_path = true;
		target = (struct http_target){ 0 };
		if (!http_target(request->arena, request->target, true, &target))
			return false;
	}
	request->path = target.path;
	request->query = target.query;
	request->has_query = target.has_query;
	request->host = target.authority;
	if (target.authority.len > 0)
		return true;
	host = http_find(&request->fields, known_names[HOST], NULL);
	if (host)
		request->host = host->value;
	return true;
}

struct listener_checked listener_check(struct http_request *request,
				       const struct listener_head *head)
{
	struct look look = { .head = head, .target = request->target };
	struct listener_checked checked = { 0 };

	for (size_t i = 0; i < head->fields.n; i++)
		look_at(&look.seen, &head->fields.at[i]);
	checked.keyed = look.seen.lines[KEY] > 0;
	for (size_t i = 0; i < ARRAY_LEN(rules); i++)
		if (rules[i].broken(&look)) {
			checked.status = rules[i].status;
			checked.why = rules[i].why;
			return checked;
		}
	checked.expects = look.seen.lines[EXPECT] > 0 && look.seen.minor > 0;
	checked.announced = look.seen.lines[TRANSFER_ENCODING] ? SIZE_MAX : look.seen.length;
	request->minor = look.seen.minor;
	request->method = arena_copy(request->arena, head->method);
	keep_fields(request, &head->fields);
	if (!keep_target(request)) {
		checked.status = 400;
		checked.why = "The request target is not valid";
	}
	return checked;
}
