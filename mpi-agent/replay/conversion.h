/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_REPLAY_CONVERSION_H
#define MPI_AGENT_REPLAY_CONVERSION_H

/* One file that is to be converted: what convert.c and together.c share. */

#include "mpi-agent/replay/convert_program.h"
#include "mpi-agent/replay/session.h"

struct conversion {
	struct inode in;
	const char *path; /* borrowed: of the backing file; in the mount it is the same */
	const char *name; /* in path */
	char dir_path[SESSION_PATH_MAX], temp[SESSION_PATH_MAX], keep[SESSION_PATH_MAX];
	struct sink_file *from, *to; /* owned */
	struct stat st;              /* of from */
	char *options;               /* owned: of this file alone */
	struct attrs_warning warning;
	struct convert_result result;
	uint32_t crc; /* of what the file is in the end */
	uint64_t size;
	bool again; /* to be tried once more in another session */
	bool quiet; /* it is only looked at: what keeps it as it is is told when its turn comes */
};

/* convert.c */
/* Calls one for every file of the list that may be converted; the list stays as it is. */
int conversion_each(struct session *s, int (*one)(struct session *s, struct conversion *c));
/* c->from and c->options: is it one that can be? 1, or 0: no, and that is told; errors end the session. */
int conversion_look_at(struct session *s, struct conversion *c);
/* The layout that the file's own attribute wants. 1: it has one; 0: it has not; -EINVAL and *err. */
int conversion_own_layout(struct session *s, const struct inode *in, struct sink_file *f, enum drain_layout *ret,
	char **ret_options, struct cistern_error *err);

/* together.c: a large file of a job, converted by many nodes (docs/design/netcdf4.md, 7) */
/*
 * Has it been made and checked by all that should? Then c->to, c->temp and c->result are set, as when it had been made here, and 1 is
 * returned. 0: it has not, or not of what the file is now.
 */
int together_take(struct session *s, struct conversion *c);
/* Removes what is left of that. */
void together_clean(struct session *s, const struct conversion *c);

#endif
