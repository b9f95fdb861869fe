/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What the homes of files have told us of names and attributes under their word (quiet.c) is not asked again while that is good: a program that walks
 * through a directory looks each name up several times, and asks for attributes and extended attributes right behind it.
 *
 * A table of a fixed size; what falls into the same place goes. Lookups are still counted at the home once at least: a name is taken from here only as long as our
 * kernel has the file, or it is looked up again.
 */
#include "fs/job/quiet.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define SEEN_NUM 8192u /* a power of 2 */

struct place {
	uint64_t dir, number;
	uint32_t home;
	char *name; /* owned; NULL: nothing is here */
	struct core_entry entry;
	bool bare;
};

struct seen_table {
	pthread_mutex_t lock;
	struct place places[SEEN_NUM];
	uint32_t by_ino[SEEN_NUM]; /* the place of the last such inode */
};

static struct place *place_of(struct seen_table *t, uint64_t dir, const char *name)
{
	return &t->places[place_name_bucket(dir, name, SEEN_NUM)];
}

static uint32_t *ino_place(struct seen_table *t, uint64_t ino)
{
	return &t->by_ino[ino * 0x9E3779B97F4A7C15ull >> 32 & (SEEN_NUM - 1)];
}

void seen_put(struct job *j, uint32_t home, uint64_t number, const struct seen *s)
{
	struct seen_table *t = j->seen;
	char *name = number ? strdup(s->name) : NULL;

	if (!name)
		return;
	pthread_mutex_lock(&t->lock);
	struct place *p = place_of(t, s->dir, s->name);
	free(p->name);
	*p = (struct place){
		.dir = s->dir, .number = number, .home = home, .name = name, .entry = s->entry, .bare = s->bare
	};
	*ino_place(t, s->entry.ino) = (uint32_t)(p - t->places);
	pthread_mutex_unlock(&t->lock);
}

/* lock is held. */
static bool is_good(struct job *j, const struct place *p)
{
	return p->name && quiet_holds(j, p->home, p->number);
}

/* lock is held. NULL: it is not here, or not good any more. */
static struct place *find(struct job *j, uint64_t dir, const char *name)
{
	struct place *p = place_of(j->seen, dir, name);

	return is_good(j, p) && p->dir == dir && strcmp(p->name, name) == 0 ? p : NULL;
}

bool seen_has(struct job *j, uint64_t dir, const char *name)
{
	pthread_mutex_lock(&j->seen->lock);
	bool has = find(j, dir, name);
	pthread_mutex_unlock(&j->seen->lock);
	return has;
}

bool seen_lookup(struct job *j, uint64_t dir, const char *name, struct core_entry *ret)
{
	pthread_mutex_lock(&j->seen->lock);
	struct place *p = find(j, dir, name);
	if (p)
		*ret = p->entry;
	pthread_mutex_unlock(&j->seen->lock);
	return p && remote_count_again(j, ret->ino);
}

bool seen_attr(struct job *j, uint64_t ino, struct core_entry *ret, bool *ret_bare)
{
	struct seen_table *t = j->seen;

	pthread_mutex_lock(&t->lock);
	struct place *p = &t->places[*ino_place(t, ino)];
	bool known = is_good(j, p) && p->entry.ino == ino;
	if (known && ret)
		*ret = p->entry;
	if (known && ret_bare)
		*ret_bare = p->bare;
	pthread_mutex_unlock(&t->lock);
	return known;
}

/* ---- life */

static int seen_create(struct job *j, struct cistern_error *err)
{
	j->seen = calloc(1, sizeof(*j->seen));
	if (!j->seen)
		return cistern_error_set(err, -ENOMEM, "out of memory");
	pthread_mutex_init(&j->seen->lock, NULL);
	return 0;
}

static void seen_destroy(struct job *j)
{
	if (!j->seen)
		return;
	for (size_t i = 0; i < SEEN_NUM; i++)
		free(j->seen->places[i].name);
	pthread_mutex_destroy(&j->seen->lock);
	free(j->seen);
	j->seen = NULL;
}

const struct part seen_part = { .create = seen_create, .destroy = seen_destroy };
