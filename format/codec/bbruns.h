/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_CODEC_BBRUNS_H
#define FORMAT_CODEC_BBRUNS_H

/*
 * Where the entries of a log lie in the netCDF file, as the first pass of a replay keeps it for the second, which then need not
 * decode them again: eight bytes for an entry that is one run of values, the way small puts are. Only what fits the memory is kept.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bbruns_run {
	int32_t at;   /* bytes of the file from its group's base on */
	uint32_t num; /* values */
};

struct bbruns {
	struct bbruns_run *runs; /* owned */
	size_t num, cap, max;
};

void bbruns_init(struct bbruns *r, uint64_t memory_bytes);
void bbruns_free(struct bbruns *r);
/* A run of num values at off of the file. false: not kept, there is no room, or it is too large or too far from base. */
bool bbruns_keep(struct bbruns *r, uint64_t base, uint64_t off, uint64_t num);

#endif
