/*
 * Records for people against a real server: lists that lose nothing and show nothing twice while
 * records come and go, and races of whoever says how a record has ended.
 */
#include "scratch.h"

#include "mem.h"

#include <check.h>
#include <pthread.h>
#include <stdatomic.h>

#define KEEP   1000
#define ROUNDS 200
#define RACERS 3

static struct pg_session *session;

static void set_up(void)
{
	scratch_same_day();
	scratch_migrate();
	session = scratch_open(scratch_conninfo);
	scratch_run(session, "TRUNCATE onceward.key, onceward.op, onceward.event, "
			     "onceward.event_late, onceward.attention, onceward.stop, "
			     "onceward.audit");
}

static void tear_down(void)
{
	pg_session_close(session);
}

/* One value of a statement, as text; "" where there is none. */
static const char *value_of(struct pg_session *s, const char *sql, char out[64])
{
	char why[256] = "";
	struct pg_rows *rows = pg_session_run(s, sql, NULL, 0, why);
	struct span text = { NULL, 0 };

	scratch_need(rows != NULL, sql, why);
	if (pg_rows_count(rows) > 0)
		text = pg_text(rows, 0, 0);
	snprintf(out, 64, "%.*s", (int)text.len, text.at ? text.at : "");
	pg_rows_free(rows);
	return out;
}

/* Records `first` to `last`, a millisecond apart, all of whose leases have run out. */
static void make(struct pg_session *s, int first, int last, const char *operation)
{
	char sql[2048];

	snprintf(sql, sizeof(sql),
		 "WITH made AS (INSERT INTO onceward.op SELECT "
		 "onceward.op_id_at(now() - interval '2 hours') + (n::bigint << 22) + "
		 "(hashtext('%s') & 2047), "
		 "(now() AT TIME ZONE 'UTC')::date + 1, md5('%s' || n)::uuid, "
		 "now() - interval '2 hours' + n * interval '1 ms', now() - interval '1 hour', "
		 "'ada', '%s', ('k' || n)::bytea, 'test', '\\x00' "
		 "FROM generate_series(%d, %d) AS n RETURNING *), "
		 "keyed AS (INSERT INTO onceward.key SELECT key_hash, op_id, "
		 "(expires_on + interval '1 hour') AT TIME ZONE 'UTC', now() + interval '30 "
		 "days', "
		 "'', '', 0, 0 FROM made) "
		 "INSERT INTO onceward.attention (created_at, op_id, expires_on, state, slot, "
		 "key_hash, account, operation, key, cause) SELECT created_at, op_id, "
		 "expires_on, 1, "
		 "0, key_hash, account, operation, key, 'lease ran out' FROM made",
		 operation, operation, operation, first, last);
	scratch_run(s, sql);
}

/* --- lists --- */

struct walk {
	const char *which; /* as SQL */
	long us, id;
	unsigned seen[KEEP];
	unsigned pages, rows;
};

static long number_at(const struct pg_rows *rows, size_t row, unsigned column)
{
	char copy[32];
	struct span text = pg_text(rows, row, column);

	snprintf(copy, sizeof(copy), "%.*s", (int)text.len, text.at ? text.at : "");
	return strtol(copy, NULL, 10);
}

/* The next page; false: it was the last. Records of the operation "stay" are counted by their number. */
static bool turn_page(struct walk *walk)
{
	char sql[512], why[256] = "";
	struct pg_rows *rows = NULL;
	bool more = false;

	snprintf(sql, sizeof(sql),
		 "SELECT op_id, CASE WHEN record->>'operation' = 'stay' THEN "
		 "substr(record->>'key', 2) END, next_us, next_id FROM "
		 "onceward.list_records(%s, NULL, NULL, NULL, 37, %ld, %ld, true)",
		 walk->which, walk->us, walk->id);
	rows = pg_session_run(session, sql, NULL, 0, why);
	scratch_need(rows != NULL, sql, why);
	walk->pages++;
	for (size_t row = 0; row < pg_rows_count(rows); row++) {
		if (!pg_text(rows, row, 0).at) {
			more = true;
			walk->us = number_at(rows, row, 2);
			walk->id = number_at(rows, row, 3);
			continue;
		}
		walk->rows++;
		if (pg_text(rows, row, 1).at)
			walk->seen[number_at(rows, row, 1)]++;
	}
	pg_rows_free(rows);
	return more;
}

static void saw_each_once(const struct walk *walk)
{
	for (unsigned i = 0; i < KEEP; i++)
		ck_assert_msg(walk->seen[i] == 1, "record %u was seen %u times", i,
			      walk->seen[i]);
}

START_TEST(a_list_shows_every_record_once_while_others_come_and_go)
{
	struct walk walk = { .which = "NULL" };

	make(session, 0, KEEP - 1, "stay");
	make(session, 0, 200, "go");
	for (int round = 0; turn_page(&walk); round++) {
		char sql[256];

		snprintf(
			sql, sizeof(sql),
			"DELETE FROM onceward.attention WHERE operation = 'go' AND key = 'k%d'",
			round * 5);
		scratch_run(session, sql);
		make(session, 5000 + round, 5000 + round, "come");
		make(session, round * 3 + 300, round * 3 + 300, "between");
	}
	ck_assert_uint_gt(walk.pages, KEEP / 37);
	saw_each_once(&walk);
}
END_TEST

START_TEST(windows_show_every_record_once_however_sparse_or_dense)
{
	struct walk walk = { .which = "'all'" };

	make(session, 0, KEEP - 1, "stay");
	/* 3,000 more in one millisecond each of a few, and one of long ago */
	scratch_run(
		session,
		"INSERT INTO onceward.op SELECT (op_id >> 22 << 22) + 1 + n, expires_on, "
		"md5(op_id::text || n)::uuid, created_at, lease_until, account, 'dense', "
		"key, gateway, settings FROM (SELECT * FROM onceward.op ORDER BY op_id LIMIT "
		"3) AS few, generate_series(1, 1000) AS n");
	scratch_run(session,
		    "INSERT INTO onceward.op SELECT onceward.op_id_at(now() - interval '300 "
		    "days'), expires_on, md5('old')::uuid, created_at, lease_until, account, "
		    "'old', key, gateway, settings FROM onceward.op LIMIT 1");
	while (turn_page(&walk))
		ck_assert_uint_lt(walk.pages, 500);
	saw_each_once(&walk);
	ck_assert_uint_eq(walk.rows, KEEP + 3001);
}
END_TEST

START_TEST(a_list_of_many_is_read_by_its_index)
{
	char out[64];

	make(session, 0, 20000, "stay");
	scratch_run(session, "ANALYZE onceward.attention");
	value_of(
		session,
		"EXPLAIN SELECT * FROM onceward.attention AS t WHERE (t.created_at, t.op_id) > "
		"(now() - interval '3 hours', 5) AND t.created_at < now() ORDER BY "
		"t.created_at, "
		"t.op_id LIMIT 5000",
		out);
	ck_assert_msg(strstr(out, "Limit"), "%s", out);
	value_of(session,
		 "SELECT count(*) FROM onceward.list_records('unknown', 'stay', 'nobody', "
		 "NULL, 10, "
		 "0, 0, false)",
		 out);
	ck_assert_str_eq(out, "1"); /* nothing on this page, and where to go on */
}
END_TEST

START_TEST(states_are_told_apart)
{
	char out[64];

	make(session, 0, 4, "mix");
	scratch_run(
		session,
		"INSERT INTO onceward.event (op_id, writer, expires_on, slot, kind, status) "
		"SELECT op_id, 1, expires_on, 1, (ARRAY[2, 4, 3])[n], 201 FROM (SELECT *, "
		"row_number() OVER (ORDER BY op_id) AS n FROM onceward.op) AS o WHERE n <= 3");
	scratch_run(session, "UPDATE onceward.op SET lease_until = now() + interval '1 hour' "
			     "WHERE key = 'k4'");
	value_of(session,
		 "SELECT string_agg(record->>'state', ' ' ORDER BY op_id) FROM "
		 "onceward.list_records('all', NULL, NULL, NULL, 100, 0, 0, false)",
		 out);
	ck_assert_str_eq(out, "completed released unknown unknown in_flight");
	value_of(session,
		 "SELECT string_agg(record->>'state', ' ' ORDER BY op_id) FROM "
		 "onceward.list_records('all', NULL, NULL, 3600000 * 3, 100, 0, 0, false)",
		 out);
	ck_assert_str_eq(out, "");
}
END_TEST

START_TEST(bytes_that_are_no_text_are_shown_all_the_same)
{
	char out[64];

	make(session, 0, 0, "odd");
	scratch_run(session,
		    "UPDATE onceward.attention SET account = '\\xff0061', key = '\\x22'");
	value_of(session,
		 "SELECT (record->>'account') || (record->>'key') FROM "
		 "onceward.list_records(NULL, NULL, NULL, NULL, 100, 0, 0, true)",
		 out);
	ck_assert_str_eq(out, "\\377\\000a\"");
	value_of(
		session,
		"SELECT record->>'account' = substr(encode(sha256('\\xff0061'), 'hex'), 1, 12) "
		"FROM onceward.list_records(NULL, NULL, NULL, NULL, 100, 0, 0, false)",
		out);
	ck_assert_str_eq(out, "t");
}
END_TEST

/* --- races --- */

static pthread_barrier_t barrier;
static atomic_long racing; /* the record of this round */
static int results[RACERS][ROUNDS];

static void *race(void *arg)
{
	struct pg_session *own = scratch_open(scratch_conninfo);
	long racer = (long)(uintptr_t)arg;

	for (int round = 0; round < ROUNDS; round++) {
		char sql[512], out[64];

		pthread_barrier_wait(&barrier);
		if (racer < 2)
			snprintf(sql, sizeof(sql),
				 "SELECT onceward.resolve_record(op_id, expires_on, 1::int2, "
				 "%s::int2, %s, 'x', %s, %s, 'seen', 'racer', 2::int2, %ld, "
				 "false) "
				 "FROM "
				 "onceward.op WHERE op_id = %ld",
				 racer ? "4" : "2", racer ? "NULL" : "201::int2",
				 racer ? "NULL" : "'body'", racer ? "NULL" : "'r'", racer + 100,
				 atomic_load(&racing));
		else
			snprintf(sql, sizeof(sql),
				 "SELECT onceward.conclude(op_id, expires_on, key_hash, "
				 "account, "
				 "operation, key, 1::int2, 0::int2, 2::int2, 201::int2, 'x', "
				 "'upstream', 'r', NULL, 86400000, 864000000, 300) FROM "
				 "onceward.op WHERE op_id = %ld",
				 atomic_load(&racing));
		results[racer][round] = (int)strtol(value_of(own, sql, out), NULL, 10);
		pthread_barrier_wait(&barrier);
	}
	pg_session_close(own);
	return NULL;
}

/* Exactly one of the three is first, and the others are told. */
static void judge(int round)
{
	char sql[512], first[64], stands[64];
	long op_id = atomic_load(&racing);

	snprintf(
		sql, sizeof(sql),
		"SELECT coalesce((SELECT source FROM onceward.event_late WHERE op_id = %ld AND "
		"slot > 0 AND kind IN (2, 4) ORDER BY slot LIMIT 1), 0)",
		op_id);
	value_of(session, sql, first);
	snprintf(sql, sizeof(sql),
		 "SELECT source || ' ' || kind FROM onceward.state_of(%ld, (SELECT expires_on "
		 "FROM "
		 "onceward.op WHERE op_id = %ld))",
		 op_id, op_id);
	value_of(session, sql, stands);
	if (results[2][round] == 1) {
		ck_assert_str_eq(first, "0");
		ck_assert_str_eq(stands, "0 2");
		ck_assert_int_eq(results[0][round], 8);
		ck_assert_int_eq(results[1][round], 8);
		return;
	}
	ck_assert_str_eq(first, "2");
	ck_assert_int_eq(stands[0], '2');
	ck_assert_msg(results[2][round] == 2 || results[2][round] == 4, "%d",
		      results[2][round]);
	ck_assert_msg((results[0][round] == 1 && results[1][round] == 10) ||
			      (results[0][round] == 10 && results[1][round] == 1),
		      "%d %d", results[0][round], results[1][round]);
}

START_TEST(of_two_resolvers_and_a_late_answer_one_is_first_and_the_others_are_told)
{
	pthread_t threads[RACERS];
	unsigned upstream = 0;
	char sql[128], out[64];

	make(session, 0, ROUNDS - 1, "race");
	ck_assert_int_eq(pthread_barrier_init(&barrier, NULL, RACERS + 1), 0);
	for (long i = 0; i < RACERS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, race, (void *)(uintptr_t)i),
				 0);
	for (int round = 0; round < ROUNDS; round++) {
		snprintf(sql, sizeof(sql), "SELECT op_id FROM onceward.op WHERE key = 'k%d'",
			 round);
		atomic_store(&racing, strtol(value_of(session, sql, out), NULL, 10));
		pthread_barrier_wait(&barrier);
		pthread_barrier_wait(&barrier);
		judge(round);
		upstream += results[2][round] == 1;
	}
	for (int i = 0; i < RACERS; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&barrier);
	value_of(session, "SELECT count(*) FROM onceward.attention", out);
	ck_assert_str_eq(out, "0");
	ck_assert_uint_le(upstream, ROUNDS);
}
END_TEST

START_TEST(a_resolved_record_keeps_the_times_that_it_was_given)
{
	char out[64];

	make(session, 0, 0, "times");
	value_of(session,
		 "SELECT onceward.resolve_record(op_id, expires_on, NULL, 2::int2, 201::int2, "
		 "'', "
		 "'b', NULL, 'x', 'me', 2::int2, 7, false) FROM onceward.op",
		 out);
	ck_assert_str_eq(out, "1");
	value_of(session,
		 "SELECT abs(extract(epoch FROM (l.expires_at - l.at) - ((o.expires_on + "
		 "interval "
		 "'1 hour') AT TIME ZONE 'UTC' - o.created_at))) < 1 FROM onceward.event_late "
		 "AS l, "
		 "onceward.op AS o WHERE l.kind = 2",
		 out);
	ck_assert_str_eq(out, "t");
}
END_TEST

START_TEST(operators_stops_do_not_add_up)
{
	char out[64];

	for (int i = 0; i < 4; i++) {
		char sql[128];

		snprintf(sql, sizeof(sql),
			 "SELECT onceward.stop_operation('pay', 'account %d', 'me', 'why')", i);
		ck_assert_str_eq(value_of(session, sql, out), "t");
		ck_assert_str_eq(value_of(session, sql, out), "f");
	}
	ck_assert_str_eq(
		value_of(
			session,
			"SELECT count(*) FROM onceward.stop WHERE ended_at IS NULL AND account "
			"IS NULL",
			out),
		"0");
	ck_assert_str_eq(
		value_of(session, "SELECT onceward.end_stops('pay', NULL, 'me', 'x')", out),
		"4");
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("records");
	TCase *t = tcase_create("records");

	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, a_list_shows_every_record_once_while_others_come_and_go);
	tcase_add_test(t, windows_show_every_record_once_however_sparse_or_dense);
	tcase_add_test(t, a_list_of_many_is_read_by_its_index);
	tcase_add_test(t, states_are_told_apart);
	tcase_add_test(t, bytes_that_are_no_text_are_shown_all_the_same);
	tcase_add_test(t,
		       of_two_resolvers_and_a_late_answer_one_is_first_and_the_others_are_told);
	tcase_add_test(t, a_resolved_record_keeps_the_times_that_it_was_given);
	tcase_add_test(t, operators_stops_do_not_add_up);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	SRunner *runner = NULL;
	int failed = 0;

	scratch_start("");
	runner = srunner_create(suite());
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	scratch_stop();
	return failed ? 1 : 0;
}
