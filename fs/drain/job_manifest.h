/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_DRAIN_JOB_MANIFEST_H
#define FS_DRAIN_JOB_MANIFEST_H

/*
 * The manifest of a job of many nodes (docs/design/many-nodes.md, 6). What the agents of a node say of their parts stands in its
 * store until node 0 has taken it into its own log, of which it makes the one summary at the end of a session.
 */

#include <stddef.h>
#include <stdint.h>

#include "format/base/config.h"
#include "format/manifest/manifest.h"
#include "format/store/store.h"
#include "fs/peer/peer.h"

struct job_manifest;

struct job_manifest_options { /* all borrowed */
	struct store *store;
	const struct config *cfg;
	struct peers *peers;
};

int job_manifest_create(const struct job_manifest_options *opt, struct job_manifest **ret, struct cistern_error *err);
void job_manifest_destroy(struct job_manifest *jm); /* NULL is fine */

/*
 * After a part: what this node's agents have said since goes through send, some whole lines at a time (struct manifest_piece), and is forgotten
 * when all has been taken (send returned 0). What fails is sent again after the next part. One thread at a time.
 */
int job_manifest_send(struct job_manifest *jm, int (*send)(const void *piece, size_t len, void *arg), void *arg);

/* ---- on node 0; any thread */
/* What is there already is not taken again. */
int job_manifest_append(struct job_manifest *jm, const void *piece, size_t len);
uint64_t job_manifest_mark(struct job_manifest *jm); /* before a session: for struct manifest_session */
/* Writes the summary and the copy that the setting names; one thread at a time. Lines are taken while the copy is written. s: session, times, result, totals, mark, troubles; the rest is added. */
int job_manifest_write(struct job_manifest *jm, const struct manifest_session *s, struct cistern_error *err);

#endif
