/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The map is made of all layers, by their write times and stamps, and of what the maps of the stores at hand know of the others.
 * What was never committed has its time, too, and counts as newer than all that was when it has the same: it was acknowledged.
 */
#include "format/store/unite.h"

#include <errno.h>
#include <stdlib.h>

#define AT_ONCE     1024u
#define UNCOMMITTED (UINT64_MAX / 2) /* stamps from here on, by node */

struct uniting {
	struct store *const *stores;
	uint32_t num_nodes;
	struct state *to;
	uint64_t to_ino;
	struct record_piece pieces[AT_ONCE];
	size_t num;
	uint32_t node; /* whose pieces they are */
	uint64_t stamp, end;
};

static int put_pieces(struct uniting *u)
{
	struct record rec = { .type = RECORD_SHARE_PUT,
		.flags = RECORD_F_TIMED,
		.ino = u->to_ino,
		.node = u->node,
		.stamp = u->stamp,
		.pieces = u->pieces,
		.num_pieces = u->num,
		.seq = state_seq(u->to) + 1 };
	int r = u->num > 0 ? state_apply(u->to, &rec) : 0;

	u->num = 0;
	return r;
}

static int put_extent(struct uniting *u, const struct share_extent *e, uint64_t stamp)
{
	int r = 0;

	if (u->num == AT_ONCE || u->node != e->node || u->stamp != stamp)
		r = put_pieces(u);
	u->node = e->node;
	u->stamp = stamp;
	u->pieces[u->num++] = (struct record_piece){ .off = e->off,
		.segment_off = e->segment_off,
		.len = e->len,
		.segment = e->segment,
		.crc = e->whole ? e->crc : 0,
		.time_usec = e->time_usec,
		.kind = e->kind,
		.whole = e->whole };
	if (e->kind == EXTENT_LOG && e->off + e->len > u->end)
		u->end = e->off + e->len;
	return r;
}

/* What a node wrote. */
static int add_layer(struct uniting *u, struct state *from, uint32_t node, uint64_t ino)
{
	struct layer_extent *ext = calloc(AT_ONCE, sizeof(*ext));
	uint64_t off = 0;
	size_t num;
	int r = ext ? 0 : -ENOMEM;

	while (r == 0 && off != UINT64_MAX) {
		r = state_layer(from, ino, off, UINT64_MAX - off, ext, AT_ONCE, &num, &off);
		for (size_t i = 0; r == 0 && i < num; i++) {
			struct share_extent e = share_extent_of(&ext[i].ext, node);

			r = put_extent(u, &e, ext[i].stamp ? ext[i].stamp : UNCOMMITTED + node);
		}
	}
	free(ext);
	return r == 0 ? put_pieces(u) : r;
}

/* What a store's share map knows of nodes whose stores are not at hand. */
static int add_lost(struct uniting *u, struct state *from, uint64_t ino)
{
	struct share_extent *ext = calloc(AT_ONCE, sizeof(*ext));
	uint64_t off = 0;
	size_t num;
	int r = ext ? 0 : -ENOMEM;

	while (r == 0 && off != UINT64_MAX) {
		r = state_share_extents(from, ino, off, UINT64_MAX - off, ext, AT_ONCE, &num, &off);
		for (size_t i = 0; r == 0 && i < num; i++)
			if (ext[i].node < u->num_nodes && !u->stores[ext[i].node])
				r = put_extent(u, &ext[i], ext[i].stamp);
	}
	free(ext);
	return r == 0 ? put_pieces(u) : r;
}

static int add_store(struct uniting *u, uint32_t node, uint64_t ino)
{
	struct state *from = u->stores[node] ? store_state(u->stores[node]) : NULL;
	struct inode in;
	int r = from && state_inode(from, ino, &in) == 0 ? add_layer(u, from, node, ino) : 0;

	return r == 0 && from ? add_lost(u, from, ino) : r;
}

int store_unite(struct store *const *stores, uint32_t num_nodes, uint64_t ino, struct state *to, uint64_t to_ino,
	uint64_t *ret_end)
{
	struct uniting *u = calloc(1, sizeof(*u));
	int r = u ? 0 : -ENOMEM;

	if (r < 0)
		return r;
	u->stores = stores;
	u->num_nodes = num_nodes;
	u->to = to;
	u->to_ino = to_ino;
	/* Twice: what another node's map has of these as a witness, as new as the newest of a run, has given way to the layers by then. */
	for (uint32_t i = 0; r == 0 && i < 2 * num_nodes; i++)
		r = add_store(u, i % num_nodes, ino);
	if (r == 0)
		*ret_end = u->end;
	free(u);
	return r;
}
