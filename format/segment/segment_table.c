/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The segments of a set and their open files. A store may hold a hundred thousand private segments, so files are
 * opened when they are needed, and only the most recently used ones stay open. Not closed are: files in use, and .seg
 * files with unsynced payload of ours, because an error of writing back is told to those who had the file open then.
 */
#include "format/segment/segment_table.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/base/array.h"
#include "format/base/clock.h"
#include "format/base/descriptors.h"

const char *segment_path(char out[SEGMENT_PATH], uint32_t id, bool is_private)
{
	snprintf(out, SEGMENT_PATH, SEGMENT_DIR "/%08" PRIu32 "%s", id, is_private ? ".prv" : ".seg");
	return out;
}

uint64_t segment_blocks(uint64_t bytes)
{
	return (bytes + SEGMENT_BLOCK - 1) / SEGMENT_BLOCK * SEGMENT_BLOCK;
}

uint64_t segment_device_bytes(struct io_file *file, uint64_t fallback)
{
	int fd = file->ops->fd(file);
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		return fallback;
	return (uint64_t)st.st_blocks * 512;
}

void segment_set_allocated(struct segment_set *set, struct segment *seg, uint64_t bytes)
{
	if (!seg->removed)
		set->allocated += bytes - seg->allocated;
	seg->allocated = bytes;
}

/* ---- the table */

static size_t position(const struct segment_set *set, uint32_t id)
{
	size_t low = 0, high = set->num;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (set->at[middle]->id < id)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct segment *segment_table_find(struct segment_set *set, uint32_t id)
{
	size_t i = position(set, id);

	return i < set->num && set->at[i]->id == id ? set->at[i] : NULL;
}

/* At the end; sort() is to come. */
static int append(struct segment_set *set, struct segment *seg)
{
	if (array_room(&set->at, &set->cap, set->num, sizeof(*set->at)) < 0)
		return -ENOMEM;
	set->at[set->num++] = seg;
	set->allocated += seg->allocated;
	if (seg->id >= set->next_id)
		set->next_id = seg->id + 1;
	return 0;
}

static int insert(struct segment_set *set, struct segment *seg)
{
	size_t i = position(set, seg->id), behind = set->num - i;
	int r = append(set, seg);

	if (r)
		return r;
	memmove(set->at + i + 1, set->at + i, behind * sizeof(struct segment *));
	set->at[i] = seg;
	return 0;
}

/* ---- open files */

static void close_direct(struct segment *seg)
{
	if (seg->direct_fd >= 0)
		close(seg->direct_fd);
	seg->direct_fd = -1;
}

static void list_take(struct segment_set *set, struct segment *seg)
{
	*(seg->newer ? &seg->newer->older : &set->newest) = seg->older;
	*(seg->older ? &seg->older->newer : &set->oldest) = seg->newer;
	seg->newer = seg->older = NULL;
	set->num_open--;
}

static void list_put(struct segment_set *set, struct segment *seg)
{
	seg->older = set->newest;
	*(set->newest ? &set->newest->newer : &set->oldest) = seg;
	set->newest = seg;
	set->num_open++;
}

void segment_close(struct segment_set *set, struct segment *seg)
{
	list_take(set, seg);
	close_direct(seg);
	io_close(seg->file);
	seg->file = NULL;
	seg->wide = false;
}

static void close_surplus(struct segment_set *set)
{
	struct segment *seg = set->oldest, *newer;

	for (; seg && set->num_open > set->open_max; seg = newer) {
		newer = seg->newer;
		if (!seg->users && !seg->dirty)
			segment_close(set, seg);
	}
}

int segment_use(struct segment_set *set, struct segment *seg)
{
	char path[SEGMENT_PATH];
	int r;

	if (seg->file) {
		list_take(set, seg);
	} else {
		r = io_open(set->io, segment_path(path, seg->id, seg->is_private),
			IO_READ | (set->opt.read_only || seg->is_private ? 0 : IO_WRITE), &seg->file);
		if (r)
			return r;
	}
	list_put(set, seg);
	seg->users++;
	close_surplus(set);
	return 0;
}

int segment_open_wide(struct segment_set *set, const struct segment *seg, struct io_file **ret)
{
	char path[SEGMENT_PATH];

	return io_open(set->io, segment_path(path, seg->id, seg->is_private), IO_READ | IO_WRITE, ret);
}

void segment_unuse(struct segment_set *set, struct segment *seg)
{
	if (--seg->users)
		return;
	close_direct(seg); /* who appends is a user: no more of it */
	if (!seg->removed)
		return;
	segment_close(set, seg);
	free(seg);
}

static int add_found(struct segment_set *set, uint32_t id, bool is_private, struct segment **ret);

/* A living daemon may have begun one since the table was made. */
int segment_get(struct segment_set *set, uint32_t id, struct segment **ret)
{
	struct segment *seg;
	int r = 0;

	pthread_mutex_lock(&set->lock);
	seg = segment_table_find(set, id);
	if (!seg)
		r = set->opt.read_only ? add_found(set, id, false, &seg) : -ENOENT;
	if (!r)
		r = segment_use(set, seg);
	pthread_mutex_unlock(&set->lock);
	if (!r)
		*ret = seg;
	return r;
}

void segment_put(struct segment_set *set, struct segment *seg)
{
	pthread_mutex_lock(&set->lock);
	segment_unuse(set, seg);
	pthread_mutex_unlock(&set->lock);
}

void segment_mark_dirty(struct segment_set *set, struct segment *seg)
{
	if (!seg->dirty && !seg->removed) {
		seg->next_dirty = set->dirty;
		set->dirty = seg;
	}
	seg->dirty = true;
}

static void unmark_dirty(struct segment_set *set, const struct segment *seg)
{
	struct segment **at = &set->dirty;

	while (*at != seg)
		at = &(*at)->next_dirty;
	*at = seg->next_dirty;
}

void segment_table_remove(struct segment_set *set, struct segment *seg)
{
	size_t i = position(set, seg->id);

	memmove(set->at + i, set->at + i + 1, (set->num - i - 1) * sizeof(struct segment *));
	set->num--;
	if (seg->dirty)
		unmark_dirty(set, seg);
	set->allocated -= seg->allocated;
	seg->removed = true;
	if (seg->users)
		return;
	if (seg->file)
		segment_close(set, seg);
	free(seg);
}

void segment_table_destroy(struct segment_set *set)
{
	for (size_t i = 0; i < set->num; i++) {
		close_direct(set->at[i]);
		io_close(set->at[i]->file);
		free(set->at[i]);
	}
	free(set->at);
}

/* ---- creation */

static int create_file(struct segment_set *set, struct segment *seg, uint64_t bytes)
{
	char path[SEGMENT_PATH];
	int r;

	segment_path(path, seg->id, seg->is_private);
	r = io_open(set->io, path, IO_READ | IO_WRITE | IO_CREATE | IO_EXCL, &seg->file);
	if (r)
		return r;
	if (bytes > 0)
		r = seg->file->ops->allocate(seg->file, 0, bytes);
	if (!r)
		r = insert(set, seg);
	if (r) {
		io_close(seg->file);
		if (set->io->ops->unlink(set->io, path))
			set->next_id++; /* the name stays taken */
	}
	return r;
}

static int create(struct segment_set *set, uint32_t id, bool is_private, uint64_t bytes, struct segment **ret)
{
	struct segment *seg;
	int r;

	if (id == UINT32_MAX)
		return -EOVERFLOW;
	seg = calloc(1, sizeof(*seg));
	if (!seg)
		return -ENOMEM;
	seg->id = id;
	seg->direct_fd = -1;
	seg->is_private = seg->wide = is_private;
	seg->allocated = segment_blocks(bytes);
	seg->users = 1;
	r = create_file(set, seg, bytes);
	if (r) {
		free(seg);
		return r;
	}
	seg->names_gen = ++set->names_gen;
	list_put(set, seg);
	close_surplus(set);
	*ret = seg;
	return 0;
}

int segment_table_create(struct segment_set *set, bool is_private, uint64_t bytes, struct segment **ret)
{
	return create(set, set->next_id, is_private, bytes, ret);
}

int segment_table_create_lost(struct segment_set *set, uint32_t id, struct segment **ret)
{
	return create(set, id, true, 0, ret);
}

/* ---- loading */

/* Is name the one that we would give to a segment with the number it begins with? */
static bool parse_name(const char *name, uint32_t *ret_id, bool *ret_is_private)
{
	unsigned long id = strtoul(name, NULL, 10);
	char path[SEGMENT_PATH];

	if (id == 0 || id >= UINT32_MAX)
		return false;
	*ret_id = (uint32_t)id;
	for (int is_private = 0; is_private < 2; is_private++) {
		*ret_is_private = is_private;
		if (strcmp(segment_path(path, *ret_id, is_private) + strlen(SEGMENT_DIR "/"), name) == 0)
			return true;
	}
	return false;
}

/*
 * What the last process appended may be in the page cache alone still, and is on the device from now on: segment_sync promises it.
 * (Private ones: see sync_leftovers.)
 */
static int look_at(struct segment_set *set, struct segment *seg)
{
	char path[SEGMENT_PATH];
	int r = io_open(set->io, segment_path(path, seg->id, seg->is_private), IO_READ, &seg->file);

	if (!r && !seg->is_private && !set->opt.read_only)
		r = seg->file->ops->sync(seg->file);
	if (!r)
		r = seg->file->ops->size(seg->file, &seg->size);
	if (!r)
		seg->allocated = segment_device_bytes(seg->file, segment_blocks(seg->size));
	io_close(seg->file);
	seg->file = NULL;
	return r;
}

static int add(struct segment_set *set, uint32_t id, bool is_private,
	int (*put)(struct segment_set *set, struct segment *seg), struct segment **ret)
{
	struct segment *seg = calloc(1, sizeof(*seg));
	int r;

	if (!seg)
		return -ENOMEM;
	seg->id = id;
	seg->direct_fd = -1;
	seg->is_private = is_private;
	seg->names_gen = 1;
	r = look_at(set, seg);
	if (!r)
		r = put(set, seg);
	if (r)
		free(seg);
	else
		*ret = seg;
	return r;
}

static int add_found(struct segment_set *set, uint32_t id, bool is_private, struct segment **ret)
{
	return add(set, id, is_private, insert, ret);
}

int segment_table_add_lost(struct segment_set *set, uint32_t id, struct segment **ret)
{
	struct segment *seg = calloc(1, sizeof(*seg));
	int r;

	if (!seg)
		return -ENOMEM;
	seg->lost_ns = clock_wall_ns();
	seg->id = id;
	seg->direct_fd = -1;
	seg->is_private = true;
	r = insert(set, seg);
	if (r)
		free(seg);
	else
		*ret = seg;
	return r;
}

bool segment_is_lost(struct segment_set *set, uint32_t id, int64_t *ret_since_ns)
{
	struct segment *seg;

	pthread_mutex_lock(&set->lock);
	seg = segment_table_find(set, id);
	*ret_since_ns = seg ? seg->lost_ns : 0;
	pthread_mutex_unlock(&set->lock);
	return *ret_since_ns != 0;
}

struct load {
	struct segment_set *set;
	struct cistern_error *err;
};

/* What has a segment's name and is no file, or leads nowhere. */
static bool is_odd(int r)
{
	return r == -ENOENT || r == -EISDIR || r == -ENXIO || r == -ELOOP;
}

static int load_one(const char *name, void *arg)
{
	const struct load *l = arg;
	struct segment *seg;
	bool is_private;
	uint32_t id;
	int r;

	if (!parse_name(name, &id, &is_private))
		return 0;
	r = add(l->set, id, is_private, append, &seg);
	/* A living daemon deletes segments while we look: what no state refers to any more. The others count, and are missed where they are read. */
	if (!r || (is_odd(r) && l->set->opt.read_only))
		return 0;
	return cistern_error_set(l->err, r, SEGMENT_DIR "/%s: cannot be %s: %s%s", name,
		l->set->opt.read_only ? "looked at" : "looked at and synced", strerror(-r),
		is_odd(r) ? "; it is not what was there: move it out of the store" : "; check the store's file system");
}

static int compare_ids(const void *a, const void *b)
{
	const struct segment *const *x = a, *const *y = b;

	return ((*x)->id > (*y)->id) - ((*x)->id < (*y)->id);
}

/* A folder lists its files in no order. */
static int sort(struct segment_set *set, struct cistern_error *err)
{
	if (set->num)
		qsort(set->at, set->num, sizeof(struct segment *), compare_ids);
	for (size_t i = 1; i < set->num; i++)
		if (set->at[i]->id == set->at[i - 1]->id)
			return cistern_error_set(err, -EEXIST,
				SEGMENT_DIR ": number %u is there as a segment of the log and as a private one",
				set->at[i]->id);
	return 0;
}

int segment_table_load(struct segment_set *set, struct cistern_error *err)
{
	struct cistern_error one = { 0 };
	struct load l = { set, &one };
	int r;

	set->next_id = 1;
	set->names_gen = 1;
	set->open_max = descriptors_share(SEGMENT_OPEN_MAX, 8);
	r = set->io->ops->list(set->io, SEGMENT_DIR, load_one, &l);
	if (r == -ENOENT && set->opt.read_only)
		r = 0;
	if (r)
		return cistern_error_set(err, r, *one.text ? "%s" : SEGMENT_DIR ": cannot be listed: %s",
			*one.text ? one.text : strerror(-r));
	return sort(set, err);
}
