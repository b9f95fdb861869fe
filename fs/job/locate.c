/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What a node sees of a range of a file: what is committed, and this node's own layer; where both have something, what was written
 * later, as in the share maps, so that it does not matter whether our own commit, or another's, has reached the domain home
 * yet. An own extent that is not committed will have a higher stamp than all that are.
 *
 * What a drain has carried leaves maps and layers one after the other, too, on some nodes late, or not before the next drain; the home says that
 * it has been carried before any of them gives it up. So what is older than that is in the backing file, wherever it is still known.
 *
 * A cut reaches maps and layers one after the other. What lay under bytes that are cut off in one of them must not show because
 * it is still in another; so the newest cut that either side knows of is applied to both.
 */
#include "fs/job/share.h"

#include <errno.h>
#include <stdlib.h>

#include "format/base/array.h"
#include "format/base/clock.h"

#define BATCH 128

void pieces_free(struct pieces *p)
{
	free(p->at);
	*p = (struct pieces){ 0 };
}

static int pieces_add(struct pieces *p, const struct piece *add)
{
	if (array_room(&p->at, &p->cap, p->num, sizeof(*p->at)) < 0)
		return -ENOMEM;
	p->at[p->num++] = *add;
	return 0;
}

/* ---- two sources, each sorted and without overlaps */

struct source {
	struct share_extent *at; /* owned when it is the layer's */
	size_t num, next;        /* next: the first that ends behind the place where we are */
};

static int layer_list(struct job *j, uint64_t ino, uint64_t off, uint64_t len, struct source *ret)
{
	struct layer_extent batch[BATCH];
	uint64_t end = off + len;
	size_t num;
	int rc = 0;

	while (rc == 0 && off < end) {
		rc = state_layer(store_state(j->opt.store), ino, off, end - off, batch, BATCH, &num, &off);
		struct share_extent *grown =
			rc == 0 && num ? reallocarray(ret->at, ret->num + num, sizeof(*grown)) : ret->at;
		if (rc == 0 && num && !grown)
			return -ENOMEM;
		ret->at = grown;
		for (size_t i = 0; rc == 0 && i < num; i++)
			ret->at[ret->num++] = (struct share_extent){ .off = batch[i].ext.off,
				.segment_off = batch[i].ext.segment_off,
				.len = batch[i].ext.len,
				.segment = batch[i].ext.segment,
				.crc = batch[i].ext.crc,
				.kind = batch[i].ext.kind,
				.whole = batch[i].ext.whole,
				.time_usec = batch[i].ext.time_usec,
				.stamp = batch[i].stamp ? batch[i].stamp : UINT64_MAX,
				.node = peers_self(j->peers) };
	}
	return rc == -ENOENT ? 0 : rc;
}

/* The extent that covers pos, or NULL; *end is lowered to where that changes. */
static const struct share_extent *source_at(struct source *src, uint64_t pos, uint64_t *end)
{
	while (src->next < src->num && src->at[src->next].off + src->at[src->next].len <= pos)
		src->next++;
	if (src->next == src->num)
		return NULL;
	const struct share_extent *e = &src->at[src->next];
	uint64_t change = e->off > pos ? e->off : e->off + e->len;
	if (change < *end)
		*end = change;
	return e->off <= pos ? e : NULL;
}

static const struct share_extent *winner(const struct share_extent *own, const struct share_extent *map)
{
	if (!own || !map)
		return own ? own : map;
	return share_extent_wins(own, map) ? own : map;
}

static struct piece piece_of(const struct share_extent *e, uint64_t pos, uint64_t end, uint64_t limit)
{
	struct piece p = { .off = pos, .len = (uint32_t)(end - pos), .kind = PIECE_ZERO };

	if (!e)
		p.kind = pos < limit ? PIECE_BACKING : PIECE_ZERO;
	else if (e->kind == EXTENT_BACKING)
		p.kind = PIECE_BACKING;
	else if (e->kind == EXTENT_LOG) {
		p.kind = PIECE_LOG;
		p.node = e->node;
		p.segment = e->segment;
		p.segment_off = e->segment_off + (pos - e->off);
		p.crc = e->crc;
		p.whole = e->whole && pos == e->off && p.len == e->len;
	}
	return p;
}

/* What a home says of a file that is its alone has no stamp, and is as it is. */
static const struct share_extent *left_by_cut(const struct cut *cut, const struct share_extent *e, uint64_t pos)
{
	return e && e->stamp && e->stamp < cut->stamp && pos >= cut->size ? NULL : e;
}

struct ends {
	struct cut cut;
	struct drained_upto drained;
	uint64_t limit; /* of the backing file's bytes */
};

static const struct share_extent *left_by_drain(const struct drained_upto *upto, const struct share_extent *e)
{
	return e && e->stamp && e->stamp <= upto->stamp && e->time_usec <= upto->usec ? NULL : e;
}

static const struct share_extent *left(const struct ends *ends, const struct share_extent *e, uint64_t pos)
{
	return left_by_drain(&ends->drained, left_by_cut(&ends->cut, e, pos));
}

/* pos < end: where at the most the next piece ends. */
static uint64_t end_at(const struct ends *ends, uint64_t pos, uint64_t end)
{
	if (pos < ends->limit && ends->limit < end)
		end = ends->limit;
	return pos < ends->cut.size && ends->cut.size < end ? ends->cut.size : end;
}

static int merge(
	struct source *own, struct source *map, uint64_t off, uint64_t end, const struct ends *ends, struct pieces *ret)
{
	int rc = 0;

	for (uint64_t pos = off, until; rc == 0 && pos < end; pos = until) {
		until = end_at(ends, pos, end);
		const struct share_extent *a = source_at(own, pos, &until), *b = source_at(map, pos, &until);
		const struct share_extent *e = winner(left(ends, a, pos), left(ends, b, pos));
		struct piece p = piece_of(e, pos, until, ends->limit);

		rc = pieces_add(ret, &p);
	}
	return rc;
}

/* ---- */

static uint64_t limit_of_home(struct job *j, struct shared *s)
{
	struct inode in;

	return s->at_home && state_inode(store_state(j->opt.store), s->ino, &in) == 0 ? in.backing_limit : 0;
}

/* mutex is held. Elsewhere. */
static uint64_t limit_told(const struct shared *s, uint64_t limit_of_map)
{
	if (s->outside)
		return UINT64_MAX;
	return s->limit < limit_of_map ? limit_of_map : s->limit;
}

uint64_t share_limit(struct job *j, struct shared *s)
{
	if (s->at_home)
		return limit_of_home(j, s);
	pthread_mutex_lock(&s->mutex);
	uint64_t limit = limit_told(s, 0);
	pthread_mutex_unlock(&s->mutex);
	return limit;
}

uint64_t shared_size(struct job *j, struct shared *s)
{
	struct inode in = { 0 };
	bool known = shared_is_home(j, s) && state_inode(store_state(j->opt.store), s->ino, &in) == 0;

	pthread_mutex_lock(&s->mutex);
	uint64_t size = known ? in.size : s->size;
	if (size < s->own_end)
		size = s->own_end;
	pthread_mutex_unlock(&s->mutex);
	return size;
}

/*
 * After the map, so that bytes which a drain has taken out of it meanwhile are found in the backing file: the home has told how far that
 * goes before they leave any map. A cut that the map knows of lowers a limit that is older; not one that a drain has raised since.
 */
static struct ends ends_of(struct job *j, struct shared *s, const struct map *m)
{
	pthread_mutex_lock(&s->mutex);
	uint64_t before = s->cut.stamp;
	pthread_mutex_unlock(&s->mutex);
	struct drained_upto drained = s->at_home ? drained_at_home(j, s) : (struct drained_upto){ 0 };
	uint64_t home = limit_of_home(j, s);
	pthread_mutex_lock(&s->mutex);
	struct ends ends = { .cut = s->cut,
		.drained = s->at_home ? drained : s->drained,
		.limit = s->at_home ? home : limit_told(s, m->limit) };
	bool ahead = s->cutting || (s->at_home && s->cut.stamp != before);
	if (m->cut.stamp > ends.cut.stamp) {
		ends.cut = m->cut;
		ahead = ahead || (!s->at_home && m->cut.stamp > s->stamp);
	}
	pthread_mutex_unlock(&s->mutex);
	if (ahead && ends.limit > ends.cut.size)
		ends.limit = ends.cut.size;
	return ends;
}

static void lower(uint64_t *usec, uint64_t to)
{
	if (!*usec || to < *usec)
		*usec = to;
}

/*
 * The layer is looked at first: what a commit takes out of our hands meanwhile is still in this list, and a cut of it is known then.
 * So a home that takes its time makes this list old, too.
 */
int share_locate(struct job *j, struct shared *s, uint64_t off, uint64_t len, struct pieces *ret)
{
	struct source own = { 0 }, there = { 0 };
	struct map *m = NULL;
	int rc = s->is_shared ? power_wait_settled(j) : 0;
	uint64_t listed = clock_usec();

	if (rc == 0 && s->is_shared)
		rc = layer_list(j, s->ino, off, len, &own);
	if (rc == 0)
		rc = map_get(j, s, off / SHARE_WINDOW, &m);
	if (rc == 0) {
		there = (struct source){ .at = m->ext, .num = m->num };
		lower(&ret->asked_usec, m->asked_usec);
		lower(&ret->listed_usec, m->asked_usec < listed ? m->asked_usec : listed);
		struct ends ends = ends_of(j, s, m);
		rc = merge(&own, &there, off, off + len, &ends, ret);
	}
	map_put(m);
	free(own.at);
	return rc;
}

bool share_has_still(struct job *j, struct shared *s, const struct piece *p)
{
	struct source own = { 0 };
	uint64_t end = p->off + p->len;
	bool has = layer_list(j, s->ino, p->off, p->len, &own) == 0;

	for (uint64_t pos = p->off, until; has && pos < end; pos = until) {
		until = end;
		const struct share_extent *e = source_at(&own, pos, &until);
		has = e && e->kind == EXTENT_LOG && e->segment == p->segment &&
		      e->segment_off + (pos - e->off) == p->segment_off + (pos - p->off);
	}
	free(own.at);
	return has;
}

void share_fix_size(struct job *j, uint64_t ino, struct core_entry *e)
{
	struct shared *s = shared_find(j, ino);
	struct inode layer;

	if (!s)
		return;
	pthread_mutex_lock(&s->mutex);
	bool dirty = s->dirty_usec || s->telling_usec;
	if ((uint64_t)e->attr.st_size < s->own_end)
		e->attr.st_size = (off_t)s->own_end;
	pthread_mutex_unlock(&s->mutex);
	shared_put(j, s);
	if (!dirty || state_inode(j->state, ino, &layer) < 0 || !(layer.flags & INODE_FOREIGN))
		return;
	if (layer.mtime_ns > clock_ns_of(e->attr.st_mtim))
		e->attr.st_mtim = clock_timespec(layer.mtime_ns);
	if (layer.mtime_ns > clock_ns_of(e->attr.st_ctim))
		e->attr.st_ctim = clock_timespec(layer.mtime_ns);
}

int share_commit_now(struct job *j, uint64_t ino)
{
	struct shared *s = shared_find(j, ino);
	int rc = s ? share_commit_known(j, s, false) : 0;

	shared_put(j, s);
	return rc;
}
