/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_BASE_CHUNK_LIST_H
#define FORMAT_BASE_CHUNK_LIST_H

/*
 * The value of the setting "chunk": lengths of chunks in netCDF-4 files, DIMENSION:NUMBER or VARIABLE:DIMENSION:NUMBER, with
 * commas or slashes between them. Whether a file has such dimensions is not known here.
 *
 *     time:1/lev:10                       time:1,T:lev:72
 */

#include <stddef.h>
#include <stdint.h>

#include "cistern/error.h"

#define CHUNK_LIST_MAX 1024 /* items */

struct chunk_item { /* borrowed from the text */
	const char *var, *dim;
	size_t var_len, dim_len; /* var_len 0: every variable */
	uint64_t len;            /* 0: the whole dimension */
};

/* Calls each for every item. 0; -EINVAL: *err says which item is wrong, and what one looks like; what each returns, when that is not 0. */
int chunk_list_each(
	const char *text, int (*each)(const struct chunk_item *item, void *arg), void *arg, struct cistern_error *err);

#endif
