/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_REPLAY_BLOB_WRITER_H
#define MPI_AGENT_REPLAY_BLOB_WRITER_H

/* Subfiles that are being written: blob_write.c makes and publishes them, blob_head.c writes their headers and maps, blob_values.c the blobs. */

#include "mpi-agent/replay/blobs.h"

#define BLOB_BLOCK_BYTES (1u << 20) /* of payload that is read and kept */

struct piece_written {
	uint64_t off;
	size_t len;
	uint32_t crc;
};

struct blob_subfile {
	uint32_t first, num; /* its streams */
	struct classic header;
	struct blob_process *process; /* owned; NULL: variable-centric */
	struct sink_file *f;          /* owned */
	char *temp, *final;           /* owned: paths in the destination */
	uint64_t **starts; /* owned: for each map, of each of its streams: where its blob begins, in elements */
	uint8_t *buf;      /* owned: what it has of the variable at hand */
	struct piece_written *pieces; /* owned: what was written, where all is read back */
	size_t num_pieces, cap_pieces;
	uint64_t written, begun; /* bytes; those of which the device was told */
};

struct blob_block {
	uint8_t *data; /* owned; NULL: not used yet */
	uint64_t at;
	uint32_t segment; /* 0: nothing */
	size_t len;
};

struct blob_writer {
	struct session *s;
	const struct inode *in;
	struct blob_plan *plan;
	enum drain_layout layout;
	struct blob_subfile *sub; /* owned */
	uint32_t num_subfiles;
	size_t buf_bytes; /* of each sub's buf */
	struct decomp_order *order;
	struct blob_block *blocks; /* owned */
	uint32_t num_blocks;
	int fd; /* of the segment last asked for, -1 */
	uint32_t fd_segment;
	/* the variable at hand */
	uint32_t var; /* DECOMP_NO_MAP: none */
	uint64_t record;
	size_t run; /* of its map: none before it is still of use */
	char *why;
	struct attrs_warning warning; /* of the first subfile */
};

struct blob_target {
	struct blob_writer *w;
	struct blob_subfile *sub;
};

/* blob_write.c. Notes it for reading back, where that is wanted. 0 or -errno. */
int blob_sub_write(struct blob_writer *w, struct blob_subfile *sub, const void *buf, size_t len, uint64_t off);
int blob_put_to_target(
	const void *bytes, size_t len, uint64_t off, void *arg); /* the same; arg: a struct blob_target */
/* blob_head.c: what is in front of the blobs. 0 or -errno; sub's header, then in the process-centric form its frame, then both written. */
int blob_make_subfile(struct blob_writer *w, struct blob_subfile *sub);
int blob_make_process(struct blob_writer *w, struct blob_subfile *sub);
int blob_put_head(struct blob_writer *w, struct blob_subfile *sub);
uint64_t blob_subfile_bytes(const struct blob_subfile *sub); /* when it is whole */
/* blob_values.c: all values of all subfiles. 0; -EBADMSG, -errno, and w->why may say more. */
int blob_put_values(struct blob_writer *w);

#endif
