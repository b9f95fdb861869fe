/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_CONVERT_PUBLISH_H
#define MPI_AGENT_CONVERT_PUBLISH_H

/*
 * A new file that gets its name when it is whole. Until then it is DIR/.NAME.cistern-convert, which one program at a time
 * holds a lock on; what a killed one left there is taken over by the next.
 */

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "cistern/error.h"

struct publish {
	char path[PATH_MAX], temp[PATH_MAX];
	int fd; /* of the temporary file, open for reading and writing; -1: none */
	bool force, created;
};

/* Where the temporary file will be. -ENAMETOOLONG */
int publish_name(struct publish *p, const char *path, bool force, struct cistern_error *err);
/* Create it, empty. 0; -EEXIST: path is there, and not force; -EBUSY: another program makes it; others as open(2). */
int publish_create(struct publish *p, struct cistern_error *err);
/* Open what another process of the same job has created. */
int publish_join(struct publish *p, struct cistern_error *err);
/* Whether the file system has room for so many bytes. 0, -ENOSPC. */
int publish_check_room(const struct publish *p, uint64_t bytes, struct cistern_error *err);
int publish_sync(struct publish *p, struct cistern_error *err); /* what this process wrote is on the device */
/* Give it its name; durable when it returns 0. By the process that created it, after all have synced. */
int publish_commit(struct publish *p, struct cistern_error *err);
/* Close; remove the temporary file if this process created it and did not commit. */
void publish_end(struct publish *p);

#endif
