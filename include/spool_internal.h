/* What the files of the spool share; nobody else includes it. */
#pragma once
#include "spool.h"

#include <pthread.h>

#define SPOOL_WHO "spool"
#define SPOOL_FILE_MAX                                                                         \
	((size_t)1280 * 1024 * 1024) /* the largest answer that can be kept, and more */

struct spool {
	char *dir;
	int fd, lock_fd; /* of the directory, and of its lock */
	char run[17];    /* this process, in names of files */
	pthread_t thread;
	pthread_mutex_t lock; /* of the following */
	pthread_cond_t told;
	struct list jobs;
	size_t waiting; /* jobs, those that the thread has taken included */
	bool closing;
	/* the thread's */
	bool failing;
	/* of whoever settles what was left */
	char (*found)[SPOOL_NAME];
	size_t n_found, next;
};
