/*
 * Addresses: where to listen, which servers to connect to, how to reach PostgreSQL. Listen
 * addresses are numbers, so that what the file says is what is opened; servers may be names.
 */
#include "settings_internal.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/un.h>

/* A port and nothing else. */
static bool valid_port(const char *text, unsigned long least)
{
	size_t digits = strspn(text, "0123456789");
	unsigned long port = digits > 5 ? 0 : strtoul(text, NULL, 10);

	return digits > 0 && digits <= 5 && !text[digits] && port >= least && port <= 65535;
}

static bool valid_listen(const char *address)
{
	const char *colon = strrchr(address, ':');
	bool six = address[0] == '[';
	size_t len = colon ? (size_t)(colon - address) : 0;
	char host[INET6_ADDRSTRLEN];
	unsigned char binary[16];

	if (strncmp(address, "unix:", 5) == 0)
		return address[5] &&
		       strlen(address + 5) < sizeof(((struct sockaddr_un *)0)->sun_path);
	if (!colon || len < 3 || len > sizeof(host) || (six && colon[-1] != ']'))
		return false;
	len -= six ? 2 : 0;
	if (len >= sizeof(host))
		return false;
	memcpy(host, address + six, len);
	host[len] = 0;
	return inet_pton(six ? AF_INET6 : AF_INET, host, binary) == 1 &&
	       valid_port(colon + 1, 0);
}

void settings_check_listen(struct loader *loader, const struct item *at, const char *address)
{
	if (!valid_listen(address))
		settings_error(
			loader, at,
			"\"%s\" is no address to listen at: ADDRESS:PORT, [IPV6]:PORT or "
			"unix:PATH, the address in numbers",
			address);
}

/* host[:port], without a name and a password before it. */
static bool parse_authority(struct loader *loader, const char *authority, struct server *server)
{
	const char *bracket = strchr(authority, ']');
	const char *colon = strchr(bracket ? bracket : authority, ':');

	if (strpbrk(authority, "/?#@\\") || !http_host_valid(span_of(authority)))
		return false;
	if (colon && !valid_port(colon + 1, 1))
		return false;
	server->host = arena_copy(loader->arena, span_of(authority)).at;
	server->url =
		arena_format(loader->arena, "http%s://%s%s", server->tls ? "s" : "", authority,
			     colon         ? ""
			     : server->tls ? ":443"
					   : ":80")
			.at;
	return true;
}

static bool parse_server(struct loader *loader, const char *url, struct server *server)
{
	server->tls = strncmp(url, "https://", 8) == 0;
	if (server->tls)
		return parse_authority(loader, url + 8, server);
	return strncmp(url, "http://", 7) == 0 && parse_authority(loader, url + 7, server);
}

void settings_servers(struct loader *loader, const struct item *group,
		      struct upstream_settings *upstream)
{
	const struct item *item = item_find(group, "servers");
	const struct texts *texts = &upstream->servers;
	struct server *servers = arena_zero(loader->arena, texts->n * sizeof(*servers));

	for (size_t i = 0; i < texts->n; i++)
		if (!parse_server(loader, texts->at[i], &servers[i]))
			settings_error(
				loader, &item->at[i],
				"\"%s\" is no server: http://HOST:PORT or https://HOST:PORT, "
				"without a path and a user",
				texts->at[i]);
	if (item && texts->at && texts->n == 0)
		settings_error(loader, item, "`servers` is empty");
	upstream->server = servers;
	upstream->n_servers = texts->n;
}

static const char *skip_spaces(const char *at)
{
	return at + strspn(at, " \t\n\r\f\v");
}

/* Past a value of a conninfo: 'quoted' or up to the next space; \ takes the next byte as it is. */
static const char *skip_value(const char *at)
{
	bool quote = *at == '\'';

	at += quote;
	while (*at && (quote ? *at != '\'' : !strchr(" \t\n\r\f\v", *at)))
		at += *at == '\\' && at[1] ? 2 : 1;
	return at + (quote && *at);
}

/* A keyword whose value is a secret. */
static bool secret_word(const char *at, size_t len)
{
	return (len == 8 && strncasecmp(at, "password", len) == 0) ||
	       (len == 11 && strncasecmp(at, "sslpassword", len) == 0);
}

static bool words_hold_secret(const char *at)
{
	for (at = skip_spaces(at); *at; at = skip_spaces(at)) {
		size_t len = strcspn(at, "= \t\n\r\f\v");
		bool secret = secret_word(at, len);

		at = skip_spaces(at + len);
		if (*at != '=')
			return secret; /* libpq will say that it is malformed */
		if (secret)
			return true;
		at = skip_value(skip_spaces(at + 1));
	}
	return false;
}

/* ?name=value&name=value of a URI; names may be percent-encoded, which nobody does in good faith. */
static bool query_holds_secret(const char *at)
{
	while (at) {
		size_t len = strcspn(++at, "=&");
		if (secret_word(at, len) || memchr(at, '%', len))
			return true;
		at = strchr(at, '&');
	}
	return false;
}

static bool uri_holds_secret(const char *at)
{
	size_t authority = strcspn(at, "/?#");
	const char *host = memrchr(at, '@', authority);
	const char *colon = host ? memchr(at, ':', (size_t)(host - at)) : NULL;

	return (colon && colon + 1 < host) || query_holds_secret(strchr(at, '?'));
}

static bool holds_secret(const char *conninfo)
{
	static const char *const schemes[] = { "postgres://", "postgresql://" };

	for (size_t i = 0; i < ARRAY_LEN(schemes); i++)
		if (strncmp(conninfo, schemes[i], strlen(schemes[i])) == 0)
			return uri_holds_secret(conninfo + strlen(schemes[i]));
	return words_hold_secret(conninfo);
}

/* The text itself is not said: it holds the password. */
void settings_check_conninfo(struct loader *loader, const struct item *at, const char *conninfo)
{
	if (holds_secret(conninfo))
		settings_error(
			loader, at,
			"`%s` holds a password: put it into a file that only you can read, "
			"and write passfile=FILE",
			at->name);
}
