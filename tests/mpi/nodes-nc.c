/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * nodes-nc PATH: ranks write one netCDF file (CDF-5) together through PnetCDF, each through the path that it is given: a record
 * variable by blocks of rows, collectively; a fixed one, independently, in columns; attributes at the end. Then each rank reads
 * all of it back.
 */
#include <mpi.h>
#include <pnetcdf.h>
#include <stdio.h>
#include <stdlib.h>

#define STEPS   5
#define ROWS    48
#define COLUMNS 600

static void must(int code, const char *what)
{
	if (code == NC_NOERR)
		return;
	fprintf(stderr, "nodes-nc: %s: %s\n", what, ncmpi_strerror(code));
	MPI_Abort(MPI_COMM_WORLD, 1);
}

#define MUST(call) must((call), #call)

static double value_at(MPI_Offset step, MPI_Offset row, MPI_Offset column)
{
	return (double)step * 1e6 + (double)row * 1e3 + (double)column;
}

struct file {
	int id, records, plain;
	MPI_Offset from, num; /* rows of this rank */
	double *data;         /* owned; ROWS x COLUMNS */
};

static void define(struct file *f, const char *path)
{
	int dims[3];

	MUST(ncmpi_create(MPI_COMM_WORLD, path, NC_CLOBBER | NC_64BIT_DATA, MPI_INFO_NULL, &f->id));
	MUST(ncmpi_def_dim(f->id, "time", NC_UNLIMITED, &dims[0]));
	MUST(ncmpi_def_dim(f->id, "row", ROWS, &dims[1]));
	MUST(ncmpi_def_dim(f->id, "column", COLUMNS, &dims[2]));
	MUST(ncmpi_def_var(f->id, "records", NC_DOUBLE, 3, dims, &f->records));
	MUST(ncmpi_def_var(f->id, "plain", NC_DOUBLE, 2, dims + 1, &f->plain));
	MUST(ncmpi_enddef(f->id));
}

static void fill(struct file *f, MPI_Offset step, MPI_Offset from, MPI_Offset num)
{
	for (MPI_Offset i = 0; i < num * COLUMNS; i++)
		f->data[i] = value_at(step, from + i / COLUMNS, i % COLUMNS);
}

static void write_records(struct file *f)
{
	for (MPI_Offset step = 0; step < STEPS; step++) {
		MPI_Offset start[3] = { step, f->from, 0 }, count[3] = { 1, f->num, COLUMNS };

		fill(f, step, f->from, f->num);
		MUST(ncmpi_put_vara_double_all(f->id, f->records, start, count, f->data));
	}
}

static void write_plain(struct file *f)
{
	MUST(ncmpi_begin_indep_data(f->id));
	for (MPI_Offset row = f->from; row < f->from + f->num; row++) {
		MPI_Offset start[2] = { row, 0 }, count[2] = { 1, COLUMNS };

		fill(f, STEPS, row, 1);
		MUST(ncmpi_put_vara_double(f->id, f->plain, start, count, f->data));
	}
	MUST(ncmpi_end_indep_data(f->id));
}

static void check(struct file *f, int var, MPI_Offset step, const MPI_Offset *start, const MPI_Offset *count)
{
	MUST(ncmpi_get_vara_double_all(f->id, var, start, count, f->data));
	for (MPI_Offset i = 0; i < ROWS * COLUMNS; i++)
		if (f->data[i] != value_at(step, i / COLUMNS, i % COLUMNS)) {
			fprintf(stderr, "nodes-nc: step %d, value %d is wrong\n", (int)step, (int)i);
			MPI_Abort(MPI_COMM_WORLD, 1);
		}
}

static void read_back(struct file *f, const char *path)
{
	MUST(ncmpi_open(MPI_COMM_WORLD, path, NC_NOWRITE, MPI_INFO_NULL, &f->id));
	for (MPI_Offset step = 0; step <= STEPS; step++) {
		MPI_Offset start[3] = { step, 0, 0 }, count[3] = { 1, ROWS, COLUMNS };

		if (step < STEPS)
			check(f, f->records, step, start, count);
		else
			check(f, f->plain, step, start + 1, count + 1);
	}
	MUST(ncmpi_close(f->id));
}

int main(int argc, char **argv)
{
	struct file f = { 0 };
	int rank, num;

	if (argc != 2) {
		fprintf(stderr, "usage: nodes-nc PATH\n");
		return 2;
	}
	MPI_Init(NULL, NULL);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &num);
	f.from = ROWS * (MPI_Offset)rank / num;
	f.num = ROWS * (MPI_Offset)(rank + 1) / num - f.from;
	f.data = malloc(sizeof(double) * ROWS * COLUMNS);
	if (!f.data)
		MPI_Abort(MPI_COMM_WORLD, 1);
	define(&f, argv[1]);
	write_records(&f);
	write_plain(&f);
	MUST(ncmpi_redef(f.id));
	MUST(ncmpi_put_att_text(f.id, NC_GLOBAL, "title", 12, "all is there"));
	MUST(ncmpi_enddef(f.id));
	MUST(ncmpi_close(f.id));
	read_back(&f, argv[1]);
	free(f.data);
	MPI_Finalize();
	return 0;
}
