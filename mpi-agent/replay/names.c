/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Names: top-down first (names_place.c, one by one), removals last, attributes of directories at the very end.
 */
#include "mpi-agent/replay/names_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/array.h"
#include "format/base/clock.h"
#include "format/base/units.h"
#include "mpi-agent/plan/names.h"
#include "mpi-agent/plan/window.h"

/* ---- the walk */

static int add_dir(struct session *s, uint64_t ino, size_t parent, char *path, bool selected, bool failed)
{
	if (!path)
		return -ENOMEM;
	if (array_room(&s->dirs, &s->cap_dirs, s->num_dirs, sizeof(*s->dirs)) < 0) {
		free(path);
		return -ENOMEM;
	}
	s->dirs[s->num_dirs++] = (struct session_dir){
		.ino = ino, .parent = parent, .path = path, .selected = selected, .failed = failed
	};
	return idmap_set(&s->dir_index, ino, s->num_dirs);
}

/* Do files of one node get their data in this part? */
static bool carries_files(const struct session *s)
{
	return s->opt->part == WIRE_PART_WHOLE || s->opt->part == WIRE_PART_FILES;
}

static void count_planned(struct session *s, const struct inode *in, const char *shown)
{
	bool blobs = s->opt->in_place && drain_layout_is_blob(convert_wanted(s, in, shown));
	uint64_t bytes = in->size, extents = 0;

	if (!carries_files(s) || (s->opt->part == WIRE_PART_FILES && in->flags & INODE_SHARED) ||
		(blobs && blob_waits(s)))
		return;
	if (!(in->flags & (INODE_NEW | INODE_DIRTY_DATA | INODE_DIRTY_META | INODE_DIRTY_XATTR | INODE_PRIVATE)))
		return;
	if (in->flags & INODE_PRIVATE) {
		int64_t mtime_ns;
		uint64_t size;

		if (segment_private_size(s->segments, in->private_segment, &size, &bytes, &mtime_ns) == 0 &&
			bytes > size)
			bytes = size; /* whole blocks are allocated */
	} else if (!blobs && window_count(s->st, in->ino, in->size, &bytes, &extents) < 0) {
		return;
	}
	s->progress.planned_files++;
	session_plan(s, bytes);
}

/* A directory that another part, or node 0, has placed. */
static bool is_placed(struct session *s, const struct session_dir *dir, const struct state_name *e)
{
	uint64_t owner;

	char beside[RECORD_NAME_MAX + 1];

	return ((state_backing_owner(s->st, dir->ino, e->name, &owner) == 0 && owner == e->ino) ||
		       beside_find(s, dir->ino, e->name, e->ino, beside) > 0) &&
	       names_dir_is_there(s, e->ino);
}

/* Its directory is not placed. Nothing of what has no other name may be removed, wherever it still is. */
static int leave_name(struct session *s, const struct state_name *e)
{
	uint64_t left = idmap_get(&s->unplaced, e->ino) + 1;
	struct inode in;

	if (!S_ISDIR(e->type) && state_inode(s->st, e->ino, &in) == 0 && left < in.num_names)
		return idmap_set(&s->unplaced, e->ino, left);
	return idmap_set(&s->inodes, e->ino, INODE_IS_FAILED);
}

static int place_visited(struct session *s, struct session_dir *dir, const struct state_name *e)
{
	bool is_dir = S_ISDIR(e->type), ours = s->opt->part == (is_dir ? WIRE_PART_DIRS : WIRE_PART_FILES);

	if (s->opt->part == WIRE_PART_PARK) /* nothing is in its place yet */
		return 0;
	if (dir->failed)
		return leave_name(s, e);
	if (s->opt->part == WIRE_PART_WHOLE || ours)
		return names_place(s, dir, e->name, e->ino);
	if (s->opt->part == WIRE_PART_BEGIN && s->opt->may_be_lost && !is_dir)
		return names_make_way(s, dir, e->name, e->ino);
	return is_dir && !is_placed(s, dir, e) ? idmap_set(&s->inodes, e->ino, INODE_IS_FAILED) : 0;
}

/* A FIFO, a socket or a device node, of which the manifest says that it is here. */
static void say_kept(struct session *s, const char *path)
{
	struct manifest_file mf = { .path = path,
		.state = "special",
		.warning = "kept in the store alone: a FIFO, a socket or a device node" };

	if (carries_files(s) && s->opt->manifest)
		manifest_add_file(s->opt->manifest, &mf);
}

static int visit_name(struct session *s, const struct state_name *e, void *arg)
{
	size_t at = *(const size_t *)arg;
	struct session_dir *dir = &s->dirs[at];
	char path[SESSION_PATH_MAX];
	struct inode in;
	int r = session_join(path, sizeof(path), dir->path, e->name);

	if (r < 0)
		return session_fail(s, e->ino, e->name, r, "its path is longer than %d bytes", SESSION_PATH_MAX);
	if (s->opt->in_place)
		r = place_visited(s, dir, e);
	if (r < 0)
		return r;
	if (S_ISDIR(e->type))
		return add_dir(s, e->ino, at, strdup(path), dir->selected || session_selected(s, path),
			dir->failed || idmap_get(&s->inodes, e->ino) == INODE_IS_FAILED);
	if ((dir->selected || session_selected(s, path)) && inode_is_special(e->type))
		say_kept(s, path);
	if ((dir->selected || session_selected(s, path)) && S_ISREG(e->type) && state_inode(s->st, e->ino, &in) == 0)
		count_planned(s, &in, path);
	return session_tick(s, false);
}

int names_run(struct session *s)
{
	int r = add_dir(s, STATE_ROOT_INO, 0, strdup(""), session_selected(s, ""), false);

	for (size_t i = 0; r == 0 && i < s->num_dirs; i++)
		r = session_each_name(s, s->dirs[i].ino, visit_name, &i);
	return r;
}

/* ---- left-over temporary files */

struct sweep {
	struct session *s;
	uint64_t dir;
	char *found; /* NUL-terminated names, one behind the other */
	size_t len, cap;
};

/*
 * The daemon makes such a file before it says so, but while a session runs only for what that leaves alone: what the snapshot does not
 * have of others was left by one that was killed in between.
 */
static bool is_through(const struct session *s, const char *name)
{
	size_t len = strlen(s->through_prefix);
	uint64_t ino;

	return s->sweeps_through && strncmp(name, s->through_prefix, len) == 0 &&
	       units_parse_u64(name + len, &ino) == 0 && idmap_get(&s->inodes, ino) != INODE_IS_LEFT_ALONE;
}

static bool is_left_over(const struct session *s, const char *name)
{
	if (is_through(s, name))
		return true;
	return strncmp(name, s->temp_prefix, strlen(s->temp_prefix)) == 0 ||
	       (names_are_published(s) && strncmp(name, s->shared_prefix, strlen(s->shared_prefix)) == 0);
}

static int find_temp(const char *name, void *arg)
{
	struct sweep *sw = arg;
	size_t n = strlen(name) + 1;
	uint64_t owner;

	if (!is_left_over(sw->s, name))
		return 0;
	if (state_backing_owner(sw->s->st, sw->dir, name, &owner) == 0)
		return 0; /* a file that is written through keeps its temporary name until it is whole */
	if (sw->len + n > sw->cap) {
		size_t cap = 2 * (sw->cap + n);
		char *grown = realloc(sw->found, cap);

		if (!grown)
			return -ENOMEM;
		sw->found = grown;
		sw->cap = cap;
	}
	memcpy(sw->found + sw->len, name, n);
	sw->len += n;
	return 0;
}

int names_sweep(struct session *s, uint64_t dir_ino, const char *dir_path)
{
	struct sweep sw = { .s = s, .dir = dir_ino };
	struct session_dir *d = session_dir(s, dir_ino);
	char path[SESSION_PATH_MAX];
	int r;

	if (d && d->swept)
		return 0;
	if (d)
		d->swept = true;
	r = s->to->ops->list(s->to, dir_path, find_temp, &sw);
	for (size_t at = 0; r == 0 && at < sw.len; at += strlen(sw.found + at) + 1) {
		r = session_join(path, sizeof(path), dir_path, sw.found + at);
		if (r == 0)
			r = names_remove_temp(s, path);
		if (r == -ENOENT)
			r = 0;
	}
	free(sw.found);
	return r;
}

/* ---- removals */

struct hidden { /* a backing name that shows something else in the mount, or nothing */
	uint64_t parent, ino;
	char *name; /* owned */
	unsigned int depth;
};

struct hidden_list {
	struct session *s;
	bool (*wanted)(struct session *s, uint64_t parent, const char *name, uint64_t ino, int *ret_error);
	struct hidden *at; /* owned */
	size_t num, cap;
};

static int collect_one(uint64_t parent, const char *name, uint64_t ino, void *arg)
{
	struct hidden_list *list = arg;
	int r = 0;

	if (!list->wanted(list->s, parent, name, ino, &r) || r < 0)
		return r;
	if (array_room(&list->at, &list->cap, list->num, sizeof(*list->at)) < 0)
		return -ENOMEM;
	list->at[list->num] = (struct hidden){ .parent = parent, .ino = ino, .name = strdup(name) };
	return list->at[list->num++].name ? 0 : -ENOMEM;
}

static void hidden_list_free(struct hidden_list *list)
{
	for (size_t i = 0; i < list->num; i++)
		free(list->at[i].name);
	free(list->at);
}

/* ---- parking */

static bool has_moved(struct session *s, uint64_t parent, const char *name, uint64_t ino, int *ret_error)
{
	char park[RECORD_NAME_MAX + 1];
	struct state_name at;
	struct inode in;
	int r = state_lookup(s->st, parent, name, &at);

	if (r == 0 && at.ino == ino)
		return false;
	if (state_is_beside(s->st, parent, name, ino, NULL))
		return false;
	if (r == 0 || r == -ENOENT)
		r = state_inode(s->st, ino, &in);
	*ret_error = r == -ENOENT ? 0 : r;
	names_park_name(ino, park);
	return r == 0 && !S_ISDIR(in.mode) && names_is_needed(&in) && in.origin_parent == parent &&
	       strcmp(in.origin_name, name) == 0 && strcmp(name, park) != 0;
}

/* A file's, and the name is a directory's now, which node 0 is about to make or to move there. */
static bool is_under_dir(struct session *s, uint64_t parent, const char *name, uint64_t ino, int *ret_error)
{
	struct state_name at;
	struct inode in;
	int r = state_lookup(s->st, parent, name, &at);

	*ret_error = r == -ENOENT ? 0 : r;
	if (r < 0 || !S_ISDIR(at.type))
		return false;
	return state_inode(s->st, ino, &in) < 0 || !S_ISDIR(in.mode);
}

/* Of a directory that was removed, in one that was not: a file of any node may have the name. */
static bool is_removed_dir(struct session *s, uint64_t parent, const char *name, uint64_t ino, int *ret_error)
{
	char park[RECORD_NAME_MAX + 1];
	struct inode in;
	int r = state_inode(s->st, ino, &in);

	*ret_error = r == -ENOENT ? 0 : r;
	names_park_name(ino, park);
	return r == 0 && S_ISDIR(in.mode) && in.flags & INODE_ORPHAN && strcmp(name, park) != 0 &&
	       session_dir(s, parent);
}

static int park_all(struct session *s, bool (*wanted)(struct session *, uint64_t, const char *, uint64_t, int *))
{
	struct hidden_list list = { .s = s, .wanted = wanted };
	int r = state_each_backing_name(s->st, collect_one, &list);

	for (size_t i = 0; r == 0 && i < list.num; i++)
		r = names_move_away(s, list.at[i].parent, list.at[i].name, list.at[i].ino);
	hidden_list_free(&list);
	return r;
}

/*
 * A directory that was removed leaves its name, which may be one of a file now, of whatever node; the nodes that still have something
 * in it to move or to remove are told where it is. It goes at the end, when that is done.
 */
int names_park_dirs(struct session *s)
{
	return park_all(s, is_removed_dir);
}

/* Nothing has the name in the mount, so it is not wanted, by this inode or by one that could not be placed. */
static bool is_hidden(struct session *s, uint64_t parent, const char *name, uint64_t ino, int *ret_error)
{
	struct state_name e;
	struct inode in;
	int r = state_lookup(s->st, parent, name, &e);
	bool is_dir;

	if (r != -ENOENT) {
		*ret_error = r < 0 ? r : 0;
		return false;
	}
	if (state_is_beside(s->st, parent, name, ino, NULL))
		return false;
	is_dir = state_inode(s->st, ino, &in) == 0 && S_ISDIR(in.mode);
	return is_dir ? session_places_dirs(s) : session_places_files(s);
}

static int deeper_first(const void *a, const void *b)
{
	const struct hidden *x = a, *y = b;

	return (x->depth < y->depth) - (x->depth > y->depth);
}

static unsigned int count_slashes(const char *p)
{
	unsigned int n = 0;

	for (; *p; p++)
		n += *p == '/';
	return n;
}

static int remove_dir(struct session *s, const struct hidden *h, const char *path)
{
	int r = s->to->ops->remove(s->to, path, true);

	if (r != -ENOTEMPTY && r != -EEXIST)
		return r;
	r = names_sweep(s, h->ino, path);
	return r < 0 ? r : s->to->ops->remove(s->to, path, true);
}

/*
 * Written to under a name that has been removed since, while the backing file has another link that the store has never
 * seen: there the bytes must show, so they are carried over before this name goes. What has another name in the mount is carried by that.
 */
static bool has_unseen_name(struct session *s, const struct inode *in)
{
	return S_ISREG(in->mode) && in->nlink > 0 && in->num_names == 0 && !(in->flags & (INODE_ORPHAN | INODE_NEW)) &&
	       (in->flags & (INODE_DIRTY_DATA | INODE_DIRTY_META | INODE_DIRTY_XATTR | INODE_PRIVATE)) &&
	       idmap_get(&s->inodes, in->ino) == INODE_IS_UNTOUCHED;
}

/* Of what other nodes wrote to it nothing is known here but by the share maps, and files without a name have no part in which these are carried. */
static int carry_unseen(struct session *s, const struct inode *in, const struct hidden *h, const char *path)
{
	struct file_place place = { .dir = h->parent, .name = h->name, .path = path };

	if (in->flags & INODE_SHARED && in->flags & INODE_DIRTY_DATA)
		return session_fail(s, in->ino, path, -EBUSY,
			"was removed in the mount after several nodes had written to it, but is linked elsewhere in the "
			"backing directory: what they wrote stays in the stores; unmount all and get it with cistern recover");
	return file_update(s, in, &place);
}

/*
 * Each part of a job's drain has a snapshot of its own: what has this name here, and had it when files got their names, may have another one
 * since. Then it is the only copy, and the next session moves it. So it is with one that could not get its name.
 */
static bool has_moved_since(const struct session *s, const struct inode *in)
{
	return s->opt->part != WIRE_PART_WHOLE && in->num_names > 0 && in->num_backing == 1;
}

/*
 * In a job: has what another node has made, by another file or by a directory, the name by now? in, remembered: NULL when they are not known. A
 * recovery that begins anew may have given such a file the very inode number that an earlier one has set free.
 */
static bool is_replaced(const struct session *s, const struct hidden *h, const struct stat *st, const struct inode *in,
	const struct inode *remembered)
{
	bool parks = s->opt->part == WIRE_PART_PARK;

	if (!parks && s->opt->named && s->opt->named(h->parent, h->name, s->opt->named_arg))
		return true;
	if (remembered && remembered->backing_ino != st->st_ino)
		return true;
	if (parks && S_ISDIR(st->st_mode))
		return true;
	return in && !session_is_same(in, st) && (parks || s->opt->part == WIRE_PART_REMOVE);
}

/*
 * A directory of a job that is not, nor is in, one that has been parked was removed after the part that parks them, and perhaps what was in it after
 * the other nodes had looked for what they have to remove: the next session has it.
 */
static bool is_just_removed(const struct session *s, const char *path)
{
	return s->opt->part == WIRE_PART_FINISH && s->opt->watcher.occupied && !strstr(path, NAMES_PARK_PREFIX);
}

/*
 * The number of a file that has gone may be given again, to what another node has published since, should the session in which that one took
 * the name not have come to this part. What was last written when ours was needs no question. 0: it is ours; -EEXIST: it is not; -errno:
 * nobody can say.
 */
static int check_ours(struct session *s, const struct hidden *h, const struct inode *in, const struct stat *st)
{
	bool same = (uint64_t)st->st_size == in->size && clock_ns_of(st->st_mtim) == in->mtime_ns;
	struct record rec = { .type = RECORD_PLACED, .ino = h->ino, .parent = h->parent, .backing_ino = st->st_ino };
	const struct drain_watcher *w = &s->opt->watcher;

	if (s->opt->part != WIRE_PART_REMOVE || !s->opt->cautious || !w->occupied || S_ISDIR(st->st_mode) || same)
		return 0;
	memcpy(rec.name, h->name, strlen(h->name) + 1);
	int r = s->unanswered ? -EBUSY : w->occupied(&rec, w->arg);
	s->unanswered = r == -EBUSY;
	return r == -ENOENT ? 0 : r;
}

/* What is in a directory that has been parked, and that a lost store may know of, is not left under a name that no mount shows. 0: it stays. */
static int show_parked(struct session *s, const struct hidden *h, const char *path, const struct stat *st)
{
	char name[RECORD_NAME_MAX + 1], shown[SESSION_PATH_MAX];

	if (!s->opt->may_be_lost || strncmp(h->name, NAMES_PARK_PREFIX, strlen(NAMES_PARK_PREFIX)) != 0)
		return 0;
	names_aside_name("", st->st_ino, name);
	int r = state_backing_child_path(s->st, h->parent, name, shown, sizeof(shown));

	if (r < 0 || session_rename_new(s, path, shown, true) < 0)
		return 0;
	if (s->opt->manifest)
		manifest_add_moved(s->opt->manifest, path, shown);
	r = session_sync_names(s);
	if (r == 0)
		r = session_touch(s, h->parent);
	if (r == 0)
		r = session_fail(s, 0, shown, -ENOTEMPTY,
			"a directory that was removed in the mount, with what may be of a store that is not given: remove it by hand");
	return r < 0 ? r : 1;
}

/*
 * A file of several names is looked for at one of them. When that goes, the mount finds the file at no other before it is told: it must know
 * that it is to wait, and who takes back what was not told gives the name back. A full device does not keep anything from being removed.
 */
static int intend_removal(struct session *s, const struct hidden *h, const struct inode *in, const char *path)
{
	struct record rec = { .type = RECORD_REMOVED, .ino = h->ino, .parent = h->parent };

	if (S_ISDIR(in->mode) || !names_is_needed(in) || in->origin_parent != h->parent ||
		strcmp(in->origin_name, h->name) != 0)
		return 0;
	memcpy(rec.name, h->name, strlen(h->name) + 1);
	s->intends_removal = true;
	int r = session_intend(s, &rec, "", path, "", false, NULL);
	return r == -ENOBUFS ? 0 : r;
}

/* In a directory that has gone no name can be given back. */
static int tell_removals(struct session *s)
{
	bool any = s->intends_removal;

	s->intends_removal = false;
	return any ? session_flush_steps(s) : 0;
}

static int remove_hidden(struct session *s, const struct hidden *h, const char *path)
{
	char known_as[SESSION_PATH_MAX];
	struct inode in;
	struct stat st;
	int known = state_inode(s->st, h->ino, &in), r;
	bool remembered = known == -ENOENT && state_remembered(s->st, h->ino, &in) == 0;

	if (known < 0 && known != -ENOENT)
		return known;
	if (known == 0 && ((in.flags & INODE_UNPUBLISHED) || idmap_get(&s->inodes, h->ino) == INODE_IS_FAILED))
		return 0; /* its only copy */
	if (known == 0 && has_moved_since(s, &in))
		return 0;
	r = s->to->ops->stat(s->to, path, &st);
	if (r == 0 && is_replaced(s, h, &st, known == 0 ? &in : NULL, remembered ? &in : NULL))
		return names_removed_step(s, h->ino, h->parent, h->name);
	if (r == 0 && s->opt->part == WIRE_PART_PARK && known < 0 && !remembered)
		return 0; /* whose it is, nobody here can say */
	int ours = r == 0 && remembered ? check_ours(s, h, &in, &st) : 0;
	if (ours == -EEXIST)
		return names_removed_step(s, h->ino, h->parent, h->name);
	if (ours < 0)
		return session_fail_errno(s, 0, path, ours,
			"was removed in the mount; whether another node has a file there now cannot be asked", 0);
	if (r == 0) {
		/* On a node alone, nothing is known of an inode that has gone; a directory is only removed when it is empty. */
		if (known == 0 &&
			!session_is_same(&in, &st)) /* somebody else has replaced it: what was removed is not there */
			return names_removed_step(s, h->ino, h->parent, h->name);
		if (known == 0 && has_unseen_name(s, &in)) {
			r = carry_unseen(s, &in, h, path);
			if (r < 0 || idmap_get(&s->inodes, h->ino) == INODE_IS_FAILED)
				return r;
		}
		r = S_ISDIR(st.st_mode) ? tell_removals(s) : known == 0 ? intend_removal(s, h, &in, path) : 0;
		if (r < 0)
			return r;
		r = S_ISDIR(st.st_mode) ? remove_dir(s, h, path) : s->to->ops->remove(s->to, path, false);
		if ((r == -ENOTEMPTY || r == -EEXIST) && is_just_removed(s, path))
			return 0;
		int shown = r == -ENOTEMPTY || r == -EEXIST ? show_parked(s, h, path, &st) : 0;
		if (shown)
			return shown < 0 ? shown : 0;
		if (r == -ENOTEMPTY || r == -EEXIST)
			return session_fail(s, 0, path, r,
				"was removed in the mount, but holds what the mount does not know of: remove it by hand");
	}
	if (r < 0 && r != -ENOENT && r != -ENOTDIR)
		return session_fail_errno(s, 0, path, r, "cannot be removed", 0);
	if (session_touch(s, h->parent) < 0)
		return -ENOMEM;
	s->result.totals.names_removed += r == 0;
	snprintf(known_as, sizeof(known_as), "%s", path);
	beside_to_shown(known_as, h->ino);
	if (s->opt->manifest)
		manifest_add_removed(s->opt->manifest, known_as);
	return names_removed_step(s, h->ino, h->parent, h->name);
}

/*
 * A directory that was removed in the mount has left its place when it was empty. In a job that is node 0's to do and to tell; what this node had in it
 * was removed before, by a process that died and did not say so.
 */
static bool has_place(struct session *s, uint64_t dir)
{
	struct inode in;
	int r = state_inode(s->st, dir, &in);

	return r < 0 ? r != -ENOENT : !(in.flags & INODE_ORPHAN);
}

static int remove_all(struct session *s, struct hidden_list *list)
{
	char path[SESSION_PATH_MAX];
	int r = state_each_backing_name(s->st, collect_one, list);

	for (size_t i = 0; r == 0 && i < list->num; i++)
		if (state_backing_child_path(s->st, list->at[i].parent, list->at[i].name, path, sizeof(path)) == 0)
			list->at[i].depth = count_slashes(path);
	if (r == 0 && list->num > 0)
		qsort(list->at, list->num, sizeof(*list->at), deeper_first);
	for (size_t i = 0; r == 0 && i < list->num; i++) {
		const struct hidden *h = &list->at[i];

		r = state_backing_child_path(s->st, h->parent, h->name, path, sizeof(path));
		if (r == 0)
			r = remove_hidden(s, h, path);
		else if (r == -ENOENT && !has_place(s, h->parent))
			r = names_removed_step(s, h->ino, h->parent, h->name);
		else if (r == -ENOENT || r == -ENAMETOOLONG)
			r = session_fail_errno(
				s, 0, h->name, r, "was removed in the mount, but its directory is gone", 0);
	}
	hidden_list_free(list);
	return r;
}

int names_remove(struct session *s)
{
	struct hidden_list list = { .s = s, .wanted = is_hidden };

	return remove_all(s, &list);
}

/*
 * Before directories are made and moved, by a node that knows of no files but its own: files that have another name now leave the place
 * where their backing file is, since it may be wanted by what another node knows; and those without a name go where a directory
 * has theirs. Others without a name stay; they are replaced, or removed at the end.
 */
int names_park(struct session *s)
{
	struct hidden_list list = { .s = s, .wanted = is_under_dir };
	int r = park_all(s, has_moved);

	return r < 0 ? r : remove_all(s, &list);
}

/* ---- attributes of directories */

/*
 * The top is what the mount stands over, whichever directory that is by now: nobody would give what was removed its attributes again. What the
 * daemon has open may have been removed, and would take all.
 */
static int check_is_there(const struct session_dir *d, const struct inode *in, const struct stat *st)
{
	if (st->st_nlink == 0)
		return -ENOENT;
	return d->ino == STATE_ROOT_INO || session_is_same(in, st) ? 0 : -ESTALE;
}

static int finish_dir(struct session *s, const struct session_dir *d, const struct inode *in, const char *path)
{
	struct record rec = { .type = RECORD_DRAINED,
		.ino = in->ino,
		.gen = in->gen,
		.upto = s->opt->upto,
		.flags = RECORD_F_META_ONLY,
		.size = in->size,
		.mtime_ns = in->mtime_ns };
	struct sink_file *f = NULL;
	struct sink_attr attr;
	struct attrs_warning warning = { "" };
	struct stat st;
	int r = names_sweep(s, d->ino, path);

	attrs_of_inode(in, &attr);
	if (r == 0)
		r = s->to->ops->open(s->to, path, SINK_ATTR, &f);
	if (r == 0)
		r = f->ops->fstat(f, &st);
	if (r == 0)
		r = check_is_there(d, in, &st);
	if (r == 0)
		r = attrs_apply(s, in, &attr, f, &warning);
	if (r == 0)
		r = f->ops->sync(f, false);
	sink_file_close(f);
	if (r < 0)
		return session_fail_errno(
			s, in->ino, d->path[0] ? d->path : ".", r, "the attributes of the directory cannot be set", 0);
	attrs_tell(s, d->path[0] ? d->path : ".", &warning);
	rec.backing_dev = st.st_dev;
	rec.backing_ino = st.st_ino;
	return in->flags & (INODE_DIRTY_META | INODE_DIRTY_XATTR) ? session_step(s, &rec) : 0;
}

/* In a job, other nodes have put files into the directory, which has changed its times. */
static bool was_used(struct session *s, const struct inode *in, const char *path)
{
	struct stat st;

	return s->opt->part == WIRE_PART_FINISH && s->to->ops->stat(s->to, path, &st) == 0 &&
	       clock_ns_of(st.st_mtim) != in->mtime_ns;
}

/* Children before their parents: setting a child's attributes does not touch its parent, but removing temporary files does. */
int names_finish_dirs(struct session *s)
{
	char path[SESSION_PATH_MAX];
	struct inode in;
	int r = session_flush_steps(s);

	for (size_t i = s->num_dirs; r == 0 && i-- > 0;) {
		const struct session_dir *d = &s->dirs[i];

		if (d->failed || idmap_get(&s->inodes, d->ino) == INODE_IS_FAILED ||
			state_inode(s->st, d->ino, &in) < 0)
			continue;
		r = state_backing_path(s->st, d->ino, path, sizeof(path));
		if (!idmap_get(&s->touched, d->ino) &&
			!(in.flags & (INODE_DIRTY_META | INODE_DIRTY_XATTR | INODE_NEW)) &&
			!(r == 0 && was_used(s, &in, path))) {
			r = 0;
			continue;
		}
		r = r < 0 ? session_fail_errno(s, d->ino, d->path, r, "the directory is not in its place", 0)
			  : finish_dir(s, d, &in, path);
	}
	return r;
}
