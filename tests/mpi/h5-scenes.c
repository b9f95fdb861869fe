/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * h5-scenes DIR [SCENE...]: what parallel programs do to HDF5 files, one thing in each scene, one scene (without any named: all) after
 * the other, each with its file DIR/SCENE.h5; "h5-scenes" alone lists the scenes. All ranks of a run work on one file, each by the
 * directory that it is given. No times are stored and nothing depends on who is first, so a scene gives the same bytes wherever it is
 * played with as many ranks, except those (marked with "*") where HDF5 gives other ones each time.
 *
 * h5-scenes --hold FILE: one process makes a file and says on its standard output what it has done: "written", "flushed", "closed"; it goes
 * on with each line that it reads.
 */
#include <hdf5.h>
#include <malloc.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS    48
#define COLUMNS 60

/* What the libraries below us leave to the end of the process is not ours to free. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "detect_leaks=0:max_malloc_fill_size=2147483647";
}

static void demand(bool condition, const char *what)
{
	if (condition)
		return;
	fprintf(stderr, "h5-scenes: %s failed\n", what);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

#define DO(call) demand((call) >= 0, #call)

static hid_t must(hid_t id, const char *what)
{
	demand(id >= 0, what);
	return id;
}

#define GET(call) must((call), #call)

struct scene;

struct play {
	const struct scene *scene;
	const char *path;
	int rank, num;
	hid_t file, transfer;
};

/* How a field is cut among the ranks. */
enum cut { BLOCKS, IN_TURN, BACKWARDS };

struct scene {
	const char *name, *is;
	void (*run)(struct play *p);
	bool chunked, collective, latest, together; /* together: metadata are read and written collectively */
	bool deflate, late, never;                  /* late: fill values come with the chunks; never: nobody fills */
	bool varies; /* not the same bytes each time: times of the superblock's extension, memory that nobody has set */
	hsize_t page, align; /* bytes; 0: as HDF5 likes */
};

/* ---- files and fields */

static hid_t access_list(const struct play *p)
{
	hid_t access = GET(H5Pcreate(H5P_FILE_ACCESS));

	DO(H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL));
	if (p->scene->latest)
		DO(H5Pset_libver_bounds(access, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST));
	if (p->scene->together) {
		DO(H5Pset_all_coll_metadata_ops(access, true));
		DO(H5Pset_coll_metadata_write(access, true));
	}
	if (p->scene->align)
		DO(H5Pset_alignment(access, 1, p->scene->align));
	return access;
}

static void open_file(struct play *p, bool again)
{
	hid_t access = access_list(p), how = GET(H5Pcreate(H5P_FILE_CREATE));

	DO(H5Pset_obj_track_times(how, false));
	if (p->scene->page) {
		DO(H5Pset_file_space_strategy(how, H5F_FSPACE_STRATEGY_PAGE, false, 1));
		DO(H5Pset_file_space_page_size(how, p->scene->page));
	}
	p->file = again ? GET(H5Fopen(p->path, H5F_ACC_RDWR, access))
			: GET(H5Fcreate(p->path, H5F_ACC_TRUNC, how, access));
	H5Pclose(how);
	H5Pclose(access);
}

static void set_fill(const struct play *p, hid_t how)
{
	double fill = -1;

	DO(H5Pset_fill_value(how, H5T_NATIVE_DOUBLE, &fill));
	if (p->scene->late)
		DO(H5Pset_alloc_time(how, H5D_ALLOC_TIME_LATE));
	if (p->scene->never)
		DO(H5Pset_fill_time(how, H5D_FILL_TIME_NEVER));
}

/* steps x ROWS x COLUMNS, more steps can come where it is chunked. */
static hid_t make_field(const struct play *p, const char *name, hsize_t steps)
{
	hsize_t dims[3] = { steps, ROWS, COLUMNS }, most[3] = { H5S_UNLIMITED, ROWS, COLUMNS }, chunk[3] = { 1, 7, 22 };
	hid_t how = GET(H5Pcreate(H5P_DATASET_CREATE)), field, space;

	space = GET(H5Screate_simple(3, dims, p->scene->chunked ? most : NULL));
	DO(H5Pset_obj_track_times(how, false));
	if (p->scene->chunked)
		DO(H5Pset_chunk(how, 3, chunk));
	if (p->scene->deflate)
		DO(H5Pset_deflate(how, 1));
	set_fill(p, how);
	field = GET(H5Dcreate2(p->file, name, H5T_IEEE_F64LE, space, H5P_DEFAULT, how, H5P_DEFAULT));
	H5Sclose(space);
	H5Pclose(how);
	return field;
}

static void select_rows(hid_t space, hsize_t step, hsize_t from, hsize_t rows, bool first)
{
	hsize_t start[3] = { step, from, 0 }, count[3] = { 1, rows, COLUMNS };

	DO(H5Sselect_hyperslab(space, first ? H5S_SELECT_SET : H5S_SELECT_OR, start, NULL, count, NULL));
}

/* The rank's share of a step; how many elements that are. */
static hsize_t select_share(const struct play *p, hid_t space, hsize_t step, enum cut cut)
{
	hsize_t rank = (hsize_t)(cut == BACKWARDS ? p->num - 1 - p->rank : p->rank), num = (hsize_t)p->num, rows = 0;
	hsize_t from = ROWS * rank / num, to = ROWS * (rank + 1) / num;

	DO(H5Sselect_none(space));
	if (cut != IN_TURN) {
		select_rows(space, step, from, to - from, true);
		return (to - from) * COLUMNS;
	}
	for (hsize_t row = rank; row < ROWS; row += num, rows++)
		select_rows(space, step, row, 1, rows == 0);
	return rows * COLUMNS;
}

static void write_step(const struct play *p, hid_t field, hsize_t step, enum cut cut, double about)
{
	hid_t space = GET(H5Dget_space(field)), memory;
	hsize_t num = select_share(p, space, step, cut);
	double *data = malloc((num + 1) * sizeof(*data));

	demand(data != NULL, "memory");
	for (hsize_t i = 0; i < num; i++)
		data[i] = about + (double)step * 1e6 + (double)p->rank * 1e5 + (double)(i % 1000);
	memory = GET(H5Screate_simple(1, &num, NULL));
	DO(H5Dwrite(field, H5T_NATIVE_DOUBLE, memory, space, p->transfer, data));
	H5Sclose(memory);
	H5Sclose(space);
	free(data);
}

static void write_attribute(hid_t where, const char *name, int value)
{
	hid_t space = GET(H5Screate(H5S_SCALAR)), a;

	a = GET(H5Acreate2(where, name, H5T_STD_I32LE, space, H5P_DEFAULT, H5P_DEFAULT));
	DO(H5Awrite(a, H5T_NATIVE_INT, &value));
	H5Aclose(a);
	H5Sclose(space);
}

/* ---- what happens in the scenes */

static void fields(struct play *p)
{
	static const enum cut cuts[] = { BLOCKS, IN_TURN };
	char name[16];

	for (int i = 0; i < 2; i++) {
		hid_t field;

		snprintf(name, sizeof(name), "field%d", i);
		field = make_field(p, name, 3);
		write_attribute(field, "number", i);
		for (hsize_t step = 0; step < 3; step++)
			write_step(p, field, step, cuts[i], 0);
		H5Dclose(field);
	}
}

static void flushes(struct play *p)
{
	hid_t field = make_field(p, "field", 4);

	for (hsize_t step = 0; step < 4; step++) {
		write_step(p, field, step, step % 2 ? IN_TURN : BLOCKS, 0);
		DO(H5Fflush(p->file, H5F_SCOPE_GLOBAL));
	}
	H5Dclose(field);
	write_attribute(p->file, "after the flushes", 1);
}

static void extend(hid_t field, hsize_t steps)
{
	hsize_t dims[3] = { steps, ROWS, COLUMNS };

	DO(H5Dset_extent(field, dims));
}

static void reopen(struct play *p)
{
	DO(H5Fclose(p->file));
	open_file(p, true);
}

static void appends(struct play *p)
{
	hid_t field = make_field(p, "field", 1);

	write_step(p, field, 0, BLOCKS, 0);
	for (hsize_t step = 1; step < 6; step++) {
		if (step == 3) {
			H5Dclose(field);
			reopen(p);
			field = GET(H5Dopen2(p->file, "field", H5P_DEFAULT));
		}
		extend(field, step + 1);
		write_step(p, field, step, BLOCKS, 0);
	}
	extend(field, 4); /* and two less */
	H5Dclose(field);
}

static void overwrites(struct play *p)
{
	hid_t field = make_field(p, "field", 3);

	for (hsize_t step = 0; step < 3; step++)
		write_step(p, field, step, IN_TURN, 0);
	DO(H5Fflush(p->file, H5F_SCOPE_GLOBAL));
	H5Dclose(field);
	reopen(p);
	field = GET(H5Dopen2(p->file, "field", H5P_DEFAULT));
	for (hsize_t step = 0; step < 2; step++)
		write_step(p, field, step, BACKWARDS, 0.5);
	H5Dclose(field);
}

static void fills(struct play *p)
{
	hid_t field = make_field(p, "part", 3), none = make_field(p, "nothing", 2);

	write_step(p, field, 1, BLOCKS, 0);
	H5Dclose(field);
	H5Dclose(none);
}

/* Many small objects: what all ranks do to metadata, and each writes an element of a vector. */
static void objects(struct play *p)
{
	hid_t plain = GET(H5Pcreate(H5P_GROUP_CREATE)), plainer = GET(H5Pcreate(H5P_DATASET_CREATE));
	char name[64];

	DO(H5Pset_obj_track_times(plain, false));
	DO(H5Pset_obj_track_times(plainer, false));
	for (int i = 0; i < 60; i++) {
		hsize_t dims[1] = { (hsize_t)p->num }, at[1] = { (hsize_t)p->rank };
		hid_t group, space = GET(H5Screate_simple(1, dims, NULL)), one = GET(H5Screate(H5S_SCALAR)), set;
		int value = 100 * i + p->rank;

		snprintf(name, sizeof(name), "a group of the name %d", i);
		group = GET(H5Gcreate2(p->file, name, H5P_DEFAULT, plain, H5P_DEFAULT));
		write_attribute(group, "i", i);
		set = GET(H5Dcreate2(group, "set", H5T_STD_I32BE, space, H5P_DEFAULT, plainer, H5P_DEFAULT));
		DO(H5Sselect_elements(space, H5S_SELECT_SET, 1, at));
		DO(H5Dwrite(set, H5T_NATIVE_INT, one, space, p->transfer, &value));
		H5Dclose(set);
		H5Gclose(group);
		H5Sclose(one);
		H5Sclose(space);
		if (i % 3 == 2)
			DO(H5Ldelete(p->file, name, H5P_DEFAULT));
	}
	H5Pclose(plainer);
	H5Pclose(plain);
}

/* ---- the scenes */

static const struct scene scenes[] = {
	{ "contiguous", "contiguous fields, each rank for itself", fields, .chunked = false },
	{ "contiguous-together", "contiguous fields, collectively", fields, .collective = true },
	{ "chunked", "chunked fields, each rank for itself", fields, .chunked = true },
	{ "chunked-together", "chunked fields, collectively", fields, .chunked = true, .collective = true },
	{ "latest", "the latest format, metadata collectively, too", fields, .chunked = true, .collective = true,
		.latest = true, .together = true },
	{ "deflated", "compressed chunks, which ranks read that others have just written", fields, .chunked = true,
		.collective = true, .deflate = true },
	{ "flushes", "H5Fflush between the steps", flushes, .chunked = true, .collective = true },
	{ "flushes-metadata", "H5Fflush between the steps, metadata collectively", flushes, .together = true },
	{ "appends", "more and more steps, in two openings", appends, .chunked = true, .collective = true },
	{ "appends-latest", "the same in the latest format", appends, .chunked = true, .latest = true },
	{ "overwrites", "all once more, by other ranks", overwrites, .chunked = true, .collective = true },
	{ "overwrites-contiguous", "all once more, by other ranks, each for itself", overwrites, .chunked = false },
	{ "fill-early", "fill values with the space", fills, .chunked = true, .collective = true },
	{ "fill-late", "space and fill values as late as can be", fills, .late = true },
	{ "fill-never", "nobody fills", fills, .chunked = true, .never = true },
	{ "objects", "many groups and attributes, some deleted", objects, .collective = true },
	{ "objects-latest", "the same in the latest format, metadata collectively", objects, .varies = true,
		.latest = true, .together = true },
	{ "pages", "paged aggregation", fields, .varies = true, .chunked = true, .collective = true, .latest = true,
		.page = 4096 },
	{ "aligned", "everything at multiples of 64 KiB", fields, .chunked = true, .align = 65536 },
};

#define NUM_SCENES (sizeof(scenes) / sizeof(scenes[0]))

static const struct scene *find(const char *name)
{
	for (size_t i = 0; i < NUM_SCENES; i++)
		if (strcmp(scenes[i].name, name) == 0)
			return &scenes[i];
	return NULL;
}

static void play(struct play *p, const char *dir, const struct scene *scene)
{
	char path[4096];

	demand(scene != NULL, "finding the scene");
	snprintf(path, sizeof(path), "%s/%s.h5", dir, scene->name);
	p->path = path;
	p->scene = scene;
	p->transfer = GET(H5Pcreate(H5P_DATASET_XFER));
	DO(H5Pset_dxpl_mpio(p->transfer, scene->collective ? H5FD_MPIO_COLLECTIVE : H5FD_MPIO_INDEPENDENT));
	open_file(p, false);
	scene->run(p);
	H5Pclose(p->transfer);
	DO(H5Fclose(p->file));
}

/* ---- one that takes its time */

static void say_and_wait(const char *word)
{
	char line[16];

	puts(word);
	fflush(stdout);
	demand(fgets(line, sizeof(line), stdin) != NULL, "reading a line");
}

static void hold(struct play *p, const char *path)
{
	static const struct scene held = { "held", "", NULL, .chunked = true };
	hid_t field;

	p->path = path;
	p->scene = &held;
	p->transfer = GET(H5Pcreate(H5P_DATASET_XFER));
	open_file(p, false);
	field = make_field(p, "field", 1);
	write_step(p, field, 0, BLOCKS, 0);
	say_and_wait("written");
	DO(H5Fflush(p->file, H5F_SCOPE_GLOBAL));
	say_and_wait("flushed");
	H5Dclose(field);
	H5Pclose(p->transfer);
	DO(H5Fclose(p->file));
	say_and_wait("closed");
}

static int list(void)
{
	for (size_t i = 0; i < NUM_SCENES; i++)
		printf("%s%s: %s\n", scenes[i].name, scenes[i].varies ? "*" : "", scenes[i].is);
	return 0;
}

int main(int argc, char **argv)
{
	struct play p = { 0 };

	if (argc < 2)
		return list();
	mallopt(M_PERTURB, 85); /* HDF5 writes memory that nobody has set; so that it is the same each time */
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &p.rank);
	MPI_Comm_size(MPI_COMM_WORLD, &p.num);
	if (argc == 3 && strcmp(argv[1], "--hold") == 0)
		hold(&p, argv[2]);
	for (int i = 2; i < argc && strcmp(argv[1], "--hold") != 0; i++)
		play(&p, argv[1], find(argv[i]));
	for (size_t i = 0; argc == 2 && i < NUM_SCENES; i++)
		play(&p, argv[1], &scenes[i]);
	MPI_Finalize();
	return 0;
}
