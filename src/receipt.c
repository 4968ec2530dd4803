/*
 * A reference is compared by where it leads on the API itself: without scheme, authority and
 * fragment, its path normalised by RFC 3986 6.2.2 (escapes of plain characters undone, hex in
 * upper case, dot segments removed), its query as it came. An upstream that names itself by
 * another host after a failover has made nothing new.
 */
#include "receipt.h"

#include "condition.h"
#include "json_find.h"

#include <stdio.h>

static struct span behind(struct span text, size_t n)
{
	return (struct span){ text.at + n, text.len - n };
}

static bool begins(struct span text, struct span with)
{
	return text.len >= with.len && http_same_name((struct span){ text.at, with.len }, with);
}

/* From the first of these bytes on; all of it goes where there is none. */
static struct span from_any(struct span text, const char *bytes)
{
	size_t n = 0;

	while (n < text.len && (!text.at[n] || !strchr(bytes, text.at[n])))
		n++;
	return behind(text, n);
}

/* What of a reference names the host goes; false: it is no reference. */
static bool without_host(struct span *text)
{
	static const struct span schemes[] = { { "http://", 7 },
					       { "https://", 8 },
					       { "//", 2 } };

	for (size_t i = 0; i < ARRAY_LEN(schemes); i++)
		if (begins(*text, schemes[i])) {
			*text = from_any(behind(*text, schemes[i].len), "/?#");
			return true;
		}
	return text->len > 0 && text->at[0] == '/';
}

/* RFC 3986 5.2.4, of a path that begins with a slash or is empty. */
static struct span without_dots(struct arena *arena, struct span path)
{
	char *out = arena_alloc(arena, path.len + 2);
	size_t n = 0, i = 0;

	while (i < path.len) {
		struct span rest = behind(path, i + 1);
		size_t len = rest.len - from_any(rest, "/").len;
		bool last = len == rest.len;
		bool one = len == 1 && rest.at[0] == '.';
		bool two = len == 2 && rest.at[0] == '.' && rest.at[1] == '.';

		while (two && n > 0 && out[--n] != '/')
			;
		if (!one && !two) {
			memcpy(out + n, path.at + i, len + 1);
			n += len + 1;
		} else if (last) {
			out[n++] = '/';
		}
		i += len + 1;
	}
	if (n == 0)
		out[n++] = '/';
	return (struct span){ out, n };
}

/* Path and query. */
static struct span normal_reference(struct arena *arena, struct span text)
{
	struct span fragment = from_any(text, "#");
	struct span whole = { text.at, text.len - fragment.len };
	struct span query = from_any(whole, "?");
	struct span path = { whole.at, whole.len - query.len };
	struct http_target target;

	if (path.len == 0)
		path = SPAN("/");
	if (!http_target(arena, path, true, &target))
		return whole;
	path = without_dots(arena, target.path);
	return arena_format(arena, "%.*s%.*s", (int)path.len, path.at, (int)query.len,
			    query.at);
}

static struct span hashed(struct arena *arena, struct span text)
{
	unsigned char digest[DIGEST_BYTES];
	char hex[2 * DIGEST_BYTES + 1];
	struct hash *hash = hash_new();

	hash_add(hash, text.at, text.len);
	hash_end(hash, digest);
	hash_free(hash);
	for (size_t i = 0; i < DIGEST_BYTES; i++)
		snprintf(hex + 2 * i, 3, "%02x", (unsigned)digest[i]);
	return arena_format(arena, "sha256:%s", hex);
}

struct span receipt_normal(struct arena *arena, struct span text)
{
	struct span normal = text;

	if (text.len <= HTTP_HEAD_MAX && without_host(&normal))
		normal = normal_reference(arena, normal);
	return normal.len > RECEIPT_MAX ? hashed(arena, normal) : normal;
}

struct span receipt_text(struct arena *arena, const struct canonical_rules *pointer,
			 const struct http_answer *answer)
{
	struct span json = condition_json(answer), value = { NULL, 0 }, text = { "", 0 };

	if (json.len && json_find(pointer, json, &value))
		json_scalar(arena, value, &text);
	return text;
}

struct span receipt_of(struct arena *arena, const struct response_settings *response,
		       const struct http_answer *answer)
{
	const struct source *at = response->receipt_at;
	const struct http_field *field = NULL;
	struct span text = { "", 0 };

	if (!at)
		return text;
	if (at->body)
		return receipt_normal(arena, receipt_text(arena, at->body, answer));
	field = http_find(&answer->fields, at->header, NULL);
	return field ? receipt_normal(arena, field->value) : text;
}
