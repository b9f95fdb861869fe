/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/replay/carried.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "format/base/clock.h"
#include "format/base/crc32c.h"
#include "format/store/straggler.h"

#define TICK_NSEC 20000000 /* time stamps of files are no finer than this on some kernels */

void carried_free(struct carried *c)
{
	sink_file_close(c->f);
	free(c->job.missing);
	free(c->shown);
	free(c->there);
	free(c->kept);
	*c = (struct carried){ 0 };
}

/* Size and time as they will stay, if nobody writes. */
static int settle_private(struct session *s, struct inode *in)
{
	uint64_t allocated;
	int r, tries = 0;

	do {
		r = segment_private_size(s->segments, in->private_segment, &in->size, &allocated, &in->mtime_ns);
		if (r < 0 || !s->opt->watcher.step || clock_wall_ns() - in->mtime_ns > TICK_NSEC ||
			clock_wall_ns() < in->mtime_ns)
			return r;
		nanosleep(&(struct timespec){ .tv_nsec = TICK_NSEC }, NULL);
	} while (++tries < 5);
	return 0;
}

int carried_take_private(struct session *s, struct carried *c)
{
	bool is_private = c->in.flags & INODE_PRIVATE;
	int r;

	/* Before its size is taken: when they have gone, all that they wrote is there. */
	c->straggled = is_private && straggler_is_there(s->opt->store, c->in.private_segment);
	r = is_private ? settle_private(s, &c->in) : 0;
	if (r < 0)
		snprintf(c->job.error_text, sizeof(c->job.error_text),
			"its private segment %" PRIu32 " cannot be read (%s): run cistern flush again",
			c->in.private_segment, strerror(-r));
	return r;
}

bool carried_has_changed(struct session *s, const struct carried *c)
{
	uint64_t size = 0, allocated;
	int64_t mtime_ns = 0;

	if (!(c->in.flags & INODE_PRIVATE))
		return false;
	if (c->straggled)
		return true;
	if (segment_private_size(s->segments, c->in.private_segment, &size, &allocated, &mtime_ns) < 0)
		return true;
	return c->job.short_private || size != c->in.size || mtime_ns != c->in.mtime_ns;
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

static int tell_manifest(struct session *s, const struct carried *c)
{
	bool read_back = s->opt->verify >= DRAIN_VERIFY_READ && (c->has_checksum || c->shared);
	char missing[192];
	struct manifest_file mf = { .path = c->shown,
		.size = c->in.size,
		.bytes_written = c->job.written,
		.extents = c->job.extents,
		.has_checksum = c->has_checksum,
		.crc = c->job.crc,
		.of_file = !c->job.in_place,
		.conflict = c->conflict,
		.warning = c->warning.text[0] ? c->warning.text
			   : c->doubt[0]      ? c->doubt
					      : NULL,
		.missing = c->job.missing,
		.num_missing = c->job.num_missing };

	if (c->shared)
		take_shared(&mf, c->shared);
	mf.state = c->changed ? "dirty" : read_back ? "verified" : "drained";
	if (c->job.num_missing > 0 || (c->shared && c->shared->missing > 0)) {
		mf.state = "failed";
		mf.error = -ENODATA;
		snprintf(missing, sizeof(missing),
			"bytes of it were not there to be read, in the backing file or in a lost store: %s",
			session_missing_text(c->shared ? c->shared->in_place : c->job.in_place));
		mf.error_text = missing;
	}
	if (!s->opt->manifest)
		return 0;
	manifest_add_file(s->opt->manifest, &mf);
	if (c->there)
		beside_tell(s, c->shown, c->there);
	if (c->kept)
		manifest_add_kept(s->opt->manifest, c->shown, drain_layout_name(DRAIN_LAYOUT_CANONICAL), c->kept);
	return links_tell(s, c->in.ino, c->shown);
}

int carried_drained(struct session *s, struct carried *c, const struct stat *st)
{
	uint64_t stamp = c->shared ? c->shared->stamp : 0; /* 0: the job is dead, and all of it is carried */
	struct record rec = { .type = RECORD_DRAINED,
		.ino = c->in.ino,
		.gen = c->in.gen,
		.upto = c->upto || stamp ? c->upto : s->opt->upto, /* of a living job perhaps nothing: 0 */
		.stamp = stamp,
		.size = c->in.size,
		.mtime_ns = c->in.mtime_ns,
		.backing_dev = st->st_dev,
		.backing_ino = st->st_ino };
	int r;

	if (c->changed)
		rec.flags |= RECORD_F_KEEP_PRIVATE;
	if (!(c->in.flags & (INODE_NEW | INODE_DIRTY_DATA | INODE_PRIVATE | INODE_UNPUBLISHED)))
		rec.flags |= RECORD_F_META_ONLY;
	else if (s->opt->convert && S_ISREG(c->in.mode) && !c->straggled)
		convert_note(s, &c->in, c->f, c->shown);
	r = tell_manifest(s, c);
	return r < 0 ? session_end(s, r, "the names of a file cannot be told") : session_told(s, &rec, c->shown);
}

static void tell_kept(struct session *s, const struct carried *c)
{
	const struct drain_watcher *w = &s->opt->watcher;

	if (!c->kept)
		return;
	s->result.kept++;
	if (w->layout)
		w->layout(c->shown, true, c->kept, w->arg);
}

/* What is there is carried, but it is not said to be whole. */
static int tell_straggler(struct session *s, const struct carried *c)
{
	char text[STRAGGLER_TEXT];

	return session_fail(s, 0, c->shown, -EBUSY, "%s", straggler_say(s->opt->store, c->in.private_segment, text));
}

int carried_finish(struct session *s, struct carried *c)
{
	int r;

	if (idmap_get(&s->inodes, c->in.ino) == INODE_IS_FAILED)
		return 0; /* the mount had given it up meanwhile, and it was taken back */
	s->result.totals.files += !c->straggled;
	s->result.totals.bytes += c->job.written;
	s->progress.done_files++;
	session_missing(s, c->shown, c->job.in_place, c->job.missing, c->job.num_missing);
	if (!s->opt->in_place) /* else with its last step */
		(void)tell_manifest(s, c);
	tell_kept(s, c);
	if (c->straggled && (r = tell_straggler(s, c)) < 0)
		return r;
	return idmap_set(&s->inodes, c->in.ino, INODE_IS_DONE);
}

int carried_fail(struct session *s, struct carried *c, int r, const char *doing)
{
	if (c->job.error_text[0])
		return session_fail(s, c->in.ino, c->shown, r, "%s", c->job.error_text);
	if (r == -ESTALE && session_has_gone(s, &c->in))
		return idmap_set(&s->inodes, c->in.ino, INODE_IS_FAILED);
	return session_fail_errno(s, c->in.ino, c->shown, r, doing, c->in.size);
}

/* A file that is being written to is half of something: it stays dirty, and what it is then will be seen. */
static int unless_changed(struct session *s, struct carried *c, int r)
{
	if (r != -EIO || !carried_has_changed(s, c))
		return r;
	c->job.error_text[0] = '\0';
	return 0;
}

int carried_check_format(struct session *s, struct carried *c)
{
	if (s->opt->verify != DRAIN_VERIFY_FORMAT || !S_ISREG(c->in.mode))
		return 0;
	return unless_changed(s, c, verify_format(c->f, c->in.size, c->doubt, c->job.error_text));
}

int carried_verify(struct session *s, struct carried *c, const struct stat *st)
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
	/* In place, what was written is what a private segment has data for: more than was carried, when a hole was filled meanwhile. */
	r = unless_changed(s, c, verify_read(s, &c->job));
	return r < 0 ? r : carried_check_format(s, c);
}
