/*
 * lookup_path (CONTRACT 7): the target of a lookup, made of the route's template and what a
 * record is known by. Pure.
 */
#pragma once
#include "mem.h"

/* What {key}, {account}, {logical_request_id} and {attempt_id} stand for. */
struct lookup_names {
	struct span key, account, request_id;
	unsigned generation; /* the attempt is REQUEST_ID.GENERATION */
};

/*
 * Each value is percent-encoded whatever its bytes are, so that it stays one segment, or one
 * value of a query. False where the target could not be asked for: a value that makes a segment
 * of dots, which would lead to another place; a target that is too long.
 */
bool lookup_path(struct arena *arena, struct span path, const struct lookup_names *names,
		 struct span *target) MUST_CHECK;
