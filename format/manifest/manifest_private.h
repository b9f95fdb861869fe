/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_MANIFEST_MANIFEST_PRIVATE_H
#define FORMAT_MANIFEST_MANIFEST_PRIVATE_H

/* What the log and the summary that is made of it know of each other. */

#include <stdio.h>

#include "format/manifest/manifest.h"

struct manifest {
	FILE *log;                     /* owned */
	const char *node;              /* borrowed; NULL: one alone */
	int error;                     /* the first one of a line that was added */
	struct manifest_piece *stores; /* owned: of each store that has told something, the last piece */
	size_t num_stores, cap_stores;
};

#endif
