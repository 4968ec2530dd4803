/*
 * A real listener on a real loop, and clients that write bytes. Listener and clients run in this
 * one thread: whoever waits for something turns the loop meanwhile.
 *
 * The handler is driven by the target: /body reads at most 64 bytes and echoes what it got, /big
 * at most 4 MiB, /now answers from `head`, /later answers the body when the test says so.
 */
#include "listener.h"
#include "log.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define SMALL_MAX ((size_t)64)
#define BIG_MAX   ((size_t)4 * 1024 * 1024)
#define SEEN_MAX  512

struct exchange {
	struct http_request request;
	struct http_answer answer;
	struct http_field fields[8];
	bool waiting;
};

static struct loop *loop;
static struct metrics *metrics;
static struct listener *listener;
static struct exchange *later[SEEN_MAX]; /* wait for finish_later */
static unsigned heads, bodies, ends, gone, n_later;
static size_t announced;
static bool too_large, was_loose;
static char last_target[256], last_path[256], last_host[128], last_peer[64], last_fields[2048];
static size_t last_body_len, n_fields;

static void echo(struct http_request *request, unsigned status)
{
	struct exchange *x = (struct exchange *)(void *)request;

	x->answer.status = status;
	x->answer.fields.at = x->fields;
	http_add(&x->answer.fields, SPAN("Content-Type"), SPAN("text/plain"));
	http_add(&x->answer.fields, SPAN("X-Empty"), SPAN(""));
	http_add(&x->answer.fields, SPAN("Connection"), SPAN("X-Lie"));
	x->answer.body = request->body_too_large ? SPAN("too large") : request->body;
	if (x->answer.body.len == 0)
		x->answer.body = SPAN("nothing");
	listener_answer(request, &x->answer);
}

static void keep(char *at, size_t room, struct span text)
{
	snprintf(at, room, "%.*s", (int)text.len, text.len ? text.at : "");
}

static bool targets(const struct http_request *request, const char *path)
{
	return span_equal(request->path, span_of(path));
}

static void head(struct http_request *request, void *arg)
{
	size_t used = 0;

	(void)arg;
	heads++;
	keep(last_target, sizeof(last_target), request->target);
	keep(last_path, sizeof(last_path), request->path);
	keep(last_host, sizeof(last_host), request->host);
	keep(last_peer, sizeof(last_peer), request->peer);
	was_loose = request->loose_path;
	n_fields = request->fields.n;
	announced = listener_body_announced(request);
	last_fields[0] = '\0';
	for (size_t i = 0; i < request->fields.n && used < sizeof(last_fields) - 200; i++)
		used += (size_t)snprintf(
			last_fields + used, sizeof(last_fields) - used, "%.*s=%.*s|",
			(int)request->fields.at[i].name.len, request->fields.at[i].name.at,
			(int)request->fields.at[i].value.len, request->fields.at[i].value.at);
	if (targets(request, "/now"))
		echo(request, 403);
	else
		listener_read_body(request, targets(request, "/big") ? BIG_MAX : SMALL_MAX);
}

static void body(struct http_request *request, void *arg)
{
	struct exchange *x = (struct exchange *)(void *)request;

	(void)arg;
	bodies++;
	last_body_len = request->body.len;
	too_large = request->body_too_large;
	if (targets(request, "/later") || targets(request, "/held")) {
		x->waiting = true;
		later[n_later++] = x;
		if (targets(request, "/held"))
			listener_hold(request);
		return;
	}
	echo(request, request->body_too_large ? 413 : 200);
}

static void end(struct http_request *request, void *arg)
{
	(void)arg;
	ends++;
	if (listener_gone(request))
		gone++;
}

static const struct listener_handler handler = {
	.size = sizeof(struct exchange), .head = head, .body = body, .end = end
};

static void turn(int ms)
{
	loop_wait(loop, listener_due(listener) ? 0 : ms);
	while (listener_run(listener))
		;
}

static void turn_for(int64_t ms)
{
	int64_t until = loop_clock_us() + ms * 1000;

	while (loop_clock_us() < until)
		turn(5);
}

static void finish_later(unsigned i)
{
	ck_assert(later[i]->waiting);
	later[i]->waiting = false;
	echo(&later[i]->request, 201);
}

static void start_with(const char *address, const struct listener_limits *limits)
{
	char why[256] = "";
	const char *addresses[] = { address };
	struct listener_start start = { .loop = loop,
					.addresses = addresses,
					.n_addresses = 1,
					.limits = limits,
					.handler = &handler,
					.metrics = metrics };

	listener = listener_new(&start, why);
	ck_assert_msg(listener != NULL, "%s", why);
}

static const struct listener_limits usual = { .header_timeout = 10000,
					      .body_timeout = 10000,
					      .idle_timeout = 10000,
					      .connections = 400 };

static void make(void)
{
	log_configure(LOG_TEXT, LOG_ERROR);
	loop = loop_new();
	metrics = metrics_new();
	heads = bodies = ends = gone = n_later = 0;
}

static void setup(void)
{
	make();
	start_with("127.0.0.1:0", &usual);
}

static void teardown(void)
{
	if (listener)
		listener_free(listener);
	listener = NULL;
	metrics_free(metrics);
	loop_free(loop);
}

static int dial_to(const char *address)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6 };
	const char *port = strrchr(address, ':') + 1;
	int fd = -1, rc = -1;

	if (address[0] == '[') {
		fd = socket(AF_INET6, SOCK_STREAM, 0);
		v6.sin6_addr = in6addr_loopback;
		v6.sin6_port = htons((uint16_t)strtoul(port, NULL, 10));
		rc = connect(fd, (struct sockaddr *)&v6, sizeof(v6));
	} else {
		fd = socket(AF_INET, SOCK_STREAM, 0);
		v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		v4.sin_port = htons((uint16_t)strtoul(port, NULL, 10));
		rc = connect(fd, (struct sockaddr *)&v4, sizeof(v4));
	}
	ck_assert_int_eq(rc, 0);
	fcntl(fd, F_SETFL, O_NONBLOCK);
	return fd;
}

static int dial(void)
{
	return dial_to(listener_address(listener, 0));
}

static int dial_unix(const char *path)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	memcpy(at.sun_path, path, strlen(path));
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	fcntl(fd, F_SETFL, O_NONBLOCK);
	return fd;
}

/* Turns the loop while the socket does not take it; false where the other side has closed. */
static bool say_bytes(int fd, const char *bytes, size_t len)
{
	int64_t until = loop_clock_us() + 8000000;

	while (len > 0 && loop_clock_us() < until) {
		ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);

		if (n < 0 && errno != EAGAIN)
			return false;
		if (n > 0) {
			bytes += n;
			len -= (size_t)n;
		}
		turn(0);
	}
	return len == 0;
}

static void say(int fd, const char *text)
{
	ck_assert(say_bytes(fd, text, strlen(text)));
}

/*
 * What comes within `ms`, or until `enough` is in it (NULL: until the end of the connection).
 * "<end>" and "<reset>" stand behind what came where the connection closed.
 */
static const char *hear_until(int fd, const char *enough, int64_t ms)
{
	static char text[65536];
	size_t len = 0;
	int64_t until = loop_clock_us() + ms * 1000;

	text[0] = '\0';
	while (loop_clock_us() < until) {
		ssize_t n = recv(fd, text + len, sizeof(text) - len - 16, MSG_DONTWAIT);

		if (n > 0)
			len += (size_t)n;
		text[len] = '\0';
		if (n == 0 || (n < 0 && errno != EAGAIN)) {
			strcat(text, n == 0 ? "<end>" : "<reset>");
			break;
		}
		if (enough && strstr(text, enough))
			break;
		turn(1);
	}
	return text;
}

/* A complete answer: these answers have a Content-Length. */
static const char *hear(int fd)
{
	return hear_until(fd, "\n\n<never>", 300);
}

static const char *hear_end(int fd)
{
	return hear_until(fd, NULL, 5000);
}

static unsigned status_in(const char *text)
{
	return strncmp(text, "HTTP/1.1 ", 9) == 0 ? (unsigned)strtoul(text + 9, NULL, 10) : 0;
}

static unsigned answers_in(const char *text)
{
	unsigned n = 0;

	for (const char *at = text; (at = strstr(at, "HTTP/1.1 ")); at++)
		n++;
	return n;
}

static const char *ask(int fd, const char *text, const char *enough)
{
	say(fd, text);
	return hear_until(fd, enough, 5000);
}

/* ---- what is refused: the table of raw requests */

#define LINE "POST /body HTTP/1.1\r\n"
#define HOST "Host: a\r\n"

struct raw {
	const char *what;
	const char *bytes;
	size_t len;      /* 0: strlen */
	unsigned status; /* of the first answer */
	unsigned
		answers; /* 0: one, and the connection closes; else so many and it stays open */
};

#define WITH_NUL(text) text, sizeof(text) - 1

static const struct raw raws[] = {
	{ "plain", LINE HOST "Content-Length: 2\r\n\r\nhi", 0, 200, 1 },
	{ "chunked", LINE HOST "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", 0, 200,
	  1 },
	{ "Chunked", LINE HOST "Transfer-Encoding: Chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", 0, 200,
	  1 },
	{ "length with zeros", LINE HOST "Content-Length: 0002\r\n\r\nhi", 0, 200, 1 },
	{ "empty lines first", "\r\n\r\n" LINE HOST "Content-Length: 2\r\n\r\nhi", 0, 200, 1 },
	{ "tab around value", LINE "Host:\ta\t\r\nContent-Length: 0\r\n\r\n", 0, 200, 1 },
	{ "no blank behind colon", LINE "Host:a\r\nContent-Length:2\r\n\r\nhi", 0, 200, 1 },
	{ "empty value", LINE HOST "X-A:\r\nX-B: \r\n\r\n", 0, 200, 1 },
	{ "absolute form", "GET http://b/body HTTP/1.1\r\nHost: b\r\n\r\n", 0, 200, 1 },
	{ "lower-case method is a method", "post /body HTTP/1.1\r\n" HOST "\r\n", 0, 200, 1 },
	{ "obs-text", LINE HOST "X-A: \xe4\r\n\r\n", 0, 200, 1 },

	{ "CL + TE",
	  LINE HOST "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 0, 400,
	  0 },
	{ "TE + CL",
	  LINE HOST "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n", 0, 400,
	  0 },
	{ "two CL", LINE HOST "Content-Length: 2\r\nContent-Length: 3\r\n\r\nhi!", 0, 400, 0 },
	{ "two equal CL", LINE HOST "Content-Length: 2\r\nContent-Length: 2\r\n\r\nhi", 0, 400,
	  0 },
	{ "CL list", LINE HOST "Content-Length: 2, 2\r\n\r\nhi", 0, 400, 0 },
	{ "CL +2", LINE HOST "Content-Length: +2\r\n\r\nhi", 0, 400, 0 },
	{ "CL -2", LINE HOST "Content-Length: -2\r\n\r\nhi", 0, 400, 0 },
	{ "CL 0x2", LINE HOST "Content-Length: 0x2\r\n\r\nhi", 0, 400, 0 },
	{ "CL 2abc", LINE HOST "Content-Length: 2abc\r\n\r\nhi", 0, 400, 0 },
	{ "CL empty", LINE HOST "Content-Length: \r\n\r\nhi", 0, 400, 0 },
	{ "CL 2^63", LINE HOST "Content-Length: 9223372036854775808\r\n\r\nhi", 0, 400, 0 },
	{ "CL 2^64", LINE HOST "Content-Length: 18446744073709551616\r\n\r\nhi", 0, 413, 0 },
	{ "CL space colon", LINE HOST "Content-Length : 2\r\n\r\nhi", 0, 400, 0 },
	{ "TE xchunked", LINE HOST "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 0, 400, 0 },
	{ "TE list", LINE HOST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 0, 400, 0 },
	{ "TE identity", LINE HOST "Transfer-Encoding: identity\r\n\r\nhi", 0, 400, 0 },
	{ "TE identity + CL",
	  LINE HOST "Transfer-Encoding: identity\r\nContent-Length: 2\r\n\r\nhi", 0, 400, 0 },
	{ "TE with a blank behind", LINE HOST "Transfer-Encoding: chunked \r\n\r\n0\r\n\r\n", 0,
	  400, 0 },
	{ "TE with a tab before",
	  LINE HOST "Transfer-Encoding: \x0b"
		    "chunked\r\n\r\n0\r\n\r\n",
	  0, 400, 0 },
	{ "TE twice",
	  LINE HOST
	  "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
	  0, 400, 0 },
	{ "TE chunked twice",
	  LINE HOST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	  0, 400, 0 },
	{ "TE space colon", LINE HOST "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 0, 400,
	  0 },
	{ "TE in 1.0",
	  "POST /body HTTP/1.0\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 0, 400,
	  0 },
	{ "Transfer_Encoding", LINE HOST "Transfer_Encoding: chunked\r\n\r\n", 0, 400, 0 },
	{ "Content_Length", LINE HOST "content_length: 2\r\n\r\n", 0, 400, 0 },
	{ "Idempotency_Key", LINE HOST "Idempotency_Key: k\r\n\r\n", 0, 400, 0 },
	{ "X_Forwarded-For", LINE HOST "X_Forwarded-For: k\r\n\r\n", 0, 400, 0 },
	{ "fold", LINE HOST "X-A: one\r\n two\r\n\r\n", 0, 400, 0 },
	{ "fold with a tab", LINE HOST "X-A: one\r\n\ttwo\r\n\r\n", 0, 400, 0 },
	{ "fold of the last line", LINE HOST "Idempotency-Key: one\r\n  two\r\n\r\n", 0, 400,
	  0 },
	{ "empty fold", LINE HOST "X-A: one\r\n \r\n\r\n", 0, 400, 0 },
	{ "fold first", LINE " " HOST "\r\n", 0, 400, 0 },
	{ "NUL in value", WITH_NUL(LINE HOST "Idempotency-Key: k1\0k2\r\n\r\n"), 400, 0 },
	{ "NUL at a value's end", WITH_NUL(LINE HOST "Idempotency-Key: k1\0\r\n\r\n"), 400, 0 },
	{ "NUL in name", WITH_NUL(LINE HOST "X-\0A: k\r\n\r\n"), 400, 0 },
	{ "NUL in target", WITH_NUL("POST /body\0/x HTTP/1.1\r\n" HOST "\r\n"), 400, 0 },
	{ "NUL in query", WITH_NUL("POST /body?a\0b HTTP/1.1\r\n" HOST "\r\n"), 400, 0 },
	{ "NUL in method", WITH_NUL("PO\0ST /body HTTP/1.1\r\n" HOST "\r\n"), 400, 0 },
	{ "%00 in target", "POST /body%00 HTTP/1.1\r\n" HOST "\r\n", 0, 200,
	  1 }, /* loose_path */
	{ "0x01 in value", LINE HOST "X-A: \x01\r\n\r\n", 0, 400, 0 },
	{ "DEL in value", LINE HOST "X-A: \x7f\r\n\r\n", 0, 400, 0 },
	{ "bare CR in value", LINE HOST "X-A: a\rb\r\n\r\n", 0, 400, 0 },
	{ "bare LF: all", "POST /body HTTP/1.1\nHost: a\n\n", 0, 400, 0 },
	{ "bare LF: request line", "POST /body HTTP/1.1\nHost: a\r\n\r\n", 0, 400, 0 },
	{ "bare LF: a field", LINE "X-A: a\nHost: a\r\n\r\n", 0, 400, 0 },
	{ "bare LF: the empty line", LINE HOST "\n", 0, 400, 0 },
	{ "bare LF: the last field", LINE "Host: a\n\r\n", 0, 400, 0 },
	{ "no Host", LINE "\r\n", 0, 400, 0 },
	{ "two Host", LINE "Host: a\r\nHost: b\r\n\r\n", 0, 400, 0 },
	{ "two equal Host", LINE "Host: a\r\nHost: a\r\n\r\n", 0, 400, 0 },
	{ "empty Host", LINE "Host: \r\n\r\n", 0, 400, 0 },
	{ "Host a b", LINE "Host: a b\r\n\r\n", 0, 400, 0 },
	{ "Host with user", LINE "Host: u@a\r\n\r\n", 0, 400, 0 },
	{ "Host with path", LINE "Host: a/b\r\n\r\n", 0, 400, 0 },
	{ "absolute form without Host", "GET http://b/body HTTP/1.1\r\n\r\n", 0, 400, 0 },
	{ "HTTP/1.2", "POST /body HTTP/1.2\r\n" HOST "\r\n", 0, 505, 0 },
	{ "HTTP/2.0", "POST /body HTTP/2.0\r\n" HOST "\r\n", 0, 505, 0 },
	{ "HTTP/0.9", "GET /body\r\n\r\n", 0, 400, 0 },
	{ "lower-case version", "GET /body http/1.1\r\n" HOST "\r\n", 0, 400, 0 },
	{ "two blanks before the target", "POST  /body HTTP/1.1\r\n" HOST "\r\n", 0, 400, 0 },
	{ "two blanks behind the target", "POST /body  HTTP/1.1\r\n" HOST "\r\n", 0, 400, 0 },
	{ "blank in the target", "POST /bo dy HTTP/1.1\r\n" HOST "\r\n", 0, 400, 0 },
	{ "tab in the target", "POST /bo\tdy HTTP/1.1\r\n" HOST "\r\n", 0, 400, 0 },
	{ "control byte in the target",
	  "POST /bo\x01"
	  "dy HTTP/1.1\r\n" HOST "\r\n",
	  0, 400, 0 },
	{ "blank behind the version", "POST /body HTTP/1.1 \r\n" HOST "\r\n", 0, 400, 0 },
	{ "tab as a blank", "POST\t/body HTTP/1.1\r\n" HOST "\r\n", 0, 400, 0 },
	{ "target is no target", "POST body HTTP/1.1\r\n" HOST "\r\n", 0, 400, 0 },
	{ "target with a fragment", "POST /body#x HTTP/1.1\r\n" HOST "\r\n", 0, 400, 0 },
	{ "CONNECT", "CONNECT a:80 HTTP/1.1\r\n" HOST "\r\n", 0, 400, 0 },
	{ "method is no token", "P@ST /body HTTP/1.1\r\n" HOST "\r\n", 0, 400, 0 },
	{ "Expect: foo", LINE HOST "Expect: foo\r\n\r\n", 0, 417, 0 },
	{ "two Expect", LINE HOST "Expect: 100-continue\r\nExpect: foo\r\n\r\n", 0, 417, 0 },
	{ "blank in a name", LINE HOST "X A: b\r\n\r\n", 0, 400, 0 },
	{ "name is no token", LINE HOST "X(A): b\r\n\r\n", 0, 400, 0 },
	{ "no colon", LINE HOST "X-A\r\n\r\n", 0, 400, 0 },
	{ "empty name", LINE HOST ": v\r\n\r\nPOST /body HTTP/1.1\r\n" HOST "\r\n", 0, 400, 0 },
	{ "empty name first", LINE ": v\r\n" HOST "\r\n", 0, 400, 0 },
	{ "Connection: Idempotency-Key", LINE HOST "Connection: close, idempotency-key\r\n\r\n",
	  0, 400, 0 },
	{ "Connection: Host", LINE HOST "Connection: Host\r\n\r\n", 0, 400, 0 },
	{ "Connection: Content-Length", LINE HOST "Connection: content-length\r\n\r\n", 0, 400,
	  0 },
	{ "Connection: X-Forwarded-For",
	  LINE HOST "Connection: keep-alive\r\nConnection: X-Forwarded-For\r\n\r\n", 0, 400,
	  0 },
	{ "Connection: keep-alive, X-Other",
	  LINE HOST "Connection: keep-alive, X-Other\r\n\r\n", 0, 200, 1 },
	{ "chunk size over 2^64",
	  LINE HOST "Transfer-Encoding: chunked\r\n\r\n1ffffffffffffffff\r\n", 0, 413, 0 },
	{ "chunk size is no number", LINE HOST "Transfer-Encoding: chunked\r\n\r\nxyz\r\n", 0,
	  400, 0 },
	{ "chunk is longer",
	  LINE HOST "Transfer-Encoding: chunked\r\n\r\n2\r\nhihi\r\n0\r\n\r\n", 0, 400, 0 },
};

START_TEST(a_request_that_can_be_read_in_two_ways_is_refused)
{
	const struct raw *raw = &raws[_i];
	int fd = dial();
	const char *text = NULL;

	ck_assert(say_bytes(fd, raw->bytes, raw->len ? raw->len : strlen(raw->bytes)));
	text = hear_until(fd, raw->answers ? "\r\n\r\n" : NULL, 5000);
	ck_assert_msg(status_in(text) == raw->status, "%s: %s", raw->what, text);
	if (raw->answers == 0) {
		ck_assert_msg(strstr(text, "<end>") || strstr(text, "<reset>"), "%s: %s",
			      raw->what, text);
		ck_assert_msg(!strstr(text, " 200 "), "%s: %s", raw->what, text);
		ck_assert_msg(strstr(text, "Connection: close"), "%s: %s", raw->what, text);
	} else {
		ck_assert_msg(!strstr(text, "<"), "%s: %s", raw->what, text);
		ck_assert_uint_eq(answers_in(text), raw->answers);
	}
	close(fd);
	turn_for(5);
	ck_assert_uint_eq(ends, heads);
	ck_assert_uint_eq(listener_requests(listener), 0);
}
END_TEST

START_TEST(a_refusal_says_what_and_whether_there_was_a_key)
{
	int fd = dial();
	const char *text =
		ask(fd,
		    LINE HOST
		    "Idempotency-Key: k\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
		    NULL);

	ck_assert_ptr_nonnull(strstr(text, "application/problem+json"));
	ck_assert_ptr_nonnull(strstr(text, "\"code\": \"request_malformed\""));
	ck_assert_ptr_nonnull(strstr(text, "\"may_have_executed\": true"));
	ck_assert_ptr_nonnull(strstr(text, "Idempotency-Verdict: request_malformed"));
	ck_assert_ptr_nonnull(strstr(text, "Content-Length is not one decimal number"));
	close(fd);
	fd = dial();
	text = ask(fd, LINE HOST HOST "\r\n", NULL);
	ck_assert_ptr_nonnull(strstr(text, "\"may_have_executed\": false"));
	close(fd);
	ck_assert_uint_eq(heads, 0);
}
END_TEST

START_TEST(a_head_over_the_limit_is_431)
{
	static char text[20000];
	int fd = dial();
	size_t len = (size_t)snprintf(text, sizeof(text), LINE HOST "X-Long: ");

	memset(text + len, 'x', 16350);
	strcpy(text + len + 16350, "\r\n\r\n");
	ck_assert_uint_eq(status_in(ask(fd, text, NULL)), 431);
	close(fd);

	fd = dial();
	len = (size_t)snprintf(text, sizeof(text), LINE HOST);
	for (int i = 0; i < 100; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "X-%d: 1\r\n", i);
	strcpy(text + len, "\r\n");
	ck_assert_uint_eq(status_in(ask(fd, text, NULL)), 431);
	close(fd);
	ck_assert_uint_eq(heads, 0);
}
END_TEST

START_TEST(a_head_just_under_the_limit_is_served_however_it_comes)
{
	static char text[20000];
	size_t len = (size_t)snprintf(text, sizeof(text), LINE HOST);

	for (int i = 0; i < 99; i++)
		len += (size_t)snprintf(
			text + len, sizeof(text) - len, "X-%02d: %.*s\r\n", i, 150,
			"0123456789012345678901234567890123456789012345678901234567"
			"8901234567890123456789012345678901234567890123456789012345"
			"67890123456789012345678901234567890123456789012345678901");
	strcpy(text + len, "\r\n");
	ck_assert_uint_gt(len, 15500);
	for (size_t step = 1; step < len; step = step * 7) {
		int fd = dial();

		for (size_t at = 0; at < len + 2; at += step)
			ck_assert(say_bytes(fd, text + at,
					    len + 2 - at < step ? len + 2 - at : step));
		ck_assert_uint_eq(status_in(hear_until(fd, "nothing", 3000)), 200);
		ck_assert_uint_eq(n_fields, 100);
		close(fd);
	}
}
END_TEST

START_TEST(a_query_with_a_thousand_parameters_is_served)
{
	static char text[8192];
	int fd = dial();
	size_t len = (size_t)snprintf(text, sizeof(text), "GET /body?q=%%41");

	for (int i = 0; i < 1000; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "&a=%d", i);
	snprintf(text + len, sizeof(text) - len, " HTTP/1.1\r\n" HOST "\r\n");
	ck_assert_uint_eq(status_in(ask(fd, text, "nothing")), 200);
	ck_assert_str_eq(last_path, "/body");
	ck_assert_int_eq(strncmp(last_target, "/body?q=%41&a=0&a=1&", 20), 0);
	ck_assert_uint_eq(strlen(last_target), 255);
	close(fd);
}
END_TEST

START_TEST(the_request_is_as_it_was_sent)
{
	int fd = dial();

	ask(fd,
	    "POST /%62ody?a=%20+b HTTP/1.1\r\nHost: h:80\r\nX-A:  one \t two\t \r\nx_dropped: "
	    "1\r\n"
	    "Cookie: a=\"b\"; c\r\nX-A: three\r\nContent-Length: 2\r\n\r\nhi",
	    "hi");
	ck_assert_str_eq(last_target, "/%62ody?a=%20+b");
	ck_assert_str_eq(last_path, "/body");
	ck_assert_str_eq(last_host, "h:80");
	ck_assert_str_eq(last_peer, "127.0.0.1");
	ck_assert_str_eq(last_fields, "Host=h:80|X-A=one \t two|Cookie=a=\"b\"; c|X-A=three|"
				      "Content-Length=2|");
	ck_assert(!was_loose);
	ask(fd, "GET /body//x/../%2f HTTP/1.1\r\n" HOST "\r\n", "nothing");
	ck_assert(was_loose);
	ask(fd, "GET http://b:8/body HTTP/1.1\r\n" HOST "\r\n", "nothing");
	ck_assert_str_eq(last_host, "b:8");
	ck_assert_str_eq(last_path, "/body");
	ck_assert(!was_loose);
	close(fd);
}
END_TEST

START_TEST(trailers_are_not_merged_into_the_fields)
{
	int fd = dial();
	const char *text = ask(fd,
			       LINE HOST "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n"
					 "Idempotency-Key: t\r\n\r\n" LINE HOST "\r\n",
			       "nothing");

	ck_assert_uint_eq(answers_in(text), 2);
	ck_assert_ptr_null(strstr(last_fields, "Idempotency-Key"));
	close(fd);
}
END_TEST

/* ---- answers and connections */

START_TEST(an_answer_has_its_own_fields_and_the_listeners)
{
	int fd = dial();
	const char *text = ask(fd, LINE HOST "Content-Length: 2\r\n\r\nhi", "hi");

	ck_assert_ptr_nonnull(strstr(text, "HTTP/1.1 200 OK\r\n"));
	ck_assert_ptr_nonnull(strstr(text, "Content-Type: text/plain\r\n"));
	ck_assert_ptr_nonnull(strstr(text, "Content-Length: 2\r\n"));
	ck_assert_ptr_nonnull(strstr(text, "X-Empty: "));
	ck_assert_ptr_nonnull(strstr(text, "Date: "));
	ck_assert_ptr_null(strstr(text, "X-Lie"));
	ck_assert_ptr_null(strstr(text, "Connection"));
	close(fd);
}
END_TEST

START_TEST(a_head_request_gets_a_length_and_no_body)
{
	int fd = dial();
	const char *text = ask(fd, "HEAD /body HTTP/1.1\r\n" HOST "\r\n", "\r\n\r\n");

	ck_assert_ptr_nonnull(strstr(text, "Content-Length: 7\r\n"));
	ck_assert_ptr_null(strstr(text, "nothing"));
	text = ask(fd, LINE HOST "Content-Length: 2\r\n\r\nhi", "hi");
	ck_assert_uint_eq(status_in(text), 200);
	close(fd);
}
END_TEST

START_TEST(a_connection_is_kept_and_pipelined_requests_come_one_by_one)
{
	int fd = dial();
	const char *text = NULL;

	say(fd,
	    "POST /later HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\none"
	    "POST /later HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\ntwo" LINE HOST "\r\n");
	turn_for(30);
	ck_assert_uint_eq(heads, 1);
	ck_assert_uint_eq(listener_requests(listener), 1);
	finish_later(0);
	text = hear_until(fd, "one", 1000);
	ck_assert_uint_eq(answers_in(text), 1);
	turn_for(20);
	ck_assert_uint_eq(heads, 2);
	ck_assert_uint_eq(ends, 1);
	finish_later(1);
	text = hear_until(fd, "nothing", 1000);
	ck_assert_uint_eq(answers_in(text), 2);
	ck_assert_ptr_nonnull(strstr(text, "two"));
	ck_assert_uint_eq(heads, 3);
	close(fd);
}
END_TEST

START_TEST(http_1_0_closes_unless_asked_to_keep)
{
	int fd = dial();
	const char *text = ask(fd, "POST /body HTTP/1.0\r\nContent-Length: 2\r\n\r\nhi", NULL);

	ck_assert_uint_eq(status_in(text), 200);
	ck_assert_ptr_nonnull(strstr(text, "Connection: close"));
	ck_assert_ptr_nonnull(strstr(text, "hi<end>"));
	ck_assert_str_eq(last_host, "");
	close(fd);
	fd = dial();
	for (int i = 0; i < 2; i++) {
		text = ask(fd, "GET /body HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
			   "nothing");
		ck_assert_uint_eq(status_in(text), 200);
		ck_assert_ptr_nonnull(strstr(text, "Connection: Keep-Alive"));
	}
	close(fd);
}
END_TEST

START_TEST(connection_close_is_honoured)
{
	int fd = dial();
	const char *text = ask(fd, LINE HOST "Connection: close\r\n\r\n", NULL);

	ck_assert_ptr_nonnull(strstr(text, "nothing<end>"));
	close(fd);
}
END_TEST

/* The first of several connections is treated differently by the library: open some. */
START_TEST(a_client_that_closed_its_half_gets_its_answer)
{
	int others[3], fd = -1;
	const char *text = NULL;

	for (int i = 0; i < 3; i++) {
		others[i] = dial();
		ask(others[i], LINE HOST "\r\n", "nothing");
	}
	fd = dial();
	say(fd, "POST /later HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\none");
	shutdown(fd, SHUT_WR);
	turn_for(30);
	ck_assert_uint_eq(n_later, 1);
	finish_later(0);
	text = hear_end(fd);
	ck_assert_ptr_nonnull(strstr(text, "one<end>"));
	ck_assert_uint_eq(gone, 0);
	for (int i = 0; i < 3; i++)
		close(others[i]);
	close(fd);
}
END_TEST

static void reset(int fd)
{
	struct linger now = { .l_onoff = 1 };

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(fd);
}

START_TEST(a_client_that_leaves_while_waiting_changes_nothing)
{
	int fd = dial();

	say(fd, "POST /later HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\none");
	turn_for(20);
	reset(fd);
	turn_for(50);
	ck_assert_uint_eq(bodies, 1);
	ck_assert_uint_eq(ends, 0);
	ck_assert_uint_eq(listener_requests(listener), 1);
	finish_later(0);
	turn_for(20);
	ck_assert_uint_eq(ends, 1);
	ck_assert_uint_eq(gone, 1);
	ck_assert_uint_eq(listener_connections(listener), 0);
}
END_TEST

START_TEST(a_client_that_leaves_before_its_request_is_complete_ends_it)
{
	static const char *const pieces[] = { "",
					      "POST /bo",
					      LINE,
					      LINE HOST "X-A: ",
					      LINE HOST "Content-Length: 3\r\n\r\non",
					      LINE HOST
					      "Transfer-Encoding: chunked\r\n\r\n2\r\nx" };

	for (size_t i = 0; i < ARRAY_LEN(pieces); i++)
		for (int how = 0; how < 3; how++) {
			int fd = dial();

			say(fd, pieces[i]);
			turn_for(3);
			if (how == 0)
				reset(fd);
			else if (how == 1)
				close(fd);
			else
				shutdown(fd, SHUT_WR);
			turn_for(5);
			if (how == 2)
				close(fd);
			turn_for(2);
			ck_assert_uint_eq(listener_connections(listener), 0);
		}
	ck_assert_uint_eq(bodies, 0);
	ck_assert_uint_eq(heads, 6);
	ck_assert_uint_eq(ends, 6);
	ck_assert_uint_eq(gone, 6);
}
END_TEST

START_TEST(a_client_that_leaves_while_it_is_answered_ends_the_request)
{
	static char large[BIG_MAX];
	int fd = dial();

	memset(large, 'x', sizeof(large));
	say(fd, "POST /big HTTP/1.1\r\n" HOST "Content-Length: 4194304\r\n\r\n");
	ck_assert(say_bytes(fd, large, sizeof(large)));
	turn_for(50);
	ck_assert_uint_eq(bodies, 1);
	ck_assert_uint_eq(last_body_len, sizeof(large));
	ck_assert_uint_eq(ends, 0); /* the client has not read */
	reset(fd);
	turn_for(20);
	ck_assert_uint_eq(ends, 1);
	ck_assert_uint_eq(gone, 1);
}
END_TEST

START_TEST(a_large_answer_arrives_whole)
{
	static char large[BIG_MAX];
	static char got[65536];
	int fd = dial();
	size_t sum = 0;
	int64_t until = loop_clock_us() + 5000000;

	memset(large, 'x', sizeof(large));
	say(fd, "POST /big HTTP/1.1\r\n" HOST "Content-Length: 4194304\r\n\r\n");
	ck_assert(say_bytes(fd, large, sizeof(large)));
	while (sum < sizeof(large) && loop_clock_us() < until) {
		ssize_t n = recv(fd, got, sizeof(got), MSG_DONTWAIT);

		if (n > 0)
			sum += (size_t)n;
		else
			turn(1);
	}
	ck_assert_uint_gt(sum, sizeof(large));
	turn_for(10);
	ck_assert_uint_eq(ends, 1);
	ck_assert_uint_eq(gone, 0);
	close(fd);
}
END_TEST

START_TEST(a_held_request_ends_when_it_is_released)
{
	int fd = dial();

	say(fd, "POST /held HTTP/1.1\r\n" HOST "\r\n");
	turn_for(10);
	finish_later(0);
	ck_assert_uint_eq(status_in(hear_until(fd, "nothing", 1000)), 201);
	turn_for(10);
	ck_assert_uint_eq(ends, 0);
	ck_assert_uint_eq(status_in(ask(fd, LINE HOST "\r\n", "nothing")), 200);
	ck_assert_uint_eq(listener_requests(listener), 1);
	listener_release(&later[0]->request);
	ck_assert_uint_eq(ends, 2);
	ck_assert_uint_eq(listener_requests(listener), 0);
	close(fd);
}
END_TEST

/* ---- bodies that are too large, or not wanted */

START_TEST(a_body_over_the_maximum_is_swallowed_and_reported)
{
	static char text[512];
	int fd = dial();

	snprintf(text, sizeof(text), LINE HOST "Content-Length: 65\r\n\r\n%065d", 0);
	ck_assert_ptr_nonnull(strstr(ask(fd, text, NULL), "too large<end>"));
	ck_assert(too_large);
	ck_assert_uint_eq(announced, 65);
	ck_assert_uint_eq(last_body_len, 0);
	close(fd);
	fd = dial();
	snprintf(text, sizeof(text),
		 LINE HOST
		 "Transfer-Encoding: chunked\r\n\r\n40\r\n%064d\r\n1\r\nx\r\n0\r\n\r\n",
		 0);
	ck_assert_ptr_nonnull(strstr(ask(fd, text, NULL), "too large<end>"));
	ck_assert_uint_eq(announced, SIZE_MAX);
	close(fd);
	fd = dial();
	snprintf(text, sizeof(text),
		 LINE HOST "Transfer-Encoding: chunked\r\n\r\n40\r\n%064d\r\n0\r\n\r\n", 0);
	ck_assert_uint_eq(status_in(ask(fd, text, "0000")), 200);
	ck_assert(!too_large);
	ck_assert_uint_eq(last_body_len, 64);
	close(fd);
}
END_TEST

START_TEST(a_body_that_is_announced_as_huge_is_refused_at_once)
{
	int fd = dial();
	const char *text = ask(fd, LINE HOST "Content-Length: 99999999\r\n\r\nx", NULL);

	ck_assert_uint_eq(status_in(text), 413);
	ck_assert_ptr_nonnull(strstr(text, "Connection: close"));
	ck_assert_uint_eq(ends, 1);
	close(fd);
	fd = dial();
	text = ask(fd, "POST /now HTTP/1.1\r\n" HOST "Content-Length: 99999999\r\n\r\nx", NULL);
	ck_assert_uint_eq(status_in(text), 403);
	close(fd);
}
END_TEST

START_TEST(an_endless_body_is_cut_off_and_answered)
{
	static char chunk[65536 + 16];
	int fd = dial();
	const char *text = NULL;
	size_t len = (size_t)snprintf(chunk, sizeof(chunk), "10000\r\n");

	memset(chunk + len, 'x', 65536);
	memcpy(chunk + len + 65536, "\r\n", 2);
	len += 65538;
	say(fd, LINE HOST "Transfer-Encoding: chunked\r\n\r\n");
	for (int i = 0; i < 40 && say_bytes(fd, chunk, len); i++)
		;
	text = hear_end(fd);
	ck_assert_uint_eq(status_in(text), 413);
	ck_assert_ptr_nonnull(strstr(text, "too large"));
	ck_assert_uint_eq(bodies, 1);
	close(fd);
	turn_for(10);
	ck_assert_uint_eq(ends, 1);

	fd = dial();
	say(fd, "POST /now HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n");
	for (int i = 0; i < 40 && say_bytes(fd, chunk, len); i++)
		;
	ck_assert_uint_eq(status_in(hear_end(fd)), 403);
	close(fd);
	turn_for(10);
	ck_assert_uint_eq(ends, 2);
	ck_assert_uint_eq(bodies, 1);

	fd = dial();
	say(fd, "POST /later HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n");
	for (int i = 0; i < 20; i++)
		say_bytes(fd, chunk, len);
	ck_assert_uint_eq(n_later, 1);
	finish_later(0);
	ck_assert_uint_eq(status_in(hear_until(fd, "too large", 1000)), 201);
	close(fd);
	turn_for(10);
	ck_assert_uint_eq(ends, 3);
}
END_TEST

START_TEST(an_answer_from_the_head_waits_for_the_body_and_closes)
{
	int fd = dial();
	const char *text = NULL;

	say(fd, "POST /now HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\no");
	ck_assert_str_eq(hear(fd), "");
	text = ask(fd, "ne", NULL);
	ck_assert_uint_eq(status_in(text), 403);
	ck_assert_ptr_nonnull(strstr(text, "nothing<end>"));
	ck_assert_uint_eq(bodies, 0);
	close(fd);
	fd = dial();
	for (int i = 0; i < 2; i++) /* without a body the connection is kept */
		ck_assert_uint_eq(
			status_in(ask(fd, "POST /now HTTP/1.1\r\n" HOST "\r\n", "nothing")),
			403);
	close(fd);
}
END_TEST

START_TEST(the_body_is_asked_for_only_where_it_is_wanted)
{
	int fd = dial();
	const char *text = ask(
		fd, LINE HOST "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n", "\r\n\r\n");

	ck_assert_uint_eq(status_in(text), 100);
	text = ask(fd, "hi", "hi");
	ck_assert_uint_eq(status_in(text), 200);
	close(fd);
	fd = dial();
	text = ask(fd,
		   "POST /now HTTP/1.1\r\n" HOST
		   "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n",
		   NULL);
	ck_assert_uint_eq(status_in(text), 403);
	ck_assert_ptr_null(strstr(text, " 100 "));
	close(fd);
	fd = dial();
	text = ask(fd, LINE HOST "Expect: 100-continue\r\nContent-Length: 65\r\n\r\n", NULL);
	ck_assert_uint_eq(status_in(text), 413);
	close(fd);
	fd = dial();
	text = ask(fd, LINE HOST "Expect: 100-continue\r\n\r\n", "nothing");
	ck_assert_ptr_nonnull(strstr(text, "HTTP/1.1 200 OK"));
	close(fd);
	ck_assert_uint_eq(gone, 0);
}
END_TEST

/* ---- deadlines and limits */

static const struct listener_limits hasty = {
	.header_timeout = 300, .body_timeout = 600, .idle_timeout = 300, .connections = 3
};

static void setup_hasty(void)
{
	make();
	start_with("127.0.0.1:0", &hasty);
}

START_TEST(a_slow_head_or_body_is_408)
{
	int silent = dial(), line = dial(), first = dial();
	const char *text = NULL;

	say(line, LINE HOST "X-A:");
	say(first, "POST /bo");
	text = hear_end(line);
	ck_assert_uint_eq(status_in(text), 408);
	ck_assert_ptr_nonnull(strstr(text, "\"code\": \"request_timeout\""));
	ck_assert_uint_eq(status_in(hear_end(silent)), 408);
	ck_assert_uint_eq(status_in(hear_end(first)), 408);
	ck_assert_uint_eq(heads, 0);
	close(silent), close(line), close(first);
	turn_for(20);
	ck_assert_uint_eq(listener_connections(listener), 0);
	line = dial();
	say(line, LINE HOST "Content-Length: 3\r\n\r\no");
	text = hear_end(line);
	ck_assert_uint_eq(status_in(text), 408);
	ck_assert_ptr_nonnull(strstr(text, "\"may_have_executed\": false"));
	close(line);
	turn_for(20);
	ck_assert_uint_eq(ends, 1);
	ck_assert_uint_eq(gone, 1);
	ck_assert_uint_eq(bodies, 0);
}
END_TEST

START_TEST(an_idle_connection_is_closed_and_a_waiting_one_is_not)
{
	int idle = dial(), waiting = dial();
	const char *text = NULL;

	ask(idle, LINE HOST "\r\n", "nothing");
	say(waiting, "POST /later HTTP/1.1\r\n" HOST "\r\n");
	ck_assert_str_eq(hear_end(idle), "<end>");
	turn_for(1200);
	ck_assert_str_eq(hear(waiting), "");
	finish_later(0);
	text = hear_until(waiting, "nothing", 1000);
	ck_assert_uint_eq(status_in(text), 201);
	close(idle), close(waiting);
}
END_TEST

START_TEST(a_body_nobody_wants_is_not_waited_for_longer_than_five_seconds)
{
	int fd = dial();
	int64_t began = loop_clock_us();

	say(fd, "POST /now HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\no");
	ck_assert_uint_eq(status_in(hear_until(fd, "nothing", 8000)), 403);
	ck_assert_int_gt(loop_clock_us() - began, 4000000);
	ck_assert_ptr_nonnull(strstr(hear_until(fd, NULL, 100), "<end>"));
	turn_for(3200);
	ck_assert_uint_eq(listener_connections(listener), 0);
	ck_assert_uint_eq(ends, 1);
	close(fd);
}
END_TEST

START_TEST(over_the_limit_a_connection_is_told_so)
{
	int fds[4];
	const char *text = NULL;

	for (int i = 0; i < 3; i++) {
		fds[i] = dial();
		ask(fds[i], LINE HOST "\r\n", "nothing");
	}
	fds[3] = dial();
	text = hear_end(fds[3]);
	ck_assert_uint_eq(status_in(text), 503);
	ck_assert_ptr_nonnull(strstr(text, "Idempotency-Verdict: overloaded"));
	ck_assert_ptr_nonnull(strstr(text, "Retry-After: 1"));
	close(fds[3]), close(fds[0]);
	turn_for(10);
	fds[0] = dial();
	ck_assert_uint_eq(status_in(ask(fds[0], LINE HOST "\r\n", "nothing")), 200);
	for (int i = 0; i < 3; i++)
		close(fds[i]);
}
END_TEST

START_TEST(without_descriptors_accepting_rests_and_goes_on)
{
	struct rlimit before, now;
	int fd = dial(), held = -1;
	unsigned turns = 0;
	int64_t until = 0;

	ask(fd, LINE HOST "\r\n", "nothing");
	held = dial();
	getrlimit(RLIMIT_NOFILE, &before);
	now = before;
	now.rlim_cur = (rlim_t)dup(0);
	close((int)now.rlim_cur);
	setrlimit(RLIMIT_NOFILE, &now);
	until = loop_clock_us() + 500000;
	while (loop_clock_us() < until) {
		turn(100);
		turns++;
	}
	ck_assert_uint_lt(turns, 20);
	setrlimit(RLIMIT_NOFILE, &before);
	ck_assert_uint_eq(status_in(ask(held, LINE HOST "\r\n", "nothing")), 200);
	close(fd), close(held);
}
END_TEST

START_TEST(a_reload_changes_the_limits)
{
	int fd = dial();

	listener_follow(listener, &hasty);
	say(fd, "POST /bo");
	ck_assert_uint_eq(status_in(hear_end(fd)), 408);
	close(fd);
}
END_TEST

START_TEST(three_hundred_connections_are_served_together)
{
	static int fds[300];

	for (int round = 0; round < 3; round++) {
		n_later = 0;
		for (int i = 0; i < 300; i++) {
			if (round == 0)
				fds[i] = dial();
			say(fds[i],
			    "POST /later HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\nhi");
		}
		turn_for(20);
		ck_assert_uint_eq(n_later, 300);
		ck_assert_uint_eq(listener_requests(listener), 300);
		for (unsigned i = 300; i-- > 0;)
			finish_later(i);
		for (int i = 0; i < 300; i++)
			ck_assert_uint_eq(status_in(hear_until(fds[i], "hi", 2000)), 201);
	}
	ck_assert_uint_eq(listener_connections(listener), 300);
	for (int i = 0; i < 300; i++)
		close(fds[i]);
	turn_for(20);
	ck_assert_uint_eq(listener_connections(listener), 0);
	ck_assert_uint_eq(ends, 900);
	ck_assert_uint_eq(gone, 0);
}
END_TEST

START_TEST(draining_closes_the_idle_and_finishes_the_busy)
{
	int idle = dial(), busy = dial(), coming = dial();
	const char *text = NULL;

	ask(idle, LINE HOST "\r\n", "nothing");
	say(busy, "POST /later HTTP/1.1\r\n" HOST "\r\n");
	say(coming, LINE HOST "Content-Length: 2\r\n\r\nh");
	turn_for(10);
	listener_drain(listener);
	ck_assert_str_eq(hear_end(idle), "<end>");
	say(coming, "i");
	text = hear_end(coming);
	ck_assert_ptr_nonnull(strstr(text, "Connection: close"));
	ck_assert_ptr_nonnull(strstr(text, "hi<end>"));
	ck_assert_uint_eq(listener_requests(listener), 1);
	finish_later(0);
	text = hear_end(busy);
	ck_assert_ptr_nonnull(strstr(text, "Connection: close"));
	ck_assert_ptr_nonnull(strstr(text, "nothing<end>"));
	turn_for(10);
	ck_assert_uint_eq(listener_connections(listener), 0);
	close(idle), close(busy), close(coming);
}
END_TEST

/* ---- addresses */

START_TEST(ipv6_is_served)
{
	int fd = -1;

	make();
	start_with("[::1]:0", &usual);
	ck_assert_int_eq(strncmp(listener_address(listener, 0), "[::1]:", 6), 0);
	fd = dial();
	ck_assert_uint_eq(status_in(ask(fd, LINE HOST "\r\n", "nothing")), 200);
	ck_assert_str_eq(last_peer, "::1");
	close(fd);
	teardown();
}
END_TEST

static struct listener *second_on(struct loop *on, const char *address, char why[256])
{
	const char *addresses[] = { address };
	struct listener_start start = { .loop = on,
					.addresses = addresses,
					.n_addresses = 1,
					.limits = &usual,
					.handler = &handler,
					.metrics = metrics };

	return listener_new(&start, why);
}

START_TEST(listeners_of_a_process_share_their_addresses)
{
	static const char *const addresses[] = { "127.0.0.1:0",
						 "unix:/tmp/test_listener.sock" };
	struct loop *their_loop = loop_new();
	char why[256] = "";

	for (size_t i = 0; i < ARRAY_LEN(addresses); i++) {
		struct listener *other = NULL;
		int fd = -1;

		make();
		start_with(addresses[i], &usual);
		other = second_on(their_loop, addresses[i], why);
		ck_assert_ptr_nonnull(other);
		ck_assert_str_eq(listener_address(listener, 0), listener_address(other, 0));
		listener_free(other);
		fd = i ? dial_unix("/tmp/test_listener.sock") : dial();
		ck_assert_uint_eq(status_in(ask(fd, LINE HOST "\r\n", "nothing")), 200);
		ck_assert_str_eq(last_peer, i ? "unix" : "127.0.0.1");
		close(fd);
		teardown();
	}
	ck_assert_int_ne(access("/tmp/test_listener.sock", F_OK), 0);
	loop_free(their_loop);
}
END_TEST

START_TEST(a_stale_unix_socket_is_replaced_and_a_live_one_is_not)
{
	static const char path[] = "/tmp/test_listener_stale.sock";
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	char why[256] = "";
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	make();
	memcpy(at.sun_path, path, sizeof(path));
	unlink(path);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	ck_assert_int_eq(listen(fd, 5), 0);
	ck_assert_ptr_null(second_on(loop, "unix:/tmp/test_listener_stale.sock", why));
	ck_assert_ptr_nonnull(strstr(why, "in use"));
	close(fd);
	start_with("unix:/tmp/test_listener_stale.sock", &usual);
	fd = dial_unix(path);
	ck_assert_uint_eq(status_in(ask(fd, LINE HOST "\r\n", "nothing")), 200);
	close(fd);
	teardown();
	ck_assert_int_ne(access(path, F_OK), 0);
}
END_TEST

START_TEST(a_file_is_not_replaced_by_a_socket)
{
	static const char path[] = "/tmp/test_listener_file";
	char why[256] = "";

	make();
	close(open(path, O_CREAT | O_WRONLY, 0600));
	ck_assert_ptr_null(second_on(loop, "unix:/tmp/test_listener_file", why));
	ck_assert_int_eq(access(path, F_OK), 0);
	unlink(path);
	teardown();
}
END_TEST

START_TEST(a_bad_address_gets_a_sentence)
{
	static const char *const bad[] = { "",
					   "8080",
					   "localhost:8080",
					   "127.0.0.1",
					   "127.0.0.1:",
					   "1.1.1.1:65536",
					   "1.1.1.1:-1",
					   "1.1.1.1:80x",
					   "[::1]",
					   "[::1:80",
					   "::1:80",
					   "unix:",
					   "unix:/no/such/folder/x",
					   "192.0.2.1:80" };

	make();
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		char why[256] = "";

		ck_assert_ptr_null(second_on(loop, bad[i], why));
		ck_assert_uint_gt(strlen(why), 10);
	}
	teardown();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("listener");
	TCase *plain = tcase_create("plain"), *own = tcase_create("own");
	TCase *slow = tcase_create("hasty");
	SRunner *r = srunner_create(s);
	int failed = 0;

	tcase_add_checked_fixture(plain, setup, teardown);
	tcase_add_checked_fixture(slow, setup_hasty, teardown);
	tcase_set_timeout(plain, 30);
	tcase_set_timeout(slow, 30);
	tcase_add_loop_test(plain, a_request_that_can_be_read_in_two_ways_is_refused, 0,
			    (int)ARRAY_LEN(raws));
	tcase_add_test(plain, a_refusal_says_what_and_whether_there_was_a_key);
	tcase_add_test(plain, a_head_over_the_limit_is_431);
	tcase_add_test(plain, a_head_just_under_the_limit_is_served_however_it_comes);
	tcase_add_test(plain, a_query_with_a_thousand_parameters_is_served);
	tcase_add_test(plain, the_request_is_as_it_was_sent);
	tcase_add_test(plain, trailers_are_not_merged_into_the_fields);
	tcase_add_test(plain, an_answer_has_its_own_fields_and_the_listeners);
	tcase_add_test(plain, a_head_request_gets_a_length_and_no_body);
	tcase_add_test(plain, a_connection_is_kept_and_pipelined_requests_come_one_by_one);
	tcase_add_test(plain, http_1_0_closes_unless_asked_to_keep);
	tcase_add_test(plain, connection_close_is_honoured);
	tcase_add_test(plain, a_client_that_closed_its_half_gets_its_answer);
	tcase_add_test(plain, a_client_that_leaves_while_waiting_changes_nothing);
	tcase_add_test(plain, a_client_that_leaves_before_its_request_is_complete_ends_it);
	tcase_add_test(plain, a_client_that_leaves_while_it_is_answered_ends_the_request);
	tcase_add_test(plain, a_large_answer_arrives_whole);
	tcase_add_test(plain, a_held_request_ends_when_it_is_released);
	tcase_add_test(plain, a_body_over_the_maximum_is_swallowed_and_reported);
	tcase_add_test(plain, a_body_that_is_announced_as_huge_is_refused_at_once);
	tcase_add_test(plain, an_endless_body_is_cut_off_and_answered);
	tcase_add_test(plain, an_answer_from_the_head_waits_for_the_body_and_closes);
	tcase_add_test(plain, the_body_is_asked_for_only_where_it_is_wanted);
	tcase_add_test(plain, a_reload_changes_the_limits);
	tcase_add_test(plain, three_hundred_connections_are_served_together);
	tcase_add_test(plain, draining_closes_the_idle_and_finishes_the_busy);
	tcase_add_test(slow, a_slow_head_or_body_is_408);
	tcase_add_test(slow, an_idle_connection_is_closed_and_a_waiting_one_is_not);
	tcase_add_test(slow, a_body_nobody_wants_is_not_waited_for_longer_than_five_seconds);
	tcase_add_test(slow, over_the_limit_a_connection_is_told_so);
	tcase_add_test(slow, without_descriptors_accepting_rests_and_goes_on);
	tcase_add_test(own, ipv6_is_served);
	tcase_add_test(own, listeners_of_a_process_share_their_addresses);
	tcase_add_test(own, a_stale_unix_socket_is_replaced_and_a_live_one_is_not);
	tcase_add_test(own, a_file_is_not_replaced_by_a_socket);
	tcase_add_test(own, a_bad_address_gets_a_sentence);
	suite_add_tcase(s, plain);
	suite_add_tcase(s, slow);
	suite_add_tcase(s, own);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
