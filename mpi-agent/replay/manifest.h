/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_REPLAY_MANIFEST_H
#define MPI_AGENT_REPLAY_MANIFEST_H

/*
 * The manifest: what became of each file. A log of one line (JSON) per file and drain, to which lines are only ever
 * appended, and a summary made from it at the end of a session: the last line of each path, totals, errors.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cistern/error.h"

#define MANIFEST_VERSION 1

struct manifest;

struct manifest_range {
	uint64_t off, len;
};

struct manifest_file {
	const char *path;  /* in the mount */
	const char *state; /* "drained", "verified", "failed" or "dirty" */
	uint64_t size, bytes_written, extents;
	bool has_checksum;
	uint32_t crc;         /* CRC32C */
	bool of_file;         /* of the whole file; else of the written ranges in the order of the file */
	const char *conflict; /* NULL: none */
	const char *warning;  /* NULL: none */
	int error;            /* negative errno, 0: none */
	const char *error_text;
	const struct manifest_range *missing; /* bytes of the backing file that were not there to be read */
	size_t num_missing;
};

struct manifest_session {
	const char *store_uuid, *job, *backing, *destination;
	uint32_t node;
	uint64_t session;
	int64_t started_ns, ended_ns;
	int result; /* enum cistern_exit */
	uint64_t files, bytes, names_moved, names_removed, failed, missing_bytes;
};

/* log_path: the log to append to; NULL: one that lives as long as the session. */
int manifest_open(const char *log_path, struct manifest **ret, struct cistern_error *err);
void manifest_close(struct manifest *m); /* NULL is fine */
void manifest_add_file(struct manifest *m, const struct manifest_file *f);
void manifest_add_removed(struct manifest *m, const char *path);
void manifest_add_moved(struct manifest *m, const char *from, const char *to);
/* Makes the log durable and writes the summary to path (temporary, fsync, rename). Errors of earlier calls come out here. */
int manifest_write(
	struct manifest *m, const struct manifest_session *session, const char *path, struct cistern_error *err);

#endif
