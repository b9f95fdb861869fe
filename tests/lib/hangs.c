/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * hangs DIRECTORY MOUNTPOINT: shows a directory through FUSE, as it is. Stopped by SIGSTOP it is a
 * file system that hangs, until SIGCONT. Nothing is cached by the kernel, so that each look at it
 * is one that hangs.
 */
#define FUSE_USE_VERSION 35

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

static int root_fd(void)
{
	return (int)(intptr_t)fuse_get_context()->private_data;
}

/* Relative to the root. */
static const char *at(const char *path)
{
	return path[1] ? path + 1 : ".";
}

static int status(long r)
{
	return r < 0 ? -errno : 0;
}

static void *hangs_init(struct fuse_conn_info *conn, struct fuse_config *cfg)
{
	(void)conn;
	cfg->use_ino = 1;
	cfg->attr_timeout = cfg->entry_timeout = cfg->negative_timeout = 0;
	cfg->nullpath_ok = 0;
	return fuse_get_context()->private_data;
}

static int hangs_getattr(const char *path, struct stat *st, struct fuse_file_info *fi)
{
	return status(fi ? fstat((int)fi->fh, st) : fstatat(root_fd(), at(path), st, AT_SYMLINK_NOFOLLOW));
}

static int hangs_readlink(const char *path, char *out, size_t cap)
{
	ssize_t n = readlinkat(root_fd(), at(path), out, cap - 1);

	if (n < 0)
		return -errno;
	out[n] = '\0';
	return 0;
}

static int hangs_mkdir(const char *path, mode_t mode)
{
	return status(mkdirat(root_fd(), at(path), mode));
}

static int hangs_unlink(const char *path)
{
	return status(unlinkat(root_fd(), at(path), 0));
}

static int hangs_rmdir(const char *path)
{
	return status(unlinkat(root_fd(), at(path), AT_REMOVEDIR));
}

static int hangs_symlink(const char *target, const char *path)
{
	return status(symlinkat(target, root_fd(), at(path)));
}

static int hangs_rename(const char *from, const char *to, unsigned int flags)
{
	return status(syscall(SYS_renameat2, root_fd(), at(from), root_fd(), at(to), flags));
}

static int hangs_link(const char *from, const char *to)
{
	return status(linkat(root_fd(), at(from), root_fd(), at(to), 0));
}

static int hangs_chmod(const char *path, mode_t mode, struct fuse_file_info *fi)
{
	return status(fi ? fchmod((int)fi->fh, mode) : fchmodat(root_fd(), at(path), mode, 0));
}

static int hangs_chown(const char *path, uid_t uid, gid_t gid, struct fuse_file_info *fi)
{
	return status(
		fi ? fchown((int)fi->fh, uid, gid) : fchownat(root_fd(), at(path), uid, gid, AT_SYMLINK_NOFOLLOW));
}

static int hangs_truncate(const char *path, off_t size, struct fuse_file_info *fi)
{
	int fd = fi ? (int)fi->fh : openat(root_fd(), at(path), O_WRONLY | O_CLOEXEC), r;

	if (fd < 0)
		return -errno;
	r = status(ftruncate(fd, size));
	if (!fi)
		close(fd);
	return r;
}

static int hangs_utimens(const char *path, const struct timespec times[2], struct fuse_file_info *fi)
{
	return status(fi ? futimens((int)fi->fh, times) : utimensat(root_fd(), at(path), times, AT_SYMLINK_NOFOLLOW));
}

static int hangs_open(const char *path, struct fuse_file_info *fi)
{
	int fd = openat(root_fd(), at(path), (fi->flags & ~(O_CREAT | O_EXCL)) | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	fi->fh = (uint64_t)fd;
	fi->direct_io = 1;
	return 0;
}

static int hangs_create(const char *path, mode_t mode, struct fuse_file_info *fi)
{
	int fd = openat(root_fd(), at(path), fi->flags | O_CREAT | O_CLOEXEC, mode);

	if (fd < 0)
		return -errno;
	fi->fh = (uint64_t)fd;
	fi->direct_io = 1;
	return 0;
}

static int hangs_read(const char *path, char *buf, size_t len, off_t off, struct fuse_file_info *fi)
{
	ssize_t n = pread((int)fi->fh, buf, len, off);

	(void)path;
	return n < 0 ? -errno : (int)n;
}

static int hangs_write(const char *path, const char *buf, size_t len, off_t off, struct fuse_file_info *fi)
{
	ssize_t n = pwrite((int)fi->fh, buf, len, off);

	(void)path;
	return n < 0 ? -errno : (int)n;
}

static int hangs_fsync(const char *path, int data_only, struct fuse_file_info *fi)
{
	(void)path;
	(void)data_only;
	return status(fsync((int)fi->fh));
}

static int hangs_release(const char *path, struct fuse_file_info *fi)
{
	(void)path;
	close((int)fi->fh);
	return 0;
}

static int hangs_statfs(const char *path, struct statvfs *st)
{
	(void)path;
	return status(fstatvfs(root_fd(), st));
}

static int hangs_readdir(const char *path, void *buf, fuse_fill_dir_t fill, off_t off, struct fuse_file_info *fi,
	enum fuse_readdir_flags flags)
{
	int fd = openat(root_fd(), at(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *d;

	(void)off;
	(void)fi;
	(void)flags;
	if (!dir)
		return -errno;
	while ((d = readdir(dir))) {
		struct stat st = { .st_ino = d->d_ino, .st_mode = DTTOIF(d->d_type) };

		fill(buf, d->d_name, &st, 0, 0);
	}
	closedir(dir);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct fuse_operations ops = {
		.init = hangs_init,
		.getattr = hangs_getattr,
		.readlink = hangs_readlink,
		.mkdir = hangs_mkdir,
		.unlink = hangs_unlink,
		.rmdir = hangs_rmdir,
		.symlink = hangs_symlink,
		.rename = hangs_rename,
		.link = hangs_link,
		.chmod = hangs_chmod,
		.chown = hangs_chown,
		.truncate = hangs_truncate,
		.utimens = hangs_utimens,
		.open = hangs_open,
		.create = hangs_create,
		.read = hangs_read,
		.write = hangs_write,
		.fsync = hangs_fsync,
		.release = hangs_release,
		.statfs = hangs_statfs,
		.readdir = hangs_readdir,
	};
	char foreground[] = "-f", options[] = "-odefault_permissions,fsname=hangs";
	char *args[] = { argv[0], foreground, options, argc > 2 ? argv[2] : NULL, NULL };
	int fd = argc == 3 ? open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

	if (fd < 0) {
		fprintf(stderr, "usage: hangs DIRECTORY MOUNTPOINT\n");
		return 2;
	}
	umask(0);
	return fuse_main(4, args, &ops, (void *)(intptr_t)fd);
}
