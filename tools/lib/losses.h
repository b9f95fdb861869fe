/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef TOOLS_LIB_LOSSES_H
#define TOOLS_LIB_LOSSES_H

/* Bytes of a file that stores should have and that cannot be had: which, whose, and why. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct content;

enum loss_why {
	LOSS_NOT_GIVEN, /* its store is not given */
	LOSS_GONE,      /* its segment cannot be read there */
	LOSS_DAMAGED,   /* what is read has another checksum */
};

struct loss {
	uint64_t off, len; /* in the file; the whole payload of a write, or of several that follow each other */
	uint32_t node;     /* that wrote it */
	uint32_t segment;  /* but of LOSS_NOT_GIVEN: of that node's store */
	enum loss_why why;
};

#define LOSSES_MAX 32u

struct losses { /* zero-initialised = none; sorted by off, no overlaps */
	struct loss list[LOSSES_MAX];
	size_t num;
	bool more; /* than fit in there */
};

const char *loss_why_name(enum loss_why why); /* "store not given", "segment missing", "checksum wrong" */
/*
 * Looks at each payload that [off, end) needs, and puts what cannot be had into c->losses. *ret_first: the first such byte in the range, end:
 * there is none. 0, -ENOMEM, -errno of an index.
 */
int losses_look(struct content *c, uint64_t off, uint64_t end, uint64_t *ret_first);

#endif
