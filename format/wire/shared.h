/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_WIRE_SHARED_H
#define FORMAT_WIRE_SHARED_H

/* Lists of files that several nodes wrote, on their way through a drain (docs/design/many-nodes.md, 6). */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/base/cursor.h"
#include "format/base/idmap.h"
#include "format/wire/wire.h"

#define WIRE_SHARED_BYTES (3u << 20) /* a list that is to go over a wire is no longer, encoded: it fits a frame */

struct wire_shared {
	uint64_t ino;
	uint64_t size;  /* bytes */
	uint64_t upto;  /* the home's version of it, up to which it will have been carried */
	uint64_t limit; /* WIRE_PART_BEGIN: the file's backing_limit as the agent knows it. */
	uint64_t stamp; /* commits up to this one will have been */
	/* By sessions before: what was committed up to that stamp, and written up to that time (UINT64_MAX: whenever); 0: nothing. */
	uint64_t drained_stamp, drained_usec;
	bool in_place;  /* an existing file; else path is a temporary name */
	uint8_t layout; /* enum drain_layout: subfiles are made of it; canonical: path is written */
	bool failed;    /* a node could not write its part: */
	uint32_t failed_node;
	uint32_t failed_errno; /* 0: one that was lost on the way; which, is not known here */
	/* What has been written of it so far; from an agent: by its part of the drain. */
	uint64_t written; /* bytes */
	uint64_t extents;
	uint32_t crc_sum; /* of crc32c_part(), over all that was written */
	uint64_t
		temp_ino; /* of the temporary file as it was begun; 0: not known. Not encoded: a job's stores have no other drain */
	uint64_t missing; /* bytes that only lost stores had. Not encoded: a job's drain knows of none */
	bool published;   /* WIRE_PART_FILES: it has its name. Not encoded */
	bool told;        /* an agent has spoken of it. Not encoded */
	char *path;       /* owned by the list: in the backing directory */
	char *shown;      /* likewise: in the mount */
};

struct wire_shared_list {       /* zero-initialised = empty */
	struct wire_shared *at; /* owned */
	size_t num, cap;
	struct idmap index; /* owned: inode -> its place in at + 1 */
	size_t bytes;       /* encoded */
	bool stays_here;    /* it goes over no wire: as long as there is memory for it */
};

/* Is there something of f to be done in this part, of those that all nodes do? */
bool wire_shared_has_part(const struct wire_shared *f, enum wire_part part);

void wire_shared_free(struct wire_shared_list *list);
/* Copies f, path and shown too. f->ino is not 0. -ENOMEM; -ENOSPC: the list is as long as may be. */
int wire_shared_add(struct wire_shared_list *list, const struct wire_shared *f);
struct wire_shared *wire_shared_find(const struct wire_shared_list *list, uint64_t ino); /* NULL: not in it */
void wire_shared_encode(const struct wire_shared_list *list, struct buf *out);
/* Appends to list. -EBADMSG, -ENOMEM, -ENOSPC: the list is as it was. */
int wire_shared_decode(const void *bytes, size_t len, struct wire_shared_list *list);

#endif
