/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FS_DRAIN_RESULT_H
#define FS_DRAIN_RESULT_H

/* STORE/result.json: how the last mount of a store ended, for who waits for it. */

#include <stdint.h>

#include "cistern/error.h"
#include "fs/drain/drain.h"

#define RESULT_FILE "result.json"

struct result {
	enum cistern_exit exit;
	char text[CISTERN_ERROR_TEXT_BYTES];
	uint64_t dirty_files, dirty_bytes; /* still in the store */
};

/* d: for the list of errors; may be NULL. Whole or not at all; durable. */
int result_write(const char *store_path, const struct result *res, struct drain *d, struct cistern_error *err);
int result_remove(const char *store_path); /* 0 also when there is none */

#endif
