/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * HDF5's own word, for comparison with our walk: "make DIR" makes files of every kind that the walk knows ("seeds DIR" small ones), "show FILE" prints
 * what HDF5 says of a file's datasets, one line each with its chunks behind it, in the form that tests/unit/hdf5-facts prints.
 */
#include <hdf5.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/mpi/h5-show.h"

/* ---- make */

struct shape {
	const char *name;
	int rank;
	hsize_t dims[3];
	hsize_t most[3]; /* 0: as dims */
	hsize_t chunk[3];
	bool deflate, early;
	hsize_t only; /* not 0: just this element (of a vector) is written */
};

static hid_t create(hid_t file, const struct shape *s, hid_t plist)
{
	hsize_t most[3];
	hid_t space, set;

	for (int i = 0; i < s->rank; i++)
		most[i] = s->most[i] ? s->most[i] : s->dims[i];
	space = GET(H5Screate_simple(s->rank, s->dims, most));
	set = GET(H5Dcreate2(file, s->name, H5T_STD_I32LE, space, H5P_DEFAULT, plist, H5P_DEFAULT));
	H5Sclose(space);
	return set;
}

static void write_one(hid_t set, hsize_t at)
{
	hid_t space = GET(H5Dget_space(set)), one = GET(H5Screate(H5S_SCALAR));
	int value = 7;

	DO(H5Sselect_elements(space, H5S_SELECT_SET, 1, &at));
	DO(H5Dwrite(set, H5T_NATIVE_INT, one, space, H5P_DEFAULT, &value));
	H5Sclose(space);
	H5Sclose(one);
}

static void write_all(hid_t set, const struct shape *s)
{
	size_t num = 1;
	int *data;

	for (int i = 0; i < s->rank; i++)
		num *= s->dims[i];
	data = malloc((num ? num : 1) * sizeof(*data));
	demand(data != NULL, "memory");
	for (size_t i = 0; i < num; i++)
		data[i] = (int)(i * i);
	DO(H5Dwrite(set, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, data));
	free(data);
}

static void make_chunked(hid_t file, const struct shape *s)
{
	hid_t plist = GET(H5Pcreate(H5P_DATASET_CREATE)), set;

	DO(H5Pset_chunk(plist, s->rank, s->chunk));
	if (s->deflate) {
		DO(H5Pset_shuffle(plist));
		DO(H5Pset_deflate(plist, 1));
	}
	if (s->early)
		DO(H5Pset_alloc_time(plist, H5D_ALLOC_TIME_EARLY));
	set = create(file, s, plist);
	if (s->only)
		write_one(set, s->only);
	else
		write_all(set, s);
	H5Dclose(set);
	H5Pclose(plist);
}

static void make_plain(hid_t file)
{
	hid_t plist = GET(H5Pcreate(H5P_DATASET_CREATE)), set;
	struct shape s = { "compact", 2, { 3, 4 }, { 0 }, { 0 }, false, false, 0 };

	DO(H5Pset_layout(plist, H5D_COMPACT));
	set = create(file, &s, plist);
	write_all(set, &s);
	H5Dclose(set);
	s.name = "contiguous";
	set = create(file, &s, H5P_DEFAULT);
	write_all(set, &s);
	H5Dclose(set);
	s.name = "unwritten";
	set = create(file, &s, H5P_DEFAULT);
	H5Dclose(set);
	H5Pclose(plist);
	plist = GET(H5Pcreate(H5P_DATASET_CREATE));
	DO(H5Pset_external(plist, "elsewhere.bin", 0, 48));
	s.name = "external";
	set = create(file, &s, plist);
	H5Dclose(set);
	H5Pclose(plist);
}

static void make_types(hid_t file)
{
	hid_t types[] = { H5T_STD_I8BE, H5T_STD_U16BE, H5T_STD_I64LE, H5T_IEEE_F32BE, H5T_IEEE_F64LE, H5T_STD_REF_OBJ,
		H5T_STD_B16LE };
	hid_t space = GET(H5Screate(H5S_SCALAR)), named = GET(H5Tenum_create(H5T_STD_I16LE)), group, text;
	short value = 1;
	char name[32];

	group = GET(H5Gcreate2(file, "types", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
	DO(H5Tenum_insert(named, "one", &value));
	DO(H5Tcommit2(file, "an enum", named, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
	for (unsigned int i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		snprintf(name, sizeof(name), "t%u", i);
		H5Dclose(GET(H5Dcreate2(group, name, types[i], space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)));
	}
	H5Dclose(GET(H5Dcreate2(group, "named", named, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)));
	text = GET(H5Tcopy(H5T_C_S1));
	DO(H5Tset_size(text, 11));
	H5Dclose(GET(H5Dcreate2(group, "text", text, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)));
	DO(H5Tset_size(text, H5T_VARIABLE));
	H5Dclose(GET(H5Dcreate2(group, "texts", text, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)));
	DO(H5Lcreate_hard(file, "types/t0", group, "t0-again", H5P_DEFAULT, H5P_DEFAULT));
	DO(H5Lcreate_soft("/types/t0", group, "soft", H5P_DEFAULT, H5P_DEFAULT));
	DO(H5Lcreate_external("other.h5", "/x", group, "outside", H5P_DEFAULT, H5P_DEFAULT));
	DO(H5Lcreate_hard(file, "/", group, "loop", H5P_DEFAULT, H5P_DEFAULT));
	H5Gclose(group);
	H5Tclose(text);
	H5Tclose(named);
	H5Sclose(space);
}

/* Groups and attributes that outgrow a header. */
static void make_many(hid_t file, unsigned int num)
{
	hid_t group = GET(H5Gcreate2(file, "many", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
	hid_t space = GET(H5Screate(H5S_SCALAR)), set, a;
	char name[64];

	for (unsigned int i = 0; i < num; i++) {
		snprintf(name, sizeof(name), "member with a long name, number %u", i);
		set = GET(H5Dcreate2(group, name, H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
		for (unsigned int j = 0; i == 0 && j < 40; j++) {
			snprintf(name, sizeof(name), "attribute %u", j);
			a = GET(H5Acreate2(set, name, H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT));
			DO(H5Awrite(a, H5T_NATIVE_INT, &j));
			H5Aclose(a);
		}
		H5Dclose(set);
	}
	H5Sclose(space);
	H5Gclose(group);
}

static const struct shape shapes[] = {
	{ "plain", 2, { 10, 7 }, { 0 }, { 4, 3 }, false, false, 0 },
	{ "deflated", 2, { 10, 7 }, { 0 }, { 4, 3 }, true, false, 0 },
	{ "cube", 3, { 9, 5, 6 }, { 0 }, { 2, 5, 4 }, true, false, 0 },
	{ "single", 2, { 5, 4 }, { 0 }, { 5, 4 }, false, false, 0 },
	{ "single-deflated", 2, { 50, 4 }, { 0 }, { 50, 4 }, true, false, 0 },
	{ "in-a-row", 2, { 10, 7 }, { 0 }, { 4, 3 }, false, true, 0 },
	{ "paged", 1, { 2500 }, { 0 }, { 1 }, false, false, 0 },
	{ "paged-deflated", 1, { 2500 }, { 0 }, { 1 }, true, false, 0 },
	{ "paged-one", 1, { 5000 }, { 0 }, { 1 }, false, false, 3000 },
	{ "bounded", 2, { 10, 7 }, { 30, 20 }, { 4, 3 }, false, false, 0 },
	{ "growing", 1, { 3 }, { H5S_UNLIMITED }, { 1 }, false, false, 0 },
	{ "growing-blocks", 1, { 900 }, { H5S_UNLIMITED }, { 1 }, false, false, 0 },
	{ "growing-deflated", 1, { 900 }, { H5S_UNLIMITED }, { 1 }, true, false, 0 },
	{ "growing-far", 1, { 300000 }, { H5S_UNLIMITED }, { 1 }, false, false, 200001 },
	{ "growing-second", 2, { 7, 300 }, { 7, H5S_UNLIMITED }, { 2, 3 }, false, false, 0 },
	{ "growing-third", 3, { 3, 5, 40 }, { 3, 5, H5S_UNLIMITED }, { 2, 2, 1 }, true, false, 0 },
	{ "growing-both", 2, { 70, 30 }, { H5S_UNLIMITED, H5S_UNLIMITED }, { 2, 3 }, false, false, 0 },
	{ "growing-both-deflated", 2, { 70, 60 }, { H5S_UNLIMITED, H5S_UNLIMITED }, { 2, 2 }, true, false, 0 },
};

static void make_shrunk(hid_t file)
{
	struct shape s = { "shrunk", 2, { 20, 20 }, { H5S_UNLIMITED, 20 }, { 3, 3 }, false, false, 0 };
	hsize_t less[2] = { 7, 20 };
	hid_t plist = GET(H5Pcreate(H5P_DATASET_CREATE)), set;

	DO(H5Pset_chunk(plist, 2, s.chunk));
	set = create(file, &s, plist);
	write_all(set, &s);
	DO(H5Dset_extent(set, less));
	H5Dclose(set);
	H5Pclose(plist);
}

static void make_virtual(hid_t file)
{
	hsize_t dims[1] = { 12 };
	hid_t plist = GET(H5Pcreate(H5P_DATASET_CREATE)), space = GET(H5Screate_simple(1, dims, NULL));

	DO(H5Pset_virtual(plist, space, "other.h5", "/x", space));
	H5Dclose(GET(H5Dcreate2(file, "virtual", H5T_NATIVE_INT, space, H5P_DEFAULT, plist, H5P_DEFAULT)));
	H5Sclose(space);
	H5Pclose(plist);
}

static void fill(hid_t file, bool latest)
{
	make_plain(file);
	make_types(file);
	make_many(file, 300);
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
		make_chunked(file, &shapes[i]);
	make_shrunk(file);
	if (latest)
		make_virtual(file);
}

static hid_t create_file(const char *dir, const char *name, H5F_libver_t low, hid_t how)
{
	hid_t access = GET(H5Pcreate(H5P_FILE_ACCESS)), file;
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	DO(H5Pset_libver_bounds(access, low, H5F_LIBVER_LATEST));
	file = GET(H5Fcreate(path, H5F_ACC_TRUNC, how, access));
	H5Pclose(access);
	return file;
}

static void make_file(const char *dir, const char *name, H5F_libver_t low, hid_t how)
{
	hid_t file = create_file(dir, name, low, how);

	fill(file, low == H5F_LIBVER_LATEST);
	H5Fclose(file);
}

static hid_t file_plist(hsize_t user_block, size_t bytes, bool shared)
{
	hid_t how = GET(H5Pcreate(H5P_FILE_CREATE));

	DO(H5Pset_userblock(how, user_block));
	DO(H5Pset_sizes(how, bytes, bytes));
	if (shared) {
		DO(H5Pset_shared_mesg_nindexes(how, 2));
		DO(H5Pset_shared_mesg_index(how, 0, H5O_SHMESG_DTYPE_FLAG | H5O_SHMESG_SDSPACE_FLAG, 4));
		DO(H5Pset_shared_mesg_index(how, 1, H5O_SHMESG_ATTR_FLAG | H5O_SHMESG_FILL_FLAG, 4));
	}
	return how;
}

/* Leaves gaps, which the file remembers. */
static void remove_some(const char *dir, const char *name)
{
	char path[4096];
	hid_t file;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	file = GET(H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT));
	DO(H5Ldelete(file, "growing-both", H5P_DEFAULT));
	DO(H5Ldelete(file, "many", H5P_DEFAULT));
	DO(H5Ldelete(file, "plain", H5P_DEFAULT));
	H5Fclose(file);
}

/* What there is of ways to manage a file's space, and nodes of other sizes. */
static void make_spaces(const char *dir)
{
	hid_t how = file_plist(0, 8, false);

	DO(H5Pset_sym_k(how, 2, 1));
	DO(H5Pset_istore_k(how, 3));
	make_file(dir, "small-nodes.h5", H5F_LIBVER_EARLIEST, how);
	H5Pclose(how);
	how = file_plist(512, 8, false);
	DO(H5Pset_file_space_strategy(how, H5F_FSPACE_STRATEGY_PAGE, true, 1));
	DO(H5Pset_file_space_page_size(how, 512));
	make_file(dir, "paged.h5", H5F_LIBVER_V110, how);
	H5Pclose(how);
	how = file_plist(0, 8, false);
	DO(H5Pset_file_space_strategy(how, H5F_FSPACE_STRATEGY_FSM_AGGR, true, 1));
	make_file(dir, "free-space.h5", H5F_LIBVER_LATEST, how);
	H5Pclose(how);
	remove_some(dir, "paged.h5");
	remove_some(dir, "free-space.h5");
}

/* ---- small files to begin fuzzing with, and what is on the disk while a program still writes */

static void copy_file(const char *dir, const char *from, const char *to)
{
	char path[4096];
	FILE *in, *out;
	int c;

	snprintf(path, sizeof(path), "%s/%s", dir, from);
	in = fopen(path, "rb");
	snprintf(path, sizeof(path), "%s/%s", dir, to);
	out = fopen(path, "wb");
	demand(in && out, to);
	while ((c = fgetc(in)) != EOF)
		fputc(c, out);
	fclose(in);
	demand(fclose(out) == 0, to);
}

static void make_dense(hid_t file)
{
	hid_t how = GET(H5Pcreate(H5P_GROUP_CREATE)), space = GET(H5Screate(H5S_SCALAR)), group, a;
	int value = 3;

	DO(H5Pset_link_phase_change(how, 0, 0));
	DO(H5Pset_attr_phase_change(how, 0, 0));
	group = GET(H5Gcreate2(file, "dense", H5P_DEFAULT, how, H5P_DEFAULT));
	H5Gclose(GET(H5Gcreate2(group, "a", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)));
	H5Gclose(GET(H5Gcreate2(group, "b", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)));
	a = GET(H5Acreate2(group, "CLASS", H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT));
	DO(H5Awrite(a, H5T_NATIVE_INT, &value));
	H5Aclose(a);
	H5Gclose(group);
	H5Sclose(space);
	H5Pclose(how);
}

static void make_seed(const char *dir, const char *name, H5F_libver_t low, hid_t how)
{
	static const struct shape small[] = {
		{ "tree1", 2, { 4, 3 }, { 0 }, { 2, 2 }, true, false, 0 },
		{ "single", 1, { 4 }, { 0 }, { 4 }, true, false, 0 },
		{ "in-a-row", 1, { 4 }, { 0 }, { 2 }, false, true, 0 },
		{ "bounded", 1, { 4 }, { 6 }, { 2 }, false, false, 0 },
		{ "paged", 1, { 1500 }, { 0 }, { 1 }, false, false, 1400 },
		{ "growing", 2, { 1, 12 }, { 1, H5S_UNLIMITED }, { 1, 2 }, true, false, 0 },
		{ "growing-both", 2, { 3, 3 }, { H5S_UNLIMITED, H5S_UNLIMITED }, { 2, 2 }, true, false, 0 },
	};
	hid_t file = create_file(dir, name, low, how);

	make_plain(file);
	make_dense(file);
	for (size_t i = 0; i < sizeof(small) / sizeof(small[0]); i++)
		make_chunked(file, &small[i]);
	if (low == H5F_LIBVER_LATEST)
		make_virtual(file);
	H5Fclose(file);
}

static void make_unflushed(const char *dir, const char *name, const char *copy, H5F_libver_t low)
{
	static const struct shape one = { "x", 1, { 5000 }, { 0 }, { 0 }, false, false, 0 };
	hid_t file = create_file(dir, name, low, H5P_DEFAULT), set = create(file, &one, H5P_DEFAULT);

	write_all(set, &one);
	copy_file(dir, name, copy);
	H5Dclose(set);
	H5Fclose(file);
}

/* ---- rarer kinds */

/* A group whose links and attributes are in heaps; with filters those of the links are compressed. */
static hid_t dense_group(hid_t file, const char *name, const char *filters)
{
	hid_t how = GET(H5Pcreate(H5P_GROUP_CREATE)), group;

	DO(H5Pset_link_phase_change(how, 0, 0));
	DO(H5Pset_attr_phase_change(how, 0, 0));
	for (; *filters; filters++)
		if (*filters == 'd')
			DO(H5Pset_deflate(how, 6));
		else
			DO(H5Pset_fletcher32(how));
	group = GET(H5Gcreate2(file, name, H5P_DEFAULT, how, H5P_DEFAULT));
	H5Pclose(how);
	return group;
}

/* Links in num datasets' names of about len bytes. */
static void fill_group(hid_t group, unsigned int num, int len)
{
	hid_t space = GET(H5Screate(H5S_SCALAR));
	char name[4096];

	for (unsigned int i = 0; i < num; i++) {
		snprintf(name, sizeof(name), "%0*u", len, i);
		H5Dclose(GET(H5Dcreate2(group, name, H5T_STD_I32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)));
	}
	H5Sclose(space);
	H5Gclose(group);
}

/* Filters on the heaps of links: one block, a table of blocks, a table of tables; names that no block has room for. */
static void make_filtered(hid_t file)
{
	static const char *const filters[] = { "d", "f", "df", "fd" };
	char name[32];

	for (size_t i = 0; i < sizeof(filters) / sizeof(filters[0]); i++) {
		snprintf(name, sizeof(name), "few-%s", filters[i]);
		fill_group(dense_group(file, name, filters[i]), 3, 10);
		snprintf(name, sizeof(name), "many-%s", filters[i]);
		fill_group(dense_group(file, name, filters[i]), 100, 60);
		snprintf(name, sizeof(name), "huge-%s", filters[i]);
		fill_group(dense_group(file, name, filters[i]), 3, 4000);
	}
	fill_group(dense_group(file, "tables", "d"), 200, 3000);
	fill_group(dense_group(file, "huge", ""), 3, 4000);
}

static void add_attribute(hid_t to, const char *name, hsize_t bytes)
{
	hid_t space = GET(H5Screate_simple(1, &bytes, NULL));
	hid_t a = GET(H5Acreate2(to, name, H5T_STD_U8LE, space, H5P_DEFAULT, H5P_DEFAULT));
	unsigned char *data = malloc(bytes);

	demand(data != NULL, "memory");
	for (hsize_t i = 0; i < bytes; i++)
		data[i] = (unsigned char)(i * 7);
	DO(H5Awrite(a, H5T_NATIVE_UCHAR, data));
	free(data);
	H5Aclose(a);
	H5Sclose(space);
}

/* What no block of a heap has room for stands by itself; a name that netCDF-4 looks for is among them. */
static void make_large_attributes(hid_t file)
{
	static const hsize_t sizes[] = { 1, 4000, 4096, 5000, 65000, 65535, 65536, 100000, 3000000 };
	hid_t group = dense_group(file, "large", "");
	char name[64];

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		snprintf(name, sizeof(name), "of %llu bytes", (unsigned long long)sizes[i]);
		add_attribute(group, name, sizes[i]);
	}
	add_attribute(group, "NAME", 70000);
	H5Gclose(group);
}

static void select_slab(hid_t space, hsize_t from, hsize_t step, hsize_t num)
{
	DO(H5Sselect_hyperslab(space, H5S_SELECT_OR, &from, &step, &num, NULL));
}

static void select_unlimited(hid_t space, hsize_t from)
{
	hsize_t one = 1, all = H5S_UNLIMITED;

	DO(H5Sselect_hyperslab(space, H5S_SELECT_SET, &from, NULL, &one, &all));
}

/* Mappings with selections of all kinds: all, regular, irregular, without limit. */
static void make_mapped(hid_t file)
{
	hsize_t dims[1] = { 40 }, most[1] = { H5S_UNLIMITED }, ten[1] = { 10 };
	hid_t plist = GET(H5Pcreate(H5P_DATASET_CREATE)), space = GET(H5Screate_simple(1, dims, most));
	hid_t from = GET(H5Screate_simple(1, ten, most));

	DO(H5Sselect_none(space));
	select_slab(space, 0, 1, 10);
	DO(H5Sselect_all(from));
	DO(H5Pset_virtual(plist, space, "a.h5", "/x", from));
	DO(H5Sselect_none(space));
	select_slab(space, 10, 3, 3);
	DO(H5Sselect_none(from));
	select_slab(from, 0, 1, 1);
	select_slab(from, 4, 1, 2);
	DO(H5Pset_virtual(plist, space, ".", "/contiguous", from));
	H5Dclose(GET(H5Dcreate2(file, "mapped", H5T_NATIVE_INT, space, H5P_DEFAULT, plist, H5P_DEFAULT)));
	H5Sclose(from);
	H5Sclose(space);
	H5Pclose(plist);
}

/* As long as what it maps, which is in this file. */
static void make_mapped_growing(hid_t file)
{
	hsize_t dims[1] = { 50 }, most[1] = { H5S_UNLIMITED };
	hid_t plist = GET(H5Pcreate(H5P_DATASET_CREATE)), space = GET(H5Screate_simple(1, dims, most));

	select_unlimited(space, 0);
	DO(H5Pset_virtual(plist, space, ".", "/pieces", space));
	H5Dclose(GET(H5Dcreate2(file, "mapped-growing", H5T_NATIVE_INT, space, H5P_DEFAULT, plist, H5P_DEFAULT)));
	H5Sclose(space);
	H5Pclose(plist);
}

/* Elements in pieces of three files, the last of them with room without limit; written, so that the files are there. */
static void make_external(hid_t file)
{
	struct shape s = { "pieces", 1, { 50 }, { H5S_UNLIMITED }, { 0 }, false, false, 0 };
	hid_t plist = GET(H5Pcreate(H5P_DATASET_CREATE)), set;

	DO(H5Pset_external(plist, "piece-a.bin", 100, 40));
	DO(H5Pset_external(plist, "piece-b.bin", 0, 60));
	DO(H5Pset_external(plist, "piece-a.bin", 200, H5F_UNLIMITED));
	set = create(file, &s, plist);
	write_all(set, &s);
	H5Dclose(set);
	H5Pclose(plist);
}

static void make_rare(const char *dir)
{
	hid_t file = create_file(dir, "heaps.h5", H5F_LIBVER_LATEST, H5P_DEFAULT);

	make_filtered(file);
	make_large_attributes(file);
	H5Fclose(file);
	file = create_file(dir, "elsewhere.h5", H5F_LIBVER_LATEST, H5P_DEFAULT);
	make_plain(file);
	make_mapped(file);
	make_external(file);
	make_mapped_growing(file);
	H5Fclose(file);
}

/* Addresses and lengths of all widths that there are. */
static void make_widths(const char *dir)
{
	static const size_t widths[][2] = { { 2, 2 }, { 2, 4 }, { 2, 8 }, { 4, 2 }, { 4, 8 }, { 8, 2 }, { 8, 4 } };
	static const H5F_libver_t lows[] = { H5F_LIBVER_EARLIEST, H5F_LIBVER_V18 };
	char name[64];

	for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++)
		for (size_t k = 0; k < 2; k++) {
			hid_t how;

			if (k > 0 && widths[i][1] == 2)
				continue; /* HDF5 cannot read back its heaps' limit of 65536 bytes */
			how = GET(H5Pcreate(H5P_FILE_CREATE));
			DO(H5Pset_sizes(how, widths[i][0], widths[i][1]));
			snprintf(name, sizeof(name), "width-%zu-%zu-%zu.h5", widths[i][0], widths[i][1], k);
			make_seed(dir, name, lows[k], how);
			H5Pclose(how);
		}
}

/*
 * A program that lets others read while it writes (SWMR): what there is on the disk each time that it has flushed, and in
 * between. The copies keep the mark of an open file.
 */
static void make_swmr(const char *dir)
{
	struct shape s = { "rows", 2, { 0, 50 }, { H5S_UNLIMITED, 50 }, { 4, 25 }, true, false, 0 };
	hid_t file = create_file(dir, "swmr.h5", H5F_LIBVER_LATEST, H5P_DEFAULT);
	hid_t plist = GET(H5Pcreate(H5P_DATASET_CREATE)), set;
	char name[64];

	DO(H5Pset_chunk(plist, 2, s.chunk));
	DO(H5Pset_deflate(plist, 1));
	set = create(file, &s, plist);
	DO(H5Fstart_swmr_write(file));
	for (unsigned int i = 0; i < 5; i++) {
		s.dims[0] += 30;
		DO(H5Dset_extent(set, s.dims));
		write_all(set, &s);
		DO(H5Dflush(set));
		snprintf(name, sizeof(name), "swmr-%u.h5", i);
		copy_file(dir, "swmr.h5", name);
	}
	H5Dclose(set);
	H5Pclose(plist);
	H5Fclose(file);
}

/* Compressed heaps, huge objects, mappings and external files; small. */
static void make_heaps_seed(const char *dir)
{
	hid_t file = create_file(dir, "heaps", H5F_LIBVER_LATEST, H5P_DEFAULT), group;

	fill_group(dense_group(file, "few", "d"), 3, 10);
	fill_group(dense_group(file, "many", "df"), 40, 60);
	fill_group(dense_group(file, "long", "fd"), 2, 4000);
	group = dense_group(file, "large", "");
	add_attribute(group, "of 5000 bytes", 5000);
	add_attribute(group, "NAME", 4097);
	H5Gclose(group);
	make_mapped(file);
	make_external(file);
	H5Fclose(file);
}

static void make_seeds(const char *dir)
{
	hid_t how = file_plist(0, 8, true);

	make_seed(dir, "old", H5F_LIBVER_EARLIEST, H5P_DEFAULT);
	make_seed(dir, "latest", H5F_LIBVER_LATEST, H5P_DEFAULT);
	make_seed(dir, "shared", H5F_LIBVER_LATEST, how);
	H5Pclose(how);
	make_heaps_seed(dir);
	make_unflushed(dir, "flushed", "unflushed", H5F_LIBVER_EARLIEST);
	make_unflushed(dir, "flushed-latest", "unflushed-latest", H5F_LIBVER_LATEST);
}

static void make(const char *dir)
{
	hid_t how;

	make_file(dir, "old.h5", H5F_LIBVER_EARLIEST, H5P_DEFAULT);
	make_file(dir, "middle.h5", H5F_LIBVER_V18, H5P_DEFAULT);
	make_file(dir, "latest.h5", H5F_LIBVER_LATEST, H5P_DEFAULT);
	how = file_plist(0, 4, false);
	make_file(dir, "old-4.h5", H5F_LIBVER_EARLIEST, how);
	H5Pclose(how);
	how = file_plist(0, 8, true);
	make_file(dir, "shared.h5", H5F_LIBVER_LATEST, how);
	H5Pclose(how);
	how = file_plist(2048, 8, false);
	make_file(dir, "block.h5", H5F_LIBVER_EARLIEST, how);
	H5Pclose(how);
	make_spaces(dir);
	make_rare(dir);
	make_widths(dir);
}

/* ---- small files to be damaged one place at a time (tests/golden/damage_hdf5.py) */

/* Symbol tables and B-trees of version 1, in nodes of two entries where k is 1. */
static void make_first(const char *dir, const char *name, unsigned int k)
{
	hid_t how = file_plist(0, 8, false), file, group;

	DO(H5Pset_sym_k(how, k > 0 ? k : 16, k > 0 ? k : 4));
	if (k > 0) /* and a superblock of version 1 */
		DO(H5Pset_istore_k(how, k));
	file = create_file(dir, name, H5F_LIBVER_EARLIEST, how);
	make_chunked(file, &(struct shape){ "chunks", 1, { 20 }, { 0 }, { 4 }, false, false, 0 });
	make_chunked(file, &(struct shape){ "packed", 2, { 4, 4 }, { 0 }, { 4, 4 }, true, false, 0 });
	group = GET(H5Gcreate2(file, "group", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
	fill_group(group, 5, 3);
	H5Fclose(file);
	H5Pclose(how);
}

/* Links and attributes in heaps, found by B-trees of version 2; the superblock of version 2. */
static void make_heaps(const char *dir, const char *name)
{
	hid_t file = create_file(dir, name, H5F_LIBVER_V18, H5P_DEFAULT);

	make_chunked(file, &(struct shape){ "chunks", 1, { 8 }, { 0 }, { 4 }, false, false, 0 });
	fill_group(dense_group(file, "dense", ""), 4, 8);
	fill_group(dense_group(file, "packed", "df"), 3, 8);
	fill_group(dense_group(file, "many", ""), 12, 60);
	H5Fclose(file);
}

/* Chunk indexes of all kinds of the superblock of version 3. */
static void make_indexes(const char *dir, const char *name)
{
	const hsize_t any = H5S_UNLIMITED;
	const struct shape all[] = { { "single", 1, { 4 }, { 0 }, { 4 }, false, false, 0 },
		{ "implicit", 1, { 8 }, { 0 }, { 4 }, false, true, 0 },
		{ "fixed", 1, { 12 }, { 0 }, { 4 }, false, false, 0 },
		{ "growing", 1, { 40 }, { any }, { 2 }, false, false, 0 },
		{ "tree", 2, { 6, 6 }, { any, any }, { 2, 2 }, false, false, 0 } };
	hid_t file = create_file(dir, name, H5F_LIBVER_LATEST, H5P_DEFAULT);

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		make_chunked(file, &all[i]);
	H5Fclose(file);
}

static void make_small(const char *dir)
{
	make_first(dir, "superblock-0.h5", 0);
	make_first(dir, "superblock-1.h5", 1);
	make_heaps(dir, "superblock-2.h5");
	make_indexes(dir, "superblock-3.h5");
}

/* A file with 60 integers, i * i each, and 4 as fill value, of which 10 are in piece.bin beside it and 50 in a file of that name. */
static void make_pieces(const char *name, const char *external)
{
	struct shape s = { "x", 1, { 60 }, { 0 }, { 0 }, false, false, 0 };
	hid_t file = create_file(".", name, H5F_LIBVER_EARLIEST, H5P_DEFAULT);
	hid_t plist = GET(H5Pcreate(H5P_DATASET_CREATE)), set;

	DO(H5Pset_fill_value(plist, H5T_NATIVE_INT, &(int){ 4 }));
	DO(H5Pset_external(plist, "piece.bin", 8, 40));
	DO(H5Pset_external(plist, external, 0, 200));
	set = create(file, &s, plist);
	write_all(set, &s);
	H5Dclose(set);
	H5Pclose(plist);
	H5Fclose(file);
}

/* One dataset of many small chunks; for the time that a walk takes. */
static void make_large(const char *dir, H5F_libver_t low, hsize_t num)
{
	struct shape s = { "x", 2, { num / 100, 100 }, { H5S_UNLIMITED, H5S_UNLIMITED }, { 1, 1 }, false, true, 0 };
	hid_t file = create_file(dir, low == H5F_LIBVER_EARLIEST ? "large-old.h5" : "large.h5", low, H5P_DEFAULT);

	make_chunked(file, &s);
	H5Fclose(file);
}

/* One file that drivers write into several: NAME-0.h5 and so on in pieces of 4 KiB, NAME-m.h5 for metadata and NAME-r.h5 for data. */
static void make_several(const char *dir)
{
	static const H5F_libver_t lows[] = { H5F_LIBVER_EARLIEST, H5F_LIBVER_LATEST };
	static const char *const names[][2] = { { "old-%d.h5", "old" }, { "new-%d.h5", "new" } };
	char path[4096];

	for (size_t i = 0; i < 2; i++)
		for (size_t k = 0; k < 2; k++) {
			hid_t access = GET(H5Pcreate(H5P_FILE_ACCESS)), file;

			if (k == 0)
				DO(H5Pset_fapl_family(access, 4096, H5P_DEFAULT));
			else
				DO(H5Pset_fapl_split(access, "-m.h5", H5P_DEFAULT, "-r.h5", H5P_DEFAULT));
			DO(H5Pset_libver_bounds(access, lows[i], H5F_LIBVER_LATEST));
			snprintf(path, sizeof(path), "%s/%s", dir, names[i][k]);
			file = GET(H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access));
			make_plain(file);
			H5Fclose(file);
			H5Pclose(access);
		}
}

/* Closed with what was in memory in one block of the file (a metadata cache image), which its next opening takes in. */
static void make_image(const char *path)
{
	H5AC_cache_image_config_t image = { H5AC__CURR_CACHE_IMAGE_CONFIG_VERSION, true, false,
		H5AC__CACHE_IMAGE__ENTRY_AGEOUT__NONE };
	hid_t access = GET(H5Pcreate(H5P_FILE_ACCESS)), file;

	DO(H5Pset_libver_bounds(access, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST));
	DO(H5Pset_mdc_image_config(access, &image));
	file = GET(H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access));
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
		make_chunked(file, &shapes[i]);
	make_types(file);
	make_many(file, 40);
	DO(H5Fclose(file));
	H5Pclose(access);
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "show") == 0) {
		show(argv[2]);
	} else if (argc == 3 && strcmp(argv[1], "make") == 0) {
		make(argv[2]);
	} else if (argc == 3 && strcmp(argv[1], "seeds") == 0) {
		make_seeds(argv[2]);
	} else if (argc == 3 && strcmp(argv[1], "swmr") == 0) {
		make_swmr(argv[2]);
	} else if (argc == 3 && strcmp(argv[1], "small") == 0) {
		make_small(argv[2]);
	} else if (argc == 4 && strcmp(argv[1], "pieces") == 0) {
		make_pieces(argv[2], argv[3]);
	} else if (argc == 3 && strcmp(argv[1], "image") == 0) {
		make_image(argv[2]);
	} else if (argc == 3 && strcmp(argv[1], "several") == 0) {
		make_several(argv[2]);
	} else if (argc == 4 && strcmp(argv[1], "large") == 0) {
		make_large(argv[2], H5F_LIBVER_EARLIEST, strtoull(argv[3], NULL, 10));
		make_large(argv[2], H5F_LIBVER_LATEST, strtoull(argv[3], NULL, 10));
	} else {
		fputs("usage: h5-facts show FILE | make DIR | seeds DIR | swmr DIR | small DIR | several DIR | image FILE | pieces FILE EXTERNAL | large DIR CHUNKS\n",
			stderr);
		return 2;
	}
	return 0;
}
