/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The walk: from the superblock to the root group, from group to member, each object once. A queue in the list of objects
 * itself takes the place of recursion, so that depth costs no stack.
 */
#include "format/codec/hdf5_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/array.h"

#define SIGNATURE       "\x89HDF\r\n\x1a\n"
#define SIGNATURE_BYTES 8u
#define BASE_MAX        (UINT64_C(1) << 40) /* no user block is longer */
#define PROBLEMS_MAX    100u
#define MSG_GROUP_INFO  10u
#define OPEN_TO_WRITE   1u /* flags of superblock 3 */
#define OPEN_SWMR       4u
#define FLAGS_KNOWN     7u
#define FREE_PERSISTS   1u /* strategy of free space information, version 0 */

bool hdf5_is(const void *buf, size_t len)
{
	return len >= SIGNATURE_BYTES && memcmp(buf, SIGNATURE, SIGNATURE_BYTES) == 0;
}

int hdf5_find(hdf5_read_fn read_bytes, void *arg, uint64_t size, uint64_t *ret_base)
{
	for (uint64_t at = 0; at < size && at <= BASE_MAX; at = at > 0 ? at * 2 : 512) {
		uint8_t first[SIGNATURE_BYTES];
		ssize_t got = read_bytes(first, sizeof(first), at, arg);

		if (got < 0)
			return (int)got;
		if (hdf5_is(first, (size_t)got)) {
			*ret_base = at;
			return 0;
		}
	}
	return -ENODATA;
}

static void object_free(struct hdf5_object *o)
{
	free(o->path);
	free(o->dims);
	free(o->pieces);
	free(o->heap);
	free(o->fill);
	free(o->axes);
	for (size_t i = 0; i < o->num_sources; i++) {
		free(o->sources[i].file);
		free(o->sources[i].set);
	}
	free(o->sources);
}

void hdf5_destroy(struct hdf5 *h)
{
	if (!h)
		return;
	for (size_t i = 0; i < h->num_objects; i++)
		object_free(&h->objects[i]);
	for (size_t i = 0; i < h->kept_problems; i++) {
		free(h->problems[i].object);
		free(h->problems[i].text);
	}
	free(h->objects);
	free(h->dims);
	free(h->metadata);
	free(h->problems);
	*h = (struct hdf5){ 0 };
}

/* ---- problems */

static enum hdf5_trouble trouble_of(int r)
{
	switch (r) {
	case -EXDEV: return HDF5_ELSEWHERE;
	case -ENOTSUP: return HDF5_NOT_UNDERSTOOD;
	case -ENODATA: return HDF5_NOT_WRITTEN;
	default: return HDF5_DAMAGED;
	}
}

/* The last failure concerns this object; 0: the walk goes on. */
static int note(struct hdf5_walk *w, const char *object, int r)
{
	struct hdf5 *h = w->file;
	struct hdf5_problem *p;

	if (r != -EXDEV && r != -ENOTSUP && r != -ENODATA && r != -EBADMSG)
		return r;
	h->num_problems++;
	if (h->kept_problems == PROBLEMS_MAX)
		return 0;
	p = reallocarray(h->problems, h->kept_problems + 1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	h->problems = p;
	p += h->kept_problems;
	*p = (struct hdf5_problem){ .trouble = trouble_of(r), .off = w->bad_off };
	p->object = strdup(object);
	p->text = strdup(w->bad_text);
	h->kept_problems++;
	return p->object && p->text ? 0 : -ENOMEM;
}

const struct hdf5_problem *hdf5_worst(const struct hdf5 *h, enum hdf5_trouble trouble)
{
	for (size_t i = 0; i < h->kept_problems; i++)
		if (h->problems[i].trouble >= trouble)
			return &h->problems[i];
	return NULL;
}

/* ---- superblock */

struct super {
	uint64_t root, extension, end, driver; /* addresses */
};

static int check_widths(struct hdf5_walk *w, const struct cursor *c)
{
	unsigned int a = w->addr_bytes, l = w->len_bytes;

	if (!cursor_ok(c))
		return hdf5_fail(w, -EBADMSG, w->base, "the superblock is cut short");
	if ((a != 2 && a != 4 && a != 8) || (l != 2 && l != 4 && l != 8))
		return hdf5_fail(w, -ENOTSUP, w->base, "addresses of %u and lengths of %u bytes", a, l);
	return 0;
}

/*
 * base: where the file says that it begins. It is old, and so is the end, when a user block was put in front of it
 * later (h5jam).
 */
static uint64_t end_from(const struct hdf5_walk *w, uint64_t base, uint64_t end)
{
	return base == HDF5_NOWHERE || end == HDF5_NOWHERE ? end : end + (w->base - base);
}

static int super01(struct hdf5_walk *w, struct cursor *c, unsigned int version, struct super *s)
{
	unsigned int leaf, node;
	uint32_t flags;
	uint64_t base;
	int r;

	(void)cursor_bytes(c, 4); /* versions of parts, none of which there are two of */
	w->addr_bytes = cursor_u8(c);
	w->len_bytes = cursor_u8(c);
	r = check_widths(w, c);
	if (r < 0)
		return r;
	(void)cursor_u8(c);
	leaf = cursor_u16(c);
	node = cursor_u16(c);
	flags = cursor_u32(c);
	if (leaf == 0 || node == 0 || (flags & ~FLAGS_KNOWN))
		return hdf5_fail(w, -EBADMSG, w->base, "the superblock has nodes of %u and %u entries, flags %" PRIx32,
			leaf, node, flags);
	(void)cursor_bytes(c, version == 1 ? 4 : 0);
	base = hdf5_get_addr(w, c);
	(void)hdf5_get_addr(w, c);
	s->end = end_from(w, base, hdf5_get_addr(w, c));
	s->driver = hdf5_get_addr(w, c);
	(void)hdf5_get_len(w, c); /* the root group's name; the specification calls it an address */
	s->root = hdf5_get_addr(w, c);
	s->extension = HDF5_NOWHERE;
	return 0;
}

static int super23(
	struct hdf5_walk *w, const struct hdf5_block *b, struct cursor *c, unsigned int version, struct super *s)
{
	struct hdf5_block whole = *b;
	unsigned int flags;
	uint64_t base;
	int r;

	w->addr_bytes = cursor_u8(c);
	w->len_bytes = cursor_u8(c);
	flags = cursor_u8(c);
	r = check_widths(w, c);
	if (r < 0)
		return r;
	w->file->open_for_writing = version == 3 && (flags & OPEN_TO_WRITE);
	w->file->open_swmr = w->file->open_for_writing && (flags & OPEN_SWMR);
	base = hdf5_get_addr(w, c);
	s->extension = hdf5_get_addr(w, c);
	s->end = end_from(w, base, hdf5_get_addr(w, c));
	s->root = hdf5_get_addr(w, c);
	s->driver = HDF5_NOWHERE;
	whole.len = 16 + 4 * (size_t)w->addr_bytes;
	return whole.len <= b->len ? hdf5_check(w, &whole)
				   : hdf5_fail(w, -EBADMSG, w->base, "the superblock is cut short");
}

static int read_super(struct hdf5_walk *w, struct super *s)
{
	struct hdf5_block b HDF5_BLOCK_CLEANUP = { 0 };
	uint64_t most = w->size - w->base;
	unsigned int version;
	struct cursor c;
	int r = hdf5_read(w, 0, most < 100 ? (size_t)most : 100, "the superblock", &b);

	if (r < 0)
		return r;
	w->file->num_metadata--;
	c = cursor_make(b.data, b.len);
	(void)cursor_bytes(&c, SIGNATURE_BYTES);
	version = cursor_u8(&c);
	if (version > 3)
		return hdf5_fail(w, -ENOTSUP, w->base, "a superblock of version %u", version);
	r = version < 2 ? super01(w, &c, version, s) : super23(w, &b, &c, version, s);
	if (r == 0 && (!cursor_ok(&c) || s->root == HDF5_NOWHERE))
		r = hdf5_fail(w, -EBADMSG, w->base, "the superblock is cut short, or has no root group");
	w->file->superblock = version;
	w->file->addr_bytes = w->addr_bytes;
	w->file->len_bytes = w->len_bytes;
	w->file->end = s->end;
	if (r < 0)
		return r;
	return hdf5_note_metadata(
		w, w->base, version < 2 ? (uint64_t)(c.at - b.data) + 24 : 16 + 4 * (uint64_t)w->addr_bytes);
}

/* ---- files that are one of several */

/* Drivers that put the rest into further files leave their name in the first one, or in that of the metadata. */
static int refuse_driver(struct hdf5_walk *w, const uint8_t *name, uint64_t off)
{
	static const struct {
		char name[9];
		const char *says;
	} known[] = { { "NCSAfami", "family" }, { "NCSAmult", "multi or split" } };
	const char *says = "unknown here";

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (memcmp(known[i].name, name, 8) == 0)
			says = known[i].says;
	return hdf5_fail(w, -ENOTSUP, off,
		"it is one of several files that belong together, written by a file driver (%s), and only whole files are walked",
		says);
}

/* The block of superblocks 0 and 1: version, 3 reserved bytes, how long the rest is, the driver's name. */
static int check_driver(struct hdf5_walk *w, uint64_t addr)
{
	struct hdf5_block b HDF5_BLOCK_CLEANUP = { 0 };
	int r = addr == HDF5_NOWHERE ? 0 : hdf5_read(w, addr, 16, "the block of a file driver", &b);

	if (r < 0 || !b.data)
		return r;
	return b.data[0] == 0 ? refuse_driver(w, b.data + 8, b.off)
			      : hdf5_fail(w, -EBADMSG, b.off, "the block of a file driver has version %u", b.data[0]);
}

/* The message of later ones: version, the driver's name. */
static int check_driver_message(struct hdf5_walk *w, const struct hdf5_header *h)
{
	const struct hdf5_message *m = hdf5_header_find(h, HDF5_MSG_DRIVER);

	if (!m)
		return 0;
	return m->len >= 9 ? refuse_driver(w, m->data + 1, m->off)
			   : hdf5_fail(w, -EBADMSG, m->off, "the name of a file driver is cut short");
}

static int read_shared_table(struct hdf5_walk *w, const struct hdf5_message *m)
{
	struct cursor c = cursor_make(m->data, m->len);

	(void)cursor_u8(&c);
	w->shared_table = hdf5_get_addr(w, &c);
	return cursor_ok(&c) ? 0 : hdf5_fail(w, -EBADMSG, m->off, "the table of shared messages is cut short");
}

/* How free space is kept: not looked at, but HDF5 opens no file whose message is too short. */
static int check_free_space(struct hdf5_walk *w, const struct hdf5_message *m)
{
	struct cursor c = cursor_make(m->data, m->len);
	unsigned int version = cursor_u8(&c), strategy = cursor_u8(&c);
	bool persists = version == 0 ? strategy == FREE_PERSISTS : cursor_u8(&c) != 0;

	if (version > 1)
		return hdf5_fail(w, -ENOTSUP, m->off, "free space information of version %u", version);
	(void)hdf5_get_len(w, &c);
	if (version == 1)
		(void)cursor_bytes(&c, w->len_bytes + 2u + w->addr_bytes);
	if (persists)
		(void)cursor_bytes(&c, (version == 0 ? 6u : 12u) * w->addr_bytes);
	return cursor_ok(&c) ? 0 : hdf5_fail(w, -EBADMSG, m->off, "free space information is cut short");
}

/* Of the extension: whether there are further files, where shared messages are, and metadata that are elsewhere than they say. */
static int read_extension(struct hdf5_walk *w, uint64_t addr)
{
	struct hdf5_header h HDF5_HEADER_CLEANUP = { 0 };
	const struct hdf5_message *table, *image, *space;
	int r;

	if (addr == HDF5_NOWHERE)
		return 0;
	r = hdf5_header_read(w, addr, false, &h);
	r = r == 0 ? check_driver_message(w, &h) : r;
	table = r == 0 ? hdf5_header_find(&h, HDF5_MSG_SHARED_TABLE) : NULL;
	image = r == 0 ? hdf5_header_find(&h, HDF5_MSG_CACHE_IMAGE) : NULL;
	space = r == 0 ? hdf5_header_find(&h, HDF5_MSG_FREE_SPACE) : NULL;
	if (table)
		r = read_shared_table(w, table);
	if (r == 0 && image)
		r = hdf5_image_load(w, image);
	return r == 0 && space ? check_free_space(w, space) : r;
}

/* ---- objects */

static int add_object(struct hdf5_walk *w, const char *path, uint64_t addr)
{
	struct hdf5 *h = w->file;
	struct hdf5_object *o;
	int r;

	if (h->num_objects == HDF5_OBJECTS_MAX)
		return hdf5_fail(w, -EFBIG, addr, "more than %u objects", HDF5_OBJECTS_MAX);
	if (array_room(&h->objects, &h->cap_objects, h->num_objects, sizeof(*h->objects)) < 0)
		return -ENOMEM;
	r = hdf5_map_set(&w->by_addr, addr, h->num_objects);
	if (r < 0)
		return r == -EEXIST ? 0 : r; /* a further name of it */
	o = &h->objects[h->num_objects];
	*o = (struct hdf5_object){ .path = strdup(path), .addr = addr, .dim = HDF5_NO_DIM };
	if (!o->path)
		return -ENOMEM;
	h->num_objects++;
	return 0;
}

/* FNV-1a */
static uint64_t hash_of(const char *text)
{
	uint64_t v = UINT64_C(0xcbf29ce484222325);

	for (; *text; text++)
		v = (v ^ (uint8_t)*text) * UINT64_C(0x100000001b3);
	return v == UINT64_MAX ? 0 : v;
}

static int member(struct hdf5_walk *w, const char *name, size_t len, uint64_t target, void *arg)
{
	const size_t *group = arg;
	const char *parent = w->file->objects[*group].path;
	uint64_t off = hdf5_off(w, target, 1);
	char path[HDF5_PATH_MAX];
	int n, r = 0;

	if (len == 0 || memchr(name, '/', len) || memchr(name, '\0', len))
		return hdf5_fail(w, -EBADMSG, HDF5_NOWHERE, "a member with an impossible name");
	if (len >= sizeof(path))
		return hdf5_fail(w, -ENOTSUP, HDF5_NOWHERE, "a member whose name has %zu bytes", len);
	n = snprintf(path, sizeof(path), "%s%s%.*s", parent, parent[0] ? "/" : "", (int)len, name);
	if (n < 0 || (size_t)n >= sizeof(path))
		return hdf5_fail(
			w, -ENOTSUP, HDF5_NOWHERE, "a member whose path is longer than %zu bytes", sizeof(path) - 1);
	if (hdf5_map_set(&w->names, hash_of(path), 0) == -EEXIST)
		r = note(w, path,
			hdf5_fail(w, -ENOTSUP, HDF5_NOWHERE, "two members have this name; HDF5 finds one of them"));
	if (r < 0)
		return r;
	if (target == HDF5_NOWHERE || off == HDF5_NOWHERE)
		return note(w, path,
			hdf5_fail(w, -ENODATA, HDF5_NOWHERE,
				"its header would be at address %" PRIu64 ", behind the end of the file", target));
	return add_object(w, path, off);
}

static enum hdf5_kind kind_of(const struct hdf5_header *h)
{
	if (hdf5_header_find(h, HDF5_MSG_LAYOUT) || hdf5_header_find(h, HDF5_MSG_DATASPACE))
		return HDF5_DATASET;
	return hdf5_header_find(h, HDF5_MSG_DATATYPE) ? HDF5_NAMED_TYPE : HDF5_GROUP;
}

static int visit(struct hdf5_walk *w, size_t number, struct hdf5_scales *scales, const struct hdf5_header *h)
{
	struct hdf5_object *o = &w->file->objects[number];
	int r = 0;

	o->kind = kind_of(h);
	if (o->kind == HDF5_DATASET)
		r = hdf5_dataset_read(w, o, h);
	if (r < 0)
		r = note(w, o->path, r);
	if (r == 0)
		r = hdf5_scales_read(w, scales, (uint32_t)number, h);
	if (r < 0)
		r = note(w, o->path, r);
	if (r == 0 && o->kind == HDF5_GROUP)
		r = hdf5_group_read(w, h, member, &number); /* objects may move */
	return r < 0 ? note(w, w->file->objects[number].path, r) : 0;
}

/* The first thing that went wrong may be why: a damaged cache image has the root group's header. */
static int without_root(struct hdf5_walk *w, int r)
{
	const struct hdf5_problem *first = w->file->kept_problems > 0 ? &w->file->problems[0] : NULL;

	if (!first || first->trouble != HDF5_DAMAGED)
		return r;
	w->bad_off = first->off;
	snprintf(w->bad_text, sizeof(w->bad_text), "%s", first->text);
	return -EBADMSG;
}

static int visit_all(struct hdf5_walk *w, struct hdf5_scales *scales)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < w->file->num_objects; i++) {
		struct hdf5_header h HDF5_HEADER_CLEANUP = { 0 };

		r = hdf5_header_read(w, w->file->objects[i].addr - w->base, false, &h);
		if (i == 0 && r < 0)
			return without_root(w, r); /* nothing is known */
		r = r < 0 ? note(w, w->file->objects[i].path, r) : visit(w, i, scales, &h);
	}
	return r;
}

static uint64_t end_of_pieces(const struct layout_piece *pieces, size_t num, uint64_t end)
{
	for (size_t i = 0; i < num; i++)
		if (pieces[i].off + pieces[i].len > end)
			end = pieces[i].off + pieces[i].len;
	return end;
}

/* The end of all that the walk has found in the file. */
static uint64_t end_of_all(const struct hdf5 *h)
{
	uint64_t end = end_of_pieces(h->metadata, h->num_metadata, 0);

	for (size_t i = 0; i < h->num_objects; i++) {
		const struct hdf5_object *o = &h->objects[i];

		end = end_of_pieces(o->pieces, o->num_pieces, end);
		end = end_of_pieces(o->heap, o->num_heap, end);
		if (o->storage == HDF5_CONTIGUOUS && o->data_off != HDF5_NOWHERE && o->data_off + o->data_bytes > end)
			end = o->data_off + o->data_bytes;
	}
	return end;
}

static int note_end(struct hdf5_walk *w)
{
	struct hdf5 *h = w->file;
	uint64_t end = end_of_all(h);

	if (h->end != HDF5_NOWHERE && h->end > h->size)
		return note(w, "",
			hdf5_fail(w, -ENODATA, h->size, "the file ends here, and says that it has %" PRIu64 " bytes",
				h->end));
	if (h->open_for_writing)
		return note(w, "",
			hdf5_fail(w, -ENODATA, w->base,
				"a writer has it open%s, or died before it closed it ('h5clear -s' takes the mark away)",
				h->open_swmr ? " for others to read meanwhile (SWMR)" : ""));
	if (h->end != HDF5_NOWHERE && end > h->end)
		return note(w, "",
			hdf5_fail(w, -EBADMSG, w->base,
				"the superblock says that the file ends at offset %" PRIu64
				", and objects of it reach to %" PRIu64,
				h->end, end));
	return 0;
}

static int walk_objects(struct hdf5_walk *w)
{
	struct hdf5_scales *scales = NULL;
	struct super s = { 0 };
	uint64_t root;
	int r = read_super(w, &s);

	if (r < 0)
		return r;
	r = check_driver(w, s.driver);
	r = r == 0 ? read_extension(w, s.extension) : r;
	if (r == -ENOTSUP)
		return r; /* addresses mean other files, too */
	if (r < 0)
		r = note(w, "", r);
	root = hdf5_off(w, s.root, 1);
	if (r == 0 && root == HDF5_NOWHERE)
		return hdf5_fail(w, -ENODATA, HDF5_NOWHERE, "the root group would be behind the end of the file");
	if (r == 0)
		r = add_object(w, "", root);
	if (r == 0)
		r = hdf5_scales_create(&scales);
	if (r == 0)
		r = visit_all(w, scales);
	if (r == 0)
		r = hdf5_scales_resolve(w, scales);
	if (r == 0)
		r = hdf5_globals_note(w);
	if (r == 0)
		r = note_end(w);
	hdf5_scales_destroy(scales);
	return r;
}

/* ---- the whole */

static int by_off(const void *a, const void *b)
{
	const struct layout_piece *x = a, *y = b;

	return (x->off > y->off) - (x->off < y->off);
}

/* Sorted, and one where they touch. */
static void tidy_metadata(struct hdf5 *h)
{
	size_t n = 0;

	if (h->num_metadata > 1)
		qsort(h->metadata, h->num_metadata, sizeof(*h->metadata), by_off);
	for (size_t i = 0; i < h->num_metadata; i++) {
		struct layout_piece *p = &h->metadata[i], *last = n > 0 ? &h->metadata[n - 1] : NULL;

		if (last && p->off <= last->off + last->len) {
			if (p->off + p->len > last->off + last->len)
				last->len = p->off + p->len - last->off;
		} else {
			h->metadata[n++] = *p;
		}
	}
	h->num_metadata = n;
}

static void walk_free(struct hdf5_walk *w)
{
	hdf5_map_free(&w->seen);
	hdf5_map_free(&w->by_addr);
	for (unsigned int i = 0; i < w->num_shared; i++)
		hdf5_heap_close(w->shared[i].heap);
	hdf5_globals_free(w->globals);
	hdf5_image_free(w->image);
	hdf5_map_free(&w->masks);
	hdf5_map_free(&w->names);
}

static int explain(const struct hdf5_walk *w, int r, struct cistern_error *err)
{
	if (r == -ENODATA)
		return cistern_error_set(err, r, "HDF5: raw, not yet mapped: %s", w->bad_text);
	return cistern_error_set(err, r, "HDF5: %s", w->bad_text[0] ? w->bad_text : strerror(-r));
}

int hdf5_walk(hdf5_read_fn read_bytes, void *arg, uint64_t size, struct hdf5 *ret, struct cistern_error *err)
{
	struct hdf5 h = { .size = size };
	struct hdf5_walk w = {
		.read_bytes = read_bytes, .arg = arg, .size = size, .file = &h, .shared_table = HDF5_NOWHERE
	};
	int r = hdf5_find(read_bytes, arg, size, &w.base);

	if (r == -ENODATA)
		return cistern_error_set(err, r, "not an HDF5 file: it has no signature");
	if (r < 0)
		return cistern_error_set(err, r, "HDF5: cannot be read: %s", strerror(-r));
	h.base = w.base;
	r = walk_objects(&w);
	if (r < 0)
		explain(&w, r, err);
	walk_free(&w);
	tidy_metadata(&h);
	if (r < 0)
		hdf5_destroy(&h);
	else
		*ret = h;
	return r;
}
