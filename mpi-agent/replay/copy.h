/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_REPLAY_COPY_H
#define MPI_AGENT_REPLAY_COPY_H

/* Moves the bytes of one file: reads windows from the segments, checks, writes. Called from the session's thread. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/manifest/manifest.h"
#include "mpi-agent/replay/session.h"
#include "mpi-agent/sink/sink.h"

struct copier;

int copier_create(struct session *s, struct copier **ret);
void copier_destroy(struct copier *c); /* NULL is fine */

struct copy_job {
	const struct inode *in; /* borrowed */
	struct sink_file *to;   /* borrowed */
	struct sink_file *base; /* borrowed; the backing file, where its bytes are wanted; NULL: it is not there */
	uint64_t from, end;     /* bytes of the file; from is a multiple of EXTENT_PAGE_SPAN */
	bool in_place;          /* holes are punched; only written ranges count in the checksum */
	bool want_base;         /* what the backing file shows is written, too */
	bool shared;            /* by the share map */
	bool head_last;         /* the file's first block is written behind all others (one window) */
	const char *path;       /* for people */
	/* results; zero to begin with */
	uint32_t crc;              /* of the file's bytes, or of the written ranges, in the order of the file */
	uint64_t crc_bytes;        /* how many those are */
	uint32_t crc_sum;          /* shared: of the written ranges in their places in the file (crc32c_part) */
	uint64_t run_off, run_end; /* shared: what was written last, without a gap, is not in crc_sum yet */
	uint32_t run_crc;          /* crc before it */
	uint64_t written, extents;
	struct manifest_range *missing; /* owned by the caller (free): of base, or of lost stores */
	size_t num_missing;
	bool short_private;         /* the private segment shrank while it was read */
	uint64_t out_from, out_end; /* written and not yet put on its way to the device */
	char error_text[448];       /* says more about a failure, or "" (VERIFY_TEXT_BYTES) */
};

/*
 * 0; -EBADMSG: a payload is damaged (error_text says which), its window was not written; errors of the sink and of the
 * segments; what ended the session (s->fatal).
 */
int copy_run(struct copier *c, struct copy_job *job);
/* CRC32C of what the destination holds where copy_run wrote (in place) or in [0, job->end) (else), and of how many bytes. */
int copy_read_back(struct copier *c, const struct copy_job *job, uint32_t *ret_crc, uint64_t *ret_bytes);

/*
 * Reads payload and destination again and compares them: each(first different byte of a piece's MiB); holes of files that are
 * made whole are compared with zeros. Slow; for messages. 0; what each returned if not 0; errors of reading.
 */
int copy_compare(struct copier *c, const struct copy_job *job, int (*each)(uint64_t off, void *arg), void *arg);

#endif
