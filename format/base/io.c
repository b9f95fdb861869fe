/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What the I/O seam offers on top of its table of operations: the same for the real and the simulated disk.
 */
#include "format/base/io.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPLACE_SUFFIX ".tmp"

void io_destroy(struct io *io)
{
	if (io)
		io->ops->destroy(io);
}

int io_open(struct io *io, const char *path, unsigned int flags, struct io_file **ret_file)
{
	return io->ops->open(io, path, flags, ret_file);
}

void io_close(struct io_file *file)
{
	if (file)
		file->ops->close(file);
}

int io_read_exact(struct io_file *file, void *buf, size_t len, uint64_t off)
{
	ssize_t n = file->ops->pread(file, buf, len, off);

	if (n < 0)
		return (int)n;
	return (size_t)n == len ? 0 : -ENODATA;
}

int io_write(struct io_file *file, const void *buf, size_t len, uint64_t off)
{
	ssize_t n = file->ops->pwrite(file, buf, len, off);

	return n < 0 ? (int)n : 0;
}

static void file_cleanup(struct io_file **file)
{
	io_close(*file);
}

static void free_cleanup(char **text)
{
	free(*text);
}

static int write_new(struct io *io, const char *path, const void *buf, size_t len)
{
	__attribute__((cleanup(file_cleanup))) struct io_file *file = NULL;
	int r = io_open(io, path, IO_WRITE | IO_CREATE | IO_TRUNCATE, &file);

	if (r)
		return r;
	r = io_write(file, buf, len, 0);
	return r ? r : file->ops->sync(file);
}

static int sync_parent(struct io *io, const char *path)
{
	const char *slash = strrchr(path, '/');
	__attribute__((cleanup(free_cleanup))) char *dir = slash ? strndup(path, (size_t)(slash - path)) : strdup(".");

	return dir ? io->ops->sync_dir(io, dir) : -ENOMEM;
}

/*
 * The temporary name is always the same one, so that crashes leave at most one such file behind, which the next call
 * takes over. Two callers must not replace the same path at the same time.
 */
int io_replace(struct io *io, const char *path, const void *buf, size_t len)
{
	__attribute__((cleanup(free_cleanup))) char *temp = NULL;
	int r;

	if (asprintf(&temp, "%s" REPLACE_SUFFIX, path) < 0) {
		temp = NULL;
		return -ENOMEM;
	}
	r = write_new(io, temp, buf, len);
	if (!r)
		r = io->ops->rename(io, temp, path);
	if (r) {
		(void)io->ops->unlink(io, temp); /* tidiness only; r says what went wrong */
		return r;
	}
	return sync_parent(io, path);
}

int io_read_all(struct io *io, const char *path, size_t limit, void **ret_buf, size_t *ret_len)
{
	__attribute__((cleanup(file_cleanup))) struct io_file *file = NULL;
	uint64_t size;
	char *buf;
	int r = io_open(io, path, IO_READ, &file);

	if (!r)
		r = file->ops->size(file, &size);
	if (r)
		return r;
	if (size > limit || size >= SIZE_MAX)
		return -EFBIG;
	buf = malloc((size_t)size + 1);
	if (!buf)
		return -ENOMEM;
	r = io_read_exact(file, buf, (size_t)size, 0);
	if (r) {
		free(buf);
		return r;
	}
	buf[size] = '\0';
	*ret_buf = buf;
	*ret_len = (size_t)size;
	return 0;
}
