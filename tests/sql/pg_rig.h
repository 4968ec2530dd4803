/*
 * What the tests of pg*.c share: a server, a connection to it, and transactions that note what they
 * ended as. The statements are the tests' own, so pg_pipeline.c is built with them here.
 */
#pragma once
#define PG_QUERIES "../tests/sql/pg_queries.def"
#include "../../src/pg_pipeline.c" /* NOLINT(bugprone-suspicious-include) */

#include "../turned.h"
#include "scratch.h"

#include "loop.h"
#include "mem.h"
#include "pg.h"

#include <check.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <time.h>

#define MANY  8
#define AGAIN 5000 /* ms: a reconnect, at most */

static struct loop *loop;
static struct pg_params params;
static struct pg *pg;
static char conninfo[512];
static unsigned ups, downs;
static char reason[256];

/* A transaction and what it ended as; the rows of a step as numbers. */
struct work {
	struct pg_transaction transaction;
	bool ended;
	unsigned order;
	size_t rows[PG_STEPS_MAX];
	int64_t first; /* of the last step's first row */
};
static struct work work[MANY];
static unsigned ended;

static inline void up(void *arg)
{
	(void)arg;
	ups++;
}

static inline void down(void *arg, const char *why)
{
	(void)arg;
	downs++;
	snprintf(reason, sizeof(reason), "%s", why);
}

static inline void done(struct pg_transaction *transaction)
{
	struct work *w = container_of(transaction, struct work, transaction);

	ck_assert(!w->ended);
	w->ended = true;
	w->order = ++ended;
	for (unsigned i = 0; i < transaction->steps; i++)
		w->rows[i] = transaction->rows[i] ? pg_rows_count(transaction->rows[i]) : 0;
	if (transaction->outcome == PG_COMMITTED && w->rows[transaction->steps - 1] > 0)
		w->first = pg_int(transaction->rows[transaction->steps - 1], 0, 0);
}

static inline void turn(void)
{
	turn_loop(loop);
}

static inline void turn_until(const bool *flag, const unsigned *count, unsigned wanted)
{
	int64_t end = turned_us + AGAIN * 4000L;

	while (flag ? !*flag : *count < wanted) {
		ck_assert_msg(turned_us < end, "nothing came; the last reason: %s", reason);
		turn();
	}
}

static inline void turn_for(int64_t ms)
{
	turn_loop_for(loop, ms);
}

static inline void begin(unsigned i)
{
	work[i] = (struct work){ .transaction = { .done = done } };
	pg_begin(pg, &work[i].transaction);
}

/* n things from `id` on, each of some bytes. */
static inline void send_put_n(int64_t id, size_t n, size_t bytes)
{
	char *body = mem_alloc(bytes + 1);

	pg_params_clear(&params);
	pg_array(&params, PG_INT8, n);
	for (size_t i = 0; i < n; i++)
		pg_add_int(&params, PG_INT8, id + (int64_t)i);
	pg_array(&params, PG_BYTEA, n);
	for (size_t i = 0; i < n; i++)
		pg_add_bytes(&params, (struct span){ body, bytes });
	pg_send(pg, QUERY_put, &params);
	mem_free(body);
}

static inline void send_put(int64_t id)
{
	send_put_n(id, 1, 5);
}

static inline void send_one(void)
{
	pg_send(pg, QUERY_one, NULL);
}

/* Connects; `more` is added to the conninfo. */
static inline void connect_with(const char *more, bool prepared)
{
	struct pg_options options = {
		.conninfo = conninfo, .who = "test", .up = up, .down = down
	};

	options.prepared = prepared;
	snprintf(conninfo, sizeof(conninfo), "%s %s", scratch_conninfo, more);
	pg = pg_new(loop, &options);
	ck_assert(!pg_up(pg));
	turn_until(NULL, &ups, 1);
	ck_assert(pg_up(pg));
	ck_assert_uint_eq(downs, 0);
}

static inline void set_up(void)
{
	ups = downs = ended = 0;
	loop = loop_new();
	pg_params_init(&params);
}

static inline void tear_down(void)
{
	if (pg)
		pg_free(pg);
	pg = NULL;
	pg_params_fini(&params);
	loop_free(loop);
}

static inline void three_in_order(int64_t op_id)
{
	ended = 0;
	for (unsigned i = 0; i < 3; i++) {
		begin(i);
		send_put(op_id + i);
		send_one();
		pg_end(pg);
	}
	ck_assert_uint_eq(ended, 0);
	pg_flush(pg);
	ck_assert_uint_eq(ended, 0);
	turn_until(&work[2].ended, NULL, 0);
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_int_eq(work[i].transaction.outcome, PG_COMMITTED);
		ck_assert_uint_eq(work[i].order, i + 1);
		ck_assert_uint_eq(work[i].rows[0], 1);
		ck_assert_uint_eq(work[i].rows[1], 1);
	}
}

/* Backends that have been told to go on waiting: their number. */
static inline void wait_for_backends(const char *condition, long n)
{
	char sql[256];

	snprintf(
		sql, sizeof(sql),
		"SELECT count(*) FROM pg_stat_activity WHERE application_name = 'onceward' AND "
		"pid <> pg_backend_pid() AND %s",
		condition);
	for (int i = 0; i < 500 && scratch_number(sql) != n; i++)
		turn_for(10);
	ck_assert_int_eq(scratch_number(sql), n);
}

static const char uuid[16] = { 1, 2, 3, (char)0xff };

static inline void add_values(int64_t sign, bool null)
{
	enum pg_type integers[] = { PG_INT8, PG_INT4, PG_INT2, PG_DATE };

	for (size_t i = 0; i < ARRAY_LEN(integers); i++) {
		if (null)
			pg_add_null(&params);
		else
			pg_add_int(&params, integers[i], sign * ((int64_t)1 << 14));
	}
	for (size_t i = 0; i < 3; i++) {
		if (null)
			pg_add_null(&params);
		else if (i == 0)
			pg_add_bytes(&params, (struct span){ uuid, 16 });
		else if (i == 1)
			pg_add_bytes(&params,
				     sign > 0 ? (struct span){ "a\0\xff", 3 } : SPAN(""));
		else
			pg_add_bytes(&params, SPAN("na\xc3\xaf"
						   "ve"));
	}
}

static inline void echoed(struct pg_transaction *transaction)
{
	struct work *w = container_of(transaction, struct work, transaction);

	ck_assert_int_eq(transaction->outcome, PG_COMMITTED);
	for (unsigned step = 0; step < 3; step++) {
		const struct pg_rows *rows = transaction->rows[step];
		int64_t sign = step == 1 ? -1 : 1;

		for (unsigned column = 0; column < 7; column++)
			ck_assert_int_eq(pg_is_null(rows, 0, column), step == 2);
		ck_assert_int_eq(pg_int(rows, 0, 7), 1);
		if (step == 2)
			continue;
		for (unsigned column = 0; column < 4; column++)
			ck_assert_int_eq(pg_int(rows, 0, column), sign * (1 << 14));
		ck_assert(span_equal(pg_bytes(rows, 0, 4), (struct span){ uuid, 16 }));
		ck_assert(span_equal(pg_bytes(rows, 0, 5),
				     sign > 0 ? (struct span){ "a\0\xff", 3 } : SPAN("")));
		ck_assert_ptr_nonnull(pg_bytes(rows, 0, 5).at);
		ck_assert(span_equal(pg_bytes(rows, 0, 6), SPAN("na\xc3\xaf"
								"ve")));
		ck_assert(span_equal(pg_bytes(rows, 0, 8),
				     sign > 0 ? SPAN("2014-11-10") : SPAN("1925-02-22")));
		ck_assert(span_equal(pg_bytes(rows, 0, 9),
				     SPAN("010203ff-0000-0000-0000-000000000000")));
	}
	ck_assert_ptr_null(pg_bytes(transaction->rows[2], 0, 5).at);
	w->ended = true;
}

static inline void unnested(struct pg_transaction *transaction)
{
	struct work *w = container_of(transaction, struct work, transaction);
	const struct pg_rows *rows = transaction->rows[0];

	ck_assert_int_eq(transaction->outcome, PG_COMMITTED);
	ck_assert_uint_eq(pg_rows_count(rows), 2);
	for (unsigned column = 0; column < 7; column++) {
		ck_assert(pg_is_null(rows, 0, column));
		if (column < 4)
			ck_assert_int_eq(pg_int(rows, 1, column), -5);
		else
			ck_assert(span_equal(pg_bytes(rows, 1, column),
					     (struct span){ uuid, column == 6 ? 3 : 16 }));
	}
	ck_assert_uint_eq(pg_rows_count(transaction->rows[1]), 0);
	w->ended = true;
}

static inline void send_unnest(size_t n)
{
	enum pg_type types[] = {
		PG_INT8, PG_INT4, PG_INT2, PG_DATE, PG_UUID, PG_BYTEA, PG_TEXT
	};

	pg_params_clear(&params);
	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		pg_array(&params, types[i], n);
		if (!n)
			continue;
		pg_add_null(&params);
		if (i < 4)
			pg_add_int(&params, types[i], -5);
		else
			pg_add_bytes(&params, (struct span){ uuid, i == 6 ? 3 : 16 });
	}
	pg_send(pg, QUERY_unnest, &params);
}

static inline void all_values_survive(void)
{
	begin(0);
	work[0].transaction.done = echoed;
	for (int i = 0; i < 3; i++) {
		pg_params_clear(&params);
		add_values(i == 1 ? -1 : 1, i == 2);
		pg_send(pg, QUERY_echo, &params);
	}
	pg_end(pg);
	begin(1);
	work[1].transaction.done = unnested;
	send_unnest(2);
	send_unnest(0);
	pg_end(pg);
	pg_flush(pg);
	turn_until(&work[1].ended, NULL, 0);
	ck_assert(work[0].ended);
}
static inline int free_port(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	scratch_need(fd >= 0 && bind(fd, (struct sockaddr *)&at, len) == 0 &&
			     getsockname(fd, (struct sockaddr *)&at, &len) == 0,
		     "a port", "none is free");
	close(fd);
	return ntohs(at.sin_port);
}
/* Runs a suite on a server of its own that listens on TCP, too, with a table of its own. */
static inline int run_on_tcp(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	char port[16];
	int failed = 0;

	scratch_port = free_port();
	scratch_start("-c listen_addresses=127.0.0.1");
	snprintf(port, sizeof(port), "%d", scratch_port);
	setenv("SCRATCH_PORT", port, 1);
	setenv("SCRATCH", scratch_dir, 1);
	scratch_do("CREATE TABLE thing (id int8 CHECK (id >= 0), bytes bytea)");
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	scratch_stop();
	return failed ? 1 : 0;
}
