/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TESTS_LIB_CORE_WORLD_H
#define TESTS_LIB_CORE_WORLD_H

/*
 * fs/core without a mount: a store and a backing directory in a temporary folder. Whatever goes wrong here ends the process.
 * One thread.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fs/core/core.h"

extern const struct core_cred core_world_cred; /* root's */

struct core_world {
	char dir[64], backing[128], store_path[128];
	struct config *cfg;
	struct store *store;
	struct core *core;
	int registered, closed; /* passthrough registrations */
	int invalidated;
	char unreadable[512]; /* what was said last */
};

void core_world_bail_out(const char *why) __attribute__((noreturn));
/* The folders. The backing directory has the files "old" ("from before") and "sub/inner" ("inside"). */
void core_world_make(struct core_world *w);
void core_world_remove(struct core_world *w);
/* Daemons, one after the other. options: as for a mount. passthrough: the kernel has it. */
void core_world_open(struct core_world *w, const char *options, bool passthrough);
void core_world_close(struct core_world *w); /* a test: in good order */

/* The number that parent/name is found by; 0: it cannot be found. */
uint64_t core_world_look(struct core_world *w, uint64_t parent, const char *name);
/* What a file of that number has, with a NUL; its length, or -errno. */
int core_world_read_text(struct core_world *w, uint64_t ino, char *out, size_t cap);
int core_world_write_text(struct core_world *w, uint64_t ino, const char *text, uint64_t off);
/* The names that a listing shows, sorted, joined by blanks, without the two dots. */
void core_world_list(struct core_world *w, uint64_t ino, char *out, size_t cap);
void core_world_put_file(const char *dir, const char *name, const char *text); /* past the core */

#endif
