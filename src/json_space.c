/*
 * White space between the parts of JSON. Bodies that are written for people have long runs of
 * spaces at the beginning of lines: they are taken eight at a time.
 */
#include "json_reader.h"

static const char *spaces(const char *at, const char *end)
{
	while (end - at >= 8) {
		uint64_t other = reader_load(at) ^ READER_EACH(' ');

		if (other)
			return at + (__builtin_ctzll(other) >> 3);
		at += 8;
	}
	while (at < end && *at == ' ')
		at++;
	return at;
}

const char *reader_skip(const char *at, const char *end)
{
	while (at < end) {
		if (*at == ' ')
			at = spaces(at, end);
		else if (*at == '\n' || *at == '\r' || *at == '\t')
			at++;
		else
			break;
	}
	return at;
}
