/*
 * Listening sockets: what an address of the settings means, and how a process shares it.
 *
 * Each listener of a process has a TCP socket of its own on the same port (SO_REUSEPORT: the
 * kernel spreads the connections). The kernel would let any process of the same user join them,
 * so the first one listens before it allows others to: two processes that take one port by
 * mistake, even at the same moment, cannot both come through that.
 *
 * A unix socket cannot be bound twice, so there is one of it, counted; its file is removed with
 * the last holder. A file that nobody listens on (its process was killed) is replaced; one that
 * answers is somebody else's and an error.
 *
 * The sockets of the process are in one list under a lock: listeners may be made by any thread.
 */
#include "listener_socket.h"

#include "mem.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG  4096
#define WHY_SIZE 256

struct address {
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
		struct sockaddr_un path;
	} at;
	socklen_t len;
};

struct listener_socket {
	struct list link;
	char *asked; /* as the settings say */
	char *bound; /* the same with the true port */
	struct address address;
	int fd;
	unsigned holders;
	bool alone;
};

/* Who else may have a socket's address. */
enum sharing {
	SHARE_NEVER,
	SHARE_LATER, /* nobody has it yet; later ones of this process may */
	SHARE_NOW
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct list sockets = { &sockets, &sockets };

static bool unix_path(const struct address *address)
{
	return address->at.any.sa_family == AF_UNIX;
}

static bool parse_port(const char *text, in_port_t *port)
{
	char *end = NULL;
	unsigned long value = strtoul(text, &end, 10);

	*port = htons((uint16_t)value);
	return text[0] >= '0' && text[0] <= '9' && *end == '\0' && value <= UINT16_MAX;
}

static bool parse_ip(const char *text, struct address *out)
{
	char host[INET6_ADDRSTRLEN + 2] = "";
	const char *colon = strrchr(text, ':');
	size_t len = colon ? (size_t)(colon - text) : 0;

	if (!colon || len == 0 || len >= sizeof(host))
		return false;
	memcpy(host, text, len);
	if (host[0] != '[') {
		out->at.v4.sin_family = AF_INET;
		out->len = sizeof(out->at.v4);
		return inet_pton(AF_INET, host, &out->at.v4.sin_addr) == 1 &&
		       parse_port(colon + 1, &out->at.v4.sin_port);
	}
	if (host[len - 1] != ']')
		return false;
	host[len - 1] = '\0';
	out->at.v6.sin6_family = AF_INET6;
	out->len = sizeof(out->at.v6);
	return inet_pton(AF_INET6, host + 1, &out->at.v6.sin6_addr) == 1 &&
	       parse_port(colon + 1, &out->at.v6.sin6_port);
}

static bool parse(const char *text, struct address *out, char why[WHY_SIZE])
{
	static const char prefix[] = "unix:";
	const char *path = text + sizeof(prefix) - 1;

	*out = (struct address){ 0 };
	if (strncmp(text, prefix, sizeof(prefix) - 1) != 0) {
		if (parse_ip(text, out))
			return true;
		snprintf(why, WHY_SIZE, "%.100s is not ADDRESS:PORT, [IPV6]:PORT or unix:PATH",
			 text);
		return false;
	}
	if (!*path || strlen(path) >= sizeof(out->at.path.sun_path)) {
		snprintf(why, WHY_SIZE, "%.120s: the path must have 1 to %zu bytes", text,
			 sizeof(out->at.path.sun_path) - 1);
		return false;
	}
	out->at.path.sun_family = AF_UNIX;
	memcpy(out->at.path.sun_path, path, strlen(path));
	out->len = sizeof(out->at.path);
	return true;
}

static char *text_of(const struct address *address)
{
	char host[INET6_ADDRSTRLEN] = "",
	     text[INET6_ADDRSTRLEN + sizeof("unix:[]:65535") + 108];

	if (unix_path(address)) {
		snprintf(text, sizeof(text), "unix:%s", address->at.path.sun_path);
	} else if (address->at.any.sa_family == AF_INET) {
		inet_ntop(AF_INET, &address->at.v4.sin_addr, host, sizeof(host));
		snprintf(text, sizeof(text), "%s:%u", host, ntohs(address->at.v4.sin_port));
	} else {
		inet_ntop(AF_INET6, &address->at.v6.sin6_addr, host, sizeof(host));
		snprintf(text, sizeof(text), "[%s]:%u", host, ntohs(address->at.v6.sin6_port));
	}
	return mem_text(span_of(text));
}

/* A unix socket whose process is gone refuses connections. Whatever else lies at the path stays. */
static bool stale(const struct address *address)
{
	struct stat file;
	int fd = -1;
	bool refused = false;

	if (lstat(address->at.path.sun_path, &file) != 0 || !S_ISSOCK(file.st_mode))
		return false;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return false;
	refused = connect(fd, &address->at.any, address->len) != 0 && errno == ECONNREFUSED;
	close(fd);
	return refused;
}

static bool bind_unix(int fd, const struct address *address)
{
	if (bind(fd, &address->at.any, address->len) == 0)
		return true;
	if (errno != EADDRINUSE)
		return false;
	if (!stale(address)) {
		errno = EADDRINUSE;
		return false;
	}
	unlink(address->at.path.sun_path);
	return bind(fd, &address->at.any, address->len) == 0;
}

static bool set(int fd, int level, int option)
{
	static const int on = 1;

	return setsockopt(fd, level, option, &on, sizeof(on)) == 0;
}

static bool listen_at(int fd, const struct address *address, enum sharing sharing)
{
	if (unix_path(address))
		return bind_unix(fd, address) && listen(fd, BACKLOG) == 0;
	if (!set(fd, SOL_SOCKET, SO_REUSEADDR) || /* of connections that outlived a process */
	    (address->at.any.sa_family == AF_INET6 && !set(fd, IPPROTO_IPV6, IPV6_V6ONLY)) ||
	    (sharing == SHARE_NOW && !set(fd, SOL_SOCKET, SO_REUSEPORT)))
		return false;
	return bind(fd, &address->at.any, address->len) == 0 && listen(fd, BACKLOG) == 0 &&
	       (sharing != SHARE_LATER || set(fd, SOL_SOCKET, SO_REUSEPORT));
}

static struct listener_socket *open_new(const char *asked, const struct address *address,
					enum sharing sharing, char why[WHY_SIZE])
{
	struct address bound = *address;
	int fd = socket(address->at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
			0);
	struct listener_socket *s = NULL;

	if (fd < 0 || !listen_at(fd, address, sharing)) {
		snprintf(why, WHY_SIZE, "cannot listen on %.120s: %s", asked, strerror(errno));
		if (fd >= 0)
			close(fd);
		return NULL;
	}
	if (!unix_path(address))
		getsockname(fd, &bound.at.any, &bound.len);
	s = mem_alloc(sizeof(*s));
	s->asked = mem_text(span_of(asked));
	s->bound = text_of(&bound);
	s->address = bound;
	s->fd = fd;
	s->holders = 1;
	s->alone = sharing == SHARE_NEVER;
	list_append(&sockets, &s->link);
	return s;
}

/* One to share. */
static struct listener_socket *find(const char *asked)
{
	for (struct list *at = sockets.next; at != &sockets; at = at->next) {
		struct listener_socket *s = container_of(at, struct listener_socket, link);

		if (!s->alone && strcmp(s->asked, asked) == 0)
			return s;
	}
	return NULL;
}

static struct listener_socket *open_locked(const char *asked, bool alone, char why[WHY_SIZE])
{
	struct address address;
	struct listener_socket *same = alone ? NULL : find(asked);

	if (same && unix_path(&same->address)) {
		same->holders++;
		return same;
	}
	if (same)
		return open_new(asked, &same->address, SHARE_NOW, why);
	if (!parse(asked, &address, why))
		return NULL;
	return open_new(asked, &address, alone ? SHARE_NEVER : SHARE_LATER, why);
}

struct listener_socket *listener_socket_open(const char *address, bool alone, char why[256])
{
	struct listener_socket *s = NULL;

	pthread_mutex_lock(&lock);
	s = open_locked(address, alone, why);
	pthread_mutex_unlock(&lock);
	return s;
}

void listener_socket_close(struct listener_socket *socket)
{
	pthread_mutex_lock(&lock);
	if (--socket->holders == 0) {
		list_remove(&socket->link);
		if (unix_path(&socket->address))
			unlink(socket->address.at.path.sun_path);
		close(socket->fd);
		mem_free(socket->asked);
		mem_free(socket->bound);
		mem_free(socket);
	}
	pthread_mutex_unlock(&lock);
}

int listener_socket_fd(const struct listener_socket *socket)
{
	return socket->fd;
}

bool listener_socket_shared(const struct listener_socket *socket)
{
	return unix_path(&socket->address);
}

const char *listener_socket_address(const struct listener_socket *socket)
{
	return socket->bound;
}
