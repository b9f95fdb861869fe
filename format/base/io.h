/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_BASE_IO_H
#define FORMAT_BASE_IO_H

/*
 * The I/O seam: every byte of journal, segments and superblock goes to the store through one of these, so that
 * tests can put a simulated disk under the log (lost power, failing calls, a full device). RocksDB has its own way
 * to the disk; it is only an index and can be rebuilt.
 *
 * Paths are relative to the store's directory. All functions return 0 (or a count where said) or -errno, and may
 * be called from any thread; calls on one io_file may run at the same time. -ENOSPC is also what a quota refuses.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct io;      /* a store's directory, real or simulated */
struct io_file; /* an open file in it */

/* Open modes: combined with |. IO_CREATE makes the file (0600), IO_EXCL refuses an existing one. */
enum io_open_flags { IO_READ = 1, IO_WRITE = 2, IO_CREATE = 4, IO_EXCL = 8, IO_TRUNCATE = 16 };

struct io_ops {
	int (*open)(struct io *io, const char *path, unsigned int flags, struct io_file **ret_file);
	void (*destroy)(struct io *io);
	int (*unlink)(struct io *io, const char *path);
	int (*rename)(struct io *io, const char *from, const char *to);
	int (*mkdir)(struct io *io, const char *path); /* -EEXIST when there */
	int (*sync_dir)(struct io *io, const char *path);
	/* Calls each(name, arg) for every entry but "." and ".."; stops when it returns non-zero and returns that. */
	int (*list)(struct io *io, const char *path, int (*each)(const char *name, void *arg), void *arg);
	int (*space)(struct io *io, uint64_t *ret_total_bytes, uint64_t *ret_free_bytes);

	void (*close)(struct io_file *file);
	ssize_t (*pread)(struct io_file *file, void *buf, size_t len, uint64_t off); /* short only at end of file */
	ssize_t (*pwrite)(struct io_file *file, const void *buf, size_t len, uint64_t off); /* all of len, or -errno */
	int (*sync)(struct io_file *file); /* after it returns 0, data, size and allocation survive power loss */
	int (*write_out)(
		struct io_file *file, uint64_t off, uint64_t len); /* start writing to disk, do not wait, no promise */
	int (*allocate)(
		struct io_file *file, uint64_t off, uint64_t len); /* size grows to off + len if smaller, reads zero */
	int (*punch)(struct io_file *file, uint64_t off, uint64_t len); /* give back, reads zero, size unchanged */
	int (*truncate)(struct io_file *file, uint64_t size);
	int (*size)(struct io_file *file, uint64_t *ret_size);
	/* Shared mapping of [0, len), len a multiple of 4096: stores survive the death of the process. */
	int (*map)(struct io_file *file, size_t len, bool writable, void **ret_addr);
	void (*unmap)(struct io_file *file, void *addr, size_t len);
	int (*fd)(struct io_file *file); /* the descriptor (borrowed), or -ENOTSUP for a simulated file */
};

struct io {
	const struct io_ops *ops;
};

struct io_file {
	const struct io_ops *ops;
};

/* The real thing: files under the directory dirfd (duplicated, the caller keeps its own). */
int io_posix_create(int dirfd, struct io **ret_io);
/* As list of io_ops does, for the directory fd, which is closed. */
int io_list_fd(int fd, int (*each)(const char *name, void *arg), void *arg);

/* Convenience over the table; the same contracts. io_destroy(NULL) and io_close(NULL) do nothing. */
void io_destroy(struct io *io);
int io_open(struct io *io, const char *path, unsigned int flags, struct io_file **ret_file);
void io_close(struct io_file *file);
int io_read_exact(struct io_file *file, void *buf, size_t len, uint64_t off);  /* -ENODATA when the file is shorter */
int io_write(struct io_file *file, const void *buf, size_t len, uint64_t off); /* 0 or -errno */
/* Replace path by len bytes of buf so that after a crash either the old or the new file is there, whole. */
int io_replace(struct io *io, const char *path, const void *buf, size_t len);
/* All of path in a malloc'd buffer of *ret_len bytes (plus a NUL); -EFBIG beyond limit bytes. */
int io_read_all(struct io *io, const char *path, size_t limit, void **ret_buf, size_t *ret_len);

#endif
