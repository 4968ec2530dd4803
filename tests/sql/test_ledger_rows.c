/*
 * Rows that PostgreSQL does not take or does not give back, among others that it does; and rows
 * that are not what was written.
 */
#include "ledger_rig.h"

static struct ledger *ledger;

static void set_up_one(void)
{
	scratch_do("DROP TRIGGER IF EXISTS refuse ON onceward.op;"
		   "DROP TRIGGER IF EXISTS refuse ON onceward.event");
	set_up();
	ledger = ledger_open();
}

/* --- rows that PostgreSQL does not take --- */

#define GOOD 64

static const char refuse[] =
	"CREATE OR REPLACE FUNCTION refuse_row() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
	"RAISE EXCEPTION 'not this one' USING ERRCODE = '23514'; END $$;";

/* Good ones, and a bad one among them. */
static void reserve_all(struct attempt *all[GOOD + 1])
{
	char key[32];

	for (int i = 0; i <= GOOD; i++) {
		snprintf(key, sizeof(key), i == GOOD / 3 ? "poison" : "k%d", i);
		all[i] = attempt_new(ledger, key, "content");
	}
}

static void good_ones_win(struct attempt *all[GOOD + 1])
{
	for (int i = 0; i <= GOOD; i++)
		reserve(all[i]);
	for (int i = 0; i <= GOOD; i++)
		answered(all[i]);
	for (int i = 0; i <= GOOD; i++)
		found_is(all[i], i == GOOD / 3 ? LEDGER_UNAVAILABLE : LEDGER_WON);
	ck_assert_uint_eq(ledger_busy(ledger), 0);
	rows_are("key", "true", GOOD);
	rows_are("op", "key <> 'poison'", GOOD);
	ck_assert(ledger_state(ledger).up);
	won(ledger, "afterwards", "content");
}

START_TEST(a_poisoned_reservation_is_refused_alone)
{
	struct attempt *all[GOOD + 1];

	scratch_do(refuse);
	scratch_do("CREATE TRIGGER refuse BEFORE INSERT ON onceward.op FOR EACH ROW WHEN "
		   "(NEW.key = 'poison') EXECUTE FUNCTION refuse_row()");
	reserve_all(all);
	good_ones_win(all);
}
END_TEST

START_TEST(a_reservation_without_a_day_is_refused_alone)
{
	struct attempt *all[GOOD + 1];
	struct idempotency_settings far = orders;

	far.retention = 300L * 86400000;
	reserve_all(all);
	all[GOOD / 3]->entry.idempotency = &far;
	good_ones_win(all);
	log_says("no partition of relation");
}
END_TEST

START_TEST(a_poisoned_settle_is_fenced_alone)
{
	struct attempt *all[GOOD + 1], *beside[4];
	char key[32];

	scratch_do(refuse);
	scratch_do("CREATE TRIGGER refuse BEFORE INSERT ON onceward.event FOR EACH ROW WHEN "
		   "(NEW.body = 'poison') EXECUTE FUNCTION refuse_row()");
	reserve_all(all);
	for (int i = 0; i <= GOOD; i++)
		reserve(all[i]);
	for (int i = 0; i <= GOOD; i++)
		answered(all[i]);
	for (int i = 0; i <= GOOD; i++) {
		result_set(all[i], i == GOOD / 3 ? SPAN("poison") : SPAN("good"));
		settle(all[i], i % 2 ? LEDGER_COMPLETE : LEDGER_MARK_UNKNOWN);
	}
	for (int i = 0; i < 4; i++) { /* they share the batch */
		snprintf(key, sizeof(key), "beside%d", i);
		beside[i] = attempt_new(ledger, key, "content");
		reserve(beside[i]);
	}
	for (int i = 0; i <= GOOD; i++)
		settled_is(all[i], i == GOOD / 3 ? LEDGER_FENCED : LEDGER_SETTLED);
	for (int i = 0; i < 4; i++) {
		answered(beside[i]);
		found_is(beside[i], LEDGER_WON);
	}
	rows_are("event", "true", GOOD);
	rows_are("event", "body = 'good'", GOOD / 2 - 1);
	rows_are("attention", "true", GOOD / 2 + 1);
	ck_assert_uint_eq(ledger_busy(ledger), 0);
}
END_TEST

/* Raises that error on the first inserts into a table: a sequence does not roll back. */
static void fail_first(const char *table, const char *sqlstate, int times)
{
	char sql[512];

	snprintf(sql, sizeof(sql),
		 "DROP SEQUENCE IF EXISTS tries; CREATE SEQUENCE tries;"
		 "CREATE OR REPLACE FUNCTION refuse_row() RETURNS trigger LANGUAGE plpgsql AS "
		 "$$ BEGIN IF nextval('tries') <= %d THEN RAISE EXCEPTION 'not now' USING "
		 "ERRCODE = '%s'; END IF; RETURN NEW; END $$;"
		 "CREATE TRIGGER refuse BEFORE INSERT ON onceward.%s FOR EACH ROW EXECUTE "
		 "FUNCTION refuse_row()",
		 times, sqlstate, table);
	scratch_do(sql);
}

/* Every batch is written down by whoever is let into it: what the batches were, in order. */
static const char note_batches[] =
	"DROP TABLE IF EXISTS batches; CREATE UNLOGGED TABLE batches (n serial, what text);"
	"CREATE OR REPLACE FUNCTION note_batch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
	"INSERT INTO batches (what) SELECT TG_TABLE_NAME; RETURN NULL; END $$;"
	"CREATE TRIGGER note AFTER INSERT ON onceward.op FOR EACH STATEMENT EXECUTE FUNCTION "
	"note_batch();"
	"CREATE TRIGGER note AFTER INSERT ON onceward.event FOR EACH STATEMENT EXECUTE "
	"FUNCTION "
	"note_batch()";

static const char forget_batches[] = "DROP TRIGGER note ON onceward.op;"
				     "DROP TRIGGER note ON onceward.event; DROP TABLE batches";

/* One of each, in one batch. */
static void settle_beside(struct attempt *a, struct attempt *b)
{
	result_set(a, SPAN("the body"));
	settle(a, LEDGER_COMPLETE);
	reserve(b);
}

START_TEST(after_a_failed_batch_the_ends_go_first_and_alone)
{
	static const char *const causes[] = { "22000", "23514", "55P03", "57014" };
	struct attempt *a = won(ledger, "k1", "content"),
		       *b = attempt_new(ledger, "k2", "content");

	fail_first("op", causes[_i], 1);
	scratch_do(note_batches);
	settle_beside(a, b);
	settled_is(a, LEDGER_SETTLED);
	answered(b);
	found_is(b, LEDGER_WON);
	/* that of an op and an event together was rolled back */
	ck_assert_int_eq(scratch_number("SELECT count(*) FROM batches"), 2);
	ck_assert_int_eq(scratch_number("SELECT count(*) FROM batches AS a JOIN batches AS b "
					"ON a.n < b.n WHERE a.what LIKE 'event%' AND b.what "
					"LIKE 'op%'"),
			 1);
	ck_assert_int_eq(scratch_number("SELECT count(DISTINCT xmin::text) FROM batches"), 2);
	log_says("a batch of 2 rows failed");
	scratch_do(forget_batches);
}
END_TEST

START_TEST(after_a_collision_the_same_batch_goes_again_whole)
{
	static const char *const collisions[] = { "40001", "40P01" };
	struct attempt *a = won(ledger, "k1", "content"),
		       *b = attempt_new(ledger, "k2", "content");

	fail_first("op", collisions[_i], 2);
	scratch_do(note_batches);
	settle_beside(a, b);
	settled_is(a, LEDGER_SETTLED);
	answered(b);
	found_is(b, LEDGER_WON);
	ck_assert_int_eq(scratch_number("SELECT count(*) FROM batches"), 2);
	ck_assert_int_eq(scratch_number("SELECT count(DISTINCT xmin::text) FROM batches"), 1);
	scratch_do(forget_batches);
	nothing_went_wrong();
}
END_TEST

/* Halves meet at the row that is the cause, however many others come meanwhile. */
START_TEST(under_load_a_row_that_is_not_taken_is_soon_alone)
{
	struct attempt *poison = NULL;
	char key[32];
	int failed = 0;

	scratch_do(refuse);
	scratch_do("CREATE TRIGGER refuse BEFORE INSERT ON onceward.op FOR EACH ROW WHEN "
		   "(NEW.key = 'poison') EXECUTE FUNCTION refuse_row()");
	for (int i = 0; i < 2000; i++) {
		struct attempt *a = NULL;

		snprintf(key, sizeof(key), i == 100 ? "poison" : "k%d", i);
		a = attempt_new(ledger, key, "content");
		if (i == 100)
			poison = a;
		reserve(a);
		if (i % 20 == 0)
			turn();
		if (poison && is_answered(poison))
			break;
	}
	answered(poison);
	found_is(poison, LEDGER_UNAVAILABLE);
	ck_assert_str_eq(poison->entry.why, "the ledger does not take this record");
	for (const char *at = logged; (at = strstr(at, "rows failed")) != NULL; at++)
		failed++;
	ck_assert_int_le(failed, 10); /* that many halves make one of 1,024 */
	TURN_UNTIL(ledger_busy(ledger) == 0);
	rows_are("op", "key = 'poison'", 0);
}
END_TEST

START_TEST(who_collides_with_others_goes_again_unseen)
{
	static const char *const collisions[] = { "40001", "40P01" };
	struct attempt *a = NULL;

	fail_first("op", collisions[_i], 3);
	a = won(ledger, "k1", "content");
	scratch_do("DROP TRIGGER refuse ON onceward.op");
	fail_first("event", collisions[_i], 3);
	result_set(a, SPAN("the body"));
	settled(a, LEDGER_COMPLETE);
	rows_are("op", "true", 1);
	rows_are("event", "kind = 2", 1);
	nothing_went_wrong();
}
END_TEST

START_TEST(a_server_without_room_refuses_reservations_and_gets_settles_again)
{
	struct attempt *a = won(ledger, "k1", "content"), *b = NULL;

	fail_first("op", "53100", 1);
	b = found(ledger, "k2", "content", LEDGER_UNAVAILABLE);
	ck_assert_int_lt(b->turned_ms, 900);
	log_says("53100");
	scratch_do("DROP TRIGGER refuse ON onceward.op");
	fail_first("event", "53100", 2);
	result_set(a, SPAN("the body"));
	settled(a, LEDGER_COMPLETE);
	rows_are("event", "kind = 2", 1);
	won(ledger, "k2", "content");
	ck_assert(ledger_state(ledger).up);
}
END_TEST

/* The function itself, with a fault for the record of one key. */
static const char unreadable[] =
	"CREATE TABLE readable AS SELECT pg_get_functiondef('onceward.read_records'::regproc) "
	"AS it; DO $$ BEGIN EXECUTE replace((SELECT it FROM readable), 'FOR f IN', "
	"'IF (SELECT op_id FROM onceward.key WHERE keep_until > now() + interval ''31 days'') "
	"= "
	"ANY (op_ids) THEN RAISE EXCEPTION ''bad page'' USING ERRCODE = ''XX001''; END IF; "
	"FOR f IN'); END $$";

static const char readable[] =
	"DO $$ BEGIN EXECUTE (SELECT it FROM readable); END $$; DROP TABLE readable";

START_TEST(a_record_that_cannot_be_read_is_unavailable_alone)
{
	struct attempt *all[GOOD];
	struct idempotency_settings marked = orders;
	char key[32];

	marked.tombstone = 60L * 86400000;
	ledger_end(ledger);
	ledger = ledger_open();
	for (int i = 0; i < GOOD; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		all[i] = attempt_new(ledger, key, "content");
		all[i]->entry.idempotency = i == 21 ? &marked : &orders;
		reserve(all[i]);
	}
	for (int i = 0; i < GOOD; i++) {
		answered(all[i]);
		result_set(all[i], SPAN("the body"));
		settle(all[i], LEDGER_COMPLETE);
	}
	for (int i = 0; i < GOOD; i++)
		settled_is(all[i], LEDGER_SETTLED);
	scratch_do(unreadable);
	for (int i = 0; i < GOOD; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		all[i] = attempt_new(ledger, key, "content");
		reserve(all[i]);
	}
	for (int i = 0; i < GOOD; i++)
		answered(all[i]);
	scratch_do(readable);
	for (int i = 0; i < GOOD; i++) {
		if (i == 21)
			found_is(all[i], LEDGER_UNAVAILABLE);
		else
			replayed(all[i], SPAN("the body"));
	}
	replayed(reserved(ledger, "k21", "content"), SPAN("the body"));
}
END_TEST

/* --- rows that were changed --- */

static const char *const changes[] = {
	"body = 'changed' WHERE body = 'mine'",
	"body = '' WHERE body = 'mine'",
	"body = NULL WHERE body = 'mine'",
	"headers = headers || 'X: y\\015\\012' WHERE body = 'mine'",
	"headers = '' WHERE body = 'mine'",
	"headers = NULL WHERE body = 'mine'",
	"status = 200 WHERE body = 'mine'",
	"hash = NULL WHERE body = 'mine'",
	"hash = substring(hash FROM 1 FOR 31) WHERE body = 'mine'",
	"hash = sha256('') WHERE body = 'mine'",
	/* another's answer, whole and with its hash */
	("(status, headers, body, hash) = (SELECT e.status, e.headers, e.body, e.hash FROM "
	 "onceward.event AS e WHERE e.body = 'theirs') WHERE body = 'mine'"),
	/* whole, from another key: the id goes with it */
	("op_id = CASE body WHEN 'mine' THEN 1 ELSE (SELECT e.op_id FROM onceward.event AS e "
	 "WHERE e.body = 'mine') END"),
};

START_TEST(a_stored_answer_that_was_changed_is_never_replayed)
{
	struct attempt *a = NULL;
	char sql[512];

	completed(ledger, "k1", "content", "mine");
	completed(ledger, "k2", "content", "theirs");
	snprintf(sql, sizeof(sql), "UPDATE onceward.event SET %s", changes[_i]);
	scratch_do(sql);
	a = found(ledger, "k1", "content", LEDGER_STOPPED);
	ck_assert_ptr_nonnull(strstr(a->entry.why, "hash"));
	ck_assert_int_eq(counted[METRIC_replay_mismatches_total], 1);
	log_says("does not fit its hash");
	ck_assert_uint_eq(errors, 1);
}
END_TEST

START_TEST(the_answer_of_another_key_or_account_is_never_replayed)
{
	struct attempt *a = attempt_new(ledger, "k1", "content");

	completed(ledger, "k1", "content", "mine");
	completed(ledger, "k2", "content", "theirs");
	a->entry.account = SPAN("bob");
	reserve(a);
	answered(a);
	result_set(a, SPAN("bob's"));
	settled(a, LEDGER_COMPLETE);
	/* All keys now point to the answer of bob. */
	scratch_do("UPDATE onceward.key SET op_id = (SELECT op_id FROM onceward.event WHERE "
		   "body = 'bob''s')");
	found(ledger, "k1", "content", LEDGER_STOPPED);
	found(ledger, "k2", "content", LEDGER_STOPPED);
	scratch_do("UPDATE onceward.key SET op_id = (SELECT op_id FROM onceward.event WHERE "
		   "body = 'theirs')");
	found(ledger, "k1", "content", LEDGER_STOPPED);
	replayed(reserved(ledger, "k2", "content"), SPAN("theirs"));
}
END_TEST

START_TEST(the_answer_of_an_earlier_life_of_the_key_is_never_replayed)
{
	completed(ledger, "k1", "content", "earlier");
	scratch_do("DELETE FROM onceward.key"); /* its tombstone has ended */
	completed(ledger, "k1", "content", "mine");
	replayed(reserved(ledger, "k1", "content"), SPAN("mine"));
	scratch_do("UPDATE onceward.event SET (body, hash) = (SELECT e.body, e.hash FROM "
		   "onceward.event AS e WHERE e.body = 'earlier') WHERE body = 'mine'");
	found(ledger, "k1", "content", LEDGER_STOPPED);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ledger_rows");
	TCase *t = tcase_create("rows");

	tcase_add_checked_fixture(t, set_up_one, tear_down);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, a_poisoned_reservation_is_refused_alone);
	tcase_add_test(t, a_reservation_without_a_day_is_refused_alone);
	tcase_add_test(t, a_poisoned_settle_is_fenced_alone);
	tcase_add_loop_test(t, after_a_failed_batch_the_ends_go_first_and_alone, 0, 4);
	tcase_add_loop_test(t, after_a_collision_the_same_batch_goes_again_whole, 0, 2);
	tcase_add_test(t, under_load_a_row_that_is_not_taken_is_soon_alone);
	tcase_add_loop_test(t, who_collides_with_others_goes_again_unseen, 0, 2);
	tcase_add_test(t, a_server_without_room_refuses_reservations_and_gets_settles_again);
	tcase_add_test(t, a_record_that_cannot_be_read_is_unavailable_alone);
	tcase_add_loop_test(t, a_stored_answer_that_was_changed_is_never_replayed, 0,
			    ARRAY_LEN(changes));
	tcase_add_test(t, the_answer_of_another_key_or_account_is_never_replayed);
	tcase_add_test(t, the_answer_of_an_earlier_life_of_the_key_is_never_replayed);
	suite_add_tcase(s, t);
	return run_on_scratch(s, "");
}
