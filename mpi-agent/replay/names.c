/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Names: top-down first, removals last, attributes of directories at the very end. The plan (plan/names.c) says what the
 * next step for a name is; here it is done, so that doing it twice is the same as doing it once, and nothing is
 * overwritten or removed that is not what the state thinks it is.
 */
#include "mpi-agent/replay/session.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpi-agent/plan/names.h"
#include "mpi-agent/plan/window.h"

#define STEPS_PER_NAME 8 /* far more than a name can need: the plan and the state disagree */

/* One name that is being placed. */
struct placing {
	struct session *s;
	struct session_dir *dir;
	const char *name;
	struct names_step step;
	struct inode in;
	char to[SESSION_PATH_MAX];    /* of the name, in the destination */
	char from[SESSION_PATH_MAX];  /* PARK, MOVE, LINK */
	char shown[SESSION_PATH_MAX]; /* in the mount, for people */
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

static int removed_step(struct session *s, uint64_t ino, uint64_t parent, const char *name)
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
	if (r == 0)
		r = session_intend(s, &rec, p->to, park, S_ISDIR(occupant.mode));
	if (r == 0)
		r = s->to->ops->rename(s->to, p->to, park, S_ISDIR(occupant.mode));
	if (r == 0 && s->opt->manifest)
		manifest_add_moved(s->opt->manifest, p->to, park);
	/* When it has gone, whoever took it away, the place is free, and its own turn will tell. */
	return r == 0 || r == -ENOENT || r == -ESTALE ? session_step(s, &rec) : r;
}

/* What is there may no longer be what the state means: a session before us may have put the new directory there already. */
static int do_clear(struct placing *p)
{
	struct session *s = p->s;
	struct stat st;
	int r = s->to->ops->stat(s->to, p->to, &st);

	if (r == 0 && S_ISDIR(st.st_mode) && S_ISDIR(p->step.mode)) /* what was in it has been moved: for good */
		r = session_flush_steps(s);
	if (r == 0 && S_ISDIR(st.st_mode) == S_ISDIR(p->step.mode))
		r = s->to->ops->remove(s->to, p->to, S_ISDIR(st.st_mode));
	if (r < 0 && r != -ENOENT)
		return r;
	s->result.names_removed++;
	return removed_step(s, p->step.ino, p->dir->ino, p->name);
}

static int placed(struct placing *p)
{
	struct record rec = placed_record(&p->in, p->in.ino, p->dir->ino, p->name);

	return session_touch(p->s, p->dir->ino) < 0 ? -ENOMEM : session_step(p->s, &rec);
}

/* Something new, of which st is, is about to get the name. */
static int intend_placed(struct placing *p, const struct stat *st)
{
	struct record rec;

	p->in.backing_dev = st->st_dev;
	p->in.backing_ino = st->st_ino;
	rec = placed_record(&p->in, p->in.ino, p->dir->ino, p->name);
	return session_intend(p->s, &rec, "", p->to, S_ISDIR(st->st_mode));
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

/* rename() between two links of one file would leave both. */
static bool is_other_link(struct placing *p, const struct stat *from)
{
	struct stat to;

	return !S_ISDIR(from->st_mode) && p->s->to->ops->stat(p->s->to, p->to, &to) == 0 && to.st_ino == from->st_ino &&
	       to.st_dev == from->st_dev;
}

static int rename_over(struct placing *p, const struct record *rec, const struct stat *from)
{
	struct session *s = p->s;
	bool is_dir = S_ISDIR(from->st_mode);
	int r;

	if (is_other_link(p, from))
		return s->to->ops->remove(s->to, p->from, false);
	r = is_dir ? 0 : names_clear_dir(s, p->dir->ino, p->name, p->to);
	if (r == 0)
		r = session_intend(s, rec, p->from, p->to, is_dir);
	return r < 0 ? r : s->to->ops->rename(s->to, p->from, p->to, is_dir);
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
	s->result.names_moved++;
	if (s->opt->manifest)
		manifest_add_moved(s->opt->manifest, p->from, p->shown);
	if (session_touch(s, p->dir->ino) < 0 || session_touch(s, p->step.from_parent) < 0)
		return -ENOMEM;
	return session_step(s, &rec);
}

static int remove_temp(struct session *s, const char *path)
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

	snprintf(name, sizeof(name), "%s%" PRIu64, s->temp_prefix, p->in.ino);
	r = state_backing_child_path(s->st, p->dir->ino, name, out, cap);
	if (r < 0)
		return r;
	r = remove_temp(s, out);
	return r == -ENOENT ? 0 : r;
}

/* By way of a temporary name: link() does not replace what nobody needs. */
static int link_over(struct placing *p)
{
	struct session *s = p->s;
	char temp[SESSION_PATH_MAX];
	int r = names_clear_dir(s, p->dir->ino, p->name, p->to);

	if (r == 0)
		r = fresh_temp(p, temp, sizeof(temp));
	if (r == 0)
		r = s->to->ops->link(s->to, p->from, temp);
	return r < 0 ? r : s->to->ops->rename(s->to, temp, p->to, false);
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
		r = intend_placed(p, &from);
		if (r == 0)
			r = link_over(p);
	}
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
		r = intend_placed(p, &st);
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

	p->s->result.files++;
	return r < 0 ? r : session_step(p->s, &rec);
}

static int make_symlink(struct placing *p, const char *temp, struct stat *ret)
{
	struct session *s = p->s;
	char target[RECORD_TARGET_MAX + 1];
	struct sink_file *f = NULL;
	struct sink_attr attr;
	const char *warning;
	int r = state_symlink(s->st, p->in.ino, target, sizeof(target));

	if (r == 0)
		r = s->to->ops->symlink(s->to, target, temp);
	if (r == 0)
		r = s->to->ops->open(s->to, temp, SINK_ATTR, &f);
	if (r == 0) {
		attrs_of_inode(&p->in, &attr);
		r = attrs_apply(s, &p->in, &attr, f, &warning);
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
	struct stat st;
	int r = names_clear_dir(s, p->dir->ino, p->name, p->to);

	if (r == 0)
		r = fresh_temp(p, temp, sizeof(temp));
	if (r == 0)
		r = make_symlink(p, temp, &st);
	if (r == 0)
		r = intend_placed(p, &st);
	if (r == 0)
		r = s->to->ops->rename(s->to, temp, p->to, false);
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

/* What has the place, and is not known here, may be the only copy of a file of a node that is not there. -EBUSY. */
static int check_free(const struct placing *p)
{
	struct session *s = p->s;
	bool places = p->step.action == NAMES_MOVE || p->step.action == NAMES_LINK || p->step.action == NAMES_SYMLINK;
	struct stat st;
	uint64_t owner;

	if (!places || s->to->ops->stat(s->to, p->to, &st) < 0)
		return 0;
	return state_backing_owner(s->st, p->dir->ino, p->name, &owner) == -ENOENT ? -EBUSY : 0;
}

/* The step's paths; then the step. */
static int one_step(struct placing *p)
{
	struct session *s = p->s;
	int r = state_backing_child_path(s->st, p->dir->ino, p->name, p->to, sizeof(p->to));

	if (r == 0 && (p->step.action == NAMES_MOVE || p->step.action == NAMES_LINK))
		r = state_backing_child_path(s->st, p->step.from_parent, p->step.from_name, p->from, sizeof(p->from));
	if (r == 0 && s->opt->cautious)
		r = check_free(p);
	if (r == 0)
		r = session_touch(s, p->dir->ino);
	return r < 0 ? r : do_step(p);
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
		session_set_path(s, p->shown);
		r = i < STEPS_PER_NAME ? one_step(p) : -ELOOP;
	}
	if (r < 0)
		r = session_fail_errno(s, ino, p ? p->shown : name, r, p ? doing(p->step.action) : "no memory", 0);
	free(p);
	return r;
}

/* ---- the walk */

static int add_dir(struct session *s, uint64_t ino, size_t parent, char *path, bool selected, bool failed)
{
	if (!path)
		return -ENOMEM;
	if (s->num_dirs == s->cap_dirs) {
		size_t cap = s->cap_dirs ? 2 * s->cap_dirs : 64;
		struct session_dir *grown = reallocarray(s->dirs, cap, sizeof(*grown));

		if (!grown) {
			free(path);
			return -ENOMEM;
		}
		s->dirs = grown;
		s->cap_dirs = cap;
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

		segment_private_size(s->segments, in->private_segment, &size, &bytes, &mtime_ns);
	} else if (!blobs && window_count(s->st, in->ino, in->size, &bytes, &extents) < 0) {
		return;
	}
	s->progress.planned_files++;
	s->progress.planned_bytes += bytes;
}

/* A directory that another part, or node 0, has placed. */
static bool is_placed(struct session *s, const struct session_dir *dir, const struct state_name *e)
{
	uint64_t owner;

	return state_backing_owner(s->st, dir->ino, e->name, &owner) == 0 && owner == e->ino;
}

static int place_visited(struct session *s, struct session_dir *dir, const struct state_name *e)
{
	bool is_dir = S_ISDIR(e->type), ours = s->opt->part == (is_dir ? WIRE_PART_DIRS : WIRE_PART_FILES);

	if (dir->failed) /* not placed: nothing of it may be removed, wherever it still is */
		return idmap_set(&s->inodes, e->ino, INODE_IS_FAILED);
	if (s->opt->part == WIRE_PART_WHOLE || ours)
		return names_place(s, dir, e->name, e->ino);
	return is_dir && !is_placed(s, dir, e) ? idmap_set(&s->inodes, e->ino, INODE_IS_FAILED) : 0;
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

/* Files that other nodes write to are left over only when no part with them can follow. */
static bool is_left_over(const struct session *s, const char *name)
{
	bool all_published = s->opt->part == WIRE_PART_WHOLE || s->opt->part == WIRE_PART_OFFER ||
			     s->opt->part == WIRE_PART_REMOVE || s->opt->part == WIRE_PART_FINISH;

	return strncmp(name, s->temp_prefix, strlen(s->temp_prefix)) == 0 ||
	       (all_published && strncmp(name, s->shared_prefix, strlen(s->shared_prefix)) == 0);
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
			r = remove_temp(s, path);
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
	if (list->num == list->cap) {
		size_t cap = list->cap ? 2 * list->cap : 64;
		struct hidden *grown = reallocarray(list->at, cap, sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		list->at = grown;
		list->cap = cap;
	}
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
	if (r == 0 || r == -ENOENT)
		r = state_inode(s->st, ino, &in);
	*ret_error = r == -ENOENT ? 0 : r;
	names_park_name(ino, park);
	return r == 0 && !S_ISDIR(in.mode) && names_is_needed(&in) && in.origin_parent == parent &&
	       strcmp(in.origin_name, name) == 0 && strcmp(name, park) != 0;
}

static int park(struct session *s, const struct hidden *h)
{
	struct session_dir *dir = session_dir(s, h->parent);
	struct placing *p = calloc(1, sizeof(*p));
	int r = p ? state_inode(s->st, h->ino, &p->in) : -ENOMEM;

	if (r == 0 && dir) {
		p->s = s;
		p->dir = dir;
		p->name = h->name;
		p->step = (struct names_step){ .action = NAMES_PARK, .ino = h->ino, .mode = p->in.mode };
		names_park_name(h->ino, p->step.park_name);
		r = one_step(p);
	}
	free(p);
	return r < 0 ? session_fail_errno(s, h->ino, h->name, r, "cannot be moved out of the way", 0) : 0;
}

/*
 * Files that have another name now leave the place where their backing file is: it may be wanted by a file of another node,
 * which knows nothing of ours. Those without a name stay; they are replaced, or removed at the end.
 */
int names_park(struct session *s)
{
	struct hidden_list list = { .s = s, .wanted = has_moved };
	int r = state_each_backing_name(s->st, collect_one, &list);

	for (size_t i = 0; r == 0 && i < list.num; i++)
		r = park(s, &list.at[i]);
	hidden_list_free(&list);
	return r;
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
 * seen: there the bytes must show, so they are carried over before this name goes.
 */
static bool has_unseen_name(struct session *s, const struct inode *in)
{
	return S_ISREG(in->mode) && in->nlink > 0 && !(in->flags & (INODE_ORPHAN | INODE_NEW)) &&
	       (in->flags & (INODE_DIRTY_DATA | INODE_DIRTY_META | INODE_DIRTY_XATTR | INODE_PRIVATE)) &&
	       idmap_get(&s->inodes, in->ino) == INODE_IS_UNTOUCHED;
}

static int remove_hidden(struct session *s, const struct hidden *h, const char *path)
{
	struct inode in;
	struct stat st;
	int known = state_inode(s->st, h->ino, &in), r;

	if (known < 0 && known != -ENOENT)
		return known;
	if (known == 0 && ((in.flags & INODE_UNPUBLISHED) || idmap_get(&s->inodes, h->ino) == INODE_IS_FAILED))
		return 0; /* its only copy */
	r = s->to->ops->stat(s->to, path, &st);
	if (r == 0) {
		/* Of an inode that has gone nothing is known; a directory is only removed when it is empty. */
		if (known == 0 && !session_is_same(&in, &st) && s->opt->part == WIRE_PART_REMOVE)
			return removed_step(s, h->ino, h->parent, h->name); /* a file of another node has replaced it */
		if (known == 0 && !session_is_same(&in, &st))
			return session_fail(s, 0, path, -ESTALE,
				"was removed in the mount, but somebody else has put something in its place: left alone");
		if (known == 0 && has_unseen_name(s, &in)) {
			struct file_place place = { .dir = h->parent, .name = h->name, .path = path };

			r = file_update(s, &in, &place);
			if (r < 0 || idmap_get(&s->inodes, h->ino) == INODE_IS_FAILED)
				return r;
		}
		r = S_ISDIR(st.st_mode) ? remove_dir(s, h, path) : s->to->ops->remove(s->to, path, false);
		if (r == -ENOTEMPTY || r == -EEXIST)
			return session_fail(s, 0, path, r,
				"was removed in the mount, but holds what the mount does not know of: remove it by hand");
	}
	if (r < 0 && r != -ENOENT && r != -ENOTDIR)
		return session_fail_errno(s, 0, path, r, "cannot be removed", 0);
	if (session_touch(s, h->parent) < 0)
		return -ENOMEM;
	s->result.names_removed += r == 0;
	if (s->opt->manifest)
		manifest_add_removed(s->opt->manifest, path);
	return removed_step(s, h->ino, h->parent, h->name);
}

int names_remove(struct session *s)
{
	struct hidden_list list = { .s = s, .wanted = is_hidden };
	char path[SESSION_PATH_MAX];
	int r = state_each_backing_name(s->st, collect_one, &list);

	for (size_t i = 0; r == 0 && i < list.num; i++)
		if (state_backing_child_path(s->st, list.at[i].parent, list.at[i].name, path, sizeof(path)) == 0)
			list.at[i].depth = count_slashes(path);
	if (r == 0 && list.num > 0)
		qsort(list.at, list.num, sizeof(*list.at), deeper_first);
	for (size_t i = 0; r == 0 && i < list.num; i++) {
		const struct hidden *h = &list.at[i];

		r = state_backing_child_path(s->st, h->parent, h->name, path, sizeof(path));
		if (r == 0)
			r = remove_hidden(s, h, path);
		else if (r == -ENOENT || r == -ENAMETOOLONG)
			r = session_fail_errno(
				s, 0, h->name, r, "was removed in the mount, but its directory is gone", 0);
	}
	hidden_list_free(&list);
	return r;
}

/* ---- attributes of directories */

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
	const char *warning;
	struct stat st;
	int r = names_sweep(s, d->ino, path);

	attrs_of_inode(in, &attr);
	if (r == 0)
		r = s->to->ops->open(s->to, path, SINK_ATTR, &f);
	if (r == 0)
		r = f->ops->fstat(f, &st);
	if (r == 0 && !session_is_same(in, &st))
		r = -ESTALE;
	if (r == 0)
		r = attrs_apply(s, in, &attr, f, &warning);
	if (r == 0)
		r = f->ops->sync(f, false);
	sink_file_close(f);
	if (r < 0)
		return session_fail_errno(
			s, in->ino, d->path[0] ? d->path : ".", r, "the attributes of the directory cannot be set", 0);
	rec.backing_dev = st.st_dev;
	rec.backing_ino = st.st_ino;
	return in->flags & (INODE_DIRTY_META | INODE_DIRTY_XATTR) ? session_step(s, &rec) : 0;
}

/* In a job, other nodes have put files into the directory, which has changed its times. */
static bool was_used(struct session *s, const struct inode *in, const char *path)
{
	struct stat st;

	return s->opt->part == WIRE_PART_FINISH && s->to->ops->stat(s->to, path, &st) == 0 &&
	       (st.st_mtim.tv_sec != in->mtime_ns / 1000000000 || st.st_mtim.tv_nsec != in->mtime_ns % 1000000000);
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
