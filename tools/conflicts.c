/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What two nodes of a job wrote to the same bytes although neither had seen the other's. Each domain home knows of its own
 * domains, in its store's share maps; here they are put together: what touches is one. A file's name is in the store of its
 * home, or, as far as other nodes remember it, in theirs.
 */
#include "tools/conflicts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/array.h"
#include "format/base/json.h"
#include "format/base/units.h"
#include "tools/lib/say.h"
#include "tools/lib/stores.h"
#include "tools/lib/target.h"
#include "tools/lib/walk.h"

struct file {
	uint64_t ino;
	char *path; /* owned; NULL: not known */
	struct share_conflicts met;
};

struct conflicts {
	struct stores members;
	struct file *files; /* owned; sorted by ino when all are there */
	size_t num_files, cap_files;
};

/* ---- the stores */

static int add_member(struct conflicts *c, const char *name, struct cistern_error *err)
{
	struct target *t = malloc(sizeof(*t));
	int r = t ? target_resolve(name, t, err) : cistern_error_set(err, -ENOMEM, "out of memory");

	if (r == 0)
		r = stores_add(&c->members, t->store, err);
	free(t);
	return r;
}

static struct state *state_of(const struct conflicts *c, size_t member)
{
	return store_state(c->members.list[member].store);
}

/* ---- what they know */

static int add_file(struct conflicts *c, const struct file *f)
{
	if (array_room(&c->files, &c->cap_files, c->num_files, sizeof(*c->files)) < 0)
		return -ENOMEM;
	c->files[c->num_files++] = *f;
	return 0;
}

static int take(const struct share_conflict *met, void *arg)
{
	struct file *f = arg;

	return share_conflicts_add(&f->met, met, UINT32_MAX);
}

struct asking {
	struct conflicts *c;
	struct state *st;
};

static int ask(uint64_t ino, uint64_t extents, void *arg)
{
	struct asking *a = arg;
	struct file f = { .ino = ino };
	int r = state_conflicts(a->st, ino, take, &f, &f.met.more);

	if (r == 0 && f.met.num > 0)
		r = add_file(a->c, &f);
	if (r < 0 || f.met.num == 0)
		share_conflicts_free(&f.met);
	return r;
}

static int by_ino(const void *a, const void *b)
{
	const struct file *x = a, *y = b;

	return (x->ino > y->ino) - (x->ino < y->ino);
}

/* What several stores know of one file becomes one. */
static int merge(struct conflicts *c)
{
	size_t kept = 0;
	int r = 0;

	if (c->num_files > 1)
		qsort(c->files, c->num_files, sizeof(*c->files), by_ino);
	for (size_t i = 0; i < c->num_files; i++) {
		struct file *f = &c->files[i], *last = kept > 0 ? &c->files[kept - 1] : NULL;

		if (!last || last->ino != f->ino) {
			c->files[kept++] = *f;
			continue;
		}
		for (uint32_t k = 0; r == 0 && k < f->met.num; k++)
			r = take(&f->met.list[k], last);
		last->met.more += f->met.more;
		share_conflicts_free(&f->met);
	}
	c->num_files = kept;
	return r;
}

static int gather(struct conflicts *c)
{
	struct asking a = { .c = c };
	int r = 0;

	for (size_t m = 0; r == 0 && m < c->members.num; m++) {
		a.st = state_of(c, m);
		r = state_each_shared(a.st, ask, &a);
	}
	return r == 0 ? merge(c) : r;
}

/* ---- names */

static int note_path(const char *path, const struct inode *in, void *arg)
{
	struct conflicts *c = arg;
	struct file key = { .ino = in->ino }, *f = NULL;

	if (c->num_files > 0)
		f = bsearch(&key, c->files, c->num_files, sizeof(*c->files), by_ino);
	if (!f || f->path)
		return 0;
	f->path = strdup(path);
	return f->path ? 0 : -ENOMEM;
}

/* As another node than its home remembers it. */
static void remember_path(struct state *st, struct file *f)
{
	char path[PATH_MAX + RECORD_NAME_MAX + 2];
	struct inode in;

	if (!f->path && state_inode(st, f->ino, &in) == 0 && walk_remembered(st, &in, path, sizeof(path)))
		f->path = strdup(path);
}

static int name_files(struct conflicts *c)
{
	int r = 0;

	for (size_t m = 0; r == 0 && m < c->members.num && c->num_files > 0; m++)
		r = walk_names(state_of(c, m), note_path, c);
	for (size_t i = 0; r == 0 && i < c->num_files; i++)
		for (size_t m = 0; m < c->members.num; m++)
			remember_path(state_of(c, m), &c->files[i]);
	return r;
}

/* ---- printing */

static uint64_t count_more(const struct conflicts *c)
{
	uint64_t more = 0;

	for (size_t i = 0; i < c->num_files; i++)
		more += c->files[i].met.more;
	return more;
}

static void print_file(const struct file *f, struct json *j)
{
	for (uint32_t i = 0; i < f->met.num; i++) {
		const struct share_conflict *met = &f->met.list[i];

		json_object(j);
		if (f->path)
			json_kstr(j, "path", f->path);
		json_ku64(j, "ino", f->ino);
		json_ku64(j, "offset", met->off);
		json_ku64(j, "length", met->len);
		json_ku64(j, "node", met->node);
		json_ku64(j, "other", met->other);
		json_end_object(j);
	}
}

static void print_json(const struct conflicts *c)
{
	struct json j;

	json_init(&j, stdout, true);
	json_object(&j);
	json_ku64(&j, "stores", c->members.num);
	json_ku64(&j, "nodes", store_superblock(c->members.list[0].store)->num_nodes);
	json_key(&j, "conflicts");
	json_array(&j);
	for (size_t i = 0; i < c->num_files; i++)
		print_file(&c->files[i], &j);
	json_end_array(&j);
	json_ku64(&j, "not_listed", count_more(c));
	json_end_object(&j);
	json_finish(&j);
}

static void print_text(const struct conflicts *c)
{
	uint32_t nodes = store_superblock(c->members.list[0].store)->num_nodes;
	uint64_t more = count_more(c), num = 0;
	char overlaps[UNITS_COUNT], files[UNITS_COUNT];

	for (size_t i = 0; i < c->num_files; i++) {
		const struct file *f = &c->files[i];

		if (num == 0 && f->met.num > 0)
			printf("%16s %12s %6s %6s  %s\n", "OFFSET", "LENGTH", "NODE", "OTHER", "FILE");
		num += f->met.num;
		for (uint32_t k = 0; k < f->met.num; k++) {
			printf("%16" PRIu64 " %12" PRIu64 " %6" PRIu32 " %6" PRIu32 "  ", f->met.list[k].off,
				f->met.list[k].len, f->met.list[k].node, f->met.list[k].other);
			if (!f->path)
				printf("(inode %" PRIu64 ")", f->ino);
			for (const char *p = f->path; p && *p; p++)
				putchar((unsigned char)*p < 0x20 || *p == 0x7f ? '?' : *p);
			putchar('\n');
		}
	}
	printf("%s in %s\n", units_format_count(num, "overlap", overlaps),
		units_format_count(c->num_files, "file", files));
	if (more > 0)
		printf("more were met than a store keeps: %" PRIu64 " times\n", more);
	if (c->members.num < nodes)
		printf("%zu of %" PRIu32 " stores: the others may know of more\n", c->members.num, nodes);
}

/* ---- */

static void conflicts_close(struct conflicts *c)
{
	for (size_t i = 0; i < c->num_files; i++) {
		free(c->files[i].path);
		share_conflicts_free(&c->files[i].met);
	}
	free(c->files);
	stores_close(&c->members);
}

int conflicts_show(char *const *targets, size_t num, bool want_json)
{
	struct cistern_error err = { 0 };
	struct conflicts c = { 0 };
	int r = 0;

	for (size_t i = 0; r == 0 && i < num; i++)
		r = add_member(&c, targets[i], &err);
	if (r == 0) {
		r = gather(&c);
		if (r == 0)
			r = name_files(&c);
		if (r < 0)
			cistern_error_set(&err, r, "reading the index: %s", strerror(-r));
	}
	if (r == 0 && want_json)
		print_json(&c);
	else if (r == 0)
		print_text(&c);
	conflicts_close(&c);
	return r < 0 ? say_error(&err) : 0;
}
