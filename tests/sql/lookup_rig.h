/*
 * What the tests of the lookups share: the ledger's tables, settings of two operations, and an
 * upstream that notes who is asked and answers when it is told to. Settings and
 * upstreams are fakes; what reads and writes the ledger is real.
 */
#pragma once
#include "../turned.h"
#include "scratch.h"

#include "lookup.h"
#include "loop.h"
#include "mem.h"
#include "upstream.h"

#include <check.h>

#define CALLS_MAX 256U
#define ROUND_MS  700  /* what is due is asked for within */
#define LEASE_MS  5800 /* of an asking that is hasty */
#define SOON      10000

struct upstreams {
	struct list ended;
	size_t calls;
};

/* An asking, as the upstream saw it. */
struct asking {
	struct upstreams *of;
	struct upstream_call *call; /* NULL: it has its answer */
	char target[64];
};

static struct loop *loop;
static struct upstream_settings upstream;
static struct server server = { .url = "http://127.0.0.1:9", .host = "127.0.0.1:9" };
static struct idempotency_settings operations[3];
static struct route routes[3];
static struct settings settings;
static struct asking askings[CALLS_MAX];
static size_t n_askings;
static struct metrics *metrics;

void settings_hold(const struct settings *s)
{
	(void)s;
}

void settings_release(const struct settings *s)
{
	(void)s;
}

struct upstreams *upstreams_new(struct loop *on, struct metrics *counted)
{
	struct upstreams *upstreams = mem_alloc(sizeof(*upstreams));

	(void)on;
	(void)counted;
	list_init(&upstreams->ended);
	return upstreams;
}

void upstreams_free(struct upstreams *upstreams)
{
	ck_assert_uint_eq(upstreams->calls, 0);
	mem_free(upstreams);
}

void upstreams_follow(struct upstreams *upstreams, const struct settings *s, unsigned threads)
{
	(void)upstreams;
	(void)s;
	(void)threads;
}

void upstream_send(struct upstreams *upstreams, struct upstream_call *call)
{
	struct asking *asking = &askings[n_askings++];

	ck_assert_uint_lt(n_askings, CALLS_MAX);
	asking->of = upstreams;
	asking->call = call;
	snprintf(asking->target, sizeof(asking->target), "%.*s", (int)call->target.len,
		 call->target.at);
	list_init(&call->link);
	upstreams->calls++;
}

static void asking_end(struct asking *asking, enum upstream_end how)
{
	asking->call->end = how;
	list_append(&asking->of->ended, &asking->call->link);
	asking->call = NULL;
}

void upstream_cancel(struct upstream_call *call, const char *cause)
{
	(void)cause;
	for (size_t i = 0; i < n_askings; i++)
		if (askings[i].call == call)
			asking_end(&askings[i], UPSTREAM_CUT);
}

void upstreams_run(struct upstreams *upstreams)
{
	struct list *link = NULL;

	while ((link = list_shift(&upstreams->ended))) {
		struct upstream_call *call = container_of(link, struct upstream_call, link);

		upstreams->calls--;
		call->done(call);
	}
}

size_t upstreams_calls(const struct upstreams *upstreams)
{
	return upstreams->calls;
}

static void answer(struct asking *asking, unsigned status, const char *body)
{
	asking->call->answer = (struct http_answer){ .status = status, .body = span_of(body) };
	asking_end(asking, UPSTREAM_ANSWERED);
}

/* The askings that have no answer yet. */
static size_t open_askings(void)
{
	size_t n = 0;

	for (size_t i = 0; i < n_askings; i++)
		n += askings[i].call != NULL;
	return n;
}

static struct asking *asking_of(const char *target)
{
	for (size_t i = n_askings; i-- > 0;)
		if (askings[i].call && strcmp(askings[i].target, target) == 0)
			return &askings[i];
	return NULL;
}

static size_t asked(const char *target)
{
	size_t n = 0;

	for (size_t i = 0; i < n_askings; i++)
		n += strcmp(askings[i].target, target) == 0;
	return n;
}

#define TURN_US 20000 /* a turn that is not held up */

static void turn(struct lookup *one, struct lookup *other)
{
	int64_t began = loop_clock_us();

	loop_wait(loop, 10);
	if (one)
		lookup_run(one);
	if (other)
		lookup_run(other);
	turned(began, TURN_US);
}

static void turn_for(struct lookup *one, struct lookup *other, int64_t ms)
{
	int64_t until = turned_us + ms * 1000;

	while (turned_us < until)
		turn(one, other);
}

/* Until that target is being asked for. */
static struct asking *wait_for(struct lookup *lookup, const char *target, int64_t ms)
{
	int64_t until = turned_us + ms * 1000;

	while (!asking_of(target)) {
		ck_assert_msg(turned_us < until, "%s is not asked for", target);
		turn(lookup, NULL);
	}
	return asking_of(target);
}

static void set_up(void)
{
	static const char *const names[] = { "orders", "payments", "refunds" };

	scratch_same_day();
	loop = loop_new();
	n_askings = 0;
	metrics = metrics_new();
	upstream = (struct upstream_settings){ .queue_timeout = 100,
					       .connect_timeout = 100,
					       .timeout = 30000,
					       .server = &server,
					       .n_servers = 1 };
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		struct recovery_settings *recovery = &operations[i].recovery;

		operations[i] = (struct idempotency_settings){ .operation = names[i],
							       .retention = 86400000,
							       .tombstone = 86400000 };
		recovery->contract = RECOVERY_LOOKUP;
		recovery->lookup_path = i == 0 ? "/o/{key}" : i == 1 ? "/p/{key}" : "/r/{key}";
		recovery->found_of[200] = recovery->not_found_of[404] = 1;
		recovery->result_status = 201;
		recovery->not_found_after = 1000;
		routes[i] =
			(struct route){ .idempotency = &operations[i], .upstream = &upstream };
	}
	settings = (struct settings){ .routes = routes, .n_routes = 1 };
	settings.ledger.conninfo = scratch_conninfo;
	settings.ledger.prepared = true;
	scratch_do("TRUNCATE onceward.op, onceward.event, onceward.event_late, onceward.key, "
		   "onceward.attention");
}

static void tear_down(void)
{
	metrics_free(metrics);
	loop_free(loop);
}

/* A record `number` whose first attempt began some time ago, with a lease that ends in `lease_ms`. */
static void record(int number, const char *operation, long lease_ms)
{
	char sql[1024];

	snprintf(sql, sizeof(sql),
		 "WITH made AS (INSERT INTO onceward.op SELECT %d, (now() AT TIME ZONE "
		 "'UTC')::date + 1, gen_random_uuid(), now() - interval '1 minute', now() + "
		 "%ld * interval '1 ms', 'a', '%s', '%d', 'g', 's' RETURNING *) "
		 "INSERT INTO onceward.key SELECT key_hash, op_id, expires_on + interval '12 "
		 "hours', expires_on + 1, 'd', 'r', 1, 0 FROM made",
		 number, lease_ms, operation, number);
	scratch_do(sql);
}

/* How its attempt ended. */
static void event(int number, int kind, int status, const char *more)
{
	char sql[512];

	snprintf(sql, sizeof(sql),
		 "INSERT INTO onceward.event (op_id, writer, expires_on, slot, kind, status, "
		 "at, "
		 "hash) SELECT op_id, 1, expires_on, 1, %d, %d, now() - interval '30 s', %s "
		 "FROM onceward.op WHERE op_id = %d",
		 kind, status, more, number);
	scratch_do(sql);
}

static void listed(int number)
{
	char sql[512];

	snprintf(sql, sizeof(sql),
		 "INSERT INTO onceward.attention (created_at, op_id, expires_on, state, slot, "
		 "key_hash, account, operation, key, cause) SELECT created_at, op_id, "
		 "expires_on, 3, 1, key_hash, account, operation, key, 'x' FROM onceward.op "
		 "WHERE op_id = %d",
		 number);
	scratch_do(sql);
}

static void unknown(int number, const char *operation)
{
	record(number, operation, -1000);
	event(number, 3, 0, "NULL");
	listed(number);
}

static void completed(int number, const char *operation)
{
	record(number, operation, -1000);
	event(number, 2, 201, "'h'");
}

/* lookups_total{result} */
static unsigned long looked(const char *result)
{
	char line[64];
	const char *found = NULL;
	unsigned long n = 0;
	struct buf out;

	snprintf(line, sizeof(line), "onceward_lookups_total{result=\"%s\"} ", result);
	buf_init(&out, (size_t)1024 * 1024);
	metrics_render(&out);
	buf_byte(&out, 0);
	found = strstr(out.at, line);
	n = found ? strtoul(found + strlen(line), NULL, 10) : 0;
	buf_fini(&out);
	return n;
}

/* Is it so, of that record's attention row? */
static bool row_says(int number, const char *what)
{
	char sql[256];

	snprintf(sql, sizeof(sql),
		 "SELECT count(*) FROM onceward.attention WHERE op_id = %d AND %s", number,
		 what);
	return scratch_number(sql) == 1;
}

static void row_becomes(struct lookup *lookup, int number, const char *what, int64_t ms)
{
	int64_t until = turned_us + ms * 1000;

	while (!row_says(number, what)) {
		ck_assert_msg(turned_us < until, "%d: %s does not come true", number, what);
		turn_for(lookup, NULL, 50);
	}
}

/* So many are left that nobody knows of. */
static void left_are(struct lookup *lookup, long n)
{
	int64_t until = turned_us + SOON * 1000L;

	while (scratch_number("SELECT count(*) FROM onceward.attention") != n) {
		ck_assert_msg(turned_us < until, "there never are %ld", n);
		turn_for(lookup, NULL, 50);
	}
}
