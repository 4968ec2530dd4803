/* What a file may not say: each error has its file, its line, and a sentence that helps. */
#include "settings_loading.h"

/* Texts, and what is said of them behind FILE:LINE. */
static const struct {
	const char *text, *line;
} errors[] = {
	/* the file */
	{ "listen = ", "1: syntax error" },
	{ "\nworkers = = 2", "2: syntax error" },
	{ "workers = 1\nworkers = 2", "2: duplicate setting name" },
	{ "workers = 1 \"\nx = 2", "1: the text that begins here has no closing quote" },
	{ "\nworkers = 1 /* x\n", "2: the comment that begins here has no end" },
	/* names */
	{ "workres = 2", "1: `workres` is no setting of the file; did you mean `workers`?" },
	{ "\nrecovery = { }", "2: `recovery` is no setting of the file, but of `idempotency`" },
	{ "drain_timout = \"1s\"", "1: `drain_timout` is no setting of the file; did you mean "
				   "`drain_timeout`?" },
	{ "upstream = { }", "1: `upstream` is no setting of the file, but of a route" },
	{ "limits = { connection = 1 }",
	  "1: `connection` is no setting of `limits`; did you mean "
	  "`connections`?" },
	{ ONE_GATED("mode = \"observe\""), "3: `mode` is no setting of `idempotency`" },
	{ ONE_ROUTE("wait = \"1s\""),
	  "3: `wait` is no setting of a route, but of `idempotency`" },
	/* types */
	{ "workers = \"2\"", "1: `workers` must be a whole number without quotes" },
	{ "workers = 2.5", "1: `workers` must be a whole number" },
	{ "strict_keys = 1", "1: `strict_keys` must be true or false" },
	{ "listen = \"127.0.0.1:80\"", "1: `listen` must be a list of texts" },
	{ "listen = [80]", "1: `listen` must be a list of texts" },
	{ "limits = 3", "1: `limits` must be a group" },
	{ "routes = { }", "1: `routes` must be a list of groups" },
	{ "routes = (3)", "1: a route must be a group" },
	{ "accounts = ( )", "1: `accounts` must be a group of groups" },
	{ "accounts = { a = 1 }", "1: an account method must be a group" },
	{ "upstreams = 1", "1: `upstreams` must be a group of groups" },
	{ "log = { format = 1 }", "1: `format` must be one of \"json|text\"" },
	{ "log = { level = \"warn\" }", "1: `level` must be one of" },
	{ "ledger = { conninfo = 1 }", "1: `conninfo` must be a text in quotes" },
	{ "admin = { tokens_file = \"\" }", "1: `tokens_file` must be the path of a file" },
	/* units */
	{ "drain_timeout = 75", "1: `drain_timeout` needs a unit: \"75s\" for seconds" },
	{ "limits = { bytes_in_flight = 100 }", "1: `bytes_in_flight` needs a unit: \"100B\"" },
	{ "drain_timeout = \"75\"", "1: `drain_timeout` must be a duration" },
	{ "drain_timeout = \"75 s\"", "1: `drain_timeout` must be a duration" },
	{ "drain_timeout = \"-1s\"", "1: `drain_timeout` must be a duration" },
	{ "drain_timeout = \"1.5s\"", "1: `drain_timeout` must be a duration" },
	{ "drain_timeout = \"1KiB\"", "1: `drain_timeout` must be a duration" },
	{ "drain_timeout = \"999999999999999999d\"", "1: `drain_timeout` must be a duration" },
	{ "limits = { bytes_in_flight = \"1MB\" }", "1: `bytes_in_flight` must be a size" },
	{ "limits = { bytes_in_flight = true }", "1: `bytes_in_flight` must be a size" },
	/* ranges */
	{ "workers = 257", "1: `workers` must be from 0 to 256" },
	{ "workers = -1", "1: `workers` must be from 0 to 256" },
	{ "workers = 4294967297", "1: the number 4294967297 is too large" },
	{ "workers = 99999999999999999999", "1: the number 99999999999999999999 is too large" },
	{ "workers = 0xFFFFFFFF", "1: the number 0xFFFFFFFF is too large" },
	{ "workers = 4294967297L", "1: `workers` must be from 0 to 256" },
	{ "drain_timeout = \"2h\"", "1: `drain_timeout` must be from 0s to 1h" },
	{ "limits = { bytes_in_flight = \"1B\" }",
	  "1: `bytes_in_flight` must be from 1MiB to 1TiB" },
	{ ONE_GATED("mismatch_status = 500"), "3: `mismatch_status` must be from 400 to 499" },
	{ ONE_GATED("retention = \"999ms\""), "3: `retention` must be from 1s to 400d" },
	{ ONE_GATED("lease = \"2d\""), "3: `lease` must be from 1s to 1d" },
	/* what is missing */
	{ "accounts = { a = { } }", "1: an account method needs `method`" },
	{ "upstreams = { a = { } }", "1: an upstream needs `servers`" },
	{ "routes = ( { } )", "1: a route needs `match`" },
	{ "routes = ( { } )", "1: a route needs `upstream`" },
	{ ONE_ROUTE("idempotency = { account = \"main\" }"),
	  "3: `idempotency` needs `operation`" },
	{ ONE_ROUTE("idempotency = { operation = \"o\" }"),
	  "3: `idempotency` needs `account`" },
	/* references */
	{ COMMON "routes = ( { match = \"GET /\" upstream = \"apo\" } )",
	  "3: `upstream`: there is no `apo` in `upstreams`; did you mean `api`?" },
	{ COMMON "routes = ( { match = \"GET /\" upstream = \"elsewhere\" } )",
	  "3: `upstream`: there is no `elsewhere` in `upstreams`" },
	{ ONE_ROUTE("account = \"mian\""),
	  "3: `account`: there is no `mian` in `accounts`; did you mean `main`?" },
	{ ONE_ROUTE("account = 7"), "3: `account` must be the name of one of `accounts`" },
	/* listening and connecting */
	{ "listen = []", "1: `listen` is empty" },
	{ "listen = [\"8080\"]", "1: \"8080\" is no address to listen at" },
	{ "listen = [\"localhost:8080\"]", "1: \"localhost:8080\" is no address" },
	{ "listen = [\"127.0.0.1:65536\"]", "1: \"127.0.0.1:65536\" is no address" },
	{ "listen = [\"::1:80\"]", "1: \"::1:80\" is no address" },
	{ "listen = [\"[::1:80\"]", "1: \"[::1:80\" is no address" },
	{ "listen = [\"[127.0.0.1]:80\"]", "1: \"[127.0.0.1]:80\" is no address" },
	{ "listen = [\"unix:\"]", "1: \"unix:\" is no address" },
	{ "listen = [\"127.0.0.1:80\",\n\"127.0.0.1:80\"]",
	  "2: \"127.0.0.1:80\" stands there twice" },
	{ "admin = { listen = \"nowhere\" }", "1: \"nowhere\" is no address" },
	{ "admin = { listen = \"127.0.0.1:8080\" }", "1: clients (`listen`) and operators" },
	{ "admin = { hosts = [\"a b\"] }", "1: \"a b\" is no host" },
	{ "upstreams = { a = { servers = [] } }", "1: `servers` is empty" },
	{ "upstreams = { a = { servers = [\"127.0.0.1:80\"] } }",
	  "1: \"127.0.0.1:80\" is no server" },
	{ "upstreams = { a = { servers = [\"ftp://h:80\"] } }",
	  "1: \"ftp://h:80\" is no server" },
	{ "upstreams = { a = { servers = [\"http://h:80/\"] } }",
	  "1: \"http://h:80/\" is no server" },
	{ "upstreams = { a = { servers = [\"http://u:p@h\"] } }",
	  "1: \"http://u:p@h\" is no server" },
	{ "upstreams = { a = { servers = [\"http://h:0\"] } }",
	  "1: \"http://h:0\" is no server" },
	{ "upstreams = { a = { servers = [\"http://\"] } }", "1: \"http://\" is no server" },
	/* accounts */
	{ "accounts = { a = { method = \"jwt\" } }", "1: `method` must be one of" },
	{ "accounts = { a = { method = \"header\" trusted = [\"::1\"] } }",
	  "1: method = \"header\" needs `header`" },
	{ "accounts = { a = { method = \"header\" header = \"X\" } }",
	  "1: method = \"header\" needs `trusted`" },
	{ "accounts = { a = { method = \"header\" header = \"X\" trusted = [] } }",
	  "1: method = \"header\" needs `trusted`" },
	{ "accounts = { a = { method = \"header\" header = \"a b\" trusted = [\"::1\"] } }",
	  "1: \"a b\" cannot be" },
	{ "accounts = { a = { method = \"header\" header = \"HOST\" trusted = [\"::1\"] } }",
	  "1: \"HOST\" cannot be" },
	{ "accounts = { a = { method = \"anonymous\" } }",
	  "1: method = \"anonymous\" needs `account`" },
	{ "accounts = { a = { method = \"anonymous\" account = \"\" } }",
	  "1: `account` must have from 1 to 255" },
	{ "accounts = { a = { method = \"anonymous\" account = \"x\" header = \"X\" } }",
	  "1: `header` belongs to method" },
	{ "trusted_proxies = [\"10.0.0.0/33\"]",
	  "1: `trusted_proxies` must be a list of addresses" },
	{ "trusted_proxies = [\"10.0.0/8\"]",
	  "1: `trusted_proxies` must be a list of addresses" },
	{ "trusted_proxies = [\"::/129\"]",
	  "1: `trusted_proxies` must be a list of addresses" },
	{ "trusted_proxies = [\"host\"]", "1: `trusted_proxies` must be a list of addresses" },
	/* contradictions */
	{ ONE_GATED("lease = \"62999ms\""),
	  "3: `lease` is shorter than what a forward to `api` may take "
	  "(queue_timeout + connect_timeout + timeout = 63s)" },
	{ ONE_GATED("retention = \"31d\""), "3: `tombstone` is shorter than `retention`" },
	{ ONE_GATED("tombstone = \"1h\""), "3: `tombstone` is shorter than `retention`" },
	{ ONE_ROUTE("account = \"other\" " GATED("")), "3: `account`: there is no `other`" },
	{ COMMON "routes = (" ROUTE_OF(
		  "POST /a", "idempotency = { operation = \"A b\" account = \"main\" }") ")",
	  "3: `operation` must have from 1 to 64" },
	{ ONE_GATED("response = { headers = [\"Set-Cookie\"] }"),
	  "3: \"Set-Cookie\" is no field that may be kept" },
	{ ONE_GATED("response = { headers = [\"connection\"] }"),
	  "3: \"connection\" is no field" },
	{ ONE_GATED("response = { headers = [\"Proxy-Anything\"] }"),
	  "3: \"Proxy-Anything\" is no field" },
	{ ONE_GATED("response = { headers = [\"a:b\"] }"), "3: \"a:b\" is no field" },
	{ COMMON "routes = (" ROUTE_OF("POST /a", GATED("")) ",\n" ROUTE_OF(
		  "POST /b", GATED("wait = \"1s\"")) ")",
	  "4: operation `op` has another `wait` here than on line 3" },
	{ COMMON "routes = (" ROUTE_OF("POST /a", GATED("")) ",\n" ROUTE_OF(
		  "POST /b", GATED("key = { required = false }")) ")",
	  "4: operation `op` has another `required` here" },
	{ COMMON "routes = (" ROUTE_OF("POST /a", GATED("")) ",\n" ROUTE_OF(
		  "POST /b", GATED("outcome = { store = [\"2xx\"] }")) ")",
	  "4: operation `op` has another `outcome` here" },
	{ "accounts = { main = { method = \"anonymous\" account = \"a\" } two = { method = "
	  "\"anonymous\" account = \"b\" } }\n"
	  "upstreams = { api = { servers = [\"http://h\"] } }\n"
	  "routes = (" ROUTE_OF("POST /a", GATED("")) ",\n" ROUTE_OF(
		  "POST /b", "idempotency = { operation = \"op\" account = \"two\" }") ")",
	  "4: operation `op` has another `account` here" },
	{ "accounts = { main = { method = \"anonymous\" account = \"a\" } }\n"
	  "upstreams = { api = { servers = [\"http://h\"] } b = { servers = [\"http://h\"] } "
	  "}\n"
	  "routes = (" ROUTE_OF("POST /a",
				GATED("")) ",\n"
					   "{ match = \"POST /b\" upstream = \"b\" " GATED(
						   "") " } )",
	  "4: operation `op` has another `upstream` here" },
};

START_TEST(an_error_is_said_with_its_line)
{
	must_fail(errors[_i].text, errors[_i].line);
}
END_TEST

START_TEST(every_error_is_said_at_once)
{
	must_fail("workres = 1\nstrict_keys = 3\ndrain_timeout = 7\nlog = { level = \"x\" }\n",
		  "1: `workres`");
	ck_assert_ptr_nonnull(strstr(said.at, ":2: `strict_keys`"));
	ck_assert_ptr_nonnull(strstr(said.at, ":3: `drain_timeout`"));
	ck_assert_ptr_nonnull(strstr(said.at, ":4: `level`"));
}
END_TEST

static const struct {
	const char *conninfo;
	bool secret;
} conninfos[] = {
	{ "dbname=onceward", false },
	{ "host=/run user=a passfile=/etc/onceward/pgpass", false },
	{ "application_name='password=x' dbname=a", false },
	{ "dbname=a application_name=\\'password=x", false },
	{ "postgres://user@host/db?passfile=x", false },
	{ "postgresql://host:5432/db", false },
	{ "postgres://user:@host/db", false },
	{ "postgres://[::1]:5432/db", false },
	{ "password=x", true },
	{ "dbname=a  PassWord = 'x y'", true },
	{ "application_name='it\\'s' password=x", true },
	{ "user=a sslpassword=x", true },
	{ "password", true },
	{ "postgres://user:secret@host/db", true },
	{ "postgresql://user:a@b@host/db", true },
	{ "postgres://host/db?a=b&password=x", true },
	{ "postgres://host/db?%70assword=x", true },
	{ "postgres:///db?sslpassword=x", true },
};

START_TEST(a_password_does_not_stand_in_a_conninfo)
{
	char text[256];

	snprintf(text, sizeof(text), "ledger = { conninfo = \"%s\" }", conninfos[_i].conninfo);
	for (char *at = text; (at = strchr(at, '\\')); at += 2) { /* a \ of the file is two */
		memmove(at + 1, at, strlen(at) + 1);
	}
	if (!conninfos[_i].secret) {
		must_load(text);
		ck_assert_str_eq(loaded->ledger.conninfo, conninfos[_i].conninfo);
		return;
	}
	must_fail(text, "1: `conninfo` holds a password: put it into a file that only you can "
			"read, and write passfile=FILE");
	ck_assert_ptr_null(strstr(said.at, "secret"));
}
END_TEST

START_TEST(the_back_office_has_no_password_either)
{
	must_fail("ledger = { maintenance_conninfo = \"password=x\" }",
		  "1: `maintenance_conninfo` holds a password");
}
END_TEST

START_TEST(odd_settings_that_work_are_warnings)
{
	must_warn("accounts = { a = { method = \"header\" header = \"X\" trusted = "
		  "[\"0.0.0.0/0\"] } }",
		  "`trusted` is everybody");
	must_warn("accounts = { a = { method = \"header\" header = \"X\" trusted = [\"::/0\"] "
		  "} }",
		  "`trusted` is everybody");
	must_warn("upstreams = { a = { servers = [\"http://h\"] timeout = \"5s\" "
		  "first_byte_timeout "
		  "= \"6s\" } }",
		  "`first_byte_timeout` is longer than `timeout`");
	must_warn("upstreams = { a = { servers = [\"http://h\"] tls = { ca_file = \"x\" } } }",
		  "`ca_file` has no effect");
	must_warn("admin = { listen = \"0.0.0.0:9180\" }", "can be reached from elsewhere");
	must_load_silently(COMMON "admin = { listen = \"0.0.0.0:9180\" tokens_file = \"t\" }\n"
				  "routes = (" ROUTE_OF("GET /", "") ")");
	must_load_silently(ONE_ROUTE("") "admin = { listen = \"\" }");
}
END_TEST

START_TEST(an_error_in_an_included_file_names_that_file)
{
	ck_assert_int_eq(mkdir(file_path("inc"), 0700), 0);
	write_file("inc/b.conf", "\n\nworkers = true\n");
	ck_assert(!load("@include \"inc/b.conf\"\n"));
	ck_assert_ptr_eq(strstr(said.at, file_path("inc/b.conf:3: `workers` must be")),
			 said.at);
	write_file("inc/b.conf", "\nworkers = = true\n");
	ck_assert(!load("@include \"inc/b.conf\"\n"));
	ck_assert_ptr_eq(strstr(said.at, file_path("inc/b.conf:2: syntax error")), said.at);
}
END_TEST

START_TEST(a_file_that_cannot_be_read_ends_no_process)
{
	ck_assert(!load_file(file_path("nothing")));
	ck_assert_ptr_nonnull(
		strstr(said.at, file_path("nothing: cannot be read: No such file")));
	ck_assert(!load_file(directory));
	ck_assert_ptr_nonnull(strstr(said.at, "it is not a file"));
	must_fail("\n@include \".\"", "2: includes .");
	must_fail("\n@include \"nothing\"", "2: includes nothing");
	must_fail("@include \"a.conf\"\n@include \"a.conf\"",
		  "1: includes are nested too deep");
	must_fail("@include \"/etc/hosts\"", "1: @include \"/etc/hosts\": name it relative");
	ck_assert_int_eq(mkfifo(file_path("fifo"), 0600), 0);
	ck_assert(!load_file(file_path("fifo")));
}
END_TEST

START_TEST(a_nul_byte_is_no_end_of_the_file)
{
	FILE *file = fopen(file_path("a.conf"), "w");

	fwrite("workers = 1\n\0workers = 7", 1, 22, file);
	fclose(file);
	ck_assert(!load_file(file_path("a.conf")));
	ck_assert_ptr_nonnull(strstr(said.at, "NUL"));
}
END_TEST

START_TEST(numbers_in_texts_and_comments_are_no_numbers)
{
	must_load("# 99999999999999999999\n// 99999999999999999999\n/* 99999999999999999999\n "
		  "*/\n"
		  "ledger = { conninfo = \"a=\\\"99999999999999999999\\\" b=99999999999999\" "
		  "}\n");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("settings_errors");
	TCase *tests = tcase_create("settings_errors");
	SRunner *runner = srunner_create(suite);
	int failed = 0;

	suite_add_tcase(suite, tests);
	tcase_add_checked_fixture(tests, begin_loading, end_loading);
	tcase_add_loop_test(tests, an_error_is_said_with_its_line, 0, ARRAY_LEN(errors));
	tcase_add_test(tests, every_error_is_said_at_once);
	tcase_add_loop_test(tests, a_password_does_not_stand_in_a_conninfo, 0,
			    ARRAY_LEN(conninfos));
	tcase_add_test(tests, the_back_office_has_no_password_either);
	tcase_add_test(tests, odd_settings_that_work_are_warnings);
	tcase_add_test(tests, an_error_in_an_included_file_names_that_file);
	tcase_add_test(tests, a_file_that_cannot_be_read_ends_no_process);
	tcase_add_test(tests, a_nul_byte_is_no_end_of_the_file);
	tcase_add_test(tests, numbers_in_texts_and_comments_are_no_numbers);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
