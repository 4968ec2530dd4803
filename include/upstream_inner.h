/* What upstream.c and upstream_read.c share; nobody else includes it. */
#pragma once
#include "upstream_pool.h"

static inline struct upstreams *upstream_owner(const struct upstream_call *call)
{
	return call->pool->of;
}

/* upstream.c */
/* The call is over; `done` comes with the next upstreams_run. */
void upstream_over(struct upstream_call *call, enum upstream_end how, const char *cause);
/* Parts the call from its link, which is kept where it can serve another one. */
struct upstream_call *upstream_part(struct upstream_link *link, bool keep);

/* upstream_read.c */
void upstream_listen(struct upstream_link *link); /* before the first byte */
/* Reads what there is of the answer. False where the call has ended, and the link is gone. */
bool upstream_pull(struct upstream_link *link);
/* Sets the call's timer by what it waits for. */
void upstream_arm(struct upstream_link *link);
/* The timer is due. */
void upstream_overdue(struct upstream_link *link);
