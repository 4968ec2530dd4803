/* A walk over all paths of whatever asks decide(): depth first, each path once. */
#pragma once
#include <assert.h>
#include <stdbool.h>

/* A decision is a digit, and the walk counts through all numbers. */
#define DEPTH 32
static struct {
	unsigned digit[DEPTH], base[DEPTH], depth;
} path;

static unsigned decide(unsigned base)
{
	assert(path.depth < DEPTH);
	if (path.base[path.depth] != base) { /* first time here */
		path.base[path.depth] = base;
		path.digit[path.depth] = 0;
	}
	return path.digit[path.depth++];
}

static bool next_path(void)
{
	while (path.depth > 0) {
		unsigned last = --path.depth;

		for (unsigned i = last + 1; i < DEPTH; i++)
			path.base[i] = 0;
		if (++path.digit[last] < path.base[last]) {
			path.depth = 0;
			return true;
		}
		path.base[last] = 0;
	}
	return false;
}
