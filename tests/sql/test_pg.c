/* What the end of a transaction means, in each way that it can come; and what values survive. */
#include "pg_rig.h"

START_TEST(transactions_come_back_in_order)
{
	connect_with("", true);
	three_in_order(100);
	three_in_order(110);
}
END_TEST

START_TEST(without_prepared_statements_all_is_the_same)
{
	connect_with("", false);
	three_in_order(120);
}
END_TEST

START_TEST(an_error_ends_its_own_transaction_only)
{
	connect_with("", true);
	begin(0);
	send_put(200);
	pg_end(pg);
	begin(1);
	send_put(201);
	send_put(-1); /* refused by a CHECK */
	send_one();
	pg_end(pg);
	begin(2);
	send_put(202);
	pg_end(pg);
	pg_flush(pg);
	turn_until(&work[2].ended, NULL, 0);
	ck_assert_int_eq(work[0].transaction.outcome, PG_COMMITTED);
	ck_assert_int_eq(work[1].transaction.outcome, PG_FAILED);
	ck_assert_str_eq(work[1].transaction.sqlstate, "23514");
	ck_assert_ptr_nonnull(strstr(work[1].transaction.message, "check constraint"));
	ck_assert_int_eq(work[2].transaction.outcome, PG_COMMITTED);
	ck_assert_uint_eq(work[1].rows[0], 0);
	ck_assert_int_eq(
		scratch_number("SELECT count(*) FROM thing WHERE id IN (200, 201, 202)"), 2);
	ck_assert(pg_up(pg));
}
END_TEST

START_TEST(a_commit_that_fails_is_a_failure_though_its_rows_came)
{
	scratch_do("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
		   "$$ BEGIN RAISE EXCEPTION 'not today' USING ERRCODE = '23000'; END $$;"
		   "CREATE CONSTRAINT TRIGGER late AFTER INSERT ON thing DEFERRABLE "
		   "INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()");
	connect_with("", true);
	begin(0);
	send_put(300);
	pg_end(pg);
	begin(1);
	send_one();
	pg_end(pg);
	pg_flush(pg);
	turn_until(&work[1].ended, NULL, 0);
	scratch_do("DROP TRIGGER late ON thing; DROP FUNCTION refuse");
	ck_assert_int_eq(work[0].transaction.outcome, PG_FAILED);
	ck_assert_str_eq(work[0].transaction.sqlstate, "23000");
	ck_assert_str_eq(work[0].transaction.message, "not today");
	ck_assert_int_eq(work[1].transaction.outcome, PG_COMMITTED);
}
END_TEST

START_TEST(a_statement_that_takes_too_long_fails)
{
	struct pg_session *other = scratch_open(scratch_conninfo);

	connect_with("options='-c statement_timeout=1s'", true);
	scratch_run(other, "BEGIN; LOCK TABLE thing");
	begin(0);
	send_put(500);
	send_one();
	pg_end(pg);
	pg_flush(pg);
	turn_until(&work[0].ended, NULL, 0);
	ck_assert_int_eq(work[0].transaction.outcome, PG_FAILED);
	ck_assert_str_eq(work[0].transaction.sqlstate, "57014");
	scratch_run(other, "ROLLBACK");
	pg_session_close(other);
	three_in_order(510);
	ck_assert_uint_eq(downs, 0);
}
END_TEST

START_TEST(a_cancelled_wait_for_a_standby_is_no_commit)
{
	static const char waiting[] =
		"SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

	connect_with("", true);
	scratch_do("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
	scratch_do("SELECT pg_reload_conf()");
	do { /* until it is heard by whoever makes commits wait, the server's checkpointer */
		begin(0);
		send_put(600);
		pg_end(pg);
		pg_flush(pg);
		while (!work[0].ended && scratch_number(waiting) != 1)
			turn();
	} while (work[0].ended);
	ended = 0;
	begin(1);
	send_put(601);
	send_one();
	pg_end(pg);
	pg_flush(pg);
	wait_for_backends("wait_event = 'SyncRep'", 1);
	ck_assert_uint_eq(ended, 0);
	scratch_do("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = "
		   "'SyncRep'");
	turn_until(&work[0].ended, NULL, 0);
	ck_assert_int_eq(work[0].transaction.outcome, PG_LOST);
	ck_assert_ptr_nonnull(strstr(work[0].transaction.message, "synchronous replication"));
	wait_for_backends("wait_event = 'SyncRep'", 1);
	scratch_do("ALTER SYSTEM RESET synchronous_standby_names");
	scratch_do("SELECT pg_reload_conf()");
	turn_until(&work[1].ended, NULL, 0);
	ck_assert_int_eq(work[1].transaction.outcome, PG_COMMITTED);
	ck_assert_uint_eq(downs, 0);
}
END_TEST

START_TEST(null_and_every_type_go_there_and_back)
{
	connect_with("", true);
	all_values_survive();
}
END_TEST

START_TEST(hundreds_of_rows_and_megabytes_go_through)
{
	connect_with("", true);
	for (unsigned i = 0; i < MANY; i++) {
		begin(i);
		send_put_n(10000 + 1000 * i, 256, 24576); /* 6 MiB a transaction */
		pg_end(pg);
	}
	ck_assert_uint_eq(ended, 0);
	pg_flush(pg);
	turn_until(&work[MANY - 1].ended, NULL, 0);
	for (unsigned i = 0; i < MANY; i++) {
		ck_assert_int_eq(work[i].transaction.outcome, PG_COMMITTED);
		ck_assert_uint_eq(work[i].rows[0], 256);
	}
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("pg");
	TCase *t = tcase_create("pg");

	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, transactions_come_back_in_order);
	tcase_add_test(t, without_prepared_statements_all_is_the_same);
	tcase_add_test(t, an_error_ends_its_own_transaction_only);
	tcase_add_test(t, a_commit_that_fails_is_a_failure_though_its_rows_came);
	tcase_add_test(t, a_statement_that_takes_too_long_fails);
	tcase_add_test(t, a_cancelled_wait_for_a_standby_is_no_commit);
	tcase_add_test(t, null_and_every_type_go_there_and_back);
	tcase_add_test(t, hundreds_of_rows_and_megabytes_go_through);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return run_on_tcp(suite());
}
