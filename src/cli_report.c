/*
 * Reads a report into lines. A line that cannot be understood ends the reading: half a report
 * would make records that it names look as if it did not.
 */
#include "cli_report.h"

#include "csv.h"

#include <jansson.h>
#include <stdio.h>

static bool refuse(char why[256], unsigned line, const char *sentence)
{
	snprintf(why, 256, "line %u: %s", line, sentence);
	return false;
}

void report_free(struct report *report)
{
	mem_free(report->at);
	*report = (struct report){ NULL, 0, 0 };
}

static bool add(struct report *report, const struct report_line *line, char why[256])
{
	if (report->n == REPORT_LINES_MAX)
		return refuse(why, line->line, "there are more than 1000000 lines");
	if (!line->key.len == !line->id.len)
		return refuse(why, line->line,
			      "a line names a key or a logical_request_id, and not both");
	if (report->n == report->room) {
		report->room = report->room ? 2 * report->room : 1024;
		report->at = mem_resize(report->at, report->room * sizeof(*report->at));
	}
	report->at[report->n++] = *line;
	return true;
}

static bool read_status(struct span text, unsigned *status)
{
	*status = 0;
	for (size_t i = 0; i < text.len; i++) {
		if (text.at[i] < '0' || text.at[i] > '9' || i == 3)
			return false;
		*status = *status * 10 + (unsigned)(text.at[i] - '0');
	}
	return text.len == 0 || (*status >= 200 && *status <= 599);
}

/* --- CSV --- */

/* Where the spans of a line are told by name. */
static const struct {
	const char *name;
	size_t at;
} members[] = {
	{ "key", offsetof(struct report_line, key) },
	{ "logical_request_id", offsetof(struct report_line, id) },
	{ "account", offsetof(struct report_line, account) },
	{ "receipt", offsetof(struct report_line, receipt) },
	{ "body", offsetof(struct report_line, body) },
};

static struct span *member(struct report_line *line, struct span name)
{
	for (size_t i = 0; i < ARRAY_LEN(members); i++)
		if (span_equal(name, span_of(members[i].name)))
			return (struct span *)(void *)((char *)line + members[i].at);
	return NULL;
}

/* An empty field says nothing. */
static bool take_fields(const struct csv_record *header, const struct csv_record *record,
			struct report_line *line)
{
	for (size_t i = 0; i < record->n; i++) {
		struct span *to = member(line, header->at[i]);

		if (span_equal(header->at[i], SPAN("status")) &&
		    !read_status(record->at[i], &line->status))
			return false;
		if (to && record->at[i].len)
			*to = record->at[i];
	}
	return true;
}

static bool knows(const struct csv_record *header, const char *name)
{
	for (size_t i = 0; i < header->n; i++)
		if (span_equal(header->at[i], span_of(name)))
			return true;
	return false;
}

static bool twice(const struct csv_record *header)
{
	for (size_t i = 0; i < header->n; i++)
		for (size_t j = 0; j < i; j++)
			if (span_equal(header->at[i], header->at[j]) && header->at[i].len)
				return true;
	return false;
}

static bool read_csv(struct arena *arena, struct span text, struct report *report,
		     char why[256])
{
	struct csv csv;
	struct csv_record header, record;

	csv_init(&csv, text);
	if (csv_next(&csv, arena, &header) && !knows(&header, "key") &&
	    !knows(&header, "logical_request_id"))
		return refuse(why, 1,
			      "the first line names the columns; one is key or "
			      "logical_request_id");
	if (twice(&header))
		return refuse(why, 1, "two columns have one name");
	while (!csv.wrong && csv_next(&csv, arena, &record)) {
		struct report_line line = { .line = csv.line };

		if (record.n != header.n)
			return refuse(why, csv.line,
				      "there are more or fewer fields than in the header line");
		if (!take_fields(&header, &record, &line))
			return refuse(why, csv.line, "a status is a number from 200 to 599");
		if (!add(report, &line, why))
			return false;
	}
	return csv.wrong ? refuse(why, csv.line, csv.wrong) : true;
}

/* --- JSON lines --- */

static bool take_status(const json_t *value, struct report_line *line)
{
	json_int_t number = json_integer_value(value);

	if (!value || json_is_null(value))
		return true;
	line->status = (unsigned)number;
	return json_is_integer(value) && number >= 200 && number <= 599;
}

static bool take_members(struct arena *arena, const json_t *object, struct report_line *line)
{
	for (size_t i = 0; i < ARRAY_LEN(members); i++) {
		const json_t *value = json_object_get(object, members[i].name);

		if (!value || json_is_null(value))
			continue;
		if (!json_is_string(value))
			return false;
		*member(line, span_of(members[i].name)) =
			arena_copy(arena, (struct span){ json_string_value(value),
							 json_string_length(value) });
	}
	return true;
}

static bool read_object(struct arena *arena, struct span text, struct report_line *line,
			char why[256])
{
	json_error_t error;
	json_t *object = json_loadb(text.at, text.len, JSON_REJECT_DUPLICATES, &error);
	const char *wrong = NULL;

	if (!object || !json_is_object(object))
		wrong = object ? "a line is a JSON object" : error.text;
	else if (!take_members(arena, object, line))
		wrong = "key, logical_request_id, account, receipt and body are strings";
	else if (!take_status(json_object_get(object, "status"), line))
		wrong = "a status is a number from 200 to 599";
	if (wrong)
		refuse(why, line->line, wrong);
	json_decref(object);
	return !wrong;
}

static bool blank(struct span text)
{
	for (size_t i = 0; i < text.len; i++)
		if (!text.at[i] || !strchr(" \t\r", text.at[i]))
			return false;
	return true;
}

static bool read_json(struct arena *arena, struct span text, struct report *report,
		      char why[256])
{
	for (unsigned number = 1; text.len; number++) {
		const char *end = memchr(text.at, '\n', text.len);
		struct span one = { text.at, end ? (size_t)(end - text.at) : text.len };
		struct report_line line = { .line = number };

		text.at += one.len + (end != NULL);
		text.len -= one.len + (end != NULL);
		if (!blank(one) &&
		    (!read_object(arena, one, &line, why) || !add(report, &line, why)))
			return false;
	}
	return true;
}

bool report_read(struct arena *arena, struct span text, struct report *report, char why[256])
{
	size_t first = 0;

	*report = (struct report){ NULL, 0, 0 };
	if (text.len >= 3 && memcmp(text.at, "\xef\xbb\xbf", 3) == 0)
		text = (struct span){ text.at + 3, text.len - 3 };
	while (first < text.len && text.at[first] && strchr(" \t\r\n", text.at[first]))
		first++;
	if (first == text.len) { /* an export that failed says nothing of what was executed */
		snprintf(why, 256, "the file is empty");
		return false;
	}
	if (text.at[first] == '{')
		return read_json(arena, text, report, why);
	return read_csv(arena, text, report, why);
}
