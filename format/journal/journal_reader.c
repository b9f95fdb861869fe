/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The journal's reader. A file is read into memory as a whole (a mapping would turn a bad sector into SIGBUS) and walked
 * record by record; the seq of each must be one more than that of the one before, also across files.
 *
 * Where that ends, judge() decides what it means. Behind the place there may be nothing but a torn record: the death of
 * a process in the middle of an append. Or valid records or further files: then something in front of them is missing.
 * Bytes rot, and files get lost, and that is damage. But power loss does the same to what was never synced, because
 * pages and names reach the device in any order. The sync marks and file headers behind the place are the evidence: if
 * one of them covers the missing record, the record was on the device once, and it is damage for certain.
 */
#include "format/journal/journal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/journal/journal_file.h"

#define GUESSES_MAX 1024u /* seqs to try for a run entry behind a gap; a lost page of 4096 bytes holds at most 256 */

struct source { /* a journal file */
	uint32_t number;
	int status; /* of its header: 0, -ENODATA, -EBADMSG */
	struct journal_header header;
};

struct reader {
	struct io *io;
	uint64_t after_seq;
	int (*each)(const struct record *rec, void *arg);
	void *arg;
	struct journal_end *end;
	struct cistern_error *err;

	struct source *sources; /* owned, by number */
	size_t num_sources;

	uint64_t expected; /* seq of the next record */
	char version[64];  /* of the software that opened the store for what follows; "": not known */
	bool stopped;      /* each() wants no more */
	struct journal_run run;
	struct record_scratch scratch;
	uint8_t *data; /* owned: the present file */
	size_t size, cap;
};

static void reader_cleanup(struct reader *rd)
{
	record_scratch_free(&rd->scratch);
	free(rd->sources);
	free(rd->data);
}

static bool all_zero(const uint8_t *p, size_t len)
{
	return len == 0 || (p[0] == 0 && memcmp(p, p + 1, len - 1) == 0);
}

static int say(struct reader *rd, uint32_t number, int code, const char *what)
{
	char path[JOURNAL_PATH];

	return cistern_error_set(
		rd->err, code, "%s: %s: %s", journal_path(path, number, JOURNAL_EXT), what, strerror(-code));
}

/* ---- files */

static int peek_header(struct reader *rd, struct source *src)
{
	__attribute__((cleanup(journal_close_file))) struct io_file *file = NULL;
	uint8_t block[JOURNAL_BLOCK];
	char path[JOURNAL_PATH];
	ssize_t n;
	int r = io_open(rd->io, journal_path(path, src->number, JOURNAL_EXT), IO_READ, &file);

	if (r)
		return say(rd, src->number, r, "cannot be opened");
	n = file->ops->pread(file, block, sizeof(block), 0);
	if (n < 0)
		return say(rd, src->number, (int)n, "cannot be read");
	src->status = journal_header_decode(JOURNAL_LOG, block, (size_t)n, &src->header);
	if (src->status == -EPROTONOSUPPORT)
		return cistern_error_set(
			rd->err, src->status, "%s was written by a newer version of Cistern: use that one", path);
	if (!src->status && src->header.number != src->number)
		src->status = -EBADMSG;
	return 0;
}

static int find_sources(struct reader *rd)
{
	__attribute__((cleanup(journal_numbers_free))) struct journal_numbers n = { 0 };
	int r = journal_numbers_list(rd->io, JOURNAL_EXT, &n);

	if (r)
		return cistern_error_set(rd->err, r, JOURNAL_DIR ": cannot be listed: %s", strerror(-r));
	rd->sources = calloc(n.num + 1, sizeof(*rd->sources));
	if (!rd->sources)
		return cistern_error_set(rd->err, -ENOMEM, "journal: out of memory");
	for (; rd->num_sources < n.num && !r; rd->num_sources++) {
		rd->sources[rd->num_sources].number = n.at[rd->num_sources];
		r = peek_header(rd, &rd->sources[rd->num_sources]);
	}
	return r;
}

static int load(struct reader *rd, uint32_t number)
{
	__attribute__((cleanup(journal_close_file))) struct io_file *file = NULL;
	char path[JOURNAL_PATH];
	uint64_t size = 0;
	int r = io_open(rd->io, journal_path(path, number, JOURNAL_EXT), IO_READ, &file);

	if (!r)
		r = file->ops->size(file, &size);
	if (!r && size > JOURNAL_FILE_LIMIT)
		r = -EFBIG;
	if (!r && size > rd->cap) {
		free(rd->data);
		rd->cap = 0;
		rd->data = malloc((size_t)size);
		if (rd->data)
			rd->cap = (size_t)size;
		else
			r = -ENOMEM;
	}
	if (!r)
		r = io_read_exact(file, rd->data, (size_t)size, 0);
	rd->size = (size_t)size;
	return r ? say(rd, number, r, "cannot be read") : 0;
}

/* ---- what lies behind a place where reading ended */

struct evidence {
	uint64_t durable_seq; /* everything up to here was once synced */
	uint64_t num_records; /* whole ones, with a seq that may stand there */
	uint64_t num_files;   /* that hold anything at all */
};

/* The seq of a whole run entry at p that comes at most num_missing records after rd->expected; 0: none. */
static uint64_t guess_entry(uint64_t from, uint64_t num_missing, const uint8_t *p, size_t len, size_t *ret_used)
{
	for (uint64_t i = 0; i <= num_missing && i <= GUESSES_MAX; i++)
		if (journal_run_is_entry(from + i, p, len, ret_used))
			return from + i;
	return 0;
}

/* A record, be it one that only a newer program understands: that is no torn tail. */
static bool is_whole(struct reader *rd, const uint8_t *p, size_t left, struct record *rec, size_t *ret_used)
{
	size_t used;
	int r = record_decode(p, left, &rd->scratch, rec, &used);

	if (r && r != -EPROTONOSUPPORT)
		return false;
	*ret_used = used;
	return true;
}

/*
 * Looks for whole things of the journal from off to the end of the file in memory, at every place where one could begin.
 * Run entries have no seq in them: it is guessed from how many could have stood in between.
 */
static void gather(struct reader *rd, size_t off, struct evidence *ev)
{
	uint64_t next = rd->expected, seq, durable;
	size_t used = 0, known = off; /* where the record next was, or would have been */
	struct record rec;

	for (off = (off + JOURNAL_ALIGN - 1) / JOURNAL_ALIGN * JOURNAL_ALIGN; off < rd->size; off += used) {
		const uint8_t *p = rd->data + off;
		size_t left = rd->size - off;

		used = JOURNAL_ALIGN;
		if (!journal_mark_decode(p, left, &durable)) {
			used = JOURNAL_MARK_BYTES;
			if (durable > ev->durable_seq)
				ev->durable_seq = durable;
			continue;
		}
		seq = left >= 2 && p[0] == 'r' ? guess_entry(next, (off - known) / JOURNAL_MARK_BYTES, p, left, &used)
					       : 0;
		if (!seq && left >= 4 && p[0] == 'C' && is_whole(rd, p, left, &rec, &used))
			seq = rec.seq >= rd->expected ? rec.seq : 0;
		if (seq) {
			ev->num_records++;
			next = seq + 1;
			known = off + used;
		}
	}
}

/* Files from index on. 0 or why one cannot be read. */
static int gather_files(struct reader *rd, size_t index, struct evidence *ev)
{
	for (; index < rd->num_sources; index++) {
		const struct source *src = &rd->sources[index];
		int r = load(rd, src->number);

		if (r)
			return r;
		if (all_zero(rd->data, rd->size))
			continue;
		ev->num_files++;
		if (!src->status && src->header.durable_seq > ev->durable_seq)
			ev->durable_seq = src->header.durable_seq;
		gather(rd, rd->size < JOURNAL_BLOCK ? rd->size : JOURNAL_BLOCK, ev);
	}
	return 0;
}

static size_t used_bytes(const uint8_t *p, size_t len)
{
	while (len > 0 && !p[len - 1])
		len--;
	return len;
}

/* The file in memory, sources[index], is good up to off. What is there? 0: a torn tail. */
static int judge(struct reader *rd, size_t index, size_t off)
{
	uint32_t number = rd->sources[index].number;
	struct evidence ev = { 0 };
	char path[JOURNAL_PATH];
	int r;

	rd->end->file = number;
	rd->end->off = off;
	rd->end->cut_bytes = used_bytes(rd->data + off, rd->size - off);
	gather(rd, off, &ev);
	r = gather_files(rd, index + 1, &ev);
	if (r || (!ev.num_records && !ev.num_files && ev.durable_seq < rd->expected))
		return r;
	rd->end->unsynced = ev.durable_seq < rd->expected;
	return cistern_error_set(rd->err, -EBADMSG,
		"%s: record %" PRIu64 " at byte %zu is damaged, %" PRIu64 " good records and %" PRIu64
		" files follow it%s; run \"cistern fsck\" on the store",
		journal_path(path, number, JOURNAL_EXT), rd->expected, off, ev.num_records, ev.num_files,
		rd->end->unsynced ? " (none of them was ever synced)" : "");
}

/* sources[index] begins with a later record than the expected one. */
static int judge_gap(struct reader *rd, size_t index)
{
	uint64_t first_seq = rd->sources[index].header.first_seq;
	uint32_t number = rd->sources[index].number;
	struct evidence ev = { 0 };
	char path[JOURNAL_PATH];
	int r = gather_files(rd, index, &ev);

	if (r)
		return r;
	rd->end->unsynced = ev.durable_seq < rd->expected;
	return cistern_error_set(rd->err, -ENOENT,
		"%s begins with record %" PRIu64 ", but %" PRIu64
		" comes next: a journal file was lost%s; run \"cistern fsck\" on the store",
		journal_path(path, number, JOURNAL_EXT), first_seq, rd->expected,
		rd->end->unsynced ? " (it was never synced)" : "");
}

/* ---- records */

/*
 * What stands at off. 0: *ret_used bytes, and a record unless *ret_is_mark. -ENODATA: the end of what was written;
 * -EBADMSG: not what should stand here; others: cannot go on.
 */
static int next_item(struct reader *rd, size_t off, struct record *rec, size_t *ret_used, bool *ret_is_mark)
{
	const uint8_t *p = rd->data + off;
	size_t left = rd->size - off;
	uint64_t durable;
	int r;

	*ret_is_mark = false;
	if (left >= JOURNAL_ALIGN && p[0] == 'r')
		return journal_run_decode(&rd->run, rd->expected, p, left, rec, ret_used);
	if (left >= JOURNAL_ALIGN && p[0] == 's') {
		*ret_is_mark = true;
		*ret_used = JOURNAL_MARK_BYTES;
		r = journal_mark_decode(p, left, &durable);
		return !r && durable >= rd->expected ? -EBADMSG : r;
	}
	r = record_decode(p, left, &rd->scratch, rec, ret_used);
	if (r == -ENODATA)
		return all_zero(p, left) ? -ENODATA : -EBADMSG;
	return !r && rec->seq != rd->expected ? -EBADMSG : r;
}

static void note_version(struct reader *rd, const struct record *rec)
{
	size_t len = rec->value_len < sizeof(rd->version) ? rec->value_len : 0;

	if (rec->type != RECORD_MOUNT)
		return;
	if (len)
		memcpy(rd->version, rec->value, len);
	rd->version[len] = '\0';
}

/* The record is whole, and not for this program. */
static int say_newer(struct reader *rd, uint32_t number)
{
	uint32_t unknown = rd->scratch.trailer.unknown;
	char path[JOURNAL_PATH], what[48] = "is of a version that is not known here";

	if (unknown)
		snprintf(what, sizeof(what), "needs field %" PRIu32 ", which is not known here", unknown);
	return cistern_error_set(rd->err, -EPROTONOSUPPORT,
		"%s: record %" PRIu64
		" %s: a newer Cistern wrote it%s%s%s; use that version, or a newer one, for this store. Nothing "
		"in it has been changed",
		journal_path(path, number, JOURNAL_EXT), rd->expected, what, rd->version[0] ? " (" : "", rd->version,
		rd->version[0] ? ")" : "");
}

/* Up to the end of what was written, or the first thing that is not good: *ret_off, and -ENODATA or -EBADMSG. */
static int read_records(struct reader *rd, size_t *ret_off)
{
	struct record rec;
	size_t off = JOURNAL_BLOCK, used;
	bool is_mark;
	int r;

	for (;; off += used) {
		*ret_off = off;
		r = next_item(rd, off, &rec, &used, &is_mark);
		if (r)
			return r;
		if (is_mark)
			continue;
		journal_run_follow(&rd->run, &rec);
		note_version(rd, &rec);
		rd->end->last_seq = rd->expected++;
		if (rec.seq <= rd->after_seq)
			continue;
		rd->end->records++;
		rd->end->off = off + used;
		r = rd->each(&rec, rd->arg);
		rd->stopped = r != 0;
		if (r)
			return r;
	}
}

/* *ret_more: whether the files behind it are to be read. */
static int read_file(struct reader *rd, size_t index, bool *ret_more)
{
	const struct source *src = &rd->sources[index];
	size_t off;
	int r = load(rd, src->number);

	*ret_more = !r;
	if (r || all_zero(rd->data, rd->size))
		return r; /* never begun: created, and then the process or the power ended */
	*ret_more = false;
	if (src->status || src->header.first_seq < rd->expected)
		return judge(rd, index, 0);
	if (src->header.first_seq > rd->expected)
		return judge_gap(rd, index);
	rd->end->file = src->number;
	rd->end->off = JOURNAL_BLOCK;
	rd->run.open = false;
	r = read_records(rd, &off);
	if (rd->stopped)
		return r;
	if (r == -EBADMSG)
		return judge(rd, index, off);
	if (r == -EPROTONOSUPPORT)
		return say_newer(rd, src->number);
	if (r != -ENODATA)
		return r;
	rd->end->off = off;
	*ret_more = true;
	return 0;
}

/* The last file that may hold the first record wanted; a bad header never is it while a good one is. */
static size_t find_start(struct reader *rd)
{
	size_t start = SIZE_MAX;

	rd->expected = rd->after_seq + 1;
	for (size_t i = 0; i < rd->num_sources; i++)
		if (!rd->sources[i].status && rd->sources[i].header.first_seq <= rd->after_seq + 1)
			start = i;
	if (start == SIZE_MAX)
		return 0; /* whatever the first file is, reading it says what is wrong */
	rd->expected = rd->sources[start].header.first_seq;
	rd->end->last_seq = rd->expected - 1;
	return start;
}

static int replay(struct reader *rd)
{
	bool more = true;
	int r = find_sources(rd);

	if (r)
		return r;
	for (size_t i = find_start(rd); !r && more && i < rd->num_sources; i++)
		r = read_file(rd, i, &more);
	if (!r && !rd->stopped && rd->end->last_seq < rd->after_seq)
		r = cistern_error_set(rd->err, -ENOENT,
			JOURNAL_DIR ": ends with record %" PRIu64 ", before %" PRIu64
				    ": files were lost; run \"cistern fsck\" on the store",
			rd->end->last_seq, rd->after_seq);
	return r;
}

int journal_replay(struct io *io, uint64_t after_seq, int (*each)(const struct record *rec, void *arg), void *arg,
	struct journal_end *ret_end, struct cistern_error *err)
{
	__attribute__((cleanup(reader_cleanup))) struct reader rd = {
		.io = io, .after_seq = after_seq, .each = each, .arg = arg, .end = ret_end, .err = err
	};

	*ret_end = (struct journal_end){ 0 };
	if (after_seq == UINT64_MAX)
		return cistern_error_set(err, -EINVAL, "journal: no record can follow the last possible one");
	return replay(&rd);
}

/* ---- cutting */

/* The youngest first: if this is interrupted, what remains reads like before, with fewer files. */
static int remove_later(struct io *io, uint32_t number)
{
	__attribute__((cleanup(journal_numbers_free))) struct journal_numbers n = { 0 };
	char path[JOURNAL_PATH];
	int r = journal_numbers_list(io, JOURNAL_EXT, &n);
	size_t before = n.num;

	while (!r && n.num > 0 && n.at[n.num - 1] > number)
		r = io->ops->unlink(io, journal_path(path, n.at[--n.num], JOURNAL_EXT));
	return !r && n.num < before ? io->ops->sync_dir(io, JOURNAL_DIR) : r;
}

int journal_cut(struct io *io, const struct journal_end *end, struct cistern_error *err)
{
	__attribute__((cleanup(journal_close_file))) struct io_file *file = NULL;
	char path[JOURNAL_PATH];
	int r;

	journal_path(path, end->file, JOURNAL_EXT);
	r = remove_later(io, end->file);
	if (!r && !end->file)
		return 0; /* there was not one good record */
	if (!r)
		r = io_open(io, path, IO_READ | IO_WRITE, &file);
	if (!r)
		r = file->ops->truncate(file, end->off);
	if (!r)
		r = file->ops->sync(file);
	return r ? cistern_error_set(err, r, "%s: cannot be cut at byte %" PRIu64 ": %s", path, end->off, strerror(-r))
		 : 0;
}
