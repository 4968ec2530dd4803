/*
 * The names that the ledger gives: op_ids, instance numbers, logical request ids, key hashes;
 * and batches that meet each other over the same keys.
 */
#include "ledger_rig.h"

static struct ledger *ledger;

static void set_up_one(void)
{
	set_up();
	scratch_do("UPDATE onceward.instance SET token = 0, gateway = '', high_ms = 0, "
		   "renewed_at = '-infinity'");
	ledger = ledger_open();
}

/* --- batches --- */

START_TEST(of_two_equal_keys_in_one_batch_one_wins)
{
	struct attempt *all[4];
	int winners = 0;

	for (int i = 0; i < 4; i++) {
		all[i] = attempt_new(ledger, "k1", i < 2 ? "content" : "other");
		reserve(all[i]);
	}
	for (int i = 0; i < 4; i++)
		answered(all[i]);
	for (int i = 0; i < 4; i++) {
		winners += all[i]->entry.found == LEDGER_WON;
		if (all[i]->entry.found != LEDGER_WON)
			found_is(all[i], LEDGER_IN_FLIGHT);
		ck_assert_str_eq(all[i]->entry.request_id, all[0]->entry.request_id);
	}
	ck_assert_int_eq(winners, 1);
	ck_assert_int_eq(counted[METRIC_ledger_batch_rows], 1);
	rows_are("op", "true", 1);
	nothing_went_wrong();
}
END_TEST

#define KEYS    20
#define ENTRIES 200
#define ROUNDS  25

/* Forwards or backwards; each key comes ENTRIES / KEYS / 2 times from each ledger. */
static void opposite_orders(struct ledger *other, int round, struct attempt *all[ENTRIES])
{
	char key[32];

	for (int i = 0; i < ENTRIES; i++) {
		int which = i < ENTRIES / 2 ? i % KEYS : KEYS - 1 - i % KEYS;

		snprintf(key, sizeof(key), "r%d-k%d", round, which);
		all[i] = attempt_new(i < ENTRIES / 2 ? ledger : other, key, "content");
		all[i]->leaves = true;
		reserve(all[i]);
	}
}

START_TEST(batches_in_opposite_orders_have_one_winner_a_key_and_no_deadlock)
{
	static struct attempt *all[ENTRIES];
	struct ledger *other = NULL;

	ledger_end(ledger);
	settings.ledger.batch_max = 30; /* several batches each */
	ledger = ledger_open();
	other = ledger_open();
	for (int round = 0; round < ROUNDS; round++) {
		int won_both = 0;

		opposite_orders(other, round, all);
		for (int i = 0; i < ENTRIES; i++)
			answered(all[i]);
		for (int i = 0; i < ENTRIES; i++) {
			won_both += all[i]->entry.found == LEDGER_WON;
			if (all[i]->entry.found != LEDGER_WON)
				found_is(all[i], LEDGER_IN_FLIGHT);
		}
		ck_assert_int_eq(won_both, KEYS);
	}
	rows_are("key", "true", (long)KEYS * ROUNDS);
	rows_are("op", "true", (long)KEYS * ROUNDS);
	ck_assert_int_eq(scratch_number("SELECT deadlocks FROM pg_stat_database WHERE "
					"datname = 'onceward'"),
			 0);
	nothing_went_wrong();
}
END_TEST

#define RACES 500

/* Who won gives it back, once both have their answer. */
static bool gave_back(struct attempt *a)
{
	ck_assert_int_ne(a->entry.found, LEDGER_UNAVAILABLE);
	if (a->entry.found != LEDGER_WON) {
		attempt_leave(a);
		return false;
	}
	settle(a, LEDGER_RELEASE);
	return true;
}

static void is_over(struct attempt *a)
{
	if (!a || a->entry.left)
		return;
	settled_is(a, LEDGER_SETTLED);
	attempt_leave(a);
}

START_TEST(two_gateways_that_reserve_and_release_never_win_both)
{
	struct ledger *of[2] = { ledger, ledger_open() };
	struct attempt *both[2], *last[2] = { NULL };
	int won_in_all = 0;

	for (int i = 0; i < RACES; i++) {
		int winners = 0;

		for (int j = 0; j < 2; j++) {
			both[j] = attempt_new(of[j], "k1", "content");
			reserve(both[j]);
		}
		answered(both[0]);
		answered(both[1]);
		for (int j = 0; j < 2; j++)
			winners += gave_back(both[j]);
		ck_assert_int_le(winners, 1);
		won_in_all += winners;
		/* The next race meets this release under way. */
		for (int j = 0; j < 2; j++) {
			is_over(last[j]);
			last[j] = both[j];
		}
	}
	ck_assert_int_ge(won_in_all, RACES / 10);
	TURN_UNTIL(ledger_busy(of[0]) + ledger_busy(of[1]) == 0);
	rows_are("op", "true", won_in_all);
	rows_are("event", "kind = 4", won_in_all);
	rows_are("key", "true", 0);
	nothing_went_wrong();
}
END_TEST

/* --- order --- */

static const char watch_order[] =
	"CREATE TABLE seen (n serial, key_hash uuid, op_id int8);"
	"CREATE FUNCTION see_key() RETURNS trigger LANGUAGE plpgsql AS "
	"$$ BEGIN INSERT INTO seen (key_hash) VALUES (NEW.key_hash); RETURN NEW; END $$;"
	"CREATE FUNCTION see_event() RETURNS trigger LANGUAGE plpgsql AS "
	"$$ BEGIN INSERT INTO seen (op_id) VALUES (NEW.op_id); RETURN NEW; END $$;"
	"CREATE TRIGGER see BEFORE INSERT ON onceward.key FOR EACH ROW EXECUTE FUNCTION "
	"see_key();"
	"CREATE TRIGGER see BEFORE INSERT ON onceward.event FOR EACH ROW EXECUTE FUNCTION "
	"see_event()";

static const char watch_no_more[] = "DROP TRIGGER see ON onceward.key;"
				    "DROP TRIGGER see ON onceward.event;"
				    "DROP FUNCTION see_key, see_event; DROP TABLE seen";

static long disorder(const char *column)
{
	char sql[256];

	snprintf(sql, sizeof(sql),
		 "SELECT count(*) FROM (SELECT %s AS it, lag(%s) OVER (ORDER BY n) AS before "
		 "FROM seen WHERE %s IS NOT NULL) AS pairs WHERE it <= before",
		 column, column, column);
	return scratch_number(sql);
}

START_TEST(rows_are_written_in_order)
{
	struct attempt *all[40];
	char key[32];

	scratch_do(watch_order);
	for (int i = 0; i < 40; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		all[i] = attempt_new(ledger, key, "content");
		reserve(all[i]);
	}
	for (int i = 0; i < 40; i++)
		answered(all[i]);
	for (int i = 39; i >= 0; i--) {
		result_set(all[i], SPAN(""));
		settle(all[i], i % 2 ? LEDGER_COMPLETE : LEDGER_MARK_UNKNOWN);
	}
	for (int i = 0; i < 40; i++)
		settled_is(all[i], LEDGER_SETTLED);
	ck_assert_int_eq(scratch_number("SELECT count(*) FROM seen"), 80);
	ck_assert_int_eq(disorder("key_hash"), 0);
	ck_assert_int_eq(disorder("op_id"), 0);
	scratch_do(watch_no_more);
	ck_assert_int_eq(counted[METRIC_ledger_batch_rows], 2);
	nothing_went_wrong();
}
END_TEST

/* --- op_ids --- */

static int64_t later(int64_t than)
{
	int64_t id = op_id_make(ledger);

	ck_assert_int_gt(id, than);
	return id;
}

START_TEST(op_ids_strictly_increase_also_when_the_clock_goes_back)
{
	int64_t id = 0;

	for (int i = 0; i < 10000; i++)
		id = later(id);
	ledger->clock_offset_us -= INT64_C(3600) * 1000000;
	for (int i = 0; i < 10000; i++)
		id = later(id);
	ledger->clock_offset_us += INT64_C(7200) * 1000000;
	for (int i = 0; i < 10000; i++)
		id = later(id);
}
END_TEST

START_TEST(op_ids_increase_over_the_next_lease_of_a_number)
{
	int64_t id = 0, number = ledger->instance;

	ledger->clock_offset_us += INT64_C(3600) * 1000000;
	id = later(0);
	/* Returned, and taken again by one whose clock is an hour behind. */
	ledger_end(ledger);
	ck_assert_int_eq(scratch_number("SELECT count(*) FROM onceward.instance WHERE "
					"high_ms > 0 AND token = 0"),
			 1);
	ledger = ledger_open();
	ck_assert_int_eq(ledger->instance, number);
	id = later(id);
	/* Lost, and another number claimed. */
	scratch_do("UPDATE onceward.instance SET token = 1, renewed_at = now() WHERE token <> "
		   "0");
	ledger->renew_at_ms = 0;
	TURN_UNTIL(!ledger_state(ledger).up);
	TURN_UNTIL(ledger_state(ledger).up);
	ck_assert_int_ne(ledger->instance, number);
	id = later(id);
	/* A connection that is made anew keeps the number. */
	number = ledger->instance;
	terminate_ours();
	TURN_UNTIL(!ledger_state(ledger).up);
	TURN_UNTIL(ledger_state(ledger).up);
	ck_assert_int_eq(ledger->instance, number);
	later(id);
}
END_TEST

START_TEST(a_renewal_tells_how_far_the_op_ids_are)
{
	later(0);
	ledger->renew_at_ms = 0;
	TURN_UNTIL(rows("instance", "high_ms > 0") == 1);
	ck_assert_int_eq(scratch_number("SELECT max(high_ms) FROM onceward.instance"),
			 ledger->op_ms);
	won(ledger, "k1", "content");
	nothing_went_wrong();
}
END_TEST

START_TEST(no_two_ledgers_have_the_same_number)
{
	struct ledger *second = ledger_open(), *third = ledger_open();

	ck_assert_int_ne(ledger->instance, second->instance);
	ck_assert_int_ne(ledger->instance, third->instance);
	ck_assert_int_ne(second->instance, third->instance);
	rows_are("instance", "token <> 0 AND gateway LIKE '% worker _'", 3);
}
END_TEST

/* --- names --- */

static int by_text(const void *a, const void *b)
{
	return strcmp(a, b);
}

START_TEST(request_ids_are_stable_opaque_and_distinct)
{
	static char ids[2000][LEDGER_REQUEST_ID_BYTES];
	struct ledger *other = ledger_open();
	char again[LEDGER_REQUEST_ID_BYTES];
	int64_t id = 0;
	int alike = 0;

	for (int i = 0; i < 2000; i++) {
		if (i % 2 == 0)
			id = later(id);
		row_request_id(ledger, id, 20000 + i % 2, ids[i]);
		row_request_id(other, id, 20000 + i % 2, again);
		ck_assert_str_eq(ids[i], again);
		ck_assert_uint_eq(strspn(ids[i], "req_abcdefghijklmnopqrstuvwxyz234567"), 30);
		if (i > 0)
			alike += strncmp(ids[i], ids[i - 1], 6) == 0;
	}
	/* Neighbours share no beginning: 1 in 1024 by chance. */
	ck_assert_int_lt(alike, 20);
	qsort(ids, 2000, sizeof(ids[0]), by_text);
	for (int i = 1; i < 2000; i++)
		ck_assert_str_ne(ids[i], ids[i - 1]);
}
END_TEST

static const unsigned char *hash_of(const char *account, const char *key)
{
	struct attempt *a = attempt_new(ledger, key, "content");

	a->entry.account = span_of(account);
	row_key_hash(ledger, &a->entry);
	return a->entry.key_hash;
}

START_TEST(a_key_that_has_its_time_in_it_keeps_it)
{
	static const struct {
		const char *key, *other;
		unsigned char ms[6];
	} timed[] = {
		{ "017f22e2-79b0-7cc3-98c4-dc0c0c07398f",
		  "017f22e2-79b0-7cc3-98c4-dc0c0c073980",
		  { 0x01, 0x7f, 0x22, 0xe2, 0x79, 0xb0 } },
		{ "01ARZ3NDEKTSV4RRFFQ69G5FAV",
		  "01ARZ3NDEKTSV4RRFFQ69G5FAW",
		  { 0x01, 0x56, 0x3e, 0x3a, 0xb5, 0xd3 } },
	};

	for (size_t i = 0; i < ARRAY_LEN(timed); i++) {
		const unsigned char *hash = hash_of("alice", timed[i].key);

		ck_assert_mem_eq(hash, timed[i].ms, 6);
		ck_assert_mem_eq(hash, hash_of("alice", timed[i].key), 16);
		ck_assert_mem_ne(hash + 6, hash_of("alice", timed[i].other) + 6, 10);
		ck_assert_mem_ne(hash + 6, hash_of("bob", timed[i].key) + 6, 10);
	}
}
END_TEST

START_TEST(a_key_hash_is_of_the_three_and_of_the_ledger_alone)
{
	struct ledger *other = ledger_open();
	struct attempt *a = attempt_new(other, "bc", "whatever");

	a->entry.account = SPAN("a");
	row_key_hash(other, &a->entry);
	ck_assert_mem_eq(a->entry.key_hash, hash_of("a", "bc"), 16);
	ck_assert_mem_ne(a->entry.key_hash, hash_of("ab", "c"), 16);
	a->entry.idempotency = &payments;
	row_key_hash(other, &a->entry);
	ck_assert_mem_ne(a->entry.key_hash, hash_of("a", "bc"), 16);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ledger_ids");
	TCase *t = tcase_create("ids");

	tcase_add_checked_fixture(t, set_up_one, tear_down);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, of_two_equal_keys_in_one_batch_one_wins);
	tcase_add_test(t, batches_in_opposite_orders_have_one_winner_a_key_and_no_deadlock);
	tcase_add_test(t, two_gateways_that_reserve_and_release_never_win_both);
	tcase_add_test(t, rows_are_written_in_order);
	tcase_add_test(t, op_ids_strictly_increase_also_when_the_clock_goes_back);
	tcase_add_test(t, op_ids_increase_over_the_next_lease_of_a_number);
	tcase_add_test(t, a_renewal_tells_how_far_the_op_ids_are);
	tcase_add_test(t, no_two_ledgers_have_the_same_number);
	tcase_add_test(t, request_ids_are_stable_opaque_and_distinct);
	tcase_add_test(t, a_key_that_has_its_time_in_it_keeps_it);
	tcase_add_test(t, a_key_hash_is_of_the_three_and_of_the_ledger_alone);
	suite_add_tcase(s, t);
	return run_on_scratch(s, "");
}
