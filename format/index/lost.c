/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Files of which the opening found that what was written to their private segments was lost with the power. Told once: the list lives as long
 * as the state.
 */
#include "format/index/state_private.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/array.h"

int lost_note(struct state *st, uint64_t ino)
{
	if (array_room(&st->lost, &st->cap_lost, st->num_lost, sizeof(*st->lost)) < 0)
		return -ENOMEM;
	st->lost[st->num_lost++] = ino; /* perhaps once more: lost_settle() */
	return 0;
}

static int by_number(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* What is gone, or drained, when the journal has been read to its end has lost nothing. */
int lost_settle(struct state *st)
{
	struct inode in;
	size_t kept = 0;
	int r;

	if (st->num_lost > 0)
		qsort(st->lost, st->num_lost, sizeof(*st->lost), by_number);
	for (size_t i = 0; i < st->num_lost; i++) {
		if (kept > 0 && st->lost[kept - 1] == st->lost[i])
			continue;
		r = state_inode(st, st->lost[i], &in);
		if (r < 0 && r != -ENOENT)
			return r;
		if (r == 0 && in.num_names > 0 && in.flags & INODE_DIRTY_DATA)
			st->lost[kept++] = st->lost[i];
	}
	st->num_lost = kept;
	return 0;
}

/* ---- their paths: a walk over all names finds those of the files, the next one those of their directories, and so on */

struct named {
	uint64_t ino, parent;
	char *name; /* owned; NULL: not known yet */
};

struct family {
	struct named *at; /* owned; by ino */
	size_t num, cap;
	uint64_t *parents; /* owned: those that the walk has come to */
	size_t num_parents, cap_parents;
};

static int by_ino(const void *a, const void *b)
{
	const struct named *x = a, *y = b;

	return x->ino < y->ino ? -1 : x->ino > y->ino;
}

static struct named *find(const struct family *f, uint64_t ino)
{
	struct named wanted = { .ino = ino };

	return f->num ? bsearch(&wanted, f->at, f->num, sizeof(*f->at), by_ino) : NULL;
}

static int add(struct family *f, uint64_t ino)
{
	if (array_room(&f->at, &f->cap, f->num, sizeof(*f->at)) < 0)
		return -ENOMEM;
	f->at[f->num++] = (struct named){ .ino = ino };
	return 0;
}

static int take_name(uint64_t parent, const char *name, uint64_t ino, void *arg)
{
	struct family *f = arg;
	struct named *n = find(f, ino);

	if (!n || n->name)
		return 0;
	n->parent = parent;
	n->name = strdup(name);
	if (!n->name || array_room(&f->parents, &f->cap_parents, f->num_parents, sizeof(*f->parents)) < 0)
		return -ENOMEM;
	f->parents[f->num_parents++] = parent;
	return 0;
}

/* The directories that the last walk has come to, each once. */
static int add_parents(struct family *f)
{
	size_t before = f->num;
	int r = 0;

	if (f->num_parents > 0)
		qsort(f->parents, f->num_parents, sizeof(*f->parents), by_number);
	for (size_t i = 0; r == 0 && i < f->num_parents; i++) {
		struct family known = { .at = f->at, .num = before };

		if (f->parents[i] != STATE_ROOT_INO && (i == 0 || f->parents[i] != f->parents[i - 1]) &&
			!find(&known, f->parents[i]))
			r = add(f, f->parents[i]);
	}
	f->num_parents = 0;
	if (f->num > before)
		qsort(f->at, f->num, sizeof(*f->at), by_ino);
	return r < 0 ? r : f->num > before;
}

static int find_names(struct state *st, struct family *f)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < st->num_lost; i++)
		r = add(f, st->lost[i]);
	for (int more = 1; r == 0 && f->num > 0 && more;) {
		r = state_each_name(st, take_name, f);
		more = r == 0 ? add_parents(f) : 0;
		r = more < 0 ? more : r;
	}
	return r;
}

static void family_free(struct family *f)
{
	for (size_t i = 0; i < f->num; i++)
		free(f->at[i].name);
	free(f->at);
	free(f->parents);
}

/* At "out", which has PATH_MAX bytes; "" when there is none. */
static void path_of(const struct family *f, uint64_t ino, char *out)
{
	size_t at = PATH_MAX - 1;

	out[at] = '\0';
	while (ino != STATE_ROOT_INO) {
		const struct named *n = find(f, ino);
		size_t len = n && n->name ? strlen(n->name) : 0;

		if (len == 0 || at < len + 1) {
			at = PATH_MAX - 1;
			break;
		}
		if (out[at])
			out[--at] = '/';
		at -= len;
		memcpy(out + at, n->name, len);
		ino = n->parent;
	}
	memmove(out, out + at, PATH_MAX - at);
}

int state_each_lost(struct state *st, int (*cb)(const char *path, const struct inode *in, void *arg), void *arg)
{
	struct family f = { 0 };
	char path[PATH_MAX];
	struct inode in;
	int r = find_names(st, &f);

	for (size_t i = 0; r == 0 && i < st->num_lost; i++) {
		r = state_inode(st, st->lost[i], &in);
		if (r == 0) {
			path_of(&f, in.ino, path);
			r = cb(path, &in, arg);
		}
		if (r == -ENOENT) /* removed meanwhile */
			r = 0;
	}
	family_free(&f);
	return r;
}
