/*
 * Clients: their connections, the requests on them, and the only door to libmicrohttpd.
 *
 * The library parses and writes; whatever waits or decides is here. It runs in external epoll
 * mode, one daemon a listener, in listener_run. What a connection waits for is one word (enum
 * waiting). Where a request must end early its socket is shut down, and the library then reports
 * its end like any other: `completed` is the one place where a request ends.
 *
 * A suspended connection moves to the library's list of those with a timeout of their own (far
 * away) until its answer is out. The library works on that list before it looks at sockets, so
 * the answer is written first. Otherwise it would read first: a system call for nothing, and where
 * the client has closed its half of the connection it would drop the answer.
 */
#include "listener_inner.h"
#include "listener_raw.h"
#include "log.h"

#include <microhttpd.h>

#include <arpa/inet.h>
#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#define POOL_BYTES   ((size_t)48 * 1024) /* of a connection: both heads, 100 fields, cookies */
#define STREAM_BLOCK ((size_t)32 * 1024) /* of an answer in pieces, at a time */
#define RUNS_A_TURN  8
#define SECOND       1000
#define OWN_TIMEOUT  86400U /* seconds; never reached: see above */

/* The library takes what it does not change as `void *`. */
static char *unconst(const char *at)
{
	union {
		const char *in;
		char *out;
	} same = { .in = at };

	return same.out;
}

static void now_due(struct listener *l)
{
	if (!l->due && !l->running)
		loop_timer(l->loop, &l->soon, 0);
	l->due = true;
}

void listener_wait(struct connection *connection, enum waiting waiting)
{
	connection->waiting = waiting;
	connection->looked = false;
	connection->since = loop_now(connection->listener->loop);
}

void listener_suspend(struct connection *connection)
{
	connection->own_timeout = true;
	MHD_set_connection_option(connection->mhd, MHD_CONNECTION_OPTION_TIMEOUT, OWN_TIMEOUT);
	MHD_suspend_connection(connection->mhd);
}

void listener_resume(struct connection *connection)
{
	MHD_resume_connection(connection->mhd);
	now_due(connection->listener);
}

/* ---- answers */

/* HEAD and 304 tell the length of what is not sent. Where HEAD has none, none is made up; a 304 without
 * one gets the library's 0, which means nothing to a cache (RFC 9111 3.2). */
static uint64_t length_of(struct inbound *in)
{
	const struct http_answer *answer = &in->answer;
	const struct http_field *length = NULL;
	bool head = span_equal(inbound_request(in)->method, SPAN("HEAD"));
	uint64_t value = 0;

	if (answer->body.len > 0 || !(head || answer->status == 304))
		return answer->body.len;
	length = http_find(&answer->fields, SPAN("Content-Length"), NULL);
	for (size_t i = 0; length && i < length->value.len && i < 15; i++)
		value = value * 10 + (unsigned)(length->value.at[i] - '0') % 10;
	return length || !head ? value : MHD_SIZE_UNKNOWN;
}

/* An empty value would be refused; white space around a value means nothing. */
static void add_field(struct listener *l, struct MHD_Response *response,
		      const struct http_field *field)
{
	if (listener_own_field(field->name))
		return;
	buf_clear(&l->text);
	buf_span(&l->text, field->name);
	buf_byte(&l->text, '\0');
	if (field->value.len > 0)
		buf_span(&l->text, field->value);
	else
		buf_byte(&l->text, ' ');
	buf_byte(&l->text, '\0');
	if (l->text.full ||
	    MHD_add_response_header(response, l->text.at, l->text.at + field->name.len + 1) !=
		    MHD_YES)
		log_warning("listener", "a field of an answer cannot be sent: %.*s",
			    (int)field->name.len, field->name.at);
}

static ssize_t on_wanted(void *cls, uint64_t at, char *to, size_t room)
{
	long n = stream_take(cls, to, room);

	(void)at;
	if (n >= 0)
		return n;
	return n == STREAM_ENDED ? MHD_CONTENT_READER_END_OF_STREAM
				 : MHD_CONTENT_READER_END_WITH_ERROR;
}

/* Of a body that is not sent nothing is wanted. */
static ssize_t on_nothing(void *cls, uint64_t at, char *to, // NOLINT: the library's signature
			  size_t room)
{
	(void)cls, (void)at, (void)to, (void)room;
	return MHD_CONTENT_READER_END_OF_STREAM;
}

/* The connection ends behind it: in chunked coding the library would send a last chunk. */
static struct MHD_Response *response_without_length(void)
{
	struct MHD_Response *response = MHD_create_response_from_callback(
		MHD_SIZE_UNKNOWN, STREAM_BLOCK, on_nothing, NULL, NULL);

	if (response)
		MHD_set_response_options(response, MHD_RF_HTTP_1_0_COMPATIBLE_STRICT,
					 MHD_RO_END);
	return response;
}

/* A body's bytes live in the arena, which ends after the library's interest in them. */
static struct MHD_Response *response_of(struct inbound *in)
{
	const struct span body = in->answer.body;
	uint64_t length = length_of(in);

	if (in->stream.on)
		return MHD_create_response_from_callback(in->stream.sized ? in->stream.left
									  : MHD_SIZE_UNKNOWN,
							 STREAM_BLOCK, on_wanted, in, NULL);
	if (length == MHD_SIZE_UNKNOWN)
		return response_without_length();
	return MHD_create_response_from_buffer(length, unconst(body.at ? body.at : ""),
					       MHD_RESPMEM_PERSISTENT);
}

void listener_queue(struct inbound *inbound)
{
	struct listener *l = inbound->listener;
	struct connection *c = inbound->connection;
	const struct http_answer *answer = &inbound->answer;
	struct MHD_Response *response = response_of(inbound);

	assert(response);
	if (answer->close || inbound->unwanted || l->draining)
		MHD_add_response_header(response, "Connection", "close");
	for (size_t i = 0; i < answer->fields.n; i++)
		add_field(l, response, &answer->fields.at[i]);
	if (MHD_queue_response(c->mhd, answer->status, response) != MHD_YES) {
		log_warning("listener", "%s: an answer was not taken", c->peer);
		shutdown(c->fd, SHUT_RDWR);
	}
	MHD_destroy_response(response);
}

/*
 * The library is about to take the query apart, at the price of 56 bytes of its pool for every
 * parameter, and would hang on a long one. We do not need it: it gets an empty query to see.
 */
static void *on_request_line(void *cls, const char *uri, struct MHD_Connection *mhd)
{
	struct connection *c = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)
				       ->socket_context;
	const char *query = strchr(uri, '?');

	(void)cls;
	assert(!c->inbound);
	c->inbound = inbound_new(c, uri);
	listener_wait(c, WAITING_HEAD);
	if (query)
		unconst(query)[1] = '\0';
	return c->inbound;
}

// NOLINTNEXTLINE(readability-function-size): the library's signature
static enum MHD_Result on_field(void *cls, enum MHD_ValueKind kind, const char *name,
				size_t name_len, const char *value, size_t value_len)
{
	struct listener_head *head = cls;

	(void)kind;
	if (head->n_fields++ < HTTP_FIELDS_MAX)
		head->fields.at[head->fields.n++] =
			(struct http_field){ { name, name_len },
					     { value ? value : name + name_len, value_len } };
	return MHD_YES;
}

static struct listener_checked check(struct inbound *in, const char *method,
				     const char *version)
{
	struct http_request *request = inbound_request(in);
	struct MHD_Connection *mhd = in->connection->mhd;
	struct http_field fields[HTTP_FIELDS_MAX];
	struct listener_head head = {
		.method = span_of(method),
		.target = { in->target, request->target.len },
		.version = span_of(version),
		.fields.at = fields,
		.in_place = in->listener->in_place,
	};
	const union MHD_ConnectionInfo *size =
		MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);

	head.bytes = size ? size->header_size : SIZE_MAX;
	MHD_get_connection_values_n(mhd, MHD_HEADER_KIND, on_field, &head);
	return listener_check(request, &head);
}

// NOLINTNEXTLINE(readability-function-size): the library's signature
static enum MHD_Result on_request(void *cls, struct MHD_Connection *mhd, const char *url,
				  const char *method, const char *version, const char *upload,
				  size_t *upload_size, void **context)
{
	struct inbound *in = *context;

	(void)cls, (void)mhd, (void)url;
	if (!in->begun) {
		struct listener_checked checked = check(in, method, version);

		inbound_begin(in, &checked);
	} else if (*upload_size > 0) {
		inbound_piece(in, upload, *upload_size);
		*upload_size = 0;
	} else if (in->raw) {
		return MHD_NO; /* closes: it has its answer */
	} else {
		inbound_whole(in);
	}
	return MHD_YES;
}

static void on_completed(void *cls, struct MHD_Connection *mhd, void **context,
			 enum MHD_RequestTerminationCode code)
{
	struct inbound *in = *context;
	struct connection *c = in ? in->connection : NULL;

	(void)cls;
	if (!in)
		return;
	*context = NULL;
	c->inbound = NULL;
	if (c->own_timeout)
		MHD_set_connection_option(mhd, MHD_CONNECTION_OPTION_TIMEOUT, 0U);
	c->own_timeout = false;
	listener_wait(c, WAITING_NEXT);
	inbound_end(in, code == MHD_REQUEST_TERMINATED_COMPLETED_OK);
}

/* ---- connections */

static struct connection *connection_new(struct listener *l, struct MHD_Connection *mhd)
{
	struct connection *c = mem_alloc(sizeof(*c));
	const struct sockaddr *from =
		MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr;
	const void *address = &((const struct sockaddr_in *)(const void *)from)->sin_addr;

	if (from->sa_family == AF_INET6)
		address = &((const struct sockaddr_in6 *)(const void *)from)->sin6_addr;
	if (from->sa_family == AF_UNIX)
		snprintf(c->peer, sizeof(c->peer), "unix");
	else
		inet_ntop(from->sa_family, address, c->peer, sizeof(c->peer));
	c->listener = l;
	c->mhd = mhd;
	c->fd = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
	list_append(&l->connections, &c->link);
	listener_wait(c, WAITING_HEAD);
	metrics_set(l->metrics, METRIC_connections, 0, (int64_t)++l->n_connections);
	return c;
}

static void on_connection(void *cls, struct MHD_Connection *mhd, void **context,
			  enum MHD_ConnectionNotificationCode code)
{
	struct listener *l = cls;
	struct connection *c = *context;

	if (code == MHD_CONNECTION_NOTIFY_STARTED) {
		*context = connection_new(l, mhd);
		return;
	}
	assert(!c->inbound);
	list_remove(&c->link);
	mem_free(c);
	metrics_set(l->metrics, METRIC_connections, 0, (int64_t)--l->n_connections);
}

void listener_take(struct listener *listener, int fd, const struct sockaddr *from,
		   socklen_t len)
{
	if (MHD_add_connection(listener->daemon, fd, from, len) != MHD_YES)
		log_debug("listener", "a connection could not be taken");
	now_due(listener);
}

/* ---- the listener */

static PRINTF_LIKE(2, 0) void on_log(void *cls, const char *format, va_list args)
{
	char line[512];
	int len = 0;

	(void)cls;
	if (!log_enabled(LOG_DEBUG))
		return;
	len = vsnprintf(line, sizeof(line), format, args);
	if (len > 0 && (size_t)len < sizeof(line) && line[len - 1] == '\n')
		line[len - 1] = '\0';
	log_debug("listener", "%s", line);
}

static size_t on_unescape(void *cls, struct MHD_Connection *mhd, char *text)
{
	(void)cls, (void)mhd;
	return strlen(text); /* nobody looks at what the library decodes */
}

static void on_ready(struct loop_watch *watch, unsigned events)
{
	(void)events;
	container_of(watch, struct listener, ready)->due = true;
}

static void on_soon(struct loop_timer *timer)
{
	(void)timer; /* it ended the wait */
}

static void on_second(struct loop_timer *timer)
{
	struct listener *l = container_of(timer, struct listener, second);

	listener_deadlines(l);
	listener_doors_watch(l);
	loop_timer(l->loop, &l->second, SECOND);
}

/* Up to 0.9.76 the strictest is -1, and only one version was looked at (listener_check.h); from
 * then on 1 is strict, and -1 the most lenient. */
static int strictness(bool *in_place)
{
	const char *version = MHD_get_version();
	char *end = NULL;
	unsigned long major = strtoul(version, &end, 10);
	unsigned long minor = strtoul(end + (*end == '.'), &end, 10);
	unsigned long patch = strtoul(end + (*end == '.'), &end, 10);

	*in_place = strcmp(version, "0.9.75") == 0;
	return major * 10000 + minor * 100 + patch < 977 ? -1 : 1;
}

static void start_daemon(struct listener *l)
{
	int strict = strictness(&l->in_place);

	l->daemon = MHD_start_daemon(
		MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_NO_LISTEN_SOCKET |
			MHD_USE_ERROR_LOG,
		0, NULL, NULL, on_request,
		l, /* the log comes first, so that it sees the rest */
		MHD_OPTION_EXTERNAL_LOGGER, on_log, l, MHD_OPTION_NOTIFY_COMPLETED,
		on_completed, l, MHD_OPTION_NOTIFY_CONNECTION, on_connection, l,
		MHD_OPTION_URI_LOG_CALLBACK, on_request_line, l, MHD_OPTION_UNESCAPE_CALLBACK,
		on_unescape, l, MHD_OPTION_CONNECTION_TIMEOUT, 0U, MHD_OPTION_CONNECTION_LIMIT,
		UINT_MAX, MHD_OPTION_CONNECTION_MEMORY_LIMIT, POOL_BYTES,
		MHD_OPTION_STRICT_FOR_CLIENT, strict, MHD_OPTION_END);
	assert(l->daemon);
	l->ready.fd = MHD_get_daemon_info(l->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
	l->ready.ready = on_ready;
	loop_watch(l->loop, &l->ready, LOOP_READ);
}

struct listener *listener_new(const struct listener_start *start, char why[256])
{
	struct listener *l = mem_alloc(sizeof(*l));

	l->loop = start->loop;
	l->metrics = start->metrics;
	l->limits = *start->limits;
	l->handler = start->handler;
	l->second.due = on_second;
	l->soon.due = on_soon;
	list_init(&l->connections);
	buf_init(&l->text, (size_t)2 * HTTP_HEAD_MAX);
	start_daemon(l);
	loop_timer(l->loop, &l->second, SECOND);
	if (listener_doors_open(l, start, why))
		return l;
	listener_free(l);
	return NULL;
}

void listener_free(struct listener *listener)
{
	listener_doors_close(listener);
	loop_unwatch(listener->loop, &listener->ready);
	MHD_stop_daemon(listener->daemon);
	assert(listener->n_connections == 0 && listener->n_requests == 0);
	loop_timer_stop(listener->loop, &listener->second);
	loop_timer_stop(listener->loop, &listener->soon);
	buf_fini(&listener->text);
	mem_free(listener->doors);
	mem_free(listener);
}

void listener_follow(struct listener *listener, const struct listener_limits *limits)
{
	listener->limits = *limits;
}

static bool more(struct listener *l)
{
	MHD_UNSIGNED_LONG_LONG timeout = 1;

	return l->due || (MHD_get_timeout(l->daemon, &timeout) == MHD_YES && timeout == 0);
}

bool listener_run(struct listener *listener)
{
	loop_timer_stop(listener->loop, &listener->soon);
	listener->running = true;
	for (int i = 0; i < RUNS_A_TURN && more(listener); i++) {
		listener->due = false;
		MHD_run(listener->daemon);
	}
	listener->running = false;
	listener->due = more(listener);
	return listener->due;
}

bool listener_due(const struct listener *listener)
{
	return listener->due;
}

void listener_drain(struct listener *listener)
{
	listener->draining = true;
	listener_doors_close(listener);
	for (struct list *at = listener->connections.next; at != &listener->connections;
	     at = at->next) {
		struct connection *c = container_of(at, struct connection, link);

		if (!c->inbound)
			shutdown(c->fd, SHUT_RDWR);
	}
}

size_t listener_connections(const struct listener *listener)
{
	return listener->n_connections;
}

size_t listener_requests(const struct listener *listener)
{
	return listener->n_requests;
}
