/*
 * Published test vectors that lie beside the project, not in it: $ONCEWARD_CORPORA, or
 * ../shared/corpora. A test that finds none says so and passes.
 */
#pragma once
#include "mem.h"

#include <jansson.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>

/* The JSON file, to be released with json_decref; NULL where it is not there. */
static inline json_t *corpus(const char *name)
{
	const char *folder = getenv("ONCEWARD_CORPORA");
	char path[1024];
	json_t *json = NULL;

	snprintf(path, sizeof(path), "%s/%s", folder ? folder : "../shared/corpora", name);
	json = json_load_file(path, 0, NULL);
	if (!json)
		fprintf(stderr, "skipped: no %s\n", path);
	return json;
}

static inline struct span corpus_bytes(struct arena *arena, const json_t *base64)
{
	size_t len = base64 ? json_string_length(base64) : 0;
	const unsigned char *text =
		(const unsigned char *)(len ? json_string_value(base64) : "");
	unsigned char *bytes = arena_alloc(arena, len + 4);
	int n = EVP_DecodeBlock(bytes, text, (int)len);

	while (n > 0 && len && text[--len] == '=')
		n--;
	return (struct span){ (const char *)bytes, n > 0 ? (size_t)n : 0 };
}
