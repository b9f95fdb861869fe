/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_CONVERT_SUBFILE_H
#define MPI_AGENT_CONVERT_SUBFILE_H

/* One blob subfile of either form: what its header says, where in the file each blob's part of each variable lies, and the
 * runs of its maps, checked. */

#include <stdbool.h>
#include <stdint.h>

#include "format/codec/blob.h"
#include "mpi-agent/plan/runs.h"

struct subfile {
	char *path;      /* owned */
	uint32_t number; /* in its set, from 0 */
	int fd;          /* owned; -1: none */
	uint64_t size;
	bool process_centric;
	bool little_endian; /* the data */
	uint64_t data_off;  /* process-centric: where in the file data_blob lies */
	struct blob_head head;
	struct blob_table table;   /* process-centric; sorted by blob, variable, record */
	struct blob_share *shares; /* owned; [map * nblobs + blob] */
	struct runs_index *runs;   /* owned; the same */
	const uint8_t *mapped;     /* owned; the whole file, for the runs */
	uint8_t *made;             /* owned; instead, the runs of a subfile that is being made */
};

/* Open, recognise by its first bytes and check all of it but the values. 0; -EBADMSG and other errors: *err names the file.
 * The caller closes. */
int subfile_open(const char *path, struct subfile *ret, struct cistern_error *err);
void subfile_close(struct subfile *f); /* NULL is fine */
/* The lengths and types of the maps' variables, once shares are there: fills runs. base: where the arrays lie. */
int subfile_index(struct subfile *f, const uint8_t *base, struct cistern_error *err);
void subfile_sort_table(struct subfile *f);

#define SUBFILE_NOWHERE UINT64_MAX

/* Where in the file a blob's part of a record of a variable of the subfile's header begins; SUBFILE_NOWHERE: it has none. Without
 * a map: where the whole is, and blob must be 0. */
uint64_t subfile_off(const struct subfile *f, uint32_t var, uint64_t record, uint32_t blob);

static inline const struct blob_share *subfile_share(const struct subfile *f, uint32_t map, uint32_t blob)
{
	return &f->shares[(size_t)map * f->head.nblobs + blob];
}

static inline const struct runs_index *subfile_runs(const struct subfile *f, uint32_t map, uint32_t blob)
{
	return &f->runs[(size_t)map * f->head.nblobs + blob];
}

#endif
