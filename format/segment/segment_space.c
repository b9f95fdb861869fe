/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Private segments, and what gives space back. How much a private segment occupies changes without us, since the kernel
 * writes into it; it is counted as last seen.
 */
#include "format/segment/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "format/base/clock.h"
#include "format/base/lease.h"
#include "format/segment/segment_table.h"
#include "format/segment/staging.h"

/* ---- private segments */

int segment_create_private(struct segment_set *set, uint32_t *ret_segment)
{
	struct segment *seg;
	int r;

	if (set->opt.read_only)
		return -EROFS;
	pthread_mutex_lock(&set->lock);
	r = segment_table_create(set, true, 0, &seg);
	if (!r) {
		*ret_segment = seg->id;
		segment_unuse(set, seg);
	}
	pthread_mutex_unlock(&set->lock);
	return r;
}

/* Under the lock, in use. 1: it was shorter. */
static int lengthen(struct segment_set *set, struct segment *seg, uint64_t bytes)
{
	struct io_file *file;
	uint64_t size;
	int r = seg->file->ops->size(seg->file, &size);

	if (r || size >= bytes)
		return r;
	r = segment_open_wide(set, seg, &file);
	if (r)
		return r;
	r = file->ops->truncate(file, bytes);
	io_close(file);
	if (r)
		return r;
	seg->size = bytes;
	return 1;
}

/* Under the lock: what there is of one that cannot be made anew. */
static int look_for_lost(struct segment_set *set, uint32_t segment, uint64_t bytes, uint64_t *ret_bytes)
{
	struct segment *seg = segment_table_find(set, segment);
	int r = seg ? 0 : segment_table_add_lost(set, segment, &seg);

	if (r || (!seg->lost_ns && seg->size >= bytes))
		return r;
	*ret_bytes = seg->size;
	return 1;
}

/* Under the lock. */
static int restore(struct segment_set *set, uint32_t segment, uint64_t bytes)
{
	struct segment *seg = segment_table_find(set, segment);
	bool made = !seg;
	int r = made ? segment_table_create_lost(set, segment, &seg) : segment_use(set, seg);

	if (!r) {
		r = lengthen(set, seg, bytes);
		segment_unuse(set, seg);
	}
	return r ? r : made;
}

int segment_restore_private(struct segment_set *set, uint32_t segment, uint64_t bytes, uint64_t *ret_bytes)
{
	int r;

	pthread_mutex_lock(&set->lock);
	r = set->opt.read_only ? look_for_lost(set, segment, bytes, ret_bytes) : restore(set, segment, bytes);
	pthread_mutex_unlock(&set->lock);
	return r;
}

/* The folder is synced once for all that were created before. */
static int sync_name(struct segment_set *set, struct segment *seg)
{
	uint64_t gen;
	bool needed;
	int r;

	pthread_mutex_lock(&set->lock);
	gen = set->names_gen;
	needed = seg->names_gen > set->names_synced_gen;
	pthread_mutex_unlock(&set->lock);
	if (!needed)
		return 0;
	r = set->io->ops->sync_dir(set->io, SEGMENT_DIR);
	pthread_mutex_lock(&set->lock);
	if (!r && gen > set->names_synced_gen)
		set->names_synced_gen = gen;
	pthread_mutex_unlock(&set->lock);
	return r;
}

/* Whether the kernel has written out by itself what it did. It waits for what is on its way, and puts nothing else in motion. */
static int look_at_written(struct io_file *file)
{
	int fd = file->ops->fd(file);

	if (fd < 0)
		return 0;
	if (fgetxattr(fd, SEGMENT_FAILED, NULL, 0) >= 0)
		return -EIO;
	return sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE) < 0 ? -errno : 0;
}

/* For other processes, and for later; nothing can be done where the device does not even take that. */
static void mark_failed(struct io_file *file)
{
	int fd = file->ops->fd(file);

	if (fd >= 0)
		(void)fsetxattr(fd, SEGMENT_FAILED, "", 0, 0);
}

/*
 * One at a time: the kernel tells of an error once, and a second sync of the same file, at the same time or later, would find nothing to
 * complain of. So it is remembered.
 */
static int once(struct segment_set *set, struct segment *seg, int (*look)(struct io_file *file))
{
	int r;

	pthread_mutex_lock(&set->lock);
	while (seg->syncing)
		pthread_cond_wait(&set->synced, &set->lock);
	seg->syncing = true;
	r = seg->failed;
	pthread_mutex_unlock(&set->lock);
	if (!r && (r = look(seg->file)) < 0)
		mark_failed(seg->file);
	pthread_mutex_lock(&set->lock);
	seg->syncing = false;
	seg->failed = r;
	pthread_cond_broadcast(&set->synced);
	pthread_mutex_unlock(&set->lock);
	return r;
}

int segment_check_private(struct segment_set *set, uint32_t segment)
{
	struct segment *seg;
	int64_t mtime_ns;
	int r;

	if (segment_is_lost(set, segment, &mtime_ns))
		return 0;
	r = segment_get(set, segment, &seg);
	if (r)
		return r;
	r = once(set, seg, look_at_written);
	segment_put(set, seg);
	return r;
}

int segment_sync_private(struct segment_set *set, uint32_t segment)
{
	struct segment *seg;
	int r = segment_get(set, segment, &seg);

	if (r)
		return r;
	if (set->opt.read_only)
		r = -EROFS;
	if (!r)
		r = once(set, seg, seg->file->ops->sync);
	if (!r)
		r = sync_name(set, seg);
	segment_put(set, seg);
	return r;
}

/* Under the lock. One that is not open by us for writing. */
static int find_writer(struct segment_set *set, const struct segment *seg)
{
	char path[SEGMENT_PATH];
	struct io_file *file;
	int r = io_open(set->io, segment_path(path, seg->id, true), IO_READ, &file);

	if (r)
		return r;
	r = file->ops->fd(file);
	r = r < 0 ? 0 : lease_find_writer(r); /* a simulated one: nobody else */
	io_close(file);
	return r;
}

int segment_find_writer(struct segment_set *set, uint32_t segment)
{
	struct segment *seg;
	int r = 0;

	pthread_mutex_lock(&set->lock);
	seg = segment_table_find(set, segment);
	if (seg && seg->wide && seg->users == 0)
		segment_close(set, seg);
	if (seg && seg->is_private && !seg->lost_ns)
		r = seg->wide ? 1 : find_writer(set, seg);
	pthread_mutex_unlock(&set->lock);
	return r;
}

int segment_private_size(
	struct segment_set *set, uint32_t segment, uint64_t *ret_size, uint64_t *ret_allocated, int64_t *ret_mtime_ns)
{
	struct stat st = { 0 };
	struct segment *seg;
	uint64_t size;
	int fd, r;

	if (segment_is_lost(set, segment, ret_mtime_ns)) {
		*ret_size = *ret_allocated = 0;
		return 0;
	}
	r = segment_get(set, segment, &seg);
	if (r)
		return r;
	fd = seg->file->ops->fd(seg->file);
	r = seg->file->ops->size(seg->file, &size);
	if (!r && fd >= 0 && fstat(fd, &st))
		r = -errno;
	pthread_mutex_lock(&set->lock);
	if (!r) {
		*ret_allocated = fd >= 0 ? (uint64_t)st.st_blocks * 512 : segment_blocks(size);
		*ret_mtime_ns = clock_ns_of(st.st_mtim);
		*ret_size = size;
		seg->size = size;
		segment_set_allocated(set, seg, *ret_allocated);
	}
	segment_unuse(set, seg);
	pthread_mutex_unlock(&set->lock);
	return r;
}

/* ---- giving back */

/*
 * How many bytes the whole blocks in [off, off + len) have, up to end; *ret_from: where they begin. The last block of a
 * .seg counts as whole, since nothing can follow in it, but that of a private segment may be growing.
 */
static uint64_t whole_blocks(const struct segment *seg, uint64_t off, uint64_t len, uint64_t end, uint64_t *ret_from)
{
	uint64_t to = off + len < end ? off + len : end;

	*ret_from = segment_blocks(off);
	to = to == end && !seg->is_private ? segment_blocks(to) : to / SEGMENT_BLOCK * SEGMENT_BLOCK;
	return *ret_from < to ? to - *ret_from : 0;
}

/*
 * Under the lock, behind a punch: what the segment has left; was: what the device showed before. Some may have been a hole already. What is reserved
 * behind the end of one that is appended to may not be shown by the device, so of that only the difference counts.
 */
static uint64_t left_of(struct segment_set *set, const struct segment *seg, uint64_t was, uint64_t given)
{
	uint64_t now, freed = given < seg->allocated ? given : seg->allocated;

	if (!segment_open_of(set, seg))
		return segment_device_bytes(seg->file, seg->allocated - freed);
	now = segment_device_bytes(seg->file, 0);
	was = was > now ? was - now : 0;
	return seg->allocated - (was < freed ? was : freed);
}

static int punch(struct segment_set *set, struct segment *seg, uint64_t from, uint64_t len)
{
	struct io_file *file = seg->file;
	int r = seg->is_private ? segment_open_wide(set, seg, &file) : 0;

	if (!r)
		r = file->ops->punch(file, from, len);
	if (file != seg->file)
		io_close(file);
	return r;
}

int segment_punch(struct segment_set *set, uint32_t segment, uint64_t off, uint64_t len)
{
	uint64_t from, size, was = 0, given = 0;
	struct segment *seg;
	int r;

	if (set->opt.read_only)
		return -EROFS;
	if (off > INT64_MAX || len > INT64_MAX - off)
		return -EINVAL;
	(void)staging_wait(set->staging, segment); /* it would bring the bytes back */
	r = segment_get(set, segment, &seg);
	if (r)
		return r;
	r = seg->file->ops->size(seg->file, &size);
	if (!r)
		given = whole_blocks(seg, off, len, size, &from);
	if (given > 0) {
		was = segment_device_bytes(seg->file, given);
		r = punch(set, seg, from, given);
	}
	pthread_mutex_lock(&set->lock);
	if (!r && given > 0)
		segment_set_allocated(set, seg, left_of(set, seg, was, given));
	segment_unuse(set, seg);
	pthread_mutex_unlock(&set->lock);
	return r;
}

int segment_remove(struct segment_set *set, uint32_t segment)
{
	char path[SEGMENT_PATH];
	struct segment_open *open;
	struct segment *seg;
	int r = -ENOENT;

	if (set->opt.read_only)
		return -EROFS;
	(void)staging_wait(set->staging, segment);
	pthread_mutex_lock(&set->lock);
	seg = segment_table_find(set, segment);
	if (seg)
		r = set->io->ops->unlink(set->io, segment_path(path, seg->id, seg->is_private));
	if (!r) {
		open = segment_open_of(set, seg);
		if (open)
			segment_close_open(set, open);
		segment_table_remove(set, seg);
	}
	pthread_mutex_unlock(&set->lock);
	return r;
}

/* ---- what there is */

struct entry {
	uint32_t id;
	bool is_private;
	uint64_t size;
};

/* Those that have a file. */
static int copy_entries(struct segment_set *set, struct entry **ret, size_t *ret_num)
{
	struct entry *entries;

	*ret_num = 0;
	pthread_mutex_lock(&set->lock);
	entries = calloc(set->num + 1, sizeof(*entries));
	for (size_t i = 0; entries && i < set->num; i++)
		if (!set->at[i]->lost_ns)
			entries[(*ret_num)++] =
				(struct entry){ set->at[i]->id, set->at[i]->is_private, set->at[i]->size };
	pthread_mutex_unlock(&set->lock);
	*ret = entries;
	return entries ? 0 : -ENOMEM;
}

/* A copy is walked, so that each() may call anything of the set. */
int segment_list(
	struct segment_set *set, int (*each)(uint32_t segment, bool is_private, uint64_t bytes, void *arg), void *arg)
{
	struct entry *entries;
	size_t num;
	int r = copy_entries(set, &entries, &num);

	for (size_t i = 0; i < num && !r; i++)
		r = each(entries[i].id, entries[i].is_private, entries[i].size, arg);
	free(entries);
	return r;
}

void segment_reserve_ids(struct segment_set *set, uint32_t next_id)
{
	pthread_mutex_lock(&set->lock);
	if (next_id > set->next_id)
		set->next_id = next_id;
	pthread_mutex_unlock(&set->lock);
}

uint64_t segment_allocated_bytes(struct segment_set *set)
{
	uint64_t bytes;

	pthread_mutex_lock(&set->lock);
	bytes = set->allocated;
	pthread_mutex_unlock(&set->lock);
	return bytes;
}
