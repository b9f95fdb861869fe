/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A metadata log of PnetCDF's burst-buffer driver from anybody's bytes: what decodes as an entry keeps its promises, a
 * seek finds it again, and a replay onto a small netCDF file ends and stays within what the entries cover.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "format/codec/bblog.h"
#include "format/codec/bbreplay.h"

#define DATA_BYTES 4096u
#define FILE_BYTES (UINT64_C(1) << 20)
#define ENTRIES    2000u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
	const uint8_t *at;
	size_t len;
};

static void demand(bool condition)
{
	if (!condition)
		abort();
}

static int read_input(void *arg, uint64_t off, void *buf, size_t len)
{
	const struct input *in = arg;

	demand(off <= in->len && len <= in->len - off);
	if (len)
		memcpy(buf, in->at + off, len);
	return 0;
}

static int read_zeros(void *arg, uint64_t off, void *buf, size_t len)
{
	(void)arg;
	(void)off;
	memset(buf, 0, len);
	return 0;
}

/* Far away writes are refused, so that a fuzzer does not spend its time in windows of a file of exabytes. */
static int write_nothing(void *arg, uint64_t off, const void *buf, size_t len)
{
	(void)arg;
	(void)buf;
	return off + len > FILE_BYTES ? -1 : 0;
}

static void check_entry(const struct bblog_entry *e)
{
	uint64_t elems = 0;

	demand(e->size >= BBLOG_ENTRY_BYTES && e->ndims <= BBLOG_DIMS_MAX);
	if (e->wrong)
		return;
	demand((e->kind == BBLOG_VARS) == (e->stride != NULL));
	for (uint64_t i = 0; i < e->num; i++) {
		uint64_t n = 1;

		for (uint32_t d = 0; d < e->ndims; d++) {
			demand(e->start[i * e->ndims + d] >= 0 && (!e->count || e->count[i * e->ndims + d] >= 0));
			n *= e->count ? (uint64_t)e->count[i * e->ndims + d] : 1;
		}
		elems += n;
	}
	demand(elems == e->num_elems && e->data_len == elems * e->elem_bytes);
}

static void walk(struct bblog *log)
{
	struct bblog_entry e;
	struct bblog_mark mark;
	unsigned int n = 0;

	while (mark = bblog_tell(log), n++ < ENTRIES && bblog_next(log, &e, NULL) > 0) {
		uint64_t off = e.off;
		bool wrong = e.wrong != NULL;

		check_entry(&e);
		bblog_seek(log, &mark);
		demand(bblog_next(log, &e, NULL) > 0 && e.off == off && wrong == (e.wrong != NULL));
	}
}

static void look_behind(struct bblog *log)
{
	uint8_t header[8192];
	uint64_t bytes, entries;

	if (bblog_tail(log, &bytes, &entries, NULL) == 0)
		demand(bytes <= bblog_size(log) && entries <= bytes / BBLOG_ENTRY_BYTES);
	demand(bblog_mended_header(log, 1, header, sizeof(header), NULL) > 0);
}

/* A variable of each shape. */
static void make_header(struct classic *nc)
{
	uint32_t time, y, x, z;

	classic_init(nc, 5);
	demand(classic_add_dim(nc, "time", 0, &time) == 0 && classic_add_dim(nc, "y", 4, &y) == 0 &&
		classic_add_dim(nc, "x", 6, &x) == 0 && classic_add_dim(nc, "z", 3, &z) == 0);
	demand(classic_add_var(nc, "A", CLASSIC_INT, 2, (uint32_t[]){ y, x }, NULL) == 0 &&
		classic_add_var(nc, "T", CLASSIC_FLOAT, 2, (uint32_t[]){ time, x }, NULL) == 0 &&
		classic_add_var(nc, "S", CLASSIC_DOUBLE, 0, NULL, NULL) == 0 &&
		classic_add_var(nc, "V", CLASSIC_SHORT, 2, (uint32_t[]){ time, z }, NULL) == 0);
	demand(classic_finish(nc, NULL) == 0 && classic_assign(nc, &(struct classic_align){ 0 }) == 0);
}

/* memory_bytes does not change what comes out. */
static void replay(struct bblog *log, uint64_t memory_bytes, struct bbreplay_stats *ret)
{
	struct bbreplay_ops ops = { .read = read_zeros, .write = write_nothing, .memory_bytes = memory_bytes };
	struct bbreplay_log one = {
		.meta = log, .data = { .read = read_zeros, .size = DATA_BYTES }, .num_channels = 1
	};
	struct bbreplay *b = NULL;
	struct classic nc;

	make_header(&nc);
	demand(bbreplay_create(&nc, &one, 1, &ops, &b, NULL) == 0);
	bbreplay_run(b, NULL);
	*ret = *bbreplay_stats(b);
	demand(ret->changed_bytes <= ret->covered_bytes);
	bbreplay_destroy(b);
	classic_destroy(&nc);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { .at = data, .len = size };
	struct bblog_source src = { .read = read_input, .arg = &in, .size = size };
	struct bbreplay_stats few, much;
	struct bblog *log;
	uint32_t num = 0;

	if (bblog_channels(&src, &num, NULL) < 0)
		num = 1;
	demand(num >= 1);
	if (bblog_open(&src, num - 1, num, &log, NULL) < 0)
		return 0;
	if (bblog_header(log)->count <= ENTRIES) {
		walk(log);
		replay(log, 0, &few);
		replay(log, UINT64_C(1) << 20, &much);
		demand(few.covered_bytes == much.covered_bytes && few.own_bytes == much.own_bytes &&
			few.range_values == much.range_values);
	}
	look_behind(log);
	bblog_close(log);
	return 0;
}
