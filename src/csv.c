/*
 * Reads CSV as RFC 4180 has it, and as spreadsheets write it: lines end in LF or CRLF, a byte order
 * mark may stand in front. A quote anywhere but around a whole field is an error rather than a
 * guess, because a record that is cut in the wrong place says something else.
 */
#include "csv.h"

void csv_init(struct csv *csv, struct span text)
{
	*csv = (struct csv){ .rest = text };
	if (text.len >= 3 && memcmp(text.at, "\xef\xbb\xbf", 3) == 0)
		csv->rest = (struct span){ text.at + 3, text.len - 3 };
}

static void skip(struct csv *csv, size_t n)
{
	csv->rest.at += n;
	csv->rest.len -= n;
}

static bool refuse(struct csv *csv, const char *why)
{
	csv->line = csv->lines + 1;
	csv->wrong = why;
	return false;
}

/* From behind the quote to behind the closing one. */
static bool read_quoted(struct csv *csv, struct arena *arena, struct span *field)
{
	char *out = NULL;
	size_t len = 0;
	size_t i = 0;

	for (; i < csv->rest.len; i++) {
		if (csv->rest.at[i] == '"' &&
		    (i + 1 == csv->rest.len || csv->rest.at[i + 1] != '"'))
			break;
		i += csv->rest.at[i] == '"';
		len++;
	}
	if (i == csv->rest.len)
		return refuse(csv, "a quote is not closed");
	out = arena_alloc(arena, len + 1);
	*field = (struct span){ out, len };
	for (size_t at = 0; at < i; at++) {
		*out++ = csv->rest.at[at];
		csv->lines += csv->rest.at[at] == '\n';
		at += csv->rest.at[at] == '"';
	}
	*out = 0;
	skip(csv, i + 1);
	return true;
}

static bool read_plain(struct csv *csv, struct span *field)
{
	size_t n = 0;

	while (n < csv->rest.len && !strchr(",\r\n\"", csv->rest.at[n] ? csv->rest.at[n] : ' '))
		n++;
	*field = (struct span){ csv->rest.at, n };
	skip(csv, n);
	if (csv->rest.len && csv->rest.at[0] == '"')
		return refuse(csv, "a quote stands inside a field that is not quoted");
	return true;
}

static bool read_field(struct csv *csv, struct arena *arena, struct span *field)
{
	if (csv->rest.len == 0 || csv->rest.at[0] != '"')
		return read_plain(csv, field);
	skip(csv, 1);
	return read_quoted(csv, arena, field);
}

/* Is the line over? It is then passed. */
static bool take_end(struct csv *csv)
{
	size_t n = csv->rest.len && csv->rest.at[0] == '\r' ? 1 : 0;

	if (csv->rest.len == 0)
		return true;
	if (n == csv->rest.len || csv->rest.at[n] != '\n')
		return false;
	skip(csv, n + 1);
	csv->lines++;
	return true;
}

bool csv_next(struct csv *csv, struct arena *arena, struct csv_record *record)
{
	record->n = 0;
	while (csv->rest.len && take_end(csv))
		continue;
	if (csv->rest.len == 0 || csv->wrong)
		return false;
	csv->line = csv->lines + 1;
	while (record->n < CSV_FIELDS_MAX) {
		if (!read_field(csv, arena, &record->at[record->n]))
			return false;
		record->n++;
		if (take_end(csv))
			return true;
		if (csv->rest.at[0] != ',')
			return refuse(csv, "behind a field stands neither a comma nor the "
					   "line's end");
		skip(csv, 1);
	}
	return refuse(csv, "there are more than 64 fields");
}
