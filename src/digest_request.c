/*
 * The digests that bind a key to its content (CONTRACT 4). They are stored for as long as keys
 * are, so the layout below is a stored format: a change of it changes LAYOUT (digest_rules.c), with that the rules
 * id, and then the raw digest decides.
 *
 * Canonical digest: SHA-256, or HMAC-SHA-256 under a key of ledger.digest_keys, over
 *     text    "onceward request 1"
 *     number  rules version
 *     text    method, path (normalised)
 *     number  of parameters that count, then for each: text name, text value
 *     number  of header fields that count, then for each: text name (in lower case, sorted),
 *             number of its lines, the text of each
 *     text    body kind: a canonicaliser's name
 *     bytes   canonical body, up to the end: its length is not known when it begins
 * Raw digest: the first half of the same over
 *     text    "onceward raw 2", method, target (as received)
 *     number  of Content-Type fields, then the text of each; the same of Content-Encoding
 *     number  of header fields that count, then each as above
 *     bytes   body
 * A number is 8 bytes, big-endian; a text is its length as a number, and its bytes.
 *
 * Parameters: the query is split at `&`, a piece at its first `=`, which belongs to the value (so
 * `a` and `a=` differ); an empty piece is none. Escapes are normalised as in paths: unreserved
 * ones decoded, hex in upper case; `+` and malformed escapes stand as they are. They are sorted
 * by the bytes of the name; equal names keep their order.
 *
 * A body that is gzip or deflate counts as what is in it, unless the route compares bytes; one
 * with another Content-Encoding, or with several, or with several Content-Types, as its bytes.
 */
#include "digest.h"

#include "digest_internal.h"
#include "inflate.h"

#include <endian.h>
#include <stdlib.h>

/* Bodies that are longer are worked on in memory that is given back at once. */
#define SMALL_BODY 4096U

static void put_number(unsigned char out[8], uint64_t number)
{
	number = htobe64(number);
	memcpy(out, &number, 8);
}

/* A message on its way into a hash: small fields are gathered, calls of OpenSSL are not free. */
struct message {
	struct canonical_sink sink; /* for its last field */
	struct hash *hash;
	size_t n;
	char gathered[512];
};

static void add_bytes(struct message *m, const void *bytes, size_t len)
{
	if (len > sizeof(m->gathered) - m->n) {
		hash_add(m->hash, m->gathered, m->n);
		m->n = 0;
	}
	if (len > sizeof(m->gathered)) {
		hash_add(m->hash, bytes, len);
	} else if (len) {
		memcpy(m->gathered + m->n, bytes, len);
		m->n += len;
	}
}

static void add_number(struct message *m, uint64_t number)
{
	unsigned char bytes[8];

	put_number(bytes, number);
	add_bytes(m, bytes, sizeof(bytes));
}

static void add_text(struct message *m, struct span text)
{
	add_number(m, text.len);
	add_bytes(m, text.at, text.len);
}

static void message_sink(struct canonical_sink *sink, const void *bytes, size_t len)
{
	add_bytes(container_of(sink, struct message, sink), bytes, len);
}

static void message_begin(struct message *m, const struct digest_key *key, struct span kind)
{
	m->sink.put = message_sink;
	m->hash = digest_hash(key);
	m->n = 0;
	add_text(m, kind);
}

static void message_end(struct message *m, unsigned char out[32])
{
	hash_add(m->hash, m->gathered, m->n);
	hash_end(m->hash, out);
}

struct parameter {
	struct span name, value;
	size_t place; /* keeps equal names in their order */
};

static int by_name(const void *a, const void *b)
{
	const struct parameter *p = a, *q = b;
	int order = digest_compare(p->name, q->name);

	if (order)
		return order;
	return p->place < q->place ? -1 : 1;
}

/* Three bytes for one; what they make of an escape. */
static size_t put_escape(char *out, const char *escape)
{
	static const char digits[] = "0123456789ABCDEF";
	unsigned byte = http_hex(escape[1]) << 4 | http_hex(escape[2]);

	if (http_is((char)byte, HTTP_UNRESERVED)) {
		*out = (char)byte;
		return 1;
	}
	out[0] = '%';
	out[1] = digits[byte >> 4];
	out[2] = digits[byte & 15];
	return 3;
}

static struct span normal(struct arena *arena, struct span text)
{
	char *out = NULL;
	size_t n = 0;

	if (!text.len || !memchr(text.at, '%', text.len))
		return text;
	out = arena_alloc(arena, text.len);
	for (size_t i = 0; i < text.len; i++) {
		if (text.at[i] == '%' && text.len - i > 2 &&
		    http_is(text.at[i + 1], HTTP_HEX) && http_is(text.at[i + 2], HTTP_HEX)) {
			n += put_escape(out + n, text.at + i);
			i += 2;
		} else {
			out[n++] = text.at[i];
		}
	}
	return (struct span){ out, n };
}

/* The piece up to the next `&`, taken off the query's front. */
static struct span next_piece(struct span *query)
{
	const char *end = memchr(query->at, '&', query->len);
	struct span piece = { query->at, end ? (size_t)(end - query->at) : query->len };
	size_t used = piece.len + (end ? 1 : 0);

	query->at += used;
	query->len -= used;
	return piece;
}

static struct parameter parameter_of(struct arena *arena, struct span piece, size_t place)
{
	const char *equals = memchr(piece.at, '=', piece.len);
	size_t name_len = equals ? (size_t)(equals - piece.at) : piece.len;
	struct span value = { piece.at + name_len, piece.len - name_len };

	return (struct parameter){ normal(arena, (struct span){ piece.at, name_len }),
				   normal(arena, value), place };
}

static size_t pieces_at_most(struct span query)
{
	size_t n = 1;

	for (size_t i = 0; i < query.len; i++)
		n += query.at[i] == '&';
	return n;
}

static bool counts(const struct digest_rules *rules, struct span parameter)
{
	if (!rules->query_listed)
		return true;
	for (size_t i = 0; i < rules->n_query; i++)
		if (span_equal(rules->query[i], parameter))
			return true;
	return false;
}

static void add_query(struct message *m, const struct digest_rules *rules,
		      const struct http_request *request)
{
	struct span query = request->query;
	struct parameter *all = NULL;
	size_t n = 0;

	if (query.len)
		all = arena_alloc(request->arena, pieces_at_most(query) * sizeof(*all));
	while (query.len) {
		struct span piece = next_piece(&query);

		if (!piece.len)
			continue;
		all[n] = parameter_of(request->arena, piece, n);
		n += counts(rules, all[n].name);
	}
	if (n > 1)
		qsort(all, n, sizeof(*all), by_name);
	add_number(m, n);
	for (size_t i = 0; i < n; i++) {
		add_text(m, all[i].name);
		add_text(m, all[i].value);
	}
}

static void add_fields(struct message *m, const struct http_fields *fields, struct span name)
{
	size_t n = 0;

	http_find(fields, name, &n);
	add_number(m, n);
	for (size_t i = 0; n && i < fields->n; i++)
		if (http_same_name(fields->at[i].name, name))
			add_text(m, fields->at[i].value);
}

static void add_headers(struct message *m, const struct digest_rules *rules,
			const struct http_fields *fields)
{
	add_number(m, rules->n_headers);
	for (size_t i = 0; i < rules->n_headers; i++) {
		add_text(m, rules->headers[i]);
		add_fields(m, fields, rules->headers[i]);
	}
}

/* How a body is brought into its normal form. */
struct plan {
	const struct canonicaliser *canonicaliser;
	struct canonical_task task;
	enum inflate_coding coding;
};

/* Bytes are compared as they came where the route says so, or nobody knows what they mean. */
static struct plan plan_of(const struct digest_rules *rules, const struct http_request *request)
{
	const struct http_field *type = NULL, *encoding = NULL;
	size_t types = 0, encodings = 0;
	struct plan plan = { .task = { .arena = request->arena,
				       .body = request->body,
				       .numbers = rules->numbers,
				       .rules = rules->members } };
	enum canonical_body body = rules->body;

	type = http_find(&request->fields, SPAN("Content-Type"), &types);
	encoding = http_find(&request->fields, SPAN("Content-Encoding"), &encodings);
	plan.task.content_type = type ? type->value : SPAN("");
	plan.coding = encoding ? inflate_coding(encoding->value) : INFLATE_NONE;
	if (types > 1 || encodings > 1 || plan.coding == INFLATE_OTHER)
		body = CANONICAL_RAW;
	if (body == CANONICAL_RAW || !request->body.len)
		plan.coding = INFLATE_NONE;
	plan.canonicaliser = canonical_for(body, plan.task.content_type, request->body);
	return plan;
}

/* In two steps, for the first may still refuse the body and the second needs it whole. */
static bool run_decoded(struct plan *plan, size_t decoded_max, struct canonical_sink *sink,
			struct canonical_error *error)
{
	struct buf decoded;
	bool done = false;

	buf_init(&decoded, decoded_max);
	done = inflate_body(plan->coding, plan->task.body, &decoded, error);
	if (done) {
		plan->task.body = buf_view(&decoded);
		done = plan->canonicaliser->run(&plan->task, sink, error);
		error->decoded = true;
	}
	buf_fini(&decoded);
	return done;
}

static bool run_plan(struct plan *plan, size_t decoded_max, struct canonical_sink *sink,
		     struct canonical_error *error)
{
	struct arena *own = NULL;
	bool done = false;

	*error = (struct canonical_error){ 0 };
	if (plan->task.body.len > SMALL_BODY || plan->coding != INFLATE_NONE)
		plan->task.arena = own = arena_new();
	if (plan->coding == INFLATE_NONE)
		done = plan->canonicaliser->run(&plan->task, sink, error);
	else
		done = run_decoded(plan, decoded_max, sink, error);
	if (own)
		arena_free(own);
	return done;
}

static bool digest_canonical(const struct digest_rules *rules,
			     const struct http_request *request, const struct digest_key *key,
			     unsigned char out[DIGEST_BYTES], struct canonical_error *error)
{
	struct plan plan = plan_of(rules, request);
	struct message m;

	message_begin(&m, key, SPAN("onceward request 1"));
	add_number(&m, rules->version);
	add_text(&m, request->method);
	add_text(&m, request->path);
	add_query(&m, rules, request);
	add_headers(&m, rules, &request->fields);
	add_text(&m, span_of(plan.canonicaliser->name));
	if (!run_plan(&plan, rules->decoded_max, &m.sink, error))
		return false;
	message_end(&m, out);
	return true;
}

static void digest_raw(const struct digest_rules *rules, const struct http_request *request,
		       const struct digest_key *key, unsigned char out[DIGEST_RAW_BYTES])
{
	unsigned char whole[32];
	struct message m;

	message_begin(&m, key, SPAN("onceward raw 2"));
	add_text(&m, request->method);
	add_text(&m, request->target);
	add_fields(&m, &request->fields, SPAN("Content-Type"));
	add_fields(&m, &request->fields, SPAN("Content-Encoding"));
	add_headers(&m, rules, &request->fields);
	add_bytes(&m, request->body.at, request->body.len);
	message_end(&m, whole);
	memcpy(out, whole, DIGEST_RAW_BYTES);
}

bool digest_request(const struct digest_rules *rules, const struct http_request *request,
		    const struct digest_key *key, struct digest *out,
		    struct canonical_error *error)
{
	if (!digest_canonical(rules, request, key, out->canonical, error))
		return false;
	digest_raw(rules, request, key, out->raw);
	out->key_id = key ? key->id : 0;
	return true;
}

bool digest_body(const struct digest_rules *rules, const struct http_request *request,
		 struct buf *out, const struct canonicaliser **kind,
		 struct canonical_error *error)
{
	struct plan plan = plan_of(rules, request);
	struct canonical_buf to = canonical_to(out);

	*kind = plan.canonicaliser;
	return run_plan(&plan, rules->decoded_max, &to.sink, error);
}

struct span digest_parameter_name(struct arena *arena, struct span name)
{
	return normal(arena, name);
}
