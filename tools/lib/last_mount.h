/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOOLS_LIB_LAST_MOUNT_H
#define TOOLS_LIB_LAST_MOUNT_H

#include "cistern/error.h"

/*
 * The daemon of a store's last mount, which has been taken down, holds the store until it has heard
 * of that and its drain has ended. Says so on standard error, and waits for that, for a minute at
 * most, with progress. 0: nobody is in the way, or it is none of this: opening the store says what.
 * -EBUSY, with what to do: it drains still, serves the other nodes of its job, or is mounted in
 * another mount namespace.
 */
int last_mount_await(const char *store, struct cistern_error *err);

#endif
