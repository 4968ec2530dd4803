/*
 * What the operator said (CONTRACT 14). Immutable once loaded, and counted: an exchange keeps the
 * settings it began with; a reload swaps a pointer between turns. settings_file.c is the only door
 * to libconfig. The plain fields come from options.def; what is derived stands below them.
 */
#pragma once
#include "digest.h"
#include "digest_keys.h"
#include "key.h"
#include "source.h"

struct texts {
	const char *const *at;
	size_t n;
};

/* A range of addresses; IPv4 as ::ffff:a.b.c.d. */
struct cidr {
	unsigned char address[16];
	unsigned bits; /* of 128 */
};
struct cidrs {
	const struct cidr *at;
	size_t n;
	bool unix_sockets; /* the word "unix": whoever comes over a unix socket */
};

/* The C type of each option type. Durations are milliseconds, sizes bytes. */
typedef const char *option_text; /* NULL where not set and without a default */
typedef const char *option_file; /* relative to the file that names it; made absolute */
typedef struct texts option_texts;
typedef struct cidrs option_cidrs;
typedef int64_t option_count;
typedef int64_t option_duration; /* -1 where not set and without a default */
typedef int64_t option_size;
typedef bool option_flag;
typedef int option_choice;         /* the position among the words */
typedef const char *option_scalar; /* a text, number or flag as canonical JSON; NULL: not set */
typedef const struct upstream_settings
	*option_upstream; /* written as a name; NULL where not set */
typedef const struct account_settings *option_account;

#define OPTION_FIELD(name, type, fallback, min, max, help) option_##type name;

struct gateway_settings {
#define GATEWAY OPTION_FIELD
#include "options.def"
};
struct limits_settings {
#define LIMITS OPTION_FIELD
#include "options.def"
};
struct log_settings {
#define LOG OPTION_FIELD
#include "options.def"
};
struct ledger_settings {
#define LEDGER OPTION_FIELD
#include "options.def"
};
struct admin_settings {
#define ADMIN OPTION_FIELD
#include "options.def"
};
enum account_method { ACCOUNT_HEADER, ACCOUNT_ANONYMOUS }; /* the words of ACCOUNT(method) */
struct account_settings {
	const char *name;
#define ACCOUNT OPTION_FIELD
#include "options.def"
};
struct tls_settings {
#define TLS OPTION_FIELD
#include "options.def"
};
struct server {
	const char *url;  /* scheme://host:port, what libcurl gets */
	const char *host; /* host:port, for people and for an absent Host */
	bool tls;
};
enum connections { CONNECTIONS_POOLED, CONNECTIONS_FRESH };
struct upstream_settings {
	const char *name;
#define UPSTREAM OPTION_FIELD
#include "options.def"
	struct tls_settings tls;
	/* derived */
	const struct server *server;
	size_t n_servers;
};
enum key_forward {
	KEY_FORWARD_CLIENT,
	KEY_FORWARD_DERIVED,
	KEY_FORWARD_NONE,
	KEY_FORWARD_NAMED
};
struct key_settings {
#define KEY OPTION_FIELD
#include "options.def"
	/* derived */
	struct sources sources;       /* `from` */
	enum key_forward forward_how; /* `forward` */
	struct span forward_name;     /* NAMED: of the field */
};
struct request_settings {
#define REQUEST OPTION_FIELD
#include "options.def"
};
enum response_body { RESPONSE_FULL, RESPONSE_OMIT };
struct response_settings {
#define RESPONSE OPTION_FIELD
#include "options.def"
	/* derived */
	const struct canonical_rules *kept; /* `fields`, as `only` of a body; NULL: all of it */
	const struct source *receipt_at;    /* `receipt`; NULL: nowhere */
};

/* What an upstream's answer means for the record (CONTRACT 5). */
enum outcome { OUTCOME_UNKNOWN, OUTCOME_STORE, OUTCOME_RELEASE };

/* What a JSON body says at some place. */
struct condition {
#define CONDITION OPTION_FIELD
#include "options.def"
	const struct canonical_rules
		*place; /* `pointer` (json_find.h); NULL: not set, never holds */
};
struct when {
	struct condition condition;
#define WHEN OPTION_FIELD /* `list`: WHEN_STORE, … */
#include "options.def"
};
enum when_list { WHEN_STORE, WHEN_RELEASE, WHEN_UNKNOWN };
struct release_if {
#define RELEASE_IF OPTION_FIELD
#include "options.def"
};
struct outcome_settings {
#define OUTCOME OPTION_FIELD
#include "options.def"
	const struct release_if *release_if; /* any of them */
	size_t n_release_if;
	const struct when *when; /* the first that holds */
	size_t n_when;
};

/* The words of RECOVERY(contract), RECOVERY(after_deadline), IDEMPOTENCY(on_settle_failure). */
enum recovery_contract {
	RECOVERY_HOLD,
	RECOVERY_RESEND,
	RECOVERY_LOOKUP,
	RECOVERY_AT_LEAST_ONCE
};
enum recovery_end { RECOVERY_END_HOLD, RECOVERY_END_FINAL };
enum settle_failure { SETTLE_FAILURE_REFUSE, SETTLE_FAILURE_DELIVER };
struct recovery_settings {
#define RECOVERY OPTION_FIELD
#include "options.def"
	struct condition found_when, pending_when;
	/* derived; by status, 0 or 1 */
	unsigned char resend_store_of[600], found_of[600], not_found_of[600];
	unsigned result_status; /* `found_status`, or the first stored 2xx */
	const struct canonical_rules *location_at, *receipt_at; /* NULL: nowhere */
	/* Of what "not found" stands on: how and where a record is asked for. Kept with each record
	 * that is sent under it; empty where nothing is looked up. */
	struct span lookup_mark;
	struct http_fields
		headers; /* of headers_file, read with the settings, wiped with them */
};

struct idempotency_settings {
#define IDEMPOTENCY OPTION_FIELD
#include "options.def"
	struct key_settings key;
	struct request_settings request;
	struct response_settings response;
	struct outcome_settings outcome;
	struct recovery_settings recovery;
	/* derived */
	struct digest_rules rules;
	unsigned metrics_operation; /* label */
	unsigned char
		identity[32]; /* SHA-256 of what makes the operation what it is (CONTRACT 9) */
	const char *identity_text;     /* the same, readable */
	unsigned char outcome_of[600]; /* enum outcome by status */
};

/* `account` of a route is that of its idempotency where it has one; NULL: nobody is asked. */
struct route {
#define ROUTE OPTION_FIELD
#include "options.def"
	/* derived */
	const struct idempotency_settings *idempotency; /* NULL: passes through */
	struct texts methods;                           /* sorted; n 0: any */
	struct route_segment {
		const char *text; /* NULL: {name}, any one segment */
		size_t len;
	} * segments;
	size_t n_segments;
	bool rest; /* a final slash and star (also matches nothing more) */
};

struct settings {
	const char *file;
	unsigned char
		fingerprint[16];      /* of everything that the file and what it includes say */
	struct settings_count *count; /* who holds it; settings.c's */
	struct gateway_settings gateway;
	struct limits_settings limits;
	struct log_settings log;
	struct ledger_settings ledger;
	struct digest_keys digest_keys; /* read from ledger.digest_keys */
	struct admin_settings admin;
	struct account_settings *accounts;
	size_t n_accounts;
	struct upstream_settings *upstreams;
	size_t n_upstreams;
	struct route *routes;
	size_t n_routes;
};

/*
 * Reads a file. Every error that can be found is a line "FILE:LINE: sentence" in `errors`; NULL
 * then. Warnings (a pass-through route that covers a gated path, …) go there too, with
 * "warning: ", and do not make it NULL. The caller holds what is returned.
 */
struct settings *settings_load(const char *file, struct buf *errors) MUST_CHECK;
void settings_hold(const struct settings *settings); /* thread-safe */
void settings_release(const struct settings *settings);
/* For arena_defer: what an exchange holds. */
void settings_release_deferred(void *settings);

/* Does a reload from `old` to `new` change what only a restart may? A sentence, or NULL. */
const char *settings_needs_restart(const struct settings *old, const struct settings *new);

enum route_found { ROUTE_FOUND, ROUTE_OTHER_METHOD, ROUTE_NONE };
/* The first route for the request's method and path. OTHER_METHOD: `*allow` is the Allow field's
 * value, in the request's arena. */
enum route_found settings_route(const struct settings *settings,
				const struct http_request *request, const struct route **route,
				struct span *allow) MUST_CHECK;

/* gateway.conf.example: every setting with default and help, from options.def. */
void settings_example(struct buf *out);
/* What `check --explain` prints: routes, what each status means, derived values. */
void settings_explain(const struct settings *settings, struct buf *out);

static inline bool http_safe_method(struct span method)
{
	return span_equal(method, SPAN("GET")) || span_equal(method, SPAN("HEAD")) ||
	       span_equal(method, SPAN("OPTIONS")) || span_equal(method, SPAN("TRACE"));
}
