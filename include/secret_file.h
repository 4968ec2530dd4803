/*
 * Files of secrets (CONTRACT 14): their owner must be the user who runs the program, and nobody
 * else may read them. And how such files are cut into lines and words. Knows nothing of what
 * stands in them.
 */
#pragma once
#include "mem.h"

/* Appends the whole file. False: a sentence that says what to do, in `why`. */
bool secret_file_read(const char *file, struct buf *text, char why[256]) MUST_CHECK;
/* The next line, taken off the text's front together with its end. */
struct span secret_file_line(struct span *text);
/* The next word of a line, taken off its front; empty where there is none. */
struct span secret_file_word(struct span *line);
