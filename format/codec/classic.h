/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_CODEC_CLASSIC_H
#define FORMAT_CODEC_CLASSIC_H

/*
 * Headers of netCDF classic files: CDF-1, CDF-2 (64-bit offsets) and CDF-5 (64-bit data), as the "NetCDF File Format
 * Specifications" and PnetCDF's CDF-5 addition describe them. All is big-endian. Data of fixed variables lie each in one
 * piece; those of record variables in records, one behind the other, each with a part of every record variable.
 *
 * A struct classic is plain data that anybody may read. It is made by classic_decode(), or by classic_init(), the
 * classic_add functions, classic_finish() and, for a file that does not exist yet, classic_assign(); and given back by
 * classic_destroy(). The fields marked "computed" are set by decode and finish and are wrong after any change until then.
 * Nothing here is shared: each thread may work on its own.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "cistern/error.h"
#include "format/base/cursor.h"
#include "format/codec/source.h"

#define CLASSIC_NAME_MAX     256          /* bytes of a name; NC_MAX_NAME */
#define CLASSIC_VAR_DIMS_MAX 1024         /* NC_MAX_VAR_DIMS */
#define CLASSIC_HEADER_MAX   (256u << 20) /* bytes; longer headers are refused */
#define CLASSIC_BYTES_MAX    INT64_MAX    /* end of any variable; larger offsets are refused */
#define CLASSIC_TYPE_BYTES   8            /* of the largest type */
#define CLASSIC_UNALIGNED    0xFFFFFFFFu  /* vsize of CDF-1 and 2 for what does not fit in 32 bits */
#define CLASSIC_NUMRECS_OFF  4u           /* where in the file the number of records is; 4 bytes, in CDF-5 8 */
#define CLASSIC_NONE         UINT32_MAX   /* no such variable, dimension */

enum classic_type {
	CLASSIC_BYTE = 1,
	CLASSIC_CHAR,
	CLASSIC_SHORT,
	CLASSIC_INT,
	CLASSIC_FLOAT,
	CLASSIC_DOUBLE,
	CLASSIC_UBYTE, /* from here on in CDF-5 only */
	CLASSIC_USHORT,
	CLASSIC_UINT,
	CLASSIC_INT64,
	CLASSIC_UINT64,
};

struct classic_dim {
	char *name;   /* owned */
	uint64_t len; /* 0: the record dimension */
};

struct classic_att {
	char *name; /* owned */
	enum classic_type type;
	uint64_t num;    /* values */
	uint8_t *values; /* owned; num values as in the file, big-endian, no padding; NULL when there are none */
};

struct classic_var {
	char *name; /* owned */
	enum classic_type type;
	uint32_t num_dims;
	uint32_t *dims; /* owned; num_dims numbers of dimensions, slowest first; NULL when there are none */
	uint32_t num_atts;
	struct classic_att *atts; /* owned */
	uint64_t begin;           /* offset in the file of the variable, or of its first record */
	uint64_t vsize;           /* as the header says; no one may rely on it */
	/* computed */
	bool is_record;
	uint64_t elements; /* of the variable, or of one record of it */
	uint64_t bytes;    /* elements times the size of the type, without padding */
};

struct classic {
	uint32_t version;     /* 1, 2 or 5 */
	bool streaming;       /* the header does not say how many records there are: see classic_count_records() */
	bool exact;           /* classic_encode() gives the very bytes that were decoded (all known writers: true) */
	uint64_t odd_padding; /* offset of the first byte of the header's padding that is not zero; 0: all are */
	uint64_t num_records; /* 0 while streaming */
	uint32_t num_dims, num_atts, num_vars;
	struct classic_dim *dims; /* owned */
	struct classic_att *atts; /* owned; of the file */
	struct classic_var *vars; /* owned */
	uint64_t slack;           /* bytes of the decoded header that are not encoded: NULs at the ends of names */
	/* computed */
	uint32_t record_dim; /* CLASSIC_NONE: there is none */
	uint32_t num_record_vars;
	uint64_t record_bytes;  /* from one record to the next; not padded where there is exactly one record variable */
	uint64_t records_begin; /* offset of the first record; 0 without record variables */
	uint64_t header_bytes;  /* encoded length and slack; the first variable may begin later */
};

/* ---- decoding and encoding */

/*
 * Decode a header that starts at buf. 0; -ENODATA: it goes on behind len bytes (with the whole file in buf: it is cut
 * short); -EBADMSG: not a header, or damaged: *err (may be NULL) says at which offset what was expected; -EFBIG: longer than
 * CLASSIC_HEADER_MAX; -ENOMEM. *ret is written on success only; the caller destroys it.
 * Checked: everything that the grammar says, types that the version knows, the record dimension first, sizes that fit in 63
 * bits, variables that neither overlap each other nor the header. vsize is not believed.
 */
int classic_decode(const void *buf, size_t len, struct classic *ret, struct cistern_error *err);

/* The same for a header whose begins mean nothing, as in blobs; they are not checked. */
int classic_decode_definitions(const void *buf, size_t len, struct classic *ret, struct cistern_error *err);

/*
 * The same as classic_decode() with a reader of a file's bytes: up to len bytes at off, as pread(2); 0 at the end; -errno. It is asked for more
 * and more until the header is there. As classic_decode(), but a file that ends inside its header is -EBADMSG.
 */
typedef source_read_fn classic_read_fn;
int classic_read(classic_read_fn read_bytes, void *arg, struct classic *ret, struct cistern_error *err);

/* Whether these first bytes of a file (4 are enough) are of a classic file. */
bool classic_is(const void *buf, size_t len);

/* Append the header to *out: header_bytes - slack bytes; needs computed fields. 0, -ENOMEM. */
int classic_encode(const struct classic *c, struct buf *out);

void classic_destroy(struct classic *c); /* also resets to empty; NULL is fine */
#define CLASSIC_CLEANUP __attribute__((cleanup(classic_destroy)))

/* ---- making a header */

void classic_init(struct classic *c, uint32_t version);
/* Each copies what it is given. 0 and the number in *ret_id (may be NULL); -EINVAL for a name, type or shape that cannot
 * be; -ENOMEM. */
int classic_add_dim(struct classic *c, const char *name, uint64_t len, uint32_t *ret_id);
int classic_add_var(struct classic *c, const char *name, enum classic_type type, uint32_t num_dims,
	const uint32_t *dims, uint32_t *ret_id);
/* To a variable, or with CLASSIC_NONE to the file. values: num of them, big-endian. An attribute of that name is replaced. */
int classic_add_att(
	struct classic *c, uint32_t var, const char *name, enum classic_type type, uint64_t num, const void *values);
int classic_add_text(struct classic *c, uint32_t var, const char *name, const char *text); /* CLASSIC_CHAR */
int classic_add_int(struct classic *c, uint32_t var, const char *name, int32_t value);     /* CLASSIC_INT */

/* Compute the computed fields and check as classic_decode() does, but for begins. 0, -EBADMSG and *err. */
int classic_finish(struct classic *c, struct cistern_error *err);
/* Set every vsize as the netCDF libraries write it. After classic_finish(). */
void classic_set_vsizes(struct classic *c);

/* Bytes; 0 and 1 mean 4, which is what netCDF-C takes. PnetCDF: 512, 4, 4. */
struct classic_align {
	uint64_t header, variable, record;
};
/* Set begin of all variables, in the order of their definition, fixed ones first, and vsize. After classic_finish().
 * 0, -EOVERFLOW where a begin does not fit in the version's width. */
int classic_assign(struct classic *c, const struct classic_align *align);
/* Whether begins are as classic_decode() demands. 0, -EBADMSG and *err. */
int classic_check_begins(const struct classic *c, struct cistern_error *err);

/* ---- what a header says */

uint32_t classic_type_bytes(enum classic_type type);   /* 0: no such type */
const char *classic_type_name(enum classic_type type); /* as in CDL: "int64"; "?" */
bool classic_type_known(uint32_t version, uint32_t type);
/* The default fill value (NC_FILL_...), big-endian, into out; returns its size. */
uint32_t classic_type_fill(enum classic_type type, uint8_t out[CLASSIC_TYPE_BYTES]);
/* The variable's own: its _FillValue where that is one value of its type, else the default. */
uint32_t classic_var_fill(const struct classic_var *v, uint8_t out[CLASSIC_TYPE_BYTES]);

/* CLASSIC_NONE when there is none of that name. */
uint32_t classic_find_dim(const struct classic *c, const char *name);
uint32_t classic_find_var(const struct classic *c, const char *name);
/* A name that two variables, or two dimensions, have; borrowed. NULL: all differ. 0, -ENOMEM. */
int classic_find_duplicate(const struct classic *c, const char **ret_name);
/*
 * The first variable that is larger than the version allows where it stands: in CDF-1 2^31 - 4 bytes (of a record), in CDF-2
 * 2^32 - 4, but for the last fixed one of a file without record variables, and the last record variable. NULL: none.
 */
const struct classic_var *classic_find_oversized(const struct classic *c);
/* Of a variable, or with CLASSIC_NONE of the file; borrowed; NULL when there is none. */
const struct classic_att *classic_find_att(const struct classic *c, uint32_t var, const char *name);

/* Offset in the file of an element: counted from 0 in the variable, or in that record of it. The caller sees to it that
 * record < num_records (0 for fixed variables) and element < elements. */
uint64_t classic_offset(const struct classic *c, const struct classic_var *v, uint64_t record, uint64_t element);
/* Length of the dimension as it is now: that of the record dimension is num_records. */
uint64_t classic_dim_len(const struct classic *c, uint32_t dim);
/* From one byte of a variable's record to the end of its padding: bytes, rounded up to 4 (not where it is alone). */
uint64_t classic_padded_bytes(const struct classic *c, const struct classic_var *v);
/* The end of what header and number of records define: a complete file has this size, or up to 3 bytes of padding less. */
uint64_t classic_file_bytes(const struct classic *c);
/* How many records a file of that size has room for: the last may be without its padding. Where the header says how many there
 * are, padding behind these is no further one. */
uint64_t classic_count_records(const struct classic *c, uint64_t file_bytes);
/* Is what a file of that size has behind the records that the header counts only padding, as netCDF-C adds it to a variable alone? */
bool classic_is_padding(const struct classic *c, uint64_t file_bytes);
/* The same with a last record of which there is only a part. */
uint64_t classic_count_begun(const struct classic *c, uint64_t file_bytes);

/*
 * Records by what is in them. Zeros behind those that the header counts are room that a program reserved, and no records; but
 * where a log has something of each of them without a gap, they are. A header without a number leaves it to the size, zeros or not.
 */
struct classic_records {
	uint64_t room;     /* that fit in the file: classic_count_records() */
	uint64_t whole;    /* of them, those up to the last one that something is in, and all that the header counts */
	uint64_t begun;    /* the same, with a last one of which there is only a part */
	uint64_t data_end; /* offset behind the last byte that is not zero, or that the header counts */
};
/* 0, -ENOMEM, errors of read_bytes. */
int classic_find_records(const struct classic *c, const struct source *s, struct classic_records *ret);

#endif
