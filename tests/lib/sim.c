/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The simulated disk: the table of I/O operations over inodes (sim_inode.c) and names (sim_names.c), with faults on
 * command. Every operation takes the one mutex, asks whether it may go on (gate, gate_change, gate_sync) and then
 * does its work. A handle remembers the number of power cuts at its opening: an older one is stale.
 *
 * When the device stops, or loses power, the mapped images are taken away from the disk and live on as orphans until
 * their owners unmap them: what a dead program's threads still store goes nowhere.
 */
#include "tests/lib/sim.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/sim_names.h"

#define BLOCK            4096
#define FILE_LIMIT_BYTES (UINT64_C(1) << 30)
#define ENDLESS_BYTES    (UINT64_C(1) << 40) /* what space() says when there is no limit */

struct sim_orphan {
	struct image image;
	unsigned int maps;
	struct sim_orphan *next;
};

struct sim {
	struct io io;
	pthread_mutex_t lock; /* all below */
	struct sim_names names;
	struct sim_inode *inodes; /* all, also those without a name */
	struct sim_file *files;   /* all open ones */
	struct sim_orphan *orphans;
	size_t file_limit;
	uint64_t capacity;
	uint64_t calls, syncs, power_cuts;
	uint64_t fail_in, fail_num; /* so many failures to come: the next calls but fail_in - 1 */
	uint64_t stop_in;           /* 0: no stop to come */
	int fail_error;
	bool stopped;
};

struct sim_file {
	struct io_file file;
	struct sim *sim;
	struct sim_inode *inode; /* one reference */
	unsigned int flags;
	uint64_t power_cuts;
	struct sim_file *next;
};

static struct sim *sim_of(struct io *io)
{
	return (struct sim *)io;
}

static struct sim_file *file_of(struct io_file *file)
{
	return (struct sim_file *)file;
}

static struct sim *lock(struct sim *sim)
{
	pthread_mutex_lock(&sim->lock);
	return sim;
}

static void unlock_cleanup(struct sim **sim)
{
	pthread_mutex_unlock(&(*sim)->lock);
}

#define LOCKED(s) __attribute__((cleanup(unlock_cleanup), unused)) struct sim *locked = lock(s)

/* ---- gates ---- */

/* file may be NULL. */
static int gate(const struct sim *sim, const struct sim_file *file)
{
	return sim->stopped || (file && file->power_cuts != sim->power_cuts) ? -EIO : 0;
}

static int gate_change(struct sim *sim, const struct sim_file *file)
{
	int r = gate(sim, file);

	if (r)
		return r;
	sim->calls++;
	if (sim->fail_in > 1 || sim->fail_num == 0) {
		sim->fail_in -= sim->fail_in > 1;
		return 0;
	}
	sim->fail_num--;
	return -sim->fail_error;
}

/* Takes a mapped image away from the disk. */
static int orphan_image(struct sim *sim, struct sim_inode *inode)
{
	struct sim_orphan *orphan = calloc(1, sizeof(*orphan));
	int r;

	if (!orphan)
		return -ENOMEM;
	orphan->maps = inode->maps;
	r = sim_inode_detach(inode, &orphan->image);
	if (r) {
		free(orphan);
		return r;
	}
	orphan->next = sim->orphans;
	sim->orphans = orphan;
	return 0;
}

static int orphan_images(struct sim *sim)
{
	int r = 0;

	for (struct sim_inode *inode = sim->inodes; inode && !r; inode = inode->next)
		if (inode->maps)
			r = orphan_image(sim, inode);
	return r;
}

static int gate_sync(struct sim *sim, const struct sim_file *file)
{
	int r = gate(sim, file);

	if (r)
		return r;
	sim->syncs++;
	if (sim->stop_in && --sim->stop_in == 0) {
		sim->calls++;
		sim->stopped = true;
		if (orphan_images(sim))
			abort(); /* a test that went on would see a disk that cannot be */
		return -EIO;
	}
	return gate_change(sim, file);
}

/* ---- room ---- */

static uint64_t used_bytes(const struct sim *sim)
{
	uint64_t blocks = 0;

	for (const struct sim_inode *inode = sim->inodes; inode; inode = inode->next)
		if (inode->links || inode->opens)
			blocks += inode->blocks.num_set;
	return blocks * BLOCK;
}

static int check_room(const struct sim *sim, const struct sim_inode *inode, uint64_t off, uint64_t len)
{
	uint64_t missing, used;

	if (off > sim->file_limit || len > sim->file_limit - off)
		return -EFBIG;
	missing = sim->capacity ? sim_inode_missing(inode, off, len) * BLOCK : 0;
	if (!missing)
		return 0;
	used = used_bytes(sim);
	return used > sim->capacity || missing > sim->capacity - used ? -ENOSPC : 0;
}

/* Frees the inodes that nothing refers to any more. */
static void collect(struct sim *sim)
{
	for (struct sim_inode **p = &sim->inodes; *p;) {
		struct sim_inode *inode = *p;

		if (inode->refs) {
			p = &inode->next;
			continue;
		}
		*p = inode->next;
		sim_inode_destroy(inode);
	}
}

/* ---- operations on names ---- */

static const struct io_ops sim_ops;

/* The inode at path: an existing one, or, when the flags say so, a new one. */
static int open_inode(struct sim *sim, const char *path, unsigned int flags, struct sim_inode **ret_inode)
{
	struct sim_entry *entry = sim_names_find(&sim->names, path);
	struct sim_inode *inode;
	int r;

	if (sim_names_is_dir(&sim->names, path))
		return (flags & IO_EXCL) ? -EEXIST : -EISDIR;
	if (entry && (flags & IO_CREATE) && (flags & IO_EXCL))
		return -EEXIST;
	if (!entry && !(flags & IO_CREATE))
		return -ENOENT;
	if (entry) {
		*ret_inode = entry->inode;
		if (!(flags & IO_TRUNCATE) || entry->inode->size == 0)
			return 0;
		r = gate_change(sim, NULL);
		return r ? r : sim_inode_truncate(entry->inode, 0);
	}
	r = gate_change(sim, NULL);
	if (!r)
		r = sim_inode_create(sim->file_limit, &inode);
	if (r)
		return r;
	r = sim_names_make(&sim->names, path, inode);
	if (r) {
		sim_inode_destroy(inode);
		return r;
	}
	inode->next = sim->inodes;
	sim->inodes = inode;
	*ret_inode = inode;
	return 0;
}

static int sim_open(struct io *io, const char *path, unsigned int flags, struct io_file **ret_file)
{
	struct sim *sim = sim_of(io);
	char clean[SIM_PATH_BYTES];
	struct sim_file *file;
	int r = sim_names_clean(path, clean);
	LOCKED(sim);

	if (!(flags & (IO_READ | IO_WRITE)) || ((flags & IO_TRUNCATE) && !(flags & IO_WRITE)))
		return -EINVAL;
	if (!r)
		r = gate(sim, NULL);
	if (r)
		return r;
	file = calloc(1, sizeof(*file));
	if (!file)
		return -ENOMEM;
	r = open_inode(sim, clean, flags, &file->inode);
	if (r) {
		free(file);
		return r;
	}
	file->file.ops = &sim_ops;
	file->sim = sim;
	file->flags = flags;
	file->power_cuts = sim->power_cuts;
	file->inode->refs++;
	file->inode->opens++;
	file->next = sim->files;
	sim->files = file;
	*ret_file = &file->file;
	return 0;
}

static void sim_io_destroy(struct io *io)
{
	(void)io; /* the disk outlives those who use it; see sim_destroy() */
}

static int sim_unlink(struct io *io, const char *path)
{
	struct sim *sim = sim_of(io);
	char clean[SIM_PATH_BYTES];
	int r = sim_names_clean(path, clean);
	LOCKED(sim);

	if (!r)
		r = gate_change(sim, NULL);
	return r ? r : sim_names_remove(&sim->names, clean);
}

static int sim_rename(struct io *io, const char *from, const char *to)
{
	struct sim *sim = sim_of(io);
	char clean_from[SIM_PATH_BYTES], clean_to[SIM_PATH_BYTES];
	int r = sim_names_clean(from, clean_from);
	LOCKED(sim);

	if (!r)
		r = sim_names_clean(to, clean_to);
	if (!r)
		r = gate_change(sim, NULL);
	return r ? r : sim_names_rename(&sim->names, clean_from, clean_to);
}

static int sim_mkdir(struct io *io, const char *path)
{
	struct sim *sim = sim_of(io);
	char clean[SIM_PATH_BYTES];
	int r = sim_names_clean(path, clean);
	LOCKED(sim);

	if (!r)
		r = gate_change(sim, NULL);
	return r ? r : sim_names_make(&sim->names, clean, NULL);
}

static int sim_sync_dir(struct io *io, const char *path)
{
	struct sim *sim = sim_of(io);
	char clean[SIM_PATH_BYTES];
	int r = sim_names_clean(path, clean);
	LOCKED(sim);

	if (!r && !sim_names_is_dir(&sim->names, clean))
		r = sim_names_find(&sim->names, clean) ? -ENOTDIR : -ENOENT;
	if (!r)
		r = gate_sync(sim, NULL);
	if (r)
		return r;
	sim_names_sync_dir(&sim->names, clean);
	collect(sim);
	return 0;
}

/* The names in directory dir, one after the other, each with its NUL, and an empty one at the end. */
static char *names_in(struct sim *sim, const char *dir)
{
	size_t len = strlen(dir), skip = len ? len + 1 : 0, at = 0, cap = 1;
	char *names;

	for (size_t i = 0; i < sim->names.seen.num; i++)
		cap += strlen(sim->names.seen.entries[i].path) + 1;
	names = calloc(1, cap);
	for (size_t i = 0; names && i < sim->names.seen.num; i++) {
		const char *path = sim->names.seen.entries[i].path;

		if (len && (strncmp(path, dir, len) != 0 || path[len] != '/'))
			continue;
		if (strchr(path + skip, '/'))
			continue;
		strcpy(names + at, path + skip);
		at += strlen(path + skip) + 1;
	}
	return names;
}

/* As with a real directory, the callback may change it. */
static int sim_list(struct io *io, const char *path, int (*each)(const char *name, void *arg), void *arg)
{
	struct sim *sim = sim_of(io);
	char clean[SIM_PATH_BYTES], *names = NULL;
	int r = sim_names_clean(path, clean);

	if (r)
		return r;
	lock(sim);
	r = gate(sim, NULL);
	if (!r && !sim_names_is_dir(&sim->names, clean))
		r = sim_names_find(&sim->names, clean) ? -ENOTDIR : -ENOENT;
	if (!r) {
		names = names_in(sim, clean);
		r = names ? 0 : -ENOMEM;
	}
	unlock_cleanup(&sim);
	for (const char *name = names; !r && *name; name += strlen(name) + 1)
		r = each(name, arg);
	free(names);
	return r;
}

static int sim_space(struct io *io, uint64_t *ret_total_bytes, uint64_t *ret_free_bytes)
{
	struct sim *sim = sim_of(io);
	uint64_t total, used;
	LOCKED(sim);

	if (gate(sim, NULL))
		return -EIO;
	total = sim->capacity ? sim->capacity : ENDLESS_BYTES;
	used = used_bytes(sim);
	*ret_total_bytes = total;
	*ret_free_bytes = used < total ? total - used : 0;
	return 0;
}

/* ---- operations on files ---- */

static void sim_close(struct io_file *io_file)
{
	struct sim_file *file = file_of(io_file);
	struct sim *sim = file->sim;
	LOCKED(sim);

	for (struct sim_file **p = &sim->files; *p; p = &(*p)->next)
		if (*p == file) {
			*p = file->next;
			break;
		}
	file->inode->opens--;
	file->inode->refs--;
	free(file);
	collect(sim);
}

static ssize_t sim_pread(struct io_file *io_file, void *buf, size_t len, uint64_t off)
{
	struct sim_file *file = file_of(io_file);
	LOCKED(file->sim);

	if (gate(file->sim, file))
		return -EIO;
	if (!(file->flags & IO_READ))
		return -EBADF;
	return (ssize_t)sim_inode_read(file->inode, buf, len, off);
}

static ssize_t sim_pwrite(struct io_file *io_file, const void *buf, size_t len, uint64_t off)
{
	struct sim_file *file = file_of(io_file);
	int room, r;
	LOCKED(file->sim);

	if (!(file->flags & IO_WRITE))
		return -EBADF;
	if (gate(file->sim, file))
		return -EIO;
	r = gate_change(file->sim, file);
	room = check_room(file->sim, file->inode, off, len);
	if (r && !room)
		(void)sim_inode_write(file->inode, buf, len / 2, off); /* the failing half-way is what is asked for */
	if (!r)
		r = room;
	if (!r)
		r = sim_inode_write(file->inode, buf, len, off);
	return r ? r : (ssize_t)len;
}

static int sim_sync(struct io_file *io_file)
{
	struct sim_file *file = file_of(io_file);
	LOCKED(file->sim);
	int r = gate_sync(file->sim, file);

	if (r)
		return r;
	sim_names_sync_inode(&file->sim->names, file->inode);
	sim_inode_sync(file->inode);
	return 0;
}

static int sim_write_out(struct io_file *io_file, uint64_t off, uint64_t len)
{
	struct sim_file *file = file_of(io_file);
	LOCKED(file->sim);

	(void)off;
	(void)len;
	return gate(file->sim, file);
}

/* What allocate, punch and truncate have in common. */
static int begin_resize(struct sim_file *file)
{
	return file->flags & IO_WRITE ? gate_change(file->sim, file) : -EBADF;
}

static int sim_allocate(struct io_file *io_file, uint64_t off, uint64_t len)
{
	struct sim_file *file = file_of(io_file);
	LOCKED(file->sim);
	int r = len ? begin_resize(file) : -EINVAL;

	if (!r)
		r = check_room(file->sim, file->inode, off, len);
	return r ? r : sim_inode_allocate(file->inode, off, len);
}

static int sim_punch(struct io_file *io_file, uint64_t off, uint64_t len)
{
	struct sim_file *file = file_of(io_file);
	LOCKED(file->sim);
	int r = len ? begin_resize(file) : -EINVAL;

	if (!r)
		sim_inode_punch(file->inode, off, len);
	return r;
}

static int sim_truncate(struct io_file *io_file, uint64_t size)
{
	struct sim_file *file = file_of(io_file);
	LOCKED(file->sim);
	int r = begin_resize(file);

	return r ? r : sim_inode_truncate(file->inode, size);
}

static int sim_size(struct io_file *io_file, uint64_t *ret_size)
{
	struct sim_file *file = file_of(io_file);
	LOCKED(file->sim);

	if (gate(file->sim, file))
		return -EIO;
	*ret_size = file->inode->size;
	return 0;
}

static int sim_map(struct io_file *io_file, size_t len, bool writable, void **ret_addr)
{
	struct sim_file *file = file_of(io_file);
	LOCKED(file->sim);

	if (gate(file->sim, file))
		return -EIO;
	if (len == 0 || len % BLOCK != 0)
		return -EINVAL;
	if (!(file->flags & IO_READ) || (writable && !(file->flags & IO_WRITE)))
		return -EACCES;
	if (len > file->inode->seen.limit)
		return -ENOMEM;
	file->inode->maps++;
	*ret_addr = file->inode->seen.base;
	return 0;
}

static void unmap_orphan(struct sim *sim, const void *addr)
{
	for (struct sim_orphan **p = &sim->orphans; *p; p = &(*p)->next) {
		struct sim_orphan *orphan = *p;

		if (orphan->image.base != addr)
			continue;
		if (--orphan->maps == 0) {
			*p = orphan->next;
			image_destroy(&orphan->image);
			free(orphan);
		}
		return;
	}
}

/* The last unmapping records what was stored, because only mapped files are compared. */
static void sim_unmap(struct io_file *io_file, void *addr, size_t len)
{
	struct sim_file *file = file_of(io_file);
	LOCKED(file->sim);

	(void)len;
	if (addr != file->inode->seen.base)
		unmap_orphan(file->sim, addr);
	else if (file->inode->maps)
		sim_inode_unmap(file->inode);
}

static int sim_fd(struct io_file *io_file)
{
	(void)io_file;
	return -ENOTSUP;
}

static const struct io_ops sim_ops = {
	.open = sim_open,
	.destroy = sim_io_destroy,
	.unlink = sim_unlink,
	.rename = sim_rename,
	.mkdir = sim_mkdir,
	.sync_dir = sim_sync_dir,
	.list = sim_list,
	.space = sim_space,
	.close = sim_close,
	.pread = sim_pread,
	.pwrite = sim_pwrite,
	.sync = sim_sync,
	.write_out = sim_write_out,
	.allocate = sim_allocate,
	.punch = sim_punch,
	.truncate = sim_truncate,
	.size = sim_size,
	.map = sim_map,
	.unmap = sim_unmap,
	.fd = sim_fd,
};

/* ---- the tests' side ---- */

int sim_create(struct sim **ret_sim, struct io **ret_io)
{
	struct sim *sim = calloc(1, sizeof(*sim));

	if (!sim)
		return -ENOMEM;
	if (pthread_mutex_init(&sim->lock, NULL)) {
		free(sim);
		return -ENOMEM;
	}
	sim->io.ops = &sim_ops;
	sim->file_limit = FILE_LIMIT_BYTES;
	*ret_sim = sim;
	*ret_io = &sim->io;
	return 0;
}

void sim_destroy(struct sim *sim)
{
	if (!sim)
		return;
	while (sim->files)
		sim_close(&sim->files->file);
	while (sim->orphans) {
		sim->orphans->maps = 1;
		unmap_orphan(sim, sim->orphans->image.base);
	}
	sim_names_destroy(&sim->names);
	collect(sim);
	pthread_mutex_destroy(&sim->lock);
	free(sim);
}

void sim_set_file_limit(struct sim *sim, uint64_t bytes)
{
	LOCKED(sim);

	sim->file_limit = (size_t)bytes;
}

void sim_set_capacity(struct sim *sim, uint64_t bytes)
{
	LOCKED(sim);

	sim->capacity = bytes;
}

int sim_power_cut(struct sim *sim, uint64_t seed)
{
	struct sim_random random = { seed };
	int r;
	LOCKED(sim);

	r = orphan_images(sim);
	if (r)
		return r;
	sim_names_power_cut(&sim->names, &random);
	collect(sim);
	for (size_t i = 0; i < sim->names.seen.num; i++)
		if (sim->names.seen.entries[i].inode)
			sim_inode_power_cut(sim->names.seen.entries[i].inode, &random);
	sim->power_cuts++;
	sim->stopped = false;
	sim->stop_in = sim->fail_num = 0;
	return 0;
}

void sim_fail_for(struct sim *sim, uint64_t n, uint64_t num, int error)
{
	LOCKED(sim);

	sim->fail_in = n;
	sim->fail_num = n ? num : 0;
	sim->fail_error = error < 0 ? -error : error;
}

void sim_fail_after(struct sim *sim, uint64_t n, int error)
{
	sim_fail_for(sim, n, 1, error);
}

void sim_stop_at_sync(struct sim *sim, uint64_t k)
{
	LOCKED(sim);

	sim->stop_in = k;
}

uint64_t sim_calls(struct sim *sim)
{
	LOCKED(sim);

	return sim->calls;
}

uint64_t sim_syncs(struct sim *sim)
{
	LOCKED(sim);

	return sim->syncs;
}

int sim_corrupt(struct sim *sim, const char *path, uint64_t off, uint8_t xor_byte)
{
	char clean[SIM_PATH_BYTES];
	int r = sim_names_clean(path, clean);
	struct sim_entry *entry;
	LOCKED(sim);

	entry = r ? NULL : sim_names_find(&sim->names, clean);
	if (!entry || !entry->inode)
		return r ? r : -ENOENT;
	if (off >= entry->inode->size)
		return -EINVAL;
	entry->inode->seen.base[off] ^= xor_byte;
	if (off < entry->inode->disk_size)
		entry->inode->disk.base[off] ^= xor_byte;
	return 0;
}
