/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_DRAIN_ERRORS_H
#define FS_DRAIN_ERRORS_H

/* Files that could not be drained: one entry per path, until a later session has carried it. Not thread-safe. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct drain_error {
	char *path, *text; /* owned */
	int code;          /* negative errno */
	uint64_t session;  /* that met it last */
};

struct drain_errors {                /* zero-initialised = empty */
	struct drain_error *entries; /* owned */
	size_t num, cap;
	uint64_t lost; /* met, but the list was full */
};

void drain_errors_add(struct drain_errors *e, uint64_t session, const char *path, int code, const char *text);
/* A session has come to its end: what it covered (paths, none: everything) and did not complain of is healed. */
void drain_errors_prune(struct drain_errors *e, uint64_t session, char *const *paths, size_t num_paths);
void drain_errors_free(struct drain_errors *e);
/* Is path one of the paths or below one? num 0: yes. */
bool drain_paths_cover(char *const *paths, size_t num, const char *path);

#endif
