/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_WINDOW_FILES_H
#define MPI_AGENT_WINDOW_FILES_H

/* The segments of a store as files: nobody but its daemon makes or removes them. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#define FILES_NAME_MAX 32

int files_open_store(const char *store); /* the folder of its segments. fd or -errno */
const char *files_name(uint32_t segment, bool is_private, char out[FILES_NAME_MAX]);
/* The segment of either kind, to be read. fd, -ENOENT, -errno. */
int files_open(int dirfd, uint32_t segment, struct stat *st, bool *ret_private);
bool files_is_deleted(int dirfd, uint32_t segment);

#endif
