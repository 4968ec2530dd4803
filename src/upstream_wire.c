/*
 * One connection to a server; see upstream_wire.h. The only file that knows libcurl.
 *
 * libcurl resolves (in a thread of its own), connects (all addresses, RFC 8305) and does the TLS
 * handshake with its verification; CURLOPT_CONNECT_ONLY makes it stop there, so that it never
 * sends a byte of HTTP. What becomes of its connection then:
 *
 *   plain  We keep a duplicate of the socket, and libcurl closes its own and forgets it.
 *   TLS    The SSL object is libcurl's, so its easy handle lives as long as the wire. Its BIO goes
 *          through libcurl's filters, which work only inside a call of libcurl: it is replaced
 *          by one on the socket. A connection in libcurl's cache is closed behind our back when
 *          another transfer begins and finds it dead or old; so each has a cache to itself,
 *          by a share of its own.
 *
 * The SSL object can be had only while the transfer has its connection: in the callback before
 * the request that is never made. SIGPIPE is ignored by the whole process (main.c).
 */
#include "upstream_wire.h"

#include "mem.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <curl/curl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#define CA_CACHE_SECONDS 60L /* a changed ca_file is read within that time */
#define MAX_CONNECTS     1000000L

struct wires {
	struct loop *loop;
	CURLM *multi;
	struct loop_timer timer;   /* libcurl's */
	struct loop_timer collect; /* handles that ended where nobody could be called */
	int opening;               /* handles that libcurl is at work on */
};

/* A socket that libcurl wants to be told about. */
struct socket {
	struct loop_watch watch;
	struct wires *wires;
};

static void ask(CURLcode result)
{
	assert(result == CURLE_OK);
}

/* What became of the connection that libcurl has made; NULL where it is ours now. */
static const char *take_tls(struct upstream_wire *wire, curl_socket_t fd)
{
	if (!wire->ssl || SSL_set_fd(wire->ssl, fd) != 1)
		return "libcurl has no OpenSSL connection";
	SSL_CTX_sess_set_new_cb(SSL_get_SSL_CTX(wire->ssl), NULL); /* libcurl's: as its BIO */
	SSL_set_mode(wire->ssl,
		     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	SSL_set_options(wire->ssl, SSL_OP_NO_RENEGOTIATION);
	wire->watch.fd = fd;
	return NULL;
}

static void give_back(struct upstream_wire *wire)
{
	curl_multi_remove_handle(wire->of->multi, wire->easy);
	curl_easy_cleanup(wire->easy);
	curl_share_cleanup(wire->share);
	wire->easy = wire->share = NULL;
	wire->ssl = NULL;
}

static const char *take(struct upstream_wire *wire)
{
	curl_socket_t fd = CURL_SOCKET_BAD;
	const char *failure = NULL;

	ask(curl_easy_getinfo(wire->easy, CURLINFO_ACTIVESOCKET, &fd));
	if (fd == CURL_SOCKET_BAD)
		return "the server closed the connection at once";
	if (wire->tls) {
		failure = take_tls(wire, fd);
	} else {
		wire->watch.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
		failure = wire->watch.fd < 0 ? "there are too many open files" : NULL;
		give_back(wire);
	}
	if (!failure)
		loop_watch(wire->of->loop, &wire->watch, LOOP_READ);
	return failure;
}

/* `opened` may free the wire. */
static void settle(struct upstream_wire *wire, CURLcode result)
{
	const char *failure = NULL;

	wire->opening = false;
	wire->of->opening--;
	failure = result == CURLE_OK ? take(wire) : curl_easy_strerror(result);
	if (failure)
		wire_close(wire);
	wire->opened(wire, failure);
}

static void collect(struct wires *wires)
{
	CURLMsg *message = NULL;
	int left = 0;

	while ((message = curl_multi_info_read(wires->multi, &left))) {
		char *wire = NULL;
		CURLcode result = message->data.result;

		if (message->msg != CURLMSG_DONE)
			continue;
		ask(curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &wire));
		settle((struct upstream_wire *)(void *)wire, result);
	}
}

/* How many handles libcurl is still at work on. */
static int drive(struct wires *wires, curl_socket_t fd, int bits)
{
	int running = 0;

	curl_multi_socket_action(wires->multi, fd, bits, &running);
	return running;
}

static void socket_ready(struct loop_watch *watch, unsigned events)
{
	struct socket *socket = container_of(watch, struct socket, watch);
	struct wires *wires = socket->wires;

	(void)drive(wires, watch->fd,
		    (events & LOOP_READ ? CURL_CSELECT_IN : 0) |
			    (events & LOOP_WRITE ? CURL_CSELECT_OUT : 0) |
			    (events & LOOP_CLOSED ? CURL_CSELECT_IN | CURL_CSELECT_ERR : 0));
	collect(wires);
}

static int socket_wanted(CURL *easy, curl_socket_t fd, int what, void *arg, void *known)
{
	struct wires *wires = arg;
	struct socket *socket = known;
	unsigned events =
		(what & CURL_POLL_IN ? LOOP_READ : 0) | (what & CURL_POLL_OUT ? LOOP_WRITE : 0);

	(void)easy;
	if (what == CURL_POLL_REMOVE) {
		if (socket)
			loop_unwatch(wires->loop, &socket->watch);
		mem_free(socket);
		return 0;
	}
	if (!socket) {
		socket = mem_alloc(sizeof(*socket));
		socket->watch.fd = fd;
		socket->watch.ready = socket_ready;
		socket->wires = wires;
		curl_multi_assign(wires->multi, fd, socket);
	}
	if (events)
		loop_watch(wires->loop, &socket->watch, events);
	else
		loop_unwatch(wires->loop, &socket->watch);
	return 0;
}

static int timer_wanted(CURLM *multi, long ms, void *arg)
{
	struct wires *wires = arg;

	(void)multi;
	if (ms < 0)
		loop_timer_stop(wires->loop, &wires->timer);
	else
		loop_timer(wires->loop, &wires->timer, ms);
	return 0;
}

static void timer_due(struct loop_timer *timer)
{
	struct wires *wires = container_of(timer, struct wires, timer);

	(void)drive(wires, CURL_SOCKET_TIMEOUT, 0);
	collect(wires);
}

static void collect_due(struct loop_timer *timer)
{
	collect(container_of(timer, struct wires, collect));
}

static void init_libcurl(void)
{
	ask(curl_global_init(CURL_GLOBAL_DEFAULT));
}

struct wires *wires_new(struct loop *loop)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct wires *wires = mem_alloc(sizeof(*wires));

	pthread_once(&once, init_libcurl);
	wires->loop = loop;
	wires->timer.due = timer_due;
	wires->collect.due = collect_due;
	wires->multi = curl_multi_init();
	assert(wires->multi);
	curl_multi_setopt(wires->multi, CURLMOPT_SOCKETFUNCTION, socket_wanted);
	curl_multi_setopt(wires->multi, CURLMOPT_SOCKETDATA, wires);
	curl_multi_setopt(wires->multi, CURLMOPT_TIMERFUNCTION, timer_wanted);
	curl_multi_setopt(wires->multi, CURLMOPT_TIMERDATA, wires);
	curl_multi_setopt(wires->multi, CURLMOPT_MAXCONNECTS, MAX_CONNECTS);
	return wires;
}

void wires_free(struct wires *wires)
{
	assert(wires->opening == 0);
	curl_multi_cleanup(wires->multi);
	loop_timer_stop(wires->loop, &wires->timer);
	loop_timer_stop(wires->loop, &wires->collect);
	mem_free(wires);
}

/* libcurl is about to make the request that CONNECT_ONLY forbids. */
/* NOLINTNEXTLINE(readability-non-const-parameter): libcurl's type */
static int connected(void *arg, char *remote, char *local, int remote_port, int local_port)
{
	struct upstream_wire *wire = arg;
	const struct curl_tlssessioninfo *info = NULL;

	(void)remote, (void)local, (void)remote_port, (void)local_port;
	if (curl_easy_getinfo(wire->easy, CURLINFO_TLS_SSL_PTR, &info) == CURLE_OK && info &&
	    info->backend == CURLSSLBACKEND_OPENSSL)
		wire->ssl = info->internals;
	return CURL_PREREQFUNC_OK;
}

static void set_tls(CURL *easy, const struct wire_target *to)
{
	ask(curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 1L));
	ask(curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 2L));
	ask(curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2));
	ask(curl_easy_setopt(easy, CURLOPT_SSL_SESSIONID_CACHE, 0L));
	ask(curl_easy_setopt(easy, CURLOPT_CA_CACHE_TIMEOUT, CA_CACHE_SECONDS));
	if (to->ca_file)
		ask(curl_easy_setopt(easy, CURLOPT_CAINFO, to->ca_file));
}

static CURL *new_easy(struct upstream_wire *wire, const struct wire_target *to)
{
	CURL *easy = curl_easy_init();

	assert(easy);
	ask(curl_easy_setopt(easy, CURLOPT_PRIVATE, wire));
	ask(curl_easy_setopt(easy, CURLOPT_URL, to->url));
	ask(curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https"));
	ask(curl_easy_setopt(easy, CURLOPT_CONNECT_ONLY, 1L));
	ask(curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, connected));
	ask(curl_easy_setopt(easy, CURLOPT_PREREQDATA, wire));
	ask(curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1));
	ask(curl_easy_setopt(easy, CURLOPT_PROXY, "")); /* whatever the environment says */
	ask(curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1L));
	ask(curl_easy_setopt(easy, CURLOPT_TCP_NODELAY, 1L));
	ask(curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L));
	ask(curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)to->connect_timeout_ms));
	/* a resolver's thread that hangs is left alone: closing must not wait for it */
	ask(curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L));
	if (to->tls)
		set_tls(easy, to);
	return easy;
}

/* A cache of connections for this one: see the head of this file. */
static CURLSH *new_share(CURL *easy)
{
	CURLSH *share = curl_share_init();
	CURLSHcode made =
		share ? curl_share_setopt(share, CURLSHOPT_SHARE, CURL_LOCK_DATA_CONNECT)
		      : CURLSHE_NOMEM;

	assert(made == CURLSHE_OK);
	ask(curl_easy_setopt(easy, CURLOPT_SHARE, share));
	return share;
}

void wire_open(struct wires *wires, struct upstream_wire *wire, const struct wire_target *to)
{
	CURLMcode added = CURLM_OK;

	wire->of = wires;
	wire->tls = to->tls;
	wire->ssl = NULL;
	wire->watch.fd = -1;
	wire->write_blocked = wire->read_blocked = wire->paused = false;
	wire->easy = new_easy(wire, to);
	wire->share = to->tls ? new_share(wire->easy) : NULL;
	wire->opening = true;
	wires->opening++;
	added = curl_multi_add_handle(wires->multi, wire->easy);
	assert(added == CURLM_OK);
	if (drive(wires, CURL_SOCKET_TIMEOUT, 0) < wires->opening)
		loop_timer(wires->loop, &wires->collect, 0);
}

void wire_close(struct upstream_wire *wire)
{
	if (wire->opening)
		wire->of->opening--;
	wire->opening = false;
	loop_unwatch(wire->of->loop, &wire->watch);
	if (wire->easy)
		give_back(wire); /* and closes the descriptor */
	else if (wire->watch.fd >= 0)
		close(wire->watch.fd);
	wire->watch.fd = -1;
}

static void watch(struct upstream_wire *wire)
{
	bool blocked = wire->write_blocked || wire->read_blocked;

	if (!wire->paused)
		loop_watch(wire->of->loop, &wire->watch,
			   LOOP_READ | (blocked ? LOOP_WRITE : 0));
}

void wire_pause(struct upstream_wire *wire)
{
	wire->paused = true;
	loop_unwatch(wire->of->loop, &wire->watch);
}

void wire_resume(struct upstream_wire *wire)
{
	wire->paused = false;
	watch(wire);
}

static enum wire_moved failed(int why)
{
	return why == EAGAIN || why == EINTR ? WIRE_BLOCKED : WIRE_BROKEN;
}

/* An iovec is for reading too, and not const. */
static struct iovec piece(struct span bytes)
{
	struct iovec piece = { .iov_len = bytes.len };

	memcpy(&piece.iov_base, &bytes.at, sizeof(piece.iov_base));
	return piece;
}

static enum wire_moved write_plain(struct upstream_wire *wire, struct span first,
				   struct span second, size_t *n)
{
	struct iovec parts[2] = { piece(first), piece(second) };
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = second.len ? 2 : 1 };
	ssize_t sent = 0;

	if (first.len == 0) {
		message.msg_iov = &parts[1];
		message.msg_iovlen = 1;
	}
	sent = sendmsg(wire->watch.fd, &message, MSG_NOSIGNAL);
	*n = sent > 0 ? (size_t)sent : 0;
	if (sent > 0)
		return WIRE_MOVED;
	wire->write_blocked = failed(sent < 0 ? errno : EAGAIN) == WIRE_BLOCKED;
	return wire->write_blocked ? WIRE_BLOCKED : WIRE_BROKEN;
}

static enum wire_moved write_tls(struct upstream_wire *wire, struct span bytes, size_t *n)
{
	int why = SSL_ERROR_NONE;

	ERR_clear_error();
	if (SSL_write_ex(wire->ssl, bytes.at, bytes.len, n) == 1)
		return WIRE_MOVED;
	*n = 0;
	why = SSL_get_error(wire->ssl, 0);
	wire->write_blocked = why == SSL_ERROR_WANT_WRITE;
	return wire->write_blocked || why == SSL_ERROR_WANT_READ ? WIRE_BLOCKED : WIRE_BROKEN;
}

enum wire_moved wire_write(struct upstream_wire *wire, struct span first, struct span second,
			   size_t *n)
{
	enum wire_moved moved = WIRE_BROKEN;

	assert(first.len || second.len);
	wire->write_blocked = false;
	if (wire->ssl)
		moved = write_tls(wire, first.len ? first : second, n);
	else
		moved = write_plain(wire, first, second, n);
	watch(wire);
	return moved;
}

static enum wire_moved read_plain(struct upstream_wire *wire, char *to, size_t room, size_t *n)
{
	ssize_t got = recv(wire->watch.fd, to, room, 0);

	*n = got > 0 ? (size_t)got : 0;
	if (got == 0)
		return WIRE_ENDED;
	return got > 0 ? WIRE_MOVED : failed(errno);
}

static enum wire_moved read_tls(struct upstream_wire *wire, char *to, size_t room, size_t *n)
{
	int why = SSL_ERROR_NONE;

	ERR_clear_error();
	if (SSL_read_ex(wire->ssl, to, room, n) == 1)
		return WIRE_MOVED;
	*n = 0;
	why = SSL_get_error(wire->ssl, 0);
	if (why == SSL_ERROR_ZERO_RETURN)
		return WIRE_ENDED;
	wire->read_blocked = why == SSL_ERROR_WANT_WRITE;
	return wire->read_blocked || why == SSL_ERROR_WANT_READ ? WIRE_BLOCKED : WIRE_BROKEN;
}

enum wire_moved wire_read(struct upstream_wire *wire, char *to, size_t room, size_t *n)
{
	enum wire_moved moved = WIRE_BROKEN;

	wire->read_blocked = false;
	moved = wire->ssl ? read_tls(wire, to, room, n) : read_plain(wire, to, room, n);
	watch(wire);
	return moved;
}

/* The kernel reports again what is left in the socket; what is left inside OpenSSL nobody does. */
bool wire_more(const struct upstream_wire *wire, size_t n, size_t room)
{
	return wire->ssl ? SSL_has_pending(wire->ssl) == 1 : n == room;
}

bool wire_quiet(struct upstream_wire *wire)
{
	char byte = 0;
	size_t n = 0;

	if (!wire->ssl)
		return recv(wire->watch.fd, &byte, 1, MSG_PEEK) < 0 &&
		       failed(errno) == WIRE_BLOCKED;
	ERR_clear_error();
	if (SSL_peek_ex(wire->ssl, &byte, 1, &n) == 1)
		return false;
	return SSL_get_error(wire->ssl, 0) == SSL_ERROR_WANT_READ;
}
