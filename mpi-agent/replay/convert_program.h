/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_REPLAY_CONVERT_PROGRAM_H
#define MPI_AGENT_REPLAY_CONVERT_PROGRAM_H

/* Runs cistern-nc4, which makes a netCDF-4 file of a classic one and proves it. */

#include <stdbool.h>
#include <stddef.h>

#include "format/manifest/manifest.h"
#include "mpi-agent/replay/session.h"

#define CONVERT_FACTS       24
#define CONVERT_FACTS_BYTES (CONVERT_FACTS * 130)

#define CONVERT_PARCELS_MAX 64

enum convert_step { /* what of it */
	CONVERT_ALL,
	CONVERT_PACK, /* one of num shares of the values, into out */
	CONVERT_MAKE, /* out, of all of them */
	CONVERT_CHECK /* a share of out */
};

struct convert_task {
	enum convert_step step;
	int in, out;                      /* borrowed; out is truncated, but for CONVERT_CHECK */
	const char *options;              /* borrowed: "" or more settings, for this file */
	uint32_t which, num;              /* share; num > 0, but for CONVERT_ALL */
	int parcels[CONVERT_PARCELS_MAX]; /* CONVERT_MAKE: borrowed, num of them; -1: it is missing, and packed now */
};

struct convert_result {
	bool converted;   /* all that was asked for is done */
	bool by_nature;   /* not converted: the file is none that can be */
	char reason[512]; /* not converted: why */
	struct manifest_fact facts[CONVERT_FACTS];
	size_t num_facts;
};

/* 0, *ret says how it went, also when the program is not there or dies; what ended the session (s->fatal), and then the program, too. */
int convert_program_run(struct session *s, const struct convert_task *task, struct convert_result *ret);
/* Sum of the facts that tell of processor time, in microseconds. */
uint64_t convert_cpu_usec(const struct convert_result *res);
/* The facts as text, and back: they are more than CONVERT_FACTS_BYTES never. */
size_t convert_facts_encode(const struct convert_result *res, char *out, size_t cap);
void convert_facts_decode(char *text, struct convert_result *ret);

#endif
