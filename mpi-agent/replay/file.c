/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Files. A new one is written under a temporary name, made durable, and then gets its name in one step. New files are
 * published in batches: their data go to the device together, and one sync of a directory serves all that it holds.
 *
 * An existing file is updated in place: first everything but its first page, synced, then the first page with the
 * first block last; so a file whose header is new has all of its data. What was begun and killed is simply done again: no
 * step reads what another one writes.
 */
#include "mpi-agent/replay/session.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "format/base/crc32c.h"
#include "mpi-agent/plan/window.h"
#include "mpi-agent/replay/copy.h"
#include "mpi-agent/replay/verify.h"

#define BATCH_FILES 256
#define BATCH_BYTES (64u << 20)
#define TICK_NSEC   20000000 /* time stamps of files are no finer than this on some kernels */
#define DIRTY_FLAGS \
	(INODE_NEW | INODE_DIRTY_DATA | INODE_DIRTY_META | INODE_DIRTY_XATTR | INODE_PRIVATE | INODE_UNPUBLISHED)

struct carried {             /* a file on its way, and what is known of it */
	struct inode in;     /* size and mtime are those that are carried over */
	struct sink_file *f; /* owned */
	struct copy_job job;
	const char *warning, *conflict;
	char *shown;   /* owned: in the mount */
	char *kept;    /* owned: why its layout is not the one that it was to get; NULL: it is */
	bool changed;  /* was written to meanwhile: stays dirty */
	uint64_t upto; /* 0: the session's */
	bool has_checksum;
	const struct wire_shared *shared; /* borrowed: what all nodes have written of it; NULL: it was written here */
	char doubt[VERIFY_TEXT_BYTES];    /* about its format; "" when there is none */
};

struct pending { /* a new file, whole but for its name */
	struct carried c;
	char *temp, *final; /* owned: paths in the destination */
	uint64_t dir;
	char name[RECORD_NAME_MAX + 1];
	bool ready;
};

struct batch {
	struct pending at[BATCH_FILES];
	size_t num;
	uint64_t bytes;
};

int batch_create(struct batch **ret)
{
	*ret = calloc(1, sizeof(**ret));
	return *ret ? 0 : -ENOMEM;
}

static void carried_free(struct carried *c)
{
	sink_file_close(c->f);
	free(c->job.missing);
	free(c->shown);
	free(c->kept);
	*c = (struct carried){ 0 };
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

/* ---- what is common */

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/*
 * A private segment's own size and time are the file's. If a live one was written just now, a further write might not
 * show in its time: wait until it would.
 */
static int take_private(struct session *s, struct inode *in)
{
	uint64_t allocated;
	int r, tries = 0;

	if (!(in->flags & INODE_PRIVATE))
		return 0;
	do {
		r = segment_private_size(s->segments, in->private_segment, &in->size, &allocated, &in->mtime_ns);
		if (r < 0 || !s->opt->watcher.step || now_ns() - in->mtime_ns > TICK_NSEC || now_ns() < in->mtime_ns)
			return r;
		nanosleep(&(struct timespec){ .tv_nsec = TICK_NSEC }, NULL);
	} while (++tries < 5);
	return 0;
}

/* Was the private segment written to while it was copied? */
static bool private_has_changed(struct session *s, const struct carried *c)
{
	uint64_t size = 0, allocated;
	int64_t mtime_ns = 0;

	if (!(c->in.flags & INODE_PRIVATE))
		return false;
	if (segment_private_size(s->segments, c->in.private_segment, &size, &allocated, &mtime_ns) < 0)
		return true;
	return c->job.short_private || size != c->in.size || mtime_ns != c->in.mtime_ns;
}

static int drained(struct session *s, struct carried *c, const struct stat *st)
{
	struct record rec = { .type = RECORD_DRAINED,
		.ino = c->in.ino,
		.gen = c->in.gen,
		.upto = c->upto ? c->upto : s->opt->upto,
		.size = c->in.size,
		.mtime_ns = c->in.mtime_ns,
		.backing_dev = st->st_dev,
		.backing_ino = st->st_ino };

	if (c->changed)
		rec.flags |= RECORD_F_KEEP_PRIVATE;
	if (!(c->in.flags & (INODE_NEW | INODE_DIRTY_DATA | INODE_PRIVATE | INODE_UNPUBLISHED)))
		rec.flags |= RECORD_F_META_ONLY;
	else if (s->opt->convert && S_ISREG(c->in.mode))
		convert_note(s, &c->in, c->f, c->shown);
	return session_step(s, &rec);
}

/* Bytes and checksum of a shared file are put together from what the homes of its domains say. */
static void take_shared(struct manifest_file *mf, const struct wire_shared *f)
{
	mf->bytes_written = f->written;
	mf->extents = f->extents;
	mf->has_checksum = true;
	mf->crc = crc32c_of_parts(f->crc_sum, f->size);
	mf->of_file = !f->in_place;
	mf->of_places = f->in_place;
}

static void tell_manifest(struct session *s, const struct carried *c)
{
	bool read_back = s->opt->verify >= DRAIN_VERIFY_READ && (c->has_checksum || c->shared);
	struct manifest_file mf = { .path = c->shown,
		.size = c->in.size,
		.bytes_written = c->job.written,
		.extents = c->job.extents,
		.has_checksum = c->has_checksum,
		.crc = c->job.crc,
		.of_file = !c->job.in_place,
		.conflict = c->conflict,
		.warning = c->warning    ? c->warning
			   : c->doubt[0] ? c->doubt
					 : NULL,
		.missing = c->job.missing,
		.num_missing = c->job.num_missing };

	if (c->shared)
		take_shared(&mf, c->shared);
	mf.state = c->changed ? "dirty" : read_back ? "verified" : "drained";
	if (c->job.num_missing > 0 || (c->shared && c->shared->missing > 0)) {
		mf.state = "failed";
		mf.error = -ENODATA;
		mf.error_text =
			"bytes of it were not there to be read, in the backing file or in a lost store: they are zeros";
	}
	if (s->opt->manifest)
		manifest_add_file(s->opt->manifest, &mf);
}

static void tell_kept(struct session *s, const struct carried *c)
{
	const struct drain_watcher *w = &s->opt->watcher;

	if (!c->kept)
		return;
	s->result.kept++;
	if (w->layout)
		w->layout(c->shown, true, c->kept, w->arg);
	if (s->opt->manifest)
		manifest_add_kept(s->opt->manifest, c->shown, drain_layout_name(DRAIN_LAYOUT_CANONICAL), c->kept);
}

static void count_missing(struct session *s, const struct carried *c)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < c->job.num_missing; i++)
		bytes += c->job.missing[i].len;
	s->result.missing_bytes += bytes;
	if (bytes > 0 && s->opt->watcher.error)
		s->opt->watcher.error(c->shown, -ENODATA,
			"bytes of it were not there to be read, in the backing file or in a lost store: written as zeros, listed in the manifest",
			s->opt->watcher.arg);
}

static int finish(struct session *s, struct carried *c)
{
	if (idmap_get(&s->inodes, c->in.ino) == INODE_IS_FAILED)
		return 0; /* the mount had given it up meanwhile, and it was taken back */
	s->result.files++;
	s->result.bytes += c->job.written;
	s->progress.done_files++;
	count_missing(s, c);
	tell_manifest(s, c);
	tell_kept(s, c);
	return idmap_set(&s->inodes, c->in.ino, INODE_IS_DONE);
}

static int fail(struct session *s, struct carried *c, int r, const char *doing)
{
	if (c->job.error_text[0])
		return session_fail(s, c->in.ino, c->shown, r, "%s", c->job.error_text);
	return session_fail_errno(s, c->in.ino, c->shown, r, doing, c->in.size);
}

/* A file that is being written to is half of something: it stays dirty, and what it is then will be seen. */
static int check_format(struct session *s, struct carried *c)
{
	int r;

	if (s->opt->verify != DRAIN_VERIFY_FORMAT || !S_ISREG(c->in.mode))
		return 0;
	r = verify_format(c->f, c->in.size, c->doubt, c->job.error_text);
	if (r == -EIO && private_has_changed(s, c)) {
		c->job.error_text[0] = '\0';
		return 0;
	}
	return r;
}

/* -EIO: the destination does not hold what was written, or is not what it claims to be. */
static int verify(struct session *s, struct carried *c, const struct stat *st)
{
	int r;

	if (s->opt->verify == DRAIN_VERIFY_NONE || !S_ISREG(c->in.mode))
		return 0;
	if ((uint64_t)st->st_size != c->in.size) {
		snprintf(c->job.error_text, sizeof(c->job.error_text),
			"verification failed: it has %" PRIu64 " bytes in the backing directory and not %" PRIu64,
			(uint64_t)st->st_size, c->in.size);
		return -EIO;
	}
	if (s->opt->verify == DRAIN_VERIFY_SIZE || !c->has_checksum)
		return 0;
	r = verify_read(s, &c->job);
	return r < 0 ? r : check_format(s, c);
}

/* ---- new files */

static int sync_pending(struct session *s, struct pending *p)
{
	struct stat st;
	int r = p->c.f->ops->sync(p->c.f, false);

	if (r == 0)
		r = p->c.f->ops->fstat(p->c.f, &st);
	if (r == 0)
		r = verify(s, &p->c, &st);
	p->ready = r == 0;
	return r < 0 ? fail(s, &p->c, r, "cannot be made durable") : session_make_way(s);
}

/* What is in the place: a directory cannot be replaced; a file that nobody knows of is, and that is said. */
static int look_at_place(struct session *s, struct pending *p)
{
	struct stat st;
	uint64_t owner;
	int r = s->to->ops->stat(s->to, p->final, &st);

	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return r;
	if (S_ISDIR(st.st_mode))
		return s->opt->in_place ? names_clear_dir(s, p->dir, p->name, p->final) : -EISDIR;
	if (s->opt->in_place && state_backing_owner(s->st, p->dir, p->name, &owner) == -ENOENT && s->opt->cautious)
		return -EBUSY;
	if (s->opt->part == WIRE_PART_WHOLE && s->opt->in_place &&
		state_backing_owner(s->st, p->dir, p->name, &owner) == -ENOENT &&
		((uint64_t)st.st_size != p->c.in.size || st.st_mtim.tv_sec != p->c.in.mtime_ns / 1000000000))
		p->c.conflict = "replaced a file of this name that somebody else had put into the backing directory";
	return 0;
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
	if (r == 0)
		r = look_at_place(s, p);
	rec.backing_dev = st.st_dev;
	rec.backing_ino = st.st_ino;
	memcpy(rec.name, p->name, sizeof(rec.name));
	if (r == 0)
		r = session_intend(s, &rec, "", p->final, false);
	if (r == 0)
		r = s->to->ops->rename(s->to, p->temp, p->final, false);
	if (r < 0) {
		p->ready = false;
		return fail(s, &p->c, r, "cannot get its name");
	}
	r = session_touch(s, p->dir);
	if (r < 0 || !s->opt->in_place)
		return r;
	p->c.changed = private_has_changed(s, &p->c);
	r = session_step(s, &rec);
	return r < 0 ? r : drained(s, &p->c, &st);
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
			r = finish(s, &b->at[i].c);
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
	if (r == 0)
		r = s->to->ops->open(s->to, p->temp, SINK_CREATE, &p->c.f);
	if (r == -EEXIST && s->to->ops->remove(s->to, p->temp, false) == 0)
		r = s->to->ops->open(s->to, p->temp, SINK_CREATE, &p->c.f);
	return r;
}

/* The backing file that still holds a part of a file that is made whole elsewhere. */
static int open_base(struct session *s, struct carried *c, struct sink_file **ret)
{
	char path[SESSION_PATH_MAX];

	*ret = NULL;
	if (!s->base || (c->in.flags & INODE_NEW) || state_backing_path(s->st, c->in.ino, path, sizeof(path)) < 0)
		return 0;
	if (s->base->ops->open(s->base, path, SINK_READ, ret) < 0)
		*ret = NULL;
	return 0;
}

static int fill_new(struct session *s, struct pending *p)
{
	struct carried *c = &p->c;
	struct sink_file *base;
	struct sink_attr attr;
	struct stat st;
	int r = open_base(s, c, &base);

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
		r = take_private(s, &p->c.in);
	if (r < 0)
		snprintf(p->c.job.error_text, sizeof(p->c.job.error_text),
			"its private segment %" PRIu32 " cannot be read (%s): run cistern flush again",
			in->private_segment, strerror(-r));
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
	return s->batch->num == BATCH_FILES || s->batch->bytes >= BATCH_BYTES ? batch_flush(s) : session_tick(s, false);
}

/* ---- updates in place */

/* Old bytes that must read as zeros go before anything new is written. */
static int cut_stale(struct session *s, struct carried *c, uint64_t present_size)
{
	uint64_t limit = c->in.flags & INODE_PRIVATE ? 0 : c->in.backing_limit, tail;
	struct gap *gaps = NULL;
	size_t num = 0;
	int r = 0;

	if (limit > c->in.size)
		limit = c->in.size;
	tail = limit;
	if (!(c->in.flags & INODE_PRIVATE))
		r = window_stale_ranges(s->st, c->in.ino, limit, c->in.size, &gaps, &num, &tail);
	if (r == 0 && present_size > tail) {
		r = c->f->ops->truncate(c->f, tail);
		present_size = tail;
	}
	for (size_t i = 0; r == 0 && i < num; i++)
		r = c->f->ops->zero(c->f, gaps[i].off, gaps[i].len);
	if (r == 0 && present_size != c->in.size)
		r = c->f->ops->truncate(c->f, c->in.size);
	free(gaps);
	return r;
}

static int update_data(struct session *s, struct carried *c)
{
	uint64_t first = c->in.size < EXTENT_PAGE_SPAN ? c->in.size : EXTENT_PAGE_SPAN;
	struct copy_job head = {
		.in = &c->in, .to = c->f, .end = first, .in_place = true, .head_last = true, .path = c->shown
	};
	int r;

	c->job = (struct copy_job){
		.in = &c->in, .to = c->f, .from = first, .end = c->in.size, .in_place = true, .path = c->shown
	};
	if (first == EXTENT_PAGE_SPAN) {
		r = copy_run(s->copier, &c->job);
		if (r == 0 && c->job.written > 0)
			r = c->f->ops->sync(c->f, true);
		if (r < 0)
			return r;
	}
	r = copy_run(s->copier, &head);
	c->job.crc = crc32c_combine(head.crc, c->job.crc, c->job.crc_bytes);
	c->job.crc_bytes += head.crc_bytes;
	c->job.written += head.written;
	c->job.extents += head.extents;
	c->job.short_private |= head.short_private;
	c->job.from = 0;
	memcpy(c->job.error_text, head.error_text, sizeof(head.error_text));
	c->has_checksum = true;
	return r;
}

static int update_content(struct session *s, struct carried *c, struct stat *ret_st)
{
	bool has_data = S_ISREG(c->in.mode) && (c->in.flags & (INODE_DIRTY_DATA | INODE_PRIVATE | INODE_UNPUBLISHED));
	struct sink_attr attr;
	int r = c->f->ops->fstat(c->f, ret_st);

	if (r == 0 && !session_is_same(&c->in, ret_st))
		r = -ESTALE;
	if (r == 0 && has_data)
		r = cut_stale(s, c, (uint64_t)ret_st->st_size);
	if (r == 0 && has_data)
		r = update_data(s, c);
	attrs_of_inode(&c->in, &attr);
	if (r == 0)
		r = attrs_apply(s, &c->in, &attr, c->f, &c->warning);
	if (r == 0)
		r = c->f->ops->sync(c->f, false);
	if (r == 0)
		r = c->f->ops->fstat(c->f, ret_st);
	return r == 0 && has_data ? verify(s, c, ret_st) : r;
}

/* A file that was written through gets its name now that it is whole. */
static int publish_update(struct session *s, const struct carried *c, const struct file_place *place, const char *from,
	const struct stat *st)
{
	struct record rec = { .type = RECORD_PLACED,
		.ino = c->in.ino,
		.gen = c->in.gen,
		.parent = place->dir,
		.backing_dev = st->st_dev,
		.backing_ino = st->st_ino };
	char to[SESSION_PATH_MAX];
	int r = session_join(to, sizeof(to), place->dir_path, place->name);

	if (r < 0)
		return r;
	snprintf(rec.name, sizeof(rec.name), "%s", place->name);
	if (strcmp(from, to) != 0) {
		rec.flags = RECORD_F_MOVED;
		rec.from_parent = c->in.origin_parent;
		memcpy(rec.from_name, c->in.origin_name, sizeof(rec.from_name));
		r = session_intend(s, &rec, from, to, false);
		if (r == 0)
			r = s->to->ops->rename(s->to, from, to, false);
		if (r < 0)
			return session_fail_errno(s, c->in.ino, place->path, r, "cannot get its name", 0);
	}
	if (session_touch(s, place->dir) < 0 || session_touch(s, c->in.origin_parent) < 0)
		return -ENOMEM;
	return session_step(s, &rec);
}

static int update(struct session *s, struct carried *c, const struct file_place *place)
{
	bool needs_data = S_ISREG(c->in.mode) && (c->in.flags & (INODE_DIRTY_DATA | INODE_PRIVATE | INODE_UNPUBLISHED));
	char path[SESSION_PATH_MAX];
	struct stat st;
	int r = take_private(s, &c->in);

	if (r < 0)
		snprintf(c->job.error_text, sizeof(c->job.error_text),
			"its private segment %" PRIu32 " cannot be read (%s): run cistern flush again",
			c->in.private_segment, strerror(-r));
	if (r == 0)
		r = c->in.flags & INODE_UNPUBLISHED
			    ? state_backing_path(s->st, c->in.ino, path, sizeof(path))
			    : state_backing_child_path(s->st, place->dir, place->name, path, sizeof(path));
	if (r == 0)
		r = s->to->ops->open(s->to, path, needs_data ? SINK_UPDATE : SINK_ATTR, &c->f);
	if (r == -ELOOP)
		r = -ESTALE; /* a symbolic link in the place of a file */
	if (r == 0)
		r = update_content(s, c, &st);
	if (r < 0)
		return fail(s, c, r, "cannot be updated");
	c->changed = private_has_changed(s, c);
	r = session_tick(s, true);
	if (r == 0 && (c->in.flags & INODE_UNPUBLISHED))
		r = publish_update(s, c, place, path, &st);
	if (r == 0 && idmap_get(&s->inodes, c->in.ino) != INODE_IS_FAILED)
		r = drained(s, c, &st);
	if (r == 0)
		r = session_flush_steps(s);
	return r < 0 || idmap_get(&s->inodes, c->in.ino) == INODE_IS_FAILED ? r : finish(s, c);
}

int file_update(struct session *s, const struct inode *in, const struct file_place *place)
{
	struct carried *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return -ENOMEM;
	c->in = *in;
	c->shown = strdup(place->path);
	session_set_path(s, place->path);
	r = c->shown ? update(s, c, place) : -ENOMEM;
	carried_free(c);
	free(c);
	return r;
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
	if (r == 0)
		r = finish_shared(s, &p->c, &st);
	if (r == 0)
		r = check_format(s, &p->c);
	if (r < 0)
		return fail(s, &p->c, r, "cannot be completed");
	p->ready = true;
	r = session_tick(s, true);
	if (r == 0)
		r = f->in_place ? drained(s, &p->c, &st) : publish(s, p);
	if (r == 0)
		r = session_flush_steps(s);
	if (r < 0 || !p->ready)
		return r;
	if (p->c.kept)
		blob_clear(s, place->dir_path, f);
	return finish(s, &p->c);
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

struct visit {
	struct session_dir *dir;
	char dir_path[SESSION_PATH_MAX]; /* in the destination */
	bool has_path;
};

static int visit_existing(struct session *s, struct visit *v, const struct state_name *e, struct inode *in,
	const struct file_place *place, bool selected)
{
	int r;

	if (!(in->flags & INODE_UNPUBLISHED)) {
		r = names_place(s, v->dir, e->name, e->ino); /* a further link of a file that has just been published */
		if (r < 0 || idmap_get(&s->inodes, e->ino) == INODE_IS_FAILED)
			return r;
	}
	if (!selected || !(in->flags & DIRTY_FLAGS) || idmap_get(&s->inodes, e->ino) == INODE_IS_DONE)
		return 0;
	if (in->flags & INODE_SHARED)
		return shared_publish(s, in, place);
	return file_update(s, in, place);
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
	selected = v->dir->selected || session_selected(s, path);
	if (v->dir->failed || !v->has_path)
		return selected && (in.flags & DIRTY_FLAGS) && !v->dir->given_up
			       ? session_fail(s, e->ino, path, -ENOENT,
					 "its directory could not be placed in the backing directory")
			       : 0;
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
	return drain_layout_is_blob(layout) ? blob_carry(s, &in, &place, layout) : file_write_new(s, &in, &place);
}

int file_run(struct session *s)
{
	struct visit *v = malloc(sizeof(*v));
	int r = v ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < s->num_dirs; i++) {
		v->dir = &s->dirs[i];
		/* The mount may have given it up since it was placed. */
		v->dir->failed |=
			s->dirs[v->dir->parent].failed || idmap_get(&s->inodes, v->dir->ino) == INODE_IS_FAILED;
		v->dir->given_up = s->dirs[v->dir->parent].given_up || idmap_get(&s->given_up, v->dir->ino);
		v->has_path = state_backing_path(s->st, v->dir->ino, v->dir_path, sizeof(v->dir_path)) == 0;
		r = session_each_name(s, v->dir->ino, visit_file, v);
	}
	free(v);
	return r < 0 ? r : batch_flush(s);
}
