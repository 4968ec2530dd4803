/* What commands on the ledger begin with. */
#pragma once
#include "cli.h"
#include "pg.h"
#include "settings.h"

/* The settings that -c names; NULL: what is wrong stands on standard error. Warnings belong to
 * `check`; whoever else shows them tells people what they have heard. */
struct settings *cli_settings(const struct cli_args *args, bool warnings) MUST_CHECK;
/* A session on their ledger, by maintenance_conninfo where it is set; NULL: as above. */
struct pg_session *cli_ledger(const struct settings *settings) MUST_CHECK;
/* The same where the tables are there and right. */
struct pg_session *cli_ledger_ready(const struct settings *settings) MUST_CHECK;
/* Says on standard error what went wrong. Always CLI_FAILED. */
int cli_failed(const char *format, ...) PRINTF_LIKE(1, 2);
