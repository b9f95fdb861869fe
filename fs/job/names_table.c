/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/job/names_table.h"

#include <stdlib.h>
#include <string.h>

static struct name_dir **dir_bucket(struct names_table *t, uint64_t ino)
{
	return &t->dirs[ino * 0x9E3779B97F4A7C15ull >> 48];
}

static struct name_entry **entry_bucket(struct names_table *t, uint64_t dir, const char *name)
{
	return &t->entries[place_name_bucket(dir, name, NAMES_BUCKETS)];
}

struct name_dir *names_table_dir(struct names_table *t, uint64_t ino, bool make)
{
	struct name_dir *d = *dir_bucket(t, ino);

	while (d && d->ino != ino)
		d = d->next;
	if (!d && make && (d = calloc(1, sizeof(*d)))) {
		d->ino = ino;
		d->next = *dir_bucket(t, ino);
		*dir_bucket(t, ino) = d;
	}
	return d;
}

void names_table_drop_dir(struct names_table *t, struct name_dir *d)
{
	struct name_dir **at = dir_bucket(t, d->ino);

	if (d->entries || d->closed)
		return;
	while (*at != d)
		at = &(*at)->next;
	*at = d->next;
	free(d);
}

void names_table_close_dir(struct names_table *t, struct name_dir *d)
{
	if (d->closed)
		return;
	d->closed = true;
	d->next_closed = t->closed;
	t->closed = d;
}

struct name_dir *names_table_open_dir(struct names_table *t)
{
	struct name_dir *d = t->closed;

	if (d) {
		t->closed = d->next_closed;
		d->closed = false;
	}
	return d;
}

struct name_entry *names_table_find(struct names_table *t, uint64_t dir, const char *name)
{
	struct name_entry *e = *entry_bucket(t, dir, name);

	while (e && (e->dir->ino != dir || strcmp(e->name, name) != 0))
		e = e->next;
	return e;
}

static void link_to_dir(struct name_dir *d, struct name_entry *e)
{
	e->dir = d;
	e->in_dir = d->first;
	e->in_dir_at = &d->first;
	if (d->first)
		d->first->in_dir_at = &e->in_dir;
	d->first = e;
	d->entries++;
}

static void unlink_from_dir(struct name_entry *e)
{
	*e->in_dir_at = e->in_dir;
	if (e->in_dir)
		e->in_dir->in_dir_at = e->in_dir_at;
	e->dir->entries--;
}

struct name_entry *names_table_make(struct names_table *t, uint64_t dir, const char *name)
{
	struct name_entry *e = names_table_find(t, dir, name);
	size_t len = strlen(name) + 1;

	if (e)
		return e;
	struct name_dir *d = names_table_dir(t, dir, true);
	e = d ? calloc(1, sizeof(*e) + len) : NULL;
	if (!e) {
		if (d)
			names_table_drop_dir(t, d);
		return NULL;
	}
	memcpy(e->name, name, len);
	e->last = &e->first;
	link_to_dir(d, e);
	e->next = *entry_bucket(t, dir, name);
	*entry_bucket(t, dir, name) = e;
	t->num++;
	return e;
}

void names_table_drop(struct names_table *t, struct name_entry *e)
{
	struct name_entry **at = entry_bucket(t, e->dir->ino, e->name);
	struct name_dir *d = e->dir;

	if (e->at.ino || e->at.hidden || e->at.left || e->id || e->doubted || e->lacking || e->first)
		return;
	while (*at != e)
		at = &(*at)->next;
	*at = e->next;
	unlink_from_dir(e);
	free(e);
	t->num--;
	names_table_drop_dir(t, d);
}

void names_table_free(struct names_table *t)
{
	for (size_t i = 0; i < NAMES_BUCKETS; i++) {
		for (struct name_entry *e = t->entries[i], *next; e; e = next) {
			next = e->next;
			free(e);
		}
		for (struct name_dir *d = t->dirs[i], *next; d; d = next) {
			next = d->next;
			free(d);
		}
	}
}

/* ---- entries */

/* What is locked may be gone: the word of it is under way. */
static bool is_sure_file(const struct name_entry *e)
{
	return e->at.ino && !e->id;
}

void name_entry_set_pointer(struct names_table *t, struct name_entry *e, const struct pointer *at)
{
	t->lefts += (at->left != 0) - (e->at.left != 0);
	e->dir->files -= is_sure_file(e);
	e->at = *at;
	e->dir->files += is_sure_file(e);
}

void name_entry_set_owner(struct name_entry *e, uint32_t node, uint64_t id)
{
	e->dir->locked += (id != 0) - (e->id != 0);
	e->dir->files -= is_sure_file(e);
	e->id = id;
	e->dir->files += is_sure_file(e);
	e->node = node;
	e->over = false;
}

void name_entry_set_lacking(struct names_table *t, struct name_entry *e, bool lacking)
{
	t->lacking += lacking - e->lacking;
	e->dir->lacking += lacking - e->lacking;
	e->lacking = lacking;
}
