/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Each operation is drawn, done in the model with system calls, and committed to the store as the records that the daemon
 * would commit for it. Names of the backing directory are adopted when a path first leads through them. Times are those of
 * a clock of the world's own, so that the model and the records have the same ones; only mtimes are compared.
 *
 * Few names and short paths are drawn, so that operations meet: what is renamed is replaced, linked and removed again.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tests/lib/world.h"

#include "tests/lib/scratch.h"

#define FILE_MAX   40000
#define TIME_BEGIN 1600000000000000000ll

void world_die(const char *what, int r)
{
	printf("# %s: %s\n", what, strerror(r < 0 ? -r : r));
	fflush(stdout);
	_exit(99);
}

void world_must(int r, const char *what)
{
	if (r < 0)
		world_die(what, r == -1 ? errno : r);
}

uint64_t world_random(struct world *w)
{
	w->random ^= w->random << 13;
	w->random ^= w->random >> 7;
	w->random ^= w->random << 17;
	return w->random;
}

unsigned int world_below(struct world *w, unsigned int n)
{
	return (unsigned int)(world_random(w) >> 20) % n;
}

void world_path(char out[WORLD_PATH_BYTES], const char *dir, const char *path)
{
	if (snprintf(out, WORLD_PATH_BYTES, "%s/%s", dir, path) >= WORLD_PATH_BYTES)
		world_die("path", ENAMETOOLONG);
}

static void fill(struct world *w, uint8_t *buf, size_t len)
{
	for (size_t i = 0; i < len; i++)
		buf[i] = (uint8_t)world_random(w);
}

static void set_times(const char *path, int64_t ns)
{
	struct timespec t[2] = { { .tv_nsec = UTIME_OMIT }, { ns / 1000000000, ns % 1000000000 } };

	world_must(utimensat(AT_FDCWD, path, t, AT_SYMLINK_NOFOLLOW), path);
}

/* ---- the model's paths */

static struct world *walking;

static int add_path(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	size_t skip = strlen(walking->model);

	if (ftw->level > 0 && walking->num_paths < WORLD_PATHS_MAX)
		snprintf(walking->paths[walking->num_paths++], WORLD_PATH_BYTES, "%s", path + skip + 1);
	return 0;
}

static int compare_text(const void *a, const void *b)
{
	return strcmp(a, b);
}

static void list_model(struct world *w)
{
	walking = w;
	w->num_paths = 0;
	world_must(nftw(w->model, add_path, 16, FTW_PHYS), "nftw");
	qsort(w->paths, w->num_paths, WORLD_PATH_BYTES, compare_text);
}

static mode_t type_of(struct world *w, const char *path)
{
	char at[WORLD_PATH_BYTES];
	struct stat st;

	world_path(at, w->model, path);
	return lstat(at, &st) ? 0 : st.st_mode & S_IFMT;
}

/* A random path of that type (0: any); false: there is none. */
static bool pick(struct world *w, mode_t type, char out[WORLD_PATH_BYTES])
{
	for (int tries = 0; tries < 50 && w->num_paths > 0; tries++) {
		const char *path = w->paths[world_below(w, (unsigned int)w->num_paths)];

		if (type && type_of(w, path) != type)
			continue;
		snprintf(out, WORLD_PATH_BYTES, "%s", path);
		return true;
	}
	return false;
}

/* A random place, taken or not: few names, so that they meet. */
static void pick_place(struct world *w, char out[WORLD_PATH_BYTES])
{
	static const char *const names[] = { "a", "b", "c", "d", "e", "f" };
	char dir[WORLD_PATH_BYTES];
	const char *name = names[world_below(w, 6)];

	if (world_below(w, 4) > 0 && pick(w, S_IFDIR, dir) && strlen(dir) < 100)
		world_path(out, dir, name);
	else
		snprintf(out, WORLD_PATH_BYTES, "%s", name);
}

static bool is_below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return strncmp(path, dir, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

/* ---- the daemon's part: names to inodes, adoption */

static void commit(struct world *w, struct record *rec, const char *what)
{
	if (rec->time_ns == 0)
		rec->time_ns = w->clock_ns;
	world_must(store_commit(w->store, rec), what);
}

static uint64_t hash(uint64_t a)
{
	a ^= a >> 33;
	a *= 0xff51afd7ed558ccdull;
	return (a ^ a >> 29) | STATE_BACKING_INO_BIT;
}

static void adopt_xattr(struct world *w, uint64_t ino, const char *path)
{
	uint8_t value[256];
	ssize_t n = lgetxattr(path, "user.t", value, sizeof(value));
	struct record rec = { .type = RECORD_SETXATTR,
		.ino = ino,
		.key = (const uint8_t *)"user.t",
		.key_len = 6,
		.value = value,
		.value_len = n < 0 ? 0 : (size_t)n };

	if (n >= 0)
		commit(w, &rec, "setxattr");
}

static uint64_t adopt(struct world *w, uint64_t parent, const char *name)
{
	char path[WORLD_PATH_BYTES], at[WORLD_PATH_BYTES], target[256];
	struct record rec = { .type = RECORD_ADOPT, .parent = parent };
	struct stat st;

	world_must(parent ? state_backing_child_path(w->st, parent, name, path, sizeof(path)) : 0, "backing path");
	world_path(at, w->backing, parent ? path : ".");
	world_must(lstat(at, &st), at);
	rec.ino = parent ? hash(st.st_ino) : STATE_ROOT_INO;
	if (parent)
		snprintf(rec.name, sizeof(rec.name), "%s", name);
	record_set_attributes(&rec, &st);
	if (S_ISLNK(st.st_mode)) {
		ssize_t n = readlink(at, target, sizeof(target) - 1);

		world_must((int)n, "readlink");
		target[n] = '\0';
		rec.target = target;
		rec.target_len = (size_t)n;
	}
	commit(w, &rec, "adopt");
	return rec.ino;
}

static uint64_t child(struct world *w, uint64_t parent, const char *name)
{
	struct state_name e;
	uint64_t owner;
	int r = state_lookup(w->st, parent, name, &e);

	if (r == 0)
		return e.ino;
	if (r != -ENOENT || state_backing_owner(w->st, parent, name, &owner) != -ENOENT)
		world_die(name, r == -ENOENT ? EEXIST : r);
	return adopt(w, parent, name);
}

/* The inode of a path; *ret_parent and ret_name where its last name is. The last component may be missing (0). */
static uint64_t resolve(struct world *w, const char *path, bool missing, uint64_t *ret_parent, char ret_name[256])
{
	uint64_t ino = STATE_ROOT_INO;
	char copy[WORLD_PATH_BYTES], *save = NULL;

	snprintf(copy, sizeof(copy), "%s", path);
	for (char *part = strtok_r(copy, "/", &save); part;) {
		char *next = strtok_r(NULL, "/", &save);

		*ret_parent = ino;
		snprintf(ret_name, 256, "%s", part);
		if (!next && missing)
			return 0;
		ino = child(w, ino, part);
		part = next;
	}
	return ino;
}

static void free_if_gone(struct world *w, uint64_t ino)
{
	struct record rec = { .type = RECORD_FREE, .ino = ino };
	struct inode in;

	if (ino && state_inode(w->st, ino, &in) == 0 && (in.flags & INODE_ORPHAN))
		commit(w, &rec, "free");
}

static void touch_parent(struct world *w, const char *path)
{
	char at[WORLD_PATH_BYTES], *slash;

	world_path(at, w->model, path);
	slash = strrchr(at, '/');
	*slash = '\0';
	set_times(at, w->clock_ns);
}

/* ---- what an application does */

static void write_private(struct world *w, uint32_t segment, const uint8_t *buf, size_t len)
{
	int fd = segment_open_fd(store_segments(w->store), segment, true);
	struct timespec t[2] = { { .tv_nsec = UTIME_OMIT }, { w->clock_ns / 1000000000, w->clock_ns % 1000000000 } };

	world_must(fd, "private segment");
	world_must(pwrite(fd, buf, len, 0) == (ssize_t)len ? 0 : -EIO, "private write");
	world_must(futimens(fd, t), "futimens");
	close(fd);
}

static void model_write(struct world *w, const char *path, const uint8_t *buf, size_t len, uint64_t off, int flags)
{
	char at[WORLD_PATH_BYTES];
	int fd;

	world_path(at, w->model, path);
	fd = open(at, O_WRONLY | flags, 0640);
	world_must(fd, at);
	world_must(pwrite(fd, buf, len, (off_t)off) == (ssize_t)len ? 0 : -EIO, "model write");
	close(fd);
	set_times(at, w->clock_ns);
}

/* The bytes of a new file that the store is too full for: straight to a backing file with a temporary name. */
static void write_through(struct world *w, uint64_t ino, const uint8_t *buf, size_t len)
{
	struct record placed = {
		.type = RECORD_PLACED, .flags = RECORD_F_UNPUBLISHED, .ino = ino, .parent = STATE_ROOT_INO
	};
	struct record through = { .type = RECORD_THROUGH, .ino = ino, .off = 0, .len = len };
	struct record attr = { .type = RECORD_SETATTR, .ino = STATE_ROOT_INO, .mask = RECORD_ATTR_MTIME };
	struct inode root;
	char at[WORLD_PATH_BYTES];
	struct stat st;
	int fd;

	snprintf(placed.name, sizeof(placed.name), ".cistern-tmp-through-%" PRIu64, ino);
	world_path(at, w->backing, placed.name);
	fd = open(at, O_WRONLY | O_CREAT | O_EXCL, 0600);
	world_must(fd, at);
	world_must(pwrite(fd, buf, len, 0) == (ssize_t)len ? 0 : -EIO, "through");
	world_must(fstat(fd, &st), "fstat");
	close(fd);
	placed.backing_dev = st.st_dev;
	placed.backing_ino = st.st_ino;
	commit(w, &placed, "unpublished");
	commit(w, &through, "through");
	/* The temporary name has changed the root's times in the backing directory. */
	world_must(state_inode(w->st, STATE_ROOT_INO, &root), "root");
	attr.mtime_ns = root.mtime_ns;
	commit(w, &attr, "times of the root");
}

static void op_create(struct world *w)
{
	static uint8_t buf[FILE_MAX];
	struct record rec = { .type = RECORD_CREATE, .mode = S_IFREG | 0640 };
	size_t len = world_below(w, 3) ? world_below(w, FILE_MAX) : world_below(w, 100);
	unsigned int kind = world_below(w, 4);
	char path[WORLD_PATH_BYTES];

	pick_place(w, path);
	if (type_of(w, path))
		return;
	fill(w, buf, len);
	resolve(w, path, true, &rec.parent, rec.name);
	rec.ino = state_new_ino(w->st);
	if (kind == 0)
		world_must(segment_create_private(store_segments(w->store), &rec.segment), "private segment");
	commit(w, &rec, "create");
	if (kind == 0)
		write_private(w, rec.segment, buf, len);
	else if (kind == 1 && len > 0)
		write_through(w, rec.ino, buf, len);
	else if (len > 0)
		world_must(store_write(w->store, rec.ino, 0, 0, buf, len), "write");
	model_write(w, path, buf, len, 0, O_CREAT | O_EXCL);
	touch_parent(w, path);
	/* store_write and THROUGH have times of their own */
	if (kind != 0) {
		struct record attr = {
			.type = RECORD_SETATTR, .ino = rec.ino, .mask = RECORD_ATTR_MTIME, .mtime_ns = w->clock_ns
		};

		commit(w, &attr, "times");
	}
}

static bool is_private(struct world *w, uint64_t ino)
{
	struct inode in;

	world_must(state_inode(w->st, ino, &in), "inode");
	return in.flags & INODE_PRIVATE;
}

static void set_mtime(struct world *w, uint64_t ino)
{
	struct record attr = { .type = RECORD_SETATTR, .ino = ino, .mask = RECORD_ATTR_MTIME, .mtime_ns = w->clock_ns };

	commit(w, &attr, "times");
}

static void op_write(struct world *w)
{
	static uint8_t buf[FILE_MAX];
	char path[WORLD_PATH_BYTES], name[256];
	uint64_t parent, ino, off;
	size_t len = 1 + world_below(w, world_below(w, 2) ? 100 : FILE_MAX - 1);

	if (!pick(w, S_IFREG, path))
		return;
	ino = resolve(w, path, false, &parent, name);
	if (is_private(w, ino))
		return;
	off = world_below(w, 10) == 0 ? 1000000 + world_below(w, 3000000) : world_below(w, 2 * FILE_MAX);
	fill(w, buf, len);
	world_must(store_write(w->store, ino, 0, off, buf, len), "write");
	set_mtime(w, ino);
	model_write(w, path, buf, len, off, 0);
}

static void op_truncate(struct world *w)
{
	struct record rec = { .type = RECORD_TRUNCATE, .size = world_below(w, 2) ? 0 : world_below(w, 2 * FILE_MAX) };
	char path[WORLD_PATH_BYTES], at[WORLD_PATH_BYTES], name[256];
	uint64_t parent;

	if (!pick(w, S_IFREG, path))
		return;
	rec.ino = resolve(w, path, false, &parent, name);
	if (is_private(w, rec.ino))
		return;
	commit(w, &rec, "truncate");
	world_path(at, w->model, path);
	world_must(truncate(at, (off_t)rec.size), at);
	set_times(at, w->clock_ns);
}

static void op_punch(struct world *w)
{
	struct record rec = { .type = RECORD_PUNCH, .flags = RECORD_F_KEEP_SIZE };
	char path[WORLD_PATH_BYTES], at[WORLD_PATH_BYTES], name[256];
	uint64_t parent;
	int fd;

	if (!pick(w, S_IFREG, path))
		return;
	rec.ino = resolve(w, path, false, &parent, name);
	if (is_private(w, rec.ino))
		return;
	rec.off = world_below(w, FILE_MAX);
	rec.len = 1 + world_below(w, FILE_MAX);
	commit(w, &rec, "punch");
	set_mtime(w, rec.ino);
	world_path(at, w->model, path);
	fd = open(at, O_WRONLY);
	world_must(fd, at);
	world_must(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)rec.off, (off_t)rec.len),
		"model punch");
	close(fd);
	set_times(at, w->clock_ns);
}

static void op_mkdir(struct world *w)
{
	struct record rec = { .type = RECORD_CREATE, .mode = S_IFDIR | 0750 };
	char path[WORLD_PATH_BYTES], at[WORLD_PATH_BYTES];

	pick_place(w, path);
	if (type_of(w, path))
		return;
	resolve(w, path, true, &rec.parent, rec.name);
	rec.ino = state_new_ino(w->st);
	commit(w, &rec, "mkdir");
	world_path(at, w->model, path);
	world_must(mkdir(at, 0750), at);
	set_times(at, w->clock_ns);
	touch_parent(w, path);
}

static void op_symlink(struct world *w)
{
	char path[WORLD_PATH_BYTES], at[WORLD_PATH_BYTES], target[32];
	struct record rec = { .type = RECORD_CREATE, .mode = S_IFLNK | 0777, .target = target };

	pick_place(w, path);
	if (type_of(w, path))
		return;
	rec.target_len = (size_t)snprintf(target, sizeof(target), "to-%u", world_below(w, 1000));
	resolve(w, path, true, &rec.parent, rec.name);
	rec.ino = state_new_ino(w->st);
	commit(w, &rec, "symlink");
	world_path(at, w->model, path);
	world_must(symlink(target, at), at);
	set_times(at, w->clock_ns);
	touch_parent(w, path);
}

static void op_unlink(struct world *w)
{
	struct record rec = { .type = RECORD_UNLINK };
	char path[WORLD_PATH_BYTES], at[WORLD_PATH_BYTES];

	if (!pick(w, world_below(w, 3) ? 0 : S_IFDIR, path))
		return;
	world_path(at, w->model, path);
	if (remove(at)) {
		if (errno != ENOTEMPTY && errno != EEXIST)
			world_die(at, errno);
		return;
	}
	rec.ino = resolve(w, path, false, &rec.parent, rec.name);
	commit(w, &rec, "unlink");
	free_if_gone(w, rec.ino);
	touch_parent(w, path);
}

/* Is a and b the same file? Then rename() does nothing. */
static bool same_file(struct world *w, const char *a, const char *b)
{
	char pa[WORLD_PATH_BYTES], pb[WORLD_PATH_BYTES];
	struct stat sa, sb;

	world_path(pa, w->model, a);
	world_path(pb, w->model, b);
	return lstat(pa, &sa) == 0 && lstat(pb, &sb) == 0 && sa.st_ino == sb.st_ino;
}

static void op_rename(struct world *w)
{
	struct record rec = { .type = RECORD_RENAME };
	char from[WORLD_PATH_BYTES], to[WORLD_PATH_BYTES], from_at[WORLD_PATH_BYTES], to_at[WORLD_PATH_BYTES];
	bool exchange = world_below(w, 3) == 0;

	if (!pick(w, world_below(w, 2) ? S_IFDIR : 0, from))
		return;
	if (!exchange || !pick(w, 0, to))
		pick_place(w, to);
	if (is_below(to, from) || is_below(from, to) || same_file(w, from, to))
		return;
	exchange = exchange && type_of(w, to);
	world_path(from_at, w->model, from);
	world_path(to_at, w->model, to);
	rec.ino = resolve(w, from, false, &rec.from_parent, rec.from_name);
	rec.other_ino = resolve(w, to, !type_of(w, to), &rec.parent, rec.name);
	if (renameat2(AT_FDCWD, from_at, AT_FDCWD, to_at, exchange ? RENAME_EXCHANGE : 0)) {
		if (errno != ENOTEMPTY && errno != EEXIST && errno != EISDIR && errno != ENOTDIR)
			world_die(from_at, errno);
		return;
	}
	rec.flags = exchange ? RECORD_F_EXCHANGE : 0;
	commit(w, &rec, "rename");
	if (!exchange)
		free_if_gone(w, rec.other_ino);
	touch_parent(w, from);
	touch_parent(w, to);
}

static void op_link(struct world *w)
{
	struct record rec = { .type = RECORD_LINK };
	char from[WORLD_PATH_BYTES], to[WORLD_PATH_BYTES], from_at[WORLD_PATH_BYTES], to_at[WORLD_PATH_BYTES],
		name[256];
	uint64_t parent;

	pick_place(w, to);
	if (type_of(w, to) || !pick(w, S_IFREG, from))
		return;
	rec.ino = resolve(w, from, false, &parent, name);
	resolve(w, to, true, &rec.parent, rec.name);
	commit(w, &rec, "link");
	world_path(from_at, w->model, from);
	world_path(to_at, w->model, to);
	world_must(link(from_at, to_at), to_at);
	touch_parent(w, to);
}

static void op_chmod(struct world *w)
{
	struct record rec = { .type = RECORD_SETATTR, .mask = RECORD_ATTR_MODE };
	char path[WORLD_PATH_BYTES], at[WORLD_PATH_BYTES], name[256];
	uint64_t parent;

	if (!pick(w, 0, path) || type_of(w, path) == S_IFLNK)
		return;
	rec.ino = resolve(w, path, false, &parent, name);
	rec.mode = type_of(w, path) | 0700 | world_below(w, 64);
	commit(w, &rec, "chmod");
	world_path(at, w->model, path);
	world_must(chmod(at, rec.mode & 07777), at);
}

static void op_setxattr(struct world *w)
{
	char path[WORLD_PATH_BYTES], at[WORLD_PATH_BYTES], back[WORLD_PATH_BYTES], name[256], value[16];
	struct record rec = { .type = RECORD_SETXATTR, .key = (const uint8_t *)"user.u", .key_len = 6 };
	uint64_t parent;
	struct inode in;

	if (!pick(w, 0, path) || type_of(w, path) == S_IFLNK)
		return;
	rec.ino = resolve(w, path, false, &parent, name);
	world_must(state_inode(w->st, rec.ino, &in), "inode");
	if (!(in.flags & (INODE_NEW | INODE_DIRTY_XATTR | INODE_UNPUBLISHED)) &&
		state_backing_path(w->st, rec.ino, name, sizeof(name)) == 0) {
		world_path(back, w->backing, name);
		adopt_xattr(w, rec.ino, back);
	}
	rec.value_len = (size_t)snprintf(value, sizeof(value), "%u", world_below(w, 100000));
	rec.value = (const uint8_t *)value;
	commit(w, &rec, "setxattr");
	world_path(at, w->model, path);
	world_must(setxattr(at, "user.u", value, rec.value_len, 0), at);
}

void world_run_ops(struct world *w, unsigned int num)
{
	static void (*const ops[])(struct world *) = { op_create, op_create, op_write, op_write, op_truncate, op_punch,
		op_mkdir, op_mkdir, op_symlink, op_unlink, op_unlink, op_unlink, op_rename, op_rename, op_rename,
		op_rename, op_rename, op_rename, op_link, op_link, op_chmod, op_setxattr };

	for (unsigned int i = 0; i < num; i++) {
		list_model(w);
		w->clock_ns += WORLD_TIME_STEP;
		ops[world_below(w, sizeof(ops) / sizeof(ops[0]))](w);
	}
}

/* ---- the world's beginning */

static void make_base_file(struct world *w, const char *path, const char *at)
{
	static uint8_t buf[FILE_MAX];
	size_t len = world_below(w, FILE_MAX);

	fill(w, buf, len);
	model_write(w, path, buf, len, 0, O_CREAT);
	if (world_below(w, 3) == 0)
		world_must(setxattr(at, "user.t", "base", 4, 0), at);
}

/* A second name for one of the files; false: there is none yet. */
static bool make_base_link(struct world *w, const char *at)
{
	char other[WORLD_PATH_BYTES], other_at[WORLD_PATH_BYTES];

	if (!pick(w, S_IFREG, other))
		return false;
	world_path(other_at, w->model, other);
	world_must(link(other_at, at), at);
	return true;
}

static void make_base(struct world *w)
{
	char path[WORLD_PATH_BYTES], at[WORLD_PATH_BYTES];

	for (unsigned int i = 0, num = 3 + world_below(w, 20); i < num; i++) {
		list_model(w);
		pick_place(w, path);
		if (type_of(w, path))
			continue;
		world_path(at, w->model, path);
		switch (world_below(w, 6)) {
		case 0:
		case 1: world_must(mkdir(at, 0755), at); break;
		case 2: world_must(symlink("base", at), at); break;
		case 3:
			if (!make_base_link(w, at))
				make_base_file(w, path, at);
			break;
		default: make_base_file(w, path, at);
		}
	}
}

static void run_command(const char *command)
{
	if (system(command) != 0)
		world_die(command, EIO);
}

void world_make(struct world *w, uint64_t seed)
{
	char command[4 * WORLD_PATH_BYTES + 32];

	w->random = seed * 0x9e3779b97f4a7c15ull + 88172645463325252ull;
	w->clock_ns = TIME_BEGIN;
	world_path(w->backing, w->top, "backing");
	world_path(w->model, w->top, "model");
	world_path(w->store_dir, w->top, "store");
	world_path(w->out, w->top, "out");
	snprintf(command, sizeof(command), "rm -rf '%s' '%s' '%s' '%s'", w->backing, w->model, w->store_dir, w->out);
	run_command(command);
	world_must(mkdir(w->model, 0755), w->model);
	make_base(w);
	snprintf(command, sizeof(command), "cp -a '%s' '%s'", w->model, w->backing);
	run_command(command);
}

void world_open(struct world *w)
{
	struct store_options opt = { .mode = STORE_CREATE_OR_OPEN,
		.backing = w->backing,
		.segment_size = 4u << 20,
		.journal_size = 1u << 20,
		.index_memory = 16u << 20 };
	struct state_report report;
	struct cistern_error err = { 0 };
	struct inode in;

	if (store_open(w->store_dir, &opt, &w->store, &report, &err) < 0) {
		printf("# %s\n", err.text);
		world_die("store", err.code);
	}
	w->st = store_state(w->store);
	if (state_inode(w->st, STATE_ROOT_INO, &in) < 0)
		adopt(w, 0, ".");
}

struct world *world_new(void)
{
	struct world *w = calloc(1, sizeof(*w));

	if (!w)
		world_die("world", ENOMEM);
	snprintf(w->top, sizeof(w->top), "%s/cistern-names-XXXXXX", scratch_parent());
	if (!mkdtemp(w->top))
		world_die(w->top, errno);
	w->max_ops = 60;
	return w;
}

void world_free(struct world *w)
{
	char command[WORLD_PATH_BYTES + 16];

	snprintf(command, sizeof(command), "rm -rf '%s'", w->top);
	run_command(command);
	free(w);
}
