/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Recovery into a directory that is not the backing directory: every file that has something in the store, data,
 * attributes or a name, is made whole there. What the store does not hold is read from the backing directory; what is
 * missing there is zeros, listed in the manifest, and makes the result incomplete. Names that were removed are only
 * listed: what is not there need not be removed.
 */
#include "mpi-agent/replay/located.h"
#include "mpi-agent/replay/session.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/array.h"
#include "format/base/clock.h"

#define DIRTY_FLAGS \
	(INODE_NEW | INODE_DIRTY_DATA | INODE_DIRTY_META | INODE_DIRTY_XATTR | INODE_PRIVATE | INODE_UNPUBLISHED)

struct links {              /* files with several names: where the first one is */
	struct idmap index; /* inode -> paths + 1 */
	char **paths;       /* owned */
	size_t num, cap;
};

struct exporting {
	size_t dir; /* index in s->dirs */
	struct links links;
};

static int remember_link(struct links *l, uint64_t ino, const char *path)
{
	if (array_room(&l->paths, &l->cap, l->num, sizeof(*l->paths)) < 0)
		return -ENOMEM;
	l->paths[l->num] = strdup(path);
	if (!l->paths[l->num])
		return -ENOMEM;
	return idmap_set(&l->index, ino, ++l->num);
}

/* Makes a directory and those above it. Their attributes come last. */
static int make_dir(struct session *s, size_t at)
{
	struct session_dir *d = &s->dirs[at];
	struct stat st;
	int r;

	if (at == 0 || d->made)
		return 0;
	r = make_dir(s, d->parent);
	if (r < 0)
		return r;
	r = s->to->ops->mkdir(s->to, d->path);
	if (r == -EEXIST) {
		r = s->to->ops->stat(s->to, d->path, &st);
		if (r == 0 && !S_ISDIR(st.st_mode))
			r = -ENOTDIR;
	}
	d->made = r == 0;
	return r;
}

/* Has the name, or what it names, changed? */
static int is_wanted(struct session *s, uint64_t dir, const char *name, const struct inode *in)
{
	uint64_t owner;
	int r = state_backing_owner(s->st, dir, name, &owner);

	if (r < 0 && r != -ENOENT)
		return r;
	return r == -ENOENT || owner != in->ino || (in->flags & DIRTY_FLAGS);
}

/* Another file or directory has it by now: what the manifest says of that counts. */
static bool is_name_used(struct session *s, uint64_t parent, const char *name, const char *path)
{
	struct state_name at;
	struct stat st;

	return (s->opt->named && s->opt->named(parent, name, s->opt->named_arg)) ||
	       (state_lookup(s->st, parent, name, &at) == 0 && S_ISDIR(at.type)) || /* it may not have been made yet */
	       s->to->ops->stat(s->to, path, &st) == 0;
}

static void note_move(struct session *s, uint64_t dir, const char *name, const struct inode *in, const char *path)
{
	char from[SESSION_PATH_MAX];
	struct state_name at;

	if (!in->origin_name[0] || (in->origin_parent == dir && strcmp(in->origin_name, name) == 0) ||
		(in->flags & INODE_UNPUBLISHED) || (S_ISDIR(in->mode) && s->opt->dirs_are_told))
		return;
	if (state_lookup(s->st, in->origin_parent, in->origin_name, &at) == 0 && at.ino == in->ino)
		return; /* a further link */
	if (state_backing_path(s->st, in->ino, from, sizeof(from)) < 0)
		return;
	s->result.totals.names_moved++;
	if (s->opt->manifest && !is_name_used(s, in->origin_parent, in->origin_name, from))
		manifest_add_moved(s->opt->manifest, from, path);
}

static int temp_path(struct session *s, const struct session_dir *d, uint64_t ino, char *out, size_t cap)
{
	char name[RECORD_NAME_MAX + 1];
	int r;

	snprintf(name, sizeof(name), "%s%" PRIu64, s->temp_prefix, ino);
	r = session_join(out, cap, d->path, name);
	if (r < 0)
		return r;
	r = s->to->ops->remove(s->to, out, false);
	return r == -ENOENT ? 0 : r;
}

/* An earlier recovery's. */
static bool is_copy(const struct stat *is, const struct stat *there)
{
	return S_ISREG(there->st_mode) && is->st_size == there->st_size &&
	       clock_ns_of(is->st_mtim) == clock_ns_of(there->st_mtim);
}

/*
 * path to what is at temp. Nothing that is there is replaced, but what an earlier recovery has put there; of a link (is: what it leads to) that is
 * the file itself.
 */
static int give(struct session *s, const struct session_dir *d, const struct inode *in, const char *temp,
	const char *path, const struct stat *is)
{
	const char *slash = strrchr(path, '/');
	char name[RECORD_NAME_MAX + 1], beside[SESSION_PATH_MAX];
	struct stat there = { .st_ino = 0 };
	int r = s->to->ops->stat(s->to, path, &there);

	if (r < 0)
		there.st_ino = 0;
	else if (is && is->st_ino == there.st_ino && is->st_dev == there.st_dev)
		return s->to->ops->remove(s->to, temp, false);
	else if (is ? !is_copy(is, &there) : !names_was_published(in, &there))
		r = PLACE_IS_FOREIGN;
	if (r != PLACE_IS_FOREIGN)
		return r < 0 && r != -ENOENT ? r : give_name(s, temp, path, &there);
	r = beside_path(s, d->path, slash ? slash + 1 : path, in->ino, name, beside, sizeof(beside), &there);
	if (r == 0)
		r = give_name(s, temp, beside, &there);
	if (r == 0)
		beside_tell(s, path, beside);
	return r;
}

static int export_symlink(struct session *s, const struct session_dir *d, const struct inode *in, const char *path)
{
	char target[RECORD_TARGET_MAX + 1], temp[SESSION_PATH_MAX];
	struct sink_file *f = NULL;
	struct sink_attr attr;
	struct attrs_warning warning = { "" };
	int r = state_symlink(s->st, in->ino, target, sizeof(target));

	if (r == 0)
		r = temp_path(s, d, in->ino, temp, sizeof(temp));
	if (r == 0)
		r = s->to->ops->symlink(s->to, target, temp);
	if (r == 0)
		r = s->to->ops->open(s->to, temp, SINK_ATTR, &f);
	attrs_of_inode(in, &attr);
	if (r == 0)
		r = attrs_apply(s, in, &attr, f, &warning);
	sink_file_close(f);
	if (r == 0)
		r = give(s, d, in, temp, path, NULL);
	if (r < 0)
		return session_fail_errno(s, in->ino, path, r, "the symbolic link cannot be made", 0);
	attrs_tell(s, path, &warning);
	s->result.totals.files++;
	return 0;
}

/* Where the first name of a file is: beside it, if that was somebody else's. */
static int find_first(struct session *s, const struct inode *in, const char *first, char *out, size_t cap)
{
	const char *slash = strrchr(first, '/');
	char dir[SESSION_PATH_MAX], name[RECORD_NAME_MAX + 1];
	struct stat there;
	int r;

	snprintf(dir, sizeof(dir), "%.*s", slash ? (int)(slash - first) : 0, first);
	r = beside_path(s, dir, slash ? slash + 1 : first, in->ino, name, out, cap, &there);
	if (r == 0 && there.st_ino == 0)
		r = session_join(out, cap, "", first);
	return r;
}

static int export_link(
	struct session *s, const struct session_dir *d, const struct inode *in, const char *first, const char *path)
{
	char temp[SESSION_PATH_MAX], at[SESSION_PATH_MAX];
	struct stat st;
	int r = batch_flush(s); /* the first name may still be a temporary one */

	if (r < 0 || idmap_get(&s->inodes, in->ino) == INODE_IS_FAILED)
		return r;
	r = temp_path(s, d, in->ino, temp, sizeof(temp));
	if (r == 0)
		r = find_first(s, in, first, at, sizeof(at));
	if (r == 0)
		r = s->to->ops->stat(s->to, at, &st);
	if (r == 0)
		r = s->to->ops->link(s->to, at, temp);
	if (r == 0)
		r = give(s, d, in, temp, path, &st);
	return r < 0 ? session_fail_errno(s, 0, path, r, "cannot be linked", 0) : 0;
}

static int export_file(
	struct session *s, struct exporting *x, const struct inode *in, const char *name, const char *path)
{
	struct session_dir *d = &s->dirs[x->dir];
	struct file_place place = { .dir = d->ino, .dir_path = d->path[0] ? d->path : ".", .name = name, .path = path };
	uint64_t first = in->nlink > 1 ? idmap_get(&x->links.index, in->ino) : 0;
	int r;

	if (first)
		return export_link(s, d, in, x->links.paths[first - 1], path);
	if (S_ISLNK(in->mode))
		r = export_symlink(s, d, in, path);
	else
		r = file_write_new(s, in, &place);
	return r == 0 && in->nlink > 1 ? remember_link(&x->links, in->ino, path) : r;
}

static int visit_name(struct session *s, const struct state_name *e, void *arg)
{
	struct exporting *x = arg;
	struct session_dir *d = &s->dirs[x->dir];
	char path[SESSION_PATH_MAX];
	struct inode in;
	int r = session_join(path, sizeof(path), d->path, e->name);

	if (r < 0)
		return 0; /* said by the first walk */
	if (!d->selected && !session_selected(s, path))
		return 0;
	r = state_inode(s->st, e->ino, &in);
	if (r == 0)
		r = is_wanted(s, d->ino, e->name, &in);
	if (r <= 0)
		return r;
	if (inode_is_special(in.mode)) /* said by the first walk */
		return 0;
	note_move(s, d->ino, e->name, &in, path);
	if (S_ISDIR(in.mode)) {
		struct session_dir *child = session_dir(s, in.ino);

		r = child ? make_dir(s, (size_t)(child - s->dirs)) : 0;
		return r < 0 ? session_fail_errno(s, in.ino, path, r, "the directory cannot be made", 0) : 0;
	}
	r = make_dir(s, x->dir);
	if (r < 0)
		return session_fail_errno(s, in.ino, path, r, "its directory cannot be made", 0);
	return export_file(s, x, &in, e->name, path);
}

/* What a recovery into the backing directory has moved is where that has put it; and somebody else may have replaced it. */
int export_open_base(struct session *s, const struct inode *in, enum sink_open how, struct sink_file **ret)
{
	char path[SESSION_PATH_MAX];
	struct stat st;
	int r = !s->base || in->flags & INODE_NEW ? -ENOENT
		: s->located                      ? located_path(s->located, in, path, sizeof(path))
						  : state_backing_path(s->st, in->ino, path, sizeof(path));

	*ret = NULL;
	if (r < 0)
		return r == -ENOENT || r == -ENAMETOOLONG ? 0 : r;
	if (s->base->ops->open(s->base, path, how, ret) < 0) {
		*ret = NULL;
	} else if (s->located && ((*ret)->ops->fstat(*ret, &st) < 0 || !session_is_same(in, &st))) {
		sink_file_close(*ret);
		*ret = NULL;
	}
	return 0;
}

static int finish_dir(struct session *s, const struct session_dir *d, const struct inode *in)
{
	struct sink_file *f = NULL, *base = NULL;
	struct sink_attr attr;
	struct attrs_warning warning = { "" };
	int r = s->to->ops->open(s->to, d->path, SINK_ATTR, &f);

	if (r == 0 && !(in->flags & INODE_DIRTY_XATTR))
		r = export_open_base(s, in, SINK_ATTR, &base);
	if (r == 0 && base)
		r = attrs_copy_xattrs(base, f, &warning);
	attrs_of_inode(in, &attr);
	if (r == 0)
		r = attrs_apply(s, in, &attr, f, &warning);
	if (r == 0)
		r = f->ops->sync(f, false);
	sink_file_close(base);
	sink_file_close(f);
	if (r == 0)
		attrs_tell(s, d->path[0] ? d->path : ".", &warning);
	return r < 0 ? session_fail_errno(s, in->ino, d->path, r, "the attributes of the directory cannot be set", 0)
		     : 0;
}

static int finish_dirs(struct session *s)
{
	struct inode in;
	int r = s->to->ops->sync_names(s->to);

	for (size_t i = s->num_dirs; r == 0 && i-- > 1;)
		if (s->dirs[i].made && state_inode(s->st, s->dirs[i].ino, &in) == 0)
			r = finish_dir(s, &s->dirs[i], &in);
	return r < 0 ? r : s->to->ops->sync_names(s->to);
}

/* One that has gone for good is known by what is remembered of it. */
static bool is_told(struct session *s, uint64_t ino)
{
	struct inode in;

	return s->opt->dirs_are_told && (state_inode(s->st, ino, &in) == 0 || state_remembered(s->st, ino, &in) == 0) &&
	       S_ISDIR(in.mode);
}

static int note_removed(uint64_t parent, const char *name, uint64_t ino, void *arg)
{
	struct session *s = arg;
	char path[SESSION_PATH_MAX];
	struct state_name at;
	struct inode in;

	if (state_lookup(s->st, parent, name, &at) != -ENOENT ||
		state_backing_child_path(s->st, parent, name, path, sizeof(path)) < 0)
		return 0;
	if (state_inode(s->st, ino, &in) == 0 && in.nlink > 0 && !(in.flags & INODE_ORPHAN))
		return 0; /* has moved, or is not published yet */
	if (is_told(s, ino) || is_name_used(s, parent, name, path))
		return 0;
	s->result.totals.names_removed++;
	if (s->opt->manifest)
		manifest_add_removed(s->opt->manifest, path);
	return 0;
}

int export_run(struct session *s)
{
	struct exporting x = { 0 };
	int r = names_run(s);

	for (x.dir = 0; r == 0 && x.dir < s->num_dirs; x.dir++)
		r = session_each_name(s, s->dirs[x.dir].ino, visit_name, &x);
	if (r == 0)
		r = batch_flush(s);
	if (r == 0)
		r = finish_dirs(s);
	if (r == 0)
		r = state_each_backing_name(s->st, note_removed, s);
	for (size_t i = 0; i < x.links.num; i++)
		free(x.links.paths[i]);
	free(x.links.paths);
	idmap_free(&x.links.index);
	return r;
}
