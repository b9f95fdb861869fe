/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * pnetcdf-flush DIR BYTES PUT_BYTES float|double: the flush of PnetCDF's own burst-buffer driver, to be compared with our replay of the same
 * puts (bblogs.py). Each process writes every n-th piece of PUT_BYTES of one variable of floats, from floats or doubles. Not built with the rest, since
 * it needs a PnetCDF that was configured with --enable-burst-buffering, and no distribution has one:
 *
 *   mpicc -O2 -o pnetcdf-flush tests/bench/pnetcdf-flush.c -lpnetcdf
 *   CISTERN_PNETCDF_FLUSH='mpiexec -n 2 ./pnetcdf-flush' make bench BENCH_ARGS='--only replay'
 *
 * Prints one line of JSON: bytes of the file, and the seconds of ncmpi_flush().
 */
#include <mpi.h>
#include <pnetcdf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, num_ranks;

static void must(int status)
{
	if (status == NC_NOERR)
		return;
	fprintf(stderr, "pnetcdf-flush: %s\n", ncmpi_strerror(status));
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static int create(const char *dir, MPI_Offset elements, int *ret_var)
{
	MPI_Info info;
	char path[4096];
	int id, dim;

	MPI_Info_create(&info);
	MPI_Info_set(info, "nc_burst_buf", "enable");
	MPI_Info_set(info, "nc_burst_buf_dirname", dir);
	snprintf(path, sizeof(path), "%s/puts.nc", dir);
	must(ncmpi_create(MPI_COMM_WORLD, path, NC_CLOBBER | NC_64BIT_DATA, info, &id));
	MPI_Info_free(&info);
	must(ncmpi_def_dim(id, "x", elements, &dim));
	must(ncmpi_def_var(id, "a", NC_FLOAT, 1, &dim, ret_var));
	must(ncmpi_enddef(id));
	return id;
}

static void put_all(int id, int var, MPI_Offset each, MPI_Offset puts, int wide)
{
	float *floats = malloc((size_t)each * sizeof(*floats));
	double *doubles = malloc((size_t)each * sizeof(*doubles));

	if (!floats || !doubles)
		MPI_Abort(MPI_COMM_WORLD, 1);
	for (MPI_Offset i = 0; i < each; i++)
		doubles[i] = floats[i] = (float)i * 0.5f;
	must(ncmpi_begin_indep_data(id));
	for (MPI_Offset i = 0; i < puts; i++) {
		MPI_Offset start = (i * num_ranks + rank) * each;

		must(wide ? ncmpi_put_vara_double(id, var, &start, &each, doubles)
			  : ncmpi_put_vara_float(id, var, &start, &each, floats));
	}
	must(ncmpi_end_indep_data(id));
	free(floats);
	free(doubles);
}

int main(int argc, char **argv)
{
	MPI_Offset each, puts;
	double begin;
	int id, var;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &num_ranks);
	if (argc != 5)
		MPI_Abort(MPI_COMM_WORLD, 2);
	each = atoll(argv[3]) / 4;
	puts = atoll(argv[2]) / (each * 4) / num_ranks;
	id = create(argv[1], each * puts * num_ranks, &var);
	put_all(id, var, each, puts, strcmp(argv[4], "double") == 0);
	MPI_Barrier(MPI_COMM_WORLD);
	begin = MPI_Wtime();
	must(ncmpi_flush(id));
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		printf("{\"bytes\": %lld, \"seconds\": %.6f}\n", (long long)(each * puts * num_ranks * 4),
			MPI_Wtime() - begin);
	must(ncmpi_close(id));
	MPI_Finalize();
	return 0;
}
