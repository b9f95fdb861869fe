/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Names in doubt. A drain session publishes what its snapshot names. If the mount takes such a name
 * away meanwhile, the file still appears under it in the backing directory, and until the agent has
 * reported it nothing tells it from a file that somebody else has put there. So a name that a file
 * loses while a session runs, and that it did not have in the backing directory, is remembered until
 * the session's end: whatever appears under it is not shown. This is so, too, when another file gets
 * the name in the same call, by a rename over it or an exchange: that one may lose the name as well,
 * and have it in the backing directory, from where the session moves it away before. Afterwards the
 * state knows the name, or what appeared has been taken back.
 */
#include <errno.h>
#include <search.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "fs/core/private.h"

struct doubt {
	uint64_t parent;
	char name[]; /* terminated */
};

static int compare(const void *a, const void *b)
{
	const struct doubt *x = a, *y = b;

	if (x->parent != y->parent)
		return x->parent < y->parent ? -1 : 1;
	return strcmp(x->name, y->name);
}

static struct doubt *doubt_new(uint64_t parent, const char *name)
{
	size_t len = strlen(name) + 1;
	struct doubt *d = malloc(offsetof(struct doubt, name) + len);

	if (d) {
		d->parent = parent;
		memcpy(d->name, name, len);
	}
	return d;
}

int doubt_add(struct core *c, uint64_t parent, const char *name, uint64_t ino)
{
	uint64_t owner;
	int rc = 0;

	if (!drain_is_running(c) || (state_backing_owner(c->state, parent, name, &owner) == 0 && owner == ino))
		return 0;
	struct doubt *d = doubt_new(parent, name);
	pthread_mutex_lock(&c->session);
	void *found = d ? tsearch(d, &c->doubts, compare) : NULL;
	if (!found)
		rc = -ENOMEM;
	else if (*(struct doubt **)found == d)
		d = NULL; /* the tree has it now */
	c->any_doubt = c->doubts != NULL;
	pthread_mutex_unlock(&c->session);
	free(d);
	return rc;
}

bool doubt_hides(struct core *c, uint64_t parent, const char *name)
{
	union {
		struct doubt d;
		char room[sizeof(struct doubt) + RECORD_NAME_MAX + 1];
	} key = { .d.parent = parent };
	size_t len = strnlen(name, RECORD_NAME_MAX + 1) + 1;

	if (!c->any_doubt || len > RECORD_NAME_MAX + 1)
		return false;
	memcpy(key.room + offsetof(struct doubt, name), name, len);
	pthread_mutex_lock(&c->session);
	bool found = tfind(&key.d, &c->doubts, compare) != NULL;
	pthread_mutex_unlock(&c->session);
	return found;
}

bool core_doubts(struct core *c, uint64_t parent, const char *name)
{
	return doubt_hides(c, parent, name);
}

struct each_doubt {
	uint64_t parent;
	void (*each)(const char *name, void *arg);
	void *arg;
};

static void visit(const void *node, VISIT which, void *arg)
{
	const struct doubt *d = *(struct doubt *const *)node;
	struct each_doubt *e = arg;

	if ((which == postorder || which == leaf) && d->parent == e->parent)
		e->each(d->name, e->arg);
}

void core_each_doubt(struct core *c, uint64_t parent, void (*each)(const char *name, void *arg), void *arg)
{
	struct each_doubt e = { parent, each, arg };

	if (!c->any_doubt)
		return;
	pthread_mutex_lock(&c->session);
	twalk_r(c->doubts, visit, &e);
	pthread_mutex_unlock(&c->session);
}

void doubt_clear(struct core *c)
{
	tdestroy(c->doubts, free);
	c->doubts = NULL;
	c->any_doubt = false;
}
