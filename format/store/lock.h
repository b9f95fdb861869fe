/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_STORE_LOCK_H
#define FORMAT_STORE_LOCK_H

/* STORE/lock: one writer at a time. See lock.c. */

#include <stdbool.h>
#include <sys/types.h>

#include "cistern/error.h"

#define LOCK_FILE       "lock"
#define LOCK_HOST_BYTES 128

/*
 * Take the lock of the store under dirfd. *ret_fd holds it until lock_release. -EBUSY: text names the holder. recovers: it keeps writers off, and
 * is of who only reads.
 */
int lock_take(int dirfd, const char *store_path, bool recovers, int *ret_fd, struct cistern_error *err);
/* The same of any file; path: of the directory, for people. */
int lock_take_named(
	int dirfd, const char *name, const char *path, bool recovers, int *ret_fd, struct cistern_error *err);
void lock_release(int fd);      /* -1 is fine */
bool lock_is_unknown(int code); /* from taking a lock, negative: its file system has none */

/* What is written into such a file: whose it is. False: nothing sensible. */
void lock_write_text(int fd);
bool lock_read_text(int fd, pid_t *ret_pid, char ret_host[LOCK_HOST_BYTES]);
bool lock_is_here(const char *host); /* it is this machine's name */

/*
 * Who holds it; 0: nobody (or there is no lock file, or no locks on its file system). -EBUSY: held, by a process that cannot be named.
 */
int lock_holder(int dirfd, pid_t *ret_pid, bool *ret_recovers);

#endif
