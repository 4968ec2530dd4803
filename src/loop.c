/*
 * One thread's event loop; see loop.h. The only file that knows epoll.
 *
 * Watches are found by a slot number with a generation, never by pointer: an event of a watch
 * that was taken out (and perhaps freed) earlier in the same wait finds its slot empty or of a
 * later generation, and is dropped. Timers are a binary heap; a thread has as many as it has
 * requests under way, so a set or a stop is a handful of steps.
 */
#include "loop.h"

#include "log.h"
#include "mem.h"

#include <assert.h>
#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define EVENTS_A_WAIT 256

struct slot {
	struct loop_watch *watch; /* NULL: free */
	uint32_t generation;
	uint32_t next_free;
};

struct loop {
	int epoll;
	struct loop_watch wake;
	int64_t now_us;
	struct slot *slots; /* 0 is not used */
	uint32_t n_slots, free_slot;
	struct loop_timer **heap; /* from 1 on */
	size_t n_timers, room;
};

int64_t loop_clock_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void woken(struct loop_watch *watch, unsigned events)
{
	uint64_t count = 0;

	(void)events;
	(void)!read(watch->fd, &count, sizeof(count));
}

struct loop *loop_new(void)
{
	struct loop *loop = mem_alloc(sizeof(*loop));

	loop->epoll = epoll_create1(EPOLL_CLOEXEC);
	loop->wake.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	assert(loop->epoll >= 0 && loop->wake.fd >= 0);
	loop->n_slots = 1;
	loop->slots = mem_alloc(sizeof(*loop->slots));
	loop->now_us = loop_clock_us();
	loop->wake.ready = woken;
	loop_watch(loop, &loop->wake, LOOP_READ);
	return loop;
}

void loop_free(struct loop *loop)
{
	loop_unwatch(loop, &loop->wake);
	close(loop->wake.fd);
	close(loop->epoll);
	mem_free(loop->slots);
	mem_free(loop->heap);
	mem_free(loop);
}

int64_t loop_now(const struct loop *loop)
{
	return loop->now_us / 1000;
}

int64_t loop_now_us(const struct loop *loop)
{
	return loop->now_us;
}

void loop_wake(struct loop *loop)
{
	const uint64_t one = 1;

	(void)!write(loop->wake.fd, &one, sizeof(one));
}

static uint32_t slot_take(struct loop *loop)
{
	uint32_t slot = loop->free_slot;

	if (slot) {
		loop->free_slot = loop->slots[slot].next_free;
		return slot;
	}
	if ((loop->n_slots & (loop->n_slots - 1)) == 0)
		loop->slots = mem_resize(loop->slots, sizeof(*loop->slots) * loop->n_slots * 2);
	slot = loop->n_slots++;
	loop->slots[slot] = (struct slot){ .generation = 0 };
	return slot;
}

static uint32_t epoll_bits(const struct loop_watch *watch, unsigned events)
{
	uint32_t bits = (events & LOOP_READ ? EPOLLIN | EPOLLRDHUP : 0U) |
			(events & LOOP_WRITE ? (uint32_t)EPOLLOUT : 0U);

	return watch->shared ? (bits & ~(uint32_t)EPOLLRDHUP) | EPOLLEXCLUSIVE : bits;
}

void loop_watch(struct loop *loop, struct loop_watch *watch, unsigned events)
{
	bool fresh = watch->slot == 0;
	struct epoll_event event = { .events = epoll_bits(watch, events) };

	assert(events && watch->fd >= 0);
	if (!fresh && watch->events == events)
		return;
	if (fresh) {
		watch->slot = slot_take(loop);
		loop->slots[watch->slot].watch = watch;
	}
	watch->events = events;
	event.data.u64 = (uint64_t)loop->slots[watch->slot].generation << 32 | watch->slot;
	if (epoll_ctl(loop->epoll, fresh ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, watch->fd, &event) ==
	    0)
		return;
	/* the descriptor was closed and opened again behind our back, or added twice: a bug,
	 * but for ENOSPC and ENOMEM, which no request could survive either */
	log_error("loop", "epoll_ctl of descriptor %d failed: %s", watch->fd, strerror(errno));
	assert(errno == ENOSPC || errno == ENOMEM);
}

void loop_unwatch(struct loop *loop, struct loop_watch *watch)
{
	if (watch->slot == 0)
		return;
	epoll_ctl(loop->epoll, EPOLL_CTL_DEL, watch->fd,
		  NULL); /* a closed one is gone already */
	loop_unwatch_closed(loop, watch);
}

void loop_unwatch_closed(struct loop *loop, struct loop_watch *watch)
{
	struct slot *slot = &loop->slots[watch->slot];

	if (watch->slot == 0)
		return;
	slot->watch = NULL;
	slot->generation++;
	slot->next_free = loop->free_slot;
	loop->free_slot = watch->slot;
	watch->slot = 0;
	watch->events = 0;
}

static void heap_put(struct loop *loop, size_t at, struct loop_timer *timer)
{
	loop->heap[at] = timer;
	timer->slot = (unsigned)at;
}

static void heap_up(struct loop *loop, struct loop_timer *timer)
{
	size_t at = timer->slot;

	while (at > 1 && loop->heap[at / 2]->at > timer->at) {
		heap_put(loop, at, loop->heap[at / 2]);
		at /= 2;
	}
	heap_put(loop, at, timer);
}

static void heap_down(struct loop *loop, struct loop_timer *timer)
{
	size_t at = timer->slot;

	for (;;) {
		size_t child = at * 2;

		if (child < loop->n_timers && loop->heap[child + 1]->at < loop->heap[child]->at)
			child++;
		if (child > loop->n_timers || loop->heap[child]->at >= timer->at)
			break;
		heap_put(loop, at, loop->heap[child]);
		at = child;
	}
	heap_put(loop, at, timer);
}

void loop_timer(struct loop *loop, struct loop_timer *timer, int64_t in_ms)
{
	/* rounded up, so that a timer is never early */
	timer->at = (loop_clock_us() + 999) / 1000 + (in_ms > 0 ? in_ms : 0);
	if (timer->slot == 0) {
		if (loop->n_timers + 1 >= loop->room) {
			loop->room = loop->room ? loop->room * 2 : 64;
			loop->heap = mem_resize(loop->heap,
						loop->room * sizeof(struct loop_timer *));
		}
		heap_put(loop, ++loop->n_timers, timer);
	}
	heap_up(loop, timer);
	heap_down(loop, timer);
}

void loop_timer_stop(struct loop *loop, struct loop_timer *timer)
{
	size_t at = timer->slot;
	struct loop_timer *last = NULL;

	if (at == 0)
		return;
	last = loop->heap[loop->n_timers--];
	timer->slot = 0;
	if (last == timer)
		return;
	heap_put(loop, at, last);
	heap_up(loop, last);
	heap_down(loop, last);
}

static int wait_ms(const struct loop *loop, int max_ms)
{
	int64_t until = 0;

	if (loop->n_timers == 0)
		return max_ms;
	until = loop->heap[1]->at - loop_clock_us() / 1000;
	if (until < 0)
		until = 0;
	return max_ms >= 0 && until > max_ms ? max_ms : (int)(until > 60000 ? 60000 : until);
}

static unsigned loop_bits(uint32_t bits)
{
	return (bits & EPOLLIN ? LOOP_READ : 0) | (bits & EPOLLOUT ? LOOP_WRITE : 0) |
	       (bits & (EPOLLERR | EPOLLHUP | EPOLLRDHUP) ? LOOP_CLOSED : 0);
}

static void dispatch(struct loop *loop, const struct epoll_event *event)
{
	uint32_t slot = (uint32_t)event->data.u64;
	uint32_t generation = (uint32_t)(event->data.u64 >> 32);
	struct loop_watch *watch = loop->slots[slot].watch;

	if (watch && loop->slots[slot].generation == generation)
		watch->ready(watch, loop_bits(event->events));
}

/* Only what was due when the wait ended: a timer that sets itself again waits its turn. */
static void run_timers(struct loop *loop)
{
	int64_t now = loop->now_us / 1000;

	while (loop->n_timers && loop->heap[1]->at <= now) {
		struct loop_timer *timer = loop->heap[1];

		loop_timer_stop(loop, timer);
		timer->due(timer);
	}
}

void loop_wait(struct loop *loop, int max_ms)
{
	struct epoll_event events[EVENTS_A_WAIT];
	int n = epoll_wait(loop->epoll, events, EVENTS_A_WAIT, wait_ms(loop, max_ms));

	assert(n >= 0 || errno == EINTR);
	loop->now_us = loop_clock_us();
	for (int i = 0; i < n; i++)
		dispatch(loop, &events[i]);
	run_timers(loop);
}
