/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Directory listings: the names that the store shows, and those of the backing directory that it has not taken over. A
 * listing is taken whole at the first read (and again at rewinddir, so what came before that is in it), so that offsets
 * are plain indexes that stay good however many entries come and go meanwhile.
 */
#include "fs/core/private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "format/base/array.h"

#define DIR_BATCH 512

struct dir_entry {
	uint64_t ino;
	uint32_t type;
	uint32_t name; /* offset into names */
};

struct dir_list {
	struct dir_entry *entries;
	size_t num, cap;
	char *names;
	size_t names_len, names_cap;
};

struct core_dir {
	struct node *node;
	pthread_mutex_t lock;
	struct dir_list list;
	bool taken; /* there is a list */
};

static int list_add(struct dir_list *l, const char *name, uint64_t ino, uint32_t type)
{
	size_t len = strlen(name) + 1;

	if (array_room(&l->entries, &l->cap, l->num, sizeof(*l->entries)) < 0)
		return -ENOMEM;
	if (l->names_len + len > l->names_cap) {
		size_t cap = l->names_cap ? l->names_cap * 2 : 4096;
		char *grown = realloc(l->names, cap);
		if (!grown)
			return -ENOMEM;
		l->names = grown;
		l->names_cap = cap;
	}
	memcpy(l->names + l->names_len, name, len);
	l->entries[l->num++] = (struct dir_entry){ ino, type, (uint32_t)l->names_len };
	l->names_len += len;
	return 0;
}

static void list_free(struct dir_list *l)
{
	free(l->entries);
	free(l->names);
	memset(l, 0, sizeof(*l));
}

static const char *list_name(const struct dir_list *l, size_t i)
{
	return l->names + l->entries[i].name;
}

/* Sorted bytewise, as the state lists them. */
static bool list_has(const struct dir_list *l, const char *name)
{
	size_t low = 0, high = l->num;

	while (low < high) {
		size_t mid = low + (high - low) / 2;
		int order = strcmp(list_name(l, mid), name);
		if (order == 0)
			return true;
		if (order < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return false;
}

typedef int list_fn(
	struct state *st, uint64_t parent, const char *after, struct state_name *out, size_t cap, size_t *ret_num);

static int list_of_state(struct core *c, uint64_t ino, list_fn *next, struct dir_list *out)
{
	struct state_name *batch = calloc(DIR_BATCH, sizeof(*batch));
	char after[RECORD_NAME_MAX + 1] = "";
	size_t num = DIR_BATCH;
	int rc = batch ? 0 : -ENOMEM;

	while (rc == 0 && num == DIR_BATCH) {
		rc = next(c->state, ino, after, batch, DIR_BATCH, &num);
		for (size_t i = 0; rc == 0 && i < num; i++)
			rc = list_add(out, batch[i].name, batch[i].ino, batch[i].type);
		if (rc == 0 && num)
			memcpy(after, batch[num - 1].name, sizeof(after));
	}
	free(batch);
	return rc;
}

static uint32_t type_of_dirent(int fd, const struct dirent *d)
{
	struct stat st;

	if (d->d_type != DT_UNKNOWN)
		return DTTOIF(d->d_type);
	return fstatat(fd, d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? st.st_mode & S_IFMT : 0;
}

/* What the backing directory has, but for our own files and for names that a drain may just be putting there. */
static int list_backing(struct core *c, struct node *n, struct dir_list *out)
{
	struct stat st;
	int fd = n == c->root ? openat(c->backing_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
			      : overlay_open(c, n, O_RDONLY | O_DIRECTORY);

	if (fd == -ENOENT && n->known)
		return 0; /* no backing directory yet */
	if (fd < 0)
		return n == c->root ? -errno : fd;
	DIR *dir = fdopendir(fd);
	if (!dir || fstat(fd, &st) < 0) {
		int err = -errno;
		dir ? (void)closedir(dir) : (void)close(fd);
		return err;
	}
	int rc = 0;
	while (rc == 0) {
		errno = 0;
		struct dirent *d = readdir(dir);
		if (!d) {
			rc = -errno;
			break;
		}
		if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0 && !overlay_is_hidden(d->d_name) &&
			!doubt_hides(c, n->ino, d->d_name))
			rc = list_add(
				out, d->d_name, node_backing_number(c, st.st_dev, d->d_ino), type_of_dirent(fd, d));
	}
	closedir(dir);
	return rc;
}

static int add_entries(
	struct dir_list *out, const struct dir_list *from, const struct dir_list *names, const struct dir_list *taken)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < from->num; i++) {
		const char *name = list_name(from, i);
		if (!names || (!list_has(names, name) && !list_has(taken, name)))
			rc = list_add(out, name, from->entries[i].ino, from->entries[i].type);
	}
	return rc;
}

static int list_build(struct core *c, struct node *n, struct dir_list *out)
{
	struct dir_list found = { 0 }, taken = { 0 }, names = { 0 };
	struct node_ref above NODE_CLEANUP = { c, NULL };
	char name[RECORD_NAME_MAX + 1];
	uint64_t parent = node_origin(c, n, &above.n, name) == 0 ? above.n->ino : n->ino;
	int rc = n->orphan ? 0 : list_backing(c, n, &found);

	/* In this order: what comes into the state in between is then taken out of what was found, and is among the names. */
	if (rc == 0 && n->known)
		rc = list_of_state(c, n->ino, state_list_backing_names, &taken);
	if (rc == 0 && n->known)
		rc = list_of_state(c, n->ino, state_list_names, &names);
	if (rc == 0)
		rc = list_add(out, ".", n->ino, S_IFDIR);
	if (rc == 0)
		rc = list_add(out, "..", parent, S_IFDIR);
	if (rc == 0)
		rc = add_entries(out, &found, &names, &taken);
	if (rc == 0)
		rc = add_entries(out, &names, NULL, NULL);
	list_free(&found);
	list_free(&taken);
	list_free(&names);
	return rc;
}

int core_opendir(struct core *c, uint64_t ino, struct core_dir **ret)
{
	struct node *n = node_get(c, ino);

	if (!n)
		return -ESTALE;
	struct core_dir *dir = n->type == S_IFDIR ? calloc(1, sizeof(*dir)) : NULL;
	if (!dir) {
		int rc = n->type == S_IFDIR ? -ENOMEM : -ENOTDIR;
		node_put(c, n);
		return rc;
	}
	pthread_mutex_init(&dir->lock, NULL);
	dir->node = n;
	*ret = dir;
	return 0;
}

void core_closedir(struct core *c, struct core_dir *dir)
{
	list_free(&dir->list);
	pthread_mutex_destroy(&dir->lock);
	node_put(c, dir->node);
	free(dir);
}

int dir_shows_any(struct core *c, struct node *n)
{
	struct dir_list list = { 0 };
	int rc = list_build(c, n, &list);

	if (rc == 0)
		rc = list.num > 2;
	list_free(&list);
	return rc;
}

int core_rewinddir(struct core *c, struct core_dir *dir)
{
	struct dir_list fresh = { 0 };
	struct motion m = { 0 };
	int rc;

	do {
		list_free(&fresh);
		rc = list_build(c, dir->node, &fresh);
	} while (motion_again(c, &m, rc));
	if (rc < 0) {
		list_free(&fresh);
		return rc;
	}
	pthread_mutex_lock(&dir->lock);
	struct dir_list old = dir->list;
	dir->list = fresh;
	dir->taken = true;
	pthread_mutex_unlock(&dir->lock);
	list_free(&old);
	return 0;
}

int core_readdir(struct core *c, struct core_dir *dir, uint64_t index, const char **ret_name, uint64_t *ret_ino,
	uint32_t *ret_type)
{
	pthread_mutex_lock(&dir->lock);
	bool taken = dir->taken;
	pthread_mutex_unlock(&dir->lock);
	int rc = taken ? 0 : core_rewinddir(c, dir);
	if (rc < 0)
		return rc;
	rc = -ENOENT;
	pthread_mutex_lock(&dir->lock);
	if (index < dir->list.num) {
		*ret_name = list_name(&dir->list, index);
		*ret_ino = dir->list.entries[index].ino;
		*ret_type = dir->list.entries[index].type;
		rc = 0;
	}
	pthread_mutex_unlock(&dir->lock);
	return rc;
}

static int each_of(const struct dir_list *l, core_name_cb *cb, void *arg)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < l->num; i++)
		rc = cb(list_name(l, i), l->entries[i].ino, l->entries[i].type, arg);
	return rc;
}

static int each_of_state(struct core *c, uint64_t ino, list_fn *next, core_name_cb *cb, void *arg)
{
	struct dir_list list = { 0 };
	int rc = list_of_state(c, ino, next, &list);

	if (rc == 0)
		rc = each_of(&list, cb, arg);
	list_free(&list);
	return rc;
}

int core_each_name(struct core *c, uint64_t ino, core_name_cb *cb, void *arg)
{
	return each_of_state(c, ino, state_list_names, cb, arg);
}

int core_each_backing_owned(struct core *c, uint64_t ino, core_name_cb *cb, void *arg)
{
	return each_of_state(c, ino, state_list_backing_names, cb, arg);
}

int core_each_backing(struct core *c, uint64_t ino, core_name_cb *cb, void *arg)
{
	struct node_ref r NODE_CLEANUP = node_take(c, ino);
	struct dir_list list = { 0 };
	struct motion m = { 0 };
	int rc;

	do {
		list_free(&list);
		rc = !r.n ? -ESTALE : r.n->orphan ? 0 : list_backing(c, r.n, &list);
	} while (motion_again(c, &m, rc));
	if (rc == 0)
		rc = each_of(&list, cb, arg);
	list_free(&list);
	return rc;
}
