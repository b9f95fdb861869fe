/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Filters that the format's own blocks may have gone through (specification IV.A.2.l): deflate and Fletcher32, the only ones of
 * its own that HDF5 lets a group have; with shuffle these are also the usual ones of datasets whose elements are looked at.
 */
#include "format/codec/hdf5_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/base/inflate.h"

#define FILTER_DEFLATE  1u
#define FILTER_SHUFFLE  2u
#define FILTER_FLETCHER 3u

/* ---- the message */

static void one_filter(struct cursor *c, unsigned int version, uint16_t *ret_id)
{
	unsigned int id = cursor_u16(c), name = version == 1 || id >= 256 ? cursor_u16(c) : 0, values;

	(void)cursor_u16(c); /* flags */
	values = cursor_u16(c);
	(void)cursor_bytes(c, version == 1 ? (name + 7u) / 8 * 8 : name);
	(void)cursor_bytes(c, 4 * (size_t)(version == 1 ? (values + 1) / 2 * 2 : values));
	*ret_id = (uint16_t)id;
}

int hdf5_filters_decode(struct hdf5_walk *w, const struct hdf5_message *m, struct hdf5_pipeline *ret)
{
	struct cursor c = cursor_make(m->data, m->len);
	unsigned int version = cursor_u8(&c), num = cursor_u8(&c);

	*ret = (struct hdf5_pipeline){ 0 };
	if (!cursor_ok(&c) || version < 1 || version > 2)
		return hdf5_fail(w, -ENOTSUP, m->off, "a filter pipeline of version %u", version);
	if (num > HDF5_FILTERS_MAX)
		return hdf5_fail(w, -EBADMSG, m->off, "a pipeline of %u filters", num);
	if (version == 1)
		(void)cursor_bytes(&c, 6);
	for (unsigned int i = 0; i < num; i++)
		one_filter(&c, version, &ret->ids[i]);
	if (!cursor_ok(&c))
		return hdf5_fail(w, -EBADMSG, m->off, "a filter pipeline is cut short");
	ret->num = num;
	return 0;
}

/* ---- back */

/* How long it becomes is known: of all filters that make bytes fewer only this one is. */
static int inflate_block(struct hdf5_walk *w, size_t len, struct hdf5_block *b)
{
	uint8_t *out = malloc(len > 0 ? len : 1);
	int r = out ? inflate_zlib(b->data, b->len, out, len) : -ENOMEM;

	if (r == 0) {
		free(b->data);
		b->data = out;
		b->len = len;
		return 0;
	}
	free(out);
	return r == -ENOMEM ? r
			    : hdf5_fail(w, -EBADMSG, b->off, "these %zu bytes are not %zu that were compressed", b->len,
				      len);
}

/* First bytes of all elements came first, then the second ones; what is left of a last element is as it was. */
static int unshuffle(size_t size, struct hdf5_block *b)
{
	size_t num = size > 0 ? b->len / size : 0;
	uint8_t *out;

	if (size <= 1 || num <= 1)
		return 0;
	out = malloc(b->len);
	if (!out)
		return -ENOMEM;
	for (size_t i = 0; i < num; i++)
		for (size_t k = 0; k < size; k++)
			out[i * size + k] = b->data[k * num + i];
	memcpy(out + num * size, b->data + num * size, b->len - num * size);
	free(b->data);
	b->data = out;
	return 0;
}

static int check_fletcher(struct hdf5_walk *w, struct hdf5_block *b)
{
	struct cursor c;

	if (b->len < 4)
		return hdf5_fail(w, -EBADMSG, b->off, "too short for a checksum");
	b->len -= 4;
	c = cursor_make(b->data + b->len, 4);
	return hdf5_fletcher_is(b->data, b->len, cursor_u32(&c))
		       ? 0
		       : hdf5_fail(w, -EBADMSG, b->off, "the checksum of these %zu bytes is wrong", b->len + 4);
}

/* Bytes that steps before this one, which are undone after it, put behind the others. */
static size_t more_bytes(const struct hdf5_pipeline *p, uint32_t skipped, uint32_t step)
{
	size_t more = 0;

	for (uint32_t i = 0; i < step; i++)
		if (p->ids[i] == FILTER_FLETCHER && !(skipped >> i & 1))
			more += 4;
	return more;
}

int hdf5_unfilter(
	struct hdf5_walk *w, const struct hdf5_pipeline *p, uint32_t skipped, size_t len, struct hdf5_block *b)
{
	int r = 0;

	for (uint32_t i = p->num; r == 0 && i-- > 0;) {
		if (skipped >> i & 1)
			continue;
		if (p->ids[i] == FILTER_DEFLATE)
			r = inflate_block(w, len + more_bytes(p, skipped, i), b);
		else if (p->ids[i] == FILTER_SHUFFLE && p->element_bytes > 0)
			r = unshuffle(p->element_bytes, b);
		else if (p->ids[i] == FILTER_FLETCHER)
			r = check_fletcher(w, b);
		else
			r = hdf5_fail(w, -ENOTSUP, b->off, "a block behind filter %u", p->ids[i]);
	}
	if (r == 0 && b->len != len)
		r = hdf5_fail(w, -EBADMSG, b->off, "a block that filters make %zu bytes of, and not %zu", b->len, len);
	return r;
}
