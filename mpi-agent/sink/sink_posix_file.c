/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Open files of the sink over a directory. */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "format/base/fdio.h"
#include "format/base/clock.h"
#include "mpi-agent/sink/sink_posix_private.h"

#define ZERO_BYTES 65536
#define PAST_ALIGN 4096u      /* what O_DIRECT may ask of places and memory */
#define PAST_FROM  (1u << 20) /* smaller writes go through the page cache */
#define XATTR_ROOM (1u << 20) /* bytes; a device with so many is not full for an attribute */

static struct posix_file *file_of(struct sink_file *f)
{
	return (struct posix_file *)f;
}

void sink_posix_close(struct sink_file *f)
{
	sink_posix_give_back(file_of(f)->sink, file_of(f)->fd, &file_of(f)->taken);
	close(file_of(f)->fd);
	if (file_of(f)->past_fd >= 0)
		close(file_of(f)->past_fd);
	free(f);
}

int sink_posix_pwrite(struct sink_file *f, const void *buf, size_t len, uint64_t off)
{
	int r = fdio_write(file_of(f)->fd, buf, len, off);

	return r < 0 ? r : sink_posix_changed(file_of(f)->sink, 0);
}

/* Can the file be written to past the page cache? Found out once. */
static bool can_pass(struct posix_file *f)
{
	char link[64];

	if (f->past_fd == PAST_NOT_YET) {
		f->past_fd = open(sink_posix_link_to(f->fd, link), O_WRONLY | O_DIRECT | O_CLOEXEC);
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
int sink_posix_pwrite_past(struct sink_file *file, const void *buf, size_t len, uint64_t off)
{
	size_t head = (PAST_ALIGN - off % PAST_ALIGN) % PAST_ALIGN;
	size_t body = len > head ? (len - head) / PAST_ALIGN * PAST_ALIGN : 0;
	const uint8_t *p = buf;
	int r;

	if (body < PAST_FROM || (uintptr_t)(p + head) % PAST_ALIGN || !can_pass(file_of(file)))
		return sink_posix_pwrite(file, buf, len, off);
	r = write_past(file_of(file), p + head, body, off + head);
	if (r == -EINVAL)
		return sink_posix_pwrite(file, buf, len, off);
	if (r == 0)
		r = sink_posix_changed(file_of(file)->sink, 0);
	if (r == 0 && head > 0)
		r = sink_posix_pwrite(file, p, head, off);
	if (r == 0 && head + body < len)
		r = sink_posix_pwrite(file, p + head + body, len - head - body, off + head + body);
	return r;
}

ssize_t sink_posix_pread(struct sink_file *f, void *buf, size_t len, uint64_t off)
{
	return fdio_read(file_of(f)->fd, buf, len, off);
}

static int write_zeros(struct sink_file *f, uint64_t off, uint64_t len)
{
	static const uint8_t zeros[ZERO_BYTES];
	int r = 0;

	while (len > 0 && r == 0) {
		size_t n = len < ZERO_BYTES ? (size_t)len : ZERO_BYTES;

		r = sink_posix_pwrite(f, zeros, n, off);
		off += n;
		len -= n;
	}
	return r;
}

int sink_posix_zero(struct sink_file *f, uint64_t off, uint64_t len)
{
	struct stat st;

	if (fstat(file_of(f)->fd, &st))
		return -errno;
	if (off >= (uint64_t)st.st_size)
		return 0;
	if (len > (uint64_t)st.st_size - off)
		len = (uint64_t)st.st_size - off;
	if (fallocate(file_of(f)->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)off, (off_t)len) == 0)
		return sink_posix_changed(file_of(f)->sink, 0);
	return errno == EOPNOTSUPP || errno == ENOSYS ? write_zeros(f, off, len) : -errno;
}

int sink_posix_truncate(struct sink_file *f, uint64_t size)
{
	return sink_posix_changed(file_of(f)->sink, ftruncate(file_of(f)->fd, (off_t)size));
}

void sink_posix_write_out(struct sink_file *f, uint64_t off, uint64_t len)
{
	sync_file_range(file_of(f)->fd, (off_t)off, (off_t)len, SYNC_FILE_RANGE_WRITE);
}

/* Where there is no such call, sync has to do. */
int sink_posix_write_wait(struct sink_file *f, uint64_t off, uint64_t len)
{
	const unsigned int all = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;

	if (sync_file_range(file_of(f)->fd, (off_t)off, (off_t)len, all) == 0)
		return 0;
	return errno == EINVAL || errno == ENOSYS || errno == ESPIPE ? 0 : -errno;
}

void sink_posix_drop_cache(struct sink_file *f)
{
	posix_fadvise(file_of(f)->fd, 0, 0, POSIX_FADV_DONTNEED);
}

int sink_posix_next_data(struct sink_file *f, uint64_t off, uint64_t *ret)
{
	off_t at = lseek(file_of(f)->fd, (off_t)off, SEEK_DATA);

	if (at < 0 && errno == ENXIO)
		at = lseek(file_of(f)->fd, 0, SEEK_END);
	else if (at < 0)
		at = (off_t)off;
	if (at < 0)
		return -errno;
	*ret = (uint64_t)at;
	return 0;
}

/* What only its attributes were changed of is opened once more to be synced; what cannot be opened has no way to be. */
static int sync_path_only(struct posix_file *f)
{
	char link[64];
	int fd = open(sink_posix_link_to(f->fd, link), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC), r;

	if (fd < 0)
		return 0;
	r = fsync(fd) && errno != EINVAL ? -errno : 0;
	close(fd);
	return r;
}

int sink_posix_sync(struct sink_file *file, bool data_only)
{
	struct posix_file *f = file_of(file);

	if (f->path_only)
		return sync_path_only(f);
	return (data_only ? fdatasync(f->fd) : fsync(f->fd)) ? -errno : 0;
}

int sink_posix_fstat(struct sink_file *f, struct stat *ret)
{
	return fstatat(file_of(f)->fd, "", ret, AT_EMPTY_PATH) ? -errno : 0;
}

int sink_posix_descriptor(struct sink_file *f)
{
	return file_of(f)->fd;
}

static int set_owner(
	struct posix_file *f, const struct stat *st, const struct sink_attr *attr, const char **ret_warning)
{
	if (st->st_uid == attr->uid && st->st_gid == attr->gid)
		return 0;
	if (sink_posix_changed(f->sink, fchownat(f->fd, "", attr->uid, attr->gid, AT_EMPTY_PATH)) == 0)
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

int sink_posix_set_attr(struct sink_file *file, const struct sink_attr *attr, const char **ret_warning)
{
	struct timespec times[2] = { clock_timespec(attr->atime_ns), clock_timespec(attr->mtime_ns) };
	struct posix_file *f = file_of(file);
	char link[64];
	struct stat st;
	int r;

	*ret_warning = NULL;
	r = sink_posix_fstat(file, &st);
	if (r < 0)
		return r;
	if (!attr->times_only) {
		r = set_owner(f, &st, attr, ret_warning);
		/* After a change of owner the set-id bits may be gone: set the mode then in any case. */
		if (r == 0 && !S_ISLNK(st.st_mode) && ((st.st_mode ^ attr->mode) & 07777 || attr->mode & 06000))
			r = sink_posix_changed(f->sink, chmod(sink_posix_link_to(f->fd, link), attr->mode & 07777));
		if (r < 0)
			return r;
		keep_rights(f, &st);
	}
	if (sink_posix_changed(f->sink, utimensat(f->fd, "", times, AT_EMPTY_PATH)) < 0) {
		if (errno != EINVAL || S_ISLNK(st.st_mode))
			return -errno;
		if (utimensat(AT_FDCWD, sink_posix_link_to(f->fd, link), times, 0)) /* kernels before 5.8 */
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
	return r == -EACCES && ++*tries <= TRIES && sink_posix_take_rights(f->sink, f->fd, S_IRUSR | S_IWUSR, taken);
}

int sink_posix_set_xattr(struct sink_file *file, const char *name, const void *val, size_t len)
{
	struct posix_file *f = file_of(file);
	unsigned int tries = 0;
	mode_t taken = 0;
	char link[64];
	int r;

	do
		r = sink_posix_changed(f->sink, setxattr(sink_posix_link_to(f->fd, link), name, val, len, 0));
	while (may_now_here(f, r, &taken, &tries));
	sink_posix_give_back(f->sink, f->fd, &taken);
	return r == -ENOSPC && has_room(f) ? -E2BIG : r;
}

ssize_t sink_posix_get_xattr(struct sink_file *f, const char *name, void *val, size_t cap)
{
	char link[64];
	ssize_t n = getxattr(sink_posix_link_to(file_of(f)->fd, link), name, val, cap);

	return n < 0 ? -errno : n;
}

int sink_posix_remove_xattr(struct sink_file *file, const char *name)
{
	struct posix_file *f = file_of(file);
	unsigned int tries = 0;
	mode_t taken = 0;
	char link[64];
	int r;

	do
		r = sink_posix_changed(f->sink, removexattr(sink_posix_link_to(f->fd, link), name));
	while (may_now_here(f, r, &taken, &tries));
	sink_posix_give_back(f->sink, f->fd, &taken);
	return r;
}

int sink_posix_list_xattrs(struct sink_file *f, int (*each)(const char *name, void *arg), void *arg)
{
	char link[64], *names;
	ssize_t len;
	int r = 0;

	names = malloc(XATTR_LIST_MAX);
	if (!names)
		return -ENOMEM;
	len = listxattr(sink_posix_link_to(file_of(f)->fd, link), names, XATTR_LIST_MAX);
	if (len < 0)
		r = errno == EOPNOTSUPP ? 0 : -errno;
	for (ssize_t at = 0; r == 0 && at < len; at += (ssize_t)strlen(names + at) + 1)
		r = each(names + at, arg);
	free(names);
	return r;
}
