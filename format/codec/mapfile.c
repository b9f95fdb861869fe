/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Decompositions are read as they are, and put in order (sorted, joined, cut at rows, completed) in one place,
 * mapfile_regroup(), whatever they came from.
 */
#include "format/codec/mapfile.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/array.h"
#include "format/codec/classic.h"

/* ---- maps */

void mapfile_map_destroy(struct mapfile_map *m)
{
	if (!m)
		return;
	free(m->first);
	free(m->runs);
	*m = (struct mapfile_map){ 0 };
}

void mapfile_destroy(struct mapfile *d)
{
	if (!d)
		return;
	for (uint32_t i = 0; i < d->num; i++)
		mapfile_map_destroy(&d->maps[i]);
	free(d->maps);
	*d = (struct mapfile){ 0 };
}

/* Sets shape and room for processes. -EINVAL: no such array. */
static int map_init(struct mapfile_map *m, uint32_t num_dims, const uint64_t *dims, uint32_t num_procs)
{
	*m = (struct mapfile_map){ .num_dims = num_dims, .elements = 1, .num_procs = num_procs };
	if (num_dims == 0 || num_dims > MAPFILE_DIMS_MAX || num_procs == 0 || num_procs > MAPFILE_PROCS_MAX)
		return -EINVAL;
	for (uint32_t i = 0; i < num_dims; i++) {
		m->dims[i] = dims[i];
		if (dims[i] == 0 || __builtin_mul_overflow(m->elements, dims[i], &m->elements) ||
			m->elements > INT64_MAX / 8)
			return -EINVAL;
	}
	m->first = calloc((size_t)num_procs + 1, sizeof(*m->first));
	return m->first ? 0 : -ENOMEM;
}

static int add_run(struct mapfile_map *m, uint64_t off, uint64_t len)
{
	if (array_room(&m->runs, &m->cap_runs, m->num_runs, sizeof(*m->runs)) < 0)
		return -ENOMEM;
	m->runs[m->num_runs++] = (struct mapfile_run){ off, len };
	return 0;
}

/* A run in rows: none crosses the end of one. */
static int add_rows(struct mapfile_map *m, uint64_t off, uint64_t len)
{
	uint64_t row = m->dims[m->num_dims - 1];
	int r = 0;

	while (r == 0 && len > 0) {
		uint64_t left = row - off % row, part = len < left ? len : left;

		r = add_run(m, off, part);
		off += part;
		len -= part;
	}
	return r;
}

int mapfile_even(uint32_t num_dims, const uint64_t *dims, uint32_t num_procs, struct mapfile_map *ret)
{
	struct mapfile_map m;
	int r = map_init(&m, num_dims, dims, num_procs);
	uint64_t at = 0;

	for (uint32_t p = 0; r == 0 && p < num_procs; p++) {
		uint64_t len = m.elements / num_procs + (p < m.elements % num_procs);

		m.first[p] = m.num_runs;
		r = add_rows(&m, at, len);
		at += len;
	}
	if (r < 0) {
		mapfile_map_destroy(&m);
		return r;
	}
	m.first[num_procs] = m.num_runs;
	*ret = m;
	return 0;
}

static int by_offset(const void *a, const void *b)
{
	const struct mapfile_run *x = a, *y = b;

	return (x->off > y->off) - (x->off < y->off);
}

static struct mapfile_run *sorted_copy(const struct mapfile_run *runs, size_t num)
{
	struct mapfile_run *copy = malloc((num + 1) * sizeof(*copy));

	if (copy && num > 0) {
		memcpy(copy, runs, num * sizeof(*copy));
		qsort(copy, num, sizeof(*copy), by_offset);
	}
	return copy;
}

/* What sorted runs leave out of [0, elements) is added to out, not in rows. */
static int add_missing(const struct mapfile_run *sorted, size_t num, struct mapfile_map *out, uint64_t *ret_added)
{
	uint64_t at = 0;
	int r = 0;

	for (size_t i = 0; r == 0 && i < num; i++) {
		if (sorted[i].off > at) {
			r = add_run(out, at, sorted[i].off - at);
			*ret_added += sorted[i].off - at;
		}
		if (sorted[i].off + sorted[i].len > at)
			at = sorted[i].off + sorted[i].len;
	}
	if (r == 0 && at < out->elements) {
		r = add_run(out, at, out->elements - at);
		*ret_added += out->elements - at;
	}
	return r;
}

/* Sorted runs, joined and in rows. */
static int add_joined(const struct mapfile_run *sorted, size_t num, struct mapfile_map *out)
{
	uint64_t off = 0, end = 0;
	int r = 0;

	for (size_t i = 0; r == 0 && i < num; i++) {
		uint64_t next_end = sorted[i].off + sorted[i].len;

		if (sorted[i].off > end) {
			r = add_rows(out, off, end - off);
			off = sorted[i].off;
		}
		end = next_end > end ? next_end : end;
	}
	return r < 0 ? r : add_rows(out, off, end - off);
}

/* The runs of several processes, and what is missing when they are the last ones. */
static int add_group(const struct mapfile_map *m, uint32_t first, uint32_t end, const struct mapfile_map *missing,
	struct mapfile_map *out)
{
	size_t num = m->first[end] - m->first[first], more = end == m->num_procs ? missing->num_runs : 0;
	struct mapfile_run *runs = malloc((num + more + 1) * sizeof(*runs));
	int r;

	if (!runs)
		return -ENOMEM;
	if (num > 0)
		memcpy(runs, m->runs + m->first[first], num * sizeof(*runs));
	if (more > 0)
		memcpy(runs + num, missing->runs, more * sizeof(*runs));
	qsort(runs, num + more, sizeof(*runs), by_offset);
	r = num + more > 0 ? add_joined(runs, num + more, out) : 0;
	free(runs);
	return r;
}

int mapfile_regroup(const struct mapfile_map *m, uint32_t num_procs, struct mapfile_map *ret, uint64_t *ret_added)
{
	struct mapfile_map out, missing = { .elements = m->elements };
	struct mapfile_run *sorted;
	uint64_t added = 0;
	int r;

	if (num_procs > m->num_procs)
		return -EINVAL;
	r = map_init(&out, m->num_dims, m->dims, num_procs);
	sorted = sorted_copy(m->runs, m->num_runs);
	if (r == 0)
		r = sorted ? add_missing(sorted, m->num_runs, &missing, &added) : -ENOMEM;
	for (uint32_t p = 0; r == 0 && p < num_procs; p++) {
		uint64_t first = (uint64_t)p * m->num_procs / num_procs;
		uint64_t end = (uint64_t)(p + 1) * m->num_procs / num_procs;

		out.first[p] = out.num_runs;
		r = add_group(m, (uint32_t)first, (uint32_t)end, &missing, &out);
	}
	free(sorted);
	mapfile_map_destroy(&missing);
	if (r < 0) {
		mapfile_map_destroy(&out);
		return r;
	}
	out.first[num_procs] = out.num_runs;
	*ret = out;
	*ret_added = added;
	return 0;
}

/* ---- text: "version 2001 npes N ndims D", the dimensions, fastest first, and for each process "P NUM" and NUM elements,
 * counted from 1, 0 where there is none */

struct text {
	const char *at, *begin, *end;
	struct cistern_error *err;
};

static int text_bad(const struct text *t, const char *expected)
{
	return cistern_error_set(t->err, -EBADMSG, "offset %zu: expected %s", (size_t)(t->at - t->begin), expected);
}

static void skip_space(struct text *t)
{
	while (t->at < t->end && isspace((unsigned char)*t->at))
		t->at++;
}

static int get_word(struct text *t, const char *word)
{
	size_t len = strlen(word);

	skip_space(t);
	if ((size_t)(t->end - t->at) < len || memcmp(t->at, word, len) != 0)
		return text_bad(t, word);
	t->at += len;
	return 0;
}

static int get_number(struct text *t, uint64_t max, uint64_t *ret)
{
	uint64_t value = 0;
	const char *from;

	skip_space(t);
	from = t->at;
	while (t->at < t->end && isdigit((unsigned char)*t->at)) {
		if (__builtin_mul_overflow(value, 10, &value) ||
			__builtin_add_overflow(value, (uint64_t)(*t->at - '0'), &value))
			return text_bad(t, "a smaller number");
		t->at++;
	}
	if (t->at == from || value > max)
		return text_bad(t, t->at == from ? "a number" : "a smaller number");
	*ret = value;
	return 0;
}

static int text_head(struct text *t, struct mapfile_map *m)
{
	uint64_t version, procs, num_dims, dims[MAPFILE_DIMS_MAX];
	int r = get_word(t, "version");

	if (r == 0)
		r = get_number(t, UINT32_MAX, &version);
	if (r == 0)
		r = get_word(t, "npes");
	if (r == 0)
		r = get_number(t, MAPFILE_PROCS_MAX, &procs);
	if (r == 0)
		r = get_word(t, "ndims");
	if (r == 0)
		r = get_number(t, MAPFILE_DIMS_MAX, &num_dims);
	for (uint64_t i = 0; r == 0 && i < num_dims; i++)
		r = get_number(t, INT64_MAX, &dims[num_dims - 1 - i]);
	if (r < 0)
		return r;
	if (procs > (size_t)(t->end - t->at)) /* each has a line of its own */
		return text_bad(t, "a line for each process");
	r = map_init(m, (uint32_t)num_dims, dims, (uint32_t)procs);
	return r == -EINVAL ? text_bad(t, "an array of at least one element, and a process") : r;
}

/* One process's elements; those that follow one another become a run. */
static int text_proc(struct text *t, struct mapfile_map *m, uint32_t proc)
{
	uint64_t said, num, element;
	int r = get_number(t, MAPFILE_PROCS_MAX, &said);

	if (r == 0 && said != proc)
		r = text_bad(t, "the next process");
	if (r == 0)
		r = get_number(t, INT64_MAX, &num);
	m->first[proc] = m->num_runs;
	for (uint64_t i = 0; r == 0 && i < num; i++) {
		struct mapfile_run *last = m->num_runs > m->first[proc] ? &m->runs[m->num_runs - 1] : NULL;

		r = get_number(t, m->elements, &element);
		if (r < 0 || element == 0)
			continue;
		if (last && last->off + last->len == element - 1)
			last->len++;
		else
			r = add_run(m, element - 1, 1);
	}
	return r;
}

static int decode_text(const void *buf, size_t len, struct mapfile *d, struct cistern_error *err)
{
	struct text t = { .at = buf, .begin = buf, .end = (const char *)buf + len, .err = err };
	struct mapfile_map *m;
	int r;

	d->maps = calloc(1, sizeof(*d->maps));
	if (!d->maps)
		return -ENOMEM;
	d->num = 1;
	m = &d->maps[0];
	r = text_head(&t, m);
	for (uint32_t p = 0; r == 0 && p < m->num_procs; p++)
		r = text_proc(&t, m, p);
	if (r < 0)
		return r;
	m->first[m->num_procs] = m->num_runs;
	d->num_procs = m->num_procs;
	return 0; /* comments may follow */
}

/* ---- netCDF: for each map D<i>: attributes dims, variables nreqs(mapfile_nprocs), offsets, lengths */

struct file {
	const uint8_t *bytes;
	size_t len;
	struct classic c;
	struct cistern_error *err;
};

struct ints {
	const uint8_t *at; /* big-endian */
	uint64_t num;
	uint32_t bytes;
};

static uint64_t ints_get(const struct ints *a, uint64_t i)
{
	uint64_t v = 0;

	for (uint32_t k = 0; k < a->bytes; k++)
		v = v << 8 | a->at[i * a->bytes + k];
	return v;
}

static int get_ints(const struct file *f, uint32_t map, const char *what, struct ints *ret)
{
	const struct classic_var *v;
	char name[40];
	uint32_t id;

	snprintf(name, sizeof(name), "D%" PRIu32 ".%s", map + 1, what);
	id = classic_find_var(&f->c, name);
	v = id == CLASSIC_NONE ? NULL : &f->c.vars[id];
	if (!v || v->is_record || (v->type != CLASSIC_INT && v->type != CLASSIC_INT64))
		return cistern_error_set(f->err, -EBADMSG, "no variable %s of int or int64", name);
	if (v->begin > f->len || v->bytes > f->len - v->begin)
		return cistern_error_set(f->err, -EBADMSG, "variable %s is cut short", name);
	*ret = (struct ints){ f->bytes + v->begin, v->elements, classic_type_bytes(v->type) };
	return 0;
}

static int get_map_dims(const struct file *f, uint32_t map, uint32_t procs, struct mapfile_map *m)
{
	uint64_t dims[MAPFILE_DIMS_MAX];
	const struct classic_att *a;
	struct ints ints;
	char name[32];
	int r;

	snprintf(name, sizeof(name), "D%" PRIu32 ".dims", map + 1);
	a = classic_find_att(&f->c, CLASSIC_NONE, name);
	if (!a || (a->type != CLASSIC_INT && a->type != CLASSIC_INT64) || a->num == 0 || a->num > MAPFILE_DIMS_MAX)
		return cistern_error_set(
			f->err, -EBADMSG, "no global attribute %s of 1 to %u integers", name, MAPFILE_DIMS_MAX);
	ints = (struct ints){ a->values, a->num, classic_type_bytes(a->type) };
	for (uint64_t i = 0; i < a->num; i++)
		dims[i] = ints_get(&ints, i);
	r = map_init(m, (uint32_t)a->num, dims, procs);
	return r == -EINVAL ? cistern_error_set(f->err, -EBADMSG, "%s is of no array that can be", name) : r;
}

/* The runs of all processes, which lie behind one another. */
static int get_runs(const struct file *f, uint32_t map, const struct ints *nreqs, struct mapfile_map *m)
{
	struct ints offsets, lengths;
	uint64_t at = 0;
	int r = get_ints(f, map, "offsets", &offsets);

	if (r == 0)
		r = get_ints(f, map, "lengths", &lengths);
	for (uint32_t p = 0; r == 0 && p < m->num_procs; p++) {
		uint64_t num = ints_get(nreqs, p);

		if (num > offsets.num - at || num > lengths.num - at)
			return cistern_error_set(f->err, -EBADMSG,
				"map D%" PRIu32 ": process %" PRIu32 " has more runs than there are", map + 1, p);
		m->first[p] = m->num_runs;
		for (; r == 0 && num > 0; num--, at++) {
			uint64_t off = ints_get(&offsets, at), len = ints_get(&lengths, at);

			if (off > m->elements || len > m->elements - off)
				return cistern_error_set(f->err, -EBADMSG,
					"map D%" PRIu32 ": run %" PRIu64 " reaches out of its %" PRIu64 " elements",
					map + 1, at, m->elements);
			r = len > 0 ? add_run(m, off, len) : 0;
		}
	}
	m->first[m->num_procs] = m->num_runs;
	return r;
}

static int get_map(const struct file *f, uint32_t map, struct mapfile *d)
{
	struct mapfile_map *grown, *m;
	struct ints nreqs;
	int r = get_ints(f, map, "nreqs", &nreqs);

	if (r < 0)
		return r;
	if (nreqs.num == 0 || nreqs.num > MAPFILE_PROCS_MAX || (map > 0 && nreqs.num != d->num_procs))
		return cistern_error_set(
			f->err, -EBADMSG, "map D%" PRIu32 " is of %" PRIu64 " processes", map + 1, nreqs.num);
	d->num_procs = (uint32_t)nreqs.num;
	grown = reallocarray(d->maps, d->num + 1u, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	d->maps = grown;
	m = &d->maps[d->num++];
	*m = (struct mapfile_map){ 0 };
	r = get_map_dims(f, map, d->num_procs, m);
	return r < 0 ? r : get_runs(f, map, &nreqs, m);
}

static bool has_map(const struct file *f, uint32_t map)
{
	char name[32];

	snprintf(name, sizeof(name), "D%" PRIu32 ".nreqs", map + 1);
	return map < MAPFILE_MAPS_MAX && classic_find_var(&f->c, name) != CLASSIC_NONE;
}

static int decode_classic(const void *buf, size_t len, struct mapfile *d, struct cistern_error *err)
{
	struct file f = { .bytes = buf, .len = len, .err = err };
	int r = classic_decode(buf, len, &f.c, err);

	if (r == -ENODATA)
		r = cistern_error_set(err, -EBADMSG, "the file ends inside its header");
	if (r < 0)
		return r;
	if (!has_map(&f, 0))
		r = cistern_error_set(err, -EBADMSG, "no variable D1.nreqs: not a file of maps");
	for (uint32_t i = 0; r == 0 && has_map(&f, i); i++)
		r = get_map(&f, i, d);
	classic_destroy(&f.c);
	return r;
}

int mapfile_decode(const void *buf, size_t len, struct mapfile *ret, struct cistern_error *err)
{
	struct mapfile d = { 0 };
	int r;

	if (classic_is(buf, len))
		r = decode_classic(buf, len, &d, err);
	else if (len > 4 && memcmp((const char *)buf + 1, "HDF", 3) == 0)
		r = cistern_error_set(
			err, -EBADMSG, "a netCDF-4 file; 'nccopy -k cdf5' makes the classic one that can be read here");
	else
		r = decode_text(buf, len, &d, err);
	if (r == -ENOMEM)
		cistern_error_set(err, r, "out of memory");
	if (r < 0)
		mapfile_destroy(&d);
	else
		*ret = d;
	return r;
}
