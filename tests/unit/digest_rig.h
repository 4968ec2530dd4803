/* What the tests of the digests have in common: a request made of texts, and its digests. */
#pragma once
#include "digest.h"
#include "unit_run.h"

#include <stdio.h>

static const struct digest_rules rules = { .version = 1,
					   .body = CANONICAL_AUTO,
					   .decoded_max = 1 << 20 };

/* A request made of texts; the first field counts only where it is set. */
struct sketch {
	const char *method, *target, *path, *query, *type, *encoding, *body;
	struct span bytes; /* instead of `body` */
	const char *header, *header_value;
};

static const struct sketch order = { .method = "POST",
				     .target = "/v1/orders?b=2&a=1",
				     .path = "/v1/orders",
				     .query = "b=2&a=1",
				     .type = "application/json",
				     .body = "{\"b\":1.0,\"a\":[]}" };

static _Thread_local struct canonical_error why_refused; /* the last one */

static inline bool digest_by(const struct digest_rules *by, const struct digest_key *with,
			     const struct sketch *s, struct digest *out)
{
	struct http_field fields[3];
	struct http_request request = { .arena = arena_new(),
					.method = span_of(s->method),
					.target = span_of(s->target),
					.path = span_of(s->path),
					.query = span_of(s->query),
					.has_query = s->query != NULL,
					.fields = { fields, 0 },
					.body = s->bytes.at ? s->bytes : span_of(s->body) };
	bool done = false;

	if (s->type)
		http_add(&request.fields, SPAN("content-type"), span_of(s->type));
	if (s->encoding)
		http_add(&request.fields, SPAN("Content-Encoding"), span_of(s->encoding));
	if (s->header_value)
		http_add(&request.fields, span_of(s->header), span_of(s->header_value));
	done = digest_request(by, &request, with, out, &why_refused);
	arena_free(request.arena);
	return done;
}

static inline bool digest_of(const struct digest_rules *by, const struct sketch *s,
			     struct digest *out)
{
	return digest_by(by, NULL, s, out);
}

static inline bool digest_under(const struct digest_key *with, const struct sketch *s,
				struct digest *out)
{
	return digest_by(&rules, with, s, out);
}

static inline bool same_canonical(struct sketch a, struct sketch b)
{
	struct digest da, db;

	ck_assert(digest_of(&rules, &a, &da) && digest_of(&rules, &b, &db));
	return memcmp(da.canonical, db.canonical, DIGEST_BYTES) == 0;
}

static inline bool same_raw(struct sketch a, struct sketch b)
{
	struct digest da, db;

	ck_assert(digest_of(&rules, &a, &da) && digest_of(&rules, &b, &db));
	return memcmp(da.raw, db.raw, DIGEST_RAW_BYTES) == 0;
}

#define WITH(member, value)                                                                    \
	({                                                                                     \
		struct sketch changed = order;                                                 \
		changed.member = (value);                                                      \
		changed;                                                                       \
	})
