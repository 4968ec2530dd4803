/*
 * What the recovery contract of a route allows for a record whose result is not known (CONTRACT 7).
 * A pure decision: it knows no socket and no clock.
 */
#pragma once
#include "settings.h"

enum recovery {
	RECOVER_HELD,       /* nothing is sent; somebody else has to settle it */
	RECOVER_RESEND,     /* the same request once more, as the next generation */
	RECOVER_LOOK_UP,    /* the upstream is asked by reference */
	RECOVER_BEGIN_AGAIN /* the record ends, and the key is reserved anew */
};

/* A record of unknown result, and the request that has met it. */
struct recovery_case {
	unsigned generation; /* of its last attempt */
	int64_t age_ms;      /* since the first attempt began */
	int64_t tried_ms;    /* since the last resend began; -1: there was none */
	bool same_raw;       /* the request is the record's, byte for byte */
	bool stale; /* the first attempt's lease ran out, and no end of it is written */
};

struct recovery_ruling {
	enum recovery what;
	int64_t again_ms; /* where HELD: a resend may be allowed then; 0: not by itself */
};

struct recovery_ruling recovery_of(const struct recovery_settings *settings,
				   const struct recovery_case *record);
