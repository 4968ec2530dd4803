/*
 * A serving thread. It owns a loop, a listener, the upstreams' pool and a ledger, and shares
 * nothing with other threads but the settings, which never change. A request stays on the
 * thread that accepted its connection.
 *
 * What a turn's requests ask of the ledger goes out once, at the end of the turn.
 */
#include "worker.h"

#include "access_log.h"
#include "exchange.h"
#include "key_source.h"
#include "listener.h"
#include "log.h"
#include "passthrough.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>

struct worker {
	pthread_t thread;
	unsigned index, workers;
	struct loop *loop;
	struct listener *listener;
	struct services services;
	struct listener_handler handler;
	pthread_mutex_t lock;        /* of `next` */
	const struct settings *next; /* held; a reload that has not taken effect */
	atomic_bool draining, ended;
	atomic_bool spool, spooled; /* as in worker.h */
	bool drained;               /* the listener has been told */
	atomic_size_t under_way;
};

static void head(struct http_request *request, void *arg);
static void body(struct http_request *request, void *arg);
static void end(struct http_request *request, void *arg);
static void moved(struct http_request *request, void *arg);

static struct served *served_of(struct http_request *request)
{
	return container_of(request, struct served, request);
}

static size_t share(int64_t of_all, unsigned workers)
{
	int64_t mine = (of_all + workers - 1) / workers;

	return mine > 0 ? (size_t)mine : 1;
}

static struct listener_limits limits_of(const struct settings *settings, unsigned workers)
{
	return (struct listener_limits){
		.header_timeout = settings->gateway.header_timeout,
		.body_timeout = settings->gateway.body_timeout,
		.idle_timeout = settings->gateway.idle_timeout,
		.client_stall = settings->gateway.client_stall,
		.connections = share(settings->limits.connections, workers),
	};
}

static void set_limits(struct worker *worker, const struct settings *settings)
{
	struct services *services = &worker->services;

	services->settings = settings;
	services->in_flight_max = share(settings->limits.in_flight, worker->workers);
	services->waiters_max = (size_t)settings->limits.waiters / worker->workers;
	services->bytes_max = share(settings->limits.bytes_in_flight, worker->workers);
	if (settings->limits.waiters && !services->waiters_max)
		services->waiters_max = 1;
}

/* Of what a worker may hold, a quarter may wait for a ledger that is away. */
static void limit_ledger(struct worker *worker)
{
	struct services *services = &worker->services;

	ledger_limit(services->ledger, services->in_flight_max / 4, services->bytes_max / 4);
}

/* --- the way of a request --- */

static void refuse(struct served *served, enum problem problem, struct span allow,
		   const char *detail)
{
	passthrough_refuse(served,
			   &(struct problem_about){
				   .problem = problem,
				   .detail = span_of(detail),
				   .allow = allow,
				   .may_have_executed = forward_has_key(&served->request),
			   });
}

static bool has_key_field(const struct http_request *request)
{
	return http_find(&request->fields, SPAN("Idempotency-Key"), NULL) != NULL;
}

/* Is this request held to its key? Safe methods have none, and an optional one may be missing;
 * whether a body holds it is found out when it is there. */
static bool enforced(const struct http_request *request, const struct route *route)
{
	const struct key_settings *key = NULL;

	if (!route->idempotency || http_safe_method(request->method))
		return false;
	key = &route->idempotency->key;
	return key->required || key->sources.body || key_in_fields(&key->sources, request);
}

static void pass(struct served *served, const struct route *route)
{
	const struct http_request *request = &served->request;
	bool safe = http_safe_method(request->method);

	if (has_key_field(request)) {
		metrics_add(served->services->metrics, METRIC_key_ignored_total, 0, 1);
		if (!safe && served->settings->gateway.strict_keys) {
			refuse(served, PROBLEM_KEY_INVALID, SPAN(""),
			       "This route does not enforce Idempotency-Key; a request that "
			       "relies "
			       "on it is not forwarded.");
			return;
		}
	}
	/* a route with idempotency asks who it is for what it would enforce, not for reading */
	passthrough_head(served, safe && route->idempotency ? NULL : route->account);
}

/* Connection takes the fields that it names off the way (RFC 9110 7.6.1): not those that say who
 * asks, which the API behind us may rely on as we do. */
static bool drops_account(const struct served *served)
{
	const struct settings *settings = served->settings;
	const struct http_fields *fields = &served->request.fields;

	if (!http_find(fields, SPAN("Connection"), NULL))
		return false;
	for (size_t i = 0; i < settings->n_accounts; i++)
		if (settings->accounts[i].header &&
		    http_list_has(fields, SPAN("Connection"),
				  span_of(settings->accounts[i].header)))
			return true;
	return false;
}

static void dispatch(struct served *served)
{
	struct http_request *request = &served->request;
	const struct route *route = NULL;
	struct span allow = { NULL, 0 };
	enum route_found found = settings_route(served->settings, request, &route, &allow);

	if (request->loose_path && !(found == ROUTE_FOUND && route->loose_paths)) {
		refuse(served, PROBLEM_REQUEST_MALFORMED, SPAN(""),
		       "The path holds //, a dot segment, or an escaped slash, backslash or "
		       "NUL.");
		return;
	}
	if (found != ROUTE_FOUND) {
		refuse(served,
		       found == ROUTE_NONE ? PROBLEM_ROUTE_NOT_FOUND
					   : PROBLEM_METHOD_NOT_ALLOWED,
		       allow, NULL);
		return;
	}
	if (drops_account(served)) {
		refuse(served, PROBLEM_REQUEST_MALFORMED, SPAN(""),
		       "Connection names a field that says who the request is from.");
		return;
	}
	served->route = route;
	if (!enforced(request, route))
		pass(served, route);
	else if (forward_drops_compared(request, route))
		refuse(served, PROBLEM_REQUEST_MALFORMED, SPAN(""),
		       "Connection names a field by which requests are told apart.");
	else
		exchange_head(served);
}

static void head(struct http_request *request, void *arg)
{
	struct worker *worker = arg;
	struct served *served = served_of(request);

	served->services = &worker->services;
	served->settings = worker->services.settings;
	settings_hold(served->settings);
	dispatch(served);
}

static void body(struct http_request *request, void *arg)
{
	struct served *served = served_of(request);

	(void)arg;
	served->body(served);
}

static void moved(struct http_request *request, void *arg)
{
	(void)arg;
	forward_moved(served_of(request));
}

static void end(struct http_request *request, void *arg)
{
	struct worker *worker = arg;
	struct served *served = served_of(request);
	struct services *services = served->services;
	bool named = served->route && served->route->idempotency;
	unsigned operation = named ? served->route->idempotency->metrics_operation : 0;
	unsigned label = METRICS_PAIR(operation, served->verdict);
	int64_t took_us = loop_now_us(worker->loop) - request->began_us;

	metrics_add(services->metrics, METRIC_requests_total, label, 1);
	metrics_observe(services->metrics, METRIC_request_seconds, label, took_us);
	if (served->settings->log.access && log_enabled(LOG_INFO))
		access_log(served, took_us);
	services->bytes -= served->bytes;
	if (served->end)
		served->end(served);
	settings_release(served->settings);
}

/* --- the turn --- */

static void follow_settings(struct worker *worker)
{
	const struct settings *next = NULL;
	struct listener_limits limits;

	pthread_mutex_lock(&worker->lock);
	next = worker->next;
	worker->next = NULL;
	pthread_mutex_unlock(&worker->lock);
	if (!next)
		return;
	settings_release(worker->services.settings);
	set_limits(worker, next);
	limits = limits_of(next, worker->workers);
	listener_follow(worker->listener, &limits);
	upstreams_follow(worker->services.upstreams, next, worker->workers);
	ledger_follow(worker->services.ledger, next);
	limit_ledger(worker);
}

static void publish(struct worker *worker)
{
	struct services *services = &worker->services;

	metrics_set(services->metrics, METRIC_in_flight, 0, (int64_t)services->in_flight);
	atomic_store_explicit(&worker->under_way,
			      listener_requests(worker->listener) +
				      ledger_busy(services->ledger),
			      memory_order_relaxed);
}

/* The last thing before the process leaves with work under way. */
static void spool_rest(struct worker *worker)
{
	if (!atomic_load(&worker->spool) || atomic_load(&worker->spooled))
		return;
	ledger_spool_rest(worker->services.ledger);
	atomic_store(&worker->spooled, true);
}

static void turn(struct worker *worker)
{
	struct services *services = &worker->services;

	follow_settings(worker); /* between turns */
	loop_wait(worker->loop,
		  listener_due(worker->listener) ? 0 : -1); /* sockets and timers */
	upstreams_run(services->upstreams);                 /* forwards that ended */
	listener_run(worker->listener);                     /* new requests, answers */
	ledger_flush(services->ledger);                     /* one batch at most */
	spool_rest(worker);
	publish(worker);
	log_flush();
}

/* Everything that is under way has its answer, and the ledger has that. */
static bool drained(struct worker *worker)
{
	if (!atomic_load(&worker->draining))
		return false;
	if (!worker->drained) {
		worker->drained = true;
		listener_drain(worker->listener);
	}
	return listener_requests(worker->listener) == 0 &&
	       listener_connections(worker->listener) == 0 &&
	       ledger_busy(worker->services.ledger) == 0 &&
	       upstreams_calls(worker->services.upstreams) == 0;
}

static void *run(void *arg)
{
	struct worker *worker = arg;

	while (!drained(worker))
		turn(worker);
	log_flush();
	atomic_store(&worker->ended, true);
	return NULL;
}

/* --- from other threads --- */

static bool listen_at(struct worker *worker, const struct settings *settings, char why[256])
{
	const struct listener_limits limits = limits_of(settings, worker->workers);
	const struct listener_start start = { .loop = worker->loop,
					      .addresses = settings->gateway.listen.at,
					      .n_addresses = settings->gateway.listen.n,
					      .limits = &limits,
					      .handler = &worker->handler,
					      .metrics = worker->services.metrics };

	worker->handler = (struct listener_handler){ .size = exchange_size > passthrough_size
								     ? exchange_size
								     : passthrough_size,
						     .head = head,
						     .body = body,
						     .end = end,
						     .moved = moved,
						     .arg = worker };
	worker->listener = listener_new(&start, why);
	return worker->listener != NULL;
}

/* Signals are the main thread's. */
static bool start_thread(struct worker *worker)
{
	bool started = false;
	sigset_t all;
	sigset_t before;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	errno = pthread_create(&worker->thread, NULL, run, worker);
	started = errno == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return started;
}

/* No thread runs any more; until now others could ask how it is. */
static void put_away(struct worker *worker)
{
	struct services *services = &worker->services;

	ledger_free(services->ledger);
	listener_free(worker->listener);
	upstreams_free(services->upstreams);
	settings_release(services->settings);
	if (worker->next)
		settings_release(worker->next);
	metrics_free(services->metrics);
	loop_free(worker->loop);
	pthread_mutex_destroy(&worker->lock);
	mem_free(worker);
}

static void start_ledger(struct worker *worker, const struct worker_start *start)
{
	struct services *services = &worker->services;

	services->ledger =
		ledger_new(worker->loop, services->metrics, start->settings, start->index);
	ledger_spool(services->ledger, start->spool);
	limit_ledger(worker);
}

struct worker *worker_start(const struct worker_start *start, char why[256])
{
	struct worker *worker = mem_alloc(sizeof(*worker));
	struct services *services = &worker->services;

	worker->index = start->index;
	worker->workers = start->workers;
	worker->loop = loop_new();
	services->metrics = metrics_new();
	if (!listen_at(worker, start->settings, why)) {
		metrics_free(services->metrics);
		loop_free(worker->loop);
		mem_free(worker);
		return NULL;
	}
	pthread_mutex_init(&worker->lock, NULL);
	settings_hold(start->settings);
	set_limits(worker, start->settings);
	services->upstreams = upstreams_new(worker->loop, services->metrics);
	upstreams_follow(services->upstreams, start->settings, start->workers);
	start_ledger(worker, start);
	if (start_thread(worker))
		return worker;
	snprintf(why, 256, "a thread cannot be started: %s", strerror(errno));
	put_away(worker);
	return NULL;
}

void worker_follow(struct worker *worker, const struct settings *settings)
{
	const struct settings *unseen = NULL;

	settings_hold(settings);
	pthread_mutex_lock(&worker->lock);
	unseen = worker->next;
	worker->next = settings;
	pthread_mutex_unlock(&worker->lock);
	if (unseen)
		settings_release(unseen);
	loop_wake(worker->loop);
}

void worker_drain(struct worker *worker)
{
	atomic_store(&worker->draining, true);
	loop_wake(worker->loop);
}

void worker_spool(struct worker *worker)
{
	atomic_store(&worker->spool, true);
	loop_wake(worker->loop);
}

bool worker_spooled(const struct worker *worker)
{
	return atomic_load(&worker->spooled) || atomic_load(&worker->ended);
}

bool worker_ended(const struct worker *worker)
{
	return atomic_load(&worker->ended);
}

void worker_join(struct worker *worker)
{
	pthread_join(worker->thread, NULL);
	put_away(worker);
}

struct ledger_state worker_ledger(const struct worker *worker)
{
	return ledger_state(worker->services.ledger);
}

size_t worker_under_way(const struct worker *worker)
{
	return atomic_load_explicit(&worker->under_way, memory_order_relaxed);
}

const char *worker_address(const struct worker *worker, size_t i)
{
	return listener_address(worker->listener, i);
}
