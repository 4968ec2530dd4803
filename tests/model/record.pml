/*
 * One key of the ledger: two gateways that may each crash once, clients that retry at either of them
 * whenever they like, an upstream, somebody who resolves what is unknown, and PostgreSQL, whose
 * replies to commits may be lost. What is atomic here is one transaction, or one look at a snapshot;
 * all else interleaves. tests/model/run has spin walk through every state. Its -D choose:
 *
 *   (none)      recovery.contract = hold
 *   RESEND      recovery.contract = resend: the upstream knows a request by the forwarded key
 *   the others  one rule broken on purpose (tests/model/run says which): spin must see the harm
 *
 * Promised, and asserted where it would break: never two effects; an attempt is sent at most once; a
 * released record had no effect and gets none; an answer is stored before it is given; who asks after
 * that gets it, and no other. And `way_out`: no key is stuck for ever.
 *
 * Left out: retention, the spool, at_least_once (which may execute twice), and several resolvers
 * at once (they contend as one does with a late answer).
 *
 * Taken for granted: a gateway sends in the step in which it looks at the lease (the margin in the
 * lease stands for that); what the resolver says of the upstream was true when it looked; a row that
 * one wrote is known again by its writer.
 */
#ifndef RECORDS
#define RECORDS 2 /* op_ids that are ever made: each release makes room for another; 1 or 2 */
#endif
#ifndef LOSSES
#define LOSSES 1 /* commits whose replies are lost */
#endif
#ifdef RESEND
#define ATTEMPTS 2
#define EACH_ATTEMPT(X) X(1, 1) X(1, 2) X(RECORDS, 1) X(RECORDS, 2)
#else
#define ATTEMPTS 1
#define EACH_ATTEMPT(X) X(1, 1) X(RECORDS, 1)
#endif
#define AT(r, g)    ((r) * (ATTEMPTS + 1) + (g)) /* an attempt: generation g of record r */
#define PLACES	    ((RECORDS + 1) * (ATTEMPTS + 1))
#define FOUND_OUT   99 /* the resolver's answer */
#ifndef ONLY_EFFECTS
#define ONLY_EFFECTS 0 /* 1: of a release that comes too early, show the second effect */
#endif

mtype = { nothing, claim, completed, unknown, released };
mtype = { unsent, sent, executed, refused };

byte key;			   /* the record that the key's row names; 0: there is no such row */
byte made;			   /* op_ids so far */
byte slot[RECORDS + 1];		   /* the highest that is taken; the first insert into the next wins */
mtype kind[RECORDS + 1] = nothing; /* and what stands there */
byte gen[RECORDS + 1];
byte answer[RECORDS + 1];
bool lease[PLACES];		   /* the attempt may still run */
byte forgotten;			   /* a reservation that nobody waits for, and a backend may yet insert */
byte losses;
mtype attempt[PLACES] = unsent;	   /* what the upstream has of it */
byte effects;
byte given;			   /* the stored answer that some client was given */
bool crashed[2];

#define OVER(r)	   ((kind[r] == nothing || kind[r] == claim) && !lease[AT(r, gen[r])])
#define UNKNOWN(r) (gen[r] != 0 && (kind[r] == unknown || OVER(r)))

/* The only insert; `won`: the slot was free. A release deletes the key's row with it. */
inline insert(rec, at, what, which, ans)
{
	won = (slot[rec] == at - 1);
#ifdef SETTLE_UPDATES
	won = won || (what == completed && ans != FOUND_OUT);
#endif
	if
	:: won ->
		slot[rec] = at; kind[rec] = what; gen[rec] = which;
		answer[rec] = (what == completed -> ans : 0);
		if
		:: what == released -> had_no_effect(rec); key = (key == rec -> 0 : key)
		:: else
		fi
	:: else
	fi
}

/* After a look at slot `at`. A lease that ran out without an event takes slot 1 as unknown. */
inline insert_after(rec, at, what, which, ans)
{
	won = false;
	if
	:: slot[rec] == at ->
		slot[rec] = (at == 0 -> 1 : at);
		at = slot[rec] + 1;
		insert(rec, at, what, which, ans)
	:: else
	fi
}

inline had_no_effect(rec)
{
	assert(ONLY_EFFECTS || (attempt[AT(rec, 1)] != executed && attempt[AT(rec, ATTEMPTS)] != executed))
}

/* A commit is done and told, or not told; then it may be done or not. */
inline commit()
{
	if
	:: told = true; done = true
	:: losses < LOSSES -> losses++; told = false; done = true
	:: losses < LOSSES -> losses++; told = false; done = false
	fi
}

/* 0: any answer that is not a stored one. */
inline reply(ans)
{
	assert(ans == 0 || (kind[r] == completed && answer[r] == ans));
	assert(ans == 0 || given == 0 || given == ans);
	assert(owed == 0 || owed == ans);
	given = (ans != 0 -> ans : given)
}

inline forget()
{
	r = 0; g = 0; s = 0; owed = 0; k = 0; told = false; done = false; won = false
}
#define OR_CRASH :: !crashed[me] -> crashed[me] = true; forget(); goto idle

proctype gateway(byte me)
{
	byte r, g, s, owed;
	bool told, done, won;
	mtype k;

idle:	/* RESERVE. Inserting the key decides; "won" means that this op_id stands there. */
	atomic {
		owed = given;
		if
		:: key == 0 && made < RECORDS ->
			made++; r = made; g = 1;
			lease[AT(r, 1)] = true; /* counted from here, however often it is sent */
			commit();
			if
			:: done -> key = r; gen[r] = 1
			:: !done
			:: !done && forgotten == 0 -> forgotten = r
			fi;
			if
			:: told -> goto forward
			:: else
			fi
		:: else -> r = key; goto verdict
		fi
	}
#ifdef LOST_IS_WON
	goto forward;
#endif
	/* The reply was lost: look for one's op_id; the same once more, or withdraw it. */
	atomic {
		if
		:: key == r
		:: key == 0 -> key = r; gen[r] = 1
		:: key == 0 -> k = released; goto settle
		:: key != 0 && key != r -> r = key; goto verdict
		OR_CRASH
		fi
	}

forward: /* FORWARD, once, and only while the lease has room. */
	atomic {
		if
#ifdef SEND_LATE
		:: true ->
#else
		:: lease[AT(r, g)] ->
#endif
			assert(attempt[AT(r, g)] == unsent);
			attempt[AT(r, g)] = sent
		:: k = (g == 1 -> released : unknown); goto settle /* no room, or provably not reached */
		OR_CRASH
		fi
	}
	atomic {
		if
		:: attempt[AT(r, g)] == executed -> k = completed
#ifdef LATER_RELEASES
		:: attempt[AT(r, g)] == refused -> k = released
#else
		:: attempt[AT(r, g)] == refused -> k = (g == 1 -> released : unknown)
#endif
		:: k = unknown /* too late, cut off, or a status that tells nothing */
		OR_CRASH
		fi;
#ifdef ANSWER_FIRST
		given = (k == completed -> AT(r, g) : given)
#endif
	}

settle:	/* SETTLE: slot 1, or the one after one's own claim. */
	atomic {
		commit();
		won = false;
		s = s + 1;
		if
		:: done -> insert(r, s, k, g, AT(r, g))
		:: !done
		OR_CRASH
		fi;
		lease[AT(r, g)] = lease[AT(r, g)] && !won; /* nobody looks at it any more */
		if
		:: told && won -> goto answer_own
		:: else
		fi
	}
	atomic { /* The slot is lost, or the reply: what stands there? */
		if
		:: won
		:: !won && (kind[r] == nothing || (kind[r] == claim && gen[r] == g) ||
			    (UNKNOWN(r) && k == completed)) -> s = slot[r]; goto settle
		:: else -> goto verdict /* one's own answer is evidence, no more */
		OR_CRASH
		fi
	}
answer_own:
	atomic {
		if
		:: k == completed -> reply(AT(r, g))
		:: k != completed -> reply(0)
		OR_CRASH
		fi;
		forget();
		goto idle
	}

verdict: /* What stands there decides; it is read in another snapshot than the key. */
	atomic {
		if
		:: kind[r] == completed -> reply(answer[r])
		:: kind[r] == released -> key = (key == r -> 0 : key); reply(0)
#ifdef RESEND
		:: UNKNOWN(r) && gen[r] < ATTEMPTS -> g = gen[r] + 1; s = slot[r]; goto resend
		:: kind[r] != completed && kind[r] != released && !(UNKNOWN(r) && gen[r] < ATTEMPTS) -> reply(0)
#else
		:: kind[r] != completed && kind[r] != released -> reply(0)
#endif
		OR_CRASH
		fi;
		forget();
		goto idle
	}
#ifdef RESEND
resend:	/* A claim of generation g + 1 and the end of g want one slot. */
	atomic {
		commit();
		won = false;
		if
		:: done -> insert_after(r, s, claim, g, 0)
		:: !done
		OR_CRASH
		fi;
		lease[AT(r, g)] = lease[AT(r, g)] || won;
		if
		:: told && won -> goto forward
		:: told && !won -> goto verdict
		:: else
		fi
	}
	atomic {
		if
		:: won -> goto forward
		:: !won -> goto verdict
		OR_CRASH
		fi
	}
#endif
}

#if defined(RESEND) && !defined(FRESH_KEY)
#define SEEN (effects > 0) /* by the forwarded key, whatever attempt sends it */
#else
#define SEEN false
#endif
#define TAKES(r, g) \
	:: atomic { \
		attempt[AT(r, g)] == sent; \
		if \
		:: attempt[AT(r, g)] = refused \
		:: attempt[AT(r, g)] = executed; \
			assert(ONLY_EFFECTS || kind[r] != released); \
			effects = (SEEN -> effects : effects + 1); \
			assert(effects <= 1) \
		fi \
	}

proctype upstream()
{
	do
	EACH_ATTEMPT(TAKES)
	od
}

#ifdef LEASE_RELEASES
#define THEN(r) \
	if \
	:: kind[r] == nothing -> slot[r] = 1; kind[r] = released; key = (key == r -> 0 : key) \
	:: else \
	fi
#else
#define THEN(r) skip
#endif
#define ENDS(r, g) :: atomic { lease[AT(r, g)] -> lease[AT(r, g)] = false; THEN(r) }

proctype postgresql()
{
	do
	EACH_ATTEMPT(ENDS)
	:: atomic {
		forgotten != 0;
		if
		:: key == 0 -> key = forgotten; gen[key] = 1
		:: else
		fi;
		forgotten = 0
	   }
	od
}

/* An operator, a provider's report, or a lookup: they look, and then they write. */
#ifdef RESOLVE_EARLY
#define OPEN(r) (gen[r] != 0 && (UNKNOWN(r) || kind[r] == nothing))
#else
#define OPEN(r) UNKNOWN(r)
#endif
#define HAS_IT(r, g) (attempt[AT(r, g)] == sent || attempt[AT(r, g)] == executed)
#define LOOKS(n) \
	:: atomic { \
		OPEN(n) -> r = n; s = slot[r]; g = gen[r]; \
		k = (HAS_IT(n, 1) || HAS_IT(n, ATTEMPTS) -> completed : released) \
	}

proctype resolver()
{
	byte r, s, g;
	bool won;
	mtype k;
#ifndef NO_RESOLVER
	do
	:: if
	   LOOKS(1)
	   LOOKS(RECORDS)
	   fi;
	   atomic {
		insert_after(r, s, k, g, FOUND_OUT);
		r = 0; s = 0; g = 0; k = 0; won = false
	   }
	od
#endif
}

init
{
	atomic {
		run gateway(0); run gateway(1); run upstream(); run postgresql(); run resolver()
	}
}

ltl way_out { []<>(key == 0 || kind[key] == completed) }
