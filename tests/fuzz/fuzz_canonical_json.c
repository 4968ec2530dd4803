/*
 * Fuzzes the JSON reader. What it takes becomes bytes that are no longer than the body and their
 * own canonical form; with doubles for numbers it becomes bytes that are their own canonical form,
 * too, and all that it takes so it takes exactly.
 */
#include "canonical_fuzzing.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static bool check(struct span body, enum canonical_numbers numbers)
{
	struct canonical_task task = { .body = body, .numbers = numbers };
	struct fuzzed first, again;
	bool done = fuzzed("json", task, &first);

	if (done) {
		bool same = false;

		assert(first.buf.len && (numbers || first.buf.len <= body.len));
		task.body = buf_view(&first.buf);
		same = fuzzed("json", task, &again);
		assert(same && span_equal(buf_view(&first.buf), buf_view(&again.buf)));
		buf_fini(&again.buf);
	}
	buf_fini(&first.buf);
	return done;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	struct span body = { (const char *)bytes, len };
	bool exact = check(body, CANONICAL_EXACT);
	bool doubles = check(body, CANONICAL_IEEE754);

	assert(exact || !doubles);
	return 0;
}
