/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_DRAIN_IDLE_H
#define FS_DRAIN_IDLE_H

/* Whether a part of a job's drain has anything to do here, so that no agent is started for nothing. */

#include <stdbool.h>

#include "format/store/store.h"
#include "format/wire/wire.h"

/*
 * True: an agent would find nothing to do. Of parts that are about names, and of those that begin files of many nodes or carry this one's (if none of
 * many is in the session); false of all others, and when in doubt.
 */
bool idle_part(struct store *store, enum wire_part part);

#endif
