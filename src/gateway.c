/*
 * The process: it reads the settings, starts the workers and the office, and waits for signals.
 *
 * SIGHUP reads the settings anew; what is wrong with them changes nothing. SIGTERM and SIGINT
 * drain: nothing more is accepted, what is under way is finished and settled, and then the
 * process ends. A second one ends it at once: a record that is in flight then becomes unknown
 * when its lease ends, and is never forwarded twice.
 *
 * A mistake of the operator's is a sentence and exit code 1. A ledger that is away is no mistake:
 * the workers go on trying, answer 503 and say so on /readyz.
 *
 * All signals are blocked before the first thread starts, and taken by the main thread only. It
 * knows nothing of requests or SQL.
 */
#include "gateway.h"

#include "log.h"
#include "metrics.h"
#include "office.h"
#include "reload.h"
#include "schema.h"
#include "spool.h"
#include "worker.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define WORKERS_MAX   256U
#define ERRORS_MAX    ((size_t)1024 * 1024)
#define READY_POLL_MS 100 /* until the ledger answered */
#define DRAIN_POLL_MS 10
#define SPOOL_MS      5000 /* for a disk to take what the ledger did not */
#define UNDO_MS       2000 /* for workers of a start that failed: they have nothing to do */

struct gateway {
	const char *file;
	const struct settings *settings;
	struct worker *workers[WORKERS_MAX];
	unsigned n_workers;
	struct office *office;
	struct spool *spool; /* NULL: none is configured */
	struct metrics *metrics;
	sigset_t signals;
	bool ready;
};

/* Tells systemd; see sd_notify(3). Nobody listens where NOTIFY_SOCKET is not set. */
static void notify(const char *state)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	size_t len = path ? strlen(path) : 0;
	int fd = -1;

	if (len < 2 || len >= sizeof(to.sun_path) || (path[0] != '/' && path[0] != '@'))
		return;
	memcpy(to.sun_path, path, len);
	if (path[0] == '@')
		to.sun_path[0] = 0;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	if (sendto(fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT,
		   (const struct sockaddr *)(const void *)&to,
		   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) < 0)
		log_warning("gateway", "cannot notify %s: %s", path, strerror(errno));
	close(fd);
}

/* A reload is told with its time, by which systemd knows which READY=1 ends it. */
static void notify_reloading(void)
{
	struct timespec now;
	char state[64];

	clock_gettime(CLOCK_MONOTONIC, &now);
	snprintf(state, sizeof(state), "RELOADING=1\nMONOTONIC_USEC=%lld",
		 (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000);
	notify(state);
}

/* Each line of what settings_load found. */
static void log_lines(const struct buf *lines, bool errors)
{
	struct span rest = buf_view(lines);

	while (rest.len > 0) {
		const char *end = memchr(rest.at, '\n', rest.len);
		size_t len = end ? (size_t)(end - rest.at) : rest.len;
		if (errors)
			log_error("settings", "%.*s", (int)len, rest.at);
		else
			log_warning("settings", "%.*s", (int)len, rest.at);
		rest.at += len + (end != NULL);
		rest.len -= len + (end != NULL);
	}
}

static void configure_log(const struct settings *settings)
{
	log_configure((enum log_format)settings->log.format,
		      (enum log_level)settings->log.level);
}

/* At the start errors are for whoever typed the command: text, not log lines. */
static bool load(struct gateway *g)
{
	struct buf lines;

	buf_init(&lines, ERRORS_MAX);
	g->settings = settings_load(g->file, &lines);
	if (g->settings) {
		configure_log(g->settings);
		log_lines(&lines, false);
	} else {
		buf_print(&lines, stderr);
	}
	buf_fini(&lines);
	return g->settings != NULL;
}

static bool check_schema(const struct gateway *g)
{
	char why[256] = "";

	switch (pg_schema_check(g->settings->ledger.conninfo, why)) {
	case SCHEMA_OK:
		return true;
	case SCHEMA_AWAY:
		log_warning("gateway", "the ledger is away: %s; starting all the same", why);
		return true;
	case SCHEMA_MISSING:
	case SCHEMA_TOO_NEW:
	case SCHEMA_TOO_OLD:
		break;
	}
	log_error("gateway", "%s", why);
	return false;
}

static unsigned count_cpus(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 0)
		return (unsigned)CPU_COUNT(&set);
	return 1;
}

static unsigned count_workers(const struct settings *settings)
{
	unsigned n = settings->gateway.workers > 0 ? (unsigned)settings->gateway.workers
						   : count_cpus();

	return n < WORKERS_MAX ? n : WORKERS_MAX;
}

/* A client's connection may need an upstream's beside it. */
static void raise_file_limit(const struct settings *settings, unsigned workers)
{
	rlim_t needed = (rlim_t)settings->limits.connections * 2 + 64 + (rlim_t)workers * 16;
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return;
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
		log_warning("gateway", "cannot raise the limit of open files: %s",
			    strerror(errno));
	if (limit.rlim_max < needed)
		log_warning("gateway",
			    "limits.connections = %lld may need %llu open files, and the hard "
			    "limit is %llu (ulimit -Hn)",
			    (long long)settings->limits.connections, (unsigned long long)needed,
			    (unsigned long long)limit.rlim_max);
}

static bool open_spool(struct gateway *g)
{
	char why[256] = "";

	if (!g->settings->ledger.spool)
		return true;
	g->spool = spool_open(g->settings->ledger.spool, why);
	if (!g->spool)
		log_error("gateway", "cannot start: %s", why);
	return g->spool != NULL;
}

static bool start_workers(struct gateway *g, unsigned n)
{
	struct worker_start start = { .settings = g->settings,
				      .workers = n,
				      .spool = g->spool };
	char why[256] = "";

	for (; g->n_workers < n; start.index = g->n_workers) {
		struct worker *worker = worker_start(&start, why);
		if (!worker) {
			log_error("gateway", "cannot start: %s", why);
			return false;
		}
		g->workers[g->n_workers++] = worker;
	}
	return true;
}

static bool start_office(struct gateway *g)
{
	struct office_view view = { .workers = g->workers,
				    .n = g->n_workers,
				    .spool = g->spool };
	char why[256] = "";

	g->office = office_start(g->settings, &view, why);
	if (!g->office)
		log_error("gateway", "cannot start the admin listener: %s", why);
	return g->office != NULL;
}

static void set_loaded(const struct gateway *g)
{
	metrics_set(g->metrics, METRIC_config_reload_success_timestamp_seconds, 0,
		    (int64_t)time(NULL));
}

static void say_started(const struct gateway *g)
{
	const char *admin = office_address(g->office);
	struct buf where;

	buf_init(&where, 4096);
	for (size_t i = 0; i < g->settings->gateway.listen.n; i++)
		buf_format(&where, "%s%s", i ? ", " : "", worker_address(g->workers[0], i));
	log_info("gateway", "onceward %s: %u workers listen on %.*s; admin %s",
		 ONCEWARD_VERSION, g->n_workers, (int)where.len, where.at,
		 admin ? admin : "nowhere");
	buf_fini(&where);
}

static bool start(struct gateway *g)
{
	unsigned n = count_workers(g->settings);

	raise_file_limit(g->settings, n);
	if (!check_schema(g) || !open_spool(g) || !start_workers(g, n) || !start_office(g))
		return false;
	metrics_set(g->metrics, METRIC_build_info, 0, 1);
	set_loaded(g);
	say_started(g);
	notify("READY=1");
	return true;
}

/* Once, when every worker's ledger has answered. */
static void say_ready(struct gateway *g)
{
	for (unsigned i = 0; i < g->n_workers; i++)
		if (!worker_ledger(g->workers[i]).up)
			return;
	g->ready = true;
	log_info("gateway", "ready: the ledger answers");
}

/* The next signal; 0 where none comes in time (-1: no limit). */
static int wait_signal(const struct gateway *g, int ms)
{
	struct timespec limit = { ms / 1000, (long)(ms % 1000) * 1000000 };
	int signal = -1;

	log_flush();
	while (signal < 0) {
		signal = ms < 0 ? sigwaitinfo(&g->signals, NULL)
				: sigtimedwait(&g->signals, NULL, &limit);
		if (signal < 0 && errno == EAGAIN)
			return 0;
	}
	return signal;
}

static void refuse_reload(const struct gateway *g)
{
	log_error("gateway", "the reload changed nothing");
	metrics_add(g->metrics, METRIC_config_reload_failures_total, 0, 1);
}

static void follow(struct gateway *g, const struct settings *settings)
{
	configure_log(settings);
	for (unsigned i = 0; i < g->n_workers; i++)
		worker_follow(g->workers[i], settings);
	office_follow(g->office, settings);
	settings_release(g->settings);
	g->settings = settings;
	set_loaded(g);
	log_info("gateway", "the settings of %s are in effect", g->file);
}

/* False: the log says why. */
static bool may_follow(const struct gateway *g, const struct settings *settings)
{
	const char *restart = settings_needs_restart(g->settings, settings);
	char why[512] = "";

	if (restart)
		log_error("settings", "%s", restart);
	else if (!reload_allowed(g->settings, settings, why))
		log_error("settings", "%s", why);
	else
		return true;
	return false;
}

/* NULL where the file cannot be followed; the log says why. */
static const struct settings *load_anew(const struct gateway *g)
{
	const struct settings *settings = NULL;
	struct buf lines;

	buf_init(&lines, ERRORS_MAX);
	settings = settings_load(g->file, &lines);
	log_lines(&lines, !settings);
	buf_fini(&lines);
	if (!settings || may_follow(g, settings))
		return settings;
	settings_release(settings);
	return NULL;
}

static void reload(struct gateway *g)
{
	const struct settings *settings = NULL;

	notify_reloading();
	settings = load_anew(g);
	if (settings)
		follow(g, settings);
	else
		refuse_reload(g);
	notify("READY=1");
}

static bool all_ended(const struct gateway *g)
{
	for (unsigned i = 0; i < g->n_workers; i++)
		if (!worker_ended(g->workers[i]))
			return false;
	return true;
}

static size_t under_way(const struct gateway *g)
{
	size_t n = 0;

	for (unsigned i = 0; i < g->n_workers; i++)
		n += worker_under_way(g->workers[i]);
	return n;
}

/* False where the time is over, or somebody is out of patience, before all workers have ended. */
static bool drain_workers(const struct gateway *g, int64_t limit_ms)
{
	int64_t until = loop_clock_us() + limit_ms * 1000;

	for (unsigned i = 0; i < g->n_workers; i++)
		worker_drain(g->workers[i]);
	while (!all_ended(g)) {
		int signal = wait_signal(g, DRAIN_POLL_MS);
		if (signal == SIGTERM || signal == SIGINT || loop_clock_us() >= until)
			return all_ended(g);
	}
	return true;
}

static bool all_spooled(const struct gateway *g)
{
	for (unsigned i = 0; i < g->n_workers; i++)
		if (!worker_spooled(g->workers[i]))
			return false;
	return spool_waiting(g->spool) == 0;
}

/* What the ledger did not take in time goes to disk; the next start settles it. */
static void spool_rest(const struct gateway *g)
{
	int64_t until = loop_clock_us() + (int64_t)SPOOL_MS * 1000;

	for (unsigned i = 0; i < g->n_workers; i++)
		worker_spool(g->workers[i]);
	while (!all_spooled(g) && loop_clock_us() < until)
		wait_signal(g, DRAIN_POLL_MS);
	if (!all_spooled(g))
		log_error("gateway", "not all answers could be kept in %s",
			  g->settings->ledger.spool);
}

/* Not by exit(): what it runs would take libraries away from threads that still use them. */
__attribute__((noreturn)) static void leave(const struct gateway *g)
{
	if (g->spool)
		spool_rest(g);
	log_warning("gateway",
		    "leaving with %zu requests under way; what was forwarded and not settled "
		    "becomes unknown when its lease ends",
		    under_way(g));
	_exit(EXIT_FAILURE);
}

static void end(struct gateway *g)
{
	if (g->office)
		office_stop(g->office);
	for (unsigned i = 0; i < g->n_workers; i++)
		worker_join(g->workers[i]);
	if (g->spool)
		spool_close(g->spool);
	metrics_free(g->metrics);
	settings_release(g->settings);
}

static void drain(const struct gateway *g)
{
	log_info("gateway", "draining: %zu requests are under way", under_way(g));
	notify("STOPPING=1");
	office_draining(g->office);
	if (!drain_workers(g, g->settings->gateway.drain_timeout))
		leave(g);
	log_info("gateway", "drained: nothing was left");
}

static void serve(struct gateway *g)
{
	while (true) {
		int signal = wait_signal(g, g->ready ? -1 : READY_POLL_MS);
		if (signal == SIGTERM || signal == SIGINT)
			return;
		if (signal == SIGHUP)
			reload(g);
		if (!g->ready)
			say_ready(g);
	}
}

/* Threads inherit the mask, so it is set before the first one. */
static void block_signals(struct gateway *g)
{
	sigemptyset(&g->signals);
	sigaddset(&g->signals, SIGHUP);
	sigaddset(&g->signals, SIGTERM);
	sigaddset(&g->signals, SIGINT);
	pthread_sigmask(SIG_BLOCK, &g->signals, NULL);
	signal(SIGPIPE, SIG_IGN);
}

int gateway_run(const char *file)
{
	struct gateway g = { .file = file };
	int code = EXIT_SUCCESS;

	if (!load(&g))
		return EXIT_FAILURE;
	pg_ignore_environment();
	block_signals(&g);
	g.metrics = metrics_new();
	if (start(&g)) {
		serve(&g);
		drain(&g);
	} else {
		code = EXIT_FAILURE;
		if (!drain_workers(&g, UNDO_MS))
			leave(&g);
	}
	end(&g);
	log_flush();
	return code;
}
