/*
 * JSON written for people: tables, and one record a page. Strings may hold whatever clients have
 * sent, so what a terminal would obey is escaped.
 */
#include "cli_internal.h"

#include "escape.h"
#include "mem.h"

#include <stdio.h>

/* How many columns it took, as far as that can be told. */
static int put_text(struct span text)
{
	char piece[ESCAPE_MAX];
	int width = 0;

	while (text.len > 0) {
		size_t n = escape_next(&text, false, piece);

		fwrite(piece, 1, n, stdout);
		for (size_t i = 0; i < n; i++)
			width += ((unsigned char)piece[i] & 0xc0) != 0x80;
	}
	return width;
}

static int put_value(const json_t *value)
{
	char number[32];

	switch (json_typeof(value)) {
	case JSON_STRING:
		return put_text(
			(struct span){ json_string_value(value), json_string_length(value) });
	case JSON_INTEGER:
		snprintf(number, sizeof(number), "%lld", (long long)json_integer_value(value));
		return put_text(span_of(number));
	case JSON_TRUE:
		return put_text(SPAN("yes"));
	case JSON_FALSE:
		return put_text(SPAN("no"));
	case JSON_OBJECT:
	case JSON_ARRAY:
	case JSON_REAL:
	case JSON_NULL:
		break;
	}
	return put_text(SPAN("-"));
}

static void put_cell(const struct cli_column *column, int width, bool last)
{
	if (!last)
		fprintf(stdout, "%*s", width < column->width ? column->width - width + 1 : 1,
			"");
	else
		fputc('\n', stdout);
}

void cli_table(const json_t *array, const struct cli_column *columns, size_t n)
{
	for (size_t i = 0; i < n && json_array_size(array); i++)
		put_cell(&columns[i], put_text(span_of(columns[i].title)), i + 1 == n);
	for (size_t row = 0; row < json_array_size(array); row++) {
		const json_t *object = json_array_get(array, row);

		for (size_t i = 0; i < n; i++) {
			const json_t *value = json_object_get(object, columns[i].member);

			put_cell(&columns[i], put_value(value ? value : json_null()),
				 i + 1 == n);
		}
	}
}

static void put_members(json_t *object)
{
	const char *name = NULL;
	json_t *value = NULL;
	const char *between = "    ";

	json_object_foreach(object, name, value)
	{
		if (json_is_null(value))
			continue;
		fprintf(stdout, "%s%s ", between, name);
		put_value(value);
		between = ", ";
	}
	fputc('\n', stdout);
}

void cli_object(json_t *object)
{
	const char *name = NULL;
	json_t *value = NULL;

	json_object_foreach(object, name, value)
	{
		if (json_is_null(value))
			continue;
		if (!json_is_array(value)) {
			fprintf(stdout, "%-20s ", name);
			put_value(value);
			fputc('\n', stdout);
			continue;
		}
		fprintf(stdout, "%s\n", name);
		for (size_t i = 0; i < json_array_size(value); i++)
			put_members(json_array_get(value, i));
	}
}

/* Letters of other alphabets are escaped, and with them what a terminal would obey. */
void cli_json(const json_t *value)
{
	json_dumpf(value, stdout, JSON_INDENT(2) | JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
	fputc('\n', stdout);
}
