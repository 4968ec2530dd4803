/*
 * What a request of the admin listener says beside its path: parameters of its query, and the
 * members of its JSON body. What is not known is refused by name, because a misspelt limit that
 * is passed over in silence makes people believe something else than they see.
 */
#include "admin_internal.h"

static bool take_pair(struct span *query, struct span *name, struct span *value)
{
	const char *end = NULL;
	const char *equals = NULL;

	if (query->len == 0)
		return false;
	end = memchr(query->at, '&', query->len);
	*name = (struct span){ query->at, end ? (size_t)(end - query->at) : query->len };
	query->at += name->len + (end != NULL);
	query->len -= name->len + (end != NULL);
	equals = name->len ? memchr(name->at, '=', name->len) : NULL;
	*value = SPAN("");
	if (equals) {
		*value = (struct span){ equals + 1,
					name->len - (size_t)(equals + 1 - name->at) };
		name->len = (size_t)(equals - name->at);
	}
	return true;
}

static bool decode(struct arena *arena, struct span text, struct span *out)
{
	char *to = arena_alloc(arena, text.len + 1);
	size_t n = 0;

	for (size_t i = 0; i < text.len; i++) {
		if (text.at[i] != '%') {
			to[n++] = (char)(text.at[i] == '+' ? ' ' : text.at[i]);
			continue;
		}
		if (i + 2 >= text.len || !http_is(text.at[i + 1], HTTP_HEX) ||
		    !http_is(text.at[i + 2], HTTP_HEX))
			return false;
		to[n++] = (char)(http_hex(text.at[i + 1]) << 4 | http_hex(text.at[i + 2]));
		i += 2;
	}
	to[n] = 0;
	*out = (struct span){ to, n };
	return true;
}

bool admin_parameter(const struct asked *asked, struct span name, struct span *value)
{
	struct span query = asked->request->query;
	struct span its_name, raw;

	*value = (struct span){ NULL, 0 };
	while (take_pair(&query, &its_name, &raw))
		if (span_equal(its_name, name) &&
		    (value->at || !decode(asked->arena, raw, value)))
			return false;
	return true;
}

static bool is_word_of(struct span word, const char *words)
{
	while (*words) {
		size_t len = strcspn(words, " ");

		if (span_equal(word, (struct span){ words, len }))
			return true;
		words += len + (words[len] == ' ');
	}
	return false;
}

bool admin_only_parameters(const struct asked *asked, const char *names)
{
	struct span query = asked->request->query;
	struct span name, value;

	while (take_pair(&query, &name, &value))
		if (!is_word_of(name, names))
			return false;
	return true;
}

static void decref(void *object)
{
	json_decref(object);
}

static const char *stray(json_t *object, const char *members)
{
	const char *name = NULL;
	json_t *value = NULL;

	json_object_foreach(object, name,
			    value) if (!is_word_of(span_of(name), members)) return name;
	return NULL;
}

json_t *admin_object(const struct asked *asked, const char *parameters, const char *members,
		     struct http_answer *answer)
{
	struct span body = asked->request->body;
	json_error_t error;
	json_t *object = NULL;
	const char *bad = NULL;

	if (!admin_only_parameters(asked, parameters)) {
		*answer = admin_refuse(asked, PROBLEM_ADMIN_INVALID,
				       parameters[0] ? "There is no such parameter here"
						     : "There are no parameters here");
		return NULL;
	}
	if (asked->request->body_too_large) {
		*answer = admin_refuse(asked, PROBLEM_BODY_TOO_LARGE, "");
		return NULL;
	}
	object = json_loadb(body.at ? body.at : "", body.len, JSON_REJECT_DUPLICATES, &error);
	if (!object || !json_is_object(object)) {
		const char *why =
			object ? "The body is no JSON object"
			       : arena_format(asked->arena, "The body is no JSON object: %s",
					      error.text)
					 .at;
		json_decref(object);
		*answer = admin_refuse(asked, PROBLEM_BODY_INVALID, why);
		return NULL;
	}
	arena_defer(asked->arena, decref, object);
	bad = stray(object, members);
	if (bad) {
		*answer = admin_refuse(asked, PROBLEM_ADMIN_INVALID,
				       arena_format(asked->arena,
						    "There is no member %.100s here, but: %s",
						    bad, members)
					       .at);
		return NULL;
	}
	return object;
}

struct span admin_string(const json_t *object, const char *member)
{
	const json_t *value = json_object_get(object, member);

	if (!json_is_string(value))
		return (struct span){ NULL, 0 };
	return (struct span){ json_string_value(value), json_string_length(value) };
}
