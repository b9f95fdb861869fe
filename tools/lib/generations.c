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

#include "format/base/crc32c.h"
#include "format/codec/classic.h"

#define HEADER_MAX  (16u << 20)
#define DECODES_MAX 4096u
#define PAYLOAD_MAX (64u << 20) /* a daemon writes 1 MiB at most */
#define COUNT_END   12u         /* of magic and number of records, in CDF-5 */

int generations_init(struct generations *g, struct segment_set *segments, uint64_t header_bytes)
{
	*g = (struct generations){ .segments = segments, .header_bytes = header_bytes };
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

static void decode(struct generations *g, const struct record *rec)
{
	CLASSIC_CLEANUP struct classic c = { 0 };
	struct generation now = { .seq = rec->seq, .time_ns = rec->time_ns, .node = rec->node };
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

static void overwrite(struct generations *g, uint64_t off, const uint8_t *payload, uint64_t len)
{
	if (len > g->header_bytes - off)
		len = g->header_bytes - off;
	if (payload)
		memcpy(g->bytes + off, payload, (size_t)len);
	memset(g->known + off, payload != NULL, (size_t)len);
}

static void note_write(
	struct generations *g, const struct record *rec, uint64_t off, uint64_t len, uint64_t segment_off, uint32_t crc)
{
	uint8_t *payload;
	int r;

	if (off >= g->header_bytes || len == 0)
		return;
	g->writes++;
	payload = len <= PAYLOAD_MAX ? malloc((size_t)len) : NULL;
	r = payload ? segment_read(g->segments, rec->segment, segment_off, payload, (size_t)len) : -ENOMEM;
	if (r == 0 && crc32c(0, payload, (size_t)len) == crc) {
		overwrite(g, off, payload, len);
		if (off >= CLASSIC_NUMRECS_OFF && off + len <= COUNT_END)
			g->counts++;
		else
			decode(g, rec);
	} else {
		overwrite(g, off, NULL, len);
		g->lost++;
	}
	free(payload);
}

static void cut(struct generations *g, uint64_t size)
{
	if (size < g->header_bytes)
		memset(g->known + size, 0, (size_t)(g->header_bytes - size));
}

void generations_note(struct generations *g, const struct record *rec)
{
	uint64_t at = rec->segment_off;

	switch (rec->type) {
	case RECORD_WRITE: note_write(g, rec, rec->off, rec->len, rec->segment_off, rec->payload_crc); break;
	case RECORD_EXTENTS:
		for (size_t i = 0; i < rec->num_ranges; at += rec->ranges[i++].len)
			note_write(g, rec, rec->ranges[i].off, rec->ranges[i].len, at, rec->ranges[i].crc);
		break;
	case RECORD_TRUNCATE: cut(g, rec->size); break;
	case RECORD_PUNCH:
	case RECORD_THROUGH:
		if (rec->off < g->header_bytes)
			overwrite(g, rec->off, NULL, rec->len);
		break;
	case RECORD_SEAL: cut(g, 0); break;
	default: break;
	}
}
