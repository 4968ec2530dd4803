/* Keys and what is beside them behind their tombstones, and the erasure of an account. */
#include "retain_rig.h"

/* --- keys --- */

static void over(const char *key)
{
	char sql[256];

	snprintf(sql, sizeof(sql),
		 "UPDATE onceward.key SET expires_at = now() - interval '2 s', keep_until = "
		 "now() - "
		 "interval '1 s' FROM onceward.op WHERE op.op_id = key.op_id AND op.key = '%s'",
		 key);
	scratch_do(sql);
}

START_TEST(a_key_behind_its_tombstone_is_new)
{
	orders.retention = 1000; /* expires today, or a second into tomorrow */
	completed(ledger, "k", "content", "body");
	scratch_do("UPDATE onceward.key SET expires_at = now()");
	gone("k");
	over("k");
	gone("k");
	retained();
	rows_are("key", "true", 0);
	won(ledger, "k", "other content");
}
END_TEST

START_TEST(keys_that_are_needed_stay_behind_their_tombstone)
{
	struct attempt *unknown = NULL;

	orders.retention = 1000;
	won(ledger, "in flight", "content");
	unknown = won(ledger, "unknown", "content");
	settled(unknown, LEDGER_MARK_UNKNOWN);
	unknown = won(ledger, "resolved", "content");
	settled(unknown, LEDGER_MARK_UNKNOWN);
	resolve("resolved", 2, "body");
	over("in flight");
	over("unknown");
	over("resolved");
	retained();
	rows_are("key", "true", 3);
	scratch_do("UPDATE onceward.event_late SET keep_until = now(), expires_at = now()");
	a_day_later();
	retained();
	rows_are("key", "true", 2);
}
END_TEST

START_TEST(keys_of_days_that_are_gone_go_as_well)
{
	completed(ledger, "k", "content", "body");
	age("k", 4);
	scratch_do("UPDATE onceward.key SET keep_until = now() - interval '1 s'");
	retained();
	rows_are("key", "true", 0);
	won(ledger, "k", "content");
}
END_TEST

/* Reserved two hours ago, unknown since, and the answer came only now (a spool, a process that slept):
 * whoever asks again must find it, though its tombstone would be over if it counted from the beginning. */
START_TEST(a_key_that_was_settled_late_stays_for_its_tombstone)
{
	completed(ledger, "k", "content", "body");
	scratch_do("UPDATE onceward.op SET op_id = op_id - (7200000::bigint << 22)");
	scratch_do("UPDATE onceward.event SET op_id = op_id - (7200000::bigint << 22)");
	scratch_do("UPDATE onceward.key SET op_id = op_id - (7200000::bigint << 22), "
		   "keep_until = now() - interval '1 s'");
	retained();
	rows_are("key", "true", 1);
	scratch_do("UPDATE onceward.event SET at = at - interval '2 h'");
	a_day_later();
	retained();
	rows_are("key", "true", 0);
}
END_TEST

START_TEST(a_key_that_was_settled_late_outlives_its_day)
{
	completed(ledger, "late", "content", "body");
	completed(ledger, "in time", "content", "body");
	age("late", 4);
	age("in time", 4);
	scratch_do("UPDATE onceward.event SET at = now() - interval '1 h' FROM onceward.op "
		   "WHERE op.op_id = event.op_id AND op.key = 'late'");
	scratch_do("UPDATE onceward.key SET keep_until = now() - interval '1 d'");
	retained();
	rows_are("op", "true", 0);
	rows_are("key",
		 "keep_until BETWEEN now() + interval '70 h' AND now() + interval '72 h'", 1);
	rows_are("key", "true", 1);
	gone("late");
	won(ledger, "in time", "content");
}
END_TEST

START_TEST(a_late_result_goes_in_two_steps_and_with_its_record)
{
	struct attempt *a = won(ledger, "k", "content");

	settled(a, LEDGER_MARK_UNKNOWN);
	resolve("k", 2, "body");
	scratch_do("UPDATE onceward.event_late SET expires_at = now() - interval '1 s'");
	retained();
	rows_are("event_late",
		 "body IS NULL AND hash IS NULL AND headers IS NULL AND status = 201", 1);
	scratch_do("UPDATE onceward.event_late SET keep_until = now() - interval '1 s'");
	a_day_later();
	retained();
	rows_are("event_late", "true", 1); /* slot 1 still says unknown */
	age("k", 4);
	a_day_later();
	retained();
	a_day_later();
	retained();
	rows_are("event_late", "true", 0);
	gone("k");
}
END_TEST

START_TEST(receipts_and_digest_keys_go_when_they_are_over)
{
	scratch_do(
		"INSERT INTO onceward.receipt SELECT gen_random_uuid(), i, now() + (i - 5) * "
		"interval '1 h' FROM generate_series(0, 9) AS i");
	scratch_do("INSERT INTO onceward.digest_key (id, keep_until) VALUES (1, " TODAY
		   " - 30), (2, " TODAY " + 30)");
	retained();
	rows_are("receipt", "true", 4);
	rows_are("digest_key", "true", 1);
}
END_TEST

#define LOTS 100000

START_TEST(many_keys_go_in_bounded_steps)
{
	struct retain *r = NULL;
	int64_t longest_us = 0, sent_us = 0, began_us = 0, steps = 0;

	scratch_do("INSERT INTO onceward.key SELECT md5(i::text)::uuid, i, now() - interval "
		   "'40 d', "
		   "now() + (CASE WHEN i % 10 = 0 THEN 1 ELSE -1 END) * interval '1 d', "
		   "'\\x00', '\\x00', 0, 0 FROM generate_series(1, 100000) AS i");
	r = retain_begin_at(0);
	while (!(r->look_at > 0 && idle(r))) {
		bool was = r->busy && r->job == RETAIN_ROWS;

		if (was && r->sent_us != sent_us)
			began_us = turned_us;
		sent_us = was ? r->sent_us : 0;
		turn();
		if (was && (!r->busy || r->sent_us != sent_us)) {
			int64_t took = turned_us - began_us;

			steps++;
			longest_us = took > longest_us ? took : longest_us;
		}
	}
	rows_are("key", "true", LOTS / 10);
	ck_assert_int_ge(counted[METRIC_purged_total], LOTS * 9 / 10);
	ck_assert_int_ge(steps, 5);
	ck_assert_int_lt(longest_us, 2000000);
	TURN_UNTIL(idle(r));
	/* Most of the table is dead: it is vacuumed, as soon as the server's counts say so. */
	while (rows("retention", "task = 'vacuum' AND done_at > '-infinity'") == 0) {
		retain_follow(r, &settings);
		turn_for(200);
	}
	nothing_went_wrong();
}
END_TEST

/* A plan made on an empty table must not read all of a big one. */
START_TEST(what_is_looked_up_for_a_key_is_looked_up)
{
	char why[256];
	struct pg_session *session = scratch_open(scratch_conninfo);
	struct pg_rows *plan = NULL;

	scratch_run(session, "SET enable_seqscan = off");
	plan = pg_session_run(
		session,
		"EXPLAIN SELECT place FROM onceward.key_over WHERE place >= "
		"onceward.place(0) AND place < onceward.place(9) FOR UPDATE SKIP LOCKED",
		NULL, 0, why);
	ck_assert_msg(plan != NULL, "%s", why);
	for (size_t i = 0; i < pg_rows_count(plan); i++) {
		struct span line = pg_text(plan, i, 0);

		ck_assert_msg(!memmem(line.at, line.len, "Seq Scan", 8) &&
				      !memmem(line.at, line.len, "Hash", 4) &&
				      !memmem(line.at, line.len, "hashed", 6),
			      "%.*s", (int)line.len, line.at);
	}
	pg_rows_free(plan);
	pg_session_close(session);
}
END_TEST

/* --- erasure --- */

static long erase(const char *account, bool dry, const char *what)
{
	char sql[256];

	snprintf(sql, sizeof(sql), "SELECT %s FROM onceward.erase('%s', 'me', 'asked to', %s)",
		 what, account, dry ? "true" : "false");
	return scratch_number(sql);
}

static struct attempt *bobs(struct attempt *a)
{
	a->entry.account = SPAN("bob");
	return a;
}

START_TEST(an_erased_account_gets_410_and_others_their_answers)
{
	struct attempt *b = bobs(attempt_new(ledger, "k", "content"));

	reserve(b);
	answered(b);
	result_set(b, SPAN("bob's"));
	settled(b, LEDGER_COMPLETE);
	completed(ledger, "k", "content", "alice's");
	ck_assert_int_eq(erase("alice", true, "erased"), 1);
	replayed(found(ledger, "k", "content", LEDGER_COMPLETED), SPAN("alice's"));
	ck_assert_int_eq(erase("alice", false, "erased"), 1);
	gone("k");
	found(ledger, "k", "other", LEDGER_COMPLETED);
	rows_are("op", "account = 'alice' OR account = ''", 1);
	rows_are("op", "account = '' AND key = ''", 1);
	rows_are("event", "hash IS NULL AND headers IS NULL AND body IS NULL", 1);
	rows_are("event", "body = 'bob''s'", 1);
	rows_are("audit", "action = 'erase' AND who = 'me' AND reason = 'asked to'", 1);
	rows_are("audit", "audit::text LIKE '%alice%'", 0);
	b = bobs(attempt_new(ledger, "k", "content"));
	reserve(b);
	answered(b);
	replayed(b, SPAN("bob's"));
	ck_assert_int_eq(erase("alice", false, "waiting"), 0);
	nothing_went_wrong();
}
END_TEST

START_TEST(what_has_no_end_yet_is_erased_when_it_has_one)
{
	struct attempt *a = won(ledger, "running", "content");
	struct attempt *u = won(ledger, "unknown", "content");

	settled(u, LEDGER_MARK_UNKNOWN);
	ck_assert_int_eq(erase("alice", true, "waiting"), 2);
	ck_assert_int_eq(erase("alice", false, "waiting"), 2);
	result_set(a, SPAN("body"));
	settled(a, LEDGER_COMPLETE);
	completed(ledger, "afterwards", "content", "kept");
	retained();
	gone("running");
	rows_are("erasure_record", "true", 1);
	found(ledger, "unknown", "content", LEDGER_UNKNOWN);
	resolve("unknown", 2, "resolved");
	retained();
	rows_are("erasure_record", "true", 0);
	rows_are("event_late", "body IS NOT NULL OR hash IS NOT NULL OR note IS NOT NULL", 0);
	rows_are("op", "account = 'alice'", 1);
	replayed(found(ledger, "afterwards", "content", LEDGER_COMPLETED), SPAN("kept"));
}
END_TEST

START_TEST(what_only_its_late_result_knows_is_erased_too)
{
	struct attempt *u = won(ledger, "unknown", "content");

	settled(u, LEDGER_MARK_UNKNOWN);
	age("unknown", 4);
	retained();
	resolve("unknown", 2, "resolved");
	rows_are("event_late", "body = 'resolved'", 1);
	ck_assert_int_eq(erase("alice", false, "erased"), 1);
	rows_are("event_late", "body IS NOT NULL OR hash IS NOT NULL", 0);
	rows_are("event_late", "kind = 2", 1);
}
END_TEST

START_TEST(a_stop_of_an_erased_account_loses_its_name_when_it_ends)
{
	completed(ledger, "k", "content", "body");
	scratch_do("SELECT onceward.raise_stop('orders.create', 'alice', 'late_effect', 'd', "
		   "'g')");
	ck_assert_int_eq(erase("alice", false, "waiting"), 0);
	retained();
	rows_are("stop", "account = 'alice'", 1); /* it still says whose requests wait */
	scratch_do("SELECT onceward.end_stops('orders.create', 'alice', 'me', 'seen')");
	retained();
	rows_are("stop", "account = sha256('alice') AND detail = 'erased'", 1);
	rows_are("erasure_stop", "true", 0);
}
END_TEST

/* From a spool, say. That it came stays, and stops what it has to stop. */
START_TEST(evidence_that_comes_after_an_erasure_brings_nothing_back)
{
	char sql[512];

	completed(ledger, "k", "content", "body");
	snprintf(sql, sizeof(sql),
		 "SELECT onceward.conclude(op_id, expires_on, key_hash, 'alice', operation, "
		 "'k', "
		 "1::int2, 0::int2, 2::int2, 201::int2, 'Location: /orders/1\r\n', 'late', "
		 "'/orders/1', 'note', 86400000, 2592000000, 77) FROM onceward.op");
	ck_assert_int_eq(erase("alice", false, "waiting"), 0);
	ck_assert_int_eq(scratch_number(sql), 2);
	rows_are("event_late", "slot = -1 AND kind = 2 AND status = 201", 1);
	rows_are("event_late",
		 "headers IS NULL AND body IS NULL AND receipt IS NULL AND note IS NULL", 1);
	rows_are("attention", "true", 0);
}
END_TEST

START_TEST(a_large_erasure_goes_on_in_the_office)
{
	scratch_do("INSERT INTO onceward.op SELECT i, " TODAY
		   " + i % 3, md5(i::text)::uuid, now(), "
		   "now() - interval '1 d', 'carol', 'orders.create', i::text::bytea, 'g', 's' "
		   "FROM "
		   "generate_series(1, 5000) AS i");
	scratch_do(
		"INSERT INTO onceward.event (op_id, writer, expires_on, slot, kind, status, "
		"body, "
		"hash) SELECT op_id, 1, expires_on, 1, 2, 201, 'b', 'h' FROM onceward.op WHERE "
		"account = 'carol'");
	scratch_do("INSERT INTO onceward.erasure (account_hash, day) VALUES "
		   "(sha256('carol'), " TODAY " - 5)");
	retained();
	rows_are("op", "account = 'carol'", 0);
	rows_are("event", "body IS NOT NULL", 0);
	rows_are("erasure", "true", 0);
	rows_are("audit", "action = 'erased' AND detail = '5000 records'", 1);
}
END_TEST

/* --- what fails --- */

START_TEST(a_day_that_cannot_go_holds_up_nothing_else)
{
	struct retain *r = NULL;

	orders.retention = 1000;
	completed(ledger, "k", "content", "body");
	completed(ledger, "old", "content", "body");
	age("old", 4);
	over("k");
	ck_assert_int_eq(erase("bob", false, "waiting"), 0);
	scratch_do("INSERT INTO onceward.erasure (account_hash, day) VALUES "
		   "(sha256('carol'), " TODAY ")");
	scratch_do("ALTER FUNCTION onceward.close_day RENAME TO hidden");
	r = retain_begin_at(0);
	TURN_UNTIL(strstr(logged, "warning retention: taking a day or a month away"));
	TURN_UNTIL(rows("key", "true") == 1 && rows("erasure", "true") == 0);
	scratch_do("ALTER FUNCTION onceward.hidden RENAME TO close_day");
	rows_are("op", "key = 'old'", 1);
	retain_follow(r, &settings);
	TURN_UNTIL(rows("op", "key = 'old'") == 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("retain_rows");
	TCase *t = tcase_create("retain_rows");

	tcase_add_checked_fixture(t, set_up_one, tear_down_one);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, a_key_behind_its_tombstone_is_new);
	tcase_add_test(t, keys_that_are_needed_stay_behind_their_tombstone);
	tcase_add_test(t, keys_of_days_that_are_gone_go_as_well);
	tcase_add_test(t, a_key_that_was_settled_late_stays_for_its_tombstone);
	tcase_add_test(t, a_key_that_was_settled_late_outlives_its_day);
	tcase_add_test(t, a_late_result_goes_in_two_steps_and_with_its_record);
	tcase_add_test(t, receipts_and_digest_keys_go_when_they_are_over);
	tcase_add_test(t, many_keys_go_in_bounded_steps);
	tcase_add_test(t, what_is_looked_up_for_a_key_is_looked_up);
	tcase_add_test(t, an_erased_account_gets_410_and_others_their_answers);
	tcase_add_test(t, what_has_no_end_yet_is_erased_when_it_has_one);
	tcase_add_test(t, what_only_its_late_result_knows_is_erased_too);
	tcase_add_test(t, a_stop_of_an_erased_account_loses_its_name_when_it_ends);
	tcase_add_test(t, evidence_that_comes_after_an_erasure_brings_nothing_back);
	tcase_add_test(t, a_large_erasure_goes_on_in_the_office);
	tcase_add_test(t, a_day_that_cannot_go_holds_up_nothing_else);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return run_on_scratch(suite(), "");
}
