/* Who is asking: nobody is believed who is not trusted, and what nobody vouches for goes no further. */
#include "account.h"

#include "settings_loading.h"

static struct arena *arena;

static void setup(void)
{
	begin_loading();
	arena = arena_new();
	must_load("accounts = {\n"
		  "  behind = { method = \"header\" header = \"X-Account\"\n"
		  "             trusted = [\"10.1.0.0/16\", \"192.0.2.7\", \"2001:db8::/33\", "
		  "\"unix\"] }\n"
		  "  other = { method = \"header\" header = \"X-Other\" trusted = "
		  "[\"127.0.0.1\"] }\n"
		  "  open = { method = \"anonymous\" account = \"public\" } }\n");
}

static void teardown(void)
{
	arena_free(arena);
	end_loading();
}

static struct http_request request_from(const char *peer)
{
	struct http_request request = { .arena = arena, .peer = span_of(peer) };

	request.fields.at = arena_alloc(arena, HTTP_FIELDS_MAX * sizeof(*request.fields.at));
	return request;
}

static enum problem ask(const struct http_request *request, struct span *name)
{
	const char *why = NULL;
	enum problem problem = account_of(&loaded->accounts[0], request, name, &why);

	ck_assert(problem == PROBLEM_NONE || (why && why[0]));
	return problem;
}

static enum problem ask_with(const char *peer, struct span value, struct span *name)
{
	struct http_request request = request_from(peer);

	http_add(&request.fields, SPAN("x-account"), value);
	return ask(&request, name);
}

START_TEST(the_header_of_a_trusted_peer_names_the_account)
{
	struct span name;

	ck_assert_int_eq(ask_with("10.1.2.3", SPAN("acme ltd"), &name), PROBLEM_NONE);
	ck_assert(span_equal(name, SPAN("acme ltd")));
	ck_assert_int_eq(ask_with("unix", SPAN("a"), &name), PROBLEM_NONE);
	ck_assert_int_eq(ask_with("2001:db8:1::9", SPAN("\xc3\xa9"), &name), PROBLEM_NONE);
}
END_TEST

START_TEST(the_header_of_anybody_else_counts_as_absent)
{
	struct span name;

	ck_assert_int_eq(ask_with("10.2.0.1", SPAN("acme"), &name), PROBLEM_UNAUTHENTICATED);
	ck_assert_int_eq(ask_with("127.0.0.1", SPAN("acme"), &name), PROBLEM_UNAUTHENTICATED);
	ck_assert_int_eq(ask_with("", SPAN("acme"), &name), PROBLEM_UNAUTHENTICATED);
	ck_assert_int_eq(ask_with("10.1.2.3.4", SPAN("acme"), &name), PROBLEM_UNAUTHENTICATED);
}
END_TEST

START_TEST(a_missing_header_is_nobody)
{
	struct http_request request = request_from("10.1.2.3");
	struct span name;

	http_add(&request.fields, SPAN("X-Accounts"), SPAN("acme"));
	ck_assert_int_eq(ask(&request, &name), PROBLEM_UNAUTHENTICATED);
}
END_TEST

START_TEST(two_headers_are_nobody_even_where_they_agree)
{
	struct http_request request = request_from("10.1.2.3");
	struct span name;

	http_add(&request.fields, SPAN("X-Account"), SPAN("acme"));
	http_add(&request.fields, SPAN("X-ACCOUNT"), SPAN("acme"));
	ck_assert_int_eq(ask(&request, &name), PROBLEM_UNAUTHENTICATED);
}
END_TEST

START_TEST(an_account_has_from_1_to_255_visible_bytes)
{
	char bytes[256];
	struct span name;

	memset(bytes, 'a', sizeof(bytes));
	ck_assert_int_eq(ask_with("unix", (struct span){ bytes, 255 }, &name), PROBLEM_NONE);
	ck_assert_uint_eq(name.len, 255);
	ck_assert_int_eq(ask_with("unix", (struct span){ bytes, 256 }, &name),
			 PROBLEM_UNAUTHENTICATED);
	ck_assert_int_eq(ask_with("unix", SPAN(""), &name), PROBLEM_UNAUTHENTICATED);
	ck_assert_int_eq(ask_with("unix", SPAN("a\tb"), &name), PROBLEM_UNAUTHENTICATED);
	ck_assert_int_eq(ask_with("unix", SPAN("a\0b"), &name), PROBLEM_UNAUTHENTICATED);
	ck_assert_int_eq(ask_with("unix", SPAN("a\x7f"), &name), PROBLEM_UNAUTHENTICATED);
}
END_TEST

START_TEST(the_anonymous_account_is_everybody)
{
	struct http_request request = request_from("203.0.113.9");
	struct span name;
	const char *why = NULL;

	ck_assert_int_eq(account_of(&loaded->accounts[2], &request, &name, &why), PROBLEM_NONE);
	ck_assert(span_equal(name, SPAN("public")));
}
END_TEST

START_TEST(ranges_hold_their_addresses_and_no_others)
{
	static const struct {
		const char *peer;
		bool trusted;
	} peers[] = {
		{ "10.1.0.0", true },         { "10.1.255.255", true },
		{ "10.0.255.255", false },    { "10.2.0.0", false },
		{ "192.0.2.7", true },        { "192.0.2.6", false },
		{ "2001:db8::", true },       { "2001:db8:7fff:ffff::1", true },
		{ "2001:db8:8000::", false }, { "2001:db7::", false },
		{ "::ffff:10.1.0.1", true },  { "::ffff:10.2.0.1", false },
		{ "::10.1.0.1", false },      { "unix", true },
		{ "unix:", false },           { "10.1.0.1 ", false },
		{ "0x0a.1.0.1", false },      { "", false },
	};

	for (size_t i = 0; i < ARRAY_LEN(peers); i++)
		ck_assert_msg(account_trusted(&loaded->accounts[0].trusted,
					      span_of(peers[i].peer)) == peers[i].trusted,
			      "%s", peers[i].peer);
	ck_assert(!account_trusted(&loaded->accounts[1].trusted, SPAN("unix")));
}
END_TEST

START_TEST(headers_of_accounts_go_on_only_from_their_trusted_peers)
{
	struct http_request behind = request_from("10.1.2.3"),
			    local = request_from("127.0.0.1");

	ck_assert(!account_stripped(loaded, &behind, SPAN("X-Account")));
	ck_assert(!account_stripped(loaded, &behind, SPAN("x-account")));
	ck_assert(account_stripped(loaded, &behind, SPAN("X-Other")));
	ck_assert(account_stripped(loaded, &local, SPAN("X-ACCOUNT")));
	ck_assert(!account_stripped(loaded, &local, SPAN("X-Other")));
	ck_assert(!account_stripped(loaded, &local, SPAN("X-Accounts")));
	ck_assert(!account_stripped(loaded, &local, SPAN("Content-Type")));
	ck_assert(!account_stripped(loaded, &local, (struct span){ NULL, 0 }));
}
END_TEST

START_TEST(our_own_headers_never_go_on)
{
	struct http_request behind = request_from("10.1.2.3");

	ck_assert(account_stripped(loaded, &behind, SPAN("X-Onceward-Account")));
	ck_assert(account_stripped(loaded, &behind, SPAN("x-onceward-")));
	ck_assert(account_stripped(loaded, &behind, SPAN("X_ONCEWARD_ACCOUNT")));
	ck_assert(!account_stripped(loaded, &behind, SPAN("X-Onceward")));
}
END_TEST

/* What CGI, WSGI and Rack cannot tell from X-Account is not what the trusted hop has set. */
START_TEST(a_look_alike_of_an_accounts_header_never_goes_on)
{
	struct http_request behind = request_from("10.1.2.3"),
			    local = request_from("127.0.0.1");

	ck_assert(account_stripped(loaded, &behind, SPAN("X_Account")));
	ck_assert(account_stripped(loaded, &local, SPAN("X_Account")));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("account");
	TCase *tests = tcase_create("account");
	SRunner *runner = srunner_create(suite);
	int failed = 0;

	suite_add_tcase(suite, tests);
	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_add_test(tests, the_header_of_a_trusted_peer_names_the_account);
	tcase_add_test(tests, the_header_of_anybody_else_counts_as_absent);
	tcase_add_test(tests, a_missing_header_is_nobody);
	tcase_add_test(tests, two_headers_are_nobody_even_where_they_agree);
	tcase_add_test(tests, an_account_has_from_1_to_255_visible_bytes);
	tcase_add_test(tests, the_anonymous_account_is_everybody);
	tcase_add_test(tests, ranges_hold_their_addresses_and_no_others);
	tcase_add_test(tests, headers_of_accounts_go_on_only_from_their_trusted_peers);
	tcase_add_test(tests, our_own_headers_never_go_on);
	tcase_add_test(tests, a_look_alike_of_an_accounts_header_never_goes_on);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
