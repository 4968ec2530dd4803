/* Which route a request takes, what each status means there, and what makes an operation itself. */
#include "settings_loading.h"

static struct arena *arena;

static void setup(void)
{
	begin_loading();
	arena = arena_new();
}

static void teardown(void)
{
	arena_free(arena);
	end_loading();
}

/* A file whose routes are these, separated by |. Route i stands on line 3 + i. */
static const char *routes(const char *list)
{
	struct span text = arena_format(arena, "%sroutes = (\n", COMMON);

	while (*list) {
		size_t len = strcspn(list, "|");
		text = arena_format(arena, "%s%s%.*s%s\n", text.at,
				    "{ upstream = \"api\" match = \"", (int)len, list,
				    list[len] ? "\" }," : "\" } )");
		list += len + (list[len] == '|');
	}
	return text.at;
}

/* The position of the route that "METHOD PATH" takes; -1: other method, -2: none. */
static int found(const char *request, struct span *allow)
{
	const char *space = strchr(request, ' ');
	struct http_request r = { .arena = arena,
				  .method = { request, (size_t)(space - request) },
				  .path = span_of(space + 1) };
	const struct route *route = NULL;

	switch (settings_route(loaded, &r, &route, allow)) {
	case ROUTE_FOUND:
		return (int)(route - loaded->routes);
	case ROUTE_OTHER_METHOD:
		return -1;
	case ROUTE_NONE:
		break;
	}
	return -2;
}

static const struct {
	const char *patterns, *request;
	int route;
} matches[] = {
	{ "POST /v1/orders", "POST /v1/orders", 0 },
	{ "POST /v1/orders", "POST /v1/orders/", -2 },
	{ "POST /v1/orders", "POST /v1/order", -2 },
	{ "POST /v1/orders", "POST /v1/orderss", -2 },
	{ "POST /v1/orders", "POST /v1", -2 },
	{ "POST /v1/orders", "POST /", -2 },
	{ "POST /v1/orders", "POST /V1/orders", -2 },
	{ "POST /v1/orders", "PUT /v1/orders", -1 },
	{ "POST /v1/orders", "post /v1/orders", -1 },
	{ "POST /v1/orders/", "POST /v1/orders/", 0 },
	{ "POST /v1/orders/", "POST /v1/orders", -2 },
	{ "GET /", "GET /", 0 },
	{ "GET /", "GET /a", -2 },
	{ "GET,PUT /a", "PUT /a", 0 },
	{ "GET,PUT /a", "GET /a", 0 },
	{ "GET,PUT /a", "GET,PUT /a", -1 },
	{ "* /a", "ANYTHING /a", 0 },
	/* {name} */
	{ "GET /a/{id}", "GET /a/7", 0 },
	{ "GET /a/{id}", "GET /a/", -2 },
	{ "GET /a/{id}", "GET /a", -2 },
	{ "GET /a/{id}", "GET /a/7/", -2 },
	{ "GET /a/{id}", "GET /a/7/b", -2 },
	{ "GET /a/{id}/b", "GET /a/7/b", 0 },
	{ "GET /{a}/{b}", "GET /x/y", 0 },
	{ "GET /{a}", "GET /", -2 },
	/* the rest */
	{ "GET /a/*", "GET /a/", 0 },
	{ "GET /a/*", "GET /a/b", 0 },
	{ "GET /a/*", "GET /a/b/c/", 0 },
	{ "GET /a/*", "GET /a", -2 },
	{ "GET /a/*", "GET /ab", -2 },
	{ "GET /a/{id}/*", "GET /a/7/b/c", 0 },
	{ "GET /a/{id}/*", "GET /a/7", -2 },
	{ "* /*", "GET /", 0 },
	{ "* /*", "PUT /a/b", 0 },
	{ "* /*", "OPTIONS *", 0 },
	{ "GET /", "GET *", -2 },
	/* the first match wins */
	{ "POST /a|* /*", "POST /a", 0 },
	{ "POST /a|* /*", "GET /a", 1 },
	{ "GET /{x}|GET /b", "GET /b", 0 },
	{ "GET /a|PUT /a|GET /b", "PUT /a", 1 },
	/* escapes are normalised */
	{ "GET /%7euser/caf%c3%a9", "GET /~user/caf%C3%A9", 0 },
	{ "GET /a:b@c!$&'()+,;=", "GET /a:b@c!$&'()+,;=", 0 },
};

START_TEST(a_pattern_takes_its_paths_and_no_others)
{
	struct span allow;

	must_load(routes(matches[_i].patterns));
	ck_assert_msg(found(matches[_i].request, &allow) == matches[_i].route, "%s: %s",
		      matches[_i].patterns, matches[_i].request);
}
END_TEST

START_TEST(a_path_under_other_methods_says_which_sorted_and_once)
{
	struct span allow = { 0 };

	must_load(routes("PUT,GET /a/{x}|DELETE,GET /a/*|POST /b|PATCH /a/7"));
	ck_assert_int_eq(found("POST /a/7", &allow), -1);
	ck_assert_str_eq(allow.at, "DELETE, GET, PATCH, PUT");
	ck_assert_uint_eq(allow.len, strlen(allow.at));
}
END_TEST

static const struct {
	const char *pattern, *why;
} refused[] = {
	{ "/a", "it is a method, a space and a path" },
	{ "GET", "it is a method, a space and a path" },
	{ " /a", "it is a method, a space and a path" },
	{ "GET a", "the path must begin with /" },
	{ "GET ", "the path must begin with /" },
	{ "GET *", "the path must begin with /" },
	{ "get /a", "a method is a word in capitals" },
	{ "GET, /a", "a method is a word in capitals" },
	{ ",GET /a", "a method is a word in capitals" },
	{ "GET,PUT,GET /a", "a method stands there twice" },
	{ "*,GET /a", "a method" },
	{ "G:T /a", "a method is a word in capitals" },
	{ "GET /a/{id", "{name} must fill its segment" },
	{ "GET /a/{}", "{name} must fill its segment" },
	{ "GET /a/{id}.json", "{name} must fill its segment" },
	{ "GET /a/{i-d}", "{name} must fill its segment" },
	{ "GET /a/*/b", "* stands for the rest" },
	{ "GET /a*", "* stands for the rest" },
	{ "GET /a//b", "// is for routes with loose_paths" },
	{ "GET /a//", "// is for routes with loose_paths" },
	{ "GET //*", "// is for routes with loose_paths" },
	{ "GET /a/../b", "this is no path" },
	{ "GET /a/./b", "this is no path" },
	{ "GET /a?b", "this is no path" },
	{ "GET /a#b", "this is no path" },
	{ "GET /a%2fb", "this is no path" },
	{ "GET /a%zz", "this is no path" },
	{ "GET /a b", "this is no path" },
	{ "GET /caf\xc3\xa9", "this is no path" },
	{ "GET /a{id}", "{name} must fill its segment" },
};

START_TEST(what_is_no_pattern_is_refused)
{
	must_fail(routes(refused[_i].pattern),
		  arena_format(arena, "4: `match`: %s", refused[_i].why).at);
}
END_TEST

START_TEST(a_pattern_has_a_limit)
{
	struct span path = SPAN("GET ");

	for (int i = 0; i < 65; i++)
		path = arena_format(arena, "%s/a", path.at);
	must_fail(routes(path.at), "4: `match`: the path has too many segments");
	for (int i = 0; i < 10; i++)
		path = arena_format(arena, "%s%s", path.at, path.at + 4);
	must_fail(routes(path.at), "4: `match`: ");
}
END_TEST

START_TEST(loose_paths_are_matched_as_they_are)
{
	struct span allow;

	must_load(COMMON "routes = (" ROUTE_OF("GET /a//{x}/*", "loose_paths = true") ")");
	ck_assert_int_eq(found("GET /a//7/", &allow), 0);
	ck_assert_int_eq(found("GET /a//7//b", &allow), 0);
	ck_assert_int_eq(found("GET /a/7/", &allow), -2);
}
END_TEST

#define GATE(match) ROUTE_OF(match, GATED(""))
#define PASS(match) ROUTE_OF(match, "")

static const struct {
	const char *first, *second, *warning; /* NULL: none */
} pairs[] = {
	/* an earlier route that passes through */
	{ PASS("* /*"), GATE("POST /a"),
	  "4: warning: `* /*` lets POST requests pass through that `POST /a` (line 5) would "
	  "gate" },
	{ PASS("POST /{x}"), GATE("POST /a"), "4: warning: `POST /{x}` lets POST" },
	{ PASS("PUT,POST /a/*"), GATE("PATCH,PUT /a/{x}"),
	  "4: warning: `PUT,POST /a/*` lets PUT" },
	{ PASS("POST /a/special"), GATE("POST /a/{x}"),
	  "4: warning: `POST /a/special` lets POST" },
	{ PASS("GET /*"), GATE("POST /a"), NULL },
	{ PASS("POST /b"), GATE("POST /a"), NULL },
	{ PASS("POST /a/*"), GATE("POST /a"),
	  "5: warning: `POST /a`: the same path with a slash" },
	{ PASS("GET /a"), GATE("* /a"), NULL },
	/* a twin that passes through */
	{ GATE("POST /a"), PASS("* /*"),
	  "4: warning: `POST /a`: the same path with a slash at its end passes through (line "
	  "5) "
	  "for POST" },
	{ GATE("POST /a"), PASS("POST /a/*"), "the same path with a slash" },
	{ GATE("POST /a/"), PASS("POST /a"), "the same path without a slash" },
	{ GATE("POST /a/*"), PASS("POST /a"), "the same path without a slash" },
	{ GATE("POST /a/{x}"), PASS("POST /a/{x}/"), "the same path with a slash" },
	{ GATE("POST /a"), PASS("GET /*"), NULL },
	{ GATE("POST /a"), PASS("POST /b/"), NULL },
	{ GATE("POST /a"), PASS("POST /{x}"), NULL },
	{ GATE("POST /a"), GATE("POST /a/"), NULL },
	{ GATE("* /*"), PASS("GET /a"), "5: warning: `GET /a` is never reached" },
	/* never reached */
	{ PASS("GET /a"), PASS("GET /a"),
	  "5: warning: `GET /a` is never reached: `GET /a` (line 4)" },
	{ PASS("* /a/*"), PASS("GET,PUT /a/{x}/b"), "5: warning: `GET,PUT /a/{x}/b` is never" },
	{ PASS("GET /{x}"), PASS("GET /a"), "5: warning: `GET /a` is never reached" },
	{ PASS("GET /a"), PASS("GET /{x}"), NULL },
	{ PASS("GET /a"), PASS("* /a"), NULL },
	{ PASS("GET /{x}"), PASS("GET /"), NULL },
	{ PASS("GET /a/*"), PASS("GET /a"), NULL },
	{ PASS("GET /a"), PASS("GET /a/*"), NULL },
	/* without effect */
	{ GATE("GET /a"), PASS("GET /b"),
	  "4: warning: `idempotency` has no effect on `GET /a`" },
};

START_TEST(routes_in_each_others_way_are_said)
{
	const char *text = arena_format(arena, "%sroutes = (\n%s,\n%s )\n", COMMON,
					pairs[_i].first, pairs[_i].second)
				   .at;

	must_load(text);
	if (!pairs[_i].warning)
		ck_assert_str_eq(said.at, "");
	else
		ck_assert_msg(strstr(said.at, pairs[_i].warning) != NULL, "expected %s\nin: %s",
			      pairs[_i].warning, said.at);
}
END_TEST

/* The meaning of every status from 200 on, as ranges: "200-299 store, …". */
static enum outcome outcome_of(unsigned status)
{
	return (enum outcome)loaded->routes[0].idempotency->outcome_of[status];
}

static bool listed(const unsigned *statuses, unsigned status)
{
	for (; *statuses; statuses++)
		if (*statuses == status)
			return true;
	return false;
}

START_TEST(statuses_mean_by_default_what_the_contract_says)
{
	static const unsigned store[] = { 301, 302, 303, 402, 409, 410, 422, 0 };
	static const unsigned release[] = { 307, 308, 400, 401, 403, 404, 405, 407,
					    411, 412, 413, 414, 415, 417, 421, 423,
					    425, 426, 428, 429, 431, 0 };

	must_load_silently(ONE_GATED(""));
	for (unsigned status = 100; status < 600; status++) {
		enum outcome expected = OUTCOME_UNKNOWN;
		if (status / 100 == 2 || listed(store, status))
			expected = OUTCOME_STORE;
		else if (listed(release, status))
			expected = OUTCOME_RELEASE;
		ck_assert_msg(outcome_of(status) == expected, "%u", status);
	}
}
END_TEST

START_TEST(a_written_store_list_leaves_the_release_list_as_it_is)
{
	static const unsigned unknown[] = { 301, 302, 303, 409, 410, 422, 300, 406, 500, 0 };

	must_load_silently(ONE_GATED("outcome = { store = [\"2xx\", \"402\"] }"));
	for (const unsigned *status = unknown; *status; status++)
		ck_assert_int_eq(outcome_of(*status), OUTCOME_UNKNOWN);
	ck_assert_int_eq(outcome_of(201), OUTCOME_STORE);
	ck_assert_int_eq(outcome_of(402), OUTCOME_STORE);
	ck_assert_int_eq(outcome_of(404), OUTCOME_RELEASE);
	ck_assert_int_eq(outcome_of(307), OUTCOME_RELEASE);
}
END_TEST

START_TEST(stripes_contract_is_one_list)
{
	must_load_silently(ONE_GATED("outcome = { store = [\"2xx\", \"4xx\", \"5xx\"] }"));
	for (unsigned status = 200; status < 600; status++)
		if (status / 100 != 3)
			ck_assert_int_eq(outcome_of(status), OUTCOME_STORE);
	ck_assert_int_eq(outcome_of(301), OUTCOME_UNKNOWN);
	ck_assert_int_eq(outcome_of(307), OUTCOME_RELEASE);
}
END_TEST

START_TEST(an_exact_status_beats_a_class)
{
	must_load_silently(
		ONE_GATED("outcome = { store = [\"2xx\", \"503\"]\n"
			  "release = [\"4xx\", \"5xx\"] unknown = [\"202\", \"408\"] }"));
	ck_assert_int_eq(outcome_of(200), OUTCOME_STORE);
	ck_assert_int_eq(outcome_of(202), OUTCOME_UNKNOWN);
	ck_assert_int_eq(outcome_of(408), OUTCOME_UNKNOWN);
	ck_assert_int_eq(outcome_of(409), OUTCOME_RELEASE);
	ck_assert_int_eq(outcome_of(503), OUTCOME_STORE);
	ck_assert_int_eq(outcome_of(500), OUTCOME_RELEASE);
}
END_TEST

START_TEST(an_unknown_list_takes_statuses_out_of_the_defaults)
{
	must_load_silently(ONE_GATED("outcome = { unknown = [\"409\", \"429\"] }"));
	ck_assert_int_eq(outcome_of(409), OUTCOME_UNKNOWN);
	ck_assert_int_eq(outcome_of(429), OUTCOME_UNKNOWN);
	ck_assert_int_eq(outcome_of(410), OUTCOME_STORE);
}
END_TEST

START_TEST(an_empty_list_is_written_too)
{
	must_load_silently(ONE_GATED("outcome = { release = [] }"));
	ck_assert_int_eq(outcome_of(404), OUTCOME_UNKNOWN);
	ck_assert_int_eq(outcome_of(409), OUTCOME_STORE);
}
END_TEST

START_TEST(a_contradiction_of_lists_is_an_error)
{
	must_fail(ONE_GATED("outcome = { store = [\"2xx\"]\nrelease = [\"429\", \"2xx\"] }"),
		  "4: \"2xx\" stands in `store` and in `release`");
	must_fail(ONE_GATED("outcome = { store = [\"409\"]\nunknown = [\"409\"] }"),
		  "4: \"409\" stands in `store` and in `unknown`");
	must_fail(ONE_GATED("outcome = { store = [409] }"),
		  "3: `store` must be a list of texts");
	must_fail(ONE_GATED("outcome = { store = [\"1xx\"] }"), "3: \"1xx\" is no status");
	must_fail(ONE_GATED("outcome = { store = [\"600\"] }"), "3: \"600\" is no status");
	must_fail(ONE_GATED("outcome = { store = [\"20x\"] }"), "3: \"20x\" is no status");
	must_fail(ONE_GATED("outcome = { store = [\"2XX\"] }"), "3: \"2XX\" is no status");
	must_fail(ONE_GATED("outcome = { store = [\"\"] }"), "3: \"\" is no status");
	must_load_silently(ONE_GATED("outcome = { store = [\"2xx\", \"2xx\", \"200\"] }"));
}
END_TEST

static const char *identity(const char *text)
{
	must_load(text);
	return arena_copy(arena, span_of(loaded->routes[0].idempotency->identity_text)).at;
}

START_TEST(an_identity_can_be_read)
{
	ck_assert_str_eq(identity(COMMON "routes = (" GATE("PUT,POST /b/{id}/*") ",\n" GATE(
				 "POST /a/%7e") ")"),
			 "operation op\nmatch POST /a/~\nmatch POST,PUT /b/{}/*\n"
			 "account header x-account\nkey header:Idempotency-Key\n"
			 "record account, operation, key\n");
	ck_assert_mem_eq(loaded->routes[0].idempotency->identity,
			 loaded->routes[1].idempotency->identity, 32);
}
END_TEST

START_TEST(an_identity_changes_only_with_what_it_is_made_of)
{
#define WITH_ACCOUNT(account, route)                                                           \
	"accounts = { main = { " account " } }\n"                                              \
	"upstreams = { api = { servers = [\"http://h\"] } }\nroutes = (" route ")"
#define HEADER(name) "method = \"header\" trusted = [\"::1\"] header = \"" name "\""
	const char *is = identity(WITH_ACCOUNT(HEADER("X-A"), GATE("POST /a/{id}")));
	static const char *const same[] = {
		WITH_ACCOUNT(HEADER("x-a"), GATE("POST /a/{order}")),
		WITH_ACCOUNT("method = \"header\" header = \"X-A\" trusted = [\"10.0.0.1\"]",
			     GATE("POST /a/{id}")),
		WITH_ACCOUNT(HEADER("X-A"),
			     ROUTE_OF("POST /a/{id}",
				      GATED("wait = \"1s\" key = { syntax = \"bare\" }"))),
	};
	static const char *const others[] = {
		WITH_ACCOUNT(HEADER("X-B"), GATE("POST /a/{id}")),
		WITH_ACCOUNT("method = \"anonymous\" account = \"X-A\"", GATE("POST /a/{id}")),
		WITH_ACCOUNT(HEADER("X-A"), GATE("PUT /a/{id}")),
		WITH_ACCOUNT(HEADER("X-A"), GATE("POST /a/id")),
		WITH_ACCOUNT(HEADER("X-A"), GATE("POST /a/*")),
		WITH_ACCOUNT(HEADER("X-A"), GATE("POST /a/{id}") "," GATE("POST /b")),
	};

	for (size_t i = 0; i < ARRAY_LEN(same); i++)
		ck_assert_str_eq(identity(same[i]), is);
	for (size_t i = 0; i < ARRAY_LEN(others); i++)
		ck_assert_str_ne(identity(others[i]), is);
}
END_TEST

START_TEST(an_explanation_says_what_was_derived)
{
	struct buf out;

	must_load(COMMON "routes = (" GATE("POST /a") "," PASS("GET /b") ")");
	buf_init(&out, 1 << 20);
	settings_explain(loaded, &out);
	buf_byte(&out, 0);
	ck_assert_ptr_nonnull(strstr(out.at, "POST /a -> api, account main, enforced"));
	ck_assert_ptr_nonnull(strstr(out.at, "    store    2xx 301-303 402 409-410 422\n"));
	ck_assert_ptr_nonnull(strstr(out.at, " lease 78s "));
	ck_assert_ptr_nonnull(
		strstr(out.at, "GET /b -> api, account not asked, passes through\n"));
	buf_fini(&out);
}
END_TEST

START_TEST(a_route_without_idempotency_may_ask_who_it_is)
{
	must_load(ONE_ROUTE("account = \"main\""));
	ck_assert_ptr_eq(loaded->routes[0].account, &loaded->accounts[0]);
	ck_assert_ptr_null(loaded->routes[0].idempotency);
	must_load(ONE_ROUTE(""));
	ck_assert_ptr_null(loaded->routes[0].account);
	must_load(ONE_ROUTE("account = \"main\" " GATED("")));
	ck_assert_ptr_eq(loaded->routes[0].account, &loaded->accounts[0]);
	must_fail("accounts = { main = { method = \"anonymous\" account = \"a\" } two = { "
		  "method = "
		  "\"anonymous\" account = \"b\" } }\n"
		  "upstreams = { api = { servers = [\"http://h\"] } }\n"
		  "routes = (" ROUTE_OF("POST /a", "account = \"two\" " GATED("")) ")",
		  "3: `account` is another than that of `idempotency`");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("settings_route");
	TCase *tests = tcase_create("settings_route");
	SRunner *runner = srunner_create(suite);
	int failed = 0;

	suite_add_tcase(suite, tests);
	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_add_loop_test(tests, a_pattern_takes_its_paths_and_no_others, 0,
			    ARRAY_LEN(matches));
	tcase_add_test(tests, a_path_under_other_methods_says_which_sorted_and_once);
	tcase_add_loop_test(tests, what_is_no_pattern_is_refused, 0, ARRAY_LEN(refused));
	tcase_add_test(tests, a_pattern_has_a_limit);
	tcase_add_test(tests, loose_paths_are_matched_as_they_are);
	tcase_add_loop_test(tests, routes_in_each_others_way_are_said, 0, ARRAY_LEN(pairs));
	tcase_add_test(tests, statuses_mean_by_default_what_the_contract_says);
	tcase_add_test(tests, a_written_store_list_leaves_the_release_list_as_it_is);
	tcase_add_test(tests, stripes_contract_is_one_list);
	tcase_add_test(tests, an_exact_status_beats_a_class);
	tcase_add_test(tests, an_unknown_list_takes_statuses_out_of_the_defaults);
	tcase_add_test(tests, an_empty_list_is_written_too);
	tcase_add_test(tests, a_contradiction_of_lists_is_an_error);
	tcase_add_test(tests, an_identity_can_be_read);
	tcase_add_test(tests, an_identity_changes_only_with_what_it_is_made_of);
	tcase_add_test(tests, an_explanation_says_what_was_derived);
	tcase_add_test(tests, a_route_without_idempotency_may_ask_who_it_is);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
