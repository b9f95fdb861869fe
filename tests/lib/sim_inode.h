/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TESTS_LIB_SIM_INODE_H
#define TESTS_LIB_SIM_INODE_H

/* A file of the simulated disk, whatever its names: what programs see of it and what the platter holds. */

#include "tests/lib/sim_image.h"

struct sim_random {
	uint64_t state;
};

uint64_t sim_random_next(struct sim_random *random);
uint64_t sim_random_below(struct sim_random *random, uint64_t limit); /* 0 .. limit - 1; limit > 0 */

struct sim_inode {
	struct image seen, disk; /* equally many bytes usable; zero past the sizes */
	uint64_t size, disk_size;
	struct bits dirty;  /* sectors that may differ */
	struct bits blocks; /* of 4096 bytes, that programs have room for */
	unsigned int refs;  /* names, handles and pending operations */
	unsigned int links; /* names that programs see */
	unsigned int opens, maps;
	struct sim_inode *next; /* all of a disk */
};

int sim_inode_create(size_t limit, struct sim_inode **ret_inode); /* refs = 0 */
void sim_inode_destroy(struct sim_inode *inode);
/* Blocks that [off, off + len) does not have yet. */
uint64_t sim_inode_missing(const struct sim_inode *inode, uint64_t off, uint64_t len);
int sim_inode_write(struct sim_inode *inode, const void *buf, size_t len, uint64_t off);
size_t sim_inode_read(const struct sim_inode *inode, void *buf, size_t len, uint64_t off);
int sim_inode_allocate(struct sim_inode *inode, uint64_t off, uint64_t len);
void sim_inode_punch(struct sim_inode *inode, uint64_t off, uint64_t len);
int sim_inode_truncate(struct sim_inode *inode, uint64_t size);
void sim_inode_sync(struct sim_inode *inode);
void sim_inode_unmap(struct sim_inode *inode); /* maps goes down by one; stores so far are recorded */
/* Somebody's mapping must no longer reach the disk: programs get a new image, *ret_old is the mapped one. */
int sim_inode_detach(struct sim_inode *inode, struct image *ret_old);
/* What is on the disk after the power went, for both images. Not while mapped. */
void sim_inode_power_cut(struct sim_inode *inode, struct sim_random *random);

#endif
