/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The journal's writer. The present file is allocated in full and mapped, and an append is one memcpy into the mapping.
 *
 * Why that is safe against the death of the process: the mapping is shared, so stored bytes are the file's at once, and
 * nobody needs to write them out for another process to see them. SIGKILL may come in the middle of the memcpy. Then
 * some of the record's bytes are there and others are still zero (the file was allocated as zeros and nothing is ever
 * written twice in the same place), so its CRC does not fit; and journal_append had not returned, so nobody was told
 * that the record is safe. Since the caller appends one record after the other, such a record is the last one: a torn
 * tail, which the reader ends at. No order of the stores within a record is needed. A record that is whole by chance
 * although append did not return is no harm either: its operation was under way.
 *
 * Against the loss of power only journal_sync helps. Pages reach the device in any order, so behind the last sync any
 * part may be missing. After each sync a sync mark is appended and each file's header says what was durable before
 * it: with them the reader knows what must be readable and what may be lost (journal_file.h).
 *
 * Two locks. sync_lock: one journal_sync at a time. lock: everything in struct journal; held over an append, never over
 * a sync. Files that a rotation left are "retired": they wait for the next journal_sync, which alone closes them.
 */
#include "format/journal/journal.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/clock.h"
#include "format/journal/journal_file.h"

#define MAP_UNIT 4096u

struct file {                 /* the present one */
	struct io_file *file; /* owned */
	uint8_t *map;         /* owned, all of size */
	size_t size, used;
	uint32_t number;
};

struct retired {
	struct io_file *file; /* owned; not synced yet */
	struct retired *next; /* the next younger one */
};

struct journal {
	struct io *io; /* borrowed */
	size_t file_bytes;
	pthread_mutex_t sync_lock, lock;
	/* under lock */
	struct file present;
	struct retired *retired; /* the oldest first */
	struct journal_run run;
	struct buf scratch;
	uint64_t next_seq, durable_seq;
	uint32_t next_number;
	bool new_names; /* files were created since the folder was last synced */
	int failed;     /* a sync failed: nothing more is accepted */
};

/* ---- files */

static int map_new_file(struct file *f)
{
	void *map;
	int r = f->file->ops->allocate(f->file, 0, f->size);

	if (!r)
		r = f->file->ops->map(f->file, f->size, true, &map);
	if (!r)
		f->map = map;
	return r;
}

/* Creates, allocates and maps a file with room for a record of need bytes, and writes its header. All or nothing. */
static int begin_file(struct journal *j, size_t need)
{
	struct journal_header header = { .number = j->next_number,
		.first_seq = j->next_seq,
		.created_ns = clock_wall_ns(),
		.durable_seq = j->durable_seq };
	size_t least = (JOURNAL_BLOCK + need + MAP_UNIT - 1) / MAP_UNIT * MAP_UNIT;
	struct file f = {
		.size = j->file_bytes > least ? j->file_bytes : least, .used = JOURNAL_BLOCK, .number = j->next_number
	};
	uint8_t block[JOURNAL_BLOCK];
	char path[JOURNAL_PATH];
	int r;

	if (f.number == UINT32_MAX)
		return -EOVERFLOW;
	journal_path(path, f.number, JOURNAL_EXT);
	r = io_open(j->io, path, IO_READ | IO_WRITE | IO_CREATE | IO_EXCL, &f.file);
	if (r)
		return r;
	r = map_new_file(&f);
	if (r) {
		io_close(f.file);
		if (j->io->ops->unlink(j->io, path))
			j->next_number++; /* an empty file stays behind; readers pass over it */
		return r;
	}
	journal_header_encode(JOURNAL_LOG, &header, block);
	memcpy(f.map, block, sizeof(block));
	j->present = f;
	j->next_number++;
	j->run.open = false;
	j->new_names = true;
	return 0;
}

/* The unused rest is given back. That it fails is no harm: readers take zeros for the end. */
static void trim_file(struct file *f)
{
	f->file->ops->unmap(f->file, f->map, f->size);
	f->map = NULL;
	(void)f->file->ops->truncate(f->file, f->used);
}

/* The next file takes over; the present one is kept until it has been synced. */
static int rotate(struct journal *j, size_t need)
{
	struct file old = j->present;
	struct retired *entry = calloc(1, sizeof(*entry)), **last;
	int r;

	if (!entry)
		return -ENOMEM;
	r = begin_file(j, need);
	if (r) {
		free(entry);
		return r;
	}
	trim_file(&old);
	entry->file = old.file;
	for (last = &j->retired; *last; last = &(*last)->next)
		;
	*last = entry;
	return 0;
}

int journal_rotate(struct journal *j, uint32_t *ret_number)
{
	int r;

	pthread_mutex_lock(&j->lock);
	r = j->failed ? j->failed : rotate(j, 0);
	if (!r)
		*ret_number = j->present.number;
	pthread_mutex_unlock(&j->lock);
	return r;
}

/* ---- append */

static void put(struct journal *j, const void *bytes, size_t len)
{
	memcpy(j->present.map + j->present.used, bytes, len);
	j->present.used += len;
}

static size_t room(const struct journal *j)
{
	return j->present.size - j->present.used;
}

static int put_record(struct journal *j, const struct record *rec)
{
	int r;

	buf_reset(&j->scratch);
	r = record_encode(rec, &j->scratch);
	if (r)
		return r;
	if (j->scratch.len > room(j))
		r = rotate(j, j->scratch.len);
	if (!r)
		put(j, j->scratch.data, j->scratch.len);
	return r;
}

static int append(struct journal *j, const struct record *rec)
{
	uint8_t entry[JOURNAL_RUN_MAX];
	size_t len;
	int r = 0;

	if (journal_run_continues(&j->run, rec)) {
		len = journal_run_encode(&j->run, rec, entry);
		if (len <= room(j))
			put(j, entry, len);
		else
			r = put_record(j, rec);
	} else {
		r = put_record(j, rec);
	}
	return r;
}

int journal_append(struct journal *j, struct record *rec)
{
	uint64_t seq_before = rec->seq;
	int r;

	pthread_mutex_lock(&j->lock);
	r = j->failed;
	if (!r) {
		rec->seq = j->next_seq;
		r = append(j, rec);
	}
	if (r) {
		rec->seq = seq_before;
	} else {
		j->next_seq++;
		journal_run_follow(&j->run, rec);
	}
	pthread_mutex_unlock(&j->lock);
	return r;
}

uint64_t journal_next_seq(const struct journal *j)
{
	return j->next_seq;
}

/* ---- sync */

struct sync_job {
	struct retired *retired, *last; /* the part of the list to sync, both ends included */
	struct io_file *present;
	uint64_t seq;
	bool new_names;
};

/* What is to be done, under the lock. False: nothing. */
static bool sync_plan(struct journal *j, struct sync_job *job)
{
	*job = (struct sync_job){
		.retired = j->retired, .present = j->present.file, .seq = j->next_seq - 1, .new_names = j->new_names
	};
	for (job->last = j->retired; job->last && job->last->next; job->last = job->last->next)
		;
	j->new_names = false;
	return job->retired || job->new_names || job->seq > j->durable_seq;
}

static int sync_files(struct journal *j, const struct sync_job *job)
{
	int r = 0;

	for (struct retired *e = job->retired; e && !r; e = e == job->last ? NULL : e->next)
		r = e->file->ops->sync(e->file);
	if (!r)
		r = job->present->ops->sync(job->present);
	if (!r && job->new_names)
		r = j->io->ops->sync_dir(j->io, JOURNAL_DIR);
	return r;
}

static void close_retired(struct journal *j, const struct sync_job *job)
{
	struct retired *e, *rest = job->last ? job->last->next : j->retired;

	while (j->retired != rest) {
		e = j->retired;
		j->retired = e->next;
		io_close(e->file);
		free(e);
	}
}

static void sync_done(struct journal *j, const struct sync_job *job)
{
	uint8_t mark[JOURNAL_MARK_BYTES];

	close_retired(j, job);
	if (job->seq <= j->durable_seq)
		return;
	j->durable_seq = job->seq;
	if (room(j) < sizeof(mark))
		return; /* the next file's header will say it */
	journal_mark_encode(job->seq, mark);
	put(j, mark, sizeof(mark));
}

/*
 * A failed sync is final: the kernel may have dropped the pages that it could not write, and a second sync that
 * succeeds would prove nothing. It is never -ENOSPC, with which an append says that nothing has happened.
 */
int journal_sync(struct journal *j, uint64_t *ret_seq)
{
	struct sync_job job;
	bool needed;
	int r;

	pthread_mutex_lock(&j->sync_lock);
	pthread_mutex_lock(&j->lock);
	r = j->failed;
	needed = !r && sync_plan(j, &job);
	if (needed) {
		pthread_mutex_unlock(&j->lock);
		r = sync_files(j, &job);
		pthread_mutex_lock(&j->lock);
		if (r)
			r = j->failed = -EIO;
		else
			sync_done(j, &job);
	}
	if (!r && ret_seq)
		*ret_seq = job.seq;
	pthread_mutex_unlock(&j->lock);
	pthread_mutex_unlock(&j->sync_lock);
	return r;
}

/* ---- begin and end */

static int sync_one(struct io *io, uint32_t number)
{
	__attribute__((cleanup(journal_close_file))) struct io_file *file = NULL;
	char path[JOURNAL_PATH];
	int r = io_open(io, journal_path(path, number, JOURNAL_EXT), IO_READ | IO_WRITE, &file);

	return r ? r : file->ops->sync(file);
}

static void remove_stale_temps(struct io *io)
{
	__attribute__((cleanup(journal_numbers_free))) struct journal_numbers temps = { 0 };
	char path[JOURNAL_PATH];

	if (journal_numbers_list(io, CHECKPOINT_TEMP_EXT, &temps))
		return;
	for (size_t i = 0; i < temps.num; i++)
		(void)io->ops->unlink(io, journal_path(path, temps.at[i], CHECKPOINT_TEMP_EXT));
}

/*
 * What the last process left is made durable first: its death may have left records in the page cache alone, and
 * journal_sync, which knows only files of this one, promises all records.
 */
static int settle_old_files(struct io *io, uint32_t *ret_next_number)
{
	__attribute__((cleanup(journal_numbers_free))) struct journal_numbers logs = { 0 }, checkpoints = { 0 };
	int r = io->ops->mkdir(io, JOURNAL_DIR);

	if (!r)
		r = io->ops->sync_dir(io, ".");
	else if (r == -EEXIST)
		r = 0;
	if (!r)
		r = journal_numbers_list(io, JOURNAL_EXT, &logs);
	if (!r)
		r = journal_numbers_list(io, CHECKPOINT_EXT, &checkpoints);
	for (size_t i = 0; i < logs.num && !r; i++)
		r = sync_one(io, logs.at[i]);
	if (!r)
		r = io->ops->sync_dir(io, JOURNAL_DIR);
	if (r)
		return r;
	remove_stale_temps(io);
	*ret_next_number = logs.num ? logs.at[logs.num - 1] + 1 : 1;
	/* A checkpoint's number is that of the file that follows it: not one lower may be given out again. */
	if (checkpoints.num && checkpoints.at[checkpoints.num - 1] > *ret_next_number)
		*ret_next_number = checkpoints.at[checkpoints.num - 1];
	return 0;
}

int journal_create(
	struct io *io, uint64_t file_bytes, uint64_t first_seq, struct journal **ret, struct cistern_error *err)
{
	struct journal *j;
	int r;

	if (first_seq == 0 || file_bytes > JOURNAL_FILE_LIMIT)
		return cistern_error_set(err, -EINVAL, "journal: file size %llu or first record %llu is out of range",
			(unsigned long long)file_bytes, (unsigned long long)first_seq);
	j = calloc(1, sizeof(*j));
	if (!j)
		return cistern_error_set(err, -ENOMEM, "journal: out of memory");
	j->io = io;
	j->file_bytes = (size_t)((file_bytes + MAP_UNIT - 1) / MAP_UNIT * MAP_UNIT);
	j->next_seq = first_seq;
	j->durable_seq = first_seq - 1;
	pthread_mutex_init(&j->lock, NULL);
	pthread_mutex_init(&j->sync_lock, NULL);
	r = settle_old_files(io, &j->next_number);
	if (r)
		cistern_error_set(err, r,
			"journal: its files cannot be listed and synced: %s; check the store's file system",
			strerror(-r));
	else if ((r = begin_file(j, JOURNAL_BLOCK)))
		cistern_error_set(err, r, "journal: cannot allocate file %u: %s; make room on the store's file system",
			j->next_number, strerror(-r));
	if (r) {
		journal_destroy(j);
		return r;
	}
	*ret = j;
	return 0;
}

void journal_destroy(struct journal *j)
{
	struct sync_job all = { 0 };

	if (!j)
		return;
	if (j->present.file) {
		trim_file(&j->present);
		io_close(j->present.file);
	}
	for (all.last = j->retired; all.last && all.last->next; all.last = all.last->next)
		;
	close_retired(j, &all);
	buf_free(&j->scratch);
	pthread_mutex_destroy(&j->lock);
	pthread_mutex_destroy(&j->sync_lock);
	free(j);
}

/* ---- space */

static uint64_t size_of(struct io *io, uint32_t number, const char *ext)
{
	__attribute__((cleanup(journal_close_file))) struct io_file *file = NULL;
	char path[JOURNAL_PATH];
	uint64_t size;

	if (io_open(io, journal_path(path, number, ext), IO_READ, &file) || file->ops->size(file, &size))
		return 0;
	return size;
}

static uint64_t sum_sizes(struct io *io, const char *ext, uint32_t except)
{
	__attribute__((cleanup(journal_numbers_free))) struct journal_numbers n = { 0 };
	uint64_t sum = 0;

	if (journal_numbers_list(io, ext, &n))
		return 0;
	for (size_t i = 0; i < n.num; i++)
		if (n.at[i] != except)
			sum += size_of(io, n.at[i], ext);
	return sum;
}

/* Looks at the folder, since files go away without us (journal_remove_before): tens of microseconds. */
uint64_t journal_bytes(const struct journal *j)
{
	struct journal *own = (struct journal *)j; /* the lock is no part of what const promises */
	uint64_t used;
	uint32_t number;

	pthread_mutex_lock(&own->lock);
	used = j->present.used;
	number = j->present.number;
	pthread_mutex_unlock(&own->lock);
	return used + sum_sizes(j->io, JOURNAL_EXT, number) + sum_sizes(j->io, CHECKPOINT_EXT, 0);
}

static int remove_lower(struct io *io, const char *ext, uint32_t number)
{
	__attribute__((cleanup(journal_numbers_free))) struct journal_numbers n = { 0 };
	char path[JOURNAL_PATH];
	int r = journal_numbers_list(io, ext, &n);

	for (size_t i = 0; i < n.num && n.at[i] < number && !r; i++)
		r = io->ops->unlink(io, journal_path(path, n.at[i], ext));
	return r;
}

/* What stays must be durable before the rest goes, at least so far that one can see where it begins. */
int journal_remove_before(struct io *io, uint32_t number)
{
	int r = sync_one(io, number);

	if (!r)
		r = io->ops->sync_dir(io, JOURNAL_DIR);
	if (!r)
		r = remove_lower(io, JOURNAL_EXT, number);
	if (!r)
		r = remove_lower(io, CHECKPOINT_EXT, number);
	return r ? r : io->ops->sync_dir(io, JOURNAL_DIR);
}
