/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_STORE_LOCK_H
#define FORMAT_STORE_LOCK_H

/* STORE/lock: one writer at a time. See lock.c. */

#include <stdbool.h>
#include <sys/types.h>

#include "cistern/error.h"

#define LOCK_FILE "lock"

/*
 * Take the lock of the store under dirfd. *ret_fd holds it until lock_release. -EBUSY: text names the holder. recovers: it keeps writers off, and
 * is of who only reads.
 */
int lock_take(int dirfd, const char *store_path, bool recovers, int *ret_fd, struct cistern_error *err);
void lock_release(int fd); /* -1 is fine */
/*
 * Who holds it; 0: nobody (or there is no lock file, or no locks on its file system). -EBUSY: held, by a process that cannot be named.
 */
int lock_holder(int dirfd, pid_t *ret_pid, bool *ret_recovers);

#endif
