/*
 * Reduces an answer's body: to nothing, or to the members that the route names, their bytes as they
 * came. A body in which no members can be told (no JSON object or array, a Content-Encoding)
 * is left out as a whole: what was to be left out might stand in it.
 */
#include "response.h"

#include "condition.h"
#include "json_find.h"

#define FIELDS_ADDED 8 /* room for what is added to an answer (exchange_mark) */

/* Of the whole body; and of any. */
static const char *const of_whole[] = { "Content-Length", "Content-Digest", "Repr-Digest",
					"Digest",         "Content-MD5",    "Content-Range",
					"ETag",           "Accept-Ranges" };
static const char *const of_any[] = { "Content-Type", "Content-Encoding", "Content-Language",
				      "Content-Disposition" };

static bool among(struct span name, const char *const *names, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (http_same_name(name, span_of(names[i])))
			return true;
	return false;
}

static struct http_fields fields_left(struct arena *arena, const struct http_fields *fields,
				      bool empty)
{
	struct http_fields left = {
		arena_alloc(arena, (fields->n + FIELDS_ADDED) * sizeof(*left.at)), 0
	};

	for (size_t i = 0; i < fields->n; i++) {
		struct span name = fields->at[i].name;

		if (!among(name, of_whole, ARRAY_LEN(of_whole)) &&
		    !(empty && among(name, of_any, ARRAY_LEN(of_any))))
			http_add(&left, name, fields->at[i].value);
	}
	return left;
}

/* Empty where nothing of it may be given. */
static struct span body_left(struct arena *arena, const struct response_settings *response,
			     const struct http_answer *answer)
{
	struct span json = { "", 0 };
	struct span left = { "", 0 };
	struct buf out;

	if (response->body == RESPONSE_FULL)
		json = condition_json(answer);
	buf_init(&out, json.len + 1);
	if (json.len && json_pick(response->kept, json, &out))
		left = arena_copy(arena, buf_view(&out));
	buf_fini(&out);
	return left;
}

struct http_answer response_without_body(struct arena *arena, const struct http_answer *answer)
{
	return (struct http_answer){ .status = answer->status,
				     .body = { "", 0 },
				     .fields = fields_left(arena, &answer->fields, true),
				     .close = answer->close };
}

struct http_answer response_reduced(struct arena *arena,
				    const struct response_settings *response,
				    const struct http_answer *answer)
{
	struct http_answer reduced = *answer;

	if (answer->body.len == 0 || (response->body == RESPONSE_FULL && !response->kept))
		return reduced;
	reduced.body = body_left(arena, response, answer);
	reduced.fields = fields_left(arena, &answer->fields, reduced.body.len == 0);
	return reduced;
}
