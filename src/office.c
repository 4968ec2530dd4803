/*
 * The back office: one thread and its turn, beside the workers.
 *
 * It owns the admin listener, the tokens, the sweep and the retention, each of which does its work in the turn.
 * Other threads only leave it a message (new settings, a drain, an end) and wake it. What /readyz
 * says is asked of the workers at the moment somebody asks, by their thread-safe views.
 *
 * It keeps running through a drain, so that whoever watches sees the drain; it ends last.
 */
#include "office.h"

#include "admin.h"
#include "admin_ledger.h"
#include "listener.h"
#include "log.h"
#include "lookup.h"
#include "retain.h"
#include "sweep.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#define CONNECTIONS 64 /* operators and scrapers; none of them is fast or many */

struct office {
	pthread_t thread;
	struct loop *loop;
	struct metrics *metrics; /* the sweep's */
	struct metrics
		*apart; /* the admin listener's: its clients are not the metrics' clients */
	struct listener_handler handler;
	struct listener *listener;   /* NULL: admin.listen is "" */
	struct admin_ledger *people; /* their questions; NULL: nobody can ask */
	struct sweep *sweep;
	struct lookup *lookup;
	struct retain *retain;
	struct admin_tokens *tokens;
	const struct settings *settings;
	struct office_view view;
	/* messages */
	_Atomic(const struct settings *) posted; /* held; NULL: nothing new */
	atomic_bool draining, stopping;
};

static void check_ledger(const struct office *office, struct admin_check *ledger,
			 struct admin_check *durable)
{
	ledger->ok = durable->ok = true;
	snprintf(ledger->detail, sizeof(ledger->detail), "all %zu threads are connected",
		 office->view.n);
	snprintf(durable->detail, sizeof(durable->detail), "commits are durable");
	for (size_t i = 0; i < office->view.n; i++) {
		struct ledger_state state = worker_ledger(office->view.workers[i]);
		const char *why = state.why ? state.why : "not yet known";
		if (!state.up && ledger->ok) {
			ledger->ok = false;
			snprintf(ledger->detail, sizeof(ledger->detail), "%s", why);
		}
		if (!state.durable && durable->ok) {
			durable->ok = false;
			snprintf(durable->detail, sizeof(durable->detail), "%s", why);
		}
	}
}

static void check_days(const struct office *office, struct admin_check *check)
{
	int days = sweep_days_left(office->sweep);
	const char *stopped = retain_stopped(office->retain);

	check->ok = days >= 1;
	if (days < 0)
		snprintf(check->detail, sizeof(check->detail), "not yet known");
	else
		snprintf(check->detail, sizeof(check->detail), "%d days ahead%s%s", days,
			 stopped ? "; " : "", stopped ? stopped : "");
}

static void check_routes(const struct office *office, struct admin_check *check)
{
	size_t enforced = 0;

	for (size_t i = 0; i < office->settings->n_routes; i++)
		enforced += office->settings->routes[i].idempotency != NULL;
	check->ok = true;
	snprintf(check->detail, sizeof(check->detail), "%zu routes, %zu with idempotency",
		 office->settings->n_routes, enforced);
}

/* Records under a key that is missing here cannot be told from others. */
static void check_keys(const struct office *office, struct admin_check *check)
{
	size_t n = office->settings->digest_keys.n;

	check->ok = true;
	if (n)
		snprintf(check->detail, sizeof(check->detail), "%zu in ledger.digest_keys", n);
	else
		snprintf(check->detail, sizeof(check->detail), "digests need no key");
	for (size_t i = 0; i < office->view.n && check->ok; i++) {
		int missing = worker_ledger(office->view.workers[i]).missing_key;

		check->ok = missing == 0;
		if (missing > 0)
			snprintf(check->detail, sizeof(check->detail),
				 "ledger.digest_keys lacks key %d, under which there are "
				 "records",
				 missing);
		else if (missing)
			snprintf(check->detail, sizeof(check->detail), "not yet known");
	}
}

static void ready(void *arg, struct admin_check checks[ADMIN_CHECKS])
{
	static const char *const names[ADMIN_CHECKS] = { "ledger", "durable", "keys",
							 "days_left", "routes" };
	const struct office *office = arg;

	for (size_t i = 0; i < ADMIN_CHECKS; i++)
		checks[i].name = names[i];
	check_ledger(office, &checks[0], &checks[1]);
	check_keys(office, &checks[2]);
	check_days(office, &checks[3]);
	check_routes(office, &checks[4]);
}

static struct admin_view view_of(struct office *office)
{
	return (struct admin_view){ .settings = office->settings,
				    .ledger = office->people,
				    .draining = atomic_load(&office->draining),
				    .ready = ready,
				    .arg = office };
}

static void head(struct http_request *request, void *arg)
{
	struct office *office = arg;
	struct admin_view view = view_of(office);

	listener_read_body(request, admin_body_max(request, &view, office->tokens));
}

static void body(struct http_request *request, void *arg)
{
	struct office *office = arg;
	struct admin_view view = view_of(office);
	struct http_answer answer = admin_answer(request, &view, office->tokens);

	if (answer.status)
		listener_answer(request, &answer);
}

static void end(struct http_request *request, void *arg)
{
	(void)request;
	(void)arg;
}

static struct listener_limits limits_of(const struct settings *settings)
{
	return (struct listener_limits){ .header_timeout = settings->gateway.header_timeout,
					 .body_timeout = settings->gateway.body_timeout,
					 .idle_timeout = settings->gateway.idle_timeout,
					 .client_stall = settings->gateway.client_stall,
					 .connections = CONNECTIONS };
}

/* False: the old tokens are kept. A setting that is gone takes its tokens with it. */
static bool read_tokens(struct office *office, const struct settings *settings, char why[256])
{
	const char *file = settings->admin.tokens_file;
	struct admin_tokens *tokens = file ? admin_tokens_load(file, why) : NULL;

	if (file && !tokens)
		return false;
	admin_tokens_free(office->tokens);
	office->tokens = tokens;
	return true;
}

static void follow(struct office *office)
{
	const struct settings *settings = atomic_exchange(&office->posted, NULL);
	struct listener_limits limits;
	char why[256];

	if (!settings)
		return;
	if (!read_tokens(office, settings, why))
		log_error("admin", "%s; the tokens stay as they were", why);
	limits = limits_of(settings);
	if (office->listener)
		listener_follow(office->listener, &limits);
	sweep_follow(office->sweep, settings);
	lookup_follow(office->lookup, settings);
	retain_follow(office->retain, settings);
	settings_release(office->settings);
	office->settings = settings;
}

static void turn(struct office *office)
{
	bool again = office->listener && listener_due(office->listener);

	loop_wait(office->loop, again ? 0 : -1);
	follow(office);
	if (office->listener)
		listener_run(office->listener);
	sweep_flush(office->sweep);
	lookup_run(office->lookup);
	retain_flush(office->retain);
	log_flush();
}

static void *run(void *arg)
{
	struct office *office = arg;

	while (!atomic_load(&office->stopping))
		turn(office);
	return NULL;
}

static bool open_listener(struct office *office, char why[256])
{
	struct listener_limits limits = limits_of(office->settings);
	struct listener_start start = { .loop = office->loop,
					.addresses = &office->settings->admin.listen,
					.n_addresses = 1,
					.limits = &limits,
					.handler = &office->handler,
					.metrics = office->apart,
					.alone = true };

	if (office->settings->admin.listen[0] == 0)
		return true;
	office->handler = (struct listener_handler){ .size = sizeof(struct http_request),
						     .head = head,
						     .body = body,
						     .end = end,
						     .arg = office };
	office->listener = listener_new(&start, why);
	return office->listener != NULL;
}

static void office_free(struct office *office)
{
	const struct settings *posted = atomic_exchange(&office->posted, NULL);

	if (office->people)
		admin_ledger_free(office->people);
	if (office->listener)
		listener_free(office->listener);
	if (office->lookup)
		lookup_free(office->lookup);
	if (office->sweep)
		sweep_free(office->sweep);
	if (office->retain)
		retain_free(office->retain);
	if (posted)
		settings_release(posted);
	admin_tokens_free(office->tokens);
	settings_release(office->settings);
	metrics_free(office->metrics);
	metrics_free(office->apart);
	loop_free(office->loop);
	mem_free(office);
}

struct office *office_start(const struct settings *settings, const struct office_view *view,
			    char why[256])
{
	struct office *office = mem_alloc(sizeof(*office));
	int failed = 0;

	settings_hold(settings);
	office->settings = settings;
	office->view = *view;
	office->loop = loop_new();
	office->metrics = metrics_new();
	office->apart = metrics_new_apart();
	if (!read_tokens(office, settings, why) || !open_listener(office, why)) {
		office_free(office);
		return NULL;
	}
	if (office->listener)
		office->people = admin_ledger_new(office->loop, settings);
	office->sweep = sweep_new(office->loop, office->metrics, settings);
	office->lookup = lookup_new(office->loop, office->metrics, settings);
	sweep_spool(office->sweep, view->spool);
	office->retain = retain_new(office->loop, office->metrics, settings, retain_clock_ms);
	failed = pthread_create(&office->thread, NULL, run, office);
	if (failed) {
		snprintf(why, 256, "cannot start the office's thread: %s", strerror(failed));
		office_free(office);
		return NULL;
	}
	pthread_setname_np(office->thread, "office");
	return office;
}

void office_follow(struct office *office, const struct settings *settings)
{
	const struct settings *missed = NULL;

	settings_hold(settings);
	missed = atomic_exchange(&office->posted, settings);
	if (missed)
		settings_release(missed);
	loop_wake(office->loop);
}

void office_draining(struct office *office)
{
	atomic_store(&office->draining, true);
}

void office_stop(struct office *office)
{
	atomic_store(&office->stopping, true);
	loop_wake(office->loop);
	pthread_join(office->thread, NULL);
	office_free(office);
}

const char *office_address(const struct office *office)
{
	return office->listener ? listener_address(office->listener, 0) : NULL;
}
