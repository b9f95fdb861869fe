/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A header's variables, one object each. */
#include "format/codec/classic_layout.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

static int set_dims(const struct classic *c, const struct classic_var *v, uint64_t num_records, struct layout_object *o)
{
	uint64_t dims[CLASSIC_VAR_DIMS_MAX];

	for (uint32_t i = 0; i < v->num_dims; i++)
		dims[i] = v->dims[i] == c->record_dim ? num_records : c->dims[v->dims[i]].len;
	return layout_set_dims(o, v->num_dims, dims);
}

static int add_var(const struct classic *c, const struct classic_var *v, struct layout *l)
{
	struct layout_object *o = layout_add(l, v->name, v->is_record ? LAYOUT_RECORDS : LAYOUT_VARIABLE);
	uint8_t fill[CLASSIC_TYPE_BYTES];

	if (!o)
		return -ENOMEM;
	o->type = classic_type_name(v->type);
	o->element_bytes = classic_var_fill(v, fill);
	o->begin = v->begin;
	o->len = v->bytes;
	o->stride = v->is_record ? c->record_bytes : 0;
	o->count = v->is_record ? l->num_records : 1;
	return set_dims(c, v, l->num_records, o) < 0 || layout_set_fill(o, fill) < 0 ? -ENOMEM : 0;
}

static int add_objects(const struct classic *c, struct layout *l)
{
	struct layout_object *o = layout_add(l, "(header)", LAYOUT_HEADER);
	int r = o ? 0 : -ENOMEM;

	if (o) {
		o->len = c->header_bytes;
		o->count = 1;
	}
	for (uint32_t i = 0; r == 0 && i < c->num_vars; i++)
		r = add_var(c, &c->vars[i], l);
	return r;
}

static void say_count(const struct classic *c, uint64_t size, uint64_t begun, struct layout *l)
{
	uint64_t end = c->records_begin + begun * c->record_bytes;

	if (c->streaming && begun > 0)
		snprintf(l->note, sizeof(l->note),
			"the header does not say how many records there are; the file has begun %" PRIu64, begun);
	else if (begun > c->num_records)
		snprintf(l->note, sizeof(l->note), "the header says %" PRIu64 " records, the file has begun %" PRIu64,
			c->num_records, begun);
	else if (size > end && !classic_is_padding(c, size) && c->num_record_vars > 0)
		snprintf(l->note, sizeof(l->note),
			"the %" PRIu64 " bytes behind the last record are zeros: room, and no records", size - end);
}

int classic_layout(const struct classic *c, uint64_t size, uint64_t begun, struct layout *ret)
{
	struct layout l = { .size = size,
		.file_bytes = classic_file_bytes(c),
		.has_records = c->record_dim != CLASSIC_NONE,
		.num_records = c->num_records,
		.record_bytes = c->record_bytes };
	int r;

	snprintf(l.format, sizeof(l.format), "netCDF classic (CDF-%" PRIu32 ")", c->version);
	if (begun > c->num_records) {
		l.num_records = begun;
		l.file_bytes = c->records_begin + begun * c->record_bytes;
	}
	say_count(c, size, l.num_records, &l);
	r = add_objects(c, &l);
	if (r < 0)
		layout_destroy(&l);
	else
		*ret = l;
	return r;
}
