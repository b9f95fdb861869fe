/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Reads the new file back, through HDF5 and its filters, and compares it with the classic one: every value, attribute,
 * dimension, and what makes it a netCDF-4 file. On purpose it knows nothing of how the chunks were made: where a value is
 * in the classic file is asked of the codec. Several nodes share the values, and on each several processes.
 */
#include "mpi-agent/nc4/file.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpi-agent/nc4/close.h"

struct place { /* of a variable's dataset in the new file */
	haddr_t addr;
	uint32_t var;
};

struct checker {
	const struct nc4_check *o;
	const struct nc4_shape *s;
	const struct classic *c;
	hid_t file;
	uint8_t *got;         /* owned: max_chunk_bytes */
	haddr_t *scales;      /* owned: of each dimension, where its scale is */
	struct place *places; /* owned: of all variables, by address */
	struct cistern_error *err;
};

static int failed(struct checker *k, const char *doing, const char *name)
{
	return nc4_hdf5_error(k->err, doing, name);
}

static int differs(struct checker *k, const char *what, const char *name)
{
	return cistern_error_set(k->err, -EBADMSG, "the %s of %.100s is not what it was", what, name);
}

/* One value as in the classic file against one in this machine's order. */
static bool same_value(const uint8_t *classic, const uint8_t *native, uint32_t size)
{
#if __BYTE_ORDER == __BIG_ENDIAN
	return memcmp(classic, native, size) == 0;
#else
	for (uint32_t i = 0; i < size; i++)
		if (classic[i] != native[size - 1 - i])
			return false;
	return true;
#endif
}

#define SAME_RUN(bits)                                                                           \
	static bool same_run_##bits(const uint8_t *classic, const uint8_t *native, uint64_t num) \
	{                                                                                        \
		uint##bits##_t a, b, diff = 0;                                                   \
                                                                                                 \
		for (uint64_t i = 0; i < num; i++) {                                             \
			memcpy(&a, classic + i * sizeof(a), sizeof(a));                          \
			memcpy(&b, native + i * sizeof(b), sizeof(b));                           \
			diff |= a ^ htobe##bits(b);                                              \
		}                                                                                \
		return diff == 0;                                                                \
	}
SAME_RUN(16)
SAME_RUN(32)
SAME_RUN(64)

static bool same_run(const uint8_t *classic, const uint8_t *native, uint64_t num, uint32_t size)
{
	switch (size) {
	case 1: return memcmp(classic, native, num) == 0;
	case 2: return same_run_16(classic, native, num);
	case 4: return same_run_32(classic, native, num);
	default: return same_run_64(classic, native, num);
	}
}

/* ---- attributes */

static int check_att_values(struct checker *k, hid_t att, hid_t type, const struct classic_att *a)
{
	uint32_t size = classic_type_bytes(a->type);
	uint8_t *got = malloc(a->num * size + 1);
	bool same = got != NULL;

	if (same && a->num > 0)
		same = H5Aread(att, type, got) >= 0 &&
		       (a->type == CLASSIC_CHAR ? memcmp(got, a->values, a->num) == 0
						: same_run(a->values, got, a->num, size));
	free(got);
	return same ? 0 : differs(k, "value of attribute", a->name);
}

static int check_att(struct checker *k, hid_t on, const struct classic_att *a)
{
	hid_t att CLOSE_ATT = H5Aopen(on, a->name, H5P_DEFAULT);
	hid_t want CLOSE_TYPE = a->type == CLASSIC_CHAR ? nc4_string_type(a->num ? a->num : 1) : nc4_type(a->type);
	hid_t type CLOSE_TYPE = att < 0 ? -1 : H5Aget_type(att);
	hid_t space CLOSE_SPACE = att < 0 ? -1 : H5Aget_space(att);
	H5S_class_t kind = !a->num ? H5S_NULL : a->type == CLASSIC_CHAR ? H5S_SCALAR : H5S_SIMPLE;

	if (att < 0 || want < 0 || type < 0 || space < 0)
		return failed(k, "attribute", a->name);
	if (H5Tequal(type, want) <= 0 || H5Sget_simple_extent_type(space) != kind ||
		(kind == H5S_SIMPLE && (H5Sget_simple_extent_ndims(space) != 1 ||
					       H5Sget_simple_extent_npoints(space) != (hssize_t)a->num)))
		return differs(k, "type or length of attribute", a->name);
	return check_att_values(k, att, want, a);
}

/* extra: how many there are of netCDF-4's own. */
static int check_atts(struct checker *k, hid_t on, const struct classic_att *atts, uint32_t num, hsize_t extra)
{
	H5O_info_t info;
	int r = 0;

	if (H5Oget_info2(on, &info, H5O_INFO_NUM_ATTRS) < 0)
		return failed(k, "attributes", "");
	if (info.num_attrs != num + extra)
		return cistern_error_set(k->err, -EBADMSG, "there are %" PRIu64 " attributes in a place of %" PRIu64,
			(uint64_t)info.num_attrs, (uint64_t)(num + extra));
	for (uint32_t i = 0; r == 0 && i < num; i++)
		r = check_att(k, on, &atts[i]);
	return r;
}

static int check_ints(struct checker *k, hid_t on, const char *name, const uint32_t *want, hsize_t num)
{
	hid_t att CLOSE_ATT = H5Aopen(on, name, H5P_DEFAULT);
	hid_t space CLOSE_SPACE = att < 0 ? -1 : H5Aget_space(att);
	int32_t got[NC4_RANK_MAX];

	if (att < 0 || space < 0 || H5Sget_simple_extent_npoints(space) != (hssize_t)num ||
		H5Aread(att, H5T_NATIVE_INT32, got) < 0)
		return failed(k, "attribute", name);
	for (hsize_t i = 0; i < num; i++)
		if (got[i] != (int32_t)want[i])
			return differs(k, "value of attribute", name);
	return 0;
}

/* ---- dimensions */

static int by_addr(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	return (x->addr > y->addr) - (x->addr < y->addr);
}

static int find_place(struct checker *k, const char *name, haddr_t *ret)
{
	H5O_info_t info;

	if (H5Oget_info_by_name2(k->file, name, &info, H5O_INFO_BASIC, H5P_DEFAULT) < 0)
		return failed(k, "dataset", name);
	*ret = info.addr;
	return 0;
}

/* References are places in the file. To ask HDF5 for their names would be a search of the whole file for each. */
static int find_places(struct checker *k)
{
	int r = 0;

	k->places = calloc(k->c->num_vars + 1u, sizeof(*k->places));
	k->scales = calloc(k->c->num_dims + 1u, sizeof(*k->scales));
	if (!k->places || !k->scales)
		return cistern_error_set(k->err, -ENOMEM, "out of memory");
	for (uint32_t i = 0; r == 0 && i < k->c->num_vars; i++) {
		k->places[i].var = i;
		r = find_place(k, k->s->vars[i].name, &k->places[i].addr);
	}
	for (uint32_t d = 0; r == 0 && d < k->c->num_dims; d++) {
		uint32_t var = k->s->scale_of[d];

		if (var == CLASSIC_NONE)
			r = find_place(k, k->c->dims[d].name, &k->scales[d]);
		else
			k->scales[d] = k->places[var].addr;
	}
	qsort(k->places, k->c->num_vars, sizeof(*k->places), by_addr);
	return r;
}

/* NULL: it is none of a variable. */
static const struct classic_var *var_at(const struct checker *k, haddr_t addr)
{
	struct place wanted = { .addr = addr }, *found;

	found = bsearch(&wanted, k->places, k->c->num_vars, sizeof(*k->places), by_addr);
	return found ? &k->c->vars[found->var] : NULL;
}

static int check_extent(struct checker *k, hid_t set, const char *name, uint32_t num, const uint32_t *dims)
{
	hid_t space CLOSE_SPACE = H5Dget_space(set);
	hsize_t len[NC4_RANK_MAX], max[NC4_RANK_MAX];

	if (space < 0 || H5Sget_simple_extent_ndims(space) != (int)num ||
		H5Sget_simple_extent_dims(space, len, max) < 0)
		return differs(k, "number of dimensions", name);
	for (uint32_t d = 0; d < num; d++) {
		hsize_t want = classic_dim_len(k->c, dims[d]);

		if (len[d] != want || max[d] != (dims[d] == k->c->record_dim ? H5S_UNLIMITED : want))
			return differs(k, "length of a dimension", name);
	}
	return 0;
}

/* How many times dim is a dimension of a variable that is no scale: so many entries REFERENCE_LIST has. */
static uint64_t count_users(const struct checker *k, uint32_t dim)
{
	uint64_t num = 0;

	for (uint32_t i = 0; i < k->c->num_vars; i++)
		for (uint32_t d = 0; !k->s->vars[i].is_scale && d < k->c->vars[i].num_dims; d++)
			num += k->c->vars[i].dims[d] == dim;
	return num;
}

static int check_users(struct checker *k, hid_t set, uint32_t dim)
{
	uint64_t want = count_users(k, dim);
	hid_t att CLOSE_ATT = want ? H5Aopen(set, "REFERENCE_LIST", H5P_DEFAULT) : -1;
	hid_t space CLOSE_SPACE = att < 0 ? -1 : H5Aget_space(att);
	hid_t type CLOSE_TYPE = nc4_ref_type();
	struct nc4_ref *refs;
	int r = 0;

	if (want == 0)
		return 0;
	if (space < 0 || H5Sget_simple_extent_npoints(space) != (hssize_t)want)
		return differs(k, "list of users", k->c->dims[dim].name);
	refs = calloc(want, sizeof(*refs));
	if (!refs || H5Aread(att, type, refs) < 0)
		r = failed(k, "list of users", k->c->dims[dim].name);
	for (uint64_t i = 0; r == 0 && i < want; i++) {
		const struct classic_var *v = var_at(k, refs[i].dataset);

		if (!v || (uint32_t)refs[i].dimension >= v->num_dims || v->dims[refs[i].dimension] != dim)
			r = differs(k, "list of users", k->c->dims[dim].name);
	}
	free(refs);
	return r;
}

static int check_scale(struct checker *k, hid_t set, uint32_t dim)
{
	hid_t att CLOSE_ATT = H5Aopen(set, "CLASS", H5P_DEFAULT);
	hid_t type CLOSE_TYPE = nc4_string_type(sizeof(NC4_SCALE_CLASS));
	char text[sizeof(NC4_SCALE_CLASS)] = "";
	int r;

	if (att < 0 || H5Aread(att, type, text) < 0 || strcmp(text, NC4_SCALE_CLASS) != 0)
		return differs(k, "dimension scale", k->c->dims[dim].name);
	r = check_ints(k, set, "_Netcdf4Dimid", &dim, 1);
	return r == 0 ? check_users(k, set, dim) : r;
}

static int check_dim(struct checker *k, uint32_t dim)
{
	hid_t set CLOSE_OBJECT = H5Dopen2(k->file, k->c->dims[dim].name, H5P_DEFAULT);
	hsize_t own = 3 + (count_users(k, dim) > 0); /* CLASS, NAME, _Netcdf4Dimid, REFERENCE_LIST */
	int r;

	if (set < 0)
		return failed(k, "dimension", k->c->dims[dim].name);
	r = check_extent(k, set, k->c->dims[dim].name, 1, &dim);
	if (r == 0)
		r = check_scale(k, set, dim);
	return r == 0 ? check_atts(k, set, NULL, 0, own) : r;
}

/* ---- variables */

static int check_dimension_list(struct checker *k, hid_t set, uint32_t id)
{
	const struct classic_var *v = &k->c->vars[id];
	hid_t att CLOSE_ATT = H5Aopen(set, "DIMENSION_LIST", H5P_DEFAULT);
	hid_t type CLOSE_TYPE = H5Tvlen_create(H5T_STD_REF_OBJ);
	hid_t space CLOSE_SPACE = att < 0 ? -1 : H5Aget_space(att);
	hvl_t lists[NC4_RANK_MAX] = { 0 };
	int r = 0;

	if (space < 0 || H5Sget_simple_extent_npoints(space) != (hssize_t)v->num_dims || H5Aread(att, type, lists) < 0)
		return failed(k, "dimensions of", v->name);
	for (uint32_t d = 0; r == 0 && d < v->num_dims; d++)
		if (lists[d].len != 1 || *(const hobj_ref_t *)lists[d].p != k->scales[v->dims[d]])
			r = differs(k, "dimensions", v->name);
	H5Dvlen_reclaim(type, space, H5P_DEFAULT, lists);
	return r;
}

static int check_kind(struct checker *k, hid_t set, uint32_t id)
{
	const struct classic_var *v = &k->c->vars[id];
	hid_t want CLOSE_TYPE = nc4_type(v->type);
	hid_t type CLOSE_TYPE = H5Dget_type(set);
	hid_t list CLOSE_LIST = H5Dget_create_plist(set);
	uint8_t classic[CLASSIC_TYPE_BYTES], native[CLASSIC_TYPE_BYTES];
	uint32_t size = classic_var_fill(v, classic);

	if (want < 0 || type < 0 || H5Tequal(type, want) <= 0)
		return differs(k, "type", v->name);
	if (list < 0 || H5Pget_fill_value(list, want, native) < 0 || !same_value(classic, native, size))
		return differs(k, "fill value", v->name);
	return 0;
}

static int check_box(struct checker *k, hid_t set, uint32_t id, const uint64_t *start, const uint64_t *count)
{
	const struct classic_var *v = &k->c->vars[id];
	hid_t type CLOSE_TYPE = nc4_type(v->type);
	hid_t in_file CLOSE_SPACE = H5Dget_space(set);
	hid_t in_memory CLOSE_SPACE = -1;
	hsize_t h_start[NC4_RANK_MAX], h_count[NC4_RANK_MAX];

	for (uint32_t d = 0; d < v->num_dims; d++) {
		h_start[d] = start[d];
		h_count[d] = count[d];
	}
	in_memory = v->num_dims ? H5Screate_simple((int)v->num_dims, h_count, NULL) : H5Screate(H5S_SCALAR);
	if (in_memory < 0 ||
		(v->num_dims && H5Sselect_hyperslab(in_file, H5S_SELECT_SET, h_start, NULL, h_count, NULL) < 0) ||
		H5Dread(set, type, in_memory, in_file, H5P_DEFAULT, k->got) < 0)
		return failed(k, "values of", v->name);
	return 0;
}

/* Row by row: a row is what the last dimension has of the box, and lies together in both. */
static int compare_box(struct checker *k, uint32_t id, const uint64_t *start, const uint64_t *count)
{
	const struct classic_var *v = &k->c->vars[id];
	uint32_t size = classic_type_bytes(v->type), last = v->num_dims ? v->num_dims - 1 : 0, d;
	bool one_by_one = v->num_dims == 0 || (v->num_dims == 1 && v->is_record);
	uint64_t at[NC4_RANK_MAX], row = one_by_one ? 1 : count[last];
	const uint8_t *got = k->got;

	memcpy(at, start, v->num_dims * sizeof(*at));
	for (;;) {
		uint64_t element = 0, record = v->is_record ? at[0] : 0;

		for (d = v->is_record; d < v->num_dims; d++)
			element = element * k->s->vars[id].dims[d] + at[d];
		if (!same_run(k->o->file + classic_offset(k->c, v, record, element), got, row, size))
			return differs(k, "values", v->name);
		got += row * size;
		for (d = one_by_one ? v->num_dims : last; d-- > 0;) {
			if (++at[d] < start[d] + count[d])
				break;
			at[d] = start[d];
		}
		if (d == UINT32_MAX)
			return 0;
	}
}

static bool is_ours(const struct checker *k, uint64_t number)
{
	uint64_t index;

	return nc4_share_has(&k->o->share, k->s->num_chunks, number, &index) && index % k->o->parts == k->o->part;
}

static bool checks_all_but_values(const struct checker *k)
{
	return k->o->part == 0 && k->o->share.which == 0;
}

static int check_values(struct checker *k, hid_t set, uint32_t id, uint64_t first)
{
	const struct nc4_var *o = &k->s->vars[id];
	uint64_t start[NC4_RANK_MAX], count[NC4_RANK_MAX];
	int r = 0;

	for (uint64_t i = 0; r == 0 && i < o->num_chunks; i++) {
		if (!is_ours(k, first + i))
			continue;
		nc4_chunk_box(o, k->c->vars[id].num_dims, i, start, count);
		r = check_box(k, set, id, start, count);
		if (r == 0)
			r = compare_box(k, id, start, count);
	}
	return r;
}

static hid_t open_set(struct checker *k, const char *name)
{
	hid_t list CLOSE_LIST = H5Pcreate(H5P_DATASET_ACCESS);

	if (list < 0 || H5Pset_chunk_cache(list, 0, 0, H5D_CHUNK_CACHE_W0_DEFAULT) < 0)
		return -1;
	return H5Dopen2(k->file, name, list);
}

static int check_definition(struct checker *k, hid_t set, uint32_t id)
{
	const struct classic_var *v = &k->c->vars[id];
	const struct nc4_var *o = &k->s->vars[id];
	hsize_t own = v->num_dims > 0; /* _Netcdf4Coordinates */
	int r = check_kind(k, set, id);

	if (r == 0)
		r = check_extent(k, set, v->name, v->num_dims, v->dims);
	if (r == 0 && v->num_dims > 0)
		r = check_ints(k, set, "_Netcdf4Coordinates", v->dims, v->num_dims);
	if (r == 0 && o->is_scale) {
		own += 3 + (count_users(k, v->dims[0]) > 0);
		r = check_scale(k, set, v->dims[0]);
	} else if (r == 0 && v->num_dims > 0) {
		own++;
		r = check_dimension_list(k, set, id);
	}
	return r == 0 ? check_atts(k, set, v->atts, v->num_atts, own) : r;
}

static int check_var(struct checker *k, uint32_t id, uint64_t first)
{
	hid_t set CLOSE_OBJECT = open_set(k, k->s->vars[id].name);
	int r = 0;

	if (set < 0)
		return failed(k, "variable", k->c->vars[id].name);
	if (checks_all_but_values(k))
		r = check_definition(k, set, id);
	return r == 0 ? check_values(k, set, id, first) : r;
}

/* ---- the whole */

static int check_place(struct checker *k, hsize_t at, const char *want)
{
	char name[CLASSIC_NAME_MAX + 32] = "";

	if (H5Lget_name_by_idx(k->file, "/", H5_INDEX_CRT_ORDER, H5_ITER_INC, at, name, sizeof(name), H5P_DEFAULT) < 0)
		return failed(k, "dataset", want);
	return strcmp(name, want) == 0 ? 0 : differs(k, "place", want);
}

/* netCDF-C numbers variables by the order in which their datasets were made. */
static int check_order(struct checker *k)
{
	hsize_t at = 0;
	H5G_info_t info;
	int r = 0;

	for (uint32_t d = 0; r == 0 && d < k->c->num_dims; d++)
		if (k->s->scale_of[d] == CLASSIC_NONE)
			r = check_place(k, at++, k->c->dims[d].name);
	for (uint32_t i = 0; r == 0 && i < k->c->num_vars; i++)
		r = check_place(k, at++, k->s->vars[i].name);
	if (r == 0 && H5Gget_info(k->file, &info) < 0)
		r = failed(k, "group", "/");
	return r == 0 && info.nlinks != at ? differs(k, "number of datasets", "it") : r;
}

static int check_root(struct checker *k)
{
	static const uint32_t one = 1;
	hid_t root CLOSE_OBJECT = H5Oopen(k->file, "/", H5P_DEFAULT);
	int r = root < 0 ? failed(k, "group", "/") : check_order(k);

	if (r == 0 && k->s->strict)
		r = check_ints(k, root, "_nc3_strict", &one, 1);
	if (r == 0)
		r = check_atts(k, root, k->c->atts, k->c->num_atts, 1u + k->s->strict);
	for (uint32_t d = 0; r == 0 && d < k->c->num_dims; d++)
		if (k->s->scale_of[d] == CLASSIC_NONE)
			r = check_dim(k, d);
	return r;
}

static int check_all(struct checker *k)
{
	uint64_t first = 0;
	int r = checks_all_but_values(k) ? find_places(k) : 0;

	if (r == 0 && checks_all_but_values(k))
		r = check_root(k);

	for (uint32_t i = 0; r == 0 && i < k->c->num_vars; i++) {
		r = check_var(k, i, first);
		first += k->s->vars[i].num_chunks;
	}
	return r;
}

int nc4_check(const struct nc4_check *o, struct cistern_error *err)
{
	struct checker k = { .o = o, .s = o->shape, .c = o->shape->c, .err = err };
	hid_t list CLOSE_LIST = nc4_access_list(NULL);
	int r = 0;

	k.got = malloc(o->shape->max_chunk_bytes + 1);
	k.file = list < 0 || !k.got ? -1 : H5Fopen(o->out, H5F_ACC_RDONLY, list);
	if (!k.got)
		r = cistern_error_set(err, -ENOMEM, "out of memory");
	else if (k.file < 0)
		r = failed(&k, "file", o->out);
	if (r == 0)
		r = check_all(&k);
	if (k.file >= 0)
		H5Fclose(k.file);
	free(k.got);
	free(k.places);
	free(k.scales);
	return r;
}
