/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * MPI gives ranks of one host memory that they share, and says that they may read it without a get (MPI_Win_shared_query). Our windows
 * are files, so what is shared there is the file itself. A path alone proves nothing: on another host, or in a container, another folder may lie
 * there, even an old copy of the same store. So the folder is compared with what its agent sees: device and inode number, which
 * mean the same thing within one kernel only; the caller adds nobody else.
 */
#include "mpi-agent/window/near.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/base/descriptors.h"
#include "mpi-agent/window/files.h"

#define OPEN_MAX_FILES 256u /* beyond, gets do as well */

struct near {
	uint32_t num_ranks, num_open;
	int dirfds[]; /* per rank; -1: not near */
};

static void place_of(int dirfd, struct identity_folder *ret)
{
	struct stat st;

	*ret = (struct identity_folder){ 0 };
	if (fstat(dirfd, &st) == 0)
		*ret = (struct identity_folder){ st.st_dev, st.st_ino };
}

void near_look(const char *store, struct identity_folder *ret)
{
	int fd = files_open_store(store);

	*ret = (struct identity_folder){ 0 };
	if (fd < 0)
		return;
	place_of(fd, ret);
	close(fd);
}

int near_create(uint32_t num_ranks, struct near **ret)
{
	struct near *n = malloc(sizeof(*n) + num_ranks * sizeof(n->dirfds[0]));

	if (!n)
		return -ENOMEM;
	n->num_ranks = num_ranks;
	n->num_open = 0;
	for (uint32_t i = 0; i < num_ranks; i++)
		n->dirfds[i] = -1;
	*ret = n;
	return 0;
}

void near_destroy(struct near *n)
{
	if (!n)
		return;
	for (uint32_t i = 0; i < n->num_ranks; i++)
		if (n->dirfds[i] >= 0)
			close(n->dirfds[i]);
	free(n);
}

void near_add(struct near *n, uint32_t rank, const char *store, const struct identity_folder *place)
{
	struct identity_folder found;
	int fd;

	if (rank >= n->num_ranks || n->dirfds[rank] >= 0 || store[0] != '/' || place->ino == 0)
		return;
	fd = files_open_store(store);
	if (fd < 0)
		return;
	place_of(fd, &found);
	if (found.dev == place->dev && found.ino == place->ino)
		n->dirfds[rank] = fd;
	else
		close(fd);
}

int near_open(struct near *n, uint32_t rank, uint32_t segment)
{
	bool is_private;
	struct stat st;
	int fd;

	if (rank >= n->num_ranks || n->dirfds[rank] < 0)
		return -ENOENT;
	if (n->num_open >= descriptors_share(OPEN_MAX_FILES, 4))
		return -EMFILE;
	fd = files_open(n->dirfds[rank], segment, &st, &is_private);
	n->num_open += fd >= 0;
	return fd;
}

void near_close(struct near *n, int fd)
{
	if (fd < 0)
		return;
	close(fd);
	n->num_open--;
}
