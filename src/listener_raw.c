/*
 * Answers without the HTTP library. It takes an answer only before a body or after its end; a
 * body that never ends, a head that does not come, a connection over the limit: these get their
 * answer here, straight on the socket, and the connection closes behind it.
 *
 * Nothing was written on the socket before, so it takes an answer of some kilobytes at once.
 * What it does not take is not sent: the client sees a cut answer, and the record is complete.
 */
#include "listener_raw.h"

#include <sys/socket.h>
#include <time.h>

#define RAW_MAX ((size_t)4 * 1024 * 1024)

bool listener_own_field(struct span name)
{
	static const struct span own[] = {
		{ "Connection", 10 },
		{ "Content-Length", 14 },
		{ "Keep-Alive", 10 },
		{ "Transfer-Encoding", 17 },
	};

	for (size_t i = 0; i < ARRAY_LEN(own); i++)
		if (http_same_name(name, own[i]))
			return true;
	return false;
}

static void put_head(struct buf *out, const struct http_answer *answer)
{
	char date[HTTP_DATE_BYTES] = "";

	buf_format(out, "HTTP/1.1 %u %s\r\n", answer->status, http_reason(answer->status));
	if (!http_find(&answer->fields, SPAN("Date"), NULL)) {
		http_date((int64_t)time(NULL), date);
		buf_format(out, "Date: %s\r\n", date);
	}
	for (size_t i = 0; i < answer->fields.n; i++) {
		if (listener_own_field(answer->fields.at[i].name))
			continue;
		buf_span(out, answer->fields.at[i].name);
		buf_text(out, ": ");
		buf_span(out, answer->fields.at[i].value);
		buf_text(out, "\r\n");
	}
	buf_format(out, "Content-Length: %zu\r\nConnection: close\r\n\r\n", answer->body.len);
}

void listener_raw(int fd, const struct http_answer *answer)
{
	struct buf out;

	buf_init(&out, RAW_MAX);
	put_head(&out, answer);
	buf_span(&out, answer->body);
	if (!out.full)
		(void)!send(fd, out.at, out.len, MSG_NOSIGNAL | MSG_DONTWAIT);
	buf_fini(&out);
}

void listener_raw_problem(int fd, const struct problem_about *about)
{
	struct arena *arena = arena_new();
	struct http_answer answer = problem_answer(arena, about);

	listener_raw(fd, &answer);
	arena_free(arena);
}
