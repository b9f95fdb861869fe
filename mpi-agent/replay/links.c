/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Files with several names in the backing directory. They are few, but whose names those are only a look at all of them tells; so that is done once
 * in a session, when the first such file has been drained. What a name stands for by then is asked when it is wanted.
 */
#include "mpi-agent/replay/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/array.h"
#include "mpi-agent/plan/names.h"

struct link {
	uint64_t dir;
	char *name;  /* owned */
	size_t next; /* of the same file, + 1; 0: none */
};

struct links {
	struct idmap first; /* inode -> its link + 1, or UINT64_MAX: none has been found yet */
	struct link *at;    /* owned */
	size_t num, cap;
};

void links_free(struct links *l)
{
	if (!l)
		return;
	for (size_t i = 0; i < l->num; i++)
		free(l->at[i].name);
	free(l->at);
	idmap_free(&l->first);
	free(l);
}

static int note_file(const struct inode *in, void *arg)
{
	struct links *l = arg;

	return S_ISREG(in->mode) && in->num_backing > 1 ? idmap_set(&l->first, in->ino, UINT64_MAX) : 0;
}

static int add(struct links *l, uint64_t dir, const char *name, uint64_t ino)
{
	uint64_t first = idmap_get(&l->first, ino);
	struct link *link;

	if (array_room(&l->at, &l->cap, l->num, sizeof(*l->at)) < 0)
		return -ENOMEM;
	link = &l->at[l->num];
	*link = (struct link){ .dir = dir, .name = strdup(name), .next = first == UINT64_MAX ? 0 : first };
	if (!link->name)
		return -ENOMEM;
	return idmap_set(&l->first, ino, ++l->num);
}

static int note_name(uint64_t dir, const char *name, uint64_t ino, void *arg)
{
	struct links *l = arg;

	return idmap_get(&l->first, ino) == 0 ? 0 : add(l, dir, name, ino);
}

static int find_all(struct session *s)
{
	int r;

	s->links = calloc(1, sizeof(*s->links));
	if (!s->links)
		return -ENOMEM;
	r = state_each_inode(s->st, note_file, s->links);
	return r < 0 ? r : state_each_backing_name(s->st, note_name, s->links);
}

int links_note(
	struct session *s, uint64_t ino, uint64_t from_dir, const char *from_name, uint64_t dir, const char *name)
{
	int r = 0;

	if (!s->links)
		return 0;
	if (idmap_get(&s->links->first, ino) == 0) /* it had only that one */
		r = add(s->links, from_dir, from_name, ino);
	return r < 0 ? r : add(s->links, dir, name, ino);
}

static void tell_one(struct session *s, const struct link *link, uint64_t ino, const char *shown)
{
	char path[SESSION_PATH_MAX];
	uint64_t owner;

	if (strncmp(link->name, NAMES_PARK_PREFIX, strlen(NAMES_PARK_PREFIX)) != 0 &&
		state_backing_owner(s->st, link->dir, link->name, &owner) == 0 && owner == ino &&
		state_backing_child_path(s->st, link->dir, link->name, path, sizeof(path)) == 0 &&
		strcmp(path, shown) != 0)
		manifest_add_linked(s->opt->manifest, shown, path);
}

int links_tell(struct session *s, uint64_t ino, const char *shown)
{
	struct inode in;
	int r = 0;

	if (!s->opt->in_place || !s->opt->manifest || state_inode(s->st, ino, &in) < 0 || !S_ISREG(in.mode) ||
		in.num_backing < 2)
		return 0;
	if (!s->links)
		r = find_all(s);
	for (uint64_t at = r == 0 ? idmap_get(&s->links->first, ino) : 0; at != 0; at = s->links->at[at - 1].next)
		tell_one(s, &s->links->at[at - 1], ino, shown);
	return r;
}
