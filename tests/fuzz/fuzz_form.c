/*
 * Fuzzes the reader of forms. Every body is one; its canonical form is at most three times as long,
 * and its own canonical form.
 */
#include "canonical_fuzzing.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	struct canonical_task task = { .body = { (const char *)bytes, len } };
	struct fuzzed first, again;
	bool done = fuzzed("form", task, &first);

	assert(done && first.buf.len <= 3 * len + 1);
	task.body = buf_view(&first.buf);
	done = fuzzed("form", task, &again);
	assert(done && span_equal(buf_view(&first.buf), buf_view(&again.buf)));
	buf_fini(&first.buf);
	buf_fini(&again.buf);
	return 0;
}
