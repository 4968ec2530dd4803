/*
 * What earlier processes left in the directory: listed, read, and removed by whoever settles it. A
 * file that cannot be read is kept under another name; nothing is thrown away unread.
 */
#include "spool_internal.h"

#include "log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOUND_MAX 100000U /* names a look; what is beyond comes with a later one */
#define BAD       ".bad"

static bool ends(struct span name, struct span ending)
{
	return name.len > ending.len &&
	       memcmp(name.at + name.len - ending.len, ending.at, ending.len) == 0;
}

/* One that was cut off while it was written is listed as well: it may be whole. */
static bool left(const struct spool *spool, struct span name)
{
	return name.len + strlen(BAD) < SPOOL_NAME &&
	       strncmp(name.at, spool->run, strlen(spool->run)) != 0 &&
	       (ends(name, SPAN(".answer")) || ends(name, SPAN(".new")));
}

static int by_name(const void *a, const void *b)
{
	return strcmp(a, b);
}

static void add(struct spool *spool, struct span name)
{
	if ((spool->n_found & (spool->n_found - 1)) == 0) /* a power of two: it is full */
		spool->found = mem_resize(spool->found, (spool->n_found * 2 + 1) * SPOOL_NAME);
	memcpy(spool->found[spool->n_found], name.at, name.len);
	spool->found[spool->n_found++][name.len] = 0;
}

size_t spool_look(struct spool *spool)
{
	int fd = openat(spool->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	const struct dirent *entry = NULL;

	spool->n_found = spool->next = 0;
	if (!dir) {
		log_warning(SPOOL_WHO, "%s cannot be looked at: %s", spool->dir,
			    strerror(errno));
		if (fd >= 0)
			close(fd);
		return 0;
	}
	while (spool->n_found < FOUND_MAX && (entry = readdir(dir)) != NULL)
		if (left(spool, span_of(entry->d_name)))
			add(spool, span_of(entry->d_name));
	closedir(dir);
	if (spool->n_found)
		qsort(spool->found, spool->n_found, SPOOL_NAME, by_name);
	return spool->n_found;
}

bool spool_next(struct spool *spool, char name[SPOOL_NAME])
{
	if (spool->next == spool->n_found)
		return false;
	memcpy(name, spool->found[spool->next++], SPOOL_NAME);
	return true;
}

static bool read_all(int fd, struct buf *bytes)
{
	struct stat st;
	char *at = NULL;
	ssize_t n = 1;

	if (fstat(fd, &st) != 0)
		return false;
	at = buf_reserve(bytes, (size_t)st.st_size + 1);
	while (at && n > 0) {
		n = read(fd, bytes->at + bytes->len, (size_t)st.st_size + 1 - bytes->len);
		if (n > 0)
			bytes->len += (size_t)n;
	}
	return n == 0 || !at;
}

enum spool_read spool_read(struct spool *spool, const char *name, struct buf *bytes,
			   struct spool_answer *answer, const char **why)
{
	int fd = openat(spool->fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	bool whole = false;

	buf_init(bytes, SPOOL_FILE_MAX);
	if (fd < 0) {
		*why = strerror(errno);
		return errno == ENOENT ? SPOOL_GONE : errno == ELOOP ? SPOOL_BAD : SPOOL_LATER;
	}
	whole = read_all(fd, bytes);
	close(fd);
	if (!whole) {
		*why = strerror(errno);
		return SPOOL_LATER;
	}
	return spool_decode(buf_view(bytes), answer, why) ? SPOOL_READ : SPOOL_BAD;
}

void spool_remove(struct spool *spool, const char *name)
{
	if (unlinkat(spool->fd, name, 0) != 0 && errno != ENOENT)
		log_warning(SPOOL_WHO, "%s/%s cannot be removed: %s", spool->dir, name,
			    strerror(errno));
}

void spool_set_aside(struct spool *spool, const char *name, const char *why)
{
	char bad[SPOOL_NAME + sizeof(BAD)];

	snprintf(bad, sizeof(bad), "%s" BAD, name);
	if (renameat(spool->fd, name, spool->fd, bad) == 0)
		log_error(SPOOL_WHO, "%s/%s is kept and not settled: %s", spool->dir, bad, why);
	else
		log_error(SPOOL_WHO, "%s/%s is not settled (%s) and cannot be renamed: %s",
			  spool->dir, name, why, strerror(errno));
}
