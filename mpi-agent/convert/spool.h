/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_CONVERT_SPOOL_H
#define MPI_AGENT_CONVERT_SPOOL_H

/*
 * Ranges of a file on their way into it: memory for two, so that a thread writes one while the next is put together. What nobody has
 * touched is not written, and stays a hole; the blocks of that are SPOOL_BLOCK bytes, at multiples of it in the file. All calls
 * from one thread.
 */

#include <stddef.h>
#include <stdint.h>

#include "cistern/error.h"

#define SPOOL_BLOCK 4096u
#define SPOOL_MARGIN \
	64u /* bytes of memory before and behind a range that may be written: an element may lie across its ends */

struct spool;

struct spool_range {
	uint64_t from, to;
	uint8_t *memory;  /* owned by the spool */
	uint8_t *touched; /* the same; one for each block */
};

/* fd: borrowed; name: borrowed, for messages; ranges have at most bytes. -ENOMEM */
int spool_create(int fd, const char *name, uint64_t bytes, struct spool **ret);
void spool_destroy(struct spool *s); /* waits for what is being written; NULL is fine */
/* Memory for [from, to), good until it is handed over. What was not touched is anything. */
struct spool_range *spool_begin(struct spool *s, uint64_t from, uint64_t to);
/* [off, off + len), as far as it is in the range, is going to be written by the caller: the rest of its blocks becomes zeros. */
void spool_touch(struct spool_range *r, uint64_t off, uint64_t len);
/* Hands the range over. An error may be that of an earlier one. */
int spool_write(struct spool *s, struct spool_range *r, struct cistern_error *err);
/* All that was handed over is in the file, or its error is told. */
int spool_finish(struct spool *s, struct cistern_error *err);

static inline uint8_t *spool_at(const struct spool_range *r, uint64_t off)
{
	return r->memory + SPOOL_MARGIN + (int64_t)(off - r->from);
}

#endif
