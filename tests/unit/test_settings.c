/* Settings: what a file says is what the gateway does, and what it cannot do is said with a line. */
#include "settings_loading.h"

START_TEST(an_empty_file_has_every_default)
{
	must_warn("", "every request gets 404");
	ck_assert_uint_eq(loaded->gateway.listen.n, 1);
	ck_assert_str_eq(loaded->gateway.listen.at[0], "127.0.0.1:8080");
	ck_assert_int_eq(loaded->gateway.workers, 0);
	ck_assert_int_eq(loaded->gateway.drain_timeout, 75000);
	ck_assert_int_eq(loaded->gateway.header_timeout, 10000);
	ck_assert_int_eq(loaded->gateway.body_timeout, 30000);
	ck_assert_int_eq(loaded->gateway.idle_timeout, 75000);
	ck_assert_uint_eq(loaded->gateway.trusted_proxies.n, 0);
	ck_assert(!loaded->gateway.strict_keys);
	ck_assert_int_eq(loaded->limits.connections, 10000);
	ck_assert_int_eq(loaded->limits.in_flight, 2000);
	ck_assert_int_eq(loaded->limits.waiters, 1000);
	ck_assert_int_eq(loaded->limits.bytes_in_flight, 256 << 20);
	ck_assert_int_eq(loaded->log.format, 0);
	ck_assert_int_eq(loaded->log.level, 2);
	ck_assert_str_eq(loaded->ledger.conninfo, "dbname=onceward");
	ck_assert_ptr_null(loaded->ledger.maintenance_conninfo);
	ck_assert_int_eq(loaded->ledger.timeout, 2000);
	ck_assert_int_eq(loaded->ledger.batch_max, 256);
	ck_assert(loaded->ledger.prepared);
	ck_assert_str_eq(loaded->admin.listen, "127.0.0.1:9180");
	ck_assert_ptr_null(loaded->admin.tokens_file);
}
END_TEST

START_TEST(a_route_has_every_default)
{
	const struct idempotency_settings *idempotency = NULL;

	must_load_silently(ONE_GATED(""));
	ck_assert_uint_eq(loaded->n_routes, 1);
	ck_assert_ptr_eq(loaded->routes[0].upstream, &loaded->upstreams[0]);
	ck_assert_ptr_eq(loaded->routes[0].account, &loaded->accounts[0]);
	ck_assert(!loaded->routes[0].loose_paths);
	idempotency = loaded->routes[0].idempotency;
	ck_assert_ptr_eq(idempotency->account, &loaded->accounts[0]);
	ck_assert_str_eq(idempotency->operation, "op");
	ck_assert_ptr_null(idempotency->owner);
	ck_assert_int_eq(idempotency->settle_wait, 5000);
	ck_assert_int_eq(idempotency->wait, 5000);
	ck_assert_int_eq(idempotency->retention, 86400000);
	ck_assert_int_eq(idempotency->tombstone, INT64_C(30) * 86400000);
	ck_assert_int_eq(idempotency->mismatch_status, 409);
	ck_assert_int_eq(idempotency->in_progress_status, 503);
	ck_assert_int_eq(idempotency->unknown_status, 503);
	ck_assert(idempotency->key.required);
	ck_assert_int_eq(idempotency->key.syntax, KEY_ANY);
	ck_assert_int_eq(idempotency->key.format, KEY_FORMAT_ANY);
	ck_assert_int_eq(idempotency->request.max_body, 1 << 20);
	ck_assert_int_eq(idempotency->response.max_body, 1 << 20);
	ck_assert_int_eq(idempotency->rules.version, 1);
	ck_assert_int_eq(idempotency->rules.body, CANONICAL_AUTO);
	ck_assert_int_ne(idempotency->rules.id, 0);
	ck_assert_uint_ne(idempotency->metrics_operation, 0);
}
END_TEST

START_TEST(an_upstream_has_every_default)
{
	const struct upstream_settings *upstream = NULL;

	must_load_silently(ONE_ROUTE(""));
	upstream = &loaded->upstreams[0];
	ck_assert_str_eq(upstream->name, "api");
	ck_assert_int_eq(upstream->connect_timeout, 2000);
	ck_assert_int_eq(upstream->first_byte_timeout, 30000);
	ck_assert_int_eq(upstream->idle_timeout, 30000);
	ck_assert_int_eq(upstream->timeout, 60000);
	ck_assert_int_eq(upstream->queue_timeout, 1000);
	ck_assert_int_eq(upstream->connections, CONNECTIONS_POOLED);
	ck_assert_int_eq(upstream->keepalive, 4000);
	ck_assert_int_eq(upstream->max_connections, 1024);
}
END_TEST

START_TEST(a_lease_that_is_not_set_covers_the_forward_and_15_seconds)
{
	must_load_silently(ONE_GATED(""));
	ck_assert_int_eq(loaded->routes[0].idempotency->lease, 1000 + 2000 + 60000 + 15000);
	must_load_silently(ONE_GATED("lease = \"63s\""));
	ck_assert_int_eq(loaded->routes[0].idempotency->lease, 63000);
}
END_TEST

START_TEST(times_and_sizes_have_units)
{
	must_load("header_timeout = \"1500ms\" body_timeout = \"90s\" idle_timeout = \"2m\"\n"
		  "drain_timeout = \"1h\"\n limits = { bytes_in_flight = \"1GiB\" }");
	ck_assert_int_eq(loaded->gateway.header_timeout, 1500);
	ck_assert_int_eq(loaded->gateway.body_timeout, 90000);
	ck_assert_int_eq(loaded->gateway.idle_timeout, 120000);
	ck_assert_int_eq(loaded->gateway.drain_timeout, 3600000);
	ck_assert_int_eq(loaded->limits.bytes_in_flight, 1 << 30);
	must_load(ONE_GATED(
		"request = { max_body = \"512B\" } response = { max_body = \"64KiB\" }"
		"retention = \"2d\""));
	ck_assert_int_eq(loaded->routes[0].idempotency->request.max_body, 512);
	ck_assert_int_eq(loaded->routes[0].idempotency->response.max_body, 65536);
	ck_assert_int_eq(loaded->routes[0].idempotency->retention, INT64_C(2) * 86400000);
}
END_TEST

START_TEST(settings_live_until_the_last_who_holds_them_lets_go)
{
	must_load(ONE_GATED(""));
	settings_hold(loaded);
	settings_hold(loaded);
	settings_release(loaded);
	settings_release_deferred(loaded);
}
END_TEST

START_TEST(ranges_are_ipv4_ipv6_single_addresses_and_unix)
{
	const struct cidrs *ranges = NULL;

	must_load(
		"trusted_proxies = [\"10.9.8.7/8\", \"192.0.2.1\", \"2001:db8::/33\", \"::1\", "
		"\"unix\"]");
	ranges = &loaded->gateway.trusted_proxies;
	ck_assert_uint_eq(ranges->n, 4);
	ck_assert(ranges->unix_sockets);
	ck_assert_uint_eq(ranges->at[0].bits, 104);
	ck_assert_mem_eq(ranges->at[0].address, "\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\0\0\0", 16);
	ck_assert_uint_eq(ranges->at[1].bits, 128);
	ck_assert_uint_eq(ranges->at[2].bits, 33);
	ck_assert_uint_eq(ranges->at[3].bits, 128);
	must_load("trusted_proxies = []");
	ck_assert(!loaded->gateway.trusted_proxies.unix_sockets);
}
END_TEST

START_TEST(servers_are_urls_with_a_port)
{
	const struct server *server = NULL;

	must_load("upstreams = { a = { servers = [\"http://h:81\", \"https://[::1]\", "
		  "\"http://h\", "
		  "\"https://h\"] } }");
	server = loaded->upstreams[0].server;
	ck_assert_uint_eq(loaded->upstreams[0].n_servers, 4);
	ck_assert_str_eq(server[0].url, "http://h:81");
	ck_assert_str_eq(server[0].host, "h:81");
	ck_assert(!server[0].tls);
	ck_assert_str_eq(server[1].url, "https://[::1]:443");
	ck_assert_str_eq(server[1].host, "[::1]");
	ck_assert(server[1].tls);
	ck_assert_str_eq(server[2].url, "http://h:80");
	ck_assert_str_eq(server[3].url, "https://h:443");
}
END_TEST

START_TEST(listen_addresses_are_numbers_or_unix_sockets)
{
	must_load("listen = [\"0.0.0.0:0\", \"[::]:8080\", \"unix:/run/a.sock\", \"unix:a\"]");
	ck_assert_uint_eq(loaded->gateway.listen.n, 4);
}
END_TEST

START_TEST(files_are_beside_the_file_that_names_them)
{
	char expected[256];

	ck_assert_int_eq(mkdir(file_path("inc"), 0700), 0);
	write_file("inc/b.conf", "admin = { tokens_file = \"tokens\" }\n");
	must_load("@include \"inc/b.conf\"\n"
		  "upstreams = { a = { servers = [\"https://h\"] tls = { ca_file = \"/abs\" } "
		  "} }");
	snprintf(expected, sizeof(expected), "%s/inc/tokens", directory);
	ck_assert_str_eq(loaded->admin.tokens_file, expected);
	ck_assert_str_eq(loaded->upstreams[0].tls.ca_file, "/abs");
	ck_assert_int_eq(chdir(directory), 0);
	ck_assert(load_file("inc/b.conf"));
	ck_assert_str_eq(loaded->admin.tokens_file, expected);
	ck_assert(load_file("a.conf"));
	ck_assert_str_eq(loaded->admin.tokens_file, expected);
	ck_assert_int_eq(chdir("/"), 0);
}
END_TEST

static bool loads_as(struct settings **out, const char *text)
{
	must_load(text);
	*out = loaded;
	loaded = NULL;
	return true;
}

START_TEST(a_reload_may_not_change_what_is_open)
{
	static const struct {
		const char *text, *what;
	} changes[] = {
		{ "listen = [\"127.0.0.1:81\"]", "`listen`" },
		{ "listen = [\"127.0.0.1:8080\", \"[::1]:8080\"]", "`listen`" },
		{ "workers = 3", "`workers`" },
		{ "ledger = { conninfo = \"dbname=b\" }", "`ledger`" },
		{ "ledger = { maintenance_conninfo = \"dbname=b\" }", "`ledger`" },
		{ "ledger = { timeout = \"3s\" }", "`ledger`" },
		{ "ledger = { prepared = false }", "`ledger`" },
		{ "admin = { listen = \"127.0.0.1:81\" }", "`admin.listen`" },
		{ "admin = { tokens_file = \"t\" } drain_timeout = \"1s\" log = { level = "
		  "\"debug\" }",
		  NULL },
		{ ONE_GATED(""), NULL },
	};
	struct settings *old = NULL;

	loads_as(&old, "");
	for (size_t i = 0; i < ARRAY_LEN(changes); i++) {
		const char *why = NULL;
		must_load(changes[i].text);
		why = settings_needs_restart(old, loaded);
		ck_assert_msg(!why == !changes[i].what, "%s: %s", changes[i].text, why);
		ck_assert(!why || strstr(why, changes[i].what));
	}
	settings_release(old);
}
END_TEST

/* Loads, and says whether the fingerprint is another one than at the last time. */
static bool other_fingerprint(const char *text)
{
	static unsigned char last[sizeof(loaded->fingerprint)];
	bool other = false;

	must_load(text);
	other = memcmp(last, loaded->fingerprint, sizeof(last)) != 0;
	memcpy(last, loaded->fingerprint, sizeof(last));
	return other;
}

START_TEST(the_fingerprint_is_of_all_that_the_files_say)
{
	static const char text[] = "@include \"inc/b.conf\"\n" ONE_GATED("");

	mkdir(file_path("inc"), 0700);
	write_file("inc/b.conf", "workers = 1\n");
	write_file("inc/c.conf", "workers = 1\n");
	ck_assert(other_fingerprint(text));
	ck_assert(!other_fingerprint(text));
	ck_assert(other_fingerprint("@include \"inc/c.conf\"\n" ONE_GATED("")));
	ck_assert(other_fingerprint(text));
	write_file("inc/b.conf", "workers = 2\n");
	ck_assert(other_fingerprint(text));
	write_file("inc/b.conf", "workers = 2\n\n");
	ck_assert(other_fingerprint(text));
	ck_assert(other_fingerprint("workers = 2\n\n" ONE_GATED("")));
	ck_assert(other_fingerprint("workers = 3\n\n" ONE_GATED("")));
}
END_TEST

/* Gateways that have the same settings say so, wherever they keep them. */
START_TEST(the_fingerprint_is_the_same_in_another_directory)
{
	unsigned char here[sizeof(loaded->fingerprint)];

	mkdir(file_path("there"), 0700);
	write_file("b.conf", "workers = 2\n");
	write_file("there/b.conf", "workers = 2\n");
	must_load("@include \"b.conf\"\n");
	memcpy(here, loaded->fingerprint, sizeof(here));
	write_file("there/a.conf", "@include \"b.conf\"\n");
	ck_assert(load_file(file_path("there/a.conf")));
	ck_assert_mem_eq(here, loaded->fingerprint, sizeof(here));
}
END_TEST

START_TEST(the_example_loads_and_says_what_is_the_default_anyway)
{
	struct buf out;

	buf_init(&out, (size_t)1024 * 1024);
	settings_example(&out);
	buf_byte(&out, 0);
	ck_assert(!out.full);
	must_load_silently(out.at);
	ck_assert_int_eq(loaded->limits.connections, 10000);
	ck_assert_uint_eq(loaded->n_routes, 2);
	ck_assert_ptr_nonnull(loaded->routes[0].idempotency);
	for (const char *line = out.at; *line; line += strcspn(line, "\n") + 1)
		ck_assert_uint_le(strcspn(line, "\n"), 120);
	buf_fini(&out);
}
END_TEST

/* Of another method or contract than the example's. */
static bool of_another(const char *line, const char *before)
{
	return strncmp(line, "# account = \"public\"", 20) == 0 ||
	       strncmp(before, "# resend:", 9) == 0 || strncmp(before, "# lookup:", 9) == 0;
}

/* A commented-out setting is one that works, too: its line without the # loads. */
START_TEST(what_the_example_leaves_out_would_load)
{
	struct buf out, all;
	const char *before = "";

	buf_init(&out, (size_t)1024 * 1024);
	buf_init(&all, (size_t)1024 * 1024);
	settings_example(&out);
	buf_byte(&out, 0);
	for (const char *line = out.at; *line; line += strcspn(line, "\n") + 1) {
		size_t len = strcspn(line, "\n"), spaces = strspn(line, " ");
		const char *at = line + spaces;
		bool setting = strncmp(at, "# ", 2) == 0 &&
			       strchr("abcdefghijklmnopqrstuvwxyz", at[2]) &&
			       strncmp(at + 2 + strcspn(at + 2, " \n"), " = ", 3) == 0;
		bool more = strncmp(at, "#     ", 6) == 0;
		if (setting && !of_another(at, before))
			at += 2;
		else if (more)
			at += 1;
		before = line + spaces;
		buf_append(&all, at, len - (size_t)(at - line));
		buf_byte(&all, '\n');
	}
	buf_byte(&all, 0);
	write_file("digest.keys", "1 00112233445566778899aabbccddeeff\n");
	ck_assert_int_eq(chmod(file_path("digest.keys"), 0600), 0);
	must_load(all.at);
	ck_assert_int_eq(loaded->routes[0].idempotency->lease, 78000);
	ck_assert_str_eq(loaded->routes[0].idempotency->owner, "orders-oncall@example.com");
	ck_assert_uint_eq(loaded->routes[0].idempotency->outcome.release.n, 21);
	ck_assert_uint_eq(loaded->routes[0].idempotency->outcome.n_release_if, 1);
	ck_assert_uint_eq(loaded->routes[0].idempotency->outcome.n_when, 1);
	buf_fini(&out);
	buf_fini(&all);
}
END_TEST

static void same_as_file(const char *name, const struct buf *text)
{
	FILE *file = fopen(name, "r");
	char *there = mem_alloc(text->len + 2);

	if (!file) {
		fprintf(stderr, "skipped: no %s in the working directory\n", name);
	} else {
		size_t len = fread(there, 1, text->len + 1, file);
		ck_assert_uint_eq(len, text->len);
		ck_assert_mem_eq(there, text->at, len);
		fclose(file);
	}
	mem_free(there);
}

START_TEST(gateway_conf_example_is_what_the_program_prints)
{
	struct buf out;

	buf_init(&out, (size_t)1024 * 1024);
	settings_example(&out);
	same_as_file("gateway.conf.example", &out);
	buf_fini(&out);
}
END_TEST

START_TEST(the_worked_examples_load_without_a_word)
{
	static const char *const names[] = { "conf/orders.conf", "conf/payments.conf",
					     "conf/webhooks.conf", "conf/ai.conf" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		if (access(names[i], R_OK) != 0) {
			fprintf(stderr, "skipped: no %s in the working directory\n", names[i]);
			continue;
		}
		ck_assert_msg(load_file(names[i]), "%s", said.at);
		ck_assert_str_eq(said.at, "");
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("settings");
	TCase *tests = tcase_create("settings");
	SRunner *runner = srunner_create(suite);
	int failed = 0;

	suite_add_tcase(suite, tests);
	tcase_add_checked_fixture(tests, begin_loading, end_loading);
	tcase_add_test(tests, an_empty_file_has_every_default);
	tcase_add_test(tests, a_route_has_every_default);
	tcase_add_test(tests, an_upstream_has_every_default);
	tcase_add_test(tests, a_lease_that_is_not_set_covers_the_forward_and_15_seconds);
	tcase_add_test(tests, times_and_sizes_have_units);
	tcase_add_test(tests, settings_live_until_the_last_who_holds_them_lets_go);
	tcase_add_test(tests, ranges_are_ipv4_ipv6_single_addresses_and_unix);
	tcase_add_test(tests, servers_are_urls_with_a_port);
	tcase_add_test(tests, listen_addresses_are_numbers_or_unix_sockets);
	tcase_add_test(tests, files_are_beside_the_file_that_names_them);
	tcase_add_test(tests, a_reload_may_not_change_what_is_open);
	tcase_add_test(tests, the_fingerprint_is_of_all_that_the_files_say);
	tcase_add_test(tests, the_fingerprint_is_the_same_in_another_directory);
	tcase_add_test(tests, the_example_loads_and_says_what_is_the_default_anyway);
	tcase_add_test(tests, what_the_example_leaves_out_would_load);
	tcase_add_test(tests, gateway_conf_example_is_what_the_program_prints);
	tcase_add_test(tests, the_worked_examples_load_without_a_word);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
