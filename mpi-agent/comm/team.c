/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/comm/team.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/base/launch.h"
#include "mpi-agent/comm/comm.h"

#define END_SECONDS 10

int team_join(struct team *t, int *argc, char ***argv, struct cistern_error *err)
{
	const char *others = getenv("OMPI_COMM_WORLD_SIZE");
	int r;

	*t = (struct team){ .size = 1 };
	if (others && strcmp(others, "1") != 0)
		return cistern_error_set(err, -EINVAL,
			"started %s times by Open MPI's mpiexec; several processes need that of MPICH, or -n", others);
	if (others || !launch_is_one_of_many())
		return 0;
	r = comm_create(argc, argv, &t->comm, err);
	if (r < 0)
		return r;
	t->rank = comm_rank(t->comm);
	t->size = comm_size(t->comm);
	return 0;
}

int team_agree(const struct team *t, int code, struct cistern_error *err)
{
	if (code == 0)
		*err = (struct cistern_error){ 0 };
	else if (!err->text[0])
		cistern_error_set(err, code, "%s", strerror(-code));
	return t->comm ? comm_agree(t->comm, code, err->text, err) : code;
}

int team_gather(const struct team *t, const void *mine, size_t len, void *all, struct cistern_error *err)
{
	if (t->comm)
		return comm_gather(t->comm, mine, len, all, err);
	memcpy(all, mine, len);
	return 0;
}

int team_broadcast(const struct team *t, void *bytes, size_t len, struct cistern_error *err)
{
	return t->comm ? comm_broadcast(t->comm, bytes, len, err) : 0;
}

void team_leave(struct team *t)
{
	struct cistern_error ignored;

	if (!t->comm)
		return;
	alarm(END_SECONDS); /* MPI waits for processes that may have died */
	(void)comm_destroy(t->comm, &ignored);
	alarm(0);
	t->comm = NULL;
}
