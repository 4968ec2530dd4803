/*
 * Plays files through a fuzz target without a fuzzer: whatever was found once is tried again by
 * `make test`. Arguments: files, or nothing.
 */
#include "mem.h"

#include <stdio.h>

#define INPUT_MAX (16U << 20)

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static bool play(const char *name)
{
	struct buf input;
	FILE *file = fopen(name, "rb");
	char *room;
	size_t got;

	if (!file) {
		fprintf(stderr, "%s cannot be read\n", name);
		return false;
	}
	buf_init(&input, INPUT_MAX);
	do {
		room = buf_reserve(&input, 4096);
		got = room ? fread(room, 1, 4096, file) : 0;
		input.len += got;
	} while (got);
	fclose(file);
	(void)LLVMFuzzerTestOneInput((const uint8_t *)(input.at ? input.at : ""), input.len);
	buf_fini(&input);
	return true;
}

int main(int argc, char **argv)
{
	int played = 0, failed = 0;

	for (int i = 1; i < argc; i++) {
		if (play(argv[i]))
			played++;
		else
			failed++;
	}
	printf("%d passed, %d failed\n", played, failed);
	return failed != 0;
}
