/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TESTS_LIB_BACKED_H
#define TESTS_LIB_BACKED_H

/*
 * A node's store over a backing directory of its own, for tests that say record by record what the mount has done, and then drain it. Whatever
 * goes wrong here ends the process (world.h).
 */

#include <stdbool.h>
#include <sys/types.h>

#include "format/store/store.h"
#include "mpi-agent/replay/drain.h"

#define BACKED_DIR_BYTES  256
#define BACKED_PATH_BYTES (BACKED_DIR_BYTES + 80)

struct backed {
	char top[BACKED_DIR_BYTES], backing[BACKED_DIR_BYTES + 8], dir[BACKED_DIR_BYTES + 8];
	struct store *store; /* owned; of node 0 of two */
	int manifest_error;  /* of the last drain: what manifest_sync() said */
};

void backed_make(struct backed *b); /* directories; no store yet */
void backed_open(struct backed *b); /* the store; made if it is not there */
void backed_fill(struct backed *b); /* opened, and the root is known */
void backed_end(struct backed *b);  /* closed, and all gone */

void backed_commit(struct backed *b, struct record rec);
/* A file of that number in the backing directory, 10 in the mount, is found as "n". */
void backed_adopt(struct backed *b, ino_t number);

/* name in the backing directory, and in the store's; the latter stays valid until the next call. */
void backed_path(const struct backed *b, const char *name, char out[BACKED_PATH_BYTES]);
const char *backed_in_store(const struct backed *b, const char *name);
/* Something comes there; its number. */
ino_t backed_put(const struct backed *b, const char *name, const char *text);
/* The same by a rename over what is there: another node's file. */
void backed_come(const struct backed *b, const char *name);
bool backed_holds(const struct backed *b, const char *name, const char *text);
bool backed_is_free(const struct backed *b, const char *name);

/* In place, of a snapshot of the store; with intents, and the manifest's log. opt: what else is wanted. */
struct drain_result backed_drain(struct backed *b, const struct drain_options *opt);
/* The same when it may fail. What drain_run() returns */
int backed_try_drain(struct backed *b, const struct drain_options *opt, struct drain_result *ret);

#endif
