/*
 * One pipelined connection to PostgreSQL: transactions go out without waiting, come back in
 * order, and fail all together when the connection goes. It reconnects by itself, backing off
 * to at most 1 s. pg*.c is the only door to libpq; it does not know what a statement means.
 *
 * In a pipeline a row is not a commit (DESIGN, trap 3): `done` of a transaction is called when its
 * Sync has been read, with all its results, and not before.
 */
#pragma once
#include "loop.h"
#include "mem.h"

/* The table of statements, from sql/query/; pg's own test brings another one. */
#ifndef PG_QUERIES
#define PG_QUERIES "queries.def"
#endif
enum query {
#define QUERY(name, text) QUERY_##name,
#include PG_QUERIES
#undef QUERY
	QUERY_COUNT
};

/* Parameters of one statement, in PostgreSQL's binary format. Reused: clear, then add in order. */
#define PG_PARAMS_MAX 24
enum pg_type {
	PG_INT2 = 21,
	PG_INT4 = 23,
	PG_INT8 = 20,
	PG_BYTEA = 17,
	PG_UUID = 2950,
	PG_TEXT = 25,
	PG_DATE = 1082
};
struct pg_params {
	struct buf bytes;
	struct {
		size_t at;
		int len; /* -1: NULL */
	} param[PG_PARAMS_MAX];
	unsigned n;
	size_t left; /* elements that the array under way still wants */
};
void pg_params_init(struct pg_params *params);
void pg_params_clear(struct pg_params *params);
void pg_params_fini(struct pg_params *params);
/* A scalar; or, after pg_array, the next of its n elements. Dates are days since 1970-01-01. */
void pg_array(struct pg_params *params, enum pg_type type, size_t n);
void pg_add_int(struct pg_params *params, enum pg_type type,
		int64_t number); /* INT2, INT4, INT8, DATE */
void pg_add_bytes(struct pg_params *params,
		  struct span bytes); /* BYTEA, UUID (16 bytes), TEXT */
void pg_add_null(struct pg_params *params);
void pg_add_if(struct pg_params *params, bool there, struct span bytes); /* else NULL */

/* Results, in binary. */
struct pg_rows;
size_t pg_rows_count(const struct pg_rows *rows);
bool pg_is_null(const struct pg_rows *rows, size_t row, unsigned column);
int64_t pg_int(const struct pg_rows *rows, size_t row,
	       unsigned column); /* int2, int4, int8, bool; date as days since 1970-01-01 */
struct span pg_bytes(const struct pg_rows *rows, size_t row,
		     unsigned column); /* valid until `done` returns */

enum pg_outcome {
	PG_COMMITTED,
	PG_FAILED, /* rolled back: sqlstate and message say why */
	PG_LOST /* the connection went, or the commit came with a warning: committed or not, nobody knows */
};

#define PG_STEPS_MAX 8
struct pg_transaction {
	void (*done)(struct pg_transaction
			     *transaction); /* from the loop, never inside pg_begin … pg_end */
	/* valid in done */
	enum pg_outcome outcome;
	char sqlstate[6];
	char message[256];
	struct pg_rows
		*rows[PG_STEPS_MAX]; /* by step, when COMMITTED; freed when done returns */
	unsigned steps;
	/* pg.c's */
	struct list link;
	unsigned step;
};

struct pg;
struct pg_options {
	const char *conninfo;
	bool prepared;
	const char *who;       /* for the log: "ledger 2" */
	void (*up)(void *arg); /* connected and prepared: transactions may be sent */
	void (*down)(
		void *arg,
		const char *
			why); /* after all transactions got PG_LOST; also when a connect fails */
	void *arg;
};
struct pg *pg_new(struct loop *loop, const struct pg_options *options); /* begins to connect */
void pg_free(struct pg *pg); /* transactions under way get PG_LOST */
bool pg_up(const struct pg *pg);
/* Only while up. One transaction: begin, send (1 to PG_STEPS_MAX times), end (Sync). Bytes leave at the end of the turn
 * (pg_flush) or when the socket's buffer takes them. A pg_end never blocks. */
void pg_begin(struct pg *pg, struct pg_transaction *transaction);
void pg_send(struct pg *pg, enum query query, const struct pg_params *params);
/* A statement that stands in no file, because it names a partition, or needs to be outside of any
 * transaction block (DETACH CONCURRENTLY, VACUUM): then it is the only one of its transaction. */
void pg_send_text(struct pg *pg, const char *sql);
void pg_end(struct pg *pg);
void pg_flush(struct pg *pg);
/* Ends the connection (a standby, a read-only server) and reconnects with back-off. */
void pg_drop(struct pg *pg, const char *why);
/* The text of a statement, for who sends it over a session. */
const char *pg_query_text(enum query query);

/* Removes PGHOST and its like from the environment, once, before threads start: settings alone say where. */
void pg_ignore_environment(void);
/* Can libpq read it? A sentence in `why` where not. */
bool pg_conninfo_valid(const char *conninfo, char why[256]) MUST_CHECK;

/* Blocking, for commands and start-up. NULL and a sentence in `why`. */
struct pg_session;
struct pg_session *pg_session_open(const char *conninfo, int timeout_ms,
				   char why[256]) MUST_CHECK;
/* How long connecting and then each run may take; -1: as long as it takes. */
void pg_session_patience(struct pg_session *session, int timeout_ms);
void pg_session_close(struct pg_session *session);
/* Runs a statement (also several, without parameters); parameters and rows are in text format, a NULL `at` is NULL.
 * NULL and why on error. The result is freed by pg_rows_free. */
struct pg_rows *pg_session_run(struct pg_session *session, const char *sql,
			       const struct span *params, size_t n, char why[256]) MUST_CHECK;
const char *pg_session_sqlstate(
	const struct pg_session *session); /* of the last run; "" where it had none */
struct span pg_text(const struct pg_rows *rows, size_t row,
		    unsigned column); /* of a session's rows */
void pg_rows_free(struct pg_rows *rows);
