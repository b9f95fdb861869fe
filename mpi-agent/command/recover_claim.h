/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_COMMAND_RECOVER_CLAIM_H
#define MPI_AGENT_COMMAND_RECOVER_CLAIM_H

/* One recovery of the same stores into a directory at a time. */

#include <stdbool.h>

#include "cistern/error.h"
#include "format/store/store.h"

struct recover_claim {
	int fd, dirfd; /* owned; -1: there is none; borrowed */
	char name[64];
};

/* What claims in a directory are called, of that store, or of its job. Nothing is claimed yet. */
void recover_claim_init(struct recover_claim *c, const struct superblock *sb);
bool recover_claim_is(const struct recover_claim *c, const char *name); /* is it one? */
/*
 * Until recover_claim_end. path: the directory's. -EBUSY: another recovery has it, or may have: the text says which, or what to do. Where nothing can
 * be made in the directory nothing is claimed, which is no error.
 */
int recover_claim_take(struct recover_claim *c, int dirfd, const char *path, struct cistern_error *err);
void recover_claim_end(struct recover_claim *c);
/* What a killed recovery has left there goes. */
void recover_claim_sweep(const struct superblock *sb, int dirfd, const char *path);

#endif
