/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Cutting up a canonical file. Each shape of variables (the same dimensions, without the record dimension) gets one map: from
 * the decompositions that are given, the first one for an array of these lengths; without any, an even part for each process.
 * What has fewer elements than there are processes, or no map, or is in the file as good as not at all, stays whole.
 *
 * All of a variable-centric subfile up to its first value (header and maps) is made in memory, in one piece; of a
 * process-centric one, too, for the index over its runs.
 */
#include "mpi-agent/convert/split.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/base/fdio.h"
#include "mpi-agent/convert/residue.h"
#include "mpi-agent/convert/stranger.h"

struct shape {
	struct mapfile_map map;
	const uint32_t *dims; /* borrowed from the canonical variable that has it */
};

#define ROWS_FREE 65536u /* of all shapes together: so many runs are made of nothing */

struct plan {
	const struct split_options *o;
	struct classic *c; /* the canonical file's */
	struct shape *shapes;
	uint32_t num_shapes;
	uint32_t *var_maps;
	uint64_t added;
	uint64_t rows_free; /* that are left of ROWS_FREE */
	struct buf header, residue;
	uint64_t file_bytes;
	int fd;
	struct cistern_error *err;
};

/* ---- which variable has which map */

static bool same_lengths(const struct plan *p, const struct mapfile_map *m, const uint32_t *dims, uint32_t num)
{
	if (m->num_dims != num)
		return false;
	for (uint32_t i = 0; i < num; i++)
		if (m->dims[i] != p->c->dims[dims[i]].len)
			return false;
	return true;
}

/* The map of a new shape: 1: it is in *ret; 0: there is none. */
static int find_map(struct plan *p, const uint32_t *dims, uint32_t num, struct mapfile_map *ret)
{
	uint64_t lengths[MAPFILE_DIMS_MAX], added = 0;
	int r;

	if (!p->o->decomp) {
		for (uint32_t i = 0; i < num; i++)
			lengths[i] = p->c->dims[dims[i]].len;
		r = mapfile_even(num, lengths, p->o->num_procs, ret);
		return r < 0 ? r : 1;
	}
	for (uint32_t i = 0; i < p->o->decomp->num; i++) {
		if (!same_lengths(p, &p->o->decomp->maps[i], dims, num))
			continue;
		r = mapfile_regroup(&p->o->decomp->maps[i], p->o->num_procs, ret, &added);
		p->added += added;
		return r < 0 ? r : 1;
	}
	return 0;
}

/*
 * Each row is a run at least, in memory and in subfiles. So the rows must be in the file, a byte of each: no header makes memory of nothing,
 * be it damaged, or of a variable that was never written.
 */
static bool has_rows(struct plan *p, const struct classic_var *v)
{
	uint64_t rows = v->elements / p->c->dims[v->dims[v->num_dims - 1]].len;
	uint64_t there = p->file_bytes > v->begin ? p->file_bytes - v->begin : 0;
	uint64_t lacking = rows > there ? rows - there : 0;

	if (lacking > p->rows_free)
		return false;
	p->rows_free -= lacking;
	return true;
}

static int map_of(struct plan *p, const struct classic_var *v, uint32_t *ret)
{
	const uint32_t *dims = v->dims + v->is_record;
	uint32_t num = v->num_dims - v->is_record;
	struct shape *grown;
	int r;

	*ret = BLOB_NO_MAP;
	if (num == 0 || num > MAPFILE_DIMS_MAX || num > BLOB_MAP_DIMS_MAX || v->elements < p->o->num_procs)
		return 0;
	for (uint32_t i = 0; i < p->num_shapes; i++)
		if (p->shapes[i].map.num_dims == num && memcmp(p->shapes[i].dims, dims, num * sizeof(*dims)) == 0) {
			*ret = i;
			return 0;
		}
	if (!has_rows(p, v))
		return 0;
	grown = reallocarray(p->shapes, p->num_shapes + 1u, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	p->shapes = grown;
	r = find_map(p, dims, num, &grown[p->num_shapes].map);
	if (r <= 0)
		return r;
	grown[p->num_shapes].dims = dims;
	*ret = p->num_shapes++;
	return 0;
}

static int find_maps(struct plan *p)
{
	int r = 0;

	p->var_maps = calloc(p->c->num_vars + 1u, sizeof(*p->var_maps));
	if (!p->var_maps)
		return -ENOMEM;
	for (uint32_t i = 0; r == 0 && i < p->c->num_vars; i++)
		r = map_of(p, &p->c->vars[i], &p->var_maps[i]);
	if (r == -EINVAL)
		r = cistern_error_set(p->err, r, "the maps are of %" PRIu32 " processes, which is less than %" PRIu32,
			p->o->decomp ? p->o->decomp->num_procs : 0, p->o->num_procs);
	return r;
}

/* ---- a subfile */

static uint32_t first_proc(const struct split_options *o, uint32_t subfile)
{
	return (uint32_t)((uint64_t)subfile * o->num_procs / o->num_subfiles);
}

static uint64_t count_elements(const struct mapfile_map *m, uint32_t proc)
{
	uint64_t sum = 0;

	for (size_t i = m->first[proc]; i < m->first[proc + 1]; i++)
		sum += m->runs[i].len;
	return sum;
}

static int make_shares(
	const struct plan *p, uint32_t first, uint32_t nblobs, struct blob_make_map *maps, struct subfile *f)
{
	f->shares = calloc((size_t)p->num_shapes * nblobs + 1, sizeof(*f->shares));
	if (!f->shares)
		return -ENOMEM;
	for (uint32_t i = 0; i < p->num_shapes; i++) {
		const struct mapfile_map *m = &p->shapes[i].map;

		maps[i] = (struct blob_make_map){ .num_dims = m->num_dims, .dims = p->shapes[i].dims };
		for (uint32_t b = 0; b < nblobs; b++) {
			struct blob_share *s = &f->shares[(size_t)i * nblobs + b];

			s->num = m->first[first + b + 1] - m->first[first + b];
			s->start = maps[i].nelems;
			s->count = count_elements(m, first + b);
			maps[i].nelems += s->count;
			maps[i].max_nreqs = s->num > maps[i].max_nreqs ? s->num : maps[i].max_nreqs;
		}
		if (maps[i].max_nreqs > INT32_MAX)
			return cistern_error_set(p->err, -EINVAL, "a process would have more than 2^31 runs");
	}
	return 0;
}

static void put_big(uint8_t *at, uint64_t value, uint32_t bytes)
{
	for (uint32_t i = 0; i < bytes; i++)
		at[i] = (uint8_t)(value >> (8 * (bytes - 1 - i)));
}

/* The place in the image of an integer of a map's variable. */
static uint8_t *image_at(struct subfile *f, uint32_t map, enum blob_map_var which, uint64_t index, uint32_t *ret_bytes)
{
	const struct classic_var *v = &f->head.header.vars[f->head.maps[map].vars[which]];

	*ret_bytes = classic_type_bytes(v->type);
	return f->made + v->begin + index * *ret_bytes;
}

static void put_number(struct subfile *f, uint32_t map, enum blob_map_var which, uint64_t index, uint64_t value)
{
	uint32_t bytes;
	uint8_t *at = image_at(f, map, which, index, &bytes);

	put_big(at, value, bytes);
}

static void put_blob(struct subfile *f, const struct mapfile_map *m, uint32_t map, uint32_t blob, uint32_t proc)
{
	const struct blob_share *s = subfile_share(f, map, blob);
	uint64_t row = blob * f->head.maps[map].max_nreqs;

	put_number(f, map, BLOB_NREQS, blob, s->num);
	put_number(f, map, BLOB_START, blob, s->start);
	put_number(f, map, BLOB_COUNT, blob, s->count);
	for (uint64_t i = 0; i < s->num; i++) {
		put_number(f, map, BLOB_OFFSETS, row + i, m->runs[m->first[proc] + i].off);
		put_number(f, map, BLOB_LENGTHS, row + i, m->runs[m->first[proc] + i].len);
	}
}

/* Where the last variable of a map ends; without maps, the header. */
static uint64_t image_bytes(const struct subfile *f)
{
	uint64_t end = f->head.header.header_bytes;

	for (uint32_t i = 0; i < f->head.num_maps * BLOB_MAP_VARS; i++) {
		const struct classic_var *v = &f->head.header.vars[i];

		end = v->begin + v->bytes > end ? v->begin + v->bytes : end;
	}
	return end;
}

/* Header and maps as they lie at the beginning of a variable-centric file, and the index over them. */
static int make_image(const struct plan *p, uint32_t first, const struct buf *header, struct subfile *f)
{
	f->size = image_bytes(f);
	f->made = calloc(1, f->size + 1);
	if (!f->made)
		return -ENOMEM;
	memcpy(f->made, header->data, header->len);
	for (uint32_t i = 0; i < p->num_shapes; i++)
		for (uint32_t b = 0; b < f->head.nblobs; b++)
			put_blob(f, &p->shapes[i].map, i, b, first + b);
	return subfile_index(f, f->made, p->err);
}

static int make_table(const struct plan *p, struct subfile *f)
{
	struct blob_lay l = { &f->head.header, f->head.nblobs, p->num_shapes, p->var_maps, f->shares };

	f->process_centric = true;
	return blob_table_lay(&l, &f->table);
}

/* ---- the set */

static int make_subfile(struct plan *p, uint32_t number, struct subfile *f)
{
	uint32_t first = first_proc(p->o, number), nblobs = first_proc(p->o, number + 1) - first;
	struct blob_make_map *maps = calloc(p->num_shapes + 1u, sizeof(*maps));
	struct blob_exact exact = { .subfile = number,
		.file_bytes = p->file_bytes,
		.header = p->header.data,
		.header_bytes = p->header.len,
		.residue = p->residue.data,
		.residue_bytes = p->residue.len };
	struct blob_make m = { .canonical = p->c,
		.global_nprocs = p->o->num_procs,
		.num_subfiles = p->o->num_subfiles,
		.nblobs = nblobs,
		.num_maps = p->num_shapes,
		.maps = maps,
		.var_maps = p->var_maps,
		.exact = &exact };
	struct buf BUF_CLEANUP header = { 0 };
	struct classic made = { 0 };
	int r = maps ? make_shares(p, first, nblobs, maps, f) : -ENOMEM;

	memcpy(exact.set, p->o->set, BLOB_SET_BYTES);
	f->number = number;
	if (r == 0)
		r = blob_make_header(&m, &made, p->err);
	if (r == 0)
		r = classic_encode(&made, &header);
	if (r == 0)
		r = blob_head_decode(&made, &f->head, p->err);
	if (r == 0)
		r = make_image(p, first, &header, f);
	if (r == 0 && p->o->process_centric)
		r = make_table(p, f);
	free(maps);
	return r;
}

static int read_canonical(struct plan *p, struct classic *c)
{
	struct stat st;
	int r;

	if (fstat(p->fd, &st) < 0)
		return cistern_error_set(p->err, -errno, "%s", strerror(errno));
	r = S_ISREG(st.st_mode) ? stranger_look(p->fd, STRANGER_FOR_BLOBS, p->err) : -EINVAL;
	if (r == -EINVAL)
		return cistern_error_set(p->err, r, "not a regular file");
	if (r == 0)
		r = classic_read(fdio_read_arg, &p->fd, c, p->err);
	if (r < 0)
		return r;
	p->c = c;
	p->file_bytes = (uint64_t)st.st_size;
	if (blob_is_header(c))
		return cistern_error_set(p->err, -EINVAL,
			"that is a blob subfile; --layout is for canonical files: 'cistern convert' without it makes one of the set");
	if (c->streaming) {
		c->num_records = classic_count_records(c, p->file_bytes);
		r = classic_finish(c, p->err);
	}
	buf_zeros(&p->header, (size_t)c->header_bytes);
	if (r == 0 && !buf_ok(&p->header))
		r = -ENOMEM;
	if (r == 0 && fdio_read_arg(p->header.data, p->header.len, 0, &p->fd) != (ssize_t)p->header.len)
		r = cistern_error_set(p->err, -EIO, "the header could not be read again");
	return r < 0 ? r : residue_find(c, p->file_bytes, fdio_read_arg, &p->fd, &p->residue, p->err);
}

static void free_plan(struct plan *p)
{
	for (uint32_t i = 0; i < p->num_shapes; i++)
		mapfile_map_destroy(&p->shapes[i].map);
	free(p->shapes);
	free(p->var_maps);
	buf_free(&p->header);
	buf_free(&p->residue);
}

static int make_set(struct plan *p, struct blob_set *s)
{
	int r = 0;

	s->files = calloc(p->o->num_subfiles, sizeof(*s->files));
	if (!s->files)
		return -ENOMEM;
	for (uint32_t i = 0; r == 0 && i < p->o->num_subfiles; i++) {
		s->files[i].fd = -1;
		s->num++;
		r = make_subfile(p, i, &s->files[i]);
	}
	return r;
}

int split_plan(int fd, const char *path, const struct split_options *o, struct blob_set *ret, uint64_t *ret_added,
	struct cistern_error *err)
{
	struct plan p = { .o = o, .rows_free = ROWS_FREE, .fd = fd, .err = err };
	struct blob_set s = { 0 };
	int r = read_canonical(&p, &s.canonical);

	if (r == 0)
		r = find_maps(&p);
	if (r == 0)
		r = make_set(&p, &s);
	s.file_bytes = p.file_bytes;
	*ret_added = p.added;
	free_plan(&p);
	if (r == -ENOMEM)
		cistern_error_set(err, r, "out of memory");
	if (r < 0) {
		blob_set_destroy(&s);
		cistern_error_prefix(err, "%s", path);
		return r;
	}
	*ret = s;
	return 0;
}

/* ---- writing */

static int write_at(const struct subfile *f, const void *buf, uint64_t len, uint64_t off, struct cistern_error *err)
{
	int r = fdio_write(f->fd, buf, (size_t)len, off);

	return r < 0 ? cistern_error_set(err, r, "%s: %s", f->path, strerror(-r)) : 0;
}

uint64_t split_bytes(const struct subfile *f)
{
	return f->process_centric
		       ? f->table.data_bytes + f->head.header.header_bytes + f->table.num * BLOB_TABLE_ENTRY_BYTES
		       : classic_file_bytes(&f->head.header);
}

static int write_variable_centric(struct subfile *f, struct cistern_error *err)
{
	if (ftruncate(f->fd, (off_t)classic_file_bytes(&f->head.header)) < 0)
		return cistern_error_set(err, -errno, "%s: %s", f->path, strerror(errno));
	return write_at(f, f->made, f->size, 0, err);
}

/* One blob's share of the maps, which lies at its beginning. */
static int write_maps(struct subfile *f, uint32_t blob, struct cistern_error *err)
{
	struct buf BUF_CLEANUP out = { 0 };
	uint64_t off = SUBFILE_NOWHERE;

	for (uint32_t i = 0; i < f->head.num_maps; i++)
		for (uint32_t k = 0; k < BLOB_MAP_VARS; k++) {
			uint64_t num = k < BLOB_OFFSETS ? 1 : subfile_share(f, i, blob)->num, row = blob;
			const uint8_t *at;
			uint32_t bytes;

			if (k >= BLOB_OFFSETS)
				row *= f->head.maps[i].max_nreqs;
			at = image_at(f, i, k, row, &bytes);
			buf_bytes(&out, at, (size_t)num * bytes);
		}
	if (f->head.num_maps > 0)
		off = subfile_off(f, f->head.maps[0].vars[BLOB_NREQS], 0, blob);
	if (!buf_ok(&out))
		return -ENOMEM;
	return off == SUBFILE_NOWHERE ? 0 : write_at(f, out.data, out.len, off, err);
}

/* header_blob: begins say nothing, table_blob does. */
static int encode_definitions(const struct subfile *f, struct buf *out, struct cistern_error *err)
{
	struct classic CLASSIC_CLEANUP c = { 0 };
	int r = classic_decode_definitions(f->made, (size_t)f->size, &c, err);

	for (uint32_t i = 0; i < c.num_vars; i++)
		c.vars[i].begin = 0;
	return r < 0 ? r : classic_encode(&c, out);
}

static int write_process_centric(struct subfile *f, struct cistern_error *err)
{
	struct buf BUF_CLEANUP header = { 0 }, BUF_CLEANUP table = { 0 }, BUF_CLEANUP head = { 0 };
	int r = encode_definitions(f, &header, err);

	blob_table_encode(&f->table, &table);
	blob_hdf5_encode(
		&(struct blob_hdf5){ header.data, table.data, header.len, table.len, f->table.data_bytes }, &head);
	if (r == 0 && (!buf_ok(&table) || !buf_ok(&head)))
		r = -ENOMEM;
	f->data_off = head.len;
	if (r == 0 && ftruncate(f->fd, (off_t)(f->data_off + f->table.data_bytes)) < 0)
		r = cistern_error_set(err, -errno, "%s: %s", f->path, strerror(errno));
	if (r == 0)
		r = write_at(f, head.data, head.len, 0, err);
	for (uint32_t b = 0; r == 0 && b < f->head.nblobs; b++)
		r = write_maps(f, b, err);
	return r;
}

int split_write_head(struct subfile *f, struct cistern_error *err)
{
	return f->process_centric ? write_process_centric(f, err) : write_variable_centric(f, err);
}
