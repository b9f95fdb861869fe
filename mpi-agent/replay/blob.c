/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Files in blob layout. They wait for the last session, when nobody can have them open any more: then the subfiles are made, and
 * when those have their names for good the file goes from the store, with all that it holds there. What the backing directory
 * had under its name goes with the names that are no more. Until then the mount shows the file as it was written; afterwards a
 * mount shows the subfiles.
 *
 * Who is killed before the file has gone makes the subfiles again. A file that cannot be laid out so, and any file when the
 * store needs room, is drained as it is; that is said.
 */
#include "mpi-agent/replay/blobs.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "mpi-agent/plan/names.h"

static void add_fact(struct manifest_fact *fact, const char *name, uint64_t value)
{
	*fact = (struct manifest_fact){ .is_number = true };
	snprintf(fact->name, sizeof(fact->name), "%s", name);
	snprintf(fact->value, sizeof(fact->value), "%" PRIu64, value);
}

static void tell_manifest(struct session *s, const struct inode *in, const struct file_place *place,
	enum drain_layout layout, const struct blob_done *done)
{
	struct manifest_fact facts[3];
	struct manifest_file mf = { .path = place->path,
		.state = s->opt->verify >= DRAIN_VERIFY_READ ? "verified" : "drained",
		.size = in->size,
		.bytes_written = done->written,
		.extents = done->extents,
		.layout = drain_layout_name(layout),
		.warning = done->warning.text[0] ? done->warning.text : NULL,
		.facts = facts,
		.num_facts = 3 };

	add_fact(&facts[0], "subfiles", done->subfiles);
	add_fact(&facts[1], "blobs", done->blobs);
	add_fact(&facts[2], "maps", done->maps);
	if (s->opt->manifest)
		manifest_add_file(s->opt->manifest, &mf);
}

static void count(
	struct session *s, const struct inode *in, const struct file_place *place, const struct blob_done *done)
{
	const struct drain_watcher *w = &s->opt->watcher;

	s->result.totals.files++;
	if (!(in->flags & INODE_SHARED)) /* else they were counted where they were written */
		s->result.totals.bytes += done->written;
	s->result.converted++;
	s->progress.done_files++;
	if (w->layout)
		w->layout(place->path, false, "", w->arg);
}

/* A file that this one has replaced in the mount. What somebody else has put there stays. */
static int remove_former(struct session *s, const struct file_place *place)
{
	char path[SESSION_PATH_MAX];
	struct inode former;
	uint64_t owner;
	int r = session_join(path, sizeof(path), place->dir_path, place->name);

	if (r < 0 || state_backing_owner(s->st, place->dir, place->name, &owner) < 0)
		return r;
	if (state_inode(s->st, owner, &former) == 0 && names_is_needed(&former))
		return -EBUSY; /* it has another name, and could not be moved there */
	r = s->to->ops->remove(s->to, path, false);
	if (r == 0 || r == -ENOENT)
		r = s->to->ops->sync_names(s->to);
	return r;
}

static int further_path(const struct file_place *place, uint32_t number, char *path, size_t cap)
{
	char name[RECORD_NAME_MAX + 1];
	int r = blob_subfile_path(place->name, number, name, sizeof(name));

	return r < 0 ? r : session_join(path, cap, place->dir_path, name);
}

/* Subfiles of an earlier set that had more than this one. The last ones first: who is killed meanwhile finds the others again. */
static int remove_further(struct session *s, const struct file_place *place, uint32_t num)
{
	char path[SESSION_PATH_MAX];
	uint32_t end = num;
	struct stat st;
	int r = 0;

	while (end < BLOB_SUBFILES_MAX && further_path(place, end, path, sizeof(path)) == 0 &&
		s->to->ops->stat(s->to, path, &st) == 0 && blob_may_replace(s, place->dir, path) == 0)
		end++;
	for (uint32_t i = end; r == 0 && i > num; i--) {
		r = further_path(place, i - 1, path, sizeof(path));
		if (r == 0)
			r = s->to->ops->remove(s->to, path, false);
	}
	return end > num && r == 0 ? s->to->ops->sync_names(s->to) : r;
}

/*
 * The subfiles are there for good: the file has arrived, and its name is gone. Who is killed in between leaves a clean file whose
 * backing file has vanished, which is forgotten when somebody looks.
 */
static int report(struct session *s, const struct inode *in, const struct file_place *place, enum drain_layout layout,
	const struct blob_done *done)
{
	struct record placed = { .type = RECORD_PLACED, .ino = in->ino, .gen = in->gen, .parent = place->dir };
	struct record drained = { .type = RECORD_DRAINED,
		.ino = in->ino,
		.gen = in->gen,
		.upto = done->upto,
		.stamp = done->stamp,
		.size = in->size };
	struct record forget = { .type = RECORD_FORGET, .ino = in->ino, .gen = in->gen, .parent = place->dir };
	int r;

	snprintf(placed.name, sizeof(placed.name), "%s", place->name);
	snprintf(forget.name, sizeof(forget.name), "%s", place->name);
	drained.mtime_ns = in->mtime_ns;
	r = remove_former(s, place);
	if (r == 0)
		r = remove_further(s, place, done->subfiles);
	if (r < 0)
		return session_fail_errno(s, in->ino, place->path, r, "what it replaces cannot be removed", 0);
	r = session_touch(s, place->dir);
	if (r == 0)
		r = session_step(s, &placed);
	if (r < 0 || idmap_get(&s->inodes, in->ino) == INODE_IS_FAILED) /* the mount has given it up */
		return r;
	tell_manifest(s, in, place, layout, done);
	r = session_told(s, &drained, place->path);
	if (r == 0)
		r = session_step(s, &forget);
	return r == 0 ? session_flush_steps(s) : r;
}

int blob_give_up(struct session *s, const struct inode *in, const struct file_place *place, enum drain_layout layout,
	const struct blob_done *done)
{
	int r = report(s, in, place, layout, done);

	if (r < 0 || idmap_get(&s->inodes, in->ino) == INODE_IS_FAILED)
		return r;
	count(s, in, place, done);
	return idmap_set(&s->inodes, in->ino, INODE_IS_DONE);
}

static int carry_now(struct session *s, const struct inode *in, struct file_place *place, enum drain_layout layout)
{
	struct blob_done done;
	char why[BLOB_WHY];
	int r = blob_write(s, in, place, layout, &done, why);

	if (r == -EOPNOTSUPP) {
		place->kept = why;
		return file_write_new(s, in, place);
	}
	if (r < 0)
		return why[0] ? session_fail(s, in->ino, place->path, r, "%s", why)
			      : session_fail_errno(
					s, in->ino, place->path, r, "its subfiles cannot be written", in->size);
	done.upto = s->opt->upto;
	done.stamp = 0;
	return blob_give_up(s, in, place, layout, &done);
}

void blob_wait(struct session *s, const struct inode *in, const char *shown, enum drain_layout layout)
{
	struct manifest_file mf = { .path = shown,
		.state = "dirty",
		.size = in->size,
		.layout = drain_layout_name(layout),
		.warning = "its subfiles are made when nobody has it mounted any more" };

	s->result.waiting++;
	if (s->opt->manifest)
		manifest_add_file(s->opt->manifest, &mf);
}

int blob_carry(struct session *s, const struct inode *in, const struct file_place *place, enum drain_layout layout)
{
	struct file_place own = *place;

	session_set_path(s, place->path);
	if (s->opt->convert->now)
		return carry_now(s, in, &own, layout);
	if (blob_waits(s)) {
		blob_wait(s, in, place->path, layout);
		return idmap_set(&s->inodes, in->ino, INODE_IS_LEFT_ALONE);
	}
	own.kept = blob_haste_text(s->opt->convert->haste);
	return file_write_new(s, in, &own);
}
