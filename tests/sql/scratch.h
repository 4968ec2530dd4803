/*
 * A throw-away PostgreSQL for a test program (scripts/scratch-pg), with the ledger's tables.
 * main() is run_on_scratch, or scratch_start before Check runs and scratch_stop behind it. A test that runs from
 * elsewhere than the tree's root says where that is in ONCEWARD_ROOT.
 */
#pragma once
#include "schema.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static char scratch_dir[64];
static int scratch_port =
	5432; /* a test that wants TCP sets another one, before scratch_start */
static char scratch_conninfo[128];

/* As an assert that says more; works outside of a test, too. */
static inline void scratch_need(bool good, const char *what, const char *why)
{
	if (good)
		return;
	fprintf(stderr, "%s: %s\n", what, why);
	abort();
}

static inline int scratch_script(const char *what, const char *more)
{
	const char *root = getenv("ONCEWARD_ROOT");
	char command[512];

	snprintf(command, sizeof(command), "PGPORT=%d %s/scripts/scratch-pg %s %s %s",
		 scratch_port, root ? root : ".", what, scratch_dir, more);
	return system(command);
}

static inline struct pg_session *scratch_open(const char *conninfo)
{
	char why[256] = "";
	struct pg_session *session = pg_session_open(conninfo, 10000, why);

	scratch_need(session != NULL, conninfo, why);
	return session;
}

/* Who reckons with days begins early enough in one (UTC), so that it does not end meanwhile. */
static inline void scratch_same_day(void)
{
	while (86400 - time(NULL) % 86400 <= 20)
		sleep(1);
}

/* Runs statements whose rows nobody wants. */
static inline void scratch_run(struct pg_session *session, const char *sql)
{
	char why[256] = "";
	struct pg_rows *rows = pg_session_run(session, sql, NULL, 0, why);

	scratch_need(rows != NULL, sql, why);
	pg_rows_free(rows);
}

/* The same on a session of its own. */
static inline void scratch_do(const char *sql)
{
	struct pg_session *session = scratch_open(scratch_conninfo);

	scratch_run(session, sql);
	pg_session_close(session);
}

/* The first column of the first row, as a number; -1 where there is no row. */
static inline long scratch_number(const char *sql)
{
	char why[256] = "", text[32];
	struct pg_session *session = scratch_open(scratch_conninfo);
	struct pg_rows *rows = pg_session_run(session, sql, NULL, 0, why);
	struct span value = { NULL, 0 };
	long number = -1;

	scratch_need(rows != NULL, sql, why);
	if (pg_rows_count(rows) > 0) {
		value = pg_text(rows, 0, 0);
		snprintf(text, sizeof(text), "%.*s", (int)value.len, value.at ? value.at : "");
		number = strtol(text, NULL, 10);
	}
	pg_rows_free(rows);
	pg_session_close(session);
	return number;
}

static inline void scratch_migrate(void)
{
	char why[256] = "";
	struct pg_session *session = scratch_open(scratch_conninfo);
	struct buf out;

	buf_init(&out, 65536);
	scratch_need(schema_migrate(session, 3, &out, why), "migrate", why);
	buf_fini(&out);
	pg_session_close(session);
}

/* However the test program ends, the server ends too: a child waits for that, on a pipe. */
static inline void scratch_outlive(void)
{
	int ends[2];
	char none = 0;

	scratch_need(pipe2(ends, O_CLOEXEC) == 0, "pipe", "failed");
	if (fork() != 0) {
		close(ends[0]);
		return;
	}
	setsid();
	close(ends[1]);
	(void)!read(ends[0], &none, 1);
	_exit(scratch_script("stop", "> /dev/null 2>&1"));
}

/* `more`: further settings of the server, "-c NAME=VALUE ...". */
static inline void scratch_start(const char *more)
{
	snprintf(scratch_dir, sizeof(scratch_dir), "/tmp/onceward-test.%d", (int)getpid());
	snprintf(scratch_conninfo, sizeof(scratch_conninfo),
		 "host=%s port=%d user=onceward dbname=onceward", scratch_dir, scratch_port);
	pg_ignore_environment();
	/* what a test of the same number has left, should somebody have killed all of it */
	(void)!scratch_script("stop", "> /dev/null 2>&1");
	if (scratch_script("start", more) != 0) {
		fprintf(stderr, "no PostgreSQL to test with\n");
		exit(1);
	}
	scratch_outlive();
}

static inline void scratch_stop(void)
{
	(void)!scratch_script("stop", "");
}

/* All tests of the suite on a server with tables; `more`: as for scratch_start. What main returns. */
static inline int run_on_scratch(Suite *suite, const char *more)
{
	SRunner *runner = NULL;
	int failed = 0;

	scratch_start(more);
	scratch_migrate();
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	scratch_stop();
	return failed ? 1 : 0;
}
