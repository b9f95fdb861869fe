/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Every store has all directories; a file's name is only in the store of its home, and other nodes that have some of it
 * remember what it was called when they first heard of it.
 */
#include "tools/lib/stores.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/place/place.h"
#include "tools/lib/mounts.h"
#include "tools/lib/walk.h"

/* ---- the set */

static int check(const struct stores *set, const struct store *s, struct cistern_error *err)
{
	const struct superblock *sb = store_superblock(s);
	char node[HOSTS_NODE_BYTES];

	for (size_t i = 0; i < set->num; i++) {
		const struct store *other = set->list[i].store;
		const struct superblock *o = store_superblock(other);

		if (o->num_nodes < 2 || o->num_nodes != sb->num_nodes ||
			memcmp(o->job_uuid, sb->job_uuid, sizeof(sb->job_uuid)) != 0)
			return cistern_error_set(
				err, -EINVAL, "%s and %s are not stores of one job", store_path(other), store_path(s));
		if (o->node_index == sb->node_index)
			return cistern_error_set(err, -EINVAL, "%s and %s are both of %s", store_path(other),
				store_path(s), hosts_node_text(set->list[i].store, sb->node_index, node));
	}
	if (sb->num_nodes < 1 || sb->num_nodes > PLACE_NODES_MAX || sb->node_index >= sb->num_nodes)
		return cistern_error_set(err, -EBADMSG, "%s: node %" PRIu32 " of %" PRIu32 ": run cistern fsck on it",
			store_path(s), sb->node_index, sb->num_nodes);
	return 0;
}

static int make_room(struct stores *set, uint32_t num_nodes)
{
	if (set->list)
		return 0;
	set->list = calloc(num_nodes, sizeof(*set->list));
	set->by_node = calloc(num_nodes, sizeof(*set->by_node));
	set->num_nodes = num_nodes;
	return set->list && set->by_node ? 0 : -ENOMEM;
}

int stores_add(struct stores *set, const char *dir, struct cistern_error *err)
{
	struct reader rd;
	int r = reader_open(dir, &rd, err);

	if (r < 0)
		return r;
	r = check(set, rd.store, err);
	if (r == 0 && make_room(set, store_superblock(rd.store)->num_nodes) < 0)
		r = cistern_error_set(err, -ENOMEM, "out of memory");
	if (r < 0) {
		reader_close(&rd);
		return r;
	}
	set->list[set->num++] = rd;
	set->by_node[store_superblock(rd.store)->node_index] = rd.store;
	return 0;
}

void stores_close(struct stores *set)
{
	for (size_t i = 0; i < set->num; i++)
		reader_close(&set->list[i]);
	free(set->list);
	free(set->by_node);
	*set = (struct stores){ 0 };
}

/* ---- what is not given */

void stores_host(const struct stores *set, uint32_t node, char ret[HOSTS_NAME_BYTES])
{
	*ret = '\0';
	for (size_t i = 0; !*ret && i < set->num; i++)
		(void)hosts_find(set->list[i].store, node, ret);
}

const char *stores_node_text(const struct stores *set, uint32_t node, char out[STORES_NODE_BYTES])
{
	char host[HOSTS_NAME_BYTES];

	stores_host(set, node, host);
	return place_node_text(node, host, out, STORES_NODE_BYTES);
}

const char *stores_not_given(const struct stores *set, char out[STORES_NODES_BYTES])
{
	char node[STORES_NODE_BYTES];
	size_t len = 0;

	*out = '\0';
	for (uint32_t i = 0; i < set->num_nodes; i++) {
		const char *comma = len > 0 ? ", " : "";

		if (set->by_node[i])
			continue;
		if (len + STORES_NODE_BYTES + sizeof(", ...") > STORES_NODES_BYTES) {
			snprintf(out + len, STORES_NODES_BYTES - len, ", ...");
			break;
		}
		len += (size_t)snprintf(
			out + len, STORES_NODES_BYTES - len, "%s%s", comma, stores_node_text(set, i, node));
	}
	return out;
}

/* ---- files */

int stores_find_ino(const struct stores *set, uint64_t ino, struct store **ret_store, struct inode *ret)
{
	struct store *home = set->by_node[place_ino(ino, set->num_nodes)];
	int r = home ? state_inode(store_state(home), ino, ret) : -ENOENT;

	*ret_store = home;
	for (size_t i = 0; r == -ENOENT && i < set->num; i++) {
		*ret_store = set->list[i].store;
		r = state_inode(store_state(*ret_store), ino, ret);
	}
	return r;
}

struct remembering {
	struct state *st;
	const char *path;
	uint64_t ino; /* 0: not found */
};

static int compare_remembered(const struct inode *in, void *arg)
{
	struct remembering *r = arg;
	char path[2 * PATH_MAX];

	if (in->flags & INODE_FOREIGN && walk_remembered(r->st, in, path, sizeof(path)) && strcmp(path, r->path) == 0)
		r->ino = in->ino;
	return r->ino != 0;
}

const char *stores_relative(const struct store *s, const char *path)
{
	const char *mountpoint = store_superblock(s)->mountpoint;

	if (*mountpoint && mounts_path_in(path, mountpoint))
		path += strlen(mountpoint);
	path += strspn(path, "/");
	return *path ? path : ".";
}

static int look_for_remembered(const struct store *s, struct state *st, const char *path, uint64_t *ret_ino)
{
	struct remembering look = { .st = st, .path = stores_relative(s, path) };
	int r;

	r = state_each_inode(st, compare_remembered, &look);
	*ret_ino = look.ino;
	return r < 0 ? r : look.ino ? 0 : -ENOENT;
}

int stores_find_remembered(const struct stores *set, const char *path, struct store **ret_store, struct inode *ret)
{
	uint64_t ino = 0;
	int r = -ENOENT;

	for (size_t i = 0; r == -ENOENT && i < set->num; i++)
		r = look_for_remembered(set->list[i].store, store_state(set->list[i].store), path, &ino);
	return r < 0 ? r : stores_find_ino(set, ino, ret_store, ret);
}

int stores_find(const struct stores *set, const char *path, struct store **ret_store, struct inode *ret)
{
	int r = -ENOENT;

	for (size_t i = 0; r == -ENOENT && i < set->num; i++)
		r = walk_find(store_state(set->list[i].store), stores_relative(set->list[i].store, path), ret);
	return r < 0 ? r : stores_find_ino(set, ret->ino, ret_store, ret);
}
