/* The line of the log that each request leaves behind. */
#pragma once
#include "forward.h"

/* `took_us`: from its head on. */
void access_log(const struct served *served, int64_t took_us);
