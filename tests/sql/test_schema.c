/*
 * The ledger's tables: making them, refusing those of a later program, and what the planner makes
 * of every statement in sql/query/ on tables that are not empty.
 */
#include "scratch.h"

#include "mem.h"
#include "pg.h"
#include "schema.h"

#include <check.h>
#include <regex.h>
#include <sys/wait.h>

static void migrate(const char *conninfo, int days, struct buf *out)
{
	char why[256] = "";
	struct pg_session *session = scratch_open(conninfo);

	buf_init(out, 65536);
	ck_assert_msg(schema_migrate(session, days, out, why), "%s", why);
	buf_byte(out, '\0');
	pg_session_close(session);
}

static void said(struct buf *out, const char *words)
{
	ck_assert_msg(strstr(out->at, words) != NULL, "%s", out->at);
}

static enum schema_state check(const char *conninfo, const char *word)
{
	char why[256] = "";
	enum schema_state state = pg_schema_check(conninfo, why);

	ck_assert_msg(!word || strstr(why, word) != NULL, "%s", why);
	return state;
}

static void fresh(const char *name, const char *owner, char conninfo[128])
{
	char sql[128];

	snprintf(sql, sizeof(sql), "CREATE DATABASE %s OWNER %s", name, owner);
	scratch_do(sql);
	snprintf(conninfo, 128, "host=%s user=%s dbname=%s", scratch_dir, owner, name);
}

START_TEST(migrate_makes_the_tables_once)
{
	struct buf out;
	char conninfo[128];

	fresh("once", "onceward", conninfo);
	ck_assert_int_eq(check(conninfo, "onceward migrate"), SCHEMA_MISSING);
	migrate(conninfo, 5, &out);
	said(&out, "step 0001: done\n");
	said(&out, "7 made, 0 already there");
	buf_fini(&out);
	ck_assert_int_eq(check(conninfo, NULL), SCHEMA_OK);
	migrate(conninfo, 6, &out);
	said(&out, "step 0001: already there\n");
	said(&out, "1 made, 7 already there");
	said(&out, "audit table: 0 made");
	buf_fini(&out);
}
END_TEST

START_TEST(an_owner_who_is_no_superuser_can_migrate)
{
	struct buf out;
	char conninfo[128];

	scratch_do("CREATE ROLE plain LOGIN");
	fresh("plains", "plain", conninfo);
	migrate(conninfo, 2, &out);
	buf_fini(&out);
	ck_assert_int_eq(check(conninfo, NULL), SCHEMA_OK);
}
END_TEST

START_TEST(four_who_migrate_at_once_do_it_once)
{
	char conninfo[128];
	struct buf out;
	int status = 0;

	fresh("four", "onceward", conninfo);
	for (int i = 0; i < 4; i++) {
		if (fork() == 0) {
			migrate(conninfo, 5, &out);
			_exit(0);
		}
	}
	for (int i = 0; i < 4; i++) {
		ck_assert_int_gt(wait(&status), 0);
		ck_assert_int_eq(status, 0);
	}
	ck_assert_int_eq(check(conninfo, NULL), SCHEMA_OK);
}
END_TEST

START_TEST(the_tables_of_a_later_program_are_refused_unless_it_lets_us)
{
	char conninfo[128], why[256] = "";
	struct buf out;
	struct pg_session *session = NULL;

	fresh("later", "onceward", conninfo);
	migrate(conninfo, 2, &out);
	buf_fini(&out);
	session = scratch_open(conninfo);
	scratch_run(session, "INSERT INTO onceward.schema_version VALUES (1000, 1)");
	ck_assert_int_eq(check(conninfo, NULL), SCHEMA_OK);
	migrate(conninfo, 3, &out);
	said(&out, "version 1000");
	said(&out, "1 made");
	buf_fini(&out);
	scratch_run(session, "INSERT INTO onceward.schema_version VALUES (1001, 1000)");
	ck_assert_int_eq(check(conninfo, "onceward migrate"), SCHEMA_TOO_NEW);
	buf_init(&out, 65536);
	ck_assert(!schema_migrate(session, 4, &out, why));
	ck_assert_ptr_nonnull(strstr(why, "version 1001"));
	ck_assert_uint_eq(out.len, 0);
	scratch_run(session, "DELETE FROM onceward.schema_version");
	ck_assert_int_eq(check(conninfo, "onceward migrate"), SCHEMA_MISSING);
	pg_session_close(session);
	ck_assert_int_eq(check("host=/nowhere", "No such file"), SCHEMA_AWAY);
}
END_TEST

START_TEST(days_and_months_do_not_depend_on_the_time_zone)
{
	char conninfo[192];

	snprintf(conninfo, sizeof(conninfo), "%s options='-c TimeZone=Pacific/Kiritimati'",
		 scratch_conninfo);
	struct pg_session *session = scratch_open(conninfo);

	scratch_run(
		session,
		"SELECT onceward.make_month('2031-05-31'), onceward.make_month('2031-06-01'),"
		"onceward.make_day('2031-05-31')");
	pg_session_close(session);
	ck_assert_int_eq(
		scratch_number(
			"SELECT count(*) FROM pg_class WHERE relname IN "
			"('audit_203105', 'audit_203106', 'op_20310531', 'event_20310531')"),
		4);
	scratch_do("SET TimeZone = 'UTC'; INSERT INTO onceward.audit (at, who, action, about, "
		   "reason) "
		   "VALUES ('2031-05-31 23:59:59+00', '', '', '', ''), ('2031-06-01 00:00+00', "
		   "'', '', '', '')");
	ck_assert_int_eq(scratch_number("SELECT count(*) FROM onceward.audit_203105"), 1);
}
END_TEST

static const struct {
	const char *name, *text;
} queries[] = {
#define QUERY(name, text) { #name, text },
#include "queries.def"
#undef QUERY
};

static const char fill[] = "INSERT INTO onceward.key SELECT md5(i::text)::uuid, i, now() + "
			   "interval '1 day', now() + interval '30 days', "
			   "'\\x00', '\\x00', 1, 0 FROM generate_series(1, 30000) AS i;"
			   "INSERT INTO onceward.op SELECT i, current_date + i % 3, "
			   "md5(i::text)::uuid, now(), now(), 'account', "
			   "'operation', i::text::bytea, 'gateway', 'settings' FROM "
			   "generate_series(1, 30000) AS i;"
			   "INSERT INTO onceward.event SELECT i, now(), 1, current_date + i % "
			   "3, 1, 2 FROM generate_series(1, 30000) AS i;"
			   "ANALYZE onceward.key; ANALYZE onceward.op; ANALYZE onceward.event";

/* A line that reads a whole table: a sequential scan, or an index without a condition. */
static const char *whole(const struct pg_rows *plan, char out[256])
{
	regex_t big, sequential;
	const char *found = NULL;

	ck_assert_int_eq(regcomp(&big, "Scan .*on (key|op|event)(_[0-9]+)?( |$)", REG_EXTENDED),
			 0);
	ck_assert_int_eq(regcomp(&sequential, "Seq Scan on", REG_EXTENDED), 0);
	for (size_t row = 0; row < pg_rows_count(plan) && !found; row++) {
		struct span line = pg_text(plan, row, 0);
		struct span next = row + 1 < pg_rows_count(plan) ? pg_text(plan, row + 1, 0)
								 : (struct span){ "", 0 };

		snprintf(out, 256, "%.*s", (int)line.len, line.at);
		if (regexec(&big, out, 0, NULL, 0) != 0)
			continue;
		if (regexec(&sequential, out, 0, NULL, 0) == 0 ||
		    (!memmem(next.at, next.len, " Cond: ", 7)))
			found = out;
	}
	regfree(&big);
	regfree(&sequential);
	return found;
}

static void explain(struct pg_session *session, const char *name, const char *text)
{
	char why[256] = "", line[256], nulls[256] = "", sql[65536];
	struct pg_rows *rows = NULL;
	long n = 0;

	snprintf(sql, sizeof(sql), "PREPARE q AS %s", text);
	scratch_run(session, sql);
	rows = pg_session_run(session,
			      "SELECT cardinality(parameter_types) FROM pg_prepared_statements",
			      NULL, 0, why);
	n = strtol(pg_text(rows, 0, 0).at, NULL, 10);
	pg_rows_free(rows);
	for (long i = 0; i < n; i++)
		snprintf(nulls + strlen(nulls), sizeof(nulls) - strlen(nulls), "%sNULL",
			 i ? ", " : "(");
	snprintf(sql, sizeof(sql), "EXPLAIN (COSTS OFF) EXECUTE q %s%s", nulls, n ? ")" : "");
	rows = pg_session_run(session, sql, NULL, 0, why);
	ck_assert_msg(rows != NULL, "%s: %s", name, why);
	ck_assert_msg(!whole(rows, line), "%s reads a whole table: %s", name, line);
	pg_rows_free(rows);
	scratch_run(session, "DEALLOCATE q");
}

START_TEST(no_statement_reads_a_whole_table)
{
	struct pg_session *session = scratch_open(scratch_conninfo);

	scratch_run(session, fill);
	scratch_run(session,
		    "SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan");
	for (size_t i = 0; i < ARRAY_LEN(queries); i++)
		explain(session, queries[i].name, queries[i].text);
	pg_session_close(session);
}
END_TEST

START_TEST(the_steps_can_be_printed_and_run_by_hand)
{
	char conninfo[128];
	struct buf out;
	struct pg_session *session = NULL;

	fresh("hand", "onceward", conninfo);
	buf_init(&out, SIZE_MAX);
	schema_print(&out);
	buf_byte(&out, '\0');
	session = scratch_open(conninfo);
	scratch_run(session, out.at);
	buf_fini(&out);
	pg_session_close(session);
	ck_assert_int_eq(check(conninfo, NULL), SCHEMA_OK);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("schema");
	TCase *t = tcase_create("schema");

	tcase_add_checked_fixture(t, scratch_same_day, NULL);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, migrate_makes_the_tables_once);
	tcase_add_test(t, an_owner_who_is_no_superuser_can_migrate);
	tcase_add_test(t, four_who_migrate_at_once_do_it_once);
	tcase_add_test(t, the_tables_of_a_later_program_are_refused_unless_it_lets_us);
	tcase_add_test(t, days_and_months_do_not_depend_on_the_time_zone);
	tcase_add_test(t, no_statement_reads_a_whole_table);
	tcase_add_test(t, the_steps_can_be_printed_and_run_by_hand);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return run_on_scratch(suite(), "");
}
