/*
 * Canonical forms and multipart bodies, taken apart: a field or a part is a leaf. Of a part that
 * is long, or no text, its size and hash are shown.
 */
#include "cli_leaves_internal.h"

#include "digest.h"
#include "escaped.h"

#include <stdlib.h>

#define TEXT_MAX 200U /* bytes of a part that are shown */

/* --- forms --- */

/* A step of a pointer, of bytes as they are. */
static struct span label_of(struct leaves *leaves, struct span name)
{
	struct span label = { NULL, 0 };
	struct buf out;

	buf_init(&out, SIZE_MAX);
	leaves_put_step(&out, name);
	label = arena_copy(leaves->arena, buf_view(&out));
	buf_fini(&out);
	return label;
}

/* In quotes, as JSON would have it. */
static struct span quoted(struct leaves *leaves, struct span text)
{
	struct span made = { NULL, 0 };
	struct buf out;

	buf_init(&out, SIZE_MAX);
	buf_byte(&out, '"');
	escaped_put(&out, text, true);
	buf_byte(&out, '"');
	made = arena_copy(leaves->arena, buf_view(&out));
	buf_fini(&out);
	return made;
}

static struct span decoded(struct arena *arena, struct span text)
{
	char *out = arena_alloc(arena, text.len + 1);
	size_t n = 0;

	for (size_t i = 0; i < text.len; i++) {
		if (text.at[i] == '%') {
			out[n++] = (char)(http_hex(text.at[i + 1]) << 4 |
					  http_hex(text.at[i + 2]));
			i += 2;
		} else {
			out[n] = text.at[i];
			if (out[n] == '+')
				out[n] = ' ';
			n++;
		}
	}
	return (struct span){ out, n };
}

/* What is before the mark, taken off the front together with it. */
static struct span take(struct span *text, char mark)
{
	const char *end = text->len ? memchr(text->at, mark, text->len) : NULL;
	struct span part = { text->at, end ? (size_t)(end - text->at) : text->len };
	size_t used = part.len + (end ? 1 : 0);

	text->at += used;
	text->len -= used;
	return part;
}

void leaves_form(struct span canonical, struct leaves *out)
{
	while (canonical.len) {
		struct span value = take(&canonical, '&');
		struct span name = decoded(out->arena, take(&value, '='));

		leaves_add(out, label_of(out, name), quoted(out, decoded(out->arena, value)));
	}
}

/* --- multipart --- */

/* The `LENGTH:bytes` behind that key, where it comes next; a NULL where it does not. */
static struct span take_item(struct span *text, const char *key)
{
	size_t len = strlen(key);
	struct span item = { NULL, 0 };

	if (text->len <= len || memcmp(text->at, key, len) != 0 || text->at[len] != ' ')
		return item;
	text->at += len + 1;
	text->len -= len + 1;
	item.len = strtoul(take(text, ':').at, NULL, 10); /* ends at the colon */
	item.at = text->at;
	text->at += item.len + 1; /* and the space or the line's end */
	text->len -= item.len + 1;
	return item;
}

static bool is_text(struct span bytes)
{
	for (size_t i = 0; i < bytes.len; i++)
		if ((unsigned char)bytes.at[i] < 0x20 && !strchr("\t\r\n", bytes.at[i]))
			return false;
	return bytes.len <= TEXT_MAX && !memchr(bytes.at, 0, bytes.len);
}

static void put_bytes(struct leaves *leaves, struct buf *out, struct span bytes)
{
	unsigned char hashed[DIGEST_BYTES];
	struct hash *hash = NULL;

	if (is_text(bytes)) {
		buf_span(out, quoted(leaves, bytes));
		return;
	}
	hash = hash_new();
	hash_add(hash, bytes.at, bytes.len);
	hash_end(hash, hashed);
	hash_free(hash);
	buf_format(out, "%zu bytes with SHA-256 ", bytes.len);
	for (size_t i = 0; i < sizeof(hashed); i++)
		buf_format(out, "%02x", hashed[i]);
}

static void one_part(struct span *text, struct leaves *out)
{
	static const char *const keys[] = { "disposition", "filename", "filename*",
					    "parameters",  "type",     "encoding" };
	struct span name = take_item(text, "name");
	struct buf value;

	buf_init(&value, SIZE_MAX);
	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		struct span item = take_item(text, keys[i]);

		if (!item.at)
			continue;
		buf_format(&value, "%s ", keys[i]);
		buf_span(&value, quoted(out, item));
		buf_text(&value, ", ");
	}
	put_bytes(out, &value, take_item(text, "body"));
	leaves_add(out, name.at ? label_of(out, name) : SPAN("a part without a name"),
		   arena_copy(out->arena, buf_view(&value)));
	buf_fini(&value);
}

void leaves_multipart(struct span canonical, struct leaves *out)
{
	while (canonical.len)
		one_part(&canonical, out);
}
