/* Any bytes into a buf, escaped; see escaped.h. */
#include "escaped.h"

#include "escape.h"

void escaped_put(struct buf *out, struct span text, bool quoted)
{
	char piece[ESCAPE_MAX];

	while (text.len > 0)
		buf_append(out, piece, escape_next(&text, quoted, piece));
}

void escaped_string(struct buf *out, struct span text)
{
	buf_byte(out, '"');
	escaped_put(out, text, true);
	buf_byte(out, '"');
}
