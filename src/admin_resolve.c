/*
 * POST /v1/records/{id}/resolve: what an operator knows of a record (CONTRACT 15). First the ledger
 * is asked whose record it is, because which header fields may be kept is its route's affair; then
 * it is resolved, and shown as it stands, in one transaction.
 *
 * A body that is written as a JSON object or array is kept byte for byte as it stands in the
 * request: reading and writing it again could change its numbers.
 */
#include "admin_internal.h"

#include "admin_written.h"
#include "base64.h"

#define OUT_MAX ((size_t)64 * 1024 * 1024)
#define MEMBERS "generation amend outcome status headers body body_base64 receipt evidence"

struct resolving {
	struct admin_task task;
	struct asked asked;
	struct records_secrets secrets;
	struct record_ref ref;
	struct resolution it;
	bool sent; /* whose it is is known */
};

/* --- the body's members --- */

static const char *read_body(const struct asked *asked, const json_t *object,
			     struct resolution *it)
{
	const json_t *body = json_object_get(object, "body");
	struct span base64 = admin_string(object, "body_base64");
	unsigned char *bytes = NULL;

	if (body && json_object_get(object, "body_base64"))
		return "body and body_base64 exclude each other";
	if (json_is_string(body))
		it->body = admin_string(object, "body");
	else if (json_is_object(body) || json_is_array(body))
		it->body = admin_written(asked->arena, asked->request->body, SPAN("/body"));
	if (body && !json_is_null(body) && !it->body.at)
		return "body is a string, an object, an array or null";
	if (!json_object_get(object, "body_base64"))
		return NULL;
	bytes = arena_alloc(asked->arena, base64.len + 4);
	it->body = (struct span){ (char *)bytes, 0 };
	if (!base64.at || !base64_read(base64, bytes, &it->body.len))
		return "body_base64 is no base64";
	return NULL;
}

static const char *read_headers(const struct asked *asked, json_t *headers,
				struct http_fields *fields)
{
	const char *name = NULL;
	json_t *value = NULL;

	if (!headers)
		return NULL;
	if (!json_is_object(headers) || json_object_size(headers) > HTTP_FIELDS_MAX)
		return "headers is an object of at most 100 strings";
	fields->at = arena_zero(asked->arena, HTTP_FIELDS_MAX * sizeof(*fields->at));
	json_object_foreach(headers, name, value)
	{
		if (!json_is_string(value))
			return "headers is an object of at most 100 strings";
		http_add(fields, span_of(name),
			 (struct span){ json_string_value(value), json_string_length(value) });
	}
	return NULL;
}

static bool read_number(const json_t *object, const char *member, int *number)
{
	const json_t *value = json_object_get(object, member);
	json_int_t is = json_integer_value(value);

	if (!value || json_is_null(value))
		return true;
	*number = (int)is;
	return json_is_integer(value) && is >= 1 && is <= 32767;
}

/* A string where it is there at all. */
static bool read_string(const json_t *object, const char *member, struct span *text)
{
	const json_t *value = json_object_get(object, member);

	*text = admin_string(object, member);
	return !value || json_is_null(value) || text->at;
}

static const char *read_resolution(const struct asked *asked, const json_t *object,
				   struct resolution *it)
{
	struct span outcome = admin_string(object, "outcome");
	int status = 0;
	const char *wrong = NULL;

	it->completed = span_equal(outcome, SPAN("completed"));
	if (!it->completed && !span_equal(outcome, SPAN("not_executed")))
		return "outcome is completed or not_executed";
	if (!read_number(object, "status", &status) ||
	    !read_number(object, "generation", &it->generation) ||
	    !read_number(object, "amend", &it->amends))
		return "status, generation and amend are numbers";
	it->status = (unsigned)status;
	if (!read_string(object, "receipt", &it->receipt) ||
	    !read_string(object, "evidence", &it->evidence))
		return "receipt and evidence are strings";
	wrong = read_headers(asked, json_object_get(object, "headers"), &it->fields);
	return wrong ? wrong : read_body(asked, object, it);
}

/* --- the ledger --- */

static struct http_answer missing(const struct asked *asked)
{
	return admin_refuse(asked, PROBLEM_RECORD_NOT_FOUND,
			    "There is no such record, or its time is over");
}

/* What stands there instead. */
static struct http_answer conflict(const struct resolving *r, const char *why, struct span json)
{
	json_t *record = json.at ? json_loadb(json.at, json.len, 0, NULL) : NULL;
	struct problem_about about = { .problem = PROBLEM_RECORD_CONFLICT,
				       .detail = span_of(why),
				       .request_id = r->asked.part,
				       .may_have_executed = true };
	static const char *const members[] = { "state", "source", "receipt", "lease_until" };
	struct http_answer answer;

	for (size_t i = 0; i < ARRAY_LEN(members); i++)
		if (admin_string(record, members[i]).at)
			about.extra[about.n_extra++] = (struct problem_extra){
				.name = members[i], .text = admin_string(record, members[i])
			};
	about.extra[about.n_extra++] = (struct problem_extra){
		.name = "generation",
		.number = json_integer_value(json_object_get(record, "generation"))
	};
	if (json_object_get(record, "slot"))
		about.extra[about.n_extra++] = (struct problem_extra){
			.name = "slot",
			.number = json_integer_value(json_object_get(record, "slot"))
		};
	answer = problem_answer(r->asked.arena, &about);
	json_decref(record);
	return answer;
}

static struct http_answer resolved(const struct resolving *r, struct pg_rows *const *rows)
{
	struct buf *out = admin_buf(r->asked.arena, OUT_MAX);
	struct span result = pg_bytes(rows[0], 0, 0);
	const char *why = records_refused(result);

	if (span_equal(result, SPAN(RECORDS_MISSING)))
		return missing(&r->asked);
	if (why)
		return conflict(r, why,
				pg_rows_count(rows[1]) ? pg_bytes(rows[1], 0, 2)
						       : (struct span){ NULL, 0 });
	if (!records_put_one(out, &r->secrets, rows[1]))
		return missing(&r->asked);
	return admin_json(&r->asked, buf_view(out));
}

static struct http_answer go_on(struct admin_task *task, struct pg_rows *const *rows)
{
	struct resolving *r = container_of(task, struct resolving, task);
	const struct settings *settings = r->asked.view->settings;
	const char *wrong = NULL;

	if (r->sent)
		return resolved(r, rows);
	if (pg_rows_count(rows[0]) == 0)
		return missing(&r->asked);
	wrong = records_resolve(r->asked.arena, &r->ref,
				records_operation_named(settings, pg_bytes(rows[0], 0, 0)),
				&r->it, &task->calls[0]);
	if (wrong)
		return admin_refuse(&r->asked, PROBLEM_ADMIN_INVALID, wrong);
	records_show(r->asked.arena, &r->ref, false, &task->calls[1]);
	task->n = 2;
	task->changes = true;
	r->sent = true;
	return (struct http_answer){ .status = 0 };
}

struct http_answer admin_records_resolve(struct asked *asked)
{
	struct resolving *r = arena_zero(asked->arena, sizeof(*r));
	const struct records_secrets *secrets =
		asked->view->ledger ? admin_ledger_secrets(asked->view->ledger) : NULL;
	struct http_answer refusal;
	const json_t *object = admin_object(asked, "", MEMBERS, &refusal);
	const char *wrong = NULL;

	if (!object)
		return refusal;
	r->asked = *asked;
	r->it.who = asked->who;
	wrong = read_resolution(asked, object, &r->it);
	if (!wrong)
		wrong = records_resolution_wrong(&r->it);
	if (wrong)
		return admin_refuse(asked, PROBLEM_ADMIN_INVALID, wrong);
	if (!secrets)
		return admin_refuse(asked, PROBLEM_LEDGER_UNAVAILABLE,
				    "PostgreSQL is not reached");
	r->secrets = *secrets;
	if (!records_ref(secrets, asked->part, &r->ref))
		return admin_refuse(asked, PROBLEM_RECORD_NOT_FOUND,
				    "No gateway of this ledger has given out this id");
	records_operation(asked->arena, &r->ref, &r->task.calls[0]);
	r->task.n = 1;
	r->task.request = asked->request;
	r->task.done = go_on;
	return admin_ask(asked, &r->task);
}
