/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_CODEC_HDF5_H
#define FORMAT_CODEC_HDF5_H

/*
 * What an HDF5 file holds and where its bytes are: our own read-only walk of superblock, object headers, groups, chunk
 * indexes and the attributes that netCDF-4 puts there, as the "HDF5 File Format Specification, Version 3.0" describes them.
 * No data are read but elements that refer to the global heap (strings, lists). Nothing in the file is believed: every address is checked against the size, every checksum
 * computed, every block visited once.
 *
 * A file that cannot be walked in part is not refused: what was not understood, not there yet, or damaged is a problem in
 * the list, with the object and the offset. Plain data; each thread may walk on its own.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "cistern/error.h"
#include "format/codec/layout.h"

#define HDF5_NOWHERE  UINT64_MAX /* an address that leads nowhere; a length without limit */
#define HDF5_RANK_MAX 32u
#define HDF5_NO_DIM   UINT32_MAX

/* Up to len bytes of the file at off, as pread(2): short only at the end of the file; -errno. */
typedef ssize_t (*hdf5_read_fn)(void *buf, size_t len, uint64_t off, void *arg);

enum hdf5_trouble {
	HDF5_ELSEWHERE,      /* none: its elements are in other files, and which is known */
	HDF5_NOT_UNDERSTOOD, /* of a kind that this walk does not know; the file may be fine */
	HDF5_NOT_WRITTEN, /* zeros, or the end of the file, where something has to be: not flushed yet, or cut short */
	HDF5_DAMAGED,     /* breaks the format's rules */
};

struct hdf5_problem {
	enum hdf5_trouble trouble;
	char *object; /* owned; path of the object, "" for the root group or the file */
	uint64_t off; /* in the file; HDF5_NOWHERE: of the object as a whole */
	char *text;   /* owned; one line, names the offset where there is one */
};

enum hdf5_class { /* of a datatype; the numbers of the format */
	HDF5_INTEGER,
	HDF5_FLOAT,
	HDF5_TIME,
	HDF5_STRING,
	HDF5_BITS,
	HDF5_OPAQUE,
	HDF5_COMPOUND,
	HDF5_REFERENCE,
	HDF5_ENUM,
	HDF5_VARYING,
	HDF5_ARRAY,
};

struct hdf5_type {
	uint8_t class; /* enum hdf5_class */
	bool big_endian;
	bool is_signed;  /* INTEGER */
	bool is_strings; /* VARYING: of characters */
	uint32_t size;   /* bytes of an element */
};

enum hdf5_storage {
	HDF5_NO_DATA, /* a group, a named type, or a dataset without elements */
	HDF5_COMPACT, /* in the object header */
	HDF5_CONTIGUOUS,
	HDF5_CHUNKED,
	HDF5_EXTERNAL, /* in other files */
	HDF5_VIRTUAL,  /* in datasets of this or other files */
};

enum hdf5_index { /* of chunks; those of layout version 4 have the format's numbers */
	HDF5_INDEX_TREE1,
	HDF5_INDEX_SINGLE,
	HDF5_INDEX_IMPLICIT,
	HDF5_INDEX_FIXED,
	HDF5_INDEX_EXTENSIBLE,
	HDF5_INDEX_TREE2,
};

enum hdf5_kind { HDF5_GROUP, HDF5_DATASET, HDF5_NAMED_TYPE };

struct hdf5_dim {        /* of netCDF-4: a dimension scale */
	uint32_t object; /* which object it is */
	int64_t id;      /* _Netcdf4Dimid, -1: none */
	uint64_t len;    /* unlimited: of the longest of its variables */
	bool unlimited;
	bool only_dim; /* there is no variable of that name */
};

struct hdf5_source {    /* where elements are that are not in this file */
	char *file;     /* owned; as it is written there; VIRTUAL: "." is this file, "%b" counts blocks */
	char *set;      /* owned; VIRTUAL: path of the dataset; NULL */
	uint64_t off;   /* EXTERNAL: in that file */
	uint64_t bytes; /* EXTERNAL: of the dataset, one source behind the other */
};

struct hdf5_object {
	char *path;    /* owned; without a leading slash; the root group: "" */
	uint64_t addr; /* of its header: offset in the file */
	enum hdf5_kind kind;
	/* datasets */
	struct hdf5_type type;
	enum hdf5_storage storage;
	bool is_null; /* a dataspace without elements, whatever its rank */
	uint32_t rank;
	uint64_t *dims;       /* owned; rank lengths as they are now */
	uint64_t *max_dims;   /* in dims' memory; HDF5_NOWHERE: unlimited */
	uint64_t *chunk;      /* in dims' memory; CHUNKED: lengths of a chunk */
	uint64_t data_off;    /* COMPACT, CONTIGUOUS: offset in the file; HDF5_NOWHERE: no room given yet */
	uint64_t data_bytes;  /* of all elements, decoded; COMPACT: in the header */
	uint64_t chunk_bytes; /* CHUNKED: of a whole chunk, decoded */
	enum hdf5_index index;
	struct layout_piece *pieces; /* owned; CHUNKED: those that are there, sorted by off */
	size_t num_pieces, cap_pieces;
	uint64_t outside; /* CHUNKED: how many there are outside the present lengths */
	/*
	 * Objects of the global heap that its elements have: strings and other lists, regions. Sorted by off; index: of the chunk, or of the
	 * first byte of the element.
	 */
	struct layout_piece *heap; /* owned */
	size_t num_heap, cap_heap;
	bool plain_edges;     /* CHUNKED: chunks that reach outside are not filtered */
	uint16_t filters[32]; /* identifiers, in the order of writing */
	uint32_t num_filters;
	bool has_fill;
	uint8_t *fill;               /* owned; type.size bytes as in the file */
	struct hdf5_source *sources; /* owned; EXTERNAL, VIRTUAL */
	size_t num_sources, cap_sources;
	/* netCDF-4 */
	uint32_t dim;   /* of hdf5.dims: which one it is; HDF5_NO_DIM: none */
	uint32_t *axes; /* owned; rank numbers of hdf5.dims or HDF5_NO_DIM; NULL: no dimensions are known */
};

struct hdf5 {
	uint32_t superblock;            /* its version */
	uint32_t addr_bytes, len_bytes; /* how wide addresses and lengths are */
	uint64_t base;                  /* where the file begins: bytes of a user block */
	uint64_t end;                   /* where it ends, as it says: offset in the file */
	uint64_t size;                  /* bytes that there are */
	bool open_for_writing;          /* a writer had it open, and has not closed it in order (superblock 3) */
	bool open_swmr;                 /* and wants others to read meanwhile: what is there is whole */
	bool is_netcdf;                 /* has what netCDF-4 writes */
	struct hdf5_object *objects;    /* owned; the root group first, parents before their children */
	size_t num_objects, cap_objects;
	struct hdf5_dim *dims; /* owned */
	size_t num_dims, cap_dims;
	struct layout_piece *metadata; /* owned; the format's own bytes that were seen; sorted, not touching */
	size_t num_metadata, cap_metadata;
	struct hdf5_problem *problems; /* owned; at most 100 */
	size_t num_problems;           /* that there are */
	size_t kept_problems;          /* that are in the list */
};

/* Whether these first bytes of a file begin with the signature (8 are enough). A user block hides it: hdf5_find(). */
bool hdf5_is(const void *buf, size_t len);
/* Where the signature is: at 0, 512, 1024, 2048, ... 0 and *ret_base; -ENODATA: nowhere; errors of reading. */
int hdf5_find(hdf5_read_fn read_bytes, void *arg, uint64_t size, uint64_t *ret_base);

/*
 * Walk a file of size bytes. 0: *ret is filled (hdf5_destroy()), look at its problems. -ENODATA: no signature, or nothing behind
 * the superblock yet: raw, not yet mapped (*err says which). -EBADMSG: the superblock is damaged. -ENOTSUP: it is of a kind
 * that we do not know. -ENOMEM, -EFBIG (more than the limits below), errors of read_bytes.
 */
int hdf5_walk(hdf5_read_fn read_bytes, void *arg, uint64_t size, struct hdf5 *ret, struct cistern_error *err);
void hdf5_destroy(struct hdf5 *h); /* also resets to empty; NULL is fine */
#define HDF5_CLEANUP __attribute__((cleanup(hdf5_destroy)))

#define HDF5_OBJECTS_MAX (1u << 20)
#define HDF5_CHUNKS_MAX  (1u << 26) /* in all datasets together */
#define HDF5_PATH_MAX    4096u

/* The first problem that is at least as bad; NULL: none. */
const struct hdf5_problem *hdf5_worst(const struct hdf5 *h, enum hdf5_trouble trouble);

/* hdf5_layout.c: fills *ret (layout_destroy()), names and dimensions as netCDF-4 has them. 0, -ENOMEM. */
int hdf5_to_layout(const struct hdf5 *h, struct layout *ret);
/* Both at once; errors of hdf5_walk(). */
int hdf5_layout(hdf5_read_fn read_bytes, void *arg, uint64_t size, struct layout *ret, struct cistern_error *err);
/* The path as netCDF shows it: a variable that has a dimension's name but is none has a mark in the file. */
void hdf5_name(const struct hdf5_object *o, char ret[HDF5_PATH_MAX]);
const char *hdf5_type_name(const struct hdf5_type *t); /* CDL's words where they fit; static */
const char *hdf5_index_name(enum hdf5_index index);    /* static */

#endif
