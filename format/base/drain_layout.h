/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_BASE_DRAIN_LAYOUT_H
#define FORMAT_BASE_DRAIN_LAYOUT_H

/*
 * In which shape a drained file lies in the backing directory. Chosen, later ones win: by the setting "layout", which is
 * a list of rules separated by semicolons, and by the file's extended attribute. A rule is PATTERN=LAYOUT, or LAYOUT alone,
 * which fits every file; the first rule that fits counts. Patterns are those of the shell; one without a slash means the
 * last component of the path in the mount, one with a slash all of it.
 *
 *     layout=netcdf4                      layout=*.h0.nc=netcdf4;restart/?*=canonical
 */

#include <stddef.h>

#include "cistern/error.h"

enum drain_layout {
	DRAIN_LAYOUT_CANONICAL,     /* byte for byte as the application wrote it */
	DRAIN_LAYOUT_NETCDF4,       /* netCDF classic files become netCDF-4 files */
	DRAIN_LAYOUT_BLOB_VARIABLE, /* netCDF classic files of several processes become subfiles as E3SM-IO has them, ... */
	DRAIN_LAYOUT_BLOB_PROCESS, /* ... by variables, as PnetCDF files, or by processes, as HDF5 files */
	DRAIN_LAYOUT_END
};

/* Of a file: "LAYOUT" or "LAYOUT;setting=value;..." */
#define DRAIN_LAYOUT_XATTR "user.cistern.layout"

struct drain_layout_rules;

const char *drain_layout_name(enum drain_layout layout); /* static */
/* Is it one of subfiles, which are made by who wrote what? */
static inline int drain_layout_is_blob(enum drain_layout layout)
{
	return layout == DRAIN_LAYOUT_BLOB_VARIABLE || layout == DRAIN_LAYOUT_BLOB_PROCESS;
}
/* 0; -EINVAL: *err says what is wrong with which rule, and what there is; -ENOMEM. */
int drain_layout_rules_create(const char *text, struct drain_layout_rules **ret, struct cistern_error *err);
void drain_layout_rules_destroy(struct drain_layout_rules *rules); /* NULL is fine */
/* path: in the mount, relative to its root */
enum drain_layout drain_layout_of(const struct drain_layout_rules *rules, const char *path);
/* Does any rule want it? */
int drain_layout_is_wanted(const struct drain_layout_rules *rules, enum drain_layout layout);
/* Could a file whose path has this last component get it? */
int drain_layout_is_possible(const struct drain_layout_rules *rules, enum drain_layout layout, const char *name);
/*
 * The value of DRAIN_LAYOUT_XATTR, len bytes. It may hold the settings chunk, deflate and shuffle, no others: it is anybody's. ret_options: the rest as an option string ("deflate=4,chunk=time:1"), owned
 * by the caller; "" when there is none. 0; -EINVAL and *err; -ENOMEM.
 */
int drain_layout_parse_xattr(
	const void *value, size_t len, enum drain_layout *ret, char **ret_options, struct cistern_error *err);

#endif
