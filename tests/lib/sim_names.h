/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TESTS_LIB_SIM_NAMES_H
#define TESTS_LIB_SIM_NAMES_H

/*
 * The names of a simulated disk: those that programs see, those on the platter, and the operations between the two
 * that are not durable yet, in their order.
 */

#include <stdbool.h>
#include <stddef.h>

#include "tests/lib/sim_inode.h"

#define SIM_PATH_BYTES 1024

struct sim_entry {
	char *path;              /* owned; "a/b", the root is not listed */
	struct sim_inode *inode; /* one reference; NULL: a directory */
};

struct sim_table {
	struct sim_entry *entries; /* owned */
	size_t num, cap;
};

enum sim_op_kind { SIM_MAKE, SIM_REMOVE, SIM_RENAME };

struct sim_op {
	enum sim_op_kind kind;
	char *path, *to;         /* owned; to: SIM_RENAME only */
	struct sim_inode *inode; /* one reference; NULL: a directory */
	bool chosen;
};

struct sim_names {
	struct sim_table seen, disk;
	struct sim_op *ops; /* owned, the oldest first */
	size_t num_ops, cap_ops;
};

void sim_names_destroy(struct sim_names *names);
/* path without "./" and trailing slashes, "" for the root. -EINVAL when absolute, -ENAMETOOLONG. */
int sim_names_clean(const char *path, char out[SIM_PATH_BYTES]);
/* The following take clean paths. */
struct sim_entry *sim_names_find(struct sim_names *names, const char *path); /* seen; valid until the next change */
bool sim_names_is_dir(struct sim_names *names, const char *path);
int sim_names_make(struct sim_names *names, const char *path, struct sim_inode *inode); /* NULL: a directory */
int sim_names_remove(struct sim_names *names, const char *path);
int sim_names_rename(struct sim_names *names, const char *from, const char *to);
void sim_names_sync_dir(struct sim_names *names, const char *dir);
void sim_names_sync_inode(struct sim_names *names, const struct sim_inode *inode); /* its creation */
/* A random prefix of the pending operations reaches the disk, and the disk is what programs see from now on. */
void sim_names_power_cut(struct sim_names *names, struct sim_random *random);

#endif
