/* The main of a test program whose tests are one case. */
#pragma once
#include "base.h"

#include <check.h>

/* Runs one case of tests; what main returns. */
static inline int run(const char *name, const TTest *const *tests, size_t n)
{
	Suite *suite = suite_create(name);
	TCase *all = tcase_create("all");
	SRunner *runner = NULL;
	int failed = 0;

	tcase_set_timeout(all, 120);
	for (size_t i = 0; i < n; i++)
		tcase_add_test(all, tests[i]);
	suite_add_tcase(suite, all);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}
