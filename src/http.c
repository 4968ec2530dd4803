/*
 * What HTTP says of names, values, targets, hosts and dates; see http.h.
 *
 * Everything here runs for every request, so it looks at a byte once where it can, by one table
 * of classes, and returns the received bytes where nothing has to change. Nothing depends on a
 * locale or a time zone. It knows no message and no socket: http1.c and listener.c do.
 */
#include "http.h"

#include <arpa/inet.h>
#include <assert.h>

#define VISIBLE    (HTTP_VALUE | HTTP_PATH | HTTP_QUERY)
#define SUB_DELIM  (VISIBLE | HTTP_HOST)
#define UNRESERVED (SUB_DELIM | HTTP_TCHAR | HTTP_UNRESERVED)

/* Browsers leave " < > [ ] ^ ` { | } as they are in a path or a query, so they are admitted. */
const uint8_t http_class[256] = {
	['\t'] = HTTP_VALUE,
	[' '] = HTTP_VALUE,
	['!'] = SUB_DELIM | HTTP_TCHAR,
	['"'] = VISIBLE,
	['#'] = HTTP_VALUE | HTTP_TCHAR,
	['$'] = SUB_DELIM | HTTP_TCHAR,
	['%'] = HTTP_VALUE | HTTP_QUERY | HTTP_TCHAR,
	['&' ... '\''] = SUB_DELIM | HTTP_TCHAR,
	['(' ... ')'] = SUB_DELIM,
	['*' ... '+'] = SUB_DELIM | HTTP_TCHAR,
	[','] = SUB_DELIM,
	['-' ... '.'] = UNRESERVED,
	['/'] = VISIBLE,
	['0' ... '9'] = UNRESERVED | HTTP_HEX,
	[':'] = VISIBLE,
	[';'] = SUB_DELIM,
	['<'] = VISIBLE,
	['='] = SUB_DELIM,
	['>'] = VISIBLE,
	['?'] = HTTP_VALUE | HTTP_QUERY,
	['@'] = VISIBLE,
	['A' ... 'F'] = UNRESERVED | HTTP_HEX,
	['G' ... 'Z'] = UNRESERVED,
	['['] = VISIBLE,
	['\\'] = HTTP_VALUE | HTTP_QUERY,
	[']'] = VISIBLE,
	['^'] = VISIBLE | HTTP_TCHAR,
	['_'] = UNRESERVED,
	['`'] = VISIBLE | HTTP_TCHAR,
	['a' ... 'f'] = UNRESERVED | HTTP_HEX,
	['g' ... 'z'] = UNRESERVED,
	['{'] = VISIBLE,
	['|'] = VISIBLE | HTTP_TCHAR,
	['}'] = VISIBLE,
	['~'] = UNRESERVED,
	[0x80 ... 0xff] = HTTP_VALUE,
};

unsigned http_hex(char digit)
{
	return digit <= '9' ? (unsigned)(digit - '0') : (unsigned)((digit | 0x20) - 'a' + 10);
}

static bool all(struct span text, unsigned classes)
{
	for (size_t i = 0; i < text.len; i++)
		if (!http_is(text.at[i], classes))
			return false;
	return true;
}

bool http_token(struct span text)
{
	return text.len && all(text, HTTP_TCHAR);
}

bool http_field_value(struct span text)
{
	return all(text, HTTP_VALUE);
}

static unsigned lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (unsigned)c | 0x20 : (uint8_t)c;
}

bool http_same_name(struct span a, struct span b)
{
	if (a.len != b.len)
		return false;
	for (size_t i = 0; i < a.len; i++)
		if (a.at[i] != b.at[i] && lower(a.at[i]) != lower(b.at[i]))
			return false;
	return true;
}

const struct http_field *http_find(const struct http_fields *fields, struct span name,
				   size_t *lines)
{
	const struct http_field *first = NULL;
	size_t n = 0;

	for (size_t i = 0; i < fields->n; i++) {
		if (!http_same_name(fields->at[i].name, name))
			continue;
		if (!n++)
			first = &fields->at[i];
		if (!lines)
			break;
	}
	if (lines)
		*lines = n;
	return first;
}

void http_add(struct http_fields *fields, struct span name, struct span value)
{
	assert(fields->n < HTTP_FIELDS_MAX);
	fields->at[fields->n++] = (struct http_field){ .name = name, .value = value };
}

static struct span trimmed(struct span text)
{
	while (text.len && (text.at[0] == ' ' || text.at[0] == '\t')) {
		text.at++;
		text.len--;
	}
	while (text.len && (text.at[text.len - 1] == ' ' || text.at[text.len - 1] == '\t'))
		text.len--;
	return text;
}

/* Elements are short: looking at each byte is faster here than memchr. */
static bool line_has(struct span line, struct span element)
{
	size_t from = 0;

	for (size_t i = 0; i <= line.len; i++) {
		if (i < line.len && line.at[i] != ',')
			continue;
		if (i - from >= element.len &&
		    http_same_name(trimmed((struct span){ line.at + from, i - from }), element))
			return true;
		from = i + 1;
	}
	return false;
}

bool http_list_has(const struct http_fields *fields, struct span name, struct span element)
{
	if (!element.len)
		return false;
	for (size_t i = 0; i < fields->n; i++)
		if (http_same_name(fields->at[i].name, name) &&
		    line_has(fields->at[i].value, element))
			return true;
	return false;
}

bool http_hop_by_hop(const struct http_fields *fields, struct span name)
{
	static const struct span always[] = {
		SPAN("Connection"),
		SPAN("Keep-Alive"),
		SPAN("Proxy-Connection"),
		SPAN("TE"),
		SPAN("Trailer"),
		SPAN("Transfer-Encoding"),
		SPAN("Upgrade"),
		SPAN("Proxy-Authenticate"),
		SPAN("Proxy-Authorization"),
		SPAN("Proxy-Authentication-Info"),
		SPAN("HTTP2-Settings"),
	};

	for (size_t i = 0; i < ARRAY_LEN(always); i++)
		if (http_same_name(always[i], name))
			return true;
	return http_list_has(fields, always[0], name);
}

static bool is_escape(struct span text, size_t at)
{
	return text.len - at >= 3 && text.at[at] == '%' && http_is(text.at[at + 1], HTTP_HEX) &&
	       http_is(text.at[at + 2], HTTP_HEX);
}

static char unescaped(const char *escape)
{
	return (char)(http_hex(escape[1]) << 4 | http_hex(escape[2]));
}

enum path { PATH_REFUSED, PATH_AS_IT_IS, PATH_CHANGES };

/* Only a loose path may hold it? Does the normal form write it otherwise? */
static enum path judge_escape(const char *escape, bool loose)
{
	char byte = unescaped(escape);

	if (!loose && (byte == '/' || byte == '\\' || byte == 0))
		return PATH_REFUSED;
	if (http_is(byte, HTTP_UNRESERVED) || escape[1] >= 'a' || escape[2] >= 'a')
		return PATH_CHANGES;
	return PATH_AS_IT_IS;
}

static enum path judge(struct span path, bool loose)
{
	enum path verdict = PATH_AS_IT_IS;

	for (size_t i = 0; i < path.len; i++) {
		enum path escape = PATH_AS_IT_IS;

		if (http_is(path.at[i], HTTP_PATH))
			continue;
		if (!is_escape(path, i))
			return PATH_REFUSED;
		escape = judge_escape(path.at + i, loose);
		if (escape == PATH_REFUSED)
			return PATH_REFUSED;
		if (escape == PATH_CHANGES)
			verdict = PATH_CHANGES;
		i += 2;
	}
	return verdict;
}

static struct span normal(struct arena *arena, struct span path)
{
	static const char digits[] = "0123456789ABCDEF";
	char *at = arena_alloc(arena, path.len), *end = at;

	for (size_t i = 0; i < path.len; i++) {
		char byte = path.at[i];

		if (byte != '%') {
			*end++ = byte;
			continue;
		}
		byte = unescaped(path.at + i);
		if (http_is(byte, HTTP_UNRESERVED)) {
			*end++ = byte;
		} else {
			*end++ = '%';
			*end++ = digits[(uint8_t)byte >> 4];
			*end++ = digits[(uint8_t)byte & 15];
		}
		i += 2;
	}
	return (struct span){ at, (size_t)(end - at) };
}

/* Holds `//`, `/./` or `/../`, the latter two also at its end? */
static bool unclean(struct span path)
{
	const char *end = path.at + path.len, *at = path.at;

	while ((at = memchr(at, '/', (size_t)(end - at)))) {
		struct span rest = { at + 1, (size_t)(end - at - 1) };

		if (rest.len && rest.at[0] == '/')
			return true;
		for (size_t dots = 0; dots < 2 && dots < rest.len && rest.at[dots] == '.';
		     dots++)
			if (dots + 1 == rest.len || rest.at[dots + 1] == '/')
				return true;
		at++;
	}
	return false;
}

/* Takes scheme and authority of an absolute-form target off its front. */
static bool absolute(struct span *target, struct span *authority)
{
	const struct span schemes[] = { SPAN("http://"), SPAN("https://") };

	for (size_t i = 0; i < ARRAY_LEN(schemes); i++) {
		size_t from = schemes[i].len, to = from;

		if (target->len < from ||
		    !http_same_name((struct span){ target->at, from }, schemes[i]))
			continue;
		while (to < target->len && target->at[to] != '/' && target->at[to] != '?')
			to++;
		*authority = (struct span){ target->at + from, to - from };
		*target = (struct span){ target->at + to, target->len - to };
		return http_host_valid(*authority);
	}
	return false;
}

static void split_query(struct span *path, struct http_target *out)
{
	const char *mark = memchr(path->at, '?', path->len);

	if (!mark)
		return;
	out->has_query = true;
	out->query = (struct span){ mark + 1, (size_t)(path->at + path->len - mark - 1) };
	path->len = (size_t)(mark - path->at);
}

bool http_target(struct arena *arena, struct span target, bool loose, struct http_target *out)
{
	enum path verdict = PATH_REFUSED;

	*out = (struct http_target){ 0 };
	if (span_equal(target, SPAN("*"))) {
		out->path = target;
		return true;
	}
	if (!target.len || (target.at[0] != '/' && !absolute(&target, &out->authority)))
		return false;
	split_query(&target, out);
	if (!all(out->query, HTTP_QUERY))
		return false;
	if (!target.len) /* only the absolute form comes here without one */
		target = SPAN("/");
	verdict = judge(target, loose);
	if (verdict == PATH_REFUSED)
		return false;
	out->path = verdict == PATH_CHANGES ? normal(arena, target) : target;
	return loose || !unclean(out->path);
}

/* The bytes of a bracketed IPv6 address at the front; 0 where there is none. */
static size_t ipv6_literal(struct span host)
{
	const char *close = memchr(host.at, ']', host.len);
	size_t len = close ? (size_t)(close - host.at) - 1 : 0;
	char text[INET6_ADDRSTRLEN];
	struct in6_addr address;

	if (!len || len >= sizeof(text) || memchr(host.at, 0, len + 1))
		return 0;
	memcpy(text, host.at + 1, len);
	text[len] = 0;
	return inet_pton(AF_INET6, text, &address) == 1 ? len + 2 : 0;
}

static size_t reg_name(struct span host)
{
	size_t at = 0;

	while (at < host.len && (http_is(host.at[at], HTTP_HOST) || is_escape(host, at)))
		at += host.at[at] == '%' ? 3 : 1;
	return at;
}

static bool port_valid(struct span port)
{
	unsigned number = 0;

	if (port.len > 5)
		return false;
	for (size_t i = 0; i < port.len; i++) {
		if (port.at[i] < '0' || port.at[i] > '9')
			return false;
		number = number * 10 + (unsigned)(port.at[i] - '0');
	}
	return number <= 65535;
}

bool http_host_valid(struct span host)
{
	size_t len = 0;

	if (!host.len)
		return false;
	len = host.at[0] == '[' ? ipv6_literal(host) : reg_name(host);
	if (!len || len == host.len)
		return len > 0;
	return host.at[len] == ':' &&
	       port_valid((struct span){ host.at + len + 1, host.len - len - 1 });
}

static const char *const reasons[] = {
	[100] = "Continue",
	[101] = "Switching Protocols",
	[102] = "Processing",
	[103] = "Early Hints",
	[200] = "OK",
	[201] = "Created",
	[202] = "Accepted",
	[203] = "Non-Authoritative Information",
	[204] = "No Content",
	[205] = "Reset Content",
	[206] = "Partial Content",
	[207] = "Multi-Status",
	[208] = "Already Reported",
	[226] = "IM Used",
	[300] = "Multiple Choices",
	[301] = "Moved Permanently",
	[302] = "Found",
	[303] = "See Other",
	[304] = "Not Modified",
	[305] = "Use Proxy",
	[307] = "Temporary Redirect",
	[308] = "Permanent Redirect",
	[400] = "Bad Request",
	[401] = "Unauthorized",
	[402] = "Payment Required",
	[403] = "Forbidden",
	[404] = "Not Found",
	[405] = "Method Not Allowed",
	[406] = "Not Acceptable",
	[407] = "Proxy Authentication Required",
	[408] = "Request Timeout",
	[409] = "Conflict",
	[410] = "Gone",
	[411] = "Length Required",
	[412] = "Precondition Failed",
	[413] = "Content Too Large",
	[414] = "URI Too Long",
	[415] = "Unsupported Media Type",
	[416] = "Range Not Satisfiable",
	[417] = "Expectation Failed",
	[421] = "Misdirected Request",
	[422] = "Unprocessable Content",
	[423] = "Locked",
	[424] = "Failed Dependency",
	[425] = "Too Early",
	[426] = "Upgrade Required",
	[428] = "Precondition Required",
	[429] = "Too Many Requests",
	[431] = "Request Header Fields Too Large",
	[451] = "Unavailable For Legal Reasons",
	[500] = "Internal Server Error",
	[501] = "Not Implemented",
	[502] = "Bad Gateway",
	[503] = "Service Unavailable",
	[504] = "Gateway Timeout",
	[505] = "HTTP Version Not Supported",
	[506] = "Variant Also Negotiates",
	[507] = "Insufficient Storage",
	[508] = "Loop Detected",
	[511] = "Network Authentication Required",
};

const char *http_reason(unsigned status)
{
	return status < ARRAY_LEN(reasons) && reasons[status] ? reasons[status] : "";
}

/* The civil date of a count of days, by 400-year eras that begin on a first of March. */
static void civil(int64_t days, int *year, int *month, int *day)
{
	int64_t since = days + 719468; /* 0000-03-01 */
	int64_t era = (since >= 0 ? since : since - 146096) / 146097;
	int64_t doe =
		since - era * 146097; /* day of the era, then its year and the day of that */
	int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
	int64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
	int64_t from_march = (5 * doy + 2) / 153;

	*day = (int)(doy - (153 * from_march + 2) / 5 + 1);
	*month = (int)(from_march < 10 ? from_march + 3 : from_march - 9);
	*year = (int)(yoe + era * 400 + (*month <= 2));
}

static char *two_digits(char *at, int number)
{
	*at++ = (char)('0' + number / 10);
	*at++ = (char)('0' + number % 10);
	return at;
}

void http_date(int64_t seconds, char out[HTTP_DATE_BYTES])
{
	static const char names[] = "ThuFriSatSunMonTueWed"; /* 1970 began on a Thursday */
	static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
	const int64_t first = -62167219200, last = 253402300799;
	int64_t t = seconds < first ? first : seconds > last ? last : seconds;
	int64_t days = (t >= 0 ? t : t - 86399) / 86400;
	int second = (int)(t - days * 86400), year = 0, month = 0, day = 0;

	civil(days, &year, &month, &day);
	memcpy(out, "Ddd, 00 Mmm 0000 00:00:00 GMT", HTTP_DATE_BYTES);
	memcpy(out, names + (days % 7 + 7) % 7 * 3, 3);
	memcpy(out + 8, months + (ptrdiff_t)(month - 1) * 3, 3);
	two_digits(out + 5, day);
	two_digits(two_digits(out + 12, year / 100), year % 100);
	two_digits(out + 17, second / 3600);
	two_digits(out + 20, second / 60 % 60);
	two_digits(out + 23, second % 60);
}

struct span http_media_type(struct span content_type)
{
	const char *parameters =
		content_type.len ? memchr(content_type.at, ';', content_type.len) : NULL;

	if (parameters)
		content_type.len = (size_t)(parameters - content_type.at);
	return trimmed(content_type);
}
