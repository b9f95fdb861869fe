/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOOLS_LIB_LOCATE_H
#define TOOLS_LIB_LOCATE_H

/* Which file is meant by a path, and how long it is: of the stores that are given, or, where a mount shows them, of the backing directory. */

#include <stdint.h>

#include "tools/lib/stores.h"

/*
 * path: as stores_find() takes it. mounted: the same file's path in its mount, NULL: there is none. A file that the stores know nothing of
 * has inode number 0; all of it is in the backing directory. first: the store to name then. -ENOENT; -errno of an index.
 */
int locate_file(const struct stores *all, struct store *first, const char *path, const char *mounted,
	struct store **ret_store, struct inode *ret);
/*
 * A file that has nothing but its attributes in s is as its backing file is now: somebody, a drain that gave it another layout among them, may have
 * changed that since. Other files, and those whose backing file cannot be looked at, stay as they are.
 */
void locate_now(struct store *s, struct inode *in);
/* Its size now; of a private one, which its segment knows, *ret_private_bytes (may be NULL), too. -errno. */
int locate_size(struct store *s, const struct inode *in, uint64_t *ret_size, uint64_t *ret_private_bytes);
/*
 * Where the backing directory has a file whose name the store does not know; NULL mounted in locate_file() leaves that out. path is
 * relative to the root of the mount. -ENOENT: the store has taken it, or what it lies in, away.
 */
int locate_backing(struct store *s, const char *path, char *out, size_t cap);
/* As a mount shows a file that is all in the backing directory; path: of either. -ENOENT: no regular file. */
int locate_clean(const char *path, struct inode *ret);

#endif
