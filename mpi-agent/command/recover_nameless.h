/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef MPI_AGENT_COMMAND_RECOVER_NAMELESS_H
#define MPI_AGENT_COMMAND_RECOVER_NAMELESS_H

/* Files of a dead job whose home, and all that wrote to them or had them open, are lost: the maps of others know that there were some. */

#include <stdint.h>

#include "format/manifest/manifest.h"
#include "mpi-agent/command/recover_set.h"

/*
 * Behind recover_set_merge(). Each is told to error(path, code, text, arg), NULL: nobody, and has a line of its own in the manifest (NULL: none), with
 * its ranges and whose they were. *ret_bytes: how many bytes they had. The map of the store that leads gets what others' maps know. 0 or -errno.
 */
int recover_nameless(struct recover_set *set, struct manifest *manifest,
	void (*error)(const char *path, int code, const char *text, void *arg), void *arg, uint64_t *ret_bytes);

#endif
