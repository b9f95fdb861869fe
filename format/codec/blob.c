/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What a subfile's header says: its maps, and the definitions of the canonical file, which are those of the subfile without
 * what describes blobs. Nothing that a header says is believed before it was compared with the rest of it.
 */
#include "format/codec/blob.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/codec/blob_private.h"

static uint32_t be32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* ---- attributes */

static bool is_blob_att(const char *name)
{
	return strcmp(name, BLOB_ATT_NPROCS) == 0 || strcmp(name, BLOB_ATT_MAPS) == 0 ||
	       strcmp(name, BLOB_ATT_SUBFILES) == 0 || strncmp(name, "cistern_", 8) == 0;
}

static bool is_blob_var_att(const char *name)
{
	return strcmp(name, "decomposition_ID") == 0 || strcmp(name, "global_dimids") == 0;
}

bool blob_is_header(const struct classic *header)
{
	return classic_find_att(header, CLASSIC_NONE, BLOB_ATT_NPROCS) &&
	       classic_find_att(header, CLASSIC_NONE, BLOB_ATT_MAPS) &&
	       classic_find_att(header, CLASSIC_NONE, BLOB_ATT_SUBFILES);
}

/* An attribute of num int32 values, or NULL. */
static const struct classic_att *find_ints(const struct classic *c, uint32_t var, const char *name)
{
	const struct classic_att *a = classic_find_att(c, var, name);

	return a && a->type == CLASSIC_INT && a->num > 0 ? a : NULL;
}

static int get_count(
	const struct blob_head *h, const char *name, uint32_t max, uint32_t *ret, struct cistern_error *err)
{
	const struct classic_att *a = find_ints(&h->header, CLASSIC_NONE, name);
	uint32_t value;

	if (!a || a->num != 1)
		return cistern_error_set(err, -EBADMSG, "no global attribute %s of one int", name);
	value = be32(a->values);
	if (value > max)
		return cistern_error_set(err, -EBADMSG, "%s is %" PRId32, name, (int32_t)value);
	*ret = value;
	return 0;
}

static void swap_values(struct classic_att *a)
{
	uint32_t size = classic_type_bytes(a->type);

	for (uint64_t i = 0; i < a->num; i++)
		for (uint32_t k = 0; k < size / 2; k++) {
			uint8_t *p = a->values + i * size, byte = p[k];

			p[k] = p[size - 1 - k];
			p[size - 1 - k] = byte;
		}
}

static void swap_atts(struct classic *c)
{
	for (uint32_t i = 0; i < c->num_atts; i++)
		swap_values(&c->atts[i]);
	for (uint32_t i = 0; i < c->num_vars; i++)
		for (uint32_t k = 0; k < c->vars[i].num_atts; k++)
			swap_values(&c->vars[i].atts[k]);
}

/* The maps that there are variables of, D1 to the returned. */
static uint32_t count_maps(const struct classic *c)
{
	char name[BLOB_NAME];
	uint32_t num = 0;

	while (num < c->num_vars && num < BLOB_MAPS_MAX &&
		classic_find_var(c, blob_name(name, num, blob_map_var_suffix(BLOB_NREQS))) != CLASSIC_NONE)
		num++;
	return num;
}

/*
 * E3SM-IO's process-centric header has attributes as they were in memory. The number of maps, which the variables show as
 * well, tells which way round they are; where there is none, the number of processes, which is small.
 */
static bool is_swapped(const struct classic *c, uint32_t num_maps)
{
	const struct classic_att *maps = find_ints(c, CLASSIC_NONE, BLOB_ATT_MAPS);
	const struct classic_att *procs = find_ints(c, CLASSIC_NONE, BLOB_ATT_NPROCS);

	if (maps && num_maps > 0)
		return be32(maps->values) != num_maps && __builtin_bswap32(be32(maps->values)) == num_maps;
	return procs && be32(procs->values) > __builtin_bswap32(be32(procs->values));
}

static int get_counts(struct blob_head *h, struct cistern_error *err)
{
	uint32_t found = count_maps(&h->header), said = 0;
	int r;

	h->little_endian = is_swapped(&h->header, found);
	if (h->little_endian)
		swap_atts(&h->header);
	r = get_count(h, BLOB_ATT_NPROCS, INT32_MAX, &h->global_nprocs, err);
	if (r == 0)
		r = get_count(h, BLOB_ATT_SUBFILES, BLOB_SUBFILES_MAX, &h->num_subfiles, err);
	if (r == 0)
		r = get_count(h, BLOB_ATT_MAPS, BLOB_MAPS_MAX, &said, err);
	if (r == 0 && said != found)
		r = cistern_error_set(err, -EBADMSG, "%s is %" PRIu32 ", but there are variables of %" PRIu32 " maps",
			BLOB_ATT_MAPS, said, found);
	if (r == 0 && (h->num_subfiles == 0 || h->global_nprocs == 0))
		r = cistern_error_set(err, -EBADMSG, "%s and %s are %" PRIu32 " and %" PRIu32, BLOB_ATT_NPROCS,
			BLOB_ATT_SUBFILES, h->global_nprocs, h->num_subfiles);
	h->num_maps = found;
	return r;
}

/* ---- maps */

static int get_dim(const struct classic *c, const char *name, uint32_t *ret, struct cistern_error *err)
{
	*ret = classic_find_dim(c, name);
	if (*ret == CLASSIC_NONE || *ret == c->record_dim)
		return cistern_error_set(err, -EBADMSG, "no dimension %s of a fixed length", name);
	return 0;
}

/* A variable of a map: of these dimensions, int or int64. */
static int get_map_var(
	struct blob_head *h, uint32_t map, enum blob_map_var which, const uint32_t dims[2], struct cistern_error *err)
{
	uint32_t num_dims = which == BLOB_OFFSETS || which == BLOB_LENGTHS ? 2 : 1, id;
	const struct classic_var *v;
	char name[BLOB_NAME];

	id = classic_find_var(&h->header, blob_name(name, map, blob_map_var_suffix(which)));
	v = id == CLASSIC_NONE ? NULL : &h->header.vars[id];
	if (!v)
		return cistern_error_set(err, -EBADMSG, "no variable %s", name);
	if ((v->type != CLASSIC_INT && v->type != CLASSIC_INT64) || v->num_dims != num_dims ||
		memcmp(v->dims, dims, num_dims * sizeof(*dims)) != 0)
		return cistern_error_set(err, -EBADMSG, "variable %s is not int or int64, or not of %s", name,
			num_dims == 2 ? "nblobs and its max_nreqs" : "nblobs");
	h->maps[map].vars[which] = id;
	return 0;
}

static int get_map_dims(struct blob_head *h, uint32_t map, struct cistern_error *err)
{
	struct blob_map *m = &h->maps[map];
	const struct classic_att *a = find_ints(&h->header, m->vars[BLOB_NREQS], "global_dimids");

	if (!a || a->num > BLOB_MAP_DIMS_MAX)
		return cistern_error_set(err, -EBADMSG,
			"D%" PRIu32 ".nreqs has no attribute global_dimids of 1 to %u ints", map + 1,
			BLOB_MAP_DIMS_MAX);
	m->num_dims = (uint32_t)a->num;
	m->elements = 1;
	for (uint32_t i = 0; i < m->num_dims; i++) {
		uint32_t dim = be32(a->values + 4 * i);

		if (dim >= h->header.num_dims || dim == h->header.record_dim ||
			__builtin_mul_overflow(m->elements, h->header.dims[dim].len, &m->elements) ||
			m->elements > INT64_MAX / CLASSIC_TYPE_BYTES)
			return cistern_error_set(err, -EBADMSG,
				"D%" PRIu32 ".nreqs:global_dimids names dimension %" PRId32
				", which is none that can be decomposed",
				map + 1, (int32_t)dim);
		m->dims[i] = dim;
	}
	return 0;
}

static int get_map(struct blob_head *h, uint32_t map, uint32_t nblobs_dim, struct cistern_error *err)
{
	uint32_t nelems, dims[2] = { nblobs_dim };
	struct blob_map *m = &h->maps[map];
	char name[BLOB_NAME];
	int r = get_dim(&h->header, blob_name(name, map, "nelems"), &nelems, err);

	if (r == 0)
		r = get_dim(&h->header, blob_name(name, map, "max_nreqs"), &dims[1], err);
	for (uint32_t i = 0; r == 0 && i < BLOB_MAP_VARS; i++)
		r = get_map_var(h, map, i, dims, err);
	if (r == 0)
		r = get_map_dims(h, map, err);
	if (r < 0)
		return r;
	m->nelems = h->header.dims[nelems].len;
	m->max_nreqs = h->header.dims[dims[1]].len;
	return 0;
}

static int get_maps(struct blob_head *h, struct cistern_error *err)
{
	uint32_t dim;
	int r = get_dim(&h->header, "nblobs", &dim, err);

	if (r < 0)
		return r;
	if (h->header.dims[dim].len > BLOB_BLOBS_MAX || h->header.dims[dim].len > h->global_nprocs)
		return cistern_error_set(err, -EBADMSG, "nblobs is %" PRIu64 ", of %" PRIu32 " processes in all",
			h->header.dims[dim].len, h->global_nprocs);
	h->nblobs = (uint32_t)h->header.dims[dim].len;
	h->maps = calloc(h->num_maps + 1, sizeof(*h->maps));
	if (!h->maps)
		return -ENOMEM;
	for (uint32_t i = 0; r == 0 && i < h->num_maps; i++)
		r = get_map(h, i, dim, err);
	return r;
}

/* ---- the canonical definitions */

/* Whether name is "D", digits, ".", one of the words. */
static bool is_map_name(const char *name, const char *const *words)
{
	size_t digits = name[0] == 'D' ? strspn(name + 1, "0123456789") : 0;

	if (digits == 0 || name[1 + digits] != '.')
		return false;
	for (; *words; words++)
		if (strcmp(name + digits + 2, *words) == 0)
			return true;
	return false;
}

static bool is_blob_dim(const char *name)
{
	static const char *const words[] = { "nelems", "max_nreqs", NULL };

	return strcmp(name, "nblobs") == 0 || is_map_name(name, words);
}

/* renumber[i]: number of dimension i in the canonical file, or CLASSIC_NONE. */
static int make_dims(struct blob_head *h, uint32_t *renumber)
{
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < h->header.num_dims; i++) {
		renumber[i] = CLASSIC_NONE;
		if (!is_blob_dim(h->header.dims[i].name))
			r = classic_add_dim(&h->canonical, h->header.dims[i].name, h->header.dims[i].len, &renumber[i]);
	}
	return r;
}

static int make_atts(
	const struct classic_att *atts, uint32_t num, bool (*left_out)(const char *), struct classic *to, uint32_t var)
{
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < num; i++)
		if (!left_out(atts[i].name))
			r = classic_add_att(to, var, atts[i].name, atts[i].type, atts[i].num, atts[i].values);
	return r;
}

/* The map of a variable that has decomposition_ID. */
static int get_var_map(const struct blob_head *h, uint32_t var, uint32_t *ret, struct cistern_error *err)
{
	const struct classic_att *a = classic_find_att(&h->header, var, "decomposition_ID");
	const struct classic_var *v = &h->header.vars[var];
	uint32_t id;

	*ret = BLOB_NO_MAP;
	if (!a)
		return 0;
	id = a->type == CLASSIC_INT && a->num == 1 ? be32(a->values) : 0;
	if (id == 0 || id > h->num_maps)
		return cistern_error_set(err, -EBADMSG, "%s:decomposition_ID is %" PRId32 ", of %" PRIu32 " maps",
			v->name, (int32_t)id, h->num_maps);
	if (v->num_dims != 1u + v->is_record || v->elements != h->maps[id - 1].nelems)
		return cistern_error_set(err, -EBADMSG,
			"variable \"%s\" has not the dimension D%" PRIu32 ".nelems of its map alone", v->name, id);
	*ret = id - 1;
	return 0;
}

/* Canonical dimensions of a variable: as they are, or as global_dimids says. *ret: malloc'd. */
static int get_var_dims(const struct blob_head *h, uint32_t var, uint32_t map, const uint32_t *renumber, uint32_t **ret,
	uint32_t *ret_num, struct cistern_error *err)
{
	const struct classic_var *v = &h->header.vars[var];
	const struct classic_att *a = find_ints(&h->header, var, "global_dimids");
	uint64_t num = map == BLOB_NO_MAP ? v->num_dims : a ? a->num : 0;
	uint32_t *dims;

	if (map != BLOB_NO_MAP && (num == 0 || num > CLASSIC_VAR_DIMS_MAX))
		return cistern_error_set(
			err, -EBADMSG, "variable \"%s\" has no attribute global_dimids of ints", v->name);
	dims = malloc((num + 1) * sizeof(*dims));
	if (!dims)
		return -ENOMEM;
	for (uint64_t i = 0; i < num; i++) {
		uint32_t dim = map == BLOB_NO_MAP ? v->dims[i] : be32(a->values + 4 * i);

		if (dim >= h->header.num_dims || renumber[dim] == CLASSIC_NONE) {
			free(dims);
			return cistern_error_set(err, -EBADMSG,
				"variable \"%s\" would have dimension %" PRId32 ", which the canonical file has not",
				v->name, (int32_t)dim);
		}
		dims[i] = renumber[dim];
	}
	*ret = dims;
	*ret_num = (uint32_t)num;
	return 0;
}

static int make_var(struct blob_head *h, uint32_t var, const uint32_t *renumber, struct cistern_error *err)
{
	const struct classic_var *v = &h->header.vars[var];
	uint32_t *dims = NULL, num_dims = 0, map, id;
	int r = get_var_map(h, var, &map, err);

	if (r == 0)
		r = get_var_dims(h, var, map, renumber, &dims, &num_dims, err);
	if (r == 0)
		r = classic_add_var(&h->canonical, v->name, v->type, num_dims, dims, &id);
	free(dims);
	if (r < 0)
		return r;
	h->vars[id] = (struct blob_var){ .var = var, .map = map };
	return make_atts(v->atts, v->num_atts, is_blob_var_att, &h->canonical, id);
}

static bool *mark_map_vars(const struct blob_head *h)
{
	bool *marked = calloc(h->header.num_vars + 1, sizeof(*marked));

	for (uint32_t i = 0; marked && i < h->num_maps; i++)
		for (uint32_t k = 0; k < BLOB_MAP_VARS; k++)
			marked[h->maps[i].vars[k]] = true;
	return marked;
}

static int make_canonical(struct blob_head *h, struct cistern_error *err)
{
	uint32_t *renumber = malloc((h->header.num_dims + 1) * sizeof(*renumber));
	bool *is_map_var = mark_map_vars(h);
	int r = renumber && is_map_var ? 0 : -ENOMEM;

	h->vars = calloc(h->header.num_vars + 1, sizeof(*h->vars));
	classic_init(&h->canonical, 5);
	if (r == 0)
		r = h->vars ? make_dims(h, renumber) : -ENOMEM;
	if (r == 0)
		r = make_atts(h->header.atts, h->header.num_atts, is_blob_att, &h->canonical, CLASSIC_NONE);
	for (uint32_t i = 0; r == 0 && i < h->header.num_vars; i++)
		if (!is_map_var[i])
			r = make_var(h, i, renumber, err);
	h->canonical.num_records = h->header.num_records;
	free(renumber);
	free(is_map_var);
	return r < 0 ? r : classic_finish(&h->canonical, err);
}

/* A variable has as many canonical elements as its map. */
static int check_vars(const struct blob_head *h, struct cistern_error *err)
{
	for (uint32_t i = 0; i < h->canonical.num_vars; i++) {
		const struct classic_var *v = &h->canonical.vars[i];

		if (h->vars[i].map == BLOB_NO_MAP)
			continue;
		if (v->elements != h->maps[h->vars[i].map].elements ||
			v->is_record != h->header.vars[h->vars[i].var].is_record)
			return cistern_error_set(err, -EBADMSG,
				"variable \"%s\" would have %" PRIu64 " elements, its map D%" PRIu32 " has %" PRIu64,
				v->name, v->elements, h->vars[i].map + 1, h->maps[h->vars[i].map].elements);
	}
	return 0;
}

/* ---- what only our own subfiles say */

int blob_next_residue(struct cursor *c, struct blob_residue *ret)
{
	struct blob_residue r;

	if (cursor_left(c) == 0)
		return cursor_ok(c) ? 0 : -EBADMSG;
	r.off = cursor_u64(c);
	r.stride = cursor_u64(c);
	r.count = cursor_u64(c);
	r.len = cursor_u64(c);
	if (!cursor_ok(c))
		return -EBADMSG;
	if (r.len == 0)
		return 0; /* room that was left for more */
	r.bytes = r.len <= cursor_left(c) ? cursor_bytes(c, (size_t)r.len) : NULL;
	if (!r.bytes || r.count == 0 || (r.count > 1 && r.stride < r.len))
		return -EBADMSG;
	*ret = r;
	return 1;
}

static int check_residue(const struct blob_exact *e, struct cistern_error *err)
{
	struct cursor c = cursor_make(e->residue, (size_t)e->residue_bytes);
	struct blob_residue r;
	uint64_t end;
	int more;

	while ((more = blob_next_residue(&c, &r)) > 0)
		if (__builtin_mul_overflow(r.stride, r.count - 1, &end) || __builtin_add_overflow(end, r.off, &end) ||
			__builtin_add_overflow(end, r.len, &end) || end > e->file_bytes)
			return cistern_error_set(
				err, -EBADMSG, BLOB_ATT_RESIDUE ": bytes at %" PRIu64 " end behind the file", r.off);
	return more < 0 ? cistern_error_set(err, more, BLOB_ATT_RESIDUE " is damaged") : 0;
}

static const struct classic_att *find_bytes(const struct blob_head *h, uint32_t holder, const char *name)
{
	const struct classic_att *a = classic_find_att(&h->header, holder, name);

	return a && a->type == CLASSIC_UBYTE && a->num > 0 ? a : NULL;
}

static uint32_t exact_holder(const struct blob_head *h)
{
	return h->num_maps > 0 ? h->maps[0].vars[BLOB_NREQS] : CLASSIC_NONE;
}

/* The canonical header's bytes: as they are, or made again. */
static int get_header(struct blob_head *h, uint32_t holder, struct cistern_error *err)
{
	const struct classic_att *header = find_bytes(h, holder, BLOB_ATT_HEADER);
	const struct classic_att *layout = find_bytes(h, holder, BLOB_ATT_LAYOUT);
	int r;

	if (header) {
		h->exact.header = header->values;
		h->exact.header_bytes = header->num;
		return 0;
	}
	if (!layout)
		return cistern_error_set(err, -EBADMSG, "neither " BLOB_ATT_LAYOUT " nor " BLOB_ATT_HEADER " is there");
	r = blob_layout_apply(layout->values, (size_t)layout->num, &h->canonical, &h->kept);
	if (r < 0)
		return r == -ENOMEM ? r
				    : cistern_error_set(err, -EBADMSG, BLOB_ATT_LAYOUT " does not fit the definitions");
	h->exact.header = h->kept.data;
	h->exact.header_bytes = h->kept.len;
	return 0;
}

static int get_exact(struct blob_head *h, struct cistern_error *err)
{
	uint32_t holder = exact_holder(h);
	const struct classic_att *set = find_bytes(h, holder, BLOB_ATT_SET), *residue;
	const struct classic_att *subfile = find_ints(&h->header, holder, BLOB_ATT_SUBFILE);
	const struct classic_att *size = classic_find_att(&h->header, holder, BLOB_ATT_FILE_BYTES);
	struct blob_exact *e = &h->exact;
	int r;

	if (!set || set->num != BLOB_SET_BYTES || !subfile || !size || size->type != CLASSIC_INT64 || size->num != 1)
		return cistern_error_set(err, -EBADMSG, "attributes cistern_... are there in part, or of wrong types");
	memcpy(e->set, set->values, BLOB_SET_BYTES);
	e->subfile = be32(subfile->values);
	e->file_bytes = (uint64_t)be32(size->values) << 32 | be32(size->values + 4);
	r = get_header(h, holder, err);
	if (r < 0)
		return r;
	if (e->subfile >= h->num_subfiles || e->file_bytes > CLASSIC_BYTES_MAX || e->file_bytes < e->header_bytes)
		return cistern_error_set(err, -EBADMSG,
			BLOB_ATT_SUBFILE " is %" PRId32 " of %" PRIu32 ", or " BLOB_ATT_FILE_BYTES " cannot be",
			(int32_t)e->subfile, h->num_subfiles);
	residue = find_bytes(h, holder, BLOB_ATT_RESIDUE);
	if (!residue)
		return 0;
	e->residue = residue->values;
	e->residue_bytes = residue->num;
	return check_residue(e, err);
}

static bool same_values(const struct classic_att *a, const struct classic_att *b)
{
	size_t bytes = (size_t)a->num * classic_type_bytes(a->type);

	return a->type == b->type && a->num == b->num && (bytes == 0 || memcmp(a->values, b->values, bytes) == 0);
}

static int compare_atts(const char *of, const struct classic_att *a, uint32_t num_a, const struct classic_att *b,
	uint32_t num_b, struct cistern_error *err)
{
	for (uint32_t i = 0; i < num_a && i < num_b; i++)
		if (strcmp(a[i].name, b[i].name) != 0 || !same_values(&a[i], &b[i]))
			return cistern_error_set(err, -EBADMSG, "attribute %s:%s differs", of, a[i].name);
	if (num_a != num_b)
		return cistern_error_set(err, -EBADMSG, "%s has %" PRIu32 " attributes and %" PRIu32, of, num_a, num_b);
	return 0;
}

static int compare_dims(const struct classic *a, const struct classic *b, struct cistern_error *err)
{
	for (uint32_t i = 0; i < a->num_dims && i < b->num_dims; i++)
		if (strcmp(a->dims[i].name, b->dims[i].name) != 0 || a->dims[i].len != b->dims[i].len)
			return cistern_error_set(err, -EBADMSG, "dimension %s is %" PRIu64 " long, and %s %" PRIu64,
				a->dims[i].name, a->dims[i].len, b->dims[i].name, b->dims[i].len);
	if (a->num_dims != b->num_dims)
		return cistern_error_set(
			err, -EBADMSG, "there are %" PRIu32 " dimensions and %" PRIu32, a->num_dims, b->num_dims);
	return 0;
}

static int compare_var(const struct classic_var *a, const struct classic_var *b, struct cistern_error *err)
{
	if (strcmp(a->name, b->name) != 0)
		return cistern_error_set(err, -EBADMSG, "variable \"%s\" stands where \"%s\" does", a->name, b->name);
	if (a->type != b->type || a->num_dims != b->num_dims ||
		(a->num_dims > 0 && memcmp(a->dims, b->dims, a->num_dims * sizeof(*a->dims)) != 0))
		return cistern_error_set(
			err, -EBADMSG, "variable \"%s\" has another type or other dimensions", a->name);
	return compare_atts(a->name, a->atts, a->num_atts, b->atts, b->num_atts, err);
}

static int compare_definitions(const struct classic *a, const struct classic *b, struct cistern_error *err)
{
	int r = compare_dims(a, b, err);

	if (r == 0)
		r = compare_atts("the file", a->atts, a->num_atts, b->atts, b->num_atts, err);
	for (uint32_t i = 0; r == 0 && i < a->num_vars && i < b->num_vars; i++)
		r = compare_var(&a->vars[i], &b->vars[i], err);
	if (r == 0 && a->num_vars != b->num_vars)
		r = cistern_error_set(
			err, -EBADMSG, "there are %" PRIu32 " variables and %" PRIu32, a->num_vars, b->num_vars);
	return r;
}

/* The stored header instead of the one that was put together, which it must agree with. */
static int take_exact(struct blob_head *h, struct cistern_error *err)
{
	struct classic CLASSIC_CLEANUP stored = { 0 };
	int r = get_exact(h, err);

	if (r == 0)
		r = classic_decode_definitions(h->exact.header, (size_t)h->exact.header_bytes, &stored, err);
	if (r == -ENODATA)
		r = cistern_error_set(err, -EBADMSG, "it is cut short");
	if (r == 0 && stored.header_bytes != h->exact.header_bytes)
		r = cistern_error_set(err, -EBADMSG, "it has bytes behind its end");
	if (r == 0)
		r = compare_definitions(&stored, &h->canonical, err);
	stored.num_records = h->header.num_records;
	if (r == 0)
		r = classic_finish(&stored, err);
	if (r == 0)
		r = classic_check_begins(&stored, err);
	if (r < 0) {
		cistern_error_prefix(err, "the canonical header that is kept");
		return r == -ENOMEM ? r : -EBADMSG;
	}
	classic_destroy(&h->canonical);
	h->canonical = stored;
	stored = (struct classic){ 0 };
	h->is_exact = true;
	return 0;
}

/* ---- all of it */

static int decode(struct blob_head *h, struct cistern_error *err)
{
	int r = blob_is_header(&h->header) ? get_counts(h, err)
					   : cistern_error_set(err, -EBADMSG,
						     "no subfile: global attributes %s, %s and %s are not all there",
						     BLOB_ATT_NPROCS, BLOB_ATT_MAPS, BLOB_ATT_SUBFILES);

	if (r == 0)
		r = get_maps(h, err);
	if (r == 0)
		r = make_canonical(h, err);
	if (r == 0 && classic_find_att(&h->header, exact_holder(h), BLOB_ATT_SET))
		r = take_exact(h, err);
	return r < 0 ? r : check_vars(h, err);
}

int blob_head_decode(struct classic *header, struct blob_head *ret, struct cistern_error *err)
{
	struct blob_head BLOB_HEAD_CLEANUP h = { .header = *header };
	int r;

	*header = (struct classic){ 0 };
	r = decode(&h, err);
	if (r == -ENOMEM)
		cistern_error_set(err, r, "out of memory");
	if (r == -EINVAL) /* a name or type that the canonical file cannot have */
		r = cistern_error_set(err, -EBADMSG, "the canonical file cannot be defined");
	if (r < 0)
		return r;
	*ret = h;
	h = (struct blob_head){ 0 };
	return 0;
}

void blob_head_destroy(struct blob_head *h)
{
	if (!h)
		return;
	classic_destroy(&h->header);
	classic_destroy(&h->canonical);
	free(h->maps);
	free(h->vars);
	buf_free(&h->kept);
	*h = (struct blob_head){ 0 };
}

int blob_head_compare(const struct blob_head *a, const struct blob_head *b, struct cistern_error *err)
{
	if (a->is_exact != b->is_exact || (a->is_exact && memcmp(a->exact.set, b->exact.set, BLOB_SET_BYTES) != 0))
		return cistern_error_set(err, -EBADMSG, "they are of different sets");
	if (a->is_exact && a->exact.subfile == b->exact.subfile)
		return cistern_error_set(err, -EBADMSG, "both are subfile %" PRIu32, a->exact.subfile);
	if (a->global_nprocs != b->global_nprocs || a->num_subfiles != b->num_subfiles || a->num_maps != b->num_maps)
		return cistern_error_set(err, -EBADMSG,
			"one is of %" PRIu32 " processes, %" PRIu32 " subfiles, %" PRIu32 " maps, one of %" PRIu32
			", %" PRIu32 ", %" PRIu32,
			a->global_nprocs, a->num_subfiles, a->num_maps, b->global_nprocs, b->num_subfiles, b->num_maps);
	if (a->header.num_records != b->header.num_records)
		return cistern_error_set(err, -EBADMSG, "one has %" PRIu64 " records, one %" PRIu64,
			a->header.num_records, b->header.num_records);
	for (uint32_t i = 0; i < a->num_maps; i++)
		if (a->maps[i].num_dims != b->maps[i].num_dims ||
			memcmp(a->maps[i].dims, b->maps[i].dims, a->maps[i].num_dims * sizeof(uint32_t)) != 0)
			return cistern_error_set(err, -EBADMSG, "map D%" PRIu32 " has other dimensions", i + 1);
	for (uint32_t i = 0; i < a->canonical.num_vars && i < b->canonical.num_vars; i++)
		if (a->vars[i].map != b->vars[i].map)
			return cistern_error_set(
				err, -EBADMSG, "variable \"%s\" has another map", a->canonical.vars[i].name);
	return compare_definitions(&a->canonical, &b->canonical, err);
}

int blob_check_shares(
	const struct blob_head *h, uint32_t map, const struct blob_share *shares, struct cistern_error *err)
{
	const struct blob_map *m = &h->maps[map];
	uint64_t at = 0;

	for (uint32_t i = 0; i < h->nblobs; i++) {
		if (shares[i].num > m->max_nreqs || shares[i].start != at || shares[i].count > m->nelems - at)
			return cistern_error_set(err, -EBADMSG,
				"blob %" PRIu32 " of map D%" PRIu32 " has %" PRIu64 " runs, %" PRIu64
				" elements from %" PRIu64 " on; expected them from %" PRIu64 " on, at most %" PRIu64
				" runs, %" PRIu64 " elements in all blobs",
				i, map + 1, shares[i].num, shares[i].count, shares[i].start, at, m->max_nreqs,
				m->nelems);
		at += shares[i].count;
	}
	if (at != m->nelems && !(at == 0 && m->nelems == 1))
		return cistern_error_set(err, -EBADMSG,
			"the blobs of map D%" PRIu32 " have %" PRIu64 " elements; expected D%" PRIu32
			".nelems, %" PRIu64,
			map + 1, at, map + 1, m->nelems);
	return 0;
}
