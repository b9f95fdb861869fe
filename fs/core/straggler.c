/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Private files that processes of a dead mount still write to (docs/design/stragglers.md): they stay
 * private and in the store until those have gone. Whether they have is asked with no descriptor of
 * ours that could be taken for theirs, so under the node's lock, and only while nobody has the file open here.
 */
#include "fs/core/private.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static void close_private(struct node *n)
{
	int fd = atomic_exchange(&n->private_fd, -1);

	if (fd >= 0)
		close(fd);
}

bool straggler_holds(struct core *c, struct node *n, const struct inode *in)
{
	if (!(in->flags & INODE_PRIVATE) || !straggler_is_known(c->store, in->private_segment))
		return false;
	if (n->opens > 0)
		return true; /* who is it: they, or who has opened it here? Whenever nobody has, it is asked again */
	close_private(n);
	return straggler_is_there(c->store, in->private_segment);
}

/* Is it still there? */
static void ask_again(struct core *c, const struct straggler *g)
{
	struct node_ref r NODE_CLEANUP = { c, NULL };
	struct inode in;

	if (state_inode(c->state, g->ino, &in) < 0 || in.private_segment != g->segment ||
		node_of_state(c, &in, &r.n) < 0) {
		(void)straggler_is_there(c->store, g->segment);
		return;
	}
	pthread_rwlock_wrlock(&r.n->lock);
	if (state_inode(c->state, g->ino, &in) == 0)
		(void)straggler_holds(c, r.n, &in);
	pthread_rwlock_unlock(&r.n->lock);
}

static struct straggler *copy_list(struct core *c, size_t *ret_num)
{
	size_t num = straggler_list(c->store, NULL, 0);
	struct straggler *list = num ? calloc(num, sizeof(*list)) : NULL;
	size_t has = list ? straggler_list(c->store, list, num) : 0;

	*ret_num = has < num ? has : num;
	return list;
}

/* What has no name any more nobody misses. Returns how many are left. */
static size_t drop_nameless(struct core *c, struct straggler *list, size_t num)
{
	size_t kept = 0;
	struct inode in;

	for (size_t i = 0; i < num; i++)
		if (state_inode(c->state, list[i].ino, &in) == 0 && !(in.flags & INODE_ORPHAN))
			list[kept++] = list[i];
	return kept;
}

struct straggler *core_stragglers(struct core *c, size_t *ret_num)
{
	struct straggler *list = copy_list(c, ret_num);

	for (size_t i = 0; i < *ret_num; i++)
		ask_again(c, &list[i]);
	free(list);
	list = copy_list(c, ret_num);
	*ret_num = drop_nameless(c, list, *ret_num);
	if (list)
		straggler_name(c->state, list, *ret_num, c->unmounted ? NULL : store_superblock(c->store)->mountpoint);
	return list;
}

void core_severed(struct core *c)
{
	c->severed = c->open_files > 0;
}

void straggler_end(struct core *c)
{
	if (!c->severed)
		return;
	for (size_t i = 0; i < CORE_BUCKETS; i++) {
		pthread_mutex_lock(&c->table);
		for (struct node *n = c->buckets[i]; n; n = n->hash_next)
			if (n->opens == 0)
				close_private(n);
		pthread_mutex_unlock(&c->table);
	}
	(void)straggler_look(c->store);
}
