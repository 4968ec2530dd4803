/*
 * Where values stand in messages, as the settings say it: "header:NAME" and "body:/POINTER", and
 * JSON Pointers alone. What is no such place is said with its line.
 */
#include "settings_internal.h"

/* Fields that say how a message is framed or who it is for: no key, no account, never replayed. */
bool settings_free_field(const char *name)
{
	static const char *const reserved[] = { "Host",       "Content-Length",  "Date",
						"Set-Cookie", "Authorization",   "Cookie",
						"Expect",     "WWW-Authenticate" };
	const struct http_fields none = { 0 };

	for (size_t i = 0; i < ARRAY_LEN(reserved); i++)
		if (http_same_name(span_of(name), span_of(reserved[i])))
			return false;
	return http_token(span_of(name)) && !http_hop_by_hop(&none, span_of(name)) &&
	       !(strlen(name) > 6 && http_same_name((struct span){ name, 6 }, SPAN("Proxy-")));
}

/* A step that is * alone is for lists of rules: one value has one place. */
static bool wild(const char *pointer)
{
	for (const char *at = strstr(pointer, "/*"); at; at = strstr(at + 1, "/*"))
		if (at[2] == '/' || at[2] == 0)
			return true;
	return false;
}

const struct canonical_rules *settings_pointer(struct loader *loader, const struct item *at,
					       const char *pointer)
{
	struct canonical_rules *rules = NULL;
	const char *why = NULL;

	if (!pointer)
		return NULL;
	rules = canonical_rules_new(loader->arena, CANONICAL_EXACT);
	why = wild(pointer) ? "has a *, and this is one place"
			    : canonical_rules_only(rules, span_of(pointer));
	if (why)
		settings_error(loader, at, "\"%s\" is no JSON Pointer here: it %s", pointer,
			       why);
	return why ? NULL : rules;
}

const struct source *settings_source(struct loader *loader, const struct item *at,
				     const char *text)
{
	struct source *source = arena_zero(loader->arena, sizeof(*source));

	if (strncmp(text, "header:", 7) == 0) {
		source->header = span_of(text + 7);
		if (settings_free_field(text + 7))
			return source;
		settings_error(loader, at, "\"%s\" cannot be the field of a key or a receipt",
			       text + 7);
		return NULL;
	}
	if (strncmp(text, "body:", 5) == 0) {
		source->body = settings_pointer(loader, at, text + 5);
		return source->body ? source : NULL;
	}
	settings_error(loader, at,
		       "\"%s\" says no place: write \"header:NAME\" or \"body:/POINTER\"",
		       text);
	return NULL;
}
