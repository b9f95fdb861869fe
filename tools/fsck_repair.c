/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What fsck --repair does. Opening a store for writing cuts a torn tail, and drops segments that nothing refers to,
 * by itself; a wrong index is rebuilt from the journal. Damage in the middle of the journal is another matter:
 * everything behind it depends on records that cannot be read. It is only cut when the user says so (what a loss of power leaves is
 * no damage: opening ends there); the bytes that are cut off are copied to STORE/lost first. The nodes of a job may have seen what they
 * tell of, so for them it is a loss of power. Where the index stands for more than the journal is good for, nothing is cut: the index
 * goes on, and the journal begins anew behind it. With neither, nothing would be left: nothing is done. Where only the checkpoint that the
 * journal begins with is damaged, and a mount reads the index and goes on, a new one is made of that.
 *
 * Who opens a store for writing moves it on, and the steps that a recovery in place has left hold for the store as it was: so
 * they are committed at once, as the next mount would.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/base/units.h"
#include "format/journal/journal_file.h"
#include "format/store/lock.h"
#include "format/store/steps.h"
#include "format/store/store.h"
#include "tools/fsck.h"

#define LOST_DIR         "lost"
#define JOURNAL_READ_MAX (1u << 30)
#define COPY_PATH        (JOURNAL_PATH + 64)

/* journal/00000003.jnl from byte 4096 on: lost/00000003.jnl-4096, or, when an earlier repair has taken that, lost/00000003.jnl-4096.2 */
static int choose_copy(struct fsck *f, uint32_t number, uint64_t off, char copy[COPY_PATH])
{
	char path[JOURNAL_PATH];
	const char *name = strrchr(journal_path(path, number, JOURNAL_EXT), '/') + 1;
	struct io_file *file;
	int r;

	snprintf(copy, COPY_PATH, LOST_DIR "/%s-%" PRIu64, name, off);
	for (unsigned int n = 2; (r = io_open(f->io, copy, IO_READ, &file)) == 0; n++) {
		io_close(file);
		snprintf(copy, COPY_PATH, LOST_DIR "/%s-%" PRIu64 ".%u", name, off, n);
	}
	return r == -ENOENT ? 0 : r;
}

static int save_file(struct fsck *f, uint32_t number, uint64_t off, struct cistern_error *err)
{
	char path[JOURNAL_PATH], copy[COPY_PATH];
	void *bytes = NULL;
	size_t len = 0;
	int r = io_read_all(f->io, journal_path(path, number, JOURNAL_EXT), JOURNAL_READ_MAX, &bytes, &len);

	if (r == 0)
		r = choose_copy(f, number, off, copy);
	if (r == 0 && off < len) {
		r = io_replace(f->io, copy, (const uint8_t *)bytes + off, len - (size_t)off);
		f->num_saved += r == 0;
	}
	free(bytes);
	return r < 0 ? cistern_error_set(err, r, "%s: cannot be copied to " LOST_DIR ": %s", path, strerror(-r)) : 0;
}

static int save_cut_off(struct fsck *f, struct cistern_error *err)
{
	__attribute__((cleanup(journal_numbers_free))) struct journal_numbers n = { 0 };
	int r = f->io->ops->mkdir(f->io, LOST_DIR);

	if (r == -EEXIST)
		r = 0;
	if (r == 0)
		r = journal_numbers_list(f->io, JOURNAL_EXT, &n);
	if (r < 0)
		return cistern_error_set(err, r, LOST_DIR ": %s", strerror(-r));
	for (size_t i = 0; r == 0 && i < n.num; i++)
		if (n.at[i] >= f->end.file)
			r = save_file(f, n.at[i], n.at[i] == f->end.file ? f->end.off : 0, err);
	if (r == 0 && (r = f->io->ops->sync_dir(f->io, LOST_DIR)) < 0)
		cistern_error_set(err, r, LOST_DIR ": %s", strerror(-r));
	return r;
}

/* Under the store's lock, which opening the store would take, but which cannot open it yet. */
static int put_aside(struct fsck *f, bool cut, struct cistern_error *err)
{
	int lock_fd = -1, dirfd = open(f->store, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = dirfd < 0 ? cistern_error_set(err, -errno, "%s: %s", f->store, strerror(errno)) : 0;

	if (r == 0)
		r = lock_take(dirfd, f->store, false, &lock_fd, err);
	if (r == 0 && (r = io_posix_create(dirfd, &f->io)) < 0)
		cistern_error_set(err, r, "%s: %s", f->store, strerror(-r));
	if (r == 0)
		r = save_cut_off(f, err);
	if (r == 0 && f->of_job && (r = store_note_lost_power(f->io)) < 0)
		cistern_error_set(err, r, "%s: that records are lost cannot be noted: %s", f->store, strerror(-r));
	if (r == 0 && cut)
		r = journal_cut(f->io, &f->end, err);
	io_destroy(f->io);
	f->io = NULL;
	lock_release(lock_fd);
	if (dirfd >= 0)
		close(dirfd);
	return r;
}

static int cut_damage(struct fsck *f, struct cistern_error *err)
{
	int r = put_aside(f, true, err);

	if (r < 0)
		return r;
	fsck_report(f, FSCK_REPAIRED, NULL, 0, 0,
		"journal: cut at byte %" PRIu64 " of file %08" PRIu32 "; what followed is in %s/" LOST_DIR, f->end.off,
		f->end.file, f->store);
	f->num_damage--;
	f->journal_damaged = false;
	f->rebuild_index = true;
	return 0;
}

/* Segments that opening left. */
static int remove_unused(struct fsck *f, struct store *s)
{
	uint64_t live;
	int r = 0;

	for (size_t i = 0; r == 0 && i < f->num_unused; i++)
		if (state_segment_live(store_state(s), f->unused[i], &live) == -ENOENT) {
			r = segment_remove(store_segments(s), f->unused[i]);
			r = r == -ENOENT ? 0 : r;
		}
	if (r == 0 && f->num_unused)
		fsck_report(
			f, FSCK_REPAIRED, NULL, 0, 0, "segments: removed %zu that no file refers to", f->num_unused);
	return r;
}

static int take_over_recovery(struct fsck *f, struct store *s, uint64_t last_seq, struct cistern_error *err)
{
	size_t num;
	bool stale;
	int r = steps_settle(s, last_seq, &num, &stale, err);

	if (r == 0 && num)
		fsck_report(f, FSCK_REPAIRED, NULL, 0, 0, "recovery: committed the %zu steps that it left", num);
	if (r == 0 && stale)
		fsck_report(f, FSCK_NOTE, NULL, 0, 0,
			"recovery: the store is no longer as it was then; the next drain finds out what was done");
	return r;
}

/* The store has been opened, and is closed. */
static int settle(struct fsck *f, struct store *s, const struct state_report *report, struct cistern_error *err)
{
	char num[UNITS_COUNT];
	int r, closed;

	if (report->cut_bytes)
		fsck_report(f, FSCK_REPAIRED, NULL, 0, 0, "journal: cut a torn tail of %s",
			units_format_count(report->cut_bytes, "byte", num));
	r = take_over_recovery(f, s, report->last_seq, err);
	if (r < 0) {
		store_close(s);
		return r;
	}
	if (f->repair)
		r = remove_unused(f, s);
	if (r == 0 && f->index_seq)
		r = state_compact(store_state(s)); /* the journal holds what cannot be read */
	closed = store_close(s);
	r = r < 0 ? r : closed;
	if (r < 0)
		return cistern_error_set(err, r, "%s: the repair could not be finished: %s", f->store, strerror(-r));
	return 0;
}

static int reopen(struct fsck *f, enum store_mode mode, struct cistern_error *err)
{
	struct store_options opt = { .mode = mode };
	struct state_report report = { 0 };
	struct store *s;
	int r = store_open(f->store, &opt, &s, &report, err);

	/* What a mount can still read behind the index's last record is kept: alone it is only where the opening says so. */
	if (f->index_seq && mode == STORE_OPEN && (r == -EBADMSG || r == -ENOENT)) {
		opt.mode = STORE_INDEX_ALONE;
		report = (struct state_report){ 0 };
		r = store_open(f->store, &opt, &s, &report, err);
	}
	return r < 0 ? r : settle(f, s, &report, err);
}

static int rebuild_index(struct fsck *f, struct cistern_error *err)
{
	int r = reopen(f, STORE_REBUILD, err);

	if (r < 0)
		return r;
	fsck_report(f, FSCK_REPAIRED, NULL, 0, 0, "index: rebuilt from the journal");
	f->num_damage -= f->index_damaged;
	f->index_bad = f->index_damaged = false;
	return 0;
}

static void journal_is_mended(struct fsck *f)
{
	f->num_damage--;
	f->journal_damaged = f->checkpoint_damaged = f->index_is_enough = false;
	f->index_seq = 0;
	f->end = (struct journal_end){ 0 };
}

static int go_on_from_index(struct fsck *f, struct cistern_error *err)
{
	int r = put_aside(f, false, err);

	if (r == 0)
		r = reopen(f, STORE_OPEN, err);
	if (r < 0)
		return r;
	fsck_report(f, FSCK_REPAIRED, NULL, 0, 0,
		"journal: begun anew behind the index, which stands for record %" PRIu64, f->index_seq);
	if (f->num_saved)
		fsck_report(f, FSCK_REPAIRED, NULL, 0, 0,
			"journal: what was left of it behind record %" PRIu64 " is in %s/" LOST_DIR, f->end.last_seq,
			f->store);
	journal_is_mended(f);
	return 0;
}

/* The journal is good, but for what it began with. */
static int renew_checkpoint(struct fsck *f, struct cistern_error *err)
{
	int r = reopen(f, STORE_OPEN, err);

	if (r < 0)
		return r;
	fsck_report(f, FSCK_REPAIRED, NULL, 0, 0,
		"journal: its checkpoint was written anew from the index; nothing is lost");
	journal_is_mended(f);
	return 0;
}

static int repair_journal(struct fsck *f, struct cistern_error *err)
{
	if (f->index_is_enough && f->repair)
		return renew_checkpoint(f, err);
	if (!f->end.last_seq && !f->index_seq) {
		fsck_report(f, FSCK_NOTE, NULL, 0, 0,
			"not repaired: %s, and there is no index; keep a copy of the store before anything else is tried",
			f->checkpoint_damaged ? "the checkpoint that the journal builds upon is damaged"
			: f->has_checkpoint   ? "not one record of the journal behind its checkpoint can be had"
					      : "not one record of the journal can be had");
		return 0;
	}
	if (f->repair && f->discard && f->index_seq)
		return go_on_from_index(f, err);
	if (f->repair && f->discard)
		return cut_damage(f, err);
	fsck_report(f, FSCK_NOTE, NULL, 0, 0,
		f->index_seq
			? "not repaired: with --repair --discard-after-damage all is kept that the index stands for, and nothing that came behind it"
			: "not repaired: with --repair --discard-after-damage what comes before the damage is kept, and what follows is put aside");
	return 0;
}

int fsck_repair(struct fsck *f, struct cistern_error *err)
{
	if (f->journal_damaged) {
		int r = repair_journal(f, err);

		if (r < 0 || f->journal_damaged)
			return r;
	}
	if (f->rebuild_index || (f->repair && f->index_bad))
		return rebuild_index(f, err);
	return f->repair && (f->end.cut_bytes || f->num_unused) ? reopen(f, STORE_OPEN, err) : 0;
}
