/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The checks of fsck. The journal is the truth: a state is rebuilt from it into a scratch folder, outside of the
 * store, and everything else is held against that. When the journal itself is damaged there is no truth, and only the
 * journal is reported on.
 */
#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/base/array.h"
#include "format/base/crc32c.h"
#include "format/base/units.h"
#include "format/journal/journal_file.h"
#include "format/store/store.h"
#include "format/store/straggler.h"
#include "tools/fsck.h"
#include "tools/lib/clock.h"
#include "tools/lib/progress.h"
#include "tools/lib/ranges.h"
#include "tools/lib/walk.h"

#define DIFFERENCES_SHOWN 20u

/* ---- journal */

static int ignore(const struct record *rec, void *arg)
{
	return 0;
}

/* What readers of a journal say, without their advice to run this command. */
static void report_journal(struct fsck *f, const struct cistern_error *err)
{
	const char *advice = strstr(err->text, "; run \"cistern fsck\"");
	const char *text = strncmp(err->text, "journal: ", 9) == 0 ? err->text + 9 : err->text;

	fsck_report(f, FSCK_DAMAGE, NULL, 0, 0, "journal: %.*s", advice ? (int)(advice - text) : INT_MAX, text);
}

int fsck_check_journal(struct fsck *f, struct cistern_error *err)
{
	char size[UNITS_TEXT], path[JOURNAL_PATH];
	char num[UNITS_COUNT];
	uint64_t seq = 0;
	int r = journal_checkpoint_load(f->io, ignore, NULL, &seq, err);

	if (r == -EBADMSG) {
		report_journal(f, err);
		f->journal_damaged = f->checkpoint_damaged = true;
		return 0;
	}
	f->has_checkpoint = r == 0 && seq > 0;
	if (r == 0 || r == -ENOENT)
		r = journal_replay(f->io, seq, ignore, NULL, &f->end, err);
	if ((r == -EBADMSG || r == -ENOENT) && f->end.unsynced)
		return 0; /* opening the state decides whether a loss of power explains it */
	if (r == -EBADMSG || r == -ENOENT) {
		f->journal_damaged = true;
		report_journal(f, err);
		return 0;
	}
	if (r < 0)
		return r;
	fsck_report(f, FSCK_OK, NULL, 0, 0, "journal: %s up to %" PRIu64 "%s",
		units_format_count(f->end.records, "record", num), f->end.last_seq > seq ? f->end.last_seq : seq,
		seq ? ", after a checkpoint" : "");
	if (f->end.cut_bytes)
		fsck_report(f, FSCK_NOTE, NULL, 0, 0,
			"%s: a torn record of %s at byte %" PRIu64 ", as a crash leaves it; %s",
			journal_path(path, f->end.file, JOURNAL_EXT), units_format_bytes(f->end.cut_bytes, size),
			f->end.off, f->repair ? "it is cut" : "the next mount cuts it");
	return 0;
}

/* ---- index */

static int check_payload(const struct record *rec, void *arg)
{
	struct fsck *f = arg;

	return store_check_payload(f->segments, rec);
}

static int find_private(const struct record *rec, uint64_t *ret_bytes, void *arg)
{
	struct fsck *f = arg;

	return segment_restore_private(f->segments, rec->segment, rec->type == RECORD_SEAL ? rec->size : 0, ret_bytes);
}

static int any_segment(uint32_t segment, bool is_private, uint64_t bytes, void *arg)
{
	return 1;
}

static int has_segments(void *arg)
{
	struct fsck *f = arg;

	return segment_list(f->segments, any_segment, NULL);
}

static int open_state(struct fsck *f, const char *index_path, enum state_mode mode, struct state **ret,
	struct state_report *report, struct cistern_error *err)
{
	struct state_options opt = {
		.io = f->io,
		.index_path = index_path,
		.mode = mode,
		.job = f->of_job,
		.check_payload = check_payload,
		.find_private = find_private,
		.has_segments = has_segments,
		.arg = f,
	};

	return state_open(&opt, ret, report, err);
}

static int rebuild(struct fsck *f, struct state_report *report, struct cistern_error *err)
{
	const char *tmp = getenv("TMPDIR");
	char index[PATH_MAX];
	int r;

	if (snprintf(f->scratch, sizeof(f->scratch), "%s/cistern-fsck-XXXXXX", tmp && *tmp ? tmp : "/tmp") >=
		(int)sizeof(f->scratch) - 8) {
		f->scratch[0] = '\0';
		return cistern_error_set(err, -ENAMETOOLONG, "TMPDIR is too long");
	}
	if (!mkdtemp(f->scratch)) {
		r = cistern_error_set(
			err, -errno, "%s: %s; set TMPDIR to a folder with room", f->scratch, strerror(errno));
		f->scratch[0] = '\0';
		return r;
	}
	snprintf(index, sizeof(index), "%.*s/index", (int)sizeof(index) - 8, f->scratch);
	return open_state(f, index, STATE_REBUILD_READ_ONLY, &f->truth, report, err);
}

struct differences {
	struct fsck *f;
	uint64_t num;
};

static void report_difference(const char *line, void *arg)
{
	struct differences *d = arg;

	if (d->num++ < DIFFERENCES_SHOWN)
		fsck_report(d->f, FSCK_NOTE, NULL, 0, 0, "index: %s", line);
}

static int compare(struct fsck *f, struct state *index, struct cistern_error *err)
{
	struct differences d = { .f = f };
	int64_t num = state_compare(index, f->truth, report_difference, &d);

	if (num < 0)
		return cistern_error_set(err, (int)num, "index: cannot be compared: %s", strerror((int)-num));
	f->index_bad = f->index_damaged = num > 0;
	if (num > 0)
		fsck_report(f, FSCK_DAMAGE, NULL, 0, 0,
			"index: %" PRId64
			" differences to the journal, which is right; 'cistern fsck --rebuild-index %s' mends it",
			num, f->store);
	else
		fsck_report(f, FSCK_OK, NULL, 0, 0, "index: agrees with the journal");
	return 0;
}

static int report_lost_file(const char *path, const struct inode *in, void *arg)
{
	(void)in;
	fsck_report(arg, FSCK_NOTE, path, 0, 0, STATE_LOST_TEXT);
	return 0;
}

static int report_lost_writes(struct fsck *f, const struct state_report *report)
{
	char size[UNITS_TEXT];

	if (report->dropped_writes)
		fsck_report(f, FSCK_NOTE, NULL, 0, 0,
			"%" PRIu64
			" writes (%s) were never synced and went with the power of the node; they are left out",
			report->dropped_writes, units_format_bytes(report->dropped_bytes, size));
	return state_each_lost(f->truth, report_lost_file, f);
}

/* What the index says that it stands for; 0: nothing. */
static uint64_t index_seq(struct fsck *f)
{
	struct state_report report;
	char path[PATH_MAX + 16];
	struct state *index = NULL;
	uint64_t seq = 0;

	snprintf(path, sizeof(path), "%s/index", f->store);
	if (open_state(f, path, STATE_SNAPSHOT, &index, &report, NULL) == 0)
		seq = state_seq(index);
	state_destroy(index);
	return seq;
}

/* It is written behind the journal: so it cannot be ahead of a whole one. */
static void compare_ends(struct fsck *f)
{
	uint64_t seq = index_seq(f);

	if (seq <= f->end.last_seq)
		return;
	f->index_seq = seq;
	if (!f->journal_damaged)
		fsck_report(f, FSCK_DAMAGE, NULL, 0, 0,
			"journal: ends with record %" PRIu64 ", and the index stands for %" PRIu64
			": journal files, or the end of one, were lost; put them back if they are anywhere (lost+found, a backup)",
			f->end.last_seq, seq);
	f->journal_damaged = true;
}

static bool opens_as_it_is(const struct fsck *f)
{
	struct store_options opt = { .mode = STORE_READ_ONLY };
	struct state_report report = { 0 };
	struct store *s = NULL;

	if (store_open(f->store, &opt, &s, &report, NULL) < 0)
		return false;
	store_abandon(s);
	return !report.rebuilt;
}

static void report_unchecked(struct fsck *f)
{
	f->index_is_enough = f->checkpoint_damaged && f->index_seq && opens_as_it_is(f);
	fsck_report(f, FSCK_NOTE, NULL, 0, 0, "index and files are not checked, since the journal is damaged");
	if (f->index_is_enough && !f->repair)
		fsck_report(f, FSCK_NOTE, NULL, 0, 0,
			"the index, and the journal behind it, have all that the damaged checkpoint had: 'cistern fsck --repair %s' "
			"writes a new one, and loses nothing",
			f->store);
}

int fsck_check_index(struct fsck *f, struct cistern_error *err)
{
	struct state_report report = { 0 }, rebuilt = { 0 };
	char path[PATH_MAX + 16];
	struct state *index = NULL;
	int r;

	compare_ends(f);
	if (f->journal_damaged) {
		report_unchecked(f);
		return 0;
	}
	r = rebuild(f, &rebuilt, err);
	if (r == -EBADMSG || r == -ENOENT) {
		f->journal_damaged = true;
		report_journal(f, err);
		return 0;
	}
	if (r < 0)
		return r;
	if (f->end.unsynced)
		fsck_report(f, FSCK_NOTE, NULL, 0, 0,
			"journal: ends at byte %" PRIu64 " of file %08" PRIu32
			"; records behind that were never synced and went with the power of the node",
			f->end.off, f->end.file);
	r = report_lost_writes(f, &rebuilt);
	if (r < 0)
		return cistern_error_set(err, r, "index: cannot be read: %s", strerror(-r));
	snprintf(path, sizeof(path), "%s/index/CURRENT", f->store);
	if (access(path, F_OK) < 0) {
		f->index_bad = true;
		fsck_report(f, FSCK_NOTE, NULL, 0, 0, "index: missing; the next mount builds it from the journal");
		return 0;
	}
	*strrchr(path, '/') = '\0';
	r = open_state(f, path, STATE_READ_ONLY, &index, &report, err);
	if (r == 0 && !report.rebuilt) {
		r = compare(f, index, err);
	} else if (r == 0 || r == -EBADMSG || r == -EIO) {
		f->index_bad = f->index_damaged = true;
		fsck_report(f, FSCK_DAMAGE, NULL, 0, 0,
			"index: cannot be read%s%s; 'cistern fsck --rebuild-index %s' mends it", r < 0 ? ": " : "",
			r < 0 ? err->text : "", f->store);
		r = 0;
	}
	state_destroy(index);
	return r;
}

/* ---- payloads */

struct payloads {
	struct fsck *f;
	struct progress progress;
	struct progress_bytes bytes;
	uint64_t files, whole_bytes, unsummed_bytes;
	uint8_t *buf;             /* owned: EXTENT_PAGE_SPAN bytes */
	const struct inode *node; /* the file at hand; borrowed */
	/* damage that may go on in the next extent: [bad_from, bad_to) */
	uint64_t bad_from, bad_to;
	char bad_text[CISTERN_ERROR_TEXT_BYTES];
};

static void report_bad(struct payloads *p)
{
	char path[PATH_MAX];

	if (p->bad_to > p->bad_from)
		fsck_report(p->f, FSCK_DAMAGE, walk_path_of(p->f->truth, p->node->ino, path), p->bad_from, p->bad_to,
			"%s; a drain leaves this file in the store until the range is written anew or the file is deleted",
			p->bad_text);
	p->bad_from = p->bad_to = 0;
}

/* Ranges that follow one another and are bad for the same reason make one finding. */
static void note_bad(struct payloads *p, uint64_t off, uint64_t len, const char *text)
{
	if (p->bad_to != off || strcmp(p->bad_text, text) != 0) {
		report_bad(p);
		p->bad_from = off;
		snprintf(p->bad_text, sizeof(p->bad_text), "%s", text);
	}
	p->bad_to = off + len;
}

static int check_extent(const struct range *range, void *arg)
{
	struct payloads *p = arg;
	const struct extent *e = range->ext;
	char text[160] = "";
	int r;

	if (range->kind != RANGE_LOG)
		return 0;
	if (e->len > EXTENT_PAGE_SPAN)
		return -EBADMSG;
	r = segment_read(p->f->segments, e->segment, e->segment_off, p->buf, e->len);
	if (r == -ENOENT)
		snprintf(text, sizeof(text), "segment %" PRIu32 " is missing", e->segment);
	else if (r == -ENODATA)
		snprintf(text, sizeof(text), "segment %" PRIu32 " is shorter than it was", e->segment);
	else if (r < 0)
		snprintf(text, sizeof(text), "segment %" PRIu32 " cannot be read: %s", e->segment, strerror(-r));
	else if (e->whole && crc32c(0, p->buf, e->len) != e->crc)
		snprintf(text, sizeof(text), "segment %" PRIu32 " holds other bytes than were written (checksum)",
			e->segment);
	if (text[0])
		note_bad(p, range->off, range->len, text);
	p->bytes.done_bytes += range->len;
	*(e->whole ? &p->whole_bytes : &p->unsummed_bytes) += range->len;
	progress_update(&p->progress, &p->bytes, NULL, clock_usec());
	return 0;
}

/* Who had it open when the daemon died may still write to it. */
static void note_straggler(struct payloads *p, const struct inode *node)
{
	struct straggler who = { .segment = node->private_segment, .ino = node->ino };
	char path[PATH_MAX], text[STRAGGLER_TEXT];

	if (segment_find_writer(p->f->segments, node->private_segment) != 1)
		return;
	straggler_name(p->f->truth, &who, 1, NULL);
	fsck_report(p->f, FSCK_NOTE, walk_path_of(p->f->truth, node->ino, path), 0, node->size, "%s",
		straggler_text(&who, text));
}

static int check_private(struct payloads *p, const struct inode *node)
{
	uint64_t size, allocated;
	int64_t mtime_ns;
	int r = segment_private_size(p->f->segments, node->private_segment, &size, &allocated, &mtime_ns);
	char path[PATH_MAX];

	if (r < 0)
		fsck_report(p->f, FSCK_DAMAGE, walk_path_of(p->f->truth, node->ino, path), 0, node->size,
			"its private segment %" PRIu32 " %s%s; the data are lost", node->private_segment,
			r == -ENOENT ? "is missing" : "cannot be read: ", r == -ENOENT ? "" : strerror(-r));
	else if (segment_check_private(p->f->segments, node->private_segment) < 0)
		fsck_report(p->f, FSCK_DAMAGE, walk_path_of(p->f->truth, node->ino, path), 0, node->size,
			"the device has lost bytes of it; what is left is drained when the xattr " SEGMENT_FAILED
			" of segment/%08" PRIu32 ".prv is removed",
			node->private_segment);
	else
		p->unsummed_bytes += size;
	note_straggler(p, node);
	return 0;
}

static int check_inode(const struct inode *node, void *arg)
{
	struct payloads *p = arg;
	int r;

	if (!S_ISREG(node->mode))
		return 0;
	p->files++;
	p->node = node;
	if (node->flags & INODE_PRIVATE)
		return check_private(p, node);
	r = ranges_each(p->f->truth, node, node->size, check_extent, p);
	report_bad(p);
	return r;
}

int fsck_check_payloads(struct fsck *f, struct cistern_error *err)
{
	struct payloads p = { .f = f, .buf = malloc(EXTENT_PAGE_SPAN) };
	char whole[UNITS_TEXT], unsummed[UNITS_TEXT];
	uint64_t before = f->num_damage;
	struct state_totals totals;
	int r;

	if (!p.buf)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	state_totals(f->truth, &totals);
	p.bytes.total_bytes = totals.log_bytes;
	progress_init(&p.progress, stderr, "fsck", clock_usec());
	r = state_each_inode(f->truth, check_inode, &p);
	progress_end(&p.progress);
	free(p.buf);
	if (r < 0)
		return cistern_error_set(err, r, "reading the rebuilt index: %s", strerror(-r));
	if (f->num_damage == before)
		fsck_report(f, FSCK_OK, NULL, 0, 0, "files: %" PRIu64 " with %s by checksum and %s without one",
			p.files, units_format_bytes(p.whole_bytes, whole),
			units_format_bytes(p.unsummed_bytes, unsummed));
	return 0;
}

/* ---- segments */

struct in_use { /* of private segments: state_segment_live() counts the log only */
	uint32_t *ids;
	size_t num, cap;
};

static int add_id(struct in_use *u, uint32_t id)
{
	if (array_room(&u->ids, &u->cap, u->num, sizeof(*u->ids)) < 0)
		return -ENOMEM;
	u->ids[u->num++] = id;
	return 0;
}

static int note_private(const struct inode *node, void *arg)
{
	return node->private_segment ? add_id(arg, node->private_segment) : 0;
}

static int compare_ids(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

struct unused {
	struct fsck *f;
	const struct in_use *used;
	struct in_use found;
	uint64_t bytes;
	bool last_used;
	uint64_t last_bytes; /* of the last one, unless it is used; not in bytes yet */
};

static int look_at_segment(uint32_t segment, bool is_private, uint64_t bytes, void *arg)
{
	struct unused *u = arg;
	uint64_t live;

	u->bytes += u->last_bytes;
	u->last_bytes = 0;
	u->last_used =
		state_segment_live(u->f->truth, segment, &live) == 0 ||
		(u->used->num > 0 && bsearch(&segment, u->used->ids, u->used->num, sizeof(segment), compare_ids));
	if (u->last_used)
		return 0;
	u->last_bytes = bytes;
	return add_id(&u->found, segment);
}

int fsck_check_segments(struct fsck *f, struct cistern_error *err)
{
	struct in_use used = { 0 };
	struct unused u = { .f = f, .used = &used };
	char size[UNITS_TEXT];
	int r = state_each_inode(f->truth, note_private, &used);

	if (r == 0) {
		if (used.num)
			qsort(used.ids, used.num, sizeof(*used.ids), compare_ids);
		r = segment_list(f->segments, look_at_segment, &u);
	}
	free(used.ids);
	free(f->unused);
	f->unused = u.found.ids;
	/* The highest one is there for its number, which must not be given again (format/store/freed.c). */
	f->num_unused = u.found.num - (u.found.num > 0 && !u.last_used);
	if (r < 0)
		return cistern_error_set(err, r, "segments: cannot be listed: %s", strerror(-r));
	if (f->num_unused)
		fsck_report(f, FSCK_NOTE, NULL, 0, 0, "segments: %zu (%s) that no file refers to any more; %s",
			f->num_unused, units_format_bytes(u.bytes, size),
			f->repair ? "they are removed" : "the next mount removes them");
	else
		fsck_report(f, FSCK_OK, NULL, 0, 0, "segments: all are in use");
	return 0;
}

/* ---- the end */

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)!remove(path);
	return 0;
}

void fsck_close(struct fsck *f)
{
	state_destroy(f->truth);
	f->truth = NULL;
	segment_set_destroy(f->segments);
	f->segments = NULL;
	io_destroy(f->io);
	f->io = NULL;
	if (f->dirfd >= 0)
		close(f->dirfd);
	f->dirfd = -1;
	if (f->scratch[0])
		nftw(f->scratch, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	f->scratch[0] = '\0';
}
