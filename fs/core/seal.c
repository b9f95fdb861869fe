/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The end of a private segment as such: what it has becomes extents of the log, which lie in it, and whatever comes behind goes to
 * segments of the log. Only when the kernel cannot write into it any more without us: extents do not change.
 */
#include "fs/core/private.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "format/base/array.h"
#include "format/base/clock.h"

#define RANGE_BYTES_MAX (1u << 30)

struct ranges {
	struct record_range *at; /* owned */
	size_t num, cap;
};

static int add(struct ranges *r, uint64_t off, uint64_t end)
{
	for (uint64_t len; off < end; off += len) {
		len = end - off < RANGE_BYTES_MAX ? end - off : RANGE_BYTES_MAX;
		if (r->num == RECORD_EXTENTS_MAX)
			return -E2BIG;
		if (array_room(&r->at, &r->cap, r->num, sizeof(*r->at)) < 0)
			return -ENOMEM;
		r->at[r->num++] = (struct record_range){ .off = off, .len = (uint32_t)len };
	}
	return 0;
}

static int list_data(int fd, uint64_t size, struct ranges *ret)
{
	int rc = 0;

	for (off_t at = 0, end; rc == 0 && (uint64_t)at < size; at = end) {
		at = lseek(fd, at, SEEK_DATA);
		if (at < 0)
			return errno == ENXIO ? 0 : -errno;
		end = lseek(fd, at, SEEK_HOLE);
		if (end < 0)
			return -errno;
		rc = add(ret, (uint64_t)at, (uint64_t)end < size ? (uint64_t)end : size);
	}
	return rc;
}

/* With more pieces than a record has room for, holes are data, too: a record is applied whole or not at all, several are not. */
static int list_ranges(int fd, uint64_t size, struct ranges *ret)
{
	int rc = list_data(fd, size, ret);

	if (rc != -E2BIG)
		return rc;
	ret->num = 0;
	return add(ret, 0, size) == 0 ? 0 : -EFBIG;
}

int seal_private(struct core *c, struct node *n, struct inode *in)
{
	struct record rec = { .type = RECORD_SEAL, .ino = n->ino, .segment = in->private_segment };
	struct ranges r = { 0 };
	struct stat st;

	if (n->pass_opens > 0 || straggler_holds(c, n, in))
		return -EBUSY;
	int fd = data_private_fd(c, n, in);
	if (fd < 0)
		return fd;
	int rc = fstat(fd, &st) < 0 ? -errno : list_ranges(fd, (uint64_t)st.st_size, &r);
	if (rc == 0) {
		rec.size = (uint64_t)st.st_size;
		rec.mtime_ns = clock_ns_of(st.st_mtim);
		rec.ranges = r.at;
		rec.num_ranges = r.num;
		rc = store_commit(c->store, &rec);
	}
	free(r.at);
	if (rc < 0)
		return rc;
	close(atomic_exchange(&n->private_fd, -1));
	n->cache = CACHE_OTHER; /* the kernel's pages of it are from before it was private */
	return state_inode(c->state, n->ino, in);
}

int core_seal(struct core *c, uint64_t ino)
{
	struct node_ref r NODE_CLEANUP = { c, NULL };
	struct inode in;
	int rc = share_take_number(c, ino, &r.n);

	if (rc < 0)
		return rc;
	pthread_rwlock_wrlock(&r.n->lock);
	rc = state_inode(c->state, ino, &in);
	if (rc == 0 && in.flags & INODE_PRIVATE)
		rc = seal_private(c, r.n, &in);
	pthread_rwlock_unlock(&r.n->lock);
	return rc == -ENOENT ? -ESTALE : rc;
}
