/*
 * The log: one JSON object a line on standard error, or text for people (CONTRACT 18).
 * Lines are gathered per thread and leave whole; a thread flushes at the end of its turn, and
 * a warning or an error leaves at once. Never logged: bodies, keys, credentials, query strings.
 */
#pragma once
#include "base.h"

enum log_level { LOG_ERROR, LOG_WARNING, LOG_INFO, LOG_DEBUG };
enum log_format { LOG_JSON, LOG_TEXT };

/* May be called again (a reload). Before the first call: text, info. */
void log_configure(enum log_format format, enum log_level level);
bool log_enabled(enum log_level level);

/* About whom: "ledger", "upstream orders", "worker 2". Then a sentence. */
void log_error(const char *who, const char *format, ...) PRINTF_LIKE(2, 3);
void log_warning(const char *who, const char *format, ...) PRINTF_LIKE(2, 3);
void log_info(const char *who, const char *format, ...) PRINTF_LIKE(2, 3);
void log_debug(const char *who, const char *format, ...) PRINTF_LIKE(2, 3);

/*
 * A line of fields, as the access log has: begin, fields, end. No other line may be written by
 * this thread in between. Names are words of [a-z_]; a field that is too long is cut, and a line
 * that has no room for a field goes without it; both say so by a last field `cut`.
 */
void log_line_begin(enum log_level level, const char *event);
void log_line_text(const char *name, struct span value);
void log_line_number(const char *name, int64_t value);
void log_line_ms(const char *name, int64_t microseconds); /* as milliseconds with 3 decimals */
void log_line_flag(const char *name, bool value);
void log_line_end(void);

void log_flush(void); /* what this thread has gathered */
/* Lines that nobody took: standard error was closed, or stayed full. */
uint64_t log_lost(void);
