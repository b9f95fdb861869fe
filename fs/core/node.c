/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Nodes: what the daemon keeps in memory for each inode that the kernel knows. A node lives as long as the kernel
 * remembers its number (lookups), somebody has it open, or a child's origin needs it; it is found by number in a hash
 * table. An inode that lost its last name is freed in the state when its node goes.
 */
#include "fs/core/private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct node **bucket_of(struct core *c, uint64_t ino)
{
	return &c->buckets[(ino * 0x9E3779B97F4A7C15ull) >> 48 & (CORE_BUCKETS - 1)];
}

static struct node *table_find(struct core *c, uint64_t ino)
{
	for (struct node *n = *bucket_of(c, ino); n; n = n->hash_next)
		if (n->ino == ino)
			return n;
	return NULL;
}

static void table_remove(struct core *c, struct node *gone)
{
	struct node **at = bucket_of(c, gone->ino);

	while (*at != gone)
		at = &(*at)->hash_next;
	*at = gone->hash_next;
}

/* In a job other nodes ask for what our kernel has never seen. */
static struct node *node_of_number(struct core *c, uint64_t ino)
{
	struct node *n = NULL;
	struct inode in;

	if (state_inode(c->state, ino, &in) == 0 && !(in.flags & INODE_FOREIGN))
		(void)node_of_state(c, &in, &n);
	return n;
}

struct node *node_get(struct core *c, uint64_t ino)
{
	pthread_mutex_lock(&c->table);
	struct node *n = table_find(c, ino);
	if (n)
		n->refs++;
	pthread_mutex_unlock(&c->table);
	return n || !c->joined ? n : node_of_number(c, ino);
}

void node_ref(struct core *c, struct node *n)
{
	pthread_mutex_lock(&c->table);
	n->refs++;
	pthread_mutex_unlock(&c->table);
}

void node_discard(struct node *n)
{
	pthread_mutex_destroy(&n->through);
	pthread_rwlock_destroy(&n->lock);
	free(n->origin_name);
	free(n);
}

static void node_free(struct core *c, struct node *n)
{
	if (n->private_fd >= 0)
		close(n->private_fd);
	if (n->backing_fd >= 0)
		close(n->backing_fd);
	if (n->orphan && n->known && !c->read_only) {
		struct record rec = { .type = RECORD_FREE, .ino = n->ino };
		struct inode in;
		if (c->gone && state_inode(c->state, n->ino, &in) == 0 && in.flags & INODE_SHARED)
			c->gone(n->ino, c->gone_arg);
		(void)store_commit(c->store, &rec); /* a failure leaves an orphan, which the next mount frees */
	}
	struct node *parent = n->origin_parent;
	node_discard(n);
	if (parent)
		node_put(c, parent);
}

/*
 * Nothing but the node knows of what went through and was not synced: it goes when that is done. If that fails it stays until the
 * unmount, for who calls fsync next.
 */
static void sync_last(struct core *c, struct node *n)
{
	(void)data_sync_through(c, n);
	pthread_rwlock_wrlock(&n->lock);
	n->kept = n->through_dirty && !n->orphan;
	bool kept = n->kept;
	pthread_rwlock_unlock(&n->lock);
	if (!kept)
		node_put(c, n);
}

static void drop(struct core *c, struct node *n, uint64_t lookups, uint64_t refs)
{
	pthread_mutex_lock(&c->table);
	n->nlookup -= lookups < n->nlookup ? lookups : n->nlookup;
	n->refs -= refs;
	bool last = n->nlookup == 0 && n->refs == 0, unsynced = last && n->through_dirty && !n->orphan;
	if (unsynced)
		n->refs++;
	else if (last)
		table_remove(c, n);
	pthread_mutex_unlock(&c->table);
	if (unsynced)
		sync_last(c, n);
	else if (last)
		node_free(c, n);
}

void node_put(struct core *c, struct node *n)
{
	if (n)
		drop(c, n, 0, 1);
}

void node_ref_cleanup(struct node_ref *r)
{
	node_put(r->c, r->n);
}

void core_forget(struct core *c, uint64_t ino, uint64_t nlookup)
{
	struct node *n = node_get(c, ino);

	if (n)
		drop(c, n, nlookup, 1);
}

void node_count_lookup(struct core *c, struct node *n)
{
	pthread_mutex_lock(&c->table);
	n->nlookup++;
	pthread_mutex_unlock(&c->table);
}

static struct node *node_new(uint64_t ino, uint32_t type)
{
	struct node *n = calloc(1, sizeof(*n));

	if (!n)
		return NULL;
	n->ino = ino;
	n->type = type;
	n->private_fd = n->backing_fd = -1;
	pthread_rwlock_init(&n->lock, NULL);
	pthread_mutex_init(&n->through, NULL);
	return n;
}

/* Find ino or put fresh (may be NULL: then only find) in its place. A reference is taken. *used: fresh was taken. */
static struct node *table_intern(struct core *c, uint64_t ino, struct node *fresh, bool *used)
{
	pthread_mutex_lock(&c->table);
	struct node *n = table_find(c, ino);
	*used = !n && fresh;
	if (*used) {
		n = fresh;
		n->hash_next = *bucket_of(c, ino);
		*bucket_of(c, ino) = n;
	}
	if (n)
		n->refs++;
	pthread_mutex_unlock(&c->table);
	return n;
}

/* The backing file may have bytes that nobody has synced: which ones went through the state does not know. */
static bool may_be_through(const struct inode *in)
{
	return S_ISREG(in->mode) && in->origin_name[0] && in->flags & INODE_DIRTY_DATA &&
	       !(in->flags & (INODE_PRIVATE | INODE_FOREIGN | INODE_ORPHAN));
}

int node_of_state(struct core *c, const struct inode *in, struct node **ret)
{
	bool used;
	struct node *n = table_intern(c, in->ino, NULL, &used);

	if (!n) {
		struct node *fresh = node_new(in->ino, in->mode & S_IFMT);
		if (!fresh)
			return -ENOMEM;
		fresh->known = true;
		fresh->orphan = in->flags & INODE_ORPHAN;
		fresh->caught_up = in->flags & (INODE_NEW | INODE_DIRTY_DATA | INODE_PRIVATE);
		fresh->through_before = c->through_before && may_be_through(in);
		fresh->backing_dev = in->backing_dev;
		fresh->backing_ino = in->backing_ino;
		n = table_intern(c, in->ino, fresh, &used);
		if (!used)
			node_discard(fresh);
	}
	n->known = true;
	*ret = n;
	return 0;
}

uint64_t node_backing_number(const struct core *c, uint64_t dev, uint64_t ino)
{
	uint64_t mixed = dev == c->backing_dev ? 0 : dev * 0xD6E8FEB86659FD93ull;

	return STATE_BACKING_INO_BIT | ((ino ^ mixed) & ~STATE_BACKING_INO_BIT);
}

bool node_is_backed_by(const struct node *n, const struct stat *st)
{
	return n->backing_dev == st->st_dev && n->backing_ino == st->st_ino && n->type == (st->st_mode & S_IFMT);
}

int node_origin(struct core *c, struct node *n, struct node **ret_parent, char ret_name[RECORD_NAME_MAX + 1])
{
	pthread_mutex_lock(&c->table);
	struct node *parent = n->origin_parent;
	if (parent) {
		parent->refs++;
		snprintf(ret_name, RECORD_NAME_MAX + 1, "%s", n->origin_name);
	}
	pthread_mutex_unlock(&c->table);
	if (!parent)
		return -ENOENT;
	*ret_parent = parent;
	return 0;
}

/* table is held. Directories are followed upwards by their origins: n must not come to lie below itself. */
static bool may_settle(const struct node *n, const struct node *parent, const char *name)
{
	if (n->known || (n->origin_parent == parent && strcmp(n->origin_name, name) == 0))
		return false;
	for (const struct node *up = parent; up; up = up->origin_parent)
		if (up == n)
			return false;
	return true;
}

/*
 * A file that was found elsewhere before, and that nobody has open, may be another one: a file system gives the number of a removed file away
 * again. Or others have renamed it, and nothing is lost but the kernel's pages. A second name of it is none of both.
 */
static bool may_be_another(struct core *c, struct node *n, const struct stat *st)
{
	struct stat there;

	pthread_rwlock_rdlock(&n->lock);
	bool open = n->opens > 0;
	pthread_rwlock_unlock(&n->lock);
	return S_ISREG(st->st_mode) && !open &&
	       (st->st_nlink == 1 || overlay_stat(c, n, &there) < 0 || !node_is_backed_by(n, &there));
}

static bool is_elsewhere(struct core *c, const struct node *n, const struct node *parent, const char *name)
{
	pthread_mutex_lock(&c->table);
	bool elsewhere = may_settle(n, parent, name);
	pthread_mutex_unlock(&c->table);
	return elsewhere;
}

/* An untouched file is found: perhaps elsewhere than before, since others may rename in the backing directory. */
static int settle(struct core *c, struct node *n, struct node *parent, const char *name, const struct stat *st)
{
	struct node *old_parent = NULL;
	char *old = NULL;
	int rc = 0;

	if (!is_elsewhere(c, n, parent, name))
		return 0;
	if (may_be_another(c, n, st))
		n->lives++;
	pthread_mutex_lock(&c->table);
	if (may_settle(n, parent, name)) {
		char *copy = strdup(name);
		if (copy) {
			old = n->origin_name;
			old_parent = n->origin_parent;
			parent->refs++;
			n->origin_parent = parent;
			n->origin_name = copy;
		} else {
			rc = -ENOMEM;
		}
	}
	pthread_mutex_unlock(&c->table);
	node_put(c, old_parent);
	free(old);
	return rc;
}

/*
 * 1: the file that was found, st, is the one that the state knows as n. 0: others have removed or replaced that one, and the file system has given its
 * number to this one. While it is open the number is its own.
 */
static int is_own(struct core *c, struct node *n, const struct stat *st)
{
	struct stat there;

	if (!n->known || n->type != S_IFREG || n->backing_fd >= 0)
		return 1;
	int rc = overlay_stat(c, n, &there);
	if (rc == -ENOENT || rc == -ENOTDIR || rc == -ESTALE)
		return 0;
	return rc < 0 ? rc : node_is_backed_by(n, &there);
}

/* Takes the reference over when it is not to be n. */
static int own_or_none(struct core *c, struct node *n, const struct stat *st)
{
	int rc = is_own(c, n, st);

	if (rc <= 0)
		node_put(c, n);
	return rc;
}

int node_of_backing(struct core *c, struct node *parent, const char *name, const struct stat *st, struct node **ret)
{
	/* Numbers of two devices can meet, and a file system may reuse one: go on to the next number then. */
	for (uint64_t ino = node_backing_number(c, st->st_dev, st->st_ino);; ino = (ino + 1) | STATE_BACKING_INO_BIT) {
		bool used;
		struct inode in;
		struct node *n = table_intern(c, ino, NULL, &used);

		if (n && node_is_backed_by(n, st)) {
			int rc = own_or_none(c, n, st);
			if (rc == 0)
				continue;
			if (rc < 0)
				return rc;
			rc = settle(c, n, parent, name, st);
			if (rc < 0)
				node_put(c, n);
			else
				*ret = n;
			return rc;
		}
		if (n) {
			node_put(c, n);
			continue;
		}
		/* Of a foreign inode only a layer is here: the backing file is another node's to know. */
		if (state_inode(c->state, ino, &in) == 0 && !(in.flags & INODE_FOREIGN)) {
			if (in.backing_dev != st->st_dev || in.backing_ino != st->st_ino ||
				(in.mode & S_IFMT) != (st->st_mode & S_IFMT) || in.flags & INODE_ORPHAN)
				continue;
			int rc = node_of_state(c, &in, &n);
			rc = rc < 0 ? rc : own_or_none(c, n, st);
			if (rc == 0)
				continue;
			if (rc > 0)
				*ret = n;
			return rc < 0 ? rc : 0;
		}
		struct node *fresh = node_new(ino, st->st_mode & S_IFMT);
		char *copy = strdup(name);
		if (!fresh || !copy) {
			if (fresh)
				node_discard(fresh);
			free(copy);
			return -ENOMEM;
		}
		fresh->origin_name = copy;
		fresh->backing_dev = st->st_dev;
		fresh->backing_ino = st->st_ino;
		node_ref(c, parent);
		fresh->origin_parent = parent;
		n = table_intern(c, ino, fresh, &used);
		if (!used) {
			node_put(c, parent);
			node_discard(fresh);
			if (!node_is_backed_by(n, st)) {
				node_put(c, n);
				continue;
			}
		}
		*ret = n;
		return 0;
	}
}
