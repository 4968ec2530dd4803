/*
 * A socket in front of the server's, on the test's own loop, that passes messages on whole and
 * loses what a test wants to be lost: a batch before the server has it, or what the server says
 * up to the end of a transaction. Nothing else tells "not committed" from "not heard of".
 */
#pragma once
#include "ledger_rig.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

enum proxy_plan {
	PROXY_PASS,
	PROXY_LOSE_REQUEST, /* the next bytes of the client, and the connection */
	PROXY_LOSE_REPLY /* what comes behind `skip` transactions, up to the end of one more */
};

#define PAIRS_MAX 64
#define POLLS     256U

struct pair {
	struct loop_watch client, server; /* fd -1: closed */
	struct buf from_client, from_server;
	bool started;   /* the first message of a client has no type */
	unsigned ended; /* transactions, since the plan was made */
	bool polls
		[POLLS]; /* of those under way: it only asks what is stopped, which comes anytime */
	bool polled, asked_more;
	unsigned sent, answered;
};

static struct proxy {
	struct loop_watch listener;
	struct pair *pairs[PAIRS_MAX];
	size_t n_pairs;
	enum proxy_plan plan;
	unsigned skip, times; /* how often the plan is carried out */
	unsigned cuts;
	bool closed;      /* who connects is sent away */
	char bound[4096]; /* the names of what was executed */
	char dir[96], conninfo[192];
} proxy;

static void pair_shut(struct loop_watch *end)
{
	if (end->fd < 0)
		return;
	loop_unwatch(loop, end);
	close(end->fd);
	end->fd = -1;
}

static void pair_cut(struct pair *pair)
{
	pair_shut(&pair->client);
	pair_shut(&pair->server);
}

static void put_on(const struct loop_watch *to, const char *at, size_t len)
{
	while (len > 0) {
		ssize_t n = send(to->fd, at, len, MSG_NOSIGNAL);

		if (n < 0)
			return; /* its end is told by a read */
		at += n;
		len -= (size_t)n;
	}
}

/* The length of the first message, 0 where it is not whole yet. */
static size_t message(const struct buf *buf, bool typed)
{
	const unsigned char *at = (const unsigned char *)buf->at + typed;
	size_t len = 0;

	if (buf->len < 4U + typed)
		return 0;
	len = ((size_t)at[0] << 24 | (size_t)at[1] << 16 | (size_t)at[2] << 8 | at[3]) + typed;
	return buf->len < len ? 0 : len;
}

static void carried_out(struct pair *pair)
{
	proxy.cuts++;
	if (--proxy.times == 0)
		proxy.plan = PROXY_PASS;
	pair_cut(pair);
}

/* Bind: an empty portal's name, then the statement's. */
static bool is_poll(const char *message)
{
	return message[0] == 'B' && strcmp(message + 6, "stops_read") == 0;
}

static void note(struct pair *pair, const char *message)
{
	size_t n = strlen(proxy.bound);

	if (message[0] == 'B' && !is_poll(message)) {
		snprintf(proxy.bound + n, sizeof(proxy.bound) - n, "%s ", message + 6);
		pair->asked_more = true;
	}
	pair->polled |= is_poll(message);
	if (message[0] != 'S' && message[0] != 'Q')
		return;
	pair->polls[++pair->sent % POLLS] = pair->polled && !pair->asked_more;
	pair->polled = pair->asked_more = false;
}

/* Does it hold a transaction, or a part of one, that is no poll? */
static bool asks_more(const struct buf *buf)
{
	struct buf rest = *buf;
	size_t len = 0;
	bool poll = false;

	while ((len = message(&rest, true)) > 0) {
		if (rest.at[0] == 'B' && !is_poll(rest.at))
			return true;
		poll |= is_poll(rest.at);
		rest.at += len;
		rest.len -= len;
	}
	return !poll;
}

static void client_said(struct pair *pair)
{
	struct buf *buf = &pair->from_client;
	size_t len = 0;

	if (proxy.plan == PROXY_LOSE_REQUEST && pair->started && asks_more(buf)) {
		carried_out(pair);
		return;
	}
	while ((len = message(buf, pair->started)) > 0) {
		if (pair->started)
			note(pair, buf->at);
		pair->started = true;
		if (pair->server.fd >= 0)
			put_on(&pair->server, buf->at, len);
		buf_skip(buf, len);
	}
}

static void server_said(struct pair *pair)
{
	struct buf *buf = &pair->from_server;
	size_t len = 0;

	while (pair->server.fd >= 0 && (len = message(buf, true)) > 0) {
		bool end = buf->at[0] == 'Z';
		bool poll = pair->polls[pair->answered % POLLS];
		bool lose =
			proxy.plan == PROXY_LOSE_REPLY && pair->ended >= proxy.skip && !poll;

		if (!lose && pair->client.fd >= 0)
			put_on(&pair->client, buf->at, len);
		buf_skip(buf, len);
		pair->ended += end && !poll;
		pair->answered +=
			end; /* the first is the end of the beginning, which nobody asked for */
		if (lose && end)
			carried_out(pair);
	}
}

/* False: nothing more will come. */
static bool take_in(const struct loop_watch *from, struct buf *into)
{
	char bytes[16384];
	ssize_t n = recv(from->fd, bytes, sizeof(bytes), MSG_DONTWAIT);

	if (n > 0)
		buf_append(into, bytes, (size_t)n);
	return n > 0 || (n < 0 && errno == EAGAIN);
}

static void client_ready(struct loop_watch *watch, unsigned events)
{
	struct pair *pair = container_of(watch, struct pair, client);

	(void)events;
	if (take_in(watch, &pair->from_client))
		client_said(pair);
	else
		pair_cut(pair);
}

static void server_ready(struct loop_watch *watch, unsigned events)
{
	struct pair *pair = container_of(watch, struct pair, server);

	(void)events;
	if (take_in(watch, &pair->from_server))
		server_said(pair);
	else
		pair_cut(pair);
}

static struct sockaddr_un socket_in(const char *dir)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };

	ck_assert_uint_lt(strlen(dir), 80);
	snprintf(at.sun_path, sizeof(at.sun_path), "%.80s/.s.PGSQL.5432", dir);
	return at;
}

static void proxy_ready(struct loop_watch *watch, unsigned events)
{
	struct sockaddr_un at = socket_in(scratch_dir);
	struct pair *pair = NULL;
	int fd = accept(watch->fd, NULL, NULL);

	(void)events;
	ck_assert_int_ge(fd, 0);
	if (proxy.closed) {
		close(fd);
		return;
	}
	ck_assert_uint_lt(proxy.n_pairs, PAIRS_MAX);
	pair = proxy.pairs[proxy.n_pairs++] = mem_alloc(sizeof(*pair));
	buf_init(&pair->from_client, 1U << 24);
	buf_init(&pair->from_server, 1U << 24);
	pair->client.fd = fd;
	pair->client.ready = client_ready;
	pair->server.fd = socket(AF_UNIX, SOCK_STREAM, 0);
	pair->server.ready = server_ready;
	ck_assert_int_eq(connect(pair->server.fd, (struct sockaddr *)&at, sizeof(at)), 0);
	loop_watch(loop, &pair->client, LOOP_READ);
	loop_watch(loop, &pair->server, LOOP_READ);
}

/* From now on, so often: the batch is lost, or what it is answered. */
static inline void proxy_plan(enum proxy_plan plan, unsigned skip, unsigned times)
{
	proxy.plan = plan;
	proxy.skip = skip;
	proxy.times = times;
	proxy.bound[0] = 0;
	for (size_t i = 0; i < proxy.n_pairs; i++)
		proxy.pairs[i]->ended = 0;
}

/* Connections end for the clients alone: the server goes on with what it has. */
static inline void proxy_leave_server_alone(void)
{
	for (size_t i = 0; i < proxy.n_pairs; i++)
		pair_shut(&proxy.pairs[i]->client);
}

static inline void proxy_cut(void)
{
	for (size_t i = 0; i < proxy.n_pairs; i++)
		pair_cut(proxy.pairs[i]);
}

static inline void proxy_open(void)
{
	struct sockaddr_un at;

	proxy = (struct proxy){ .listener = { .ready = proxy_ready } };
	snprintf(proxy.dir, sizeof(proxy.dir), "%s/p%d", scratch_dir, (int)getpid());
	snprintf(proxy.conninfo, sizeof(proxy.conninfo),
		 "host=%s user=onceward dbname=onceward", proxy.dir);
	ck_assert_int_eq(mkdir(proxy.dir, 0755), 0);
	at = socket_in(proxy.dir);
	proxy.listener.fd = socket(AF_UNIX, SOCK_STREAM, 0);
	ck_assert_int_eq(bind(proxy.listener.fd, (struct sockaddr *)&at, sizeof(at)), 0);
	ck_assert_int_eq(listen(proxy.listener.fd, 16), 0);
	loop_watch(loop, &proxy.listener, LOOP_READ);
}

static inline void proxy_close(void)
{
	pair_shut(&proxy.listener);
	for (size_t i = 0; i < proxy.n_pairs; i++) {
		pair_cut(proxy.pairs[i]);
		buf_fini(&proxy.pairs[i]->from_client);
		buf_fini(&proxy.pairs[i]->from_server);
		mem_free(proxy.pairs[i]);
	}
}
