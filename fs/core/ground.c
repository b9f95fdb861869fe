/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What the backing directory will refuse when a change is drained is refused at the call, as far as it can be known without asking for every
 * call: which file system a directory is on (names do not cross them), how long names may be there, that it is read-only, and that a file or
 * directory is immutable or append-only (docs/design/one-node.md, 3).
 *
 * A look costs an open and two calls, so what it gave is kept with the node. What has been kept may be old: nothing is refused before
 * a new look has said the same. What was not to be refused when it was looked at, and is now, the drain tells of.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "fs/core/private.h"

enum { FIXED = 1, READ_ONLY = 2 };

#define KNOWN      (UINT64_C(1) << 63)
#define MOUNT_BITS 40
#define MOUNT_MASK ((UINT64_C(1) << MOUNT_BITS) - 1)

struct ground {
	uint64_t mount; /* two names with different ones cannot be of one file */
	unsigned int name_max, flags;
};

static uint64_t pack(const struct ground *g)
{
	return KNOWN | (g->mount & MOUNT_MASK) | (uint64_t)(g->name_max & 0xffff) << MOUNT_BITS |
	       (uint64_t)(g->flags & 0x7f) << (MOUNT_BITS + 16);
}

static bool unpack(uint64_t packed, struct ground *ret)
{
	*ret = (struct ground){ .mount = packed & MOUNT_MASK,
		.name_max = packed >> MOUNT_BITS & 0xffff,
		.flags = packed >> (MOUNT_BITS + 16) & 0x7f };
	return packed & KNOWN;
}

/* Append-only is as good as immutable: a drain writes in place, gives names by renaming, and sets times. */
static unsigned int flags_of(const struct statx *sx, const struct statvfs *v)
{
	return (sx->stx_attributes & (STATX_ATTR_IMMUTABLE | STATX_ATTR_APPEND) ? FIXED : 0) |
	       (v->f_flag & ST_RDONLY ? READ_ONLY : 0);
}

/* Without numbers of mounts (Linux 5.7 and older) the device has to do. */
static uint64_t mount_of(const struct statx *sx)
{
#ifdef STATX_MNT_ID
	if (sx->stx_mask & STATX_MNT_ID)
		return sx->stx_mnt_id;
#endif
	return (uint64_t)sx->stx_dev_major << 20 | sx->stx_dev_minor;
}

#ifdef STATX_MNT_ID
#define WANTED STATX_MNT_ID
#else
#define WANTED 0
#endif

static int look(struct core *c, struct node *n, struct ground *ret)
{
	int fd = n == c->root ? c->backing_fd : overlay_open(c, n, O_PATH);
	struct statvfs v;
	struct statx sx;
	int rc = 0;

	if (fd < 0)
		return fd;
	if (statx(fd, "", AT_EMPTY_PATH | AT_NO_AUTOMOUNT, WANTED, &sx) || fstatvfs(fd, &v))
		rc = -errno;
	if (rc == 0)
		*ret = (struct ground){
			.mount = mount_of(&sx), .name_max = (unsigned int)v.f_namemax, .flags = flags_of(&sx, &v)
		};
	if (n != c->root)
		close(fd);
	return rc;
}

static bool ground_of(struct core *c, struct node *n, bool fresh, struct ground *ret);

/* What is only in the store will be where its directory is. */
static bool ground_above(struct core *c, struct node *n, bool fresh, struct ground *ret)
{
	struct node_ref up NODE_CLEANUP = node_take(c, n->parent_ino);

	if (!up.n || up.n == n || !ground_of(c, up.n, fresh, ret))
		return false;
	ret->flags &= READ_ONLY;
	return true;
}

void ground_inherit(struct node *n, const struct node *dir)
{
	struct ground g;

	if (!unpack(dir->ground, &g))
		return;
	g.flags &= READ_ONLY;
	n->ground = pack(&g);
}

/* False: it cannot be known now, and nothing is refused. */
static bool ground_of(struct core *c, struct node *n, bool fresh, struct ground *ret)
{
	if (!fresh && unpack(n->ground, ret))
		return true;
	int rc = look(c, n, ret);
	if (rc < 0 && (rc != -ENOENT || !ground_above(c, n, fresh, ret)))
		return false;
	n->ground = pack(ret);
	return true;
}

void ground_before(struct core *c, struct node *n)
{
	struct ground g;

	(void)ground_of(c, n, false, &g);
}

/* Has n any of these flags? 0, or why that forbids a change. */
static int check_flags(struct core *c, struct node *n, unsigned int flags)
{
	struct ground g;

	if (!ground_of(c, n, false, &g) || !(g.flags & flags) || !ground_of(c, n, true, &g))
		return 0;
	g.flags &= flags;
	return g.flags & READ_ONLY ? -EROFS : g.flags ? -EPERM : 0;
}

static bool differ(struct core *c, struct node *a, struct node *b, bool fresh)
{
	struct ground of_a, of_b;

	return a != b && ground_of(c, a, fresh, &of_a) && ground_of(c, b, fresh, &of_b) && of_a.mount != of_b.mount;
}

bool ground_differs(struct core *c, struct node *a, struct node *b)
{
	return differ(c, a, b, false) && differ(c, a, b, true);
}

int ground_check_new(struct core *c, struct node *dir, const char *name)
{
	struct ground g;

	if (ground_of(c, dir, false, &g) && strlen(name) > g.name_max && ground_of(c, dir, true, &g) &&
		strlen(name) > g.name_max)
		return -ENAMETOOLONG;
	return check_flags(c, dir, READ_ONLY | FIXED);
}

int ground_check_loss(struct core *c, struct node *dir, struct node *n)
{
	int rc = check_flags(c, dir, READ_ONLY | FIXED);

	if (rc == 0)
		rc = check_flags(c, n, FIXED);
	return rc == 0 && n->type == S_IFDIR && ground_differs(c, dir, n) ? -EBUSY : rc; /* a mount point */
}

int ground_check_change(struct core *c, struct node *n)
{
	return check_flags(c, n, READ_ONLY | FIXED);
}

bool core_crosses(struct core *c, uint64_t one, uint64_t other)
{
	struct node_ref a NODE_CLEANUP = node_take(c, one), b NODE_CLEANUP = node_take(c, other);

	return a.n && b.n && ground_differs(c, a.n, b.n);
}
