/* How often answers were given again: counted in memory, added up in the ledger now and then. */
#include "ledger_rig.h"

#include <time.h>

#define NEVER (INT64_C(1) << 60)
#define DAY_S 86400
#define ROOM  1024
#define MANY  (ROOM + 500)

static struct ledger *ledger;

static void set_up_one(void)
{
	set_up();
	scratch_do("TRUNCATE onceward.replay");
	ledger = ledger_open();
	TURN_UNTIL(ledger_any_link(ledger) != NULL);
}

static void count(struct ledger *of, int64_t op_id)
{
	struct ledger_entry entry = { .record_op_id = op_id,
				      .expires_at = (int64_t)time(NULL) + DAY_S };

	replays_count(of, &entry);
}

/* Behind what is under way. */
static void write_now(struct ledger *of)
{
	turn_for(50);
	TURN_UNTIL(ledger_any_link(of));
	replays_write(of, NEVER);
}

/* What was still being written when it was told to write is written behind that. */
#define WRITTEN_UNTIL(sql, n)                                                                  \
	TURN_UNTIL((replays_write(ledger, NEVER), scratch_number(sql)) == (n))

START_TEST(replays_are_added_up_over_time_and_over_workers)
{
	struct ledger *other = ledger_open();

	TURN_UNTIL(ledger_any_link(other) != NULL);
	for (int i = 0; i < 3; i++)
		count(ledger, 5);
	count(ledger, 7);
	turn_for(50);
	ck_assert_int_eq(scratch_number("SELECT count(*) FROM onceward.replay"), 0);
	write_now(ledger);
	WRITTEN_UNTIL("SELECT sum(n) FROM onceward.replay", 4);
	count(ledger, 5);
	count(other, 5);
	write_now(ledger);
	write_now(other);
	WRITTEN_UNTIL("SELECT n FROM onceward.replay WHERE op_id = 5", 5);
	write_now(ledger);
	turn_for(50);
	ck_assert_int_eq(scratch_number("SELECT sum(n) FROM onceward.replay"), 6);
}
END_TEST

START_TEST(more_than_there_is_room_for_is_written_at_once_and_not_counted_meanwhile)
{
	for (int64_t i = 1; i <= MANY; i++)
		count(ledger, i);
	TURN_UNTIL(scratch_number("SELECT count(*) FROM onceward.replay") == ROOM);
	for (int64_t i = MANY; i > 0; i--)
		count(ledger, i);
	TURN_UNTIL(scratch_number("SELECT count(*) FROM onceward.replay") == MANY);
	ck_assert_int_eq(scratch_number("SELECT sum(n) FROM onceward.replay"), 2 * ROOM);
}
END_TEST

START_TEST(what_is_over_goes_as_others_come)
{
	scratch_do("INSERT INTO onceward.replay SELECT n, '2020-01-01', 1, now() FROM "
		   "generate_series(1000, 4000) AS n");
	for (int round = 0; round < 2; round++) {
		count(ledger, 5);
		write_now(ledger);
		WRITTEN_UNTIL("SELECT n FROM onceward.replay WHERE op_id = 5", round + 1);
	}
	ck_assert_int_eq(scratch_number("SELECT count(*) FROM onceward.replay"), 1);
}
END_TEST

/* It is for people alone: nothing else is held up or goes wrong. */
START_TEST(a_table_that_cannot_be_written_disturbs_nobody)
{
	struct attempt *a = NULL;

	scratch_do("ALTER TABLE onceward.replay RENAME TO elsewhere");
	count(ledger, 5);
	write_now(ledger);
	a = won(ledger, "k1", "content");
	result_set(a, SPAN("the body"));
	settled(a, LEDGER_COMPLETE);
	scratch_do("ALTER TABLE onceward.elsewhere RENAME TO replay");
	nothing_went_wrong();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ledger_replays");
	TCase *t = tcase_create("replays");

	tcase_add_checked_fixture(t, set_up_one, tear_down);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, replays_are_added_up_over_time_and_over_workers);
	tcase_add_test(
		t, more_than_there_is_room_for_is_written_at_once_and_not_counted_meanwhile);
	tcase_add_test(t, what_is_over_goes_as_others_come);
	tcase_add_test(t, a_table_that_cannot_be_written_disturbs_nobody);
	suite_add_tcase(s, t);
	return run_on_scratch(s, "");
}
