/*
 * Texts become canonical JSON by way of the reader itself, so that there is one spelling of each:
 * quoted somehow first, and then read.
 */
#include "json_text.h"

#include "http.h"

void json_quote(struct buf *out, struct span text)
{
	buf_byte(out, '"');
	for (size_t i = 0; i < text.len; i++) {
		unsigned char c = (unsigned char)text.at[i];

		if (c < 0x20)
			buf_format(out, "\\u%04x", c);
		else if (c == '"' || c == '\\')
			buf_format(out, "\\%c", c);
		else
			buf_byte(out, (char)c);
	}
	buf_byte(out, '"');
}

struct span json_canonical(struct arena *arena, struct span json)
{
	struct buf canonical;
	struct canonical_buf to = canonical_to(&canonical);
	struct canonical_task task = { .arena = arena, .body = json };
	struct canonical_error error;
	struct span done = { NULL, 0 };

	buf_init(&canonical, json.len + 1);
	if (canonical_json(&task, &to.sink, &error))
		done = arena_copy(arena, buf_view(&canonical));
	buf_fini(&canonical);
	return done;
}

struct span json_quoted(struct arena *arena, struct span text)
{
	struct buf json;
	struct span done = { NULL, 0 };

	buf_init(&json, 6 * text.len + 2 + 256);
	json_quote(&json, text);
	done = json_canonical(arena, buf_view(&json));
	buf_fini(&json);
	return done;
}

/* What the escape at `at` says; returns its end. */
static const char *unescape(const char *at, char *out)
{
	static const char letters[] = "bfnrt", meant[] = "\b\f\n\r\t";
	const char *letter = strchr(letters, at[1]);

	if (at[1] == 'u') { /* a control character: \u00xx */
		*out = (char)(http_hex(at[4]) << 4 | http_hex(at[5]));
		return at + 6;
	}
	*out = at[1];
	if (letter)
		*out = meant[letter - letters];
	return at + 2;
}

struct span json_unquoted(struct arena *arena, struct span string)
{
	char *out = arena_alloc(arena, string.len + 1);
	const char *at = string.at, *end = string.at + string.len;
	size_t n = 0;

	while (at < end) {
		if (*at == '\\')
			at = unescape(at, out + n);
		else
			out[n] = *at++;
		n++;
	}
	return (struct span){ out, n };
}

static void drop(struct canonical_sink *sink, const void *bytes, size_t len)
{
	(void)sink;
	(void)bytes;
	(void)len;
}

bool json_valid(struct span text)
{
	struct canonical_sink nowhere = { drop };
	struct canonical_task task = { .arena = arena_new(), .body = text };
	struct canonical_error error;
	bool valid = text.len > 0 && canonical_json(&task, &nowhere, &error);

	arena_free(task.arena);
	return valid;
}
