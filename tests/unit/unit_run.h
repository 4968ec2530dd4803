/* What a test program's main does. */
#pragma once
#include "base.h"

#include <check.h>

/* All tests of the suite; what main returns. */
static inline int run_suite(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	int failed = 0;

	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}

/* Runs one case of tests; what main returns. */
static inline int run(const char *name, const TTest *const *tests, size_t n)
{
	Suite *suite = suite_create(name);
	TCase *all = tcase_create("all");

	tcase_set_timeout(all, 120);
	for (size_t i = 0; i < n; i++)
		tcase_add_test(all, tests[i]);
	suite_add_tcase(suite, all);
	return run_suite(suite);
}
