/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Names and their durability. An operation is done to the seen table at once and queued; when it becomes durable it
 * is done to the disk's table as well. What becomes durable is closed under dependency: with an operation go all
 * earlier ones on the same names and the making of the directories above, so that the disk's table is always one that
 * a real file system could have.
 *
 * Memory failure while something becomes durable cannot be reported in a way that a test could use; it aborts.
 */
#include "tests/lib/sim_names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define OPS_MAX 4096 /* then the oldest becomes durable by itself, as with a file system that commits now and then */

static void *must(void *p)
{
	if (!p)
		abort();
	return p;
}

static struct sim_inode *ref(struct sim_inode *inode)
{
	if (inode)
		inode->refs++;
	return inode;
}

/* Inodes without references are collected by the disk. */
static void unref(struct sim_inode *inode)
{
	if (inode)
		inode->refs--;
}

static struct sim_entry *table_find(struct sim_table *table, const char *path)
{
	for (size_t i = 0; i < table->num; i++)
		if (strcmp(table->entries[i].path, path) == 0)
			return &table->entries[i];
	return NULL;
}

static void table_remove(struct sim_table *table, const char *path)
{
	struct sim_entry *entry = table_find(table, path);

	if (!entry)
		return;
	free(entry->path);
	unref(entry->inode);
	*entry = table->entries[--table->num];
}

static void table_put(struct sim_table *table, const char *path, struct sim_inode *inode)
{
	table_remove(table, path);
	if (table->num == table->cap) {
		table->cap = table->cap ? 2 * table->cap : 16;
		table->entries = must(realloc(table->entries, table->cap * sizeof(*table->entries)));
	}
	table->entries[table->num++] = (struct sim_entry){ must(strdup(path)), ref(inode) };
}

static void table_clear(struct sim_table *table)
{
	for (size_t i = 0; i < table->num; i++) {
		free(table->entries[i].path);
		unref(table->entries[i].inode);
	}
	free(table->entries);
	*table = (struct sim_table){ 0 };
}

static void op_destroy(struct sim_op *op)
{
	free(op->path);
	free(op->to);
	unref(op->inode);
}

void sim_names_destroy(struct sim_names *names)
{
	table_clear(&names->seen);
	table_clear(&names->disk);
	for (size_t i = 0; i < names->num_ops; i++)
		op_destroy(&names->ops[i]);
	free(names->ops);
	*names = (struct sim_names){ 0 };
}

int sim_names_clean(const char *path, char out[SIM_PATH_BYTES])
{
	size_t len;

	if (path[0] == '/')
		return -EINVAL;
	while (path[0] == '.' && path[1] == '/')
		path += 2;
	len = strlen(path);
	while (len > 0 && path[len - 1] == '/')
		len--;
	if (len == 1 && path[0] == '.')
		len = 0;
	if (len >= SIM_PATH_BYTES)
		return -ENAMETOOLONG;
	memcpy(out, path, len);
	out[len] = '\0';
	return 0;
}

struct sim_entry *sim_names_find(struct sim_names *names, const char *path)
{
	return table_find(&names->seen, path);
}

bool sim_names_is_dir(struct sim_names *names, const char *path)
{
	struct sim_entry *entry = sim_names_find(names, path);

	return !*path || (entry && !entry->inode);
}

/* The length of path's directory: 0 for the root. */
static size_t dir_len(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? (size_t)(slash - path) : 0;
}

/* 0 when a name can be made at path. */
static int check_parent(struct sim_names *names, const char *path)
{
	char dir[SIM_PATH_BYTES] = "";

	memcpy(dir, path, dir_len(path));
	if (sim_names_is_dir(names, dir))
		return *path ? 0 : -EISDIR;
	return sim_names_find(names, dir) ? -ENOTDIR : -ENOENT;
}

static void apply(struct sim_table *table, const struct sim_op *op)
{
	if (op->kind != SIM_MAKE)
		table_remove(table, op->path);
	if (op->kind != SIM_REMOVE)
		table_put(table, op->to ? op->to : op->path, op->inode);
}

/* The chosen operations become durable, in their order, and leave the queue. */
static void commit(struct sim_names *names)
{
	size_t left = 0;

	for (size_t i = 0; i < names->num_ops; i++) {
		struct sim_op *op = &names->ops[i];

		if (op->chosen) {
			apply(&names->disk, op);
			op_destroy(op);
		} else {
			names->ops[left++] = *op;
		}
	}
	names->num_ops = left;
}

static void queue(
	struct sim_names *names, enum sim_op_kind kind, const char *path, const char *to, struct sim_inode *inode)
{
	if (names->num_ops == OPS_MAX) {
		names->ops[0].chosen = true;
		commit(names);
	}
	if (names->num_ops == names->cap_ops) {
		names->cap_ops = names->cap_ops ? 2 * names->cap_ops : 16;
		names->ops = must(realloc(names->ops, names->cap_ops * sizeof(*names->ops)));
	}
	names->ops[names->num_ops] = (struct sim_op){
		.kind = kind, .path = must(strdup(path)), .to = to ? must(strdup(to)) : NULL, .inode = ref(inode)
	};
	apply(&names->seen, &names->ops[names->num_ops++]);
}

int sim_names_make(struct sim_names *names, const char *path, struct sim_inode *inode)
{
	int r = check_parent(names, path);

	if (!*path || sim_names_find(names, path))
		return -EEXIST;
	if (r)
		return r;
	queue(names, SIM_MAKE, path, NULL, inode);
	if (inode)
		inode->links++;
	return 0;
}

int sim_names_remove(struct sim_names *names, const char *path)
{
	struct sim_entry *entry = sim_names_find(names, path);

	if (sim_names_is_dir(names, path))
		return -EISDIR;
	if (!entry)
		return -ENOENT;
	entry->inode->links--;
	queue(names, SIM_REMOVE, path, NULL, entry->inode);
	return 0;
}

int sim_names_rename(struct sim_names *names, const char *from, const char *to)
{
	struct sim_entry *entry = sim_names_find(names, from), *old = sim_names_find(names, to);
	int r = check_parent(names, to);

	if (sim_names_is_dir(names, from) || sim_names_is_dir(names, to))
		return -EISDIR;
	if (!entry)
		return -ENOENT;
	if (r || entry == old)
		return r;
	if (old)
		old->inode->links--;
	queue(names, SIM_RENAME, from, to, entry->inode);
	return 0;
}

static bool is_above(const char *dir, const char *path)
{
	size_t len = strlen(dir);

	return strncmp(path, dir, len) == 0 && path[len] == '/';
}

static bool same(const char *a, const char *b)
{
	return a && b && strcmp(a, b) == 0;
}

/* later cannot be durable without earlier. */
static bool depends(const struct sim_op *later, const struct sim_op *earlier)
{
	if (!earlier->inode)
		return is_above(earlier->path, later->path) || (later->to && is_above(earlier->path, later->to));
	return same(later->path, earlier->path) || same(later->path, earlier->to) || same(later->to, earlier->path) ||
	       same(later->to, earlier->to);
}

static void commit_with_dependencies(struct sim_names *names)
{
	for (size_t i = names->num_ops; i-- > 0;)
		for (size_t k = i + 1; k < names->num_ops && !names->ops[i].chosen; k++)
			names->ops[i].chosen = names->ops[k].chosen && depends(&names->ops[k], &names->ops[i]);
	commit(names);
}

static bool is_in(const char *path, const char *dir)
{
	return path && dir_len(path) == strlen(dir) && strncmp(path, dir, strlen(dir)) == 0;
}

void sim_names_sync_dir(struct sim_names *names, const char *dir)
{
	for (size_t i = 0; i < names->num_ops; i++)
		names->ops[i].chosen = is_in(names->ops[i].path, dir) || is_in(names->ops[i].to, dir);
	commit_with_dependencies(names);
}

void sim_names_sync_inode(struct sim_names *names, const struct sim_inode *inode)
{
	for (size_t i = 0; i < names->num_ops; i++)
		names->ops[i].chosen = names->ops[i].kind == SIM_MAKE && names->ops[i].inode == inode;
	commit_with_dependencies(names);
}

void sim_names_power_cut(struct sim_names *names, struct sim_random *random)
{
	size_t kept = (size_t)sim_random_below(random, names->num_ops + 1);

	for (size_t i = 0; i < names->num_ops; i++)
		names->ops[i].chosen = i < kept;
	commit(names);
	for (size_t i = 0; i < names->num_ops; i++)
		op_destroy(&names->ops[i]);
	names->num_ops = 0;
	for (size_t i = 0; i < names->seen.num; i++)
		if (names->seen.entries[i].inode)
			names->seen.entries[i].inode->links--;
	table_clear(&names->seen);
	for (size_t i = 0; i < names->disk.num; i++) {
		struct sim_entry *entry = &names->disk.entries[i];

		table_put(&names->seen, entry->path, entry->inode);
		if (entry->inode)
			entry->inode->links++;
	}
}
