/* The process that serves: settings, threads, signals. */
#pragma once
#include "base.h"

/* Serves until it is told to end. The exit code: 0 drained, 1 it could not start, or had to leave
 * something behind. */
int gateway_run(const char *file) MUST_CHECK;
