/* What the gateway answers by itself: the problem documents of problems.def (RFC 9457, CONTRACT 10). */
#pragma once
#include "http.h"

enum problem {
	PROBLEM_NONE,
#define PROBLEM(name, code, status, retry, title) PROBLEM_##name,
#include "problems.def"
#undef PROBLEM
	PROBLEM_COUNT
};

/* The one word that says how a request ended: Idempotency-Verdict, metrics and log have it. */
enum verdict {
	VERDICT_PASSED,    /* not enforced here */
	VERDICT_FORWARDED, /* won, forwarded, the upstream's answer given */
	VERDICT_REPLAYED,  /* the stored answer given */
	VERDICT_PROBLEM    /* + enum problem: see verdict_of */
};
#define VERDICT_COUNT (VERDICT_PROBLEM + PROBLEM_COUNT)
static inline unsigned verdict_of(enum problem problem)
{
	return (unsigned)VERDICT_PROBLEM + (unsigned)problem;
}
const char *
verdict_name(unsigned verdict); /* "passed", "forwarded", "replayed" or the problem's code */

struct problem_about {
	enum problem problem;
	unsigned status;        /* 0: the problem's own */
	struct span detail;     /* a sentence; empty: the title says it */
	struct span request_id; /* the logical request id; empty: none */
	struct span owner;      /* whom to call; empty: none */
	bool may_have_executed; /* of the key: CONTRACT 10 */
	unsigned retry_after;   /* seconds; 0: no field */
	struct span allow;      /* for method_not_allowed */
	/* further members, text; each name has a value */
	struct problem_extra {
		const char *name;
		struct span text;
		int64_t number; /* where text.at is NULL */
	} extra[6];
	size_t n_extra;
};
struct http_answer problem_answer(struct arena *arena, const struct problem_about *about);

const char *problem_code(enum problem problem);
unsigned problem_status(enum problem problem);
