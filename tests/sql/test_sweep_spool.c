/*
 * What earlier processes left in the spool, and what the sweep makes of it; and backends that wait
 * for the end of a transaction that nobody will send.
 */
#include "spool_rig.h"
#include "sweep.h"

unsigned metrics_operation(const char *name)
{
	(void)name;
	return 1;
}

static struct ledger *ledger;
static struct sweep *sweep;

static void set_up_one(void)
{
	set_up_spool();
	scratch_do("TRUNCATE onceward.stop");
	ledger = ledger_with_spool();
	sweep = NULL;
}

static void tear_down_one(void)
{
	if (sweep)
		sweep_free(sweep);
	tear_down_spool();
}

/* Its end is kept on disk, and its process dies before the ledger takes it. */
static void left_behind(struct attempt *a, enum ledger_outcome outcome)
{
	struct pg_session *session = lock("event");

	result_set(a, SPAN("the body"));
	settle_within(a, outcome, 30);
	settled_is(a, LEDGER_LATE);
	spool_settled();
	ck_assert_int_eq(files(".answer"), 1);
	ledger_free(ledger);
	ledgers[n_ledgers - 1] = NULL;
	a->gone = 1; /* with its process */
	a->entry.left = true;
	terminate_ours();
	unlock(session);
	gauges[METRIC_unsettled_in_memory] = 0;
	while (scratch_number("SELECT count(*) FROM pg_stat_activity WHERE " OURS) > 0)
		usleep(2000);
	rows_are("event", "true", 0);
}

/* The next process. */
static void begin_anew(void)
{
	spool_close(spool);
	spool = spool_at(spool_dir);
	ledger = ledger_with_spool();
	sweep = sweep_new(loop, NULL, &settings);
	sweep_spool(sweep, spool);
}

START_TEST(an_answer_that_was_left_is_settled_and_replayed)
{
	left_behind(won(ledger, "k1", "content"), LEDGER_COMPLETE);
	begin_anew();
	TURN_UNTIL(files(".answer") == 0);
	replayed(reserved(ledger, "k1", "content"), SPAN("the body"));
	rows_are("event", "slot = 1 AND kind = 2 AND status = 201", 1);
	rows_are("event_late", "true", 0);
	rows_are("attention", "true", 0);
	ck_assert_int_eq(files(".bad"), 0);
	ck_assert_int_eq(gauges[METRIC_unsettled_spooled], 0);
	nothing_went_wrong();
}
END_TEST

START_TEST(an_answer_whose_lease_has_run_out_meanwhile_is_settled_too)
{
	left_behind(won(ledger, "k1", "content"), LEDGER_COMPLETE);
	scratch_do("UPDATE onceward.op SET lease_until = now() - interval '1 minute'");
	if (_i) /* and listed */
		scratch_do(
			"SELECT onceward.attention_lock(op_id, expires_on, key_hash, account, "
			"operation, key) FROM onceward.op");
	begin_anew();
	TURN_UNTIL(files(".answer") == 0);
	replayed(reserved(ledger, "k1", "content"), SPAN("the body"));
	rows_are("attention", "true", 0);
}
END_TEST

START_TEST(what_was_provably_not_done_frees_its_key)
{
	left_behind(won(ledger, "k1", "content"), LEDGER_RELEASE);
	begin_anew();
	TURN_UNTIL(files(".answer") == 0);
	rows_are("event", "kind = 4", 1);
	rows_are("key", "true", 0);
	won(ledger, "k1", "other");
}
END_TEST

/* The ledger had taken it after all, or another process has the same file. */
START_TEST(an_answer_that_two_processes_settle_is_settled_once)
{
	char command[256], other_dir[96];
	struct spool *other = NULL;
	struct sweep *also = NULL;

	left_behind(won(ledger, "k1", "content"), LEDGER_COMPLETE);
	snprintf(other_dir, sizeof(other_dir), "%s-other", spool_dir);
	snprintf(command, sizeof(command), "cp -rp %s %s", spool_dir, other_dir);
	ck_assert_int_eq(system(command), 0);
	other = spool_at(other_dir);
	begin_anew();
	also = sweep_new(loop, NULL, &settings);
	sweep_spool(also, other);
	TURN_UNTIL(files(".answer") == 0 && files_at(other_dir, ".answer") == 0);
	ck_assert_int_eq(files(".bad") + files_at(other_dir, ".bad"), 0);
	rows_are("event", "true", 1);
	rows_are("event_late", "true", 0);
	replayed(reserved(ledger, "k1", "content"), SPAN("the body"));
	sweep_free(also);
	spool_close(other);
	nothing_went_wrong();
}
END_TEST

START_TEST(an_answer_that_came_too_late_is_evidence)
{
	left_behind(won(ledger, "k1", "content"), LEDGER_COMPLETE);
	scratch_do("INSERT INTO onceward.event (op_id, writer, expires_on, slot, kind, status, "
		   "headers, body) SELECT op_id, 1, expires_on, 1, 2, 200, '', 'another' "
		   "FROM onceward.op");
	begin_anew();
	TURN_UNTIL(files(".answer") == 0);
	log_says("came too late: the record had been completed");
	rows_are("event", "status = 200", 1);
	rows_are("event_late", "slot = -1 AND body = 'the body' AND status = 201", 1);
	ck_assert_int_eq(files(".bad"), 0);
}
END_TEST

START_TEST(an_answer_of_another_ledger_is_set_aside)
{
	left_behind(won(ledger, "k1", "content"), LEDGER_COMPLETE);
	if (_i) /* which has made the same number of another request */
		scratch_do("UPDATE onceward.op SET key_hash = gen_random_uuid()");
	else
		scratch_do("DELETE FROM onceward.key; DELETE FROM onceward.op");
	begin_anew();
	TURN_UNTIL(files(".bad") == 1);
	log_says("the ledger has no such record");
	ck_assert_int_eq(files(".answer"), 0);
	rows_are("event", "true", 0);
	rows_are("event_late", "true", 0);
	rows_are("attention", "true", 0);
}
END_TEST

START_TEST(a_file_that_was_changed_is_set_aside_and_the_others_are_settled)
{
	char command[256];

	left_behind(won(ledger, "k1", "content"), LEDGER_COMPLETE);
	snprintf(command, sizeof(command),
		 "for f in %s/*.answer; do head -c 100 \"$f\" > %s/0000.answer; done",
		 spool_dir, spool_dir);
	ck_assert_int_eq(system(command), 0);
	begin_anew();
	TURN_UNTIL(files(".answer") == 0);
	ck_assert_int_eq(files(".bad"), 1);
	log_says("its checksum does not fit");
	replayed(reserved(ledger, "k1", "content"), SPAN("the body"));
}
END_TEST

START_TEST(files_wait_for_a_ledger_that_is_away)
{
	left_behind(won(ledger, "k1", "content"), LEDGER_COMPLETE);
	configure("default_transaction_read_only", "on");
	spool_close(spool);
	spool = spool_at(spool_dir);
	sweep = sweep_new(loop, NULL, &settings);
	sweep_spool(sweep, spool);
	turn_for(500);
	TURN_UNTIL(gauges[METRIC_unsettled_spooled] == 1);
	ck_assert_int_eq(files(".answer"), 1);
	configure("default_transaction_read_only", NULL);
	terminate_ours();
	TURN_UNTIL(files(".answer") == 0);
	rows_are("event", "kind = 2", 1);
}
END_TEST

/* --- backends --- */

static bool up;

static void went_up(void *arg)
{
	(void)arg;
	up = true;
}

static void went_down(void *arg, const char *why)
{
	(void)arg;
	(void)why;
}

static void never_done(struct pg_transaction *transaction)
{
	ck_assert_int_eq(transaction->outcome, PG_LOST);
}

/* Reserves the key of that entry, and never says that this was all. */
static void begin_to_reserve(struct pg *pg, const struct ledger_entry *entry)
{
	static struct pg_transaction transaction;
	struct pg_params p;

	pg_params_init(&p);
	pg_params_clear(&p);
	pg_array(&p, PG_UUID, 1);
	pg_add_bytes(&p, (struct span){ (const char *)entry->key_hash, 16 });
	pg_array(&p, PG_INT8, 1);
	pg_add_int(&p, PG_INT8, 77);
	for (int i = 0; i < 2; i++) {
		pg_array(&p, PG_BYTEA, 1);
		pg_add_bytes(&p, SPAN("digest"));
	}
	pg_array(&p, PG_INT8, 1);
	pg_add_int(&p, PG_INT8, 1);
	pg_array(&p, PG_INT4, 1);
	pg_add_int(&p, PG_INT4, 0);
	for (int i = 0; i < 3; i++) {
		pg_array(&p, PG_INT8, 1);
		pg_add_int(&p, PG_INT8, 60000);
	}
	for (int i = 0; i < 4; i++) {
		pg_array(&p, PG_BYTEA, 1);
		pg_add_bytes(&p, SPAN("x"));
	}
	pg_add_bytes(&p, SPAN("a gateway"));
	pg_add_bytes(&p, SPAN("settings"));
	transaction.done = never_done;
	pg_begin(pg, &transaction);
	pg_send(pg, QUERY_reserve, &p);
	pg_flush(pg);
	pg_params_fini(&p);
}

START_TEST(a_backend_that_waits_for_an_end_that_never_comes_is_ended)
{
	const struct pg_options options = { .conninfo = scratch_conninfo,
					    .prepared = true,
					    .who = "a gateway that hangs",
					    .up = went_up,
					    .down = went_down };
	struct attempt *a = attempt_new(ledger, "k1", "content");
	struct pg *pg = pg_new(loop, &options);
	int64_t began = 0;

	TURN_UNTIL(up);
	a->entry.account = SPAN("alice");
	row_key_hash(ledger, &a->entry);
	begin_to_reserve(pg, &a->entry);
	TURN_UNTIL(
		scratch_number("SELECT count(*) FROM pg_stat_activity WHERE state = 'active' "
			       "AND wait_event = 'ClientRead' AND " OURS) == 1);
	began = loop_clock_us();
	sweep = sweep_new(loop, NULL, &settings);
	reserve_within(a, 2000);
	locked(1);
	answered(a);
	found_is(a, LEDGER_UNAVAILABLE); /* it had waited long enough */
	attempt_leave(a);
	TURN_UNTIL(a->gone);
	ck_assert_int_ge(loop_clock_us() - began, 4000000);
	TURN_UNTIL(strstr(logged, "was ended")); /* the key may be free before that is heard */
	won(ledger, "k1", "content");
	pg_end(pg);
	pg_free(pg);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("sweep_spool");
	TCase *t = tcase_create("spool");

	tcase_add_checked_fixture(t, set_up_one, tear_down_one);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, an_answer_that_was_left_is_settled_and_replayed);
	tcase_add_loop_test(t, an_answer_whose_lease_has_run_out_meanwhile_is_settled_too, 0,
			    2);
	tcase_add_test(t, what_was_provably_not_done_frees_its_key);
	tcase_add_test(t, an_answer_that_two_processes_settle_is_settled_once);
	tcase_add_test(t, an_answer_that_came_too_late_is_evidence);
	tcase_add_loop_test(t, an_answer_of_another_ledger_is_set_aside, 0, 2);
	tcase_add_test(t, a_file_that_was_changed_is_set_aside_and_the_others_are_settled);
	tcase_add_test(t, files_wait_for_a_ledger_that_is_away);
	tcase_add_test(t, a_backend_that_waits_for_an_end_that_never_comes_is_ended);
	suite_add_tcase(s, t);
	return run_on_scratch(s, "");
}
