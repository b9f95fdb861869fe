/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOOLS_LIB_LIBEXEC_H
#define TOOLS_LIB_LIBEXEC_H

/* Where the long-running programs (cistern-fs, cistern-agent) are. */

#include <limits.h>

#include "cistern/error.h"

/*
 * Searches the directories of CISTERN_LIBEXEC (separated by colons), the one given at build time, the directory of
 * this program, and ../fs, ../mpi-agent and ../libexec/cistern from there. -ENOENT: none has an executable of that
 * name; the text says where was searched.
 */
int libexec_find(const char *program, char out[PATH_MAX], struct cistern_error *err);

#endif
