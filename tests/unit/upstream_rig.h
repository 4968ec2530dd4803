/*
 * What the tests of upstream.c share: a scripted server on a loopback port that counts what
 * arrives, and one call driven to its end through a loop of its own.
 *
 * The server is threads of the test's process, one a connection. A script is called for each
 * request that was read (`nth` of its connection, from 1; of PEER_HELLO scripts: before anything
 * is read) and says whether the connection goes on. `arrivals` counts requests of which any
 * byte came.
 */
#pragma once
#include "../turned.h"
#include "upstream.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define OK_ANSWER "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

struct peer {
	int fd;
	SSL *ssl;
	unsigned nth;
	size_t body; /* bytes of the request's, read */
	char head[32768];
	struct server_rig *server;
};

struct server_rig {
	int fd;
	uint16_t port;
	bool (*script)(struct peer *peer); /* NULL: nothing is ever read or answered */
	bool hello;                        /* the script runs instead of reading */
	bool head_only;                    /* the script runs before the body is read */
	SSL_CTX *tls;
	int mode; /* the script's */
	atomic_uint arrivals, connections;
	atomic_bool over;
	pthread_t thread;
	atomic_uint peers;
};

static inline void nap(int ms)
{
	poll(NULL, 0, ms);
}

static inline ssize_t peer_read(struct peer *peer, char *to, size_t room)
{
	return peer->ssl ? SSL_read(peer->ssl, to, (int)room) : recv(peer->fd, to, room, 0);
}

static inline void say(struct peer *peer, const char *bytes, size_t len)
{
	while (len > 0) {
		ssize_t n = peer->ssl ? SSL_write(peer->ssl, bytes, (int)len)
				      : send(peer->fd, bytes, len, MSG_NOSIGNAL);

		if (n <= 0)
			return;
		bytes += n;
		len -= (size_t)n;
	}
}

static inline bool say_text(struct peer *peer, const char *text)
{
	say(peer, text, strlen(text));
	return true;
}

/* Closes by a reset. */
static inline bool reset(struct peer *peer)
{
	const struct linger now = { .l_onoff = 1 };

	setsockopt(peer->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	return false;
}

static inline bool peer_head(struct peer *peer, size_t *len)
{
	*len = 0;
	for (;;) {
		ssize_t n = peer_read(peer, peer->head + *len, sizeof(peer->head) - 1 - *len);

		if (n <= 0)
			return false;
		if (*len == 0)
			peer->server->arrivals++;
		*len += (size_t)n;
		peer->head[*len] = 0;
		if (strstr(peer->head, "\r\n\r\n"))
			return true;
	}
}

/* One request, with its body; false at the end of the connection. */
static inline bool peer_request(struct peer *peer)
{
	char piece[16384];
	size_t len = 0, announced = 0;
	const char *length = NULL;

	if (!peer_head(peer, &len))
		return false;
	peer->nth++;
	peer->body = len - (size_t)(strstr(peer->head, "\r\n\r\n") + 4 - peer->head);
	if (peer->server->head_only)
		return true;
	length = strstr(peer->head, "Content-Length: ");
	announced = length ? strtoul(length + strlen("Content-Length: "), NULL, 10) : 0;
	while (peer->body < announced) {
		ssize_t n = peer_read(peer, piece, sizeof(piece));

		if (n <= 0)
			return false;
		peer->body += (size_t)n;
	}
	return true;
}

static inline void converse(struct peer *peer)
{
	const struct server_rig *server = peer->server;

	if (!server->script) {
		while (!server->over)
			nap(10);
	} else if (server->hello) {
		server->script(peer);
	} else {
		while (peer_request(peer) && server->script(peer))
			;
	}
}

static inline void *peer_main(void *arg)
{
	struct peer *peer = arg;
	struct server_rig *server = peer->server;
	const struct timeval patience = { .tv_sec = 20 };

	setsockopt(peer->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (server->tls) {
		peer->ssl = SSL_new(server->tls);
		SSL_set_fd(peer->ssl, peer->fd);
	}
	if (!peer->ssl || SSL_accept(peer->ssl) == 1)
		converse(peer);
	SSL_free(peer->ssl);
	close(peer->fd);
	free(peer);
	server->peers--;
	return NULL;
}

static inline void *server_main(void *arg)
{
	struct server_rig *server = arg;

	while (!server->over) {
		struct pollfd ready = { .fd = server->fd, .events = POLLIN };
		struct peer *peer = NULL;
		pthread_t thread;

		if (poll(&ready, 1, 20) <= 0)
			continue;
		peer = calloc(1, sizeof(*peer));
		peer->server = server;
		peer->fd = accept(server->fd, NULL, NULL);
		server->connections++;
		server->peers++;
		pthread_create(&thread, NULL, peer_main, peer);
		pthread_detach(thread);
	}
	return NULL;
}

static inline int listen_on(uint16_t *port, int backlog)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_eq(bind(fd, (struct sockaddr *)&at, size), 0);
	ck_assert_int_eq(listen(fd, backlog), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&at, &size), 0);
	*port = ntohs(at.sin_port);
	return fd;
}

static inline void server_start(struct server_rig *server)
{
	server->fd = listen_on(&server->port, 1024);
	pthread_create(&server->thread, NULL, server_main, server);
}

/* After the client's connections are closed: its threads end by that. */
static inline void server_stop(struct server_rig *server)
{
	server->over = true;
	pthread_join(server->thread, NULL);
	for (int i = 0; i < 500 && server->peers; i++)
		nap(10);
	ck_assert_uint_eq(server->peers, 0);
	close(server->fd);
}

/* One client: a loop, its upstreams, and the settings of one upstream. */
struct client_rig {
	struct loop *loop;
	struct metrics *metrics;
	struct upstreams *upstreams;
	struct arena *arena;
	struct upstream_settings upstream;
	struct settings settings;
	struct server server[4];
	char url[4][64];
};

static inline void client_start(struct client_rig *client)
{
	signal(SIGPIPE, SIG_IGN);
	*client = (struct client_rig){ .loop = loop_new(),
				       .metrics = metrics_new(),
				       .arena = arena_new() };
	client->upstreams = upstreams_new(client->loop, client->metrics);
	client->upstream = (struct upstream_settings){
		.name = "rig",
		.connect_timeout = 10000,
		.first_byte_timeout = 10000,
		.idle_timeout = 10000,
		.timeout = 15000,
		.queue_timeout = 10000,
		.keepalive = 3000,
		.max_connections = 8,
		.server = client->server,
	};
	client->settings.upstreams = &client->upstream;
	client->settings.n_upstreams = 1;
}

static inline void client_server_at(struct client_rig *client, const char *host, uint16_t port,
				    bool tls)
{
	size_t i = client->upstream.n_servers++;

	(void)snprintf(client->url[i], sizeof(client->url[i]), "%s://%s:%u",
		       tls ? "https" : "http", host, port);
	client->server[i] = (struct server){ .url = client->url[i], .tls = tls };
}

static inline void client_to(struct client_rig *client, const struct server_rig *server)
{
	client_server_at(client, "127.0.0.1", server->port, server->tls != NULL);
	upstreams_follow(client->upstreams, &client->settings, 1);
}

static inline void client_stop(struct client_rig *client)
{
	upstreams_free(client->upstreams);
	loop_free(client->loop);
	arena_free(client->arena);
	metrics_free(client->metrics);
}

struct call_rig {
	struct upstream_call call;
	bool done;
	int64_t turned_us; /* how long it was waited for */
};

static inline void call_done(struct upstream_call *call)
{
	struct call_rig *rig = container_of(call, struct call_rig, call);

	ck_assert(!rig->done);
	rig->done = true;
}

static inline void call_begin(struct client_rig *client, struct call_rig *rig,
			      const char *method, struct span body)
{
	struct http_field host = { SPAN("Host"), SPAN("rig") };
	struct http_field *field = arena_alloc(client->arena, sizeof(host));

	*field = host;
	*rig = (struct call_rig){ .call = { .upstream = &client->upstream,
					    .arena = client->arena,
					    .method = span_of(method),
					    .target = SPAN("/orders"),
					    .fields = { field, 1 },
					    .body = body,
					    .answer_max = (size_t)8 << 20,
					    .start_by_ms = loop_clock_us() / 1000 + 20000,
					    .done = call_done } };
}

static inline void call_send(struct client_rig *client, struct call_rig *rig)
{
	upstream_send(client->upstreams, &rig->call);
	ck_assert_msg(!rig->done, "done was called inside upstream_send");
}

static inline void turn(struct client_rig *client, int ms)
{
	int64_t began = loop_clock_us();

	loop_wait(client->loop, ms);
	upstreams_run(client->upstreams);
	turned(began, (ms + 5) * 1000);
}

/* Turns until it is done. */
static inline void call_wait(struct client_rig *client, struct call_rig *rig)
{
	int64_t began = turned_us;

	while (!rig->done) {
		turn(client, 20);
		ck_assert_msg(turned_us < began + 20000000, "the call does not end");
	}
	rig->turned_us = turned_us - began;
}

/* Until the server has closed all that it had. */
static inline void peers_gone(struct client_rig *client, const struct server_rig *server)
{
	int64_t began = turned_us;

	while (server->peers) {
		turn(client, 20);
		ck_assert_msg(turned_us < began + 10000000, "a connection stays");
	}
}

static inline enum upstream_end call(struct client_rig *client, struct call_rig *rig,
				     const char *method, struct span body)
{
	call_begin(client, rig, method, body);
	call_send(client, rig);
	call_wait(client, rig);
	return rig->call.end;
}

static inline void turn_for(struct client_rig *client, int ms)
{
	int64_t until = turned_us + (int64_t)ms * 1000;

	while (turned_us < until)
		turn(client, 5);
}

/* The descriptor of the connection that the client has to the server. */
static inline int descriptor_to(const struct server_rig *server)
{
	for (int fd = 3; fd < 100; fd++) {
		struct sockaddr_in at = { 0 };
		socklen_t size = sizeof(at);

		if (getpeername(fd, (struct sockaddr *)&at, &size) == 0 &&
		    at.sin_family == AF_INET && ntohs(at.sin_port) == server->port)
			return fd;
	}
	ck_abort_msg("no connection");
	return -1;
}

#define assert_end(rig, expected)                                                              \
	ck_assert_msg((rig).call.end == (expected), "end %d, expected %d: %s",                 \
		      (int)(rig).call.end, (int)(expected),                                    \
		      (rig).call.cause ? (rig).call.cause : "-")

/* A port where connecting hangs: its queue is full and nobody accepts. */
static inline uint16_t deaf_port(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	uint16_t port = 0;

	(void)listen_on(&port, 0);
	at.sin_port = htons(port);
	for (int i = 0; i < 3; i++) {
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

		(void)connect(fd, (struct sockaddr *)&at, sizeof(at));
	}
	nap(20);
	return port;
}

static inline bool answer_ok(struct peer *peer)
{
	return say_text(peer, OK_ANSWER);
}

static inline bool slow(struct peer *peer)
{
	nap(60);
	return say_text(peer, OK_ANSWER);
}

static inline int run_suite(const char *name, TCase *tcase)
{
	Suite *suite = suite_create(name);
	SRunner *runner = srunner_create(suite);
	int failures = 0;

	tcase_set_timeout(tcase, 30);
	suite_add_tcase(suite, tcase);
	srunner_run_all(runner, CK_ENV);
	failures = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
