/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Walking the names of a store. A store may be damaged, so that directories could contain each other: the depth is
 * bounded.
 */
#include "tools/lib/walk.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define NAMES_AT_ONCE 32
#define DEPTH_MAX     (PATH_MAX / 2)

struct walk {
	struct state *st;
	int (*each)(const char *path, const struct inode *in, void *arg);
	void *arg;
	char path[PATH_MAX];
	size_t len;
	unsigned int depth;
	bool too_long; /* the directory's path is not in path */
};

static int walk_dir(struct walk *w, uint64_t parent);

static void add_name(struct walk *w, const char *name)
{
	size_t add = strlen(name);

	w->too_long |= w->len + add + 2 > sizeof(w->path);
	if (w->too_long)
		return;
	if (w->len > 0)
		w->path[w->len++] = '/';
	memcpy(w->path + w->len, name, add + 1);
	w->len += add;
}

static int tell(const struct walk *w, const struct inode *in)
{
	char text[64];

	if (!w->too_long)
		return w->each(w->path, in, w->arg);
	snprintf(text, sizeof(text), "(inode %" PRIu64 ", its path is too long)", in->ino);
	return w->each(text, in, w->arg);
}

/* One entry, and what is below it. The path is put back to what it was. */
static int walk_entry(struct walk *w, const struct state_name *name)
{
	bool too_long = w->too_long;
	size_t len = w->len;
	struct inode in;
	int r = state_inode(w->st, name->ino, &in);

	if (r < 0)
		return r;
	add_name(w, name->name);
	r = tell(w, &in);
	if (r == 0 && S_ISDIR(in.mode)) {
		w->depth++;
		r = w->depth > DEPTH_MAX ? -ELOOP : walk_dir(w, name->ino);
		w->depth--;
	}
	w->too_long = too_long;
	w->len = len;
	w->path[len] = '\0';
	return r;
}

static int walk_dir(struct walk *w, uint64_t parent)
{
	struct state_name *names = malloc(NAMES_AT_ONCE * sizeof(*names));
	char after[RECORD_NAME_MAX + 1] = "";
	size_t num = 0;
	int r = names ? 0 : -ENOMEM;

	while (r == 0) {
		r = state_list_names(w->st, parent, after, names, NAMES_AT_ONCE, &num);
		for (size_t i = 0; r == 0 && i < num; i++)
			r = walk_entry(w, &names[i]);
		if (r != 0 || num == 0)
			break;
		memcpy(after, names[num - 1].name, sizeof(after));
	}
	free(names);
	return r;
}

int walk_names(struct state *st, int (*each)(const char *path, const struct inode *in, void *arg), void *arg)
{
	struct walk w = { .st = st, .each = each, .arg = arg };

	return walk_dir(&w, STATE_ROOT_INO);
}

int walk_find(struct state *st, const char *path, struct inode *ret)
{
	char part[RECORD_NAME_MAX + 1];
	struct state_name name;
	int r = state_inode(st, STATE_ROOT_INO, ret);

	while (r == 0) {
		size_t len;

		path += strspn(path, "/");
		len = strcspn(path, "/");
		if (len == 0)
			break;
		if (len > RECORD_NAME_MAX)
			return -ENAMETOOLONG;
		memcpy(part, path, len);
		part[len] = '\0';
		path += len;
		if (strcmp(part, ".") == 0)
			continue;
		if (!S_ISDIR(ret->mode))
			return -ENOTDIR;
		r = state_lookup(st, ret->ino, part, &name);
		if (r == 0)
			r = state_inode(st, name.ino, ret);
	}
	return r;
}

struct find_path {
	uint64_t ino;
	char *out;
};

static int compare_ino(const char *path, const struct inode *in, void *arg)
{
	struct find_path *f = arg;

	if (in->ino != f->ino)
		return 0;
	memcpy(f->out, path, strlen(path) + 1);
	return 1;
}

const char *walk_path_of(struct state *st, uint64_t ino, char out[PATH_MAX])
{
	struct find_path f = { .ino = ino, .out = out };

	if (walk_names(st, compare_ino, &f) != 1)
		snprintf(out, PATH_MAX, "(inode %" PRIu64 ", without a name)", ino);
	return out;
}

bool walk_remembered(struct state *st, const struct inode *in, char *out, size_t cap)
{
	char dir[PATH_MAX];
	int len;

	if (!in->origin_name[0])
		return false;
	if (in->origin_parent == STATE_ROOT_INO)
		len = snprintf(out, cap, "%s", in->origin_name);
	else
		len = snprintf(out, cap, "%s/%s", walk_path_of(st, in->origin_parent, dir), in->origin_name);
	return len > 0 && (size_t)len < cap;
}
