/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A copy of the header's bytes with a mark for each that is known. What has been written before the journal begins is not; nor is
 * what a drain has left behind. Most writes there are only of the number of records, which changes nothing else: they are
 * counted, not decoded.
 */
#include "tools/lib/generations.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/array.h"
#include "format/base/crc32c.h"
#include "format/codec/classic.h"
#include "tools/lib/moment.h"

#define HEADER_MAX  (16u << 20)
#define DECODES_MAX 4096u
#define PAYLOAD_MAX (64u << 20) /* a daemon writes 1 MiB at most */
#define COUNT_END   12u         /* of magic and number of records, in CDF-5 */

struct generation_change {
	struct segment_set *segments; /* where the payload is; NULL: these bytes are not known from now on */
	uint64_t off, len;            /* in the header */
	uint64_t segment_off, payload_len;
	uint64_t seq;
	int64_t time_ns;
	uint32_t segment, crc, node;
};

int generations_init(struct generations *g, uint64_t header_bytes)
{
	*g = (struct generations){ .header_bytes = header_bytes };
	if (header_bytes > HEADER_MAX)
		return -EFBIG;
	g->bytes = calloc((size_t)header_bytes + 1, 1);
	g->known = calloc((size_t)header_bytes + 1, 1);
	return g->bytes && g->known ? 0 : -ENOMEM;
}

void generations_free(struct generations *g)
{
	free(g->bytes);
	free(g->known);
	free(g->changes);
	*g = (struct generations){ 0 };
}

const struct generation *generations_at(const struct generations *g, uint32_t i)
{
	return i < g->num && i + GENERATIONS_MAX >= g->num ? &g->list[i % GENERATIONS_MAX] : NULL;
}

static bool same_shape(const struct generation *a, const struct generation *b)
{
	return a->num_dims == b->num_dims && a->num_vars == b->num_vars && a->header_bytes == b->header_bytes &&
	       a->record_bytes == b->record_bytes && a->first_begin == b->first_begin;
}

static void decode(struct generations *g, const struct generation_change *change)
{
	CLASSIC_CLEANUP struct classic c = { 0 };
	struct generation now = { .seq = change->seq, .time_ns = change->time_ns, .node = change->node };
	size_t len = 0;

	while (len < g->header_bytes && g->known[len])
		len++;
	if (g->writes - g->counts > DECODES_MAX || classic_decode(g->bytes, len, &c, NULL) < 0) {
		g->undecoded++;
		return;
	}
	now.num_dims = c.num_dims;
	now.num_vars = c.num_vars;
	now.header_bytes = c.header_bytes;
	now.record_bytes = c.record_bytes;
	for (uint32_t i = 0; i < c.num_vars; i++)
		if (i == 0 || c.vars[i].begin < now.first_begin)
			now.first_begin = c.vars[i].begin;
	if (g->num == 0 || !same_shape(&now, &g->list[(g->num - 1) % GENERATIONS_MAX]))
		g->list[g->num++ % GENERATIONS_MAX] = now;
}

static void overwrite(struct generations *g, const struct generation_change *c, const uint8_t *payload)
{
	if (payload)
		memcpy(g->bytes + c->off, payload, (size_t)c->len);
	memset(g->known + c->off, payload != NULL, (size_t)c->len);
}

static void apply_write(struct generations *g, const struct generation_change *c)
{
	uint8_t *payload = c->payload_len <= PAYLOAD_MAX ? malloc((size_t)c->payload_len) : NULL;
	int r = payload ? segment_read(c->segments, c->segment, c->segment_off, payload, (size_t)c->payload_len)
			: -ENOMEM;

	g->writes++;
	if (r == 0 && crc32c(0, payload, (size_t)c->payload_len) == c->crc) {
		overwrite(g, c, payload);
		if (c->off >= CLASSIC_NUMRECS_OFF && c->off + c->payload_len <= COUNT_END)
			g->counts++;
		else
			decode(g, c);
	} else {
		overwrite(g, c, NULL);
		g->lost++;
	}
	free(payload);
}

static int by_time(const void *a, const void *b)
{
	const struct generation_change *x = a, *y = b;

	return moment_compare(
		(struct moment){ x->time_ns, x->node, x->seq }, (struct moment){ y->time_ns, y->node, y->seq });
}

void generations_finish(struct generations *g)
{
	if (g->many_stores)
		qsort(g->changes, g->num_changes, sizeof(*g->changes), by_time);
	for (size_t i = 0; i < g->num_changes; i++)
		if (g->changes[i].segments)
			apply_write(g, &g->changes[i]);
		else
			overwrite(g, &g->changes[i], NULL);
	free(g->changes);
	g->changes = NULL;
	g->num_changes = g->cap_changes = 0;
}

/* ---- records */

static int add(struct generations *g, struct generation_change c)
{
	if (c.off >= g->header_bytes || c.len == 0)
		return 0;
	if (array_room(&g->changes, &g->cap_changes, g->num_changes, sizeof(*g->changes)) < 0)
		return -ENOMEM;
	if (c.len > g->header_bytes - c.off)
		c.len = g->header_bytes - c.off;
	g->many_stores = g->many_stores || (g->num_changes > 0 && g->changes[0].node != c.node);
	g->changes[g->num_changes++] = c;
	return 0;
}

static int add_range(struct generations *g, struct generation_change c, uint64_t off, uint64_t len, uint32_t crc)
{
	c.off = off;
	c.len = c.payload_len = len;
	c.crc = crc;
	return add(g, c);
}

/* From there on, or up to len, nothing is known. */
static int add_unknown(struct generations *g, struct generation_change c, uint64_t off, uint64_t len)
{
	c.segments = NULL;
	return add_range(g, c, off, len, 0);
}

int generations_note(struct generations *g, struct segment_set *segments, const struct record *rec)
{
	struct generation_change c = { .segments = segments,
		.segment = rec->segment,
		.segment_off = rec->segment_off,
		.seq = rec->seq,
		.time_ns = rec->time_ns,
		.node = rec->node };
	int r = 0;

	switch (rec->type) {
	case RECORD_WRITE: return add_range(g, c, rec->off, rec->len, rec->payload_crc);
	case RECORD_EXTENTS:
		for (size_t i = 0; r == 0 && i < rec->num_ranges; c.segment_off += rec->ranges[i++].len)
			r = add_range(g, c, rec->ranges[i].off, rec->ranges[i].len, rec->ranges[i].crc);
		return r;
	case RECORD_TRUNCATE: return add_unknown(g, c, rec->size, UINT64_MAX);
	case RECORD_PUNCH:
	case RECORD_THROUGH: return add_unknown(g, c, rec->off, rec->len);
	case RECORD_SEAL: return add_unknown(g, c, 0, UINT64_MAX);
	default: return 0;
	}
}
