/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Files. A new one is written under a temporary name, made durable, and then gets its name in one step. New files are
 * published in batches: their data go to the device together, and one sync of a directory serves all that it holds.
 * What was begun and killed is simply done again: no step reads what another one writes. Existing ones: file_update.c.
 */
#include "mpi-agent/replay/carried.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/array.h"
#include "format/base/descriptors.h"
#include "format/store/straggler.h"
#include "mpi-agent/plan/window.h"

#define BATCH_FILES 256 /* at most: they are open */
#define BATCH_BYTES (64u << 20)
#define DIRTY_FLAGS \
	(INODE_NEW | INODE_DIRTY_DATA | INODE_DIRTY_META | INODE_DIRTY_XATTR | INODE_PRIVATE | INODE_UNPUBLISHED)

struct pending { /* a new file, whole but for its name */
	struct carried c;
	char *temp, *final; /* owned: paths in the destination */
	uint64_t dir;
	char name[RECORD_NAME_MAX + 1];
	bool ready;
};

struct batch {
	struct pending at[BATCH_FILES];
	size_t num, max;
	uint64_t bytes;
};

int batch_create(struct batch **ret)
{
	struct batch *b = *ret = calloc(1, sizeof(*b));

	if (!b)
		return -ENOMEM;
	b->max = descriptors_share(BATCH_FILES, 8); /* of a private file two, and its segment */
	return 0;
}

static void pending_free(struct pending *p)
{
	carried_free(&p->c);
	free(p->temp);
	free(p->final);
	*p = (struct pending){ 0 };
}

void batch_destroy(struct batch *b)
{
	for (size_t i = 0; b && i < b->num; i++)
		pending_free(&b->at[i]);
	free(b);
}

/* ---- new files */

static int sync_pending(struct session *s, struct pending *p)
{
	struct stat st;
	int r = p->c.f->ops->sync(p->c.f, false);

	if (r == 0)
		r = p->c.f->ops->fstat(p->c.f, &st);
	if (r == 0)
		r = carried_verify(s, &p->c, &st);
	p->ready = r == 0;
	return r < 0 ? carried_fail(s, &p->c, r, "cannot be made durable") : session_make_way(s);
}

/* What is in the place: a directory cannot be replaced, nor what nobody knows of. */
static int look_at_place(struct session *s, struct pending *p, struct stat *ret_there)
{
	struct stat st;
	int r = s->to->ops->stat(s->to, p->final, &st);

	ret_there->st_ino = 0;
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	if (!s->opt->in_place) {
		*ret_there = st;
		return names_was_published(&p->c.in, &st) ? 0 : PLACE_IS_FOREIGN;
	}
	r = names_check_place(s, p->dir, p->name, p->final, &p->c.in, ret_there);
	return r == 0 && S_ISDIR(st.st_mode) ? names_clear_dir(s, p->dir, p->name, p->final) : r;
}

/* Nobody else uses such a name: what is there is an earlier copy of the same file. */
static int go_beside(struct session *s, struct pending *p, struct record *rec, struct stat *ret_there)
{
	const char *slash = strrchr(p->final, '/');
	char *dir = slash ? strndup(p->final, (size_t)(slash - p->final)) : strdup("");
	char path[SESSION_PATH_MAX];
	int r = dir ? beside_path(s, dir, p->name, p->c.in.ino, rec->name, path, sizeof(path), ret_there) : -ENOMEM;

	free(dir);
	if (r < 0)
		return r;
	free(p->final);
	p->final = strdup(path);
	p->c.there = strdup(path);
	return p->final && p->c.there ? beside_forget(s, p->dir, p->name) : -ENOMEM;
}

/* A file that has a name in the mount, and whose own place that is: it could not be moved away, or was taken back. */
static bool is_anothers(struct session *s, const struct pending *p)
{
	struct inode in;
	uint64_t owner;

	return s->opt->in_place && state_backing_owner(s->st, p->dir, p->name, &owner) == 0 && owner != p->c.in.ino &&
	       state_inode(s->st, owner, &in) == 0 && in.num_names > 0 && in.num_backing == 1;
}

/* What comes to the place while we look is looked at, too. */
static int give(struct session *s, struct pending *p, struct record *rec, const struct stat *st)
{
	int r = is_anothers(s, p) ? -EBUSY : -EEXIST;

	for (int tries = 0; r == -EEXIST && tries < GIVE_TRIES; tries++) {
		struct stat there;

		r = !names_dir_is_there(s, p->dir) ? -ENOENT : p->c.there ? -EBUSY : look_at_place(s, p, &there);
		if (r == PLACE_IS_FOREIGN)
			r = go_beside(s, p, rec, &there);
		if (r == 0)
			r = session_intend(s, rec, "", p->final, p->temp, false, st);
		if (r == 0)
			r = give_name(s, p->temp, p->final, &there);
	}
	return r == -EEXIST ? -EBUSY : r;
}

static int publish(struct session *s, struct pending *p)
{
	struct record rec = { .type = RECORD_PLACED, .ino = p->c.in.ino, .gen = p->c.in.gen, .parent = p->dir };
	struct stat st = { 0 }, by_name;
	int r = p->c.f->ops->fstat(p->c.f, &st);

	if (r == 0)
		r = s->to->ops->stat(s->to, p->temp, &by_name);
	if (r == 0 && by_name.st_ino != st.st_ino)
		r = -EBUSY; /* another agent writes here: it goes on, and we do not publish its half */
	rec.backing_dev = st.st_dev;
	rec.backing_ino = st.st_ino;
	memcpy(rec.name, p->name, sizeof(rec.name));
	if (r == 0 && (r = give(s, p, &rec, &st)) == -EBUSY && session_may_be_late(s)) {
		p->ready = false;
		return session_late(s, p->c.in.ino, p->c.shown, SESSION_OCCUPIED);
	}
	if (r < 0) {
		p->ready = false;
		return carried_fail(s, &p->c, r, "cannot get its name");
	}
	r = session_touch(s, p->dir);
	if (r < 0 || !s->opt->in_place)
		return r;
	p->c.changed = carried_has_changed(s, &p->c);
	r = session_step(s, &rec);
	if (r == 0 && idmap_get(&s->inodes, p->c.in.ino) ==
			      INODE_IS_FAILED) { /* the mount has given it up, and it is away again */
		p->ready = false;
		return 0;
	}
	return r < 0 ? r : carried_drained(s, &p->c, &st);
}

int batch_flush(struct session *s)
{
	struct batch *b = s->batch;
	int r = s->fatal;

	if (b->num == 0)
		return r;
	for (size_t i = 0; r == 0 && i < b->num; i++)
		r = sync_pending(s, &b->at[i]);
	if (r == 0)
		r = session_tick(s, true);
	for (size_t i = 0; r == 0 && i < b->num; i++)
		if (b->at[i].ready)
			r = publish(s, &b->at[i]);
	if (r == 0 && !s->opt->in_place)
		r = s->to->ops->sync_names(s->to);
	if (r == 0)
		r = session_flush_steps(s);
	for (size_t i = 0; i < b->num; i++) {
		if (r == 0 && b->at[i].ready)
			r = carried_finish(s, &b->at[i].c);
		else if (b->at[i].temp && !b->at[i].ready)
			s->to->ops->remove(s->to, b->at[i].temp, false);
		pending_free(&b->at[i]);
	}
	b->num = 0;
	b->bytes = 0;
	return r;
}

static int create_temp(struct session *s, struct pending *p, const struct file_place *place)
{
	char name[RECORD_NAME_MAX + 1], path[SESSION_PATH_MAX];
	int r;

	snprintf(name, sizeof(name), "%s%" PRIu64, s->temp_prefix, p->c.in.ino);
	r = session_join(path, sizeof(path), place->dir_path, name);
	if (r < 0)
		return r;
	p->temp = strdup(path);
	r = session_join(path, sizeof(path), place->dir_path, place->name);
	if (r < 0)
		return r;
	p->final = strdup(path);
	p->c.shown = strdup(place->path);
	p->c.kept = place->kept ? strdup(place->kept) : NULL;
	if (!p->temp || !p->final || !p->c.shown || !p->c.kept != !place->kept)
		return -ENOMEM;
	r = names_sweep(s, place->dir, place->dir_path);
	temps_note(s, place->dir, false);
	if (r == 0)
		r = s->to->ops->open(s->to, p->temp, SINK_CREATE, &p->c.f);
	if (r == -EEXIST && s->to->ops->remove(s->to, p->temp, false) == 0)
		r = s->to->ops->open(s->to, p->temp, SINK_CREATE, &p->c.f);
	return r;
}

static int fill_new(struct session *s, struct pending *p)
{
	struct carried *c = &p->c;
	struct sink_file *base; /* what still holds a part of a file that is made whole elsewhere */
	struct sink_attr attr;
	struct stat st;
	int r = export_open_base(s, &c->in, SINK_READ, &base);

	c->job = (struct copy_job){ .in = &c->in,
		.to = c->f,
		.base = base,
		.want_base = !s->opt->in_place,
		.shared = (c->in.flags & INODE_SHARED) != 0,
		.end = c->in.size,
		.path = c->shown };
	c->has_checksum = true;
	if (r == 0 && c->job.shared)
		r = shared_list_overlaps(s, c->in.ino, c->shown);
	if (r == 0)
		r = copy_run(s->copier, &c->job);
	if (r == 0)
		r = c->f->ops->fstat(c->f, &st);
	if (r == 0 && (uint64_t)st.st_size != c->in.size)
		r = c->f->ops->truncate(c->f, c->in.size);
	if (r == 0 && base && !(c->in.flags & INODE_DIRTY_XATTR))
		r = attrs_copy_xattrs(base, c->f, &c->warning);
	sink_file_close(base);
	c->job.base = NULL;
	attrs_of_inode(&c->in, &attr);
	if (r == 0)
		r = attrs_apply(s, &c->in, &attr, c->f, &c->warning);
	if (r == 0 && s->control.share_percent == 100)
		c->f->ops->write_out(c->f, 0, 0);
	return r;
}

int file_write_new(struct session *s, const struct inode *in, const struct file_place *place)
{
	struct pending *p = &s->batch->at[s->batch->num++];
	const char *what = "";
	int r;

	*p = (struct pending){ .c.in = *in, .dir = place->dir };
	snprintf(p->name, sizeof(p->name), "%s", place->name);
	session_set_path(s, place->path);
	r = idmap_set(&s->inodes, in->ino, INODE_IS_PENDING);
	if (r == 0)
		r = carried_take_private(s, &p->c);
	if (r == 0) {
		what = "no temporary file can be made in its directory";
		r = create_temp(s, p, place);
	}
	if (r == 0) {
		what = "cannot be written";
		r = fill_new(s, p);
	}
	if (r < 0) {
		if (p->c.f)
			s->to->ops->remove(s->to, p->temp, false);
		if (p->c.job.error_text[0])
			r = session_fail(s, in->ino, place->path, r, "%s", p->c.job.error_text);
		else
			r = session_fail_errno(s, in->ino, place->path, r, what, p->c.in.size);
		pending_free(p);
		s->batch->num--;
		return r;
	}
	s->batch->bytes += p->c.job.written;
	return s->batch->num == s->batch->max || s->batch->bytes >= BATCH_BYTES ? batch_flush(s)
										: session_tick(s, false);
}

/* ---- files that several nodes wrote */

/* All of it is in the temporary file, or in its place; what remains is what makes it the file that it is. */
static int finish_shared(struct session *s, struct carried *c, struct stat *ret_st)
{
	struct sink_attr attr;
	int r = c->f->ops->fstat(c->f, ret_st);

	if (r == 0 && (uint64_t)ret_st->st_size != c->in.size)
		r = -EIO;
	attrs_of_inode(&c->in, &attr);
	if (r == 0)
		r = attrs_apply(s, &c->in, &attr, c->f, &c->warning);
	if (r == 0)
		r = c->f->ops->sync(c->f, false);
	return r == 0 ? c->f->ops->fstat(c->f, ret_st) : r;
}

/* Is it what was begun, and written to by all? */
static int check_begun(struct carried *c, const struct wire_shared *f)
{
	struct stat st;
	int r = c->f->ops->fstat(c->f, &st);

	if (r < 0 || f->temp_ino == 0 || st.st_ino == f->temp_ino)
		return r;
	snprintf(c->job.error_text, sizeof(c->job.error_text),
		"its temporary file is not the one that was begun: somebody else recovers the same job into this directory; let one of "
		"both end, and do it again");
	return -EBUSY;
}

static int publish_shared(
	struct session *s, struct pending *p, const struct file_place *place, const struct wire_shared *f)
{
	struct stat st;
	char path[SESSION_PATH_MAX];
	int r = f->in_place ? state_backing_path(s->st, p->c.in.ino, path, sizeof(path)) : 0;

	if (r == 0)
		r = s->to->ops->open(s->to, f->in_place ? path : f->path, SINK_UPDATE, &p->c.f);
	if (r == 0 && f->in_place && (p->c.f->ops->fstat(p->c.f, &st) < 0 || !session_is_same(&p->c.in, &st)))
		r = -ESTALE;
	if (r == 0 && !f->in_place)
		r = check_begun(&p->c, f);
	if (r == 0)
		r = finish_shared(s, &p->c, &st);
	if (r == 0)
		r = carried_check_format(s, &p->c);
	if (r < 0)
		return carried_fail(s, &p->c, r, "cannot be completed");
	p->ready = true;
	r = session_tick(s, true);
	if (r == 0)
		r = f->in_place ? carried_drained(s, &p->c, &st) : publish(s, p);
	if (r == 0)
		r = session_flush_steps(s);
	if (r < 0 || !p->ready)
		return r;
	if (p->c.kept)
		blob_clear(s, place->dir_path, f);
	return carried_finish(s, &p->c);
}

int file_publish_shared(
	struct session *s, const struct inode *in, const struct file_place *place, const struct wire_shared *f)
{
	struct pending *p = calloc(1, sizeof(*p));
	char final[SESSION_PATH_MAX];
	int r = p ? session_join(final, sizeof(final), place->dir_path, place->name) : -ENOMEM;

	if (r == 0) {
		*p = (struct pending){ .c.in = *in, .c.upto = f->upto, .c.shared = f, .dir = place->dir };
		p->c.in.size = f->size;
		p->c.shown = strdup(place->path);
		p->temp = strdup(f->path);
		p->final = strdup(final);
		snprintf(p->name, sizeof(p->name), "%s", place->name);
		session_set_path(s, place->path);
		r = p->c.shown && p->temp && p->final ? blob_kept(s, f, &p->c.kept) : -ENOMEM;
		if (r == 0)
			r = publish_shared(s, p, place, f);
	}
	if (p)
		pending_free(p);
	free(p);
	return r;
}

/* ---- the walk */

#define LARGE_BYTES (64u << 20) /* files from this size on are carried behind all others */

struct large {
	size_t dir; /* number of its directory in the session */
	struct state_name name;
};

struct visit {
	struct session_dir *dir;
	char dir_path[SESSION_PATH_MAX]; /* in the destination */
	bool has_path;
	bool want_large;
	struct large *large; /* owned */
	size_t num_large, cap_large;
};

static bool is_large(struct session *s, const struct inode *in)
{
	uint64_t size = in->size, allocated;
	int64_t mtime_ns;

	if (!S_ISREG(in->mode) || !(in->flags & DIRTY_FLAGS))
		return false;
	if (in->flags & INODE_PRIVATE &&
		segment_private_size(s->segments, in->private_segment, &size, &allocated, &mtime_ns) == 0)
		size = allocated;
	return size >= LARGE_BYTES;
}

static int put_off(struct session *s, struct visit *v, const struct state_name *e)
{
	int r = array_room(&v->large, &v->cap_large, v->num_large, sizeof(*v->large));

	if (r == 0)
		v->large[v->num_large++] = (struct large){ (size_t)(v->dir - s->dirs), *e };
	return r;
}

static bool has_place(struct session *s, const struct visit *v, const struct state_name *e)
{
	uint64_t owner;

	char beside[RECORD_NAME_MAX + 1];

	return (state_backing_owner(s->st, v->dir->ino, e->name, &owner) == 0 && owner == e->ino) ||
	       beside_find(s, v->dir->ino, e->name, e->ino, beside) > 0;
}

/* Its directory was made, or moved, since the part of directories, or could not be, which was said there. Other names of it are carried. */
static int leave(
	struct session *s, const struct visit *v, const struct state_name *e, const struct inode *in, const char *path)
{
	enum progress_of_inode progress = (enum progress_of_inode)idmap_get(&s->inodes, in->ino);
	bool has_others = in->num_names > 1 && progress != INODE_IS_FAILED;
	bool carries = in->flags & DIRTY_FLAGS || progress == INODE_IS_DONE;

	if (has_place(s, v, e) ? has_others || !carries : s->opt->watcher.occupied && !carries)
		return 0;
	if (!session_may_be_late(s))
		return session_fail(s, has_others ? 0 : in->ino, path, -ENOENT,
			"its directory could not be placed in the backing directory");
	if (in->flags & INODE_NEW && in->ino >= s->opt->since)
		return 0;
	return session_late(
		s, has_others ? 0 : in->ino, path, "its directory is not in its place in the backing directory yet");
}

/* 1: it stands beside its name, at out. */
static int where_it_is(struct session *s, uint64_t dir, const struct state_name *e, char *out, size_t cap)
{
	char name[RECORD_NAME_MAX + 1];
	uint64_t owner;
	int r;

	if (state_backing_owner(s->st, dir, e->name, &owner) == 0 && owner == e->ino)
		return 0;
	r = beside_find(s, dir, e->name, e->ino, name);
	if (r > 0)
		r = state_backing_child_path(s->st, dir, name, out, cap) < 0 ? -ENAMETOOLONG : 1;
	return r;
}

/*
 * Somebody else has replaced it, but the store has all of it: it is made anew, beside that. What had gone through to the old one, or was
 * carried while it was written to, is in the store no more; then it has to be whole in a private segment.
 */
static bool is_to_be_made_anew(struct session *s, const struct inode *in, uint64_t dir, const char *name)
{
	bool whole = in->flags & INODE_PRIVATE || (in->flags & INODE_DIRTY_DATA && in->backing_limit == 0);
	char path[SESSION_PATH_MAX];
	struct state_totals totals;
	struct stat st;

	if (!whole || in->flags & (INODE_UNPUBLISHED | INODE_SHARED) || in->num_names != 1 || in->num_backing != 1 ||
		state_backing_child_path(s->st, dir, name, path, sizeof(path)) < 0 ||
		s->to->ops->stat(s->to, path, &st) < 0 || session_is_same(in, &st))
		return false;
	state_totals(s->st, &totals);
	return in->flags & INODE_PRIVATE || (totals.through_bytes == 0 && window_has_carried(s->st, in->ino) == 0);
}

static int visit_existing(struct session *s, struct visit *v, const struct state_name *e, struct inode *in,
	const struct file_place *place, bool selected)
{
	struct file_place there = *place;
	char at[SESSION_PATH_MAX];
	int r;

	if (!(in->flags & INODE_UNPUBLISHED)) {
		r = names_place(s, v->dir, e->name, e->ino); /* a further link of a file that has just been published */
		if (r < 0 || idmap_get(&s->inodes, e->ino) == INODE_IS_FAILED)
			return r;
	}
	if (!selected || !(in->flags & DIRTY_FLAGS) || idmap_get(&s->inodes, e->ino) == INODE_IS_DONE)
		return 0;
	if (in->flags & INODE_SHARED && in->flags & INODE_DIRTY_DATA)
		return shared_publish(s, in, place);
	r = where_it_is(s, v->dir->ino, e, at, sizeof(at));
	if (r < 0)
		return session_fail_errno(s, e->ino, place->path, r, "its place cannot be known", 0);
	there.at = r > 0 ? at : NULL;
	if (r == 0 && is_to_be_made_anew(s, in, v->dir->ino, e->name)) /* unless it was removed meanwhile */
		return session_has_gone(s, in) ? 0 : file_write_new(s, in, place);
	return file_update(s, in, &there); /* of a shared one whose data are in their place: attributes alone */
}

static int visit_file(struct session *s, const struct state_name *e, void *arg)
{
	struct visit *v = arg;
	char path[SESSION_PATH_MAX];
	struct file_place place = { .dir = v->dir->ino, .dir_path = v->dir_path, .name = e->name, .path = path };
	enum drain_layout layout;
	struct inode in;
	bool selected;
	int r;

	if (S_ISDIR(e->type) || session_join(path, sizeof(path), v->dir->path, e->name) < 0)
		return 0;
	if (idmap_get(&s->inodes, e->ino) == INODE_IS_PENDING) {
		r = batch_flush(s);
		if (r < 0)
			return r;
	}
	r = state_inode(s->st, e->ino, &in);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	if (!v->want_large && is_large(s, &in))
		return put_off(s, v, e);
	selected = v->dir->selected || session_selected(s, path);
	if (v->dir->failed || !v->has_path)
		return selected && !v->dir->given_up ? leave(s, v, e, &in, path) : 0;
	if (idmap_get(&s->inodes, e->ino) == INODE_IS_FAILED)
		return 0;
	selected = selected && idmap_get(&s->inodes, e->ino) != INODE_IS_LEFT_ALONE;
	if (!(in.flags & INODE_NEW))
		return visit_existing(s, v, e, &in, &place, selected);
	if (!selected || !S_ISREG(in.mode))
		return 0;
	if (in.flags & INODE_SHARED)
		return shared_publish(s, &in, &place);
	layout = convert_wanted(s, &in, path);
	if (in.flags & INODE_PRIVATE && straggler_is_known(s->opt->store, in.private_segment))
		layout = DRAIN_LAYOUT_CANONICAL;
	return drain_layout_is_blob(layout) ? blob_carry(s, &in, &place, layout) : file_write_new(s, &in, &place);
}

/* The mount may have given it up since it was placed. */
static void enter(struct session *s, struct visit *v, size_t dir)
{
	v->dir = &s->dirs[dir];
	v->dir->failed |= s->dirs[v->dir->parent].failed || idmap_get(&s->inodes, v->dir->ino) == INODE_IS_FAILED;
	v->dir->given_up = s->dirs[v->dir->parent].given_up || idmap_get(&s->given_up, v->dir->ino);
	v->has_path = state_backing_path(s->st, v->dir->ino, v->dir_path, sizeof(v->dir_path)) == 0;
}

static int visit_large(struct session *s, struct visit *v)
{
	int r = batch_flush(s);

	v->want_large = true;
	for (size_t i = 0; r == 0 && i < v->num_large; i++) {
		enter(s, v, v->large[i].dir);
		r = visit_file(s, &v->large[i].name, v);
	}
	return r;
}

/* Small files first: none of them waits for the hours that a large one may take. */
int file_run(struct session *s)
{
	struct visit *v = calloc(1, sizeof(*v));
	int r = v ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < s->num_dirs; i++) {
		enter(s, v, i);
		r = session_each_name(s, v->dir->ino, visit_file, v);
	}
	if (r == 0)
		r = visit_large(s, v);
	if (v)
		free(v->large);
	free(v);
	return r < 0 ? r : batch_flush(s);
}
