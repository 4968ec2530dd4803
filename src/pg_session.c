/*
 * A blocking connection, for commands and for what is asked once at start-up; see pg.h.
 *
 * Blocking, but never for longer than the caller's patience: waiting is done here, by poll, and
 * not in libpq. A statement that outlasts it ends the session.
 */
#include "pg_internal.h"

#include "loop.h"

#include <assert.h>
#include <poll.h>
#include <stdio.h>

struct pg_session {
	PGconn *conn;
	int timeout_ms;  /* -1: none */
	char doubt[256]; /* what a warning said about the commit */
	char sqlstate[6];
};

/* Until the socket is ready; false where that takes longer than until `end_us`. */
static bool wait_for(struct pg_session *session, short events, int64_t end_us)
{
	struct pollfd one = { .fd = PQsocket(session->conn), .events = events };
	int64_t left_ms = -1;
	int n = 0;

	do {
		if (session->timeout_ms >= 0) {
			left_ms = (end_us - loop_clock_us()) / 1000;
			if (left_ms < 0)
				return false;
		}
		n = poll(&one, 1, left_ms > INT32_MAX ? INT32_MAX : (int)left_ms);
	} while (n < 0 || (n == 0 && session->timeout_ms < 0));
	return n > 0;
}

static int64_t end_us(const struct pg_session *session)
{
	return loop_clock_us() + (int64_t)session->timeout_ms * 1000;
}

static void noticed(void *arg, const PGresult *notice)
{
	struct pg_session *session = arg;

	if (pg_doubts_commit(notice))
		pg_first_line(session->doubt,
			      PQresultErrorField(notice, PG_DIAG_MESSAGE_PRIMARY));
}

static bool connect_it(struct pg_session *session, char why[256])
{
	int64_t end = end_us(session);
	PostgresPollingStatusType next = PGRES_POLLING_WRITING;

	while (next != PGRES_POLLING_OK) {
		short events = next == PGRES_POLLING_READING ? POLLIN : POLLOUT;

		if (PQstatus(session->conn) == CONNECTION_BAD || next == PGRES_POLLING_FAILED) {
			pg_first_line(why, PQerrorMessage(session->conn));
			return false;
		}
		if (!wait_for(session, events, end)) {
			snprintf(why, 256, "PostgreSQL did not answer within %d s",
				 session->timeout_ms / 1000);
			return false;
		}
		next = PQconnectPoll(session->conn);
	}
	return true;
}

struct pg_session *pg_session_open(const char *conninfo, int timeout_ms, char why[256])
{
	struct pg_session *session = NULL;
	struct pg_keywords keywords;

	if (!pg_keywords_read(&keywords, conninfo, why))
		return NULL;
	session = mem_alloc(sizeof(*session));
	session->timeout_ms = timeout_ms;
	session->conn = PQconnectStartParams(keywords.keyword, keywords.value, 0);
	pg_keywords_free(&keywords);
	assert(session->conn);
	PQsetNoticeReceiver(session->conn, noticed, session);
	if (connect_it(session, why))
		return session;
	pg_session_close(session);
	return NULL;
}

void pg_session_close(struct pg_session *session)
{
	PQfinish(session->conn);
	mem_free(session);
}

void pg_session_patience(struct pg_session *session, int timeout_ms)
{
	session->timeout_ms = timeout_ms;
}

static bool send(struct pg_session *session, const char *sql, const struct span *params,
		 size_t n)
{
	char *values[PG_PARAMS_MAX];
	bool sent = false;

	assert(n <= PG_PARAMS_MAX);
	if (n == 0)
		return PQsendQuery(session->conn, sql) == 1;
	for (size_t i = 0; i < n; i++)
		values[i] = params[i].at ? mem_text(params[i]) : NULL;
	sent = PQsendQueryParams(session->conn, sql, (int)n, NULL, (const char *const *)values,
				 NULL, NULL, 0) == 1;
	for (size_t i = 0; i < n; i++)
		mem_free(values[i]);
	return sent;
}

/* libpq has a result, or knows that there will be none; false: the patience has ended. */
static bool wait_result(struct pg_session *session, int64_t end)
{
	while (PQisBusy(session->conn)) {
		if (!wait_for(session, POLLIN, end))
			return false;
		if (!PQconsumeInput(session->conn))
			return true;
	}
	return true;
}

static bool is_good(const PGresult *result)
{
	return PQresultStatus(result) == PGRES_TUPLES_OK ||
	       PQresultStatus(result) == PGRES_COMMAND_OK;
}

/* Of all results the first error, or else the last. NULL: the patience has ended. */
static PGresult *receive(struct pg_session *session)
{
	int64_t end = end_us(session);
	PGresult *kept = NULL, *next = NULL;

	while (wait_result(session, end)) {
		next = PQgetResult(session->conn);
		if (!next)
			return kept;
		if (!kept || is_good(kept)) {
			PQclear(kept);
			kept = next;
		} else {
			PQclear(next);
		}
	}
	PQclear(kept);
	return NULL;
}

static void explain(struct pg_session *session, const PGresult *result, char why[256])
{
	const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);

	snprintf(session->sqlstate, sizeof(session->sqlstate), "%s", state ? state : "");
	pg_first_line(why, message ? message : PQerrorMessage(session->conn));
}

struct pg_rows *pg_session_run(struct pg_session *session, const char *sql,
			       const struct span *params, size_t n, char why[256])
{
	PGresult *result = NULL;
	bool sent = false;

	session->sqlstate[0] = '\0';
	session->doubt[0] = '\0';
	sent = send(session, sql, params, n);
	result = sent ? receive(session) : NULL;
	if (sent && !result)
		snprintf(why, 256, "PostgreSQL did not answer within %d s",
			 session->timeout_ms / 1000);
	else if (!sent || !is_good(result))
		explain(session, result, why);
	else if (session->doubt[0])
		snprintf(why, 256, "done here, but perhaps not on the standby: %.200s",
			 session->doubt);
	else
		return (struct pg_rows *)(void *)result;
	PQclear(result);
	return NULL;
}

const char *pg_session_sqlstate(const struct pg_session *session)
{
	return session->sqlstate;
}
