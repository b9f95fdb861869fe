/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Staging: a payload is acknowledged when it lies in shared memory, and written to its segment afterwards, past the page
 * cache, by a thread of ours.
 *
 * A slot of the region is held (by a thread that receives into it), staged (its payload is acknowledged and not yet known to be
 * in its segment), read (somebody copies from it), or several of these; it is free when it is none. The invariant: from
 * staging_put() on, until the slot is no longer staged, the payload is read from the slot, and whoever wants it in the
 * file waits. The segment is marked as unsynced before that ends, so that a sync finds it in one of the two.
 *
 * What cannot be written stays staged for ever: it is read from there, no sync succeeds any more, nothing more is
 * appended, and the region stays for the next opening, which tries again.
 *
 * Slots have a lock of their own, under which nothing slow happens; the set's is never held at the same time.
 */
#include "format/segment/staging.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "format/segment/segment_table.h"

#define WRITERS 3u /* two wait for the device while one fetches its next payload */
#define NONE    UINT32_MAX

#define DYING_TRIES 200u /* of 10 ms */

struct slot {
	struct region_payload p;
	struct segment *seg; /* while staged: with one user, which is ours */
	uint64_t ticket;     /* rises with each payload; 0: not taken since it was got */
	unsigned int readers;
	bool held, staged, failed;
	uint32_t next; /* in the queue, or among the free ones */
};

struct copied { /* read-only: a segment as it would be */
	uint32_t segment;
	int fd; /* owned */
};

struct staging {
	struct segment_set *set; /* borrowed */
	struct region region;
	pthread_mutex_t lock;
	pthread_cond_t work;  /* the queue is not empty, or stop */
	pthread_cond_t ended; /* a slot is no longer staged, or has failed */
	pthread_cond_t freed;
	struct slot *slots;         /* owned, region.num */
	uint32_t free, first, last; /* lists; NONE: empty */
	uint64_t ticket;            /* the last one given */
	atomic_uint num_staged;     /* changed under lock */
	atomic_int error;
	atomic_bool no_direct; /* the file system refuses it */
	bool stop;
	pthread_t writers[WRITERS];
	unsigned int num_writers;
	pthread_mutex_t copies_lock; /* taken before all others */
	struct copied *copies;       /* owned */
	size_t num_copies;
};

/* ---- what a dead process has left */

static int write_back(struct io *io, const struct region *r, uint32_t slot, const struct region_payload *p)
{
	char path[SEGMENT_PATH];
	struct io_file *file;
	int e = io_open(io, segment_path(path, p->segment, false), IO_READ | IO_WRITE | IO_CREATE, &file);

	if (e)
		return e;
	e = io_write(file, region_memory(r, slot), p->len, p->off);
	io_close(file);
	return e;
}

static int sync_segment(struct io *io, uint32_t segment)
{
	char path[SEGMENT_PATH];
	struct io_file *file;
	int e = io_open(io, segment_path(path, segment, false), IO_READ | IO_WRITE, &file);

	if (e)
		return e;
	e = file->ops->sync(file);
	io_close(file);
	return e;
}

static int write_all_back(struct io *io, const struct region *r, uint64_t *ret_num)
{
	struct region_payload p;
	uint32_t synced = 0;
	uint64_t num = 0;
	int e = 0;

	for (uint32_t i = 0; i < r->num && !e; i++)
		if (region_look(r, i, &p)) {
			e = write_back(io, r, i, &p);
			num++;
		}
	for (uint32_t i = 0; i < r->num && !e; i++)
		if (region_look(r, i, &p) && p.segment != synced) { /* neighbours are mostly of one segment */
			e = sync_segment(io, p.segment);
			synced = p.segment;
		}
	if (!e && num > 0)
		e = io->ops->sync_dir(io, SEGMENT_DIR);
	if (!e)
		*ret_num = num;
	return e;
}

/*
 * The lock of a daemon that was killed goes with its memory. That may outlive its other files, the store's lock among them, for a moment: as
 * long as somebody (ps, a monitor) looks into it. What keeps its lock is that of a living copy of this store.
 */
static int open_region(const struct segment_staging_options *opt, bool writable, struct region *ret)
{
	int e = region_open(opt, writable, ret);

	for (unsigned int i = 0; e == -EBUSY && i < DYING_TRIES; i++) {
		nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
		e = region_open(opt, writable, ret);
	}
	return e;
}

/* 0: there is one. -ENOENT: none that concerns us. Others: with a text. */
static int find_region(
	const struct segment_staging_options *opt, bool writable, struct region *ret, struct cistern_error *err)
{
	int e = opt->uuid ? open_region(opt, writable, ret) : -ENOENT;

	if (e == -EPERM || e == -EBUSY) /* a stranger's file; that of a living copy of this store */
		return -ENOENT;
	if (e && e != -ENOENT)
		return cistern_error_set(err, e,
			"what the last daemon had acknowledged, in shared memory (%s/cistern-UUID), cannot be read: %s; "
			"remove that file to give it up",
			opt->dir ? opt->dir : "/dev/shm", strerror(-e));
	return e;
}

int staging_recover(
	struct io *io, const struct segment_staging_options *opt, uint64_t *ret_num, struct cistern_error *err)
{
	struct region r;
	int e = find_region(opt, true, &r, err);

	if (e)
		return e == -ENOENT ? 0 : e;
	e = write_all_back(io, &r, ret_num);
	region_close(&r, e == 0);
	return e ? cistern_error_set(err, e,
			   SEGMENT_DIR
			   ": what the last daemon had acknowledged cannot be written there: %s; it stays in "
			   "shared memory until this machine is restarted",
			   strerror(-e))
		 : 0;
}

/* ---- lists of slots; the lock is held */

static bool is_coming(const struct slot *s)
{
	return !s->held && ((s->staged && !s->failed) || s->readers);
}

/* After it became less busy. */
static void settle_slot(struct staging *st, uint32_t i)
{
	struct slot *s = &st->slots[i];

	if (s->held || s->staged || s->readers)
		return;
	s->next = st->free;
	st->free = i;
	pthread_cond_signal(&st->freed);
}

static void enqueue(struct staging *st, uint32_t i)
{
	st->slots[i].next = NONE;
	*(st->last == NONE ? &st->first : &st->slots[st->last].next) = i;
	st->last = i;
	pthread_cond_signal(&st->work);
}

static uint32_t dequeue(struct staging *st)
{
	uint32_t i = st->first;

	st->first = st->slots[i].next;
	if (st->first == NONE)
		st->last = NONE;
	return i;
}

/* ---- the writers */

/*
 * Memory of a writer in a huge page, or NULL. A payload in 256 small pages is a request of 256 pieces, and devices that handle
 * each by itself, as virtual ones do, take longer for that than copying it takes.
 */
static uint8_t *make_bounce(const struct staging *st, void **ret_all)
{
	const size_t huge = (size_t)2 << 20;
	uint8_t *all, *at;

	*ret_all = NULL;
	if (st->region.is_huge)
		return NULL;
	all = mmap(NULL, 2 * huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (all == MAP_FAILED)
		return NULL;
	*ret_all = all;
	at = all + (size_t)(-(uintptr_t)all % huge);
	return madvise(at, huge, MADV_HUGEPAGE) == 0 ? at : NULL;
}

static void free_bounce(void *all)
{
	if (all)
		munmap(all, (size_t)4 << 20);
}

static bool write_direct(struct staging *st, const struct slot *s, const uint8_t *from, size_t len, uint8_t *bounce)
{
	size_t done = 0;

	if (s->seg->direct_fd < 0 || atomic_load(&st->no_direct))
		return false;
	if (bounce)
		from = memcpy(bounce, from, len);
	while (done < len) {
		ssize_t n = pwrite(s->seg->direct_fd, from + done, len - done, (off_t)(s->p.off + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EINVAL)
			atomic_store(&st->no_direct, true);
		if (n <= 0 || n % SEGMENT_BLOCK != 0)
			return false;
		done += (size_t)n;
	}
	return true;
}

static int write_slot(struct staging *st, uint32_t i, uint8_t *bounce)
{
	const struct slot *s = &st->slots[i];
	const uint8_t *from = region_memory(&st->region, i);
	size_t len = (size_t)segment_blocks(s->p.len);
	struct io_file *file = s->seg->file;
	int r;

	if (write_direct(st, s, from, len, bounce))
		return 0;
	r = io_write(file, from, len, s->p.off);
	if (!r && st->set->opt.write_out)
		(void)file->ops->write_out(file, s->p.off, len);
	return r;
}

static void finish(struct staging *st, uint32_t i, int r)
{
	struct slot *s = &st->slots[i];
	struct segment_set *set = st->set;

	if (!r) {
		pthread_mutex_lock(&set->lock);
		segment_mark_dirty(set, s->seg);
		segment_unuse(set, s->seg);
		pthread_mutex_unlock(&set->lock);
		region_clear(&st->region, i);
	}
	pthread_mutex_lock(&st->lock);
	if (r) {
		s->failed = true;
		atomic_store(&st->error, -EIO);
		pthread_cond_broadcast(&st->freed); /* it will not come back */
	} else {
		s->seg = NULL;
		s->staged = false;
		atomic_fetch_sub(&st->num_staged, 1);
		settle_slot(st, i);
	}
	pthread_cond_broadcast(&st->ended);
	pthread_mutex_unlock(&st->lock);
}

static void *writer_main(void *arg)
{
	struct staging *st = arg;
	void *all;
	uint8_t *bounce = make_bounce(st, &all);
	uint32_t i;

	pthread_mutex_lock(&st->lock);
	for (;;) {
		while (st->first == NONE && !st->stop)
			pthread_cond_wait(&st->work, &st->lock);
		if (st->first == NONE)
			break;
		i = dequeue(st);
		pthread_mutex_unlock(&st->lock);
		finish(st, i, write_slot(st, i, bounce));
		pthread_mutex_lock(&st->lock);
	}
	pthread_mutex_unlock(&st->lock);
	free_bounce(all);
	return NULL;
}

/* Signals are for the program's own threads. */
static int start_writers(struct staging *st)
{
	sigset_t all, old;
	int r = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	for (; st->num_writers < WRITERS && !r; st->num_writers += r == 0)
		r = -pthread_create(&st->writers[st->num_writers], NULL, writer_main, st);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return st->num_writers > 0 ? 0 : r;
}

static void stop_writers(struct staging *st)
{
	pthread_mutex_lock(&st->lock);
	st->stop = true;
	pthread_cond_broadcast(&st->work);
	pthread_mutex_unlock(&st->lock);
	for (unsigned int i = 0; i < st->num_writers; i++)
		pthread_join(st->writers[i], NULL);
}

/* ---- open and destroy */

static struct staging *make(struct segment_set *set, struct region *r)
{
	struct staging *st = calloc(1, sizeof(*st));

	if (st)
		st->slots = calloc(r->num, sizeof(*st->slots));
	if (!st || !st->slots) {
		free(st);
		return NULL;
	}
	st->set = set;
	st->region = *r;
	st->free = st->first = st->last = NONE;
	pthread_mutex_init(&st->lock, NULL);
	pthread_mutex_init(&st->copies_lock, NULL);
	pthread_cond_init(&st->work, NULL);
	pthread_cond_init(&st->ended, NULL);
	pthread_cond_init(&st->freed, NULL);
	return st;
}

static void unmake(struct staging *st, bool remove)
{
	region_close(&st->region, remove);
	for (size_t i = 0; i < st->num_copies; i++)
		close(st->copies[i].fd);
	free(st->copies);
	free(st->slots);
	pthread_cond_destroy(&st->work);
	pthread_cond_destroy(&st->ended);
	pthread_cond_destroy(&st->freed);
	pthread_mutex_destroy(&st->lock);
	pthread_mutex_destroy(&st->copies_lock);
	free(st);
}

static int open_found(struct segment_set *set, struct staging **ret, struct cistern_error *err)
{
	struct staging *st;
	struct region r;
	int e = find_region(&set->opt.staging, false, &r, err);

	if (e)
		return e == -ENOENT ? 0 : e;
	st = make(set, &r);
	if (!st) {
		region_close(&r, false);
		return cistern_error_set(err, -ENOMEM, "segment: out of memory");
	}
	for (uint32_t i = 0; i < r.num; i++) {
		st->slots[i].staged = region_look(&r, i, &st->slots[i].p);
		set->found_staged += st->slots[i].staged;
	}
	atomic_store(&st->num_staged, (unsigned int)set->found_staged);
	*ret = st;
	return 0;
}

/* Without shared memory things work as well, only not as fast. */
static void open_new(struct segment_set *set, struct staging **ret)
{
	struct staging *st;
	struct region r;

	if (!set->opt.staging.uuid || !set->opt.staging.bytes)
		return;
	region_sweep(&set->opt.staging);
	if (region_create(&set->opt.staging, &r))
		return;
	st = make(set, &r);
	if (!st) {
		region_close(&r, true);
		return;
	}
	for (uint32_t i = r.num; i-- > 0;)
		settle_slot(st, i);
	if (start_writers(st))
		unmake(st, true);
	else
		*ret = st;
}

int staging_open(struct segment_set *set, struct staging **ret, struct cistern_error *err)
{
	if (set->opt.read_only)
		return open_found(set, ret, err);
	open_new(set, ret);
	return 0;
}

void staging_destroy(struct staging *st)
{
	bool all_written;

	if (!st)
		return;
	stop_writers(st);
	all_written = atomic_load(&st->num_staged) == 0;
	for (uint32_t i = 0; i < st->region.num; i++)
		if (st->slots[i].seg)
			segment_put(st->set, st->slots[i].seg);
	unmake(st, st->region.writable && all_written);
}

/* ---- slots and their users */

static uint32_t slot_of(const struct staging *st, const void *memory)
{
	uintptr_t first, at = (uintptr_t)memory;

	if (!st || !st->region.writable)
		return NONE;
	first = (uintptr_t)region_memory(&st->region, 0);
	if (at < first || (at - first) % REGION_SLOT_BYTES != 0 || (at - first) / REGION_SLOT_BYTES >= st->region.num)
		return NONE;
	return (uint32_t)((at - first) / REGION_SLOT_BYTES);
}

/* Will one become free without anybody else's doing? */
static bool any_coming(const struct staging *st)
{
	for (uint32_t i = 0; i < st->region.num; i++)
		if (is_coming(&st->slots[i]))
			return true;
	return false;
}

void *segment_slot_get(struct segment_set *set, bool wait)
{
	struct staging *st = set->staging;
	void *memory = NULL;

	if (!st || !st->region.writable)
		return NULL;
	pthread_mutex_lock(&st->lock);
	while (st->free == NONE && wait && any_coming(st))
		pthread_cond_wait(&st->freed, &st->lock);
	if (st->free != NONE) {
		struct slot *s = &st->slots[st->free];

		memory = region_memory(&st->region, st->free);
		st->free = s->next;
		s->held = true;
		s->ticket = 0;
	}
	pthread_mutex_unlock(&st->lock);
	return memory;
}

bool segment_slot_taken(struct segment_set *set, const void *slot)
{
	struct staging *st = set->staging;
	uint32_t i = slot_of(st, slot);

	return i != NONE && st->slots[i].ticket != 0; /* changed by this thread only while it holds it */
}

void segment_slot_put(struct segment_set *set, void *slot)
{
	struct staging *st = set->staging;
	uint32_t i = slot_of(st, slot);

	if (i == NONE)
		return;
	pthread_mutex_lock(&st->lock);
	st->slots[i].held = false;
	settle_slot(st, i);
	pthread_mutex_unlock(&st->lock);
}

uint32_t segment_slots(struct segment_set *set)
{
	return set->staging && set->staging->region.writable ? set->staging->region.num : 0;
}

uint64_t segment_found_staged(struct segment_set *set)
{
	return set->found_staged;
}

/* ---- staging, reading, waiting */

bool staging_owns(struct staging *st, const void *buf)
{
	uint32_t i = slot_of(st, buf);

	return i != NONE && st->slots[i].held && st->slots[i].ticket == 0; /* its user is this thread */
}

bool staging_put(struct staging *st, const void *buf, size_t len, uint32_t crc, struct segment *seg, uint64_t off)
{
	uint32_t i = slot_of(st, buf);
	struct slot *s = &st->slots[i];

	if (region_is_lost(&st->region))
		return false;
	memset(region_memory(&st->region, i) + len, 0, (size_t)segment_blocks(len) - len);
	s->p = (struct region_payload){ .segment = seg->id, .len = (uint32_t)len, .off = off, .crc = crc };
	region_stage(&st->region, i, &s->p);
	pthread_mutex_lock(&st->lock);
	s->seg = seg;
	s->ticket = ++st->ticket;
	s->staged = true;
	atomic_fetch_add(&st->num_staged, 1);
	enqueue(st, i);
	pthread_mutex_unlock(&st->lock);
	return true;
}

/* The slot that has off; or else *len is cut so that it ends before the next one. */
static uint32_t find_staged(const struct staging *st, uint32_t segment, uint64_t off, size_t *len)
{
	for (uint32_t i = 0; i < st->region.num; i++) {
		const struct slot *s = &st->slots[i];

		if (!s->staged || s->p.segment != segment || s->p.off + s->p.len <= off)
			continue;
		if (s->p.off <= off)
			return i;
		if (s->p.off - off < *len)
			*len = (size_t)(s->p.off - off);
	}
	return NONE;
}

bool staging_read(struct staging *st, uint32_t segment, uint64_t off, void *buf, size_t len, size_t *ret_len)
{
	struct slot *s;
	uint32_t i;

	*ret_len = len;
	if (!st || atomic_load(&st->num_staged) == 0)
		return false;
	pthread_mutex_lock(&st->lock);
	i = find_staged(st, segment, off, ret_len);
	if (i != NONE)
		st->slots[i].readers++;
	pthread_mutex_unlock(&st->lock);
	if (i == NONE)
		return false;
	s = &st->slots[i];
	if (s->p.off + s->p.len - off < len)
		*ret_len = (size_t)(s->p.off + s->p.len - off);
	memcpy(buf, region_memory(&st->region, i) + (off - s->p.off), *ret_len);
	pthread_mutex_lock(&st->lock);
	s->readers--;
	settle_slot(st, i);
	pthread_mutex_unlock(&st->lock);
	return true;
}

static bool concerns(const struct slot *s, uint32_t segment)
{
	return s->staged && (segment == 0 || s->p.segment == segment);
}

bool staging_has(struct staging *st, uint32_t segment)
{
	bool has = false;

	if (!st)
		return false;
	pthread_mutex_lock(&st->lock);
	for (uint32_t i = 0; i < st->region.num && !has; i++)
		has = concerns(&st->slots[i], segment);
	pthread_mutex_unlock(&st->lock);
	return has;
}

/* 0, -EIO: one of them cannot be written, -EAGAIN: not yet. */
static int look_at_staged(const struct staging *st, uint32_t segment, uint64_t ticket)
{
	int r = 0;

	for (uint32_t i = 0; i < st->region.num; i++) {
		const struct slot *s = &st->slots[i];

		if (!concerns(s, segment) || s->ticket > ticket)
			continue;
		if (!s->failed)
			return -EAGAIN;
		r = -EIO;
	}
	return r;
}

int staging_wait(struct staging *st, uint32_t segment)
{
	uint64_t ticket;
	int r;

	if (!st || !st->region.writable || atomic_load(&st->num_staged) == 0)
		return 0;
	pthread_mutex_lock(&st->lock);
	ticket = st->ticket;
	while ((r = look_at_staged(st, segment, ticket)) == -EAGAIN)
		pthread_cond_wait(&st->ended, &st->lock);
	pthread_mutex_unlock(&st->lock);
	return r;
}

bool staging_is_idle(struct staging *st)
{
	return !st || !st->region.writable || atomic_load(&st->num_staged) == 0;
}

int staging_error(struct staging *st)
{
	return st ? atomic_load(&st->error) : 0;
}

/* ---- read-only: descriptors */

static bool is_zero(const uint8_t *p, size_t len)
{
	return p[0] == 0 && memcmp(p, p + 1, len - 1) == 0;
}

static int write_at(int fd, const uint8_t *from, size_t len, uint64_t off)
{
	while (len > 0) {
		ssize_t n = pwrite(fd, from, len, (off_t)off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		from += n;
		off += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

/* What the file has; blocks of zeros stay holes. */
static int copy_file(struct io_file *file, int fd)
{
	uint8_t *buf = malloc(SEGMENT_CHUNK);
	uint64_t off = 0;
	ssize_t n = 0;
	int r = buf ? 0 : -ENOMEM;

	while (!r && (n = file->ops->pread(file, buf, SEGMENT_CHUNK, off)) > 0) {
		r = is_zero(buf, (size_t)n) ? 0 : write_at(fd, buf, (size_t)n, off);
		off += (uint64_t)n;
	}
	if (!r && n < 0)
		r = (int)n;
	if (!r && ftruncate(fd, (off_t)off))
		r = -errno;
	free(buf);
	return r;
}

static int fill_copy(struct staging *st, uint32_t segment, int fd)
{
	struct segment *seg;
	int r = segment_get(st->set, segment, &seg);

	if (!r) {
		r = copy_file(seg->file, fd);
		segment_put(st->set, seg);
	} else if (r == -ENOENT) {
		r = 0; /* its file was never made durable: all of it is in the slots */
	}
	for (uint32_t i = 0; i < st->region.num && !r; i++)
		if (concerns(&st->slots[i], segment))
			r = write_at(fd, region_memory(&st->region, i), st->slots[i].p.len, st->slots[i].p.off);
	return r;
}

static int make_copy(struct staging *st, uint32_t segment, int *ret_fd)
{
	struct copied *larger = reallocarray(st->copies, st->num_copies + 1, sizeof(*larger));
	int fd, r;

	if (!larger)
		return -ENOMEM;
	st->copies = larger;
	fd = memfd_create("cistern-segment", MFD_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = fill_copy(st, segment, fd);
	if (r) {
		close(fd);
		return r;
	}
	st->copies[st->num_copies++] = (struct copied){ segment, fd };
	*ret_fd = fd;
	return 0;
}

int staging_copy_fd(struct staging *st, uint32_t segment)
{
	int fd = -1, r = 0;

	pthread_mutex_lock(&st->copies_lock);
	for (size_t i = 0; i < st->num_copies; i++)
		if (st->copies[i].segment == segment)
			fd = st->copies[i].fd;
	if (fd < 0)
		r = make_copy(st, segment, &fd);
	pthread_mutex_unlock(&st->copies_lock);
	if (r)
		return r;
	fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	return fd < 0 ? -errno : fd;
}
