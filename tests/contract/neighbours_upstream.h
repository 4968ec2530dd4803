/* The way out, as far as exchange.c knows it: the upstream, and what travels to it and back. A part of
 * neighbours.h, which holds what happened on the path. */
#pragma once

static void call_done(void *arg)
{
	struct upstream_call *call = arg;

	call->done(call);
}

static void answer_heads(struct upstream_call *call)
{
	static const unsigned statuses[] = {
		[OUTCOME_UNKNOWN] = 500, [OUTCOME_STORE] = 201, [OUTCOME_RELEASE] = 400
	};

	now.listed = (enum outcome)decide(3);
	call->close_delimited = now.close_delimited = decide(2);
	call->length = call->close_delimited || decide(2) ? UINT64_MAX : 12;
	call->answer.status = statuses[now.listed];
}

/* More than may be held: it goes on in pieces, or is dropped. */
static void answer_passes(struct upstream_call *call)
{
	bool may = !now.seen_whole && !now.resend && (now.minor == 1 || call->length == 12);

	call->streamed = call->head && call->head(call);
	assert(call->streamed == may);
	now.size = may ? STREAMED : DROPPED;
	if (!may)
		return;
	call->data(call, SPAN("a large"));
	call->data(call, SPAN(" body"));
}

static void answer_comes(struct upstream_call *call)
{
	bool cap = call->answer_max == 4;

	answer_heads(call);
	now.size = decide(2) ? SMALL : !cap && decide(2) ? BIG : DROPPED;
	if (now.size == DROPPED)
		answer_passes(call);
	call->dropped = now.size == DROPPED;
	now.reduced = due() == LEDGER_COMPLETE && now.size < DROPPED && decide(2);
	if (now.size == SMALL)
		call->answer.body = SPAN("body");
	if (now.size == BIG)
		call->answer.body = SPAN("a large body");
}

void upstream_send(struct upstreams *upstreams, struct upstream_call *call)
{
	(void)upstreams;
	note('F');
	/* Begun by then, it ends within its lease, and a resend is known again. */
	assert(call->start_by_ms == (now.resend ? 50000 : 60000));
	assert(now.key_forwarded);
	assert(now.referred == (idempotency.recovery.contract == RECOVERY_LOOKUP));
	assert(call->drop_over && call->held_anyway == 4);
	assert(call->answer_max ==
	       (now.minor && !now.seen_whole && !now.resend ? 4 : FORWARD_ANSWER_MAX));
	assert((call->head == NULL) == (now.seen_whole || now.resend));
	assert(now.resends == now.resend);
	call->end = now.end = (enum upstream_end)decide(UPSTREAM_MALFORMED + 1);
	if (call->end == UPSTREAM_ANSWERED) {
		answer_comes(call);
	} else if (call->end > UPSTREAM_TOO_LATE && decide(2)) { /* it had begun */
		enum upstream_end ends = now.end;

		call->end = now.end = UPSTREAM_ANSWERED;
		answer_heads(call);
		answer_passes(call);
		call->end = now.end = ends;
	}
	if (call->end != UPSTREAM_ANSWERED)
		call->cause = "it ended so";
	later(call_done, call);
}

bool forward_admit(struct served *s, size_t bytes)
{
	(void)s;
	assert(bytes <= 100);
	now.full = decide(2);
	now.admitted = !now.full;
	return now.admitted;
}

void forward_prepare(struct served *s, struct upstream_call *call, bool enforced)
{
	static const struct canonical_rules place;
	static const struct source at_place = { .body = &place };
	static const struct source in_head = { .header = SPAN("Location") };
	unsigned wish = decide(6);

	assert(enforced);
	now.seen_whole = wish > 0 && wish < 5;
	idempotency.outcome.n_when = wish == 1;
	idempotency.response.body = wish == 2 ? RESPONSE_OMIT : RESPONSE_FULL;
	idempotency.response.kept = wish == 3 ? &place : NULL;
	idempotency.response.receipt_at = wish == 4 ? &at_place : wish == 5 ? &in_head : NULL;
	call->upstream = s->route->upstream;
	call->arena = s->request.arena;
}

void forward_key(struct upstream_call *call, const struct key_settings *key_settings,
		 struct span key, struct span derived)
{
	(void)derived;
	assert(call->arena == served->request.arena && key_settings == &idempotency.key);
	assert(span_equal(key, SPAN("k")));
	now.key_forwarded = true;
}

void forward_reference(struct upstream_call *call, struct span request_id, unsigned generation)
{
	(void)request_id;
	assert(call->arena == served->request.arena && generation == 1U + now.resend);
	assert(!now.twice);
	now.referred = true;
}

enum outcome outcome_of(const struct idempotency_settings *settings_,
			const struct http_answer *with, const char **why)
{
	assert(settings_ == &idempotency && with->status && !now.resend);
	assert(now.end == UPSTREAM_ANSWERED && !now.close_delimited);
	if (!now.asked++) /* a stream's answer is judged twice, and alike */
		now.judged = decide(2);
	*why = now.judged ? "judged" : NULL;
	return now.listed;
}

enum outcome outcome_of_resend(const struct idempotency_settings *settings_,
			       const struct http_answer *with, const char **why)
{
	assert(settings_ == &idempotency && with->status && now.resend);
	assert(now.end == UPSTREAM_ANSWERED && !now.close_delimited);
	*why = NULL;
	return now.listed == OUTCOME_STORE ? OUTCOME_STORE : OUTCOME_UNKNOWN;
}

struct span receipt_of(struct arena *arena, const struct response_settings *response,
		       const struct http_answer *with)
{
	(void)arena;
	assert(response == &idempotency.response && with->body.len != 3);
	assert(span_equal(with->fields.at[0].value, SPAN("/orders/1")));
	return SPAN("/orders/1");
}

struct http_answer response_reduced(struct arena *arena,
				    const struct response_settings *response,
				    const struct http_answer *with)
{
	struct http_answer out = *with;

	(void)arena;
	assert(response == &idempotency.response);
	if (now.reduced)
		out.body = SPAN("red");
	return out;
}

struct http_answer response_without_body(struct arena *arena, const struct http_answer *with)
{
	struct http_answer out = *with;

	(void)arena;
	assert(now.size == DROPPED && now.outcome == LEDGER_RELEASE);
	now.bare = true;
	out.body = SPAN("");
	return out;
}

struct http_answer forward_answer(const struct upstream_call *call)
{
	struct http_answer out = call->answer;

	out.fields.at = arena_alloc(call->arena, sizeof(struct http_field) * 8);
	http_add(&out.fields, SPAN("Location"), SPAN("/orders/1"));
	return out;
}

struct http_fields forward_kept(struct arena *arena, const struct http_fields *from,
				const struct texts *more)
{
	(void)arena;
	(void)from;
	(void)more;
	return (struct http_fields){ NULL, 0 };
}

void forward_reply(struct served *s, unsigned verdict, const struct http_answer *with)
{
	note('A');
	s->verdict = verdict;
	now.answer = *with;
}

void forward_stream(struct served *s, struct upstream_call *call,
		    const struct http_answer *with, int64_t patience_ms)
{
	note('T');
	assert(s == served && call->answer.status == with->status);
	assert(patience_ms == 500 && with->body.len == 0);
	assert(http_find(&with->fields, SPAN("Location"), NULL) &&
	       http_find(&with->fields, SPAN("Idempotency-Request-Id"), NULL));
	now.marked = http_find(&with->fields, SPAN("Idempotency-Expires"), NULL) != NULL;
}

void forward_stream_data(struct served *s, struct span piece)
{
	assert(s == served && now.size != SMALL);
	now.streamed += piece.len;
}

void forward_stream_over(struct served *s, unsigned verdict, bool whole)
{
	note('A');
	s->verdict = verdict;
	now.whole = whole;
}
