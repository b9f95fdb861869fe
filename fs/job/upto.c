/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The layer's extents are asked for in portions; a file may have any number of them. */
#include "fs/job/upto.h"

#include <errno.h>
#include <stdlib.h>

#define LAYER_EXTENTS 256

int upto_committed(struct state *st, uint64_t ino, uint64_t stamp, uint64_t *ret)
{
	struct commit_point last;
	int r = state_commit_by(st, ino, stamp, &last, NULL);

	*ret = last.upto;
	return r;
}

int upto_settled(struct state *st, uint64_t ino, uint64_t stamp, uint64_t *upto)
{
	struct commit_point last;
	bool later = false;
	int r = state_commit_by(st, ino, stamp, &last, &later);

	if (r == 0 && later && last.upto < *upto)
		*upto = last.upto;
	return r;
}

int upto_before(struct state *st, uint64_t ino, uint64_t time_usec, uint64_t *upto)
{
	struct layer_extent *ext = calloc(LAYER_EXTENTS, sizeof(*ext));
	int r = ext ? 0 : -ENOMEM;
	uint64_t off = 0;
	size_t num;

	while (r == 0 && time_usec && off != UINT64_MAX) {
		r = state_layer(st, ino, off, UINT64_MAX - off, ext, LAYER_EXTENTS, &num, &off);
		for (size_t i = 0; r == 0 && i < num; i++)
			if (ext[i].ext.time_usec > time_usec && ext[i].ext.seq <= *upto)
				*upto = ext[i].ext.seq - 1;
	}
	free(ext);
	return r;
}
