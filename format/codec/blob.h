/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_CODEC_BLOB_H
#define FORMAT_CODEC_BLOB_H

/*
 * E3SM-IO's blob layouts: a file of many writers as subfiles, in which each writer's elements lie together (a blob) beside
 * maps that say where in the canonical netCDF file they belong. docs/format/blob.md has every byte.
 *
 *   variable-centric  a CDF-5 file: in each variable one blob behind the other
 *   process-centric   an HDF5 file with the data sets header_blob (a CDF-5 header), data_blob (one blob behind the other, in
 *                     each all variables) and, when it is ours, table_blob (where in data_blob what is)
 *
 * All of this is pure: bytes in, bytes out. Plain data, each thread its own.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cistern/error.h"
#include "format/base/cursor.h"
#include "format/codec/classic.h"

#define BLOB_MAPS_MAX     65536u     /* maps in a subfile */
#define BLOB_BLOBS_MAX    (1u << 24) /* blobs in a subfile */
#define BLOB_SUBFILES_MAX 65536u
#define BLOB_MAP_DIMS_MAX 16u         /* dimensions that a map may cut up */
#define BLOB_MAP_VARS     5u          /* variables that describe a map */
#define BLOB_RESIDUE_MAX  (64u << 20) /* bytes of encoded residue */
#define BLOB_SET_BYTES    16u
#define BLOB_NO_MAP       UINT32_MAX

#define BLOB_TABLE_ENTRY_BYTES 40u /* of an entry in table_blob */

/* The variables of a map, in the order of their definition. */
enum blob_map_var { BLOB_NREQS, BLOB_START, BLOB_COUNT, BLOB_OFFSETS, BLOB_LENGTHS };

/* ---- what only our own subfiles say: how the canonical file looked to the byte */

/* Bytes of the canonical file that belong to no variable and are not zero (padding, mostly): the same bytes count times,
 * stride apart. */
struct blob_residue {
	uint64_t off, stride, count;
	uint64_t len;
	const uint8_t *bytes; /* borrowed */
};

struct blob_exact {
	uint8_t set[BLOB_SET_BYTES]; /* the same in all subfiles of a set, and in no others */
	uint32_t subfile;            /* number of this one, from 0 */
	uint64_t file_bytes;         /* size of the canonical file */
	const uint8_t *header;       /* the canonical file's header; its number of records is not looked at */
	uint64_t header_bytes;
	const uint8_t *residue; /* as blob_add_residue() makes it */
	uint64_t residue_bytes;
};

/* ---- making a subfile */

/* One map, as one subfile has it. */
struct blob_make_map {
	uint32_t num_dims;
	const uint32_t
		*dims;      /* numbers of dimensions of the canonical file, slowest first, never the record dimension */
	uint64_t nelems;    /* elements of all blobs of the subfile together; may be 0 */
	uint64_t max_nreqs; /* most runs that a blob of the subfile has; may be 0 */
};

struct blob_make {
	const struct classic *canonical; /* computed fields valid; num_records: those that the subfile has */
	uint32_t global_nprocs;          /* blobs of all subfiles together */
	uint32_t num_subfiles;
	uint32_t nblobs; /* of this subfile, at least 1 */
	uint32_t num_maps;
	const struct blob_make_map *maps;
	const uint32_t *var_maps;       /* for each canonical variable its map, from 0, or BLOB_NO_MAP */
	const struct blob_exact *exact; /* NULL: as E3SM-IO writes it, without what only ours say */
};

/*
 * The header of a subfile: dimensions, attributes, variables as E3SM-IO defines them, begins and vsizes set. Variable
 * map * BLOB_MAP_VARS + an enum blob_map_var describes a map; canonical variable v is variable num_maps * BLOB_MAP_VARS + v.
 * Runs (offset, length) count elements of the map's dimensions, row-major; none crosses the end of a row of its last one.
 * 0; -EINVAL: a map's dimensions are not those of its variable, too many of something; -ENOMEM; *err says what.
 * The caller destroys *ret.
 */
int blob_make_header(const struct blob_make *m, struct classic *ret, struct cistern_error *err);

/* Append one to the encoded residue. */
void blob_add_residue(struct buf *out, const struct blob_residue *r);

/* ---- reading a subfile */

struct blob_map {
	uint32_t num_dims;
	uint32_t dims[BLOB_MAP_DIMS_MAX]; /* numbers of dimensions of the subfile's header */
	uint64_t elements;                /* product of their lengths */
	uint64_t nelems, max_nreqs;
	uint32_t vars[BLOB_MAP_VARS]; /* numbers of variables of the subfile's header */
};

struct blob_var {
	uint32_t var; /* number in the subfile's header */
	uint32_t map; /* from 0, or BLOB_NO_MAP: the whole variable is in the first subfile, in the first blob */
};

struct blob_head {
	struct classic header; /* of the subfile */
	uint32_t global_nprocs, num_subfiles, nblobs;
	bool little_endian; /* values of attributes were: E3SM-IO writes them so in the process-centric form */
	uint32_t num_maps;
	struct blob_map *maps;    /* owned */
	struct classic canonical; /* begins are only valid when is_exact; vars[i] is the canonical variable i */
	struct blob_var *vars;    /* owned; one for each of canonical.vars */
	bool is_exact;
	struct blob_exact exact; /* points into header's attributes, and into this: */
	struct buf kept;         /* the canonical file's header, where it is made again */
};

/* Whether the header is of a subfile: its global attributes are there. */
bool blob_is_header(const struct classic *header);
/*
 * Understand a subfile's header, which is taken over in any case. 0; -EBADMSG: it is none, or damaged, and *err says what
 * is missing or wrong; -ENOMEM. The caller destroys *ret.
 */
int blob_head_decode(struct classic *header, struct blob_head *ret, struct cistern_error *err);
void blob_head_destroy(struct blob_head *h); /* NULL is fine */
#define BLOB_HEAD_CLEANUP __attribute__((cleanup(blob_head_destroy)))

/* Whether header_blob has its integers smallest byte first, as E3SM-IO writes it on such machines. */
bool blob_header_is_little(const void *buf, size_t len);
/* Append the same header as it would be in a file. 0; -EBADMSG: it ends too early; -ENOMEM. */
int blob_header_turn(const void *buf, size_t len, struct buf *out);

/* num values of size bytes, each with its bytes the other way round. */
void blob_turn_values(uint8_t *to, const uint8_t *from, uint64_t num, uint32_t size);

/* Next of the residue. 1 and *ret, borrowed; 0: that was all; -EBADMSG. Begin with cursor_make() of it. */
int blob_next_residue(struct cursor *c, struct blob_residue *ret);

/* Whether two subfiles may belong to one set: 0, or -EBADMSG and in *err the first thing that differs. */
int blob_head_compare(const struct blob_head *a, const struct blob_head *b, struct cistern_error *err);

/* What the small variables of a map say of one blob. */
struct blob_share {
	uint64_t num;          /* runs */
	uint64_t start, count; /* in elements of the subfile's nelems */
};
/* Check the shares of all blobs of a map: each begins where the one before ends, all is within nelems. 0, -EBADMSG. */
int blob_check_shares(
	const struct blob_head *h, uint32_t map, const struct blob_share *shares, struct cistern_error *err);

/* ---- process-centric: where in data_blob what is */

/* num_records records of a variable (1 with record 0: a fixed variable) of a blob, one behind the other. */
struct blob_entry {
	uint32_t blob, var; /* var: number in the subfile's header */
	uint64_t record, num_records;
	uint64_t off, len; /* bytes, in data_blob; all the records together */
};

struct blob_table {
	bool little_endian; /* the data */
	uint32_t num_blobs, num_vars;
	uint64_t data_bytes; /* length of data_blob */
	size_t num, cap;
	struct blob_entry *entries; /* owned; in the order of their addition */
};

/* 0, -ENOMEM. */
int blob_table_add(struct blob_table *t, const struct blob_entry *e);
/* What the order in which E3SM-IO's processes put things needs to know of a subfile, as blob_make_header() numbers variables. */
struct blob_lay {
	const struct classic *header; /* of the subfile; computed fields valid */
	uint32_t num_blobs, num_maps;
	const uint32_t *var_maps;        /* for each canonical variable its map or BLOB_NO_MAP */
	const struct blob_share *shares; /* [map * num_blobs + blob] */
};
/* The table of blobs that lie in that order, values largest byte first as the attributes' in a file's header. 0, -ENOMEM. The caller destroys *ret. */
int blob_table_lay(const struct blob_lay *l, struct blob_table *ret);
/* The bytes of table_blob. */
void blob_table_encode(const struct blob_table *t, struct buf *out);
/* 0; -EBADMSG: damaged, or an entry reaches out of data_blob, blobs or variables; -ENOMEM. The caller destroys *ret. */
int blob_table_decode(const void *buf, size_t len, struct blob_table *ret, struct cistern_error *err);
/*
 * The table that E3SM-IO did not write: adds up the sizes of what each process put, in the order of variables and records.
 * read_bytes reads data_blob, which has data_bytes. 0; -EBADMSG: sizes do not add up to data_bytes; or the reader's error.
 */
int blob_table_sum(const struct blob_head *h, uint64_t data_bytes, classic_read_fn read_bytes, void *arg,
	struct blob_table *ret, struct cistern_error *err);
void blob_table_destroy(struct blob_table *t); /* NULL is fine */
#define BLOB_TABLE_CLEANUP __attribute__((cleanup(blob_table_destroy)))

/* The HDF5 file around it. */
struct blob_hdf5 {
	const void *header, *table; /* borrowed: header_blob and table_blob */
	size_t header_bytes, table_bytes;
	uint64_t data_bytes;
};
/* Append all that lies before data_blob, with which the file ends: so out->len, if it was 0, is where it begins. */
void blob_hdf5_encode(const struct blob_hdf5 *h, struct buf *out);

#endif
