/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * An existing file is updated in place: first everything but its first page, synced, then the first page with the
 * first block last; so a file whose header is new has all of its data. What was begun and killed is simply done again.
 */
#include "mpi-agent/replay/carried.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/crc32c.h"
#include "mpi-agent/plan/window.h"

/* Old bytes that must read as zeros go before anything new is written. */
static int cut_stale(struct session *s, struct carried *c, uint64_t present_size)
{
	uint64_t limit = c->in.flags & INODE_PRIVATE ? 0 : c->in.backing_limit, tail;
	struct gap *gaps = NULL;
	size_t num = 0;
	int r = 0;

	if (limit > c->in.size)
		limit = c->in.size;
	tail = limit;
	if (!(c->in.flags & INODE_PRIVATE))
		r = window_stale_ranges(s->st, c->in.ino, limit, c->in.size, &gaps, &num, &tail);
	if (r == 0 && present_size > tail) {
		r = c->f->ops->truncate(c->f, tail);
		present_size = tail;
	}
	for (size_t i = 0; r == 0 && i < num; i++)
		r = c->f->ops->zero(c->f, gaps[i].off, gaps[i].len);
	if (r == 0 && present_size != c->in.size)
		r = c->f->ops->truncate(c->f, c->in.size);
	free(gaps);
	return r;
}

static int update_data(struct session *s, struct carried *c)
{
	uint64_t first = c->in.size < EXTENT_PAGE_SPAN ? c->in.size : EXTENT_PAGE_SPAN;
	struct copy_job head = {
		.in = &c->in, .to = c->f, .end = first, .in_place = true, .head_last = true, .path = c->shown
	};
	int r;

	c->job = (struct copy_job){
		.in = &c->in, .to = c->f, .from = first, .end = c->in.size, .in_place = true, .path = c->shown
	};
	if (first == EXTENT_PAGE_SPAN) {
		r = copy_run(s->copier, &c->job);
		if (r == 0 && c->job.written > 0)
			r = c->f->ops->sync(c->f, true);
		if (r < 0)
			return r;
	}
	r = copy_run(s->copier, &head);
	c->job.crc = crc32c_combine(head.crc, c->job.crc, c->job.crc_bytes);
	c->job.crc_bytes += head.crc_bytes;
	c->job.written += head.written;
	c->job.extents += head.extents;
	c->job.short_private |= head.short_private;
	c->job.from = 0;
	memcpy(c->job.error_text, head.error_text, sizeof(head.error_text));
	c->has_checksum = true;
	return r;
}

static int update_content(struct session *s, struct carried *c, struct stat *ret_st)
{
	bool has_data = S_ISREG(c->in.mode) && (c->in.flags & (INODE_DIRTY_DATA | INODE_PRIVATE | INODE_UNPUBLISHED));
	struct sink_attr attr;
	int r = c->f->ops->fstat(c->f, ret_st);

	if (r == 0 && !session_is_same(&c->in, ret_st))
		r = -ESTALE;
	if (r == 0 && has_data)
		r = cut_stale(s, c, (uint64_t)ret_st->st_size);
	if (r == 0 && has_data)
		r = update_data(s, c);
	attrs_of_inode(&c->in, &attr);
	if (r == 0)
		r = attrs_apply(s, &c->in, &attr, c->f, &c->warning);
	if (r == 0)
		r = c->f->ops->sync(c->f, false);
	if (r == 0)
		r = c->f->ops->fstat(c->f, ret_st);
	return r == 0 && has_data ? carried_verify(s, c, ret_st) : r;
}

/* A file that was written through gets its name now that it is whole. */
static int give(struct session *s, struct carried *c, const struct file_place *place, struct record *rec,
	const char *from, char *to, size_t cap)
{
	int r = -EEXIST;

	for (int tries = 0; r == -EEXIST && tries < GIVE_TRIES; tries++) {
		struct stat there;

		r = c->there ? -EBUSY : names_check_place(s, place->dir, place->name, to, &c->in, &there);
		if (r == PLACE_IS_FOREIGN) {
			r = beside_path(s, place->dir_path, place->name, c->in.ino, rec->name, to, cap, &there);
			c->there = strdup(to);
			r = r < 0 ? r : c->there ? beside_forget(s, place->dir, place->name) : -ENOMEM;
		}
		if (r == 0)
			r = session_intend(s, rec, from, to, from, false, NULL);
		if (r == 0)
			r = give_name(s, from, to, &there);
	}
	return r == -EEXIST ? -EBUSY : r;
}

static int publish_update(
	struct session *s, struct carried *c, const struct file_place *place, const char *from, const struct stat *st)
{
	struct record rec = { .type = RECORD_PLACED,
		.ino = c->in.ino,
		.gen = c->in.gen,
		.parent = place->dir,
		.backing_dev = st->st_dev,
		.backing_ino = st->st_ino };
	char to[SESSION_PATH_MAX];
	int r = session_join(to, sizeof(to), place->dir_path, place->name);

	if (r < 0)
		return r;
	snprintf(rec.name, sizeof(rec.name), "%s", place->name);
	if (strcmp(from, to) != 0) {
		rec.flags = RECORD_F_MOVED;
		rec.from_parent = c->in.origin_parent;
		memcpy(rec.from_name, c->in.origin_name, sizeof(rec.from_name));
		r = give(s, c, place, &rec, from, to, sizeof(to));
		if (r == -EBUSY && session_may_be_late(s))
			return session_late(s, c->in.ino, place->path, SESSION_OCCUPIED);
		if (r < 0)
			return session_fail_errno(s, c->in.ino, place->path, r, "cannot get its name", 0);
	}
	if (session_touch(s, place->dir) < 0 || session_touch(s, c->in.origin_parent) < 0)
		return -ENOMEM;
	return session_step(s, &rec);
}

static int update(struct session *s, struct carried *c, const struct file_place *place)
{
	bool needs_data = S_ISREG(c->in.mode) && (c->in.flags & (INODE_DIRTY_DATA | INODE_PRIVATE | INODE_UNPUBLISHED));
	char path[SESSION_PATH_MAX];
	struct stat st;
	int r = carried_take_private(s, c);

	if (r == 0)
		r = c->in.flags & INODE_UNPUBLISHED ? state_backing_path(s->st, c->in.ino, path, sizeof(path))
		    : place->at                     ? session_join(path, sizeof(path), "", place->at)
				: state_backing_child_path(s->st, place->dir, place->name, path, sizeof(path));
	if (r == 0)
		r = s->to->ops->open(s->to, path, needs_data ? SINK_UPDATE : SINK_ATTR, &c->f);
	if (r == -ELOOP)
		r = -ESTALE; /* a symbolic link in the place of a file */
	if (r == 0)
		r = update_content(s, c, &st);
	if (r < 0)
		return carried_fail(s, c, r, "cannot be updated");
	c->changed = carried_has_changed(s, c);
	r = session_tick(s, true);
	if (r == 0 && (c->in.flags & INODE_UNPUBLISHED))
		r = publish_update(s, c, place, path, &st);
	if (r == 0 && idmap_get(&s->inodes, c->in.ino) != INODE_IS_FAILED)
		r = carried_drained(s, c, &st);
	if (r == 0)
		r = session_flush_steps(s);
	return r < 0 || idmap_get(&s->inodes, c->in.ino) == INODE_IS_FAILED ? r : carried_finish(s, c);
}

int file_update(struct session *s, const struct inode *in, const struct file_place *place)
{
	struct carried *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return -ENOMEM;
	c->in = *in;
	c->shown = strdup(place->path);
	c->there = place->at ? strdup(place->at) : NULL;
	session_set_path(s, place->path);
	r = c->shown && !c->there == !place->at ? update(s, c, place) : -ENOMEM;
	carried_free(c);
	free(c);
	return r;
}
