/*
 * Who is asking. An account is what a key belongs to, so it is never taken from a claim that
 * nobody vouches for: the header method believes only peers that the operator named, and what
 * such a header says when it comes from anybody else is as good as absent, and is not passed on.
 *
 * A method is a row of `methods` and a function.
 */
#include "account.h"

#include <arpa/inet.h>
#include <assert.h>

#define ACCOUNT_BYTES_MAX 255U

/* The peer's address as ranges have it; false where it is no address. */
static bool parse_peer(struct span peer, unsigned char out[16])
{
	static const unsigned char mapped[12] = { [10] = 0xff, [11] = 0xff };
	char text[INET6_ADDRSTRLEN];

	if (peer.len == 0 || peer.len >= sizeof(text))
		return false;
	memcpy(text, peer.at, peer.len);
	text[peer.len] = 0;
	if (inet_pton(AF_INET6, text, out) == 1)
		return true;
	memcpy(out, mapped, sizeof(mapped));
	return inet_pton(AF_INET, text, out + sizeof(mapped)) == 1;
}

static bool in_range(const struct cidr *range, const unsigned char address[16])
{
	size_t whole = range->bits / 8;
	unsigned rest = range->bits % 8;

	if (memcmp(range->address, address, whole) != 0)
		return false;
	return rest == 0 || (range->address[whole] ^ address[whole]) >> (8 - rest) == 0;
}

bool account_trusted(const struct cidrs *ranges, struct span peer)
{
	unsigned char address[16];

	if (span_equal(peer, SPAN("unix")))
		return ranges->unix_sockets;
	if (ranges->n == 0 || !parse_peer(peer, address))
		return false;
	for (size_t i = 0; i < ranges->n; i++)
		if (in_range(&ranges->at[i], address))
			return true;
	return false;
}

/* 1-255 bytes without control characters. */
static bool valid(struct span name)
{
	if (name.len == 0 || name.len > ACCOUNT_BYTES_MAX)
		return false;
	for (size_t i = 0; i < name.len; i++)
		if ((unsigned char)name.at[i] < 0x20 || name.at[i] == 0x7f)
			return false;
	return true;
}

static enum problem by_header(const struct account_settings *account,
			      const struct http_request *request, struct span *name,
			      const char **why)
{
	size_t lines = 0;
	const struct http_field *field =
		http_find(&request->fields, span_of(account->header), &lines);

	*why = "The field that names the account is missing, or does not come from a trusted "
	       "peer";
	if (!field || !account_trusted(&account->trusted, request->peer))
		return PROBLEM_UNAUTHENTICATED;
	*why = "The field that names the account stands there more than once";
	if (lines != 1)
		return PROBLEM_UNAUTHENTICATED;
	*why = "The field that names the account must have from 1 to 255 bytes, without "
	       "control characters";
	if (!valid(field->value))
		return PROBLEM_UNAUTHENTICATED;
	*name = field->value;
	return PROBLEM_NONE;
}

static enum problem by_nothing(const struct account_settings *account,
			       const struct http_request *request, struct span *name,
			       const char **why)
{
	(void)request;
	(void)why;
	*name = span_of(account->account);
	return PROBLEM_NONE;
}

static enum problem (*const methods[])(const struct account_settings *account,
				       const struct http_request *request, struct span *name,
				       const char **why) = {
	[ACCOUNT_HEADER] = by_header,
	[ACCOUNT_ANONYMOUS] = by_nothing,
};

enum problem account_of(const struct account_settings *account,
			const struct http_request *request, struct span *name, const char **why)
{
	assert((size_t)account->method < ARRAY_LEN(methods));
	return methods[account->method](account, request, name, why);
}

static char folded(char c)
{
	if (c >= 'A' && c <= 'Z')
		return (char)(c + ('a' - 'A'));
	if (c == '_')
		return '-';
	return c;
}

/* Many APIs (CGI, WSGI, Rack) take X_Account for X-Account: what they cannot tell apart is the same. */
static bool alike(struct span a, struct span b)
{
	if (a.len != b.len)
		return false;
	for (size_t i = 0; i < a.len; i++)
		if (folded(a.at[i]) != folded(b.at[i]))
			return false;
	return true;
}

bool account_stripped(const struct settings *settings, const struct http_request *request,
		      struct span name)
{
	const struct span ours = SPAN("X-Onceward-");

	if (name.len >= ours.len && alike((struct span){ name.at, ours.len }, ours))
		return true;
	for (size_t i = 0; i < settings->n_accounts; i++) {
		const struct account_settings *account = &settings->accounts[i];
		struct span header = span_of(account->header);
		if (account->method != ACCOUNT_HEADER || !alike(header, name))
			continue;
		if (!http_same_name(header, name) ||
		    !account_trusted(&account->trusted, request->peer))
			return true;
	}
	return false;
}
