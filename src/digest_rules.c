/*
 * The rules by which requests are compared, as one text in which each has its place, and the id
 * that is made of it. The id is stored with every record; where the stored one is another than
 * the route's, canonical digests say nothing about each other.
 */
#include "digest.h"

#include "canonical_rules.h"
#include "digest_internal.h"

#include <endian.h>

#define LAYOUT   3
#define TEXT_MAX ((size_t)1024 * 1024)

static void put_list(struct buf *out, const char *what, const struct span *names, size_t n)
{
	buf_format(out, "; %s", what);
	for (size_t i = 0; i < n; i++)
		buf_format(out, " %.*s", (int)names[i].len, names[i].at);
}

struct span digest_rules_text(struct arena *arena, const struct digest_rules *rules)
{
	static const char *const numbers[] = {
		[CANONICAL_EXACT] = "exact", [CANONICAL_IEEE754] = "ieee754"
	};
	static const char *const bodies[] = { [CANONICAL_AUTO] = "auto",
					      [CANONICAL_JSON] = "json",
					      [CANONICAL_FORM] = "form",
					      [CANONICAL_MULTIPART] = "multipart",
					      [CANONICAL_RAW] = "raw" };
	struct span text = { 0 };
	struct buf out;

	buf_init(&out, TEXT_MAX);
	buf_format(&out, "layout %d; version %u; body %s; numbers %s", LAYOUT, rules->version,
		   bodies[rules->body], numbers[rules->numbers]);
	if (rules->query_listed)
		put_list(&out, rules->n_query ? "query" : "no query", rules->query,
			 rules->n_query);
	else
		buf_text(&out, "; query *");
	if (rules->n_headers)
		put_list(&out, "headers", rules->headers, rules->n_headers);
	if (rules->members)
		canonical_rules_text(rules->members, &out);
	text = arena_copy(arena, buf_view(&out));
	buf_fini(&out);
	return text;
}

int64_t digest_rules_id(const struct digest_rules *rules)
{
	struct arena *arena = arena_new();
	struct hash *hash = digest_hash(NULL);
	struct span text = digest_rules_text(arena, rules);
	unsigned char whole[32];
	uint64_t first = 0;

	hash_add(hash, text.at, text.len);
	hash_end(hash, whole);
	arena_free(arena);
	memcpy(&first, whole, sizeof(first));
	return (int64_t)(be64toh(first) & INT64_MAX);
}
