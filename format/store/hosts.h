/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_STORE_HOSTS_H
#define FORMAT_STORE_HOSTS_H

/* The hosts of a job's nodes as they were when it assembled last, for messages about a node whose store is not at hand. */

#include <stdint.h>

#include "format/store/store.h"

#define HOSTS_FILE       "hosts" /* in the store */
#define HOSTS_NAME_BYTES 80      /* with the NUL */

/* The names of num hosts, by node. What is there already is not written again. 0, -errno; the old file stays then. */
int hosts_note(struct store *s, const char *const *names, uint32_t num);
/* -ENOENT: it is not known; -EBADMSG: the file is damaged; other -errno: it cannot be read. */
int hosts_find(struct store *s, uint32_t node, char ret[HOSTS_NAME_BYTES]);

#endif
