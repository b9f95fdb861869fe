/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TESTS_LIB_BENCH_H
#define TESTS_LIB_BENCH_H

/*
 * A store on a simulated disk, with its index in a folder below /tmp, and what one does to stores. What must not fail is told as a test.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/store/store.h"
#include "tests/lib/sim.h"

struct bench {
	struct sim *sim; /* owned */
	struct io *io;   /* of sim */
	struct store *s; /* owned; open between bench_begin() or bench_open() and whoever closes it */
	struct store_options opt;
	char dir[64], index[80]; /* the index is in dir */
};

/* A new store with segments of that size; capacity 0: what the disk has. */
bool bench_begin(struct bench *b, uint64_t segment_size, uint64_t capacity);
/* Opens the store once more, as opt says. */
bool bench_open(struct bench *b);
/* Closes it; disk and folder go. */
void bench_end(struct bench *b);

/* The first change of a store's life, as the daemon makes it, unless it was made. */
int bench_root(struct store *s);
/* A new file in the root, and the root when there is none. */
struct inode bench_file(struct store *s, const char *name);
int bench_fill(struct store *s, const struct inode *in, uint64_t off, size_t len, int byte);
/* For store_read(): the backing file has 'B' all over; arg: unsigned int, counts the calls. */
int bench_base(uint64_t off, size_t len, void *buf, void *arg);
/* Does [off, off + len) read as this byte all over? With bench_base(). */
bool bench_reads(struct store *s, uint64_t ino, uint64_t off, size_t len, int byte);
/* What its segments occupy, without what is allocated and not filled. */
uint64_t bench_used(const struct bench *b);

#endif
