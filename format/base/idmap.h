/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_BASE_IDMAP_H
#define FORMAT_BASE_IDMAP_H

/* A hash table from inode numbers (not 0) to numbers; with 1 for each, a set of them. Zero-initialised = empty. */

#include <stddef.h>
#include <stdint.h>

struct idmap_slot {
	uint64_t key, value;
};

struct idmap {
	struct idmap_slot *slots; /* owned */
	size_t num, cap;          /* cap: 0 or a power of two */
};

void idmap_free(struct idmap *m);
uint64_t idmap_get(const struct idmap *m, uint64_t key);      /* 0: not there */
int idmap_set(struct idmap *m, uint64_t key, uint64_t value); /* 0, -ENOMEM */
/* The first cap of all keys, in no order. How many there are. */
size_t idmap_keys(const struct idmap *m, uint64_t *out, size_t cap);

#endif
