/* What strangers can make large in a body: numbers, objects, depth; and what that costs. */
#include "canonical_rig.h"

#include <sys/mman.h>
#include <unistd.h>

START_TEST(numbers_have_at_most_a_thousand_digits)
{
	struct {
		const char *before, *fill;
		size_t n;
		const char *after;
		bool taken;
	} cases[] = {
		{ "", "7", 1000, "", true },          { "", "7", 1001, "", false },
		{ "1", "0", 999, "", true },          { "1", "0", 1000, "", false },
		{ "0.", "7", 1000, "", true },        { "0.", "7", 1001, "", false },
		{ "0.", "0", 5000, "12", true },      { "0.", "0", 5000, "", true },
		{ "7.", "7", 999, "", true },         { "7.", "7", 1000, "", false },
		{ "1.", "0", 999, "", true },         { "1.", "0", 1000, "", false },
		{ "0.", "0", 10000, "1", false },     { "0.", "0", 10000, "1e2", true },
		{ "-", "7", 1000, "e-999", true },    { "1e", "9", 2000, "", false },
		{ "0.", "0", 9999, "1e10000", true },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct canonical_error error = { 0 };
		struct to_buf to;
		struct buf buf;
		struct span body = long_body(&buf, cases[i].before, cases[i].fill, cases[i].n,
					     cases[i].after);

		ck_assert_msg(canonical(body, &to, &error) == cases[i].taken, "case %zu", i);
		if (!cases[i].taken)
			ck_assert_ptr_nonnull(strstr(error.expected, "1,000 digits"));
		buf_fini(&to.buf);
		buf_fini(&buf);
	}
}
END_TEST

START_TEST(exponents_beyond_9999_are_refused)
{
	const char *const beyond[] = { "1e10000", "1e-10000",
				       "10e9999", "0.1e-9999",
				       "12e9999", "-1e999999999999999999999999999999" };

	for (size_t i = 0; i < ARRAY_LEN(beyond); i++)
		refused(beyond[i], 0, "its exponent within 9,999");
	becomes("12e9998", "12e9998");
	becomes("1.2e9999", "12e9998");
	becomes("1.2e-9999", "12e-10000");
	becomes("12e-10000", "12e-10000");
}
END_TEST

START_TEST(a_name_may_not_come_twice_among_thousands)
{
	struct buf buf;

	buf_init(&buf, SIZE_MAX / 2);
	buf_byte(&buf, '{');
	for (unsigned i = 0; i < 5000; i++)
		buf_format(&buf, "\"n%u\":%u,", i * 7919 % 5000, i);
	buf_text(&buf, "\"n17\":0}");
	refused_bytes(buf_view(&buf), buf.len - 8, "a name that the object does not have yet");
	buf_fini(&buf);
}
END_TEST

START_TEST(depth_is_bounded)
{
	struct buf buf;

	long_body(&buf, "", "[", 128, "");
	for (unsigned i = 0; i < 128; i++)
		buf_byte(&buf, ']');
	becomes_bytes(buf_view(&buf), buf_view(&buf));
	buf_fini(&buf);
	refused_bytes(long_body(&buf, "", "[", 129, ""), 128, "no more than 128 levels");
	buf_fini(&buf);
	refused_bytes(long_body(&buf, "", "[", 1000000, ""), 128, "no more than 128 levels");
	buf_fini(&buf);
	long_body(&buf, "", "{\"a\":", 128, "0");
	for (unsigned i = 0; i < 128; i++)
		buf_byte(&buf, '}');
	becomes_bytes(buf_view(&buf), buf_view(&buf));
	buf_fini(&buf);
	refused_bytes(long_body(&buf, "", "{\"a\":", 129, "0"), 640, "no more than 128 levels");
	buf_fini(&buf);
}
END_TEST

/* Bodies that need the most memory: canonical() compares what they took. */
START_TEST(memory_is_at_most_twelve_bytes_a_byte)
{
	const char *const fills[] = { "{\"b\":0,\"\":0},",
				      "{\"b\":0,\"a\":{\"b\":0,\"\":0}},",
				      "{\"\":0},",
				      "[],",
				      "1e1,",
				      "{\"a\":[{\"b\":0,\"\":0}],\"\":0}," };
	const size_t times[] = { 1, 10, 100, 1000, 3000, 100000 };
	struct canonical_error error;
	struct to_buf to;
	struct buf buf;

	for (size_t i = 0; i < ARRAY_LEN(fills) * ARRAY_LEN(times); i++) {
		long_body(&buf, "[", fills[i % ARRAY_LEN(fills)], times[i / ARRAY_LEN(fills)],
			  "0]");
		ck_assert(canonical(buf_view(&buf), &to, &error));
		buf_fini(&to.buf);
		buf_fini(&buf);
	}
	for (unsigned n = 10; n <= 1000000; n *= 10) { /* one flat object, backwards */
		long_body(&buf, "{", "", 0, "");
		for (unsigned i = n; i > 0; i--)
			buf_format(&buf, "\"%x\":0,", i);
		buf_text(&buf, "\"\":0}");
		ck_assert(canonical(buf_view(&buf), &to, &error));
		buf_fini(&to.buf);
		buf_fini(&buf);
	}
}
END_TEST

START_TEST(the_sink_is_called_seldom)
{
	struct canonical_error error;
	struct to_buf to;
	struct buf buf;

	long_body(&buf, "[", "{\"b\":12345,\"a\":\"some text\"},", 10000, "0]");
	ck_assert(canonical(buf_view(&buf), &to, &error));
	ck_assert_uint_le(to.puts, buf.len / 4000 + 2);
	buf_fini(&to.buf);
	buf_fini(&buf);
	long_body(&buf, "[", "{\"a\":12345,\"b\":\"some text\"},", 10000, "0]");
	ck_assert(canonical(buf_view(&buf), &to, &error));
	ck_assert_uint_eq(to.puts, 1);
	buf_fini(&to.buf);
	buf_fini(&buf);
}
END_TEST

/* The same pages again and again, so that no memory is needed. */
START_TEST(doubles_that_become_too_long_are_refused)
{
	enum { PAGES = 1 << 22, TIMES = 220 };
	int file = memfd_create("body", 0);
	char *fill = mem_alloc(PAGES);
	char *at = mmap(NULL, (size_t)PAGES * TIMES, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct canonical_task task = { .arena = arena_new(), .numbers = CANONICAL_IEEE754 };
	struct canonical_error error = { 0 };
	struct to_buf to = { .sink = { put } };

	memset(fill, ' ', PAGES);
	for (size_t i = 0; i + 4 <= PAGES; i += 4)
		memcpy(fill + i, "1e1,", 4);
	ck_assert_int_eq(write(file, fill, PAGES), PAGES);
	for (size_t i = 0; i < TIMES; i++)
		ck_assert_ptr_ne(mmap(at + i * PAGES, PAGES, PROT_READ, MAP_PRIVATE | MAP_FIXED,
				      file, 0),
				 MAP_FAILED);
	task.body = (struct span){ at, (size_t)PAGES * TIMES };
	ck_assert(!canonical_json(&task, &to.sink, &error));
	ck_assert_str_eq(error.expected, "numbers of less than 4 GiB");
	munmap(at, (size_t)PAGES * TIMES);
	close(file);
	mem_free(fill);
	arena_free(task.arena);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		numbers_have_at_most_a_thousand_digits,    exponents_beyond_9999_are_refused,
		a_name_may_not_come_twice_among_thousands, depth_is_bounded,
		memory_is_at_most_twelve_bytes_a_byte,     the_sink_is_called_seldom,
		doubles_that_become_too_long_are_refused,
	};

	return run("canonical limits", tests, ARRAY_LEN(tests));
}
