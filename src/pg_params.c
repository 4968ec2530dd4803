/*
 * Values on their way to and from PostgreSQL, in its binary format; see pg.h.
 *
 * Parameters are written once into one buffer, in the form in which they travel, and handed to
 * libpq from there; rows are read where libpq keeps them. All numbers are big-endian.
 */
#include "pg_internal.h"

#include <assert.h>

/* PostgreSQL's own limit of a value is 1 GiB; whoever fills a batch stops long before. */
#define PARAMS_MAX_BYTES  ((size_t)1 << 30)
/* PostgreSQL counts days from 2000-01-01. */
#define DAYS_1970_TO_2000 10957
#define ARRAY_HEAD_BYTES  20U
#define EMPTY_ARRAY_BYTES 12U

static void put(char *at, uint64_t value, size_t width)
{
	while (width--) {
		at[width] = (char)(value & 0xff);
		value >>= 8;
	}
}

static uint64_t get(const char *at, size_t width)
{
	uint64_t value = 0;

	for (size_t i = 0; i < width; i++)
		value = value << 8 | (unsigned char)at[i];
	return value;
}

void pg_params_init(struct pg_params *params)
{
	*params = (struct pg_params){ 0 };
	buf_init(&params->bytes, PARAMS_MAX_BYTES);
}

void pg_params_clear(struct pg_params *params)
{
	buf_clear(&params->bytes);
	params->n = 0;
	params->left = 0;
}

void pg_params_fini(struct pg_params *params)
{
	buf_fini(&params->bytes);
	params->n = 0;
	params->left = 0;
}

/* The parameter that begins here. */
static void begin(struct pg_params *params)
{
	assert(params->left == 0 && params->n < PG_PARAMS_MAX);
	params->param[params->n].at = params->bytes.len;
	params->param[params->n].len = 0;
	params->n++;
}

static void end(struct pg_params *params)
{
	params->param[params->n - 1].len =
		(int)(params->bytes.len - params->param[params->n - 1].at);
}

void pg_array(struct pg_params *params, enum pg_type type, size_t n)
{
	size_t head = n ? ARRAY_HEAD_BYTES : EMPTY_ARRAY_BYTES;
	char *at = NULL;

	assert(n <= INT32_MAX);
	begin(params);
	at = buf_reserve(&params->bytes, head);
	if (at) {
		put(at, n ? 1 : 0, 4); /* dimensions */
		put(at + 4, 0, 4);     /* "has NULLs": the server looks for itself */
		put(at + 8, type, 4);
	}
	if (at && n) {
		put(at + 12, n, 4);
		put(at + 16, 1, 4); /* the first index */
	}
	if (at)
		params->bytes.len += head;
	params->left = n;
	end(params);
}

/* Room for a value of `len` bytes (-1: NULL), for the caller to fill; NULL: all is full. */
static char *place(struct pg_params *params, int len)
{
	size_t prefix = params->left ? 4 : 0, width = len > 0 ? (size_t)len : 0;
	char *at = NULL;

	if (!params->left)
		begin(params);
	if (!params->left && len < 0) { /* takes no room, where there may be none yet */
		params->param[params->n - 1].len = -1;
		return NULL;
	}
	at = buf_reserve(&params->bytes, prefix + width);
	if (!at)
		return NULL;
	if (params->left) {
		put(at, (uint32_t)len, 4);
		params->left--;
	}
	params->bytes.len += prefix + width;
	end(params);
	return at + prefix;
}

static int width_of(enum pg_type type)
{
	assert(type == PG_INT2 || type == PG_INT4 || type == PG_INT8 || type == PG_DATE);
	return type == PG_INT8 ? 8 : type == PG_INT2 ? 2 : 4;
}

void pg_add_int(struct pg_params *params, enum pg_type type, int64_t number)
{
	int width = width_of(type);
	char *at = place(params, width);

	if (type == PG_DATE)
		number -= DAYS_1970_TO_2000;
	if (at)
		put(at, (uint64_t)number, (size_t)width);
}

void pg_add_bytes(struct pg_params *params, struct span bytes)
{
	char *at = NULL;

	assert(bytes.len <= INT32_MAX);
	at = place(params, (int)bytes.len);
	if (at && bytes.len)
		memcpy(at, bytes.at, bytes.len);
}

void pg_add_null(struct pg_params *params)
{
	(void)place(params, -1);
}

void pg_add_if(struct pg_params *params, bool there, struct span bytes)
{
	if (there)
		pg_add_bytes(params, bytes);
	else
		pg_add_null(params);
}

size_t pg_rows_count(const struct pg_rows *rows)
{
	return (size_t)PQntuples(pg_result(rows));
}

bool pg_is_null(const struct pg_rows *rows, size_t row, unsigned column)
{
	return PQgetisnull(pg_result(rows), (int)row, (int)column) != 0;
}

int64_t pg_int(const struct pg_rows *rows, size_t row, unsigned column)
{
	const PGresult *result = pg_result(rows);
	const char *at = PQgetvalue(result, (int)row, (int)column);

	switch (PQgetlength(result, (int)row, (int)column)) {
	case 1:
		return (int64_t)get(at, 1);
	case 2:
		return (int16_t)get(at, 2);
	case 8:
		return (int64_t)get(at, 8);
	default:
		assert(PQgetlength(result, (int)row, (int)column) == 4);
		return (int32_t)get(at, 4) +
		       (PQftype(result, (int)column) == PG_DATE ? DAYS_1970_TO_2000 : 0);
	}
}

struct span pg_bytes(const struct pg_rows *rows, size_t row, unsigned column)
{
	const PGresult *result = pg_result(rows);

	if (PQgetisnull(result, (int)row, (int)column))
		return (struct span){ NULL, 0 };
	return (struct span){ PQgetvalue(result, (int)row, (int)column),
			      (size_t)PQgetlength(result, (int)row, (int)column) };
}

struct span pg_text(const struct pg_rows *rows, size_t row, unsigned column)
{
	return pg_bytes(rows, row, column);
}

void pg_rows_free(struct pg_rows *rows)
{
	PQclear((PGresult *)(void *)rows);
}
