/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_DRAIN_MAINTAIN_H
#define FS_DRAIN_MAINTAIN_H

/* The thread that looks after store and core, and notices when writers pause. */

#include "cistern/error.h"
#include "fs/drain/drain.h"

struct maintain;

struct maintain_options {
	struct store *store; /* all borrowed */
	struct core *core;
	struct drain *drain;
	const struct config *cfg;
	struct log *log;
};

int maintain_create(const struct maintain_options *opt, struct maintain **ret, struct cistern_error *err);
void maintain_destroy(struct maintain *m); /* NULL is fine */
void maintain_hurry(struct maintain *m);   /* somebody waits for room: a round now */
void maintain_poke(struct maintain *m);    /* something begins to happen; costs a load when it is awake */
void maintain_rates(struct maintain *m, uint64_t *ret_write, uint64_t *ret_drain); /* bytes per second, of late */

#endif
