/*
 * Takes keys out of fields and bodies. The body is read as the digest reads it, without its
 * Content-Encoding and in its normal form, so that a key is found wherever its place is; numbers
 * are read exactly, whatever the route compares by, so that two ids never become one.
 */
#include "key_source.h"

#include "json_find.h"

/* One more place has a key: is it the same? */
static enum key_found join(enum key_found before, struct span one, struct span *key,
			   const char **why)
{
	if (before == KEY_FOUND && !span_equal(one, *key)) {
		*why = "The request has two keys that are not equal.";
		return KEY_INVALID;
	}
	*key = one;
	return KEY_FOUND;
}

static struct key_form form_of(const struct key_settings *settings)
{
	return (struct key_form){ (enum key_syntax)settings->syntax,
				  (enum key_format)settings->format };
}

enum key_found key_of_fields(const struct key_settings *settings,
			     const struct http_request *request, struct span *key,
			     const char **why)
{
	enum key_found found = KEY_MISSING;

	*key = (struct span){ NULL, 0 };
	for (size_t i = 0; i < settings->sources.n; i++) {
		struct span name = settings->sources.at[i].header, one = { NULL, 0 };
		enum key_found here = KEY_MISSING;

		if (name.at)
			here = key_of(request, name, form_of(settings), &one, why);
		if (here == KEY_INVALID)
			return KEY_INVALID;
		if (here == KEY_FOUND)
			found = join(found, one, key, why);
		if (found == KEY_INVALID)
			return KEY_INVALID;
	}
	return found;
}

/* The key at one place of the body. Of a string the text is the key, without quotes of its own. */
static enum key_found key_at(const struct key_settings *settings, struct arena *arena,
			     struct span value, struct span *key, const char **why)
{
	struct key_form form = { KEY_BARE, (enum key_format)settings->format };
	struct span text = { NULL, 0 };
	enum json_scalar kind = json_scalar(arena, value, &text);

	if (kind == JSON_TEXT || kind == JSON_INTEGER)
		return key_read(arena, text, form, key, why) ? KEY_FOUND : KEY_INVALID;
	*why = "The key in the body is neither a string nor an integer.";
	return KEY_INVALID;
}

/* `json`: the body, canonical. */
static enum key_found keys_in(const struct key_settings *settings, struct arena *arena,
			      struct span json, struct span *key, const char **why)
{
	enum key_found found = key->at ? KEY_FOUND : KEY_MISSING;

	for (size_t i = 0; i < settings->sources.n; i++) {
		const struct canonical_rules *pointer = settings->sources.at[i].body;
		struct span value = { NULL, 0 }, one = { NULL, 0 };

		if (!pointer || !json_find(pointer, json, &value))
			continue;
		if (key_at(settings, arena, value, &one, why) == KEY_INVALID ||
		    join(found, one, key, why) == KEY_INVALID)
			return KEY_INVALID;
		found = KEY_FOUND;
	}
	return found;
}

enum key_found key_of_body(const struct idempotency_settings *idempotency,
			   const struct http_request *request, struct span *key,
			   const char **why)
{
	const struct digest_rules rules = { .body = idempotency->rules.body,
					    .decoded_max = idempotency->rules.decoded_max };
	const struct canonicaliser *kind = NULL;
	enum key_found found = key->at ? KEY_FOUND : KEY_MISSING;
	struct canonical_error error;
	struct buf body;

	buf_init(&body, rules.decoded_max + 1);
	if (!digest_body(&rules, request, &body, &kind, &error) || body.full) {
		*why = "The body that may hold the key cannot be read.";
		found = KEY_INVALID;
	} else if (kind->body == CANONICAL_JSON) {
		found = keys_in(&idempotency->key, request->arena, buf_view(&body), key, why);
	}
	buf_fini(&body);
	return found;
}

bool key_in_fields(const struct sources *sources, const struct http_request *request)
{
	for (size_t i = 0; i < sources->n; i++)
		if (sources->at[i].header.at &&
		    http_find(&request->fields, sources->at[i].header, NULL))
			return true;
	return false;
}
