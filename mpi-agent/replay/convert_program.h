/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_REPLAY_CONVERT_PROGRAM_H
#define MPI_AGENT_REPLAY_CONVERT_PROGRAM_H

/* Runs cistern-nc4, which makes a netCDF-4 file of a classic one and proves it. */

#include <stdbool.h>
#include <stddef.h>

#include "format/manifest/manifest.h"
#include "mpi-agent/replay/session.h"

#define CONVERT_FACTS 24

struct convert_result {
	bool converted;
	bool by_nature;   /* not converted: the file is none that can be */
	char reason[512]; /* not converted: why */
	struct manifest_fact facts[CONVERT_FACTS];
	size_t num_facts;
};

/*
 * in, out: borrowed descriptors; out is truncated. options: "" or more settings, for this file. 0, *ret says how it went, also
 * when the program is not there or dies; what ended the session (s->fatal), and then the program, too.
 */
int convert_program_run(struct session *s, int in, int out, const char *options, struct convert_result *ret);

#endif
