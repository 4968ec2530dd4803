/*
 * Answers that the ledger does not take in time: how many it holds, what it refuses meanwhile, and
 * which of them are kept on disk.
 */
#include "spool_rig.h"

static struct ledger *ledger;

static void set_up_one(void)
{
	set_up_spool();
	ledger = ledger_with_spool();
}

/* Its end is not taken in time. */
static struct attempt *late(struct attempt *a, enum ledger_outcome outcome, const char *body)
{
	result_set(a, span_of(body));
	settle_within(a, outcome, 30);
	return a;
}

static void all_late(struct attempt *const *all, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		settled_is(all[i], LEDGER_LATE);
		attempt_leave(all[i]);
	}
}

static void is_full(void)
{
	struct attempt *a = NULL;

	ck_assert(!ledger_state(ledger).up);
	ck_assert_ptr_nonnull(strstr(ledger_state(ledger).why, "is full"));
	a = reserved(ledger, "new", "content");
	found_is(a, LEDGER_OVERLOADED);
	ck_assert_int_lt(a->turned_ms, 1000);
	rows_are("op", "key = 'new'", 0);
}

START_TEST(too_many_unsettled_answers_refuse_reservations_until_they_are_settled)
{
	struct attempt *all[3];
	struct pg_session *session = NULL;
	static const char *const keys[] = { "k0", "k1", "k2" };

	ledger_limit(ledger, 2, 1 << 20);
	for (size_t i = 0; i < 3; i++)
		all[i] = won(ledger, keys[i], "content");
	session = lock("event");
	for (size_t i = 0; i < 2; i++)
		late(all[i], LEDGER_COMPLETE, "the body");
	all_late(all, 2);
	ck_assert(ledger_state(ledger).up); /* at the bound, not above */
	late(all[2], LEDGER_COMPLETE, "the body");
	all_late(&all[2], 1);
	is_full();
	ck_assert_int_eq(gauges[METRIC_unsettled_in_memory], 3);
	unlock(session);
	TURN_UNTIL(ledger_state(ledger).up);
	TURN_UNTIL(all[0]->gone && all[1]->gone && all[2]->gone);
	won(ledger, "new", "content");
	for (size_t i = 0; i < 3; i++)
		replayed(reserved(ledger, keys[i], "content"), SPAN("the body"));
}
END_TEST

START_TEST(too_large_unsettled_answers_do_as_well)
{
	struct attempt *a = won(ledger, "k1", "content");
	struct pg_session *session = lock("event");
	static char body[20001];

	memset(body, 'b', sizeof(body) - 1);
	ledger_limit(ledger, 100, 10000);
	late(a, LEDGER_COMPLETE, body);
	all_late(&a, 1);
	is_full();
	unlock(session);
	TURN_UNTIL(ledger_state(ledger).up);
	won(ledger, "new", "content");
}
END_TEST

/* One that may stand there already is not forgotten, however full it is. */
START_TEST(a_reservation_under_way_is_seen_to_its_end)
{
	struct attempt *a = won(ledger, "k1", "content"),
		       *b = attempt_new(ledger, "k2", "content");
	struct pg_session *session = lock("event"), *keys = NULL;

	late(a, LEDGER_COMPLETE, "the body");
	keys = lock("key");
	all_late(&a, 1);
	unlock(session);
	TURN_UNTIL(a->gone);
	b->leaves = true;
	reserve(b);
	locked(1);
	ledger_limit(ledger, 0, 0);
	unlock(keys);
	answered(b);
	found_is(b, LEDGER_WON);
}
END_TEST

START_TEST(a_higher_limit_takes_effect_at_once)
{
	struct attempt *a = won(ledger, "k1", "content");
	struct pg_session *session = lock("event");

	ledger_limit(ledger, 100, 10);
	late(a, LEDGER_COMPLETE, "the body");
	all_late(&a, 1);
	is_full();
	ledger_limit(ledger, 100, 10000);
	ck_assert(ledger_state(ledger).up);
	unlock(session);
	won(ledger, "new", "content");
}
END_TEST

/* The list of what is to be given back is bounded by the same. */
START_TEST(reservations_that_came_too_late_fill_it_as_well)
{
	struct attempt *all[4];
	struct pg_session *session = NULL, *events = NULL;
	char key[32];

	ledger_limit(ledger, 3, 1 << 20);
	session = lock("key");
	events = lock("event");
	for (int i = 0; i < 4; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		all[i] = attempt_new(ledger, key, "content");
		all[i]->leaves = true;
		reserve_within(all[i], 200);
	}
	for (int i = 0; i < 4; i++)
		answered(all[i]);
	unlock(session);
	TURN_UNTIL(gauges[METRIC_unsettled_in_memory] == 4);
	is_full();
	unlock(events);
	for (int i = 0; i < 4; i++)
		TURN_UNTIL(all[i]->gone);
	rows_are("key", "true", 0);
	rows_are("event", "kind = 4", 4);
	TURN_UNTIL(ledger_state(ledger).up);
	won(ledger, "k0", "content");
}
END_TEST

/* --- on disk --- */

START_TEST(an_answer_that_is_late_is_kept_until_the_ledger_has_it)
{
	struct attempt *a = won(ledger, "k1", "content");
	struct pg_session *session = lock("event");

	late(a, LEDGER_COMPLETE, "the body");
	ck_assert_int_eq(files(".answer"), 0);
	all_late(&a, 1);
	ck_assert_int_eq(files(".answer"), 1);
	ck_assert_int_eq(gauges[METRIC_unsettled_spooled], 1);
	unlock(session);
	TURN_UNTIL(a->gone);
	ck_assert_int_eq(files(".answer"), 0);
	ck_assert_int_eq(gauges[METRIC_unsettled_spooled], 0);
	nothing_went_wrong();
}
END_TEST

START_TEST(what_is_settled_in_time_is_never_on_disk)
{
	completed(ledger, "k1", "content", "the body");
	spool_settled();
	ck_assert_int_eq(files("k"), 1); /* the lock */
	ck_assert_int_eq(files(".answer"), 0);
}
END_TEST

START_TEST(of_ends_only_those_that_say_something_are_kept)
{
	struct attempt *all[2] = { won(ledger, "k1", "content"), won(ledger, "k2", "content") };
	struct pg_session *session = lock("event");

	late(all[0], LEDGER_RELEASE, "");
	late(all[1], LEDGER_MARK_UNKNOWN, "");
	all_late(all, 2);
	ck_assert_int_eq(files(".answer"), 1);
	unlock(session);
	TURN_UNTIL(all[0]->gone && all[1]->gone);
	ck_assert_int_eq(files(".answer"), 0);
}
END_TEST

START_TEST(a_reservation_that_came_too_late_is_given_back_without_a_file)
{
	struct attempt *a = attempt_new(ledger, "k1", "content");
	struct pg_session *session = NULL, *events = NULL;

	session = lock("key");
	events = lock("event");
	reserve_within(a, 200);
	answered(a);
	found_is(a, LEDGER_UNAVAILABLE);
	attempt_leave(a);
	unlock(session);
	TURN_UNTIL(gauges[METRIC_unsettled_in_memory] == 1);
	turn_for(50);
	ck_assert_int_eq(files(".answer"), 0);
	ledger_spool_rest(ledger); /* but when the process ends, it is worth one */
	ck_assert_int_eq(files(".answer"), 1);
	unlock(events);
	TURN_UNTIL(a->gone);
	ck_assert_int_eq(files(".answer"), 0);
}
END_TEST

START_TEST(at_the_end_of_the_process_also_what_is_not_late_is_kept)
{
	struct attempt *a = won(ledger, "k1", "content");
	struct pg_session *session = lock("event");

	result_set(a, SPAN("the body"));
	settle(a, LEDGER_COMPLETE);
	turn_for(50);
	ledger_spool_rest(ledger);
	ledger_spool_rest(ledger); /* twice is once */
	ck_assert_int_eq(files(".answer"), 1);
	unlock(session);
	settled_is(a, LEDGER_SETTLED);
	ck_assert_int_eq(files(".answer"), 0);
	ck_assert_int_eq(gauges[METRIC_unsettled_spooled], 0);
}
END_TEST

START_TEST(a_disk_that_takes_nothing_loses_nothing_that_memory_has)
{
	struct attempt *a = won(ledger, "k1", "content");
	struct pg_session *session = lock("event");
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", spool_dir);
	ck_assert_int_eq(system(command), 0);
	late(a, LEDGER_COMPLETE, "the body");
	all_late(&a, 1);
	spool_settled();
	log_says("an answer cannot be kept");
	unlock(session);
	TURN_UNTIL(a->gone);
	replayed(reserved(ledger, "k1", "content"), SPAN("the body"));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ledger_unsettled");
	TCase *t = tcase_create("unsettled");

	tcase_add_checked_fixture(t, set_up_one, tear_down_spool);
	tcase_set_timeout(t, 60);
	tcase_add_test(t,
		       too_many_unsettled_answers_refuse_reservations_until_they_are_settled);
	tcase_add_test(t, too_large_unsettled_answers_do_as_well);
	tcase_add_test(t, a_reservation_under_way_is_seen_to_its_end);
	tcase_add_test(t, reservations_that_came_too_late_fill_it_as_well);
	tcase_add_test(t, a_higher_limit_takes_effect_at_once);
	tcase_add_test(t, an_answer_that_is_late_is_kept_until_the_ledger_has_it);
	tcase_add_test(t, what_is_settled_in_time_is_never_on_disk);
	tcase_add_test(t, of_ends_only_those_that_say_something_are_kept);
	tcase_add_test(t, a_reservation_that_came_too_late_is_given_back_without_a_file);
	tcase_add_test(t, at_the_end_of_the_process_also_what_is_not_late_is_kept);
	tcase_add_test(t, a_disk_that_takes_nothing_loses_nothing_that_memory_has);
	suite_add_tcase(s, t);
	return run_on_scratch(s, "");
}
