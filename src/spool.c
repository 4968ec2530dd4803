/*
 * The directory of a spool and the thread that writes it; see spool.h. One file an answer:
 *
 *   RUN-OPID-GENERATION.answer      whole and synced, and its name is, too
 *   RUN-OPID-GENERATION.new         being written, or cut off by a crash
 *   *.bad                           set aside: it could not be read, or the ledger does not want it
 *   lock                            held as long as a process uses the directory
 *
 * RUN is new with each process: files of another run have been left behind, and are read by
 * spool_left.c. Several writes that were told together share one sync of the directory.
 *
 * What is put is held in memory until it is on disk; how much that may be is its owner's to bound.
 */
#include "spool_internal.h"

#include "digest.h"
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Something to write (bytes), or to remove (none). */
struct job {
	struct list link;
	int64_t op_id;
	unsigned generation;
	struct buf bytes;
};

static void name_of(const struct spool *spool, const struct job *job, const char *ending,
		    char name[SPOOL_NAME])
{
	snprintf(name, SPOOL_NAME, "%s-%016" PRIx64 "-%u.%s", spool->run, (uint64_t)job->op_id,
		 job->generation, ending);
}

static bool write_all(int fd, struct span bytes)
{
	while (bytes.len) {
		ssize_t n = write(fd, bytes.at, bytes.len);

		if (n < 0 && errno != EINTR)
			return false;
		if (n > 0) {
			bytes.at += n;
			bytes.len -= (size_t)n;
		}
	}
	return true;
}

/* Under its name for unfinished ones, synced. False: errno says why, and there is no such file. */
static bool write_new(const struct spool *spool, const struct job *job, const char *name)
{
	int fd = openat(spool->fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW,
			0600);
	int failed = 0;

	if (fd < 0)
		return false;
	if (!write_all(fd, buf_view(&job->bytes)) || fsync(fd) != 0)
		failed = errno;
	close(fd);
	if (!failed)
		return true;
	unlinkat(spool->fd, name, 0);
	errno = failed;
	return false;
}

/* A disk that is full says so once, and once when it is not any more. */
static void said(struct spool *spool, bool written)
{
	if (!written && !spool->failing)
		log_error(SPOOL_WHO, "%s: an answer cannot be kept: %s", spool->dir,
			  strerror(errno));
	if (written && spool->failing)
		log_info(SPOOL_WHO, "%s: answers can be kept again", spool->dir);
	spool->failing = !written;
}

static void write_answer(struct spool *spool, const struct job *job)
{
	char new[SPOOL_NAME];
	char name[SPOOL_NAME];

	name_of(spool, job, "new", new);
	name_of(spool, job, "answer", name);
	said(spool,
	     write_new(spool, job, new) && renameat(spool->fd, new, spool->fd, name) == 0);
}

static void do_job(struct spool *spool, const struct job *job)
{
	char name[SPOOL_NAME];

	if (job->bytes.len) {
		write_answer(spool, job);
		return;
	}
	name_of(spool, job, "answer", name);
	if (unlinkat(spool->fd, name, 0) != 0 && errno != ENOENT)
		log_warning(SPOOL_WHO, "%s/%s cannot be removed: %s", spool->dir, name,
			    strerror(errno));
}

/* In order: what is dropped was put before. The sync of the directory is for all of them. */
static size_t do_jobs(struct spool *spool, struct list *jobs)
{
	struct list *at = NULL;
	size_t n = 0;

	for (; (at = list_shift(jobs)) != NULL; n++) {
		struct job *job = container_of(at, struct job, link);

		do_job(spool, job);
		buf_fini(&job->bytes);
		mem_free(job);
	}
	if (fsync(spool->fd) != 0)
		said(spool, false);
	log_flush();
	return n;
}

static void *run(void *arg)
{
	struct spool *spool = arg;
	struct list jobs;
	size_t done = 0;

	list_init(&jobs);
	pthread_mutex_lock(&spool->lock);
	while (true) {
		spool->waiting -= done;
		while (list_empty(&spool->jobs) && !spool->closing)
			pthread_cond_wait(&spool->told, &spool->lock);
		if (list_empty(&spool->jobs))
			break;
		list_move(&jobs, &spool->jobs);
		pthread_mutex_unlock(&spool->lock);
		done = do_jobs(spool, &jobs);
		pthread_mutex_lock(&spool->lock);
	}
	pthread_mutex_unlock(&spool->lock);
	return NULL;
}

/* --- from other threads --- */

static void tell(struct spool *spool, struct job *job)
{
	pthread_mutex_lock(&spool->lock);
	list_append(&spool->jobs, &job->link);
	spool->waiting++;
	pthread_cond_signal(&spool->told);
	pthread_mutex_unlock(&spool->lock);
}

static struct job *job_new(int64_t op_id, unsigned generation)
{
	struct job *job = mem_alloc(sizeof(*job));

	list_init(&job->link);
	job->op_id = op_id;
	job->generation = generation;
	buf_init(&job->bytes, SPOOL_FILE_MAX);
	return job;
}

void spool_put(struct spool *spool, const struct spool_answer *answer)
{
	struct job *job = job_new(answer->op_id, answer->generation);

	spool_encode(answer, &job->bytes);
	tell(spool, job);
}

void spool_drop(struct spool *spool, int64_t op_id, unsigned generation)
{
	tell(spool, job_new(op_id, generation));
}

size_t spool_waiting(struct spool *spool)
{
	size_t waiting = 0;

	pthread_mutex_lock(&spool->lock);
	waiting = spool->waiting;
	pthread_mutex_unlock(&spool->lock);
	return waiting;
}

/* --- open and close --- */

/* What is kept here is nobody else's to read. */
static bool private(const struct spool *spool, char why[256])
{
	struct stat st;

	if (fstat(spool->fd, &st) != 0 || st.st_uid != geteuid()) {
		snprintf(why, 256, "ledger.spool: %s does not belong to user %u", spool->dir,
			 (unsigned)geteuid());
		return false;
	}
	if (st.st_mode & 077) {
		snprintf(why, 256,
			 "ledger.spool: %s is open to others (mode %03o): chmod 700 it",
			 spool->dir, (unsigned)st.st_mode & 0777);
		return false;
	}
	return true;
}

static bool take_lock(struct spool *spool, char why[256])
{
	spool->lock_fd =
		openat(spool->fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (spool->lock_fd >= 0 && flock(spool->lock_fd, LOCK_EX | LOCK_NB) == 0)
		return true;
	if (spool->lock_fd >= 0 && errno == EWOULDBLOCK)
		snprintf(why, 256,
			 "ledger.spool: another gateway uses %s; each needs a directory of its "
			 "own",
			 spool->dir);
	else
		snprintf(why, 256, "ledger.spool: %s cannot be locked: %s", spool->dir,
			 strerror(errno));
	return false;
}

static bool open_dir(struct spool *spool, char why[256])
{
	if (mkdir(spool->dir, 0700) == 0 || errno == EEXIST)
		spool->fd = open(spool->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (spool->fd >= 0)
		return private(spool, why) && take_lock(spool, why);
	snprintf(why, 256, "ledger.spool: %s cannot be used: %s", spool->dir, strerror(errno));
	return false;
}

static void spool_free(struct spool *spool)
{
	if (spool->lock_fd >= 0)
		close(spool->lock_fd);
	if (spool->fd >= 0)
		close(spool->fd);
	mem_free(spool->found);
	mem_free(spool->dir);
	mem_free(spool);
}

struct spool *spool_open(const char *dir, char why[256])
{
	struct spool *spool = mem_alloc(sizeof(*spool));
	uint64_t number = 0;
	int failed = 0;

	spool->fd = spool->lock_fd = -1;
	spool->dir = mem_text(span_of(dir));
	random_bytes(&number, sizeof(number));
	snprintf(spool->run, sizeof(spool->run), "%016" PRIx64, number);
	list_init(&spool->jobs);
	if (!open_dir(spool, why)) {
		spool_free(spool);
		return NULL;
	}
	pthread_mutex_init(&spool->lock, NULL);
	pthread_cond_init(&spool->told, NULL);
	failed = pthread_create(&spool->thread, NULL, run, spool);
	if (!failed)
		return spool;
	snprintf(why, 256, "ledger.spool: a thread cannot be started: %s", strerror(failed));
	spool_free(spool);
	return NULL;
}

void spool_close(struct spool *spool)
{
	pthread_mutex_lock(&spool->lock);
	spool->closing = true;
	pthread_cond_signal(&spool->told);
	pthread_mutex_unlock(&spool->lock);
	pthread_join(spool->thread, NULL);
	pthread_mutex_destroy(&spool->lock);
	pthread_cond_destroy(&spool->told);
	spool_free(spool);
}
