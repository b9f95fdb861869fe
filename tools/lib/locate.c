/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A store has the names of what was changed. All others are in the backing directory, below directories that the store may have
 * moved, and beside names that it has taken away.
 */
#include "tools/lib/locate.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "format/place/shown.h"

int locate_clean(const char *path, struct inode *ret)
{
	struct stat sb;

	if (lstat(path, &sb) < 0 || !S_ISREG(sb.st_mode))
		return -ENOENT;
	*ret = (struct inode){ .mode = sb.st_mode,
		.nlink = (uint32_t)sb.st_nlink,
		.size = (uint64_t)sb.st_size,
		.backing_limit = (uint64_t)sb.st_size };
	return 0;
}

void locate_now(struct store *s, struct inode *in)
{
	const uint32_t own =
		INODE_NEW | INODE_DIRTY_DATA | INODE_PRIVATE | INODE_SHARED | INODE_FOREIGN | INODE_UNPUBLISHED;
	char path[PATH_MAX], whole[2 * PATH_MAX];
	struct stat sb;

	if (!S_ISREG(in->mode) || in->flags & own ||
		state_backing_path(store_state(s), in->ino, path, sizeof(path)) < 0)
		return;
	snprintf(whole, sizeof(whole), "%s/%s", store_superblock(s)->backing, path);
	if (lstat(whole, &sb) == 0 && S_ISREG(sb.st_mode))
		in->size = in->backing_limit = (uint64_t)sb.st_size;
}

struct search {
	uint64_t shown;
	struct inode *ret;
};

static int compare_shown(const struct inode *in, void *arg)
{
	struct search *s = arg;

	if (shown_number(in->ino) != s->shown)
		return 0;
	*s->ret = *in;
	return 1;
}

/* By the number that the mount shows. Where that is a hash, all are looked at. */
static int find_shown(const struct stores *all, uint64_t shown, struct store **ret_store, struct inode *ret)
{
	struct search s = { shown, ret };
	uint64_t ino;
	int r = 0;

	if (shown_inode(shown, &ino))
		return stores_find_ino(all, ino, ret_store, ret);
	for (size_t i = 0; r == 0 && i < all->num; i++) {
		*ret_store = all->list[i].store;
		r = state_each_inode(store_state(*ret_store), compare_shown, &s);
	}
	return r > 0 ? 0 : r < 0 ? r : -ENOENT;
}

static int locate_known(const struct stores *all, struct store *first, const char *path, const char *mounted,
	struct store **ret_store, struct inode *ret)
{
	int r = stores_find(all, path, ret_store, ret);
	struct stat sb;

	if (r == -ENOENT && !mounted)
		r = stores_find_remembered(all, path, ret_store, ret);
	if (r != -ENOENT || !mounted || lstat(mounted, &sb) < 0)
		return r;
	r = find_shown(all, sb.st_ino, ret_store, ret);
	*ret_store = r < 0 ? first : *ret_store;
	return r == -ENOENT ? locate_clean(mounted, ret) : r;
}

int locate_file(const struct stores *all, struct store *first, const char *path, const char *mounted,
	struct store **ret_store, struct inode *ret)
{
	int r = locate_known(all, first, path, mounted, ret_store, ret);

	if (r == 0 && ret->ino != 0)
		locate_now(*ret_store, ret);
	return r;
}

int locate_size(struct store *s, const struct inode *in, uint64_t *ret_size, uint64_t *ret_private_bytes)
{
	uint64_t size = in->size, bytes = 0;
	int64_t mtime_ns;
	int r = 0;

	if (in->flags & INODE_PRIVATE)
		r = segment_private_size(store_segments(s), in->private_segment, &size, &bytes, &mtime_ns);
	if (r < 0 && r != -ENOENT) /* that there is none is fsck's business */
		return r;
	*ret_size = size;
	if (ret_private_bytes)
		*ret_private_bytes = bytes;
	return 0;
}

int locate_backing(struct store *s, const char *path, char *out, size_t cap)
{
	uint64_t dir = STATE_ROOT_INO, owner;
	char part[RECORD_NAME_MAX + 1];
	struct state_name name;

	for (;;) {
		size_t len = strcspn(path, "/");
		int r;

		if (len == 0 || len > RECORD_NAME_MAX)
			return -ENOENT;
		memcpy(part, path, len);
		part[len] = '\0';
		r = state_lookup(store_state(s), dir, part, &name);
		if (r == -ENOENT && state_backing_owner(store_state(s), dir, part, &owner) == -ENOENT)
			break;
		if (r < 0)
			return r;
		dir = name.ino;
		path += len;
		path += strspn(path, "/");
	}
	if (snprintf(out, cap, "%s/", store_superblock(s)->backing) >= (int)cap)
		return -ENAMETOOLONG;
	return state_backing_child_path(store_state(s), dir, path, out + strlen(out), cap - strlen(out));
}
