/* Fuzzes the reading of cursors and ids: what is read is what its own spelling says, and no other. */
#include "cursor.h"
#include "record_id.h"

#include <assert.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static void check_base64(struct span text)
{
	unsigned char *raw = malloc(text.len + 4);
	char *again = malloc(text.len + 8);
	size_t n = 0;

	if (base64_read(text, raw, &n)) {
		assert(n <= text.len);
		base64_write(raw, n, again);
		assert(strlen(again) <= text.len && text.len - strlen(again) <= 2);
	}
	free(raw);
	free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	static const unsigned char key[16] = "0123456789abcdef";
	struct span text = { (const char *)bytes, len };
	char again[CURSOR_BYTES], id[RECORD_ID_BYTES];
	struct cursor cursor;
	int64_t op_id = 0;
	int32_t day = 0;

	check_base64(text);
	if (cursor_read(SPAN("secret of a ledger"), SPAN("list"), text, &cursor)) {
		cursor_write(SPAN("secret of a ledger"), SPAN("list"), &cursor, again);
		assert(span_equal(span_of(again), text));
	}
	if (record_id_read(key, text, &op_id, &day)) {
		record_id_write(key, op_id, day, id);
		assert(span_equal(span_of(id), text));
	}
	return 0;
}
