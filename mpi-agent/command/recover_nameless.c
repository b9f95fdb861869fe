/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Who has a domain of a file, or is somebody's witness, need not know the file itself. There is no name, owner or mode then, nor
 * bytes: none is made, since it may have been deleted, too. But what was acknowledged and is lost is said, range by range.
 */
#include "mpi-agent/command/recover_nameless.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "format/base/array.h"
#include "format/base/idmap.h"
#include "format/place/place.h"
#include "format/store/unite.h"

#define AT_ONCE 256u

struct nameless {
	struct recover_set *set;
	struct state *to;      /* its share maps get what all know */
	struct idmap seen;     /* inodes */
	struct manifest *list; /* borrowed; may be NULL */
	void (*error)(const char *path, int code, const char *text, void *arg);
	void *arg;
	uint64_t bytes; /* of all files */
	/* Of this one: what is lost of it, in order. Owned. */
	struct manifest_range *range;
	size_t num, cap;
};

static bool has_inode(const struct recover_set *set, uint64_t ino)
{
	struct inode in;
	bool has = false;

	for (uint32_t i = 0; !has && i < set->num_nodes; i++)
		has = set->stores[i] && state_inode(store_state(set->stores[i]), ino, &in) == 0;
	return has;
}

/* If its home is there, and does not have it, it was deleted. */
static bool is_nameless(const struct recover_set *set, uint64_t ino)
{
	uint32_t home = place_ino(ino, set->num_nodes);

	return home < set->num_nodes && !set->stores[home] && !has_inode(set, ino);
}

static int add_range(struct nameless *l, const struct share_extent *e)
{
	struct manifest_range *last = l->num ? &l->range[l->num - 1] : NULL;
	const char *node = e->node < l->set->num_nodes ? l->set->lost[e->node] : NULL;

	if (e->kind != EXTENT_LOG || !node)
		return 0;
	if (last && last->node == node && last->off + last->len == e->off) {
		last->len += e->len;
		return 0;
	}
	if (array_room(&l->range, &l->cap, l->num, sizeof(*l->range)) < 0)
		return -ENOMEM;
	l->range[l->num++] = (struct manifest_range){ .off = e->off, .len = e->len, .node = node };
	return 0;
}

static int find_ranges(struct nameless *l, uint64_t ino)
{
	struct share_extent ext[AT_ONCE];
	struct store_united united;
	uint64_t off = 0;
	size_t num;
	int r = store_unite(l->set->stores, l->set->num_nodes, ino, l->to, ino, &united);

	l->num = 0;
	while (r == 0 && off != UINT64_MAX) {
		r = state_share_extents(l->to, ino, off, UINT64_MAX - off, ext, AT_ONCE, &num, &off);
		for (size_t i = 0; r == 0 && i < num; i++)
			r = add_range(l, &ext[i]);
	}
	return r;
}

static uint64_t sum_up(const struct nameless *l)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < l->num; i++)
		bytes += l->range[i].len;
	return bytes;
}

static bool is_of_others(const struct nameless *l)
{
	for (size_t i = 1; i < l->num; i++)
		if (l->range[i].node != l->range[0].node)
			return true;
	return false;
}

static void tell(struct nameless *l, uint64_t ino, uint64_t bytes)
{
	char path[32], text[512];
	struct manifest_file mf = { .path = path,
		.state = "failed",
		.error = -ENODATA,
		.error_text = text,
		.missing = l->range,
		.num_missing = l->num };

	snprintf(path, sizeof(path), "inode-%" PRIu64, ino);
	snprintf(text, sizeof(text),
		"a file of which only lost stores had a name: if it was not deleted, %" PRIu64
		" bytes of it are lost, in %zu ranges that the manifest lists, the first at offset %" PRIu64
		", of %s%s",
		bytes, l->num, l->range[0].off, l->range[0].node, is_of_others(l) ? " and others" : "");
	if (l->error)
		l->error(path, -ENODATA, text, l->arg);
	if (l->list)
		manifest_add_file(l->list, &mf);
}

static int on_shared(uint64_t ino, uint64_t extents, void *arg)
{
	struct nameless *l = arg;
	uint64_t bytes;
	int r;

	if (extents == 0 || idmap_get(&l->seen, ino) || !is_nameless(l->set, ino))
		return 0;
	r = idmap_set(&l->seen, ino, 1);
	if (r == 0)
		r = find_ranges(l, ino);
	if (r < 0 || l->num == 0)
		return r;
	bytes = sum_up(l);
	tell(l, ino, bytes);
	l->bytes += bytes;
	return 0;
}

int recover_nameless(struct recover_set *set, struct manifest *manifest,
	void (*error)(const char *path, int code, const char *text, void *arg), void *arg, uint64_t *ret_bytes)
{
	struct nameless l = { .set = set, .to = store_state(set->first), .list = manifest, .error = error, .arg = arg };
	int r = 0;

	for (uint32_t i = 0; r == 0 && !recover_set_is_whole(set) && i < set->num_nodes; i++)
		if (set->stores[i])
			r = state_each_shared(store_state(set->stores[i]), on_shared, &l);
	*ret_bytes = l.bytes;
	idmap_free(&l.seen);
	free(l.range);
	return r;
}
