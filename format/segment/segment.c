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
 *
 * Staging (staging.c). A payload that lies in a slot already is not copied: it gets its place in a segment that no copied
 * payload ever goes to, and is written there later. Until then it is read from its slot, and everything that must find it in
 * the file waits for it.
 */
#include "format/segment/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "format/segment/segment_table.h"
#include "format/segment/staging.h"

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

static int open_parts(struct segment_set *set, struct cistern_error *err)
{
	int r = make_folder(set);

	if (!r && !set->opt.read_only) {
		r = staging_recover(set->io, &set->opt.staging, &set->found_staged, err);
		if (r)
			return r;
	}
	if (r)
		return cistern_error_set(err, r, SEGMENT_DIR ": cannot be made: %s", strerror(-r));
	r = segment_table_load(set, err);
	if (r)
		return r;
	return staging_open(set, &set->staging, err);
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
	pthread_cond_init(&set->synced, NULL);
	r = open_parts(set, err);
	if (r) {
		segment_set_destroy(set);
		return r;
	}
	*ret = set;
	return 0;
}

void segment_set_destroy(struct segment_set *set)
{
	if (!set)
		return;
	staging_destroy(set->staging);
	for (size_t i = 0; i < SEGMENT_OPEN_KINDS; i++)
		segment_close_open(set, &set->open[i]);
	segment_table_destroy(set);
	pthread_mutex_destroy(&set->lock);
	pthread_mutex_destroy(&set->sync_lock);
	pthread_cond_destroy(&set->synced);
	free(set);
}

/* ---- append */

void segment_close_open(struct segment_set *set, struct segment_open *open)
{
	struct segment *seg = open->seg;
	uint64_t unused;

	if (!seg)
		return;
	seg->size = open->end;
	unused = segment_blocks(open->bytes) - segment_blocks(seg->size);
	unused = unused < seg->allocated ? unused : seg->allocated;
	if (!seg->file->ops->truncate(seg->file, seg->size))
		segment_set_allocated(set, seg, seg->allocated - unused);
	free(open->chunk_bytes);
	*open = (struct segment_open){ 0 };
	segment_unuse(set, seg);
}

struct segment_open *segment_open_of(struct segment_set *set, const struct segment *seg)
{
	for (size_t i = 0; i < SEGMENT_OPEN_KINDS; i++)
		if (seg && set->open[i].seg == seg)
			return &set->open[i];
	return NULL;
}

/* Smaller than wished for when there is no room; what the other kind has not used makes room, too. */
static int create_segment(struct segment_set *set, struct segment_open *open, uint64_t bytes, uint64_t least,
	uint64_t *ret_bytes, struct segment **ret)
{
	struct segment_open *other = &set->open[open == set->open ? 1 : 0];
	int r;

	for (;;) {
		r = segment_table_create(set, false, bytes, ret);
		if (r != -ENOSPC || (bytes <= least && !other->seg))
			break;
		if (bytes <= least)
			segment_close_open(set, other);
		bytes = segment_blocks(bytes / 2);
		bytes = bytes < least ? least : bytes;
	}
	*ret_bytes = bytes;
	return r;
}

/* A second description of the file, so that only staged payloads go past the page cache. -1: not here. */
static int open_direct(const struct segment *seg)
{
	int fd = seg->file->ops->fd(seg->file);
	char path[40];

	if (fd < 0)
		return -1;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	fd = open(path, O_WRONLY | O_DIRECT | O_CLOEXEC);
	return fd < 0 ? -1 : fd;
}

/* A new .seg with room for len bytes. */
static int begin_segment(struct segment_set *set, struct segment_open *open, size_t len)
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
	r = create_segment(set, open, bytes, least, &bytes, &seg);
	if (r) {
		free(chunks);
		return r;
	}
	if (open == &set->open[SEGMENT_STAGED])
		seg->direct_fd = open_direct(seg);
	segment_close_open(set, open);
	*open = (struct segment_open){ .seg = seg, .bytes = bytes, .chunk_bytes = chunks };
	return 0;
}

static int take_place(struct segment_set *set, struct segment_open *open, size_t len, struct segment_place *ret)
{
	uint64_t off;
	int r;

	for (;;) {
		off = len >= SEGMENT_ALIGN_FROM ? segment_blocks(open->end) : open->end;
		if (open->seg && off <= open->bytes && len <= open->bytes - off)
			break;
		r = begin_segment(set, open, len);
		if (r)
			return r;
	}
	*ret = (struct segment_place){ .seg = open->seg, .from = open->end, .off = off, .end = off + len };
	open->end = off + len;
	open->seg->size = open->end;
	open->seg->users++;
	return 0;
}

int segment_reserve(struct segment_set *set, size_t len, struct segment_place *ret)
{
	int r;

	pthread_mutex_lock(&set->lock);
	r = take_place(set, &set->open[SEGMENT_STAGED], (size_t)segment_blocks(len), ret);
	pthread_mutex_unlock(&set->lock);
	return r;
}

/* Counts [from, end) as complete; sets the range of chunks that have become full by that, if any. */
static void count_chunks(struct segment_set *set, const struct segment_place *p, uint64_t *ret_off, uint64_t *ret_len)
{
	struct segment_open *open = &set->open[SEGMENT_COPIED];
	uint64_t at, next;

	*ret_len = 0;
	if (!set->opt.write_out || p->seg != open->seg)
		return;
	for (at = p->from; at < p->end; at = next) {
		uint64_t chunk = at / SEGMENT_CHUNK;

		next = (chunk + 1) * SEGMENT_CHUNK;
		next = next < p->end ? next : p->end;
		open->chunk_bytes[chunk] += (uint32_t)(next - at);
		if (open->chunk_bytes[chunk] < SEGMENT_CHUNK)
			continue;
		if (!*ret_len)
			*ret_off = chunk * SEGMENT_CHUNK;
		*ret_len = (chunk + 1) * SEGMENT_CHUNK - *ret_off;
	}
}

static int may_append(struct segment_set *set, size_t len)
{
	if (set->opt.read_only)
		return -EROFS;
	if (len == 0 || len > UINT32_MAX)
		return -EINVAL;
	return staging_error(set->staging);
}

int segment_append(struct segment_set *set, const void *buf, size_t len, uint32_t *ret_segment, uint64_t *ret_off)
{
	uint64_t out_off = 0, out_len = 0;
	struct segment_place p;
	int r = may_append(set, len);

	if (r)
		return r;
	pthread_mutex_lock(&set->lock);
	r = take_place(set, &set->open[SEGMENT_COPIED], len, &p);
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

int segment_append_crc(
	struct segment_set *set, const void *buf, size_t len, uint32_t crc, uint32_t *ret_segment, uint64_t *ret_off)
{
	struct segment_place p;
	uint32_t id;
	int r;

	if (len < SEGMENT_STAGE_FROM || len > SEGMENT_SLOT_BYTES || !staging_owns(set->staging, buf))
		return segment_append(set, buf, len, ret_segment, ret_off);
	r = may_append(set, len);
	if (!r)
		r = segment_reserve(set, len, &p);
	if (r == -ENOSPC)
		return segment_append(set, buf, len, ret_segment, ret_off);
	if (r)
		return r;
	id = p.seg->id; /* staging_put takes our user of it */
	if (!staging_put(set->staging, buf, len, crc, p.seg, p.off)) {
		segment_put(set, p.seg);
		return segment_append(set, buf, len, ret_segment, ret_off);
	}
	*ret_segment = id;
	*ret_off = p.off;
	return 0;
}

bool segment_is_open_for_append(struct segment_set *set, uint32_t segment)
{
	bool is = false;

	pthread_mutex_lock(&set->lock);
	for (size_t i = 0; i < SEGMENT_OPEN_KINDS; i++)
		is = is || (set->open[i].seg && set->open[i].seg->id == segment);
	pthread_mutex_unlock(&set->lock);
	return is;
}

uint64_t segment_free_in_open(struct segment_set *set)
{
	uint64_t bytes = 0;

	pthread_mutex_lock(&set->lock);
	for (size_t i = 0; i < SEGMENT_OPEN_KINDS; i++)
		bytes += set->open[i].bytes - set->open[i].end;
	pthread_mutex_unlock(&set->lock);
	return bytes;
}

/* ---- read */

static int read_file(struct segment_set *set, uint32_t segment, uint64_t off, void *buf, size_t len)
{
	struct segment *seg;
	int r = segment_get(set, segment, &seg);

	if (r)
		return r;
	r = io_read_exact(seg->file, buf, len, off);
	segment_put(set, seg);
	return r;
}

int segment_read(struct segment_set *set, uint32_t segment, uint64_t off, void *buf, size_t len)
{
	uint8_t *at = buf;
	size_t n;
	int r = 0;

	do {
		if (!staging_read(set->staging, segment, off, at, len, &n))
			r = read_file(set, segment, off, at, n);
		at += n;
		off += n;
		len -= n;
	} while (!r && len);
	return r;
}

static int dup_fd(struct segment *seg)
{
	int fd = seg->file->ops->fd(seg->file);

	if (fd < 0)
		return fd;
	fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	return fd < 0 ? -errno : fd;
}

/* For writing, of what the set has open for reading alone. */
static int wide_fd(struct segment_set *set, struct segment *seg)
{
	struct io_file *file;
	int fd, r = segment_open_wide(set, seg, &file);

	if (r)
		return r;
	fd = file->ops->fd(file);
	if (fd >= 0 && (fd = fcntl(fd, F_DUPFD_CLOEXEC, 3)) < 0)
		fd = -errno;
	io_close(file);
	return fd;
}

static int empty_fd(void)
{
	int fd = memfd_create("cistern-segment", MFD_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int segment_open_fd(struct segment_set *set, uint32_t segment, bool writable)
{
	struct segment *seg;
	int64_t since_ns;
	int fd, r;

	if (writable && set->opt.read_only)
		return -EROFS;
	if (set->opt.read_only && staging_has(set->staging, segment))
		return staging_copy_fd(set->staging, segment);
	if (segment_is_lost(set, segment, &since_ns))
		return empty_fd();
	r = staging_wait(set->staging, segment);
	if (!r)
		r = segment_get(set, segment, &seg);
	if (r)
		return r;
	fd = writable && seg->is_private && !seg->wide ? wide_fd(set, seg) : dup_fd(seg);
	segment_put(set, seg);
	return fd;
}

/* ---- sync */

/* Under the lock: what is dirty, now clean and with one user more. */
static struct segment *collect_dirty(struct segment_set *set)
{
	struct segment *first = set->dirty;

	for (struct segment *seg = first; seg; seg = seg->next_dirty) {
		seg->next_synced = seg->next_dirty;
		seg->dirty = false;
		seg->users++;
	}
	set->dirty = NULL;
	return first;
}

static int sync_all(struct segment_set *set, const struct segment *first, bool names)
{
	int r = 0;

	for (const struct segment *seg = first; seg && !r; seg = seg->next_synced)
		r = seg->file->ops->sync(seg->file);
	if (!r && names)
		r = set->io->ops->sync_dir(set->io, SEGMENT_DIR);
	return r;
}

static void sync_done(struct segment_set *set, struct segment *first, uint64_t names_gen, int r)
{
	struct segment *next;

	for (; first; first = next) {
		next = first->next_synced;
		segment_unuse(set, first);
	}
	if (r)
		set->failed = -EIO;
	else if (names_gen > set->names_synced_gen)
		set->names_synced_gen = names_gen;
}

int segment_settle(struct segment_set *set)
{
	return staging_wait(set->staging, 0);
}

int segment_sync(struct segment_set *set)
{
	struct segment *first;
	uint64_t names_gen;
	bool names;
	int r;

	if (set->opt.read_only)
		return 0;
	pthread_mutex_lock(&set->sync_lock);
	r = staging_wait(set->staging, 0);
	pthread_mutex_lock(&set->lock);
	names_gen = set->names_gen;
	names = names_gen > set->names_synced_gen;
	r = r ? r : set->failed;
	if (!r) {
		first = collect_dirty(set);
		set->syncing = true;
		pthread_mutex_unlock(&set->lock);
		r = sync_all(set, first, names);
		pthread_mutex_lock(&set->lock);
		set->syncing = false;
		sync_done(set, first, names_gen, r);
	}
	pthread_mutex_unlock(&set->lock);
	pthread_mutex_unlock(&set->sync_lock);
	return r;
}

bool segment_needs_sync(struct segment_set *set)
{
	/* In this order: what is on its way no more has marked its segment by now. */
	bool needed = !staging_is_idle(set->staging) || staging_error(set->staging);

	pthread_mutex_lock(&set->lock);
	needed = needed || set->dirty || set->syncing || set->failed || set->names_gen > set->names_synced_gen;
	pthread_mutex_unlock(&set->lock);
	return needed;
}
