/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What cannot have its name in the backing directory, since something that Cistern does not know has it, stands beside it, under a name that says
 * whose it is. It is durable there like any other, and each later session gives it its own name if that has become free.
 */
#include "mpi-agent/replay/names_private.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void beside_open(struct session *s)
{
	const struct superblock *sb = store_superblock(s->opt->store);
	char uuid[37];

	store_uuid_text(sb->uuid, uuid);
	beside_tag(sb->job, uuid, s->beside_tag);
}

int beside_find(struct session *s, uint64_t dir, const char *name, uint64_t ino, char out[RECORD_NAME_MAX + 1])
{
	struct inode in;
	int r = state_inode(s->st, ino, &in);

	return r < 0 ? r : state_has_beside(s->st, dir, name, &in, s->beside_tag, out);
}

int beside_path(struct session *s, const char *dir_path, const char *name, uint64_t ino,
	char out_name[RECORD_NAME_MAX + 1], char *out, size_t cap, struct stat *ret_there)
{
	int r;

	beside_name(name, s->beside_tag, ino, out_name);
	r = session_join(out, cap, dir_path, out_name);
	if (r == 0)
		r = s->to->ops->stat(s->to, out, ret_there);
	if (r == -ENOENT)
		ret_there->st_ino = 0;
	return r == -ENOENT ? 0 : r;
}

int beside_forget(struct session *s, uint64_t dir, const char *name)
{
	uint64_t owner;
	int r = state_backing_owner(s->st, dir, name, &owner);

	return r == -ENOENT || !s->opt->in_place ? 0 : r < 0 ? r : names_removed_step(s, owner, dir, name);
}

void beside_tell(struct session *s, const char *shown, const char *there)
{
	const struct drain_watcher *w = &s->opt->watcher;

	if (s->opt->manifest)
		manifest_add_beside(s->opt->manifest, shown, there);
	if (there && w->beside)
		w->beside(shown, there, w->arg);
}
