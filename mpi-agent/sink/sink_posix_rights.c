/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Modes are for applications. A file that is read-only by now, or lies in such a directory, could be written when it was: where we are
 * refused what is ours, we take the rights that the owner lacks for as long as the file, or the directory, is open, unless its attributes are set
 * before. Who is killed in between leaves them, until a later session sets the attributes.
 *
 * Calls that change something are counted: the crash tests end the process after any one of them.
 */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "mpi-agent/sink/sink_posix_private.h"

#define KILLED_STATUS 137

int sink_posix_changed(struct sink_posix *p, int r)
{
	int saved = errno;

	if (atomic_fetch_add(&p->changes, 1) + 1 == p->abort_after)
		_exit(KILLED_STATUS);
	return r < 0 ? -saved : 0;
}

const char *sink_posix_link_to(int fd, char out[64])
{
	snprintf(out, 64, "/proc/self/fd/%d", fd);
	return out;
}

/* A change of mode by who is not of its group would take the bit. */
static bool would_lose_group_id(const struct stat *st)
{
	return st->st_mode & S_ISGID && !group_member(st->st_gid);
}

bool sink_posix_take_rights(struct sink_posix *p, int fd, mode_t rights, mode_t *taken)
{
	char link[64];
	struct stat st;

	if (p->reads || fstat(fd, &st) || st.st_uid != geteuid() || S_ISLNK(st.st_mode) || would_lose_group_id(&st))
		return false;
	rights &= ~st.st_mode;
	if (rights && sink_posix_changed(p, chmod(sink_posix_link_to(fd, link), (st.st_mode & 07777) | rights)) < 0)
		return false;
	*taken |= rights;
	return true;
}

void sink_posix_give_back(struct sink_posix *p, int fd, mode_t *taken)
{
	char link[64];
	struct stat st;

	if (*taken && fstat(fd, &st) == 0)
		(void)sink_posix_changed(p, chmod(sink_posix_link_to(fd, link), st.st_mode & 07777 & ~*taken));
	*taken = 0;
}
