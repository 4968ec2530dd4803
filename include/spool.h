/*
 * Answers of upstreams that PostgreSQL has not taken yet, on disk: a directory of files, each one
 * answer, which a later process reads and settles. spool_file.c is the format, spool.c the
 * directory and its thread. Nobody here knows what a ledger is.
 *
 * Put and drop return at once; a thread of the spool's own writes, syncs and removes, in the order
 * in which it was told. Whoever forwards never waits for a disk.
 */
#pragma once
#include "mem.h"

/* What a file says. Bytes that are NULL are none, which is not the same as empty ones. */
struct spool_answer {
	int64_t op_id, writer;
	int32_t day;
	unsigned generation, kind, status;  /* kind as in the ledger's events */
	bool receipt_unique, at_least_once; /* what its route says */
	int64_t retention_ms, tombstone_ms;
	unsigned char key_hash[16];
	struct span account, operation, key, fields, body, receipt, note;
};

/* Appends a file's bytes. */
void spool_encode(const struct spool_answer *answer, struct buf *out);
/* The spans lie in `bytes`. False and why where it is no whole answer of a version that we know. */
bool spool_decode(struct span bytes, struct spool_answer *answer, const char **why) MUST_CHECK;

#define SPOOL_NAME 64 /* bytes of a file's name, NUL included */

struct spool;
/* Locks the directory, makes it where it is missing, and starts the thread. NULL and a sentence
 * where it cannot be used or another process uses it. */
struct spool *spool_open(const char *dir, char why[256]) MUST_CHECK;
void spool_close(struct spool *spool); /* when everything told is done */

/* From any thread. What is put is copied; what is dropped need not be there. */
void spool_put(struct spool *spool, const struct spool_answer *answer);
void spool_drop(struct spool *spool, int64_t op_id, unsigned generation);
size_t spool_waiting(struct spool *spool); /* told and not done yet */

/*
 * What earlier processes left, for one thread that settles it. spool_look lists the files that are
 * none of this process's and says how many there are; spool_next takes the next off that list.
 */
size_t spool_look(struct spool *spool);
bool spool_next(struct spool *spool, char name[SPOOL_NAME]) MUST_CHECK;
enum spool_read {
	SPOOL_READ,
	SPOOL_GONE, /* somebody took it away */
	SPOOL_BAD,  /* cut, changed, or of a later version */
	SPOOL_LATER /* the disk does not give it now */
};
/* The answer's spans lie in `bytes`, which the caller frees, whatever comes back. */
enum spool_read spool_read(struct spool *spool, const char *name, struct buf *bytes,
			   struct spool_answer *answer, const char **why) MUST_CHECK;
void spool_remove(struct spool *spool, const char *name);
/* Never to be looked at again, and kept for people: NAME.bad. */
void spool_set_aside(struct spool *spool, const char *name, const char *why);
