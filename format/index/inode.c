/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Inodes as values. Bytes: u8 version (1; 2: with when its times were set; 3: with tagged fields), then varints in the order of
 * node_encode(); times are svarints, relative to mtime but for itself, since they mostly agree; origin's name is a u16 length and
 * bytes, 0 for none. What comes later is one more tagged field.
 */
#include "format/index/inode.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "format/base/tagged.h"

#define NODE_VERSION           1
#define NODE_VERSION_TIMES_SET 2
#define NODE_VERSION_TAGGED    3
#define TAG_DEVICE             RECORD_TAG_DEVICE /* required: u32 major, u32 minor */
#define FLAGS_ALL                                                                                             \
	(INODE_DIRTY_DATA | INODE_DIRTY_META | INODE_NEW | INODE_ORPHAN | INODE_PRIVATE | INODE_UNPUBLISHED | \
		INODE_DIRTY_XATTR | INODE_SHARED | INODE_FOREIGN | INODE_WRITERS)

bool node_is_remembered(const struct node *n)
{
	return n->freed && !S_ISDIR(n->mode);
}

void node_free(struct node *n)
{
	if (!n)
		return;
	free(n->origin_name);
	*n = (struct node){ 0 };
}

int node_set_origin(struct node *n, uint64_t parent, const char *name, size_t len)
{
	char *copy = NULL;

	if (len) {
		/* Not strndup(): name need not end in a zero byte, which checked builds ask of a string. */
		copy = malloc(len + 1);
		if (!copy)
			return -ENOMEM;
		memcpy(copy, name, len);
		copy[len] = '\0';
	}
	free(n->origin_name);
	n->origin_name = copy;
	n->origin_parent = copy ? parent : 0;
	return 0;
}

void node_to_inode(const struct node *n, struct inode *ret)
{
	ret->ino = n->ino;
	ret->gen = n->gen;
	ret->mode = n->mode;
	ret->uid = n->uid;
	ret->gid = n->gid;
	ret->nlink = n->nlink;
	ret->flags = n->flags;
	ret->size = n->size;
	ret->atime_ns = n->atime_ns;
	ret->mtime_ns = n->mtime_ns;
	ret->ctime_ns = n->ctime_ns;
	ret->btime_ns = n->btime_ns;
	ret->version = n->version;
	ret->data_version = n->data_version;
	ret->private_segment = n->private_segment;
	ret->backing_limit = n->backing_limit;
	ret->origin_parent = n->origin_parent;
	strcpy(ret->origin_name, n->origin_name ? n->origin_name : "");
	ret->backing_dev = n->backing_dev;
	ret->backing_ino = n->backing_ino;
	ret->num_names = n->num_names;
	ret->num_backing = n->num_backing;
	ret->times_set_ns = n->times_set_ns;
	ret->dev_major = n->dev_major;
	ret->dev_minor = n->dev_minor;
}

static void put_time(struct buf *out, int64_t t, int64_t base)
{
	buf_svarint(out, (int64_t)((uint64_t)t - (uint64_t)base));
}

static int64_t get_time(struct cursor *c, int64_t base)
{
	return (int64_t)((uint64_t)cursor_svarint(c) + (uint64_t)base);
}

static uint8_t version_of(const struct node *n)
{
	if (inode_is_special(n->mode))
		return NODE_VERSION_TAGGED;
	return n->times_set_ns ? NODE_VERSION_TIMES_SET : NODE_VERSION;
}

static void put_device(struct buf *out, const struct node *n)
{
	struct buf bytes BUF_CLEANUP = { 0 };

	buf_u32(&bytes, n->dev_major);
	buf_u32(&bytes, n->dev_minor);
	out->bad |= !buf_ok(&bytes);
	tagged_put(out, TAG_DEVICE, true, bytes.data, bytes.len);
}

int node_encode(const struct node *n, struct buf *out)
{
	uint8_t version = version_of(n);

	buf_u8(out, version);
	buf_varint(out, n->ino);
	buf_varint(out, n->gen);
	buf_varint(out, n->mode);
	buf_varint(out, n->uid);
	buf_varint(out, n->gid);
	buf_varint(out, n->nlink);
	buf_varint(out, n->flags);
	buf_varint(out, n->size);
	put_time(out, n->mtime_ns, 0);
	put_time(out, n->atime_ns, n->mtime_ns);
	put_time(out, n->ctime_ns, n->mtime_ns);
	put_time(out, n->btime_ns, n->mtime_ns);
	buf_varint(out, n->version);
	buf_varint(out, n->data_version);
	buf_varint(out, n->private_segment);
	buf_varint(out, n->backing_limit);
	buf_varint(out, n->origin_parent);
	buf_str(out, n->origin_name ? n->origin_name : "");
	buf_varint(out, n->backing_dev);
	buf_varint(out, n->backing_ino);
	buf_varint(out, n->num_pages);
	buf_varint(out, n->num_children);
	buf_varint(out, n->num_names);
	buf_varint(out, n->num_backing);
	buf_varint(out, n->num_xattrs);
	buf_u8(out, n->freed);
	if (version >= NODE_VERSION_TIMES_SET)
		buf_varint(out, (uint64_t)n->times_set_ns);
	if (version == NODE_VERSION_TAGGED)
		put_device(out, n);
	return buf_ok(out) ? 0 : -ENOMEM;
}

static uint32_t varint32(struct cursor *c)
{
	uint64_t v = cursor_varint(c);

	if (v > UINT32_MAX)
		cursor_fail(c);
	return (uint32_t)v;
}

static bool flag(struct cursor *c)
{
	uint8_t v = cursor_u8(c);

	if (v > 1)
		cursor_fail(c);
	return v;
}

static void decode_attributes(struct cursor *c, struct node *n)
{
	n->ino = cursor_varint(c);
	n->gen = varint32(c);
	n->mode = varint32(c);
	n->uid = varint32(c);
	n->gid = varint32(c);
	n->nlink = varint32(c);
	n->flags = varint32(c);
	n->size = cursor_varint(c);
	n->mtime_ns = get_time(c, 0);
	n->atime_ns = get_time(c, n->mtime_ns);
	n->ctime_ns = get_time(c, n->mtime_ns);
	n->btime_ns = get_time(c, n->mtime_ns);
	n->version = cursor_varint(c);
	n->data_version = cursor_varint(c);
	n->private_segment = varint32(c);
	n->backing_limit = cursor_varint(c);
	n->origin_parent = cursor_varint(c);
}

static void decode_rest(struct cursor *c, struct node *n)
{
	n->backing_dev = cursor_varint(c);
	n->backing_ino = cursor_varint(c);
	n->num_pages = cursor_varint(c);
	n->num_children = cursor_varint(c);
	n->num_names = varint32(c);
	n->num_backing = varint32(c);
	n->num_xattrs = varint32(c);
	n->freed = flag(c);
}

static void decode_times_set(struct cursor *c, uint8_t version, struct node *n)
{
	uint64_t ns = cursor_varint(c);

	if ((ns == 0 && version == NODE_VERSION_TIMES_SET) || ns > INT64_MAX)
		cursor_fail(c);
	n->times_set_ns = (int64_t)ns;
}

/* Optional ones that are not known are left behind: they say nothing that the rest needs. */
static int decode_tagged(struct cursor *c, struct node *n)
{
	struct tagged f = { 0 };
	bool has_device = false;
	int r;

	while ((r = tagged_next(c, &f)) > 0) {
		if (f.tag != TAG_DEVICE && f.required)
			return -EPROTONOSUPPORT;
		if (f.tag != TAG_DEVICE)
			continue;
		has_device = true;
		n->dev_major = cursor_u32(&f.bytes);
		n->dev_minor = cursor_u32(&f.bytes);
		if (!cursor_ok(&f.bytes) || cursor_left(&f.bytes) > 0 || !f.required)
			return -EBADMSG;
	}
	return r == 0 && has_device != inode_is_special(n->mode) ? -EBADMSG : r;
}

bool inode_is_special(uint32_t mode)
{
	return S_ISFIFO(mode) || S_ISSOCK(mode) || S_ISCHR(mode) || S_ISBLK(mode);
}

static bool makes_sense(const struct node *n, uint8_t version)
{
	bool special = inode_is_special(n->mode) && version == NODE_VERSION_TAGGED;

	if (!S_ISREG(n->mode) && !S_ISDIR(n->mode) && !S_ISLNK(n->mode) && !special)
		return false;
	return n->ino != 0 && !(n->flags & ~(uint32_t)FLAGS_ALL) && n->size <= INT64_MAX &&
	       n->backing_limit <= INT64_MAX;
}

int node_decode(const void *val, size_t len, struct node *ret)
{
	struct cursor c = cursor_make(val, len);
	char origin[RECORD_NAME_MAX + 1];
	struct node n = { 0 };
	uint8_t version = cursor_u8(&c);
	int r;

	if (cursor_ok(&c) && version > NODE_VERSION_TAGGED)
		return -EPROTONOSUPPORT;
	if (version < NODE_VERSION)
		return -EBADMSG;
	decode_attributes(&c, &n);
	cursor_str(&c, origin, sizeof origin);
	decode_rest(&c, &n);
	if (version >= NODE_VERSION_TIMES_SET)
		decode_times_set(&c, version, &n);
	r = version == NODE_VERSION_TAGGED ? decode_tagged(&c, &n) : 0;
	if (r < 0)
		return r;
	if (!cursor_ok(&c) || cursor_left(&c) > 0 || !makes_sense(&n, version))
		return -EBADMSG;
	r = node_set_origin(&n, n.origin_parent, origin, strlen(origin));
	if (r < 0)
		return r;
	*ret = n;
	return 0;
}
