/* What each recovery contract allows, as a table of cases (CONTRACT 7). */
#include "recovery.h"
#include "unit_run.h"

#include <check.h>

#define HOUR INT64_C(3600000)

static struct recovery_settings contract(enum recovery_contract contract)
{
	return (struct recovery_settings){ .contract = contract,
					   .resend_window = 24 * HOUR,
					   .max_attempts = 5 };
}

static const struct recovery_case fresh = {
	.generation = 1, .age_ms = 500, .tried_ms = -1, .same_raw = true
};

static enum recovery ruled(enum recovery_contract which, struct recovery_case record)
{
	struct recovery_settings settings = contract(which);

	return recovery_of(&settings, &record).what;
}

START_TEST(held_is_held_whatever_the_case)
{
	struct recovery_case record = fresh;

	for (int stale = 0; stale < 2; stale++)
		for (unsigned generation = 1; generation < 7; generation++) {
			record.stale = stale;
			record.generation = generation;
			ck_assert_int_eq(ruled(RECOVERY_HOLD, record), RECOVER_HELD);
		}
}
END_TEST

START_TEST(the_first_resend_is_at_once_and_later_ones_after_a_growing_pause)
{
	static const int64_t gaps[] = { [2] = 1000, [3] = 2000, [4] = 4000 };
	struct recovery_settings settings = contract(RECOVERY_RESEND);
	struct recovery_case record = fresh;

	ck_assert_int_eq(recovery_of(&settings, &record).what, RECOVER_RESEND);
	for (unsigned generation = 2; generation < 5; generation++) {
		struct recovery_ruling ruling;

		record.generation = generation;
		record.tried_ms = gaps[generation] - 1;
		ruling = recovery_of(&settings, &record);
		ck_assert_int_eq(ruling.what, RECOVER_HELD);
		ck_assert_int_eq(ruling.again_ms, 1);
		record.tried_ms = gaps[generation];
		ck_assert_int_eq(recovery_of(&settings, &record).what, RECOVER_RESEND);
	}
	settings.max_attempts = 100;
	record.generation = 99;
	record.tried_ms = 59999;
	ck_assert_int_eq(recovery_of(&settings, &record).what, RECOVER_HELD);
	record.tried_ms = 60000; /* it does not grow for ever */
	ck_assert_int_eq(recovery_of(&settings, &record).what, RECOVER_RESEND);
}
END_TEST

START_TEST(attempts_and_time_are_bounded_and_the_bytes_are_the_same)
{
	struct recovery_settings settings = contract(RECOVERY_RESEND);
	struct recovery_case record = fresh;

	record.generation = 5;
	record.tried_ms = HOUR;
	ck_assert_int_eq(recovery_of(&settings, &record).what, RECOVER_HELD);
	ck_assert_int_eq(recovery_of(&settings, &record).again_ms, 0);
	record = fresh;
	record.age_ms = 24 * HOUR;
	ck_assert_int_eq(recovery_of(&settings, &record).what, RECOVER_HELD);
	record.age_ms = 24 * HOUR - 1;
	ck_assert_int_eq(recovery_of(&settings, &record).what, RECOVER_RESEND);
	record.age_ms = -5000; /* as far apart may two clocks be */
	ck_assert_int_eq(recovery_of(&settings, &record).what, RECOVER_RESEND);
	record.age_ms = -5001; /* a clock that went back: nobody knows how old it is */
	ck_assert_int_eq(recovery_of(&settings, &record).what, RECOVER_HELD);
	record = fresh;
	record.same_raw = false;
	ck_assert_int_eq(recovery_of(&settings, &record).what, RECOVER_HELD);
}
END_TEST

START_TEST(a_lookup_sends_nothing)
{
	ck_assert_int_eq(ruled(RECOVERY_LOOKUP, fresh), RECOVER_LOOK_UP);
}
END_TEST

START_TEST(only_a_first_attempt_that_left_no_end_is_begun_again)
{
	struct recovery_case record = fresh;

	ck_assert_int_eq(ruled(RECOVERY_AT_LEAST_ONCE, record), RECOVER_HELD);
	record.stale = true;
	ck_assert_int_eq(ruled(RECOVERY_AT_LEAST_ONCE, record), RECOVER_BEGIN_AGAIN);
	record.generation = 2; /* of an earlier contract */
	ck_assert_int_eq(ruled(RECOVERY_AT_LEAST_ONCE, record), RECOVER_HELD);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("recovery");
	TCase *t = tcase_create("contracts");

	tcase_add_test(t, held_is_held_whatever_the_case);
	tcase_add_test(t, the_first_resend_is_at_once_and_later_ones_after_a_growing_pause);
	tcase_add_test(t, attempts_and_time_are_bounded_and_the_bytes_are_the_same);
	tcase_add_test(t, a_lookup_sends_nothing);
	tcase_add_test(t, only_a_first_attempt_that_left_no_end_is_begun_again);
	suite_add_tcase(s, t);
	return run_suite(s);
}
