/*
 * Records for people: lists, one record, what an operator knows of one; see records.h. Operations
 * stand in records_operations.c.
 */
#include "records.h"

#include "cursor.h"
#include "field_lines.h"
#include "forward.h"
#include "receipt.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#define ID_KEY_BYTES 16U

/* --- text --- */

struct span records_hex(struct arena *arena, struct span bytes)
{
	static const char digits[] = "0123456789abcdef";
	char *at = bytes.at ? arena_alloc(arena, 2 * bytes.len + 3) : NULL;
	struct span out = { at, 0 };

	if (!at)
		return out;
	*at++ = '\\';
	*at++ = 'x';
	for (size_t i = 0; i < bytes.len; i++) {
		*at++ = digits[(unsigned char)bytes.at[i] >> 4];
		*at++ = digits[(unsigned char)bytes.at[i] & 15];
	}
	*at = 0;
	out.len = 2 * bytes.len + 2;
	return out;
}

struct span records_number(struct arena *arena, int64_t number)
{
	return arena_format(arena, "%lld", (long long)number);
}

int64_t records_int(const struct pg_rows *rows, size_t row, unsigned column)
{
	char copy[24];
	struct span text = pg_text(rows, row, column);

	snprintf(copy, sizeof(copy), "%.*s", (int)text.len, text.at ? text.at : "");
	return strtoll(copy, NULL, 10);
}

static struct span word(bool flag)
{
	return flag ? SPAN("true") : SPAN("false");
}

static struct span given(struct span text)
{
	return text.len ? text : (struct span){ NULL, 0 };
}

int64_t records_writer(void)
{
	int64_t writer = 0;

	random_bytes(&writer, sizeof(writer));
	return writer;
}

/* --- secrets, ids, hashes --- */

static bool take_secret(struct records_secret *secret, struct span hex)
{
	secret->len = hex.len / 2;
	if (secret->len < ID_KEY_BYTES || secret->len > sizeof(secret->at))
		return false;
	for (size_t i = 0; i < secret->len; i++)
		secret->at[i] = (unsigned char)(http_hex(hex.at[2 * i]) << 4 |
						http_hex(hex.at[2 * i + 1]));
	return true;
}

bool records_secrets_take(struct records_secrets *secrets, const struct pg_rows *rows)
{
	return take_secret(&secrets->request_id, pg_text(rows, 0, 0)) &&
	       take_secret(&secrets->key_salt, pg_text(rows, 0, 1)) &&
	       take_secret(&secrets->cursor, pg_text(rows, 0, 2));
}

bool records_ref(const struct records_secrets *secrets, struct span id, struct record_ref *ref)
{
	ref->day_known = true;
	return record_id_read(secrets->request_id.at, id, &ref->op_id, &ref->day);
}

bool records_ref_loose(const struct records_secrets *secrets, struct span id,
		       struct record_ref *ref)
{
	char digits[20];

	if (records_ref(secrets, id, ref))
		return true;
	if (id.len < 10 || id.len >= sizeof(digits))
		return false;
	memcpy(digits, id.at, id.len);
	digits[id.len] = 0;
	*ref = (struct record_ref){ strtoll(digits, NULL, 10), 0, false };
	return strspn(digits, "0123456789") == id.len;
}

struct span records_hash(struct arena *arena, const struct records_secrets *secrets,
			 const struct record_key *key)
{
	struct hash *hasher = hash_new_keyed(secrets->key_salt.at, secrets->key_salt.len);
	char hash[16];
	struct span hex;

	record_key_hash(hasher, key->account, key->operation, key->key, (unsigned char *)hash);
	hash_free(hasher);
	hex = records_hex(arena, (struct span){ hash, sizeof(hash) });
	return (struct span){ hex.at + 2, hex.len - 2 };
}

struct span records_about(struct arena *arena, const struct records_secrets *secrets,
			  const struct record_key *key)
{
	struct span hash = records_hash(arena, secrets, key);

	return arena_format(arena, "key hash %.*s", (int)hash.len, hash.at);
}

/* --- lists --- */

static bool read_limit(struct span text, int64_t *limit)
{
	*limit = 0;
	for (size_t i = 0; i < text.len; i++) {
		if (text.at[i] < '0' || text.at[i] > '9' || *limit > RECORDS_LIMIT_MAX)
			return false;
		*limit = *limit * 10 + (text.at[i] - '0');
	}
	return *limit >= 1 && *limit <= RECORDS_LIMIT_MAX;
}

/* Milliseconds of "90s", "15m", "24h", "7d". */
static bool read_age(struct arena *arena, struct span text, int64_t *ms)
{
	static const struct {
		const char *unit;
		int64_t ms;
	} units[] = {
		{ "ms", 1 }, { "s", 1000 }, { "m", 60000 }, { "h", 3600000 }, { "d", 86400000 }
	};
	const char *at = arena_copy(arena, text).at;
	size_t digits = strspn(at, "0123456789");

	if (digits == 0 || digits > 10)
		return false;
	for (size_t i = 0; i < ARRAY_LEN(units); i++)
		if (strcmp(at + digits, units[i].unit) == 0) {
			*ms = strtoll(at, NULL, 10) * units[i].ms;
			return *ms <= INT64_C(36500) * 86400000;
		}
	return false;
}

/* What a cursor is bound to: everything that says which list it is. */
static void put_list_name(struct buf *out, const struct records_filter *filter)
{
	const struct span parts[] = { filter->state, filter->operation, filter->account,
				      filter->older_than };

	for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
		buf_format(out, "%zu:", parts[i].len);
		buf_span(out, parts[i]);
	}
}

static struct span secret_span(const struct records_secret *secret)
{
	return (struct span){ (const char *)secret->at, secret->len };
}

static bool read_cursor(const struct records_secrets *secrets,
			const struct records_filter *filter, struct cursor *cursor)
{
	struct buf name;
	bool good = true;

	*cursor = (struct cursor){ { 0 } };
	if (filter->cursor.len == 0)
		return true;
	buf_init(&name, SIZE_MAX);
	put_list_name(&name, filter);
	good = cursor_read(secret_span(&secrets->cursor), buf_view(&name), filter->cursor,
			   cursor);
	buf_fini(&name);
	return good;
}

static bool state_valid(struct span state)
{
	static const char *const states[] = { "",          "unknown",  "stale", "in_flight",
					      "completed", "released", "all" };

	for (size_t i = 0; i < ARRAY_LEN(states); i++)
		if (span_equal(state, span_of(states[i])))
			return true;
	return false;
}

const char *records_list(struct arena *arena, const struct records_secrets *secrets,
			 const struct records_filter *filter, struct records_call *call)
{
	struct cursor cursor;
	int64_t limit = 0;
	int64_t age = 0;

	if (!state_valid(filter->state))
		return "state is unknown, stale, in_flight, completed, released or all";
	if (!read_limit(filter->limit.len ? filter->limit : SPAN(RECORDS_LIMIT), &limit))
		return "limit is a number from 1 to 1000";
	if (filter->older_than.len && !read_age(arena, filter->older_than, &age))
		return "older_than is a time with its unit, like 90s, 15m, 24h or 7d";
	if (!read_cursor(secrets, filter, &cursor))
		return "the cursor is not one of this list: it goes with the state, operation, "
		       "account and older_than of the page that it came with";
	*call = (struct records_call){ QUERY_records_list, { { NULL, 0 } }, 8 };
	call->param[0] = given(filter->state);
	call->param[1] = records_hex(arena, given(filter->operation));
	call->param[2] = records_hex(arena, given(filter->account));
	if (filter->older_than.len)
		call->param[3] = records_number(arena, age);
	call->param[4] = records_number(arena, limit);
	call->param[5] = records_number(arena, cursor.at[0]);
	call->param[6] = records_number(arena, cursor.at[1]);
	call->param[7] = word(filter->reveal);
	return NULL;
}

static void put_record(struct buf *out, const struct records_secrets *secrets,
		       const struct pg_rows *rows, size_t row)
{
	char id[RECORD_ID_BYTES];
	struct span json = pg_text(rows, row, 2);

	record_id_write(secrets->request_id.at, records_int(rows, row, 0),
			(int32_t)records_int(rows, row, 1), id);
	buf_format(out, "{\"logical_request_id\": \"%s\", ", id);
	buf_append(out, json.at + 1, json.len - 1);
}

static void put_next(struct buf *out, const struct records_secrets *secrets,
		     const struct records_filter *filter, const struct cursor *next)
{
	char text[CURSOR_BYTES];
	struct buf name;

	buf_init(&name, SIZE_MAX);
	put_list_name(&name, filter);
	cursor_write(secret_span(&secrets->cursor), buf_view(&name), next, text);
	buf_fini(&name);
	buf_format(out, "], \"next_cursor\": \"%s\"}\n", text);
}

void records_put_list(struct buf *out, const struct records_secrets *secrets,
		      const struct records_filter *filter, const struct pg_rows *rows)
{
	size_t n = pg_rows_count(rows);

	buf_text(out, "{\"records\": [");
	for (size_t row = 0; row < n; row++) {
		if (!pg_text(rows, row, 0).at) { /* the last: where to go on */
			put_next(out, secrets, filter,
				 &(struct cursor){ { records_int(rows, row, 3),
						     records_int(rows, row, 4) } });
			return;
		}
		buf_text(out, row ? ",\n" : "\n");
		put_record(out, secrets, rows, row);
	}
	buf_text(out, "], \"next_cursor\": null}\n");
}

/* --- one record --- */

void records_show(struct arena *arena, const struct record_ref *ref, bool reveal,
		  struct records_call *call)
{
	*call = (struct records_call){ QUERY_records_show, { { NULL, 0 } }, 4 };
	call->param[0] = records_number(arena, ref->op_id);
	if (ref->day_known)
		call->param[1] = records_number(arena, ref->day);
	call->param[3] = word(reveal);
}

void records_find(struct arena *arena, const struct records_secrets *secrets,
		  const struct record_key *key, bool reveal, struct records_call *call)
{
	*call = (struct records_call){ QUERY_records_find, { { NULL, 0 } }, 2 };
	call->param[0] = records_hash(arena, secrets, key);
	call->param[1] = word(reveal);
}

bool records_put_one(struct buf *out, const struct records_secrets *secrets,
		     const struct pg_rows *rows)
{
	if (pg_rows_count(rows) == 0)
		return false;
	put_record(out, secrets, rows, 0);
	buf_byte(out, '\n');
	return true;
}

void records_operation(struct arena *arena, const struct record_ref *ref,
		       struct records_call *call)
{
	*call = (struct records_call){ QUERY_records_operation, { { NULL, 0 } }, 2 };
	call->param[0] = records_number(arena, ref->op_id);
	call->param[1] = records_number(arena, ref->day);
}

/* --- what an operator knows --- */

static bool is_kept(struct arena *arena, const struct http_field *field,
		    const struct idempotency_settings *operation)
{
	static const struct texts none = { NULL, 0 };
	struct http_field copy = *field;
	struct http_fields one = { &copy, 1 };

	return forward_kept(arena, &one, operation ? &operation->response.headers : &none).n ==
	       1;
}

struct span records_fields(struct arena *arena, const struct http_fields *fields,
			   const struct idempotency_settings *operation, struct span *bad)
{
	*bad = (struct span){ NULL, 0 };
	for (size_t i = 0; i < fields->n; i++) {
		const struct http_field *field = &fields->at[i];

		*bad = field->name;
		if (!http_token(field->name) || !http_field_value(field->value) ||
		    !is_kept(arena, field, operation))
			return (struct span){ NULL, 0 };
	}
	return field_lines(arena, fields);
}

static bool bodiless(unsigned status)
{
	return status == 204 || status == 205 || status == 304;
}

const char *records_resolution_wrong(const struct resolution *it)
{
	if (!records_says_something(it->evidence))
		return "evidence is missing: a sentence that says how it is known";
	if (!it->completed)
		return it->fields.n || it->body.at || it->receipt.at || it->status
			       ? "what was not executed has no status, headers, body or receipt"
			       : NULL;
	if (it->status < 200 || it->status > 599)
		return "a status from 200 to 599 is needed: the one that clients shall get";
	if (bodiless(it->status) && it->body.len)
		return "an answer of this status has no body";
	return NULL;
}

const char *records_resolve(struct arena *arena, const struct record_ref *ref,
			    const struct idempotency_settings *operation,
			    const struct resolution *it, struct records_call *call)
{
	const char *wrong = records_resolution_wrong(it);
	struct span fields, bad, body = it->body;

	if (wrong)
		return wrong;
	fields = records_fields(arena, &it->fields, operation, &bad);
	if (!fields.at)
		return arena_format(arena,
				    "the header %.*s cannot be kept: only Content-Type, "
				    "Location and the others that are stored of an answer, and "
				    "those of response.headers",
				    (int)(bad.len < 100 ? bad.len : 100), bad.at)
			.at;
	if (it->completed && bodiless(it->status))
		body = SPAN("");
	*call = (struct records_call){ QUERY_records_resolve, { { NULL, 0 } }, 14 };
	call->param[0] = records_number(arena, ref->op_id);
	call->param[1] = records_number(arena, ref->day);
	if (it->generation)
		call->param[2] = records_number(arena, it->generation);
	call->param[3] = it->completed ? SPAN("2") : SPAN("4");
	if (it->completed) {
		call->param[4] = records_number(arena, it->status);
		call->param[5] = records_hex(arena, fields);
	}
	call->param[6] = records_hex(arena, body);
	if (it->receipt.len)
		call->param[7] = records_hex(arena, receipt_normal(arena, it->receipt));
	call->param[8] = it->evidence;
	call->param[9] = it->who;
	call->param[10] = SPAN("2");
	call->param[11] = records_number(arena, records_writer());
	call->param[12] = word(operation && operation->response.receipt_unique);
	if (it->amends)
		call->param[13] = records_number(arena, it->amends);
	return NULL;
}

const char *records_refused(struct span result)
{
	static const char *const sentences[] = {
		[2] = "the record was completed meanwhile; what you know is kept as evidence "
		      "beside it",
		[3] = "a resend is under way; what you know is kept as evidence beside it: "
		      "look "
		      "again when it has ended",
		[4] = "the record was released meanwhile; what you know is kept as evidence "
		      "beside it",
		[5] = "an attempt may still be running: wait until its lease has ended",
		[6] = "there is no such record any more",
		[7] = "the record is of another generation than you expect: look at it again",
		[8] = "the record was ended by the API's own answer, which is final",
		[9] = "the key has been used again since the record was released; resolve the "
		      "newer record",
	};
	static const char other[] = "the record changed at the same moment: look at it again";

	if (span_equal(result, SPAN("1")))
		return NULL;
	if (span_equal(result, SPAN(RECORDS_RESOLVED)))
		return "somebody has resolved it already: look at it; to put another result in "
		       "place of that one, name the slot in which it stands (amend)";
	if (result.len != 1 || result.at[0] < '2' || result.at[0] > '9')
		return other;
	return sentences[result.at[0] - '0'];
}
