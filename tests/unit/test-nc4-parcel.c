/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Shares of a file's chunks, and the files in which they travel: what is cut short, changed, or another's is not taken. */
#define _GNU_SOURCE
#include "mpi-agent/nc4/parcel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/lib/tap.h"

#define CHUNKS 40

static void test_shares(void)
{
	static const uint64_t totals[] = { 1, 7, 64, 1000, 4001 };
	uint64_t wrong = 0, uneven = 0;

	for (size_t t = 0; t < sizeof(totals) / sizeof(totals[0]); t++)
		for (uint32_t num = 1; num <= 9; num++) {
			uint64_t seen[9] = { 0 };

			for (uint64_t n = 0; n < totals[t]; n++) {
				unsigned int owners = 0;

				for (uint32_t k = 0; k < num; k++) {
					uint64_t index, has = nc4_share_has(
								&(struct nc4_share){ k, num }, totals[t], n, &index);

					wrong += has && index != seen[k]++;
					owners += has != 0;
				}
				wrong += owners != 1;
			}
			for (uint32_t k = 0; k < num; k++)
				uneven += seen[k] > totals[t] / num + 16 || seen[k] + 16 < totals[t] / num;
		}
	is_u64(wrong, 0, "each chunk is in one share, and counted there in order");
	is_u64(uneven, 0, "shares are about as large as each other");
}

/* v(CHUNKS, 1000) of ints, a chunk each row; bytes as they come. */
struct classic_bytes {
	struct classic c;
	struct nc4_shape s;
	uint8_t *file;
};

static void begin(struct classic_bytes *src, unsigned int deflate)
{
	static const uint32_t dims[] = { 0, 1 };
	struct nc4_options opt = { .deflate = deflate, .chunk = "y:1" };
	struct classic_align align = { 0 };
	uint64_t bytes;

	classic_init(&src->c, 5);
	classic_add_dim(&src->c, "y", CHUNKS, NULL);
	classic_add_dim(&src->c, "x", 1000, NULL);
	classic_add_var(&src->c, "v", CLASSIC_INT, 2, dims, NULL);
	classic_finish(&src->c, NULL);
	classic_assign(&src->c, &align);
	bytes = classic_file_bytes(&src->c);
	src->file = calloc(1, bytes);
	for (uint64_t i = 0; i < bytes; i++)
		src->file[i] = (uint8_t)(i * i >> 7);
	is_int(nc4_shape_make(&src->c, bytes, &opt, &src->s, NULL), 0, "a shape");
}

static void end(struct classic_bytes *src)
{
	nc4_shape_free(&src->s);
	classic_destroy(&src->c);
	free(src->file);
}

static bool of_share(uint32_t var, uint64_t number, const void *arg)
{
	uint64_t index;

	(void)var;
	return nc4_share_has(arg, CHUNKS, number, &index);
}

static void write_parcel(const struct classic_bytes *src, const struct nc4_share *share, int fd)
{
	struct packer_options opt = { .shape = &src->s,
		.file = src->file,
		.deflate = 1,
		.threads = 3,
		.memory_bytes = 1 << 20,
		.wants = of_share,
		.arg = share };
	struct parcel_writer w = { 0 };
	struct packer *packer = NULL;
	struct packed p;
	int r = parcel_begin(&w, fd, &src->s, share);

	r = r ? r : packer_create(&opt, &packer);
	while (r == 0 && (r = packer_take(packer, &p)) == 1)
		r = parcel_add(&w, &p);
	is_int(r ? r : parcel_end(&w), 0, "a parcel is written");
	packer_destroy(packer);
	parcel_free(&w);
}

/* The same chunks as who packs them all. */
static void compare(const struct classic_bytes *src, struct parcel **parcels, uint32_t num)
{
	struct packer_options opt = {
		.shape = &src->s, .file = src->file, .deflate = 1, .threads = 1, .memory_bytes = 1
	};
	struct packer *packer = NULL;
	struct packed want, got;
	unsigned int same = 0;

	is_int(packer_create(&opt, &packer), 0, "all are packed");
	while (packer_take(packer, &want) == 1)
		for (uint32_t i = 0; i < num; i++)
			if (parcel_next(parcels[i]) == want.number && parcel_take(parcels[i], &got) == 0)
				same += got.len == want.len && got.filter_mask == want.filter_mask &&
					memcmp(got.bytes, want.bytes, got.len) == 0;
	packer_destroy(packer);
	is_u64(same, CHUNKS, "each is in one parcel, with the same bytes");
}

static void test_parcels(void)
{
	struct parcel *parcels[3];
	struct classic_bytes src;
	int fds[3];

	begin(&src, 1);
	for (uint32_t i = 0; i < 3; i++) {
		struct nc4_share share = { i, 3 };

		fds[i] = memfd_create("parcel", 0);
		write_parcel(&src, &share, fds[i]);
		is_int(parcel_open(fds[i], &src.s, &share, &parcels[i]), 0, "and opened");
	}
	compare(&src, parcels, 3);
	for (uint32_t i = 0; i < 3; i++) {
		is_u64(parcel_next(parcels[i]), UINT64_MAX, "nothing is left");
		parcel_close(parcels[i]);
		close(fds[i]);
	}
	end(&src);
}

static int open_bytes(const struct classic_bytes *src, const struct nc4_share *share, const uint8_t *bytes, size_t len)
{
	int fd = memfd_create("parcel", 0), r;
	struct parcel *p = NULL;

	if (write(fd, bytes, len) != (ssize_t)len)
		return -EIO;
	r = parcel_open(fd, &src->s, share, &p);
	parcel_close(p);
	close(fd);
	return r;
}

static void test_wrong(void)
{
	struct nc4_share share = { 1, 3 }, other = { 2, 3 };
	struct classic_bytes src, finer;
	unsigned int taken = 0;
	uint8_t *bytes;
	size_t len;
	int fd = memfd_create("parcel", 0);

	begin(&src, 1);
	begin(&finer, 9);
	write_parcel(&src, &share, fd);
	len = (size_t)lseek(fd, 0, SEEK_END);
	bytes = malloc(len);
	if (pread(fd, bytes, len, 0) != (ssize_t)len)
		abort();
	is_int(open_bytes(&src, &share, bytes, len), 0, "as it is, it is taken");
	is_int(open_bytes(&src, &other, bytes, len), -EBADMSG, "not for another share");
	is_int(open_bytes(&finer, &share, bytes, len), -EBADMSG, "not with other settings");
	for (size_t n = 0; n < len; n += n < 100 || n > len - 100 ? 1 : 97)
		taken += open_bytes(&src, &share, bytes, n) != -EBADMSG;
	is_u64(taken, 0, "no shorter one is taken");
	for (size_t n = len - 100; n < len; n++) {
		bytes[n] ^= 0x40;
		taken += n != len - 9 && n != len - 10 && n != len - 11 && n != len - 12 && /* four that are not used */
			 open_bytes(&src, &share, bytes, len) != -EBADMSG;
		bytes[n] ^= 0x40;
	}
	is_u64(taken, 0, "nor one whose table has changed");
	free(bytes);
	close(fd);
	end(&src);
	end(&finer);
}

int main(void)
{
	test_shares();
	test_parcels();
	test_wrong();
	return done_testing();
}
