/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_REPLAY_CARRIED_H
#define MPI_AGENT_REPLAY_CARRIED_H

/*
 * A file on its way to the destination, new or updated in place: what is checked of it, and what mount and manifest are told. Called
 * from the session's thread. 0, errors of the sink, or what ended the session, unless it says more.
 */

#include <sys/stat.h>

#include "mpi-agent/replay/copy.h"
#include "mpi-agent/replay/session.h"
#include "mpi-agent/replay/verify.h"

struct carried {
	struct inode in;     /* size and mtime are those that are carried over */
	struct sink_file *f; /* owned */
	struct copy_job job;
	struct attrs_warning warning;
	const char *conflict;
	char *shown;    /* owned: in the mount */
	char *there;    /* owned: where it stands beside its name, which something else has; NULL: it has its name */
	char *kept;     /* owned: why its layout is not the one that it was to get; NULL: it is */
	bool changed;   /* was written to meanwhile: stays dirty */
	bool straggled; /* when it was begun somebody wrote to it through a dead mount: likewise, and that is a failure */
	uint64_t upto; /* 0: the session's */
	bool has_checksum;
	const struct wire_shared *shared; /* borrowed: what all nodes have written of it; NULL: it was written here */
	char doubt[VERIFY_TEXT_BYTES];    /* about its format; "" when there is none */
};

void carried_free(struct carried *c);
/*
 * A private segment's own size and time become the file's. If a live one was written just now, a further write might not
 * show in its time: waits until it would. -errno: it cannot be read, and that is in error_text.
 */
int carried_take_private(struct session *s, struct carried *c);
/* Was the private segment written to while it was copied? */
bool carried_has_changed(struct session *s, const struct carried *c);
/* -EIO: the destination, of which st is, does not hold what was written, or is not what it claims to be: error_text. */
int carried_verify(struct session *s, struct carried *c, const struct stat *st);
/* Of it, that it is what it claims to be. */
int carried_check_format(struct session *s, struct carried *c);
/* Tells the manifest what became of it, and then the mount that it need not keep the file any longer. */
int carried_drained(struct session *s, struct carried *c, const struct stat *st);
/* Its last step is on its way: counted; where there are no steps, told to the manifest. */
int carried_finish(struct session *s, struct carried *c);
/* It stays where it is, because of r: told, and no failure of the session. doing: what could not be done. */
int carried_fail(struct session *s, struct carried *c, int r, const char *doing);

#endif
