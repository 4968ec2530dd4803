/*
 * The line that a request leaves in the log: who asked for what, what came of it, and how long each
 * step took. Never a body, a credential or a query, and of a key only the first digits of its hash
 * (CONTRACT 18).
 */
#include "access_line.h"

#include "log.h"

#include <stdio.h>

static const char *operation_of(const struct served *served)
{
	if (served->route && served->route->idempotency)
		return served->route->idempotency->operation;
	return NULL;
}

/* The trace id of a W3C traceparent: version-traceid-parentid-flags. */
static struct span trace_id(const struct http_request *request)
{
	const struct http_field *field = http_find(&request->fields, SPAN("traceparent"), NULL);

	if (!field || field->value.len < 35 || field->value.at[2] != '-' ||
	    field->value.at[35 < field->value.len ? 35 : 34] == 0)
		return (struct span){ NULL, 0 };
	return (struct span){ field->value.at + 3, 32 };
}

static void log_text(const char *name, struct span value)
{
	if (value.len)
		log_line_text(name, value);
}

static void log_step(const char *name, int64_t took_us)
{
	if (took_us)
		log_line_ms(name, took_us);
}

void access_line(const struct served *served, int64_t took_us)
{
	const struct http_request *request = &served->request;
	char key[13] = "";

	if (served->key_hash)
		for (int i = 0; i < 6; i++)
			snprintf(key + 2 * (size_t)i, 3, "%02x", (unsigned)served->key_hash[i]);
	log_line_begin(LOG_INFO, "request");
	log_text("request_id", served->request_id);
	log_text("trace_id", trace_id(request));
	log_line_text("peer", request->peer);
	log_line_text("method", request->method);
	log_line_text("path", request->path);
	log_text("operation", span_of(operation_of(served)));
	log_text("key_hash", span_of(key));
	log_line_text("verdict", span_of(verdict_name(served->verdict)));
	log_line_number("status", served->status);
	log_line_number("bytes_in", (int64_t)request->body.len);
	log_line_number("bytes_out", (int64_t)served->sent_bytes);
	log_line_ms("ms", took_us);
	log_step("ms_reserve", served->reserve_us);
	log_step("ms_forward", served->forward_us);
	log_step("ms_settle", served->settle_us);
	if (listener_gone(request))
		log_line_flag("client_gone", true);
	log_text("cause", span_of(served->cause));
	log_line_end();
}
