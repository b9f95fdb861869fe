/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef AGENT_COMMAND_RECOVER_UNSEEN_H
#define AGENT_COMMAND_RECOVER_UNSEEN_H

#include <stdbool.h>

#include "format/index/state.h"

/*
 * Files that have something to carry and no name, but a link in the backing directory that the store has never seen, get a name of their own in st:
 * NAME.recovered-inode-N, beside the name that was removed. Only those that nodes share, if shared. Said on stderr unless silent. 0, or -errno.
 */
int recover_unseen_name(struct state *st, bool shared, bool silent);

/*
 * Of a file that has names, and links in the backing directory that the store has never seen (or has forgotten, of a drained file), those are not made
 * elsewhere: said on stderr unless silent. 0, or -errno.
 */
int recover_unseen_links(struct state *st, bool silent);

#endif
