/*
 * Fuzzes the reader of multipart bodies: a line with a boundary, then a body. What stands before
 * and behind its parts changes nothing. Every byte of a part's content reaches the canonical form
 * once, so that is hardly longer than the body.
 */
#include "canonical_fuzzing.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static void surround(struct buf *out, struct span body)
{
	buf_init(out, SIZE_MAX / 2);
	buf_text(out, "before\r\n");
	buf_span(out, body);
	buf_text(out, "\r\nbehind");
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	struct span body = { (const char *)bytes, len };
	struct span boundary = fuzzed_line(&body);
	struct buf type, other;
	struct canonical_task task = { .body = body };
	struct fuzzed first, again;

	buf_init(&type, SIZE_MAX / 2);
	buf_text(&type, "multipart/form-data; boundary=");
	buf_span(&type, boundary);
	task.content_type = buf_view(&type);
	if (fuzzed("multipart", task, &first) && first.buf.len) {
		assert(first.buf.len <= 8 * body.len + 64);
		surround(&other, body);
		task.body = buf_view(&other);
		if (!memmem("before behind", 13, boundary.at, boundary.len)) {
			bool done = fuzzed("multipart", task, &again);

			assert(done && span_equal(buf_view(&first.buf), buf_view(&again.buf)));
			buf_fini(&again.buf);
		}
		buf_fini(&other);
	}
	buf_fini(&first.buf);
	buf_fini(&type);
	return 0;
}
