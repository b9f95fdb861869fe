/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOOLS_LIB_TARGET_H
#define TOOLS_LIB_TARGET_H

/* What a command is about: a store, named by its directory, by its mount point, or by any path in the mount. */

#include <limits.h>
#include <stdbool.h>

#include "cistern/error.h"
#include "tools/lib/mounts.h"

struct target {
	bool mounted;       /* found through a mount, which is in .mount */
	bool dead;          /* the mount's daemon has died; store is unknown ("") */
	bool at_mountpoint; /* what was named is where it is mounted */
	struct mount_entry mount;
	char store[PATH_MAX]; /* absolute */
	char path[PATH_MAX];  /* in the mount: what was named, relative to its root; "." = the root */
};

/*
 * -ENOENT: neither a store nor in a cistern mount; others from the system. The mount is asked first, then the path is
 * a store.
 */
int target_resolve(const char *name, struct target *ret, struct cistern_error *err);
/*
 * Only by mount. name NULL: the working directory, else the only cistern mount of this machine. -ENOTCONN: dead; ret
 * is filled.
 */
int target_resolve_mount(const char *name, struct target *ret, struct cistern_error *err);
/* name made absolute and resolved, whether or not its last part exists, and also when it is a dead mount point. */
int target_real_path(const char *name, char out[PATH_MAX], struct cistern_error *err);

#endif
