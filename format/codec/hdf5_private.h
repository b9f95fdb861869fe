/* SPDX-License-Identifier: GPL-3.0-or-later */
#ifndef FORMAT_CODEC_HDF5_PRIVATE_H
#define FORMAT_CODEC_HDF5_PRIVATE_H

/*
 * What the parts of the walk share. All functions return 0 or -errno; -EBADMSG, -ENODATA, -ENOTSUP and -EXDEV concern one object
 * and have left their text and offset in the walk (hdf5_fail()), others end the walk.
 */

#include "format/base/cursor.h"
#include "format/codec/hdf5.h"

#define HDF5_BLOCK_MAX (64u << 20) /* no block of the format's own is longer */

struct hdf5_map {                /* number -> number; zero-initialise; open addressing, keys are any but UINT64_MAX */
	uint64_t *keys, *values; /* owned */
	size_t num, cap;
};

int hdf5_map_set(struct hdf5_map *m, uint64_t key, uint64_t value); /* 0, -EEXIST (nothing changed), -ENOMEM */
bool hdf5_map_get(const struct hdf5_map *m, uint64_t key, uint64_t *ret_value);
void hdf5_map_free(struct hdf5_map *m);

struct hdf5_image;
struct hdf5_globals;

struct hdf5_walk {
	hdf5_read_fn read_bytes;
	void *arg;
	uint64_t size, base; /* bytes */
	unsigned int addr_bytes, len_bytes;
	struct hdf5 *file;       /* borrowed; what is being filled */
	struct hdf5_map seen;    /* blocks that were read: offsets */
	struct hdf5_map by_addr; /* object header -> number of the object */
	struct hdf5_map names;   /* hashes of paths of members */
	uint64_t num_chunks;     /* of all datasets */
	uint64_t shared_table;   /* address of the table of shared messages, or HDF5_NOWHERE */
	struct hdf5_shared_heap {
		uint64_t addr;
		struct hdf5_heap *heap; /* owned */
	} shared[8];
	unsigned int num_shared;
	struct hdf5_globals *globals; /* owned; NULL: none was needed yet */
	struct hdf5_image *image;     /* owned; NULL: there is none */
	struct hdf5_map
		masks; /* of the dataset that is being read: offset of a chunk -> filters left out, where any are */
	uint64_t looked_bytes; /* of elements, decoded, and of places in types */
	uint64_t last_off;     /* of the block that was read last */
	uint64_t bad_off;      /* of the last failure */
	char bad_text[256];
};

/* ---- hdf5_block.c: bytes of the file */

struct hdf5_block {
	uint8_t *data; /* owned */
	size_t len;
	uint64_t off; /* in the file */
};

void hdf5_block_free(struct hdf5_block *b);
#define HDF5_BLOCK_CLEANUP __attribute__((cleanup(hdf5_block_free)))

/* code is returned; off: where in the file; HDF5_NOWHERE: in the block that was read last. */
int hdf5_fail(struct hdf5_walk *w, int code, uint64_t off, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/*
 * len bytes at an address, which is what for people. -ENODATA: behind the end of the file. hdf5_read_once() refuses what was
 * read by it before; both note the bytes as metadata.
 */
int hdf5_read(struct hdf5_walk *w, uint64_t addr, size_t len, const char *what, struct hdf5_block *ret);
int hdf5_read_once(struct hdf5_walk *w, uint64_t addr, size_t len, const char *what, struct hdf5_block *ret);
int hdf5_note_metadata(struct hdf5_walk *w, uint64_t off, uint64_t len);
/* The same for bytes that are no metadata. off: in the file. */
int hdf5_read_data(struct hdf5_walk *w, uint64_t off, size_t len, const char *what, struct hdf5_block *ret);
/* The four letters at the cursor are these; -ENODATA when they are zeros. */
int hdf5_signature(struct hdf5_walk *w, const struct hdf5_block *b, struct cursor *c, const char *letters);
/* The last four bytes are the checksum of those before. */
int hdf5_check(struct hdf5_walk *w, const struct hdf5_block *b);
uint64_t hdf5_uint(struct cursor *c, unsigned int bytes);            /* little-endian, 0 to 8 bytes */
uint64_t hdf5_get_addr(const struct hdf5_walk *w, struct cursor *c); /* HDF5_NOWHERE: undefined */
uint64_t hdf5_get_len(const struct hdf5_walk *w, struct cursor *c);
/* offset in the file; HDF5_NOWHERE when that is not in it */
uint64_t hdf5_off(const struct hdf5_walk *w, uint64_t addr, uint64_t len);
unsigned int hdf5_log2(uint64_t v);     /* floor; of 0: 0 */
unsigned int hdf5_width(uint64_t most); /* least bytes that hold it */

/* hdf5_checksum.c: of metadata; is this the checksum of these bytes? */
uint32_t hdf5_checksum(const void *data, size_t len);
bool hdf5_checksum_is(const void *data, size_t len, uint32_t sum);
bool hdf5_fletcher_is(const void *data, size_t len, uint32_t sum); /* the same of the filter "Fletcher32" */

/* ---- hdf5_header.c: object headers */

enum hdf5_message_type {
	HDF5_MSG_NIL = 0,
	HDF5_MSG_DATASPACE = 1,
	HDF5_MSG_LINK_INFO = 2,
	HDF5_MSG_DATATYPE = 3,
	HDF5_MSG_FILL_OLD = 4,
	HDF5_MSG_FILL = 5,
	HDF5_MSG_LINK = 6,
	HDF5_MSG_EXTERNAL = 7,
	HDF5_MSG_LAYOUT = 8,
	HDF5_MSG_FILTERS = 11,
	HDF5_MSG_ATTRIBUTE = 12,
	HDF5_MSG_SHARED_TABLE = 15,
	HDF5_MSG_CONTINUATION = 16,
	HDF5_MSG_SYMBOL_TABLE = 17,
	HDF5_MSG_DRIVER = 20,
	HDF5_MSG_ATTRIBUTE_INFO = 21,
	HDF5_MSG_FREE_SPACE = 23,
	HDF5_MSG_CACHE_IMAGE = 24,
};

struct hdf5_message {
	uint16_t type;
	uint8_t flags;
	const uint8_t *data; /* borrowed from the header */
	size_t len;
	uint64_t off; /* of data, in the file */
};

#define HDF5_FLAG_SHARED 2u

struct hdf5_header {
	struct hdf5_block *blocks; /* owned */
	size_t num_blocks;
	struct hdf5_message *messages; /* owned */
	size_t num, cap;
};

/* again: it may have been read before (a named type that several datasets share). */
int hdf5_header_read(struct hdf5_walk *w, uint64_t addr, bool again, struct hdf5_header *ret);
void hdf5_header_free(struct hdf5_header *h);
#define HDF5_HEADER_CLEANUP __attribute__((cleanup(hdf5_header_free)))
/* The first message of a type, or NULL. */
const struct hdf5_message *hdf5_header_find(const struct hdf5_header *h, uint16_t type);

/* ---- hdf5_filter.c: bytes that were changed before they were written */

#define HDF5_FILTERS_MAX 32u

struct hdf5_pipeline {
	uint32_t num;
	uint16_t ids[HDF5_FILTERS_MAX]; /* in the order of writing */
	uint32_t element_bytes;         /* of what is shuffled; blocks of the format's own are not */
};

/*
 * The block's bytes as they were before the steps of p whose bits in skipped are not set: len of them, in the block. -ENOTSUP:
 * a filter that is not known here; -EBADMSG: these are not bytes that such filters make.
 */
int hdf5_unfilter(
	struct hdf5_walk *w, const struct hdf5_pipeline *p, uint32_t skipped, size_t len, struct hdf5_block *b);

/* ---- hdf5_type.c: datatypes */

#define HDF5_NO_LIST UINT32_MAX

struct hdf5_place {       /* where the identifier of an object in the global heap is */
	uint64_t off;     /* in the element, or in an element of the list in_list */
	uint32_t unit;    /* lists: bytes of one of its elements */
	uint32_t in_list; /* number of a place; HDF5_NO_LIST: in the element itself */
	bool is_list;     /* behind the number of its elements; else a reference to a region */
	bool has_inner;   /* there are places in its elements */
};

struct hdf5_places {
	struct hdf5_place *list; /* owned */
	size_t num, cap;
};

/* ret_places: NULL, or zero-initialised; what it has is to be freed on failure, too. */
int hdf5_type_decode(
	struct hdf5_walk *w, const struct hdf5_message *m, struct hdf5_type *ret, struct hdf5_places *ret_places);
void hdf5_places_free(struct hdf5_places *p); /* also resets to empty */
#define HDF5_PLACES_CLEANUP __attribute__((cleanup(hdf5_places_free)))

/* ---- hdf5_message.c: what messages say */

struct hdf5_space {
	uint32_t rank;
	bool is_null; /* no elements at all */
	uint64_t dims[HDF5_RANK_MAX], max_dims[HDF5_RANK_MAX];
};

struct hdf5_attribute {
	const char *name; /* borrowed from the message, terminated */
	struct hdf5_type type;
	struct hdf5_places places; /* owned: hdf5_places_free() before the next one */
	struct hdf5_space space;
	const uint8_t *data; /* borrowed */
	size_t len;
	uint64_t off; /* of data, in the file; or of the message that it comes from */
};

int hdf5_space_decode(struct hdf5_walk *w, const struct hdf5_message *m, struct hdf5_space *ret);
int hdf5_attribute_decode(struct hdf5_walk *w, const struct hdf5_message *m, struct hdf5_attribute *ret);
int hdf5_filters_decode(struct hdf5_walk *w, const struct hdf5_message *m, struct hdf5_pipeline *ret);
int hdf5_fill_decode(struct hdf5_walk *w, const struct hdf5_message *m, struct hdf5_object *o);
/* The place where a shared message is: in *ret the message itself, whose bytes are in *hold (of a header) or *copy. */
struct hdf5_unshared {
	struct hdf5_message m;
	struct hdf5_header header; /* owned */
	uint8_t *copy;             /* owned */
};
int hdf5_unshare(struct hdf5_walk *w, const struct hdf5_message *m, struct hdf5_unshared *ret);
void hdf5_unshared_free(struct hdf5_unshared *u);
#define HDF5_UNSHARED_CLEANUP __attribute__((cleanup(hdf5_unshared_free)))

/* ---- hdf5_dataset.c */

int hdf5_dataset_read(struct hdf5_walk *w, struct hdf5_object *o, const struct hdf5_header *h);

/* ---- hdf5_elsewhere.c: elements that are not in this file. Both fill o->sources and end with -EXDEV, which is no failure */

int hdf5_external_read(struct hdf5_walk *w, const struct hdf5_message *m, struct hdf5_object *o);
/* c: behind the class of a layout of version 4. */
int hdf5_virtual_read(struct hdf5_walk *w, const struct hdf5_message *m, struct cursor *c, struct hdf5_object *o);

/* ---- hdf5_chunk.c: where chunks are */

struct hdf5_chunking {      /* what the layout message says */
	uint64_t addr;      /* of the index */
	uint64_t one_bytes; /* SINGLE and filtered: stored bytes */
	bool one_filtered;
	uint32_t one_mask; /* filters that were left out */
};
int hdf5_chunks_read(struct hdf5_walk *w, struct hdf5_object *o, const struct hdf5_chunking *c);
struct hdf5_stored { /* a chunk */
	uint64_t addr, len;
	uint32_t mask; /* filters that were left out */
};
/* A chunk at these places of the grid. */
int hdf5_chunk_add(struct hdf5_walk *w, struct hdf5_object *o, const uint64_t *at, const struct hdf5_stored *s);
int hdf5_array_read(struct hdf5_walk *w, struct hdf5_object *o, uint64_t addr); /* hdf5_array.c: FIXED, EXTENSIBLE */

/* ---- hdf5_tree.c: B-trees */

/* A pair of an entry of a version 1 B-tree: key, child's address. */
typedef int (*hdf5_tree1_fn)(struct hdf5_walk *w, struct cursor *key, uint64_t child, void *arg);
/* key: of each key of each node, which is at off, between the entries that it parts; NULL: they are not looked at. */
typedef int (*hdf5_tree1_key_fn)(struct hdf5_walk *w, struct cursor *key, uint64_t off, void *arg);
int hdf5_tree1(struct hdf5_walk *w, uint64_t addr, unsigned int type, unsigned int key_bytes, hdf5_tree1_key_fn key,
	hdf5_tree1_fn each, void *arg);
/* A record of a version 2 B-tree; off: where it is. */
typedef int (*hdf5_tree2_fn)(struct hdf5_walk *w, const uint8_t *record, size_t len, uint64_t off, void *arg);
int hdf5_tree2(struct hdf5_walk *w, uint64_t addr, unsigned int type, hdf5_tree2_fn each, void *arg);

/* ---- hdf5_heap.c */

struct hdf5_heap; /* fractal */
int hdf5_heap_open(struct hdf5_walk *w, uint64_t addr, struct hdf5_heap **ret);
void hdf5_heap_close(struct hdf5_heap *h); /* NULL is fine */
unsigned int hdf5_heap_id_bytes(const struct hdf5_heap *h);
/*
 * The object of an identifier (hdf5_heap_id_bytes() of them at id); *ret is valid until the next call. Of an object that is too
 * large for the heap's blocks, and not compressed, only the first HDF5_HUGE_READ bytes are given: names and types come first.
 */
#define HDF5_HUGE_READ (1u << 20)
int hdf5_heap_get(struct hdf5_walk *w, struct hdf5_heap *h, const uint8_t *id, const uint8_t **ret, size_t *ret_len,
	uint64_t *ret_off);

int hdf5_local_heap(struct hdf5_walk *w, uint64_t addr, struct hdf5_block *ret); /* hdf5_names.c: its bytes */

/* ---- hdf5_global.c: the global heap */

struct hdf5_global {      /* an object of it */
	uint64_t off;     /* of its bytes, in the file */
	uint64_t len;     /* without what its head and padding take */
	uint16_t index;   /* in its collection */
	bool is_datasets; /* elements of a dataset refer to it: it is part of that */
};

struct hdf5_globals;
void hdf5_globals_free(struct hdf5_globals *g); /* NULL is fine */
/* The object; *ret is valid until the next call. Each collection is read once. */
int hdf5_global_find(struct hdf5_walk *w, uint64_t addr, uint32_t index, struct hdf5_global **ret);
/* All bytes of it; *ret is valid until the next call. */
int hdf5_global_get(struct hdf5_walk *w, uint64_t addr, uint32_t index, const uint8_t **ret, size_t *ret_len);
/* When all is read: what is no dataset's of all collections is metadata. */
int hdf5_globals_note(struct hdf5_walk *w);

/* ---- hdf5_varying.c: elements that refer to the global heap */

/* Of a dataset whose chunks are known: each identifier leads to an object that is there and has enough bytes, and is o's. */
int hdf5_varying_read(struct hdf5_walk *w, struct hdf5_object *o, const struct hdf5_places *places);
int hdf5_varying_attribute(struct hdf5_walk *w, const struct hdf5_attribute *a); /* likewise */
/* So much more is to be looked at, of elements, lists or places in types: 0, or -ENOTSUP when it is too much for the file. */
int hdf5_charge(struct hdf5_walk *w, uint64_t bytes);
#define HDF5_PLACE_BYTES 16u /* of a place in an element, with addresses of 8 bytes; also what looking at one costs */

/* ---- hdf5_image.c: metadata that are kept in one block beside their places */

int hdf5_image_load(struct hdf5_walk *w, const struct hdf5_message *m);
void hdf5_image_free(struct hdf5_image *i); /* NULL is fine */
/* What the image has of these len bytes of the file, over what the file has. */
void hdf5_image_lay_over(const struct hdf5_image *i, uint64_t off, uint8_t *data, size_t len);

/* ---- hdf5_group.c: members of a group */

/* name is not terminated; target: address of its header. Soft and external links are left out. */
typedef int (*hdf5_member_fn)(struct hdf5_walk *w, const char *name, size_t len, uint64_t target, void *arg);
int hdf5_group_read(struct hdf5_walk *w, const struct hdf5_header *h, hdf5_member_fn each, void *arg);

/* ---- hdf5_netcdf.c: dimensions */

struct hdf5_scales; /* what attributes said */
int hdf5_scales_create(struct hdf5_scales **ret);
void hdf5_scales_destroy(struct hdf5_scales *s);
/* The attributes of an object, whose number is given. */
int hdf5_scales_read(struct hdf5_walk *w, struct hdf5_scales *s, uint32_t object, const struct hdf5_header *h);
/* When all objects are known: hdf5.dims, and each object's dim and axes. */
int hdf5_scales_resolve(struct hdf5_walk *w, struct hdf5_scales *s);

#endif
