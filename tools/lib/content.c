/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A read goes to the mount where that is the only one to know, to the private segment, to the stores of all nodes by the share map, or to
 * the one store, with the backing file below them. Descriptors are opened once: what is read is one file, whatever becomes of its names.
 */
#include "tools/lib/content.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/base/crc32c.h"
#include "format/base/fdio.h"
#include "format/store/unite.h"

#define EXTENTS_AT_ONCE 64

/* Zeros behind the end. */
static int read_fully(int fd, void *buf, size_t len, uint64_t off)
{
	ssize_t n = fdio_read(fd, buf, len, off);

	if (n < 0)
		return (int)n;
	memset((char *)buf + n, 0, len - (size_t)n);
	return 0;
}

static int read_backing(uint64_t off, size_t len, void *buf, void *arg)
{
	const struct content *c = arg;

	return c->backing_fd < 0 ? c->backing_error : read_fully(c->backing_fd, buf, len, off);
}

static void open_backing(struct content *c)
{
	char path[PATH_MAX], whole[2 * PATH_MAX];
	int r = state_backing_path(store_state(c->store), c->in.ino, path, sizeof(path));

	if (r == 0) {
		snprintf(whole, sizeof(whole), "%s/%s", store_superblock(c->store)->backing, path);
		c->backing_fd = open(whole, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
		r = c->backing_fd < 0 ? -errno : 0;
	}
	c->backing_error = r;
}

static int open_shared(struct content *c, const char *mounted)
{
	struct store_united united;
	struct stat st;
	int r = store_unite(
		c->stores->by_node, c->stores->num_nodes, c->in.ino, store_state(c->store), c->in.ino, &united);

	if (r < 0)
		return r;
	c->shared = true;
	if (united.size > c->size || united.size < c->in.size)
		c->size = united.size;
	if (c->in.backing_limit > united.limit)
		c->in.backing_limit = united.limit;
	c->mounted_fd = mounted ? open(mounted, O_RDONLY | O_CLOEXEC) : -1;
	c->partial = c->mounted_fd < 0 && c->stores->num < c->stores->num_nodes;
	if (c->mounted_fd >= 0 && fstat(c->mounted_fd, &st) == 0)
		c->size = (uint64_t)st.st_size;
	return 0;
}

int content_open(const struct stores *all, struct store *s, const struct inode *in, uint64_t size, const char *mounted,
	struct content *ret, struct cistern_error *err)
{
	struct content c = {
		.store = s, .stores = all, .in = *in, .size = size, .private_fd = -1, .backing_fd = -1, .mounted_fd = -1
	};
	int r;

	if (in->flags & (INODE_SHARED | INODE_FOREIGN) && (r = open_shared(&c, mounted)) < 0)
		return cistern_error_set(err, r, "putting the stores' parts together: %s", strerror(-r));
	if (in->ino != 0)
		open_backing(&c);
	else if ((c.backing_fd = open(mounted, O_RDONLY | O_CLOEXEC)) < 0)
		return cistern_error_set(err, -errno, "%s", strerror(errno));
	if (in->flags & INODE_PRIVATE)
		c.private_fd = segment_open_fd(store_segments(s), in->private_segment, false);
	*ret = c;
	return 0;
}

bool content_is_unseen(const struct content *c, uint32_t node)
{
	return c->shared && c->mounted_fd < 0 && node < c->stores->num_nodes && !c->stores->by_node[node];
}

void content_close(struct content *c)
{
	if (c->private_fd >= 0)
		close(c->private_fd);
	if (c->backing_fd >= 0)
		close(c->backing_fd);
	if (c->mounted_fd >= 0)
		close(c->mounted_fd);
	c->private_fd = c->backing_fd = c->mounted_fd = -1;
}

/* ---- reading */

/* Bytes of no node: the backing file's, as far as it shows. What is not at its home has no limit that is known here. */
static int read_below(struct content *c, uint8_t *buf, size_t len, uint64_t off)
{
	uint64_t limit = c->in.flags & INODE_FOREIGN ? UINT64_MAX : c->in.backing_limit;
	size_t shown = off >= limit ? 0 : limit - off < len ? (size_t)(limit - off) : len;

	if (c->backing_error == -ENOENT)
		shown = 0;
	memset(buf + shown, 0, len - shown);
	return shown == 0 ? 0 : read_backing(off, shown, buf, c);
}

static int read_extent(struct content *c, const struct share_extent *e, uint8_t *buf)
{
	int r;

	if (e->kind != EXTENT_LOG) {
		memset(buf, 0, e->len);
		return 0;
	}
	if (e->node >= c->stores->num_nodes || !c->stores->by_node[e->node])
		return -ENODATA;
	r = segment_read(store_segments(c->stores->by_node[e->node]), e->segment, e->segment_off, buf, e->len);
	return r == 0 && e->whole && crc32c(0, buf, e->len) != e->crc ? -EBADMSG : r;
}

/* By the share map; of what nobody wrote, the backing file. */
static int read_shared(struct content *c, uint8_t *buf, size_t len, uint64_t from)
{
	struct share_extent ext[EXTENTS_AT_ONCE];
	uint64_t off = from, end = from + len, next;
	size_t num;
	int r = 0;

	while (r == 0 && off < end) {
		r = state_share_extents(
			store_state(c->store), c->in.ino, off, end - off, ext, EXTENTS_AT_ONCE, &num, &next);
		for (size_t i = 0; r == 0 && i <= num; i++) {
			uint64_t to = i < num ? ext[i].off : next;

			r = read_below(c, buf + (off - from), (size_t)(to - off), off);
			off = to;
			if (r == 0 && i < num)
				r = read_extent(c, &ext[i], buf + (off - from));
			if (r == 0 && i < num)
				off += ext[i].len;
		}
	}
	return r;
}

static int read_all(struct content *c, void *buf, size_t len, uint64_t off)
{
	if (c->mounted_fd >= 0)
		return read_fully(c->mounted_fd, buf, len, off);
	if (c->shared)
		return read_shared(c, buf, len, off);
	if (c->in.flags & INODE_PRIVATE)
		return c->private_fd < 0 ? c->private_fd : read_fully(c->private_fd, buf, len, off);
	if (c->in.ino == 0)
		return read_fully(c->backing_fd, buf, len, off);
	return store_read(c->store, &c->in, off, len, buf, true, read_backing, c, NULL);
}

/* What comes before the first byte that cannot be had; r: why the read failed. */
static ssize_t read_before_loss(struct content *c, void *buf, size_t len, uint64_t off, int r)
{
	uint64_t first = off + len;
	int found = losses_look(c, off, off + len, &first);

	if (found < 0 || first == off + len)
		return found < 0 ? found : r; /* it was something else */
	if (first == off)
		return -ENODATA;
	r = read_all(c, buf, (size_t)(first - off), off);
	return r < 0 ? r : (ssize_t)(first - off);
}

ssize_t content_read(void *buf, size_t len, uint64_t off, void *arg)
{
	struct content *c = arg;
	int r;

	if (off >= c->size)
		return 0;
	if (len > c->size - off)
		len = (size_t)(c->size - off);
	if (off + len > c->reach)
		c->reach = off + len;
	r = read_all(c, buf, len, off);
	if (r == 0)
		return (ssize_t)len;
	return c->mounted_fd >= 0 || c->in.ino == 0 || r == -ENOMEM ? r : read_before_loss(c, buf, len, off, r);
}

static int each_data(int fd, uint64_t off, uint64_t end, int (*each)(uint64_t off, uint64_t len, void *arg), void *arg)
{
	int r = 0;

	while (r == 0 && off < end) {
		off_t data = lseek(fd, (off_t)off, SEEK_DATA), hole;

		if (data < 0)
			return errno == ENXIO ? 0 : -errno;
		if ((uint64_t)data >= end)
			break;
		hole = lseek(fd, data, SEEK_HOLE);
		if (hole <= data)
			return hole < 0 ? -errno : 0;
		off = (uint64_t)hole < end ? (uint64_t)hole : end;
		r = each((uint64_t)data, off - (uint64_t)data, arg);
	}
	return r;
}

int content_each_backed(const struct content *c, uint64_t off, uint64_t len,
	int (*each)(uint64_t off, uint64_t len, void *arg), void *arg)
{
	return c->backing_fd < 0 ? 0 : each_data(c->backing_fd, off, off + len, each, arg);
}

int content_each_private(const struct content *c, int (*each)(uint64_t off, uint64_t len, void *arg), void *arg)
{
	return c->private_fd < 0 ? 0 : each_data(c->private_fd, 0, c->size, each, arg);
}
