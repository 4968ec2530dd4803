/*
 * The commands, as a person runs them: the program that stands beside this test, its words and its
 * exit codes.
 */
#include "scratch.h"

#include <check.h>
#include <jansson.h>
#include <sys/wait.h>

static char program[512], config[128], output[1 << 20];

static const char settings[] =
	"ledger = { conninfo = \"host=%s user=onceward dbname=onceward\" }\n"
	"accounts = { everybody = { method = \"anonymous\"  account = \"public\" } }\n"
	"upstreams = { orders = { servers = [\"http://127.0.0.1:9000\"] } }\n"
	"routes = (\n"
	"  { match = \"%s /v1/orders\"  upstream = \"orders\"\n"
	"    idempotency = { operation = \"orders.create\"  account = \"everybody\" } },\n"
	"  { match = \"POST /v1/pay\"  upstream = \"orders\"\n"
	"    idempotency = { operation = \"pay\"  account = \"everybody\"  retention = \"72h\" "
	"} } )\n";

static void configure(const char *method)
{
	FILE *file = NULL;

	snprintf(config, sizeof(config), "%s/gateway.conf", scratch_dir);
	file = fopen(config, "w");
	ck_assert_ptr_nonnull(file);
	fprintf(file, settings, scratch_dir, method);
	fclose(file);
}

/* Runs it with standard error among its output, and looks for words there. */
static void run(const char *arguments, int code, const char *words)
{
	char command[1024];
	FILE *pipe = NULL;
	size_t n = 0;

	snprintf(command, sizeof(command), "CONF=%s; ('%s' %s) 2>&1", config, program,
		 arguments);
	pipe = popen(command, "r");
	ck_assert_ptr_nonnull(pipe);
	n = fread(output, 1, sizeof(output) - 1, pipe);
	output[n] = '\0';
	ck_assert_msg(WEXITSTATUS(pclose(pipe)) == code, "%s\n%.2000s", arguments, output);
	ck_assert_msg(strstr(output, words) != NULL, "%s\n%.2000s", arguments, output);
}

static void set_up(void)
{
	scratch_same_day();
	configure("POST");
}

START_TEST(wrong_usage_is_2_and_says_what_is_wrong)
{
	static const struct {
		const char *arguments, *words;
	} wrong[] = {
		{ "", "--help" },
		{ "frobnicate", "no command frobnicate" },
		{ "operations", "no command operations" },
		{ "operations frobnicate -c $CONF", "no command" },
		{ "check", "-c FILE is missing" },
		{ "check -c", "-c needs a value" },
		{ "check -c a -c b", "twice" },
		{ "check -c $CONF --json", "--json does not belong here" },
		{ "check -c $CONF --explain=yes", "takes no value" },
		{ "check -c $CONF one", "a word too many" },
		{ "one two three four five", "one word too many" },
		{ "-c $CONF --colour", "no option --colour" },
		{ "migrate", "-c FILE is missing" },
		{ "operations adopt -c $CONF --reason x", "a word is missing" },
		{ "operations adopt pay -c $CONF", "--reason TEXT is missing" },
		{ "operations adopt pay -c $CONF --reason ''", "--reason TEXT is missing" },
		{ "operations adopt pay -c $CONF --reason x --as ''", "--as needs a value" },
		{ "operations stop pay -c $CONF", "--reason TEXT is missing" },
		{ "operations resume -c $CONF --reason x", "either NAME or --all" },
		{ "operations resume pay --all -c $CONF --reason x", "either NAME or --all" },
		{ "records", "no command records" },
		{ "records", "onceward records resolve ID" },
		{ "records list -c $CONF --account ''", "--account needs a value" },
		{ "operations stop pay -c $CONF --reason x --account=",
		  "--account needs a value" },
		{ "records show -c $CONF", "a word is missing" },
		{ "records find k -c $CONF --operation pay", "--account ACCOUNT is missing" },
		{ "records resolve req_x -c $CONF --completed 201",
		  "--evidence TEXT is missing" },
		{ "records reconcile f -c $CONF --evidence x", "--operation NAME is missing" },
		{ "records reconcile f -c $CONF --evidence x --operation pay --absent-is-proof",
		  "go together" },
		{ "records reconcile f -c $CONF --evidence x --operation pay --absent-is-proof "
		  "--as-of 2026-01-01T00:00:00",
		  "--as-of: a time like" },
	};

	for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
		run(wrong[i].arguments, 2, wrong[i].words);
}
END_TEST

START_TEST(help_version_and_example_need_nothing)
{
	run("--help", 0, "operations adopt NAME");
	run("check --help", 0, "onceward check");
	run("records find --help", 0, "records find KEY");
	ck_assert_ptr_null(strstr(output, "records list"));
	run("--version", 0, "onceward ");
	run("example", 0, "retention");
	run("migrate --print", 0, "CREATE TABLE onceward.key");
	run("example > /dev/full", 1, "cannot be written");
}
END_TEST

START_TEST(check_prints_what_is_wrong_and_where)
{
	FILE *file = NULL;

	run("check -c $CONF", 0, "good");
	run("-c$CONF check --explain", 0, "orders.create");
	run("check -c /nowhere.conf", 1, "/nowhere.conf");
	file = fopen(config, "a");
	fputs("colour = 1\nledger2 = 3\n", file);
	fclose(file);
	run("check -c $CONF", 1, "gateway.conf:9: ");
	run("check -c $CONF", 1, "gateway.conf:10: ");
	file = fopen(config, "w");
	fprintf(file, settings, "/x colour=blue", "POST");
	fclose(file);
	run("check -c $CONF", 1, "ledger.conninfo: ");
}
END_TEST

START_TEST(without_tables_or_server_commands_say_what_to_do)
{
	FILE *file = NULL;

	scratch_do("DROP SCHEMA IF EXISTS onceward CASCADE");
	run("operations list -c $CONF", 1, "onceward migrate");
	run("-c $CONF", 1, "onceward migrate");
	run("migrate -c $CONF", 0, "step 0001: done");
	run("migrate -c $CONF", 0, "step 0001: already there");
	run("migrate -c $CONF", 0, "from yesterday to 13 days ahead: 0 made, 15 already there");
	file = fopen(config, "w");
	fprintf(file, settings, "/nowhere", "POST");
	fclose(file);
	run("migrate -c $CONF", 1, "cannot be reached");
}
END_TEST

START_TEST(a_changed_operation_is_adopted_with_a_reason)
{
	json_t *list = NULL, *first = NULL;

	scratch_migrate();
	scratch_do("TRUNCATE onceward.identity; TRUNCATE onceward.audit");
	run("operations list -c $CONF", 0, "orders.create");
	run("operations list -c $CONF", 0, "new");
	run("operations adopt nothing --reason x -c $CONF", 1, "no operation nothing");
	run("operations adopt orders.create --reason 'it is new' --as ada -c $CONF", 0,
	    "adopted");
	run("operations adopt orders.create --reason again -c $CONF", 0, "already");
	configure("PUT");
	run("operations list -c $CONF", 0, "changed");
	run("operations list --json -c $CONF", 0, "changed");
	list = json_loads(output, 0, NULL);
	ck_assert(json_is_array(list));
	ck_assert_uint_eq(json_array_size(list), 2);
	first = json_array_get(list, 0);
	ck_assert_str_eq(json_string_value(json_object_get(first, "operation")),
			 "orders.create");
	ck_assert_str_eq(json_string_value(json_object_get(first, "identity")), "changed");
	ck_assert(json_is_null(json_object_get(first, "stopped")));
	json_decref(list);
	run("operations adopt orders.create --reason=\"it's a PUT\" -c $CONF", 0, "adopted");
	run("operations list -c $CONF", 0, "the same");
	ck_assert_int_eq(
		scratch_number(
			"SELECT count(*) FROM onceward.audit WHERE about = 'orders.create' AND "
			"action = 'operations adopt' AND (who = 'ada' AND reason = 'it is new' "
			"OR "
			"reason = 'it''s a PUT' AND detail LIKE 'was: %POST%is: %PUT%')"),
		2);
}
END_TEST

START_TEST(words_of_records_that_mean_nothing_are_told)
{
	static const char resolve[] = "records resolve req_aaaaaaaaaaaaaaaaaaaaaaaaaa "
				      "--evidence x -c $CONF ";
	static const struct {
		const char *more, *words;
		int code;
	} wrong[] = {
		{ "", "either --completed STATUS or --not-executed", 2 },
		{ "--completed 201 --not-executed", "either --completed STATUS", 2 },
		{ "--completed 2x1", "a number is wanted", 2 },
		{ "--completed 201 --generation 0", "a number is wanted", 2 },
		{ "--not-executed --receipt r", "has no --body", 2 },
		{ "--completed 201 --header x", "NAME: VALUE", 2 },
		{ "--completed 201", "no id that this ledger has given out", 1 },
	};
	char arguments[256];

	scratch_migrate();
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		snprintf(arguments, sizeof(arguments), "%s%s", resolve, wrong[i].more);
		run(arguments, wrong[i].code, wrong[i].words);
	}
	run("records list -c $CONF --state odd", 2, "state is");
	run("records list -c $CONF --limit 0", 2, "limit is");
	run("records list -c $CONF --older-than 5", 2, "with its unit");
	run("records list -c $CONF --cursor x", 2, "not one of this list");
	run("records list -c $CONF", 0, "none");
	run("records list -c $CONF --json", 0, "\"next_cursor\": null");
	run("records list -c $CONF --operation nothing", 0, "has no operation nothing");
	run("records show \"$(printf 'x\\033[31m')\" -c $CONF", 1, "x\\u001b[31m is no id");
	run("records show 1234567890123 -c $CONF", 1, "nothing of this record");
	run("records find k -c $CONF --operation pay --account a", 1, "no record of this key");
}
END_TEST

START_TEST(a_report_that_cannot_be_read_changes_nothing)
{
	FILE *file = NULL;
	char name[128];

	scratch_migrate();
	snprintf(name, sizeof(name), "%s/report", scratch_dir);
	run("records reconcile /nowhere -c $CONF --evidence x --operation pay", 1,
	    "/nowhere cannot be opened");
	file = fopen(name, "w");
	fputs("key,status\nk,201\n\"open,201\n", file);
	fclose(file);
	run("records reconcile $(dirname $CONF)/report -c $CONF --evidence x --operation pay "
	    "--apply",
	    1, "line 3: a quote is not closed");
	file = fopen(name, "w");
	fputs("key\nk\n", file);
	fclose(file);
	run("records reconcile $(dirname $CONF)/report -c $CONF --evidence x --operation pay",
	    1, "line 2: there is no status");
	run("records reconcile $(dirname $CONF)/report -c $CONF --evidence x --operation other "
	    "--status 201",
	    1, "a key is an account's");
	run("records reconcile $(dirname $CONF)/report -c $CONF --evidence x --operation pay "
	    "--status 201",
	    0, "provider_only");
	ck_assert_int_eq(scratch_number("SELECT count(*) FROM onceward.audit WHERE action = "
					"'reconcile'"),
			 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("cli");
	TCase *t = tcase_create("cli");

	tcase_add_checked_fixture(t, set_up, NULL);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, wrong_usage_is_2_and_says_what_is_wrong);
	tcase_add_test(t, help_version_and_example_need_nothing);
	tcase_add_test(t, check_prints_what_is_wrong_and_where);
	tcase_add_test(t, without_tables_or_server_commands_say_what_to_do);
	tcase_add_test(t, a_changed_operation_is_adopted_with_a_reason);
	tcase_add_test(t, words_of_records_that_mean_nothing_are_told);
	tcase_add_test(t, a_report_that_cannot_be_read_changes_nothing);
	suite_add_tcase(s, t);
	return s;
}

int main(int argc, char **argv)
{
	SRunner *runner = NULL;
	const char *slash = argc > 0 ? strrchr(argv[0], '/') : NULL;
	int failed = 0;

	snprintf(program, sizeof(program), "%.*sonceward",
		 slash ? (int)(slash - argv[0] + 1) : 0, argv[0]);
	scratch_start("");
	runner = srunner_create(suite());
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	scratch_stop();
	return failed ? 1 : 0;
}
