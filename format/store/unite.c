/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The map is made of all layers, by their write times and stamps, and of what the maps of the stores at hand know of the others.
 * What was never committed has its time, too, and counts as newer than all that was when it has the same: it was acknowledged. What any of the
 * stores knows to be cut off, or drained, is so for all: one that has lost power may have forgotten it, or never heard of it.
 */
#include "format/store/unite.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/place/place.h"

#define AT_ONCE     1024u
#define UNCOMMITTED (UINT64_MAX / 2) /* stamps from here on, by node */

struct room { /* for answers of one state at a time, and what is made of them */
	struct layer_extent layer[AT_ONCE];
	struct share_extent map[AT_ONCE];
	struct share_cut cuts[SHARE_CUTS_MAX];
	struct record_piece pieces[AT_ONCE];
	bool forgotten[PLACE_NODES_MAX]; /* by node */
};

struct uniting {
	struct store *const *stores;
	uint32_t num_nodes;
	bool lacks; /* some store is not at hand */
	uint64_t ino;
	struct state *to;
	uint64_t to_ino;
	struct share_head known; /* what any store knows to be cut off, or drained */
	struct room *room;       /* owned */
	size_t num;              /* of room->pieces */
	uint32_t node;           /* whose pieces they are */
	uint64_t stamp, end;
};

/* ---- what was cut off, and what was drained: whoever remembers it, it is so for all */

static int take_cuts(struct uniting *u, struct share_head *to, struct state *from)
{
	struct share_cut *cuts = u->room->cuts;
	size_t num = 0;
	int r = state_share_cuts(from, u->ino, cuts, &num);

	for (size_t i = 0; r == 0 && i < num; i++)
		r = share_head_cut(to, cuts[i].stamp, cuts[i].size);
	return r;
}

static int take_drained(struct share_head *to, struct state *from, uint64_t ino)
{
	uint64_t stamp, usec;
	int r = state_share_drained(from, ino, &stamp, &usec);

	if (r == 0 && stamp)
		share_head_drop(to, stamp, usec);
	return r;
}

static int apply(struct uniting *u, struct record *rec)
{
	rec->ino = u->to_ino;
	rec->seq = state_seq(u->to) + 1;
	return state_apply(u->to, rec);
}

static int forget_node(struct uniting *u, uint32_t node)
{
	u->room->forgotten[node] = true;
	return apply(u, &(struct record){ .type = RECORD_SHARE_LOST, .node = node });
}

/* Layers say it anew: a map may name payload that its node has forgotten with its power. */
static int forget_pieces(struct uniting *u)
{
	struct share_extent *ext = u->room->map;
	uint64_t off = 0;
	size_t num;
	int r = 0;

	memset(u->room->forgotten, 0, u->num_nodes * sizeof(*u->room->forgotten));
	while (r == 0 && off != UINT64_MAX) {
		r = state_share_extents(u->to, u->to_ino, off, UINT64_MAX - off, ext, AT_ONCE, &num, &off);
		for (size_t i = 0; r == 0 && i < num; i++)
			if (ext[i].node < u->num_nodes && u->stores[ext[i].node] && !u->room->forgotten[ext[i].node])
				r = forget_node(u, ext[i].node);
	}
	return r;
}

static int learn(struct uniting *u)
{
	struct record drop = { .type = RECORD_SHARE_DROP, .flags = RECORD_F_TIMED };
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < u->num_nodes; i++)
		if (u->stores[i])
			r = take_cuts(u, &u->known, store_state(u->stores[i]));
	for (uint32_t i = 0; r == 0 && i < u->num_nodes; i++)
		if (u->stores[i])
			r = take_drained(&u->known, store_state(u->stores[i]), u->ino);
	drop.stamp = u->known.dropped;
	drop.drop_usec = u->known.dropped_usec;
	if (r == 0 && drop.stamp)
		r = apply(u, &drop);
	for (uint32_t i = 0; r == 0 && i < u->known.num_cuts; i++) {
		struct record cut = {
			.type = RECORD_SHARE_CUT, .stamp = u->known.cuts[i].stamp, .size = u->known.cuts[i].size
		};

		r = apply(u, &cut);
	}
	return r;
}

/*
 * Where what a store has, and no stamp tells when it was made, is cut off: by the lowest of those that it has forgotten with its power. Everything behind a
 * forgotten cut is forgotten, too, so what there is comes before it. Of what a store of which no power was lost does not know it has never heard.
 */
static int forgotten_cut(struct uniting *u, struct store *store, uint64_t *ret)
{
	struct state *st = store_state(store);
	struct share_head own = { 0 };
	struct commit_point last = { 0 };
	uint64_t newest, drained = 0, usec;
	int r = 0;

	*ret = UINT64_MAX;
	if (!store_lost_power(store) || u->known.num_cuts == 0)
		return 0;
	r = take_cuts(u, &own, st);
	if (r == 0)
		r = state_commit_by(st, u->ino, UINT64_MAX, &last, NULL);
	if (r == 0)
		r = state_share_drained(st, u->ino, &drained, &usec);
	newest = last.stamp > drained ? last.stamp : drained;
	if (r == 0 && own.num_cuts && newest < own.cuts[own.num_cuts - 1].stamp)
		newest = own.cuts[own.num_cuts - 1].stamp;
	if (r == 0)
		*ret = share_head_limit(&u->known, newest);
	share_head_free(&own);
	return r;
}

/* ---- what was written */

static int put_pieces(struct uniting *u)
{
	struct record rec = { .type = RECORD_SHARE_PUT,
		.flags = RECORD_F_TIMED,
		.ino = u->to_ino,
		.node = u->node,
		.stamp = u->stamp,
		.pieces = u->room->pieces,
		.num_pieces = u->num,
		.seq = state_seq(u->to) + 1 };
	int r = u->num > 0 ? state_apply(u->to, &rec) : 0;

	u->num = 0;
	return r;
}

/* Up to limit. */
static int put_extent(struct uniting *u, const struct share_extent *whole, uint64_t stamp, uint64_t limit)
{
	struct share_extent part, *e = &part;
	uint64_t cut = share_head_limit(&u->known, stamp);
	int r = 0;

	limit = cut < limit ? cut : limit;
	if (whole->off >= limit || share_head_is_dropped(&u->known, stamp, whole->time_usec))
		return 0;
	part = share_extent_clip(whole, 0, limit);
	if (u->num == AT_ONCE || u->node != e->node || u->stamp != stamp)
		r = put_pieces(u);
	u->node = e->node;
	u->stamp = stamp;
	u->room->pieces[u->num++] = (struct record_piece){ .off = e->off,
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

/*
 * What was carried had been committed, though a node that has lost power may not know that of its own. Its home's went with the record that says that it
 * was carried.
 */
static bool is_carried(const struct uniting *u, const struct share_extent *e, uint32_t node)
{
	return e->time_usec > 0 && e->time_usec <= u->known.dropped_usec && u->known.dropped_usec != UINT64_MAX &&
	       node != place_ino(u->ino, u->num_nodes);
}

/* What a node wrote. */
static int add_layer(struct uniting *u, uint32_t node)
{
	struct layer_extent *ext = u->room->layer;
	struct state *from = store_state(u->stores[node]);
	uint64_t off = 0, limit = 0;
	size_t num;
	int r = forgotten_cut(u, u->stores[node], &limit);

	while (r == 0 && off != UINT64_MAX) {
		r = state_layer(from, u->ino, off, UINT64_MAX - off, ext, AT_ONCE, &num, &off);
		for (size_t i = 0; r == 0 && i < num; i++) {
			struct share_extent e = share_extent_of(&ext[i].ext, node);

			if (ext[i].stamp)
				r = put_extent(u, &e, ext[i].stamp, UINT64_MAX);
			else if (!is_carried(u, &e, node))
				r = put_extent(u, &e, UNCOMMITTED + node, limit);
		}
	}
	return r == 0 ? put_pieces(u) : r;
}

/* What a store's share map knows of nodes whose stores are not at hand. */
static int add_lost(struct uniting *u, struct state *from)
{
	struct share_extent *ext = u->room->map;
	uint64_t off = 0;
	size_t num;
	int r = 0;

	while (r == 0 && off != UINT64_MAX) {
		r = state_share_extents(from, u->ino, off, UINT64_MAX - off, ext, AT_ONCE, &num, &off);
		for (size_t i = 0; r == 0 && i < num; i++)
			if (ext[i].node < u->num_nodes && !u->stores[ext[i].node])
				r = put_extent(u, &ext[i], ext[i].stamp, UINT64_MAX);
	}
	return r == 0 ? put_pieces(u) : r;
}

static int add_store(struct uniting *u, uint32_t node)
{
	struct state *from = u->stores[node] ? store_state(u->stores[node]) : NULL;
	struct inode in;
	int r = from && state_inode(from, u->ino, &in) == 0 ? add_layer(u, node) : 0;

	return r == 0 && from && u->lacks ? add_lost(u, from) : r;
}

/* ---- how long it is */

static uint64_t newest_cut(const struct share_head *h)
{
	return h->num_cuts ? h->cuts[h->num_cuts - 1].size : 0;
}

static int measure(struct uniting *u, struct store_united *ret)
{
	uint32_t home = place_ino(u->ino, u->num_nodes);
	struct store *store = home < u->num_nodes ? u->stores[home] : NULL;
	struct store_united it = { .limit = share_head_limit(&u->known, u->known.dropped) };
	uint64_t cut = it.limit; /* of one whose home is lost */
	struct inode in;
	int r = state_inode(u->to, u->to_ino, &in);

	if (r == -ENOENT) {
		in.size = 0;
		r = 0;
	}
	if (r == 0 && store)
		r = forgotten_cut(u, store, &cut);
	if (r < 0)
		return r;
	it.size = in.size < cut ? in.size : cut;
	if (it.size < u->end)
		it.size = u->end;
	if (!store && it.size < newest_cut(&u->known))
		it.size = newest_cut(&u->known); /* who makes a file longer cuts it, too */
	*ret = it;
	return 0;
}

/*
 * Where stores are not at hand twice: what another node's map has of these as a witness, as new as the newest of a run, has given way to the
 * layers by then.
 */
static int add_stores(struct uniting *u)
{
	int r = 0;

	for (uint32_t turn = 0; turn < (u->lacks ? 2 : 1); turn++)
		for (uint32_t i = 0; r == 0 && i < u->num_nodes; i++)
			r = add_store(u, i);
	return r;
}

int store_unite(struct store *const *stores, uint32_t num_nodes, uint64_t ino, struct state *to, uint64_t to_ino,
	struct store_united *ret)
{
	struct uniting u = { .stores = stores, .num_nodes = num_nodes, .ino = ino, .to = to, .to_ino = to_ino };
	int r;

	if (num_nodes > PLACE_NODES_MAX)
		return -EINVAL;
	u.room = malloc(sizeof(*u.room));
	if (!u.room)
		return -ENOMEM;
	for (uint32_t i = 0; i < num_nodes; i++)
		u.lacks |= !stores[i];
	r = forget_pieces(&u);
	if (r == 0)
		r = learn(&u);
	if (r == 0)
		r = add_stores(&u);
	if (r == 0)
		r = measure(&u, ret);
	share_head_free(&u.known);
	free(u.room);
	return r;
}
