/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Random trees through a store and a drain. The model is a real directory: what an application does is done there with
 * system calls, and told to a store as the daemon would tell it; then the store is drained into the backing directory
 * and the two trees must be the same: names, types, contents, modes, times, targets, xattrs, who shares an inode with whom.
 *
 * Also when the drain is killed after any change that it makes, over and over, with a store that hears of each step (a
 * living daemon) and with one that never changes (a dead store), and when the application goes on after the snapshot.
 *
 *   test-drain-names [seeds [first seed [dead|once|sessions|killed]]]
 *
 * Each part runs in a child, so that a killed drain takes everything with it that a process has.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "format/store/store.h"
#include "mpi-agent/replay/drain.h"
#include "mpi-agent/replay/manifest.h"
#include "tests/lib/tap.h"

#define PATH_BYTES  1024
#define PATHS_MAX   400
#define FILE_MAX    40000
#define TIME_BEGIN  1600000000000000000ll
#define TIME_STEP   1000000007ll
#define EXIT_KILLED 137
#define LINKS_MAX   64

struct world {
	char top[PATH_BYTES - 64], backing[PATH_BYTES], model[PATH_BYTES], store_dir[PATH_BYTES], out[PATH_BYTES];
	struct store *store;
	struct state *st;
	uint64_t random;
	int64_t clock_ns;
	char paths[PATHS_MAX][PATH_BYTES]; /* of the model, relative */
	size_t num_paths;
	unsigned int max_ops;
};

static void die(const char *what, int r)
{
	printf("# %s: %s\n", what, strerror(r < 0 ? -r : r));
	fflush(stdout);
	_exit(99);
}

static void must(int r, const char *what)
{
	if (r < 0)
		die(what, r == -1 ? errno : r);
}

static uint64_t next_random(struct world *w)
{
	w->random ^= w->random << 13;
	w->random ^= w->random >> 7;
	w->random ^= w->random << 17;
	return w->random;
}

static unsigned int below(struct world *w, unsigned int n)
{
	return (unsigned int)(next_random(w) >> 20) % n;
}

static void in_dir(char out[PATH_BYTES], const char *dir, const char *path)
{
	if (snprintf(out, PATH_BYTES, "%s/%s", dir, path) >= PATH_BYTES)
		die("path", ENAMETOOLONG);
}

static void fill(struct world *w, uint8_t *buf, size_t len)
{
	for (size_t i = 0; i < len; i++)
		buf[i] = (uint8_t)next_random(w);
}

static void set_times(const char *path, int64_t ns)
{
	struct timespec t[2] = { { .tv_nsec = UTIME_OMIT }, { ns / 1000000000, ns % 1000000000 } };

	must(utimensat(AT_FDCWD, path, t, AT_SYMLINK_NOFOLLOW), path);
}

/* ---- the model's paths */

static struct world *walking;

static int add_path(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	size_t skip = strlen(walking->model);

	if (ftw->level > 0 && walking->num_paths < PATHS_MAX)
		snprintf(walking->paths[walking->num_paths++], PATH_BYTES, "%s", path + skip + 1);
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
	must(nftw(w->model, add_path, 16, FTW_PHYS), "nftw");
	qsort(w->paths, w->num_paths, PATH_BYTES, compare_text);
}

static mode_t type_of(struct world *w, const char *path)
{
	char at[PATH_BYTES];
	struct stat st;

	in_dir(at, w->model, path);
	return lstat(at, &st) ? 0 : st.st_mode & S_IFMT;
}

/* A random path of that type (0: any); false: there is none. */
static bool pick(struct world *w, mode_t type, char out[PATH_BYTES])
{
	for (int tries = 0; tries < 50 && w->num_paths > 0; tries++) {
		const char *path = w->paths[below(w, (unsigned int)w->num_paths)];

		if (type && type_of(w, path) != type)
			continue;
		snprintf(out, PATH_BYTES, "%s", path);
		return true;
	}
	return false;
}

/* A random place, taken or not: few names, so that they meet. */
static void pick_place(struct world *w, char out[PATH_BYTES])
{
	static const char *const names[] = { "a", "b", "c", "d", "e", "f" };
	char dir[PATH_BYTES];
	const char *name = names[below(w, 6)];

	if (below(w, 4) > 0 && pick(w, S_IFDIR, dir) && strlen(dir) < 100)
		in_dir(out, dir, name);
	else
		snprintf(out, PATH_BYTES, "%s", name);
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
	must(store_commit(w->store, rec), what);
}

static uint64_t hash(uint64_t a)
{
	a ^= a >> 33;
	a *= 0xff51afd7ed558ccdull;
	return (a ^ a >> 29) | STATE_BACKING_INO_BIT;
}

static int64_t ns_of(struct timespec t)
{
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
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
	char path[PATH_BYTES], at[PATH_BYTES], target[256];
	struct record rec = { .type = RECORD_ADOPT, .parent = parent };
	struct stat st;

	must(parent ? state_backing_child_path(w->st, parent, name, path, sizeof(path)) : 0, "backing path");
	in_dir(at, w->backing, parent ? path : ".");
	must(lstat(at, &st), at);
	rec.ino = parent ? hash(st.st_ino) : STATE_ROOT_INO;
	if (parent)
		snprintf(rec.name, sizeof(rec.name), "%s", name);
	rec.mode = st.st_mode;
	rec.uid = st.st_uid;
	rec.gid = st.st_gid;
	rec.nlink = (uint32_t)st.st_nlink;
	rec.size = (uint64_t)st.st_size;
	rec.atime_ns = ns_of(st.st_atim);
	rec.mtime_ns = ns_of(st.st_mtim);
	rec.ctime_ns = ns_of(st.st_ctim);
	rec.backing_dev = st.st_dev;
	rec.backing_ino = st.st_ino;
	if (S_ISLNK(st.st_mode)) {
		ssize_t n = readlink(at, target, sizeof(target) - 1);

		must((int)n, "readlink");
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
		die(name, r == -ENOENT ? EEXIST : r);
	return adopt(w, parent, name);
}

/* The inode of a path; *ret_parent and ret_name where its last name is. The last component may be missing (0). */
static uint64_t resolve(struct world *w, const char *path, bool missing, uint64_t *ret_parent, char ret_name[256])
{
	uint64_t ino = STATE_ROOT_INO;
	char copy[PATH_BYTES], *save = NULL;

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
	char at[PATH_BYTES], *slash;

	in_dir(at, w->model, path);
	slash = strrchr(at, '/');
	*slash = '\0';
	set_times(at, w->clock_ns);
}

/* ---- what an application does */

static void write_private(struct world *w, uint32_t segment, const uint8_t *buf, size_t len)
{
	int fd = segment_open_fd(store_segments(w->store), segment, true);
	struct timespec t[2] = { { .tv_nsec = UTIME_OMIT }, { w->clock_ns / 1000000000, w->clock_ns % 1000000000 } };

	must(fd, "private segment");
	must(pwrite(fd, buf, len, 0) == (ssize_t)len ? 0 : -EIO, "private write");
	must(futimens(fd, t), "futimens");
	close(fd);
}

static void model_write(struct world *w, const char *path, const uint8_t *buf, size_t len, uint64_t off, int flags)
{
	char at[PATH_BYTES];
	int fd;

	in_dir(at, w->model, path);
	fd = open(at, O_WRONLY | flags, 0640);
	must(fd, at);
	must(pwrite(fd, buf, len, (off_t)off) == (ssize_t)len ? 0 : -EIO, "model write");
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
	char at[PATH_BYTES];
	struct stat st;
	int fd;

	snprintf(placed.name, sizeof(placed.name), ".cistern-tmp-through-%" PRIu64, ino);
	in_dir(at, w->backing, placed.name);
	fd = open(at, O_WRONLY | O_CREAT | O_EXCL, 0600);
	must(fd, at);
	must(pwrite(fd, buf, len, 0) == (ssize_t)len ? 0 : -EIO, "through");
	must(fstat(fd, &st), "fstat");
	close(fd);
	placed.backing_dev = st.st_dev;
	placed.backing_ino = st.st_ino;
	commit(w, &placed, "unpublished");
	commit(w, &through, "through");
	/* The temporary name has changed the root's times in the backing directory. */
	must(state_inode(w->st, STATE_ROOT_INO, &root), "root");
	attr.mtime_ns = root.mtime_ns;
	commit(w, &attr, "times of the root");
}

static void op_create(struct world *w)
{
	static uint8_t buf[FILE_MAX];
	struct record rec = { .type = RECORD_CREATE, .mode = S_IFREG | 0640 };
	size_t len = below(w, 3) ? below(w, FILE_MAX) : below(w, 100);
	unsigned int kind = below(w, 4);
	char path[PATH_BYTES];

	pick_place(w, path);
	if (type_of(w, path))
		return;
	fill(w, buf, len);
	resolve(w, path, true, &rec.parent, rec.name);
	rec.ino = state_new_ino(w->st);
	if (kind == 0)
		must(segment_create_private(store_segments(w->store), &rec.segment), "private segment");
	commit(w, &rec, "create");
	if (kind == 0)
		write_private(w, rec.segment, buf, len);
	else if (kind == 1 && len > 0)
		write_through(w, rec.ino, buf, len);
	else if (len > 0)
		must(store_write(w->store, rec.ino, 0, 0, buf, len), "write");
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

	must(state_inode(w->st, ino, &in), "inode");
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
	char path[PATH_BYTES], name[256];
	uint64_t parent, ino, off;
	size_t len = 1 + below(w, below(w, 2) ? 100 : FILE_MAX - 1);

	if (!pick(w, S_IFREG, path))
		return;
	ino = resolve(w, path, false, &parent, name);
	if (is_private(w, ino))
		return;
	off = below(w, 10) == 0 ? 1000000 + below(w, 3000000) : below(w, 2 * FILE_MAX);
	fill(w, buf, len);
	must(store_write(w->store, ino, 0, off, buf, len), "write");
	set_mtime(w, ino);
	model_write(w, path, buf, len, off, 0);
}

static void op_truncate(struct world *w)
{
	struct record rec = { .type = RECORD_TRUNCATE, .size = below(w, 2) ? 0 : below(w, 2 * FILE_MAX) };
	char path[PATH_BYTES], at[PATH_BYTES], name[256];
	uint64_t parent;

	if (!pick(w, S_IFREG, path))
		return;
	rec.ino = resolve(w, path, false, &parent, name);
	if (is_private(w, rec.ino))
		return;
	commit(w, &rec, "truncate");
	in_dir(at, w->model, path);
	must(truncate(at, (off_t)rec.size), at);
	set_times(at, w->clock_ns);
}

static void op_punch(struct world *w)
{
	struct record rec = { .type = RECORD_PUNCH, .flags = RECORD_F_KEEP_SIZE };
	char path[PATH_BYTES], at[PATH_BYTES], name[256];
	uint64_t parent;
	int fd;

	if (!pick(w, S_IFREG, path))
		return;
	rec.ino = resolve(w, path, false, &parent, name);
	if (is_private(w, rec.ino))
		return;
	rec.off = below(w, FILE_MAX);
	rec.len = 1 + below(w, FILE_MAX);
	commit(w, &rec, "punch");
	set_mtime(w, rec.ino);
	in_dir(at, w->model, path);
	fd = open(at, O_WRONLY);
	must(fd, at);
	must(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)rec.off, (off_t)rec.len), "model punch");
	close(fd);
	set_times(at, w->clock_ns);
}

static void op_mkdir(struct world *w)
{
	struct record rec = { .type = RECORD_CREATE, .mode = S_IFDIR | 0750 };
	char path[PATH_BYTES], at[PATH_BYTES];

	pick_place(w, path);
	if (type_of(w, path))
		return;
	resolve(w, path, true, &rec.parent, rec.name);
	rec.ino = state_new_ino(w->st);
	commit(w, &rec, "mkdir");
	in_dir(at, w->model, path);
	must(mkdir(at, 0750), at);
	set_times(at, w->clock_ns);
	touch_parent(w, path);
}

static void op_symlink(struct world *w)
{
	char path[PATH_BYTES], at[PATH_BYTES], target[32];
	struct record rec = { .type = RECORD_CREATE, .mode = S_IFLNK | 0777, .target = target };

	pick_place(w, path);
	if (type_of(w, path))
		return;
	rec.target_len = (size_t)snprintf(target, sizeof(target), "to-%u", below(w, 1000));
	resolve(w, path, true, &rec.parent, rec.name);
	rec.ino = state_new_ino(w->st);
	commit(w, &rec, "symlink");
	in_dir(at, w->model, path);
	must(symlink(target, at), at);
	set_times(at, w->clock_ns);
	touch_parent(w, path);
}

static void op_unlink(struct world *w)
{
	struct record rec = { .type = RECORD_UNLINK };
	char path[PATH_BYTES], at[PATH_BYTES];

	if (!pick(w, below(w, 3) ? 0 : S_IFDIR, path))
		return;
	in_dir(at, w->model, path);
	if (remove(at)) {
		if (errno != ENOTEMPTY && errno != EEXIST)
			die(at, errno);
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
	char pa[PATH_BYTES], pb[PATH_BYTES];
	struct stat sa, sb;

	in_dir(pa, w->model, a);
	in_dir(pb, w->model, b);
	return lstat(pa, &sa) == 0 && lstat(pb, &sb) == 0 && sa.st_ino == sb.st_ino;
}

static void op_rename(struct world *w)
{
	struct record rec = { .type = RECORD_RENAME };
	char from[PATH_BYTES], to[PATH_BYTES], from_at[PATH_BYTES], to_at[PATH_BYTES];
	bool exchange = below(w, 3) == 0;

	if (!pick(w, below(w, 2) ? S_IFDIR : 0, from))
		return;
	if (!exchange || !pick(w, 0, to))
		pick_place(w, to);
	if (is_below(to, from) || is_below(from, to) || same_file(w, from, to))
		return;
	exchange = exchange && type_of(w, to);
	in_dir(from_at, w->model, from);
	in_dir(to_at, w->model, to);
	rec.ino = resolve(w, from, false, &rec.from_parent, rec.from_name);
	rec.other_ino = resolve(w, to, !type_of(w, to), &rec.parent, rec.name);
	if (renameat2(AT_FDCWD, from_at, AT_FDCWD, to_at, exchange ? RENAME_EXCHANGE : 0)) {
		if (errno != ENOTEMPTY && errno != EEXIST && errno != EISDIR && errno != ENOTDIR)
			die(from_at, errno);
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
	char from[PATH_BYTES], to[PATH_BYTES], from_at[PATH_BYTES], to_at[PATH_BYTES], name[256];
	uint64_t parent;

	pick_place(w, to);
	if (type_of(w, to) || !pick(w, S_IFREG, from))
		return;
	rec.ino = resolve(w, from, false, &parent, name);
	resolve(w, to, true, &rec.parent, rec.name);
	commit(w, &rec, "link");
	in_dir(from_at, w->model, from);
	in_dir(to_at, w->model, to);
	must(link(from_at, to_at), to_at);
	touch_parent(w, to);
}

static void op_chmod(struct world *w)
{
	struct record rec = { .type = RECORD_SETATTR, .mask = RECORD_ATTR_MODE };
	char path[PATH_BYTES], at[PATH_BYTES], name[256];
	uint64_t parent;

	if (!pick(w, 0, path) || type_of(w, path) == S_IFLNK)
		return;
	rec.ino = resolve(w, path, false, &parent, name);
	rec.mode = type_of(w, path) | 0700 | below(w, 64);
	commit(w, &rec, "chmod");
	in_dir(at, w->model, path);
	must(chmod(at, rec.mode & 07777), at);
}

static void op_setxattr(struct world *w)
{
	char path[PATH_BYTES], at[PATH_BYTES], back[PATH_BYTES], name[256], value[16];
	struct record rec = { .type = RECORD_SETXATTR, .key = (const uint8_t *)"user.u", .key_len = 6 };
	uint64_t parent;
	struct inode in;

	if (!pick(w, 0, path) || type_of(w, path) == S_IFLNK)
		return;
	rec.ino = resolve(w, path, false, &parent, name);
	must(state_inode(w->st, rec.ino, &in), "inode");
	if (!(in.flags & (INODE_NEW | INODE_DIRTY_XATTR | INODE_UNPUBLISHED)) &&
		state_backing_path(w->st, rec.ino, name, sizeof(name)) == 0) {
		in_dir(back, w->backing, name);
		adopt_xattr(w, rec.ino, back);
	}
	rec.value_len = (size_t)snprintf(value, sizeof(value), "%u", below(w, 100000));
	rec.value = (const uint8_t *)value;
	commit(w, &rec, "setxattr");
	in_dir(at, w->model, path);
	must(setxattr(at, "user.u", value, rec.value_len, 0), at);
}

static void run_ops(struct world *w, unsigned int num)
{
	static void (*const ops[])(struct world *) = { op_create, op_create, op_write, op_write, op_truncate, op_punch,
		op_mkdir, op_mkdir, op_symlink, op_unlink, op_unlink, op_unlink, op_rename, op_rename, op_rename,
		op_rename, op_rename, op_rename, op_link, op_link, op_chmod, op_setxattr };

	for (unsigned int i = 0; i < num; i++) {
		list_model(w);
		w->clock_ns += TIME_STEP;
		ops[below(w, sizeof(ops) / sizeof(ops[0]))](w);
	}
}

/* ---- the world's beginning */

static void make_base(struct world *w)
{
	static uint8_t buf[FILE_MAX];
	char path[PATH_BYTES], at[PATH_BYTES], other[PATH_BYTES], other_at[PATH_BYTES];

	for (unsigned int i = 0, num = 3 + below(w, 20); i < num; i++) {
		list_model(w);
		pick_place(w, path);
		if (type_of(w, path))
			continue;
		in_dir(at, w->model, path);
		switch (below(w, 6)) {
		case 0:
		case 1: must(mkdir(at, 0755), at); break;
		case 2: must(symlink("base", at), at); break;
		case 3:
			if (pick(w, S_IFREG, other)) {
				in_dir(other_at, w->model, other);
				must(link(other_at, at), at);
				break;
			}
			/* fall through */
		default: {
			size_t len = below(w, FILE_MAX);

			fill(w, buf, len);
			model_write(w, path, buf, len, 0, O_CREAT);
			if (below(w, 3) == 0)
				must(setxattr(at, "user.t", "base", 4, 0), at);
		}
		}
	}
}

static void run_command(const char *command)
{
	if (system(command) != 0)
		die(command, EIO);
}

static void world_make(struct world *w, uint64_t seed)
{
	char command[4 * PATH_BYTES + 32];

	w->random = seed * 0x9e3779b97f4a7c15ull + 88172645463325252ull;
	w->clock_ns = TIME_BEGIN;
	in_dir(w->backing, w->top, "backing");
	in_dir(w->model, w->top, "model");
	in_dir(w->store_dir, w->top, "store");
	in_dir(w->out, w->top, "out");
	snprintf(command, sizeof(command), "rm -rf '%s' '%s' '%s' '%s'", w->backing, w->model, w->store_dir, w->out);
	run_command(command);
	must(mkdir(w->model, 0755), w->model);
	make_base(w);
	snprintf(command, sizeof(command), "cp -a '%s' '%s'", w->model, w->backing);
	run_command(command);
}

static void world_open(struct world *w)
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
		die("store", err.code);
	}
	w->st = store_state(w->store);
	if (state_inode(w->st, STATE_ROOT_INO, &in) < 0)
		adopt(w, 0, ".");
}

/* ---- drains */

static void say_error(const char *path, int code, const char *text, void *arg)
{
	printf("# drain: %s: %s (%d)\n", path, text, code);
}

static int commit_step(const struct record *rec, void *arg)
{
	struct world *w = arg;
	struct record copy = *rec;
	struct buf bytes BUF_CLEANUP = { 0 };
	struct record_scratch scratch = { 0 };
	struct record decoded;
	size_t used;
	int r;

	/* By way of its encoding, as it reaches a daemon. */
	must(record_encode(&copy, &bytes), "encode");
	must(record_decode(bytes.data, bytes.len, &scratch, &decoded, &used), "decode");
	decoded.seq = 0;
	decoded.time_ns = 1;
	r = store_commit(w->store, &decoded);
	record_scratch_free(&scratch);
	if (r < 0 && r != -ENOENT && r != -ESTALE)
		printf("# step %s of %" PRIu64 ": %s\n", record_type_name(rec->type), rec->ino, strerror(-r));
	return r;
}

static int drain(struct world *w, struct store *source, uint64_t upto, bool live, const char *to)
{
	struct drain_options opt = { .store = source,
		.upto = upto,
		.base_dirfd = -1,
		.verify = DRAIN_VERIFY_READ,
		.buffer_bytes = 2u << 20,
		.watcher = { .error = say_error, .step = live ? commit_step : NULL, .arg = w } };
	struct cistern_error err = { 0 };
	struct drain_result res;
	char intent[PATH_BYTES], steps[PATH_BYTES];
	int r;

	in_dir(intent, w->store_dir, "drain.intent");
	in_dir(steps, w->store_dir, "recover.steps");
	opt.intent_path = intent;
	opt.steps_path = live || strcmp(to, w->backing) != 0 ? NULL : steps;
	opt.in_place = strcmp(to, w->backing) == 0;
	opt.to_dirfd = open(to, O_RDONLY | O_DIRECTORY);
	must(opt.to_dirfd, to);
	if (!opt.in_place)
		opt.base_dirfd = open(w->backing, O_RDONLY | O_DIRECTORY);
	r = drain_run(&opt, &res, &err);
	close(opt.to_dirfd);
	if (opt.base_dirfd >= 0)
		close(opt.base_dirfd);
	if (r < 0)
		printf("# drain_run: %s\n", err.text);
	fflush(stdout);
	return r < 0 || res.failed > 0 || res.missing_bytes > 0 ? 1 : 0;
}

/* A session of a living daemon; more: operations between the snapshot and the drain. */
static int live_session(struct world *w, unsigned int more)
{
	struct store_options opt = { .mode = STORE_READ_ONLY };
	struct cistern_error err = { 0 };
	struct state_report report;
	struct store *snapshot;
	char name[64];
	uint64_t seq;
	int r;

	world_open(w);
	must(store_sync(w->store), "sync");
	store_pin(w->store);
	if (store_snapshot(w->store, name, sizeof(name), &seq, &err) < 0)
		die(err.text, err.code);
	run_ops(w, more);
	opt.snapshot = name;
	if (store_open(w->store_dir, &opt, &snapshot, &report, &err) < 0)
		die(err.text, err.code);
	r = drain(w, snapshot, seq, true, w->backing);
	store_abandon(snapshot);
	store_unpin(w->store);
	must(store_close(w->store), "close");
	return r;
}

static int dead_session(struct world *w, const char *to)
{
	struct store_options opt = { .mode = STORE_READ_ONLY };
	struct cistern_error err = { 0 };
	struct state_report report;
	struct store *store;
	int r;

	if (store_open(w->store_dir, &opt, &store, &report, &err) < 0)
		die(err.text, err.code);
	r = drain(w, store, state_seq(store_state(store)), false, to);
	store_abandon(store);
	return r;
}

/* ---- children */

struct part {
	unsigned int ops, more, abort_after;
	bool live, export;
};

static void in_child(struct world *w, const struct part *p)
{
	char text[32];
	int r = 0;

	if (p->ops) {
		world_open(w);
		run_ops(w, p->ops);
		must(store_close(w->store), "close");
		_exit(0);
	}
	if (p->abort_after) {
		snprintf(text, sizeof(text), "%u", p->abort_after);
		setenv("CISTERN_AGENT_ABORT_AFTER", text, 1);
	}
	if (p->export)
		r = dead_session(w, w->out);
	else
		r = p->live ? live_session(w, p->more) : dead_session(w, w->backing);
	_exit(r);
}

static int run_part(struct world *w, struct part p)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	must(pid, "fork");
	if (pid == 0)
		in_child(w, &p);
	/* what a child draws is not drawn again here: each part has a seed of its own */
	next_random(w);
	w->clock_ns += 1000 * TIME_STEP;
	must(waitpid(pid, &status, 0), "waitpid");
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* ---- comparing trees */

struct comparing {
	const char *a, *b; /* got, expected */
	ino_t links[LINKS_MAX][2];
	size_t num_links;
	unsigned int differences;
	bool part; /* a need not have all that is in b */
};

static void differ(struct comparing *c, const char *path, const char *what)
{
	if (c->differences++ < 20)
		printf("# differs: %s: %s\n", path, what);
}

static bool same_bytes(const char *a, const char *b)
{
	static uint8_t x[65536], y[65536];
	int fa = open(a, O_RDONLY), fb = open(b, O_RDONLY);
	ssize_t na, nb;
	bool same = fa >= 0 && fb >= 0;

	do {
		na = read(fa, x, sizeof(x));
		nb = read(fb, y, sizeof(y));
		same = same && na >= 0 && na == nb && memcmp(x, y, (size_t)na) == 0;
	} while (same && na > 0);
	close(fa);
	close(fb);
	return same;
}

static void compare_links(struct comparing *c, const char *path, const struct stat *a, const struct stat *b)
{
	for (size_t i = 0; i < c->num_links; i++)
		if (c->links[i][0] == a->st_ino || c->links[i][1] == b->st_ino) {
			if (c->links[i][0] != a->st_ino || c->links[i][1] != b->st_ino)
				differ(c, path, "linked to other files");
			return;
		}
	if (c->num_links < LINKS_MAX) {
		c->links[c->num_links][0] = a->st_ino;
		c->links[c->num_links++][1] = b->st_ino;
	}
}

static void compare_xattr(struct comparing *c, const char *path, const char *a, const char *b, const char *name)
{
	char x[64], y[64];
	ssize_t nx = lgetxattr(a, name, x, sizeof(x)), ny = lgetxattr(b, name, y, sizeof(y));

	if (nx != ny || (nx > 0 && memcmp(x, y, (size_t)nx) != 0))
		differ(c, path, name);
}

static void compare_trees(struct comparing *c, const char *rel);

static void compare_one(struct comparing *c, const char *rel)
{
	char a[PATH_BYTES], b[PATH_BYTES], x[256], y[256];
	struct stat sa, sb;
	int ra, rb;

	in_dir(a, c->a, rel);
	in_dir(b, c->b, rel);
	ra = lstat(a, &sa);
	rb = lstat(b, &sb);
	if (ra && c->part)
		return;
	if (ra || rb) {
		differ(c, rel, ra ? "missing" : "should not be there");
		return;
	}
	if (sa.st_mode != sb.st_mode) {
		differ(c, rel, "mode");
		printf("# %o, expected %o\n", sa.st_mode, sb.st_mode);
	}
	if (ns_of(sa.st_mtim) != ns_of(sb.st_mtim) && !(c->part && S_ISDIR(sa.st_mode))) {
		differ(c, rel, "mtime");
		printf("# %" PRId64 ", expected %" PRId64 "\n", ns_of(sa.st_mtim), ns_of(sb.st_mtim));
	}
	compare_xattr(c, rel, a, b, "user.t");
	compare_xattr(c, rel, a, b, "user.u");
	if (S_ISDIR(sa.st_mode) && S_ISDIR(sb.st_mode)) {
		compare_trees(c, rel);
	} else if (S_ISLNK(sa.st_mode) && S_ISLNK(sb.st_mode)) {
		ra = (int)readlink(a, x, sizeof(x));
		rb = (int)readlink(b, y, sizeof(y));
		if (ra != rb || ra < 0 || memcmp(x, y, (size_t)ra) != 0)
			differ(c, rel, "target");
	} else if (S_ISREG(sa.st_mode)) {
		if (sa.st_size != sb.st_size)
			differ(c, rel, "size");
		else if (!same_bytes(a, b))
			differ(c, rel, "content");
		if (!c->part)
			compare_links(c, rel, &sa, &sb);
	}
}

static void compare_names(struct comparing *c, const char *rel, const char *in, bool only_missing)
{
	char at[PATH_BYTES], other[PATH_BYTES], path[PATH_BYTES];
	struct dirent *e;
	struct stat st;
	DIR *dir;

	in_dir(at, in, rel);
	dir = opendir(at);
	if (!dir) {
		differ(c, rel, "cannot be listed");
		return;
	}
	while ((e = readdir(dir))) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		in_dir(path, rel, e->d_name);
		in_dir(other, c->a, path);
		if (only_missing && lstat(other, &st) == 0)
			continue;
		compare_one(c, path);
	}
	closedir(dir);
}

static void compare_trees(struct comparing *c, const char *rel)
{
	compare_names(c, rel, c->a, false);
	compare_names(c, rel, c->b, true);
}

static unsigned int differences(struct world *w, const char *got, bool part)
{
	struct comparing c = { .a = got, .b = w->model, .part = part };

	compare_one(&c, ".");
	return c.differences;
}

/* ---- the tests */

static struct world *world_new(void)
{
	struct world *w = calloc(1, sizeof(*w));
	const char *tmp = getenv("TMPDIR");

	if (!w)
		die("world", ENOMEM);
	snprintf(w->top, sizeof(w->top), "%s/cistern-names-XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(w->top))
		die(w->top, errno);
	w->max_ops = 60;
	return w;
}

static bool check(struct world *w, int status, const char *kind, uint64_t seed)
{
	unsigned int num = differences(w, w->backing, false);

	return ok(status == 0 && num == 0, "%s, seed %" PRIu64 " (status %d, %u differences)", kind, seed, status, num);
}

/* One drain of a dead store; then again, although all is done: nothing changes. */
static void test_dead(struct world *w, uint64_t seed)
{
	int status;

	world_make(w, seed);
	status = run_part(w, (struct part){ .ops = 5 + (unsigned int)(seed * 7 % w->max_ops) });
	ok(status == 0, "operations, seed %" PRIu64 " (status %d)", seed, status);
	must(mkdir(w->out, 0755), "out");
	status = run_part(w, (struct part){ .export = true });
	ok(status == 0 && differences(w, w->out, true) == 0, "made whole elsewhere, seed %" PRIu64 " (status %d)", seed,
		status);
	status = run_part(w, (struct part){ 0 });
	if (check(w, status, "dead store", seed)) {
		status = run_part(w, (struct part){ 0 });
		check(w, status, "dead store once more", seed);
	}
}

/* Killed after the first, the second, ... change, until one comes through. */
static void test_killed(struct world *w, uint64_t seed, bool live, unsigned int first, unsigned int stride)
{
	unsigned int kills = 0, at = first;
	int status;

	world_make(w, seed);
	status = run_part(w, (struct part){ .ops = 5 + (unsigned int)(seed * 11 % w->max_ops) });
	ok(status == 0, "operations, seed %" PRIu64 " (status %d)", seed, status);
	do {
		status = run_part(w, (struct part){ .live = live, .abort_after = at });
		at += stride;
		kills += status == EXIT_KILLED;
	} while (status == EXIT_KILLED);
	tap_diag("%u kills", kills);
	check(w, status, live ? "killed, living daemon" : "killed, dead store", seed);
}

/* Killed once, anywhere; then drained. */
static void test_killed_once(struct world *w, uint64_t seed, bool live)
{
	int status;

	world_make(w, seed);
	status = run_part(w, (struct part){ .ops = 5 + (unsigned int)(seed * 13 % w->max_ops) });
	ok(status == 0, "operations, seed %" PRIu64 " (status %d)", seed, status);
	status = run_part(w, (struct part){ .live = live, .abort_after = 1 + below(w, 150) });
	if (status == EXIT_KILLED)
		status = run_part(w, (struct part){ .live = live });
	check(w, status, live ? "killed once, living daemon" : "killed once, dead store", seed);
}

/* Sessions one after the other, with operations before, after the snapshot, and in between; some are killed. */
static void test_sessions(struct world *w, uint64_t seed)
{
	int status = 0;

	world_make(w, seed);
	for (int i = 0; i < 4; i++) {
		status = run_part(w, (struct part){ .ops = 1 + below(w, 25) });
		ok(status == 0, "operations, seed %" PRIu64 " (status %d)", seed, status);
		status = run_part(w, (struct part){ .live = true,
					     .more = below(w, 15),
					     .abort_after = below(w, 2) ? 1 + below(w, 100) : 0 });
		ok(status == 0 || status == EXIT_KILLED, "session %d, seed %" PRIu64 " (status %d)", i, seed, status);
		if (status == EXIT_KILLED)
			status = run_part(w, (struct part){ .live = true });
	}
	status = run_part(w, (struct part){ .live = true });
	check(w, status, "sessions", seed);
	status = run_part(w, (struct part){ .live = true });
	check(w, status, "an idle session", seed);
}

static bool wanted(int argc, char **argv, const char *test)
{
	return argc < 4 || strcmp(argv[3], test) == 0;
}

int main(int argc, char **argv)
{
	uint64_t seeds = argc > 1 ? strtoull(argv[1], NULL, 10) : 6, first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	struct world *w = world_new();
	char command[PATH_BYTES + 16];

	umask(022);
	for (uint64_t seed = first; seed < first + seeds; seed++) {
		if (wanted(argc, argv, "dead"))
			test_dead(w, seed);
		if (wanted(argc, argv, "once"))
			test_killed_once(w, 1000 + seed, seed % 2);
		if (wanted(argc, argv, "sessions"))
			test_sessions(w, 2000 + seed);
		if (wanted(argc, argv, "killed"))
			test_killed(w, 3000 + seed, seed % 2, 1, 1 + (unsigned int)(seed % 7));
	}
	snprintf(command, sizeof(command), "rm -rf '%s'", w->top);
	run_command(command);
	free(w);
	return done_testing();
}
