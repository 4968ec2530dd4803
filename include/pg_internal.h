/* What the files of pg share: the connection's states, and what libpq is told and asked. */
#pragma once
#include "pg.h"

#include <libpq-fe.h>

/* A conninfo as libpq's two lists, with our defaults for what it does not say. */
#define PG_KEYWORDS_MAX 96
struct pg_keywords {
	PQconninfoOption *parsed;
	const char *keyword[PG_KEYWORDS_MAX], *value[PG_KEYWORDS_MAX];
	unsigned n, hosts; /* hosts: how many are named, at least 1 */
};
bool pg_keywords_read(struct pg_keywords *keywords, const char *conninfo,
		      char why[256]) MUST_CHECK;
void pg_keywords_free(struct pg_keywords *keywords);

/* The first line of what libpq says, without its end. */
void pg_first_line(char out[256], const char *text);
/* Does this notice say that the commit may be missing on the standby that it waited for? */
bool pg_doubts_commit(const PGresult *notice);

static inline const PGresult *pg_result(const struct pg_rows *rows)
{
	return (const PGresult *)(const void *)rows;
}

/* Each state's end stands beside it. */
enum pg_state {
	PG_AWAY,       /* the timer begins to connect */
	PG_CONNECTING, /* PQconnectPoll says OK or FAILED, or the timer ends the patience */
	PG_PREPARING,  /* the Sync after the last statement has been read, or the timer */
	PG_UP,         /* until pg_fail */
	PG_BROKEN      /* the timer, at once: everything under way is lost, from the loop */
};

struct pg {
	struct loop *loop;
	struct pg_options options;
	char *conninfo, *who; /* copies; those in the options are not used */
	PGconn *conn;
	struct loop_watch watch;
	struct loop_timer timer;
	enum pg_state state;
	struct list sent;            /* transactions whose Sync was sent, oldest first */
	struct pg_transaction *open; /* between pg_begin and pg_end */
	unsigned prepared;           /* statements prepared so far */
	unsigned failures;           /* since a connection last stood */
	int64_t up_since;            /* ms */
	bool reading;
	char why[256];
	char said[256]; /* the reason that was last logged */
};

/* The connection is of no use any more: its loss is told from the loop. The first reason stays. */
void pg_fail(struct pg *pg, const char *why);
/* What libpq has read becomes results and ends of transactions. */
void pg_read(struct pg *pg);
/* For PQsetNoticeReceiver. */
void pg_noticed(void *arg, const PGresult *notice);
/* All under way ends as PG_LOST. */
void pg_lose(struct pg *pg);
/* Sends all statements of queries.def to be prepared, and a Sync. */
void pg_prepare(struct pg *pg);
void pg_is_up(struct pg *pg);
