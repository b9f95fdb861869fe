/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A read goes to the mount where that is the only one to know, to the private segment, or to the store with the backing file
 * below it. Descriptors are opened once: what is read is one file, whatever becomes of its names.
 */
#include "tools/lib/content.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/base/fdio.h"

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

int content_open(struct store *s, const struct inode *in, uint64_t size, const char *mounted, struct content *ret,
	struct cistern_error *err)
{
	struct content c = {
		.store = s, .in = *in, .size = size, .private_fd = -1, .backing_fd = -1, .mounted_fd = -1
	};

	if (in->flags & INODE_PRIVATE)
		c.private_fd = segment_open_fd(store_segments(s), in->private_segment, false);
	if (in->flags & (INODE_SHARED | INODE_FOREIGN)) {
		struct stat st;

		c.mounted_fd = mounted ? open(mounted, O_RDONLY | O_CLOEXEC) : -1;
		c.partial = c.mounted_fd < 0;
		if (c.mounted_fd >= 0 && fstat(c.mounted_fd, &st) == 0)
			c.size = (uint64_t)st.st_size;
	}
	if (in->ino != 0)
		open_backing(&c);
	else if ((c.backing_fd = open(mounted, O_RDONLY | O_CLOEXEC)) < 0)
		return cistern_error_set(err, -errno, "%s", strerror(errno));
	*ret = c;
	return 0;
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

ssize_t content_read(void *buf, size_t len, uint64_t off, void *arg)
{
	struct content *c = arg;
	int r;

	if (off >= c->size)
		return 0;
	if (len > c->size - off)
		len = (size_t)(c->size - off);
	if (c->mounted_fd >= 0)
		r = read_fully(c->mounted_fd, buf, len, off);
	else if (c->in.flags & INODE_PRIVATE)
		r = c->private_fd < 0 ? c->private_fd : read_fully(c->private_fd, buf, len, off);
	else if (c->in.ino == 0)
		r = read_fully(c->backing_fd, buf, len, off);
	else
		r = store_read(c->store, &c->in, off, len, buf, true, read_backing, c, NULL);
	return r < 0 ? r : (ssize_t)len;
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
