/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The core as one node of a job (docs/design/many-nodes.md, 3). Every node has the whole tree of directories that any of
 * them has touched; what changes it is ordered by node 0, where the usual functions do it within core_tree_begin and
 * core_tree_end, and each record that they commit is noted, so that the other nodes commit it as well.
 *
 * Also here: what other nodes need of names that they know by the numbers and paths of the node that found them.
 */
#include "fs/core/private.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "format/base/array.h"

void core_join(struct core *c)
{
	c->joined = true;
}

/* ---- tree changes */

static bool is_open_here(struct core *c)
{
	return c->tree_open && pthread_equal(c->tree_owner, pthread_self());
}

int tree_commit(struct core *c, uint32_t type, struct record *rec)
{
	bool of_tree = c->joined && type == S_IFDIR;

	if (of_tree && !is_open_here(c))
		return -EREMCHG;
	if (of_tree) {
		rec->flags |= RECORD_F_TREE;
		rec->stamp = state_tree_stamp(c->state) + 1;
	}
	int rc = store_commit(c->store, rec);
	if (rc == 0 && of_tree)
		c->tree_note(rec, c->tree_arg);
	return rc;
}

/* -ENOENT: of a directory that has gone: who has made it takes it back. */
int tree_commit_drained(struct core *c, struct record *rec)
{
	if (!is_open_here(c))
		return store_commit(c->store, rec);
	return state_tree_is_gone(c->state, rec) ? -ENOENT : tree_commit(c, S_IFDIR, rec);
}

void core_tree_begin(struct core *c, void (*note)(const struct record *rec, void *arg), void *arg)
{
	c->tree_note = note;
	c->tree_arg = arg;
	c->tree_owner = pthread_self();
	c->tree_open = true;
}

void core_tree_end(struct core *c)
{
	c->tree_open = false;
}

/* names is held: what our nodes must know of it. */
static void note_applied(struct core *c, const struct record *rec)
{
	bool replaced = rec->type == RECORD_RENAME && rec->other_ino && !(rec->flags & RECORD_F_EXCHANGE);
	struct node_ref n NODE_CLEANUP = node_take(c, replaced ? rec->other_ino : rec->ino);

	if (!n.n)
		return;
	n.n->known = true;
	if (replaced || rec->type == RECORD_UNLINK)
		name_lost(c, n.n);
}

/* Who reads attributes holds the node's lock. */
static int commit_locked(struct core *c, struct record *rec)
{
	struct node_ref r NODE_CLEANUP = node_take(c, rec->ino);

	if (!r.n)
		return store_commit(c->store, rec);
	pthread_rwlock_wrlock(&r.n->lock);
	int rc = store_commit(c->store, rec);
	pthread_rwlock_unlock(&r.n->lock);
	return rc;
}

/* names is held. */
static int commit_applied(struct record *rec, void *arg)
{
	struct core *c = arg;
	int rc = commit_locked(c, rec);

	if (rc == 0)
		note_applied(c, rec);
	return rc;
}

int core_tree_apply(struct core *c, struct record *rec)
{
	pthread_mutex_lock(&c->names);
	int rc = state_tree_follow(c->state, rec, commit_applied, c);
	pthread_mutex_unlock(&c->names);
	motion_told(c);
	return rc;
}

/* ---- what is where */

uint32_t core_type(struct core *c, uint64_t ino)
{
	struct node_ref r NODE_CLEANUP = node_take(c, ino);

	return r.n ? r.n->type : 0;
}

/* What the state says of a thing that it may not have. */
static int yes_or_no(int rc, bool yes)
{
	return rc == 0 ? yes : rc == -ENOENT ? 0 : rc;
}

int core_is_known(struct core *c, uint64_t ino)
{
	struct inode in = { .flags = 0 };
	int rc = state_inode(c->state, ino, &in);

	return yes_or_no(rc, !(in.flags & (INODE_ORPHAN | INODE_FOREIGN)));
}

int core_owns_backing(struct core *c, uint64_t parent, const char *name)
{
	uint64_t owner;

	return yes_or_no(state_backing_owner(c->state, parent, name, &owner), true);
}

/* In this order: a name that is in doubt no more is known to the state. */
int core_hides_backing(struct core *c, uint64_t parent, const char *name)
{
	return doubt_hides(c, parent, name) ? 1 : core_owns_backing(c, parent, name);
}

int core_hold(struct core *c, uint64_t ino)
{
	struct node_ref r NODE_CLEANUP = node_take(c, ino);

	if (!r.n)
		return -ESTALE;
	node_count_lookup(c, r.n);
	return 0;
}

static int fill_and_count(struct core *c, struct node *n, struct core_entry *ret)
{
	int rc = attr_fill(c, n, NULL, ret);

	if (rc == 0)
		node_count_lookup(c, n);
	return rc;
}

int core_tree_lookup(struct core *c, uint64_t parent, const char *name, struct core_entry *ret)
{
	struct node_ref r NODE_CLEANUP = { c, NULL };
	struct state_name found;
	struct inode in;
	int rc = state_lookup(c->state, parent, name, &found);

	if (rc < 0 || found.type != S_IFDIR)
		return rc < 0 ? rc : -ENOENT;
	rc = state_inode(c->state, found.ino, &in);
	if (rc == 0)
		rc = node_of_state(c, &in, &r.n);
	if (rc < 0)
		return rc;
	r.n->parent_ino = parent;
	return fill_and_count(c, r.n, ret);
}

/* A name that we have taken over, and perhaps show: nobody else can tell it from one that is untouched. */
static int own_entry(struct core *c, uint64_t parent, const char *name, struct core_entry *ret)
{
	struct state_name found;
	int rc = state_lookup(c->state, parent, name, &found);

	if (rc == 0 && found.type == S_IFDIR)
		return core_tree_lookup(c, parent, name, ret);
	if (rc == 0) {
		ret->ino = ret->attr.st_ino = found.ino;
		ret->attr.st_mode = found.type;
	}
	return rc;
}

int core_backing_lookup(struct core *c, uint64_t parent, const char *name, struct core_entry *ret)
{
	struct node_ref dir NODE_CLEANUP = node_take(c, parent);
	struct node_ref found NODE_CLEANUP = { c, NULL };

	if (!dir.n)
		return -ESTALE;
	*ret = (struct core_entry){ .ino = 0 };
	int rc = dir.n->known ? core_owns_backing(c, parent, name) : 0;
	if (rc != 0)
		return rc < 0 ? rc : own_entry(c, parent, name, ret);
	struct motion m = { 0 };
	do
		rc = overlay_stat_child(c, dir.n, name, &ret->attr);
	while (motion_again(c, &m, rc));
	if (rc < 0)
		return rc;
	if (S_ISDIR(ret->attr.st_mode)) {
		rc = node_of_backing(c, dir.n, name, &ret->attr, &found.n);
		return rc < 0 ? rc : fill_and_count(c, found.n, ret);
	}
	ret->ino = ret->attr.st_ino = node_backing_number(c, ret->attr.st_dev, ret->attr.st_ino);
	return 0;
}

/* ---- hints */

/* name put in front of path, which is in a buffer of cap bytes. */
static int prepend(char *path, size_t cap, const char *name)
{
	size_t len = strlen(path), add = strlen(name), slash = len > 0;

	if (add + slash + len + 1 > cap)
		return -ENAMETOOLONG;
	memmove(path + add + slash, path, len + 1);
	memcpy(path, name, add);
	if (slash)
		path[add] = '/';
	return 0;
}

int core_hint(struct core *c, uint64_t parent, const char *name, uint64_t *ret_dir, char *out, size_t cap)
{
	struct node *n = node_get(c, parent);
	int rc = n ? 0 : -ESTALE;

	out[0] = '\0';
	if (rc == 0 && name)
		rc = prepend(out, cap, name);
	while (rc == 0 && !n->known) {
		char at[RECORD_NAME_MAX + 1];
		struct node *up = NULL;

		rc = node_origin(c, n, &up, at);
		if (rc < 0) {
			rc = n->known ? 0 : -ESTALE;
			break;
		}
		node_put(c, n);
		n = up;
		rc = prepend(out, cap, at);
	}
	if (rc == 0)
		*ret_dir = n->ino;
	node_put(c, n);
	return rc;
}

/* From dir along path: 0 and a reference. */
static int walk(struct core *c, uint64_t dir, const char *path, struct node **ret)
{
	char copy[PATH_MAX], *save = NULL;
	struct node *n = node_get(c, dir);

	if (!n)
		return -ESTALE;
	if (snprintf(copy, sizeof(copy), "%s", path) >= (int)sizeof(copy)) {
		node_put(c, n);
		return -ENAMETOOLONG;
	}
	for (char *part = strtok_r(copy, "/", &save); part; part = strtok_r(NULL, "/", &save)) {
		struct node *next = NULL;
		struct motion m = { 0 };
		int rc;

		do
			rc = overlay_resolve(c, n, part, &next);
		while (motion_again(c, &m, rc));
		node_put(c, n);
		if (rc < 0)
			return rc == -ENOENT ? -ESTALE : rc;
		n = next;
	}
	*ret = n;
	return 0;
}

int core_find(struct core *c, uint64_t ino, uint64_t dir, const char *path)
{
	struct node_ref r NODE_CLEANUP = node_take(c, ino);
	int rc = r.n ? 0 : core_is_known(c, ino);

	if (!r.n && rc >= 0)
		rc = dir == 0 || path[0] == '\0' ? -ESTALE : walk(c, dir, path, &r.n);
	if (rc == 0 && r.n->ino != ino)
		rc = -ESTALE;
	if (rc == 0)
		node_count_lookup(c, r.n);
	return rc;
}

int core_adopt_path(struct core *c, uint64_t dir, const char *path)
{
	struct node_ref r NODE_CLEANUP = { c, NULL };
	int rc = walk(c, dir, path, &r.n);

	return rc < 0 ? rc : overlay_adopt_locked(c, r.n);
}

/* names is held. */
static int raise_stamp(struct core *c, struct node *dir, const char *name, struct node *n, uint64_t stamp)
{
	struct record rec = {
		.type = RECORD_ADOPT, .ino = n->ino, .parent = dir->ino, .mode = n->type, .stamp = stamp
	};
	char target[RECORD_TARGET_MAX + 1];
	struct state_name there;
	int rc = state_lookup(c->state, dir->ino, name, &there);

	if (rc < 0 || there.ino != n->ino)
		return rc < 0 ? rc : -ENOENT;
	if (there.stamp >= stamp)
		return 0;
	snprintf(rec.name, sizeof(rec.name), "%s", name);
	if (n->type == S_IFLNK) {
		rc = state_symlink(c->state, n->ino, target, sizeof(target));
		rec.target = target;
		rec.target_len = rc < 0 ? 0 : strlen(target);
	}
	return rc < 0 ? rc : store_commit(c->store, &rec);
}

int core_adopt_name(struct core *c, uint64_t parent, const char *name, uint64_t ino, uint64_t stamp)
{
	struct node_ref dir NODE_CLEANUP = node_take(c, parent);
	struct node_ref n NODE_CLEANUP = node_take(c, ino);

	struct stat st;

	if (!dir.n || !n.n)
		return -ESTALE;
	struct motion m = { 0 };
	int rc;
	do {
		if (!n.n->known) /* should the backing directory hang, then while nobody waits for names */
			(void)overlay_stat(c, n.n, &st);
		pthread_mutex_lock(&c->names);
		rc = overlay_adopt_name(c, dir.n, name, n.n);
		if (rc == 0)
			rc = raise_stamp(c, dir.n, name, n.n, stamp);
		pthread_mutex_unlock(&c->names);
	} while (motion_again(c, &m, rc));
	return rc;
}

/* ---- loops */

struct search {
	struct core *c;
	uint64_t ino;
	uint64_t *todo; /* owned */
	size_t num, cap;
};

static int see_name(const char *name, uint64_t ino, uint32_t type, void *arg)
{
	struct search *s = arg;

	(void)name;
	if (type != S_IFDIR)
		return 0;
	if (ino == s->ino)
		return 1;
	if (array_room(&s->todo, &s->cap, s->num, sizeof(*s->todo)) < 0)
		return -ENOMEM;
	s->todo[s->num++] = ino;
	return 0;
}

bool core_is_below(struct core *c, uint64_t ino, uint64_t dir)
{
	struct search s = { .c = c, .ino = ino };
	int rc = see_name("", dir, S_IFDIR, &s);

	while (rc == 0 && s.num > 0)
		rc = core_each_name(c, s.todo[--s.num], see_name, &s);
	free(s.todo);
	return rc != 0; /* also when it could not be found out */
}
