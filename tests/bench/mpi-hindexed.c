/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * mpi-hindexed FILE EXTENTS BLOCK: each rank has EXTENTS blocks of the file, those of the ranks lie in turn, and all are written by one
 * MPI_File_write_all of an hindexed type, with default hints, and synced. What a collective drain is compared with.
 */
#include <mpi.h>

#include "tests/bench/bench.h"

static void must(int status, const char *call)
{
	char text[MPI_MAX_ERROR_STRING];
	int len;

	if (status == MPI_SUCCESS)
		return;
	MPI_Error_string(status, text, &len);
	fprintf(stderr, "%s: %s\n", call, text);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static MPI_Datatype blocks_of(int rank, int ranks, int num, int block)
{
	MPI_Aint *offs = calloc((size_t)num, sizeof(*offs));
	int *lens = calloc((size_t)num, sizeof(*lens));
	MPI_Datatype ret;

	if (!offs || !lens)
		bench_die("calloc", "offsets");
	for (int i = 0; i < num; i++) {
		offs[i] = ((MPI_Aint)i * ranks + rank) * block;
		lens[i] = block;
	}
	must(MPI_Type_create_hindexed(num, lens, offs, MPI_BYTE, &ret), "MPI_Type_create_hindexed");
	must(MPI_Type_commit(&ret), "MPI_Type_commit");
	free(offs);
	free(lens);
	return ret;
}

/* Seconds from when all have the file open until it is synced and closed. */
static double write_all(char *path, const char *buf, int num, int block, MPI_Datatype type)
{
	MPI_Datatype piece;
	MPI_File file;

	must(MPI_Type_contiguous(block, MPI_BYTE, &piece), "MPI_Type_contiguous");
	must(MPI_Type_commit(&piece), "MPI_Type_commit");
	must(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file),
		"MPI_File_open");
	MPI_Barrier(MPI_COMM_WORLD);
	double begin = bench_now();
	must(MPI_File_set_view(file, 0, MPI_BYTE, type, "native", MPI_INFO_NULL), "MPI_File_set_view");
	must(MPI_File_write_all(file, buf, num, piece, MPI_STATUS_IGNORE), "MPI_File_write_all");
	must(MPI_File_sync(file), "MPI_File_sync");
	must(MPI_File_close(&file), "MPI_File_close");
	MPI_Barrier(MPI_COMM_WORLD);
	double seconds = bench_now() - begin;
	MPI_Type_free(&piece);
	return seconds;
}

int main(int argc, char **argv)
{
	int rank, ranks, num, block;
	MPI_Datatype type;
	double seconds;
	char *buf;

	MPI_Init(&argc, &argv);
	bench_usage(argc, 3, "mpi-hindexed FILE EXTENTS BLOCK");
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	num = (int)bench_number(argv[2], 1);
	block = (int)bench_number(argv[3], 1);
	buf = malloc((size_t)num * (size_t)block);
	if (!buf)
		bench_die("malloc", argv[1]);
	memset(buf, 'a' + rank % 26, (size_t)num * (size_t)block);
	type = blocks_of(rank, ranks, num, block);
	seconds = write_all(argv[1], buf, num, block, type);
	if (rank == 0)
		printf("{\"seconds\": %.6f, \"bytes\": %llu}\n", seconds,
			(unsigned long long)num * (unsigned long long)ranks * (unsigned long long)block);
	MPI_Type_free(&type);
	MPI_Finalize();
	free(buf);
	return 0;
}
