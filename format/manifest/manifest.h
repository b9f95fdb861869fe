/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_MANIFEST_MANIFEST_H
#define FORMAT_MANIFEST_MANIFEST_H

/*
 * The manifest: what became of each file. A log of one line (JSON) per file and drain, to which lines are only ever
 * appended, and a summary made from it at the end of a session: the last line of each path, totals, errors.
 *
 * A job of many nodes has one: what a node's parts of a drain say is appended to node 0's log, which makes the summary.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "cistern/error.h"
#include "format/base/cursor.h"

#define MANIFEST_VERSION  1
#define MANIFEST_FILE     "manifest.json"  /* in the store: the summary, */
#define MANIFEST_LOG      "manifest.jsonl" /* the log, and, in a job of many nodes, */
#define MANIFEST_PART_LOG "manifest.part" /* what node 0 has not been told yet; with .NUMBER behind it: is being told */

/* The reason of files that keep their layout since no other one is meant for their kind. */
#define MANIFEST_KEPT_OTHER "it is no netCDF classic file"

/* What is only out of the way has such a name: it is moved there and from there to its place, which counts as one move. */
#define MANIFEST_PARKED ".cistern-park-"

struct manifest;

struct manifest_range { /* bytes that were not there to be read */
	uint64_t off, len;
	const char *node; /* borrowed: whose lost store alone had them; NULL: the backing file's */
};

struct manifest_fact { /* of what became of a file's layout */
	char name[32], value[96];
	bool is_number;
};

struct manifest_file {
	const char *path;  /* in the mount */
	const char *state; /* "drained", "verified", "failed", "dirty" or "special": not to be drained */
	uint64_t size, bytes_written, extents;
	bool has_checksum;
	uint32_t crc;         /* CRC32C */
	bool of_file;         /* of the whole file; else of the written ranges in the order of the file, or, */
	bool of_places;       /* in their places, with zeros between them */
	const char *conflict; /* NULL: none */
	const char *warning;  /* NULL: none */
	int error;            /* negative errno, 0: none */
	const char *error_text;
	const char *layout;                /* NULL: the canonical one */
	const struct manifest_fact *facts; /* about the layout */
	size_t num_facts;
	const struct manifest_range *missing;
	size_t num_missing;
};

/* Bytes of a file that two nodes of a job wrote without seeing each other's: node's count. */
struct manifest_overlap {
	uint64_t off, len;
	uint32_t node, other;
};

struct manifest_totals {
	uint64_t files, bytes; /* carried over */
	uint64_t names_moved, names_removed;
	uint64_t failed; /* paths that could not be carried over; they stay in the store */
	uint64_t missing_bytes;
	uint64_t
		late; /* came, or got their name, since the session began, and wait for the next one; not in the manifest */
};

/* Files that a mount's drains, or a recovery, have brought to their place, but not in all as was asked for. */
struct manifest_noted {
	uint64_t kept;   /* were to get another layout; those that are of no kind that has one do not count */
	uint64_t warned; /* have a warning */
	uint64_t beside; /* are under another name; all that are, whoever has told of it */
};

struct manifest_trouble { /* of a node in a session of a job */
	char *node;       /* its name */
	char *text;
};

struct manifest_session {
	const char *store_uuid, *job, *backing, *destination;
	uint32_t node;
	uint64_t session;
	int64_t started_ns, ended_ns;
	int result; /* enum cistern_exit */
	struct manifest_totals totals;
	uint64_t mark; /* how long the log was when the session began */
	/*
	 * The session has come to all that was to be carried: what the log has from before mark as failed or dirty, and has not spoken of since, has
	 * no such name any more, or is in its place. It is not listed, and the log gets a line that says so.
	 */
	bool whole;
	/* A job of many nodes; num_nodes 0: one alone. failed is then counted in what the log has got since mark. */
	const char *const *nodes; /* their names; NULL: not known */
	uint32_t num_nodes;
	const struct manifest_trouble *troubles;
	size_t num_troubles;
	uint64_t *
		ret_overlapping; /* of these files, how many have bytes that two nodes wrote without order; may be NULL */
	pid_t process; /* the mount's daemon, or the recovery: its summaries count as one in ret_noted. 0: that which calls */
	struct manifest_noted *ret_noted; /* what others have summed up before does not count; may be NULL */
};

/* Of a session that has gone well, when that is known of its files: CISTERN_EXIT_OK, or that something is under another name. */
int manifest_noted_result(int result, const struct manifest_noted *n);
/* A sentence for people; "" when there is nothing. where: the manifest, as they find it. */
void manifest_noted_text(const struct manifest_noted *n, const char *where, char *out, size_t cap);

void manifest_totals_add(struct manifest_totals *sum, const struct manifest_totals *one);
void manifest_totals_encode(const struct manifest_totals *t, struct buf *out);
int manifest_totals_decode(const void *bytes, size_t len, struct manifest_totals *ret); /* -EBADMSG */

/* log_path: the log to append to; NULL: one that lives as long as the session. */
int manifest_open(const char *log_path, struct manifest **ret, struct cistern_error *err);
void manifest_close(struct manifest *m); /* NULL is fine */
void manifest_add_file(struct manifest *m, const struct manifest_file *f);
/* Before, or without, the line of the file itself. not_listed: how many more there were. */
void manifest_add_overlap(struct manifest *m, const char *path, const struct manifest_overlap *o);
void manifest_add_more_overlaps(struct manifest *m, const char *path, uint64_t not_listed);
void manifest_add_missing(struct manifest *m, const char *path, const struct manifest_range *range); /* likewise */
/* Behind its own line: it was to get another layout and has not. */
void manifest_add_kept(struct manifest *m, const char *path, const char *layout, const char *reason);
/*
 * Behind its own line: in the backing directory it is at there, since something that Cistern does not know has its name. there NULL: it has its own name
 * again; so it has by its next own line.
 */
void manifest_add_beside(struct manifest *m, const char *path, const char *there);
void manifest_add_removed(struct manifest *m, const char *path);
/* What was said of the name is not so any more, and nothing was there to be removed: the summary does not list it. */
void manifest_add_gone(struct manifest *m, const char *path);
/* Back to where it came from: what was said of it there is so again, unless more has been said since. */
void manifest_add_moved(struct manifest *m, const char *from, const char *to);
/* A further link of a file that has been drained: what is said of from is so of to. */
void manifest_add_linked(struct manifest *m, const char *from, const char *to);
/* Appends to out whole lines of the log that stand behind from: at least so many bytes, if there are so many. 0 or -errno */
int manifest_read(struct manifest *m, uint64_t from, size_t at_least, struct buf *out);
/* Whole lines of another log: all of them or, with -errno, none. */
int manifest_append(struct manifest *m, const void *lines, size_t len);

/* Whole lines of a part log. Parts have numbers at random, and are told from their beginning to their end, one after the other. */
struct manifest_piece {
	char store[37]; /* whose, as text */
	uint64_t part, from, bytes;
};
#define MANIFEST_HEAD_BYTES 160
/* The line that comes before them. How long it is */
size_t manifest_piece_head(const struct manifest_piece *p, char out[MANIFEST_HEAD_BYTES]);
/* Of a log that was opened just now: which pieces it has. One that was torn is cut off. -errno */
int manifest_find_pieces(struct manifest *m);
/* As manifest_append, of a piece with its head, behind manifest_find_pieces(): what the log has of it already is passed over. -EINVAL: no piece */
int manifest_append_piece(struct manifest *m, const void *piece, size_t len);
/* From now on, what fails does so on this node of a job. The name is borrowed. */
void manifest_set_node(struct manifest *m, const char *name);
/* What was added outlives the process, though not the machine. 0, or -errno: some of it is not there, for good (the first error; manifest_sync() fails, too). */
int manifest_flush(struct manifest *m);
uint64_t manifest_mark(struct manifest *m); /* how long the log is */
int manifest_sync(
	struct manifest *m, struct cistern_error *err); /* the log is durable; errors of earlier calls come out here */
/* Makes the log durable and writes the summary to path (temporary, fsync, rename). Errors of earlier calls come out here. */
int manifest_write(
	struct manifest *m, const struct manifest_session *session, const char *path, struct cistern_error *err);
/* What that has written, to one more place, likewise. */
int manifest_copy(const char *from, const char *to, struct cistern_error *err);

#endif
