/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Parcels of packed chunks: the table is anybody's, what stands around it is put there, so that the fuzzer need not guess checksums. What
 * is taken must be of the share, in order, inside the file.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "format/base/crc32c.h"
#include "mpi-agent/nc4/parcel.h"

#define ENTRY_BYTES 24u
#define DATA_BYTES  4096u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void demand(int good)
{
	if (!good)
		abort();
}

static void make_shape(struct classic *c, struct nc4_shape *s)
{
	static const uint32_t dims[] = { 0, 1 };
	struct nc4_options opt = { .deflate = 1, .chunk = "y:1" };
	struct classic_align align = { 0 };

	classic_init(c, 5);
	classic_add_dim(c, "y", 40, NULL);
	classic_add_dim(c, "x", 1000, NULL);
	classic_add_var(c, "v", CLASSIC_INT, 2, dims, NULL);
	classic_finish(c, NULL);
	classic_assign(c, &align);
	demand(nc4_shape_make(c, classic_file_bytes(c), &opt, s, NULL) == 0);
}

/* Its head is of the writer; behind the table stands what agrees with it. */
static void write_file(
	int fd, const struct nc4_shape *s, const struct nc4_share *share, const uint8_t *table, size_t len)
{
	struct parcel_writer w = { 0 };
	struct buf out = { 0 };

	demand(parcel_begin(&w, fd, s, share) == 0);
	buf_zeros(&out, DATA_BYTES);
	buf_bytes(&out, table, len);
	buf_u64(&out, w.at + DATA_BYTES);
	buf_u64(&out, len / ENTRY_BYTES);
	buf_u32(&out, crc32c(0, out.data + DATA_BYTES, out.len - DATA_BYTES));
	buf_u32(&out, 0);
	buf_bytes(&out, "CISNC4PE", 8);
	demand(buf_ok(&out) && pwrite(fd, out.data, out.len, (off_t)w.at) == (ssize_t)out.len);
	buf_free(&out);
	parcel_free(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct nc4_share share = { size > 0 ? data[0] % 3u : 0, 3 };
	uint64_t last = 0, index, taken = 0;
	struct parcel *p = NULL;
	struct packed got;
	struct nc4_shape s;
	struct classic c;
	int fd = memfd_create("parcel", 0);

	make_shape(&c, &s);
	write_file(fd, &s, &share, data + (size > 0), size > 0 ? size - 1 : 0);
	if (parcel_open(fd, &s, &share, &p) == 0)
		while (parcel_next(p) != UINT64_MAX) {
			demand(parcel_take(p, &got) == 0 && (taken == 0 || got.number > last));
			demand(nc4_share_has(&share, s.num_chunks, got.number, &index) && got.len <= DATA_BYTES);
			last = got.number;
			taken += got.len;
		}
	demand(taken == 0 || taken == DATA_BYTES);
	parcel_close(p);
	close(fd);
	nc4_shape_free(&s);
	classic_destroy(&c);
	return 0;
}
