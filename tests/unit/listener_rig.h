/*
 * What the tests of the listener share: a real listener on a real loop, and clients that write
 * bytes. Listener and clients run in one thread: whoever waits turns the loop meanwhile.
 *
 * The handler is driven by the target: every one reads at most 64 bytes and echoes them, /big
 * reads 4 MiB, /now answers from `head`, /later answers when the test says so, /held is held
 * beyond that, and /wide has an answer with a large head.
 */
#pragma once
#include "../turned.h"
#include "unit_run.h"

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
#define LINE      "POST /body HTTP/1.1\r\n"
#define HOST      "Host: a\r\n"
#define SEEN_MAX  512

struct exchange {
	struct http_request request;
	struct http_answer answer;
	struct http_field fields[HTTP_FIELDS_MAX];
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

static char wide[250];

static inline void keep(char *at, size_t room, struct span text)
{
	snprintf(at, room, "%.*s", (int)text.len, text.len ? text.at : "");
}

static inline bool targets(const struct http_request *request, const char *path)
{
	return span_equal(request->path, span_of(path));
}

static inline void echo(struct http_request *request, unsigned status)
{
	struct exchange *x = (struct exchange *)(void *)request;

	x->answer.status = status;
	x->answer.fields.at = x->fields;
	http_add(&x->answer.fields, SPAN("Content-Type"), SPAN("text/plain"));
	http_add(&x->answer.fields, SPAN("X-Empty"), SPAN(""));
	http_add(&x->answer.fields, SPAN("Connection"), SPAN("X-Lie"));
	for (int i = 0; targets(request, "/wide") && i < 60; i++)
		http_add(&x->answer.fields, SPAN("X-Wide"),
			 (struct span){ wide, sizeof(wide) });
	x->answer.body = request->body_too_large ? SPAN("too large") : request->body;
	if (x->answer.body.len == 0)
		x->answer.body = SPAN("nothing");
	listener_answer(request, &x->answer);
}

static inline void head(struct http_request *request, void *arg)
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

static inline void body(struct http_request *request, void *arg)
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

static inline void end(struct http_request *request, void *arg)
{
	(void)arg;
	ends++;
	if (listener_gone(request))
		gone++;
}

static const struct listener_handler handler = {
	.size = sizeof(struct exchange), .head = head, .body = body, .end = end
};

#define TURN_US 10000 /* a turn that is not held up */

static inline void turn(int ms)
{
	int64_t began = loop_clock_us();

	loop_wait(loop, listener_due(listener) ? 0 : ms);
	while (listener_run(listener))
		;
	turned(began, TURN_US);
}

static inline void turn_for(int64_t ms)
{
	int64_t until = turned_us + ms * 1000;

	while (turned_us < until)
		turn(5);
}

static inline void finish_later(unsigned i)
{
	ck_assert(later[i]->waiting);
	later[i]->waiting = false;
	echo(&later[i]->request, 201);
}

static inline void start_with(const char *address, const struct listener_limits *limits)
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
					      .client_stall = 10000,
					      .connections = 400 };

static inline void make(void)
{
	log_configure(LOG_TEXT, LOG_ERROR);
	loop = loop_new();
	metrics = metrics_new();
	heads = bodies = ends = gone = n_later = 0;
}

static inline void setup(void)
{
	make();
	start_with("127.0.0.1:0", &usual);
}

static inline void teardown(void)
{
	if (listener)
		listener_free(listener);
	listener = NULL;
	metrics_free(metrics);
	loop_free(loop);
}

static inline int dial_to(const char *address)
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

static inline int dial(void)
{
	return dial_to(listener_address(listener, 0));
}

static inline int dial_unix(const char *path)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	memcpy(at.sun_path, path, strlen(path));
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	fcntl(fd, F_SETFL, O_NONBLOCK);
	return fd;
}

/* Turns the loop while the socket does not take it; false where the other side has closed. */
static inline bool say_bytes(int fd, const char *bytes, size_t len)
{
	int64_t until = turned_us + 8000000;

	while (len > 0 && turned_us < until) {
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

static inline void say(int fd, const char *text)
{
	ck_assert(say_bytes(fd, text, strlen(text)));
}

/*
 * What comes within `ms`, or until `enough` is in it (NULL: until the end of the connection).
 * "<end>" and "<reset>" stand behind what came where the connection closed.
 */
static inline const char *hear_until(int fd, const char *enough, int64_t ms)
{
	static char text[65536];
	size_t len = 0;
	int64_t until = turned_us + ms * 1000;

	text[0] = '\0';
	while (turned_us < until) {
		ssize_t n = recv(fd, text + len, sizeof(text) - len - 16, MSG_DONTWAIT);

		if (n > 0)
			len += (size_t)n;
		text[len] = '\0';
		if (n == 0 || (n < 0 && errno != EAGAIN)) {
			snprintf(text + len, 16, "%s", n == 0 ? "<end>" : "<reset>");
			break;
		}
		if (enough && strstr(text, enough))
			break;
		turn(1);
	}
	return text;
}

/* A complete answer: these answers have a Content-Length. */
static inline const char *hear(int fd)
{
	return hear_until(fd, "\n\n<never>", 300);
}

static inline const char *hear_end(int fd)
{
	return hear_until(fd, NULL, 5000);
}

static inline unsigned status_in(const char *text)
{
	return strncmp(text, "HTTP/1.1 ", 9) == 0 ? (unsigned)strtoul(text + 9, NULL, 10) : 0;
}

static inline unsigned answers_in(const char *text)
{
	unsigned n = 0;

	for (const char *at = text; (at = strstr(at, "HTTP/1.1 ")); at++)
		n++;
	return n;
}

static inline const char *ask(int fd, const char *text, const char *enough)
{
	say(fd, text);
	return hear_until(fd, enough, 5000);
}

/* The usual case: each test has a listener of its own on a port of 127.0.0.1. */
static inline int run_case(const char *name, TCase *tcase)
{
	Suite *suite = suite_create(name);

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
