/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * bare-get [BYTES [COUNT]]: the speed of a loop of MPI_Gets between two ranks, which is what remote reads are compared with. The window is
 * MPI_Win_create over ordinary memory; each get is waited for. Prints MiB/s of the best of three rounds.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double one_round(MPI_Win win, char *to, int bytes, int count)
{
	double began = MPI_Wtime();

	for (int i = 0; i < count; i++) {
		MPI_Get(to + (size_t)i * (size_t)bytes, bytes, MPI_BYTE, 1, (MPI_Aint)i * bytes, bytes, MPI_BYTE, win);
		MPI_Win_flush(1, win);
	}
	return (double)bytes * count / 1048576 / (MPI_Wtime() - began);
}

int main(int argc, char **argv)
{
	int bytes = argc > 1 ? atoi(argv[1]) : 1 << 20, count = argc > 2 ? atoi(argv[2]) : 64, rank = 0;
	size_t all = (size_t)bytes * (size_t)count;
	char *from = malloc(all), *to = malloc(all);
	double best = 0, speed;
	MPI_Win win;

	if (!from || !to || bytes <= 0 || count <= 0)
		return 1;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	memset(from, rank, all);
	memset(to, 0, all);
	MPI_Win_create(from, (MPI_Aint)all, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	MPI_Win_lock_all(0, win);
	MPI_Barrier(MPI_COMM_WORLD);
	for (int i = 0; i < 3 && rank == 0; i++) {
		speed = one_round(win, to, bytes, count);
		best = speed > best ? speed : best;
	}
	if (rank == 0)
		printf("%.0f\n", best);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_unlock_all(win);
	MPI_Win_free(&win);
	MPI_Finalize();
	free(from);
	free(to);
	return 0;
}
