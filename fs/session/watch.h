/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_SESSION_WATCH_H
#define FS_SESSION_WATCH_H

/*
 * A process beside the daemon of a job, which severs the mount's connection when the daemon has been killed and cannot end (docs/design/many-nodes.md,
 * section 3, "A daemon that is killed").
 */

#include <sys/types.h>

#include "cistern/error.h"

struct watch {
	pid_t pid; /* our child; 0: none */
	int fd;    /* owned; to it; -1 */
};

enum watch_way {
	WATCH_NONE,  /* it has no means: the mount is an ordinary user's, and fusectl is not mounted */
	WATCH_FILE,  /* the kernel's file for that, which is open */
	WATCH_FORCE, /* as umount -f */
	WATCH_END
};

/* Forks: before there are threads, and before anything is open that others wait for the end of; the thread that calls it is the one watched. */
int watch_begin(struct watch *w, struct cistern_error *err);
/* Mounted, and nothing served yet: from now on it watches. -errno: it is gone. */
int watch_mounted(struct watch *w, const char *mountpoint, enum watch_way *ret);
void watch_end(struct watch *w); /* behind the end of the connection; nothing begun ({ 0, -1 }) is fine */

#endif
