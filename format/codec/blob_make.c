/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The header of a subfile from that of the canonical file. Names, types and their order are those of E3SM-IO, so that its own
 * tools read what we write. What it has no place for, how the canonical file looked to the byte, goes into attributes of the
 * first map's first variable: tools that make a canonical file again leave the variables of maps out.
 */
#include "format/codec/blob.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "format/codec/blob_private.h"

static const struct {
	const char *suffix, *description;
	bool per_request; /* has the dimension Di.max_nreqs, too */
} map_vars[BLOB_MAP_VARS] = {
	[BLOB_NREQS] = { "nreqs", "Number of noncontiguous requests in individual blobs", false },
	[BLOB_START] = { "blob_start", "Starting array indices of individual blobs stored in a variable", false },
	[BLOB_COUNT] = { "blob_count", "Number of contiguous array elements in individual blobs stored in a variable",
		false },
	[BLOB_OFFSETS] = { "offsets",
		"Starting indices of flattened canonical noncontiguous requests of individual blobs", true },
	[BLOB_LENGTHS] = { "lengths",
		"Number of elements of flattened canonical noncontiguous requests of individual blobs", true },
};

const char *blob_map_var_suffix(enum blob_map_var which)
{
	return map_vars[which].suffix;
}

const char *blob_name(char out[BLOB_NAME], uint32_t map, const char *suffix)
{
	snprintf(out, BLOB_NAME, "D%" PRIu32 ".%s", map + 1, suffix);
	return out;
}

/* ---- what is asked for */

static int check_map_of(const struct blob_make *m, const struct classic_var *v, uint32_t map, struct cistern_error *err)
{
	const struct blob_make_map *mm = &m->maps[map];

	if (v->num_dims - v->is_record != mm->num_dims ||
		memcmp(v->dims + v->is_record, mm->dims, mm->num_dims * sizeof(*mm->dims)) != 0)
		return cistern_error_set(
			err, -EINVAL, "map D%" PRIu32 " has not the dimensions of variable \"%s\"", map + 1, v->name);
	if (classic_find_att(m->canonical, (uint32_t)(v - m->canonical->vars), "decomposition_ID") ||
		classic_find_att(m->canonical, (uint32_t)(v - m->canonical->vars), "global_dimids"))
		return cistern_error_set(err, -EINVAL, "variable \"%s\" is of a subfile already", v->name);
	return 0;
}

static int check_make(const struct blob_make *m, struct cistern_error *err)
{
	const struct classic *c = m->canonical;
	int r = 0;

	if (m->nblobs == 0 || m->nblobs > BLOB_BLOBS_MAX || m->global_nprocs > INT32_MAX ||
		m->nblobs > m->global_nprocs || m->num_subfiles == 0 || m->num_subfiles > BLOB_SUBFILES_MAX ||
		m->num_maps > BLOB_MAPS_MAX)
		return cistern_error_set(err, -EINVAL, "too many, or no, blobs, subfiles or maps");
	if (blob_is_header(c))
		return cistern_error_set(err, -EINVAL, "that is a subfile already");
	for (uint32_t i = 0; i < m->num_maps; i++)
		if (m->maps[i].num_dims == 0 || m->maps[i].num_dims > BLOB_MAP_DIMS_MAX)
			return cistern_error_set(err, -EINVAL, "map D%" PRIu32 " has %" PRIu32 " dimensions", i + 1,
				m->maps[i].num_dims);
	for (uint32_t i = 0; r == 0 && i < c->num_vars; i++)
		if (m->var_maps[i] != BLOB_NO_MAP)
			r = m->var_maps[i] < m->num_maps ? check_map_of(m, &c->vars[i], m->var_maps[i], err) : -EINVAL;
	return r;
}

/* ---- definitions */

/* A length of 0 would be the record dimension's. */
static int add_length(struct classic *to, const char *name, uint64_t len)
{
	return classic_add_dim(to, name, len > 0 ? len : 1, NULL);
}

static int add_dims(const struct blob_make *m, struct classic *to)
{
	const struct classic *c = m->canonical;
	char name[BLOB_NAME];
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < c->num_dims; i++)
		r = classic_add_dim(to, c->dims[i].name, c->dims[i].len, NULL);
	if (r == 0)
		r = add_length(to, "nblobs", m->nblobs);
	for (uint32_t i = 0; r == 0 && i < m->num_maps; i++)
		r = add_length(to, blob_name(name, i, "nelems"), m->maps[i].nelems);
	for (uint32_t i = 0; r == 0 && i < m->num_maps; i++)
		r = add_length(to, blob_name(name, i, "max_nreqs"), m->maps[i].max_nreqs);
	return r;
}

static uint32_t nelems_dim(const struct blob_make *m, uint32_t map)
{
	return m->canonical->num_dims + 1 + map;
}

/* Whether elements of a map can be counted with 32 bits. */
static bool is_narrow(const struct blob_make *m, const struct blob_make_map *mm)
{
	uint64_t elements = 1;

	for (uint32_t i = 0; i < mm->num_dims; i++)
		if (__builtin_mul_overflow(elements, m->canonical->dims[mm->dims[i]].len, &elements))
			return false;
	return elements <= INT32_MAX;
}

static int add_map_var(const struct blob_make *m, uint32_t map, enum blob_map_var which, struct classic *to)
{
	uint32_t dims[2] = { m->canonical->num_dims, nelems_dim(m, map) + m->num_maps }, id;
	enum classic_type type = CLASSIC_INT;
	char name[BLOB_NAME];
	int r;

	if (which == BLOB_START || which == BLOB_COUNT)
		type = CLASSIC_INT64;
	if (which == BLOB_OFFSETS && !is_narrow(m, &m->maps[map]))
		type = CLASSIC_INT64;
	r = classic_add_var(
		to, blob_name(name, map, map_vars[which].suffix), type, map_vars[which].per_request ? 2 : 1, dims, &id);
	return r < 0 ? r : classic_add_text(to, id, "description", map_vars[which].description);
}

static int add_ints(struct classic *to, uint32_t var, const char *name, uint32_t num, const uint32_t *values)
{
	struct buf BUF_CLEANUP big = { 0 };

	for (uint32_t i = 0; i < num; i++)
		buf_u32(&big, __builtin_bswap32(values[i]));
	return buf_ok(&big) ? classic_add_att(to, var, name, CLASSIC_INT, num, big.data) : -ENOMEM;
}

static int add_map(const struct blob_make *m, uint32_t map, struct classic *to)
{
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < BLOB_MAP_VARS; i++) {
		r = add_map_var(m, map, i, to);
		if (r == 0 && i == BLOB_NREQS)
			r = add_ints(to, to->num_vars - 1, "global_dimids", m->maps[map].num_dims, m->maps[map].dims);
	}
	return r;
}

static int copy_atts(const struct classic_att *atts, uint32_t num, struct classic *to, uint32_t var)
{
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < num; i++)
		r = classic_add_att(to, var, atts[i].name, atts[i].type, atts[i].num, atts[i].values);
	return r;
}

static int add_var(const struct blob_make *m, uint32_t var, struct classic *to)
{
	const struct classic_var *v = &m->canonical->vars[var];
	uint32_t map = m->var_maps[var], id, dims[2], num = 0;
	int r;

	if (map == BLOB_NO_MAP) {
		r = classic_add_var(to, v->name, v->type, v->num_dims, v->dims, &id);
		return r < 0 ? r : copy_atts(v->atts, v->num_atts, to, id);
	}
	if (v->is_record)
		dims[num++] = v->dims[0];
	dims[num++] = nelems_dim(m, map);
	r = classic_add_var(to, v->name, v->type, num, dims, &id);
	if (r == 0)
		r = classic_add_int(to, id, "decomposition_ID", (int32_t)map + 1);
	if (r == 0)
		r = add_ints(to, id, "global_dimids", v->num_dims, v->dims);
	return r < 0 ? r : copy_atts(v->atts, v->num_atts, to, id);
}

/* What has to be kept of it to make it again; all of it if it is none that we would make. */
static int add_header(const struct blob_exact *e, uint32_t holder, struct classic *to)
{
	struct buf BUF_CLEANUP layout = { 0 };
	int r = blob_layout_encode(e->header, (size_t)e->header_bytes, &layout);

	if (r == -ENOTSUP)
		return classic_add_att(to, holder, BLOB_ATT_HEADER, CLASSIC_UBYTE, e->header_bytes, e->header);
	return r < 0 ? r : classic_add_att(to, holder, BLOB_ATT_LAYOUT, CLASSIC_UBYTE, layout.len, layout.data);
}

static int add_exact(const struct blob_make *m, struct classic *to)
{
	uint32_t holder = m->num_maps > 0 ? BLOB_NREQS : CLASSIC_NONE;
	const struct blob_exact *e = m->exact;
	uint64_t file_bytes = __builtin_bswap64(e->file_bytes);
	int r = classic_add_att(to, holder, BLOB_ATT_SET, CLASSIC_UBYTE, BLOB_SET_BYTES, e->set);

	if (r == 0)
		r = classic_add_int(to, holder, BLOB_ATT_SUBFILE, (int32_t)e->subfile);
	if (r == 0)
		r = classic_add_att(to, holder, BLOB_ATT_FILE_BYTES, CLASSIC_INT64, 1, &file_bytes);
	if (r == 0)
		r = add_header(e, holder, to);
	if (r == 0 && e->residue_bytes > 0)
		r = classic_add_att(to, holder, BLOB_ATT_RESIDUE, CLASSIC_UBYTE, e->residue_bytes, e->residue);
	return r;
}

static int add_all(const struct blob_make *m, struct classic *to)
{
	int r = add_dims(m, to);

	if (r == 0)
		r = classic_add_int(to, CLASSIC_NONE, BLOB_ATT_NPROCS, (int32_t)m->global_nprocs);
	if (r == 0)
		r = classic_add_int(to, CLASSIC_NONE, BLOB_ATT_MAPS, (int32_t)m->num_maps);
	if (r == 0)
		r = classic_add_int(to, CLASSIC_NONE, BLOB_ATT_SUBFILES, (int32_t)m->num_subfiles);
	if (r == 0)
		r = copy_atts(m->canonical->atts, m->canonical->num_atts, to, CLASSIC_NONE);
	for (uint32_t i = 0; r == 0 && i < m->num_maps; i++)
		r = add_map(m, i, to);
	for (uint32_t i = 0; r == 0 && i < m->canonical->num_vars; i++)
		r = add_var(m, i, to);
	if (r == 0 && m->exact)
		r = add_exact(m, to);
	return r;
}

/*
 * The canonical header comes out of the subfile's as it went in: it may have names that ours hide, or hold what our classic headers
 * do not, and nothing of it shall be lost.
 */
static int check_exact(const struct blob_exact *e, const struct classic *made, struct cistern_error *err)
{
	struct blob_head BLOB_HEAD_CLEANUP head = { 0 };
	struct buf BUF_CLEANUP bytes = { 0 };
	struct cistern_error why = { 0 };
	struct classic again;
	size_t from;
	int r = classic_encode(made, &bytes);

	if (r == 0)
		r = classic_decode_definitions(bytes.data, bytes.len, &again, &why);
	if (r == 0)
		r = blob_head_decode(&again, &head, &why);
	from = CLASSIC_NUMRECS_OFF + (head.canonical.version == 5 ? 8 : 4);
	if (r == 0 && (head.exact.header_bytes != e->header_bytes ||
			      memcmp(head.exact.header + from, e->header + from, (size_t)e->header_bytes - from) != 0))
		r = cistern_error_set(&why, -EBADMSG, "its header would come out differently");
	if (r == -ENOMEM)
		return cistern_error_set(err, r, "out of memory");
	return r < 0 ? cistern_error_set(err, -EINVAL,
			       "it cannot be kept in subfiles, which have names of their own (nblobs, D1..., cistern_...): %s",
			       why.text)
		     : 0;
}

int blob_make_header(const struct blob_make *m, struct classic *ret, struct cistern_error *err)
{
	static const struct classic_align align = { .header = 512, .variable = 4, .record = 4 };
	struct classic CLASSIC_CLEANUP to = { 0 };
	int r = check_make(m, err);

	if (r < 0)
		return r;
	classic_init(&to, 5);
	r = add_all(m, &to);
	if (r < 0)
		return cistern_error_set(err, r, "cannot define the subfile: %s", strerror(-r));
	to.num_records = m->canonical->num_records;
	r = classic_finish(&to, err);
	if (r == 0 && to.header_bytes > CLASSIC_HEADER_MAX)
		r = cistern_error_set(
			err, -EINVAL, "the subfile's header would have %" PRIu64 " bytes", to.header_bytes);
	if (r == 0 && (r = classic_assign(&to, &align)) < 0)
		cistern_error_set(err, r, "the subfile would be too large");
	if (r == 0 && m->exact)
		r = check_exact(m->exact, &to, err);
	if (r < 0)
		return r == -EBADMSG ? -EINVAL : r;
	*ret = to;
	to = (struct classic){ 0 };
	return 0;
}

void blob_add_residue(struct buf *out, const struct blob_residue *r)
{
	buf_u64(out, r->off);
	buf_u64(out, r->stride);
	buf_u64(out, r->count);
	buf_u64(out, r->len);
	buf_bytes(out, r->bytes, (size_t)r->len);
}
