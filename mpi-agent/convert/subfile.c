/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Subfiles that are read. The maps' runs stay in the file, which is mapped; they can be large, and all processes of a node
 * share them so. Everything else is checked when the file is opened: a converter that finds half way that a blob is cut short
 * would have written half a file.
 */
#include "mpi-agent/convert/subfile.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/base/fdio.h"
#include "mpi-agent/convert/h5blob.h"
#include "mpi-agent/convert/stranger.h"

static const uint8_t hdf5_magic[8] = { 0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n' };

/* ---- where things lie */

static int by_place(const void *a, const void *b)
{
	const struct blob_entry *x = a, *y = b;

	if (x->blob != y->blob)
		return x->blob < y->blob ? -1 : 1;
	if (x->var != y->var)
		return x->var < y->var ? -1 : 1;
	return x->record < y->record ? -1 : x->record > y->record;
}

void subfile_sort_table(struct subfile *f)
{
	if (f->table.num > 1)
		qsort(f->table.entries, f->table.num, sizeof(*f->table.entries), by_place);
}

/* The entry that holds the record; NULL: none. */
static const struct blob_entry *find_entry(const struct blob_table *t, uint32_t blob, uint32_t var, uint64_t record)
{
	struct blob_entry key = { .blob = blob, .var = var, .record = record };
	size_t low = 0, high = t->num;
	const struct blob_entry *e;

	while (low < high) { /* the first one behind the key */
		size_t middle = low + (high - low) / 2;

		if (by_place(&t->entries[middle], &key) <= 0)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == 0)
		return NULL;
	e = &t->entries[low - 1];
	return e->blob == blob && e->var == var && record - e->record < e->num_records ? e : NULL;
}

uint64_t subfile_off(const struct subfile *f, uint32_t var, uint64_t record, uint32_t blob)
{
	const struct classic *h = &f->head.header;
	const struct blob_entry *e;

	if (!f->process_centric)
		return classic_offset(h, &h->vars[var], record, 0);
	e = find_entry(&f->table, blob, var, record);
	return e ? f->data_off + e->off + (record - e->record) * (e->len / e->num_records) : SUBFILE_NOWHERE;
}

/* Of one of a map's variables, where the blob's part is. */
static uint64_t map_off(const struct subfile *f, uint32_t map, enum blob_map_var which, uint32_t blob)
{
	const struct blob_map *m = &f->head.maps[map];
	uint64_t row = which == BLOB_OFFSETS || which == BLOB_LENGTHS ? m->max_nreqs : 1;

	if (f->process_centric)
		return subfile_off(f, m->vars[which], 0, blob);
	return classic_offset(&f->head.header, &f->head.header.vars[m->vars[which]], 0, blob * row);
}

/* ---- maps */

static int read_number(const struct subfile *f, const uint8_t *base, uint32_t map, enum blob_map_var which,
	uint32_t blob, uint64_t *ret, struct cistern_error *err)
{
	uint32_t var = f->head.maps[map].vars[which];
	uint8_t bytes = (uint8_t)classic_type_bytes(f->head.header.vars[var].type);
	uint64_t off = map_off(f, map, which, blob);

	if (off == SUBFILE_NOWHERE || off > f->size || bytes > f->size - off)
		return cistern_error_set(
			err, -EBADMSG, "%s of blob %" PRIu32 " is not there", f->head.header.vars[var].name, blob);
	*ret = runs_integer(base + off, bytes, f->little_endian);
	return 0;
}

/* Whatever a header says: nothing is reserved for blobs of which not even the numbers are in the file. */
static int check_blobs(const struct subfile *f, struct cistern_error *err)
{
	uint64_t shares = (uint64_t)f->head.num_maps * f->head.nblobs, bytes = 3 * classic_type_bytes(CLASSIC_INT);

	if (shares > f->size / bytes)
		return cistern_error_set(err, -EBADMSG,
			"it has %" PRIu64 " bytes, and should have %" PRIu32 " blobs with %" PRIu32 " maps", f->size,
			f->head.nblobs, f->head.num_maps);
	return 0;
}

static int read_shares(struct subfile *f, const uint8_t *base, struct cistern_error *err)
{
	const struct blob_head *h = &f->head;
	int r = check_blobs(f, err);

	if (r < 0)
		return r;
	f->shares = calloc((size_t)h->num_maps * h->nblobs + 1, sizeof(*f->shares));
	if (!f->shares)
		return -ENOMEM;
	for (uint32_t i = 0; r == 0 && i < h->num_maps; i++) {
		for (uint32_t b = 0; r == 0 && b < h->nblobs; b++) {
			struct blob_share *s = &f->shares[(size_t)i * h->nblobs + b];

			r = read_number(f, base, i, BLOB_NREQS, b, &s->num, err);
			if (r == 0)
				r = read_number(f, base, i, BLOB_START, b, &s->start, err);
			if (r == 0)
				r = read_number(f, base, i, BLOB_COUNT, b, &s->count, err);
		}
		if (r == 0)
			r = blob_check_shares(h, i, &f->shares[(size_t)i * h->nblobs], err);
	}
	return r;
}

/* num integers of a map's variable of a blob. */
static int find_array(const struct subfile *f, const uint8_t *base, uint32_t map, enum blob_map_var which,
	uint32_t blob, const uint8_t **ret, uint8_t *ret_bytes, struct cistern_error *err)
{
	uint64_t num = subfile_share(f, map, blob)->num, off = num > 0 ? map_off(f, map, which, blob) : 0;
	uint32_t var = f->head.maps[map].vars[which];

	*ret_bytes = (uint8_t)classic_type_bytes(f->head.header.vars[var].type);
	if (off == SUBFILE_NOWHERE || off > f->size || num > (f->size - off) / *ret_bytes)
		return cistern_error_set(
			err, -EBADMSG, "%s of blob %" PRIu32 " is cut short", f->head.header.vars[var].name, blob);
	*ret = base + off;
	return 0;
}

static int index_blob(struct subfile *f, const uint8_t *base, uint32_t map, uint32_t blob, struct cistern_error *err)
{
	const struct blob_map *m = &f->head.maps[map];
	const struct blob_share *s = subfile_share(f, map, blob);
	struct runs runs = { .num = s->num, .little_endian = f->little_endian };
	int r = find_array(f, base, map, BLOB_OFFSETS, blob, &runs.offsets, &runs.offset_bytes, err);

	if (r == 0)
		r = find_array(f, base, map, BLOB_LENGTHS, blob, &runs.lengths, &runs.length_bytes, err);
	if (r == 0)
		r = runs_index_build(&runs, m->elements, s->count, &f->runs[(size_t)map * f->head.nblobs + blob], err);
	if (r < 0 && r != -ENOMEM)
		cistern_error_prefix(err, "map D%" PRIu32 ", blob %" PRIu32, map + 1, blob);
	return r;
}

int subfile_index(struct subfile *f, const uint8_t *base, struct cistern_error *err)
{
	int r = 0;

	f->runs = calloc((size_t)f->head.num_maps * f->head.nblobs + 1, sizeof(*f->runs));
	if (!f->runs)
		return -ENOMEM;
	for (uint32_t i = 0; r == 0 && i < f->head.num_maps; i++)
		for (uint32_t b = 0; r == 0 && b < f->head.nblobs; b++)
			r = index_blob(f, base, i, b, err);
	return r;
}

/* ---- the two forms */

static ssize_t read_at(void *buf, size_t len, uint64_t off, void *arg)
{
	const struct subfile *f = arg;

	return fdio_read(f->fd, buf, len, off + f->data_off);
}

static int open_variable_centric(struct subfile *f, struct cistern_error *err)
{
	struct classic header;
	uint64_t end;
	int r = classic_read(read_at, f, &header, err);

	if (r == 0 && !blob_is_header(&header)) {
		classic_destroy(&header);
		return stranger_refuse_classic(err);
	}
	if (r == 0)
		r = blob_head_decode(&header, &f->head, err);
	if (r < 0)
		return r;
	end = classic_file_bytes(&f->head.header);
	if (f->size + 3 < end)
		return cistern_error_set(err, -EBADMSG,
			"it has %" PRIu64 " bytes, but its header is of %" PRIu64 ": it is cut short", f->size, end);
	return 0;
}

/* Bytes that a blob has of one record of a variable. */
static uint64_t part_bytes(const struct subfile *f, const struct blob_var *bv, uint32_t blob)
{
	const struct classic_var *v = &f->head.header.vars[bv->var];

	if (bv->map == BLOB_NO_MAP)
		return blob == 0 ? v->bytes : 0;
	return subfile_share(f, bv->map, blob)->count * classic_type_bytes(v->type);
}

/* All records of the variable are there, of the right size, each once. */
static int check_entries(const struct subfile *f, const struct blob_var *bv, uint32_t blob, struct cistern_error *err)
{
	const struct classic_var *v = &f->head.header.vars[bv->var];
	uint64_t records = v->is_record ? f->head.header.num_records : 1, bytes = part_bytes(f, bv, blob), at = 0;

	while (bytes > 0 && at < records) {
		const struct blob_entry *e = find_entry(&f->table, blob, bv->var, at);

		if (!e || e->record != at || e->len / e->num_records != bytes)
			return cistern_error_set(err, -EBADMSG,
				"blob %" PRIu32 " has no record %" PRIu64 " of variable \"%s\", of %" PRIu64 " bytes",
				blob, at, v->name, bytes);
		at += e->num_records;
	}
	return 0;
}

static int check_table(const struct subfile *f, struct cistern_error *err)
{
	int r = 0;

	for (uint32_t b = 0; r == 0 && b < f->head.nblobs; b++)
		for (uint32_t i = 0; r == 0 && i < f->head.canonical.num_vars; i++)
			r = check_entries(f, &f->head.vars[i], b, err);
	return r;
}

static int read_table(struct subfile *f, const struct h5blob *b, struct cistern_error *err)
{
	int r;

	if (!b->table)
		r = blob_table_sum(&f->head, b->data_bytes, read_at, f, &f->table, err);
	else
		r = blob_table_decode(b->table, b->table_bytes, &f->table, err);
	if (r < 0)
		return r;
	if (f->table.num_blobs != f->head.nblobs || f->table.num_vars != f->head.header.num_vars ||
		f->table.data_bytes > b->data_bytes)
		return cistern_error_set(err, -EBADMSG, "table_blob is not of this header and data_blob");
	f->little_endian = f->table.little_endian;
	subfile_sort_table(f);
	return 0;
}

static int read_head(struct subfile *f, const struct h5blob *b, struct cistern_error *err)
{
	bool little = blob_header_is_little(b->header, b->header_bytes);
	struct buf BUF_CLEANUP turned = { 0 };
	struct classic header;
	int r = 0;

	if (little)
		r = blob_header_turn(b->header, b->header_bytes, &turned);
	else
		buf_bytes(&turned, b->header, b->header_bytes);
	if (r == 0 && !buf_ok(&turned))
		r = -ENOMEM;
	if (r == 0)
		r = classic_decode_definitions(turned.data, turned.len, &header, err);
	else if (r == -EBADMSG)
		r = cistern_error_set(err, r, "header_blob is damaged or cut short");
	if (r == -ENODATA)
		r = cistern_error_set(err, -EBADMSG, "header_blob is cut short");
	if (r == 0)
		r = blob_head_decode(&header, &f->head, err);
	if (r == 0 && little)
		f->head.little_endian = true; /* so are the data */
	return r;
}

static int open_process_centric(struct subfile *f, struct cistern_error *err)
{
	struct h5blob b = { 0 };
	int r = h5blob_open(f->fd, f->size, &b, err);

	if (r < 0)
		return r;
	f->process_centric = true;
	f->data_off = b.data_off;
	r = read_head(f, &b, err);
	if (r == 0 && (b.data_off > f->size || b.data_bytes > f->size - b.data_off))
		r = cistern_error_set(err, -EBADMSG,
			"data_blob ends at %" PRIu64 ", the file at %" PRIu64 ": it is cut short",
			b.data_off + b.data_bytes, f->size);
	if (r == 0)
		r = read_table(f, &b, err);
	h5blob_destroy(&b);
	return r;
}

/* ---- all of it */

static int map_file(struct subfile *f, struct cistern_error *err)
{
	void *p = mmap(NULL, f->size + 1, PROT_READ, MAP_SHARED, f->fd, 0);

	if (p == MAP_FAILED)
		return cistern_error_set(err, -errno, "cannot be mapped: %s", strerror(errno));
	f->mapped = p;
	return 0;
}

static int open_form(struct subfile *f, struct cistern_error *err)
{
	uint8_t magic[8] = { 0 };
	ssize_t n;
	int r = stranger_look(f->fd, STRANGER_FOR_CANONICAL, err);

	if (r < 0)
		return r;
	n = read_at(magic, sizeof(magic), 0, f);
	if (n < 0)
		return cistern_error_set(err, (int)n, "%s", strerror((int)-n));
	if (n == sizeof(magic) && memcmp(magic, hdf5_magic, sizeof(magic)) == 0)
		r = open_process_centric(f, err);
	else
		r = open_variable_centric(f, err);
	if (r == 0)
		r = map_file(f, err);
	if (r == 0)
		r = read_shares(f, f->mapped, err);
	if (r == 0)
		r = subfile_index(f, f->mapped, err);
	if (r == 0 && f->process_centric)
		r = check_table(f, err);
	return r;
}

int subfile_open(const char *path, struct subfile *ret, struct cistern_error *err)
{
	struct subfile f = { .path = strdup(path), .fd = -1 };
	struct stat st = { 0 };
	int r = f.path ? 0 : -ENOMEM;

	if (r == 0) {
		f.fd = open(path, O_RDONLY | O_CLOEXEC);
		if (f.fd < 0 || fstat(f.fd, &st) < 0)
			r = cistern_error_set(err, -errno, "%s", strerror(errno));
		else if (!S_ISREG(st.st_mode))
			r = stranger_refuse_other(path, err);
	}
	f.size = (uint64_t)st.st_size;
	if (r == 0)
		r = open_form(&f, err);
	if (r == -ENOMEM)
		cistern_error_set(err, r, "out of memory");
	if (r < 0) {
		subfile_close(&f);
		if (err && strncmp(err->text, path, strlen(path)) != 0)
			cistern_error_prefix(err, "%s", path);
		return r;
	}
	*ret = f;
	return 0;
}

void subfile_close(struct subfile *f)
{
	if (!f)
		return;
	for (size_t i = 0; f->runs && i < (size_t)f->head.num_maps * f->head.nblobs; i++)
		runs_index_destroy(&f->runs[i]);
	free(f->runs);
	free(f->shares);
	free(f->made);
	if (f->mapped)
		munmap((void *)f->mapped, f->size + 1);
	if (f->fd >= 0)
		close(f->fd);
	blob_table_destroy(&f->table);
	blob_head_destroy(&f->head);
	free(f->path);
	*f = (struct subfile){ .fd = -1 };
}
