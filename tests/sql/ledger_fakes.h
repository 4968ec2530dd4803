/*
 * Settings, metrics and the log, as a ledger sees them: what it holds, counts and says stands here
 * for the test to look at. They come before the library's, so the real ones stay out.
 */
#pragma once
#include "log.h"
#include "metrics.h"
#include "settings.h"

#include <check.h>
#include <stdarg.h>
#include <stdio.h>

static int holders;

void settings_hold(const struct settings *s)
{
	(void)s;
	holders++;
}

void settings_release(const struct settings *s)
{
	(void)s;
	holders--;
}

static int64_t gauges[METRIC_COUNT], counted[METRIC_COUNT];

void metrics_add(struct metrics *metrics, enum metric metric, unsigned label, uint64_t n)
{
	(void)metrics;
	(void)label;
	counted[metric] += (int64_t)n;
}

void metrics_set(struct metrics *metrics, enum metric metric, unsigned label, int64_t value)
{
	(void)metrics;
	(void)label;
	gauges[metric] = value;
}

void metrics_observe(struct metrics *metrics, enum metric metric, unsigned label,
		     int64_t microseconds)
{
	(void)metrics;
	(void)label;
	ck_assert_int_ge(microseconds, 0);
	counted[metric]++;
}

void metrics_observe_count(struct metrics *metrics, enum metric metric, unsigned label,
			   uint64_t n)
{
	(void)metrics;
	(void)label;
	(void)n;
	counted[metric]++;
}

const char *metrics_stop_name(enum metrics_stop reason)
{
	static const char *const names[STOP_COUNT] = {
		"duplicate_effect", "late_effect", "replay_mismatch", "history_lost",
		"unknown_age",      "operator",    "other",
	};

	return names[reason];
}

static char logged[65536]; /* the first of what was said */
static unsigned errors;    /* lines of that level */

__attribute__((format(printf, 3, 0))) static void log_put(const char *level, const char *who,
							  const char *format, va_list args)
{
	size_t n = strlen(logged);
	char line[512];

	vsnprintf(line, sizeof(line), format, args);
	snprintf(logged + n, sizeof(logged) - n, "%s %s: %s\n", level, who, line);
}

#define LOG_FAKE(name, word, counts)                                                           \
	void name(const char *who, const char *format, ...)                                    \
	{                                                                                      \
		va_list args;                                                                  \
                                                                                               \
		va_start(args, format);                                                        \
		log_put(word, who, format, args);                                              \
		va_end(args);                                                                  \
		errors += (counts);                                                            \
	}
LOG_FAKE(log_error, "error", 1)
LOG_FAKE(log_warning, "warning", 0)
LOG_FAKE(log_info, "info", 0)
LOG_FAKE(log_debug, "debug", 0)

void log_flush(void)
{
}

static inline void log_says(const char *words)
{
	ck_assert_msg(strstr(logged, words) != NULL, "not logged: %s\n%s", words, logged);
}

static inline void nothing_went_wrong(void)
{
	ck_assert_msg(errors == 0, "%s", logged);
}
