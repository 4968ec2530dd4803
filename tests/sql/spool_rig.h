/* A spool in a directory of the test's own, beside the ledger's rig; and the files in it. */
#pragma once
#include "ledger_rig.h"
#include "spool.h"

#include <dirent.h>

static char spool_dir[64];
static struct spool *spool;

static inline struct spool *spool_at(const char *dir)
{
	char why[256] = "";
	struct spool *opened = spool_open(dir, why);

	ck_assert_msg(opened != NULL, "%s", why);
	return opened;
}

static inline void set_up_spool(void)
{
	set_up();
	snprintf(spool_dir, sizeof(spool_dir), "/tmp/onceward-spool.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(spool_dir));
	spool = spool_at(spool_dir);
}

static inline void tear_down_spool(void)
{
	char command[128];

	tear_down();
	if (spool)
		spool_close(spool);
	snprintf(command, sizeof(command), "rm -rf %s*", spool_dir);
	ck_assert_int_eq(system(command), 0);
}

static inline struct ledger *ledger_with_spool(void)
{
	struct ledger *ledger = ledger_open();

	ledger_spool(ledger, spool);
	return ledger;
}

/* What is told is done. */
static inline void spool_settled(void)
{
	while (spool_waiting(spool))
		usleep(1000);
}

static inline int files_at(const char *dir, const char *ending)
{
	DIR *open = opendir(dir);
	const struct dirent *entry = NULL;
	int n = 0;

	ck_assert_ptr_nonnull(open);
	while ((entry = readdir(open)) != NULL) {
		size_t len = strlen(entry->d_name);

		n += len > strlen(ending) &&
		     strcmp(entry->d_name + len - strlen(ending), ending) == 0;
	}
	closedir(open);
	return n;
}

/* In the spool, when what is told is done. */
static inline int files(const char *ending)
{
	spool_settled();
	return files_at(spool_dir, ending);
}
