/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The rules are those by which netCDF-C reads HDF5 files: a dimension is a dimension scale, and the dataset of its
 * coordinate variable when there is one; a variable that has a dimension's name but not its shape gets a name of its own.
 * What netCDF-C keeps for itself, names of attributes above all, cannot be carried over: such a file is refused.
 */
#include "mpi-agent/nc4/shape.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/chunk_list.h"

#define NON_COORD      "_nc4_non_coord_"
#define RECORDS_TARGET (64u << 10) /* bytes: records of less are put together */
#define RECORDS_LEAST  4096u       /* bytes: also records that do not exist yet */

static const char *const reserved_atts[] = { "CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "DIMENSION_LABELS",
	"_NCProperties", "_Netcdf4Dimid", "_Netcdf4Coordinates", "_nc3_strict", "_nc4_non_coord", "_IsNetcdf4",
	"_SuperblockVersion", "_Format", "_NCDimid", "_Storage", "_ChunkSizes", "_DeflateLevel", "_Shuffle",
	"_Fletcher32", "_Endianness", "_NoFill", "_Filter", "_Codecs", "_NCZARR_ATTR",
	"_QuantizeBitGroomNumberOfSignificantDigits" };

/* ---- what cannot be */

static int check_name(const char *what, const char *name, struct cistern_error *err)
{
	if (!*name || strcmp(name, ".") == 0 || strchr(name, '/'))
		return cistern_error_set(err, -EINVAL, "the name '%.100s' of a %s cannot be one in HDF5", name, what);
	if (strncmp(name, NON_COORD, strlen(NON_COORD)) == 0)
		return cistern_error_set(
			err, -EINVAL, "the name '%.100s' of a %s is one that netCDF-4 keeps for itself", name, what);
	return 0;
}

static int check_atts(const struct classic_att *atts, uint32_t num, struct cistern_error *err)
{
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < num; i++) {
		r = check_name("attribute", atts[i].name, err);
		for (size_t k = 0; r == 0 && k < sizeof(reserved_atts) / sizeof(reserved_atts[0]); k++)
			if (strcmp(atts[i].name, reserved_atts[k]) == 0)
				r = cistern_error_set(err, -EINVAL,
					"it has an attribute %s, which netCDF-4 keeps for itself", atts[i].name);
		if (r == 0 && atts[i].num > UINT32_MAX / CLASSIC_TYPE_BYTES)
			r = cistern_error_set(err, -EINVAL, "its attribute %.100s is too long", atts[i].name);
	}
	return r;
}

static int check_var(const struct classic *c, uint32_t id, struct cistern_error *err)
{
	const struct classic_var *v = &c->vars[id];
	const struct classic_att *fill = classic_find_att(c, id, "_FillValue");
	int r = check_name("variable", v->name, err);

	if (r == 0)
		r = check_atts(v->atts, v->num_atts, err);
	if (r == 0 && fill && (fill->type != v->type || fill->num != 1))
		r = cistern_error_set(err, -EINVAL,
			"the _FillValue of its variable %.100s is not one value of the variable's type", v->name);
	if (r == 0 && v->num_dims > NC4_RANK_MAX)
		r = cistern_error_set(err, -EINVAL, "its variable %.100s has %" PRIu32 " dimensions; HDF5 takes %u",
			v->name, v->num_dims, NC4_RANK_MAX);
	return r;
}

static int check_header(const struct classic *c, struct cistern_error *err)
{
	int r = check_atts(c->atts, c->num_atts, err);

	for (uint32_t i = 0; r == 0 && i < c->num_dims; i++)
		r = check_name("dimension", c->dims[i].name, err);
	for (uint32_t i = 0; r == 0 && i < c->num_vars; i++)
		r = check_var(c, i, err);
	return r;
}

/* The end of the last value; padding behind it may be missing. */
static uint64_t data_end(const struct classic *c)
{
	uint64_t end = c->header_bytes, records = 0;

	if (c->num_records > 0 && __builtin_mul_overflow(c->num_records - 1, c->record_bytes, &records))
		return UINT64_MAX;

	for (uint32_t i = 0; i < c->num_vars; i++) {
		const struct classic_var *v = &c->vars[i];
		uint64_t last = v->begin + v->bytes;

		if (v->is_record && c->num_records == 0)
			continue;
		if (v->is_record && __builtin_add_overflow(last, records, &last))
			return UINT64_MAX;
		end = last > end ? last : end;
	}
	return end;
}

static int check_size(struct classic *c, uint64_t file_bytes, struct cistern_error *err)
{
	uint64_t there = classic_count_records(c, file_bytes), end;

	if (c->streaming)
		c->num_records = there;
	if (c->num_record_vars == 0 && c->num_records > 0 && c->record_dim != CLASSIC_NONE)
		return cistern_error_set(err, -EINVAL,
			"it has %" PRIu64 " records and no variable in them: netCDF-4 cannot say so", c->num_records);
	end = data_end(c);
	if (end > file_bytes)
		return cistern_error_set(err, -EBADMSG,
			"it has %" PRIu64 " bytes, and its header says that its values end at %" PRIu64, file_bytes,
			end);
	if (c->num_record_vars > 0 && there > c->num_records)
		return cistern_error_set(err, -EBADMSG,
			"it has room for %" PRIu64 " records, and its header says that there are %" PRIu64, there,
			c->num_records);
	return 0;
}

/* ---- names */

static int name_var(struct nc4_shape *s, uint32_t id, struct cistern_error *err)
{
	const struct classic_var *v = &s->c->vars[id];
	struct nc4_var *o = &s->vars[id];
	uint32_t dim = classic_find_dim(s->c, v->name);
	size_t len = strlen(v->name) + sizeof(NON_COORD);

	o->is_scale = dim != CLASSIC_NONE && v->num_dims > 0 && v->dims[0] == dim;
	if (o->is_scale)
		s->scale_of[dim] = id;
	o->name = malloc(len);
	if (!o->name)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	*o->name = '\0';
	if (dim != CLASSIC_NONE && !o->is_scale)
		strcat(o->name, NON_COORD);
	strcat(o->name, v->name);
	return 0;
}

/* ---- chunks */

struct items {
	struct chunk_item at[CHUNK_LIST_MAX];
	size_t num;
};

static bool is_name(const char *text, size_t len, const char *name)
{
	return strlen(name) == len && memcmp(text, name, len) == 0;
}

static int take_item(const struct chunk_item *item, void *arg)
{
	struct items *items = arg;

	items->at[items->num++] = *item;
	return 0;
}

/* The last item that names the dimension; one that names the variable, too, goes before those that do not. */
static const struct chunk_item *find_item(const struct items *items, const char *var, const char *dim)
{
	const struct chunk_item *found = NULL;

	for (size_t i = 0; i < items->num; i++) {
		const struct chunk_item *it = &items->at[i];

		if (!is_name(it->dim, it->dim_len, dim) || (it->var_len > 0 && !is_name(it->var, it->var_len, var)))
			continue;
		if (!found || it->var_len > 0 || found->var_len == 0)
			found = it;
	}
	return found;
}

/* The pieces of len are as equal as can be, none longer than most. */
static uint64_t even(uint64_t len, uint64_t most)
{
	uint64_t pieces;

	if (len <= most)
		return len ? len : 1;
	most = most ? most : 1;
	pieces = (len + most - 1) / most;
	return (len + pieces - 1) / pieces;
}

/* So that a record that is read alone costs little more than it is, and tiny ones do not make a chunk each. */
static uint64_t records_at_once(uint64_t inner_bytes, uint64_t num_records)
{
	uint64_t most = inner_bytes < RECORDS_TARGET ? RECORDS_TARGET / inner_bytes : 1;
	uint64_t least = inner_bytes < RECORDS_LEAST ? RECORDS_LEAST / inner_bytes : 1;
	uint64_t num = even(num_records, most);

	return num < least ? least : num;
}

/* Whole trailing dimensions, as long as they fit: what lies together in the classic file stays together. */
static void default_chunk(const struct classic_var *v, struct nc4_var *o)
{
	uint64_t bytes = classic_type_bytes(v->type);

	for (uint32_t d = v->num_dims; d-- > 0;) {
		if (v->is_record && d == 0)
			o->chunk[d] = records_at_once(bytes, o->dims[d]);
		else
			o->chunk[d] = even(o->dims[d], NC4_CHUNK_TARGET / bytes);
		bytes *= o->chunk[d];
	}
}

static bool wanted_chunk(
	const struct classic *c, const struct classic_var *v, const struct items *items, struct nc4_var *o)
{
	bool any = false;

	for (uint32_t d = 0; d < v->num_dims; d++) {
		const struct chunk_item *it = find_item(items, v->name, c->dims[v->dims[d]].name);
		uint64_t most = o->dims[d] ? o->dims[d] : 1;

		if (!it)
			continue;
		o->chunk[d] = it->len == 0 || (it->len > most && !(v->is_record && d == 0)) ? most : it->len;
		any = true;
	}
	return any;
}

static int count_chunks(const struct classic_var *v, struct nc4_var *o, struct cistern_error *err)
{
	o->chunk_bytes = classic_type_bytes(v->type);
	o->num_chunks = 1;
	for (uint32_t d = 0; d < v->num_dims; d++) {
		if (o->chunk[d] > NC4_CHUNK_MAX / o->chunk_bytes)
			return cistern_error_set(err, -EINVAL,
				"chunk: those of the variable %.100s have more than %u bytes", v->name, NC4_CHUNK_MAX);
		o->chunk_bytes *= o->chunk[d];
		o->num_chunks *= (o->dims[d] + o->chunk[d] - 1) / o->chunk[d];
	}
	return 0;
}

static int cut_var(struct nc4_shape *s, uint32_t id, const struct nc4_options *opt, const struct items *items,
	struct cistern_error *err)
{
	const struct classic_var *v = &s->c->vars[id];
	struct nc4_var *o = &s->vars[id];
	bool wanted;

	if (v->num_dims > 0) {
		o->dims = calloc(v->num_dims, sizeof(*o->dims));
		o->chunk = calloc(v->num_dims, sizeof(*o->chunk));
		if (!o->dims || !o->chunk)
			return cistern_error_set(err, -ENOMEM, "out of memory");
	}
	for (uint32_t d = 0; d < v->num_dims; d++)
		o->dims[d] = classic_dim_len(s->c, v->dims[d]);
	default_chunk(v, o);
	wanted = wanted_chunk(s->c, v, items, o);
	o->is_chunked = v->num_dims > 0 && (v->is_record || wanted || (opt->deflate > 0 && v->bytes >= NC4_SMALL));
	o->is_filtered = o->is_chunked && opt->deflate > 0;
	o->is_shuffled = o->is_filtered && opt->shuffle && classic_type_bytes(v->type) > 1;
	return count_chunks(v, o, err);
}

/* ---- the whole */

static int make(struct nc4_shape *s, const struct nc4_options *opt, struct cistern_error *err)
{
	struct items *items = calloc(1, sizeof(*items));
	int r = items ? chunk_list_each(opt->chunk, take_item, items, err)
		      : cistern_error_set(err, -ENOMEM, "out of memory");

	for (uint32_t d = 0; d < s->c->num_dims; d++)
		s->scale_of[d] = CLASSIC_NONE;
	for (uint32_t i = 0; r == 0 && i < s->c->num_vars; i++) {
		r = name_var(s, i, err);
		if (r == 0)
			r = cut_var(s, i, opt, items, err);
		if (r < 0)
			break;
		s->strict = s->strict && s->c->vars[i].type <= CLASSIC_DOUBLE;
		s->num_chunks += s->vars[i].num_chunks;
		if (s->vars[i].chunk_bytes > s->max_chunk_bytes)
			s->max_chunk_bytes = s->vars[i].chunk_bytes;
		for (uint32_t k = 0; k < s->c->vars[i].num_atts; k++)
			s->strict = s->strict && s->c->vars[i].atts[k].type <= CLASSIC_DOUBLE;
	}
	for (uint32_t k = 0; k < s->c->num_atts; k++)
		s->strict = s->strict && s->c->atts[k].type <= CLASSIC_DOUBLE;
	free(items);
	return r;
}

int nc4_shape_make(struct classic *c, uint64_t file_bytes, const struct nc4_options *opt, struct nc4_shape *ret,
	struct cistern_error *err)
{
	struct nc4_shape s = { .c = c, .deflate = opt->deflate, .strict = true };
	int r = check_header(c, err);

	if (r == 0)
		r = check_size(c, file_bytes, err);
	if (r < 0)
		return r;
	s.vars = calloc(c->num_vars + 1u, sizeof(*s.vars));
	s.scale_of = calloc(c->num_dims + 1u, sizeof(*s.scale_of));
	r = s.vars && s.scale_of ? make(&s, opt, err) : cistern_error_set(err, -ENOMEM, "out of memory");
	if (r < 0)
		nc4_shape_free(&s);
	else
		*ret = s;
	return r;
}

void nc4_shape_free(struct nc4_shape *s)
{
	for (uint32_t i = 0; s->vars && i < s->c->num_vars; i++) {
		free(s->vars[i].name);
		free(s->vars[i].dims);
		free(s->vars[i].chunk);
	}
	free(s->vars);
	free(s->scale_of);
	*s = (struct nc4_shape){ 0 };
}

void nc4_chunk_box(const struct nc4_var *v, uint32_t num_dims, uint64_t at, uint64_t *ret_start, uint64_t *ret_count)
{
	for (uint32_t d = num_dims; d-- > 0;) {
		uint64_t grid = (v->dims[d] + v->chunk[d] - 1) / v->chunk[d], left;

		ret_start[d] = at % grid * v->chunk[d];
		at /= grid;
		left = v->dims[d] - ret_start[d];
		ret_count[d] = left < v->chunk[d] ? left : v->chunk[d];
	}
}

/* ---- shares */

#define RUN_MAX   16u /* chunks */
#define RUNS_EACH 8u  /* at least, where there are enough chunks: so that shares are about as large as each other */

bool nc4_share_has(const struct nc4_share *share, uint64_t total, uint64_t n, uint64_t *ret_index)
{
	uint64_t run = total / ((uint64_t)share->num * RUNS_EACH);

	run = run < 1 ? 1 : run > RUN_MAX ? RUN_MAX : run;
	*ret_index = n / (run * share->num) * run + n % run;
	return n / run % share->num == share->which;
}
