/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_BASE_HINTS_H
#define FORMAT_BASE_HINTS_H

/*
 * The text of the environment variable PNETCDF_HINTS, by which users set PnetCDF's hints at run time: "key=value;key=value",
 * blanks around either mean nothing, the last one of a key counts. As PnetCDF reads it, what is not of this form is skipped.
 */

#include <stdbool.h>
#include <stddef.h>

#define HINTS_ENV "PNETCDF_HINTS"

/* Copies the value of key, cut to cap - 1 bytes; false, out unchanged: there is none. hints may be NULL. */
bool hints_find(const char *hints, const char *key, char *out, size_t cap);
/* The key of the first part of *hints that has one, cut to cap - 1 bytes; *hints is then behind it. false: there is none. */
bool hints_next_key(const char **hints, char *out, size_t cap);
/* The first part that is not of the form, cut to cap - 1 bytes; false: all are. */
bool hints_malformed(const char *hints, char *out, size_t cap);

#endif
