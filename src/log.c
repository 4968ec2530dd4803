/*
 * The log. A line is composed at the end of what its thread has gathered, so it is copied once,
 * by write(). All threads' writes go one after the other under a lock that is held for a bounded
 * time: lines never mix, and a reader that stops reading cannot stop the gateway. What standard
 * error does not take in time is dropped and counted, and said once it takes something again.
 */
#include "log.h"

#include "escape.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define GATHERED_MAX ((size_t)64 * 1024)
#define LINE_MAX_    ((size_t)8 * 1024)
#define MESSAGE_MAX  ((size_t)4 * 1024)
#define LINE_TAIL    sizeof(",\"cut\":true}\n")
#define PATIENCE_MS  50 /* how long a full standard error is waited for */

static const char *const level_names[] = { "error", "warning", "info", "debug" };

static atomic_int configured_format = LOG_TEXT;
static atomic_int configured_level = LOG_INFO;

/* What one thread has gathered; the line that is being composed begins at `line`. */
static _Thread_local struct {
	char at[GATHERED_MAX];
	size_t len, lines;
	size_t line;
	enum log_level level;
	bool json, open, cut;
	time_t second; /* the time of `stamp` */
	char stamp[sizeof("2000-01-01T00:00:00")];
} mine;

static struct {
	pthread_mutex_t lock;
	int fd;
	bool opened, socket;
	bool torn; /* the last write ended inside a line */
	uint64_t said;
	atomic_uint_fast64_t lost;
} out = { .lock = PTHREAD_MUTEX_INITIALIZER };

/*
 * A pipe's or a terminal's own, non-blocking description of standard error: O_NONBLOCK on the
 * shared one would change it for the shell and everybody else who has it.
 */
static void open_out(void)
{
	struct stat st;

	out.opened = true;
	out.fd = STDERR_FILENO;
	if (fstat(STDERR_FILENO, &st) != 0)
		return;
	out.socket = S_ISSOCK(st.st_mode);
	if (S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode)) {
		int fd = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
		out.fd = fd >= 0 ? fd : STDERR_FILENO;
	}
}

static ssize_t write_once(const char *at, size_t len)
{
	if (out.socket)
		return send(out.fd, at, len, MSG_DONTWAIT | MSG_NOSIGNAL);
	return write(out.fd, at, len);
}

/* The number of bytes that went; fewer than `len` where patience or the reader came to an end. */
static size_t write_out(const char *at, size_t len)
{
	size_t done = 0;
	bool waited = false;

	while (done < len) {
		ssize_t n = write_once(at + done, len - done);
		if (n > 0) {
			done += (size_t)n;
		} else if (n < 0 && errno == EINTR) {
			continue;
		} else if (n < 0 && errno == EAGAIN && !waited) {
			struct pollfd full = { .fd = out.fd, .events = POLLOUT };
			waited = true;
			poll(&full, 1, PATIENCE_MS);
		} else {
			break;
		}
	}
	return done;
}

static size_t count_lines(const char *at, size_t len)
{
	size_t lines = 0;

	for (size_t i = 0; i < len; i++)
		lines += at[i] == '\n';
	return lines;
}

static void lose(size_t lines)
{
	atomic_fetch_add_explicit(&out.lost, lines, memory_order_relaxed);
}

/* Ends the half of a line that an earlier write left behind. */
static bool mend(void)
{
	if (out.torn && write_out("\n", 1) == 1)
		out.torn = false;
	return !out.torn;
}

/* Did all of it go? */
static bool flush_locked(void)
{
	size_t done = 0, len = mine.len;

	if (!out.opened)
		open_out();
	if (mend())
		done = write_out(mine.at, mine.len);
	lose(mine.lines - count_lines(mine.at, done));
	if (done > 0)
		out.torn = mine.at[done - 1] != '\n';
	mine.len = mine.lines = 0;
	return done == len;
}

static void say_losses(void);

void log_flush(void)
{
	int saved = errno;

	assert(!mine.open);
	if (mine.len == 0)
		return;
	pthread_mutex_lock(&out.lock);
	if (flush_locked())
		say_losses();
	pthread_mutex_unlock(&out.lock);
	errno = saved;
}

uint64_t log_lost(void)
{
	return atomic_load_explicit(&out.lost, memory_order_relaxed);
}

void log_configure(enum log_format format, enum log_level level)
{
	atomic_store_explicit(&configured_format, (int)format, memory_order_relaxed);
	atomic_store_explicit(&configured_level, (int)level, memory_order_relaxed);
}

bool log_enabled(enum log_level level)
{
	return (int)level <= atomic_load_explicit(&configured_level, memory_order_relaxed);
}

/* Is there room for so much more in this line, and for its end? */
static bool room(size_t len)
{
	bool fits = mine.len - mine.line + len + LINE_TAIL <= LINE_MAX_;

	if (!fits)
		mine.cut = true;
	return fits;
}

static void put(const char *bytes, size_t len)
{
	memcpy(mine.at + mine.len, bytes, len);
	mine.len += len;
}

static void put_text(const char *text)
{
	put(text, strlen(text));
}

static void put_escaped(struct span text, bool quoted)
{
	char piece[ESCAPE_MAX];

	while (text.len > 0 && room(ESCAPE_MAX + 1))
		put(piece, escape_next(&text, quoted, piece));
}

static void put_quoted(struct span text)
{
	put("\"", 1);
	put_escaped(text, true);
	put("\"", 1);
}

/* May people read it without quotes? */
static bool plain(struct span text)
{
	for (size_t i = 0; i < text.len; i++) {
		char c = text.at[i];
		if (c <= 0x20 || c >= 0x7f || c == '"' || c == '\\' || c == '=')
			return false;
	}
	return text.len > 0;
}

static void put_time(void)
{
	struct timespec now;
	struct tm utc;
	char fraction[16];

	clock_gettime(CLOCK_REALTIME, &now);
	if (now.tv_sec != mine.second && gmtime_r(&now.tv_sec, &utc)) {
		strftime(mine.stamp, sizeof(mine.stamp), "%Y-%m-%dT%H:%M:%S", &utc);
		mine.second = now.tv_sec;
	}
	put_text(mine.stamp);
	snprintf(fraction, sizeof(fraction), ".%03uZ", (unsigned)(now.tv_nsec / 1000000));
	put_text(fraction);
}

static void begin(enum log_level level)
{
	assert(!mine.open);
	if (mine.len + LINE_MAX_ > GATHERED_MAX)
		log_flush();
	mine.open = true;
	mine.cut = false;
	mine.line = mine.len;
	mine.level = level;
	mine.json = atomic_load_explicit(&configured_format, memory_order_relaxed) == LOG_JSON;
	put_text(mine.json ? "{\"time\":\"" : "");
	put_time();
	put_text(mine.json ? "\",\"level\":\"" : " ");
	put_text(level_names[level]);
	put_text(mine.json ? "\"" : "");
}

static void end(void)
{
	if (mine.cut)
		put_text(mine.json ? ",\"cut\":true" : " cut");
	put_text(mine.json ? "}\n" : "\n");
	mine.lines++;
	mine.open = false;
}

static bool put_name(const char *name)
{
	size_t len = strlen(name);

	if (!mine.open ||
	    !room(len + 4 + 32)) /* and a number, or quotes with something between */
		return false;
	put_text(mine.json ? ",\"" : " ");
	put(name, len);
	put_text(mine.json ? "\":" : "=");
	return true;
}

/* For people a message stands there as it is, behind whom it is about. */
static void put_message(const char *who, struct span message)
{
	if (mine.json) {
		log_line_text("who", span_of(who));
		log_line_text("message", message);
		return;
	}
	put_text(" ");
	put_escaped(span_of(who), false);
	put_escaped(SPAN(": "), false);
	put_escaped(message, false);
}

__attribute__((format(printf, 3, 0))) static void say(enum log_level level, const char *who,
						      const char *format, va_list args)
{
	char message[MESSAGE_MAX];
	int len = vsnprintf(message, sizeof(message), format, args);
	struct span text = { message, len < 0 ? 0 : (size_t)len };

	begin(level);
	if (text.len >= sizeof(message)) {
		text.len = sizeof(message) - 1;
		mine.cut = true;
	}
	put_message(who, text);
	end();
}

/* Under the lock, behind a write that went well: a line of its own, from this thread. */
static void say_losses(void)
{
	uint64_t lost = log_lost();
	char message[96];

	if (lost == out.said)
		return;
	snprintf(message, sizeof(message), "standard error did not take %llu lines",
		 (unsigned long long)(lost - out.said));
	begin(LOG_WARNING);
	put_message("log", span_of(message));
	end();
	out.said = lost;
	(void)flush_locked();
}

#define SAY(level, urgent)                                                                     \
	do {                                                                                   \
		va_list args;                                                                  \
		if (!log_enabled(level))                                                       \
			return;                                                                \
		va_start(args, format);                                                        \
		say(level, who, format, args);                                                 \
		va_end(args);                                                                  \
		if (urgent)                                                                    \
			log_flush();                                                           \
	} while (0)

void log_error(const char *who, const char *format, ...)
{
	SAY(LOG_ERROR, true);
}

void log_warning(const char *who, const char *format, ...)
{
	SAY(LOG_WARNING, true);
}

void log_info(const char *who, const char *format, ...)
{
	SAY(LOG_INFO, false);
}

void log_debug(const char *who, const char *format, ...)
{
	SAY(LOG_DEBUG, false);
}

/* Where the level is not wanted the line is not open, and its fields find that out. */
void log_line_begin(enum log_level level, const char *event)
{
	assert(!mine.open);
	if (!log_enabled(level))
		return;
	begin(level);
	if (mine.json) {
		log_line_text("event", span_of(event));
		return;
	}
	put_text(" ");
	put_escaped(span_of(event), false);
}

void log_line_text(const char *name, struct span value)
{
	if (!put_name(name))
		return;
	if (mine.json || !plain(value))
		put_quoted(value);
	else
		put_escaped(value, false);
}

void log_line_number(const char *name, int64_t value)
{
	char digits[32];

	if (!put_name(name))
		return;
	snprintf(digits, sizeof(digits), "%lld", (long long)value);
	put_text(digits);
}

void log_line_ms(const char *name, int64_t microseconds)
{
	char digits[32];
	uint64_t us = microseconds < 0 ? 0 - (uint64_t)microseconds : (uint64_t)microseconds;

	if (!put_name(name))
		return;
	snprintf(digits, sizeof(digits), "%s%llu.%03u", microseconds < 0 ? "-" : "",
		 (unsigned long long)(us / 1000), (unsigned)(us % 1000));
	put_text(digits);
}

void log_line_flag(const char *name, bool value)
{
	if (put_name(name))
		put_text(value ? "true" : "false");
}

void log_line_end(void)
{
	if (!mine.open)
		return;
	end();
	if (mine.level <= LOG_WARNING)
		log_flush();
}
