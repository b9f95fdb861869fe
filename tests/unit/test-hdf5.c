/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The walk of HDF5 files that are damaged, cut short or not written yet: each is noticed, with its place. Whole files are
 * compared with HDF5's own word in tests/bats/hdf5.bats; these here were made by HDF5, too (tests/mpi/h5-facts.c, "seeds").
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/codec/hdf5_private.h"
#include "tests/lib/tap.h"

struct bytes {
	uint8_t *data; /* owned */
	size_t size;
};

static ssize_t read_bytes(void *buf, size_t len, uint64_t off, void *arg)
{
	const struct bytes *b = arg;

	if (off >= b->size)
		return 0;
	if (len > b->size - off)
		len = b->size - (size_t)off;
	memcpy(buf, b->data + off, len);
	return (ssize_t)len;
}

static struct bytes load(const char *name)
{
	const char *top = getenv("top_srcdir");
	struct bytes b = { malloc(1 << 20), 0 };
	char path[4096];
	FILE *in;

	snprintf(path, sizeof(path), "%s/tests/fuzz/corpus/hdf5/%s", top ? top : ".", name);
	in = fopen(path, "rb");
	if (in) {
		b.size = fread(b.data, 1, 1 << 20, in);
		fclose(in);
	}
	ok(b.size > 0, "%s is there", path);
	return b;
}

/* The nth place of some bytes; 0: none. */
static size_t find(const struct bytes *b, const char *what, size_t len, unsigned int nth)
{
	for (size_t i = 0; i + len <= b->size; i++)
		if (memcmp(b->data + i, what, len) == 0 && nth-- == 0)
			return i;
	return 0;
}

static void put(struct bytes *b, size_t at, uint64_t v, unsigned int bytes)
{
	for (unsigned int i = 0; i < bytes; i++)
		b->data[at + i] = (uint8_t)(v >> 8 * i);
}

static uint64_t get(const struct bytes *b, size_t at, unsigned int bytes)
{
	uint64_t v = 0;

	for (unsigned int i = bytes; i > 0; i--)
		v = v << 8 | b->data[at + i - 1];
	return v;
}

/* What a walk has to say: as bad as that, of that object, with that text. */
static void expect(struct bytes *b, enum hdf5_trouble trouble, const char *object, const char *text, const char *name)
{
	struct hdf5 h HDF5_CLEANUP = { 0 };
	struct cistern_error err = { 0 };
	int r = hdf5_walk(read_bytes, b, b->size, &h, &err);
	const struct hdf5_problem *p = r == 0 ? hdf5_worst(&h, trouble) : NULL;

	if (!object) {
		ok(r < 0 && strstr(err.text, text), "%s: %s", name, text);
		tap_diag("%d %s", r, err.text);
		return;
	}
	ok(p && p->trouble == trouble && strcmp(p->object, object) == 0 && strstr(p->text, text), "%s: %s", name, text);
	if (p)
		tap_diag("%d %s: %s", p->trouble, p->object, p->text);
	else
		tap_diag("%d %s", r, err.text);
}

/* ---- version 0: no checksums, so that each thing can be broken by itself */

struct wound {
	const char *name;
	const char *near; /* after the nth of these four letters, or with NULL from the start */
	unsigned int nth;
	size_t at;
	uint64_t value;
	unsigned int bytes;
	enum hdf5_trouble trouble;
	const char *object, *text; /* object NULL: nothing can be walked */
};

/* Places by the format: superblock II.A, TREE III.A.1, SNOD III.B, HEAP III.D. The first TREE is the root group's. */
static const struct wound wounds[] = {
	{ "version of the superblock", NULL, 0, 8, 9, 1, 0, NULL, "superblock of version 9" },
	{ "width of addresses", NULL, 0, 13, 3, 1, 0, NULL, "addresses of 3" },
	{ "no root group", NULL, 0, 64, UINT64_MAX, 8, 0, NULL, "no root group" },
	{ "root group behind the end", NULL, 0, 64, 1 << 30, 8, 0, NULL, "raw, not yet mapped" },
	{ "root group in the superblock", NULL, 0, 64, 0, 8, 0, NULL, "has to be here" },
	{ "end of file", NULL, 0, 40, 1 << 30, 8, HDF5_NOT_WRITTEN, "", "says that it has 1073741824 bytes" },
	{ "type of a B-tree", "TREE", 0, 4, 1, 1, HDF5_DAMAGED, "", "B-tree node of type 1 and not 0" },
	{ "level of a B-tree", "TREE", 0, 5, 200, 1, HDF5_DAMAGED, "", "impossible level 200" },
	{ "a B-tree's level of nothing", "TREE", 0, 5, 1, 1, HDF5_DAMAGED, "", "\"TREE\" has to be here" },
	{ "entries of a B-tree", "TREE", 0, 6, 65535, 2, HDF5_NOT_WRITTEN, "", "behind the end of the file" },
	{ "a node's symbols", "SNOD", 0, 6, 65535, 2, HDF5_NOT_WRITTEN, "", "behind the end of the file" },
	{ "version of a node", "SNOD", 0, 4, 7, 1, HDF5_NOT_UNDERSTOOD, "", "symbol table node of version 7" },
	{ "a name", "SNOD", 0, 8, 1 << 20, 8, HDF5_DAMAGED, "", "behind the end of the names" },
	{ "a member behind the end", "SNOD", 0, 16, 1 << 30, 8, HDF5_NOT_WRITTEN, "bounded",
		"behind the end of the file" },
	{ "a member in the middle of nothing", "SNOD", 0, 16, 9, 8, HDF5_DAMAGED, "bounded", "has to be here" },
	{ "length of names", "HEAP", 0, 8, 1 << 30, 8, HDF5_DAMAGED, "", "local heap of 1073741824 bytes" },
	{ "version of a heap", "HEAP", 0, 4, 3, 1, HDF5_NOT_UNDERSTOOD, "", "local heap of version 3" },
};

static void test_wounds(void)
{
	for (size_t i = 0; i < sizeof(wounds) / sizeof(wounds[0]); i++) {
		const struct wound *w = &wounds[i];
		struct bytes b = load("old");

		put(&b, (w->near ? find(&b, w->near, 4, w->nth) : 0) + w->at, w->value, w->bytes);
		expect(&b, w->trouble, w->object, w->text, w->name);
		free(b.data);
	}
}

/* The first B-tree of chunks, that of tree1 with its two dimensions: keys of 4 + 4 + 3 * 8 bytes, then an address. */
static size_t chunk_tree(const struct bytes *b)
{
	return find(b, "TREE\x01", 5, 0);
}

static void test_chunks(void)
{
	struct bytes b = load("old");
	size_t tree = chunk_tree(&b);
	unsigned int key = 8 + 8 * 3;
	size_t first = tree + 24 + key, second = first + 8 + key;

	ok(tree > 0 && get(&b, tree + 6, 2) >= 2, "the file has a tree of two chunks");
	put(&b, second, get(&b, first, 8), 8);
	expect(&b, HDF5_DAMAGED, "tree1", "two chunks overlap", "two chunks at one place");
	put(&b, second, b.size - 3, 8);
	expect(&b, HDF5_NOT_WRITTEN, "tree1", "lies behind the end of the file", "a chunk that the file has not");
	put(&b, second, UINT64_MAX, 8);
	expect(&b, HDF5_NOT_WRITTEN, "tree1", "lies behind the end of the file", "a chunk without address");
	put(&b, second - key + 8, 1, 8);
	expect(&b, HDF5_DAMAGED, "tree1", "which is no multiple of 2", "a chunk between two places");
	free(b.data);
}

/* A tree whose node is its own child. */
static void test_loop(void)
{
	struct bytes b = load("old");
	size_t tree = find(&b, "TREE", 4, 0);

	put(&b, tree + 5, 1, 1);
	put(&b, tree + 24 + 8, tree, 8);
	expect(&b, HDF5_DAMAGED, "", "impossible level 1", "a loop in a tree");
	free(b.data);
}

/* Two collections of the global heap up to the end of the file: of many, each would list the objects of all behind it. */
static void test_overlap(void)
{
	struct bytes b = load("netcdf");
	size_t first = find(&b, "GCOL", 4, 0), second = first + 4000, block = find(&b, "OCHK", 4, 3), id;
	uint8_t address[8];

	memcpy(address, (uint8_t[8]){ first & 0xff, first >> 8 }, sizeof(address));
	id = find(&b, (const char *)address, sizeof(address), 3); /* the last one in that block, before its checksum */
	put(&b, first + 8, b.size - first, 8);
	memcpy(b.data + second, b.data + first, 8);
	put(&b, second + 8, b.size - second, 8);
	put(&b, id, second, 8);
	put(&b, id + 12, hdf5_checksum(b.data + block, id + 12 - block), 4);
	expect(&b, HDF5_DAMAGED, "T", "collections of the global heap overlap", "lists in two collections");
	free(b.data);
}

/* ---- cut short */

static void test_cuts(const char *name)
{
	struct bytes b = load(name);
	size_t whole = b.size, unnoticed = 0, cuts = 0;

	for (b.size = 0; b.size < whole; b.size += 97, cuts++) {
		struct hdf5 h HDF5_CLEANUP = { 0 };
		int r = hdf5_walk(read_bytes, &b, b.size, &h, NULL);

		unnoticed += r == 0 && !hdf5_worst(&h, HDF5_NOT_WRITTEN);
	}
	ok(cuts > 100 && unnoticed == 0, "%s: %zu of %zu lengths that are too short are not noticed", name, unnoticed,
		cuts);
	free(b.data);
}

/* ---- checksums: every byte that one protects */

static bool is_noticed(struct bytes *b)
{
	struct hdf5 h HDF5_CLEANUP = { 0 };

	return hdf5_walk(read_bytes, b, b->size, &h, NULL) < 0 || hdf5_worst(&h, HDF5_NOT_WRITTEN);
}

static void test_flips(void)
{
	static const char *const blocks[] = { "OHDR", "BTHD", "BTLF", "FRHP", "FHDB", "FAHD", "FADB", "EAHD", "EAIB" };
	struct bytes b = load("latest");

	ok(!is_noticed(&b), "the whole file is fine");
	for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++) {
		size_t at = find(&b, blocks[i], 4, 0), missed = 0;

		for (size_t k = 0; k < 14 && at > 0; k++) {
			b.data[at + k] ^= 0x40;
			missed += !is_noticed(&b);
			b.data[at + k] ^= 0x40;
		}
		ok(at > 0 && missed == 0, "each changed byte of the first %s is noticed", blocks[i]);
	}
	free(b.data);
}

/* ---- what there is while a program writes */

static void test_unflushed(void)
{
	static const char *const names[] = { "unflushed", "unflushed-latest" };

	for (size_t i = 0; i < 2; i++) {
		struct bytes b = load(names[i]);

		expect(&b, 0, NULL, "raw, not yet mapped", names[i]);
		b.data = realloc(b.data, 1 << 20);
		memset(b.data + b.size, 0, (1 << 20) - b.size);
		b.size = 1 << 20;
		expect(&b, 0, NULL, "raw, not yet mapped", "and where zeros follow");
		free(b.data);
	}
}

static void test_layout(void)
{
	struct bytes b = load("netcdf");
	struct layout l LAYOUT_CLEANUP = { 0 };
	bool has_lon = false;

	is_int(hdf5_layout(read_bytes, &b, b.size, &l, NULL), 0, "a netCDF-4 file has a layout");
	ok(strncmp(l.format, "netCDF-4", 8) == 0, "it is one of netCDF-4");
	ok(l.has_records && l.num_records == 3, "three records");
	for (size_t i = 0; i < l.num_objects; i++) {
		const struct layout_object *o = &l.objects[i];

		has_lon |= strcmp(o->name, "lon") == 0;
		if (strcmp(o->name, "time") == 0)
			ok(o->kind == LAYOUT_CHUNKS && o->num_pieces == 1 && strcmp(o->type, "double") == 0,
				"time is there");
		if (strcmp(o->name, "lat") == 0)
			ok(o->kind == LAYOUT_VARIABLE && o->count == 1 && o->len == 16, "lat is there");
	}
	ok(!has_lon, "a dimension without variable is none");
	free(b.data);
}

static void test_others(void)
{
	uint8_t nothing[600] = { 0 };
	struct bytes b = { nothing, sizeof(nothing) };
	struct cistern_error err = { 0 };
	struct hdf5 h = { 0 };

	is_int(hdf5_walk(read_bytes, &b, b.size, &h, &err), -ENODATA, "zeros are no HDF5 file");
	ok(strstr(err.text, "no signature"), "and it says so");
	ok(hdf5_is("\x89HDF\r\n\x1a\n", 8) && !hdf5_is("\x89HDF\r\n\x1a\r", 8) && !hdf5_is("\x89HDF", 4),
		"the signature");
}

int main(void)
{
	test_wounds();
	test_chunks();
	test_loop();
	test_overlap();
	test_cuts("old");
	test_cuts("latest");
	test_flips();
	test_unflushed();
	test_layout();
	test_others();
	return done_testing();
}
