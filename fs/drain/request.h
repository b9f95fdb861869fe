/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_DRAIN_REQUEST_H
#define FS_DRAIN_REQUEST_H

/* What a session is to carry, and how it went. Not thread-safe. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cistern/error.h"
#include "format/wire/wire.h"
#include "fs/drain/drain.h"

struct drain_request {
	uint64_t id;
	enum drain_kind kind;
	char **paths;     /* owned; relative to the root */
	size_t num_paths; /* 0: everything */
	enum wire_part part;
	bool cautious, last;
	enum wire_haste haste;
	uint64_t since, time_usec;
	char node_name[DRAIN_NODE_NAME_MAX];
};

struct drain_request *drain_request_new(uint64_t id, enum drain_kind kind); /* for everything; NULL: no memory */
void drain_request_free(struct drain_request *r);
/* A new request's paths, or more of them: too many, or none at all, means everything. first: it has none yet. */
void drain_request_add(struct drain_request *r, const char *const *paths, size_t num, bool first);
char **drain_request_copy_paths(
	const struct drain_request *r); /* num_paths owned strings in an owned array; NULL: no memory */

#define DRAIN_RESULTS 64

struct drain_result {
	uint64_t id; /* 0: unused */
	enum cistern_exit exit;
	char text[CISTERN_ERROR_TEXT_BYTES];
};

struct drain_results { /* the last ones */
	struct drain_result ring[DRAIN_RESULTS];
};

void drain_results_put(struct drain_results *r, uint64_t id, enum cistern_exit result, const char *text);
const struct drain_result *drain_results_find(
	const struct drain_results *r, uint64_t id); /* NULL: not known (any more) */

#endif
