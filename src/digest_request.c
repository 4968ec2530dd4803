/*
 * The digests that bind a key to its content (CONTRACT 4). They are stored for as long as keys
 * are, so the layout below is a stored format: a change of it changes LAYOUT (digest_rules.c),
 * with that the rules id, and then the raw digest decides.
 *
 * Canonical digest: SHA-256, or HMAC-SHA-256 under a key of ledger.digest_keys, over
 *     text    "onceward request 2"
 *     number  rules version
 *     text    method, path (normalised)
 *     number  of parameters that count, then for each: text name, text value
 *     number  of header fields that count, then for each: text name (in lower case, sorted),
 *             number of its lines, the text of each
 *     number  of Content-Encoding fields whose coding is still on the body, the text of each
 *     text    body kind: a canonicaliser's name
 *     bytes   canonical body, up to the end: its length is not known when it begins
 * Raw digest: the first half of the same over
 *     text    "onceward raw 2", method, target (as received)
 *     number  of Content-Type fields, then the text of each; the same of Content-Encoding
 *     number  of header fields that count, then each as above
 *     bytes   body
 * and where the route may send a request again with the client's own key, over
 *     text    "onceward raw 2 resend"
 *     number  of lines of each field that may hold the key, then the text of each
 * and then as above, from the method on. A number is 8 bytes, big-endian; a text is its length as a number, and its bytes.
 *
 * Parameters: the query is split at `&`, a piece at its first `=`, which belongs to the value (so
 * `a` and `a=` differ); an empty piece is none. Escapes are normalised as in paths: unreserved
 * ones decoded, hex in upper case; `+` and malformed escapes stand as they are. They are sorted
 * by the bytes of the name; equal names keep their order. Where a list says which count, names are
 * compared with all escapes undone, and `+` as a space.
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

/* As itself, or escaped; returns how many bytes that is. */
static size_t put_byte(char *out, unsigned byte)
{
	static const char digits[] = "0123456789ABCDEF";

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
			n += put_byte(out + n,
				      http_hex(text.at[i + 1]) << 4 | http_hex(text.at[i + 2]));
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

/* The byte that text[i] begins to say, all escapes undone; returns how many bytes say it. */
static size_t decoded(struct span text, size_t i, char *byte)
{
	*byte = text.at[i];
	if (*byte == '+')
		*byte = ' ';
	if (*byte != '%' || text.len - i < 3 || !http_is(text.at[i + 1], HTTP_HEX) ||
	    !http_is(text.at[i + 2], HTTP_HEX))
		return 1;
	*byte = (char)(http_hex(text.at[i + 1]) << 4 | http_hex(text.at[i + 2]));
	return 3;
}

/* However they are spelt. */
static bool same_name(struct span a, struct span b)
{
	size_t i = 0, j = 0;

	while (i < a.len && j < b.len) {
		char of_a = 0, of_b = 0;

		i += decoded(a, i, &of_a);
		j += decoded(b, j, &of_b);
		if (of_a != of_b)
			return false;
	}
	return i == a.len && j == b.len;
}

static bool counts(const struct digest_rules *rules, struct span parameter)
{
	if (!rules->query_listed)
		return true;
	for (size_t i = 0; i < rules->n_query; i++)
		if (same_name(rules->query[i], parameter))
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
	enum canonical_body body;
	enum inflate_coding coding; /* to be undone */
	bool encoded;               /* some coding stays, and counts */
	struct arena *own;          /* NULL: the request's is used */
	struct buf decoded;
};

/* Bytes are compared as they came where the route says so, or nobody knows what they mean. */
static void plan_coding(struct plan *plan, const struct http_fields *fields)
{
	const struct http_field *encoding = NULL;
	size_t n = 0;

	encoding = http_find(fields, SPAN("Content-Encoding"), &n);
	plan->coding = encoding ? inflate_coding(encoding->value) : INFLATE_NONE;
	if (n > 1 || plan->coding == INFLATE_OTHER) {
		plan->body = CANONICAL_RAW;
		plan->encoded = true;
	}
	if (plan->body == CANONICAL_RAW || !plan->task.body.len) {
		plan->encoded |= plan->coding != INFLATE_NONE && plan->task.body.len;
		plan->coding = INFLATE_NONE;
	}
}

static struct plan plan_of(const struct digest_rules *rules, const struct http_request *request)
{
	size_t types = 0;
	const struct http_field *type =
		http_find(&request->fields, SPAN("Content-Type"), &types);
	struct plan plan = { .body = types > 1 ? CANONICAL_RAW : rules->body,
			     .task = { .arena = request->arena,
				       .body = request->body,
				       .content_type = type ? type->value : SPAN(""),
				       .numbers = rules->numbers,
				       .rules = rules->members } };

	plan_coding(&plan, &request->fields);
	buf_init(&plan.decoded, rules->decoded_max);
	if (request->body.len > SMALL_BODY || plan.coding != INFLATE_NONE)
		plan.task.arena = plan.own = arena_new();
	return plan;
}

static void plan_end(struct plan *plan)
{
	buf_fini(&plan->decoded);
	if (plan->own)
		arena_free(plan->own);
}

/* Undoes the coding, for of which kind the body is is seen then: an empty one is of none. */
static bool decode_plan(struct plan *plan, struct canonical_error *error)
{
	*error = (struct canonical_error){ 0 };
	if (plan->coding != INFLATE_NONE) {
		if (!inflate_body(plan->coding, plan->task.body, &plan->decoded, error))
			return false;
		plan->task.body = buf_view(&plan->decoded);
	}
	plan->canonicaliser =
		canonical_for(plan->body, plan->task.content_type, plan->task.body);
	return true;
}

static bool run_plan(const struct plan *plan, struct canonical_sink *sink,
		     struct canonical_error *error)
{
	bool done = plan->canonicaliser->run(&plan->task, sink, error);

	error->decoded = plan->coding != INFLATE_NONE;
	return done;
}

static bool add_body(struct message *m, struct plan *plan, const struct http_fields *fields,
		     struct canonical_error *error)
{
	if (!decode_plan(plan, error))
		return false;
	if (plan->encoded)
		add_fields(m, fields, SPAN("Content-Encoding"));
	else
		add_number(m, 0);
	add_text(m, span_of(plan->canonicaliser->name));
	return run_plan(plan, &m->sink, error);
}

static bool digest_canonical(const struct digest_rules *rules,
			     const struct http_request *request, const struct digest_key *key,
			     unsigned char out[DIGEST_BYTES], struct canonical_error *error)
{
	struct plan plan = plan_of(rules, request);
	struct message m;
	bool done = false;

	message_begin(&m, key, SPAN("onceward request 2"));
	add_number(&m, rules->version);
	add_text(&m, request->method);
	add_text(&m, request->path);
	add_query(&m, rules, request);
	add_headers(&m, rules, &request->fields);
	done = add_body(&m, &plan, &request->fields, error);
	plan_end(&plan);
	if (done)
		message_end(&m, out);
	return done;
}

static void digest_raw(const struct digest_rules *rules, const struct http_request *request,
		       const struct digest_key *key, unsigned char out[DIGEST_RAW_BYTES])
{
	unsigned char whole[32];
	struct message m;

	message_begin(&m, key,
		      rules->n_sent ? SPAN("onceward raw 2 resend") : SPAN("onceward raw 2"));
	for (size_t i = 0; i < rules->n_sent; i++)
		add_fields(&m, &request->fields, rules->sent[i]);
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
	bool done = decode_plan(&plan, error);

	*kind = plan.canonicaliser;
	done = done && run_plan(&plan, &to.sink, error);
	plan_end(&plan);
	return done;
}

struct span digest_parameter_name(struct arena *arena, struct span name)
{
	char *out = arena_alloc(arena, 3 * name.len + 1);
	size_t n = 0;

	for (size_t i = 0; i < name.len;) {
		char byte = 0;

		i += decoded(name, i, &byte);
		n += put_byte(out + n, (unsigned char)byte);
	}
	return (struct span){ out, n };
}
