/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_CONVERT_COVER_H
#define MPI_AGENT_CONVERT_COVER_H

/* What the blobs of a set cover of the arrays that its maps cut up: elements that several have, and that none has. */

#include <stdint.h>

#include "mpi-agent/convert/set.h"

struct cover {
	uint64_t twice; /* elements that more than one run has */
	uint64_t never;
	uint32_t twice_map; /* the first map with such, from 0; UINT32_MAX: none */
	uint64_t twice_element;
};

/* Counts one share of num of the work; the counts of all shares are added up. 0, -ENOMEM. */
int cover_count(const struct blob_set *s, uint32_t share, uint32_t num, struct cover *ret);

#endif
