/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The data log: appending, reading, syncing. An append takes its place under the lock (a pointer is bumped) and writes
 * outside of it, so that threads copy into the page cache side by side. A place that was taken is never given out
 * again, also when the write failed: the record that would name it is not written then.
 *
 * Syncing. A segment becomes dirty after each pwrite and before segment_append returns. segment_sync clears the mark and
 * then syncs: an append that ends in between sets it again, for the next sync. sync_lock makes a second caller wait
 * for the first: it would find nothing dirty although the first has not finished. After a failed sync nothing is promised
 * any more: the kernel may have dropped the pages.
 *
 * Early writing. Every 1 MiB of a segment that is complete is handed to the device at once, without waiting, so that
 * a later fsync finds little left to do. It is a matter of speed only, so its result is not looked at.
 */
#include "format/segment/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "format/segment/segment_table.h"

#define SMALLEST (1u << 20) /* of a new segment when room is short */

/* ---- open and destroy */

static int make_folder(struct segment_set *set)
{
	int r;

	if (set->opt.read_only)
		return 0;
	r = set->io->ops->mkdir(set->io, SEGMENT_DIR);
	if (r)
		return r == -EEXIST ? 0 : r;
	return set->io->ops->sync_dir(set->io, ".");
}

int segment_set_open(
	struct io *io, const struct segment_options *opt, struct segment_set **ret, struct cistern_error *err)
{
	struct segment_set *set;
	int r;

	if (!opt->read_only && (opt->segment_bytes < SEGMENT_BLOCK || opt->segment_bytes > UINT32_MAX))
		return cistern_error_set(err, -EINVAL, "segment: a size of %llu bytes is out of range",
			(unsigned long long)opt->segment_bytes);
	set = calloc(1, sizeof(*set));
	if (!set)
		return cistern_error_set(err, -ENOMEM, "segment: out of memory");
	set->io = io;
	set->opt = *opt;
	pthread_mutex_init(&set->lock, NULL);
	pthread_mutex_init(&set->sync_lock, NULL);
	r = make_folder(set);
	if (!r)
		r = segment_table_load(set);
	if (r) {
		segment_set_destroy(set);
		return cistern_error_set(err, r,
			SEGMENT_DIR ": its files cannot be listed: %s; check the store's file system", strerror(-r));
	}
	*ret = set;
	return 0;
}

void segment_set_destroy(struct segment_set *set)
{
	if (!set)
		return;
	segment_close_current(set);
	segment_table_destroy(set);
	pthread_mutex_destroy(&set->lock);
	pthread_mutex_destroy(&set->sync_lock);
	free(set);
}

/* ---- append */

void segment_close_current(struct segment_set *set)
{
	struct segment *seg = set->current;
	uint64_t unused;

	if (!seg)
		return;
	seg->size = set->current_end;
	unused = segment_blocks(set->current_bytes) - segment_blocks(seg->size);
	unused = unused < seg->allocated ? unused : seg->allocated;
	if (!seg->file->ops->truncate(seg->file, seg->size))
		segment_set_allocated(set, seg, seg->allocated - unused);
	set->current = NULL;
	free(set->chunk_bytes);
	set->chunk_bytes = NULL;
	segment_unuse(set, seg);
}

/* A new .seg with room for len bytes; smaller than wished for when there is no room. */
static int begin_segment(struct segment_set *set, size_t len)
{
	uint64_t least = segment_blocks(len > SMALLEST ? len : SMALLEST);
	uint64_t bytes = segment_blocks(set->opt.segment_bytes);
	struct segment *seg;
	uint32_t *chunks;
	int r;

	if (bytes < segment_blocks(len))
		bytes = segment_blocks(len);
	chunks = calloc((size_t)(bytes / SEGMENT_CHUNK + 1), sizeof(*chunks));
	if (!chunks)
		return -ENOMEM;
	for (;;) {
		r = segment_table_create(set, false, bytes, &seg);
		if (r != -ENOSPC || bytes <= least)
			break;
		bytes = segment_blocks(bytes / 2);
		bytes = bytes < least ? least : bytes;
	}
	if (r) {
		free(chunks);
		return r;
	}
	segment_close_current(set);
	set->current = seg;
	set->current_end = 0;
	set->current_bytes = bytes;
	set->chunk_bytes = chunks;
	return 0;
}

struct place {
	struct segment *seg;
	uint64_t from; /* the end of the payload before: what lies between is padding */
	uint64_t off, end;
};

static int take_place(struct segment_set *set, size_t len, struct place *ret)
{
	uint64_t off;
	int r;

	for (;;) {
		off = len >= SEGMENT_ALIGN_FROM ? segment_blocks(set->current_end) : set->current_end;
		if (set->current && off <= set->current_bytes && len <= set->current_bytes - off)
			break;
		r = begin_segment(set, len);
		if (r)
			return r;
	}
	*ret = (struct place){ .seg = set->current, .from = set->current_end, .off = off, .end = off + len };
	set->current_end = off + len;
	set->current->size = set->current_end;
	set->current->users++;
	return 0;
}

/* Counts [from, end) as complete; sets the range of chunks that have become full by that, if any. */
static void count_chunks(struct segment_set *set, const struct place *p, uint64_t *ret_off, uint64_t *ret_len)
{
	uint64_t at, next;

	*ret_len = 0;
	if (!set->opt.write_out || p->seg != set->current)
		return;
	for (at = p->from; at < p->end; at = next) {
		uint64_t chunk = at / SEGMENT_CHUNK;

		next = (chunk + 1) * SEGMENT_CHUNK;
		next = next < p->end ? next : p->end;
		set->chunk_bytes[chunk] += (uint32_t)(next - at);
		if (set->chunk_bytes[chunk] < SEGMENT_CHUNK)
			continue;
		if (!*ret_len)
			*ret_off = chunk * SEGMENT_CHUNK;
		*ret_len = (chunk + 1) * SEGMENT_CHUNK - *ret_off;
	}
}

int segment_append(struct segment_set *set, const void *buf, size_t len, uint32_t *ret_segment, uint64_t *ret_off)
{
	uint64_t out_off = 0, out_len = 0;
	struct place p;
	int r;

	if (set->opt.read_only)
		return -EROFS;
	if (len == 0 || len > UINT32_MAX)
		return -EINVAL;
	pthread_mutex_lock(&set->lock);
	r = take_place(set, len, &p);
	pthread_mutex_unlock(&set->lock);
	if (r)
		return r;
	r = io_write(p.seg->file, buf, len, p.off);
	pthread_mutex_lock(&set->lock);
	if (!r) {
		*ret_segment = p.seg->id;
		*ret_off = p.off;
		segment_mark_dirty(set, p.seg);
		count_chunks(set, &p, &out_off, &out_len);
	}
	if (!out_len)
		segment_unuse(set, p.seg);
	pthread_mutex_unlock(&set->lock);
	if (out_len) {
		(void)p.seg->file->ops->write_out(p.seg->file, out_off, out_len);
		segment_put(set, p.seg);
	}
	return r;
}

bool segment_is_open_for_append(struct segment_set *set, uint32_t segment)
{
	bool is;

	pthread_mutex_lock(&set->lock);
	is = set->current && set->current->id == segment;
	pthread_mutex_unlock(&set->lock);
	return is;
}

uint64_t segment_free_in_open(struct segment_set *set)
{
	uint64_t bytes;

	pthread_mutex_lock(&set->lock);
	bytes = set->current ? set->current_bytes - set->current_end : 0;
	pthread_mutex_unlock(&set->lock);
	return bytes;
}

/* ---- read */

int segment_read(struct segment_set *set, uint32_t segment, uint64_t off, void *buf, size_t len)
{
	struct segment *seg;
	int r = segment_get(set, segment, &seg);

	if (r)
		return r;
	r = io_read_exact(seg->file, buf, len, off);
	segment_put(set, seg);
	return r;
}

int segment_open_fd(struct segment_set *set, uint32_t segment, bool writable)
{
	struct segment *seg;
	int fd, r;

	if (writable && set->opt.read_only)
		return -EROFS;
	r = segment_get(set, segment, &seg);
	if (r)
		return r;
	fd = seg->file->ops->fd(seg->file);
	if (fd >= 0) {
		fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
		fd = fd < 0 ? -errno : fd;
	}
	segment_put(set, seg);
	return fd;
}

/* ---- sync */

struct sync_list {
	struct segment **at; /* each with one user more */
	size_t num;
};

/* Under the lock: what is dirty, now clean and in use. Nothing has happened when it fails. */
static int collect_dirty(struct segment_set *set, struct sync_list *list)
{
	int r = 0;

	list->num = 0;
	list->at = calloc(set->num_dirty + 1, sizeof(struct segment *));
	if (!list->at)
		return -ENOMEM;
	for (size_t i = 0; i < set->num && !r; i++) {
		if (!set->at[i]->dirty)
			continue;
		r = segment_use(set, set->at[i]);
		if (!r)
			list->at[list->num++] = set->at[i];
	}
	for (size_t i = 0; i < list->num; i++) {
		if (r)
			segment_unuse(set, list->at[i]);
		else
			list->at[i]->dirty = false;
	}
	if (r) {
		free(list->at);
		return r;
	}
	set->num_dirty = 0;
	return 0;
}

static int sync_list(struct segment_set *set, const struct sync_list *list, bool names)
{
	int r = 0;

	for (size_t i = 0; i < list->num && !r; i++)
		r = list->at[i]->file->ops->sync(list->at[i]->file);
	if (!r && names)
		r = set->io->ops->sync_dir(set->io, SEGMENT_DIR);
	return r;
}

static void sync_done(struct segment_set *set, struct sync_list *list, uint64_t names_gen, int r)
{
	for (size_t i = 0; i < list->num; i++)
		segment_unuse(set, list->at[i]);
	free(list->at);
	if (r)
		set->failed = -EIO;
	else if (names_gen > set->names_synced_gen)
		set->names_synced_gen = names_gen;
}

int segment_sync(struct segment_set *set)
{
	struct sync_list list;
	uint64_t names_gen;
	bool names;
	int r;

	if (set->opt.read_only)
		return 0;
	pthread_mutex_lock(&set->sync_lock);
	pthread_mutex_lock(&set->lock);
	names_gen = set->names_gen;
	names = names_gen > set->names_synced_gen;
	r = set->failed;
	if (!r)
		r = collect_dirty(set, &list);
	if (!r) {
		set->syncing = true;
		pthread_mutex_unlock(&set->lock);
		r = sync_list(set, &list, names);
		pthread_mutex_lock(&set->lock);
		set->syncing = false;
		sync_done(set, &list, names_gen, r);
	}
	pthread_mutex_unlock(&set->lock);
	pthread_mutex_unlock(&set->sync_lock);
	return r;
}

bool segment_needs_sync(struct segment_set *set)
{
	bool needed;

	pthread_mutex_lock(&set->lock);
	needed = set->num_dirty || set->syncing || set->failed;
	pthread_mutex_unlock(&set->lock);
	return needed;
}
