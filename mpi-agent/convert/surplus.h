/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_CONVERT_SURPLUS_H
#define MPI_AGENT_CONVERT_SURPLUS_H

/* Subfiles of a set that another one, with fewer subfiles, is about to replace. */

#include <stdint.h>

#include "cistern/error.h"

struct surplus {
	uint32_t removed;
	uint32_t kept, first_kept; /* files that have such a name and are not of the set, and the number of the first */
};

/*
 * Removes BASE.NNNN, from number num on, of the set whose first subfile BASE.0000 still is; nothing when that is no subfile. To be called
 * when the new set's bytes are durable and all but its first subfile have their names. Durable when it returns 0. Else, as unlink(2), *err
 * names the first that could not be removed, and the others are gone.
 */
int surplus_remove(const char *base, uint32_t num, struct surplus *ret, struct cistern_error *err);

#endif
