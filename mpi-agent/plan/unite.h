/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_PLAN_UNITE_H
#define MPI_AGENT_PLAN_UNITE_H

/*
 * The deals of all nodes of a job put together: what every subfile of a file must say alike, or why there can be none. Each node
 * computes it from the same deals, and gets the same. Pure.
 */

#include <stdint.h>

#include "format/codec/classic.h"
#include "mpi-agent/plan/deal.h"

#define UNITE_NO_MAP UINT32_MAX

struct unite_plan {
	uint32_t num_streams;  /* of all nodes */
	uint32_t num_subfiles; /* likewise */
	uint32_t num_maps;
	uint32_t *var_maps;      /* owned; of each variable, or UNITE_NO_MAP: it is not cut up */
	uint32_t *map_vars;      /* owned; of each map a variable that has it */
	uint32_t *first_subfile; /* owned; of each node its first; and behind the last node num_subfiles */
};

/*
 * deals: of all nodes, in order. header: of the canonical file, computed fields valid. num_subfiles: as many are wanted; a
 * node that wrote gets at least one, and no more than it has streams. 0; -EOPNOTSUPP: it cannot be done, why says why; -ENOMEM.
 * The caller frees *ret.
 */
int unite(const struct deal *deals, uint32_t num, const struct classic *header, uint32_t num_subfiles,
	struct unite_plan *ret, char why[DEAL_WHY]);
void unite_free(struct unite_plan *p); /* NULL is fine */

#endif
