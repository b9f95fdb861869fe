/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_REPLAY_LOCATED_H
#define MPI_AGENT_REPLAY_LOCATED_H

/*
 * Where backing files are by now, when an earlier session may have moved them and the state has not heard of it: nothing is told, nor changed. Of
 * one store and one backing directory, as long as neither is changed.
 */

#include <stddef.h>

#include "format/store/store.h"

struct located;

/* dirs_only: files are where the state has them, in directories that are looked for. backing_fd: borrowed. 0, -ENOMEM, the state's errors */
int located_create(struct store *store, int backing_fd, bool dirs_only, struct located **ret);
/* Paths in the backing directory, whether there is something or not. -ENOENT: none; -ENAMETOOLONG; the state's errors */
int located_child(struct located *l, uint64_t parent, const char *name, char *out, size_t cap);
int located_path(struct located *l, const struct inode *in, char *out, size_t cap);
void located_destroy(struct located *l); /* NULL is fine */

#endif
