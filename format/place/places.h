/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_PLACE_PLACES_H
#define FORMAT_PLACE_PLACES_H

/* Where bytes of a shared file are, as nodes tell each other, and a daemon the agent that drains: extents of a share map without their base. */

#include <stdbool.h>

#include "format/base/cursor.h"
#include "format/index/share.h"

#define PLACES_BYTES 52u /* of one, encoded */

void places_put(struct buf *b, const struct share_extent *e);
/* False: it is cut short, or none. */
bool places_get(struct cursor *c, struct share_extent *ret);

#endif
