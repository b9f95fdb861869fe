/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_CODEC_BBBOX_H
#define FORMAT_CODEC_BBBOX_H

/*
 * Where in a netCDF file a request of a PnetCDF burst-buffer log's entry lies: a box of as many dimensions as its variable has. One
 * struct bbbox serves many entries, one thread's, and keeps what does not change from one to the next.
 */

#include "format/codec/bblog.h"
#include "format/codec/bbvalue.h"
#include "format/codec/classic.h"

struct bbbox {
	const struct classic *nc; /* borrowed; the only field that is set by the owner */
	/* what pitch and value are made for */
	const struct classic_var *v;
	const struct bblog_header *h;
	enum bblog_type type;
	uint32_t elem_bytes;
	struct bbvalue value;

	const int64_t *start, *count, *stride; /* of the request; count and stride may be NULL: 1 */
	uint32_t num_dims, num_outer;          /* the dimensions behind num_outer make one run */
	uint64_t pitch[BBLOG_DIMS_MAX];        /* bytes from one index to the next */
	uint64_t inner[BBLOG_DIMS_MAX + 1];    /* values of one index's part */
	uint64_t span[BBLOG_DIMS_MAX + 1];     /* bytes from the first to behind the last of one index's part */
	uint64_t begin; /* in the file; its last byte is before begin + span[0]; 0: it is empty */
};

/* What an entry touches. */
struct bbbox_reach {
	uint64_t begin, end; /* bytes of the file, from the first to behind the last; begin >= end: none */
	uint64_t records;    /* that the file must have */
};

static inline uint64_t bbbox_count(const struct bbbox *x, uint32_t d)
{
	return x->count ? (uint64_t)x->count[d] : 1;
}

static inline uint64_t bbbox_stride(const struct bbbox *x, uint32_t d)
{
	return x->stride ? (uint64_t)x->stride[d] : 1;
}

/* NULL, and *x is ready for requests of e, an entry of a log with header h; or what keeps it from being replayed. */
const char *bbbox_prepare(struct bbbox *x, const struct bblog_header *h, const struct bblog_entry *e);
/* The same, for all requests of e, and what they touch. */
const char *bbbox_check(
	struct bbbox *x, const struct bblog_header *h, const struct bblog_entry *e, struct bbbox_reach *ret);
/* *x is request number i of e, for which it is ready, and which was checked. */
void bbbox_request(struct bbbox *x, const struct bblog_entry *e, uint64_t i);

#endif
