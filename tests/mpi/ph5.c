/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * ph5 FILE [STEPS]: what a simulation does. All ranks write one HDF5 file together through MPI-IO: in each step a two-dimensional
 * field by blocks of rows, collectively, into a chunked record dataset, and a contiguous one. No times are stored, so that the same run
 * gives the same bytes. Run again with --check it reads all values back in this process and compares them.
 */
#include <hdf5.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS    64
#define COLUMNS 512

/* What the libraries below us leave to the end of the process is not ours to free. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}

static double value_at(hsize_t step, hsize_t row, hsize_t column)
{
	return (double)step * 1e6 + (double)row * 1e3 + (double)column;
}

static hid_t open_file(const char *path, bool check)
{
	hid_t access = H5Pcreate(H5P_FILE_ACCESS), create = H5Pcreate(H5P_FILE_CREATE), file;

	H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL);
	H5Pset_obj_track_times(create, false);
	file = check ? H5Fopen(path, H5F_ACC_RDONLY, access) : H5Fcreate(path, H5F_ACC_TRUNC, create, access);
	H5Pclose(access);
	H5Pclose(create);
	return file;
}

static hid_t open_field(hid_t file, const char *name, hsize_t steps, bool chunked, bool check)
{
	hsize_t dims[3] = { steps, ROWS, COLUMNS }, chunk[3] = { 1, 16, COLUMNS };
	hid_t create, space, field;

	if (check)
		return H5Dopen2(file, name, H5P_DEFAULT);
	create = H5Pcreate(H5P_DATASET_CREATE);
	H5Pset_obj_track_times(create, false);
	if (chunked)
		H5Pset_chunk(create, 3, chunk);
	space = H5Screate_simple(3, dims, NULL);
	field = H5Dcreate2(file, name, H5T_IEEE_F64LE, space, H5P_DEFAULT, create, H5P_DEFAULT);
	H5Sclose(space);
	H5Pclose(create);
	return field;
}

/* This rank's rows of one step, written or read and compared. */
static bool one_step(hid_t field, hsize_t step, hsize_t from, hsize_t rows, bool check)
{
	hsize_t start[3] = { step, from, 0 }, count[3] = { 1, rows, COLUMNS };
	double *data = malloc(rows * COLUMNS * sizeof(*data) + 1);
	hid_t space = H5Dget_space(field), memory = H5Screate_simple(3, count, NULL),
	      transfer = H5Pcreate(H5P_DATASET_XFER);
	bool good;

	H5Pset_dxpl_mpio(transfer, H5FD_MPIO_COLLECTIVE);
	H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL);
	for (hsize_t i = 0; data && i < rows * COLUMNS; i++)
		data[i] = check ? -1 : value_at(step, from + i / COLUMNS, i % COLUMNS);
	good = data && (check ? H5Dread(field, H5T_NATIVE_DOUBLE, memory, space, transfer, data)
			      : H5Dwrite(field, H5T_NATIVE_DOUBLE, memory, space, transfer, data)) >= 0;
	for (hsize_t i = 0; good && i < rows * COLUMNS; i++)
		good = data[i] == value_at(step, from + i / COLUMNS, i % COLUMNS);
	H5Pclose(transfer);
	H5Sclose(memory);
	H5Sclose(space);
	free(data);
	return good;
}

static bool one_field(hid_t file, const char *name, hsize_t steps, bool chunked, bool check)
{
	hid_t field = open_field(file, name, steps, chunked, check);
	int rank, num;
	hsize_t from, to;
	bool good = field >= 0;

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &num);
	from = ROWS * (hsize_t)rank / (hsize_t)num;
	to = ROWS * (hsize_t)(rank + 1) / (hsize_t)num;
	for (hsize_t step = 0; good && step < steps; step++)
		good = one_step(field, step, from, to - from, check);
	return field >= 0 && H5Dclose(field) >= 0 && good;
}

int main(int argc, char **argv)
{
	bool check = argc > 1 && strcmp(argv[1], "--check") == 0, good;
	const char *path = argc > 1 + check ? argv[1 + check] : NULL;
	hsize_t steps = argc > 2 + check ? strtoull(argv[2 + check], NULL, 0) : 4;
	int failed, any_failed = 1;
	hid_t file;

	if (!path) {
		fprintf(stderr, "usage: ph5 [--check] FILE [STEPS]\n");
		return 2;
	}
	MPI_Init(&argc, &argv);
	file = open_file(path, check);
	good = file >= 0 && one_field(file, "records", steps, true, check) &&
	       one_field(file, "plain", steps, false, check);
	good = file >= 0 && H5Fclose(file) >= 0 && good;
	failed = !good;
	MPI_Allreduce(&failed, &any_failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	MPI_Finalize();
	return any_failed;
}
