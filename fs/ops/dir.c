/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Directories. An entry's offset is its number plus one in the snapshot that core took, so telldir and seekdir work;
 * reading again from offset 0 takes a new one. READDIRPLUS brings attributes: each such entry counts as a lookup.
 */
#include <string.h>

#include "format/place/shown.h"
#include "fs/ops/private.h"

void ops_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct ops *o = ops_of(req);
	struct handle *h = handle_new(o, ino);
	int r = h ? job_opendir(o->opt.job, ino, &h->dir) : -ENOMEM;

	if (r) {
		if (h)
			handle_put(o, h);
		reply_status(req, r);
		return;
	}
	fi->fh = (uintptr_t)h;
	if (fuse_reply_open(req, fi) != 0)
		handle_put(o, h);
}

void ops_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	handle_put(ops_of(req), handle_of(fi));
	reply_status(req, 0);
}

void ops_fsyncdir(fuse_req_t req, fuse_ino_t ino, int data_only, struct fuse_file_info *fi)
{
	struct handle_ref at HANDLE_CLEANUP = handle_take(req, fi);

	reply_status(req, job_fsync(job_of(req), ino, NULL, data_only != 0));
}

/* One entry of a listing. */
struct item {
	uint64_t index;
	const char *name; /* borrowed from core */
	uint64_t ino;
	uint32_t type;
};

static struct stat item_stat(const struct item *item)
{
	return (struct stat){ .st_ino = shown_number(item->ino), .st_mode = item->type };
}

/* Bytes taken of left; more than left: no room. */
static size_t put_plain(fuse_req_t req, uint64_t ino, const struct item *item, char *to, size_t left)
{
	struct stat st = item_stat(item);

	return fuse_add_direntry(req, to, left, item->name, &st, (off_t)item->index + 1);
}

static bool is_dot(const char *name)
{
	return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/*
 * With attributes and a lookup; or, for dots and for what has vanished since the snapshot, without (inode 0: the kernel
 * does not count it). The room is checked first, so that no lookup is made for nothing.
 */
static size_t put_plus(fuse_req_t req, uint64_t ino, const struct item *item, char *to, size_t left)
{
	struct fuse_entry_param param = { .attr = item_stat(item) };
	size_t need = fuse_add_direntry_plus(req, NULL, 0, item->name, &param, 0);
	struct core_entry e;

	if (need > left)
		return need;
	if (!is_dot(item->name) && job_lookup(job_of(req), ino, item->name, &e) == 0) {
		outside_look(ops_of(req)->outside, &e);
		param = reply_make_param(&e);
	}
	return fuse_add_direntry_plus(req, to, left, item->name, &param, (off_t)item->index + 1);
}

static void forget_listed(struct job *job, const char *buf, size_t len)
{
	size_t at = 0;

	while (at + FUSE_NAME_OFFSET_DIRENTPLUS < len) {
		const struct fuse_direntplus *plus = (const void *)(buf + at);

		if (plus->entry_out.nodeid)
			job_forget(job, plus->entry_out.nodeid, 1);
		at += FUSE_DIRENTPLUS_SIZE(plus);
	}
}

static void list(fuse_req_t req, uint64_t ino, size_t size, off_t off, struct handle *h, bool plus)
{
	struct job *job = job_of(req);
	char *buf = session_reply_buffer(session_of(req));
	struct item item = { .index = (uint64_t)off };
	size_t len = 0;
	int r = 0;

	if (size > SESSION_DATA_BYTES)
		size = SESSION_DATA_BYTES;
	/* The kernel sends one at a time, but for one whose caller was killed: that is still under way then. */
	pthread_mutex_lock(&h->listing);
	if (off == 0 && h->listed)
		r = job_rewinddir(job, h->dir);
	h->listed = true;
	for (; !r; item.index++) {
		size_t n;

		r = job_readdir(job, h->dir, item.index, &item.name, &item.ino, &item.type);
		if (r)
			break;
		n = (plus ? put_plus : put_plain)(req, ino, &item, buf + len, size - len);
		if (n > size - len)
			break;
		len += n;
	}
	pthread_mutex_unlock(&h->listing);
	if (r && r != -ENOENT && len == 0)
		reply_status(req, r);
	else if (fuse_reply_buf(req, buf, len) != 0 && plus)
		forget_listed(job, buf, len);
}

void ops_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct handle_ref at HANDLE_CLEANUP = handle_take(req, fi);

	list(req, ino, size, off, at.h, false);
}

void ops_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct handle_ref at HANDLE_CLEANUP = handle_take(req, fi);

	list(req, ino, size, off, at.h, true);
}
