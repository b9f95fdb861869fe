/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TESTS_LIB_WORLD_H
#define TESTS_LIB_WORLD_H

/*
 * A random world: a backing directory, a store above it, and a model, which is a real directory. What an application does is
 * done in the model with system calls, and told to the store as the daemon would tell it; once the store is drained, the
 * backing directory must be the same as the model. One world per process at a time, from one thread only.
 *
 * Whatever goes wrong here ends the process with status 99, after a TAP comment that says what it was.
 */

#include <stddef.h>
#include <stdint.h>

#include "format/store/store.h"

#define WORLD_PATH_BYTES 1024
#define WORLD_PATHS_MAX  400
#define WORLD_TIME_STEP  1000000007ll

struct world {
	/* Folders, all in top; out is for whoever needs one more, and not made here. */
	char top[WORLD_PATH_BYTES - 64], backing[WORLD_PATH_BYTES], model[WORLD_PATH_BYTES],
		store_dir[WORLD_PATH_BYTES], out[WORLD_PATH_BYTES];
	struct store *store; /* owned; open between world_open() and whoever closes it */
	struct state *st;    /* of that store */
	uint64_t random;
	int64_t clock_ns;
	char paths[WORLD_PATHS_MAX][WORLD_PATH_BYTES]; /* of the model, relative */
	size_t num_paths;
	unsigned int max_ops;
};

/* Ends the process, saying what failed; r is an errno, of either sign. */
void world_die(const char *what, int r) __attribute__((noreturn));
/* Dies if r is negative: -errno, or -1 with errno set. */
void world_must(int r, const char *what);
/* The path dir/path. */
void world_path(char out[WORLD_PATH_BYTES], const char *dir, const char *path);

/* A world with a folder of its own below TMPDIR, nothing in it yet. Release with world_free(), which removes the folder. */
struct world *world_new(void);
void world_free(struct world *w);

/* The next random number; one below n. */
uint64_t world_random(struct world *w);
unsigned int world_below(struct world *w, unsigned int n);

/* Starts over with that seed: a random model, the backing directory a copy of it, no store. */
void world_make(struct world *w, uint64_t seed);
/* Opens the store, and makes it when there is none. */
void world_open(struct world *w);
/* Does that many random operations in the model and in the open store. */
void world_run_ops(struct world *w, unsigned int num);

#endif
