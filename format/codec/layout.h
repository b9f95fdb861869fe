/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_CODEC_LAYOUT_H
#define FORMAT_CODEC_LAYOUT_H

/*
 * Which bytes of a file are what: the common description that the codecs of file formats fill and that inspectors and
 * verifiers read. Objects do not overlap each other, except where a damaged file makes them. What belongs to no object is
 * padding, or not known.
 *
 * Plain data, filled by one thread: start with = { 0 }, layout_add() each object, end with layout_destroy().
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum layout_kind {
	LAYOUT_HEADER,   /* one range: what a reader needs first */
	LAYOUT_METADATA, /* ranges of the format's own */
	LAYOUT_VARIABLE, /* one range of elements */
	LAYOUT_RECORDS,  /* count ranges of elements, stride apart */
	LAYOUT_CHUNKS,   /* ranges of elements anywhere; dims are cut into chunks */
	LAYOUT_FREE,     /* ranges that the format has given up */
};

/* A range of METADATA, CHUNKS or FREE; pieces of one object are sorted by off. */
struct layout_piece {
	uint64_t off, len; /* in the file */
	uint64_t index;    /* of a chunk: its number in row-major order over the grid of chunks; else 0 */
};

/* Where elements are that are not in this file. */
struct layout_source {
	char *file;     /* owned; as this file names it */
	char *object;   /* owned; which object of it; NULL: just bytes, the next two */
	uint64_t off;   /* in that file */
	uint64_t bytes; /* of the elements, one source behind the other */
};

struct layout_object {
	char *name;       /* owned; path in the file, without a leading slash at its top: "T", "group/T" */
	const char *type; /* static text in CDL's words where they fit: "float"; "" for what has no elements */
	char *type_text;  /* owned, instead of type, where the text is made up; see layout_type() */
	enum layout_kind kind;
	uint32_t element_bytes; /* 0: none, or of varying size */
	uint32_t num_dims;
	uint64_t *dims; /* owned; lengths as they are now, slowest first; of RECORDS, dims[0] is their number */
	bool is_null;   /* has no elements, though it has no dimension of length 0 */
	bool has_fill;
	uint8_t *fill; /* owned; element_bytes bytes as in the file; only when has_fill */

	uint64_t begin; /* HEADER, VARIABLE, RECORDS: of the first range */
	uint64_t
		len; /* bytes of one range: the variable's own, without padding; of CHUNKS: of a whole chunk, decoded */
	uint64_t stride; /* RECORDS: from one to the next */
	uint64_t count;  /* RECORDS: how many; HEADER, VARIABLE: 1, or 0: it has no place in the file yet */

	uint64_t *chunk;             /* owned; CHUNKS: num_dims lengths of a chunk */
	bool filtered;               /* CHUNKS: stored bytes are not the elements (compressed, shuffled, checksummed) */
	struct layout_piece *pieces; /* owned */
	size_t num_pieces, cap_pieces;

	/*
	 * VARIABLE, CHUNKS: what its elements have outside of them (strings and lists, which a heap keeps), anywhere in the file, sorted by off;
	 * index: of the chunk, or of the first byte of the element that has it.
	 */
	struct layout_piece *heap; /* owned */
	size_t num_heap;

	struct layout_source *sources; /* owned; VARIABLE with count 0: it never gets a place in this file */
	size_t num_sources, cap_sources;
};

struct layout {
	char format[48];     /* for people: "netCDF classic (CDF-5)", "HDF5 (superblock 2)" */
	uint64_t file_bytes; /* what the format says that the file has */
	uint64_t size;       /* what it has */
	bool has_records;    /* there is a record dimension */
	uint64_t num_records;
	uint64_t record_bytes;         /* from one to the next; 0: not of that kind */
	char note[256];                /* for people: a doubt about the file as a whole; "" when there is none */
	struct layout_object *objects; /* owned */
	size_t num_objects, cap_objects;
};

/* A new zeroed object with that name (copied) at the end; NULL: no memory. Valid until the next layout_add(). */
struct layout_object *layout_add(struct layout *l, const char *name, enum layout_kind kind);
/* num_dims lengths, copied. 0, -ENOMEM. */
int layout_set_dims(struct layout_object *o, uint32_t num_dims, const uint64_t *dims);
/* element_bytes bytes, copied. 0, -ENOMEM. */
int layout_set_fill(struct layout_object *o, const void *fill);
int layout_add_piece(struct layout_object *o, uint64_t off, uint64_t len, uint64_t index); /* 0, -ENOMEM */
/* file and object are copied; object may be NULL. 0, -ENOMEM. */
int layout_add_source(struct layout_object *o, const char *file, const char *object, uint64_t off, uint64_t bytes);
void layout_sort_pieces(struct layout_object *o); /* by off */
const char *layout_type(const struct layout_object *o);
const char *layout_kind_name(enum layout_kind kind); /* "header", "variable", ... */
/*
 * How many parts the object should have: records; chunks, also those that have no place in the file yet; else 1, or 0 where a
 * dimension has length 0 or there are no elements by definition. METADATA and FREE: pieces. At most 2^63.
 */
uint64_t layout_parts(const struct layout_object *o);
/* Bytes of all ranges, heap and all; and of the heap alone. */
uint64_t layout_object_bytes(const struct layout_object *o);
uint64_t layout_heap_bytes(const struct layout_object *o);
int layout_set_heap(struct layout_object *o, size_t num, const struct layout_piece *pieces); /* copied. 0, -ENOMEM */
/* The object with that byte, metadata last, or NULL. Linear in the objects. */
const struct layout_object *layout_owner(const struct layout *l, uint64_t off);
void layout_destroy(struct layout *l); /* also resets to empty; NULL is fine */
#define LAYOUT_CLEANUP __attribute__((cleanup(layout_destroy)))

#endif
