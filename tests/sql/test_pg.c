/*
 * pg*.c against a real server: what a transaction's end means, in each way that it can come.
 * The statements are this test's own, so pg_pipeline.c is built with them here.
 */
#define PG_QUERIES "../tests/sql/pg_queries.def"
#include "../../src/pg_pipeline.c" /* NOLINT(bugprone-suspicious-include) */

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

static void up(void *arg)
{
	(void)arg;
	ups++;
}

static void down(void *arg, const char *why)
{
	(void)arg;
	downs++;
	snprintf(reason, sizeof(reason), "%s", why);
}

static void done(struct pg_transaction *transaction)
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

static void turn_until(const bool *flag, const unsigned *count, unsigned wanted)
{
	int64_t end = loop_clock_us() + AGAIN * 2000L;

	while (flag ? !*flag : *count < wanted) {
		ck_assert_msg(loop_clock_us() < end, "nothing came; the last reason: %s",
			      reason);
		loop_wait(loop, 50);
	}
}

static void turn_for(int64_t ms)
{
	int64_t end = loop_clock_us() + ms * 1000;

	while (loop_clock_us() < end)
		loop_wait(loop, 10);
}

static void begin(unsigned i)
{
	work[i] = (struct work){ .transaction = { .done = done } };
	pg_begin(pg, &work[i].transaction);
}

/* n things from `id` on, each of some bytes. */
static void send_put_n(int64_t id, size_t n, size_t bytes)
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

static void send_put(int64_t id)
{
	send_put_n(id, 1, 5);
}

static void send_one(void)
{
	pg_send(pg, QUERY_one, NULL);
}

/* Connects; `more` is added to the conninfo. */
static void connect_with(const char *more, bool prepared)
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

static void set_up(void)
{
	ups = downs = ended = 0;
	loop = loop_new();
	pg_params_init(&params);
}

static void tear_down(void)
{
	if (pg)
		pg_free(pg);
	pg = NULL;
	pg_params_fini(&params);
	loop_free(loop);
}

static void three_in_order(int64_t op_id)
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

START_TEST(transactions_come_back_in_order)
{
	connect_with("", true);
	three_in_order(100);
	three_in_order(110);
}
END_TEST

START_TEST(without_prepared_statements_all_is_the_same)
{
	connect_with("", false);
	three_in_order(120);
}
END_TEST

START_TEST(an_error_ends_its_own_transaction_only)
{
	connect_with("", true);
	begin(0);
	send_put(200);
	pg_end(pg);
	begin(1);
	send_put(201);
	send_put(-1); /* refused by a CHECK */
	send_one();
	pg_end(pg);
	begin(2);
	send_put(202);
	pg_end(pg);
	pg_flush(pg);
	turn_until(&work[2].ended, NULL, 0);
	ck_assert_int_eq(work[0].transaction.outcome, PG_COMMITTED);
	ck_assert_int_eq(work[1].transaction.outcome, PG_FAILED);
	ck_assert_str_eq(work[1].transaction.sqlstate, "23514");
	ck_assert_ptr_nonnull(strstr(work[1].transaction.message, "check constraint"));
	ck_assert_int_eq(work[2].transaction.outcome, PG_COMMITTED);
	ck_assert_uint_eq(work[1].rows[0], 0);
	ck_assert_int_eq(
		scratch_number("SELECT count(*) FROM thing WHERE id IN (200, 201, 202)"), 2);
	ck_assert(pg_up(pg));
}
END_TEST

START_TEST(a_commit_that_fails_is_a_failure_though_its_rows_came)
{
	scratch_do("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
		   "$$ BEGIN RAISE EXCEPTION 'not today' USING ERRCODE = '23000'; END $$;"
		   "CREATE CONSTRAINT TRIGGER late AFTER INSERT ON thing DEFERRABLE "
		   "INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()");
	connect_with("", true);
	begin(0);
	send_put(300);
	pg_end(pg);
	begin(1);
	send_one();
	pg_end(pg);
	pg_flush(pg);
	turn_until(&work[1].ended, NULL, 0);
	scratch_do("DROP TRIGGER late ON thing; DROP FUNCTION refuse");
	ck_assert_int_eq(work[0].transaction.outcome, PG_FAILED);
	ck_assert_str_eq(work[0].transaction.sqlstate, "23000");
	ck_assert_str_eq(work[0].transaction.message, "not today");
	ck_assert_int_eq(work[1].transaction.outcome, PG_COMMITTED);
}
END_TEST

/* Backends that have been told to go on waiting: their number. */
static void wait_for_backends(const char *condition, long n)
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

START_TEST(a_lost_connection_loses_all_and_comes_back)
{
	struct pg_session *other = scratch_open(scratch_conninfo);

	connect_with("", true);
	scratch_run(other, "BEGIN; LOCK TABLE thing");
	for (unsigned i = 0; i < 3; i++) {
		begin(i);
		send_put(400 + i);
		pg_end(pg);
	}
	pg_flush(pg);
	wait_for_backends("wait_event_type = 'Lock'", 1);
	ck_assert_uint_eq(ended, 0);
	scratch_run(other, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
			   "WHERE wait_event_type = 'Lock'");
	turn_until(&work[2].ended, NULL, 0);
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_int_eq(work[i].transaction.outcome, PG_LOST);
		ck_assert_uint_eq(work[i].order, i + 1);
	}
	turn_until(NULL, &downs, 1);
	ck_assert_ptr_nonnull(strstr(reason, "terminating connection"));
	scratch_run(other, "ROLLBACK");
	pg_session_close(other);
	turn_until(NULL, &ups, 2);
	three_in_order(410);
}
END_TEST

START_TEST(a_connection_ended_while_idle_comes_back)
{
	connect_with("", true);
	scratch_do("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE "
		   "application_name = 'onceward' AND pid <> pg_backend_pid()");
	turn_until(NULL, &downs, 1);
	ck_assert_ptr_nonnull(strstr(reason, "terminating connection"));
	turn_until(NULL, &ups, 2);
	three_in_order(420);
}
END_TEST

START_TEST(what_is_begun_on_a_dying_connection_is_lost)
{
	connect_with("", true);
	pg_drop(pg, "a standby");
	ck_assert(!pg_up(pg));
	begin(0);
	send_put(430);
	pg_end(pg);
	pg_flush(pg);
	ck_assert_uint_eq(ended, 0);
	turn_until(NULL, &downs, 1);
	ck_assert_int_eq(work[0].transaction.outcome, PG_LOST);
	ck_assert_str_eq(work[0].transaction.message, "a standby");
	ck_assert_str_eq(reason, "a standby");
	turn_until(NULL, &ups, 2);
}
END_TEST

START_TEST(freeing_loses_what_is_under_way)
{
	connect_with("", true);
	begin(0);
	send_put(440);
	pg_end(pg);
	pg_free(pg);
	pg = NULL;
	ck_assert_int_eq(work[0].transaction.outcome, PG_LOST);
	ck_assert_uint_eq(downs, 0);
}
END_TEST

START_TEST(a_statement_that_takes_too_long_fails)
{
	struct pg_session *other = scratch_open(scratch_conninfo);

	connect_with("options='-c statement_timeout=200ms'", true);
	scratch_run(other, "BEGIN; LOCK TABLE thing");
	begin(0);
	send_put(500);
	send_one();
	pg_end(pg);
	pg_flush(pg);
	turn_until(&work[0].ended, NULL, 0);
	ck_assert_int_eq(work[0].transaction.outcome, PG_FAILED);
	ck_assert_str_eq(work[0].transaction.sqlstate, "57014");
	scratch_run(other, "ROLLBACK");
	pg_session_close(other);
	three_in_order(510);
	ck_assert_uint_eq(downs, 0);
}
END_TEST

START_TEST(a_cancelled_wait_for_a_standby_is_no_commit)
{
	connect_with("", true);
	scratch_do("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
	scratch_do("SELECT pg_reload_conf()");
	turn_for(200);
	begin(0);
	send_put(600);
	pg_end(pg);
	begin(1);
	send_put(601);
	send_one();
	pg_end(pg);
	pg_flush(pg);
	wait_for_backends("wait_event = 'SyncRep'", 1);
	ck_assert_uint_eq(ended, 0);
	scratch_do("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = "
		   "'SyncRep'");
	turn_until(&work[0].ended, NULL, 0);
	ck_assert_int_eq(work[0].transaction.outcome, PG_LOST);
	ck_assert_ptr_nonnull(strstr(work[0].transaction.message, "synchronous replication"));
	wait_for_backends("wait_event = 'SyncRep'", 1);
	scratch_do("ALTER SYSTEM RESET synchronous_standby_names");
	scratch_do("SELECT pg_reload_conf()");
	turn_until(&work[1].ended, NULL, 0);
	ck_assert_int_eq(work[1].transaction.outcome, PG_COMMITTED);
	ck_assert_uint_eq(downs, 0);
}
END_TEST

static const char uuid[16] = { 1, 2, 3, (char)0xff };

static void add_values(int64_t sign, bool null)
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

static void echoed(struct pg_transaction *transaction)
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

static void unnested(struct pg_transaction *transaction)
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

static void send_unnest(size_t n)
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

static void all_values_survive(void)
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

START_TEST(null_and_every_type_go_there_and_back)
{
	connect_with("", true);
	all_values_survive();
}
END_TEST

START_TEST(hundreds_of_rows_and_megabytes_go_through)
{
	connect_with("", true);
	for (unsigned i = 0; i < MANY; i++) {
		begin(i);
		send_put_n(10000 + 1000 * i, 256, 24576); /* 6 MiB a transaction */
		pg_end(pg);
	}
	ck_assert_uint_eq(ended, 0);
	pg_flush(pg);
	turn_until(&work[MANY - 1].ended, NULL, 0);
	for (unsigned i = 0; i < MANY; i++) {
		ck_assert_int_eq(work[i].transaction.outcome, PG_COMMITTED);
		ck_assert_uint_eq(work[i].rows[0], 256);
	}
}
END_TEST

START_TEST(a_statement_that_cannot_be_prepared_is_named_and_tried_again)
{
	struct pg_options options = {
		.conninfo = conninfo, .prepared = true, .who = "test", .up = up, .down = down
	};

	scratch_do("ALTER TABLE thing RENAME TO elsewhere");
	snprintf(conninfo, sizeof(conninfo), "%s", scratch_conninfo);
	pg = pg_new(loop, &options);
	turn_until(NULL, &downs, 2);
	ck_assert_ptr_nonnull(strstr(reason, "statement put"));
	ck_assert_ptr_nonnull(strstr(reason, "does not exist"));
	ck_assert_uint_eq(ups, 0);
	scratch_do("ALTER TABLE elsewhere RENAME TO thing");
	turn_until(NULL, &ups, 1);
	three_in_order(800);
}
END_TEST

static void back_off(const char *where, const char *word)
{
	struct pg_options options = {
		.conninfo = where, .prepared = true, .who = "test", .up = up, .down = down
	};

	pg = pg_new(loop, &options);
	ck_assert_uint_eq(downs, 0);
	turn_for(1000);
	ck_assert_msg(strstr(reason, word) != NULL, "%s", reason);
	/* At 0, then after at most 50, 100, 200, 400 ms, and at least three quarters of it. */
	ck_assert_uint_ge(downs, 4);
	ck_assert_uint_le(downs, 6);
}

START_TEST(who_is_not_there_is_asked_again_ever_more_slowly)
{
	back_off("host=/nowhere user=onceward", "No such file");
}
END_TEST

START_TEST(a_conninfo_that_makes_no_sense_is_said)
{
	char why[256];

	back_off("host=/nowhere colour=blue", "colour");
	ck_assert(!pg_conninfo_valid("host=/nowhere colour=blue", why));
	ck_assert(pg_conninfo_valid("postgresql://a,b/onceward", why));
}
END_TEST

START_TEST(no_word_of_a_secret_is_in_the_reason)
{
	back_off("host=/nowhere user=onceward password=sesame", "No such file");
	ck_assert_ptr_null(strstr(reason, "sesame"));
}
END_TEST

START_TEST(a_server_that_says_nothing_is_given_up)
{
	struct pg_options options = {
		.conninfo = conninfo, .prepared = true, .who = "test", .up = up, .down = down
	};

	snprintf(conninfo, sizeof(conninfo), "%s", scratch_conninfo);
	scratch_do("SELECT 1");
	ck_assert_int_eq(system("kill -STOP $(head -n 1 $SCRATCH/data/postmaster.pid)"), 0);
	pg = pg_new(loop, &options);
	turn_until(NULL, &downs, 1);
	ck_assert_int_eq(system("kill -CONT $(head -n 1 $SCRATCH/data/postmaster.pid)"), 0);
	ck_assert_str_eq(reason, "PostgreSQL does not answer");
	turn_until(NULL, &ups, 1);
}
END_TEST

static size_t bytes_read;

static void bodies_read(struct pg_transaction *transaction)
{
	struct work *w = container_of(transaction, struct work, transaction);

	ck_assert_int_eq(transaction->outcome, PG_COMMITTED);
	for (size_t row = 0; row < pg_rows_count(transaction->rows[0]); row++)
		bytes_read += pg_bytes(transaction->rows[0], row, 1).len;
	w->ended = true;
}

/* The two ends keep decrypted and encrypted bytes where epoll does not see them. */
START_TEST(over_tls_nothing_stays_in_between)
{
	char more[64];

	ck_assert_int_eq(system("cd $SCRATCH/data && openssl req -x509 -newkey rsa:2048 -nodes "
				"-days 2 -subj /CN=x "
				"-keyout server.key -out server.crt > /dev/null 2>&1 && chmod "
				"600 server.key && "
				"chown --reference=base server.key server.crt"),
			 0);
	scratch_do("ALTER SYSTEM SET ssl = on");
	scratch_do("SELECT pg_reload_conf();"
		   "INSERT INTO thing SELECT 50000 + i, (SELECT string_agg(sha256((i * 1000 + "
		   "j)::text::bytea), '') "
		   "FROM generate_series(1, 300) AS j) FROM generate_series(0, 299) AS i");
	snprintf(more, sizeof(more), "host=127.0.0.1 sslmode=require");
	connect_with(more, true);
	for (int round = 0; round < 20; round++) {
		begin(0);
		send_put_n(60000 + 1000 * round, 256, 4096);
		pg_end(pg);
		begin(1);
		work[1].transaction.done = bodies_read;
		pg_params_clear(&params);
		pg_array(&params, PG_INT8, 300);
		for (int i = 0; i < 300; i++)
			pg_add_int(&params, PG_INT8, 50000 + i);
		pg_send(pg, QUERY_get, &params);
		pg_end(pg);
		pg_flush(pg);
		turn_until(&work[1].ended, NULL, 0);
		ck_assert_int_eq(work[0].transaction.outcome, PG_COMMITTED);
	}
	ck_assert_uint_eq(bytes_read, (size_t)20 * 300 * 300 * 32);
	ck_assert_int_eq(
		scratch_number(
			"SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) "
			"WHERE ssl AND application_name = 'onceward'"),
		1);
}
END_TEST

static int free_port(void)
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

static void bouncer(const char *command)
{
	ck_assert_int_eq(system(command), 0);
}

START_TEST(behind_pgbouncer_without_prepared_statements)
{
	char through[128];
	struct pg_options options = {
		.conninfo = through, .who = "test", .up = up, .down = down
	};

	bouncer("cat > $SCRATCH/bouncer.ini <<EOF\n"
		"[databases]\n"
		"onceward = host=$SCRATCH port=$SCRATCH_PORT dbname=onceward user=onceward\n"
		"[pgbouncer]\n"
		"listen_port = 6432\n"
		"unix_socket_dir = $SCRATCH\n"
		"logfile = $SCRATCH/bouncer.log\n"
		"pidfile = $SCRATCH/bouncer.pid\n"
		"auth_type = any\n"
		"pool_mode = transaction\n"
		"default_pool_size = 3\n"
		"EOF\n"
		"as=; [ $(id -u) -ne 0 ] || as='setpriv --reuid=postgres --regid=postgres "
		"--clear-groups --'\n"
		"$as env PATH=$PATH:/usr/sbin pgbouncer -q -d $SCRATCH/bouncer.ini");
	snprintf(through, sizeof(through), "host=%s port=6432 user=onceward dbname=onceward",
		 scratch_dir);
	pg = pg_new(loop, &options);
	turn_until(NULL, &ups, 1);
	three_in_order(900);
	all_values_survive();
	/* The other way to lose it: the server's end, seen through the pooler. */
	scratch_do("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE "
		   "backend_type = 'client backend' AND pid <> pg_backend_pid()");
	begin(0);
	send_put(905);
	pg_end(pg);
	pg_flush(pg);
	turn_until(&work[0].ended, NULL, 0);
	while (!pg_up(pg))
		loop_wait(loop, 50);
	three_in_order(910);
	bouncer("kill $(cat $SCRATCH/bouncer.pid)");
}
END_TEST

START_TEST(a_session_runs_statements_and_says_what_is_wrong)
{
	char why[256] = "";
	struct pg_session *session = scratch_open(scratch_conninfo);
	struct span some[] = { SPAN("12"), { NULL, 0 }, SPAN("") };
	struct pg_rows *rows =
		pg_session_run(session, "SELECT $1::int + 1, $2::text, $3::text", some, 3, why);

	ck_assert_ptr_nonnull(rows);
	ck_assert(span_equal(pg_text(rows, 0, 0), SPAN("13")));
	ck_assert_ptr_null(pg_text(rows, 0, 1).at);
	ck_assert_ptr_nonnull(pg_text(rows, 0, 2).at);
	pg_rows_free(rows);
	ck_assert_ptr_null(
		pg_session_run(session, "SELECT 1; SELECT 1/0; SELECT 2", NULL, 0, why));
	ck_assert_str_eq(why, "division by zero");
	ck_assert_str_eq(pg_session_sqlstate(session), "22012");
	rows = pg_session_run(session, "SELECT 1; SELECT 2", NULL, 0, why);
	ck_assert(span_equal(pg_text(rows, 0, 0), SPAN("2")));
	ck_assert_str_eq(pg_session_sqlstate(session), "");
	pg_rows_free(rows);
	pg_session_patience(session, 200);
	ck_assert_ptr_null(pg_session_run(session, "SELECT pg_sleep(10)", NULL, 0, why));
	ck_assert_ptr_nonnull(strstr(why, "did not answer"));
	pg_session_close(session);
	ck_assert_ptr_null(pg_session_open("host=/nowhere user=a password=sesame", 1000, why));
	ck_assert_ptr_nonnull(strstr(why, "No such file"));
	ck_assert_ptr_null(pg_session_open("nonsense", 1000, why));
}
END_TEST

START_TEST(the_environment_says_nothing)
{
	setenv("PGHOST", "/nowhere", 1);
	setenv("PGOPTIONS", "-c statement_timeout=1", 1);
	setenv("PGTZ", "Mars", 1);
	pg_ignore_environment();
	ck_assert_ptr_null(getenv("PGHOST"));
	ck_assert_ptr_null(getenv("PGOPTIONS"));
	ck_assert_ptr_null(getenv("PGTZ"));
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("pg");
	TCase *t = tcase_create("pg");

	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, transactions_come_back_in_order);
	tcase_add_test(t, without_prepared_statements_all_is_the_same);
	tcase_add_test(t, an_error_ends_its_own_transaction_only);
	tcase_add_test(t, a_commit_that_fails_is_a_failure_though_its_rows_came);
	tcase_add_test(t, a_lost_connection_loses_all_and_comes_back);
	tcase_add_test(t, a_connection_ended_while_idle_comes_back);
	tcase_add_test(t, what_is_begun_on_a_dying_connection_is_lost);
	tcase_add_test(t, freeing_loses_what_is_under_way);
	tcase_add_test(t, a_statement_that_takes_too_long_fails);
	tcase_add_test(t, a_cancelled_wait_for_a_standby_is_no_commit);
	tcase_add_test(t, null_and_every_type_go_there_and_back);
	tcase_add_test(t, hundreds_of_rows_and_megabytes_go_through);
	tcase_add_test(t, a_statement_that_cannot_be_prepared_is_named_and_tried_again);
	tcase_add_test(t, who_is_not_there_is_asked_again_ever_more_slowly);
	tcase_add_test(t, a_conninfo_that_makes_no_sense_is_said);
	tcase_add_test(t, no_word_of_a_secret_is_in_the_reason);
	tcase_add_test(t, a_server_that_says_nothing_is_given_up);
	tcase_add_test(t, over_tls_nothing_stays_in_between);
	tcase_add_test(t, behind_pgbouncer_without_prepared_statements);
	tcase_add_test(t, a_session_runs_statements_and_says_what_is_wrong);
	tcase_add_test(t, the_environment_says_nothing);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	SRunner *runner = NULL;
	char port[16];
	int failed = 0;

	scratch_port = free_port();
	scratch_start("-c listen_addresses=127.0.0.1");
	snprintf(port, sizeof(port), "%d", scratch_port);
	setenv("SCRATCH_PORT", port, 1);
	setenv("SCRATCH", scratch_dir, 1);
	scratch_do("CREATE TABLE thing (id int8 CHECK (id >= 0), bytes bytea)");
	runner = srunner_create(suite());
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	scratch_stop();
	return failed ? 1 : 0;
}
