/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_REPLAY_COPY_PRIVATE_H
#define MPI_AGENT_REPLAY_COPY_PRIVATE_H

/* What the carrier's files share: copy_read.c fills windows, copy.c writes them, copy_back.c reads the destination back. */

#include <pthread.h>

#include "format/base/idmap.h"
#include "mpi-agent/plan/window.h"
#include "mpi-agent/replay/copy.h"
#include "mpi-agent/replay/fetch.h"

struct copy_buffer {
	uint8_t *data; /* owned; NULL until first used */
	struct window w;
};

struct later {        /* a read that has to be waited for */
	uint32_t at;  /* in the order */
	uint32_t got; /* bytes of it that are there */
};

struct together; /* copy_read.c: reads that go by one call */

struct copier {
	struct session *s;       /* borrowed */
	uint32_t node;           /* whose store it is */
	struct fetches *fetches; /* owned */
	uint32_t *remote;        /* owned, WINDOW_PIECES_MAX entries: pieces that are fetched */
	uint32_t num_remote;
	uint64_t asked_usec; /* CLOCK_MONOTONIC: when the places that are fetched were right */
	size_t buffer_bytes;
	unsigned int num_buffers;
	struct copy_buffer buffers[2];
	struct together *together; /* owned */
	uint32_t *order;           /* owned: WINDOW_PIECES_MAX entries, as has later */
	struct later *later;       /* owned */
	struct idmap fds;          /* segment + 1 -> fd + 1 */
	size_t max_fds;
	pthread_t writer;
	bool has_writer;
	pthread_mutex_t lock;
	pthread_cond_t wake_writer, wake_reader;
	/* under lock */
	struct copy_job *job;
	struct copy_buffer *next;
	bool stop;
	int write_error;
	/* of the session's thread again */
	uint32_t num_runs;   /* reads that the last window took */
	uint32_t num_local;  /* of these, in this store */
	uint32_t num_waited; /* of those, not in memory */
};

/* The windows of a file: by its extents, or by the data that its private segment holds. */
struct copy_source {
	struct window_plan *plan; /* owned; NULL: private */
	int fd;
	uint32_t segment, node;
	uint64_t pos, end;
};

/* ---- copy_read.c */

/* The windows of the job's file. The caller ends it with window_plan_destroy(src.plan). 0; errors of the index and the segments. */
int copy_source_open(struct copier *c, const struct copy_job *job, struct copy_source *ret);
/* *w: the next window of cap bytes at most; nothing in it, and *ret_last: it was the end. */
int copy_source_next(struct copy_source *src, size_t cap, struct window *w, bool *ret_last);
/* The bytes of b's window, checked, accounted for in the job; as copy_run(). */
int copy_read_window(struct copier *c, struct copy_job *job, struct copy_buffer *b);
/* Its payload is there, unchecked. -ENOENT: a segment of another node is not. */
int copy_read_log(struct copier *c, struct copy_job *job, struct copy_buffer *b);
/* -EBADMSG: it is not what its checksum, where it has one, says. *ret_crc: that, or 0. */
int copy_check_piece(struct copy_job *job, const struct copy_buffer *b, const struct piece *p, uint32_t *ret_crc);
/* At the end of a shared file: its last run belongs to the checksum, too. */
void copy_end_run(struct copy_job *job);
/* Only a lost store had it: it is not written. */
bool copy_is_lost_piece(const struct copier *c, const struct copy_job *job, const struct piece *p);
void copy_close_fds(struct copier *c);
int together_create(struct together **ret); /* 0, -ENOMEM */
void together_destroy(struct together *t);  /* NULL is fine */

/* ---- copy_fresh.c */

/*
 * Behind copy_read_log() of a window, which said r: what came of other nodes may have been given back meanwhile, and is fetched from where it is
 * now. r; -EBUSY, without error_text: some of it is nowhere, or elsewhere again and again.
 */
int copy_freshen(struct copier *c, struct copy_job *job, struct copy_buffer *b, int r);

/* ---- copy.c */

int copy_prepare_buffer(struct copier *c, struct copy_buffer *b); /* its memory. 0; -errno */

#endif
