/* Idempotency-Key (CONTRACT 1, 2.3): what the client sent becomes the key's bytes. Pure. */
#pragma once
#include "http.h"

enum key_syntax { KEY_ANY, KEY_STRUCTURED, KEY_BARE };
enum key_format { KEY_FORMAT_ANY, KEY_FORMAT_UUID };
enum key_found { KEY_FOUND, KEY_MISSING, KEY_INVALID };

/* How a key must be written. */
struct key_form {
	enum key_syntax syntax;
	enum key_format format;
};

/*
 * The key in the field of that name.
 * KEY_FOUND: *key holds 1-255 bytes of %x21-7E, unescaped; quoted and bare spellings give the
 * same. KEY_INVALID: *why is a sentence. The value is in the arena or the field itself.
 */
enum key_found key_of(const struct http_request *request, struct span name,
		      struct key_form form, struct span *key, const char **why) MUST_CHECK;
/* One value of whatever source. */
bool key_read(struct arena *arena, struct span value, struct key_form form, struct span *key,
	      const char **why) MUST_CHECK;
/* One field value. */
bool key_parse(struct arena *arena, struct span value, enum key_syntax syntax, struct span *key,
	       const char **why) MUST_CHECK;
/* The 48-bit milliseconds of a UUIDv7 or ULID key; false where it is neither (DESIGN 5). */
bool key_time(struct span key, uint64_t *milliseconds) MUST_CHECK;
