/*
 * What commands read beside their options: files, standard input, and header fields as people
 * write them.
 */
#include "cli_internal.h"

#include <errno.h>
#include <stdio.h>

#define PIECE 65536U

const char *cli_file_name(const char *name)
{
	return strcmp(name, "-") == 0 ? "standard input" : name;
}

static bool read_stream(FILE *file, const char *name, struct buf *out)
{
	size_t n = 1;

	while (n > 0) {
		char *at = buf_reserve(out, PIECE);

		if (!at)
			break; /* it is as large as that */
		n = fread(at, 1, PIECE, file);
		out->len += n;
	}
	if (ferror(file))
		cli_failed("%s cannot be read: %s", name, strerror(errno));
	return !ferror(file);
}

bool cli_read(const char *name, size_t max, struct buf *out, bool *too_large)
{
	bool standard = strcmp(name, "-") == 0;
	FILE *file = standard ? stdin : fopen(name, "rb");
	bool good = false;

	if (!file) {
		cli_failed("%s cannot be opened: %s", name, strerror(errno));
		return false;
	}
	buf_init(out, max + PIECE);
	good = read_stream(file, cli_file_name(name), out);
	if (!standard)
		fclose(file);
	*too_large = out->len > max;
	if (!good)
		buf_fini(out);
	return good;
}

bool cli_header(struct http_fields *fields, const char *text)
{
	struct span name = { text, strcspn(text, ":") };
	struct span value = { NULL, 0 };

	if (text[name.len] == ':') {
		value = span_of(text + name.len + 1);
		while (value.len && (value.at[0] == ' ' || value.at[0] == '\t'))
			value.at++, value.len--;
		while (value.len &&
		       (value.at[value.len - 1] == ' ' || value.at[value.len - 1] == '\t'))
			value.len--;
	}
	if (!value.at || !http_token(name) || !http_field_value(value)) {
		cli_failed("--header \"%s\": write \"NAME: VALUE\"", text);
		return false;
	}
	http_add(fields, name, value);
	return true;
}
