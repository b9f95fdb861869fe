/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Where are the backing files really? A session that was killed may have moved some without having reported it; and a
 * dead store is never changed at all, so a second `recover` finds all of the first one's work undone in the state. The
 * state knows each file's identity (inode number), and a session moves a file to no other place than one of its names
 * or its parking place. So each inode that has to move, or whose place is wanted, is looked for: at its backing name, at
 * its parking place, at its names, and where a recovery without its store has moved it aside. What has moved is told to the state before anything else is done.
 *
 * Paths depend on where the directories above are, so those are looked for first. A cycle (a directory that has changed
 * places with one below it) is cut: while a directory is being looked for, places below it are left out; it is found by
 * one that does not lie below itself. New directories have no identity yet; one is taken to be there when a directory
 * is at its place that is not the one which the state has there.
 */
#include "mpi-agent/replay/located.h"
#include "mpi-agent/replay/session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/array.h"
#include "mpi-agent/plan/names.h"

enum { UNKNOWN = 0, LOOKING, SETTLED, ABSENT };

struct place { /* a name that an inode wants, or that the state takes for one of its backing names */
	uint64_t ino, dir;
	char *name;  /* owned */
	size_t next; /* of the same inode: index + 1 */
	bool parks;  /* it may have been parked from there */
};

struct found { /* somewhere else than the state says */
	uint64_t ino, parent;
	char name[RECORD_NAME_MAX + 1];
};

struct locate {
	struct session *s;
	struct sink *in;      /* borrowed: where is looked */
	struct place *places; /* owned */
	size_t num_places, cap_places;
	struct found *found; /* owned */
	size_t num_found, cap_found;
	struct idmap wanted; /* inode -> its first place + 1 */
	struct idmap moved;  /* inode -> index in found + 1 */
	struct idmap looked; /* inode -> UNKNOWN, LOOKING, SETTLED, ABSENT */
	struct idmap involved;
	uint64_t dir;                /* being listed */
	bool has_links;              /* a file with several names is involved */
	char path[SESSION_PATH_MAX]; /* scratch: not on the stack, settle() recurses */
};

static int add_place(struct locate *l, uint64_t ino, uint64_t dir, const char *name, bool parks)
{
	struct place *p;

	if (array_room(&l->places, &l->cap_places, l->num_places, sizeof(*l->places)) < 0)
		return -ENOMEM;
	p = &l->places[l->num_places];
	*p = (struct place){
		.ino = ino, .dir = dir, .name = strdup(name), .next = idmap_get(&l->wanted, ino), .parks = parks
	};
	if (!p->name)
		return -ENOMEM;
	return idmap_set(&l->wanted, ino, ++l->num_places);
}

static int add_found(struct locate *l, uint64_t ino, uint64_t parent, const char *name)
{
	if (array_room(&l->found, &l->cap_found, l->num_found, sizeof(*l->found)) < 0)
		return -ENOMEM;
	l->found[l->num_found] = (struct found){ .ino = ino, .parent = parent };
	snprintf(l->found[l->num_found].name, sizeof(l->found[0].name), "%s", name);
	return idmap_set(&l->moved, ino, ++l->num_found);
}

/* A name that is not in its place: who wants it, and who has it? */
static int note_name(struct session *s, const struct state_name *e, void *arg)
{
	struct locate *l = arg;
	struct inode in, occupant;
	uint64_t owner = 0;
	int r;

	r = state_backing_owner(s->st, l->dir, e->name, &owner);
	if (r < 0 && r != -ENOENT)
		return r;
	if (r == 0 && owner == e->ino)
		return 0;
	if (r == 0 && state_inode(s->st, owner, &occupant) == 0 && names_is_needed(&occupant)) {
		l->has_links |= !S_ISDIR(occupant.mode) && occupant.nlink > 1;
		if (idmap_set(&l->involved, owner, 1) < 0)
			return -ENOMEM;
	}
	r = state_inode(s->st, e->ino, &in);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	if (!in.origin_name[0] && !S_ISDIR(in.mode))
		return 0; /* new: nowhere yet */
	r = in.origin_name[0] ? idmap_set(&l->involved, e->ino, 1) : 0;
	l->has_links |= !S_ISDIR(in.mode) && in.nlink > 1;
	return r < 0 ? r : add_place(l, e->ino, l->dir, e->name, false);
}

struct dir_list {
	uint64_t *ino; /* owned */
	size_t num, cap;
};

static int push_dir(struct dir_list *d, uint64_t ino)
{
	if (array_room(&d->ino, &d->cap, d->num, sizeof(*d->ino)) < 0)
		return -ENOMEM;
	d->ino[d->num++] = ino;
	return 0;
}

struct noting {
	struct locate *l;
	struct dir_list dirs;
};

/*
 * Of a dead job a recovery before us may have moved files into a new directory. That one has a place in the state when the part that makes directories
 * has been, so behind the one that parks files, and these must be where the next part writes to them.
 */
static bool looks_for_files(const struct session *s)
{
	return session_places_files(s) || s->opt->part == WIRE_PART_BEGIN;
}

static int note_entry(struct session *s, const struct state_name *e, void *arg)
{
	struct noting *n = arg;
	bool ours = S_ISDIR(e->type) ? session_places_dirs(s) : looks_for_files(s);
	int r = S_ISDIR(e->type) ? push_dir(&n->dirs, e->ino) : 0;

	return r < 0 || !ours ? r : note_name(s, e, n->l);
}

static int note_names(struct locate *l)
{
	struct noting n = { .l = l };
	int r = push_dir(&n.dirs, STATE_ROOT_INO);

	for (size_t i = 0; r == 0 && i < n.dirs.num; i++) {
		l->dir = n.dirs.ino[i];
		r = session_each_name(l->s, l->dir, note_entry, &n);
		if (r == 0)
			r = session_tick(l->s, false);
	}
	free(n.dirs.ino);
	return r;
}

/* Where an inode is as far as is known: found elsewhere, its backing name, or (a new directory) where it will be. */
static int place_of(struct locate *l, uint64_t ino, uint64_t *ret_parent, char name[RECORD_NAME_MAX + 1])
{
	uint64_t at = idmap_get(&l->moved, ino);
	struct inode in;
	int r;

	if (at) {
		*ret_parent = l->found[at - 1].parent;
		memcpy(name, l->found[at - 1].name, RECORD_NAME_MAX + 1);
		return 0;
	}
	r = state_inode(l->s->st, ino, &in);
	if (r < 0)
		return r;
	if (in.origin_name[0]) {
		*ret_parent = in.origin_parent;
		memcpy(name, in.origin_name, RECORD_NAME_MAX + 1);
		return 0;
	}
	at = idmap_get(&l->wanted, ino);
	if (!at)
		return -ENOENT;
	*ret_parent = l->places[at - 1].dir;
	snprintf(name, RECORD_NAME_MAX + 1, "%s", l->places[at - 1].name);
	return 0;
}

/* parent/name as a path, from the end to the beginning; a chain that does not end is one of directories not yet found. */
static int path_of(struct locate *l, uint64_t parent, const char *last, char *out, size_t cap)
{
	char name[RECORD_NAME_MAX + 1];
	size_t at = cap - 1, n = strlen(last);
	int r;

	out[at] = '\0';
	if (n >= at)
		return -ENAMETOOLONG;
	at -= n;
	memcpy(out + at, last, n);
	while (parent != STATE_ROOT_INO) {
		r = place_of(l, parent, &parent, name);
		if (r < 0)
			return r;
		n = strlen(name);
		if (n + 1 > at)
			return -ENAMETOOLONG;
		out[--at] = '/';
		at -= n;
		memcpy(out + at, name, n);
	}
	memmove(out, out + at, cap - at);
	return 0;
}

static int settle(struct locate *l, uint64_t ino);

/* 1: in is at (parent, name). 0: it is not. */
static int is_at(struct locate *l, const struct inode *in, uint64_t parent, const char *name)
{
	struct stat st;
	int r = settle(l, parent);

	if (r == 0)
		r = path_of(l, parent, name, l->path, sizeof(l->path));
	if (r == 0)
		r = l->in->ops->stat(l->in, l->path, &st);
	if (r == 0)
		return session_is_same(in, &st);
	return r == -ENOMEM || l->s->fatal ? r : 0;
}

/* A file with several backing names may be at any of them, and may have been parked beside any. */
static int note_backing_name(uint64_t parent, const char *name, uint64_t ino, void *arg)
{
	struct locate *l = arg;

	return idmap_get(&l->involved, ino) ? add_place(l, ino, parent, name, true) : 0;
}

/* A directory that was removed in the mount may have been parked, too: what was in it is still to be removed, by paths that lead through it. */
static int note_removed_dir(uint64_t parent, const char *name, uint64_t ino, void *arg)
{
	struct locate *l = arg;
	struct inode in;

	(void)parent, (void)name;
	if (state_inode(l->s->st, ino, &in) < 0 || !S_ISDIR(in.mode) || !(in.flags & INODE_ORPHAN))
		return 0;
	return idmap_set(&l->involved, ino, 1);
}

/* The chain of places runs backwards; the first one in the order of the walk is wanted: its directory is placed earliest. */
static int look_at_places(struct locate *l, const struct inode *in)
{
	size_t best = 0;
	int r;

	for (size_t i = idmap_get(&l->wanted, in->ino); i; i = l->places[i - 1].next) {
		r = is_at(l, in, l->places[i - 1].dir, l->places[i - 1].name);
		if (r < 0)
			return r;
		best = r ? i : best;
	}
	return best ? add_found(l, in->ino, l->places[best - 1].dir, l->places[best - 1].name) < 0 ? -ENOMEM : 1 : 0;
}

static int look_at(struct locate *l, const struct inode *in, uint64_t dir, const char *name)
{
	int r = is_at(l, in, dir, name);

	return r <= 0 ? r : add_found(l, in->ino, dir, name) < 0 ? -ENOMEM : 1;
}

static int look_at_park(struct locate *l, const struct inode *in, uint64_t dir)
{
	char park[RECORD_NAME_MAX + 1];

	names_park_name(in->ino, park);
	return look_at(l, in, dir, park);
}

/* A recovery without this store may have given its name to another file, or have found a removed directory not empty. */
static int look_aside(struct locate *l, const struct inode *in)
{
	char aside[RECORD_NAME_MAX + 1];

	names_aside_name(S_ISDIR(in->mode) ? "" : in->origin_name, in->backing_ino, aside);
	return look_at(l, in, in->origin_parent, aside);
}

/* Of a file with several names before those: what has been parked is to go from there. */
static int look_for(struct locate *l, const struct inode *in)
{
	int r = is_at(l, in, in->origin_parent, in->origin_name);

	if (r == 0)
		r = look_at_park(l, in, in->origin_parent);
	for (size_t i = idmap_get(&l->wanted, in->ino); r == 0 && i; i = l->places[i - 1].next)
		if (l->places[i - 1].parks)
			r = look_at_park(l, in, l->places[i - 1].dir);
	if (r == 0)
		r = look_at_places(l, in);
	if (r == 0)
		r = look_aside(l, in);
	return r < 0 ? r : 0;
}

/* A new directory: 1 when a session before us has made it. */
static int new_dir_is_there(struct locate *l, uint64_t ino, struct stat *ret)
{
	size_t at = idmap_get(&l->wanted, ino);
	struct inode occupant;
	struct place *p;
	uint64_t owner;
	int r;

	if (!at)
		return 0;
	p = &l->places[at - 1];
	r = settle(l, p->dir);
	if (r == 0)
		r = path_of(l, p->dir, p->name, l->path, sizeof(l->path));
	if (r == 0)
		r = l->in->ops->stat(l->in, l->path, ret);
	if (r < 0)
		return r == -ENOMEM || l->s->fatal ? r : 0;
	if (!S_ISDIR(ret->st_mode))
		return 0;
	return !(state_backing_owner(l->s->st, p->dir, p->name, &owner) == 0 &&
		 state_inode(l->s->st, owner, &occupant) == 0 && session_is_same(&occupant, ret));
}

/* Find ino and the directories above it. -ELOOP: it is being looked for; nothing below it can be known now. */
static int settle(struct locate *l, uint64_t ino)
{
	uint64_t known = idmap_get(&l->looked, ino);
	struct inode in;
	struct stat st;
	int r;

	if (ino == STATE_ROOT_INO || known == SETTLED)
		return 0;
	if (known != UNKNOWN)
		return known == LOOKING ? -ELOOP : -ENOENT;
	r = idmap_set(&l->looked, ino, LOOKING);
	if (r == 0)
		r = state_inode(l->s->st, ino, &in);
	if (r < 0)
		return r;
	if (!in.origin_name[0]) {
		r = new_dir_is_there(l, ino, &st);
		return r < 0 ? r : idmap_set(&l->looked, ino, r ? SETTLED : ABSENT) < 0 ? -ENOMEM : r ? 0 : -ENOENT;
	}
	if (idmap_get(&l->involved, ino) && in.backing_ino)
		r = look_for(l, &in);
	else
		r = settle(l, in.origin_parent);
	return r < 0 ? r : idmap_set(&l->looked, ino, SETTLED);
}

static int settle_all(struct locate *l)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < l->involved.cap; i++) {
		if (!l->involved.slots[i].key)
			continue;
		r = settle(l, l->involved.slots[i].key);
		if (r == 0)
			r = session_tick(l->s, false);
		else if (r == -ENOENT || r == -ELOOP)
			r = 0;
	}
	return r;
}

static int tell(struct session *s, const struct inode *in, uint64_t parent, const char *name)
{
	struct record rec = { .type = RECORD_PLACED,
		.flags = RECORD_F_MOVED,
		.ino = in->ino,
		.gen = in->gen,
		.parent = parent,
		.from_parent = in->origin_parent,
		.backing_dev = in->backing_dev,
		.backing_ino = in->backing_ino };

	if (in->flags & INODE_UNPUBLISHED)
		rec.flags |= RECORD_F_UNPUBLISHED;
	snprintf(rec.name, sizeof(rec.name), "%s", name);
	memcpy(rec.from_name, in->origin_name, sizeof(rec.from_name));
	return session_step(s, &rec);
}

/* Where directories alone are looked for, a file that the state has in the place of one is looked for later. */
static int make_room(struct session *s, uint64_t parent, const char *name)
{
	struct record moved;

	return s->opt->part == WIRE_PART_LOOK && names_make_room(s->st, parent, name, &moved) ? session_step(s, &moved)
											      : 0;
}

/* New directories that something was found in are told first, from the top. */
static int tell_new_dirs(struct locate *l, uint64_t dir)
{
	struct record rec = { .type = RECORD_PLACED, .ino = dir };
	size_t at = idmap_get(&l->wanted, dir);
	struct session *s = l->s;
	struct inode in;
	struct stat st;
	int r = dir == STATE_ROOT_INO ? 0 : state_inode(s->st, dir, &in);

	if (r < 0 || dir == STATE_ROOT_INO)
		return r;
	if (in.origin_name[0])
		return tell_new_dirs(l, in.origin_parent);
	if (!at)
		return -ENOENT;
	r = tell_new_dirs(l, l->places[at - 1].dir);
	if (r == 0)
		r = path_of(l, l->places[at - 1].dir, l->places[at - 1].name, l->path, sizeof(l->path));
	if (r == 0)
		r = s->to->ops->stat(s->to, l->path, &st);
	if (r == 0)
		r = s->to->ops->mark(s->to, l->path);
	if (r == 0)
		r = make_room(s, l->places[at - 1].dir, l->places[at - 1].name);
	if (r < 0)
		return r;
	rec.gen = in.gen;
	rec.parent = l->places[at - 1].dir;
	snprintf(rec.name, sizeof(rec.name), "%s", l->places[at - 1].name);
	rec.backing_dev = st.st_dev;
	rec.backing_ino = st.st_ino;
	return session_step(s, &rec);
}

/* Out of the way, in the state only. */
static int tell_parked(struct locate *l, const struct found *f)
{
	char name[RECORD_NAME_MAX + 1];
	struct session *s = l->s;
	struct inode in;
	/* Durable before it is told, though it was not we who moved it. */
	int r = path_of(l, f->parent, f->name, l->path, sizeof(l->path));

	if (r == 0)
		r = s->to->ops->mark(s->to, l->path);
	if (r == 0)
		r = state_inode(s->st, f->ino, &in);
	if (r < 0)
		return r;
	names_park_name(f->ino, name);
	r = session_touch(s, in.origin_parent);
	return r < 0 || strcmp(in.origin_name, name) == 0 ? r : tell(s, &in, in.origin_parent, name);
}

static int tell_found(struct locate *l, const struct found *f)
{
	struct inode in;
	int r = session_touch(l->s, f->parent);

	if (r == 0)
		r = state_inode(l->s->st, f->ino, &in);
	if (r < 0)
		return r;
	if (in.origin_parent == f->parent && strcmp(in.origin_name, f->name) == 0)
		return 0;
	r = make_room(l->s, f->parent, f->name);
	return r < 0 ? r : tell(l->s, &in, f->parent, f->name);
}

/*
 * All that has moved is first parked, in the state only: places may have been exchanged, and a PLACED takes the name
 * from whom the state believes to be there.
 */
static int tell_all(struct locate *l)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < l->num_found; i++)
		r = tell_parked(l, &l->found[i]);
	for (size_t i = 0; r == 0 && i < l->num_found; i++)
		r = tell_new_dirs(l, l->found[i].parent);
	for (size_t i = 0; r == 0 && i < l->num_found; i++)
		r = tell_found(l, &l->found[i]);
	return r;
}

static int look(struct locate *l)
{
	int r = note_names(l);

	if (r == 0 && session_places_dirs(l->s))
		r = state_each_backing_name(l->s->st, note_removed_dir, l);
	if (r == 0 && l->has_links)
		r = state_each_backing_name(l->s->st, note_backing_name, l);
	return r < 0 ? r : settle_all(l);
}

static void forget(struct locate *l)
{
	for (size_t i = 0; i < l->num_places; i++)
		free(l->places[i].name);
	free(l->places);
	free(l->found);
	idmap_free(&l->wanted);
	idmap_free(&l->moved);
	idmap_free(&l->looked);
	idmap_free(&l->involved);
}

int locate_run(struct session *s)
{
	struct locate l = { .s = s, .in = s->to };
	int r = look(&l);

	if (r == 0)
		r = tell_all(&l);
	forget(&l);
	return r;
}

/* ---- for who does not tell */

struct located {
	struct drain_options opt;
	struct session s; /* what the search needs of one */
	struct locate l;
};

int located_create(struct store *store, int backing_fd, bool dirs_only, struct located **ret)
{
	struct located *it = calloc(1, sizeof(*it));
	int r = it ? sink_posix_create_to_read(backing_fd, &it->l.in) : -ENOMEM;

	if (r == 0) {
		it->opt.part = dirs_only ? WIRE_PART_LOOK : WIRE_PART_WHOLE;
		it->s.opt = &it->opt;
		it->s.st = store_state(store);
		it->l.s = &it->s;
		r = look(&it->l);
	}
	if (r < 0)
		located_destroy(it);
	else
		*ret = it;
	return r;
}

int located_child(struct located *it, uint64_t parent, const char *name, char *out, size_t cap)
{
	int r = settle(&it->l, parent);

	if (r < 0 && r != -ENOENT && r != -ELOOP)
		return r;
	return path_of(&it->l, parent, name, out, cap);
}

int located_path(struct located *it, const struct inode *in, char *out, size_t cap)
{
	char name[RECORD_NAME_MAX + 1];
	uint64_t parent;
	int r = in->ino == STATE_ROOT_INO ? -ENOENT : place_of(&it->l, in->ino, &parent, name);

	return r < 0 ? r : located_child(it, parent, name, out, cap);
}

void located_destroy(struct located *it)
{
	if (!it)
		return;
	forget(&it->l);
	sink_destroy(it->l.in);
	free(it);
}
