/* Keys from fields and bodies. What is one source's alone is test_key.c's and test_json_find.c's. */
#include "key_source.h"
#include "settings_loading.h"
#include "unit_run.h"

static struct arena *arena;
static struct http_field fields[8];
static struct http_request request;
static const char *why;

static void begin_keys(void)
{
	begin_loading();
	arena = arena_new();
	request = (struct http_request){ .arena = arena, .fields = { fields, 0 } };
}

static void end_keys(void)
{
	arena_free(arena);
	end_loading();
}

static const struct idempotency_settings *keys_from(const char *from)
{
	struct buf text;

	buf_init(&text, 65536);
	buf_format(&text,
		   COMMON "routes = ({ match = \"POST /a\" upstream = \"api\" idempotency = { "
			  "operation = \"op\" account = \"main\" request = { ignore = "
			  "[\"/try\"] } key = { from = [%s] } } })",
		   from);
	buf_byte(&text, 0);
	must_load_silently(text.at);
	buf_fini(&text);
	return loaded->routes[0].idempotency;
}

static void asks(const char *content_type, const char *body)
{
	request.fields.n = 0;
	request.body = span_of(body);
	if (content_type)
		http_add(&request.fields, SPAN("Content-Type"), span_of(content_type));
}

static void with(const char *name, const char *value)
{
	http_add(&request.fields, span_of(name), span_of(value));
}

/* From the head and then the body; `expected` NULL: it is refused, with a sentence; "": missing. */
static void gives(const struct idempotency_settings *idempotency, const char *expected)
{
	struct span key = { NULL, 0 };
	enum key_found found = KEY_MISSING;

	why = NULL;
	found = key_of_fields(&idempotency->key, &request, &key, &why);
	if (found != KEY_INVALID && idempotency->key.sources.body)
		found = key_of_body(idempotency, &request, &key, &why);
	ck_assert_int_eq(found, !expected ? KEY_INVALID : *expected ? KEY_FOUND : KEY_MISSING);
	ck_assert(!why == (expected != NULL));
	if (expected && *expected)
		ck_assert_msg(span_equal(key, span_of(expected)), "%.*s", (int)key.len, key.at);
}

START_TEST(a_key_may_stand_in_any_field)
{
	const struct idempotency_settings *two =
		keys_from("\"header:Idempotency-Key\", \"header:X-Id\"");

	asks(NULL, "");
	gives(two, "");
	with("x-id", "a");
	gives(two, "a");
	with("Idempotency-Key", "\"a\"");
	gives(two, "a");
	with("X-ID", "a");
	gives(two, NULL);
	asks(NULL, "");
	with("X-Id", "a");
	with("Idempotency-Key", "b");
	gives(two, NULL);
	ck_assert_str_eq(why, "The request has two keys that are not equal.");
	asks(NULL, "");
	with("X-Id", "a");
	with("Idempotency-Key", "");
	gives(two, NULL);
}
END_TEST

START_TEST(a_key_may_stand_in_the_body)
{
	const struct idempotency_settings *body = keys_from("\"body:/event/id\"");

	asks("application/json", "{\"event\": {\"id\": \"e\\u0031\"}}");
	gives(body, "e1");
	asks("application/cloudevents+json; charset=utf-8", "{\"event\":{\"id\":1.20e3}}");
	gives(body, "1200");
	asks("application/json", "{\"event\":{}}");
	gives(body, "");
	asks("application/json", "");
	gives(body, "");
	asks("text/plain", "{\"event\":{\"id\":\"e1\"}}");
	gives(body, "");
	asks("application/x-www-form-urlencoded", "event=1");
	gives(body, "");
	asks("application/json", "{\"event\":{\"id\":1.5}}");
	gives(body, NULL);
	asks("application/json", "{\"event\":{\"id\":\"a\\\"b\"}}");
	gives(body, NULL);
	asks("application/json", "{\"event\":{\"id\":\"\\u00e9\"}}");
	gives(body, NULL);
	asks("application/json", "{\"event\":{\"id\":\"e1\"}");
	gives(body, NULL);
}
END_TEST

START_TEST(field_and_body_must_agree)
{
	const struct idempotency_settings *both =
		keys_from("\"header:X-Id\", \"body:/id\", \"body:/event\"");

	asks("application/json", "{\"id\":\"e1\",\"event\":\"e1\"}");
	gives(both, "e1");
	with("X-Id", "e1");
	gives(both, "e1");
	fields[1].value = SPAN("e2");
	gives(both, NULL);
	asks("application/json", "{\"id\":\"e1\",\"event\":\"e2\"}");
	gives(both, NULL);
	asks("application/json", "{\"other\":1}");
	with("X-Id", "e3");
	gives(both, "e3");
	asks("application/json", "{\"id\":7}");
	with("X-Id", "7");
	gives(both, "7");
}
END_TEST

START_TEST(fields_that_may_hold_a_key_are_seen)
{
	const struct sources *sources =
		&keys_from("\"header:X-Id\", \"body:/id\"")->key.sources;

	asks("application/json", "{\"id\":1}");
	with("Idempotency-Key", "a");
	ck_assert(!key_in_fields(sources, &request));
	with("x-id", "");
	ck_assert(key_in_fields(sources, &request));
}
END_TEST

int main(void)
{
	const TTest *const tests[] = { a_key_may_stand_in_any_field,
				       a_key_may_stand_in_the_body, field_and_body_must_agree,
				       fields_that_may_hold_a_key_are_seen };
	Suite *suite = suite_create("key_source");
	TCase *all = tcase_create("key_source");

	suite_add_tcase(suite, all);
	tcase_add_checked_fixture(all, begin_keys, end_keys);
	for (size_t i = 0; i < ARRAY_LEN(tests); i++)
		tcase_add_test(all, tests[i]);
	return run_suite(suite);
}
