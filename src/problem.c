/*
 * Problem documents (RFC 9457). One row of problems.def is one way in which the gateway answers
 * by itself; this file turns the row and what the caller knows of the request into the answer:
 * status, fields and a JSON body with its members always in the same order, so that people and
 * tests can read it. It does not know why a request got its problem.
 *
 * `retry` and `may_have_executed` are what a client acts on; they are in every document.
 */
#include "problem.h"

#include "escaped.h"

#include <assert.h>

#define TEXT_MAX 2048U /* of a member, before escaping: a detail may quote what a client sent */
#define BODY_MAX ((size_t)256 * 1024)

static const struct row {
	const char *code;
	unsigned status;
	const char *retry, *title;
} rows[PROBLEM_COUNT] = {
#define PROBLEM(name, code, status, retry, title)                                              \
	[PROBLEM_##name] = { code, status, retry, title },
#include "problems.def"
#undef PROBLEM
};

static const struct row *row_of(enum problem problem)
{
	assert(problem > PROBLEM_NONE && problem < PROBLEM_COUNT);
	return &rows[problem];
}

const char *problem_code(enum problem problem)
{
	return row_of(problem)->code;
}

unsigned problem_status(enum problem problem)
{
	return row_of(problem)->status;
}

const char *verdict_name(unsigned verdict)
{
	static const char *const names[] = { [VERDICT_PASSED] = "passed",
					     [VERDICT_FORWARDED] = "forwarded",
					     [VERDICT_REPLAYED] = "replayed",
					     [VERDICT_PROBLEM] =
						     "none" /* PROBLEM_NONE: nobody has it */ };

	if (verdict < ARRAY_LEN(names))
		return names[verdict];
	return problem_code((enum problem)(verdict - VERDICT_PROBLEM));
}

static void put_string(struct buf *body, struct span text)
{
	if (text.len > TEXT_MAX)
		text.len = TEXT_MAX;
	escaped_string(body, text);
}

static void put_name(struct buf *body, const char *name)
{
	buf_text(body, body->len > 0 ? ", " : "{");
	put_string(body, span_of(name));
	buf_text(body, ": ");
}

static void put_text(struct buf *body, const char *name, struct span text)
{
	put_name(body, name);
	put_string(body, text);
}

static void put_what(struct buf *body, const struct problem_about *about, unsigned status)
{
	const struct row *row = row_of(about->problem);

	put_name(body, "type");
	buf_format(body, "\"urn:onceward:problem:%s\"", row->code);
	put_text(body, "title", span_of(row->title));
	put_name(body, "status");
	buf_format(body, "%u", status);
	put_text(body, "detail", about->detail.len > 0 ? about->detail : span_of(row->title));
	put_text(body, "code", span_of(row->code));
	if (about->request_id.len > 0)
		put_text(body, "logical_request_id", about->request_id);
	put_text(body, "retry", span_of(row->retry));
	put_name(body, "may_have_executed");
	buf_text(body, about->may_have_executed ? "true" : "false");
	if (about->owner.len > 0)
		put_text(body, "owner", about->owner);
}

static void put_extra(struct buf *body, const struct problem_extra *extra)
{
	if (extra->text.at) {
		put_text(body, extra->name, extra->text);
		return;
	}
	put_name(body, extra->name);
	buf_format(body, "%lld", (long long)extra->number);
}

static struct span body_of(struct arena *arena, const struct problem_about *about,
			   unsigned status)
{
	struct buf body;
	struct span copy;

	assert(about->n_extra <= ARRAY_LEN(about->extra));
	buf_init(&body, BODY_MAX);
	put_what(&body, about, status);
	for (size_t i = 0; i < about->n_extra; i++)
		put_extra(&body, &about->extra[i]);
	buf_text(&body, "}\n");
	assert(!body.full);
	copy = arena_copy(arena, buf_view(&body));
	buf_fini(&body);
	return copy;
}

struct http_answer problem_answer(struct arena *arena, const struct problem_about *about)
{
	unsigned status = about->status ? about->status : problem_status(about->problem);
	struct http_answer answer = { .status = status };
	struct http_fields *fields = &answer.fields;

	fields->at = arena_alloc(arena, HTTP_FIELDS_MAX * sizeof(*fields->at));
	http_add(fields, SPAN("Content-Type"), SPAN("application/problem+json"));
	http_add(fields, SPAN("Cache-Control"), SPAN("no-store"));
	if (about->retry_after > 0)
		http_add(fields, SPAN("Retry-After"),
			 arena_format(arena, "%u", about->retry_after));
	if (about->allow.len > 0)
		http_add(fields, SPAN("Allow"), about->allow);
	http_add(fields, SPAN("Idempotency-Verdict"), span_of(problem_code(about->problem)));
	if (about->request_id.len > 0)
		http_add(fields, SPAN("Idempotency-Request-Id"), about->request_id);
	answer.body = body_of(arena, about, status);
	return answer;
}
