/* What exchange.c and its parts share; nobody else includes it. */
#pragma once
#include "exchange.h"

struct exchange {
	struct served served; /* first */
	const struct idempotency_settings *idempotency;
	struct ledger_entry entry;
	struct upstream_call call;
	struct http_answer answer; /* what the client gets once the settle is through */
	enum problem problem;      /* the same, where the gateway makes the answer */
	unsigned status;           /* of that problem; 0: its own */
	const char *judged;        /* why an answer means what it does, but for its status */
	bool has_key;              /* a valid key was sent, or may stand in a body */
	bool held;                 /* the ledger may still work on the entry */
	bool recovering; /* what its recovery allows was tried, or it has waited: no more of it */
	bool unrecorded;  /* the answer goes out though the ledger does not have it */
	int64_t again_ms; /* a resend may be allowed then; 0: nobody can say */
};

/* exchange.c: what the ledger found decides. */
void exchange_rule(struct exchange *x);
void exchange_refuse(struct exchange *x, enum problem problem, const char *detail);
/* Where the route and the limit allow it: from now on it waits, until `done` (which ends it). */
bool exchange_begin_wait(struct exchange *x,
			 void (*done)(struct ledger_entry *entry)) MUST_CHECK;
void exchange_end_wait(struct exchange *x);
void exchange_replayed(struct exchange *x); /* the stored answer goes out */
void exchange_answer(struct exchange *x, unsigned verdict, struct http_answer *with);
/* exchange_settle.c: the forward has ended. Settles, then answers. */
void exchange_forwarded(struct upstream_call *call);
/* exchange_recover.c: an unknown result, met by a new request. */
void exchange_recover(struct exchange *x);

/* Adds what every answer of an enforced request carries; its fields have room. */
void exchange_mark(const struct exchange *x, struct http_answer *answer);
/* exchange.c: what the end of the call, as far as it is known, makes of the record */
enum ledger_outcome exchange_judge(struct exchange *x);
/* Before the forward: an answer that is too large to be stored may be streamed. */
void exchange_stream(struct exchange *x);
/* The answers that the gateway makes or gives again. */
struct http_answer exchange_replay(struct exchange *x);
struct http_answer exchange_refusal(struct exchange *x, enum problem problem,
				    const char *detail);
