/*
 * One thread's event loop: sockets by epoll, timers by a heap. The only door to epoll.
 * Times are milliseconds of CLOCK_BOOTTIME, which goes on while the machine sleeps: a lease
 * that ran out during a suspend has run out.
 */
#pragma once
#include "base.h"

struct loop;
struct loop *loop_new(void);
void loop_free(struct loop *loop);

/* Waits for sockets and timers and calls their functions; at most `max_ms`, -1 for no limit. */
void loop_wait(struct loop *loop, int max_ms);
int64_t loop_now(const struct loop *loop);    /* as of the end of the last wait, in ms */
int64_t loop_now_us(const struct loop *loop); /* the same, in microseconds */
/* The clock itself, for what takes its time inside a turn. */
int64_t loop_clock_us(void);

#define LOOP_READ  1U
#define LOOP_WRITE 2U
#define LOOP_CLOSED                                                                            \
	4U /* reported, never asked for: error, hang-up, or the peer's half closed */

/*
 * Embedded in whoever watches. loop_watch registers or changes; fd and `ready` are set by the
 * owner first. `ready` may unwatch, free or re-use any watch, its own and others': events of
 * this wait for a watch that is gone are dropped. `shared` wakes one of several loops (EPOLLEXCLUSIVE);
 * such a watch is never changed.
 */
struct loop_watch {
	int fd;
	void (*ready)(struct loop_watch *watch, unsigned events);
	unsigned events; /* LOOP_READ | LOOP_WRITE; 0: not registered */
	unsigned slot;   /* the loop's */
	bool shared;
};
void loop_watch(struct loop *loop, struct loop_watch *watch, unsigned events);
void loop_unwatch(struct loop *loop, struct loop_watch *watch); /* before close(fd) */
/* Where somebody else has closed it, and its number may be another's by now. */
void loop_unwatch_closed(struct loop *loop, struct loop_watch *watch);

/*
 * Embedded too. A timer is zeroed before its first use (`at` 0 in the heap means: not set).
 * loop_timer sets or moves it. `due` is called once; the timer is no longer set then.
 */
struct loop_timer {
	void (*due)(struct loop_timer *timer);
	int64_t at;    /* ms, the loop's clock */
	unsigned slot; /* the loop's; 0: not set */
};
void loop_timer(struct loop *loop, struct loop_timer *timer, int64_t in_ms);
void loop_timer_stop(struct loop *loop, struct loop_timer *timer); /* harmless where not set */
static inline bool loop_timer_set(const struct loop_timer *timer)
{
	return timer->slot != 0;
}

/* Ends another thread's wait. Async-signal-safe. */
void loop_wake(struct loop *loop);
