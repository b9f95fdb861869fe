/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TESTS_LIB_WRITTEN_H
#define TESTS_LIB_WRITTEN_H

/*
 * The stores of a job whose nodes wrote one file, "f" in the root, at home on node 0, in random pieces with commits in between, and
 * the parts of a drain, as the agents of one session do them. What it must be in the end is in a model, to which writes are applied
 * in their order. What cannot be made ends the program.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/store/store.h"
#include "format/wire/wire.h"
#include "mpi-agent/replay/drain.h"
#include "tests/lib/world.h"

#define WRITTEN_NODES  3u
#define WRITTEN_INO    100u
#define WRITTEN_PATH   512
#define WRITTEN_LINKED 99u /* seed: a file that was there before the job, under two names */
#define WRITTEN_MAX    (6u << 20)

struct pending;

struct written {
	char top[WRITTEN_PATH], backing[WRITTEN_PATH + 16], dir[WRITTEN_NODES][WRITTEN_PATH + 16];
	struct store *store[WRITTEN_NODES];
	struct pending *writes[WRITTEN_NODES];
	uint64_t stamp, size, existing_size, random, last, next[WRITTEN_NODES];
	uint8_t model[WRITTEN_MAX];
	uint8_t owner[WRITTEN_MAX];                 /* who wrote the byte: node + 1 */
	uint8_t joined[WRITTEN_NODES][WRITTEN_MAX]; /* lies in what a node's witness was told of as one */
	bool refuses;                               /* what is to be begun */
	bool taken;                                 /* its name is another node's in the backing directory */
	bool existing, cautious;
	void (*before_fetch)(struct written *j); /* in a drain, before each fetch; may be NULL */
	/* what the home reported */
	struct wire_shared shared;
	char shared_path[WRITTEN_PATH];
	unsigned int num_shared, errors, late;
	char said[384];      /* the last error */
	enum wire_part part; /* the last one, and whose */
	unsigned int node;
	uint8_t fetched[WIRE_FETCH_SLOTS][WIRE_FETCH_BYTES];
	bool fetching[WIRE_FETCH_SLOTS];
};

uint64_t written_draw(struct written *j, uint64_t below); /* a random number below that */
struct state *written_state(struct written *j, unsigned int node);
void written_record(struct written *j, unsigned int node,
	struct record *rec); /* into its journal; of the file if rec says no other */
/* Odd seeds: the file was in the backing directory before. */
void written_start(struct written *j, uint64_t seed);
void written_start_with(
	struct written *j, uint64_t seed, bool knows);  /* knows: its home does, that others write the file */
void written_end(struct written *j, bool alive);        /* alive: the stores are still open */
void written_put(struct written *j, unsigned int node); /* the node writes something */
void written_put_at(struct written *j, unsigned int node, uint64_t off, size_t len);
void written_commit(struct written *j, unsigned int node); /* what it has written */
void written_forget(struct written *j, unsigned int node); /* what is not committed counts in the model all the same */
void written_part(struct written *j, unsigned int node, enum wire_part part, uint64_t buffer); /* of a drain */
void written_drain(struct written *j);                                                         /* all parts */
/* As drain_watcher's: counted, and said. arg: a struct written. */
void written_error(const char *path, int code, const char *text, void *arg);
/* Of a lost store: who had it wrote this byte, or something beside it that its witness was told of together with it. */
bool written_is_lost(const struct written *j, uint64_t i, unsigned int lost);
/* The file in dir is the model; bytes that may be lost with a store (0: none) are not looked at. */
bool written_is_model(struct written *j, const char *dir, unsigned int lost);

#endif
