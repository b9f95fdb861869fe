/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_COMMAND_RECOVER_SET_H
#define MPI_AGENT_COMMAND_RECOVER_SET_H

/*
 * The stores of a dead job of many nodes, opened by one process: files of one node are carried as ever; those that several
 * nodes wrote are put together from the layers of all. Stores may be missing; what they had is listed.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "cistern/error.h"
#include "format/base/idmap.h"
#include "format/index/share.h"
#include "format/store/store.h"

#define RECOVER_NAME_BYTES 112

struct located;

struct recover_overlaps { /* that the domain homes of a file have met */
	uint64_t ino;
	struct share_conflicts met;
};

struct recover_parked { /* in the backing directory, by a name that it has while others take its place */
	uint64_t parent;
	uint32_t node; /* whose number parent is */
	struct stat st;
	char name[64];
};

struct recover_set {                       /* zero-initialised = empty */
	struct store **stores;             /* owned; by node, NULL: lost. num_nodes of them */
	char (*names)[RECOVER_NAME_BYTES]; /* owned; of those whose store is lost */
	struct located **
		located; /* owned: while they are merged: where the backing directory has what each store knows; NULL: not looked yet */
	struct idmap *listed;          /* owned: likewise, by node: directories of which parked has all */
	struct recover_parked *parked; /* owned */
	size_t num_parked, cap_parked;
	const char **lost; /* owned; by node: into names, or NULL: its store is there */
	uint32_t num_nodes;
	size_t num;                        /* how many are there */
	struct recover_overlaps *overlaps; /* owned: of shared files, sorted by inode */
	size_t num_overlaps, cap_overlaps;
	struct store *first; /* borrowed: the one that leads: it knows the directories best */
	uint32_t first_node;
	int backing_fd; /* borrowed */
	bool silent;    /* another process of a team says what there is to say */
};

/* Takes store over. -EINVAL: it is not of the same job, or its node is there already; the text names it. */
int recover_set_add(struct recover_set *set, struct store *store, struct cistern_error *err);
struct store *recover_set_first(struct recover_set *set); /* all are there that will be: the one that leads */
/* All are there that will be. backing_fd: the directory that the job was mounted over, as long as set is used. */
int recover_set_merge(struct recover_set *set, int backing_fd, struct cistern_error *err);
/* drain_options' overlaps(); arg: the set */
int recover_set_overlaps(uint64_t ino, int (*cb)(const struct share_conflict *c, void *arg), void *cb_arg,
	uint64_t *ret_more, void *arg);
bool recover_set_is_whole(const struct recover_set *set); /* no store is lost */
void recover_set_say(const struct recover_set *set);      /* which are lost, to stdout; nothing when none is */
void recover_set_close(struct recover_set *set);

#endif
