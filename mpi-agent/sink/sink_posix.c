/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The sink over a directory. Every path is walked component by component from the root's descriptor without
 * following links, so that nobody who may write to the backing directory can lead a drain out of it. The last
 * directories are kept open; those whose names have changed stay open until sync_names has synced them.
 *
 * Modes are for applications. A file that is read-only by now, or lies in such a directory, could be written when it was: where we are
 * refused what is ours, we take the rights that the owner lacks for as long as the file, or the directory, is open, unless its attributes are set
 * before. Who is killed in between leaves them, until a later session sets the attributes.
 *
 * Calls that change something are counted: the crash tests end the process after any one of them.
 */
#include "mpi-agent/sink/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "format/base/fdio.h"
#include "format/base/io.h"

#define DIRS_CACHED   32
#define KILLED_STATUS 137
#define NSEC_PER_SEC  1000000000ll
#define ZERO_BYTES    65536
#define PAST_ALIGN    4096u      /* what O_DIRECT may ask of places and memory */
#define PAST_FROM     (1u << 20) /* smaller writes go through the page cache */
#define XATTR_ROOM    (1u << 20) /* bytes; a device with so many is not full for an attribute */
#define PAST_NOT_YET  (-1)
#define PAST_NEVER    (-2)
#define TRIES         3u /* another process may take away again what it, and we, have taken */

struct open_dir {
	char *path; /* owned; NULL: the path is no longer its own, kept only to be synced */
	int fd;
	mode_t taken; /* rights of its owner that are to be given back */
	bool used, changed;
};

struct sink_posix {
	struct sink sink;
	bool reads; /* and leaves all modes as they are */
	int root;   /* owned */
	struct open_dir dirs[DIRS_CACHED];
	unsigned int next_victim;
	int names_error; /* the first one of a directory that was synced: what was in it may not be durable, for good */
	_Atomic uint64_t changes;
	uint64_t abort_after;
};

struct posix_file {
	struct sink_file file;
	struct sink_posix *sink; /* borrowed */
	int fd;                  /* owned */
	int past_fd;             /* owned: the same by O_DIRECT; PAST_NOT_YET, PAST_NEVER */
	mode_t taken;            /* as in open_dir */
	bool path_only;          /* opened by O_PATH */
};

static struct sink_posix *sink_of(struct sink *s)
{
	return (struct sink_posix *)s;
}

static struct posix_file *file_of(struct sink_file *f)
{
	return (struct posix_file *)f;
}

/* Passes a result on; a change that was made is counted, and may be the last one of this process. */
static int changed(struct sink_posix *p, int r)
{
	int saved = errno;

	if (atomic_fetch_add(&p->changes, 1) + 1 == p->abort_after)
		_exit(KILLED_STATUS);
	return r < 0 ? -saved : 0;
}

/* The way to an object that is open by O_PATH: its magic link leads to the object itself, also to a symbolic link. */
static const char *magic_link(int fd, char out[64])
{
	snprintf(out, 64, "/proc/self/fd/%d", fd);
	return out;
}

/* ---- rights */

/* A change of mode by who is not of its group would take the bit. */
static bool would_lose_group_id(const struct stat *st)
{
	return st->st_mode & S_ISGID && !group_member(st->st_gid);
}

/* So that its owner has these. False: it is not ours, or cannot be. */
static bool take_rights(struct sink_posix *p, int fd, mode_t rights, mode_t *taken)
{
	char link[64];
	struct stat st;

	if (p->reads || fstat(fd, &st) || st.st_uid != geteuid() || S_ISLNK(st.st_mode) || would_lose_group_id(&st))
		return false;
	rights &= ~st.st_mode;
	if (rights && changed(p, chmod(magic_link(fd, link), (st.st_mode & 07777) | rights)) < 0)
		return false;
	*taken |= rights;
	return true;
}

static void give_back(struct sink_posix *p, int fd, mode_t *taken)
{
	char link[64];
	struct stat st;

	if (*taken && fstat(fd, &st) == 0)
		(void)changed(p, chmod(magic_link(fd, link), st.st_mode & 07777 & ~*taken));
	*taken = 0;
}

/* r is of a call with names in one, and perhaps in other: is it to be done again? */
static bool may_now(struct sink_posix *p, int r, struct open_dir *one, struct open_dir *other, unsigned int *tries)
{
	bool taken;

	if (r != -EACCES || ++*tries > TRIES)
		return false;
	taken = take_rights(p, one->fd, S_IRWXU, &one->taken);
	return (other && take_rights(p, other->fd, S_IRWXU, &other->taken)) || taken;
}

/* Opens what has that name, once more, with these rights. */
static int open_taking(struct sink_posix *p, int dir, const char *name, int flags, mode_t rights, mode_t *taken)
{
	int at = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC), fd = -1;
	char link[64];

	if (at < 0)
		return -errno;
	for (unsigned int tries = 0; fd < 0 && tries < TRIES; tries++) {
		if (!take_rights(p, at, rights, taken)) {
			fd = -EACCES;
			break;
		}
		fd = open(magic_link(at, link), flags & ~O_NOFOLLOW);
		fd = fd < 0 ? -errno : fd;
	}
	if (fd < 0)
		give_back(p, at, taken);
	close(at);
	return fd;
}

/* ---- directories */

/* EINVAL: this file system does not sync directories; nothing better can be done there. */
static int sync_dir(const struct open_dir *d)
{
	return fsync(d->fd) && errno != EINVAL ? -errno : 0;
}

static int drop_dir(struct sink_posix *p, struct open_dir *d)
{
	int r;

	if (d->used)
		give_back(p, d->fd, &d->taken);
	r = d->used && d->changed ? sync_dir(d) : 0;
	if (d->used)
		close(d->fd);
	free(d->path);
	*d = (struct open_dir){ .fd = -1 };
	return r;
}

/* A directory has moved or gone: no cached path can be trusted. What still has to be synced stays open. */
static void forget_paths(struct sink_posix *p)
{
	for (unsigned int i = 0; i < DIRS_CACHED; i++) {
		struct open_dir *d = &p->dirs[i];

		if (d->used && !d->changed)
			drop_dir(p, d);
		free(d->path);
		d->path = NULL;
	}
}

/* The directory name in the one that is open as in, whose rights it may take for that. */
static int step_into(struct sink_posix *p, int in, const char *name)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	mode_t above = 0, taken = 0;
	int fd = openat(in, name, flags);

	if (fd >= 0 || errno != EACCES)
		return fd < 0 ? -errno : fd;
	(void)take_rights(p, in, S_IXUSR, &above);
	fd = openat(in, name, flags);
	fd = fd < 0 ? -errno : fd;
	if (fd == -EACCES)
		fd = open_taking(p, in, name, flags, S_IRUSR, &taken);
	if (fd >= 0)
		give_back(p, fd, &taken);
	give_back(p, in, &above);
	return fd;
}

/* Opens the directory of the first len bytes of path. */
static int walk(struct sink_posix *p, const char *path, size_t len)
{
	int fd = fcntl(p->root, F_DUPFD_CLOEXEC, 3);
	size_t at = 0;

	if (fd < 0)
		return -errno;
	while (fd >= 0 && at < len) {
		char name[NAME_MAX + 1];
		const char *slash = memchr(path + at, '/', len - at);
		size_t n = slash ? (size_t)(slash - path) - at : len - at;
		int next;

		if (n > NAME_MAX) {
			close(fd);
			return -ENAMETOOLONG;
		}
		memcpy(name, path + at, n);
		name[n] = '\0';
		at += n + 1;
		if (n == 0 || strcmp(name, ".") == 0)
			continue;
		next = strcmp(name, "..") == 0 ? -EINVAL : step_into(p, fd, name);
		close(fd);
		fd = next;
	}
	return fd;
}

/* It is not about what is looked for: sync_names says so. */
static void note_error(struct sink_posix *p, int r)
{
	if (r < 0 && p->names_error == 0)
		p->names_error = r;
}

static int find_dir(struct sink_posix *p, const char *path, size_t len, struct open_dir **ret)
{
	struct open_dir *d = NULL;
	int fd;

	for (unsigned int i = 0; i < DIRS_CACHED; i++) {
		d = &p->dirs[i];
		if (d->path && strlen(d->path) == len && memcmp(d->path, path, len) == 0) {
			*ret = d;
			return 0;
		}
	}
	fd = walk(p, path, len);
	if (fd < 0)
		return fd;
	d = &p->dirs[p->next_victim++ % DIRS_CACHED];
	note_error(p, drop_dir(p, d));
	d->path = strndup(path, len);
	if (!d->path) {
		close(fd);
		return -ENOMEM;
	}
	d->fd = fd;
	d->used = true;
	*ret = d;
	return 0;
}

/* The directory of path and the last component (borrowed from path; "." for the root). The dir is good until the next call. */
static int split(struct sink_posix *p, const char *path, struct open_dir **ret_dir, const char **ret_name)
{
	const char *slash = strrchr(path, '/');

	*ret_name = slash ? slash + 1 : path;
	if (!**ret_name || strcmp(*ret_name, "..") == 0)
		return -EINVAL;
	return find_dir(p, path, slash ? (size_t)(slash - path) : 0, ret_dir);
}

static int posix_stat(struct sink *s, const char *path, struct stat *ret)
{
	struct sink_posix *p = sink_of(s);
	unsigned int tries = 0;
	struct open_dir *d;
	const char *name;
	int r = split(p, path, &d, &name);

	if (r < 0)
		return r;
	do
		r = fstatat(d->fd, name, ret, AT_SYMLINK_NOFOLLOW) ? -errno : 0;
	while (may_now(p, r, d, NULL, &tries));
	return r;
}

static int posix_list(struct sink *s, const char *path, int (*each)(const char *name, void *arg), void *arg)
{
	int fd = walk(sink_of(s), path, strlen(path));

	return fd < 0 ? fd : io_list_fd(fd, each, arg);
}

static int posix_space(struct sink *s, uint64_t *ret_free_bytes)
{
	struct statvfs v;

	if (fstatvfs(sink_of(s)->root, &v))
		return -errno;
	*ret_free_bytes = (uint64_t)v.f_bavail * v.f_frsize;
	return 0;
}

static int posix_mkdir(struct sink *s, const char *path)
{
	struct sink_posix *p = sink_of(s);
	unsigned int tries = 0;
	struct open_dir *d;
	const char *name;
	int r = split(p, path, &d, &name);

	if (r < 0)
		return r;
	d->changed = true;
	do
		r = changed(p, mkdirat(d->fd, name, 0700));
	while (may_now(p, r, d, NULL, &tries));
	return r;
}

static int posix_symlink(struct sink *s, const char *target, const char *path)
{
	struct sink_posix *p = sink_of(s);
	unsigned int tries = 0;
	struct open_dir *d;
	const char *name;
	int r = split(p, path, &d, &name);

	if (r < 0)
		return r;
	d->changed = true;
	do
		r = changed(p, symlinkat(target, d->fd, name));
	while (may_now(p, r, d, NULL, &tries));
	return r;
}

/*
 * Both places of a name that moves or is linked. The second look-up may push the first one's directory out of the
 * cache (and sync it, too early); looking again puts it into another slot than the second one's.
 */
static int split_two(struct sink_posix *p, const char *from, const char *to, struct open_dir **ret_from_dir,
	const char **ret_from, struct open_dir **ret_to_dir, const char **ret_to)
{
	int r = split(p, from, ret_from_dir, ret_from);

	if (r == 0)
		r = split(p, to, ret_to_dir, ret_to);
	if (r == 0)
		r = split(p, from, ret_from_dir, ret_from);
	if (r < 0)
		return r;
	(*ret_from_dir)->changed = true;
	(*ret_to_dir)->changed = true;
	return 0;
}

static int posix_link(struct sink *s, const char *from, const char *to)
{
	struct sink_posix *p = sink_of(s);
	const char *from_name, *to_name;
	struct open_dir *from_dir, *to_dir;
	unsigned int tries = 0;
	int r = split_two(p, from, to, &from_dir, &from_name, &to_dir, &to_name);

	if (r < 0)
		return r;
	do
		r = changed(p, linkat(from_dir->fd, from_name, to_dir->fd, to_name, 0));
	while (may_now(p, r, from_dir, to_dir, &tries));
	return r;
}

static int rename_between(struct sink_posix *p, const char *from, const char *to, unsigned int flags, bool is_dir)
{
	const char *from_name, *to_name;
	struct open_dir *from_dir, *to_dir, moved = { .fd = -1 };
	unsigned int tries = 0;
	int r = split_two(p, from, to, &from_dir, &from_name, &to_dir, &to_name);

	if (r < 0)
		return r;
	do
		r = changed(p, renameat2(from_dir->fd, from_name, to_dir->fd, to_name, flags));
	while (may_now(p, r, from_dir, to_dir, &tries));
	if (r != -EACCES || !is_dir)
		return r;
	/* It has an entry for the directory above it: for that it is written to. */
	moved.fd = openat(from_dir->fd, from_name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (moved.fd < 0)
		return r;
	for (tries = 0; may_now(p, r, &moved, NULL, &tries);)
		r = changed(p, renameat2(from_dir->fd, from_name, to_dir->fd, to_name, flags));
	give_back(p, moved.fd, &moved.taken);
	close(moved.fd);
	return r;
}

static int posix_rename(struct sink *s, const char *from, const char *to, bool is_dir)
{
	int r = rename_between(sink_of(s), from, to, 0, is_dir);

	if (is_dir)
		forget_paths(sink_of(s));
	return r;
}

/* Kernels and file systems that do not know the flag say EINVAL or ENOSYS; nothing else of ours can be invalid here. */
static int rename_flagged(struct sink *s, const char *from, const char *to, unsigned int flags)
{
	int r = rename_between(sink_of(s), from, to, flags, false);

	return r == -EINVAL || r == -ENOSYS || r == -ENOTSUP ? -EOPNOTSUPP : r;
}

static int posix_rename_new(struct sink *s, const char *from, const char *to)
{
	return rename_flagged(s, from, to, RENAME_NOREPLACE);
}

static int posix_exchange(struct sink *s, const char *one, const char *other)
{
	return rename_flagged(s, one, other, RENAME_EXCHANGE);
}

static int posix_remove(struct sink *s, const char *path, bool is_dir)
{
	struct sink_posix *p = sink_of(s);
	unsigned int tries = 0;
	struct open_dir *d;
	const char *name;
	int r = split(p, path, &d, &name);

	if (r < 0)
		return r;
	d->changed = true;
	do
		r = changed(p, unlinkat(d->fd, name, is_dir ? AT_REMOVEDIR : 0));
	while (may_now(p, r, d, NULL, &tries));
	if (is_dir)
		forget_paths(p);
	return r;
}

static int posix_mark(struct sink *s, const char *path)
{
	struct open_dir *d;
	const char *name;
	int r = split(sink_of(s), path, &d, &name);

	if (r == 0)
		d->changed = true;
	return r;
}

static int posix_sync_names(struct sink *s)
{
	struct sink_posix *p = sink_of(s);

	for (unsigned int i = 0; i < DIRS_CACHED; i++) {
		struct open_dir *d = &p->dirs[i];

		if (!d->used || !d->changed)
			continue;
		note_error(p, sync_dir(d));
		d->changed = false;
		if (!d->path)
			drop_dir(p, d);
	}
	return p->names_error;
}

static const struct sink_ops posix_ops;

static int open_flags(enum sink_open how)
{
	switch (how) {
	case SINK_CREATE: return O_RDWR | O_CREAT | O_EXCL;
	case SINK_UPDATE: return O_RDWR;
	case SINK_READ: return O_RDONLY;
	default: return O_PATH;
	}
}

static mode_t open_rights(enum sink_open how)
{
	return how == SINK_UPDATE ? S_IRUSR | S_IWUSR : how == SINK_READ ? S_IRUSR : 0;
}

static int open_name(struct sink_posix *p, struct open_dir *d, const char *name, enum sink_open how, mode_t *taken)
{
	int flags = open_flags(how) | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, fd;
	unsigned int tries = 0;

	do {
		fd = openat(d->fd, name, flags, 0600);
		fd = fd < 0 ? -errno : fd;
	} while (may_now(p, fd, d, NULL, &tries));
	return fd == -EACCES && open_rights(how) ? open_taking(p, d->fd, name, flags, open_rights(how), taken) : fd;
}

static int posix_open(struct sink *s, const char *path, enum sink_open how, struct sink_file **ret)
{
	struct sink_posix *p = sink_of(s);
	struct posix_file *f;
	struct open_dir *d;
	const char *name;
	struct stat st;
	int r = split(p, path, &d, &name);

	if (r < 0)
		return r;
	f = calloc(1, sizeof(*f));
	if (!f)
		return -ENOMEM;
	f->file.ops = &posix_ops;
	f->sink = p;
	f->past_fd = PAST_NOT_YET;
	f->path_only = how == SINK_ATTR;
	f->fd = open_name(p, d, name, how, &f->taken);
	r = f->fd < 0 ? f->fd : 0;
	if (how == SINK_CREATE) {
		d->changed = true;
		errno = -r;
		r = changed(p, r < 0 ? -1 : 0);
	} else if (r == 0 && how != SINK_ATTR && (fstat(f->fd, &st) || !S_ISREG(st.st_mode))) {
		give_back(p, f->fd, &f->taken);
		close(f->fd);
		r = -ESTALE; /* something else has taken the place of a regular file */
	}
	if (r < 0) {
		free(f);
		return r;
	}
	*ret = &f->file;
	return 0;
}

static void posix_close(struct sink_file *f)
{
	give_back(file_of(f)->sink, file_of(f)->fd, &file_of(f)->taken);
	close(file_of(f)->fd);
	if (file_of(f)->past_fd >= 0)
		close(file_of(f)->past_fd);
	free(f);
}

static int posix_pwrite(struct sink_file *f, const void *buf, size_t len, uint64_t off)
{
	int r = fdio_write(file_of(f)->fd, buf, len, off);

	return r < 0 ? r : changed(file_of(f)->sink, 0);
}

/* Can the file be written to past the page cache? Found out once. */
static bool can_pass(struct posix_file *f)
{
	char link[64];

	if (f->past_fd == PAST_NOT_YET) {
		f->past_fd = open(magic_link(f->fd, link), O_WRONLY | O_DIRECT | O_CLOEXEC);
		if (f->past_fd < 0)
			f->past_fd = PAST_NEVER;
	}
	return f->past_fd >= 0;
}

/* -EINVAL: not in this way; what was written of it is written again. */
static int write_past(struct posix_file *f, const void *buf, size_t len, uint64_t off)
{
	int r;

	/* Who only fills blocks that there are need not lock the others out who write to the file. */
	(void)fallocate(f->fd, FALLOC_FL_KEEP_SIZE, (off_t)off, (off_t)len);
	r = fdio_write(f->past_fd, buf, len, off);
	if (r == -EINVAL) {
		close(f->past_fd);
		f->past_fd = PAST_NEVER;
	}
	return r;
}

/* Whole blocks go past the page cache; the rest before and behind them, or all of it, as always. */
static int posix_pwrite_past(struct sink_file *file, const void *buf, size_t len, uint64_t off)
{
	size_t head = (PAST_ALIGN - off % PAST_ALIGN) % PAST_ALIGN;
	size_t body = len > head ? (len - head) / PAST_ALIGN * PAST_ALIGN : 0;
	const uint8_t *p = buf;
	int r;

	if (body < PAST_FROM || (uintptr_t)(p + head) % PAST_ALIGN || !can_pass(file_of(file)))
		return posix_pwrite(file, buf, len, off);
	r = write_past(file_of(file), p + head, body, off + head);
	if (r == -EINVAL)
		return posix_pwrite(file, buf, len, off);
	if (r == 0)
		r = changed(file_of(file)->sink, 0);
	if (r == 0 && head > 0)
		r = posix_pwrite(file, p, head, off);
	if (r == 0 && head + body < len)
		r = posix_pwrite(file, p + head + body, len - head - body, off + head + body);
	return r;
}

static ssize_t posix_pread(struct sink_file *f, void *buf, size_t len, uint64_t off)
{
	return fdio_read(file_of(f)->fd, buf, len, off);
}

static int write_zeros(struct sink_file *f, uint64_t off, uint64_t len)
{
	static const uint8_t zeros[ZERO_BYTES];
	int r = 0;

	while (len > 0 && r == 0) {
		size_t n = len < ZERO_BYTES ? (size_t)len : ZERO_BYTES;

		r = posix_pwrite(f, zeros, n, off);
		off += n;
		len -= n;
	}
	return r;
}

static int posix_zero(struct sink_file *f, uint64_t off, uint64_t len)
{
	struct stat st;

	if (fstat(file_of(f)->fd, &st))
		return -errno;
	if (off >= (uint64_t)st.st_size)
		return 0;
	if (len > (uint64_t)st.st_size - off)
		len = (uint64_t)st.st_size - off;
	if (fallocate(file_of(f)->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)off, (off_t)len) == 0)
		return changed(file_of(f)->sink, 0);
	return errno == EOPNOTSUPP || errno == ENOSYS ? write_zeros(f, off, len) : -errno;
}

static int posix_truncate(struct sink_file *f, uint64_t size)
{
	return changed(file_of(f)->sink, ftruncate(file_of(f)->fd, (off_t)size));
}

static void posix_write_out(struct sink_file *f, uint64_t off, uint64_t len)
{
	sync_file_range(file_of(f)->fd, (off_t)off, (off_t)len, SYNC_FILE_RANGE_WRITE);
}

/* Where there is no such call, sync has to do. */
static int posix_write_wait(struct sink_file *f, uint64_t off, uint64_t len)
{
	const unsigned int all = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;

	if (sync_file_range(file_of(f)->fd, (off_t)off, (off_t)len, all) == 0)
		return 0;
	return errno == EINVAL || errno == ENOSYS || errno == ESPIPE ? 0 : -errno;
}

static void posix_drop_cache(struct sink_file *f)
{
	posix_fadvise(file_of(f)->fd, 0, 0, POSIX_FADV_DONTNEED);
}

/* What only its attributes were changed of is opened once more to be synced; what cannot be opened has no way to be. */
static int sync_path_only(struct posix_file *f)
{
	char link[64];
	int fd = open(magic_link(f->fd, link), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC), r;

	if (fd < 0)
		return 0;
	r = fsync(fd) && errno != EINVAL ? -errno : 0;
	close(fd);
	return r;
}

static int posix_sync(struct sink_file *file, bool data_only)
{
	struct posix_file *f = file_of(file);

	if (f->path_only)
		return sync_path_only(f);
	return (data_only ? fdatasync(f->fd) : fsync(f->fd)) ? -errno : 0;
}

static int posix_fstat(struct sink_file *f, struct stat *ret)
{
	return fstatat(file_of(f)->fd, "", ret, AT_EMPTY_PATH) ? -errno : 0;
}

static int posix_descriptor(struct sink_file *f)
{
	return file_of(f)->fd;
}

static int set_owner(
	struct posix_file *f, const struct stat *st, const struct sink_attr *attr, const char **ret_warning)
{
	if (st->st_uid == attr->uid && st->st_gid == attr->gid)
		return 0;
	if (changed(f->sink, fchownat(f->fd, "", attr->uid, attr->gid, AT_EMPTY_PATH)) == 0)
		return 0;
	if (errno != EPERM && errno != EINVAL)
		return -errno;
	/* Not allowed to give files away; the group alone may still be one of ours. */
	if (st->st_gid != attr->gid && fchownat(f->fd, "", (uid_t)-1, attr->gid, AT_EMPTY_PATH) == 0 &&
		st->st_uid == attr->uid)
		return 0;
	*ret_warning = "owner or group could not be set: only root may give files away";
	return 0;
}

static struct timespec timespec_of(int64_t ns)
{
	int64_t sec = ns / NSEC_PER_SEC, rest = ns % NSEC_PER_SEC;

	if (rest < 0) {
		sec--;
		rest += NSEC_PER_SEC;
	}
	return (struct timespec){ .tv_sec = sec, .tv_nsec = rest };
}

/* What it has now is what it is to have. */
static void keep_rights(struct posix_file *f, const struct stat *st)
{
	struct stat dir;

	f->taken = 0;
	for (unsigned int i = 0; S_ISDIR(st->st_mode) && i < DIRS_CACHED; i++) {
		struct open_dir *d = &f->sink->dirs[i];

		if (d->used && d->taken && fstat(d->fd, &dir) == 0 && dir.st_ino == st->st_ino &&
			dir.st_dev == st->st_dev)
			d->taken = 0;
	}
}

static int posix_set_attr(struct sink_file *file, const struct sink_attr *attr, const char **ret_warning)
{
	struct timespec times[2] = { timespec_of(attr->atime_ns), timespec_of(attr->mtime_ns) };
	struct posix_file *f = file_of(file);
	char link[64];
	struct stat st;
	int r;

	*ret_warning = NULL;
	r = posix_fstat(file, &st);
	if (r < 0)
		return r;
	if (!attr->times_only) {
		r = set_owner(f, &st, attr, ret_warning);
		/* After a change of owner the set-id bits may be gone: set the mode then in any case. */
		if (r == 0 && !S_ISLNK(st.st_mode) && ((st.st_mode ^ attr->mode) & 07777 || attr->mode & 06000))
			r = changed(f->sink, chmod(magic_link(f->fd, link), attr->mode & 07777));
		if (r < 0)
			return r;
		keep_rights(f, &st);
	}
	if (changed(f->sink, utimensat(f->fd, "", times, AT_EMPTY_PATH)) < 0) {
		if (errno != EINVAL || S_ISLNK(st.st_mode))
			return -errno;
		if (utimensat(AT_FDCWD, magic_link(f->fd, link), times, 0)) /* kernels before 5.8 */
			return -errno;
	}
	return 0;
}

/*
 * What a file system has for the attributes of one file is limited (ext4: a block), and some say so as if the device were
 * full, which it is not.
 */
static bool has_room(const struct posix_file *f)
{
	struct statvfs v;

	return fstatvfs(f->fd, &v) == 0 && (uint64_t)v.f_bavail * v.f_frsize > XATTR_ROOM;
}

/* They are set when the mode is: it is as it was again behind each call. */
static bool may_now_here(struct posix_file *f, int r, mode_t *taken, unsigned int *tries)
{
	return r == -EACCES && ++*tries <= TRIES && take_rights(f->sink, f->fd, S_IRUSR | S_IWUSR, taken);
}

static int posix_set_xattr(struct sink_file *file, const char *name, const void *val, size_t len)
{
	struct posix_file *f = file_of(file);
	unsigned int tries = 0;
	mode_t taken = 0;
	char link[64];
	int r;

	do
		r = changed(f->sink, setxattr(magic_link(f->fd, link), name, val, len, 0));
	while (may_now_here(f, r, &taken, &tries));
	give_back(f->sink, f->fd, &taken);
	return r == -ENOSPC && has_room(f) ? -E2BIG : r;
}

static ssize_t posix_get_xattr(struct sink_file *f, const char *name, void *val, size_t cap)
{
	char link[64];
	ssize_t n = getxattr(magic_link(file_of(f)->fd, link), name, val, cap);

	return n < 0 ? -errno : n;
}

static int posix_remove_xattr(struct sink_file *file, const char *name)
{
	struct posix_file *f = file_of(file);
	unsigned int tries = 0;
	mode_t taken = 0;
	char link[64];
	int r;

	do
		r = changed(f->sink, removexattr(magic_link(f->fd, link), name));
	while (may_now_here(f, r, &taken, &tries));
	give_back(f->sink, f->fd, &taken);
	return r;
}

static int posix_list_xattrs(struct sink_file *f, int (*each)(const char *name, void *arg), void *arg)
{
	char link[64], *names;
	ssize_t len;
	int r = 0;

	names = malloc(XATTR_LIST_MAX);
	if (!names)
		return -ENOMEM;
	len = listxattr(magic_link(file_of(f)->fd, link), names, XATTR_LIST_MAX);
	if (len < 0)
		r = errno == EOPNOTSUPP ? 0 : -errno;
	for (ssize_t at = 0; r == 0 && at < len; at += (ssize_t)strlen(names + at) + 1)
		r = each(names + at, arg);
	free(names);
	return r;
}

static void posix_destroy(struct sink *s)
{
	struct sink_posix *p = sink_of(s);

	for (unsigned int i = 0; i < DIRS_CACHED; i++)
		drop_dir(p, &p->dirs[i]);
	close(p->root);
	free(p);
}

static uint64_t posix_changes(const struct sink *s)
{
	return atomic_load(&((const struct sink_posix *)s)->changes);
}

static const struct sink_ops posix_ops = {
	.destroy = posix_destroy,
	.changes = posix_changes,
	.stat = posix_stat,
	.list = posix_list,
	.space = posix_space,
	.mkdir = posix_mkdir,
	.symlink = posix_symlink,
	.link = posix_link,
	.rename = posix_rename,
	.rename_new = posix_rename_new,
	.exchange = posix_exchange,
	.remove = posix_remove,
	.mark = posix_mark,
	.sync_names = posix_sync_names,
	.open = posix_open,
	.close = posix_close,
	.pwrite = posix_pwrite,
	.pwrite_past = posix_pwrite_past,
	.pread = posix_pread,
	.zero = posix_zero,
	.truncate = posix_truncate,
	.write_out = posix_write_out,
	.write_wait = posix_write_wait,
	.drop_cache = posix_drop_cache,
	.sync = posix_sync,
	.fstat = posix_fstat,
	.descriptor = posix_descriptor,
	.set_attr = posix_set_attr,
	.set_xattr = posix_set_xattr,
	.get_xattr = posix_get_xattr,
	.remove_xattr = posix_remove_xattr,
	.list_xattrs = posix_list_xattrs,
};

static int create(int dirfd, bool reads, struct sink **ret)
{
	const char *text = getenv("CISTERN_AGENT_ABORT_AFTER");
	struct sink_posix *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->sink.ops = &posix_ops;
	p->reads = reads;
	for (unsigned int i = 0; i < DIRS_CACHED; i++)
		p->dirs[i].fd = -1;
	p->abort_after = text ? strtoull(text, NULL, 10) : 0;
	p->root = fcntl(dirfd, F_DUPFD_CLOEXEC, 3);
	if (p->root < 0) {
		int r = -errno;

		free(p);
		return r;
	}
	*ret = &p->sink;
	return 0;
}

int sink_posix_create(int dirfd, struct sink **ret)
{
	return create(dirfd, false, ret);
}

int sink_posix_create_to_read(int dirfd, struct sink **ret)
{
	return create(dirfd, true, ret);
}

void sink_destroy(struct sink *s)
{
	if (s)
		s->ops->destroy(s);
}

void sink_file_close(struct sink_file *f)
{
	if (f)
		f->ops->close(f);
}
