/*
 * Reads files of secrets. Whose a file is is asked of the open file and not of its name, so that
 * what was looked at is what is read. A sentence about a file never holds anything of its text.
 */
#include "secret_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* What is wrong with the file itself; true: nothing. */
static bool file_private(int fd, const char *file, char why[256])
{
	struct stat st;

	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
		snprintf(why, 256, "%s is not a regular file", file);
		return false;
	}
	if (st.st_uid != geteuid()) {
		snprintf(why, 256,
			 "%s belongs to user %u and the gateway runs as user %u: chown it",
			 file, (unsigned)st.st_uid, (unsigned)geteuid());
		return false;
	}
	if (st.st_mode & 077) {
		snprintf(why, 256, "%s is open to others (mode %03o): chmod 600 it", file,
			 (unsigned)st.st_mode & 0777);
		return false;
	}
	return true;
}

static bool read_all(int fd, const char *file, struct buf *text, char why[256])
{
	ssize_t n = 1;

	while (n > 0) {
		char *at = buf_reserve(text, 4096);
		if (!at) {
			snprintf(why, 256, "%s is larger than %zu bytes", file, text->max);
			return false;
		}
		n = read(fd, at, 4096);
		if (n < 0 && errno == EINTR)
			n = 1;
		else if (n > 0)
			text->len += (size_t)n;
	}
	if (n < 0)
		snprintf(why, 256, "cannot read %s: %s", file, strerror(errno));
	return n == 0;
}

bool secret_file_read(const char *file, struct buf *text, char why[256])
{
	int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	bool whole = false;

	if (fd < 0) {
		snprintf(why, 256, "cannot open %s: %s", file, strerror(errno));
		return false;
	}
	whole = file_private(fd, file, why) && read_all(fd, file, text, why);
	close(fd);
	return whole;
}

static bool one_of(char c, const char *any)
{
	return c != 0 && strchr(any, c);
}

/* Takes what is before the separator off the front; the separator goes, too. */
static struct span take(struct span *in, const char *separators)
{
	struct span part = { in->at, 0 };

	while (part.len < in->len && !one_of(in->at[part.len], separators))
		part.len++;
	in->at += part.len;
	in->len -= part.len;
	if (in->len > 0) {
		in->at++;
		in->len--;
	}
	return part;
}

struct span secret_file_line(struct span *text)
{
	return take(text, "\n");
}

struct span secret_file_word(struct span *line)
{
	struct span word = { NULL, 0 };

	while (word.len == 0 && line->len > 0)
		word = take(line, " \t\r");
	return word;
}
