/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_NC4_PACK_H
#define MPI_AGENT_NC4_PACK_H

/*
 * Makes the chunks of a netCDF-4 file from the values of a classic one: gathered, in this machine's byte order, shuffled,
 * deflated; by several threads, while one other takes them in order.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mpi-agent/nc4/shape.h"

struct packer;

struct packed {
	uint32_t var;
	uint64_t chunk;       /* its number in the variable */
	const uint8_t *bytes; /* borrowed until the next packer_take() */
	size_t len;
	uint64_t number;      /* among the chunks of all variables */
	uint32_t filter_mask; /* HDF5's: bit n: filter n was not applied */
};

/* Is the chunk of that number, of that variable, to be packed? Asked in order, once from packer_create() and once by its threads. */
typedef bool (*packer_wants_fn)(uint32_t var, uint64_t number, const void *arg);

struct packer_options {
	const struct nc4_shape *shape; /* borrowed */
	const uint8_t *file;           /* borrowed: the classic file, mapped */
	unsigned int deflate;
	unsigned int threads;  /* > 0 */
	uint64_t memory_bytes; /* about so much at a time, but three chunks at least */
	packer_wants_fn wants; /* NULL: all of them */
	const void *arg;       /* borrowed */
};

int packer_create(const struct packer_options *opt, struct packer **ret); /* starts its threads */
/* The next chunk: of all variables in order, each in the order of its chunks. 1: there is one; 0: that was all; -ENOMEM, -EIO. */
int packer_take(struct packer *p, struct packed *ret);
void packer_destroy(struct packer *p); /* NULL is fine */

/*
 * The values of one chunk in this machine's byte order, as a whole chunk: what lies outside of the variable is its fill value.
 * out: chunk_bytes. Not chunked variables: only what is in the box, densely.
 */
void pack_gather(const struct nc4_shape *s, uint32_t var, uint64_t chunk, const uint8_t *file, uint8_t *out);
/* num values of size bytes, turned from big-endian into this machine's order. */
void pack_swap(uint8_t *out, const uint8_t *in, uint64_t num, uint32_t size);

#endif
