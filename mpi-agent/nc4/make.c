/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Makes the file: first everything but the values (datasets in the order of the classic file's variables, behind the
 * dimensions that have none, since their order is their number), then what refers to other datasets, then the values.
 * Compressed chunks come ready from the packer and are written as they are; HDF5 only notes where.
 *
 * H5DSattach_scale is not used: it writes the whole list of a scale's users anew for each of them.
 */
#include "mpi-agent/nc4/file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpi-agent/nc4/close.h"
#include "mpi-agent/nc4/pack.h"

#define DIM_CHUNK 1024 /* of the record dimension without variable: no values are stored */

struct maker {
	struct nc4_make *m;
	const struct nc4_shape *s;
	const struct classic *c;
	hid_t file;
	hid_t *vars, *dims; /* owned; < 0: none. dims: scales without variable */
	uint64_t number;    /* of the chunk that is to be written */
	struct cistern_error *err;
};

static int failed(struct maker *k, const char *doing, const char *name)
{
	return nc4_hdf5_error(k->err, doing, name);
}

/* ---- attributes */

/* value: as H5Awrite wants it; NULL with a space without values. */
static int put_att(hid_t on, const char *name, hid_t type, hid_t space, const void *value)
{
	hid_t att = type < 0 || space < 0 ? -1 : H5Acreate2(on, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
	int r = att < 0 ? -1 : 0;

	if (r == 0 && value && H5Awrite(att, type, value) < 0)
		r = -1;
	if (att >= 0 && H5Aclose(att) < 0)
		r = -1;
	return r;
}

static int put_string(hid_t on, const char *name, const char *text, size_t bytes)
{
	hid_t type CLOSE_TYPE = nc4_string_type(bytes);
	hid_t space CLOSE_SPACE = H5Screate(H5S_SCALAR);

	return put_att(on, name, type, space, text);
}

static int put_ints(hid_t on, const char *name, const int32_t *values, hsize_t num)
{
	hid_t space CLOSE_SPACE = num ? H5Screate_simple(1, &num, NULL) : H5Screate(H5S_SCALAR);

	return put_att(on, name, H5T_NATIVE_INT32, space, values);
}

static int put_classic(hid_t on, const struct classic_att *a)
{
	hsize_t num = a->num;
	bool text = a->type == CLASSIC_CHAR;
	hid_t type CLOSE_TYPE = text ? nc4_string_type(a->num ? a->num : 1) : nc4_type(a->type);
	hid_t space CLOSE_SPACE = !a->num ? H5Screate(H5S_NULL)
				  : text  ? H5Screate(H5S_SCALAR)
					  : H5Screate_simple(1, &num, NULL);
	uint32_t size = classic_type_bytes(a->type);
	uint8_t *native = malloc(a->num * size + 1);
	int r = native ? 0 : -1;

	if (r == 0) {
		pack_swap(native, a->values ? a->values : (const uint8_t *)"", a->num, size);
		r = put_att(on, a->name, type, space, a->num ? native : NULL);
	}
	free(native);
	return r;
}

static int put_atts(struct maker *k, hid_t on, const struct classic_att *atts, uint32_t num)
{
	for (uint32_t i = 0; i < num; i++)
		if (put_classic(on, &atts[i]) < 0)
			return failed(k, "attribute", atts[i].name);
	return 0;
}

static int put_scale(hid_t on, const char *name, int32_t dim)
{
	if (put_string(on, "CLASS", NC4_SCALE_CLASS, sizeof(NC4_SCALE_CLASS)) < 0 ||
		put_string(on, "NAME", name, strlen(name) + 1) < 0)
		return -1;
	return put_ints(on, "_Netcdf4Dimid", &dim, 0);
}

/* ---- dimensions and variables */

static hid_t creation_list(void)
{
	hid_t list = H5Pcreate(H5P_DATASET_CREATE);

	if (list >= 0 && (H5Pset_attr_creation_order(list, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED) < 0 ||
				 H5Pset_obj_track_times(list, false) < 0)) {
		H5Pclose(list);
		return -1;
	}
	return list;
}

/* Values are written by nobody: netCDF-C wants a dataset, of whatever type. */
static int create_dim(struct maker *k, uint32_t id)
{
	const struct classic_dim *d = &k->c->dims[id];
	bool unlimited = id == k->c->record_dim;
	hsize_t len = classic_dim_len(k->c, id), max = unlimited ? H5S_UNLIMITED : len, chunk = DIM_CHUNK;
	hid_t space CLOSE_SPACE = H5Screate_simple(1, &len, &max);
	hid_t list CLOSE_LIST = creation_list();
	char name[NC4_NAME_BYTES];
	hid_t set;

	if (space < 0 || list < 0 || (unlimited && H5Pset_chunk(list, 1, &chunk) < 0))
		return failed(k, "dimension", d->name);
	set = H5Dcreate2(k->file, d->name, H5T_IEEE_F32BE, space, H5P_DEFAULT, list, H5P_DEFAULT);
	k->dims[id] = set;
	snprintf(name, sizeof(name), NC4_NO_VARIABLE "%10" PRIu64, (uint64_t)len);
	return set < 0 || put_scale(set, name, (int32_t)id) < 0 ? failed(k, "dimension", d->name) : 0;
}

static int set_fill(const struct maker *k, uint32_t id, hid_t list, hid_t type)
{
	const struct classic_var *v = &k->c->vars[id];
	uint8_t fill[CLASSIC_TYPE_BYTES], native[CLASSIC_TYPE_BYTES];

	pack_swap(native, fill, 1, classic_var_fill(v, fill));
	return H5Pset_fill_value(list, type, native) < 0 || H5Pset_fill_time(list, H5D_FILL_TIME_IFSET) < 0 ? -1 : 0;
}

static int set_storage(const struct maker *k, uint32_t id, hid_t list)
{
	const struct classic_var *v = &k->c->vars[id];
	const struct nc4_var *o = &k->s->vars[id];
	hsize_t chunk[NC4_RANK_MAX];

	if (!o->is_chunked)
		return 0;
	for (uint32_t d = 0; d < v->num_dims; d++)
		chunk[d] = o->chunk[d];
	if (H5Pset_chunk(list, (int)v->num_dims, chunk) < 0)
		return -1;
	if (o->is_shuffled && H5Pset_shuffle(list) < 0)
		return -1;
	return o->is_filtered && H5Pset_deflate(list, (unsigned int)config_number(k->m->cfg, CONFIG_DEFLATE)) < 0 ? -1
														  : 0;
}

static hid_t var_space(const struct maker *k, uint32_t id)
{
	const struct classic_var *v = &k->c->vars[id];
	hsize_t dims[NC4_RANK_MAX], max[NC4_RANK_MAX];

	if (v->num_dims == 0)
		return H5Screate(H5S_SCALAR);
	for (uint32_t d = 0; d < v->num_dims; d++) {
		dims[d] = k->s->vars[id].dims[d];
		max[d] = v->dims[d] == k->c->record_dim ? H5S_UNLIMITED : dims[d];
	}
	return H5Screate_simple((int)v->num_dims, dims, max);
}

static int put_coordinates(struct maker *k, uint32_t id)
{
	const struct classic_var *v = &k->c->vars[id];
	int32_t dims[NC4_RANK_MAX];

	for (uint32_t d = 0; d < v->num_dims; d++)
		dims[d] = (int32_t)v->dims[d];
	return v->num_dims ? put_ints(k->vars[id], "_Netcdf4Coordinates", dims, v->num_dims) : 0;
}

/* Each chunk is written once and whole: a cache would only copy it. */
static hid_t dataset_access(void)
{
	hid_t list = H5Pcreate(H5P_DATASET_ACCESS);

	if (list >= 0 && H5Pset_chunk_cache(list, 0, 0, H5D_CHUNK_CACHE_W0_DEFAULT) < 0) {
		H5Pclose(list);
		return -1;
	}
	return list;
}

static int create_var(struct maker *k, uint32_t id)
{
	const struct classic_var *v = &k->c->vars[id];
	const struct nc4_var *o = &k->s->vars[id];
	hid_t type CLOSE_TYPE = nc4_type(v->type);
	hid_t space CLOSE_SPACE = var_space(k, id);
	hid_t list CLOSE_LIST = creation_list();
	hid_t access CLOSE_LIST = dataset_access();

	if (type < 0 || space < 0 || list < 0 || access < 0 || set_fill(k, id, list, type) < 0 ||
		set_storage(k, id, list) < 0)
		return failed(k, "variable", v->name);
	k->vars[id] = H5Dcreate2(k->file, o->name, type, space, H5P_DEFAULT, list, access);
	if (k->vars[id] < 0 || (o->is_scale && put_scale(k->vars[id], v->name, (int32_t)v->dims[0]) < 0) ||
		put_coordinates(k, id) < 0)
		return failed(k, "variable", v->name);
	return put_atts(k, k->vars[id], v->atts, v->num_atts);
}

/* ---- which dataset stands for which dimension of which other */

static hid_t scale_of(const struct maker *k, uint32_t dim)
{
	uint32_t var = k->s->scale_of[dim];

	return var == CLASSIC_NONE ? k->dims[dim] : k->vars[var];
}

static int put_dimension_list(struct maker *k, uint32_t id)
{
	const struct classic_var *v = &k->c->vars[id];
	hobj_ref_t refs[NC4_RANK_MAX];
	hvl_t lists[NC4_RANK_MAX];
	hsize_t num = v->num_dims;
	hid_t type CLOSE_TYPE = H5Tvlen_create(H5T_STD_REF_OBJ);
	hid_t space CLOSE_SPACE = H5Screate_simple(1, &num, NULL);

	for (uint32_t d = 0; d < v->num_dims; d++) {
		if (H5Rcreate(&refs[d], scale_of(k, v->dims[d]), ".", H5R_OBJECT, -1) < 0)
			return failed(k, "dimensions of", v->name);
		lists[d] = (hvl_t){ .len = 1, .p = &refs[d] };
	}
	return put_att(k->vars[id], "DIMENSION_LIST", type, space, lists) < 0 ? failed(k, "dimensions of", v->name) : 0;
}

/* A scale has no dimension scales itself: its dimensions are in _Netcdf4Coordinates. */
static bool has_list(const struct maker *k, uint32_t id)
{
	return k->c->vars[id].num_dims > 0 && !k->s->vars[id].is_scale;
}

static int put_references(struct maker *k, uint32_t dim, struct nc4_ref *refs)
{
	hid_t type CLOSE_TYPE = nc4_ref_type();
	hid_t space CLOSE_SPACE = -1;
	hsize_t num = 0;

	for (uint32_t i = 0; i < k->c->num_vars; i++)
		for (uint32_t d = 0; has_list(k, i) && d < k->c->vars[i].num_dims; d++)
			if (k->c->vars[i].dims[d] == dim) {
				refs[num].dimension = (int)d;
				if (H5Rcreate(&refs[num++].dataset, k->vars[i], ".", H5R_OBJECT, -1) < 0)
					return failed(k, "users of the dimension", k->c->dims[dim].name);
			}
	if (num == 0)
		return 0;
	space = H5Screate_simple(1, &num, NULL);
	return put_att(scale_of(k, dim), "REFERENCE_LIST", type, space, refs) < 0
		       ? failed(k, "users of the dimension", k->c->dims[dim].name)
		       : 0;
}

static int put_links(struct maker *k)
{
	struct nc4_ref *refs;
	size_t num = 1;
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < k->c->num_vars; i++) {
		num += k->c->vars[i].num_dims;
		if (has_list(k, i))
			r = put_dimension_list(k, i);
	}
	refs = calloc(num, sizeof(*refs));
	if (!refs)
		return cistern_error_set(k->err, -ENOMEM, "out of memory");
	for (uint32_t d = 0; r == 0 && d < k->c->num_dims; d++)
		r = put_references(k, d, refs);
	free(refs);
	return r;
}

/* ---- values */

static int write_piece(struct maker *k, const struct packed *p)
{
	const struct classic_var *v = &k->c->vars[p->var];
	uint64_t start[NC4_RANK_MAX], count[NC4_RANK_MAX];
	hsize_t h_start[NC4_RANK_MAX], h_count[NC4_RANK_MAX];
	hid_t type CLOSE_TYPE = nc4_type(v->type);
	hid_t in_file CLOSE_SPACE = H5Dget_space(k->vars[p->var]);
	hid_t in_memory CLOSE_SPACE = -1;

	nc4_chunk_box(&k->s->vars[p->var], v->num_dims, p->chunk, start, count);
	for (uint32_t d = 0; d < v->num_dims; d++) {
		h_start[d] = start[d];
		h_count[d] = count[d];
	}
	in_memory = v->num_dims ? H5Screate_simple((int)v->num_dims, h_count, NULL) : H5Screate(H5S_SCALAR);
	if (type < 0 || in_file < 0 || in_memory < 0 ||
		(v->num_dims && H5Sselect_hyperslab(in_file, H5S_SELECT_SET, h_start, NULL, h_count, NULL) < 0))
		return -1;
	return H5Dwrite(k->vars[p->var], type, in_memory, in_file, H5P_DEFAULT, p->bytes) < 0 ? -1 : 0;
}

static int write_chunk(struct maker *k, const struct packed *p)
{
	uint64_t start[NC4_RANK_MAX], count[NC4_RANK_MAX];
	hsize_t at[NC4_RANK_MAX];

	nc4_chunk_box(&k->s->vars[p->var], k->c->vars[p->var].num_dims, p->chunk, start, count);
	for (uint32_t d = 0; d < k->c->vars[p->var].num_dims; d++)
		at[d] = start[d];
	k->m->stored_bytes += p->len;
	return H5Dwrite_chunk(k->vars[p->var], H5P_DEFAULT, p->filter_mask, at, p->len, p->bytes) < 0 ? -1 : 0;
}

/* Of which parcel the chunk comes; NULL: of none. */
static struct parcel *parcel_with(const struct nc4_make *m, uint64_t number)
{
	for (uint32_t i = 0; i < m->num_parcels; i++)
		if (m->parcels[i] && parcel_next(m->parcels[i]) == number)
			return m->parcels[i];
	return NULL;
}

/* The packer asks of each chunk in order, in a thread of its own: it must not see how far the parcels have been taken. */
static bool is_packed_here(uint32_t var, uint64_t number, const void *arg)
{
	const struct nc4_make *m = arg;
	uint64_t index;

	for (uint32_t i = 0; i < m->num_parcels; i++) {
		struct nc4_share share = { i, m->num_parcels };

		if (m->parcels[i] && nc4_share_has(&share, m->shape->num_chunks, number, &index))
			return !m->shape->vars[var].is_filtered;
	}
	return true;
}

/* The next chunk, of a parcel or of the packer. 1, 0, errors: as packer_take(). */
static int take_next(struct maker *k, struct packer *packer, uint32_t var, uint64_t chunk, struct packed *ret)
{
	struct parcel *parcel = parcel_with(k->m, k->number);
	int r;

	if (is_packed_here(var, k->number, k->m))
		return packer_take(packer, ret);
	r = parcel ? parcel_take(parcel, ret) : -EBADMSG;
	ret->var = var;
	ret->chunk = chunk;
	k->m->parcel_chunks += r == 0;
	return r < 0 ? r : 1;
}

static int put_chunks(struct maker *k, struct packer *packer, uint32_t var)
{
	struct packed p = { 0 };

	for (uint64_t i = 0; i < k->s->vars[var].num_chunks; i++, k->number++) {
		int r = take_next(k, packer, var, i, &p);

		r = r == 0 ? -EIO : r;
		if (r < 0)
			return cistern_error_set(k->err, r, "compression: %s", strerror(-r));
		r = k->s->vars[var].is_chunked ? write_chunk(k, &p) : write_piece(k, &p);
		if (r < 0)
			return failed(k, "values of", k->c->vars[var].name);
	}
	return 0;
}

static int put_values(struct maker *k)
{
	struct packer_options opt = { .shape = k->s,
		.file = k->m->file,
		.deflate = (unsigned int)config_number(k->m->cfg, CONFIG_DEFLATE),
		.threads = k->m->threads,
		.memory_bytes = config_number(k->m->cfg, CONFIG_FLUSH_BUFFER_SIZE),
		.wants = is_packed_here,
		.arg = k->m };
	struct packer *packer;
	int r = packer_create(&opt, &packer);

	if (r < 0)
		return cistern_error_set(k->err, r, "threads: %s", strerror(-r));
	for (uint32_t var = 0; r == 0 && var < k->c->num_vars; var++)
		r = put_chunks(k, packer, var);
	packer_destroy(packer);
	return r;
}

/* ---- the whole */

static hid_t create_file(const struct maker *k)
{
	const unsigned int order = H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED;
	hid_t create CLOSE_LIST = H5Pcreate(H5P_FILE_CREATE);
	hid_t access CLOSE_LIST = nc4_access_list(k->m->cfg);

	if (create < 0 || access < 0 || H5Pset_link_creation_order(create, order) < 0 ||
		H5Pset_attr_creation_order(create, order) < 0 || H5Pset_obj_track_times(create, false) < 0)
		return -1;
	return H5Fcreate(k->m->out, H5F_ACC_TRUNC, create, access);
}

static int put_properties(struct maker *k)
{
	static const int32_t one = 1;
	unsigned int major, minor, release;
	char text[100];

	if (H5get_libversion(&major, &minor, &release) < 0)
		return -1;
	snprintf(text, sizeof(text), "version=2,cistern=%s,hdf5=%u.%u.%u", CISTERN_VERSION, major, minor, release);
	if (put_string(k->file, NC4_PROPERTIES, text, strlen(text)) < 0)
		return -1;
	return k->s->strict ? put_ints(k->file, "_nc3_strict", &one, 0) : 0;
}

static int put_all(struct maker *k)
{
	int r = put_properties(k) < 0 ? failed(k, "attribute", NC4_PROPERTIES) : 0;

	for (uint32_t d = 0; r == 0 && d < k->c->num_dims; d++)
		if (k->s->scale_of[d] == CLASSIC_NONE)
			r = create_dim(k, d);
	for (uint32_t i = 0; r == 0 && i < k->c->num_vars; i++)
		r = create_var(k, i);
	if (r == 0)
		r = put_atts(k, k->file, k->c->atts, k->c->num_atts);
	if (r == 0)
		r = put_links(k);
	return r == 0 ? put_values(k) : r;
}

static void close_all(struct maker *k)
{
	for (uint32_t i = 0; k->vars && i < k->c->num_vars; i++)
		nc4_close_object(&k->vars[i]);
	for (uint32_t d = 0; k->dims && d < k->c->num_dims; d++)
		nc4_close_object(&k->dims[d]);
	free(k->vars);
	free(k->dims);
}

static hid_t *none(uint32_t num)
{
	hid_t *ids = calloc(num + 1u, sizeof(*ids));

	for (uint32_t i = 0; ids && i < num; i++)
		ids[i] = -1;
	return ids;
}

int nc4_make(struct nc4_make *m, struct cistern_error *err)
{
	struct maker k = { .m = m, .s = m->shape, .c = m->shape->c, .err = err };
	int r = 0;

	k.vars = none(k.c->num_vars);
	k.dims = none(k.c->num_dims);
	k.file = k.vars && k.dims ? create_file(&k) : -1;
	if (!k.vars || !k.dims)
		r = cistern_error_set(err, -ENOMEM, "out of memory");
	else if (k.file < 0)
		r = failed(&k, "file", m->out);
	if (r == 0)
		r = put_all(&k);
	close_all(&k);
	if (r == 0 && nc4_cache_report(k.file, &m->report) < 0)
		r = failed(&k, "report of the metadata cache of", m->out);
	if (k.file >= 0 && H5Fclose(k.file) < 0 && r == 0)
		r = failed(&k, "end of", m->out);
	return r;
}
