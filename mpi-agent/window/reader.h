/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_WINDOW_READER_H
#define MPI_AGENT_WINDOW_READER_H

/* What the daemon wants out of other nodes' segments: lists of ranges, fetched into the memory that it shares with us. */

#include "mpi-agent/window/arena.h"
#include "mpi-agent/window/control.h"
#include "mpi-agent/window/near.h"

struct reader;

struct reader_options {
	struct arena *arena; /* borrowed */
	struct near *near;   /* borrowed; NULL: all is got through MPI */
	uint8_t *memory;     /* borrowed: where the bytes go */
	uint64_t memory_bytes;
	uint32_t self, num_ranks;
	struct control_sender sender;
	void (*reading)(uint32_t rank, void *arg);       /* a get from it is under way: it must look at MPI */
	void (*read)(uint32_t rank, void *arg);          /* a get from it has ended: it was awake */
	void (*got)(uint64_t id, int status, void *arg); /* once for each list */
	void *arg;
};

int reader_create(const struct reader_options *opt, struct reader **ret);
/*
 * The daemon has gone: got() tells nothing more of its lists, and ranges that MPI has not begun end. Those that it has begun still go into the memory
 * of that daemon, for as long as reader_reads_old(). 0 or -errno of sending.
 */
int reader_abandon(struct reader *r);
bool reader_reads_old(const struct reader *r);
void reader_set_memory(struct reader *r, uint8_t *memory, uint64_t bytes); /* of a new daemon, after reader_abandon */
void reader_destroy(struct reader *r);                                     /* lists that are under way are forgotten */

/*
 * One range, as WIRE_PEER_GET names it, with the holder's rank in place of its node. READER_NO_RANK: there is no such node.
 */
struct reader_range {
	uint32_t rank, segment;
	uint64_t off, to;
	uint32_t len;
};
#define READER_NO_RANK UINT32_MAX

/* Fetches num ranges. What is wrong with them is told by got(), perhaps before this returns. 0, -ENOMEM, or -errno of sending. */
int reader_get(struct reader *r, uint64_t id, const struct reader_range *ranges, size_t num);
/* ANSWER and RETIRE of a rank. */
int reader_on_control(struct reader *r, uint32_t rank, const struct control *m);
/* How many gets have begun or ended, or files been read, or an error. */
int reader_step(struct reader *r, struct cistern_error *err);
bool reader_busy(const struct reader *r);

#endif
