/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_STORE_HOSTS_H
#define FORMAT_STORE_HOSTS_H

/* The hosts of a job's nodes as they were when it assembled last, for messages about a node whose store is not at hand. */

#include <stdint.h>

#include "format/base/io.h"
#include "format/store/store.h"

#define HOSTS_FILE       "hosts" /* in the store */
#define HOSTS_NAME_BYTES 80      /* with the NUL */
#define HOSTS_NODE_BYTES (HOSTS_NAME_BYTES + 32)

/* The names of num hosts, by node. What is there already is not written again. 0, -errno; the old file stays then. */
int hosts_note(struct store *s, const char *const *names, uint32_t num);
/* -ENOENT: it is not known; -EBADMSG: the file is damaged; other -errno: it cannot be read. */
int hosts_find(struct store *s, uint32_t node, char ret[HOSTS_NAME_BYTES]);
/* The same of a store that somebody else has opened: by its directory. */
int hosts_find_in(struct io *dir, uint32_t node, char ret[HOSTS_NAME_BYTES]);
/* All that are known, in order. name: valid for the call. Errors as above. */
int hosts_each(struct store *s, void (*fn)(uint32_t node, const char *name, void *arg), void *arg);
/* "node 3 (host n17)", or "node 3". Returns out. */
const char *hosts_node_text(struct store *s, uint32_t node, char out[HOSTS_NODE_BYTES]);

#endif
