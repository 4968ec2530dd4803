/*
 * Where PostgreSQL is, as libpq wants to hear it: the settings' conninfo, our own defaults for
 * what it does not say, and nothing of the environment. Also what libpq's messages mean to us.
 *
 * No `options` are ever sent: PgBouncer refuses them, and what belongs to a role stands on it.
 */
#include "pg_internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

/* A dead peer is noticed within seconds; tcp_user_timeout also ends an unanswered connect, so
 * that the next host of a list is tried. GSS encryption buffers where no loop can see it. */
static const struct {
	const char *keyword, *value;
} defaults[] = {
	{ "application_name", "onceward" },
	{ "client_encoding", "UTF8" },
	{ "connect_timeout", "5" },
	{ "tcp_user_timeout", "5000" },
	{ "keepalives", "1" },
	{ "keepalives_idle", "10" },
	{ "keepalives_interval", "3" },
	{ "keepalives_count", "3" },
	{ "gssencmode", "disable" },
};

void pg_first_line(char out[256], const char *text)
{
	size_t len = text ? strcspn(text, "\r\n") : 0;

	if (len == 0)
		text = "no reason given", len = strlen(text);
	snprintf(out, 256, "%.*s", (int)(len < 255 ? len : 255), text);
}

static void add(struct pg_keywords *keywords, const char *keyword, const char *value)
{
	assert(keywords->n + 1 < PG_KEYWORDS_MAX);
	keywords->keyword[keywords->n] = keyword;
	keywords->value[keywords->n] = value;
	keywords->n++;
}

static bool said(const struct pg_keywords *keywords, const char *keyword)
{
	for (unsigned i = 0; i < keywords->n; i++)
		if (strcmp(keywords->keyword[i], keyword) == 0)
			return true;
	return false;
}

static unsigned count_hosts(const char *list)
{
	unsigned n = 1;

	for (; *list; list++)
		n += *list == ',';
	return n;
}

bool pg_keywords_read(struct pg_keywords *keywords, const char *conninfo, char why[256])
{
	char *error = NULL;

	*keywords = (struct pg_keywords){ .hosts = 1 };
	keywords->parsed = PQconninfoParse(conninfo, &error);
	if (!keywords->parsed) {
		char line[256];

		pg_first_line(line, error);
		snprintf(why, 256, "the conninfo cannot be read: %.200s", line);
		PQfreemem(error);
		return false;
	}
	for (const PQconninfoOption *o = keywords->parsed; o->keyword; o++) {
		if (!o->val)
			continue;
		add(keywords, o->keyword, o->val);
		if (strncmp(o->keyword, "host", 4) == 0)
			keywords->hosts = count_hosts(o->val);
	}
	for (size_t i = 0; i < ARRAY_LEN(defaults); i++)
		if (!said(keywords, defaults[i].keyword))
			add(keywords, defaults[i].keyword, defaults[i].value);
	return true;
}

void pg_keywords_free(struct pg_keywords *keywords)
{
	PQconninfoFree(keywords->parsed);
	keywords->parsed = NULL;
}

bool pg_conninfo_valid(const char *conninfo, char why[256])
{
	struct pg_keywords keywords;

	if (!pg_keywords_read(&keywords, conninfo, why))
		return false;
	pg_keywords_free(&keywords);
	return true;
}

void pg_ignore_environment(void)
{
	static const char *const others[] = { "PGSERVICEFILE", "PGSYSCONFDIR", "PGTZ",
					      "PGDATESTYLE", "PGGEQO" };
	PQconninfoOption *options = PQconndefaults();

	for (const PQconninfoOption *o = options; o && o->keyword; o++)
		if (o->envvar)
			unsetenv(o->envvar);
	PQconninfoFree(options);
	for (size_t i = 0; i < ARRAY_LEN(others); i++)
		unsetenv(others[i]);
}

/*
 * A wait for a standby that was cancelled is a WARNING behind the last statement (trap 5). The
 * other warnings that can come with our statements say that transaction ids run short: they
 * come with the statement that takes one and do not touch the commit. libpq may read a notice
 * before it hands over the result in front of it, so the place alone does not tell them apart.
 */
bool pg_doubts_commit(const PGresult *notice)
{
	const char *severity = PQresultErrorField(notice, PG_DIAG_SEVERITY_NONLOCALIZED);
	const char *where = PQresultErrorField(notice, PG_DIAG_SOURCE_FUNCTION);

	if (!severity || strcmp(severity, "WARNING") != 0)
		return false;
	return !where || (strcmp(where, "GetNewTransactionId") != 0 &&
			  strcmp(where, "GetNewMultiXactId") != 0);
}
