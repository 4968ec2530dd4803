/* A request as the client sent it, an answer as it will be sent back, and what HTTP says of
 * their fields (RFC 9110, 9112). Pure. */
#pragma once
#include "mem.h"

struct http_field {
	struct span name, value; /* value without the white space around it */
};

struct http_fields {
	struct http_field *at;
	size_t n;
};

#define HTTP_FIELDS_MAX 100U
#define HTTP_HEAD_MAX   ((size_t)16 * 1024) /* bytes of a whole head, in either direction */

struct http_request {
	struct arena *arena; /* everything this request learns lives and dies here */
	struct span method;
	struct span target; /* as received: what is forwarded */
	struct span path;   /* normalised (http_path); what routes and digests see */
	struct span query;  /* as received, without the question mark */
	bool has_query;
	bool loose_path; /* only where the route has loose_paths may it pass (http_target) */
	struct http_fields fields; /* in the order received, lines not merged */
	struct span host; /* the Host field's value, or an absolute target's authority */
	struct span body;
	bool body_too_large; /* the rest was swallowed */
	unsigned minor;      /* HTTP/1.minor */
	struct span peer;    /* the address that connected, as text, without the port; "unix" */
	int64_t began_us;    /* when its head was complete, on the loop's clock */
};

/* The one thing that flows from the upstream to the ledger and on to the client. */
struct http_answer {
	unsigned status;
	struct http_fields fields;
	struct span body;
	bool close; /* the connection ends behind it */
};

/* What a byte may be part of; a `%` in a path or a host depends on what follows it. */
enum {
	HTTP_TCHAR = 1,       /* a token */
	HTTP_VALUE = 2,       /* a field value: no CTL but HTAB */
	HTTP_PATH = 4,        /* a path, as browsers write it too: visible ASCII but \ # ? % */
	HTTP_QUERY = 8,       /* a query: visible ASCII but # */
	HTTP_HOST = 16,       /* a reg-name */
	HTTP_UNRESERVED = 32, /* RFC 3986 2.3 */
	HTTP_HEX = 64
};
extern const uint8_t http_class[256];
static inline bool http_is(char byte, unsigned classes)
{
	return http_class[(uint8_t)byte] & classes;
}
unsigned http_hex(char digit); /* the value of a HTTP_HEX byte */

bool http_token(struct span text) MUST_CHECK;       /* RFC 9110 5.6.2 */
bool http_field_value(struct span text) MUST_CHECK; /* no CTL but HTAB; RFC 9110 5.5 */
bool http_same_name(struct span a, struct span b);  /* names compare without case */

/* The first field of that name; NULL where there is none. `*lines` (may be NULL): how many. */
const struct http_field *http_find(const struct http_fields *fields, struct span name,
				   size_t *lines);
/* Adds one; `at` must have room (HTTP_FIELDS_MAX). */
void http_add(struct http_fields *fields, struct span name, struct span value);
/* Does a comma-separated list, over all lines of that name, hold the element (without case)?
 * For lists of tokens: a comma inside quotes splits too. */
bool http_list_has(const struct http_fields *fields, struct span name, struct span element);

/* A field that is for one connection only (RFC 9110 7.6.1): Connection, Keep-Alive,
 * Proxy-Connection, TE, Trailer, Transfer-Encoding, Upgrade, Proxy-Authenticate,
 * Proxy-Authorization, Proxy-Authentication-Info, HTTP2-Settings, or named by Connection. */
bool http_hop_by_hop(const struct http_fields *fields, struct span name);

/*
 * The path of a received target, normalised by RFC 3986 6.2.2: unreserved escapes decoded, hex
 * upper case, the rest as it is. Origin-form, absolute-form (http and https; its authority goes
 * to *out, an empty path is `/`) and `*`. False where the contract refuses it: not a valid
 * target (also a fragment, a space, a byte that is not ASCII, a `\` or an escape without hex
 * in the path), `//`, dot segments (also escaped), an escaped `/`, `\` or NUL; `loose` admits
 * those from `//` on (and cleans nothing). Where nothing changes, out->path is the received
 * bytes.
 */
struct http_target {
	struct span path, query, authority;
	bool has_query;
};
bool http_target(struct arena *arena, struct span target, bool loose,
		 struct http_target *out) MUST_CHECK;

/* RFC 9110 7.2: uri-host [":" port], without userinfo. Empty is not; an empty port is. */
bool http_host_valid(struct span host) MUST_CHECK;
const char *http_reason(unsigned status); /* "Not Found"; "" where there is none */
/* IMF-fixdate of a time in seconds, 29 bytes and a NUL; held inside the years 0 to 9999. */
#define HTTP_DATE_BYTES 30
void http_date(int64_t seconds, char out[HTTP_DATE_BYTES]);
/* Without parameters, e.g. of `Application/JSON; charset=utf-8` "Application/JSON". */
struct span http_media_type(struct span content_type);
