/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Questions about layers and share maps. */
#include "format/index/state_private.h"

#include <errno.h>

int state_layer(struct state *st, uint64_t ino, uint64_t off, uint64_t len, struct layer_extent *out, size_t cap,
	size_t *ret_num, uint64_t *ret_next)
{
	(void)st, (void)ino, (void)off, (void)len, (void)out, (void)cap, (void)ret_num, (void)ret_next;
	return -ENOSYS;
}

int state_uncommitted(struct state *st, uint64_t ino, uint64_t off, struct extent *out, size_t cap, size_t *ret_num,
	uint64_t *ret_next)
{
	(void)st, (void)ino, (void)off, (void)out, (void)cap, (void)ret_num, (void)ret_next;
	return -ENOSYS;
}

int state_commit_points(struct state *st, uint64_t ino, struct commit_point *out, size_t cap, size_t *ret_num)
{
	(void)st, (void)ino, (void)out, (void)cap, (void)ret_num;
	return -ENOSYS;
}

int state_share_extents(struct state *st, uint64_t ino, uint64_t off, uint64_t len, struct share_extent *out,
	size_t cap, size_t *ret_num, uint64_t *ret_next)
{
	(void)st, (void)ino, (void)off, (void)len, (void)out, (void)cap, (void)ret_num, (void)ret_next;
	return -ENOSYS;
}

int state_each_shared(struct state *st, int (*cb)(uint64_t ino, uint64_t extents, void *arg), void *arg)
{
	(void)st, (void)cb, (void)arg;
	return -ENOSYS;
}

int state_conflicts(struct state *st, uint64_t ino, int (*cb)(const struct share_conflict *c, void *arg), void *arg,
	uint64_t *ret_more)
{
	(void)st, (void)ino, (void)cb, (void)arg, (void)ret_more;
	return -ENOSYS;
}
