/*
 * gateway.conf.example, from options.def: every setting with its help, range and default, in
 * groups as the file has them. It is a working file: what has no default gets a sample, and what
 * may be absent stands there as a comment. A new row of options.def appears by itself.
 */
#include "settings_internal.h"

#include <ctype.h>

/* Values for what has no default. `on`: the example needs it; else it is a comment. */
static const struct sample {
	const char *name, *value;
	enum section section;
	bool on;
} samples[] = {
	{ "maintenance_conninfo", "\"dbname=onceward\"", SECTION_LEDGER, false },
	{ "digest_keys", "\"digest.keys\"", SECTION_LEDGER, false },
	{ "spool", "\"spool\"", SECTION_LEDGER, false },
	{ "tokens_file", "\"admin.tokens\"", SECTION_ADMIN, false },
	{ "method", "\"header\"", SECTION_ACCOUNT, true },
	{ "header", "\"X-Account\"", SECTION_ACCOUNT, true },
	{ "trusted", "[\"127.0.0.0/8\", \"::1\", \"unix\"]", SECTION_ACCOUNT, true },
	{ "account", "\"public\"", SECTION_ACCOUNT, false },
	{ "servers", "[\"http://127.0.0.1:9000\"]", SECTION_UPSTREAM, true },
	{ "ca_file", "\"upstream-ca.pem\"", SECTION_TLS, false },
	{ "match", "\"POST /v1/orders\"", SECTION_ROUTE, true },
	{ "upstream", "\"orders\"", SECTION_ROUTE, true },
	{ "account", "\"main\"", SECTION_ROUTE, false },
	{ "operation", "\"orders.create\"", SECTION_IDEMPOTENCY, true },
	{ "account", "\"main\"", SECTION_IDEMPOTENCY, true },
	{ "owner", "\"orders-oncall@example.com\"", SECTION_IDEMPOTENCY, false },
	{ "lease", "\"78s\"", SECTION_IDEMPOTENCY, false },
	{ "defaults", "\"{\\\"quantity\\\": 1}\"", SECTION_REQUEST, false },
	{ "store", "[\"2xx\", \"301\", \"302\", \"303\", \"402\", \"409\", \"410\", \"422\"]",
	  SECTION_OUTCOME, false },
	{ "release",
	  "[\"307\", \"308\", \"400\", \"401\", \"403\", \"404\", \"405\", \"407\", \"411\",\n"
	  "        #            \"412\", \"413\", \"414\", \"415\", \"417\", \"421\", \"423\", "
	  "\"425\",\n"
	  "        #            \"426\", \"428\", \"429\", \"431\"]",
	  SECTION_OUTCOME, false },
	{ "unknown", "[]", SECTION_OUTCOME, false },
	{ "receipt", "\"header:Location\"", SECTION_RESPONSE, false },
	{ "resend_window", "\"24h\"", SECTION_RECOVERY, false },
	{ "max_attempts", "5", SECTION_RECOVERY, false },
	{ "resend_store", "[\"2xx\", \"402\"]", SECTION_RECOVERY, false },
	{ "lookup_path", "\"/v1/orders/by-key/{key}\"", SECTION_RECOVERY, false },
	{ "headers_file", "\"lookup.headers\"", SECTION_RECOVERY, false },
	{ "found", "[\"200\"]", SECTION_RECOVERY, false },
	{ "found_status", "201", SECTION_RECOVERY, false },
	{ "found_location", "\"/url\"", SECTION_RECOVERY, false },
	{ "found_receipt", "\"/id\"", SECTION_RECOVERY, false },
	{ "not_found", "[\"404\"]", SECTION_RECOVERY, false },
	{ "not_found_after", "\"1m\"", SECTION_RECOVERY, false },
};

static const char *const head[] = {
	"# Every setting of onceward, with its help and its default: `onceward example`.",
	"# A file of your own needs only what differs: upstreams, accounts, routes.",
	"# Durations and sizes are texts with a unit: ms, s, m, h, d; B, KiB, MiB, GiB, TiB.",
	"# `onceward check -c FILE` says what is wrong. `@include \"FILE\"` takes in another.",
};

/* Lines, each as it is. */
static void put_lines(struct buf *out, const char *const *lines, size_t n)
{
	for (size_t i = 0; i < n; i++)
		buf_format(out, "%s\n", lines[i]);
}

static const struct sample *sample_of(enum section section, const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(samples); i++)
		if (samples[i].section == section && strcmp(samples[i].name, name) == 0)
			return &samples[i];
	return NULL;
}

static void indent(struct buf *out, unsigned depth)
{
	for (unsigned i = 0; i < depth; i++)
		buf_text(out, "  ");
}

static void open_group(struct buf *out, unsigned depth, const char *name)
{
	indent(out, depth);
	buf_format(out, "%s = {\n", name);
}

static void close_group(struct buf *out, unsigned depth)
{
	indent(out, depth);
	buf_text(out, "}\n");
}

/* Texts, durations and the like stand in quotes in the file, but not in options.def. */
static bool quoted(enum option_type type)
{
	return type == OPTION_TEXT || type == OPTION_FILE || type == OPTION_DURATION ||
	       type == OPTION_SIZE || type == OPTION_CHOICE;
}

static void put_about(struct buf *out, const struct option *option)
{
	buf_text(out, option->help);
	if (option->type == OPTION_CHOICE)
		buf_format(out, " (%s)", option->max);
	else if (option->max && option->min && !option_required(option))
		buf_format(out, " (%s to %s)", option->min, option->max);
	if (option_required(option))
		buf_text(out, "; required");
	buf_byte(out, '\n');
}

static void put_option(struct buf *out, enum section section, const struct option *option,
		       unsigned depth)
{
	const struct sample *sample = sample_of(section, option->name);
	const char *quote = !sample && quoted(option->type) ? "\"" : "";
	const char *value = sample ? sample->value : option->fallback;

	indent(out, depth);
	buf_text(out, "# ");
	put_about(out, option);
	indent(out, depth);
	buf_format(out, "%s%s = %s%s%s\n", sample && !sample->on ? "# " : "", option->name,
		   quote, value ? value : "\"\"", quote);
}

static void put_options(struct buf *out, enum section section, unsigned depth)
{
	const struct section_table *table = &settings_sections[section];

	for (size_t i = 0; i < table->n; i++)
		put_option(out, section, &table->options[i], depth);
}

static void put_section(struct buf *out, enum section section, unsigned depth, const char *name)
{
	open_group(out, depth, name);
	put_options(out, section, depth + 1);
	close_group(out, depth);
}

static void put_accounts(struct buf *out)
{
	buf_text(out, "\n# Who asks, by a name of your choice. Routes refer to the name.\n");
	open_group(out, 0, "accounts");
	put_section(out, SECTION_ACCOUNT, 1, "main");
	buf_text(out, "  # an API on which everybody is one account says so\n"
		      "  everybody = { method = \"anonymous\"  account = \"public\" }\n");
	close_group(out, 0);
}

static void put_upstreams(struct buf *out)
{
	buf_text(out, "\n# The APIs behind, by a name of your choice.\n");
	open_group(out, 0, "upstreams");
	open_group(out, 1, "orders");
	put_options(out, SECTION_UPSTREAM, 2);
	put_section(out, SECTION_TLS, 2, "tls");
	close_group(out, 1);
	close_group(out, 0);
}

/* What an answer means beside its status. */
static void put_outcome(struct buf *out)
{
	static const char *const before[] = {
		"      # What a status means. A written list replaces its own default, and",
		"      # takes what it names out of the others'. What stands in none is",
		"      # unknown. The lists that stand here are the defaults.",
	};
	static const char *const groups[] = {
		"        # A field that proves that nothing was done: a group, or a list of "
		"them",
		"        # release_if = { status = 503  header = \"X-Not-Executed\"  equals = "
		"\"1\" }",
		"        # By what a JSON body says; the first that holds. Without equals: "
		"anything",
		"        # when = ( { pointer = \"/status\"  equals = \"pending\"  list = "
		"\"unknown\" } )",
	};

	put_lines(out, before, ARRAY_LEN(before));
	open_group(out, 3, "outcome");
	put_options(out, SECTION_OUTCOME, 4);
	put_lines(out, groups, ARRAY_LEN(groups));
	close_group(out, 3);
}

static void put_recovery(struct buf *out)
{
	static const char *const before[] = {
		"      # What becomes of an unknown result: what the upstream promises "
		"decides.",
	};
	static const char *const groups[] = {
		"        # lookup: what the body must say, too, where it was done",
		"        # found_when = { pointer = \"/id\" }",
		"        # lookup: what it says while it is under way",
		"        # pending_when = { pointer = \"/status\"  equals = \"pending\" }",
	};

	put_lines(out, before, ARRAY_LEN(before));
	open_group(out, 3, "recovery");
	put_options(out, SECTION_RECOVERY, 4);
	put_lines(out, groups, ARRAY_LEN(groups));
	close_group(out, 3);
}

static void put_routes(struct buf *out)
{
	static const char *const before[] = {
		"",
		"# The first route that matches takes the request. Where it has `idempotency`,",
		"# its unsafe requests are safe to retry; the others pass through.",
		"routes = (",
		"  {",
	};
	static const char *const after[] = {
		"  },",
		"  { match = \"GET,HEAD /*\"  upstream = \"orders\" }",
		")",
	};

	put_lines(out, before, ARRAY_LEN(before));
	put_options(out, SECTION_ROUTE, 2);
	open_group(out, 2, "idempotency");
	put_options(out, SECTION_IDEMPOTENCY, 3);
	put_section(out, SECTION_KEY, 3, "key");
	put_section(out, SECTION_REQUEST, 3, "request");
	put_section(out, SECTION_RESPONSE, 3, "response");
	put_outcome(out);
	put_recovery(out);
	close_group(out, 2);
	put_lines(out, after, ARRAY_LEN(after));
}

void settings_example(struct buf *out)
{
	static const struct {
		enum section section;
		const char *name;
	} groups[] = { { SECTION_LIMITS, "limits" },
		       { SECTION_LOG, "log" },
		       { SECTION_LEDGER, "ledger" },
		       { SECTION_ADMIN, "admin" } };

	put_lines(out, head, ARRAY_LEN(head));
	buf_byte(out, '\n');
	put_options(out, SECTION_GATEWAY, 0);
	for (size_t i = 0; i < ARRAY_LEN(groups); i++) {
		buf_byte(out, '\n');
		put_section(out, groups[i].section, 0, groups[i].name);
	}
	put_accounts(out);
	put_upstreams(out);
	put_routes(out);
}
