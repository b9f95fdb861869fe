/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What stands for comm.c in a program without MPI: nobody else can be met. */
#include "mpi-agent/comm/comm.h"

#include <errno.h>

static int alone(struct cistern_error *err)
{
	return cistern_error_set(err, -ENOTSUP, "this program works alone; cistern-mpi-agent is for several processes");
}

int comm_create(int *argc, char ***argv, struct comm **ret, struct cistern_error *err)
{
	return alone(err);
}

int comm_destroy(struct comm *c, struct cistern_error *err)
{
	return alone(err);
}

uint32_t comm_rank(const struct comm *c)
{
	return 0;
}

uint32_t comm_size(const struct comm *c)
{
	return 1;
}

int comm_gather(struct comm *c, const void *mine, size_t len, void *all, struct cistern_error *err)
{
	return alone(err);
}

int comm_broadcast(struct comm *c, void *bytes, size_t len, struct cistern_error *err)
{
	return alone(err);
}

int comm_agree(struct comm *c, int code, const char *text, struct cistern_error *err)
{
	return alone(err);
}
