/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_CODEC_SOURCE_H
#define FORMAT_CODEC_SOURCE_H

/*
 * The bytes of a file as those who judge it get them: a reader, and, where anybody knows, which ranges were ever written. It
 * answers how far a file has data: room that was made and never filled reads as zeros, and nobody may take it for data.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Up to len bytes at off, as pread(2): short only at the end of the file; -errno. */
typedef ssize_t (*source_read_fn)(void *buf, size_t len, uint64_t off, void *arg);

struct source_range {
	uint64_t off, end;
	bool written; /* a log has every byte of it: a program wrote it, be it zeros. Else it may be zeros that nobody wrote */
};

/* The first range that ends behind off and is no hole; false: holes only from there on. */
typedef bool (*source_range_fn)(uint64_t off, struct source_range *ret, void *arg);

struct source {
	source_read_fn read_bytes;
	source_range_fn next_range; /* NULL: not known */
	void *arg;                  /* of both */
	uint64_t size;
};

/* A whole buffer: arg points to one. */
struct source_memory {
	const uint8_t *data; /* borrowed */
	size_t len;
};
ssize_t source_read_memory(void *buf, size_t len, uint64_t off, void *arg);

/* next_range of a descriptor, as its file system tells holes; fd < 0: not known. */
bool source_seek(int fd, uint64_t off, struct source_range *ret);
/* A file that is open; *fd is borrowed and stays where it is. */
struct source source_of_fd(int *fd, uint64_t size);

/*
 * Behind the last byte of [from, size) that is not zero; from: all are. Reads from the end on backwards and passes over holes.
 * Bytes that cannot be had (-ENODATA) count as data. 0, -ENOMEM, errors of read_bytes.
 */
int source_data_end(const struct source *s, uint64_t from, uint64_t *ret_end);

#endif
