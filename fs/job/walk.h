/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_JOB_WALK_H
#define FS_JOB_WALK_H

/* Programs that look up the names of a directory in the order in which they have listed them: walk.c. */

#include "fs/job/private.h"

extern const struct part walk_part;
void walk_listed(struct job *j, uint64_t dir, struct listing *l);
/* The name is about to be looked up, and has not been seen (seen.c). True: it was asked for with those behind it, and may be seen now. */
bool walk_ahead(struct job *j, uint64_t dir, const char *name);
void walk_serve_lookups(struct job *j, struct peers_request *rq);
void walk_serve_gets(struct job *j, struct peers_request *rq);

#endif
