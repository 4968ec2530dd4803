/* What the endpoints of the admin listener share; nobody else includes it. */
#pragma once
#include "admin.h"
#include "admin_ledger.h"
#include "problem.h"

#include <jansson.h>

#define ADMIN_BODY_BASE ((size_t)1 << 20) /* beside the largest response body of a route */

struct asked {
	struct http_request *request;
	const struct admin_view *view;
	struct arena *arena;
	enum admin_role role; /* of whoever asks */
	struct span who;      /* the token's name; lives as long as the request */
	struct span part;     /* of the path: what stands for {} */
};

/* An answer at once; a status of 0: it comes later. */
struct http_answer admin_refuse(const struct asked *asked, enum problem problem,
				const char *detail);
struct http_answer admin_json(const struct asked *asked, struct span body);
/* A buf whose bytes live as long as the request. */
struct buf *admin_buf(struct arena *arena, size_t max);
/* The statements go to the ledger and come back to task->done. */
struct http_answer admin_ask(const struct asked *asked, struct admin_task *task);

/* A parameter of the query, decoded; its `at` is NULL where it is not there. False: it is given
 * twice, or badly encoded. */
bool admin_parameter(const struct asked *asked, struct span name,
		     struct span *value) MUST_CHECK;
/* Do all parameters bear one of these names ("state limit")? */
bool admin_only_parameters(const struct asked *asked, const char *names) MUST_CHECK;
/* A JSON object with no other members than these, of a request with no other parameters; it lives as long as the request. NULL: `*answer`
 * is the refusal. */
json_t *admin_object(const struct asked *asked, const char *parameters, const char *members,
		     struct http_answer *answer) MUST_CHECK;
/* A member that is a string; its `at` is NULL where it is missing or something else. */
struct span admin_string(const json_t *object, const char *member);

/* admin_records.c */
struct http_answer admin_records_list(struct asked *asked);
struct http_answer admin_records_show(struct asked *asked);
struct http_answer admin_records_find(struct asked *asked);
/* admin_resolve.c */
struct http_answer admin_records_resolve(struct asked *asked);
/* admin_accounts.c */
struct http_answer admin_accounts_erase(struct asked *asked);
/* admin_operations.c */
struct http_answer admin_operations_list(struct asked *asked);
struct http_answer admin_operations_stop(struct asked *asked);
struct http_answer admin_operations_resume(struct asked *asked);
struct http_answer admin_operations_adopt(struct asked *asked);
