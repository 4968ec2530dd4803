/*
 * How long turns of a loop went on, for tests: a machine that stands still in between is no long
 * turn. What must not take longer than so and so is measured by this, what must take as long by the
 * clock.
 */
#pragma once
#include "loop.h"

static int64_t turned_us;

/* Behind a turn that began then: it took that long, but no longer than one that is not held up. */
static inline void turned(int64_t began_us, int64_t at_most_us)
{
	int64_t took_us = loop_clock_us() - began_us;

	turned_us += took_us < at_most_us ? took_us : at_most_us;
}

/* Of a loop that does everything by itself. */
static inline void turn_loop(struct loop *loop)
{
	int64_t began = loop_clock_us();

	loop_wait(loop, 20);
	turned(began, 40000);
}

static inline void turn_loop_for(struct loop *loop, int64_t ms)
{
	int64_t until = turned_us + ms * 1000;

	while (turned_us < until)
		turn_loop(loop);
}
