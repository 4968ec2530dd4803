/*
 * Fuzzes rules: lines of `ignore`, an empty line, lines of `only`, an empty line, a line of
 * defaults, then a body, which is read as JSON and as a form. What comes out is canonical. What
 * rules refuse changes nothing but which rules there are.
 */
#include "canonical_fuzzing.h"
#include "canonical_rules.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static void read_list(struct canonical_rules *rules, struct span *rest,
		      const char *(*add)(struct canonical_rules *rules, struct span pointer))
{
	for (unsigned i = 0; rest->len && i < CANONICAL_POINTERS_MAX; i++) {
		struct span line = fuzzed_line(rest);

		if (!line.len)
			return;
		(void)add(rules, line);
	}
}

static void check(const char *kind, const struct canonical_rules *rules, struct span body)
{
	struct canonical_task task = { .body = body, .rules = rules };
	struct fuzzed first, again, plain;
	bool done = false, valid = false;

	done = fuzzed(kind, task, &first);
	task.rules = NULL;
	valid = fuzzed(kind, task, &plain); /* rules make nothing valid, and nothing invalid */
	assert(done == valid);
	if (done) {
		task.body = buf_view(&first.buf);
		done = fuzzed(kind, task, &again);
		assert(done && span_equal(buf_view(&first.buf), buf_view(&again.buf)));
		buf_fini(&again.buf);
	}
	buf_fini(&first.buf);
	buf_fini(&plain.buf);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	struct arena *arena = arena_new();
	struct canonical_rules *rules = canonical_rules_new(arena, CANONICAL_EXACT);
	struct span rest = { (const char *)bytes, len };
	struct canonical_error error;
	struct buf text;

	read_list(rules, &rest, canonical_rules_ignore);
	read_list(rules, &rest, canonical_rules_only);
	if (!canonical_rules_defaults(rules, fuzzed_line(&rest), &error))
		assert(error.expected);
	buf_init(&text, SIZE_MAX / 2);
	canonical_rules_text(rules, &text);
	buf_fini(&text);
	check("json", rules, rest);
	check("form", rules, rest);
	arena_free(arena);
	return 0;
}
