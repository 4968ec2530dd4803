/*
 * Fills in a template; see lookup_path.h. The keys that are put in were chosen by clients: none of
 * their bytes but the unreserved ones (RFC 3986 2.3) is left as it is. Dots are unreserved, also
 * where they are escaped, so a segment of nothing else cannot be written at all: such a record
 * cannot be asked for by this path.
 */
#include "lookup_path.h"

#include "http.h"

#define TARGET_MAX ((size_t)8192)

static void put_encoded(struct buf *out, struct span value)
{
	for (size_t i = 0; i < value.len; i++)
		if (http_is(value.at[i], HTTP_UNRESERVED))
			buf_byte(out, value.at[i]);
		else
			buf_format(out, "%%%02X", (unsigned)(unsigned char)value.at[i]);
}

/* False: there is no such name. */
static bool put_name(struct buf *out, struct span name, const struct lookup_names *names)
{
	if (span_equal(name, SPAN("key"))) {
		put_encoded(out, names->key);
	} else if (span_equal(name, SPAN("account"))) {
		put_encoded(out, names->account);
	} else if (span_equal(name, SPAN("logical_request_id"))) {
		put_encoded(out, names->request_id);
	} else if (span_equal(name, SPAN("attempt_id"))) {
		put_encoded(out, names->request_id);
		buf_format(out, ".%u", names->generation);
	} else {
		return false;
	}
	return true;
}

/* The placeholder at the front; empty where there is none. */
static struct span placeholder(struct span path)
{
	const char *end = path.at[0] == '{' ? memchr(path.at, '}', path.len) : NULL;

	return (struct span){ path.at, end ? (size_t)(end + 1 - path.at) : 0 };
}

static bool fill_in(struct buf *out, struct span path, const struct lookup_names *names)
{
	while (path.len > 0) {
		struct span one = placeholder(path);

		if (one.len == 0) {
			one.len = 1;
			buf_byte(out, path.at[0]);
		} else if (!put_name(out, (struct span){ one.at + 1, one.len - 2 }, names)) {
			return false;
		}
		path.at += one.len;
		path.len -= one.len;
	}
	return !out->full;
}

static bool all_dots(struct span segment)
{
	return span_equal(segment, SPAN(".")) || span_equal(segment, SPAN(".."));
}

/* Is a segment of the target's path one that means another place? */
static bool has_dots(struct span target)
{
	size_t begin = 0;

	for (size_t i = 0; i <= target.len; i++) {
		bool end = i == target.len || target.at[i] == '?';

		if (!end && target.at[i] != '/')
			continue;
		if (all_dots((struct span){ target.at + begin, i - begin }))
			return true;
		if (end)
			return false;
		begin = i + 1;
	}
	return false;
}

bool lookup_path(struct arena *arena, struct span path, const struct lookup_names *names,
		 struct span *target)
{
	struct buf out;
	bool good = false;

	buf_init(&out, TARGET_MAX);
	good = fill_in(&out, path, names) && !has_dots(buf_view(&out));
	*target = arena_copy(arena, buf_view(&out));
	buf_fini(&out);
	return good;
}
