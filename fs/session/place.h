/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_SESSION_PLACE_H
#define FS_SESSION_PLACE_H

/*
 * The place that a mount takes: a free directory, or one that the mount of a dead daemon covers.
 * Where that one can only be taken away first, programs come into the directory below for a moment
 * (the gap), and what they leave there is found (docs/design/dead-mounts.md).
 */

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <time.h>

#include "cistern/error.h"

struct place {
	char mountpoint[PATH_MAX];
	bool dead;             /* covered when we came; the path must not become free by a failure of ours */
	bool freed;            /* there is a gap, or was one */
	struct timespec begun; /* the gap, by the clock that files get their times from */
	struct timespec begun_mono, filled_mono;
	int below_fd; /* owned: the directory, since the gap began; -1 */
};

void place_init(struct place *p, const char *mountpoint); /* looks whether it is dead */
void place_close(struct place *p);
/* Takes the dead mount away: the gap begins. Text in err. Done once; later calls do nothing. */
int place_free(struct place *p, struct cistern_error *err);
void place_filled(struct place *p); /* the mount is there: the gap, if there was one, is over */
/*
 * Calls each() with names, relative to the mount point, of what came into the directory below in
 * the gap, or was changed in it. Looks at so many entries at most. Returns the number of what was
 * found, 0 without a gap; *ret_all: it has looked at everything.
 */
size_t place_look(const struct place *p, void (*each)(const char *path, void *arg), void *arg, bool *ret_all);
unsigned int place_gap_msec(const struct place *p);

#endif
