/* Connections to PostgreSQL: how they begin, end and come back, over what; and blocking ones. */
#include "pg_rig.h"

START_TEST(a_lost_connection_loses_all_and_comes_back)
{
	struct pg_session *other = scratch_open(scratch_conninfo);

	connect_with("", true);
	scratch_run(other, "BEGIN; LOCK TABLE thing");
	for (unsigned i = 0; i < 3; i++) {
		begin(i);
		send_put(400 + i);
		pg_end(pg);
	}
	pg_flush(pg);
	wait_for_backends("wait_event_type = 'Lock'", 1);
	ck_assert_uint_eq(ended, 0);
	scratch_run(other, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
			   "WHERE wait_event_type = 'Lock'");
	turn_until(&work[2].ended, NULL, 0);
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_int_eq(work[i].transaction.outcome, PG_LOST);
		ck_assert_uint_eq(work[i].order, i + 1);
	}
	turn_until(NULL, &downs, 1);
	ck_assert_ptr_nonnull(strstr(reason, "terminating connection"));
	scratch_run(other, "ROLLBACK");
	pg_session_close(other);
	turn_until(NULL, &ups, 2);
	three_in_order(410);
}
END_TEST

START_TEST(a_connection_ended_while_idle_comes_back)
{
	connect_with("", true);
	scratch_do("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE "
		   "application_name = 'onceward' AND pid <> pg_backend_pid()");
	turn_until(NULL, &downs, 1);
	ck_assert_ptr_nonnull(strstr(reason, "terminating connection"));
	turn_until(NULL, &ups, 2);
	three_in_order(420);
}
END_TEST

START_TEST(what_is_begun_on_a_dying_connection_is_lost)
{
	connect_with("", true);
	pg_drop(pg, "a standby");
	ck_assert(!pg_up(pg));
	begin(0);
	send_put(430);
	pg_end(pg);
	pg_flush(pg);
	ck_assert_uint_eq(ended, 0);
	turn_until(NULL, &downs, 1);
	ck_assert_int_eq(work[0].transaction.outcome, PG_LOST);
	ck_assert_str_eq(work[0].transaction.message, "a standby");
	ck_assert_str_eq(reason, "a standby");
	turn_until(NULL, &ups, 2);
}
END_TEST

START_TEST(freeing_loses_what_is_under_way)
{
	connect_with("", true);
	begin(0);
	send_put(440);
	pg_end(pg);
	pg_free(pg);
	pg = NULL;
	ck_assert_int_eq(work[0].transaction.outcome, PG_LOST);
	ck_assert_uint_eq(downs, 0);
}
END_TEST

START_TEST(a_statement_that_cannot_be_prepared_is_named_and_tried_again)
{
	struct pg_options options = {
		.conninfo = conninfo, .prepared = true, .who = "test", .up = up, .down = down
	};

	scratch_do("ALTER TABLE thing RENAME TO elsewhere");
	snprintf(conninfo, sizeof(conninfo), "%s", scratch_conninfo);
	pg = pg_new(loop, &options);
	turn_until(NULL, &downs, 2);
	ck_assert_ptr_nonnull(strstr(reason, "statement put"));
	ck_assert_ptr_nonnull(strstr(reason, "does not exist"));
	ck_assert_uint_eq(ups, 0);
	scratch_do("ALTER TABLE elsewhere RENAME TO thing");
	turn_until(NULL, &ups, 1);
	three_in_order(800);
}
END_TEST

static void back_off(const char *where, const char *word)
{
	struct pg_options options = {
		.conninfo = where, .prepared = true, .who = "test", .up = up, .down = down
	};

	pg = pg_new(loop, &options);
	ck_assert_uint_eq(downs, 0);
	turn_for(1000);
	ck_assert_msg(strstr(reason, word) != NULL, "%s", reason);
	/* At 0, then after at most 50, 100, 200, 400 ms, and at least three quarters of it. */
	ck_assert_uint_ge(downs, 4);
	ck_assert_uint_le(downs, 6);
}

START_TEST(who_is_not_there_is_asked_again_ever_more_slowly)
{
	back_off("host=/nowhere user=onceward", "No such file");
}
END_TEST

START_TEST(a_conninfo_that_makes_no_sense_is_said)
{
	char why[256];

	back_off("host=/nowhere colour=blue", "colour");
	ck_assert(!pg_conninfo_valid("host=/nowhere colour=blue", why));
	ck_assert(pg_conninfo_valid("postgresql://a,b/onceward", why));
}
END_TEST

START_TEST(no_word_of_a_secret_is_in_the_reason)
{
	back_off("host=/nowhere user=onceward password=sesame", "No such file");
	ck_assert_ptr_null(strstr(reason, "sesame"));
}
END_TEST

START_TEST(a_server_that_says_nothing_is_given_up)
{
	struct pg_options options = {
		.conninfo = conninfo, .prepared = true, .who = "test", .up = up, .down = down
	};

	snprintf(conninfo, sizeof(conninfo), "%s", scratch_conninfo);
	scratch_do("SELECT 1");
	ck_assert_int_eq(system("kill -STOP $(head -n 1 $SCRATCH/data/postmaster.pid)"), 0);
	pg = pg_new(loop, &options);
	turn_until(NULL, &downs, 1);
	ck_assert_int_eq(system("kill -CONT $(head -n 1 $SCRATCH/data/postmaster.pid)"), 0);
	ck_assert_str_eq(reason, "PostgreSQL does not answer");
	turn_until(NULL, &ups, 1);
}
END_TEST

static size_t bytes_read;

static void bodies_read(struct pg_transaction *transaction)
{
	struct work *w = container_of(transaction, struct work, transaction);

	ck_assert_int_eq(transaction->outcome, PG_COMMITTED);
	for (size_t row = 0; row < pg_rows_count(transaction->rows[0]); row++)
		bytes_read += pg_bytes(transaction->rows[0], row, 1).len;
	w->ended = true;
}

/* The two ends keep decrypted and encrypted bytes where epoll does not see them. */
START_TEST(over_tls_nothing_stays_in_between)
{
	char more[64];

	ck_assert_int_eq(system("cd $SCRATCH/data && openssl req -x509 -newkey rsa:2048 -nodes "
				"-days 2 -subj /CN=x "
				"-keyout server.key -out server.crt > /dev/null 2>&1 && chmod "
				"600 server.key && "
				"chown --reference=base server.key server.crt"),
			 0);
	scratch_do("ALTER SYSTEM SET ssl = on");
	scratch_do("SELECT pg_reload_conf();"
		   "INSERT INTO thing SELECT 50000 + i, (SELECT string_agg(sha256((i * 1000 + "
		   "j)::text::bytea), '') "
		   "FROM generate_series(1, 300) AS j) FROM generate_series(0, 299) AS i");
	snprintf(more, sizeof(more), "host=127.0.0.1 sslmode=require");
	connect_with(more, true);
	for (int round = 0; round < 20; round++) {
		begin(0);
		send_put_n(60000 + 1000 * round, 256, 4096);
		pg_end(pg);
		begin(1);
		work[1].transaction.done = bodies_read;
		pg_params_clear(&params);
		pg_array(&params, PG_INT8, 300);
		for (int i = 0; i < 300; i++)
			pg_add_int(&params, PG_INT8, 50000 + i);
		pg_send(pg, QUERY_get, &params);
		pg_end(pg);
		pg_flush(pg);
		turn_until(&work[1].ended, NULL, 0);
		ck_assert_int_eq(work[0].transaction.outcome, PG_COMMITTED);
	}
	ck_assert_uint_eq(bytes_read, (size_t)20 * 300 * 300 * 32);
	ck_assert_int_eq(
		scratch_number(
			"SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) "
			"WHERE ssl AND application_name = 'onceward'"),
		1);
}
END_TEST

/* PgBouncer in front of the server, as somebody who is not root; ends with this process. */
static void start_bouncer(void)
{
	static const char command[] =
		"cat > $SCRATCH/bouncer.ini <<EOF\n"
		"[databases]\n"
		"onceward = host=$SCRATCH port=$SCRATCH_PORT dbname=onceward user=onceward\n"
		"[pgbouncer]\n"
		"listen_port = 6432\n"
		"unix_socket_dir = $SCRATCH\n"
		"auth_type = any\n"
		"pool_mode = transaction\n"
		"default_pool_size = 3\n"
		"EOF\n"
		"somebody=; [ $(id -u) -ne 0 ] || "
		"somebody='--reuid=postgres --regid=postgres --clear-groups'\n"
		"PATH=$PATH:/usr/sbin\n"
		"exec setpriv --pdeathsig TERM $somebody pgbouncer -q $SCRATCH/bouncer.ini "
		"2> $SCRATCH/bouncer.log";

	if (fork() == 0) {
		execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(127);
	}
}

START_TEST(behind_pgbouncer_without_prepared_statements)
{
	char through[128];
	struct pg_options options = {
		.conninfo = through, .who = "test", .up = up, .down = down
	};

	start_bouncer();
	snprintf(through, sizeof(through), "host=%s port=6432 user=onceward dbname=onceward",
		 scratch_dir);
	pg = pg_new(loop, &options);
	turn_until(NULL, &ups, 1);
	three_in_order(900);
	all_values_survive();
	/* The other way to lose it: the server's end, seen through the pooler. */
	scratch_do("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE "
		   "backend_type = 'client backend' AND pid <> pg_backend_pid()");
	begin(0);
	send_put(905);
	pg_end(pg);
	pg_flush(pg);
	turn_until(&work[0].ended, NULL, 0);
	while (!pg_up(pg))
		loop_wait(loop, 50);
	three_in_order(910);
}
END_TEST

START_TEST(a_session_runs_statements_and_says_what_is_wrong)
{
	char why[256] = "";
	struct pg_session *session = scratch_open(scratch_conninfo);
	struct span some[] = { SPAN("12"), { NULL, 0 }, SPAN("") };
	struct pg_rows *rows =
		pg_session_run(session, "SELECT $1::int + 1, $2::text, $3::text", some, 3, why);

	ck_assert_ptr_nonnull(rows);
	ck_assert(span_equal(pg_text(rows, 0, 0), SPAN("13")));
	ck_assert_ptr_null(pg_text(rows, 0, 1).at);
	ck_assert_ptr_nonnull(pg_text(rows, 0, 2).at);
	pg_rows_free(rows);
	ck_assert_ptr_null(
		pg_session_run(session, "SELECT 1; SELECT 1/0; SELECT 2", NULL, 0, why));
	ck_assert_str_eq(why, "division by zero");
	ck_assert_str_eq(pg_session_sqlstate(session), "22012");
	rows = pg_session_run(session, "SELECT 1; SELECT 2", NULL, 0, why);
	ck_assert(span_equal(pg_text(rows, 0, 0), SPAN("2")));
	ck_assert_str_eq(pg_session_sqlstate(session), "");
	pg_rows_free(rows);
	pg_session_patience(session, 200);
	ck_assert_ptr_null(pg_session_run(session, "SELECT pg_sleep(10)", NULL, 0, why));
	ck_assert_ptr_nonnull(strstr(why, "did not answer"));
	pg_session_close(session);
	ck_assert_ptr_null(pg_session_open("host=/nowhere user=a password=sesame", 1000, why));
	ck_assert_ptr_nonnull(strstr(why, "No such file"));
	ck_assert_ptr_null(pg_session_open("nonsense", 1000, why));
}
END_TEST

START_TEST(the_environment_says_nothing)
{
	setenv("PGHOST", "/nowhere", 1);
	setenv("PGOPTIONS", "-c statement_timeout=1", 1);
	setenv("PGTZ", "Mars", 1);
	pg_ignore_environment();
	ck_assert_ptr_null(getenv("PGHOST"));
	ck_assert_ptr_null(getenv("PGOPTIONS"));
	ck_assert_ptr_null(getenv("PGTZ"));
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("pg_connection");
	TCase *t = tcase_create("pg_connection");

	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, a_lost_connection_loses_all_and_comes_back);
	tcase_add_test(t, a_connection_ended_while_idle_comes_back);
	tcase_add_test(t, what_is_begun_on_a_dying_connection_is_lost);
	tcase_add_test(t, freeing_loses_what_is_under_way);
	tcase_add_test(t, a_statement_that_cannot_be_prepared_is_named_and_tried_again);
	tcase_add_test(t, who_is_not_there_is_asked_again_ever_more_slowly);
	tcase_add_test(t, a_conninfo_that_makes_no_sense_is_said);
	tcase_add_test(t, no_word_of_a_secret_is_in_the_reason);
	tcase_add_test(t, a_server_that_says_nothing_is_given_up);
	tcase_add_test(t, over_tls_nothing_stays_in_between);
	tcase_add_test(t, behind_pgbouncer_without_prepared_statements);
	tcase_add_test(t, a_session_runs_statements_and_says_what_is_wrong);
	tcase_add_test(t, the_environment_says_nothing);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return run_on_tcp(suite());
}
