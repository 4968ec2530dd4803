/* The line that a request leaves in the log when it has ended. */
#pragma once
#include "forward.h"

void access_line(const struct served *served, int64_t took_us);
