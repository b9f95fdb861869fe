/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Files of which the opening found that what was written to their private segments was lost with the power. Told once: the list lives as long
 * as the state.
 */
#include "format/index/state_private.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "format/base/array.h"

int lost_note(struct state *st, uint64_t ino)
{
	for (size_t i = 0; i < st->num_lost; i++)
		if (st->lost[i] == ino)
			return 0;
	if (array_room(&st->lost, &st->cap_lost, st->num_lost, sizeof(*st->lost)) < 0)
		return -ENOMEM;
	st->lost[st->num_lost++] = ino;
	return 0;
}

/* What is gone, or drained, when the journal has been read to its end has lost nothing. */
int lost_settle(struct state *st)
{
	struct inode in;
	size_t kept = 0;
	int r = 0;

	for (size_t i = 0; i < st->num_lost; i++) {
		r = state_inode(st, st->lost[i], &in);
		if (r < 0 && r != -ENOENT)
			return r;
		if (r == 0 && in.num_names > 0 && in.flags & INODE_DIRTY_DATA)
			st->lost[kept++] = st->lost[i];
	}
	st->num_lost = kept;
	return 0;
}

struct climb {
	uint64_t ino; /* whose name is looked for */
	uint64_t parent;
	char name[RECORD_NAME_MAX + 1];
};

static int find_name_of(uint64_t parent, const char *name, uint64_t ino, void *arg)
{
	struct climb *c = arg;

	if (ino != c->ino)
		return 0;
	c->parent = parent;
	snprintf(c->name, sizeof(c->name), "%s", name);
	return 1;
}

/* One of the names of ino, from the root on. At "out", which has PATH_MAX bytes, or "" when there is none. */
static int path_of(struct state *st, uint64_t ino, char *out)
{
	struct climb c = { .parent = ino };
	size_t at = PATH_MAX - 1, len;
	int r = 1;

	out[at] = '\0';
	while (c.parent != STATE_ROOT_INO) {
		c.ino = c.parent;
		r = state_each_name(st, find_name_of, &c);
		len = strlen(c.name);
		if (r <= 0 || at < len + 1)
			break;
		if (out[at])
			out[--at] = '/';
		at -= len;
		memcpy(out + at, c.name, len);
	}
	if (r <= 0)
		at = PATH_MAX - 1;
	memmove(out, out + at, PATH_MAX - at);
	return r < 0 ? r : 0;
}

int state_each_lost(struct state *st, int (*cb)(const char *path, const struct inode *in, void *arg), void *arg)
{
	char path[PATH_MAX];
	struct inode in;
	int r = 0;

	for (size_t i = 0; r == 0 && i < st->num_lost; i++) {
		r = state_inode(st, st->lost[i], &in);
		if (r == 0)
			r = path_of(st, in.ino, path);
		if (r == 0)
			r = cb(path, &in, arg);
		if (r == -ENOENT) /* removed meanwhile */
			r = 0;
	}
	return r;
}
