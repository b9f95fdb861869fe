/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * One name gets its place. The plan (plan/names.c) says what the next step for it is; here it is done, so that doing it twice is
 * the same as doing it once, and nothing is overwritten or removed that is not what the state thinks it is.
 */
#include "mpi-agent/replay/names_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/clock.h"
#include "mpi-agent/plan/names.h"

#define STEPS_PER_NAME 8 /* far more than a name can need: the plan and the state disagree */

/* One name that is being placed. */
struct placing {
	struct session *s;
	struct session_dir *dir;
	const char *name;
	struct names_step step;
	struct inode in;
	struct stat there;            /* what has the name, by names_check_place() */
	char to[SESSION_PATH_MAX];    /* of the name, in the destination */
	char from[SESSION_PATH_MAX];  /* PARK, MOVE, LINK */
	char shown[SESSION_PATH_MAX]; /* in the mount, for people */
	bool beside;                  /* name is not its own, which something else has */
};

static struct record placed_record(const struct inode *in, uint64_t ino, uint64_t parent, const char *name)
{
	struct record rec = { .type = RECORD_PLACED,
		.ino = ino,
		.gen = in->gen,
		.parent = parent,
		.backing_dev = in->backing_dev,
		.backing_ino = in->backing_ino };

	snprintf(rec.name, sizeof(rec.name), "%s", name);
	return rec;
}

static struct record moved_record(
	const struct inode *in, uint64_t from_parent, const char *from_name, uint64_t parent, const char *name)
{
	struct record rec = placed_record(in, in->ino, parent, name);

	rec.flags = RECORD_F_MOVED;
	rec.from_parent = from_parent;
	snprintf(rec.from_name, sizeof(rec.from_name), "%s", from_name);
	return rec;
}

int names_removed_step(struct session *s, uint64_t ino, uint64_t parent, const char *name)
{
	struct record rec = { .type = RECORD_REMOVED, .ino = ino, .parent = parent };

	snprintf(rec.name, sizeof(rec.name), "%s", name);
	return session_step(s, &rec);
}

/* 0: path shows in; -ENOENT; -ESTALE: something else does. */
static int check_same(struct session *s, const struct inode *in, const char *path, struct stat *ret)
{
	int r = s->to->ops->stat(s->to, path, ret);

	if (r < 0)
		return r == -ENOTDIR ? -ENOENT : r;
	return session_is_same(in, ret) ? 0 : -ESTALE;
}

bool names_dir_is_there(struct session *s, uint64_t dir)
{
	char path[SESSION_PATH_MAX];
	struct inode in;
	struct stat st;

	if (!s->opt->cautious || dir == STATE_ROOT_INO)
		return true;
	return state_inode(s->st, dir, &in) == 0 && state_backing_path(s->st, dir, path, sizeof(path)) == 0 &&
	       check_same(s, &in, path, &st) == 0;
}

struct link {
	struct placing *p;
	const struct inode *in;
	uint64_t parent;
	char name[RECORD_NAME_MAX + 1];
	struct stat st;
};

static int find_link(uint64_t parent, const char *name, uint64_t ino, void *arg)
{
	struct link *l = arg;
	struct session *s = l->p->s;
	char path[SESSION_PATH_MAX];

	if (ino != l->in->ino || (parent == l->p->dir->ino && strcmp(name, l->p->name) == 0))
		return 0;
	int r = state_backing_child_path(s->st, parent, name, path, sizeof(path));
	if (r == 0)
		r = check_same(s, l->in, path, &l->st);
	if (r < 0)
		return r == -ENOENT || r == -ESTALE ? 0 : r;
	l->parent = parent;
	snprintf(l->name, sizeof(l->name), "%s", name);
	return 1;
}

/* Who was here before, and was killed, has taken that name of a file with several away: it is known by another one from now on. 1: it has one. */
static int take_link(struct placing *p, const struct inode *in)
{
	struct link l = { .p = p, .in = in };
	int r = in->num_backing < 2 ? 0 : state_each_backing_name(p->s->st, find_link, &l);

	if (r <= 0)
		return r;
	struct record rec = moved_record(in, p->dir->ino, p->name, l.parent, l.name);
	rec.backing_dev = l.st.st_dev;
	rec.backing_ino = l.st.st_ino;
	r = session_step(p->s, &rec);
	return r < 0 ? r : 1;
}

static int do_park(struct placing *p)
{
	struct session *s = p->s;
	char park[SESSION_PATH_MAX];
	struct inode occupant;
	struct record rec;
	struct stat st;
	int r = state_inode(s->st, p->step.ino, &occupant);

	if (r < 0)
		return r;
	rec = moved_record(&occupant, p->dir->ino, p->name, p->dir->ino, p->step.park_name);
	rec.flags |= occupant.flags & INODE_UNPUBLISHED ? RECORD_F_UNPUBLISHED : 0;
	r = state_backing_child_path(s->st, p->dir->ino, p->step.park_name, park, sizeof(park));
	if (r == 0)
		r = check_same(s, &occupant, p->to, &st);
	rec.backing_ino = r == 0 ? st.st_ino : occupant.backing_ino;
	if (r == 0) {
		r = session_intend(s, &rec, p->to, park, "", S_ISDIR(occupant.mode), NULL);
		if (r < 0)
			return r;
		r = s->to->ops->rename(s->to, p->to, park, S_ISDIR(occupant.mode));
	}
	if (r == 0 && s->opt->manifest)
		manifest_add_moved(s->opt->manifest, p->to, park);
	if (r == 0 && s->opt->manifest && occupant.flags & INODE_ORPHAN)
		manifest_add_removed(s->opt->manifest, p->to);
	if (r == 0)
		return session_told(s, &rec, park);
	/* When it has gone, whoever took it away, the place is free, and its own turn will tell. */
	if (r == -ENOENT || r == -ESTALE)
		r = S_ISDIR(occupant.mode) ? 0 : take_link(p, &occupant);
	return r == 0 ? session_step(s, &rec) : r < 0 ? r : 0;
}

/*
 * Is what has the place what the state means? A session before us may have put the new directory there already; another node's file may have got
 * the name since our state lost it, or somebody else's, perhaps as its only copy. *ret_known: the state says what it was.
 */
static bool is_occupant(struct placing *p, const struct stat *st, bool *ret_known)
{
	struct session *s = p->s;
	struct inode in;
	int r = state_inode(s->st, p->step.ino, &in);

	*ret_known = r == 0 || state_remembered(s->st, p->step.ino, &in) == 0;
	if (r == 0 && S_ISDIR(st->st_mode) != S_ISDIR(p->step.mode))
		return false;
	if (*ret_known)
		return in.backing_ino == st->st_ino || (r == 0 && session_is_same(&in, st));
	return S_ISDIR(st->st_mode) || (s->opt->part != WIRE_PART_WHOLE && !s->opt->watcher.occupied);
}

static int do_clear(struct placing *p)
{
	struct session *s = p->s;
	struct stat st;
	int r = s->to->ops->stat(s->to, p->to, &st);
	bool known = false, removes = r == 0 && is_occupant(p, &st, &known);

	if (removes && S_ISDIR(st.st_mode)) /* what was in it has been moved: for good */
		r = session_flush_steps(s);
	if (removes && r == 0)
		r = s->to->ops->remove(s->to, p->to, S_ISDIR(st.st_mode));
	if (removes && !known && (r == -ENOTEMPTY || r == -EEXIST)) {
		removes = false; /* a directory goes only when it is empty */
		r = 0;
	}
	if (r < 0 && r != -ENOENT)
		return r;
	s->result.totals.names_removed += removes;
	if (removes && s->opt->manifest)
		manifest_add_removed(s->opt->manifest, p->to);
	return names_removed_step(s, p->step.ino, p->dir->ino, p->name);
}

static int placed(struct placing *p)
{
	struct record rec = placed_record(&p->in, p->in.ino, p->dir->ino, p->name);

	return session_touch(p->s, p->dir->ino) < 0 ? -ENOMEM : session_step(p->s, &rec);
}

/* Something of which st is, is about to get the name; it is at temp. made: st, if it is as it stays. */
static int intend_placed(struct placing *p, const struct stat *st, const char *temp, const struct stat *made)
{
	struct record rec;

	p->in.backing_dev = st->st_dev;
	p->in.backing_ino = st->st_ino;
	rec = placed_record(&p->in, p->in.ino, p->dir->ino, p->name);
	return session_intend(p->s, &rec, "", p->to, S_ISDIR(st->st_mode) ? "" : temp, S_ISDIR(st->st_mode), made);
}

/*
 * A directory that a session made when it had already been given up in the mount, and of which the state knows no more
 * than that: nothing can be renamed over it.
 */
int names_clear_dir(struct session *s, uint64_t dir, const char *name, const char *path)
{
	struct inode in;
	struct stat st;
	uint64_t owner;
	int r = s->to->ops->stat(s->to, path, &st);

	if (r < 0 || !S_ISDIR(st.st_mode))
		return r == -ENOENT ? 0 : r;
	r = state_backing_owner(s->st, dir, name, &owner);
	if (r < 0 || state_inode(s->st, owner, &in) == 0)
		return r == -ENOENT || r == 0 ? -EISDIR : r;
	return s->to->ops->remove(s->to, path, true);
}

int names_remove_temp(struct session *s, const char *path)
{
	int r = s->to->ops->remove(s->to, path, false);

	return r == -EISDIR || r == -EPERM ? s->to->ops->remove(s->to, path, true) : r;
}

/* A temporary name beside the place, of which nothing is there. */
static int fresh_temp(struct placing *p, char *out, size_t cap)
{
	struct session *s = p->s;
	char name[RECORD_NAME_MAX + 1];
	int r;

	temps_note(s, p->dir->ino, false);
	snprintf(name, sizeof(name), "%s%" PRIu64, s->temp_prefix, p->in.ino);
	r = state_backing_child_path(s->st, p->dir->ino, name, out, cap);
	if (r < 0)
		return r;
	r = names_remove_temp(s, out);
	return r == -ENOENT ? 0 : r;
}

/* The name to what is at temp, which is not left there. */
static int give_temp(struct placing *p, const char *temp)
{
	int r = give_name(p->s, temp, p->to, &p->there);

	if (r == -EEXIST)
		(void)names_remove_temp(p->s, temp);
	return r;
}

/* rename() between two links of one file would leave both. */
static bool is_other_link(struct placing *p, const struct stat *from)
{
	struct stat to;

	return !S_ISDIR(from->st_mode) && p->s->to->ops->stat(p->s->to, p->to, &to) == 0 && to.st_ino == from->st_ino &&
	       to.st_dev == from->st_dev;
}

static int rename_dir(struct placing *p, const struct record *rec)
{
	int r = session_intend(p->s, rec, p->from, p->to, "", true, NULL);

	return r < 0 ? r : p->s->to->ops->rename(p->s->to, p->from, p->to, true);
}

/* By way of a further link: what changes places with it must not get its old name, which may be wanted by then. */
static int replace_by_link(struct placing *p, const struct record *rec)
{
	struct session *s = p->s;
	char temp[SESSION_PATH_MAX];
	int r = fresh_temp(p, temp, sizeof(temp));

	if (r == 0)
		r = session_intend(s, rec, p->from, p->to, temp, false, NULL);
	if (r == 0)
		r = s->to->ops->link(s->to, p->from, temp);
	if (r == -EPERM || r == -EOPNOTSUPP || r == -EMLINK)
		return s->to->ops->rename(s->to, p->from, p->to, false);
	if (r == 0)
		r = give_temp(p, temp);
	return r < 0 ? r : s->to->ops->remove(s->to, p->from, false);
}

static int rename_over(struct placing *p, const struct record *rec, const struct stat *from)
{
	struct session *s = p->s;
	int r;

	if (S_ISDIR(from->st_mode))
		return rename_dir(p, rec);
	if (is_other_link(p, from)) {
		r = session_intend(s, rec, p->from, p->to, "", false, NULL);
		return r < 0 ? r : s->to->ops->remove(s->to, p->from, false);
	}
	r = names_clear_dir(s, p->dir->ino, p->name, p->to);
	if (r == 0 && p->there.st_ino && give_is_guarded(s))
		return replace_by_link(p, rec);
	if (r == 0)
		r = session_intend(s, rec, p->from, p->to, "", false, NULL);
	return r < 0 ? r : give_name(s, p->from, p->to, &p->there);
}

/* People know a file that stands beside its name by that name. */
static void tell_move(struct placing *p)
{
	struct session *s = p->s;

	beside_to_shown(p->from, p->in.ino);
	if (s->opt->manifest && strcmp(p->from, p->shown) != 0)
		manifest_add_moved(s->opt->manifest, p->from, p->shown);
	else if (!p->beside)
		beside_tell(s, p->shown, NULL);
}

static int do_move(struct placing *p)
{
	struct record rec = moved_record(&p->in, p->step.from_parent, p->step.from_name, p->dir->ino, p->name);
	struct session *s = p->s;
	struct stat from;
	int r = check_same(s, &p->in, p->from, &from);

	rec.backing_ino = r == 0 ? from.st_ino : rec.backing_ino;
	if (r == 0)
		r = rename_over(p, &rec, &from);
	if (r < 0)
		return r;
	s->result.totals.names_moved++;
	tell_move(p);
	if (session_touch(s, p->dir->ino) < 0 || session_touch(s, p->step.from_parent) < 0)
		return -ENOMEM;
	return session_told(s, &rec, p->shown);
}

/* By way of a temporary name: link() does not replace what nobody needs. */
static int link_over(struct placing *p, const struct stat *from)
{
	struct session *s = p->s;
	char temp[SESSION_PATH_MAX];
	int r = names_clear_dir(s, p->dir->ino, p->name, p->to);

	if (r == 0)
		r = fresh_temp(p, temp, sizeof(temp));
	if (r == 0)
		r = intend_placed(p, from, temp, NULL);
	if (r == 0)
		r = s->to->ops->link(s->to, p->from, temp);
	return r < 0 ? r : give_temp(p, temp);
}

static int do_link(struct placing *p)
{
	struct session *s = p->s;
	struct stat from;
	int r = check_same(s, &p->in, p->from, &from);

	if (r < 0)
		return r;
	if (is_other_link(p, &from)) {
		r = s->to->ops->mark(s->to, p->to);
	} else {
		r = link_over(p, &from);
	}
	if (r == 0 && s->opt->manifest)
		manifest_add_linked(s->opt->manifest, p->from, p->shown);
	if (r == 0)
		r = links_note(s, p->in.ino, p->step.from_parent, p->step.from_name, p->dir->ino, p->name);
	return r < 0 ? r : placed(p);
}

/* By way of a temporary name, so that we know which one is ours. */
static int make_dir(struct placing *p)
{
	struct session *s = p->s;
	char temp[SESSION_PATH_MAX];
	struct stat st;
	int r = fresh_temp(p, temp, sizeof(temp));

	if (r == 0)
		r = s->to->ops->mkdir(s->to, temp);
	if (r == 0)
		r = s->to->ops->stat(s->to, temp, &st);
	if (r == 0)
		r = intend_placed(p, &st, temp, NULL);
	return r < 0 ? r : s->to->ops->rename(s->to, temp, p->to, true);
}

static int do_mkdir(struct placing *p)
{
	struct session *s = p->s;
	struct stat st;
	int r = s->to->ops->stat(s->to, p->to, &st);

	if (r == 0) {
		/* A session before us made it, or somebody else: in either case it is what is wanted. */
		r = S_ISDIR(st.st_mode) ? s->to->ops->mark(s->to, p->to) : -EEXIST;
		p->in.backing_dev = st.st_dev;
		p->in.backing_ino = st.st_ino;
	} else if (r == -ENOENT) {
		r = make_dir(p);
	}
	return r < 0 ? r : placed(p);
}

static int finish_symlink(struct placing *p)
{
	struct record rec = { .type = RECORD_DRAINED,
		.ino = p->in.ino,
		.gen = p->in.gen,
		.upto = p->s->opt->upto,
		.flags = RECORD_F_META_ONLY,
		.size = p->in.size,
		.mtime_ns = p->in.mtime_ns,
		.backing_dev = p->in.backing_dev,
		.backing_ino = p->in.backing_ino };
	int r = placed(p);

	p->s->result.totals.files++;
	return r < 0 ? r : session_step(p->s, &rec);
}

static int make_symlink(struct placing *p, const char *temp, struct stat *ret, struct attrs_warning *warning)
{
	struct session *s = p->s;
	char target[RECORD_TARGET_MAX + 1];
	struct sink_file *f = NULL;
	struct sink_attr attr;
	int r = state_symlink(s->st, p->in.ino, target, sizeof(target));

	if (r == 0)
		r = s->to->ops->symlink(s->to, target, temp);
	if (r == 0)
		r = s->to->ops->open(s->to, temp, SINK_ATTR, &f);
	if (r == 0) {
		attrs_of_inode(&p->in, &attr);
		r = attrs_apply(s, &p->in, &attr, f, warning);
	}
	if (r == 0)
		r = f->ops->fstat(f, ret);
	sink_file_close(f);
	return r;
}

static int do_symlink(struct placing *p)
{
	struct session *s = p->s;
	char temp[SESSION_PATH_MAX];
	struct attrs_warning warning = { "" };
	struct stat st;
	int r = names_clear_dir(s, p->dir->ino, p->name, p->to);

	if (r == 0)
		r = fresh_temp(p, temp, sizeof(temp));
	if (r == 0)
		r = make_symlink(p, temp, &st, &warning);
	if (r == 0)
		r = intend_placed(p, &st, temp, &st);
	if (r == 0)
		r = give_temp(p, temp);
	if (r == 0)
		attrs_tell(s, p->to, &warning);
	return r < 0 ? r : finish_symlink(p);
}

static int do_step(struct placing *p)
{
	switch (p->step.action) {
	case NAMES_PARK: return do_park(p);
	case NAMES_CLEAR: return do_clear(p);
	case NAMES_MOVE: return do_move(p);
	case NAMES_LINK: return do_link(p);
	case NAMES_MKDIR: return do_mkdir(p);
	case NAMES_SYMLINK: return do_symlink(p);
	default: return 0;
	}
}

static const char *doing(enum names_action action)
{
	switch (action) {
	case NAMES_PARK: return "what has its place cannot be moved away";
	case NAMES_CLEAR: return "what has its place cannot be removed";
	case NAMES_MOVE: return "cannot be moved here from its old place";
	case NAMES_LINK: return "cannot be linked here";
	case NAMES_MKDIR: return "the directory cannot be made";
	case NAMES_SYMLINK: return "the symbolic link cannot be made";
	default: return "cannot be placed";
	}
}

/* A recovery before us, or a session whose report the power has taken, has published it: nothing that was there before in's last change has changed since. */
bool names_was_published(const struct inode *in, const struct stat *st)
{
	return ((in->mode ^ st->st_mode) & S_IFMT) == 0 && (uint64_t)st->st_size == in->size &&
	       clock_ns_of(st->st_mtim) == in->mtime_ns && clock_ns_of(st->st_ctim) > in->ctime_ns;
}

/* Nothing is replaced that a store that is not there may have moved: it may be the only copy. */
static bool may_be_lost(
	struct session *s, uint64_t dir, const char *name, const struct inode *in, const struct stat *st)
{
	return s->opt->may_be_lost && !S_ISDIR(st->st_mode) && !names_was_published(in, st) &&
	       (!in->backing_ino || in->backing_ino != st->st_ino) &&
	       s->opt->may_be_lost(dir, name, st, s->opt->named_arg);
}

static void say_aside(struct session *s, const char *path, const char *aside)
{
	const struct drain_watcher *w = &s->opt->watcher;
	char text[SESSION_PATH_MAX + 128];

	snprintf(text, sizeof(text),
		"what had this name in the backing directory may be a file of a store that is not given: it becomes %s",
		aside);
	if (w->error)
		w->error(path, -EEXIST, text, w->arg);
	if (s->opt->manifest)
		manifest_add_moved(s->opt->manifest, path, aside);
}

/* Beside the name, under one that says what it is: there its store, if it is found again, looks for it (locate.c). */
static int move_aside(struct session *s, uint64_t dir, const char *name, const char *path, const struct stat *st)
{
	char beside[RECORD_NAME_MAX + 1], aside[SESSION_PATH_MAX];
	int r;

	names_aside_name(name, st->st_ino, beside);
	r = state_backing_child_path(s->st, dir, beside, aside, sizeof(aside));
	if (r == 0)
		r = session_rename_new(s, path, aside, false);
	if (r < 0)
		return r;
	s->result.totals.names_moved++;
	say_aside(s, path, aside);
	r = session_sync_names(s);
	return r < 0 ? r : session_touch(s, dir);
}

int names_make_way(struct session *s, const struct session_dir *dir, const char *name, uint64_t ino)
{
	char path[SESSION_PATH_MAX];
	struct inode in;
	uint64_t owner;
	struct stat st;

	if ((state_backing_owner(s->st, dir->ino, name, &owner) == 0 && owner == ino) ||
		state_inode(s->st, ino, &in) < 0 ||
		state_backing_child_path(s->st, dir->ino, name, path, sizeof(path)) < 0 ||
		s->to->ops->stat(s->to, path, &st) < 0 || !may_be_lost(s, dir->ino, name, &in, &st))
		return 0;
	/* If it cannot be, that is said when the name is given. */
	(void)move_aside(s, dir->ino, name, path, &st);
	return s->fatal;
}

/*
 * What has the name is what this store, or another one that is recovered with it, knows by it; or it is the file itself. A directory that the state
 * has there is dealt with where it is to be replaced.
 */
static bool is_ours(struct session *s, uint64_t dir, const char *name, const struct inode *in, const struct stat *st)
{
	uint64_t owner;

	if (names_is_known(s->st, dir, name, st->st_ino) || (in->backing_ino && in->backing_ino == st->st_ino))
		return true;
	if (s->opt->known && s->opt->known(dir, name, st, s->opt->named_arg))
		return true;
	return S_ISDIR(st->st_mode) && state_backing_owner(s->st, dir, name, &owner) == 0;
}

int names_check_place(struct session *s, uint64_t dir, const char *name, const char *path, const struct inode *in,
	struct stat *ret_there)
{
	struct stat st, again;
	struct record rec;
	uint64_t owner;
	int r;

	ret_there->st_ino = 0;
	if (!names_dir_is_there(s, dir))
		return -ENOENT;
	r = s->to->ops->stat(s->to, path, &st);
	if (r < 0)
		return r == -ENOENT || r == -ENOTDIR ? 0 : r; /* of any other error, something may be there */
	if (may_be_lost(s, dir, name, in, &st))
		return move_aside(s, dir, name, path, &st);
	if (!S_ISDIR(st.st_mode))
		*ret_there = st;
	if (s->opt->cautious && state_backing_owner(s->st, dir, name, &owner) == -ENOENT)
		return -EBUSY;
	if (is_ours(s, dir, name, in, &st))
		return 0;
	if (!s->opt->watcher.occupied || s->opt->part == WIRE_PART_WHOLE)
		return names_was_published(in, &st) ? 0 : PLACE_IS_FOREIGN;
	rec = placed_record(in, in->ino, dir, name);
	rec.backing_ino = st.st_ino;
	r = s->opt->watcher.occupied(&rec, s->opt->watcher.arg);
	if (r == -ENOENT) /* nobody knows it */
		return names_was_published(in, &st) ? 0 : PLACE_IS_FOREIGN;
	r = r == -EEXIST ? -EBUSY : r; /* another node's */
	if (r == 0 && s->to->ops->stat(s->to, path, &again) == 0 && again.st_ino != st.st_ino)
		r = -EBUSY;
	return r;
}

/* A directory that somebody else has made is as good as a new one; another file, or a directory that is to be replaced, is not. */
static bool merges(struct placing *p)
{
	struct stat st;

	return p->step.action == NAMES_MKDIR && !p->s->opt->may_be_lost &&
	       p->s->to->ops->stat(p->s->to, p->to, &st) == 0 && S_ISDIR(st.st_mode);
}

/* What has the place may be the only copy of a file of another node, or somebody else's. -EBUSY, PLACE_IS_FOREIGN. */
static int check_free(struct placing *p)
{
	bool places = p->step.action == NAMES_MOVE || p->step.action == NAMES_LINK || p->step.action == NAMES_SYMLINK ||
		      p->step.action == NAMES_MKDIR;

	if (!places || p->beside || merges(p))
		return 0;
	return names_check_place(p->s, p->dir->ino, p->name, p->to, &p->in, &p->there);
}

/* What comes to the place of a file while we look is looked at, too. */
static int give_step(struct placing *p)
{
	int r = -EEXIST;

	for (int tries = 0; r == -EEXIST && tries < GIVE_TRIES; tries++) {
		r = check_free(p);
		if (r == 0)
			r = do_step(p);
		if (S_ISDIR(p->in.mode)) /* nothing is replaced by one */
			return r;
	}
	return r == -EEXIST ? -EBUSY : r;
}

/* The step's paths; then the step. */
static int one_step(struct placing *p)
{
	struct session *s = p->s;
	int r = state_backing_child_path(s->st, p->dir->ino, p->name, p->to, sizeof(p->to));

	if (r == 0 && (p->step.action == NAMES_MOVE || p->step.action == NAMES_LINK))
		r = state_backing_child_path(s->st, p->step.from_parent, p->step.from_name, p->from, sizeof(p->from));
	if (r == 0)
		r = session_touch(s, p->dir->ino);
	return r < 0 ? r : give_step(p);
}

/* The same step, but to the name beside the one that it cannot have. It is its own, whatever is there. */
static int step_beside(struct placing *p)
{
	struct session *s = p->s;
	char name[RECORD_NAME_MAX + 1];
	const char *own = p->name;
	int r = beside_find(s, p->dir->ino, own, p->in.ino, name);

	if (r > 0) { /* it is there */
		r = state_backing_child_path(s->st, p->dir->ino, name, p->to, sizeof(p->to));
		if (r == 0)
			beside_tell(s, p->shown, p->to);
		return r;
	}
	if (r < 0)
		return r;
	beside_name(own, s->beside_tag, p->in.ino, name);
	p->name = name;
	p->beside = true;
	r = state_backing_child_path(s->st, p->dir->ino, name, p->to, sizeof(p->to));
	if (r == 0 && s->to->ops->stat(s->to, p->to, &p->there) < 0)
		p->there.st_ino = 0;
	if (r == 0)
		r = beside_forget(s, p->dir->ino, own);
	if (r == 0)
		r = do_step(p);
	if (r == 0)
		beside_tell(s, p->shown, p->to);
	p->name = own;
	return r;
}

/*
 * In a job, directories are moved in a part of their own, since all nodes have to know of it. One that has the place all the same could not be
 * moved, which was said, or has been removed since: the file comes with the next session.
 */
static bool waits_for_dir(const struct session *s, const struct names_step *step)
{
	return s->opt->part == WIRE_PART_FILES && step->action == NAMES_PARK && S_ISDIR(step->mode);
}

/* Of a directory: a file that has lost the name since its home parked what had. */
static bool is_in_the_way(int r, const struct names_step *step)
{
	return r == -EBUSY || (S_ISDIR(step->mode) && (r == -EEXIST || r == -ENOTDIR) &&
				      (step->action == NAMES_MKDIR || step->action == NAMES_MOVE));
}

int names_place(struct session *s, struct session_dir *dir, const char *name, uint64_t ino)
{
	struct placing *p = calloc(1, sizeof(*p));
	int r = p ? 0 : -ENOMEM;

	if (p) {
		*p = (struct placing){ .s = s, .dir = dir, .name = name };
		r = session_join(p->shown, sizeof(p->shown), dir->path, name);
	}
	for (int i = 0; r == 0; i++) {
		r = names_next_step(s->st, dir->ino, name, ino, &p->in, &p->step);
		if (r < 0 || p->step.action == NAMES_DONE || p->step.action == NAMES_DATA)
			break;
		if (waits_for_dir(s, &p->step)) {
			r = session_late(s, ino, p->shown, "a directory has its name in the backing directory");
			break;
		}
		session_set_path(s, p->shown);
		r = i < STEPS_PER_NAME ? one_step(p) : -ELOOP;
		if (r == PLACE_IS_FOREIGN) {
			r = step_beside(p);
			break;
		}
	}
	if (session_may_be_late(s) && is_in_the_way(r, &p->step))
		r = session_late(s, ino, p->shown, SESSION_OCCUPIED);
	else if (r == -ESTALE && session_has_gone(s, &p->in))
		r = idmap_set(&s->inodes, ino, INODE_IS_FAILED);
	else if (r < 0)
		r = session_fail_errno(s, ino, p ? p->shown : name, r, p ? doing(p->step.action) : "no memory", 0);
	free(p);
	return r;
}

int names_move_away(struct session *s, uint64_t parent, const char *name, uint64_t ino)
{
	struct session_dir *dir = session_dir(s, parent);
	struct placing *p = calloc(1, sizeof(*p));
	int r = p ? state_inode(s->st, ino, &p->in) : -ENOMEM;

	if (r == 0 && dir) {
		p->s = s;
		p->dir = dir;
		p->name = name;
		p->step = (struct names_step){ .action = NAMES_PARK, .ino = ino, .mode = p->in.mode };
		names_park_name(ino, p->step.park_name);
		r = one_step(p);
	}
	free(p);
	return r < 0 ? session_fail_errno(s, ino, name, r, "cannot be moved out of the way", 0) : 0;
}
