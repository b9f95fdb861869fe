/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The layer's extents are asked for in portions; a file may have any number of them. */
#include "fs/job/upto.h"

#include <errno.h>
#include <stdlib.h>

#define COMMIT_POINTS 4096
#define LAYER_EXTENTS 256

int upto_committed(struct state *st, uint64_t ino, uint64_t stamp, uint64_t *ret)
{
	struct commit_point *points = calloc(COMMIT_POINTS, sizeof(*points));
	size_t num = 0;
	int r = points ? state_commit_points(st, ino, points, COMMIT_POINTS, &num) : -ENOMEM;

	*ret = 0;
	for (size_t i = 0; r == 0 && i < num && i < COMMIT_POINTS && points[i].stamp <= stamp; i++)
		*ret = points[i].upto;
	free(points);
	return r;
}

int upto_settled(struct state *st, uint64_t ino, uint64_t stamp, uint64_t *upto)
{
	struct commit_point *points = calloc(COMMIT_POINTS, sizeof(*points));
	uint64_t before = 0;
	size_t num = 0, i = 0;
	int r = points ? state_commit_points(st, ino, points, COMMIT_POINTS, &num) : -ENOMEM;

	for (; r == 0 && i < num && i < COMMIT_POINTS && points[i].stamp <= stamp; i++)
		before = points[i].upto;
	if (r == 0 && i < num && before < *upto)
		*upto = before;
	free(points);
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
