/*
 * Pools of connections; see upstream_pool.h.
 *
 * A pool is found by what the upstream is (name, servers, CA), so connections survive a reload
 * that does not concern them, and no link points into settings. Idle links stay watched for
 * reading: whatever is heard from one is its end, or a TLS ticket. They are taken latest first, so
 * that the others grow old and are closed.
 */
#include "upstream_pool.h"

#include <assert.h>

#define PASSED_OVER_MS 10000 /* a server that could not be reached, while there is another */
#define SWEEP_MS       1000

static void count(struct upstreams *upstreams, struct upstream_pool *pool, int change)
{
	pool->links += (size_t)change;
	upstreams->links += (size_t)change;
	metrics_set(upstreams->metrics, METRIC_upstream_connections, 0,
		    (int64_t)upstreams->links);
}

void link_drop(struct upstream_link *link)
{
	struct upstream_pool *pool = link->place->pool;

	list_remove(&link->link);
	wire_close(&link->wire);
	buf_fini(&link->head);
	count(pool->of, pool, -1);
	mem_free(link);
}

void link_park(struct upstream_link *link, int64_t keepalive_ms)
{
	struct upstreams *upstreams = link->place->pool->of;

	if (link->place->pool->stale || keepalive_ms <= 0) {
		link_drop(link);
		return;
	}
	link->call = NULL;
	link->pooled = true;
	link->idle_until_ms = loop_now(upstreams->loop) + keepalive_ms;
	list_append(&link->place->idle, &link->link);
	if (!loop_timer_set(&upstreams->sweep))
		loop_timer(upstreams->loop, &upstreams->sweep, SWEEP_MS);
}

static struct upstream_link *oldest(const struct upstream_place *place)
{
	return list_empty(&place->idle)
		       ? NULL
		       : container_of(place->idle.next, struct upstream_link, link);
}

struct upstream_link *place_take(struct upstream_place *place)
{
	while (!list_empty(&place->idle)) {
		struct upstream_link *link =
			container_of(place->idle.prev, struct upstream_link, link);

		list_remove(&link->link);
		if (loop_now(place->pool->of->loop) < link->idle_until_ms &&
		    wire_quiet(&link->wire))
			return link;
		link_drop(link);
	}
	return NULL;
}

bool pool_room(struct upstream_pool *pool)
{
	struct upstream_link *out = NULL;

	if (pool->links < pool->max)
		return true;
	for (size_t i = 0; i < pool->n_places; i++) {
		struct upstream_link *link = oldest(&pool->places[i]);

		if (link && (!out || link->idle_until_ms < out->idle_until_ms))
			out = link;
	}
	if (out)
		link_drop(out);
	return pool->links < pool->max;
}

struct upstream_link *place_open(struct upstream_place *place, struct upstream_call *call)
{
	struct upstreams *upstreams = place->pool->of;
	struct upstream_link *link = mem_alloc(sizeof(*link));
	struct wire_target to = {
		.url = place->url,
		.ca_file = place->pool->ca_file,
		.tls = place->tls,
		.connect_timeout_ms = call->upstream->connect_timeout,
	};

	list_init(&link->link);
	buf_init(&link->head, (size_t)4 * HTTP_HEAD_MAX);
	link->place = place;
	link->call = call;
	link->wire.opened = upstreams->opened;
	link->wire.watch.ready = upstreams->ready;
	count(upstreams, place->pool, 1);
	wire_open(upstreams->wires, &link->wire, &to);
	return link;
}

/* More than 64 servers share bits: of those that do, a call tries only one. */
uint64_t pool_bit(size_t server)
{
	return (uint64_t)1 << server % 64;
}

void place_failed(struct upstream_place *place)
{
	place->failed_until_ms = loop_now(place->pool->of->loop) + PASSED_OVER_MS;
}

bool pool_next(struct upstream_pool *pool, uint64_t tried, size_t *server)
{
	int64_t now = loop_now(pool->of->loop);
	size_t start = *server;
	bool found = false;

	for (size_t i = 0; i < pool->n_places; i++) {
		size_t at = (start + i) % pool->n_places;

		if (tried & pool_bit(at))
			continue;
		if (!found)
			*server = at;
		found = true;
		if (pool->places[at].failed_until_ms <= now) {
			*server = at;
			break;
		}
	}
	return found;
}

size_t pool_begin(struct upstream_pool *pool)
{
	size_t server = pool->next;
	bool any = pool_next(pool, 0, &server);

	assert(any);
	pool->next = (server + 1) % pool->n_places;
	return server;
}

static bool same_text(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same(const struct upstream_pool *pool, const struct upstream_settings *settings)
{
	if (pool->n_places != settings->n_servers || !same_text(pool->name, settings->name) ||
	    !same_text(pool->ca_file, settings->tls.ca_file))
		return false;
	for (size_t i = 0; i < pool->n_places; i++)
		if (strcmp(pool->places[i].url, settings->server[i].url) != 0)
			return false;
	return true;
}

static size_t share_of(const struct upstreams *upstreams,
		       const struct upstream_settings *settings)
{
	size_t share = (size_t)settings->max_connections / upstreams->threads;

	return share ? share : 1;
}

static struct upstream_pool *pool_new(struct upstreams *upstreams,
				      const struct upstream_settings *settings)
{
	size_t n = settings->n_servers;
	struct upstream_pool *pool = mem_alloc(sizeof(*pool) + n * sizeof(pool->places[0]));

	assert(n > 0);
	pool->of = upstreams;
	pool->name = mem_text(span_of(settings->name));
	pool->ca_file = settings->tls.ca_file ? mem_text(span_of(settings->tls.ca_file)) : NULL;
	pool->max = share_of(upstreams, settings);
	pool->stale = upstreams->followed;
	list_init(&pool->waiting);
	pool->n_places = n;
	for (size_t i = 0; i < n; i++) {
		pool->places[i].pool = pool;
		pool->places[i].url = mem_text(span_of(settings->server[i].url));
		pool->places[i].tls = settings->server[i].tls;
		list_init(&pool->places[i].idle);
	}
	list_append(&upstreams->pools, &pool->link);
	if (pool->stale)
		loop_timer(upstreams->loop, &upstreams->sweep, SWEEP_MS);
	return pool;
}

static void pool_free(struct upstream_pool *pool)
{
	assert(pool->links == 0 && list_empty(&pool->waiting));
	list_remove(&pool->link);
	for (size_t i = 0; i < pool->n_places; i++)
		mem_free(pool->places[i].url);
	mem_free(pool->name);
	mem_free(pool->ca_file);
	mem_free(pool);
}

static struct upstream_pool *find(struct upstreams *upstreams,
				  const struct upstream_settings *settings)
{
	for (struct list *l = upstreams->pools.next; l != &upstreams->pools; l = l->next) {
		struct upstream_pool *pool = container_of(l, struct upstream_pool, link);

		if (same(pool, settings))
			return pool;
	}
	return NULL;
}

struct upstream_pool *pool_of(struct upstreams *upstreams,
			      const struct upstream_settings *settings)
{
	struct upstream_pool *pool = NULL;

	for (struct list *l = upstreams->pools.next; l != &upstreams->pools; l = l->next) {
		pool = container_of(l, struct upstream_pool, link);
		if (pool->settings == settings)
			return pool;
	}
	pool = find(upstreams, settings); /* of an exchange that began before a reload */
	return pool ? pool : pool_new(upstreams, settings);
}

static void drop_idle(struct upstream_pool *pool, int64_t until_ms)
{
	for (size_t i = 0; i < pool->n_places; i++) {
		struct upstream_link *link = NULL;

		while ((link = oldest(&pool->places[i])) && link->idle_until_ms <= until_ms)
			link_drop(link);
	}
}

void pools_each(struct upstreams *upstreams, void (*fn)(struct upstream_pool *pool))
{
	struct list *next = NULL;

	for (struct list *l = upstreams->pools.next; l != &upstreams->pools; l = next) {
		next = l->next;
		fn(container_of(l, struct upstream_pool, link));
	}
}

static void forget(struct upstream_pool *pool)
{
	pool->settings = NULL;
	pool->stale = true;
}

/* Closes what was idle for too long, and in a stale pool whatever is idle. A stale pool that
 * nobody uses goes. */
static void sweep_pool(struct upstream_pool *pool)
{
	struct upstreams *upstreams = pool->of;
	bool again = pool->stale;

	drop_idle(pool, pool->stale ? INT64_MAX : loop_now(upstreams->loop));
	for (size_t i = 0; i < pool->n_places; i++)
		again = again || !list_empty(&pool->places[i].idle);
	if (pool->stale && pool->calls == 0 && pool->links == 0)
		pool_free(pool);
	else if (again)
		loop_timer(upstreams->loop, &upstreams->sweep, SWEEP_MS);
}

void pools_follow(struct upstreams *upstreams, const struct settings *settings)
{
	pools_each(upstreams, forget);
	for (size_t i = 0; i < settings->n_upstreams; i++) {
		struct upstream_pool *pool = find(upstreams, &settings->upstreams[i]);

		if (!pool)
			pool = pool_new(upstreams, &settings->upstreams[i]);
		pool->settings = &settings->upstreams[i];
		pool->stale = false;
		pool->max = share_of(upstreams, &settings->upstreams[i]);
	}
	upstreams->followed = true;
	pools_each(upstreams, sweep_pool);
}

static void sweep_due(struct loop_timer *timer)
{
	pools_each(container_of(timer, struct upstreams, sweep), sweep_pool);
}

void pools_init(struct upstreams *upstreams)
{
	list_init(&upstreams->pools);
	upstreams->threads = 1;
	upstreams->sweep.due = sweep_due;
}

void pools_fini(struct upstreams *upstreams)
{
	pools_each(upstreams, forget);
	pools_each(upstreams, sweep_pool);
	assert(list_empty(&upstreams->pools));
	loop_timer_stop(upstreams->loop, &upstreams->sweep);
}
