/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Files that several nodes wrote. Their bytes are drained by the homes of their domains, each its own: so a file has one
 * writer at any place, writes are large and in order, and no node gathers the whole. The file's home makes the
 * temporary file (or cuts what is there) before, and gives it its name when every node has done its part.
 *
 * Each part runs in a session of its own, with a snapshot of its own. A commit that arrives in between may be carried or
 * not; it stays dirty, since the home's record covers what was committed when the first part began.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/place/place.h"
#include "format/store/hosts.h"
#include "mpi-agent/replay/copy.h"
#include "mpi-agent/replay/names_private.h"
#include "mpi-agent/replay/session.h"
#include "mpi-agent/replay/verify.h"

#define LAYER_EXTENTS 256 /* looked at together */
#define OVERTAKEN     "it was cut, removed, or written to again and again, while it was being carried"

/* ---- at the home: a place to write to */

/*
 * The version up to which the home's own extents are in the domain homes' maps: all of it when nothing waits to be
 * committed, else what its last commit covered.
 */
static int carried_upto(struct session *s, uint64_t ino, uint64_t *ret)
{
	struct commit_point last;
	struct extent e;
	size_t num;
	uint64_t next;
	int r = state_uncommitted(s->st, ino, 0, &e, 1, &num, &next);

	*ret = s->opt->upto;
	if (r < 0 || num == 0)
		return r;
	r = state_commit_by(s->st, ino, UINT64_MAX, &last, NULL);
	*ret = last.upto;
	return r;
}

static int make_temp(
	struct session *s, const struct inode *in, const char *dir_path, char *path, size_t cap, uint64_t *ret_ino)
{
	char name[RECORD_NAME_MAX + 1];
	struct sink_file *f = NULL;
	struct stat st;
	int r;

	snprintf(name, sizeof(name), "%s%" PRIu64, s->shared_prefix, in->ino);
	r = session_join(path, cap, dir_path, name);
	if (r == 0)
		r = s->to->ops->open(s->to, path, SINK_CREATE, &f);
	if (r == -EEXIST && s->to->ops->remove(s->to, path, false) == 0)
		r = s->to->ops->open(s->to, path, SINK_CREATE, &f);
	if (r == 0)
		r = f->ops->truncate(f, in->size);
	if (r == 0)
		r = f->ops->fstat(f, &st);
	if (r == 0)
		*ret_ino = st.st_ino;
	sink_file_close(f);
	return r;
}

/* What the backing file has beyond the limit shows zeros in the mount, unless somebody has written there. */
static int cut_existing(struct session *s, const struct inode *in, char *path, size_t cap)
{
	uint64_t limit = in->backing_limit < in->size ? in->backing_limit : in->size;
	struct sink_file *f = NULL;
	struct stat st;
	int r = state_backing_path(s->st, in->ino, path, cap);

	if (r == 0)
		r = s->to->ops->open(s->to, path, SINK_UPDATE, &f);
	if (r == 0)
		r = f->ops->fstat(f, &st);
	if (r == 0 && !session_is_same(in, &st))
		r = -ESTALE;
	if (r == 0 && (uint64_t)st.st_size > limit)
		r = f->ops->truncate(f, limit);
	if (r == 0)
		r = f->ops->truncate(f, in->size);
	sink_file_close(f);
	return r;
}

static bool is_temporary(const struct wire_shared *f)
{
	return !f->in_place && f->layout == DRAIN_LAYOUT_CANONICAL;
}

/* Its home could not begin it now, though it may have been written long ago. */
static int wait_for_next(struct session *s, const struct inode *in, const char *shown)
{
	if (!session_may_be_late(s) || (in->flags & INODE_NEW && in->ino >= s->opt->since))
		return 0;
	return session_late(s, in->ino, shown, "it is being cut or removed, or has just been");
}

/* A file that was there before keeps its own. */
static enum drain_layout layout_of(struct session *s, const struct inode *in, const char *shown)
{
	enum drain_layout layout = in->flags & INODE_NEW ? convert_wanted(s, in, shown) : DRAIN_LAYOUT_CANONICAL;

	return drain_layout_is_blob(layout) ? layout : DRAIN_LAYOUT_CANONICAL; /* as it is first */
}

static int begin_file(struct session *s, const struct inode *in, uint64_t dir, const char *dir_path, const char *shown)
{
	char path[SESSION_PATH_MAX];
	struct wire_shared f = { .ino = in->ino,
		.size = in->size,
		.limit = in->backing_limit,
		.in_place = !(in->flags & INODE_NEW),
		.path = path,
		.shown = (char *)shown };
	enum drain_layout layout = layout_of(s, in, shown);
	int r = carried_upto(s, in->ino, &f.upto);

	session_set_path(s, shown);
	if (layout != DRAIN_LAYOUT_CANONICAL && blob_waits(s)) {
		blob_wait(s, in, shown, layout);
		return 0;
	}
	if (!f.in_place)
		temps_note(s, dir, true);
	if (r == 0)
		r = f.in_place ? cut_existing(s, in, path, sizeof(path))
			       : make_temp(s, in, dir_path, path, sizeof(path), &f.temp_ino);
	if (r == 0 && layout != DRAIN_LAYOUT_CANONICAL)
		r = blob_begin(s, in, &f, layout);
	if (r < 0)
		return session_fail_errno(s, in->ino, shown, r, "cannot be made ready to be written to", in->size);
	r = s->opt->watcher.shared ? s->opt->watcher.shared(&f, 0, s->opt->watcher.arg) : -EBUSY;
	if (r < 0 && is_temporary(&f))
		(void)names_remove_temp(s, path);
	return r == -EBUSY ? wait_for_next(s, in, shown) : r;
}

struct beginning {
	struct session_dir *dir;
	char dir_path[SESSION_PATH_MAX]; /* in the destination */
};

static int visit(struct session *s, const struct state_name *e, void *arg)
{
	struct beginning *b = arg;
	char shown[SESSION_PATH_MAX];
	struct inode in;

	if (!S_ISREG(e->type) || session_join(shown, sizeof(shown), b->dir->path, e->name) < 0 ||
		state_inode(s->st, e->ino, &in) < 0)
		return 0;
	if (!(in.flags & INODE_SHARED) || !(in.flags & (INODE_NEW | INODE_DIRTY_DATA)) ||
		idmap_get(&s->inodes, e->ino) != INODE_IS_UNTOUCHED ||
		!(b->dir->selected || session_selected(s, shown)))
		return session_tick(s, false);
	if (idmap_set(&s->inodes, e->ino, INODE_IS_PENDING) < 0)
		return -ENOMEM;
	return begin_file(s, &in, b->dir->ino, b->dir_path, shown);
}

int shared_begin(struct session *s)
{
	struct beginning *b = malloc(sizeof(*b));
	int r = b ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < s->num_dirs; i++) {
		b->dir = &s->dirs[i];
		if (!b->dir->failed && state_backing_path(s->st, b->dir->ino, b->dir_path, sizeof(b->dir_path)) == 0)
			r = session_each_name(s, b->dir->ino, visit, b);
	}
	free(b);
	return r;
}

/* ---- on every node: the domains whose home it is */

/* Something, perhaps only what it knows as a witness. */
static int has_any(struct session *s, const struct wire_shared *f)
{
	struct share_extent e;
	uint64_t next;
	size_t num;
	int r = f->size > 0 ? state_share_extents(s->st, f->ino, 0, f->size, &e, 1, &num, &next) : 0;

	return r < 0 ? r : f->size > 0 && num > 0;
}

/* New files are written whole; of those that were there before, the first bytes come last. */
static int write_domains(struct session *s, const struct wire_shared *f, struct copy_job *job)
{
	bool head = s->opt->part == WIRE_PART_HEAD;
	uint64_t first = f->size < EXTENT_PAGE_SPAN ? f->size : EXTENT_PAGE_SPAN;
	struct inode in = { .ino = f->ino, .mode = S_IFREG, .size = f->size };
	struct sink_file *to = NULL;
	int r = s->to->ops->open(s->to, f->path, SINK_UPDATE, &to);

	*job = (struct copy_job){ .in = &in,
		.to = to,
		.from = head || !f->in_place ? 0 : first,
		.end = head ? first : f->size,
		.in_place = true,
		.shared = true,
		.head_last = head,
		.path = f->path };
	if (r == 0)
		r = copy_run(s->copier, job);
	if (r == 0)
		r = to->ops->sync(to, false);
	if (r == 0 && s->opt->verify >= DRAIN_VERIFY_READ)
		r = verify_read(s, job);
	sink_file_close(to);
	return r;
}

/* Of stores that are lost. */
static uint64_t tell_missing(struct session *s, const struct wire_shared *f, const struct copy_job *job)
{
	for (size_t i = 0; s->opt->manifest && i < job->num_missing; i++)
		manifest_add_missing(s->opt->manifest, f->shown, &job->missing[i]);
	return session_missing(s, f->shown, f->in_place, job->missing, job->num_missing);
}

struct listing {
	struct manifest *to;
	const char *path;
};

static int list_overlap(const struct share_conflict *c, void *arg)
{
	struct listing *l = arg;

	manifest_add_overlap(l->to, l->path,
		&(struct manifest_overlap){ .off = c->off, .len = c->len, .node = c->node, .other = c->other });
	return 0;
}

int shared_list_overlaps(struct session *s, uint64_t ino, const char *path)
{
	struct listing l = { .to = s->opt->manifest, .path = path };
	uint64_t more = 0;
	int r = 0;

	if (!l.to)
		return 0;
	r = s->opt->overlaps ? s->opt->overlaps(ino, list_overlap, &l, &more, s->opt->overlaps_arg)
			     : state_conflicts(s->st, ino, list_overlap, &l, &more);
	if (r == 0 && more > 0)
		manifest_add_more_overlaps(l.to, path, more);
	return r;
}

static int tell_written(
	struct session *s, const struct wire_shared *f, const struct copy_job *job, uint64_t missing, int status)
{
	const struct drain_watcher *w = &s->opt->watcher;
	struct wire_shared mine = *f;
	int r;

	mine.written = status == 0 ? job->written : 0;
	mine.extents = status == 0 ? job->extents : 0;
	mine.crc_sum = status == 0 ? job->crc_sum : 0;
	mine.missing = missing;
	r = session_flush_manifest(s);
	if (r < 0)
		return r;
	return w->shared && w->shared(&mine, status, w->arg) < 0 ? -ECONNRESET : 0;
}

/* Of each file that has such a part it is told how that went: of whom nothing is heard has not done it. */
static int write_file(struct session *s, const struct wire_shared *f)
{
	struct copy_job job = { 0 };
	uint64_t missing = 0;
	int r;

	if (!wire_shared_has_part(f, s->opt->part))
		return 0;
	r = has_any(s, f);
	if (r == 0)
		return tell_written(s, f, &job, 0, 0);
	if (r < 0)
		return r;
	session_set_path(s, f->shown);
	r = s->opt->part == WIRE_PART_DATA ? shared_list_overlaps(s, f->ino, f->shown) : 0;
	if (r == 0)
		r = write_domains(s, f, &job);
	if (r == 0)
		missing = tell_missing(s, f, &job);
	free(job.missing);
	if (s->fatal)
		return s->fatal;
	if (tell_written(s, f, &job, missing, r) < 0)
		return -ECONNRESET;
	if (r == 0) {
		s->result.totals.files++;
		s->result.totals.bytes += job.written;
		return session_tick(s, false);
	}
	if (job.error_text[0])
		return session_fail(s, f->ino, f->shown, r, "%s", job.error_text);
	if (r == -EBUSY)
		return session_late(s, f->ino, f->shown, OVERTAKEN);
	return session_fail_errno(s, f->ino, f->shown, r, "cannot be written", f->size);
}

/* What is to be done in this part, as far as it can be known without looking: the files are dealt out over the nodes. */
void shared_count(struct session *s)
{
	for (size_t i = 0; i < s->opt->shared.num; i++)
		if (wire_shared_has_part(&s->opt->shared.at[i], s->opt->part)) {
			s->progress.planned_files++;
			session_plan(s, s->opt->shared.at[i].size / (s->opt->num_nodes ? s->opt->num_nodes : 1));
		}
}

int shared_write(struct session *s)
{
	int r = 0;

	shared_count(s);
	for (size_t i = 0; r == 0 && i < s->opt->shared.num; i++)
		r = write_file(s, &s->opt->shared.at[i]);
	return r;
}

/* ---- at the home again */

/* Its home has written some of it before any other node did: that has no time. */
static int has_untimed(struct session *s, const struct inode *in)
{
	struct layer_extent *ext = calloc(LAYER_EXTENTS, sizeof(*ext));
	bool found = false;
	int r = ext ? 0 : -ENOMEM;

	for (uint64_t off = 0, next; r == 0 && !found && off < in->size; off = next) {
		size_t num;

		r = state_layer(s->st, in->ino, off, in->size - off, ext, LAYER_EXTENTS, &num, &next);
		for (size_t i = 0; r == 0 && i < num; i++)
			found |= ext[i].ext.time_usec == 0;
	}
	free(ext);
	return r < 0 ? r : found;
}

/*
 * Others began to write to it behind *begin*, so no part has carried it. What they write is of a later session; what its home had written may be
 * what somebody waits for.
 */
static int not_begun(struct session *s, const struct inode *in, const struct file_place *place)
{
	bool newer = in->flags & INODE_NEW && in->ino >= s->opt->since;
	bool last = drain_layout_is_blob(layout_of(s, in, place->path)) && blob_waits(s); /* waits for the last one */
	bool counts = session_may_be_late(s) && !newer && !last;
	int r = counts ? has_untimed(s, in) : 0;

	return r > 0 ? session_late(s, in->ino, place->path, "another node has just begun to write to it") : r;
}

int shared_publish(struct session *s, const struct inode *in, const struct file_place *place)
{
	const struct wire_shared *f = wire_shared_find(&s->opt->shared, in->ino);
	char node[HOSTS_NODE_BYTES];

	if (!f)
		return not_begun(s, in, place);
	if (f->failed && f->failed_errno == EBUSY)
		return session_late(s, in->ino, place->path, OVERTAKEN);
	if (f->failed && f->failed_errno)
		return session_fail(s, in->ino, place->path, -(int)f->failed_errno,
			"%s could not write its part of it (%s); it stays in the stores",
			hosts_node_text(s->opt->store, f->failed_node, node), strerror((int)f->failed_errno));
	if (f->failed)
		return session_fail(s, in->ino, place->path, -EIO,
			"not every node could write its part of it; it stays in the stores");
	if (!f->in_place && !(in->flags & INODE_NEW)) /* by an agent before us, and it has been written to since */
		return session_late(s, in->ino, place->path, OVERTAKEN);
	return f->layout == DRAIN_LAYOUT_CANONICAL ? file_publish_shared(s, in, place, f)
						   : blob_publish(s, in, place, f);
}

/* Of one that has no name any more, or could not get it now. */
static int is_left(struct session *s, uint64_t ino)
{
	struct inode in;
	int r = state_inode(s->st, ino, &in);

	return r == -ENOENT ? 1 : r < 0 ? r : in.num_names == 0 || in.flags & INODE_NEW;
}

int shared_leave(struct session *s)
{
	int r = 0;

	for (size_t i = 0; r >= 0 && i < s->opt->shared.num; i++) {
		const struct wire_shared *f = &s->opt->shared.at[i];

		if (!is_temporary(f) || !s->opt->num_nodes || place_ino(f->ino, s->opt->num_nodes) != s->opt->node)
			continue;
		r = f->failed ? 1 : is_left(s, f->ino);
		if (r > 0)
			(void)names_remove_temp(s, f->path);
	}
	return r < 0 ? r : 0;
}
